//! A session as text for people and other programs.
//!
//! Owns the Markdown form. The JSON form is the log itself: schema 2, entries byte for byte.

use crate::store::{DiskError, LogReader};
use glrs_protocol::SessionId;
use glrs_protocol::entry::Entry;
use std::fmt::Write;

/// The session as one schema-2 JSON document.
///
/// # Errors
/// When the log cannot be read.
pub fn json(id: &SessionId, reader: &LogReader) -> Result<String, DiskError> {
    let h = reader.header();
    let text = |s: &str| serde_json::to_string(s).unwrap_or_else(|_| "\"\"".into());
    let mut out = format!(
        "{{\"schema\":2,\"id\":{},\"createdAt\":{},\"cwd\":{},\"events\":[\n",
        text(id.as_str()),
        text(&h.created_at),
        text(&h.cwd)
    );
    let mut updated = h.created_at.clone();
    let mut first = true;
    reader.scan(&mut |_, raw| {
        if !first {
            out.push(',');
        }
        first = false;
        out.push_str(raw);
        out.push('\n');
        if let Some(at) = last_at(raw) {
            updated = at;
        }
    })?;
    let _ = writeln!(out, "],\"updatedAt\":{}}}", text(&updated));
    Ok(out)
}

fn last_at(raw: &str) -> Option<String> {
    #[derive(serde::Deserialize)]
    struct At {
        at: String,
    }
    serde_json::from_str::<At>(raw).ok().map(|a| a.at).filter(|a| !a.is_empty())
}

/// A fence longer than any in the text.
fn fenced(text: &str, lang: &str) -> String {
    let mut ticks = 3;
    let mut run = 0;
    for c in text.chars() {
        run = if c == '`' { run + 1 } else { 0 };
        ticks = ticks.max(run + 1);
    }
    let fence = "`".repeat(ticks);
    format!("{fence}{lang}\n{}\n{fence}\n", text.trim_end_matches('\n'))
}

/// The session as Markdown: messages, reasoning, tools with their results.
///
/// # Errors
/// When the log cannot be read.
pub fn markdown(reader: &LogReader) -> Result<String, DiskError> {
    let mut summary = crate::fold::Summary::default();
    let mut body = String::new();
    reader.scan(&mut |n, raw| {
        summary.apply(n, raw);
        let Ok(entry) = Entry::parse(raw) else { return };
        let _ = match entry {
            Entry::User(u) => write!(body, "\n## You\n\n{}\n", u.text),
            Entry::Assistant(a) if a.partial => write!(body, "\n## Assistant (cut short)\n\n{}\n", a.text),
            Entry::Assistant(a) => write!(body, "\n## Assistant\n\n{}\n", a.text),
            Entry::Reasoning(r) => {
                write!(body, "\n<details><summary>Reasoning</summary>\n\n{}\n\n</details>\n", r.text)
            }
            Entry::Tool(t) => {
                let mark = if t.ok { "ok" } else { "failed" };
                let diff = t.diff.map(|d| fenced(&d, "diff")).unwrap_or_default();
                let result = t.result.map(|r| fenced(&r, "")).unwrap_or_default();
                write!(body, "\n### {} {} ({mark}, {} ms)\n\n{diff}{result}", t.name, t.detail, t.elapsed_ms)
            }
            Entry::Notice(t) => write!(body, "\n*{}*\n", t.text),
            Entry::Error(t) => write!(body, "\n**Error:** {}\n", t.text),
            Entry::Cleared(_) => write!(body, "\n---\n\n*(cleared)*\n"),
            Entry::Compacted(c) => write!(body, "\n---\n\n*(compacted)*\n\n{}\n", c.summary),
            _ => Ok(()),
        };
    })?;
    let h = reader.header();
    Ok(format!("# {}\n\n{} · {}\n{body}", summary.title(), h.cwd, h.created_at))
}

#[cfg(test)]
mod tests {
    #[test]
    fn fences_are_longer_than_what_they_hold() {
        assert!(super::fenced("a ```` b", "").starts_with("`````\n"));
    }
}
