//! The bytes of a request in each dialect, beside what they were when they were last looked at, and
//! what building one costs.
//!
//! A change of these bytes breaks the caches of every session that is under way, so it has to be meant.
//! `UPDATE_SNAPSHOTS=1 cargo test -p glrsd --lib request_tests` writes them anew.

use super::catalogue::Dialect;
use super::testing::{call, history};
use super::{Call, remote};
use crate::host::Env;
use glrs_protocol::message::{Message, Output, Part, Role};
use serde_json::json;
use serde_json::value::RawValue;
use std::path::PathBuf;
use std::time::Instant;

fn model(dialect: Dialect) -> (&'static str, &'static str) {
    match dialect {
        Dialect::Anthropic => ("anthropic", "claude-opus-5-5"),
        Dialect::OpenAi => ("openrouter", "openai/gpt-5.6-terra"),
        Dialect::Responses => ("openai", "gpt-5.6-sol"),
        Dialect::Gemini => ("google", "gemini-3.8-flash"),
    }
}

/// A session that went through all four: each has left something that only it can read.
fn travelled() -> Vec<Message> {
    let result = |id: &str, kind: &str, text: &str| json!({"role": "tool", "content": [{"type": "tool-result", "toolCallId": id, "toolName": "read", "output": {"type": kind, "value": text}}]});
    let step = |thought: &str, own: serde_json::Value, id: &str| {
        json!({"role": "assistant", "content": [
            {"type": "reasoning", "text": thought, "providerOptions": own},
            {"type": "text", "text": format!("reading {id}")},
            {"type": "tool-call", "toolCallId": id, "toolName": "read", "input": {"path": "src/ä.rs", "z": 1.0, "a": [1, 2]}}
        ]})
    };
    let mut messages = history(&json!([
        {"role": "user", "content": [{"type": "text", "text": "look at this"}, {"type": "image", "image": "QUJD", "mediaType": "image/png"}]},
        step("as Claude", json!({"anthropic": {"signature": "sigA+/=="}}), "toolu_01"),
        result("toolu_01", "text", "first content"),
        step("as GPT by a router", json!({"openrouter/openai": {"reasoning_details": [{"type": "reasoning.text", "text": "r", "signature": "sigR"}]}}), "functions.read:1"),
        result("functions.read:1", "error-text", "no such file"),
        step("as GPT", json!({"openai/responses": {"type": "reasoning", "id": "rs_1", "n": 1.0, "encrypted_content": "sigO", "summary": []}}), "call_02"),
        result("call_02", "text", ""),
        {"role": "assistant", "content": [
            {"type": "provider-block", "provider": "openai/responses", "block": {"phase": "commentary"}},
            {"type": "text", "text": "half way"},
            {"type": "provider-block", "provider": "google/gemini", "block": {"thoughtSignature": "sigT"}},
            {"type": "tool-call", "toolCallId": "call_1", "toolName": "read", "input": {}, "providerOptions": {"google/gemini": {"thoughtSignature": "sigG", "id": "fx1"}}},
            {"type": "tool-call", "toolCallId": "call_2", "toolName": "grep", "input": {}}
        ]},
        result("call_1", "text", "found\nit"),
        {"role": "user", "content": "[vitals] 14:02, turn 3 min"}
    ]));
    let bytes = r#"{"type":"reasoning","text":"once more","providerOptions":{"openai/responses":{ "type":"reasoning","encrypted_content":"\u002b=" }}}"#;
    let raw = format!(r#"{{"role":"assistant","content":[{bytes},{{"type":"text","text":"done"}}]}}"#);
    messages.insert(messages.len() - 1, Message::parse(&raw).unwrap());
    messages
}

fn snapshot(dialect: Dialect) -> PathBuf {
    let name = format!("../tests/fixtures/requests/{}.json", dialect.word());
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join(name)
}

#[test]
fn requests_are_what_they_were() {
    for dialect in Dialect::ALL {
        let (provider, model) = model(dialect);
        let call = Call { variant: Some("high".into()), ..call(&travelled()) };
        let body = String::from_utf8(remote::build(dialect, provider, model, &call, &[])).unwrap();
        let path = snapshot(dialect);
        if Env::of_process().get("UPDATE_SNAPSHOTS").is_some() {
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(&path, format!("{body}\n")).unwrap();
        }
        let kept = std::fs::read_to_string(&path).unwrap_or_default();
        assert!(kept.trim_end() == body, "{dialect:?} sends other bytes than {}:\n{body}", path.display());
        // Whose is whose.
        for (owner, seals) in [
            (Dialect::Anthropic, &["sigA+/=="][..]),
            (Dialect::OpenAi, &["sigR"]),
            (Dialect::Responses, &["sigO", "commentary", r#"{ "type":"reasoning","encrypted_content":"\u002b=" }"#]),
            (Dialect::Gemini, &["sigT", "sigG", "fx1"]),
        ] {
            for seal in seals {
                assert_eq!(body.contains(seal), owner == dialect, "{seal} in {dialect:?}");
            }
        }
    }
}

#[test]
fn an_output_limit_that_is_not_known_is_not_asked_for() {
    for dialect in Dialect::ALL {
        let (provider, model) = model(dialect);
        let call = Call { max_output: None, ..call(&travelled()) };
        let body = String::from_utf8(remote::build(dialect, provider, model, &call, &[])).unwrap();
        let asked = ["max_tokens", "max_completion_tokens", "max_output_tokens", "maxOutputTokens"];
        let asked: Vec<&str> = asked.into_iter().filter(|name| body.contains(name)).collect();
        // One API refuses a request without a number.
        if dialect == Dialect::Anthropic {
            assert!(body.contains(r#""max_tokens":8192"#), "{body}");
        } else {
            assert!(asked.is_empty(), "{dialect:?} {asked:?}");
        }
    }
}

/// A long session with much that must go back raw: deep inputs, seals, long results.
fn long(steps: usize, own: &str) -> Vec<Message> {
    let deep = format!("{{\"tree\":{}1{}}}", "[".repeat(60), "]".repeat(60));
    let wide = format!("{{\"list\":[{}]}}", vec!["{\"a\":1.0,\"b\":\"ä\\n\"}"; 150].join(","));
    let raw = |s: &str| RawValue::from_string(s.to_owned()).unwrap();
    let mut out = vec![Message::text(Role::User, "go")];
    for n in 0..steps {
        let parts = vec![
            Part::Reasoning { text: "hm".repeat(50), opts: Some(raw(own)) },
            Part::ToolCall { id: format!("c{n}a"), name: "read".into(), input: raw(&deep), opts: None },
            Part::ToolCall { id: format!("c{n}b"), name: "write".into(), input: raw(&wide), opts: None },
        ];
        out.push(Message { role: Role::Assistant, parts });
        let result = |id: String| Part::ToolResult {
            id,
            name: "read".into(),
            output: Output::Text("line of a file\n".repeat(200)),
        };
        out.push(Message { role: Role::Tool, parts: vec![result(format!("c{n}a")), result(format!("c{n}b"))] });
    }
    out
}

/// What was said goes out as it is stored, never taken apart and put together again: inputs nested
/// deeper than the JSON parser reads come out byte for byte.
#[test]
fn history_is_not_read_again() {
    let deep = format!("{{\"tree\":{}1.0{}}}", "[ ".repeat(2_000), "]".repeat(2_000));
    assert!(serde_json::from_str::<serde_json::Value>(&deep).is_err(), "nobody can have read it");
    let raw = |s: &str| RawValue::from_string(s.to_owned()).unwrap();
    let call_part = Part::ToolCall { id: "c".into(), name: "read".into(), input: raw(&deep), opts: None };
    let output = Output::Json(raw(&deep));
    let result = Part::ToolResult { id: "c".into(), name: "read".into(), output };
    let block = |key: &str, own: &str| raw(&format!(r#"{{"type":"provider-block","provider":"{key}","block":{own}}}"#));
    for dialect in Dialect::ALL {
        let (provider, model) = model(dialect);
        let key = match dialect {
            Dialect::Anthropic | Dialect::OpenAi => provider.to_owned(),
            other => format!("{provider}/{}", other.word()),
        };
        let own = match dialect {
            Dialect::Gemini => format!(r#"{{"newPart":{deep}}}"#),
            _ => format!(r#"{{"type":"x_call","deep":{deep}}}"#),
        };
        let parts = vec![Part::Other(block(&key, &own)), call_part.clone()];
        let messages = [
            Message::text(Role::User, "go"),
            Message { role: Role::Assistant, parts },
            Message { role: Role::Tool, parts: vec![result.clone()] },
        ];
        let body = String::from_utf8(remote::build(dialect, provider, model, &call(&messages), &[])).unwrap();
        let in_text = serde_json::to_string(&deep).unwrap();
        // As the call's input, as the result's text, and in a block of the provider's own where it has any.
        let raws = body.matches(&deep).count();
        let texts = body.matches(in_text.trim_matches('"')).count();
        let want = match dialect {
            Dialect::Anthropic | Dialect::Gemini => (2, 1),
            Dialect::OpenAi => (0, 2),
            Dialect::Responses => (1, 2),
        };
        assert_eq!((raws, texts), want, "{dialect:?}");
    }
}

/// Prints what building a request costs per megabyte of history, beside taking the same body apart
/// once. For the figure: `cargo test --release -p glrsd --lib a_request_costs -- --nocapture`.
#[test]
fn a_request_costs_its_bytes() {
    let seal = "A".repeat(2_000);
    for dialect in Dialect::ALL {
        let own = match dialect {
            Dialect::Anthropic => format!(r#"{{"anthropic":{{"signature":"{seal}"}}}}"#),
            Dialect::OpenAi => {
                format!(r#"{{"openrouter/openai":{{"reasoning_details":[{{"type":"x","data":"{seal}"}}]}}}}"#)
            }
            Dialect::Responses => {
                format!(r#"{{"openai/responses":{{"type":"reasoning","encrypted_content":"{seal}","summary":[]}}}}"#)
            }
            Dialect::Gemini => format!(r#"{{"google/gemini":{{"thoughtSignature":"{seal}"}}}}"#),
        };
        let call = call(&long(100, &own));
        let (provider, model) = model(dialect);
        let best = |f: &mut dyn FnMut() -> usize| {
            let times = (0..3).map(|_| {
                let start = Instant::now();
                let n = f();
                (start.elapsed(), n)
            });
            times.min().unwrap()
        };
        let body = remote::build(dialect, provider, model, &call, &[]);
        let (built, bytes) = best(&mut || remote::build(dialect, provider, model, &call, &[]).len());
        let (parsed, _) =
            best(&mut || serde_json::from_slice::<serde_json::Value>(&body).unwrap().as_object().unwrap().len());
        let per_mb = |t: std::time::Duration| t.as_secs_f64() * 1e3 / (bytes as f64 / 1e6);
        println!(
            "{:10} {:5.1} MB: built in {:6.2} ms/MB; parsing the same takes {:6.2} ms/MB",
            dialect.word(),
            bytes as f64 / 1e6,
            per_mb(built),
            per_mb(parsed)
        );
        assert!(bytes > 1_000_000, "{dialect:?}");
    }
}
