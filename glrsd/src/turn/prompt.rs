//! What the model is told besides the conversation: the system prompt, and where it is.
//!
//! Owns the words. The system prompt is byte-stable within a session (prompt caches depend on it);
//! what changes — directory, instructions, attached files — rides behind the user's words.

use crate::config::{Found, read_head};
use std::cell::LazyCell;
use std::io::ErrorKind;
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

/// Instruction files as they are found now.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Instructions {
    /// Their paths and texts, outermost first.
    pub texts: Vec<(PathBuf, String)>,
    /// What was left out and why, for people.
    pub left_out: Vec<String>,
}

/// The instruction files from `root` down to `cwd`. May block. What they say goes to a provider, and
/// a checkout brings them along: so only regular files below the root are read, and only their
/// heads.
pub fn instructions(root: &Path, cwd: &Path) -> Instructions {
    let mut dirs: Vec<&Path> = cwd.ancestors().take_while(|d| d.starts_with(root)).collect();
    let mut inside = root;
    if dirs.is_empty() {
        dirs.push(cwd);
        inside = cwd;
    }
    dirs.reverse();
    // Most directories have none: then where they really are does not matter.
    let real = LazyCell::new(|| inside.canonicalize().unwrap_or_else(|_| inside.to_path_buf()));
    let mut found = Instructions::default();
    let there = |path: &PathBuf| !path.symlink_metadata().is_err_and(|e| e.kind() == ErrorKind::NotFound);
    for path in dirs.into_iter().map(|d| d.join(INSTRUCTIONS)).filter(there) {
        let mut bytes = match read_head(&path, Some(&real), INSTRUCTIONS_MAX as u64) {
            Found::Absent => continue,
            Found::Refused(why) => {
                found.left_out.push(format!("{} was not read: {why}", path.display()));
                continue;
            }
            Found::Bytes(bytes) => bytes,
        };
        let cut = bytes.len() > INSTRUCTIONS_MAX;
        bytes.truncate(INSTRUCTIONS_MAX);
        if cut {
            // No character is cut in two: at most three bytes of one can stand at the end.
            let whole = bytes.utf8_chunks().last().filter(|c| (1..4).contains(&c.invalid().len()));
            bytes.truncate(INSTRUCTIONS_MAX - whole.map_or(0, |c| c.invalid().len()));
        }
        let mut text = String::from_utf8_lossy(&bytes).into_owned();
        if cut {
            text.push_str("\n[cut: the file is longer]");
            found.left_out.push(format!(
                "only the first {} KiB of {} were read: it is longer",
                INSTRUCTIONS_MAX / 1024,
                path.display()
            ));
        }
        if !text.trim().is_empty() {
            found.texts.push((path, text));
        }
    }
    found
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
        let found = instructions(&root, &cwd);
        assert_eq!(found.texts.iter().map(|(_, t)| t.as_str()).collect::<Vec<_>>(), ["top", "deep"]);
        assert!(found.left_out.is_empty());
        let block = context_block(Some(&cwd), &found.texts, &["<file>".to_owned()], &[]);
        assert!(
            block.starts_with("<context>\nWorking directory: ")
                && block.contains("<file>")
                && block.ends_with("</context>")
        );
        assert_eq!(context_block(None, &[], &[], &[]), "");
    }
    #[test]
    fn what_is_no_plain_file_of_the_project_is_left_out_and_said() {
        use rustix::fs::{CWD, FileType, Mode, mknodat};
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().join("r");
        let (a, b, c) = (root.join("a"), root.join("a/b"), root.join("a/b/c"));
        std::fs::create_dir_all(&c).unwrap();
        // A pipe nobody writes to would be waited for, and /dev/zero never ends.
        mknodat(CWD, root.join("AGENTS.md"), FileType::Fifo, Mode::from_raw_mode(0o600), 0).unwrap();
        std::os::unix::fs::symlink("/dev/zero", a.join("AGENTS.md")).unwrap();
        std::fs::write(dir.path().join("secret"), "a secret").unwrap();
        std::os::unix::fs::symlink(dir.path().join("secret"), b.join("AGENTS.md")).unwrap();
        std::fs::write(c.join("AGENTS.md"), format!("x{}", "é".repeat(100_000))).unwrap();
        let found = instructions(&root, &c);
        assert_eq!(found.texts.len(), 1);
        let text = &found.texts[0].1;
        assert!(text.starts_with("xé") && text.ends_with("é\n[cut: the file is longer]"), "{:?}", text.len());
        assert!(text.len() < INSTRUCTIONS_MAX + 100);
        assert_eq!(found.left_out.len(), 4, "{:?}", found.left_out);
        for (said, why) in found.left_out.iter().zip(["not a regular file", "leads out", "leads out", "64 KiB"]) {
            assert!(said.contains(why), "{said}");
        }
        assert!(!format!("{found:?}").contains("a secret"));
        // A link that stays inside is a file like any other.
        std::fs::remove_file(b.join("AGENTS.md")).unwrap();
        std::os::unix::fs::symlink("c/AGENTS.md", b.join("AGENTS.md")).unwrap();
        assert_eq!(instructions(&root, &b).texts.len(), 1);
    }
}
