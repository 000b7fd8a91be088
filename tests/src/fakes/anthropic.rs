//! Anthropic Messages: the rules a request has to keep, the error shape, and the stream.
//!
//! The messages of refusals are the real API's.

use super::http::{Ended, Request, Responder};
use super::reply::{Figures, Reply, Step};
use super::rules::{Issued, Refusal, is_name, items, marks, unknown_key};
use serde_json::{Value, json};
use std::collections::HashSet;

const TOP: &[&str] = &[
    "model",
    "messages",
    "system",
    "max_tokens",
    "metadata",
    "stop_sequences",
    "stream",
    "temperature",
    "top_k",
    "top_p",
    "tools",
    "tool_choice",
    "thinking",
    "service_tier",
    "container",
    "context_management",
    "output_config",
    "cache_control",
    "inference_geo",
];

/// The error body.
pub fn error(kind: &str, message: &str) -> Value {
    json!({"type": "error", "error": {"type": kind, "message": message}, "request_id": "req_011fake"})
}

fn invalid<T>(message: impl Into<String>) -> Result<T, Refusal> {
    Err(Refusal::invalid(message))
}

/// Checks a request as the real API does.
///
/// # Errors
/// The refusal of the first rule it breaks.
pub fn check(request: &Request, body: &Value, issued: &Issued) -> Result<(), Refusal> {
    if request.header("anthropic-version").is_none() {
        return invalid("anthropic-version: header is required");
    }
    if !request.header("content-type").is_some_and(|v| v.starts_with("application/json")) {
        return invalid("content-type: must be application/json");
    }
    if !body.is_object() {
        return invalid("The request body is not valid JSON");
    }
    if let Some(key) = unknown_key(body, TOP) {
        return invalid(format!("{key}: Extra inputs are not permitted"));
    }
    for key in ["model", "max_tokens", "messages"] {
        if body[key].is_null() {
            return invalid(format!("{key}: Field required"));
        }
    }
    if body["model"].as_str().is_none_or(str::is_empty) {
        return invalid("model: String should have at least 1 character");
    }
    if body["max_tokens"].as_u64().unwrap_or(0) < 1 {
        return invalid("max_tokens: Input should be greater than or equal to 1");
    }
    if body["stream"] != true {
        return invalid("stream: this fake only streams");
    }
    system(&body["system"])?;
    tools(body)?;
    thinking(body)?;
    messages(items(body, "messages"), thinks(body), issued)?;
    let marks = marks(body);
    if marks > 4 {
        return invalid(format!("A maximum of 4 blocks with cache_control may be provided. Found {marks}."));
    }
    Ok(())
}

fn thinks(body: &Value) -> bool {
    matches!(body["thinking"]["type"].as_str(), Some("enabled" | "adaptive"))
}

fn text_block(block: &Value, at: &str) -> Result<(), Refusal> {
    let Some(text) = block["text"].as_str() else { return invalid(format!("{at}.text: Field required")) };
    if text.is_empty() {
        if !block["cache_control"].is_null() {
            return invalid(format!("{at}: cache_control cannot be set for empty text blocks"));
        }
        return invalid("messages: text content blocks must be non-empty");
    }
    if text.trim().is_empty() {
        return invalid("messages: text content blocks must contain non-whitespace text");
    }
    Ok(())
}

fn system(system: &Value) -> Result<(), Refusal> {
    match system {
        Value::Null => Ok(()),
        Value::String(text) if text.trim().is_empty() => invalid("system: text content blocks must be non-empty"),
        Value::String(_) => Ok(()),
        Value::Array(blocks) => {
            for (i, block) in blocks.iter().enumerate() {
                if block["type"] != "text" {
                    return invalid(format!("system.{i}.type: Input should be 'text'"));
                }
                if block["text"].as_str().is_none_or(|t| t.trim().is_empty()) {
                    return invalid("system: text content blocks must be non-empty");
                }
            }
            Ok(())
        }
        _ => invalid("system: Input should be a valid list"),
    }
}

fn tools(body: &Value) -> Result<(), Refusal> {
    let mut names = HashSet::new();
    for (i, tool) in items(body, "tools").iter().enumerate() {
        let known = ["type", "name", "description", "input_schema", "cache_control", "strict", "eager_input_streaming"];
        if let Some(key) = unknown_key(tool, &known) {
            return invalid(format!("tools.{i}.custom.{key}: Extra inputs are not permitted"));
        }
        let name = tool["name"].as_str().unwrap_or_default();
        if !is_name(name, 64) {
            return invalid(format!("tools.{i}.custom.name: String should match pattern '^[a-zA-Z0-9_-]{{1,64}}$'"));
        }
        if !names.insert(name) {
            return invalid("tools: Tool names must be unique.");
        }
        if !tool["input_schema"].is_object() {
            return invalid(format!("tools.{i}.custom.input_schema: Input should be a valid dictionary"));
        }
        if tool["input_schema"]["type"] != "object" {
            return invalid(format!("tools.{i}.custom.input_schema.type: Input should be 'object'"));
        }
    }
    let choice = body["tool_choice"]["type"].as_str();
    if choice.is_some() && names.is_empty() {
        return invalid("tool_choice may only be specified while providing tools.");
    }
    if thinks(body) && matches!(choice, Some("any" | "tool")) {
        return invalid("Thinking may not be enabled when tool_choice forces tool use.");
    }
    if choice == Some("tool") && !body["tool_choice"]["name"].as_str().is_some_and(|n| names.contains(n)) {
        return invalid("tool_choice.name: Tool not found in provided tools");
    }
    Ok(())
}

fn thinking(body: &Value) -> Result<(), Refusal> {
    if body["thinking"]["type"] == "enabled" {
        let budget = body["thinking"]["budget_tokens"].as_u64().unwrap_or(0);
        if budget < 1024 {
            return invalid("thinking.enabled.budget_tokens: Input should be greater than or equal to 1024");
        }
        if budget >= body["max_tokens"].as_u64().unwrap_or(0) {
            return invalid("`max_tokens` must be greater than `thinking.budget_tokens`.");
        }
    }
    if thinks(body) && body.get("temperature").is_some_and(|t| t.as_f64() != Some(1.0)) {
        return invalid("`temperature` may only be set to 1 when thinking is enabled.");
    }
    Ok(())
}

fn messages(list: &[Value], thinks: bool, issued: &Issued) -> Result<(), Refusal> {
    if list.is_empty() {
        return invalid("messages: at least one message is required");
    }
    let mut ids: HashSet<String> = HashSet::new();
    let mut open: Vec<String> = Vec::new();
    let mut last = "";
    for (i, message) in list.iter().enumerate() {
        let at = format!("messages.{i}");
        if let Some(key) = unknown_key(message, &["role", "content"]) {
            return invalid(format!("{at}.{key}: Extra inputs are not permitted"));
        }
        let role = message["role"].as_str().unwrap_or_default();
        if role != "user" && role != "assistant" {
            return invalid(format!("{at}.role: Input should be 'user' or 'assistant'"));
        }
        if i == 0 && role != "user" {
            return invalid("messages: first message must use the \"user\" role");
        }
        if role == last {
            return invalid(format!(
                "messages: roles must alternate between \"user\" and \"assistant\", but found multiple \"{role}\" roles in a row"
            ));
        }
        last = role;
        let blocks = content(&message["content"], &at)?;
        results(&blocks, role, &at, i, &mut open)?;
        for (j, block) in blocks.iter().enumerate() {
            let at = format!("{at}.content.{j}");
            one_block(block, role, &at, issued)?;
            if block["type"] == "tool_use" {
                let id = block["id"].as_str().unwrap_or_default().to_owned();
                if !ids.insert(id.clone()) {
                    return invalid(format!("{at}: `tool_use` ids must be unique"));
                }
                open.push(id);
            } else if !open.is_empty() {
                return invalid(format!("{at}: no block may follow a `tool_use` block in an assistant message"));
            }
        }
    }
    if last != "user" {
        return invalid(
            "This model does not support assistant message prefill. The conversation must end with a user message.",
        );
    }
    if thinks { sealed(list, issued) } else { Ok(()) }
}

fn content(content: &Value, at: &str) -> Result<Vec<Value>, Refusal> {
    match content {
        Value::String(text) => Ok(vec![json!({"type": "text", "text": text})]),
        Value::Array(blocks) if blocks.is_empty() => invalid(format!(
            "{at}: all messages must have non-empty content except for the optional final assistant message"
        )),
        Value::Array(blocks) => Ok(blocks.clone()),
        Value::Null => invalid(format!("{at}.content: Field required")),
        _ => invalid(format!("{at}.content: Input should be a valid list")),
    }
}

/// The results in a message have to answer exactly the calls of the message before, first of all.
fn results(blocks: &[Value], role: &str, at: &str, i: usize, open: &mut Vec<String>) -> Result<(), Refusal> {
    let mut answered = HashSet::new();
    let mut other = false;
    for (j, block) in blocks.iter().enumerate() {
        if block["type"] != "tool_result" {
            other = true;
            continue;
        }
        let id = block["tool_use_id"].as_str().unwrap_or_default();
        if role != "user" || !open.iter().any(|o| o == id) {
            return invalid(format!(
                "{at}.content.{j}: unexpected `tool_use_id` found in `tool_result` blocks: {id}. Each `tool_result` block must have a corresponding `tool_use` block in the previous message."
            ));
        }
        if !answered.insert(id.to_owned()) {
            return invalid(format!(
                "{at}.content.{j}: each tool_use must have a single result. Found multiple `tool_result` blocks with id: {id}"
            ));
        }
        if other {
            return missing(i, &[id.to_owned()]);
        }
    }
    let left: Vec<String> = open.drain(..).filter(|id| !answered.contains(id)).collect();
    if left.is_empty() { Ok(()) } else { missing(i, &left) }
}

fn missing(i: usize, ids: &[String]) -> Result<(), Refusal> {
    invalid(format!(
        "messages.{}: `tool_use` ids were found without `tool_result` blocks immediately after: {}. Each `tool_use` block must have a corresponding `tool_result` block in the next message.",
        i.saturating_sub(1),
        ids.join(", ")
    ))
}

fn one_block(block: &Value, role: &str, at: &str, issued: &Issued) -> Result<(), Refusal> {
    let kind = block["type"].as_str().unwrap_or_default();
    let known: &[&str] = match (kind, role) {
        ("text", _) => &["type", "text", "cache_control", "citations"],
        ("image" | "document", "user") => &["type", "source", "cache_control", "title", "context", "citations"],
        ("tool_use", "assistant") => &["type", "id", "name", "input", "cache_control"],
        ("thinking", "assistant") => &["type", "thinking", "signature"],
        ("redacted_thinking", "assistant") => &["type", "data"],
        ("tool_result", "user") => &["type", "tool_use_id", "content", "is_error", "cache_control"],
        _ => return invalid(format!("{at}: Input tag '{kind}' is not allowed in a message of role '{role}'")),
    };
    if let Some(key) = unknown_key(block, known) {
        return invalid(format!("{at}.{kind}.{key}: Extra inputs are not permitted"));
    }
    match kind {
        "text" => text_block(block, at),
        "tool_use" => {
            if !is_name(block["id"].as_str().unwrap_or_default(), 64) {
                return invalid(format!("{at}.tool_use.id: String should match pattern '^[a-zA-Z0-9_-]+$'"));
            }
            if !is_name(block["name"].as_str().unwrap_or_default(), 200) {
                return invalid(format!("{at}.tool_use.name: String should match pattern '^[a-zA-Z0-9_-]{{1,200}}$'"));
            }
            if !block["input"].is_object() {
                return invalid(format!("{at}.tool_use.input: Input should be a valid dictionary"));
            }
            Ok(())
        }
        "thinking" => {
            let (text, signature) = (block["thinking"].as_str(), block["signature"].as_str().unwrap_or_default());
            if !text.is_some_and(|t| issued.genuine(t, signature)) {
                return invalid(format!("{at}: Invalid `signature` in `thinking` block"));
            }
            Ok(())
        }
        "tool_result" => result_block(block, at),
        _ => Ok(()),
    }
}

fn result_block(block: &Value, at: &str) -> Result<(), Refusal> {
    let empty = match &block["content"] {
        Value::Null => true,
        Value::String(text) => text.is_empty(),
        Value::Array(parts) => {
            for (k, part) in parts.iter().enumerate() {
                match part["type"].as_str() {
                    Some("text") => text_block(part, &format!("{at}.tool_result.content.{k}"))?,
                    Some("image" | "document" | "search_result") => {}
                    other => return invalid(format!("{at}.tool_result.content.{k}: Input tag {other:?} is unknown")),
                }
            }
            parts.is_empty()
        }
        _ => return invalid(format!("{at}.tool_result.content: Input should be a valid list")),
    };
    if empty && block["is_error"] == true {
        return invalid(format!("{at}.tool_result: content cannot be empty if `is_error` is true"));
    }
    Ok(())
}

/// With thinking on, the assistant messages since the last message of a person start with the
/// reasoning that their calls were issued with.
fn sealed(list: &[Value], issued: &Issued) -> Result<(), Refusal> {
    let only_results = |m: &Value| items(m, "content").iter().any(|b| b["type"] == "tool_result");
    let start = list.iter().rposition(|m| m["role"] == "user" && !only_results(m)).unwrap_or(0);
    for (i, message) in list.iter().enumerate().skip(start) {
        let blocks = items(message, "content");
        for call in blocks.iter().filter(|b| b["type"] == "tool_use") {
            let needed = issued.needed_before(call["id"].as_str().unwrap_or_default());
            if let Some(signature) = needed
                && !blocks.iter().any(|b| b["signature"] == signature)
            {
                return invalid(format!(
                    "messages.{i}.content.0.type: Expected `thinking` or `redacted_thinking`, but found `{}`. When `thinking` is enabled, a final `assistant` message must start with a thinking block.",
                    blocks[0]["type"].as_str().unwrap_or_default()
                ));
            }
        }
    }
    Ok(())
}

fn event(out: &mut Responder, data: &Value) -> Result<(), Ended> {
    let name = data["type"].as_str().unwrap_or_default();
    out.chunk(format!("event: {name}\ndata: {data}\n\n").as_bytes())
}

fn usage(f: Figures, output: u64) -> Value {
    json!({
        "input_tokens": f.input, "cache_creation_input_tokens": f.cache_write,
        "cache_read_input_tokens": f.cache_read, "output_tokens": output
    })
}

/// Streams a reply.
///
/// # Errors
/// When the client is gone or the script ends the connection.
pub(super) fn stream(reply: &Reply, body: &Value, out: &mut Responder) -> Result<(), Ended> {
    let mut message = json!({
        "id": "msg_011fake", "type": "message", "role": "assistant", "model": body["model"], "content": [],
        "stop_reason": null, "stop_sequence": null
    });
    if let Some(figures) = reply.usage {
        message["usage"] = usage(figures, 1);
    }
    event(out, &json!({"type": "message_start", "message": message}))?;
    event(out, &json!({"type": "ping"}))?;
    let mut index = 0;
    let mut open = false;
    for step in &reply.steps {
        if open && !matches!(step, Step::Text(_) | Step::Gate(_) | Step::Raw(_)) {
            event(out, &json!({"type": "content_block_stop", "index": index}))?;
            (open, index) = (false, index + 1);
        }
        let delta = |d: Value| json!({"type": "content_block_delta", "index": index, "delta": d});
        let start = |b: Value| json!({"type": "content_block_start", "index": index, "content_block": b});
        match step {
            Step::Text(text) => {
                if !open {
                    event(out, &start(json!({"type": "text", "text": ""})))?;
                    open = true;
                }
                event(out, &delta(json!({"type": "text_delta", "text": text})))?;
            }
            Step::Reasoning { pieces, signature } => {
                event(out, &start(json!({"type": "thinking", "thinking": "", "signature": ""})))?;
                for piece in pieces {
                    event(out, &delta(json!({"type": "thinking_delta", "thinking": piece})))?;
                }
                event(out, &delta(json!({"type": "signature_delta", "signature": signature})))?;
                event(out, &json!({"type": "content_block_stop", "index": index}))?;
                index += 1;
            }
            Step::Tool { id, name, input } => {
                event(out, &start(json!({"type": "tool_use", "id": id, "name": name, "input": {}})))?;
                event(out, &delta(json!({"type": "input_json_delta", "partial_json": ""})))?;
                for piece in halves(input) {
                    event(out, &delta(json!({"type": "input_json_delta", "partial_json": piece})))?;
                }
                event(out, &json!({"type": "content_block_stop", "index": index}))?;
                index += 1;
            }
            Step::Gate(gate) => out.hold(gate)?,
            Step::Raw(bytes) => out.chunk(bytes)?,
            Step::Error { kind, message } => event(out, &error(kind, message))?,
        }
    }
    if open {
        event(out, &json!({"type": "content_block_stop", "index": index}))?;
    }
    if !reply.finish {
        return Ok(());
    }
    let reason = reply.stop.as_deref().unwrap_or(if reply.has_calls() { "tool_use" } else { "end_turn" });
    let mut end = json!({"type": "message_delta", "delta": {"stop_reason": reason, "stop_sequence": null}});
    if let Some(figures) = reply.usage {
        end["usage"] = usage(figures, figures.output);
    }
    event(out, &end)?;
    event(out, &json!({"type": "message_stop"}))
}

/// Two pieces of a text, cut on a character boundary.
pub(super) fn halves(text: &str) -> [&str; 2] {
    let mut middle = text.len() / 2;
    while !text.is_char_boundary(middle) {
        middle += 1;
    }
    let (a, b) = text.split_at(middle);
    [a, b]
}
