//! Rollouts of Codex: JSON lines of what went to and came from the model.
//!
//! Owns which items are the conversation. Events repeat what items say, and are read only for what
//! items do not: usage and interruptions.

use super::build::Builder;
use super::{ImportError, Imported, Line};
use glrs_protocol::entry::{TurnStatus, Usage};
use glrs_protocol::message::{Part, empty_object};
use serde_json::Value;
use serde_json::value::{RawValue, to_raw_value};

/// How messages begin that the program wrote on the person's side.
const OWN: [&str; 7] = [
    "<environment_context>",
    "<user_instructions>",
    "<permissions instructions>",
    "<turn_aborted>",
    "<skill>",
    "<INSTRUCTIONS>",
    "# AGENTS.md instructions",
];

pub(super) fn read(lines: &[Line]) -> Result<Imported, ImportError> {
    let mut b = Builder::default();
    let mut model: Option<String> = None;
    for line in lines {
        let Some(line) = line else {
            b.notes.count("lines that are no JSON left out");
            continue;
        };
        b.at(line["timestamp"].as_str());
        let payload = &line["payload"];
        match line["type"].as_str() {
            Some("session_meta") => b.cwd(payload["cwd"].as_str()),
            Some("turn_context") => {
                b.cwd(payload["cwd"].as_str());
                model = payload["model"].as_str().map(|m| format!("openai/{m}")).or(model);
            }
            Some("response_item") => item(&mut b, payload),
            Some("event_msg") => event(&mut b, payload, model.as_ref()),
            Some("compacted") => b.compacted(payload["message"].as_str().unwrap_or_default()),
            // The first rollouts had no envelope.
            Some(_) if !payload.is_object() => item(&mut b, line),
            None if line.get("id").is_some() || line.get("record_type").is_some() => {}
            _ => b.notes.count("lines of an unknown kind left out"),
        }
    }
    b.finish()
}

fn item(b: &mut Builder, item: &Value) {
    match item["type"].as_str() {
        Some("message") => message(b, item),
        Some("reasoning") => {
            let text = texts(&item["summary"]).or_else(|| texts(&item["content"]));
            match text {
                Some(text) => {
                    b.reasoning(&text);
                    b.notes.count("pieces of reasoning are shown, and not sent to a model again: they are sealed for one provider");
                }
                None => b.notes.count("pieces of sealed reasoning left out"),
            }
        }
        Some("function_call") => b.call(None, id(item), name(item), arguments(&item["arguments"])),
        Some("custom_tool_call") => b.call(None, id(item), name(item), arguments(&item["input"])),
        Some("local_shell_call") => {
            let input = to_raw_value(&item["action"]).unwrap_or_else(|_| empty_object());
            b.call(None, id(item), "shell", input);
        }
        Some("function_call_output" | "custom_tool_call_output" | "local_shell_call_output") => {
            let (text, ok) = output(&item["output"]);
            b.result(id(item), &text, ok);
        }
        Some("web_search_call") => b.notes.count("web searches of the provider left out"),
        _ => b.notes.count("items of an unknown kind left out"),
    }
}

fn id(item: &Value) -> &str {
    item["call_id"].as_str().or(item["id"].as_str()).unwrap_or_default()
}

fn name(item: &Value) -> &str {
    item["name"].as_str().unwrap_or("unknown")
}

/// The texts of a list of parts, joined; `None` when there are none.
fn texts(parts: &Value) -> Option<String> {
    let parts = parts.as_array()?.iter().filter_map(|p| p["text"].as_str());
    let text = parts.collect::<Vec<_>>().join("\n\n");
    (!text.trim().is_empty()).then_some(text)
}

fn message(b: &mut Builder, item: &Value) {
    let content = item["content"].as_array().map(Vec::as_slice).unwrap_or_default();
    match item["role"].as_str() {
        Some("assistant") => {
            for part in content {
                match part["text"].as_str().or(part["refusal"].as_str()) {
                    Some(text) => b.assistant(None, text),
                    None => b.notes.count("parts of answers of an unknown kind left out"),
                }
            }
        }
        Some("user") => {
            let mut parts = Vec::new();
            for part in content {
                match (part["type"].as_str(), part["text"].as_str()) {
                    (_, Some(text)) if OWN.iter().any(|o| text.trim_start().starts_with(o)) => {
                        b.notes.count("messages that the program wrote itself left out (environment, instructions)");
                    }
                    (_, Some(text)) => parts.push(Part::Text(text.to_owned())),
                    (Some("input_image"), None) => parts.extend(image(b, part)),
                    _ => b.notes.count("parts of messages of an unknown kind left out"),
                }
            }
            if !parts.is_empty() {
                b.user(parts);
            }
        }
        _ => b.notes.count("instructions of the program left out (developer and system messages)"),
    }
}

/// An image that is in the rollout itself, as a `data:` address.
fn image(b: &mut Builder, part: &Value) -> Option<Part> {
    let data = part["image_url"].as_str()?.strip_prefix("data:").and_then(|d| d.split_once(";base64,"));
    if data.is_none() {
        b.notes.count("images that are not in the rollout itself left out");
    }
    data.map(|(media, data)| Part::File { kind: "image", media_type: media.to_owned(), data: data.to_owned() })
}

/// Arguments travel as a text that is JSON, or as a text that is not.
fn arguments(value: &Value) -> Box<RawValue> {
    match value.as_str() {
        Some(text) => RawValue::from_string(text.to_owned())
            .ok()
            .filter(|r| r.get().starts_with('{'))
            .or_else(|| to_raw_value(&serde_json::json!({"input": text})).ok())
            .unwrap_or_else(empty_object),
        None if value.is_object() => to_raw_value(value).unwrap_or_else(|_| empty_object()),
        None => empty_object(),
    }
}

/// What a tool answered, and whether it did what was asked: a text, a text that is JSON with the
/// text inside, an object, or a list of parts.
fn output(value: &Value) -> (String, bool) {
    let of_object = |o: &Value| -> Option<(String, bool)> {
        let text = o["output"].as_str().or(o["content"].as_str()).map(str::to_owned);
        let text = text.or_else(|| texts(&o["content"]))?;
        let code = o["metadata"]["exit_code"].as_i64().or(o["exit_code"].as_i64());
        Some((text, code.unwrap_or(0) == 0 && o["success"].as_bool() != Some(false)))
    };
    match value {
        Value::String(text) => {
            let inner: Option<Value> = text.starts_with('{').then(|| serde_json::from_str(text).ok()).flatten();
            inner.and_then(|v| of_object(&v)).unwrap_or_else(|| {
                let failed =
                    text.lines().take(8).find_map(|l| l.strip_prefix("Exit code: ")).is_some_and(|c| c.trim() != "0");
                (text.clone(), !failed)
            })
        }
        Value::Array(_) => (texts(value).unwrap_or_default(), true),
        Value::Object(_) => of_object(value).unwrap_or_else(|| (value.to_string(), true)),
        _ => (String::new(), true),
    }
}

fn event(b: &mut Builder, e: &Value, model: Option<&String>) {
    match e["type"].as_str() {
        Some("token_count") => {
            let last = &e["info"]["last_token_usage"];
            let n = |k: &str| last[k].as_u64();
            if let Some(tokens) = n("total_tokens").filter(|t| *t > 0) {
                b.usage(Usage {
                    tokens,
                    cached: n("cached_input_tokens").unwrap_or(0),
                    input: n("input_tokens"),
                    output: n("output_tokens"),
                    model: model.cloned(),
                    ..Usage::default()
                });
            }
        }
        Some("turn_aborted") => b.end_turn(TurnStatus::Interrupted),
        Some("error") => b.failure(e["message"].as_str().unwrap_or("the model's provider failed")),
        // The rest says again, for a screen, what items say.
        _ => {}
    }
}
