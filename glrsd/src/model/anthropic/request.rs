//! Messages API requests.
//!
//! Owns: block order, cache marks, thinking. The prefix is byte-stable: the same history gives the same
//! bytes, marks aside, whatever comes behind it. Must not know HTTP.

use crate::model::body::Body;
use crate::model::convert::{self, IdStyle, Said, Turn};
use crate::model::{Call, ToolSpec};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};

/// Call ids: `^[a-zA-Z0-9_-]+$`.
const IDS: IdStyle = IdStyle::Plain(64);
/// Most output tokens where it is not known how many the model gives: this API wants a number, and all its
/// models give so many.
const UNKNOWN_OUTPUT: u64 = 8_192;
/// Smallest thinking budget the API takes.
const BUDGET_MIN: u64 = 1_024;

#[derive(Clone, Copy, Serialize)]
struct Mark {
    #[serde(rename = "type")]
    kind: &'static str,
}

const EPHEMERAL: Option<Mark> = Some(Mark { kind: "ephemeral" });

#[derive(Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum Block<'a> {
    Text {
        text: &'a str,
        #[serde(skip_serializing_if = "Option::is_none")]
        cache_control: Option<Mark>,
    },
    Image {
        source: Source<'a>,
        #[serde(skip_serializing_if = "Option::is_none")]
        cache_control: Option<Mark>,
    },
    Document {
        source: Source<'a>,
        #[serde(skip_serializing_if = "Option::is_none")]
        cache_control: Option<Mark>,
    },
    ToolUse {
        id: &'a str,
        name: &'a str,
        input: &'a RawValue,
    },
    ToolResult {
        tool_use_id: &'a str,
        content: &'a str,
        #[serde(skip_serializing_if = "std::ops::Not::not")]
        is_error: bool,
        #[serde(skip_serializing_if = "Option::is_none")]
        cache_control: Option<Mark>,
    },
    Thinking {
        thinking: &'a str,
        signature: &'a RawValue,
    },
    RedactedThinking {
        data: &'a RawValue,
    },
    #[serde(untagged)]
    Raw(&'a RawValue),
}

impl Block<'_> {
    fn mark(&mut self) -> bool {
        match self {
            Self::Text { cache_control, .. }
            | Self::Image { cache_control, .. }
            | Self::Document { cache_control, .. }
            | Self::ToolResult { cache_control, .. } => {
                *cache_control = EPHEMERAL;
                true
            }
            _ => false,
        }
    }
}

#[derive(Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum Source<'a> {
    Base64 { media_type: &'a str, data: &'a str },
    Url { url: &'a str },
}

#[derive(Serialize)]
struct Wire<'a> {
    role: &'static str,
    content: Vec<Block<'a>>,
}

#[derive(Serialize)]
struct Tool<'a> {
    name: &'a str,
    description: &'a str,
    input_schema: &'a RawValue,
    #[serde(skip_serializing_if = "Option::is_none")]
    cache_control: Option<Mark>,
}

/// What Anthropic attached to its reasoning, strings as they are written.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Own<'a> {
    #[serde(borrow, default)]
    signature: Option<&'a RawValue>,
    #[serde(borrow, default)]
    redacted_data: Option<&'a RawValue>,
}

/// The body of one call.
pub(crate) fn build(provider: &str, model: &str, call: &Call, options: &[&Map<String, Value>]) -> Vec<u8> {
    let turns = convert::turns(&call.messages, provider, IDS, !call.tools.is_empty());
    let mut body = Body::with_capacity(call.size());
    body.set("model", &model);
    let max_output = call.max_output.unwrap_or(UNKNOWN_OUTPUT).max(1);
    body.set("max_tokens", &max_output);
    body.set("stream", &true);
    if !call.system.trim().is_empty() {
        let text: &str = &call.system;
        body.set("system", &[Block::Text { text, cache_control: EPHEMERAL }]);
    }
    if !call.tools.is_empty() {
        body.set("tools", &tools(&call.tools));
        if call.force_text {
            body.set("tool_choice", &json!({"type": "none"}));
        }
    }
    let thinks = adaptive(model) || may_think(&turns);
    let mut messages: Vec<Wire<'_>> = turns.iter().map(wire).collect();
    mark(&mut messages);
    body.set("messages", &messages);
    if let Some(effort) = call.variant.as_deref().filter(|_| thinks) {
        think(&mut body, model, effort, max_output);
    }
    for o in options {
        body.merge(o);
    }
    body.into_bytes()
}

fn tools(specs: &[ToolSpec]) -> Vec<Tool<'_>> {
    let mut tools: Vec<Tool<'_>> = specs
        .iter()
        .map(|t| Tool { name: &t.name, description: &t.description, input_schema: &t.schema, cache_control: None })
        .collect();
    if let Some(last) = tools.last_mut() {
        last.cache_control = EPHEMERAL;
    }
    tools
}

fn wire<'a>(turn: &'a Turn<'a>) -> Wire<'a> {
    match turn {
        Turn::User { results, parts } => {
            // Results first: the API looks for them at the very beginning of the message.
            let results = results.iter().map(|r| Block::ToolResult {
                tool_use_id: &r.id,
                content: r.text(),
                is_error: r.is_error(),
                cache_control: None,
            });
            Wire { role: "user", content: results.chain(parts.iter().filter_map(block)).collect() }
        }
        Turn::Assistant(parts) => {
            let mut content: Vec<Block<'a>> = parts.iter().filter_map(block).collect();
            // An assistant message may neither be empty nor end in thinking.
            if matches!(content.last(), None | Some(Block::Thinking { .. } | Block::RedactedThinking { .. })) {
                content.push(Block::Text { text: "(no answer)", cache_control: None });
            }
            Wire { role: "assistant", content }
        }
    }
}

fn block<'a>(said: &'a Said<'a>) -> Option<Block<'a>> {
    Some(match said {
        Said::Text(text) => Block::Text { text, cache_control: None },
        Said::Call { id, name, input, .. } => Block::ToolUse { id, name, input },
        Said::Reasoning(thinking, own) => {
            let own: Own<'a> = serde_json::from_str(own.get()).ok()?;
            let text = |field: Option<&'a RawValue>| field.filter(|f| f.get().starts_with('"'));
            match (text(own.signature), text(own.redacted_data)) {
                (Some(signature), _) => Block::Thinking { thinking, signature },
                (None, Some(data)) => Block::RedactedThinking { data },
                // Without a signature the API refuses it.
                (None, None) => return None,
            }
        }
        Said::File { media_type, data } => {
            let source = if data.starts_with("http://") || data.starts_with("https://") {
                Source::Url { url: data }
            } else {
                Source::Base64 { media_type, data: data.split_once("base64,").map_or(data, |(_, d)| d) }
            };
            match *media_type {
                m if m.starts_with("image/") => Block::Image { source, cache_control: None },
                "application/pdf" => Block::Document { source, cache_control: None },
                _ => Block::Text { text: "(a file of a kind this model is not given)", cache_control: None },
            }
        }
        Said::Other(raw) => Block::Raw(raw),
    })
}

/// Marks the ends of the last two user messages: the last one for the next request, the one before it
/// because that is where the previous request's mark was. With system and tools that makes four, the
/// most the API takes. What glrs adds at the tail (`[vitals]`) changes each time and stays behind it.
fn mark(messages: &mut [Wire<'_>]) {
    let users = messages.iter_mut().rev().filter(|m| m.role == "user").take(2);
    for message in users {
        for block in message.content.iter_mut().rev() {
            let fleeting = matches!(block, Block::Text { text, .. } if text.starts_with("[vitals]"));
            if !fleeting && block.mark() {
                break;
            }
        }
    }
}

/// Whether thinking may be asked for of a model that thinks by budget: inside a tool loop the API wants
/// the loop's first assistant message to begin with thinking, which it does not when another model wrote
/// it. Later models take any.
fn may_think(turns: &[Turn<'_>]) -> bool {
    let in_loop = matches!(turns.last(), Some(Turn::User { results, .. }) if !results.is_empty());
    if !in_loop {
        return true;
    }
    let start = turns
        .iter()
        .rposition(|t| matches!(t, Turn::User { results, .. } if results.is_empty()))
        .map_or(0, |at| at + 1);
    match turns.get(start) {
        Some(Turn::Assistant(parts)) => matches!(parts.first(), Some(Said::Reasoning(..))),
        _ => true,
    }
}

/// Models up to 4.5 think by budget; later ones decide themselves, by effort, and refuse a budget.
fn adaptive(model: &str) -> bool {
    const BY_BUDGET: [&str; 5] = ["claude-3", "-4-5", "-4-1", "-4-0", "-4-20"];
    model.contains("claude") && !BY_BUDGET.iter().any(|p| model.contains(p))
}

fn think(body: &mut Body, model: &str, effort: &str, max_output: u64) {
    if adaptive(model) {
        if effort != "none" {
            // Without `display` models after 4.6 hide what they think.
            let thinking = if model.contains("-4-6") {
                json!({"type": "adaptive"})
            } else {
                json!({"type": "adaptive", "display": "summarized"})
            };
            body.set("thinking", &thinking);
            body.set("output_config", &json!({"effort": effort}));
        }
        return;
    }
    let budget = match effort {
        "low" | "minimal" => 4_096,
        "medium" => 10_240,
        "high" => 24_576,
        "max" | "xhigh" => 32_768,
        _ => return,
    };
    // The budget counts against max_tokens: a quarter stays for the answer.
    let budget = budget.min(max_output / 4 * 3);
    if budget >= BUDGET_MIN {
        body.set("thinking", &json!({"type": "enabled", "budget_tokens": budget}));
    }
}
