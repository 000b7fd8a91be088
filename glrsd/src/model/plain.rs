//! The one event that nearly all of a stream is: more text.
//!
//! Owns reading it without making a tree of it, which costs three times as much. Whatever has anything
//! else in it is `None` here and read in full by its decoder, so this decides nothing.

use serde::Deserialize;
use serde::de::IgnoredAny;
use std::borrow::Cow;

/// More text, more reasoning, or neither.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Plain<'a> {
    pub text: Cow<'a, str>,
    pub thought: Cow<'a, str>,
}

/// What may be there as `null` only.
type Null = Option<()>;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Chat<'a> {
    #[serde(borrow)]
    choices: (ChatChoice<'a>,),
    #[serde(default, rename = "id")]
    _id: IgnoredAny,
    #[serde(default, rename = "object")]
    _object: IgnoredAny,
    #[serde(default, rename = "created")]
    _created: IgnoredAny,
    #[serde(default, rename = "model")]
    _model: IgnoredAny,
    #[serde(default, rename = "provider")]
    _provider: IgnoredAny,
    #[serde(default, rename = "system_fingerprint")]
    _fingerprint: IgnoredAny,
    #[serde(default, rename = "service_tier")]
    _tier: IgnoredAny,
    #[serde(default, rename = "obfuscation")]
    _obfuscation: IgnoredAny,
    #[serde(default, rename = "usage")]
    _usage: Null,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ChatChoice<'a> {
    #[serde(borrow)]
    delta: ChatDelta<'a>,
    #[serde(default, rename = "index")]
    _index: IgnoredAny,
    #[serde(default, rename = "logprobs")]
    _logprobs: IgnoredAny,
    #[serde(default, rename = "finish_reason")]
    _finish: Null,
    #[serde(default, rename = "native_finish_reason")]
    _native_finish: Null,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ChatDelta<'a> {
    #[serde(borrow, default)]
    content: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    reasoning_content: Option<Cow<'a, str>>,
    #[serde(default, rename = "role")]
    _role: IgnoredAny,
    #[serde(default, rename = "refusal")]
    _refusal: Null,
    #[serde(default, rename = "tool_calls")]
    _calls: Null,
}

/// Of a Chat Completions stream.
pub(super) fn chat(data: &str) -> Option<Plain<'_>> {
    // Without any it is something else, and finding that out by reading costs as much as reading.
    memchr::memmem::find(data.as_bytes(), b"content\":")?;
    let Chat { choices: (ChatChoice { delta, .. },), .. } = serde_json::from_str(data).ok()?;
    Some(Plain { text: delta.content.unwrap_or_default(), thought: delta.reasoning_content.unwrap_or_default() })
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct BlockDelta<'a> {
    #[serde(borrow, rename = "type")]
    kind: Cow<'a, str>,
    index: u64,
    #[serde(borrow)]
    delta: Piece<'a>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Piece<'a> {
    #[serde(borrow, rename = "type")]
    kind: Cow<'a, str>,
    #[serde(borrow, default)]
    text: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    thinking: Option<Cow<'a, str>>,
}

/// Of a Messages stream, with the block's index.
pub(super) fn messages(data: &str) -> Option<(u64, Plain<'_>)> {
    memchr::memmem::find(data.as_bytes(), b"content_block_delta")?;
    let BlockDelta { kind, index, delta } = serde_json::from_str(data).ok()?;
    let plain = match (&*kind, &*delta.kind, delta.text, delta.thinking) {
        ("content_block_delta", "text_delta", Some(text), None) => Plain { text, ..Plain::default() },
        ("content_block_delta", "thinking_delta", None, Some(thought)) => Plain { thought, ..Plain::default() },
        _ => return None,
    };
    Some((index, plain))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_text_is_plain() {
        let plain = |text: &'static str, thought: &'static str| Plain { text: text.into(), thought: thought.into() };
        let event =
            |delta: &str, rest: &str| format!(r#"{{"id":"x","choices":[{{"index":0,"delta":{delta}{rest}}}]}}"#);
        assert_eq!(chat(&event(r#"{"content":"a\n"}"#, r#","finish_reason":null"#)), Some(plain("a\n", "")));
        assert_eq!(chat(&event(r#"{"role":"assistant","content":null}"#, "")), Some(plain("", "")));
        assert_eq!(chat(&event(r#"{"content":"","reasoning_content":"b"}"#, "")), Some(plain("", "b")));
        for (delta, rest) in [
            (r#"{"content":"a"}"#, r#","finish_reason":"stop""#),
            (r#"{"content":"a","tool_calls":[]}"#, ""),
            (r#"{"content":["a"]}"#, ""),
            (r#"{"content":"a","reasoning":"b"}"#, ""),
            (r#"{"content":"a"}"#, r#","usage":{}"#),
            (r#"{"content":"a"}},{"delta":{"content":"b"}"#, ""),
        ] {
            assert_eq!(chat(&event(delta, rest)), None, "{delta}{rest}");
        }
        assert_eq!(chat(r#"{"choices":[]}"#), None);
        assert_eq!(chat(r#"{"error":{},"choices":[{"delta":{"content":"a"}}]}"#), None);
        assert_eq!(chat(r#"{"usage":{"x":1},"choices":[{"delta":{"content":"a"}}]}"#), None);

        let block = |delta: &str| format!(r#"{{"type":"content_block_delta","index":2,"delta":{delta}}}"#);
        assert_eq!(messages(&block(r#"{"type":"text_delta","text":"é"}"#)), Some((2, plain("é", ""))));
        assert_eq!(messages(&block(r#"{"type":"thinking_delta","thinking":"b"}"#)), Some((2, plain("", "b"))));
        for delta in [
            r#"{"type":"signature_delta","signature":"s"}"#,
            r#"{"type":"text_delta"}"#,
            r#"{"type":"text_delta","thinking":"b"}"#,
            r#"{"type":"input_json_delta","partial_json":"{"}"#,
        ] {
            assert_eq!(messages(&block(delta)), None, "{delta}");
        }
        assert_eq!(messages(r#"{"type":"ping"}"#), None);
    }
}
