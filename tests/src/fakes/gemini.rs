//! Gemini `generateContent`: the rules a request has to keep, the error shape, and the stream.
//!
//! The messages of refusals are the real API's. Models whose name has `gemini-3` in it demand the
//! signatures of the current turn's calls, as the real ones do; of all, a signature that was never
//! issued is refused.

use super::http::{Ended, Request, Responder};
use super::reply::{Figures, Reply, Step};
use super::rules::{Issued, Refusal, items, unknown_key};
use serde_json::{Value, json};
use std::collections::HashSet;

/// The word that stands for a signature where there never was one.
pub const UNSIGNED: &str = "skip_thought_signature_validator";

/// The error body.
pub fn error(status: u16, message: &str) -> Value {
    let word = match status {
        400 => "INVALID_ARGUMENT",
        401 => "UNAUTHENTICATED",
        403 => "PERMISSION_DENIED",
        404 => "NOT_FOUND",
        429 => "RESOURCE_EXHAUSTED",
        503 | 529 => "UNAVAILABLE",
        _ => "INTERNAL",
    };
    json!({"error": {"code": status, "message": message, "status": word}})
}

fn invalid<T>(message: impl Into<String>) -> Result<T, Refusal> {
    Err(Refusal::new(400, "INVALID_ARGUMENT", &message.into()))
}

fn known(value: &Value, keys: &[&str], at: &str) -> Result<(), Refusal> {
    match unknown_key(value, keys) {
        Some(key) if at.is_empty() => {
            invalid(format!("Invalid JSON payload received. Unknown name \"{key}\": Cannot find field."))
        }
        Some(key) => {
            invalid(format!("Invalid JSON payload received. Unknown name \"{key}\" at '{at}': Cannot find field."))
        }
        None => Ok(()),
    }
}

/// Checks a request as the real API does.
///
/// # Errors
/// The refusal of the first rule it breaks.
pub fn check(request: &Request, body: &Value, issued: &Issued) -> Result<(), Refusal> {
    if !body.is_object() {
        return invalid("Invalid JSON payload received.");
    }
    let top = ["contents", "systemInstruction", "tools", "toolConfig", "generationConfig", "safetySettings"];
    known(body, &top, "")?;
    known(&body["systemInstruction"], &["role", "parts"], "system_instruction")?;
    if body.get("systemInstruction").is_some() {
        let parts = items(&body["systemInstruction"], "parts");
        if parts.is_empty() || parts.iter().any(|p| p["text"].as_str().is_none_or(|t| t.trim().is_empty())) {
            return invalid("system_instruction.parts: contents is not specified");
        }
    }
    let names = tools(body)?;
    generation(&body["generationConfig"])?;
    known(&body["toolConfig"], &["functionCallingConfig"], "tool_config")?;
    let mode = &body["toolConfig"]["functionCallingConfig"]["mode"];
    if !mode.is_null() && (names.is_empty() || !["AUTO", "ANY", "NONE", "VALIDATED"].iter().any(|m| mode == m)) {
        return invalid("Function calling config is set without function_declarations.");
    }
    let strict = request.path.contains("gemini-3");
    contents(items(body, "contents"), issued, strict)
}

fn generation(config: &Value) -> Result<(), Refusal> {
    let keys = ["maxOutputTokens", "thinkingConfig", "temperature", "topP", "topK", "seed", "stopSequences"];
    known(config, &keys, "generation_config")?;
    if config.get("maxOutputTokens").is_some_and(|m| m.as_u64().unwrap_or(0) < 1) {
        return invalid("max_output_tokens must be positive.");
    }
    let thinking = &config["thinkingConfig"];
    known(thinking, &["includeThoughts", "thinkingBudget", "thinkingLevel"], "generation_config.thinking_config")?;
    if thinking.get("thinkingBudget").is_some() && thinking.get("thinkingLevel").is_some() {
        return invalid("You can only set only one of thinking budget and thinking level.");
    }
    let level = &thinking["thinkingLevel"];
    if !level.is_null() && !["minimal", "low", "medium", "high"].iter().any(|l| level == l) {
        return invalid(format!("Invalid value at 'generation_config.thinking_config.thinking_level': {level}"));
    }
    Ok(())
}

fn tools(body: &Value) -> Result<HashSet<String>, Refusal> {
    let mut names = HashSet::new();
    for tool in items(body, "tools") {
        known(tool, &["functionDeclarations"], "tools[0]")?;
        for (i, function) in items(tool, "functionDeclarations").iter().enumerate() {
            let at = format!("tools[0].function_declarations[{i}]");
            known(function, &["name", "description", "parameters"], &at)?;
            let name = function["name"].as_str().unwrap_or_default();
            if !is_function(name) || !names.insert(name.to_owned()) {
                return invalid(format!(
                    "{at}.name: Invalid function name. Must start with a letter or an underscore."
                ));
            }
            if let Some(parameters) = function.get("parameters") {
                schema(parameters, &format!("{at}.parameters"))?;
            }
        }
    }
    if body.get("tools").is_some() && names.is_empty() {
        return invalid("tools[0].tool_type: required one_of 'tool_type' must have one initialized field");
    }
    Ok(names)
}

fn is_function(name: &str) -> bool {
    let rest = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'.' | b'-' | b':');
    (1..=64).contains(&name.len())
        && name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
        && name.bytes().all(rest)
}

/// A subset of OpenAPI's schema.
fn schema(schema: &Value, at: &str) -> Result<(), Refusal> {
    let keys = [
        "type",
        "format",
        "title",
        "description",
        "nullable",
        "enum",
        "items",
        "minItems",
        "maxItems",
        "properties",
        "required",
        "minProperties",
        "maxProperties",
        "minimum",
        "maximum",
        "minLength",
        "maxLength",
        "pattern",
        "example",
        "anyOf",
        "propertyOrdering",
        "default",
    ];
    known(schema, &keys, at)?;
    let kind = schema["type"].as_str().unwrap_or_default().to_ascii_uppercase();
    if !schema["type"].is_null() && !schema["type"].is_string() {
        return invalid(format!("Proto field is not repeating, cannot start list at '{at}.type'."));
    }
    match (kind.as_str(), schema.get("properties"), schema.get("items")) {
        ("", _, _) if schema.get("anyOf").is_none() => {
            return invalid(format!("{at}: schema didn't specify the schema type field."));
        }
        ("OBJECT", Some(p), _) if p.as_object().is_none_or(serde_json::Map::is_empty) => {
            return invalid(format!("{at}.properties: should be non-empty for OBJECT type"));
        }
        ("ARRAY", _, None) => return invalid(format!("{at}.items: missing field.")),
        (other, ..) if schema.get("enum").is_some() && other != "STRING" => {
            return invalid(format!("{at}.enum: only allowed for STRING type"));
        }
        _ => {}
    }
    for name in items(schema, "required") {
        if schema["properties"].get(name.as_str().unwrap_or_default()).is_none() {
            return invalid(format!("{at}.required[0]: property is not defined"));
        }
    }
    for (name, child) in schema["properties"].as_object().into_iter().flatten() {
        self::schema(child, &format!("{at}.properties[{name}]"))?;
    }
    for child in schema.get("items").into_iter().chain(items(schema, "anyOf")) {
        self::schema(child, &format!("{at}.items"))?;
    }
    Ok(())
}

fn contents(list: &[Value], issued: &Issued, strict: bool) -> Result<(), Refusal> {
    if list.is_empty() {
        return invalid("* GenerateContentRequest.contents: contents is not specified");
    }
    let results_only = |c: &Value| items(c, "parts").iter().all(|p| !p["functionResponse"].is_null());
    let turn = list.iter().rposition(|c| c["role"] == "user" && !results_only(c)).unwrap_or(0);
    let mut called: Vec<&str> = Vec::new();
    let mut last = "";
    for (i, content) in list.iter().enumerate() {
        known(content, &["role", "parts"], &format!("contents[{i}]"))?;
        let role = content["role"].as_str().unwrap_or_default();
        if role != "user" && role != "model" {
            return invalid("Please use a valid role: user, model.");
        }
        if role == last || (last.is_empty() && role != "user") {
            return invalid("Please ensure that multiturn requests alternate between user and model.");
        }
        last = role;
        let parts = items(content, "parts");
        if parts.is_empty() {
            return invalid(format!("* GenerateContentRequest.contents[{i}].parts: contents.parts must not be empty."));
        }
        let answered: Vec<&str> = parts.iter().filter_map(|p| p["functionResponse"]["name"].as_str()).collect();
        if answered.len() != called.len() {
            return invalid(
                "Please ensure that the number of function response parts is equal to the number of function call parts of the function call turn.",
            );
        }
        if answered != called {
            return invalid("Please ensure that each function response has the name of its function call.");
        }
        called = parts.iter().filter_map(|p| p["functionCall"]["name"].as_str()).collect();
        if !called.is_empty() && role != "model" {
            return invalid(
                "Please ensure that function call turn comes immediately after a user turn or after a function response turn.",
            );
        }
        let mut first_call = true;
        for (j, part) in parts.iter().enumerate() {
            one_part(part, role, &format!("contents[{i}].parts[{j}]"), issued)?;
            if part["functionCall"].is_object() {
                if strict && first_call && i > turn && part.get("thoughtSignature").is_none() {
                    return invalid(format!(
                        "Function call is missing a thought_signature in functionCall parts. This is required for tools to work correctly. Additional data, function call `default_api:{}`, position {j}.",
                        part["functionCall"]["name"].as_str().unwrap_or_default()
                    ));
                }
                first_call = false;
            }
        }
    }
    if last != "user" {
        return invalid("Please ensure that single turn requests end with a user role.");
    }
    Ok(())
}

fn one_part(part: &Value, role: &str, at: &str, issued: &Issued) -> Result<(), Refusal> {
    const DATA: [&str; 5] = ["text", "functionCall", "functionResponse", "inlineData", "fileData"];
    let keys: Vec<&str> = DATA.into_iter().chain(["thought", "thoughtSignature"]).collect();
    known(part, &keys, at)?;
    if DATA.iter().filter(|k| part.get(**k).is_some()).count() != 1 {
        return invalid(format!("* {at}.data: required oneof field 'data' must have one initialized field"));
    }
    let signature = part.get("thoughtSignature").map(|s| s.as_str().unwrap_or_default());
    let invalid_signature = || invalid::<()>(format!("Thought signature is not valid at {at}."));
    if let Some(text) = part.get("text") {
        if text.as_str().is_none_or(|t| t.trim().is_empty()) && signature.is_none() {
            return invalid(format!("Unable to submit request because {at} must have a text parameter."));
        }
        if signature.is_some_and(|s| issued.sealed(s).is_none()) {
            return invalid_signature();
        }
        return Ok(());
    }
    if signature.is_some() && (role != "model" || part.get("functionCall").is_none()) {
        return invalid_signature();
    }
    if let Some(call) = part.get("functionCall") {
        known(call, &["id", "name", "args"], &format!("{at}.function_call"))?;
        if !is_function(call["name"].as_str().unwrap_or_default()) || !call["args"].is_object() {
            return invalid(format!("Invalid value at '{at}.function_call': {call}"));
        }
        let name = call["name"].as_str().unwrap_or_default();
        if signature.is_some_and(|s| s != UNSIGNED && !issued.signed(name, &call["args"], s)) {
            return invalid_signature();
        }
    }
    if let Some(result) = part.get("functionResponse") {
        known(result, &["id", "name", "response"], &format!("{at}.function_response"))?;
        if role != "user" || !result["response"].is_object() {
            return invalid(format!(
                "Invalid value at '{at}.function_response.response' (Map): {}",
                result["response"]
            ));
        }
    }
    if let Some(data) = part.get("inlineData") {
        known(data, &["mimeType", "data", "displayName"], &format!("{at}.inline_data"))?;
        if !data["mimeType"].is_string() || data["data"].as_str().is_none_or(|d| d.is_empty() || d.contains(',')) {
            return invalid(format!("Invalid value at '{at}.inline_data.data' (TYPE_BYTES), Base64 decoding failed"));
        }
    }
    Ok(())
}

fn usage(f: Figures) -> Value {
    let prompt = f.input + f.cache_read + f.cache_write;
    json!({"promptTokenCount": prompt, "cachedContentTokenCount": f.cache_read, "candidatesTokenCount": f.output,
        "totalTokenCount": prompt + f.output})
}

/// Streams a reply. A call whose input is no JSON object cannot be said in this dialect and is left
/// out, as the real API leaves out what it cannot parse.
///
/// # Errors
/// When the client is gone or the script ends the connection.
pub(super) fn stream(reply: &Reply, _body: &Value, out: &mut Responder) -> Result<(), Ended> {
    let send = |out: &mut Responder, part: Option<Value>, reason: Option<&str>| {
        let parts: Vec<Value> = part.into_iter().collect();
        let mut candidate = json!({"content": {"parts": parts, "role": "model"}, "index": 0});
        if let Some(reason) = reason {
            candidate["finishReason"] = json!(reason);
        }
        let mut chunk = json!({"candidates": [candidate], "modelVersion": "m", "responseId": "fake"});
        if let Some(f) = reply.usage {
            chunk["usageMetadata"] = usage(f);
        }
        out.chunk(format!("data: {chunk}\r\n\r\n").as_bytes())
    };
    // It stands on the call that the thoughts led to, else on an empty part at the end.
    let mut seal: Option<&str> = None;
    for step in &reply.steps {
        let part = match step {
            Step::Text(text) => json!({ "text": text }),
            Step::Reasoning { pieces, signature } => {
                for piece in pieces {
                    send(out, Some(json!({"text": piece, "thought": true})), None)?;
                }
                seal = Some(signature).filter(|s| !s.is_empty()).map(String::as_str);
                continue;
            }
            Step::Tool { id, name, input } => {
                let Some(args) = serde_json::from_str::<Value>(input).ok().filter(Value::is_object) else { continue };
                let mut call = json!({"name": name, "args": args});
                if let Some(id) = id {
                    call["id"] = json!(id);
                }
                let mut part = json!({ "functionCall": call });
                if let Some(seal) = seal.take() {
                    part["thoughtSignature"] = json!(seal);
                }
                part
            }
            Step::Gate(gate) => {
                out.hold(gate)?;
                continue;
            }
            Step::Raw(bytes) => {
                out.chunk(bytes)?;
                continue;
            }
            Step::Error { message, .. } => {
                out.chunk(format!("data: {}\r\n\r\n", error(503, message)).as_bytes())?;
                continue;
            }
        };
        send(out, Some(part), None)?;
    }
    if !reply.finish {
        return Ok(());
    }
    send(out, seal.map(|s| json!({"text": "", "thoughtSignature": s})), Some(reply.stop.as_deref().unwrap_or("STOP")))
}
