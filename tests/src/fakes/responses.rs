//! OpenAI Responses: the rules a request has to keep, and the stream.
//!
//! The messages of refusals are the real API's. Where servers that speak this dialect are stricter
//! (results directly behind their calls), the stricter rule holds. Nothing is stored here either, so a
//! request that relies on that is refused.

use super::anthropic::halves;
use super::http::{Ended, Request, Responder};
use super::reply::{Reply, Step};
use super::rules::{Issued, Refusal, is_name, items, unknown_key};
use serde_json::{Value, json};
use std::collections::HashSet;

const TOP: &[&str] = &[
    "model",
    "input",
    "instructions",
    "stream",
    "stream_options",
    "store",
    "include",
    "reasoning",
    "max_output_tokens",
    "tools",
    "tool_choice",
    "parallel_tool_calls",
    "prompt_cache_key",
    "prompt_cache_retention",
    "metadata",
    "temperature",
    "top_p",
    "text",
    "truncation",
    "service_tier",
    "safety_identifier",
    "user",
];

fn invalid<T>(param: impl Into<String>, message: impl Into<String>) -> Result<T, Refusal> {
    Err(Refusal::invalid(message).at(param))
}

/// Checks a request as the real API does.
///
/// # Errors
/// The refusal of the first rule it breaks.
pub fn check(request: &Request, body: &Value, issued: &Issued) -> Result<(), Refusal> {
    if !body.is_object() {
        return invalid("", "We could not parse the JSON body of your request.");
    }
    if let Some(key) = unknown_key(body, TOP) {
        return invalid(key, format!("Unknown parameter: '{key}'."));
    }
    let model = body["model"].as_str().unwrap_or_default();
    if model.is_empty() {
        return invalid("model", "Missing required parameter: 'model'.");
    }
    if body["stream"] != true || body["store"] != false {
        return invalid("store", "this fake only streams and stores nothing");
    }
    if body.get("instructions").is_some_and(|i| i.as_str().is_none_or(str::is_empty)) {
        return invalid("instructions", "Invalid type for 'instructions': expected a string.");
    }
    if body.get("max_output_tokens").is_some_and(|v| v.as_u64().unwrap_or(0) < 16) {
        return invalid(
            "max_output_tokens",
            "Invalid 'max_output_tokens': integer below minimum value. Expected a value >= 16.",
        );
    }
    if let Some(key) = unknown_key(&body["reasoning"], &["effort", "summary", "generate_summary"]) {
        return invalid("reasoning", format!("Unknown parameter: 'reasoning.{key}'."));
    }
    let encrypted = items(body, "include").iter().any(|i| i == "reasoning.encrypted_content");
    if model.starts_with("gpt-4") && encrypted {
        return invalid("include", "Encrypted content is not supported with this model.");
    }
    tools(body)?;
    input(request, items(body, "input"), encrypted, issued)
}

fn tools(body: &Value) -> Result<(), Refusal> {
    let mut names = HashSet::new();
    for (i, tool) in items(body, "tools").iter().enumerate() {
        let at = format!("tools[{i}]");
        if let Some(key) = unknown_key(tool, &["type", "name", "description", "parameters", "strict"]) {
            return invalid(&at, format!("Unknown parameter: '{at}.{key}'."));
        }
        let name = tool["name"].as_str().unwrap_or_default();
        if tool["type"] != "function" || !is_name(name, 64) || !names.insert(name) {
            return invalid(format!("{at}.name"), format!("Missing required parameter: '{at}.name'."));
        }
        if tool["parameters"]["type"] != "object" {
            return invalid(
                format!("{at}.parameters"),
                format!("Invalid schema for function '{name}': schema must be a JSON Schema of 'type: \"object\"'."),
            );
        }
        if tool["strict"] != false && tool["parameters"]["additionalProperties"] != false {
            return invalid(
                format!("{at}.parameters"),
                format!(
                    "Invalid schema for function '{name}': In context=(), 'additionalProperties' is required to be supplied and to be false."
                ),
            );
        }
    }
    if body.get("tools").is_some() && names.is_empty() {
        return invalid("tools", "Invalid 'tools': empty array. Expected an array with minimum length 1.");
    }
    for key in ["tool_choice", "parallel_tool_calls"] {
        if names.is_empty() && body.get(key).is_some() {
            return invalid(key, format!("'{key}' is only allowed when 'tools' are specified."));
        }
    }
    Ok(())
}

fn input(request: &Request, list: &[Value], encrypted: bool, issued: &Issued) -> Result<(), Refusal> {
    if list.is_empty() {
        return invalid("input", "Invalid 'input': empty array. Expected an array with minimum length 1.");
    }
    let mut ids = HashSet::new();
    let mut open: Vec<&str> = Vec::new();
    for (i, item) in list.iter().enumerate() {
        let at = format!("input[{i}]");
        let kind = item["type"].as_str().unwrap_or("message");
        if kind != "function_call" && kind != "function_call_output" {
            answered(&open)?;
        }
        match kind {
            "message" => message(item, &at)?,
            "function_call" => {
                let id = call(item, &at)?;
                if !ids.insert(id) {
                    return invalid(format!("{at}.call_id"), format!("Duplicate item found with call_id {id}."));
                }
                open.push(id);
            }
            "function_call_output" => {
                let id = item["call_id"].as_str().unwrap_or_default();
                if let Some(key) = unknown_key(item, &["type", "call_id", "output", "status"]) {
                    return invalid(&at, format!("Unknown parameter: '{at}.{key}'."));
                }
                let Some(place) = open.iter().position(|o| *o == id) else {
                    return invalid("input", format!("No tool call found for function call output with call_id {id}."));
                };
                open.remove(place);
                if !item["output"].is_string() {
                    return invalid(format!("{at}.output"), format!("Missing required parameter: '{at}.output'."));
                }
            }
            "reasoning" => reasoning(request, item, list.get(i + 1), &at, encrypted, issued)?,
            other => {
                return invalid(
                    format!("{at}.type"),
                    format!(
                        "Invalid value: '{other}'. Supported values are: 'message', 'reasoning', 'function_call', 'function_call_output'."
                    ),
                );
            }
        }
    }
    answered(&open)?;
    let last = list.last().unwrap_or(&Value::Null);
    if last["role"] != "user" && last["type"] != "function_call_output" {
        return invalid("input", "the conversation has to end with the user or a result");
    }
    Ok(())
}

fn answered(open: &[&str]) -> Result<(), Refusal> {
    match open.first() {
        Some(id) => invalid("input", format!("No tool output found for function call {id}.")),
        None => Ok(()),
    }
}

fn message(item: &Value, at: &str) -> Result<(), Refusal> {
    if let Some(key) = unknown_key(item, &["type", "role", "content", "phase", "status"]) {
        return invalid(at, format!("Unknown parameter: '{at}.{key}'."));
    }
    let kinds: &[&str] = match item["role"].as_str().unwrap_or_default() {
        "user" | "developer" | "system" => &["input_text", "input_image", "input_file"],
        "assistant" => &["output_text", "refusal"],
        other => return invalid(format!("{at}.role"), format!("Invalid value: '{other}'.")),
    };
    if item.get("phase").is_some_and(|p| item["role"] != "assistant" || (p != "commentary" && p != "final_answer")) {
        return invalid(format!("{at}.phase"), format!("Invalid value: '{}'.", item["phase"]));
    }
    let content = items(item, "content");
    if content.is_empty() {
        return invalid(format!("{at}.content"), format!("Invalid '{at}.content': empty array."));
    }
    for (j, piece) in content.iter().enumerate() {
        let at = format!("{at}.content[{j}]");
        let kind = piece["type"].as_str().unwrap_or_default();
        if !kinds.contains(&kind) {
            let words = kinds.join("' and '");
            return invalid(at, format!("Invalid value: '{kind}'. Supported values are: '{words}'."));
        }
        let whole = match kind {
            "input_image" => piece["image_url"].as_str().is_some_and(|u| u.contains(':')),
            "input_file" => piece["file_data"].is_string() || piece["file_url"].is_string(),
            "refusal" => piece["refusal"].is_string(),
            _ => piece["text"].as_str().is_some_and(|t| !t.trim().is_empty()),
        };
        if !whole {
            return invalid(&at, format!("Missing required parameter: '{at}'."));
        }
    }
    Ok(())
}

fn call<'a>(item: &'a Value, at: &str) -> Result<&'a str, Refusal> {
    if let Some(key) = unknown_key(item, &["type", "id", "call_id", "name", "arguments", "status"]) {
        return invalid(at, format!("Unknown parameter: '{at}.{key}'."));
    }
    if let Some(id) = item.get("id").filter(|id| !id.as_str().is_some_and(|id| id.starts_with("fc"))) {
        return invalid(
            format!("{at}.id"),
            format!("Invalid '{at}.id': '{id}'. Expected an ID that begins with 'fc'."),
        );
    }
    let id = item["call_id"].as_str().unwrap_or_default();
    if !is_name(id, 64) {
        return invalid(
            format!("{at}.call_id"),
            format!(
                "Invalid '{at}.call_id': string too long. Expected a string with maximum length 64, but got a string with length {} instead.",
                id.len()
            ),
        );
    }
    if !is_name(item["name"].as_str().unwrap_or_default(), 64) {
        return invalid(format!("{at}.name"), format!("Invalid '{at}.name': string does not match pattern."));
    }
    let arguments = item["arguments"].as_str().and_then(|a| serde_json::from_str::<Value>(a).ok());
    if !arguments.is_some_and(|a| a.is_object()) {
        return invalid(format!("{at}.arguments"), format!("Invalid type for '{at}.arguments': expected an object."));
    }
    Ok(id)
}

/// Reasoning goes back as it was issued, byte for byte, in front of what it was issued for.
fn reasoning(
    request: &Request,
    item: &Value,
    next: Option<&Value>,
    at: &str,
    encrypted: bool,
    issued: &Issued,
) -> Result<(), Refusal> {
    let id = item["id"].as_str().unwrap_or_default();
    let seal = item["encrypted_content"].as_str().unwrap_or_default();
    if seal.is_empty() || !encrypted {
        return invalid(
            at,
            format!("Item with id '{id}' not found. Items are not persisted when `store` is set to false."),
        );
    }
    let whole = issued.sealed(seal).map(|text| thought(text, Some(seal)).to_string());
    let raw = String::from_utf8_lossy(&request.body);
    if !whole.is_some_and(|w| raw.contains(&w)) {
        return invalid(at, format!("The encrypted content for item {id} could not be verified."));
    }
    let led_to = next.is_some_and(|n| match n["type"].as_str() {
        Some("message") => n["role"] == "assistant",
        Some("function_call") => issued.needed_before(n["call_id"].as_str().unwrap_or_default()) == Some(seal),
        _ => false,
    });
    if !led_to {
        return invalid(
            at,
            format!("Item '{id}' of type 'reasoning' was provided without its required following item."),
        );
    }
    Ok(())
}

/// A reasoning item, the same each time.
fn thought(text: &str, seal: Option<&str>) -> Value {
    let summary = if text.is_empty() { json!([]) } else { json!([{"type": "summary_text", "text": text}]) };
    let mut item = json!({"id": format!("rs_{:08x}", text.len()), "type": "reasoning", "summary": summary});
    if let Some(seal) = seal {
        item["encrypted_content"] = json!(seal);
    }
    item
}

struct Out<'a> {
    to: &'a mut Responder,
    number: u64,
}

impl Out<'_> {
    fn event(&mut self, kind: &str, mut data: Value) -> Result<(), Ended> {
        data["type"] = json!(kind);
        data["sequence_number"] = json!(self.number);
        self.number += 1;
        self.to.chunk(format!("event: {kind}\ndata: {data}\n\n").as_bytes())
    }
}

/// Streams a reply.
///
/// # Errors
/// When the client is gone or the script ends the connection.
pub(super) fn stream(reply: &Reply, body: &Value, out: &mut Responder) -> Result<(), Ended> {
    let mut out = Out { to: out, number: 0 };
    let response = |status: &str, output: &[Value]| {
        json!({"id": "resp_fake", "object": "response", "status": status, "model": body["model"], "output": output,
            "error": null, "incomplete_details": null, "usage": null})
    };
    out.event("response.created", json!({"response": response("in_progress", &[])}))?;
    out.event("response.in_progress", json!({"response": response("in_progress", &[])}))?;
    let mut output: Vec<Value> = Vec::new();
    let mut words: Option<String> = None;
    let encrypted = items(body, "include").iter().any(|i| i == "reasoning.encrypted_content");
    for (n, step) in reply.steps.iter().enumerate() {
        if !matches!(step, Step::Text(_) | Step::Gate(_) | Step::Raw(_)) {
            close(&mut words, &mut output, &mut out)?;
        }
        let index = output.len();
        match step {
            Step::Text(text) => {
                if words.is_none() {
                    let item = json!({"id": format!("msg_{index}"), "type": "message", "status": "in_progress",
                        "role": "assistant", "content": []});
                    out.event("response.output_item.added", json!({"output_index": index, "item": item}))?;
                    let part = json!({"type": "output_text", "text": "", "annotations": []});
                    out.event(
                        "response.content_part.added",
                        json!({"output_index": index, "content_index": 0, "part": part}),
                    )?;
                }
                words.get_or_insert_default().push_str(text);
                let delta = json!({"item_id": format!("msg_{index}"), "output_index": index, "content_index": 0, "delta": text});
                out.event("response.output_text.delta", delta)?;
            }
            Step::Reasoning { pieces, signature } => {
                let whole = thought(&pieces.concat(), encrypted.then_some(signature.as_str()));
                let mut begun = whole.clone();
                begun["summary"] = json!([]);
                out.event("response.output_item.added", json!({"output_index": index, "item": begun}))?;
                for piece in pieces {
                    let delta = json!({"output_index": index, "summary_index": 0, "delta": piece});
                    out.event("response.reasoning_summary_text.delta", delta)?;
                }
                out.event("response.output_item.done", json!({"output_index": index, "item": whole}))?;
                output.push(whole);
            }
            Step::Tool { id, name, input } => {
                let item = |arguments: &str, status: &str| {
                    json!({"id": format!("fc_{index}"), "type": "function_call", "status": status, "call_id": id,
                        "name": name, "arguments": arguments})
                };
                let begun = item("", "in_progress");
                out.event("response.output_item.added", json!({"output_index": index, "item": begun}))?;
                for piece in halves(input) {
                    let delta = json!({"item_id": format!("fc_{index}"), "output_index": index, "delta": piece});
                    out.event("response.function_call_arguments.delta", delta)?;
                }
                let cut = reply.stop.is_some() && n + 1 == reply.steps.len();
                let whole = item(input, if cut { "incomplete" } else { "completed" });
                out.event("response.output_item.done", json!({"output_index": index, "item": whole}))?;
                output.push(whole);
            }
            Step::Gate(gate) => out.to.hold(gate)?,
            Step::Raw(bytes) => out.to.chunk(bytes)?,
            Step::Error { kind, message } => {
                out.event("error", json!({"code": kind, "message": message, "param": null}))?;
            }
        }
    }
    if !reply.finish {
        return Ok(());
    }
    close(&mut words, &mut output, &mut out)?;
    let status = if reply.stop.is_some() { "incomplete" } else { "completed" };
    let mut end = response(status, &output);
    if let Some(reason) = &reply.stop {
        end["incomplete_details"] = json!({"reason": reason});
    }
    if let Some(f) = reply.usage {
        let input = f.input + f.cache_read + f.cache_write;
        end["usage"] = json!({"input_tokens": input, "input_tokens_details": {"cached_tokens": f.cache_read},
            "output_tokens": f.output, "output_tokens_details": {"reasoning_tokens": 0}, "total_tokens": input + f.output});
    }
    out.event(&format!("response.{status}"), json!({ "response": end }))
}

/// Ends a message that is being written.
fn close(words: &mut Option<String>, output: &mut Vec<Value>, out: &mut Out<'_>) -> Result<(), Ended> {
    let Some(text) = words.take() else { return Ok(()) };
    let index = output.len();
    let part = json!({"type": "output_text", "text": text, "annotations": []});
    out.event("response.output_text.done", json!({"output_index": index, "content_index": 0, "text": text}))?;
    out.event("response.content_part.done", json!({"output_index": index, "content_index": 0, "part": part}))?;
    let item = json!({"id": format!("msg_{index}"), "type": "message", "status": "completed", "role": "assistant",
        "content": [part]});
    out.event("response.output_item.done", json!({"output_index": index, "item": item}))?;
    output.push(item);
    Ok(())
}
