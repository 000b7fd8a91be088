//! OpenAI Chat Completions: the rules a request has to keep, the error shape, and the stream.
//!
//! The messages of refusals are the real API's. Where servers that speak this dialect are
//! stricter (a conversation ends with a user or tool message, arguments are JSON objects), the
//! stricter rule holds.

use super::anthropic::halves;
use super::http::{Ended, Responder};
use super::reply::{Reply, Step};
use super::rules::{Refusal, is_name, items, marks, unknown_key};
use serde_json::{Value, json};
use std::collections::HashSet;

const TOP: &[&str] = &[
    "model",
    "messages",
    "max_tokens",
    "max_completion_tokens",
    "temperature",
    "top_p",
    "n",
    "stop",
    "stream",
    "stream_options",
    "tools",
    "tool_choice",
    "parallel_tool_calls",
    "reasoning_effort",
    "response_format",
    "seed",
    "user",
    "metadata",
    "store",
    "service_tier",
    "prompt_cache_key",
    "prompt_cache_retention",
    "safety_identifier",
    "presence_penalty",
    "frequency_penalty",
    "logit_bias",
    "logprobs",
    "top_logprobs",
    "verbosity",
    "modalities",
];

/// The error body.
pub fn error(kind: &str, message: &str, param: Option<&str>) -> Value {
    json!({"error": {"message": message, "type": kind, "param": param, "code": null}})
}

fn invalid<T>(param: impl Into<String>, message: impl Into<String>) -> Result<T, Refusal> {
    Err(Refusal::invalid(message).at(param))
}

/// Checks a request as the real API does.
///
/// # Errors
/// The refusal of the first rule it breaks.
pub fn check(body: &Value) -> Result<(), Refusal> {
    if !body.is_object() {
        return invalid("", "We could not parse the JSON body of your request.");
    }
    if let Some(key) = unknown_key(body, TOP) {
        return invalid(key, format!("Unrecognized request argument supplied: {key}"));
    }
    if body["model"].as_str().is_none_or(str::is_empty) {
        return invalid("model", "you must provide a model parameter");
    }
    if body["stream"] != true {
        return invalid("stream", "this fake only streams");
    }
    if let Some(key) = unknown_key(&body["stream_options"], &["include_usage", "include_obfuscation"]) {
        return invalid("stream_options", format!("Unknown parameter: 'stream_options.{key}'."));
    }
    if body.get("max_tokens").is_some() && body.get("max_completion_tokens").is_some() {
        return invalid(
            "max_tokens",
            "Setting 'max_tokens' and 'max_completion_tokens' at the same time is not supported.",
        );
    }
    for key in ["max_tokens", "max_completion_tokens"] {
        if body.get(key).is_some_and(|v| v.as_u64().unwrap_or(0) < 1) {
            return invalid(key, format!("Invalid '{key}': integer below minimum value."));
        }
    }
    tools(body)?;
    let list = items(body, "messages");
    messages(list)?;
    let model = body["model"].as_str().unwrap_or_default();
    cache_marks(body, model)?;
    if model.starts_with("deepseek") { thoughts(list) } else { Ok(()) }
}

/// DeepSeek's rule: once tools were used, every message of the model carries its reasoning.
fn thoughts(list: &[Value]) -> Result<(), Refusal> {
    let used = list.iter().any(|m| m["role"] == "tool");
    let lacks = |m: &Value| m["reasoning_content"].as_str().is_none_or(str::is_empty);
    if used && list.iter().any(|m| m["role"] == "assistant" && lacks(m)) {
        return invalid("messages", "The `reasoning_content` in the thinking mode must be passed back to the API.");
    }
    Ok(())
}

/// Marks for a cache: Claude behind a router takes four, on texts; nobody else knows the word.
fn cache_marks(body: &Value, model: &str) -> Result<(), Refusal> {
    let marks = marks(body);
    if marks > 0 && !model.starts_with("anthropic/") {
        return invalid("cache_control", "Unrecognized request argument supplied: cache_control");
    }
    if marks > 4 {
        return invalid(
            "messages",
            format!("A maximum of 4 blocks with cache_control may be provided. Found {marks}."),
        );
    }
    let parts = items(body, "messages").iter().flat_map(|m| items(m, "content"));
    let on_text = parts.filter(|p| p["type"] == "text" && p["cache_control"]["type"] == "ephemeral").count();
    if on_text == marks { Ok(()) } else { invalid("messages", "cache_control stands on parts of type text only") }
}

fn tools(body: &Value) -> Result<(), Refusal> {
    let mut names = HashSet::new();
    if body.get("tools").is_some_and(|t| t.as_array().is_none_or(Vec::is_empty)) {
        return invalid("tools", "Invalid 'tools': empty array. Expected an array with minimum length 1.");
    }
    for (i, tool) in items(body, "tools").iter().enumerate() {
        if tool["type"] != "function" {
            return invalid(format!("tools[{i}].type"), format!("Missing required parameter: 'tools[{i}].type'."));
        }
        let function = &tool["function"];
        if let Some(key) = unknown_key(function, &["name", "description", "parameters", "strict"]) {
            return invalid(format!("tools[{i}].function"), format!("Unknown parameter: 'tools[{i}].function.{key}'."));
        }
        let name = function["name"].as_str().unwrap_or_default();
        if !is_name(name, 64) || !names.insert(name) {
            return invalid(
                format!("tools[{i}].function.name"),
                format!(
                    "Invalid 'tools[{i}].function.name': string does not match pattern. Expected a string that matches the pattern '^[a-zA-Z0-9_-]+$'."
                ),
            );
        }
        if function["parameters"]["type"] != "object" {
            return invalid(
                format!("tools[{i}].function.parameters"),
                format!(
                    "Invalid schema for function '{name}': schema must be a JSON Schema of 'type: \"object\"', got 'type: {}'.",
                    function["parameters"]["type"]
                ),
            );
        }
    }
    for key in ["tool_choice", "parallel_tool_calls"] {
        if names.is_empty() && body.get(key).is_some() {
            return invalid(key, format!("'{key}' is only allowed when 'tools' are specified."));
        }
    }
    Ok(())
}

fn messages(list: &[Value]) -> Result<(), Refusal> {
    if list.is_empty() {
        return invalid("messages", "Invalid 'messages': empty array. Expected an array with minimum length 1.");
    }
    let mut ids: HashSet<String> = HashSet::new();
    let mut open: Vec<String> = Vec::new();
    let mut calling = false;
    for (i, message) in list.iter().enumerate() {
        let at = format!("messages.[{i}]");
        let role = message["role"].as_str().unwrap_or_default();
        if role == "tool" {
            answer(message, &at, calling, &mut open)?;
            continue;
        }
        unanswered(&at, &open)?;
        calling = false;
        match role {
            "system" | "developer" | "user" => {
                if let Some(key) = unknown_key(message, &["role", "content", "name"]) {
                    return invalid(&at, format!("Unknown parameter: 'messages[{i}].{key}'."));
                }
                content(&message["content"], &at)?;
            }
            "assistant" => {
                calls(message, i, &mut ids, &mut open)?;
                calling = !open.is_empty();
            }
            other => {
                return invalid(
                    &at,
                    format!(
                        "Invalid value: '{other}'. Supported values are: 'system', 'assistant', 'user', 'function', 'tool', and 'developer'."
                    ),
                );
            }
        }
    }
    unanswered(&format!("messages.[{}]", list.len()), &open)?;
    let last = list.last().map_or("", |m| m["role"].as_str().unwrap_or_default());
    if last != "user" && last != "tool" {
        return invalid("messages", format!("Expected last role User or Tool for serving but got {last}"));
    }
    Ok(())
}

fn unanswered(at: &str, open: &[String]) -> Result<(), Refusal> {
    if open.is_empty() {
        return Ok(());
    }
    let ids = open.join(", ");
    invalid(
        format!("{at}.role"),
        format!(
            "An assistant message with 'tool_calls' must be followed by tool messages responding to each 'tool_call_id'. The following tool_call_ids did not have response messages: {ids}"
        ),
    )
}

fn answer(message: &Value, at: &str, calling: bool, open: &mut Vec<String>) -> Result<(), Refusal> {
    if !calling {
        return invalid(
            format!("{at}.role"),
            "Invalid parameter: messages with role 'tool' must be a response to a preceeding message with 'tool_calls'.",
        );
    }
    if let Some(key) = unknown_key(message, &["role", "content", "tool_call_id", "name"]) {
        return invalid(at, format!("Unknown parameter: '{at}.{key}'."));
    }
    let id = message["tool_call_id"].as_str().unwrap_or_default();
    let Some(index) = open.iter().position(|o| o == id) else {
        return invalid(
            format!("{at}.tool_call_id"),
            format!("Invalid parameter: 'tool_call_id' of '{id}' not found in 'tool_calls' of previous message."),
        );
    };
    open.remove(index);
    content(&message["content"], at)
}

fn content(content: &Value, at: &str) -> Result<(), Refusal> {
    match content {
        Value::String(_) => Ok(()),
        Value::Array(parts) if !parts.is_empty() => {
            for part in parts {
                let whole = match part["type"].as_str() {
                    Some("text") => part["text"].as_str().is_some_and(|t| !t.is_empty()),
                    Some("image_url") => part["image_url"]["url"].is_string(),
                    Some("file" | "input_audio" | "refusal") => true,
                    _ => false,
                };
                if !whole {
                    return invalid(format!("{at}.content"), format!("Invalid content part: {part}"));
                }
            }
            Ok(())
        }
        other => invalid(
            format!("{at}.content"),
            format!(
                "Invalid value for 'content': expected a string, got {}.",
                if other.is_null() { "null" } else { "something else" }
            ),
        ),
    }
}

fn calls(message: &Value, i: usize, ids: &mut HashSet<String>, open: &mut Vec<String>) -> Result<(), Refusal> {
    let at = format!("messages.[{i}]");
    let known = [
        "role",
        "content",
        "tool_calls",
        "name",
        "refusal",
        "audio",
        "reasoning_content",
        "reasoning",
        "reasoning_details",
    ];
    if let Some(key) = unknown_key(message, &known) {
        return invalid(&at, format!("Unknown parameter: 'messages[{i}].{key}'."));
    }
    let Some(list) = message.get("tool_calls") else {
        return match &message["content"] {
            Value::String(text) if text.is_empty() => {
                invalid(format!("{at}.content"), "an assistant message must say something")
            }
            other => content(other, &at),
        };
    };
    let list = list.as_array().filter(|l| !l.is_empty());
    let Some(list) = list else {
        return invalid(
            format!("messages[{i}].tool_calls"),
            format!(
                "Invalid 'messages[{i}].tool_calls': empty array. Expected an array with minimum length 1, but got an empty array instead."
            ),
        );
    };
    if message.get("content").is_some_and(|c| !c.is_null()) {
        content(&message["content"], &at)?;
    }
    for (j, call) in list.iter().enumerate() {
        let at = format!("messages[{i}].tool_calls[{j}]");
        let id = call["id"].as_str().unwrap_or_default();
        if id.is_empty() || id.len() > 40 {
            return invalid(
                format!("{at}.id"),
                format!(
                    "Invalid '{at}.id': string too long. Expected a string with maximum length 40, but got a string with length {} instead.",
                    id.len()
                ),
            );
        }
        if !ids.insert(id.to_owned()) {
            return invalid(format!("{at}.id"), format!("Duplicate value for 'tool_call_id' of '{id}'."));
        }
        if call["type"] != "function" {
            return invalid(format!("{at}.type"), format!("Missing required parameter: '{at}.type'."));
        }
        if !is_name(call["function"]["name"].as_str().unwrap_or_default(), 64) {
            return invalid(
                format!("{at}.function.name"),
                format!(
                    "Invalid '{at}.function.name': string does not match pattern. Expected a string that matches the pattern '^[a-zA-Z0-9_-]+$'."
                ),
            );
        }
        let arguments = call["function"]["arguments"].as_str();
        let parsed = arguments.and_then(|a| serde_json::from_str::<Value>(a).ok());
        if !parsed.is_some_and(|v| v.is_object()) {
            return invalid(
                format!("{at}.function.arguments"),
                format!("Invalid type for '{at}.function.arguments': expected a string that holds a JSON object."),
            );
        }
        open.push(id.to_owned());
    }
    Ok(())
}

/// Streams a reply.
///
/// # Errors
/// When the client is gone or the script ends the connection.
pub(super) fn stream(reply: &Reply, body: &Value, out: &mut Responder) -> Result<(), Ended> {
    let send = |out: &mut Responder, choices: Value, usage: Value| {
        let mut chunk = json!({
            "id": "chatcmpl-fake", "object": "chat.completion.chunk", "created": 1_700_000_000, "model": body["model"],
            "choices": choices
        });
        if body["stream_options"]["include_usage"] == true {
            chunk["usage"] = usage;
        }
        out.chunk(format!("data: {chunk}\n\n").as_bytes())
    };
    let delta = |d: Value| json!([{"index": 0, "delta": d, "finish_reason": null}]);
    send(out, delta(json!({"role": "assistant", "content": ""})), Value::Null)?;
    let mut call = 0;
    for step in &reply.steps {
        match step {
            Step::Text(text) => send(out, delta(json!({"content": text})), Value::Null)?,
            Step::Reasoning { pieces, .. } => {
                for piece in pieces {
                    send(out, delta(json!({"reasoning_content": piece})), Value::Null)?;
                }
            }
            Step::Tool { id, name, input } => {
                let function = json!({"name": name, "arguments": ""});
                let first =
                    json!({"tool_calls": [{"index": call, "id": id, "type": "function", "function": function}]});
                send(out, delta(first), Value::Null)?;
                for piece in halves(input) {
                    let more = json!({"tool_calls": [{"index": call, "function": {"arguments": piece}}]});
                    send(out, delta(more), Value::Null)?;
                }
                call += 1;
            }
            Step::Gate(gate) => out.hold(gate)?,
            Step::Raw(bytes) => out.chunk(bytes)?,
            Step::Error { kind, message } => {
                out.chunk(format!("data: {}\n\n", error(kind, message, None)).as_bytes())?
            }
        }
    }
    if !reply.finish {
        return Ok(());
    }
    let reason = reply.stop.as_deref().unwrap_or(if reply.has_calls() { "tool_calls" } else { "stop" });
    send(out, json!([{"index": 0, "delta": {}, "finish_reason": reason}]), Value::Null)?;
    if let Some(f) = reply.usage.filter(|_| body["stream_options"]["include_usage"] == true) {
        // This dialect counts the cached part into the prompt.
        let prompt = f.input + f.cache_read + f.cache_write;
        let usage = json!({
            "prompt_tokens": prompt, "completion_tokens": f.output, "total_tokens": prompt + f.output,
            "prompt_tokens_details": {"cached_tokens": f.cache_read}
        });
        send(out, json!([]), usage)?;
    }
    out.chunk(b"data: [DONE]\n\n")
}
