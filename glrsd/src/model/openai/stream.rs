//! Chat Completions streams.
//!
//! Owns: putting calls together from pieces, usage wherever it comes, reasons to stop. Must not know
//! HTTP or framing.

use super::quirks;
use crate::model::catalogue::Price;
use crate::model::convert;
use crate::model::drive::{Decoder, Progress};
use crate::model::errors::{self, Origin, failure};
use crate::model::plain;
use crate::model::{Chunk, Failure, FailureKind, Reply, Stop, Tokens};
use glrs_protocol::message::{Message, Part, Role, empty_object};
use serde_json::value::RawValue;
use serde_json::{Value, json};
use std::collections::HashSet;

#[derive(Default)]
struct Building {
    index: Option<u64>,
    id: String,
    name: String,
    args: String,
    extra: Option<String>,
}

/// Reads one stream.
pub(crate) struct Stream {
    origin: Origin,
    price: Option<Price>,
    /// Ids of calls already in the conversation.
    taken: HashSet<String>,
    text: String,
    thought: String,
    /// `reasoning_details`, pieces of one joined.
    details: Vec<Value>,
    calls: Vec<Building>,
    usage: Option<Value>,
    stop: Option<Stop>,
}

impl Stream {
    /// For one call. `taken` are the ids of calls in the conversation.
    pub(crate) fn new(origin: Origin, price: Option<Price>, taken: HashSet<String>) -> Self {
        Self {
            origin,
            price,
            taken,
            text: String::new(),
            thought: String::new(),
            details: Vec::new(),
            calls: Vec::new(),
            usage: None,
            stop: None,
        }
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

    fn take(&mut self, v: &Value, out: &mut Vec<Chunk>) -> Result<(), Failure> {
        // Usage comes at the top, in the choice (Moonshot) or under `x_groq`, once or with every
        // event. Each is the total so far: the last one holds.
        let choice = v.get("choices").and_then(|c| c.get(0));
        let groq = v.get("x_groq").and_then(|g| g.get("usage"));
        let usage = [v.get("usage"), choice.and_then(|c| c.get("usage")), groq];
        if let Some(u) = usage.into_iter().flatten().find(|u| u.is_object()) {
            self.usage = Some(u.clone());
        }
        let Some(choice) = choice else { return Ok(()) };
        let delta = choice.get("delta").or_else(|| choice.get("message")).unwrap_or(&Value::Null);
        // Both names are used, by some servers for the same words at once.
        let thought =
            ["reasoning_content", "reasoning"].iter().find_map(|k| delta.get(k)?.as_str().filter(|t| !t.is_empty()));
        if let Some(t) = thought {
            self.think(t, out);
        }
        for piece in delta.get("reasoning_details").and_then(Value::as_array).into_iter().flatten() {
            join_detail(&mut self.details, piece);
        }
        match delta.get("content") {
            Some(Value::String(t)) => self.say(t, out),
            Some(Value::Array(pieces)) => self.pieces(pieces, out),
            _ => {}
        }
        if let Some(t) = delta.get("refusal").and_then(Value::as_str) {
            self.say(t, out);
        }
        for call in delta.get("tool_calls").and_then(Value::as_array).into_iter().flatten() {
            self.call(call, out);
        }
        match choice.get("finish_reason").and_then(Value::as_str).unwrap_or("") {
            "" => {}
            "stop" | "eos" | "end_turn" | "stop_sequence" | "done" => self.stop = Some(Stop::End),
            "tool_calls" | "function_call" | "tool_use" => self.stop = Some(Stop::Tools),
            "length" | "max_tokens" | "model_length" => self.stop = Some(Stop::Length),
            reason @ ("error" | "network_error" | "insufficient_system_resource") => {
                let said = format!("{} stopped with {reason}", self.origin.provider);
                return Err(failure(FailureKind::Server, said));
            }
            other => self.stop = Some(Stop::Refused(other.to_owned())),
        }
        Ok(())
    }

    /// Mistral's pieces: text, and thinking that is made of pieces again.
    fn pieces(&mut self, pieces: &[Value], out: &mut Vec<Chunk>) {
        for piece in pieces {
            if let Some(t) = piece.get("text").and_then(Value::as_str) {
                self.say(t, out);
            }
            match piece.get("thinking") {
                Some(Value::String(t)) => self.think(t, out),
                Some(Value::Array(inner)) => {
                    for t in inner.iter().filter_map(|p| p.get("text").and_then(Value::as_str)) {
                        self.think(t, out);
                    }
                }
                _ => {}
            }
        }
    }

    fn say(&mut self, t: &str, out: &mut Vec<Chunk>) {
        if !t.is_empty() {
            self.text.push_str(t);
            out.push(Chunk::Text(t.to_owned()));
        }
    }

    fn think(&mut self, t: &str, out: &mut Vec<Chunk>) {
        if !t.is_empty() {
            self.thought.push_str(t);
            out.push(Chunk::Reasoning(t.to_owned()));
        }
    }

    fn call(&mut self, v: &Value, out: &mut Vec<Chunk>) {
        let text = |v: Option<&Value>| v.and_then(Value::as_str).unwrap_or("").to_owned();
        let index = v.get("index").and_then(Value::as_u64);
        let id = text(v.get("id"));
        let name = text(v.pointer("/function/name"));
        let at = self.place(index, &id, &name);
        let fresh = at == self.calls.len();
        if fresh {
            self.calls.push(Building { index, ..Building::default() });
        }
        let call = &mut self.calls[at];
        if call.id.is_empty() {
            call.id = id;
        }
        // A repeated name is the same name again, not more of it.
        if call.name.is_empty() && !name.is_empty() {
            call.name = name;
            out.push(Chunk::Tool(call.name.clone()));
        }
        match v.pointer("/function/arguments") {
            Some(Value::String(a)) => call.args.push_str(a),
            // Old Ollama gives the object itself.
            Some(a @ Value::Object(_)) => call.args = a.to_string(),
            _ => {}
        }
        if let Some(extra) = v.get("extra_content").filter(|e| e.is_object()) {
            call.extra = Some(extra.to_string());
        }
    }

    /// Which call a piece belongs to. By index; a new id with a name under a known index is a call of
    /// its own (Gemini gives all of them index 0). Without index by id, else it goes on with the last.
    fn place(&self, index: Option<u64>, id: &str, name: &str) -> usize {
        let new = self.calls.len();
        let other = |c: &Building| !id.is_empty() && !c.id.is_empty() && c.id != id && !name.is_empty();
        if index.is_some() {
            return match self.calls.iter().rposition(|c| c.index == index) {
                Some(at) if !other(&self.calls[at]) => at,
                _ => new,
            };
        }
        if !id.is_empty() {
            return self.calls.iter().rposition(|c| c.id == id).unwrap_or(new);
        }
        if name.is_empty() { new.saturating_sub(1) } else { new }
    }

    fn opts(&self, own: &str) -> Option<Box<RawValue>> {
        convert::opts_with(&quirks::own_key(&self.origin.provider, &self.origin.model), own)
    }
}

/// Adds a piece of `reasoning_details`: one of the same index and type goes on with the last.
fn join_detail(details: &mut Vec<Value>, piece: &Value) {
    let same = |last: &Value| ["index", "type"].iter().all(|k| last.get(k) == piece.get(k));
    let Some(last) = details.last_mut().filter(|l| same(l)).and_then(Value::as_object_mut) else {
        details.push(piece.clone());
        return;
    };
    for (key, value) in piece.as_object().into_iter().flatten() {
        match (last.get_mut(key), value) {
            (Some(Value::String(t)), Value::String(more)) if matches!(key.as_str(), "text" | "summary") => {
                t.push_str(more);
            }
            (_, Value::Null) => {}
            _ => {
                last.insert(key.clone(), value.clone());
            }
        }
    }
}

impl Decoder for Stream {
    fn event(&mut self, data: &str, out: &mut Vec<Chunk>) -> Result<Progress, Failure> {
        let data = data.trim();
        if data == "[DONE]" {
            return Ok(Progress::Done);
        }
        if data.is_empty() {
            return Ok(Progress::Nothing);
        }
        if let Some(plain) = plain::chat(data) {
            self.think(&plain.thought, out);
            self.say(&plain.text, out);
            return Ok(Progress::Event);
        }
        let v = self.parse(data)?;
        self.take(&v, out)?;
        Ok(Progress::Event)
    }

    fn whole(&mut self, body: &str, out: &mut Vec<Chunk>) -> Result<(), Failure> {
        let v = self.parse(body)?;
        self.take(&v, out)
    }

    fn complete(&self) -> bool {
        self.stop.is_some()
    }

    fn partial(&self) -> Option<Message> {
        let mut parts = Vec::new();
        if !self.thought.is_empty() {
            parts.push(Part::Reasoning { text: self.thought.clone(), opts: None });
        }
        if !self.text.is_empty() {
            parts.push(Part::Text(self.text.clone()));
        }
        (!parts.is_empty()).then_some(Message { role: Role::Assistant, parts })
    }

    fn tokens(&self) -> Option<Tokens> {
        let u = self.usage.as_ref()?;
        let get = |path: &str| u.pointer(path).and_then(Value::as_u64);
        let input = get("/prompt_tokens").or_else(|| get("/input_tokens")).unwrap_or(0);
        let said = get("/completion_tokens").or_else(|| get("/output_tokens")).unwrap_or(0);
        // xAI leaves reasoning out of the completion but not out of the total.
        let output = get("/total_tokens").map_or(said, |total| said.max(total.saturating_sub(input)));
        let cached = get("/prompt_tokens_details/cached_tokens")
            .or_else(|| get("/prompt_cache_hit_tokens"))
            .or_else(|| get("/cached_tokens"))
            .unwrap_or(0)
            .min(input);
        let billed = u.get("cost").and_then(Value::as_f64);
        let cost = billed.or_else(|| self.price.map(|p| p.cost(input - cached, cached, 0, output)));
        Some(Tokens { input, cached, output, cost })
    }

    fn finish(&mut self) -> Reply {
        let mut stop = self.stop.take().unwrap_or(Stop::End);
        let tokens = self.tokens();
        let calls = std::mem::take(&mut self.calls);
        // Many servers say `stop` after calls as well.
        if stop == Stop::End && !calls.is_empty() {
            stop = Stop::Tools;
        }
        let (mut parts, mut cut) = (Vec::new(), Vec::new());
        if !self.thought.is_empty() || !self.details.is_empty() {
            let text = std::mem::take(&mut self.thought);
            let own = match std::mem::take(&mut self.details) {
                none if none.is_empty() => json!({}),
                details => json!({ "reasoning_details": details }),
            };
            parts.push(Part::Reasoning { text, opts: self.opts(&own.to_string()) });
        }
        if !self.text.is_empty() {
            parts.push(Part::Text(std::mem::take(&mut self.text)));
        }
        let last = calls.len().saturating_sub(1);
        for (at, call) in calls.into_iter().enumerate() {
            let id = convert::unique(&mut self.taken, &call.id);
            let input = if call.name.is_empty() {
                Err("the call names no tool; it was not run".to_owned())
            } else {
                convert::tool_input(&call.args, stop == Stop::Length && at == last)
            };
            let input = input.unwrap_or_else(|why| {
                cut.push((id.clone(), why));
                empty_object()
            });
            let name = if call.name.is_empty() { "unknown".to_owned() } else { call.name };
            let opts = call.extra.and_then(|e| self.opts(&format!(r#"{{"extra_content":{e}}}"#)));
            parts.push(Part::ToolCall { id, name, input, opts });
        }
        Reply { message: Message { role: Role::Assistant, parts }, cut, stop, tokens, spent: Vec::new() }
    }
}
