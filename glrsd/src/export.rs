//! A session as text for people and other programs.
//!
//! Owns the Markdown form, and the parts in which both forms go out, since a session may be larger
//! than a message. The JSON form is the log itself: schema 2, entries byte for byte.

use crate::store::{DiskError, LogReader};
use glrs_protocol::SessionId;
use glrs_protocol::entry::Entry;
use glrs_protocol::types::NumberedEntry;
use std::fmt::Write;

/// About so many bytes of entries are in a part: well below the largest message, whose every byte may
/// be escaped.
const PART: usize = 4 * 1024 * 1024;

/// A part of an export.
pub struct Part {
    /// The text.
    pub text: String,
    /// The entry at which the next part starts; `None` after the last.
    pub next: Option<u64>,
}

/// Entries of the part that starts at `from`, and where the next one starts.
fn entries(reader: &LogReader, from: u64) -> Result<(Vec<NumberedEntry>, Option<u64>), DiskError> {
    let entries = reader.read(from, usize::MAX, PART)?;
    let next = entries.last().map(|e| e.n + 1).filter(|n| *n <= reader.len());
    Ok((entries, next))
}

/// The session as one schema-2 JSON document, from entry `from` on: the parts joined are the document.
///
/// # Errors
/// When the log cannot be read.
pub fn json(id: &SessionId, reader: &LogReader, from: u64) -> Result<Part, DiskError> {
    let h = reader.header();
    let quoted = |s: &str| serde_json::to_string(s).unwrap_or_else(|_| "\"\"".into());
    let mut text = String::new();
    if from <= 1 {
        let (id, at, cwd) = (quoted(id.as_str()), quoted(&h.created_at), quoted(&h.cwd));
        let _ = writeln!(text, "{{\"schema\":2,\"id\":{id},\"createdAt\":{at},\"cwd\":{cwd},\"events\":[");
    }
    let (entries, next) = entries(reader, from)?;
    for e in &entries {
        // The first entry that can be read need not be number 1.
        if from > 1 || e.n != entries[0].n {
            text.push(',');
        }
        let _ = writeln!(text, "{}", e.entry.get());
    }
    if next.is_none() {
        let last = reader.tail(1, usize::MAX)?.pop();
        let updated = last.and_then(|e| last_at(e.entry.get())).unwrap_or_else(|| h.created_at.clone());
        let _ = writeln!(text, "],\"updatedAt\":{}}}", quoted(&updated));
    }
    Ok(Part { text, next })
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

/// The session as Markdown, from entry `from` on: messages, reasoning, tools with their results.
///
/// # Errors
/// When the log cannot be read.
pub fn markdown(reader: &LogReader, from: u64) -> Result<Part, DiskError> {
    let mut text = String::new();
    if from <= 1 {
        let mut summary = crate::fold::Summary::default();
        reader.scan(&mut |n, raw| summary.apply(n, raw))?;
        let h = reader.header();
        let _ = writeln!(text, "# {}\n\n{} · {}", summary.title(), h.cwd, h.created_at);
    }
    let (entries, next) = entries(reader, from)?;
    entries.iter().for_each(|e| entry_markdown(e.entry.get(), &mut text));
    Ok(Part { text, next })
}

fn entry_markdown(raw: &str, body: &mut String) {
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
}

#[cfg(test)]
mod tests {
    #[test]
    fn fences_are_longer_than_what_they_hold() {
        assert!(super::fenced("a ```` b", "").starts_with("`````\n"));
    }
}
