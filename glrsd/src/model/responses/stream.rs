//! Responses streams.
//!
//! Owns: output items as they grow, keeping reasoning byte for byte, usage, how a response ended. Must
//! not know HTTP or framing.

use super::request::{is_reasoning, own_key};
use crate::model::catalogue::Price;
use crate::model::convert::{self, tagged_block};
use crate::model::drive::{Decoder, Progress};
use crate::model::errors::{self, Origin, failure};
use crate::model::{Chunk, Failure, FailureKind, Reply, Stop, Tokens};
use glrs_protocol::message::{Message, Part, Role, empty_object};
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};
use std::collections::HashSet;

enum Building {
    Text {
        text: String,
        phase: Option<String>,
    },
    Thought {
        text: String,
        /// Which part of the summary came last; a blank line stands between two.
        part: Option<u64>,
        raw: Option<String>,
    },
    Call {
        id: String,
        name: String,
        args: String,
    },
    /// An item this build does not know, whole once it is done.
    Unknown(Option<String>),
}

/// An output item. Some servers leave the index out and name items only by their id.
struct Item {
    index: u64,
    id: String,
    building: Building,
}

/// Reads one stream.
pub(crate) struct Stream {
    origin: Origin,
    price: Option<Price>,
    /// Ids of calls already in the conversation.
    taken: HashSet<String>,
    items: Vec<Item>,
    usage: Option<Value>,
    refused: bool,
    stop: Option<Stop>,
}

#[derive(Deserialize)]
struct WithItem<'a> {
    #[serde(borrow)]
    item: &'a RawValue,
}

#[derive(Deserialize)]
struct WithResponse<'a> {
    #[serde(borrow)]
    response: WithOutput<'a>,
}

#[derive(Deserialize)]
struct WithOutput<'a> {
    #[serde(borrow, default)]
    output: Vec<&'a RawValue>,
}

fn text<'v>(v: &'v Value, key: &str) -> &'v str {
    v.get(key).and_then(Value::as_str).unwrap_or("")
}

impl Stream {
    /// For one call. `taken` are the ids of calls in the conversation.
    pub(crate) fn new(origin: Origin, price: Option<Price>, taken: HashSet<String>) -> Self {
        Self { origin, price, taken, items: Vec::new(), usage: None, refused: false, stop: None }
    }

    fn parse(&self, data: &str) -> Result<Value, Failure> {
        let v: Value = serde_json::from_str(data).map_err(|_| {
            failure(FailureKind::Protocol, format!("{} sent something that is no JSON", self.origin.provider))
        })?;
        if errors::is_error(&v) {
            return Err(errors::from_stream(&self.origin, &v));
        }
        Ok(v)
    }

    /// The item an event speaks of: by its index, else by its id.
    fn find(&self, v: &Value) -> Option<usize> {
        match v.get("output_index").and_then(Value::as_u64) {
            Some(i) => self.items.iter().rposition(|item| item.index == i),
            None => {
                let id = item_id(v);
                self.items.iter().rposition(|item| !id.is_empty() && item.id == id)
            }
        }
    }

    /// The item an event speaks of; where neither tells, the last; made when nothing announced it.
    fn item(&mut self, v: &Value, fresh: impl FnOnce() -> Building) -> &mut Building {
        let index = v.get("output_index").and_then(Value::as_u64);
        let last = if index.is_none() { self.items.len().checked_sub(1) } else { None };
        let at = self.find(v).or(last).unwrap_or_else(|| {
            self.push(v, fresh());
            self.items.len() - 1
        });
        &mut self.items[at].building
    }

    fn push(&mut self, v: &Value, building: Building) {
        let index = v.get("output_index").and_then(Value::as_u64).unwrap_or(self.items.len() as u64);
        self.items.push(Item { index, id: item_id(v).to_owned(), building });
    }

    fn say(&mut self, v: &Value, out: &mut Vec<Chunk>) {
        let delta = text(v, "delta");
        if let Building::Text { text, .. } = self.item(v, || Building::Text { text: String::new(), phase: None })
            && !delta.is_empty()
        {
            text.push_str(delta);
            out.push(Chunk::Text(delta.to_owned()));
        }
    }

    fn think(&mut self, v: &Value, out: &mut Vec<Chunk>) {
        let delta = text(v, "delta");
        let now = v.get("summary_index").or_else(|| v.get("content_index")).and_then(Value::as_u64);
        let fresh = || Building::Thought { text: String::new(), part: None, raw: None };
        if let Building::Thought { text, part, .. } = self.item(v, fresh)
            && !delta.is_empty()
        {
            let between = if *part != now && !text.is_empty() { "\n\n" } else { "" };
            *part = now;
            text.push_str(between);
            text.push_str(delta);
            out.push(Chunk::Reasoning(format!("{between}{delta}")));
        }
    }

    /// An item begins.
    fn open(&mut self, v: &Value, out: &mut Vec<Chunk>) {
        let item = v.get("item").unwrap_or(&Value::Null);
        let building = begun(item);
        if let Building::Call { name, .. } = &building {
            out.push(Chunk::Tool(name.clone()));
        }
        self.push(v, building);
    }

    /// An item is done: what it says of itself holds, whatever came in pieces.
    fn close(&mut self, v: &Value, raw: &RawValue, out: &mut Vec<Chunk>) {
        let item = v.get("item").unwrap_or(&Value::Null);
        let index = v.get("output_index").and_then(Value::as_u64);
        if self.find(v).is_none() && (index.is_some() || self.items.is_empty()) {
            self.open(v, out);
        }
        let building = self.item(v, || Building::Unknown(None));
        // Announced as something else: what it is in the end counts.
        if matches!(building, Building::Unknown(_)) {
            *building = begun(item);
        }
        match (building, text(item, "type")) {
            (Building::Text { text: said, phase: p }, "message") => {
                *p = phase(item).or(p.take());
                let (whole, refused) = content(item);
                if said.is_empty() && !whole.is_empty() {
                    said.push_str(&whole);
                    out.push(Chunk::Text(whole));
                }
                self.refused |= refused;
            }
            (Building::Thought { text, raw: kept, .. }, "reasoning") => {
                let whole = thoughts(item);
                if text.is_empty() && !whole.is_empty() {
                    text.push_str(&whole);
                    out.push(Chunk::Reasoning(whole));
                }
                *kept = Some(raw.get().to_owned());
            }
            (Building::Call { id, name, args }, "function_call") => {
                for (field, said) in [(id, call_id(item)), (name, text(item, "name")), (args, text(item, "arguments"))]
                {
                    if !said.is_empty() {
                        said.clone_into(field);
                    }
                }
            }
            (Building::Unknown(kept), _) => *kept = Some(raw.get().to_owned()),
            _ => {}
        }
    }

    /// The response has ended; `raw` are its items, for servers that did not stream them.
    fn end(&mut self, response: &Value, raw: &[&RawValue], out: &mut Vec<Chunk>) -> Result<(), Failure> {
        if response.get("usage").is_some_and(Value::is_object) {
            self.usage = response.get("usage").cloned();
        }
        let error = response.get("error").filter(|e| !e.is_null());
        if let Some(error) = error {
            return Err(errors::from_stream(&self.origin, error));
        }
        if self.items.is_empty() {
            let items = response.get("output").and_then(Value::as_array).into_iter().flatten();
            for (i, (item, raw)) in items.zip(raw).enumerate() {
                self.close(&json!({"output_index": i, "item": item}), raw, out);
            }
        }
        let why = response.pointer("/incomplete_details/reason").and_then(Value::as_str);
        self.stop = Some(match (text(response, "status"), why) {
            ("failed" | "cancelled", _) => {
                let words = format!("{} gave the response up", self.origin.provider);
                return Err(failure(FailureKind::Server, words));
            }
            (_, Some("max_output_tokens" | "max_tokens")) => Stop::Length,
            (_, Some(other)) => Stop::Refused(other.to_owned()),
            ("incomplete", None) => Stop::Length,
            _ if self.refused => Stop::Refused("refusal".to_owned()),
            _ => Stop::End,
        });
        Ok(())
    }
}

/// An item as it begins.
fn begun(item: &Value) -> Building {
    match text(item, "type") {
        "message" => Building::Text { text: String::new(), phase: phase(item) },
        "reasoning" => Building::Thought { text: String::new(), part: None, raw: None },
        // Arguments come in deltas, and whole at the end.
        "function_call" => {
            Building::Call { id: call_id(item).to_owned(), name: text(item, "name").to_owned(), args: String::new() }
        }
        _ => Building::Unknown(None),
    }
}

fn phase(item: &Value) -> Option<String> {
    item.get("phase").and_then(Value::as_str).map(str::to_owned)
}

/// The id of the item an event speaks of, by whichever name it has.
fn item_id(v: &Value) -> &str {
    let item = v.get("item").unwrap_or(&Value::Null);
    let names = [text(v, "item_id"), text(item, "id"), text(item, "call_id")];
    names.into_iter().find(|id| !id.is_empty()).unwrap_or("")
}

/// `call_id` pairs a call with its result; the item's own id serves where a server has no other.
fn call_id(item: &Value) -> &str {
    [text(item, "call_id"), text(item, "id")].into_iter().find(|id| !id.is_empty()).unwrap_or("")
}

/// What a whole message says, and whether it refuses.
fn content(item: &Value) -> (String, bool) {
    let pieces = || item.get("content").and_then(Value::as_array).into_iter().flatten();
    let said = pieces().map(|p| [text(p, "text"), text(p, "refusal")].concat()).collect();
    (said, pieces().any(|p| text(p, "type") == "refusal"))
}

/// What a whole reasoning item says: its summary, else its content.
fn thoughts(item: &Value) -> String {
    let of = |key: &str| -> Vec<&str> {
        item.get(key).and_then(Value::as_array).into_iter().flatten().map(|p| text(p, "text")).collect()
    };
    let (summary, content) = (of("summary").join("\n\n"), of("content").join("\n\n"));
    if summary.is_empty() { content } else { summary }
}

impl Decoder for Stream {
    fn event(&mut self, data: &str, out: &mut Vec<Chunk>) -> Result<Progress, Failure> {
        let data = data.trim();
        match data {
            "" => return Ok(Progress::Nothing),
            "[DONE]" => return Ok(Progress::Done),
            _ => {}
        }
        let v = self.parse(data)?;
        match text(&v, "type") {
            "keepalive" | "ping" => return Ok(Progress::Nothing),
            "response.output_item.added" => self.open(&v, out),
            "response.output_text.delta" => self.say(&v, out),
            "response.refusal.delta" => {
                self.refused = true;
                self.say(&v, out);
            }
            "response.reasoning_summary_text.delta" | "response.reasoning_text.delta" => self.think(&v, out),
            "response.function_call_arguments.delta" => {
                let fresh = || Building::Call { id: String::new(), name: String::new(), args: String::new() };
                if let Building::Call { args, .. } = self.item(&v, fresh) {
                    args.push_str(text(&v, "delta"));
                }
            }
            "response.output_item.done" => {
                if let Ok(whole) = serde_json::from_str::<WithItem<'_>>(data) {
                    self.close(&v, whole.item, out);
                }
            }
            "response.completed" | "response.incomplete" | "response.failed" | "response.cancelled" => {
                let raw = match serde_json::from_str::<WithResponse<'_>>(data) {
                    Ok(whole) if self.items.is_empty() => whole.response.output,
                    _ => Vec::new(),
                };
                self.end(v.get("response").unwrap_or(&Value::Null), &raw, out)?;
                return Ok(Progress::Done);
            }
            // What begins or ends a part, and events to come, change nothing here.
            _ => {}
        }
        Ok(Progress::Event)
    }

    fn whole(&mut self, body: &str, out: &mut Vec<Chunk>) -> Result<(), Failure> {
        let v = self.parse(body)?;
        let raw = serde_json::from_str::<WithOutput<'_>>(body).map(|o| o.output).unwrap_or_default();
        if v.get("output").is_some_and(Value::is_array) { self.end(&v, &raw, out) } else { Ok(()) }
    }

    fn complete(&self) -> bool {
        self.stop.is_some()
    }

    fn partial(&self) -> Option<Message> {
        let parts: Vec<Part> = self
            .items
            .iter()
            .filter_map(|item| match &item.building {
                Building::Text { text, .. } if !text.is_empty() => Some(Part::Text(text.clone())),
                // What it led to is missing, so it cannot go back: it is kept to be looked at.
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
        let get = |path: &str| u.pointer(path).and_then(Value::as_u64).unwrap_or(0);
        let (input, output) = (get("/input_tokens"), get("/output_tokens"));
        let cached = get("/input_tokens_details/cached_tokens").min(input);
        let billed = u.get("cost").and_then(Value::as_f64);
        let cost = billed.or_else(|| self.price.map(|p| p.cost(input - cached, cached, 0, output)));
        Some(Tokens { input, cached, output, cost })
    }

    fn finish(&mut self) -> Reply {
        let mut stop = self.stop.take().unwrap_or(Stop::End);
        let own = own_key(&self.origin.provider);
        let mut items = std::mem::take(&mut self.items);
        items.sort_by_key(|item| item.index);
        let last = items.len().saturating_sub(1);
        let (mut parts, mut cut) = (Vec::new(), Vec::new());
        for (at, item) in items.into_iter().enumerate() {
            match item.building {
                Building::Text { text, .. } if text.is_empty() => {}
                Building::Text { text, phase } => {
                    parts.extend(phase.and_then(|p| tagged_block(&own, &json!({ "phase": p }).to_string())));
                    parts.push(Part::Text(text));
                }
                Building::Thought { text, raw, .. } => {
                    let raw = raw.and_then(|r| RawValue::from_string(r).ok()).filter(|r| is_reasoning(r));
                    let opts = raw.and_then(|r| convert::opts_with(&own, r.get()));
                    if opts.is_some() || !text.is_empty() {
                        parts.push(Part::Reasoning { text, opts });
                    }
                }
                Building::Call { id, name, args } => {
                    let id = convert::unique(&mut self.taken, &id);
                    let input = if name.is_empty() {
                        Err("the call names no tool; it was not run".to_owned())
                    } else {
                        convert::tool_input(&args, stop == Stop::Length && at == last)
                    };
                    let input = input.unwrap_or_else(|why| {
                        cut.push((id.clone(), why));
                        empty_object()
                    });
                    let name = if name.is_empty() { "unknown".to_owned() } else { name };
                    parts.push(Part::ToolCall { id, name, input, opts: None });
                }
                Building::Unknown(raw) => parts.extend(raw.and_then(|r| tagged_block(&own, &r))),
            }
        }
        if stop == Stop::End && parts.iter().any(|p| matches!(p, Part::ToolCall { .. })) {
            stop = Stop::Tools;
        }
        Reply { message: Message { role: Role::Assistant, parts }, cut, stop, tokens: self.tokens(), spent: Vec::new() }
    }
}
