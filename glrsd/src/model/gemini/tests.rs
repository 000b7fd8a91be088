//! Requests checked by an independent reading of the API's rules, and streams in the shapes that the
//! API is known to send.

use super::request::build;
use super::stream::Stream;
use crate::model::anthropic::tests::messy;
use crate::model::drive::Decoder;
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

/// The rules of `generateContent`, written down without looking at the builder.
pub(crate) fn check(model: &str, body: &Value) {
    let contents = body["contents"].as_array().unwrap();
    let mut called: Vec<Value> = Vec::new();
    for (i, content) in contents.iter().enumerate() {
        let role = content["role"].as_str().unwrap();
        assert_eq!(role, if i % 2 == 0 { "user" } else { "model" }, "roles alternate, user first");
        let parts = content["parts"].as_array().unwrap();
        assert!(!parts.is_empty());
        let (mut answered, mut calls, mut other) = (Vec::new(), Vec::new(), false);
        for part in parts {
            let fields: Vec<&String> = part.as_object().unwrap().keys().collect();
            let data = fields.iter().filter(|f| !matches!(f.as_str(), "thought" | "thoughtSignature")).count();
            assert_eq!(data, 1, "one kind of data in a part: {part}");
            if let Some(text) = part["text"].as_str() {
                assert!(!text.trim().is_empty() || part.get("thoughtSignature").is_some(), "{part}");
                other = true;
            } else if part["functionResponse"].is_object() {
                assert!(role == "user" && !other, "results come first");
                let outcome = part["functionResponse"]["response"].as_object().unwrap();
                assert!(outcome.len() == 1 && outcome.values().all(|v| !v.as_str().unwrap().is_empty()));
                answered.push(part["functionResponse"]["name"].clone());
            } else if part["functionCall"].is_object() {
                assert_eq!(role, "model");
                assert!(part["functionCall"]["args"].is_object());
                let name = part["functionCall"]["name"].as_str().unwrap();
                assert!(name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_') && name.len() <= 64, "{name}");
                if calls.is_empty() && model.contains("gemini-3") {
                    assert!(part["thoughtSignature"].is_string(), "a step begins with a signed call: {part}");
                }
                calls.push(part["functionCall"]["name"].clone());
            }
        }
        if role == "user" {
            assert_eq!(answered, called, "each call has its result directly behind it, in the same order");
        } else {
            let thoughts = parts.iter().filter(|p| p["thought"] == true).count();
            assert!(thoughts < parts.len(), "more than thoughts");
        }
        called = calls;
    }
    assert_eq!(contents.len() % 2, 1, "the user has the last word");
    for tool in body["tools"].as_array().into_iter().flatten() {
        for function in tool["functionDeclarations"].as_array().unwrap() {
            let parameters = &function["parameters"];
            assert!(parameters.is_null() || !parameters["properties"].as_object().unwrap().is_empty());
        }
    }
}

#[test]
fn any_history_becomes_a_legal_request() {
    let all = messy();
    for model in ["gemini-3.8-flash", "gemini-2.5-pro", "gemini-flash-latest", "gemma-3-27b-it"] {
        for end in 1..=all.len() {
            check(model, &body("google", model, &call(&all[..end])).1);
        }
    }
    let (raw, value) = body("google", "gemini-3.8-flash", &call(&all));
    for foreign in ["sig+/==", "abc==", "new_fangled", "foreign", "secret", "hologram"] {
        assert!(!raw.contains(foreign), "{foreign}: {raw}");
    }
    assert!(raw.contains(r#""args":{"z":1.0,"a":[1,2]}"#), "input keeps its bytes: {raw}");
    assert!(raw.contains(r#"{"inlineData":{"mimeType":"image/png","data":"QUJD"}}"#));
    assert!(raw.contains("skip_thought_signature_validator"));
    assert_eq!(value["systemInstruction"]["parts"][0]["text"], "You are a test.");
    assert_eq!(value["generationConfig"]["maxOutputTokens"], 8_000);
    assert!(!body("google", "gemini-2.5-pro", &call(&all)).0.contains("skip_thought_signature_validator"));
    let mut without = call(&all);
    without.tools = Vec::new().into();
    let (raw, value) = body("google", "gemini-3.8-flash", &without);
    check("gemini-3.8-flash", &value);
    assert!(!raw.contains("functionCall") && raw.contains("no such file") && value.get("tools").is_none());
}

#[test]
fn the_same_history_gives_the_same_bytes() {
    let all = messy();
    let long = body("google", "gemini-3.8-flash", &call(&all)).1;
    let short = body("google", "gemini-3.8-flash", &call(&all[..4])).1;
    for (i, content) in short["contents"].as_array().unwrap().iter().enumerate() {
        assert_eq!(content.to_string(), long["contents"][i].to_string());
    }
}

#[test]
fn results_stand_in_the_order_of_their_calls() {
    let result = |id: &str, text: &str| json!({"type": "tool-result", "toolCallId": id, "toolName": "read", "output": {"type": "text", "value": text}});
    let one = |id: &str| json!({"type": "tool-call", "toolCallId": id, "toolName": "read", "input": {}});
    let messages = history(&json!([
        {"role": "user", "content": "hi"},
        {"role": "assistant", "content": [one("a"), one("b"), one("c")]},
        {"role": "tool", "content": [result("c", "third"), result("a", "first")]}
    ]));
    let value = body("google", "gemini-3.8-flash", &call(&messages)).1;
    let said: Vec<&Value> = value["contents"][2]["parts"]
        .as_array()
        .unwrap()
        .iter()
        .flat_map(|p| p["functionResponse"]["response"].as_object().unwrap().values())
        .collect();
    assert!(said[0] == "first" && said[1].as_str().unwrap().contains("interrupted") && said[2] == "third", "{said:?}");
}

#[test]
fn thinking_follows_the_model_and_the_variant() {
    let config = |model: &str, variant: Option<&str>| {
        let call = Call { variant: variant.map(str::to_owned), ..call(&messy()) };
        body("google", model, &call).1["generationConfig"]["thinkingConfig"].clone()
    };
    assert_eq!(config("gemini-3.8-flash", None), json!({"includeThoughts": true}));
    assert_eq!(config("gemini-3.8-flash", Some("low")), json!({"includeThoughts": true, "thinkingLevel": "low"}));
    assert_eq!(config("gemini-pro-latest", Some("max"))["thinkingLevel"], "high");
    assert_eq!(config("gemini-2.5-pro", Some("medium")), json!({"includeThoughts": true, "thinkingBudget": 10_240}));
    assert_eq!(config("gemini-2.5-flash", Some("none")), json!({"thinkingBudget": 0}));
    for model in ["gemini-2.0-flash", "gemma-3-27b-it", "gemini-2.5-flash-image"] {
        assert!(config(model, Some("high")).is_null(), "{model}");
    }
    let last = Call { force_text: true, ..call(&messy()) };
    assert_eq!(body("google", "m", &last).1["toolConfig"]["functionCallingConfig"]["mode"], "NONE");
    let options = json!({"generationConfig": {"temperature": 0.0}, "contents": [], "systemInstruction": null});
    let merged: Value = serde_json::from_slice(&build("google", "m", &last, &[options.as_object().unwrap()])).unwrap();
    assert_eq!(merged["generationConfig"], json!({"maxOutputTokens": 8_000, "temperature": 0.0}));
    assert!(!merged["contents"].as_array().unwrap().is_empty() && merged["systemInstruction"].is_object());
}

fn stream() -> Stream {
    let origin = Origin { provider: "google".into(), ..Origin::default() };
    Stream::new(origin, None, HashSet::from(["call_1".to_owned()]))
}

fn decode(events: &[String]) -> (Reply, Vec<Chunk>) {
    let (mut stream, mut out) = (stream(), Vec::new());
    for event in events {
        stream.event(event, &mut out).unwrap();
    }
    assert!(stream.complete());
    (stream.finish(), out)
}

fn parts(parts: &str) -> String {
    format!(r#"{{"candidates":[{{"content":{{"role":"model","parts":[{parts}]}},"index":0}}]}}"#)
}

fn end(reason: &str) -> String {
    format!(
        r#"{{"candidates":[{{"content":{{"parts":[{{"text":""}}],"role":"model"}},"finishReason":"{reason}"}}],"usageMetadata":{{"promptTokenCount":100,"cachedContentTokenCount":64,"candidatesTokenCount":5,"thoughtsTokenCount":4,"totalTokenCount":109}}}}"#
    )
}

#[test]
fn what_comes_goes_back_byte_for_byte() {
    let (reply, chunks) = decode(&[
        parts(r#"{"text":"let ","thought":true}"#),
        parts(r#"{"text":"me","thought":true}"#),
        parts(r#"{"text":"Su"}"#),
        parts(r#"{"text":"re.","thoughtSignature":"Te\u002bxt=="}"#),
        parts(
            r#"{"functionCall":{"name":"read","args":{"path": "a\nb", "n": 1.0}},"thoughtSignature":"Ca\u002bll=="}"#,
        ),
        parts(r#"{"functionCall":{"id":"fx:1","name":"read","args":{}}}, {"executableCode":{"code":"1"}}"#),
        parts(r#"{"text":"","thoughtSignature":"Em/pty=="}"#),
        end("STOP"),
    ]);
    let reasoning: String =
        chunks.iter().filter_map(|c| if let Chunk::Reasoning(t) = c { Some(&**t) } else { None }).collect();
    assert_eq!((reasoning.as_str(), reply.message.joined_text().as_str()), ("let me", "Sure."));
    assert_eq!((reply.stop.clone(), reply.cut.len()), (Stop::Tools, 0));
    let tokens = reply.tokens.unwrap();
    assert_eq!((tokens.input, tokens.cached, tokens.output), (100, 64, 9));
    let stored = Message::parse(reply.message.to_raw().unwrap().get()).unwrap();
    assert_eq!(stored.call_ids().collect::<Vec<_>>(), ["call_2", "fx:1"]);
    let messages = [Message::text(Role::User, "hi"), stored];
    let (raw, value) = body("google", "gemini-3.8-flash", &call(&messages));
    check("gemini-3.8-flash", &value);
    for piece in [
        r#"{"text":"Sure.","thoughtSignature":"Te\u002bxt=="}"#,
        r#"{"functionCall":{"name":"read","args":{"path": "a\nb", "n": 1.0}},"thoughtSignature":"Ca\u002bll=="}"#,
        r#"{"functionCall":{"id":"fx:1","name":"read","args":{}}}"#,
        r#"{"functionResponse":{"id":"fx:1","name":"read","#,
        r#"{"executableCode":{"code":"1"}}"#,
        r#"{"text":"","thoughtSignature":"Em/pty=="}"#,
    ] {
        assert!(raw.contains(piece), "{piece} in {raw}");
    }
    assert!(!raw.contains("let me"), "thoughts without a signature stay here");
    for bytes in [
        build("other", "gemini-3.8-flash", &call(&messages), &[]),
        crate::model::openai::request::build("google", "m", &call(&messages), &[]),
        crate::model::anthropic::request::build("google", "claude-opus-5-5", &call(&messages), &[]),
        crate::model::responses::request::build("google", "gpt-5", &call(&messages), &[]),
    ] {
        let raw = String::from_utf8(bytes).unwrap();
        for own in ["002b", "Em/pty", "executableCode"] {
            assert!(!raw.contains(own) && raw.contains("Sure."), "{own}: {raw}");
        }
    }
}

#[test]
fn a_signed_thought_goes_back_as_it_came() {
    let (reply, _) = decode(&[parts(r#"{"text":"hm","thought":true,"thoughtSignature":"s="}"#), end("STOP")]);
    let messages = [Message::text(Role::User, "hi"), reply.message];
    let (raw, value) = body("google", "gemini-3.8-flash", &call(&messages));
    check("gemini-3.8-flash", &value);
    assert!(raw.contains(r#"{"text":"hm","thought":true,"thoughtSignature":"s="}"#), "{raw}");
}

#[test]
fn reasons_to_stop() {
    for (reason, stop) in [
        ("STOP", Stop::End),
        ("MAX_TOKENS", Stop::Length),
        ("SAFETY", Stop::Refused("safety".into())),
        ("RECITATION", Stop::Refused("recitation".into())),
    ] {
        assert_eq!(decode(&[parts(r#"{"text":"a"}"#), end(reason)]).0.stop, stop);
    }
    let nothing = parts(r#"{"text":"","thoughtSignature":"s"}"#);
    assert!(decode(&[nothing, end("STOP")]).0.message.parts.is_empty(), "the model said nothing");
    let blocked = r#"{"promptFeedback":{"blockReason":"PROHIBITED_CONTENT"},"usageMetadata":{"promptTokenCount":4}}"#;
    let (reply, _) = decode(&[blocked.to_owned()]);
    assert_eq!(reply.stop, Stop::Refused("prompt blocked: prohibited_content".into()));
    assert_eq!((reply.message.parts.len(), reply.tokens.unwrap().input), (0, 4));
    let f = stream().event(&end("MALFORMED_FUNCTION_CALL"), &mut Vec::new()).unwrap_err();
    assert_eq!(f.kind, FailureKind::Server, "it is tried again");
    for (event, kind) in [
        (r#"{"error":{"code":503,"message":"The model is overloaded.","status":"UNAVAILABLE"}}"#, FailureKind::Server),
        (r#"{"error":{"code":429,"message":"Resource exhausted","status":"RESOURCE_EXHAUSTED"}}"#, FailureKind::Rate),
        ("{not json", FailureKind::Protocol),
    ] {
        assert_eq!(stream().event(event, &mut Vec::new()).unwrap_err().kind, kind);
    }
}

#[test]
fn odd_shapes_are_understood() {
    let quiet = r#"{"candidates":null,"usageMetadata":{"promptTokenCount":1}}"#.to_owned();
    let bare = r#"{"candidates":[{"finishReason":"STOP"}]}"#.to_owned();
    let (reply, _) = decode(&[quiet, parts(r#"{"text":"a"}"#), parts(r#"{}"#), bare, parts(r#"{"text":"b"}"#)]);
    assert_eq!(reply.message.joined_text(), "ab");
    // Arguments that are missing or none, and a call without a name.
    let call = r#"{"functionCall":{"name":"ls"}},{"functionCall":{"name":"ls","args":null}},{"functionCall":{"args":{}}},{"functionCall":{"name":"x","args":[1]}}"#;
    let (reply, _) = decode(&[parts(call), end("STOP")]);
    let names: Vec<&str> = reply
        .message
        .parts
        .iter()
        .filter_map(|p| if let Part::ToolCall { name, .. } = p { Some(name.as_str()) } else { None })
        .collect();
    assert_eq!((names, reply.cut.len()), (vec!["ls", "ls", "unknown", "x"], 2));
    // A field more does not hide a call; what is no part is not sent back.
    let newer =
        r#"{"functionCall":{"name":"ls","args":{}},"news":1},{"functionCall":7},{"a":1,"b":2},{"thought":true}"#;
    let (reply, _) = decode(&[parts(newer), end("STOP")]);
    assert_eq!((reply.message.call_ids().count(), reply.message.parts.len()), (1, 1));
    // A list instead of a stream.
    let mut s = stream();
    s.whole(&format!("[{},\n{}]", parts(r#"{"text":"a"}"#), end("STOP")), &mut Vec::new()).unwrap();
    assert!(s.complete() && s.finish().message.joined_text() == "a");
}
