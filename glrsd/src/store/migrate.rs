//! Schema 1: a session that is a list of messages, turned into entries.
//!
//! Owns that one translation: text becomes `user` and `assistant` entries, all messages go into
//! one `turn`. Texts keep their bytes. Must not know files.

use super::json::{self, Walk};

/// The entries that stand for the messages of a schema-1 session. `created` and `updated` are
/// string values, quotes included.
pub(crate) fn entries_of_messages(messages: &[Vec<u8>], created: &[u8], updated: &[u8]) -> Vec<Vec<u8>> {
    let mut out = Vec::new();
    for m in messages {
        let kind = match json::member(m, "role") {
            Some(b"\"user\"") => "user",
            Some(b"\"assistant\"") => "assistant",
            _ => continue,
        };
        let text = json::member(m, "content").map(text_of).unwrap_or_default();
        if text.trim_ascii().is_empty() {
            continue;
        }
        let mut e = format!("{{\"type\":\"{kind}\",\"text\":\"").into_bytes();
        e.extend_from_slice(&text);
        e.extend_from_slice(b"\",\"at\":");
        e.extend_from_slice(created);
        e.push(b'}');
        out.push(json::minify(&e));
    }
    if !messages.is_empty() {
        let mut e = b"{\"type\":\"turn\",\"messages\":[".to_vec();
        e.extend_from_slice(&messages.join(&b','));
        e.extend_from_slice(b"],\"status\":\"done\",\"at\":");
        e.extend_from_slice(if updated.len() > 2 { updated } else { created });
        e.push(b'}');
        out.push(json::minify(&e));
    }
    out
}

/// The inside of the text of a message's content, still escaped.
fn text_of(content: &[u8]) -> Vec<u8> {
    let inside = |s: &[u8]| s.get(1..s.len().saturating_sub(1)).unwrap_or_default().to_vec();
    if content.starts_with(b"\"") {
        return inside(content);
    }
    let mut parts = Vec::new();
    if let Some(mut walk) = Walk::new(content, 0) {
        while let Ok(Some(part)) = walk.element() {
            if json::member(part, "type") == Some(b"\"text\"")
                && let Some(text) = json::member(part, "text").filter(|t| t.starts_with(b"\""))
            {
                parts.push(inside(text));
            }
        }
    }
    parts.join(&b"\\n"[..])
}
