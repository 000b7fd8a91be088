//! Chat Completions requests.
//!
//! Owns: message order (results directly behind their calls), ids, reasoning that goes back, cache marks
//! where they are wanted. The same history gives the same bytes, marks aside, whatever comes behind it.
//! Must not know HTTP.

use super::quirks::{self, Effort, Quirks};
use crate::model::body::Body;
use crate::model::convert::{self, Answered, Said, Turn};
use crate::model::{Call, ToolSpec};
use serde::{Serialize, Serializer};
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};
use std::borrow::Cow;
use std::collections::HashMap;

#[derive(Serialize)]
#[serde(tag = "role", rename_all = "lowercase")]
enum Wire<'a> {
    System {
        content: Content<'a>,
    },
    User {
        content: Content<'a>,
    },
    Assistant {
        content: Option<String>,
        #[serde(skip_serializing_if = "Option::is_none")]
        reasoning_content: Option<String>,
        #[serde(skip_serializing_if = "Option::is_none")]
        reasoning: Option<String>,
        #[serde(skip_serializing_if = "Option::is_none")]
        reasoning_details: Option<Box<RawValue>>,
        #[serde(skip_serializing_if = "Vec::is_empty")]
        tool_calls: Vec<WireCall<'a>>,
    },
    Tool {
        tool_call_id: &'a str,
        content: Content<'a>,
    },
}

/// A string when it can be one: some servers know nothing else.
enum Content<'a> {
    Text(Cow<'a, str>),
    Pieces(Vec<Piece<'a>>),
}

impl Content<'_> {
    /// Marks the last text that stays: what glrs adds at the tail (`[vitals]`) changes each time.
    fn mark(&mut self) -> bool {
        let stays = |t: &str| !t.starts_with("[vitals]");
        if let Self::Text(text) = self {
            if !stays(text) {
                return false;
            }
            let text = std::mem::take(text);
            *self = Self::Pieces(vec![Piece::Text { text, cache_control: None }]);
        }
        let Self::Pieces(pieces) = self else { return false };
        for piece in pieces.iter_mut().rev() {
            if let Piece::Text { text, cache_control } = piece
                && stays(text)
            {
                *cache_control = Some(Mark { kind: "ephemeral" });
                return true;
            }
        }
        false
    }
}

impl Serialize for Content<'_> {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Text(t) => s.serialize_str(t),
            Self::Pieces(p) => p.serialize(s),
        }
    }
}

#[derive(Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum Piece<'a> {
    Text {
        text: Cow<'a, str>,
        #[serde(skip_serializing_if = "Option::is_none")]
        cache_control: Option<Mark>,
    },
    ImageUrl {
        image_url: Url,
    },
    File {
        file: File,
    },
}

#[derive(Clone, Copy, Serialize)]
struct Mark {
    #[serde(rename = "type")]
    kind: &'static str,
}

#[derive(Serialize)]
struct Url {
    url: String,
}

#[derive(Serialize)]
struct File {
    filename: &'static str,
    file_data: String,
}

#[derive(Serialize)]
struct WireCall<'a> {
    id: &'a str,
    #[serde(rename = "type")]
    kind: &'static str,
    function: Function<'a>,
    #[serde(skip_serializing_if = "Option::is_none")]
    extra_content: Option<Box<RawValue>>,
}

#[derive(Serialize)]
struct Function<'a> {
    name: &'a str,
    arguments: &'a str,
}

#[derive(Serialize)]
struct Tool<'a> {
    #[serde(rename = "type")]
    kind: &'static str,
    function: Declared<'a>,
}

#[derive(Serialize)]
struct Declared<'a> {
    name: &'a str,
    description: &'a str,
    parameters: &'a RawValue,
}

/// The body of one call.
pub(crate) fn build(provider: &str, model: &str, call: &Call, options: &[&Map<String, Value>]) -> Vec<u8> {
    let quirks = quirks::of(provider);
    let own = quirks::own_key(provider, model);
    let turns = convert::turns(&call.messages, &own, quirks.ids, !call.tools.is_empty());
    let marks = quirks::marks(provider, model);
    let mut messages = Vec::new();
    if !call.system.trim().is_empty() {
        let mut content = Content::Text((&*call.system).into());
        if marks {
            content.mark();
        }
        messages.push(Wire::System { content });
    }
    // Where a turn of the user's side ends: the last one is marked for the next request, the one before it
    // because that is where the previous request's mark was. With the system prompt (and the tools, which
    // stand before it) that makes three of the four that are taken.
    let ends = turns.iter().enumerate().rev().filter(|(_, t)| matches!(t, Turn::User { .. })).map(|(i, _)| i);
    let ends: Vec<usize> = if marks { ends.take(2).collect() } else { Vec::new() };
    for (i, turn) in turns.iter().enumerate() {
        let begin = messages.len();
        wire(turn, &quirks, marks, &mut messages);
        if ends.contains(&i) {
            mark(&mut messages[begin..]);
        }
    }
    let mut body = Body::with_capacity(call.size());
    body.set("model", &model);
    body.set("stream", &true);
    if quirks.stream_options {
        body.set("stream_options", &json!({"include_usage": true}));
    }
    // A number that is too high is refused; without one the provider gives what the model can.
    if let Some(most) = call.max_output {
        body.set(quirks.max_field, &most.max(1));
    }
    if !call.tools.is_empty() {
        body.set("tools", &tools(&call.tools));
        if call.force_text {
            body.set("tool_choice", &"none");
        } else if quirks.ask_parallel {
            body.set("parallel_tool_calls", &true);
        }
    }
    let effort = quirks::effort(provider, model, call.variant.as_deref(), !call.tools.is_empty());
    match (quirks.effort, effort) {
        (Effort::Plain, Some(e)) => body.set("reasoning_effort", &e),
        (Effort::Object, Some(e)) => body.set("reasoning", &json!({"effort": e})),
        _ => {}
    }
    if quirks.cache_key && !call.cache_key.is_empty() {
        body.set("prompt_cache_key", &call.cache_key);
    }
    body.set("messages", &messages);
    for o in options {
        body.merge(o);
    }
    body.into_bytes()
}

fn tools(specs: &[ToolSpec]) -> Vec<Tool<'_>> {
    specs
        .iter()
        .map(|t| Tool {
            kind: "function",
            function: Declared { name: &t.name, description: &t.description, parameters: &t.schema },
        })
        .collect()
}

fn mark(messages: &mut [Wire<'_>]) {
    for message in messages.iter_mut().rev() {
        if let Wire::User { content } | Wire::Tool { content, .. } = message
            && content.mark()
        {
            return;
        }
    }
}

/// One turn. With `apart` its texts are not joined: where blocks are cached, a text to which something is
/// added later would be another block.
fn wire<'a>(turn: &'a Turn<'a>, quirks: &Quirks, apart: bool, out: &mut Vec<Wire<'a>>) {
    match turn {
        Turn::User { results, parts } => {
            let tool =
                |r: &'a Answered<'a>| Wire::Tool { tool_call_id: &r.id, content: Content::Text(r.text().into()) };
            out.extend(results.iter().map(tool));
            if parts.is_empty() {
                return;
            }
            if !results.is_empty() && !quirks.user_after_tool {
                out.push(assistant_text("(noted)".into()));
            }
            out.push(Wire::User { content: content(parts, quirks, apart) });
        }
        Turn::Assistant(parts) => out.push(assistant(parts, quirks)),
    }
}

fn assistant_text<'a>(text: String) -> Wire<'a> {
    Wire::Assistant {
        content: Some(text),
        reasoning_content: None,
        reasoning: None,
        reasoning_details: None,
        tool_calls: Vec::new(),
    }
}

fn assistant<'a>(parts: &'a [Said<'a>], quirks: &Quirks) -> Wire<'a> {
    let mut text: Option<String> = None;
    let mut thought: Option<String> = None;
    let mut reasoning_details: Option<Box<RawValue>> = None;
    let mut tool_calls: Vec<WireCall<'a>> = Vec::new();
    for part in parts {
        match part {
            Said::Text(t) => append(&mut text, t, "\n\n"),
            Said::Reasoning(_, own) if quirks.details => reasoning_details = field(own, "reasoning_details"),
            Said::Reasoning(t, _) if quirks.echo.is_some() => append(&mut thought, t, ""),
            Said::Call { id, name, input, opts } => tool_calls.push(WireCall {
                id,
                kind: "function",
                function: Function { name, arguments: input.get() },
                extra_content: quirks.signed_calls.then(|| signature(*opts, tool_calls.is_empty())).flatten(),
            }),
            _ => {}
        }
    }
    let thought = if quirks.echo_always {
        Some(thought.filter(|t| !t.is_empty()).unwrap_or_else(|| quirks::NO_THOUGHT.to_owned()))
    } else {
        // Reasoning belongs to a tool loop; without calls it is not wanted back.
        thought.filter(|_| !tool_calls.is_empty())
    };
    let (reasoning, reasoning_content) =
        if quirks.echo == Some("reasoning") { (thought, None) } else { (None, thought) };
    if text.is_none() && tool_calls.is_empty() {
        text = Some("(no answer)".into());
    }
    Wire::Assistant { content: text, reasoning_content, reasoning, reasoning_details, tool_calls }
}

fn append(to: &mut Option<String>, text: &str, between: &str) {
    match to {
        Some(t) => {
            t.push_str(between);
            t.push_str(text);
        }
        None => *to = Some(text.to_owned()),
    }
}

/// What Gemini signed, or, for the first call of a message that another model made, the word with
/// which it takes an unsigned one.
fn signature(own: Option<&RawValue>, first: bool) -> Option<Box<RawValue>> {
    match own.and_then(|o| field(o, "extra_content")) {
        Some(own) => Some(own),
        None if first => {
            RawValue::from_string(r#"{"google":{"thought_signature":"skip_thought_signature_validator"}}"#.to_owned())
                .ok()
        }
        None => None,
    }
}

/// A field of what this provider attached, byte for byte.
fn field(own: &RawValue, name: &str) -> Option<Box<RawValue>> {
    let map: HashMap<String, &RawValue> = serde_json::from_str(own.get()).ok()?;
    map.get(name).map(|raw| (*raw).to_owned())
}

fn content<'a>(parts: &'a [Said<'a>], quirks: &Quirks, apart: bool) -> Content<'a> {
    let only_text = parts.iter().all(|p| matches!(p, Said::Text(_)));
    if only_text && (!apart || parts.len() == 1) {
        let texts: Vec<&str> =
            parts.iter().filter_map(|p| if let Said::Text(t) = p { Some(&**t) } else { None }).collect();
        return Content::Text(texts.join("\n\n").into());
    }
    Content::Pieces(
        parts
            .iter()
            .filter_map(|p| match p {
                Said::Text(text) => Some(Piece::Text { text: (&**text).into(), cache_control: None }),
                Said::File { media_type, data } => {
                    let url = if data.contains("://") || data.starts_with("data:") {
                        (*data).to_owned()
                    } else {
                        format!("data:{media_type};base64,{data}")
                    };
                    Some(match *media_type {
                        m if m.starts_with("image/") => Piece::ImageUrl { image_url: Url { url } },
                        "application/pdf" if quirks.files => {
                            Piece::File { file: File { filename: "document.pdf", file_data: url } }
                        }
                        _ => Piece::Text {
                            text: "(a file of a kind this model is not given)".into(),
                            cache_control: None,
                        },
                    })
                }
                _ => None,
            })
            .collect(),
    )
}
