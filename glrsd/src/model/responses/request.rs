//! Responses requests.
//!
//! Owns: the order of items (reasoning in front of what it led to, results directly behind their
//! calls), and which of the provider's own items go back. The same history gives the same bytes,
//! whatever comes behind it. Must not know HTTP.

use crate::model::body::Body;
use crate::model::convert::{self, IdStyle, Said, Turn};
use crate::model::openai::quirks;
use crate::model::{Call, ToolSpec};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};

/// Call ids: at most 64 characters.
const IDS: IdStyle = IdStyle::Plain(64);

/// Kinds of items that never go back raw: they have parts of their own here, or want an answer that
/// nobody gave.
const PAIRED: [&str; 11] = [
    "message",
    "reasoning",
    "function_call",
    "function_call_output",
    "custom_tool_call",
    "computer_call",
    "local_shell_call",
    "shell_call",
    "apply_patch_call",
    "mcp_approval_request",
    "item_reference",
];

#[derive(Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum Item<'a> {
    Message {
        role: &'static str,
        #[serde(skip_serializing_if = "Option::is_none")]
        phase: Option<String>,
        content: Vec<Piece<'a>>,
    },
    // Items of ours carry no `id`: with one the API looks for the item it belonged to.
    FunctionCall {
        call_id: &'a str,
        name: &'a str,
        arguments: &'a str,
    },
    FunctionCallOutput {
        call_id: &'a str,
        output: &'a str,
    },
    #[serde(untagged)]
    Raw(&'a RawValue),
}

#[derive(Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum Piece<'a> {
    InputText {
        text: &'a str,
    },
    OutputText {
        text: &'a str,
    },
    InputImage {
        image_url: String,
        detail: &'static str,
    },
    InputFile {
        #[serde(skip_serializing_if = "Option::is_none")]
        filename: Option<&'static str>,
        #[serde(skip_serializing_if = "Option::is_none")]
        file_data: Option<String>,
        #[serde(skip_serializing_if = "Option::is_none")]
        file_url: Option<&'a str>,
    },
}

#[derive(Serialize)]
struct Tool<'a> {
    #[serde(rename = "type")]
    kind: &'static str,
    name: &'a str,
    description: &'a str,
    parameters: &'a RawValue,
    // Absent it is strict, and a schema with an optional field is refused.
    strict: bool,
}

/// The name under which this dialect's items are kept.
pub(crate) fn own_key(provider: &str) -> String {
    convert::own_key(provider, "responses")
}

/// The body of one call.
pub(crate) fn build(provider: &str, model: &str, call: &Call, options: &[&Map<String, Value>]) -> Vec<u8> {
    let own = own_key(provider);
    let turns = convert::turns(&call.messages, &own, IDS, !call.tools.is_empty());
    let thinks = quirks::thinks(model);
    let mut input = Vec::new();
    for turn in &turns {
        items(turn, thinks, &mut input);
    }
    let mut body = Body::with_capacity(call.size());
    body.set("model", &model);
    body.set("stream", &true);
    body.set("store", &false);
    if let Some(most) = call.max_output {
        body.set("max_output_tokens", &most.max(quirks::RESPONSES_OUTPUT_MIN));
    }
    if thinks {
        // Nothing is stored, so what it thought has to travel; other models refuse the word.
        body.set("include", &["reasoning.encrypted_content"]);
        let reasoning = match call.variant.as_deref() {
            Some(effort) => json!({"effort": effort, "summary": "auto"}),
            None => json!({"summary": "auto"}),
        };
        body.set("reasoning", &reasoning);
    }
    if quirks::of(provider).cache_key && !call.cache_key.is_empty() {
        body.set("prompt_cache_key", &call.cache_key);
    }
    if !call.tools.is_empty() {
        body.set("tools", &tools(&call.tools));
        if call.force_text {
            body.set("tool_choice", &"none");
        }
    }
    if !call.system.trim().is_empty() {
        let text: &str = &call.system;
        body.set("instructions", &text);
    }
    body.set("input", &input);
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
            name: &t.name,
            description: &t.description,
            parameters: &t.schema,
            strict: false,
        })
        .collect()
}

fn items<'a>(turn: &'a Turn<'a>, thinks: bool, out: &mut Vec<Item<'a>>) {
    match turn {
        Turn::User { results, parts } => {
            out.extend(results.iter().map(|r| Item::FunctionCallOutput { call_id: &r.id, output: r.text() }));
            let content: Vec<Piece<'a>> = parts.iter().filter_map(piece).collect();
            if !content.is_empty() {
                out.push(Item::Message { role: "user", phase: None, content });
            }
        }
        Turn::Assistant(parts) => said(parts, thinks, out),
    }
}

fn said<'a>(parts: &'a [Said<'a>], thinks: bool, out: &mut Vec<Item<'a>>) {
    // Reasoning without what it led to is refused, so it waits for that.
    let mut waiting: Vec<Item<'a>> = Vec::new();
    let mut phase: Option<String> = None;
    for part in parts {
        let item = match part {
            Said::Text(text) => {
                let content = vec![Piece::OutputText { text }];
                Item::Message { role: "assistant", phase: phase.take(), content }
            }
            Said::Call { id, name, input, .. } => Item::FunctionCall { call_id: id, name, arguments: input.get() },
            Said::Reasoning(_, own) => {
                if thinks && is_reasoning(own) {
                    waiting.push(Item::Raw(own));
                }
                continue;
            }
            Said::Other(raw) => match Own::of(raw) {
                Some(Own { kind: None, phase: Some(p), .. }) => {
                    phase = Some(p);
                    continue;
                }
                Some(Own { kind: Some(kind), .. }) if !PAIRED.contains(&kind.as_str()) => Item::Raw(raw),
                _ => continue,
            },
            Said::File { .. } => continue,
        };
        out.append(&mut waiting);
        out.push(item);
    }
}

/// As much of an item of the provider's as decides whether it goes back.
#[derive(Deserialize)]
struct Own<'a> {
    #[serde(rename = "type")]
    kind: Option<String>,
    phase: Option<String>,
    #[serde(borrow)]
    encrypted_content: Option<&'a RawValue>,
    #[serde(borrow)]
    content: Option<&'a RawValue>,
}

impl<'a> Own<'a> {
    fn of(raw: &'a RawValue) -> Option<Self> {
        serde_json::from_str(raw.get()).ok()
    }
}

/// Whether a reasoning item can be taken back: encrypted, or in the open (local servers). One that has
/// neither names something the provider was told not to store.
pub(crate) fn is_reasoning(raw: &RawValue) -> bool {
    let has = |field: Option<&RawValue>, empty: &str| field.is_some_and(|f| f.get() != empty && f.get() != "null");
    Own::of(raw).is_some_and(|o| {
        o.kind.as_deref() == Some("reasoning") && (has(o.encrypted_content, "\"\"") || has(o.content, "[]"))
    })
}

fn piece<'a>(said: &'a Said<'a>) -> Option<Piece<'a>> {
    let Said::File { media_type, data } = said else {
        let Said::Text(text) = said else { return None };
        return Some(Piece::InputText { text });
    };
    let remote = data.starts_with("http://") || data.starts_with("https://");
    let url = || {
        if remote || data.starts_with("data:") {
            (*data).to_owned()
        } else {
            format!("data:{media_type};base64,{data}")
        }
    };
    Some(match *media_type {
        m if m.starts_with("image/") => Piece::InputImage { image_url: url(), detail: "auto" },
        "application/pdf" if remote => Piece::InputFile { filename: None, file_data: None, file_url: Some(data) },
        "application/pdf" => {
            Piece::InputFile { filename: Some("document.pdf"), file_data: Some(url()), file_url: None }
        }
        _ => Piece::InputText { text: "(a file of a kind this model is not given)" },
    })
}
