//! Requests checked by an independent reading of the API's rules, and streams in the shapes that
//! servers are known to send.

use super::request::build;
use super::stream::Stream;
use crate::model::anthropic::tests::messy;
use crate::model::drive::{Decoder, Progress};
use crate::model::errors::Origin;
use crate::model::testing::{call, history};
use crate::model::{Call, Chunk, FailureKind, Reply, Stop};
use glrs_protocol::message::{Message, Part, Role};
use serde_json::{Value, json};
use std::collections::HashSet;

fn body(provider: &str, model: &str, call: &Call) -> (String, Value) {
    let raw = String::from_utf8(build(provider, model, call, &[])).unwrap();
    let value = serde_json::from_str(&raw).unwrap();
    (raw, value)
}

/// The rules of the Responses API, written down without looking at the builder.
pub(crate) fn check(body: &Value) {
    assert_eq!((&body["store"], &body["stream"]), (&json!(false), &json!(true)));
    let input = body["input"].as_array().unwrap();
    let mut ids = HashSet::new();
    let mut open: Vec<String> = Vec::new();
    let mut led_to_nothing = false;
    for item in input {
        let kind = item["type"].as_str().unwrap();
        let output = kind == "function_call_output" || item["role"] == "user";
        assert!(!(led_to_nothing && output), "reasoning goes with what it led to");
        led_to_nothing = kind == "reasoning";
        match kind {
            "message" => {
                assert!(open.is_empty(), "results stand directly behind their calls");
                assert!(item.get("id").is_none());
                let text = if item["role"] == "user" { "input_text" } else { "output_text" };
                let content = item["content"].as_array().unwrap();
                assert!(!content.is_empty());
                for piece in content {
                    match piece["type"].as_str().unwrap() {
                        "input_image" => assert!(piece["image_url"].is_string()),
                        "input_file" => assert!(piece["file_data"].is_string() || piece["file_url"].is_string()),
                        kind => assert!(kind == text && !piece["text"].as_str().unwrap().trim().is_empty(), "{piece}"),
                    }
                }
            }
            "function_call" => {
                let id = item["call_id"].as_str().unwrap();
                assert!((1..=64).contains(&id.len()) && item.get("id").is_none());
                assert!(id.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_' || b == b'-'));
                assert!(ids.insert(id.to_owned()), "ids are unique");
                assert!(serde_json::from_str::<Value>(item["arguments"].as_str().unwrap()).unwrap().is_object());
                open.push(id.to_owned());
            }
            "function_call_output" => {
                let at = open.iter().position(|o| item["call_id"] == o.as_str()).expect("a result of an open call");
                open.remove(at);
                assert!(!item["output"].as_str().unwrap().is_empty());
            }
            "reasoning" => assert!(body["include"].is_array() && item["encrypted_content"].is_string()),
            other => assert!(!other.is_empty()),
        }
    }
    let last = input.last().unwrap();
    assert!(open.is_empty() && (last["role"] == "user" || last["type"] == "function_call_output"), "{last}");
    for tool in body["tools"].as_array().into_iter().flatten() {
        assert_eq!((&tool["type"], &tool["strict"]), (&json!("function"), &json!(false)));
    }
}

#[test]
fn any_history_becomes_a_legal_request() {
    let all = messy();
    for model in ["gpt-5.6-sol", "gpt-4.1"] {
        for end in 1..=all.len() {
            check(&body("openai", model, &call(&all[..end])).1);
        }
    }
    let (raw, value) = body("openai", "gpt-5.6-sol", &call(&all));
    for foreign in ["sig+/==", "abc==", "new_fangled", "foreign", "secret", "hologram"] {
        assert!(!raw.contains(foreign), "{foreign}: {raw}");
    }
    assert!(raw.contains(r#""arguments":"{\"z\":1.0,\"a\":[1,2]}""#), "input keeps its bytes: {raw}");
    assert!(raw.contains(r#"{"type":"input_image","image_url":"data:image/png;base64,QUJD","detail":"auto"}"#));
    assert_eq!(value["instructions"], "You are a test.");
    assert_eq!(value["include"], json!(["reasoning.encrypted_content"]));
    let mut without = call(&all);
    without.tools = Vec::new().into();
    let (raw, value) = body("openai", "gpt-5.6-sol", &without);
    check(&value);
    assert!(!raw.contains("function_call") && raw.contains("no such file") && value.get("tools").is_none());
}

#[test]
fn the_same_history_gives_the_same_bytes() {
    let all = messy();
    let long = body("openai", "gpt-5", &call(&all)).1;
    let short = body("openai", "gpt-5", &call(&all[..4])).1;
    for (i, item) in short["input"].as_array().unwrap().iter().enumerate() {
        assert_eq!(item.to_string(), long["input"][i].to_string());
    }
}

#[test]
fn effort_choice_and_options() {
    let asked = Call { variant: Some("high".into()), force_text: true, ..call(&messy()) };
    let value = body("openai", "gpt-5", &asked).1;
    assert_eq!(value["reasoning"], json!({"effort": "high", "summary": "auto"}));
    assert_eq!((&value["tool_choice"], &value["prompt_cache_key"]), (&json!("none"), &json!("conversation-1")));
    assert_eq!(value["max_output_tokens"], 8_000);
    let older = body("openai", "gpt-4.1", &asked).1;
    assert!(older.get("reasoning").is_none() && older.get("include").is_none());
    assert!(body("other", "m", &asked).1.get("prompt_cache_key").is_none());
    let options = json!({"reasoning": {"summary": null}, "input": [], "instructions": "x", "service_tier": "flex"});
    let merged: Value =
        serde_json::from_slice(&build("openai", "gpt-5", &asked, &[options.as_object().unwrap()])).unwrap();
    assert_eq!((&merged["reasoning"], &merged["service_tier"]), (&json!({"effort": "high"}), &json!("flex")));
    assert!(!merged["input"].as_array().unwrap().is_empty() && merged["instructions"] != "x");
}

fn stream() -> Stream {
    let origin = Origin { provider: "openai".into(), ..Origin::default() };
    Stream::new(origin, None, HashSet::from(["call_0".to_owned()]))
}

fn decode(events: &[Value]) -> (Reply, Vec<Chunk>) {
    let (mut stream, mut out) = (stream(), Vec::new());
    for event in events {
        let progress = stream.event(&event.to_string(), &mut out).unwrap();
        let ends = matches!(event["type"].as_str(), Some("response.completed" | "response.incomplete"));
        assert_eq!(progress == Progress::Done, ends, "{event}");
    }
    assert!(stream.complete());
    (stream.finish(), out)
}

fn completed() -> Value {
    let usage = json!({"input_tokens": 100, "input_tokens_details": {"cached_tokens": 64}, "output_tokens": 9,
        "output_tokens_details": {"reasoning_tokens": 4}, "total_tokens": 109});
    json!({"type": "response.completed", "response": {"status": "completed", "output": [], "usage": usage}})
}

fn added(index: u64, item: Value) -> Value {
    json!({"type": "response.output_item.added", "output_index": index, "item": item})
}

fn done(index: u64, item: Value) -> Value {
    json!({"type": "response.output_item.done", "output_index": index, "item": item})
}

fn delta(kind: &str, index: u64, delta: &str) -> Value {
    json!({"type": format!("response.{kind}.delta"), "output_index": index, "delta": delta})
}

/// A reasoning item as it comes, its bytes unlike those any serialiser would write.
const SEALED: &str = r#"{ "type":"reasoning","id":"rs_1","n":1.0,"encrypted_content":"gAAA\u002b/==","summary":[{"type":"summary_text","text":"h\u00e9"}]}"#;

#[test]
fn what_comes_goes_back_byte_for_byte() {
    let (mut s, mut out) = (stream(), Vec::new());
    let summary = |part: u64, text: &str| json!({"type": "response.reasoning_summary_text.delta", "output_index": 0, "summary_index": part, "delta": text});
    let call_item =
        json!({"type": "function_call", "id": "fc_1", "call_id": "call_0", "name": "read", "arguments": ""});
    for event in [
        json!({"type": "response.created", "response": {"status": "in_progress"}}),
        added(0, json!({"type": "reasoning", "id": "rs_1", "summary": []})),
        summary(0, "let "),
        summary(0, "me"),
        summary(1, "see"),
    ] {
        s.event(&event.to_string(), &mut out).unwrap();
    }
    let raw = format!(r#"{{"type":"response.output_item.done","output_index":0,"item":{SEALED}}}"#);
    s.event(&raw, &mut out).unwrap();
    for event in [
        added(1, json!({"type": "message", "role": "assistant", "phase": "commentary", "content": []})),
        delta("output_text", 1, "Su"),
        delta("output_text", 1, "re."),
        done(
            1,
            json!({"type": "message", "phase": "commentary", "content": [{"type": "output_text", "text": "Sure."}]}),
        ),
        added(2, call_item),
        delta("function_call_arguments", 2, "{\"path\":"),
        delta("function_call_arguments", 2, " \"a\\nb\", \"n\": 1.0}"),
        done(
            2,
            json!({"type": "function_call", "call_id": "call_0", "name": "read", "arguments": "{\"path\": \"a\\nb\", \"n\": 1.0}"}),
        ),
        completed(),
    ] {
        s.event(&event.to_string(), &mut out).unwrap();
    }
    let reply = s.finish();
    let thought: String =
        out.iter().filter_map(|c| if let Chunk::Reasoning(t) = c { Some(&**t) } else { None }).collect();
    assert_eq!(thought, "let me\n\nsee");
    assert!(out.contains(&Chunk::Tool("read".into())) && reply.stop == Stop::Tools && reply.cut.is_empty());
    let tokens = reply.tokens.unwrap();
    assert_eq!((tokens.input, tokens.cached, tokens.output), (100, 64, 9));
    // Stored and read again, as a session does.
    let stored = Message::parse(reply.message.to_raw().unwrap().get()).unwrap();
    let id = stored.call_ids().next().unwrap().to_owned();
    assert_ne!(id, "call_0", "an id of the history is not given again");
    let messages = [Message::text(Role::User, "hi"), stored];
    let (raw, value) = body("openai", "gpt-5", &call(&messages));
    check(&value);
    assert!(raw.contains(SEALED), "{raw}");
    assert!(raw.contains(r#""phase":"commentary","content":[{"type":"output_text","text":"Sure."}]"#), "{raw}");
    assert!(raw.contains(r#""arguments":"{\"path\": \"a\\nb\", \"n\": 1.0}""#), "{raw}");
    // Elsewhere, or in another dialect of the same provider, nobody can read it.
    assert!(!body("other", "gpt-5", &call(&messages)).0.contains("gAAA"));
    assert!(!body("openai", "gpt-4.1", &call(&messages)).0.contains("gAAA"), "this model refuses reasoning");
    for bytes in [
        crate::model::openai::request::build("openai", "gpt-5", &call(&messages), &[]),
        crate::model::anthropic::request::build("openai", "claude-opus-5-5", &call(&messages), &[]),
        crate::model::gemini::request::build("openai", "gemini-3.8-flash", &call(&messages), &[]),
    ] {
        let raw = String::from_utf8(bytes).unwrap();
        assert!(!raw.contains("gAAA") && !raw.contains("commentary") && raw.contains("Sure."), "{raw}");
    }
}

#[test]
fn reasoning_goes_back_only_with_what_it_led_to() {
    let thought = |own: &str| json!({"type": "reasoning", "text": "hm", "providerOptions": {"openai/responses": serde_json::from_str::<Value>(own).unwrap()}});
    let sealed = r#"{"type":"reasoning","id":"rs_1","encrypted_content":"e==","summary":[]}"#;
    for (parts, back) in [
        (json!([thought(sealed), {"type": "text", "text": "so"}]), true),
        (json!([{"type": "text", "text": "so"}, thought(sealed)]), false),
        (json!([thought(sealed)]), false),
        (json!([thought(r#"{"type":"reasoning","id":"rs_1","summary":[]}"#), {"type": "text", "text": "so"}]), false),
        (json!([thought(r#"{"type":"reasoning","encrypted_content":null}"#), {"type": "text", "text": "so"}]), false),
    ] {
        let messages = history(
            &json!([{"role": "user", "content": "hi"}, {"role": "assistant", "content": parts}, {"role": "user", "content": "and"}]),
        );
        let (raw, value) = body("openai", "gpt-5", &call(&messages));
        check(&value);
        assert_eq!(raw.contains("rs_1"), back, "{raw}");
    }
}

#[test]
fn items_that_are_not_streamed_are_taken_from_the_end() {
    let output = json!([
        {"type": "reasoning", "summary": [{"type": "summary_text", "text": "hm"}], "encrypted_content": "e"},
        {"type": "message", "content": [{"type": "output_text", "text": "ok"}]},
        {"type": "function_call", "call_id": "c", "name": "read", "arguments": "{}"},
        {"type": "web_search_call", "id": "ws_1"}
    ]);
    let response = json!({"status": "completed", "output": output, "usage": {"input_tokens": 1, "output_tokens": 1}});
    let (reply, chunks) = decode(&[json!({"type": "response.completed", "response": response})]);
    assert_eq!((reply.message.joined_text().as_str(), reply.message.parts.len()), ("ok", 4));
    assert!(chunks.contains(&Chunk::Text("ok".into())) && chunks.contains(&Chunk::Reasoning("hm".into())));
    let mut whole = stream();
    whole.whole(&response.to_string(), &mut Vec::new()).unwrap();
    let other = whole.finish().message.to_raw().unwrap();
    assert_eq!(other.get(), reply.message.to_raw().unwrap().get(), "the same when it does not stream");
    let messages = [Message::text(Role::User, "hi"), reply.message];
    assert!(body("openai", "gpt-5", &call(&messages)).0.contains(r#"{"type":"web_search_call","id":"ws_1"}"#));
}

#[test]
fn deltas_without_an_announcement_are_understood() {
    let (reply, _) = decode(&[delta("output_text", 0, "a"), delta("output_text", 0, "b"), completed()]);
    assert_eq!((reply.message.joined_text().as_str(), reply.stop), ("ab", Stop::End));
}

#[test]
fn ways_to_end() {
    let incomplete = |why: &str| json!({"type": "response.incomplete", "response": {"status": "incomplete", "incomplete_details": {"reason": why}}});
    assert_eq!(decode(&[delta("output_text", 0, "a"), incomplete("max_output_tokens")]).0.stop, Stop::Length);
    let (reply, _) = decode(&[incomplete("content_filter")]);
    assert_eq!(reply.stop, Stop::Refused("content_filter".into()));
    let (reply, chunks) = decode(&[delta("refusal", 0, "I will not."), completed()]);
    assert_eq!((reply.stop, reply.message.joined_text()), (Stop::Refused("refusal".into()), "I will not.".into()));
    assert_eq!(chunks, [Chunk::Text("I will not.".into())]);
    // Arguments that the limit cut.
    let item = json!({"type": "function_call", "call_id": "c", "name": "write", "arguments": ""});
    let cut = [added(0, item), delta("function_call_arguments", 0, "{\"path\":\"a"), incomplete("max_output_tokens")];
    let (reply, _) = decode(&cut);
    assert!(reply.cut.len() == 1 && reply.cut[0].1.contains("output limit"), "{:?}", reply.cut);
    let nameless = json!({"type": "function_call", "call_id": "c", "arguments": "{}"});
    assert_eq!(decode(&[done(0, nameless), completed()]).0.cut.len(), 1);
}

#[test]
fn failures_have_their_kind() {
    let fail = |code: &str, words: &str| {
        let error = json!({"code": code, "message": words});
        let failed = json!({"type": "response.failed", "response": {"status": "failed", "error": error}});
        stream().event(&failed.to_string(), &mut Vec::new()).unwrap_err().kind
    };
    assert_eq!(fail("server_error", "The server had an error"), FailureKind::Server);
    assert_eq!(fail("rate_limit_exceeded", "Rate limit reached"), FailureKind::Rate);
    assert_eq!(fail("context_length_exceeded", "Your input exceeds the context window"), FailureKind::Overflow);
    assert_eq!(fail("invalid_prompt", "flagged"), FailureKind::Request);
    for event in [
        json!({"type": "error", "code": "server_error", "message": "oops", "param": null}),
        json!({"type": "error", "error": {"type": "server_error", "message": "oops"}}),
        json!({"type": "response.failed", "response": {"status": "failed", "error": null}}),
        json!({"type": "response.cancelled", "response": {"status": "cancelled"}}),
    ] {
        let f = stream().event(&event.to_string(), &mut Vec::new()).unwrap_err();
        assert_eq!(f.kind, FailureKind::Server, "{event}");
    }
    assert!(stream().event("{not json", &mut Vec::new()).is_err());
    let mut s = stream();
    s.event(&delta("output_text", 0, "half").to_string(), &mut Vec::new()).unwrap();
    assert!(!s.complete() && matches!(&s.partial().unwrap().parts[..], [Part::Text(t)] if t == "half"));
}

#[test]
fn items_without_an_index_are_known_by_their_ids() {
    // As llama.cpp has it: all items are done at the end, and calls are announced without an `id`.
    let call =
        |id: &str, args: &str| json!({"type": "function_call", "call_id": id, "name": "read", "arguments": args});
    let sealed = json!({"type": "reasoning", "id": "rs_1", "summary": [], "content": [{"type": "reasoning_text", "text": "hm"}], "encrypted_content": ""});
    let message = json!({"type": "message", "id": "msg_1", "content": [{"type": "output_text", "text": "both"}]});
    let event = |kind: &str, item: &Value| json!({"type": format!("response.output_item.{kind}"), "item": item});
    let more = |kind: &str, id: &str, delta: &str| json!({"type": format!("response.{kind}.delta"), "item_id": id, "delta": delta});
    let (reply, _) = decode(&[
        event("added", &json!({"type": "reasoning", "id": "rs_1", "summary": []})),
        more("reasoning_text", "rs_1", "hm"),
        event("added", &json!({"type": "message", "id": "msg_1", "content": []})),
        more("output_text", "msg_1", "both"),
        event("added", &call("fc_a", "")),
        event("added", &call("fc_b", "")),
        more("function_call_arguments", "fc_a", r#"{"path":"#),
        more("function_call_arguments", "fc_b", r#"{"path":"b"}"#),
        more("function_call_arguments", "fc_a", r#""a"}"#),
        event("done", &sealed),
        event("done", &message),
        event("done", &call("fc_a", r#"{"path":"a"}"#)),
        event("done", &call("fc_b", r#"{"path":"b"}"#)),
        completed(),
    ]);
    let calls: Vec<(&str, &str)> = reply
        .message
        .parts
        .iter()
        .filter_map(|p| if let Part::ToolCall { id, input, .. } = p { Some((id.as_str(), input.get())) } else { None })
        .collect();
    assert_eq!(calls, [("fc_a", r#"{"path":"a"}"#), ("fc_b", r#"{"path":"b"}"#)]);
    assert_eq!(reply.message.joined_text(), "both");
    assert!(matches!(&reply.message.parts[0], Part::Reasoning { text, opts: Some(_) } if text == "hm"));
}
