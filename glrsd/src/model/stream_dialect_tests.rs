//! The stream cases of the fixtures, said in Responses and in Gemini.
//!
//! The fixtures themselves speak the other two dialects; here each kind of trouble is made for these,
//! and a test sees to it that none is forgotten.

use super::catalogue::Dialect;
use super::scripts::{End, Say, body, events, response};
use super::testing::{Answer, Kept, Server, Step, ask, cases};
use super::{Chunk, Failure, FailureKind, Models, Reply, Stop, retry_delay};
use crate::config::{Config, ProviderConfig};
use crate::host::Env;
use glrs_protocol::message::Part;
use serde_json::{Value, json};
use std::time::Duration;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

const NEWER: [Dialect; 2] = [Dialect::Responses, Dialect::Gemini];
const KEY: &str = "sk-secret-0123456789";
const WORDS: &str = "Hé漢😀!";
const PATIENT: Duration = Duration::from_secs(20);

async fn play_with(dialect: Dialect, answer: Answer, idle: Duration) -> (Result<Reply, Failure>, Kept) {
    let server = Server::start(vec![answer]).await;
    let mut config = Config::default();
    let provider = ProviderConfig {
        api: Some(server.api()),
        dialect: Some(dialect.word().to_owned()),
        key_env: Some("P_KEY".to_owned()),
        ..Default::default()
    };
    config.providers.insert("p".to_owned(), provider);
    let mut env = Env::default();
    env.set("P_KEY", KEY);
    let mut call = ask("hello");
    (call.idle, call.env) = (idle, env.into());
    let model = Models::new(&config).resolve("p/m", &call.env).unwrap();
    let mut kept = Kept::default();
    let result = timeout(Duration::from_secs(60), model.call(&call, &mut kept, &CancellationToken::new())).await;
    let result = result.expect("a call always ends");
    if let Err(f) = &result {
        assert!(
            !f.message.contains(KEY) && !f.message.contains('<') && f.message.chars().count() < 500,
            "{}",
            f.message
        );
    }
    (result, kept)
}

async fn play(dialect: Dialect, body: &str) -> (Result<Reply, Failure>, Kept) {
    play_with(dialect, Answer::stream(body), PATIENT).await
}

fn script(dialect: Dialect, said: &[Say<'_>], end: End) -> String {
    body(&events(dialect, said, end))
}

/// A stream of these pieces, and what becomes of the connection behind them.
fn steps(pieces: &[&str], last: Option<Step>) -> Answer {
    let mut steps: Vec<Step> = pieces.iter().map(|p| Step::Bytes(p.as_bytes().to_vec())).collect();
    steps.extend(last);
    Answer { steps, ..Answer::stream("") }
}

async fn text_of(dialect: Dialect, answer: Answer) -> String {
    let (result, kept) = play_with(dialect, answer, PATIENT).await;
    let reply = result.unwrap_or_else(|f| panic!("{dialect:?}: {f:?}"));
    assert_eq!((reply.stop, kept.0.first()), (Stop::End, Some(&Chunk::Open)), "{dialect:?}");
    let text = reply.message.joined_text();
    assert_eq!(text, kept.text(), "{dialect:?}: what streamed is what is kept");
    text
}

async fn failure_of(dialect: Dialect, answer: Answer) -> Failure {
    let (result, _) = play_with(dialect, answer, PATIENT).await;
    result.err().unwrap_or_else(|| panic!("{dialect:?}: no failure"))
}

/// Each framing of the same events.
fn framings(dialect: Dialect) -> Vec<(&'static str, Answer)> {
    let plain = script(dialect, &[Say::Text(WORDS)], End::Done);
    let pretty: String = events(dialect, &[Say::Text(WORDS)], End::Done)
        .iter()
        .map(|e| {
            let value: Value = serde_json::from_str(e).unwrap();
            let lines = serde_json::to_string_pretty(&value).unwrap();
            lines.lines().map(|l| format!("data: {l}\n")).chain(["\n".to_owned()]).collect::<String>()
        })
        .collect();
    let crlf = plain.replace('\n', "\r\n");
    let split = crlf.find('\r').unwrap() + 1;
    let bytes = plain.bytes().map(|b| Step::Bytes(vec![b])).collect();
    vec![
        ("split-every-byte", Answer { steps: bytes, ..Answer::stream("") }),
        ("crlf", Answer::stream(&crlf)),
        ("crlf-split-between-cr-and-lf", steps(&[&crlf[..split], &crlf[split..]], None)),
        ("cr-only", Answer::stream(&plain.replace('\n', "\r"))),
        ("no-space-after-data", Answer::stream(&plain.replace("data: ", "data:"))),
        ("comments-and-blank", Answer::stream(&format!(": hi\n\n\n\n: ping\nevent: x\nid: 7\n{plain}: bye\n"))),
        ("multi-line-data", Answer::stream(&pretty)),
        ("no-done-but-finish", Answer::stream(&plain)),
        ("byte order mark", Answer::stream(&format!("\u{feff}{plain}"))),
    ]
}

#[tokio::test]
async fn framing_does_not_change_the_text() {
    for dialect in NEWER {
        for (name, answer) in framings(dialect) {
            assert_eq!(text_of(dialect, answer).await, WORDS, "{dialect:?} {name}");
        }
        // "huge-event"
        let huge = "a".repeat(3_000_000);
        let answer = Answer::stream(&script(dialect, &[Say::Text(&huge)], End::Done));
        assert_eq!(text_of(dialect, answer).await.len(), 3_000_000, "{dialect:?}");
    }
}

#[tokio::test]
async fn an_answer_that_is_not_streamed_is_taken() {
    // "200-json-not-sse"
    let said = [Say::Text("not streamed")];
    let whole = response(&said, End::Done).to_string();
    let list = format!("[{}]", events(Dialect::Gemini, &said, End::Done).join(",\n"));
    for (dialect, body) in [(Dialect::Responses, whole), (Dialect::Gemini, list)] {
        assert_eq!(text_of(dialect, Answer::typed(200, "application/json", &body)).await, "not streamed");
    }
}

#[tokio::test]
async fn events_without_content_and_of_unknown_kinds_are_passed_over() {
    // "empty-choices-first-and-last", "choices-null", "anthropic-unknown-event-and-block"
    let said = |dialect| script(dialect, &[Say::Text("x")], End::Done);
    let nothing = "data: {\"candidates\":null}\n\ndata: {\"candidates\":[]}\n\ndata: {\"news\":1}\n\ndata: {\"candidates\":[{}]}\n\ndata: {\"candidates\":[{\"content\":{\"role\":\"model\"}}]}\n\n";
    assert_eq!(text_of(Dialect::Gemini, Answer::stream(&format!("{nothing}{}", said(Dialect::Gemini)))).await, "x");
    let hologram = "data: {\"type\":\"response.hologram.delta\",\"output_index\":9,\"delta\":\"h\"}\n\ndata: {\"type\":\"response.output_item.added\",\"output_index\":8,\"item\":{\"type\":\"hologram\"}}\n\ndata: {\"type\":\"response.output_item.done\",\"output_index\":8,\"item\":{\"type\":\"hologram\",\"x\":1}}\n\n";
    let (result, _) = play(Dialect::Responses, &format!("{hologram}{}", said(Dialect::Responses))).await;
    let message = result.unwrap().message;
    assert_eq!(message.joined_text(), "x");
    assert!(message.parts.iter().any(|p| matches!(p, Part::Other(raw) if raw.get().contains(r#""x":1"#))));
    // "finish-in-same-chunk-then-more"
    let more = format!(
        "{}data: {{\"candidates\":[{{\"content\":{{\"parts\":[{{\"text\":\"B\"}}]}}}}]}}\n\n",
        said(Dialect::Gemini)
    );
    assert_eq!(text_of(Dialect::Gemini, Answer::stream(&more)).await, "xB");
}

#[tokio::test]
async fn usage_is_the_last_report() {
    // "usage-in-every-chunk"
    for dialect in Dialect::ALL {
        let (result, _) = play(dialect, &script(dialect, &[Say::Text("a b")], End::Done)).await;
        let tokens = result.unwrap().tokens.unwrap();
        assert_eq!((tokens.input, tokens.cached, tokens.output), (100, 60, 7), "{dialect:?}");
    }
}

#[tokio::test]
async fn a_stream_without_a_reason_to_stop_is_no_success() {
    for dialect in NEWER {
        // "eof-mid-text", "anthropic-cut-after-text"
        let half = script(dialect, &[Say::Text("half an ans")], End::Never);
        let f = failure_of(dialect, Answer::stream(&half)).await;
        assert_eq!(
            (&f.kind, f.partial.as_ref().map(|m| m.joined_text()).as_deref()),
            (&FailureKind::Incomplete, Some("half an ans"))
        );
        assert_eq!(retry_delay(2, &f, 0.0), None, "text was shown");
        // "anthropic-cut-inside-message_stop": here the reason is in the last event, so it is missing.
        let whole = script(dialect, &[Say::Text("half")], End::Done);
        let f = failure_of(dialect, Answer::stream(&whole[..whole.len() - 9])).await;
        assert_eq!(f.kind, FailureKind::Incomplete, "{dialect:?}");
        // "eof-before-anything", "200-empty-body"
        for body in [": hi\n\n", ""] {
            let f = failure_of(dialect, Answer::stream(body)).await;
            assert_eq!((f.kind.clone(), f.partial.is_none()), (FailureKind::Incomplete, true));
            let tries: Vec<bool> = (2..7).map(|n| retry_delay(n, &f, 0.5).is_some()).collect();
            assert_eq!(tries, [true, true, true, false, false], "bounded");
        }
        // "rst-mid-tool-args"
        let call = script(dialect, &[Say::Call("c", "read", r#"{"path":"a"}"#)], End::Never);
        let f = failure_of(dialect, steps(&[&call[..call.len() - 30]], Some(Step::Reset))).await;
        assert_eq!((f.kind, f.partial.is_none()), (FailureKind::Network, true));
    }
}

#[tokio::test]
async fn errors_inside_a_stream() {
    // "error-in-200-empty-choices", "anthropic-overloaded-before-content", "anthropic-overloaded-mid-stream",
    // "error-nonstandard-shape"
    let failed = |code: &str, words: &str| {
        let error = json!({"code": code, "message": words});
        let failed = json!({"type": "response.failed", "response": {"status": "failed", "error": error}});
        format!("data: {failed}\n\n")
    };
    let google = |code: u16, words: &str| format!("data: {}\n\n", json!({"error": {"code": code, "message": words}}));
    for (dialect, busy, long) in [
        (
            Dialect::Responses,
            failed("server_error", "overloaded"),
            failed("context_length_exceeded", "Your input exceeds the context window of this model."),
        ),
        (
            Dialect::Gemini,
            google(503, "The model is overloaded."),
            google(400, "The input token count (9) exceeds the maximum number of tokens allowed (8)."),
        ),
    ] {
        let f = failure_of(dialect, Answer::stream(&busy)).await;
        assert!(f.kind == FailureKind::Server && f.message.contains("overloaded"), "{}", f.message);
        assert!(retry_delay(2, &f, 0.0).is_some());
        let text = script(dialect, &[Say::Text("Hello")], End::Never);
        let f = failure_of(dialect, Answer::stream(&format!("{text}{busy}"))).await;
        assert_eq!(
            (f.kind.clone(), f.partial.as_ref().map(|m| m.joined_text())),
            (FailureKind::Server, Some("Hello".into()))
        );
        assert_eq!(retry_delay(2, &f, 0.0), None);
        assert_eq!(failure_of(dialect, Answer::stream(&long)).await.kind, FailureKind::Overflow);
    }
}

fn inputs(reply: &Reply) -> Vec<(&str, &str, &str)> {
    let parts = reply.message.parts.iter();
    parts
        .filter_map(|p| match p {
            Part::ToolCall { id, name, input, .. } => Some((id.as_str(), name.as_str(), input.get())),
            _ => None,
        })
        .collect()
}

#[tokio::test]
async fn tool_calls_are_put_together_or_marked() {
    for dialect in NEWER {
        let reply =
            |said: Vec<Say<'static>>, end| async move { play(dialect, &script(dialect, &said, end)).await.0.unwrap() };
        // "dup-tool-ids"
        let two = vec![Say::Call("c", "read", r#"{"path":"A.txt"}"#), Say::Call("c", "read", r#"{"path":"B.txt"}"#)];
        let r = reply(two, End::Done).await;
        let calls = inputs(&r);
        assert_eq!(calls.iter().map(|c| c.2).collect::<Vec<_>>(), [r#"{"path":"A.txt"}"#, r#"{"path":"B.txt"}"#]);
        assert!(calls[0].0 != calls[1].0 && r.stop == Stop::Tools && r.cut.is_empty());
        // "empty-args"
        let r = reply(vec![Say::Call("call_1", "list", if dialect == Dialect::Gemini { "{}" } else { "" })], End::Done)
            .await;
        assert_eq!(inputs(&r), [("call_1", "list", "{}")]);
    }
    // "length-mid-args", "length-renamed-tool_calls": Gemini gives calls whole.
    let cut = |end| {
        let body = script(Dialect::Responses, &[Say::Call("call_1", "write", r#"{"path":"a"#)], end);
        async move { play(Dialect::Responses, &body).await.0.unwrap() }
    };
    let r = cut(End::Length).await;
    assert_eq!((r.stop, r.cut.len(), r.message.parts.len()), (Stop::Length, 1, 1));
    assert!(r.cut[0].0 == "call_1" && r.cut[0].1.contains("output limit"), "{:?}", r.cut);
    let r = cut(End::Done).await;
    assert!(r.stop == Stop::Tools && r.cut[0].1.contains("not valid JSON"), "{:?}", r.cut);
}

#[tokio::test]
async fn silence_ends_at_the_idle_limit_and_pings_are_silence() {
    for dialect in NEWER {
        // "idle-after-first-byte"
        let text = script(dialect, &[Say::Text("x")], End::Never);
        let (result, kept) = play_with(dialect, steps(&[&text], Some(Step::Hang)), Duration::from_millis(200)).await;
        let f = result.unwrap_err();
        assert_eq!((f.kind, f.partial.is_some(), kept.text().as_str()), (FailureKind::Idle, true, "x"));
        // "pings-only-forever"
        let ping = match dialect {
            Dialect::Responses => "event: keepalive\ndata: {\"type\":\"keepalive\",\"sequence_number\":3}\n\n",
            _ => ": ping\n\n",
        };
        let pings = steps(&[], Some(Step::Repeat(ping.as_bytes().to_vec(), 20)));
        let f = play_with(dialect, pings, Duration::from_millis(300)).await.0.unwrap_err();
        assert!(f.kind == FailureKind::Idle && f.partial.is_none() && retry_delay(2, &f, 0.0).is_some(), "{f:?}");
        // A connection that stays open once the reason is there is no loss.
        let whole = script(dialect, &[Say::Text("whole")], End::Done);
        let answer = steps(&[&whole], Some(Step::Hang));
        let reply = play_with(dialect, answer, Duration::from_millis(200)).await.0.unwrap();
        assert_eq!(reply.message.joined_text(), "whole");
    }
}

#[tokio::test]
async fn statuses_become_the_same_kinds_in_every_dialect() {
    // "429-retry-after-seconds", "429-retry-after-date", "429-retry-after-huge", "429-retry-after-garbage",
    // "529", "500-html", "overflow-"
    let plain = cases().into_iter().filter(|c| c["status"] != 200);
    for case in plain {
        let mut seen: Vec<(FailureKind, bool)> = Vec::new();
        for dialect in Dialect::ALL {
            let f = failure_of(dialect, Answer::of_case(&case)).await;
            seen.push((f.kind.clone(), retry_delay(2, &f, 0.0).is_some()));
        }
        assert!(seen.windows(2).all(|w| w[0] == w[1]), "{}: {seen:?}", case["id"]);
    }
}

#[test]
fn every_kind_of_trouble_is_said_here_too() {
    let here = include_str!("stream_dialect_tests.rs");
    for case in cases() {
        let id = case["id"].as_str().unwrap();
        let id = if id.starts_with("overflow-") { "overflow-" } else { id };
        assert!(here.contains(&format!("\"{id}\"")), "nothing here is of the kind {id}");
    }
}
