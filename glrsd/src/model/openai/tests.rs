//! Requests checked by an independent reading of the rules, for each provider's ways, and streams in
//! the shapes that servers are known to send.

use super::quirks;
use super::request::build;
use super::stream::Stream;
use crate::model::anthropic::tests::messy;
use crate::model::drive::Decoder;
use crate::model::errors::Origin;
use crate::model::testing::{call, history};
use crate::model::{Call, Reply, Stop};
use glrs_protocol::message::{Message, Part, Role};
use serde_json::{Value, json};
use std::collections::HashSet;

fn body(provider: &str, call: &Call) -> (String, Value) {
    let raw = String::from_utf8(build(provider, "m", call, &[])).unwrap();
    let value = serde_json::from_str(&raw).unwrap();
    (raw, value)
}

/// The rules of Chat Completions, written down without looking at the builder.
pub(crate) fn check(provider: &str, body: &Value) {
    let messages = body["messages"].as_array().unwrap();
    let mut ids = HashSet::new();
    let mut open: Vec<String> = Vec::new();
    let mut before = "";
    let tools_used = messages.iter().any(|m| m["role"] == "tool");
    for message in messages {
        let role = message["role"].as_str().unwrap();
        if role != "tool" {
            assert!(open.is_empty(), "{provider}: results stand directly behind their calls");
        }
        match role {
            "system" => assert_eq!(before, ""),
            "user" => {
                assert!(before != "user");
                assert!(provider != "mistral" || before != "tool");
                match &message["content"] {
                    Value::String(t) => assert!(!t.trim().is_empty()),
                    Value::Array(pieces) => assert!(!pieces.is_empty()),
                    other => panic!("{other}"),
                }
            }
            "assistant" => {
                assert!(before != "assistant");
                let calls = message.get("tool_calls").and_then(Value::as_array);
                if provider == "deepseek" && tools_used {
                    assert!(message["reasoning_content"].as_str().is_some_and(|t| !t.is_empty()), "{message}");
                }
                let text = message["content"].as_str();
                assert!(text.is_some_and(|t| !t.trim().is_empty()) || (text.is_none() && calls.is_some()));
                for call in calls.into_iter().flatten() {
                    let id = call["id"].as_str().unwrap().to_owned();
                    assert!(id.len() <= 40 && id.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_' || b == b'-'));
                    assert!(provider != "mistral" || (id.len() == 9 && id.bytes().all(|b| b.is_ascii_alphanumeric())));
                    assert!(ids.insert(id.clone()), "{provider}: ids are unique");
                    assert!(
                        serde_json::from_str::<Value>(call["function"]["arguments"].as_str().unwrap())
                            .unwrap()
                            .is_object()
                    );
                    open.push(id);
                }
            }
            "tool" => {
                let id = message["tool_call_id"].as_str().unwrap();
                let at = open.iter().position(|o| o == id).expect("a result has its call directly before it");
                open.remove(at);
                let content = &message["content"];
                assert!(content[0]["text"].as_str().or(content.as_str()).is_some_and(|t| !t.is_empty()));
            }
            other => panic!("{other}"),
        }
        before = role;
    }
    assert!(open.is_empty() && before != "assistant");
}

#[test]
fn any_history_becomes_a_legal_request_for_each_provider() {
    let all = messy();
    for provider in
        ["openai", "azure", "mistral", "deepseek", "google", "xai", "openrouter", "ollama", "llamacpp", "someone"]
    {
        for end in 1..=all.len() {
            check(provider, &body(provider, &call(&all[..end])).1);
        }
        let (raw, _) = body(provider, &call(&all));
        assert!(
            !raw.contains("sig+/==") && !raw.contains("redacted") && !raw.contains("new_fangled"),
            "{provider}: {raw}"
        );
        assert!(raw.contains("data:image/png;base64,QUJD"));
        let mut without = call(&all);
        without.tools = Vec::new().into();
        let (raw, value) = body(provider, &without);
        check(provider, &value);
        assert!(!raw.contains("tool_calls") && value.get("tools").is_none());
    }
}

#[test]
fn the_same_history_gives_the_same_bytes() {
    let all = messy();
    for provider in ["openai", "mistral"] {
        let long = body(provider, &call(&all)).1;
        let short = body(provider, &call(&all[..4])).1;
        for (i, message) in short["messages"].as_array().unwrap().iter().enumerate() {
            assert_eq!(message.to_string(), long["messages"][i].to_string());
        }
    }
}

#[test]
fn the_table_of_quirks_is_followed() {
    let call = Call { variant: Some("high".into()), force_text: true, ..call(&messy()) };
    let b = body("openai", &call).1;
    assert_eq!((&b["max_completion_tokens"], b.get("max_tokens")), (&json!(8_000), None));
    assert_eq!((&b["reasoning_effort"], &b["tool_choice"]), (&json!("high"), &json!("none")));
    let b = body("mistral", &call).1;
    assert_eq!((b.get("stream_options"), b.get("reasoning_effort"), &b["max_tokens"]), (None, None, &json!(8_000)));
    assert_eq!(body("openrouter", &call).1["reasoning"], json!({"effort": "high"}));
    assert_eq!(body("someone", &call).1["stream_options"], json!({"include_usage": true}));
    assert!(body("google", &call).0.contains("skip_thought_signature_validator"));
    assert!(quirks::of("azure").key_header.is_some());
    for provider in ["xai", "groq", "cerebras", "azure"] {
        let b = body(provider, &call).1;
        assert_eq!((&b["max_completion_tokens"], b.get("max_tokens")), (&json!(8_000), None), "{provider}");
    }
    let free = Call { force_text: false, ..call.clone() };
    assert_eq!(body("llamacpp", &free).1["parallel_tool_calls"], true);
    assert!(body("llamacpp", &call).1.get("parallel_tool_calls").is_none());
    assert!(body("someone", &free).1.get("parallel_tool_calls").is_none());
    let options = json!({"temperature": 0.2, "messages": []});
    let merged: Value = serde_json::from_slice(&build("x", "m", &call, &[options.as_object().unwrap()])).unwrap();
    assert!(merged["temperature"] == 0.2 && !merged["messages"].as_array().unwrap().is_empty());
}

fn decode(provider: &str, events: &[Value]) -> (Reply, Stream) {
    let origin = Origin { provider: provider.into(), ..Origin::default() };
    let mut stream = Stream::new(origin, None, HashSet::from(["call_0".to_owned()]));
    for event in events {
        stream.event(&event.to_string(), &mut Vec::new()).unwrap();
    }
    (stream.finish(), stream)
}

fn delta(delta: Value) -> Value {
    json!({"choices": [{"index": 0, "delta": delta, "finish_reason": null}]})
}

fn done(reason: &str) -> Value {
    json!({"choices": [{"index": 0, "delta": {}, "finish_reason": reason}]})
}

fn calls(reply: &Reply) -> Vec<(&str, &str, &str)> {
    let parts = reply.message.parts.iter();
    parts
        .filter_map(|p| match p {
            Part::ToolCall { id, name, input, .. } => Some((id.as_str(), name.as_str(), input.get())),
            _ => None,
        })
        .collect()
}

#[test]
fn calls_are_put_together_in_all_known_shapes() {
    let piece = |v: Value| delta(json!({ "tool_calls": [v] }));
    // By index, pieces of two calls interleaved, the id and name repeated in each.
    let (r, _) = decode(
        "x",
        &[
            piece(json!({"index": 0, "id": "a", "function": {"name": "read", "arguments": "{\"p\":"}})),
            piece(json!({"index": 1, "id": "b", "function": {"name": "glob", "arguments": "{"}})),
            piece(json!({"index": 0, "id": "a", "function": {"name": "read", "arguments": "1}"}})),
            piece(json!({"index": 1, "function": {"arguments": "}"}})),
            done("stop"),
        ],
    );
    assert_eq!(calls(&r), [("a", "read", "{\"p\":1}"), ("b", "glob", "{}")]);
    assert_eq!(r.stop, Stop::Tools, "calls beat the word stop");
    // All with index 0, each whole (Gemini).
    let (r, _) = decode(
        "x",
        &[
            piece(json!({"index": 0, "id": "a", "function": {"name": "read", "arguments": "{}"}})),
            piece(json!({"index": 0, "id": "b", "function": {"name": "read", "arguments": "{}"}})),
            done("tool_calls"),
        ],
    );
    assert_eq!(calls(&r).len(), 2);
    // No index, no id, arguments as an object (Ollama); an id of the history is not given again.
    let (r, _) = decode(
        "x",
        &[
            piece(json!({"function": {"name": "read", "arguments": {"p": 1}}})),
            piece(json!({"function": {"name": "glob", "arguments": {}}})),
            piece(json!({"id": "call_0", "function": {"name": "ls", "arguments": "{}"}})),
            done("tool_calls"),
        ],
    );
    assert_eq!(calls(&r), [("call_1", "read", "{\"p\":1}"), ("call_2", "glob", "{}"), ("call_0_2", "ls", "{}")]);
    // No name at all.
    let (r, _) = decode("x", &[piece(json!({"index": 0, "function": {"arguments": "{}"}})), done("tool_calls")]);
    assert_eq!((r.cut.len(), calls(&r)[0].1), (1, "unknown"));
}

#[test]
fn reasoning_comes_under_several_names_and_goes_back_where_it_must() {
    for first in [
        json!({"reasoning_content": "hm"}),
        json!({"reasoning": "hm"}),
        json!({"reasoning": "hm", "reasoning_content": "hm"}),
        json!({"content": [{"type": "thinking", "thinking": [{"type": "text", "text": "hm"}]}]}),
    ] {
        let call_piece =
            json!({"tool_calls": [{"index": 0, "id": "c", "function": {"name": "read", "arguments": "{}"}}]});
        let (reply, _) = decode("deepseek", &[delta(first), delta(call_piece), done("tool_calls")]);
        let stored = Message::parse(reply.message.to_raw().unwrap().get()).unwrap();
        assert!(matches!(&stored.parts[0], Part::Reasoning { text, .. } if text == "hm"));
        let mut messages = history(&json!([{"role": "user", "content": "hi"}]));
        messages.push(stored);
        let (raw, _) = body("deepseek", &call(&messages));
        assert!(raw.contains(r#""reasoning_content":"hm""#), "{raw}");
        // What it thought before an answer goes back as well, byte for byte the same in each request.
        let mut answered = messages.clone();
        let result = json!([{"role": "tool", "content": [{"type": "tool-result", "toolCallId": "c", "toolName": "read", "output": {"type": "text", "value": "x"}}]}]);
        answered.extend(history(&result));
        let aha = [delta(json!({"reasoning_content": "aha"})), delta(json!({"content": "so"})), done("stop")];
        answered.extend([decode("deepseek", &aha).0.message, Message::text(Role::User, "go on")]);
        let (raw, value) = body("deepseek", &call(&answered));
        check("deepseek", &value);
        assert!(raw.contains(r#""reasoning_content":"aha""#), "{raw}");
        for other in ["openai", "mistral", "llamacpp", "ollama"] {
            assert!(!body(other, &call(&messages)).0.contains("hm\""), "{other}");
        }
    }
}

#[test]
fn signatures_of_calls_go_back_to_who_signed() {
    let signed = json!({"tool_calls": [{"index": 0, "id": "c", "function": {"name": "read", "arguments": "{}"}, "extra_content": {"google": {"thought_signature": "s+/="}}}]});
    let (reply, _) = decode("google", &[delta(signed), done("tool_calls")]);
    let mut messages = history(&json!([{"role": "user", "content": "hi"}]));
    messages.push(Message::parse(reply.message.to_raw().unwrap().get()).unwrap());
    assert!(body("google", &call(&messages)).0.contains(r#""extra_content":{"google":{"thought_signature":"s+/="}}"#));
    assert!(!body("openai", &call(&messages)).0.contains("s+/="));
}

#[test]
fn reasoning_details_are_joined_and_go_back_to_openrouter_only() {
    let piece = |v: Value| delta(json!({"reasoning": "hm", "reasoning_details": [v]}));
    let (reply, _) = decode(
        "openrouter",
        &[
            piece(json!({"type": "reasoning.text", "index": 0, "text": "let ", "signature": null})),
            piece(json!({"type": "reasoning.text", "index": 0, "text": "me", "signature": "s+/="})),
            piece(json!({"type": "reasoning.encrypted", "index": 1, "data": "e=="})),
            delta(json!({"content": "ok"})),
            done("stop"),
        ],
    );
    let mut messages = history(&json!([{"role": "user", "content": "hi"}]));
    messages.push(Message::parse(reply.message.to_raw().unwrap().get()).unwrap());
    let (_, body_) = body("openrouter", &call(&messages));
    assert_eq!(
        body_["messages"][2]["reasoning_details"],
        json!([
            {"type": "reasoning.text", "index": 0, "text": "let me", "signature": "s+/="},
            {"type": "reasoning.encrypted", "index": 1, "data": "e=="}
        ])
    );
    assert!(!body("openai", &call(&messages)).0.contains("s+/="));
}

#[test]
fn what_one_vendor_signed_behind_a_router_goes_to_no_other() {
    let decode = |model: &str, seal: &str| {
        let origin = Origin { provider: "openrouter".into(), model: model.into(), ..Origin::default() };
        let mut stream = Stream::new(origin, None, HashSet::new());
        let details = json!([{"type": "reasoning.text", "index": 0, "text": "t", "signature": seal}]);
        for event in [
            delta(json!({"reasoning": "hm", "reasoning_details": details})),
            delta(json!({"content": "ok"})),
            done("stop"),
        ] {
            stream.event(&event.to_string(), &mut Vec::new()).unwrap();
        }
        Message::parse(stream.finish().message.to_raw().unwrap().get()).unwrap()
    };
    let mut messages = vec![Message::text(Role::User, "hi"), decode("z-ai/glm-5", "sigZ")];
    messages.extend([Message::text(Role::User, "go on"), decode("anthropic/claude-opus-5.5", "sigA")]);
    let raw = |model: &str| String::from_utf8(build("openrouter", model, &call(&messages), &[])).unwrap();
    let seen = |model: &str| (raw(model).contains("sigZ"), raw(model).contains("sigA"));
    assert_eq!(seen("anthropic/claude-sonnet-5.5"), (false, true));
    assert_eq!(seen("z-ai/glm-5"), (true, false));
    assert_eq!(seen("openai/gpt-5.6-terra"), (false, false));
}

#[test]
fn claude_behind_a_router_gets_cache_marks_where_the_prefix_ends() {
    let all = messy();
    let built = |model: &str, messages: &[Message]| -> Value {
        serde_json::from_slice(&build("openrouter", model, &call(messages), &[])).unwrap()
    };
    let marked = |body: &Value| -> Vec<(usize, String)> {
        let messages = body["messages"].as_array().unwrap().iter().enumerate();
        let parts = messages.flat_map(|(i, m)| m["content"].as_array().into_iter().flatten().map(move |p| (i, p)));
        parts
            .filter(|(_, p)| p.get("cache_control").is_some())
            .map(|(i, p)| (i, p["text"].as_str().unwrap().into()))
            .collect()
    };
    for end in 1..=all.len() {
        let body = built("anthropic/claude-opus-5.5", &all[..end]);
        check("openrouter", &body);
        let marks = marked(&body);
        assert!((2..=4).contains(&marks.len()) && marks[0] == (0, "You are a test.".into()), "{marks:?}");
        assert!(marks.iter().all(|(_, t)| !t.starts_with("[vitals]")), "{marks:?}");
    }
    // The end is the last result, since what stands behind it changes; and the user's words before the loop.
    let marks = marked(&built("anthropic/claude-opus-5.5", &all));
    let texts: Vec<&str> = marks.iter().map(|(_, t)| t.as_str()).collect();
    assert_eq!(texts, ["You are a test.", "go on", r#"{"n":1}"#]);
    assert!(marked(&built("openai/gpt-5.6-terra", &all)).is_empty());
    // Marks aside, what was sent stays.
    let strip = |body: &Value| body.to_string().replace(r#","cache_control":{"type":"ephemeral"}"#, "");
    let (long, short) = (strip(&built("anthropic/claude", &all)), strip(&built("anthropic/claude", &all[..7])));
    let texts = |s: &str| -> Vec<String> {
        let body: Value = serde_json::from_str(s).unwrap();
        let text = |m: &Value| match &m["content"] {
            Value::String(t) => vec![t.clone()],
            Value::Array(parts) => parts.iter().map(|p| p["text"].as_str().unwrap_or_default().to_owned()).collect(),
            _ => Vec::new(),
        };
        body["messages"].as_array().unwrap().iter().flat_map(text).collect()
    };
    let (long, mut short) = (texts(&long), texts(&short));
    short.retain(|t| t != "(continue)");
    assert!(long.starts_with(&short), "{long:?} {short:?}");
}

#[test]
fn usage_in_odd_places_and_with_odd_names() {
    let usage = |event: Value| decode("x", &[event, done("stop")]).0.tokens.unwrap();
    let t = usage(
        json!({"choices": [], "usage": {"prompt_tokens": 100, "completion_tokens": 5, "prompt_tokens_details": {"cached_tokens": 64}}}),
    );
    assert_eq!((t.input, t.cached, t.output), (100, 64, 5));
    let t = usage(json!({"choices": [], "x_groq": {"usage": {"prompt_tokens": 7, "completion_tokens": 2}}}));
    assert_eq!((t.input, t.output), (7, 2));
    let t = usage(
        json!({"choices": [{"delta": {}, "usage": {"prompt_tokens": 7, "completion_tokens": 2, "prompt_cache_hit_tokens": 3}}]}),
    );
    assert_eq!((t.input, t.cached, t.output), (7, 3, 2));
    // xAI: reasoning is in the total only. OpenRouter: what it billed.
    let t = usage(
        json!({"choices": [], "usage": {"prompt_tokens": 10, "completion_tokens": 2, "total_tokens": 40, "cost": 0.5}}),
    );
    assert_eq!((t.output, t.cost), (30, Some(0.5)));
}

#[test]
fn reasons_to_stop() {
    for (reason, stop) in
        [("stop", Stop::End), ("length", Stop::Length), ("content_filter", Stop::Refused("content_filter".into()))]
    {
        assert_eq!(decode("x", &[delta(json!({"content": "a"})), done(reason)]).0.stop, stop);
    }
    let mut stream = Stream::new(Origin::default(), None, HashSet::new());
    assert!(stream.event(&done("error").to_string(), &mut Vec::new()).is_err());
    assert!(stream.event("{not json", &mut Vec::new()).is_err());
}
