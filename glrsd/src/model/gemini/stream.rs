//! Gemini streams.
//!
//! Owns: parts as they come, each with its signature, usage, reasons to stop. Must not know HTTP or
//! framing.

use super::request::{is_other_part, own_key};
use crate::model::catalogue::Price;
use crate::model::convert::{self, tagged_block};
use crate::model::drive::{Decoder, Progress};
use crate::model::errors::{self, Origin, failure};
use crate::model::{Chunk, Failure, FailureKind, Reply, Stop, Tokens};
use glrs_protocol::message::{Message, Part, Role, empty_object};
use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;
use std::collections::HashSet;

enum Building {
    Text { text: String, signature: Option<String> },
    Thought { text: String, signature: Option<String> },
    Call { id: Option<String>, name: String, args: String, signature: Option<String> },
    Unknown(String),
}

/// Reads one stream.
pub(crate) struct Stream {
    origin: Origin,
    price: Option<Price>,
    /// Ids of calls already in the conversation.
    taken: HashSet<String>,
    parts: Vec<Building>,
    usage: Option<Value>,
    stop: Option<Stop>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Event<'a> {
    #[serde(borrow, default)]
    candidates: Option<Vec<&'a RawValue>>,
    #[serde(default)]
    usage_metadata: Option<Value>,
    #[serde(default)]
    prompt_feedback: Option<Value>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Candidate<'a> {
    #[serde(borrow, default)]
    content: Option<&'a RawValue>,
    #[serde(default)]
    finish_reason: Option<String>,
}

#[derive(Deserialize)]
struct Content<'a> {
    #[serde(borrow, default)]
    parts: Option<Vec<&'a RawValue>>,
}

/// A part, as far as this build knows it. What else stands in one that has text or a call is left out.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Piece<'a> {
    #[serde(default)]
    text: Option<String>,
    #[serde(default)]
    thought: Option<bool>,
    // Kept as it is written, quotation marks included.
    #[serde(borrow, default)]
    thought_signature: Option<&'a RawValue>,
    #[serde(borrow, default)]
    function_call: Option<FunctionCall<'a>>,
}

#[derive(Deserialize)]
struct FunctionCall<'a> {
    #[serde(borrow, default)]
    id: Option<&'a RawValue>,
    #[serde(default)]
    name: Option<String>,
    #[serde(borrow, default)]
    args: Option<&'a RawValue>,
}

/// A JSON string that is not empty, raw.
fn raw_text(raw: Option<&RawValue>) -> Option<String> {
    raw.map(RawValue::get).filter(|r| r.starts_with('"') && *r != "\"\"").map(str::to_owned)
}

impl Stream {
    /// For one call. `taken` are the ids of calls in the conversation.
    pub(crate) fn new(origin: Origin, price: Option<Price>, taken: HashSet<String>) -> Self {
        Self { origin, price, taken, parts: Vec::new(), usage: None, stop: None }
    }

    fn take(&mut self, data: &str, out: &mut Vec<Chunk>) -> Result<(), Failure> {
        let no_json =
            || failure(FailureKind::Protocol, format!("{} sent something that is no JSON", self.origin.provider));
        let v: Value = serde_json::from_str(data).map_err(|_| no_json())?;
        if errors::is_error(&v) {
            return Err(errors::from_stream(&self.origin, &v));
        }
        let Ok(event) = serde_json::from_str::<Event<'_>>(data) else { return Ok(()) };
        // Each report is the total so far.
        if let Some(usage) = event.usage_metadata.filter(Value::is_object) {
            self.usage = Some(usage);
        }
        if let Some(why) = event.prompt_feedback.as_ref().and_then(|f| f.get("blockReason")?.as_str()) {
            self.stop = Some(Stop::Refused(format!("prompt blocked: {}", why.to_ascii_lowercase())));
        }
        let first = event.candidates.unwrap_or_default().into_iter().next();
        let Some(candidate) = first.and_then(|c| serde_json::from_str::<Candidate<'_>>(c.get()).ok()) else {
            return Ok(());
        };
        let content = candidate.content.and_then(|c| serde_json::from_str::<Content<'_>>(c.get()).ok());
        for raw in content.and_then(|c| c.parts).into_iter().flatten() {
            self.part(raw, out);
        }
        match candidate.finish_reason.as_deref() {
            Some(reason) => self.finished(reason),
            None => Ok(()),
        }
    }

    fn finished(&mut self, reason: &str) -> Result<(), Failure> {
        let who = &self.origin.provider;
        self.stop = Some(match reason {
            "" | "FINISH_REASON_UNSPECIFIED" => return Ok(()),
            "STOP" => Stop::End,
            "MAX_TOKENS" => Stop::Length,
            // The model's slip: asked again, it mostly does better.
            "MALFORMED_FUNCTION_CALL" | "UNEXPECTED_TOOL_CALL" | "TOO_MANY_TOOL_CALLS" | "MALFORMED_RESPONSE" => {
                let words = format!("{who}: the model wrote a tool call that cannot be read ({reason}); send it again");
                return Err(failure(FailureKind::Server, words));
            }
            "MISSING_THOUGHT_SIGNATURE" => {
                let words = format!("{who} misses a signature in the conversation; /compact or choose another model");
                return Err(failure(FailureKind::Request, words));
            }
            other => Stop::Refused(other.to_ascii_lowercase()),
        });
        Ok(())
    }

    fn part(&mut self, raw: &RawValue, out: &mut Vec<Chunk>) {
        // A part that does not even read is nothing to be sent back.
        let Ok(piece) = serde_json::from_str::<Piece<'_>>(raw.get()) else { return };
        let signature = raw_text(piece.thought_signature);
        match (piece.function_call, piece.text) {
            (Some(call), _) => {
                let name = call.name.unwrap_or_default();
                out.push(Chunk::Tool(name.clone()));
                let args = call.args.map(RawValue::get).filter(|a| *a != "null").unwrap_or("{}").to_owned();
                self.parts.push(Building::Call { id: raw_text(call.id), name, args, signature });
            }
            (None, Some(said)) if piece.thought == Some(true) => {
                if !said.is_empty() {
                    out.push(Chunk::Reasoning(said.clone()));
                }
                match self.parts.last_mut() {
                    Some(Building::Thought { text, signature: s @ None }) => {
                        text.push_str(&said);
                        *s = signature;
                    }
                    _ if said.is_empty() && signature.is_none() => {}
                    _ => self.parts.push(Building::Thought { text: said, signature }),
                }
            }
            (None, Some(said)) => {
                if !said.is_empty() {
                    out.push(Chunk::Text(said.clone()));
                }
                match self.parts.last_mut() {
                    // An empty part with a signature is one of its own.
                    Some(Building::Text { text, signature: s @ None }) if !said.is_empty() => {
                        text.push_str(&said);
                        *s = signature;
                    }
                    _ if said.is_empty() && signature.is_none() => {}
                    _ => self.parts.push(Building::Text { text: said, signature }),
                }
            }
            (None, None) if is_other_part(raw) => self.parts.push(Building::Unknown(raw.get().to_owned())),
            (None, None) => {}
        }
    }
}

/// What this dialect keeps beside a part.
fn own(signature: Option<&str>, id: Option<&str>) -> Option<String> {
    let fields: Vec<String> = [("thoughtSignature", signature), ("id", id)]
        .into_iter()
        .filter_map(|(name, raw)| Some(format!("\"{name}\":{}", raw?)))
        .collect();
    (!fields.is_empty()).then(|| format!("{{{}}}", fields.join(",")))
}

impl Decoder for Stream {
    fn event(&mut self, data: &str, out: &mut Vec<Chunk>) -> Result<Progress, Failure> {
        let data = data.trim();
        match data {
            "" => return Ok(Progress::Nothing),
            "[DONE]" => return Ok(Progress::Done),
            _ => {}
        }
        self.take(data, out)?;
        Ok(Progress::Event)
    }

    fn whole(&mut self, body: &str, out: &mut Vec<Chunk>) -> Result<(), Failure> {
        // A server that does not stream as events answers with a list of what would have been events.
        match serde_json::from_str::<Vec<&RawValue>>(body) {
            Ok(events) => events.into_iter().try_for_each(|e| self.take(e.get(), out)),
            Err(_) => self.take(body, out),
        }
    }

    fn complete(&self) -> bool {
        self.stop.is_some()
    }

    fn partial(&self) -> Option<Message> {
        let parts: Vec<Part> = self
            .parts
            .iter()
            .filter_map(|b| match b {
                Building::Text { text, .. } if !text.is_empty() => Some(Part::Text(text.clone())),
                Building::Thought { text, .. } if !text.is_empty() => {
                    Some(Part::Reasoning { text: text.clone(), opts: None })
                }
                _ => None,
            })
            .collect();
        (!parts.is_empty()).then_some(Message { role: Role::Assistant, parts })
    }

    fn tokens(&self) -> Option<Tokens> {
        let u = self.usage.as_ref()?;
        let get = |key: &str| u.get(key).and_then(Value::as_u64).unwrap_or(0);
        let input = get("promptTokenCount").saturating_add(get("toolUsePromptTokenCount"));
        // Thoughts are billed as output and counted beside it.
        let output = get("candidatesTokenCount").saturating_add(get("thoughtsTokenCount"));
        let cached = get("cachedContentTokenCount").min(input);
        let cost = self.price.map(|p| p.cost(input - cached, cached, 0, output));
        Some(Tokens { input, cached, output, cost })
    }

    fn finish(&mut self) -> Reply {
        let mut stop = self.stop.take().unwrap_or(Stop::End);
        let key = own_key(&self.origin.provider);
        let (mut parts, mut cut) = (Vec::new(), Vec::new());
        let mut said = std::mem::take(&mut self.parts);
        // A signature of nothing is no answer: the model said nothing, and that is for the turn to tell.
        if said.iter().all(|p| matches!(p, Building::Text { text, .. } if text.is_empty())) {
            said.clear();
        }
        for part in said {
            match part {
                Building::Text { text, signature } => {
                    if !text.is_empty() {
                        parts.push(Part::Text(text));
                    }
                    // Text has no place for it: it stands directly behind.
                    parts.extend(own(signature.as_deref(), None).and_then(|o| tagged_block(&key, &o)));
                }
                Building::Thought { text, signature } => {
                    let opts = own(signature.as_deref(), None).and_then(|o| convert::opts_with(&key, &o));
                    parts.push(Part::Reasoning { text, opts });
                }
                Building::Call { id, name, args, signature } => {
                    let given: Option<String> = id.as_deref().and_then(|id| serde_json::from_str(id).ok());
                    let wire = convert::unique(&mut self.taken, given.as_deref().unwrap_or(""));
                    let input = if name.is_empty() {
                        Err("the call names no tool; it was not run".to_owned())
                    } else {
                        convert::tool_input(&args, false)
                    };
                    let input = input.unwrap_or_else(|why| {
                        cut.push((wire.clone(), why));
                        empty_object()
                    });
                    let name = if name.is_empty() { "unknown".to_owned() } else { name };
                    let opts = own(signature.as_deref(), id.as_deref()).and_then(|o| convert::opts_with(&key, &o));
                    parts.push(Part::ToolCall { id: wire, name, input, opts });
                }
                Building::Unknown(raw) => parts.extend(tagged_block(&key, &raw)),
            }
        }
        if stop == Stop::End && parts.iter().any(|p| matches!(p, Part::ToolCall { .. })) {
            stop = Stop::Tools;
        }
        Reply { message: Message { role: Role::Assistant, parts }, cut, stop, tokens: self.tokens(), spent: Vec::new() }
    }
}
