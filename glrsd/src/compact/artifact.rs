//! The artifact: what a compaction replaced, readable by people, one file per compaction.
//!
//! Owns its form and its name (compaction.md "The artifact"). Content is unchanged.

use glrs_protocol::message::{Message, Part, Role};
use std::fmt::Write;
use std::sync::Arc;

/// Longest label, in characters.
pub const LABEL_CHARS: usize = 120;

/// The head of an artifact.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Head {
    /// One line.
    pub label: String,
    /// When it was made.
    pub created_at: String,
    /// How many messages it has.
    pub messages: u64,
    /// A note that was put on it.
    pub note: String,
}

/// The label of a brief: its first line without Markdown marks and end punctuation.
pub fn label(brief: &str) -> String {
    let line = brief.trim_start().lines().next().unwrap_or("");
    let clean: String = line.chars().filter(|c| !matches!(c, '*' | '`' | '_') && !c.is_control()).collect();
    let clean = clean.trim_start_matches(['#', '>', '-', ' ']).trim_end_matches(['.', ':', ';', ',', '!', '?', ' ']);
    clean.chars().take(LABEL_CHARS).collect::<String>().trim_end().to_owned()
}

/// A file name for a moment (RFC 3339): `:` and `.` become `-`.
pub fn name(at: &str) -> String {
    format!("{}.md", at.replace([':', '.'], "-"))
}

/// Whether a text is the name of an artifact: nothing else is ever joined to a path.
pub fn is_name(text: &str) -> bool {
    text.strip_suffix(".md").is_some_and(|stem| {
        !stem.is_empty() && stem.len() <= 64 && stem.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-')
    })
}

fn one_line(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect()
}

fn front(head: &Head) -> String {
    format!(
        "---\nlabel: {}\ncreatedAt: {}\nmessages: {}\nnote: {}\n---\n",
        one_line(&head.label),
        head.created_at,
        head.messages,
        one_line(&head.note)
    )
    .replace("note: \n", "note:\n")
}

/// One piece with its heading.
pub fn piece(out: &mut String, role: Role, part: &Part) {
    let _ = match part {
        Part::Text(t) => {
            let who = match role {
                Role::Assistant => "assistant",
                Role::Tool => "tool",
                Role::System => "system",
                Role::User => "user",
            };
            writeln!(out, "[{who}]\n{t}")
        }
        Part::Reasoning { text, .. } => writeln!(out, "[reasoning]\n{text}"),
        Part::ToolCall { name, input, .. } => writeln!(out, "[tool-call {name}]\n{}", input.get()),
        Part::ToolResult { name, output, .. } => writeln!(out, "[tool-result {name}]\n{}", output.as_text()),
        Part::File { kind, media_type, data } => writeln!(out, "[{kind} {media_type}]\n{data}"),
        Part::Other(raw) => writeln!(out, "[other]\n{}", raw.get()),
    };
}

/// The whole artifact.
pub fn render(head: &Head, messages: &[Arc<Message>]) -> String {
    let mut out = front(head);
    for m in messages {
        for p in &m.parts {
            piece(&mut out, m.role, p);
        }
    }
    out
}

/// Takes an artifact apart: its head, and where its content begins.
pub fn parse(text: &str) -> Option<(Head, usize)> {
    let rest = text.strip_prefix("---\n")?;
    let end = rest.find("\n---\n")?;
    let mut head = Head::default();
    for line in rest[..end].lines() {
        let (key, value) = line.split_once(':')?;
        let value = value.trim().to_owned();
        match key {
            "label" => head.label = value,
            "createdAt" => head.created_at = value,
            "messages" => head.messages = value.parse().unwrap_or(0),
            "note" => head.note = value,
            _ => {}
        }
    }
    Some((head, 4 + end + 5))
}

/// The artifact with another label or note; the content is unchanged.
pub fn annotate(text: &str, label: Option<&str>, note: Option<&str>) -> Option<String> {
    let (mut head, at) = parse(text)?;
    if let Some(l) = label {
        head.label = one_line(l).chars().take(LABEL_CHARS).collect();
    }
    if let Some(n) = note {
        head.note = one_line(n);
    }
    Some(format!("{}{}", front(&head), &text[at..]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_artifact_reads_as_the_specification_shows_it() {
        let messages = [
            r#"{"role":"user","content":"the login redirect test is failing"}"#,
            r#"{"role":"assistant","content":[{"type":"tool-call","toolCallId":"c","toolName":"read","input":{"path":"src/auth/redirect.ts"}}]}"#,
            r#"{"role":"tool","content":[{"type":"tool-result","toolCallId":"c","toolName":"read","output":{"type":"text","value":"export const redirect"}}]}"#,
        ]
        .map(|m| Arc::new(Message::parse(m).unwrap()));
        let head = Head {
            label: label("**Fixed three failing auth tests.**\n\nmore"),
            created_at: "2026-09-06T14:02:11.000Z".into(),
            messages: 3,
            note: String::new(),
        };
        let text = render(&head, &messages);
        assert_eq!(
            text,
            "---\nlabel: Fixed three failing auth tests\ncreatedAt: 2026-09-06T14:02:11.000Z\nmessages: 3\nnote:\n---\n\
             [user]\nthe login redirect test is failing\n[tool-call read]\n{\"path\":\"src/auth/redirect.ts\"}\n\
             [tool-result read]\nexport const redirect\n"
        );
        assert_eq!(parse(&text).unwrap().0, head);
        let noted = annotate(&text, None, Some("keep\nthis")).unwrap();
        assert_eq!(parse(&noted).unwrap().0.note, "keep this");
        assert!(noted.ends_with("export const redirect\n"));
        assert_eq!(name(&head.created_at), "2026-09-06T14-02-11-000Z.md");
    }

    #[test]
    fn hostile_names_are_no_names() {
        for bad in ["", ".md", "../x.md", "a/b.md", "a\\b.md", "x.json", "..md", "a b.md", "x\0.md"] {
            assert!(!is_name(bad), "{bad:?}");
        }
        assert!(is_name("2026-09-06T14-02-11-000Z.md"));
    }
}
