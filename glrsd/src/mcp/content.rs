//! What a server answered, as text for the model.
//!
//! Owns the wording: texts as they are, everything else named for what it is, so that the model
//! never takes a picture it was not shown for nothing. Pure.

use crate::config::McpServer;
use rmcp::model::{CallToolResult, ContentBlock, ResourceContents};
use serde_json::Value;

/// A result as text, and whether the tool did what was asked.
pub(super) fn text(result: &CallToolResult) -> (bool, String) {
    let mut parts: Vec<String> = result.content.iter().map(block).collect();
    if let Some(value) = &result.structured_content {
        // Servers repeat it as text for clients that do not know it.
        let repeated = result.content.iter().any(|b| match b {
            ContentBlock::Text(t) => serde_json::from_str::<Value>(&t.text).is_ok_and(|v| v == *value),
            _ => false,
        });
        if !repeated {
            parts.push(serde_json::to_string_pretty(value).unwrap_or_else(|_| value.to_string()));
        }
    }
    let ok = result.is_error != Some(true);
    parts.retain(|p| !p.is_empty());
    let text = match (parts.is_empty(), ok) {
        (false, _) => parts.join("\n"),
        (true, true) => "(it did what was asked and said nothing)".to_owned(),
        (true, false) => "(it failed and did not say why)".to_owned(),
    };
    (ok, text)
}

fn block(block: &ContentBlock) -> String {
    match block {
        ContentBlock::Text(t) => t.text.clone(),
        ContentBlock::Image(i) => format!("[an image, {}, {}; it cannot be shown to you]", i.mime_type, size(&i.data)),
        ContentBlock::Audio(a) => format!("[a sound, {}, {}; it cannot be played to you]", a.mime_type, size(&a.data)),
        ContentBlock::ResourceLink(r) => {
            let mut out = format!("[a resource: {}", r.uri);
            out.extend(Some(&r.name).filter(|n| !n.is_empty() && **n != r.uri).map(|n| format!(", {n}")));
            out.extend(r.mime_type.as_ref().map(|m| format!(", {m}")));
            out.extend(r.size.map(|s| format!(", {s} bytes")));
            out.extend(r.description.as_ref().map(|d| format!(": {d}")));
            out.push(']');
            out
        }
        ContentBlock::Resource(e) => match &e.resource {
            ResourceContents::TextResourceContents { uri, text, .. } => format!("[the resource {uri}]\n{text}"),
            ResourceContents::BlobResourceContents { uri, mime_type, blob, .. } => {
                let kind = mime_type.as_deref().unwrap_or("binary");
                format!("[the resource {uri}, {kind}, {}; it cannot be shown to you]", size(blob))
            }
            _ => "[a resource of a kind that is not known here]".to_owned(),
        },
        _ => "[content of a kind that is not known here]".to_owned(),
    }
}

/// How many bytes a text in Base64 stands for.
fn size(base64: &str) -> String {
    format!("{} bytes", base64.trim_end_matches('=').len() * 3 / 4)
}

/// Which way a server is reached, in a word.
pub fn transport(server: &McpServer) -> &'static str {
    if server.url.is_some() { "http" } else { "stdio" }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn of(result: Value) -> (bool, String) {
        text(&serde_json::from_value(result).unwrap())
    }

    #[test]
    fn every_kind_of_content_is_named_for_what_it_is() {
        let (ok, text) = of(json!({"content": [
            {"type": "text", "text": "one"},
            {"type": "image", "data": "QUJD", "mimeType": "image/png"},
            {"type": "audio", "data": "QUI=", "mimeType": "audio/wav"},
            {"type": "resource_link", "uri": "file:///a", "name": "a", "description": "the a", "size": 7},
            {"type": "resource", "resource": {"uri": "x://t", "text": "inside"}},
            {"type": "resource", "resource": {"uri": "x://b", "blob": "QUJDRA==", "mimeType": "application/pdf"}},
        ], "structuredContent": {"n": 1}}));
        assert!(ok);
        assert_eq!(
            text,
            "one\n[an image, image/png, 3 bytes; it cannot be shown to you]\n\
             [a sound, audio/wav, 2 bytes; it cannot be played to you]\n\
             [a resource: file:///a, a, 7 bytes: the a]\n[the resource x://t]\ninside\n\
             [the resource x://b, application/pdf, 4 bytes; it cannot be shown to you]\n{\n  \"n\": 1\n}"
        );
    }

    #[test]
    fn structured_content_comes_once_and_silence_is_said() {
        let repeated = json!({"content": [{"type": "text", "text": "{\"n\":1}"}], "structuredContent": {"n": 1}});
        assert_eq!(of(repeated), (true, "{\"n\":1}".to_owned()));
        assert_eq!(of(json!({"content": [], "isError": true})), (false, "(it failed and did not say why)".to_owned()));
        assert!(of(json!({"content": []})).1.contains("said nothing"));
        assert_eq!(of(json!({"content": [{"type": "text", "text": "no"}], "isError": true})), (false, "no".to_owned()));
    }
}
