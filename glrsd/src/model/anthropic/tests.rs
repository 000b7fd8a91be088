//! Requests checked by an independent reading of the API's rules, and round trips through the stream.

use super::request::build;
use super::stream::Stream;
use crate::model::drive::{Decoder, Progress};
use crate::model::errors::Origin;
use crate::model::testing::{call, history};
use crate::model::{Call, Stop};
use glrs_protocol::message::{Message, Part, Role};
use serde_json::{Value, json};
use std::collections::HashSet;

/// A history with everything that is wrong in old files.
pub(crate) fn messy() -> Vec<Message> {
    history(&json!([
        {"role": "assistant", "content": "I was here first."},
        {"role": "user", "content": "  "},
        {"role": "user", "content": "order"},
        {"role": "user", "content": [{"type": "text", "text": "and a picture"}, {"type": "image", "image": "QUJD", "mediaType": "image/png"}]},
        {"role": "assistant", "content": [
            {"type": "reasoning", "text": "hm", "providerOptions": {"anthropic": {"signature": "sig+/=="}}},
            {"type": "reasoning", "text": "foreign", "providerOptions": {"openai": {"itemId": "x"}}},
            {"type": "tool-call", "toolCallId": "functions.read:0", "toolName": "read", "input": {"z": 1.0, "a": [ 1,2 ]}},
            {"type": "text", "text": "I will check."}]},
        {"role": "user", "content": "steered in between"},
        {"role": "tool", "content": [{"type": "tool-result", "toolCallId": "functions.read:0", "toolName": "read", "output": {"type": "text", "value": ""}}]},
        {"role": "assistant", "content": [
            {"type": "text", "text": ""},
            {"type": "tool-call", "toolCallId": "dup", "toolName": "bad name!", "input": {}},
            {"type": "tool-call", "toolCallId": "dup", "toolName": "read", "input": {}}]},
        {"role": "tool", "content": [
            {"type": "tool-result", "toolCallId": "dup", "toolName": "read", "output": {"type": "error-text", "value": "no such file"}},
            {"type": "tool-result", "toolCallId": "orphan", "toolName": "read", "output": {"type": "text", "value": "whose?"}}]},
        {"role": "assistant", "content": [{"type": "hologram", "x": 1}]},
        {"role": "user", "content": "go on"},
        {"role": "assistant", "content": [
            {"type": "reasoning", "text": "", "providerOptions": {"anthropic": {"redactedData": "abc=="}}},
            {"type": "provider-block", "provider": "anthropic", "block": {"type": "new_fangled", "x":  1}},
            {"type": "provider-block", "provider": "other", "block": {"type": "secret"}},
            {"type": "tool-call", "toolCallId": "c9", "toolName": "read", "input": {"path": "x"}}]},
        {"role": "tool", "content": [{"type": "tool-result", "toolCallId": "c9", "toolName": "read", "output": {"type": "json", "value": {"n": 1}}}]},
        {"role": "user", "content": "[vitals] 14:02, turn 3 min"}
    ]))
}

fn body(call: &Call) -> (String, Value) {
    let raw = String::from_utf8(build("anthropic", "claude-sonnet-4-5", call, &[])).unwrap();
    let value = serde_json::from_str(&raw).unwrap();
    (raw, value)
}

/// The rules of the Messages API, written down without looking at the builder.
pub(crate) fn check(body: &Value) {
    let messages = body["messages"].as_array().unwrap();
    let mut marks = 0;
    let mut all_ids = HashSet::new();
    let mut open: Vec<String> = Vec::new();
    for (i, message) in messages.iter().enumerate() {
        let role = message["role"].as_str().unwrap();
        assert_eq!(role, if i % 2 == 0 { "user" } else { "assistant" }, "roles alternate, user first");
        let blocks = message["content"].as_array().unwrap();
        assert!(!blocks.is_empty());
        let (mut other, mut called) = (false, false);
        let mut answered = Vec::new();
        for block in blocks {
            marks += usize::from(block.get("cache_control").is_some());
            match block["type"].as_str().unwrap() {
                "text" => {
                    assert!(!block["text"].as_str().unwrap().trim().is_empty(), "no blank text");
                    assert!(!called, "no text behind a call");
                    other = true;
                }
                "tool_use" => {
                    assert_eq!(role, "assistant");
                    let id = block["id"].as_str().unwrap();
                    assert!(id.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_' || b == b'-') && !id.is_empty());
                    assert!(all_ids.insert(id.to_owned()), "ids are unique");
                    assert!(block["input"].is_object());
                    let name = block["name"].as_str().unwrap();
                    assert!(name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_' || b == b'-'));
                    called = true;
                }
                "tool_result" => {
                    assert!(role == "user" && !other, "results come first");
                    assert!(!block["content"].as_str().unwrap().is_empty());
                    answered.push(block["tool_use_id"].as_str().unwrap().to_owned());
                }
                "thinking" => assert!(block["signature"].is_string() && block.get("cache_control").is_none()),
                _ => other = true,
            }
        }
        if role == "user" {
            answered.sort();
            open.sort();
            assert_eq!(answered, open, "each call has one result directly behind it");
            open.clear();
        } else {
            let ids = blocks.iter().filter(|b| b["type"] == "tool_use");
            open = ids.map(|b| b["id"].as_str().unwrap().to_owned()).collect();
            assert!(!matches!(blocks.last().unwrap()["type"].as_str(), Some("thinking" | "redacted_thinking")));
        }
    }
    assert_eq!(messages.len() % 2, 1, "the user has the last word");
    for list in ["system", "tools"] {
        let blocks = body[list].as_array().into_iter().flatten();
        marks += blocks.filter(|b| b.get("cache_control").is_some()).count();
    }
    assert!(marks <= 4, "{marks} cache marks");
}

#[test]
fn any_history_becomes_a_legal_request() {
    let all = messy();
    for end in 1..=all.len() {
        let (_, body) = body(&call(&all[..end]));
        check(&body);
    }
    let (raw, body) = body(&call(&all));
    assert!(raw.contains(r#""input":{"z":1.0,"a":[1,2]}"#), "input keeps its bytes: {raw}");
    assert!(raw.contains(r#"{"type":"thinking","thinking":"hm","signature":"sig+/=="}"#), "{raw}");
    assert!(raw.contains(r#"{"type":"redacted_thinking","data":"abc=="}"#));
    assert!(raw.contains(r#"{"type":"new_fangled","x":1}"#), "its own blocks go back: {raw}");
    assert!(!raw.contains("foreign") && !raw.contains("secret") && !raw.contains("hologram"), "{raw}");
    assert_eq!(body["messages"][1]["content"][0]["text"], "I was here first.");
    assert_eq!(body["system"][0]["cache_control"]["type"], "ephemeral");
    assert_eq!(body["max_tokens"], 8_000);
    assert!(body.get("thinking").is_none());
}

#[test]
fn the_prefix_stays_the_same_and_marks_stand_before_vitals() {
    let strip = |v: &mut Value| {
        for block in v["messages"].as_array_mut().unwrap().iter_mut().flat_map(|m| m["content"].as_array_mut().unwrap())
        {
            block.as_object_mut().unwrap().remove("cache_control");
        }
    };
    let all = messy();
    let (_, mut long) = body(&call(&all));
    let last = long["messages"].as_array().unwrap().last().unwrap()["content"].as_array().unwrap().clone();
    assert_eq!(last.len(), 2);
    assert!(last[0].get("cache_control").is_some() && last[1].get("cache_control").is_none(), "{last:?}");
    let (_, mut short) = body(&call(&all[..4]));
    strip(&mut long);
    strip(&mut short);
    let n = short["messages"].as_array().unwrap().len();
    for i in 0..n {
        assert_eq!(short["messages"][i].to_string(), long["messages"][i].to_string());
    }
    assert_eq!((&short["system"], &short["tools"]), (&long["system"], &long["tools"]));
}

#[test]
fn without_tools_calls_become_text() {
    let mut call = call(&messy());
    call.tools = Vec::new().into();
    let (raw, body) = body(&call);
    check(&body);
    assert!(!raw.contains("tool_use") && !raw.contains("tool_result") && body.get("tools").is_none());
    assert!(raw.contains("no such file"));
}

#[test]
fn thinking_follows_variant_model_and_history() {
    let user = history(&json!([{"role": "user", "content": "hi"}]));
    let build = |model: &str, variant: &str, messages: &[Message], max: u64| -> Value {
        let call = Call { variant: Some(variant.into()), max_output: Some(max), ..call(messages) };
        serde_json::from_slice(&build("anthropic", model, &call, &[])).unwrap()
    };
    let b = build("claude-sonnet-4-5", "medium", &user, 32_000);
    assert_eq!(b["thinking"], json!({"type": "enabled", "budget_tokens": 10_240}));
    assert_eq!(build("claude-haiku-4-5", "high", &user, 8_000)["thinking"]["budget_tokens"], 6_000);
    assert!(build("claude-haiku-4-5", "low", &user, 1_000).get("thinking").is_none());
    let b = build("claude-opus-5-5", "high", &user, 32_000);
    assert_eq!((&b["thinking"]["type"], &b["output_config"]["effort"]), (&json!("adaptive"), &json!("high")));
    // A tool loop that another model began cannot be thought about halfway, except by models that decide
    // themselves when to think: theirs may begin with a call.
    let looped = history(&json!([
        {"role": "user", "content": "hi"},
        {"role": "assistant", "content": [{"type": "tool-call", "toolCallId": "c", "toolName": "read", "input": {}}]},
        {"role": "tool", "content": [{"type": "tool-result", "toolCallId": "c", "toolName": "read", "output": {"type": "text", "value": "x"}}]}
    ]));
    assert!(build("claude-sonnet-4-5", "high", &looped, 32_000).get("thinking").is_none());
    assert_eq!(build("claude-opus-5-5", "high", &looped, 32_000)["thinking"]["type"], "adaptive");
}

#[test]
fn the_last_step_may_call_nothing() {
    let mut call = call(&messy());
    call.force_text = true;
    assert_eq!(body(&call).1["tool_choice"]["type"], "none");
}

fn decode(events: &[Value]) -> Stream {
    let origin = Origin { provider: "anthropic".into(), ..Origin::default() };
    let mut stream = Stream::new(origin, None, HashSet::from(["toolu_1".to_owned()]));
    for event in events {
        let progress = stream.event(&event.to_string(), &mut Vec::new()).unwrap();
        assert_eq!(progress == Progress::Done, event["type"] == "message_stop");
    }
    stream
}

fn block(index: u64, start: Value, deltas: &[Value]) -> Vec<Value> {
    let mut out = vec![json!({"type": "content_block_start", "index": index, "content_block": start})];
    out.extend(deltas.iter().map(|d| json!({"type": "content_block_delta", "index": index, "delta": d})));
    out.push(json!({"type": "content_block_stop", "index": index}));
    out
}

#[test]
fn what_comes_goes_back_byte_for_byte() {
    let mut events = vec![
        json!({"type": "message_start", "message": {"usage": {"input_tokens": 5, "cache_read_input_tokens": 70, "cache_creation_input_tokens": 25, "output_tokens": 1}}}),
    ];
    events.extend(block(
        0,
        json!({"type": "thinking", "thinking": "", "signature": ""}),
        &[
            json!({"type": "thinking_delta", "thinking": "let me"}),
            json!({"type": "signature_delta", "signature": "EqQ/+"}),
            json!({"type": "signature_delta", "signature": "A=="}),
        ],
    ));
    events.extend(block(1, json!({"type": "redacted_thinking", "data": "xyz"}), &[]));
    events.extend(block(2, json!({"type": "text", "text": ""}), &[json!({"type": "text_delta", "text": "Sure."})]));
    events.extend(block(
        3,
        json!({"type": "tool_use", "id": "toolu_1", "name": "read", "input": {}}),
        &[
            json!({"type": "input_json_delta", "partial_json": ""}),
            json!({"type": "input_json_delta", "partial_json": "{\"path\":"}),
            json!({"type": "input_json_delta", "partial_json": " \"a\\nb\", \"n\": 1.0}"}),
        ],
    ));
    events.push(json!({"type": "message_delta", "delta": {"stop_reason": "tool_use"}, "usage": {"output_tokens": 9}}));
    events.push(json!({"type": "message_stop"}));
    let mut stream = decode(&events);
    let reply = stream.finish();
    let tokens = reply.tokens.unwrap();
    assert_eq!((tokens.input, tokens.cached, tokens.output), (100, 70, 9));
    assert_eq!(reply.stop, Stop::Tools);
    // Stored and read again, as a session does.
    let stored = Message::parse(reply.message.to_raw().unwrap().get()).unwrap();
    let Some(Part::ToolCall { id, input, .. }) = stored.parts.last() else { panic!("a call") };
    assert_eq!(input.get(), r#"{"path": "a\nb", "n": 1.0}"#);
    assert_ne!(id, "toolu_1", "an id of the history is not given again");
    let (raw, body) = body(&call(&[Message::text(Role::User, "hi"), stored]));
    check(&body);
    assert!(raw.contains(r#""signature":"EqQ/+A==""#) && raw.contains(r#""data":"xyz""#), "{raw}");
    assert!(raw.contains(r#""input":{"path": "a\nb", "n": 1.0}"#), "{raw}");
}

/// The provider would not take it back, and there is nothing to run.
#[test]
fn a_call_without_a_name_is_not_run_and_can_be_sent_back() {
    let mut events = block(0, json!({"type": "tool_use", "id": "t", "input": {}}), &[]);
    events.push(json!({"type": "message_delta", "delta": {"stop_reason": "tool_use"}}));
    let reply = decode(&events).finish();
    let [Part::ToolCall { id, name, .. }] = &reply.message.parts[..] else { panic!("{:?}", reply.message) };
    assert_eq!(name, "unknown");
    assert!(reply.cut.len() == 1 && reply.cut[0].0 == *id && reply.cut[0].1.contains("no tool"), "{:?}", reply.cut);
}

#[test]
fn stops_are_told_apart() {
    for (reason, stop) in [
        ("end_turn", Stop::End),
        ("max_tokens", Stop::Length),
        ("refusal", Stop::Refused("refusal".into())),
        // No call came with it.
        ("tool_use", Stop::End),
    ] {
        let end = json!({"type": "message_delta", "delta": {"stop_reason": reason}});
        assert_eq!(decode(&[end]).finish().stop, stop);
    }
    let mut events = block(
        0,
        json!({"type": "tool_use", "id": "t", "name": "write", "input": {}}),
        &[json!({"type": "input_json_delta", "partial_json": "{\"path\":\"a"})],
    );
    events.push(json!({"type": "message_delta", "delta": {"stop_reason": "max_tokens"}}));
    let reply = decode(&events).finish();
    assert!(reply.cut.len() == 1 && reply.cut[0].1.contains("output limit"));
}
