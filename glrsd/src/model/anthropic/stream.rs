//! Messages API streams.
//!
//! Owns: blocks as they grow, usage, stop reasons. Must not know HTTP or framing.

use crate::model::catalogue::Price;
use crate::model::convert::{self, tagged_block};
use crate::model::drive::{Decoder, Progress};
use crate::model::errors::{self, Origin, failure};
use crate::model::plain::{self, Plain};
use crate::model::{Chunk, Failure, FailureKind, Reply, Stop, Tokens};
use glrs_protocol::message::{Message, Part, Role, empty_object};
use serde_json::value::RawValue;
use serde_json::{Value, json};
use std::collections::HashSet;

enum Building {
    Text(String),
    Thinking {
        text: String,
        signature: String,
    },
    Redacted(String),
    Call {
        id: String,
        name: String,
        input: String,
    },
    /// A block this build does not know; kept while it has no deltas, which could not be put together.
    Unknown(Option<String>),
}

/// Reads one stream.
pub(crate) struct Stream {
    origin: Origin,
    price: Option<Price>,
    /// Ids of calls already in the conversation.
    taken: HashSet<String>,
    blocks: Vec<(u64, Building)>,
    usage: Usage,
    said_usage: bool,
    stop: Option<Stop>,
}

#[derive(Default)]
struct Usage {
    fresh: u64,
    read: u64,
    written: u64,
    output: u64,
}

impl Stream {
    /// For one call. `taken` are the ids of calls in the conversation.
    pub(crate) fn new(origin: Origin, price: Option<Price>, taken: HashSet<String>) -> Self {
        Self { origin, price, taken, blocks: Vec::new(), usage: Usage::default(), said_usage: false, stop: None }
    }

    fn take_usage(&mut self, v: Option<&Value>) {
        let Some(v) = v.filter(|v| v.is_object()) else { return };
        self.said_usage = true;
        let set = |key: &str, to: &mut u64| {
            if let Some(n) = v.get(key).and_then(Value::as_u64) {
                *to = n;
            }
        };
        // Each report is the total so far.
        set("input_tokens", &mut self.usage.fresh);
        set("cache_read_input_tokens", &mut self.usage.read);
        set("cache_creation_input_tokens", &mut self.usage.written);
        set("output_tokens", &mut self.usage.output);
    }

    fn take_stop(&mut self, reason: Option<&Value>) {
        let Some(reason) = reason.and_then(Value::as_str) else { return };
        self.stop = Some(match reason {
            "end_turn" | "stop_sequence" | "pause_turn" => Stop::End,
            "tool_use" => Stop::Tools,
            "max_tokens" | "model_context_window_exceeded" => Stop::Length,
            other => Stop::Refused(other.to_owned()),
        });
    }

    fn start(&mut self, index: u64, block: &Value, out: &mut Vec<Chunk>) {
        let text = |key: &str| block.get(key).and_then(Value::as_str).unwrap_or("").to_owned();
        let building = match block.get("type").and_then(Value::as_str).unwrap_or("") {
            "text" => {
                let text = text("text");
                if !text.is_empty() {
                    out.push(Chunk::Text(text.clone()));
                }
                Building::Text(text)
            }
            "thinking" => {
                let thinking = text("thinking");
                if !thinking.is_empty() {
                    out.push(Chunk::Reasoning(thinking.clone()));
                }
                Building::Thinking { text: thinking, signature: text("signature") }
            }
            "redacted_thinking" => Building::Redacted(text("data")),
            "tool_use" => {
                out.push(Chunk::Tool(text("name")));
                // The input is `{}` here and comes in deltas, except from servers that do not stream it.
                let given = block.get("input").filter(|i| i.as_object().is_some_and(|o| !o.is_empty()));
                Building::Call {
                    id: text("id"),
                    name: text("name"),
                    input: given.map(Value::to_string).unwrap_or_default(),
                }
            }
            // One that says not even what it is could not go back.
            kind => Building::Unknown(Some(block.to_string()).filter(|_| !kind.is_empty())),
        };
        self.blocks.push((index, building));
    }

    fn delta(&mut self, index: u64, delta: &Value, out: &mut Vec<Chunk>) {
        let Some((_, block)) = self.blocks.iter_mut().rev().find(|(i, _)| *i == index) else { return };
        let text = |key: &str| delta.get(key).and_then(Value::as_str).unwrap_or("");
        match (block, delta.get("type").and_then(Value::as_str).unwrap_or("")) {
            (Building::Text(t), "text_delta") => {
                t.push_str(text("text"));
                out.push(Chunk::Text(text("text").to_owned()));
            }
            (Building::Thinking { text: t, .. }, "thinking_delta") => {
                t.push_str(text("thinking"));
                out.push(Chunk::Reasoning(text("thinking").to_owned()));
            }
            (Building::Thinking { signature, .. }, "signature_delta") => signature.push_str(text("signature")),
            (Building::Call { input, .. }, "input_json_delta") => input.push_str(text("partial_json")),
            (Building::Unknown(raw), _) => *raw = None,
            _ => {}
        }
        out.retain(|c| !matches!(c, Chunk::Text(t) | Chunk::Reasoning(t) if t.is_empty()));
    }

    /// More of a block that takes it; tells whether it did.
    fn plain(&mut self, index: u64, plain: &Plain<'_>, out: &mut Vec<Chunk>) -> bool {
        match self.blocks.iter_mut().rev().find(|(i, _)| *i == index) {
            Some((_, Building::Text(t))) if !plain.text.is_empty() => {
                t.push_str(&plain.text);
                out.push(Chunk::Text(plain.text.to_string()));
                true
            }
            Some((_, Building::Thinking { text, .. })) if !plain.thought.is_empty() => {
                text.push_str(&plain.thought);
                out.push(Chunk::Reasoning(plain.thought.to_string()));
                true
            }
            _ => false,
        }
    }

    /// What was thought, and what its provider needs to take it back.
    fn reasoning(&self, text: &str, own: Value) -> Part {
        let opts = json!({ (self.origin.provider.as_str()): own });
        Part::Reasoning { text: text.to_owned(), opts: serde_json::value::to_raw_value(&opts).ok() }
    }
}

impl Decoder for Stream {
    fn event(&mut self, data: &str, out: &mut Vec<Chunk>) -> Result<Progress, Failure> {
        if let Some((index, plain)) = plain::messages(data)
            && self.plain(index, &plain, out)
        {
            return Ok(Progress::Event);
        }
        let v: Value = serde_json::from_str(data).map_err(|_| {
            failure(FailureKind::Protocol, format!("{} sent an event that is no JSON", self.origin.provider))
        })?;
        let index = v.get("index").and_then(Value::as_u64).unwrap_or(0);
        match v.get("type").and_then(Value::as_str).unwrap_or("") {
            "ping" => return Ok(Progress::Nothing),
            "message_start" => {
                self.take_usage(v.pointer("/message/usage"));
            }
            "content_block_start" => self.start(index, v.get("content_block").unwrap_or(&Value::Null), out),
            "content_block_delta" => self.delta(index, v.get("delta").unwrap_or(&Value::Null), out),
            "message_delta" => {
                self.take_usage(v.get("usage"));
                self.take_stop(v.pointer("/delta/stop_reason"));
            }
            "message_stop" => return Ok(Progress::Done),
            _ if errors::is_error(&v) => return Err(errors::from_stream(&self.origin, &v)),
            // Events to come are none of this build's business.
            _ => {}
        }
        Ok(Progress::Event)
    }

    fn whole(&mut self, body: &str, out: &mut Vec<Chunk>) -> Result<(), Failure> {
        let v: Value = serde_json::from_str(body).map_err(|_| {
            failure(FailureKind::Protocol, format!("{} sent an answer that is no JSON", self.origin.provider))
        })?;
        if errors::is_error(&v) {
            return Err(errors::from_stream(&self.origin, &v));
        }
        for (i, block) in v.get("content").and_then(Value::as_array).into_iter().flatten().enumerate() {
            self.start(i as u64, block, out);
        }
        self.take_usage(v.get("usage"));
        self.take_stop(v.get("stop_reason"));
        Ok(())
    }

    fn complete(&self) -> bool {
        self.stop.is_some()
    }

    fn partial(&self) -> Option<Message> {
        let parts: Vec<Part> = self
            .blocks
            .iter()
            .filter_map(|(_, b)| match b {
                Building::Text(t) if !t.is_empty() => Some(Part::Text(t.clone())),
                // Without its signature it cannot go back, so it is kept as text to look at only.
                Building::Thinking { text, .. } if !text.is_empty() => {
                    Some(Part::Reasoning { text: text.clone(), opts: None })
                }
                _ => None,
            })
            .collect();
        (!parts.is_empty()).then_some(Message { role: Role::Assistant, parts })
    }

    fn tokens(&self) -> Option<Tokens> {
        let u = &self.usage;
        self.said_usage.then(|| Tokens {
            input: u.fresh + u.read + u.written,
            cached: u.read,
            output: u.output,
            cost: self.price.map(|p| p.cost(u.fresh, u.read, u.written, u.output)),
        })
    }

    fn finish(&mut self) -> Reply {
        let stop = self.stop.take().unwrap_or(Stop::End);
        let length = stop == Stop::Length;
        let blocks = std::mem::take(&mut self.blocks);
        let last = blocks.len().saturating_sub(1);
        let (mut parts, mut cut) = (Vec::new(), Vec::new());
        for (at, (_, block)) in blocks.into_iter().enumerate() {
            match block {
                Building::Text(t) if t.is_empty() => {}
                Building::Text(t) => parts.push(Part::Text(t)),
                Building::Thinking { text, signature } if signature.is_empty() => {
                    parts.push(Part::Reasoning { text, opts: None });
                }
                Building::Thinking { text, signature } => {
                    parts.push(self.reasoning(&text, json!({ "signature": signature })));
                }
                Building::Redacted(data) => parts.push(self.reasoning("", json!({ "redactedData": data }))),
                Building::Call { id, name, input } => {
                    let id = convert::unique(&mut self.taken, &id);
                    let input = if name.is_empty() {
                        Err("the call names no tool; it was not run".to_owned())
                    } else {
                        convert::tool_input(&input, length && at == last)
                    };
                    let name = if name.is_empty() { "unknown".to_owned() } else { name };
                    let input: Box<RawValue> = match input {
                        Ok(input) => input,
                        Err(why) => {
                            cut.push((id.clone(), why));
                            empty_object()
                        }
                    };
                    parts.push(Part::ToolCall { id, name, input, opts: None });
                }
                Building::Unknown(raw) => {
                    parts.extend(raw.and_then(|r| tagged_block(&self.origin.provider, &r)));
                }
            }
        }
        // Said to want tools, with no call that came: there is nothing to run and nothing to wait for.
        let called = parts.iter().any(|p| matches!(p, Part::ToolCall { .. }));
        let stop = if stop == Stop::Tools && !called { Stop::End } else { stop };
        Reply { message: Message { role: Role::Assistant, parts }, cut, stop, tokens: self.tokens(), spent: Vec::new() }
    }
}
