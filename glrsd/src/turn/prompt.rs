//! What the model is told besides the conversation: the system prompt, and where it is.
//!
//! Owns the words. The system prompt is byte-stable within a session (prompt caches depend on it);
//! what changes — directory, instructions, attached files — rides behind the user's words.

use std::path::{Path, PathBuf};

/// Most bytes of one instructions file that are sent.
const INSTRUCTIONS_MAX: usize = 64 * 1024;
/// Name of the instructions file.
const INSTRUCTIONS: &str = "AGENTS.md";

/// The system prompt.
pub fn system() -> &'static str {
    "You are a coding agent working in a person's project through tools, in a session that outlives the \
terminals it is shown in.

- Do what was asked, completely, and no more. Look before you change: read the files you are about to edit.
- Use the tools rather than guessing. Prefer `edit` for changes to existing files and `write` for new ones; use `grep` \
and `glob` to find things; use `bash` for builds, tests and everything else.
- Some calls need a person's permission. A refusal is an answer: respect it and go on another way, or stop and say why.
- Keep a plan with the `plan` tool when there are more than two steps, and keep it current.
- Messages in <context> blocks come from the session itself: where you are, project instructions, attached files, commands the person ran, what runs in the background.
- Lines starting with [vitals] tell the time and how full your context is. They ask for nothing.
- Verify what you did before you say it is done. Answer briefly, in Markdown."
}

/// The instruction files from `root` down to `cwd`, outermost first, as they are found now.
pub fn instructions(root: &Path, cwd: &Path) -> Vec<(PathBuf, String)> {
    let mut dirs: Vec<&Path> = cwd.ancestors().take_while(|d| d.starts_with(root)).collect();
    if dirs.is_empty() {
        dirs.push(cwd);
    }
    dirs.reverse();
    dirs.into_iter()
        .filter_map(|d| {
            let path = d.join(INSTRUCTIONS);
            let bytes = std::fs::read(&path).ok()?;
            let mut text = String::from_utf8_lossy(&bytes).into_owned();
            if text.len() > INSTRUCTIONS_MAX {
                let mut end = INSTRUCTIONS_MAX;
                while !text.is_char_boundary(end) {
                    end -= 1;
                }
                text.truncate(end);
                text.push_str("\n[cut: the file is longer]");
            }
            (!text.trim().is_empty()).then_some((path, text))
        })
        .collect()
}

/// What begins the block that rides behind a message's words.
pub const CONTEXT_OPEN: &str = "<context>\n";
/// What begins the line of that block that says where the conversation is. Instructions follow it.
pub const PLACE: &str = "Working directory: ";

/// Whether a text is such a block that says where the conversation is, and so has its instructions.
pub fn has_place(text: &str) -> bool {
    text.strip_prefix(CONTEXT_OPEN).is_some_and(|t| t.starts_with(PLACE))
}

/// The block that rides behind a message's words; empty when there is nothing to say.
pub fn context_block(
    place: Option<&Path>,
    instructions: &[(PathBuf, String)],
    attachments: &[String],
    reminders: &[String],
) -> String {
    let mut out = String::new();
    if let Some(cwd) = place {
        out.push_str(&format!("{PLACE}{}\nPlatform: {}\n", cwd.display(), std::env::consts::OS));
    }
    for (path, text) in instructions {
        out.push_str(&format!("<instructions path=\"{}\">\n{}\n</instructions>\n", path.display(), text.trim_end()));
    }
    for a in attachments {
        out.push_str(a);
        out.push('\n');
    }
    for r in reminders {
        out.push_str(r);
        out.push('\n');
    }
    if out.is_empty() { out } else { format!("{CONTEXT_OPEN}{out}</context>") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn instructions_come_outermost_first_and_stay_below_the_root() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().join("r");
        let cwd = root.join("a/b");
        std::fs::create_dir_all(&cwd).unwrap();
        std::fs::write(dir.path().join("AGENTS.md"), "outside").unwrap();
        std::fs::write(root.join("AGENTS.md"), "top").unwrap();
        std::fs::write(cwd.join("AGENTS.md"), "deep").unwrap();
        let found: Vec<String> = instructions(&root, &cwd).into_iter().map(|(_, t)| t).collect();
        assert_eq!(found, ["top", "deep"]);
        let block = context_block(Some(&cwd), &instructions(&root, &cwd), &["<file>".to_owned()], &[]);
        assert!(
            block.starts_with("<context>\nWorking directory: ")
                && block.contains("<file>")
                && block.ends_with("</context>")
        );
        assert_eq!(context_block(None, &[], &[], &[]), "");
    }
}
