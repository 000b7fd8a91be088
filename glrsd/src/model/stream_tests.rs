//! Every stream case of the fixtures, played by a loopback server.

use super::testing::{Answer, Kept, Server, Step, ask, call, case, cases, history};
use super::{Chunk, Failure, FailureKind, Models, Reply, Stop, retry_delay};
use crate::config::{Config, ProviderConfig};
use crate::host::Env;
use glrs_protocol::message::Part;
use serde_json::json;
use std::time::Duration;
use tokio::time::{Instant, timeout};
use tokio_util::sync::CancellationToken;

const KEY: &str = "sk-secret-0123456789";

fn models(server: &Server, anthropic: bool) -> Models {
    let mut config = Config::default();
    let provider = ProviderConfig { api: Some(server.api()), ..Default::default() };
    config.providers.insert(if anthropic { "anthropic" } else { "openai" }.into(), provider);
    Models::new(&config)
}

fn env() -> Env {
    let mut env = Env::default();
    env.set("OPENAI_API_KEY", KEY);
    env.set("ANTHROPIC_API_KEY", KEY);
    env
}

fn name(anthropic: bool) -> &'static str {
    if anthropic { "anthropic/claude-sonnet-5-5" } else { "openai/gpt-5" }
}

/// Plays one answer with an idle limit; answers result and what streamed.
async fn play_with(answer: Answer, anthropic: bool, idle: Duration) -> (Result<Reply, Failure>, Kept) {
    let server = Server::start(vec![answer]).await;
    let mut call = ask("hello");
    call.idle = idle;
    call.env = env().into();
    let model = models(&server, anthropic).resolve(name(anthropic), &call.env).unwrap();
    let mut kept = Kept::default();
    let result = timeout(Duration::from_secs(60), model.call(&call, &mut kept, &CancellationToken::new())).await;
    let result = result.expect("a call always ends");
    if let Err(f) = &result {
        assert!(!f.message.contains(KEY) && !f.message.contains('<') && !f.message.contains('\n'), "{}", f.message);
        assert!(f.message.chars().count() < 500, "{}", f.message);
    }
    (result, kept)
}

async fn play(id: &str) -> (Result<Reply, Failure>, Kept) {
    let case = case(id);
    play_with(Answer::of_case(&case), case["api"] == "anthropic", Duration::from_secs(20)).await
}

async fn text_of(id: &str) -> String {
    let (result, kept) = play(id).await;
    let reply = result.unwrap_or_else(|f| panic!("{id}: {f:?}"));
    assert_eq!(reply.stop, Stop::End, "{id}");
    assert_eq!(kept.0.first(), Some(&Chunk::Open), "{id}");
    let text = reply.message.joined_text();
    assert_eq!(text, kept.text(), "{id}: what streamed is what is kept");
    text
}

async fn failure_of(id: &str) -> Failure {
    play(id).await.0.err().unwrap_or_else(|| panic!("{id} is no success"))
}

fn inputs(reply: &Reply) -> Vec<(String, String, String)> {
    reply
        .message
        .parts
        .iter()
        .filter_map(|p| match p {
            Part::ToolCall { id, name, input, .. } => Some((id.clone(), name.clone(), input.get().to_owned())),
            _ => None,
        })
        .collect()
}

#[tokio::test]
async fn framing_does_not_change_the_text() {
    let same = [
        "split-every-byte",
        "crlf",
        "crlf-split-between-cr-and-lf",
        "cr-only",
        "no-space-after-data",
        "comments-and-blank",
    ];
    for id in same {
        assert_eq!(text_of(id).await, "Hé漢😀!", "{id}");
    }
    assert_eq!(text_of("multi-line-data").await, "two lines");
    assert_eq!(text_of("no-done-but-finish").await, "fin");
    assert_eq!(text_of("choices-null").await, "x");
    assert_eq!(text_of("finish-in-same-chunk-then-more").await, "AB");
    assert_eq!(text_of("200-json-not-sse").await, "not streamed");
    assert_eq!(text_of("anthropic-cut-inside-message_stop").await, "Hello");
    assert_eq!(text_of("anthropic-unknown-event-and-block").await, "Hello");
    assert_eq!(text_of("huge-event").await.len(), 3_000_000);
}

#[tokio::test]
async fn usage_is_the_last_report() {
    for (id, input, output) in [
        ("empty-choices-first-and-last", 10, 5),
        ("usage-in-every-chunk", 100, 5),
        ("200-json-not-sse", 1, 1),
        ("anthropic-cut-inside-message_stop", 25, 7),
    ] {
        let tokens = play(id).await.0.unwrap().tokens.unwrap();
        assert_eq!((tokens.input, tokens.output), (input, output), "{id}");
        assert!(tokens.cost.is_some(), "{id}");
    }
}

#[tokio::test]
async fn a_stream_without_a_reason_to_stop_is_no_success() {
    let f = failure_of("eof-mid-text").await;
    assert_eq!(f.kind, FailureKind::Incomplete);
    assert_eq!(f.partial.as_ref().map(|m| m.joined_text()).as_deref(), Some("half an ans"));
    assert_eq!(retry_delay(2, &f, 0.0), None, "text was shown");

    for id in ["eof-before-anything", "200-empty-body"] {
        let f = failure_of(id).await;
        assert_eq!((f.kind.clone(), f.partial.is_none()), (FailureKind::Incomplete, true), "{id}");
        let tries: Vec<bool> = (2..7).map(|n| retry_delay(n, &f, 0.5).is_some()).collect();
        assert_eq!(tries, [true, true, true, false, false], "{id}: bounded");
    }

    let f = failure_of("rst-mid-tool-args").await;
    assert_eq!((f.kind, f.partial.is_none()), (FailureKind::Network, true));

    let f = failure_of("anthropic-cut-after-text").await;
    assert_eq!((f.kind, f.partial.is_some(), f.tokens.map(|t| t.input)), (FailureKind::Incomplete, true, Some(25)));
}

#[tokio::test]
async fn errors_inside_a_stream() {
    let f = failure_of("error-in-200-empty-choices").await;
    assert_eq!(f.kind, FailureKind::Server);
    assert!(f.message.contains("overloaded") && retry_delay(2, &f, 0.0).is_some(), "{}", f.message);
    assert_eq!(failure_of("error-nonstandard-shape").await.kind, FailureKind::Overflow);
    let f = failure_of("anthropic-overloaded-mid-stream").await;
    assert_eq!(
        (f.kind.clone(), f.partial.as_ref().map(|m| m.joined_text())),
        (FailureKind::Server, Some("Hello".into()))
    );
    assert_eq!(retry_delay(2, &f, 0.0), None);
    let f = failure_of("anthropic-overloaded-before-content").await;
    assert!(f.kind == FailureKind::Server && retry_delay(2, &f, 0.0).is_some(), "{f:?}");
}

#[tokio::test]
async fn tool_calls_are_put_together_or_marked() {
    let reply = play("dup-tool-ids").await.0.unwrap();
    let calls = inputs(&reply);
    assert_eq!(calls.iter().map(|c| c.2.as_str()).collect::<Vec<_>>(), [r#"{"path":"A.txt"}"#, r#"{"path":"B.txt"}"#]);
    assert_ne!(calls[0].0, calls[1].0);
    assert_eq!((reply.stop, reply.cut.len()), (Stop::Tools, 0));

    let reply = play("empty-args").await.0.unwrap();
    assert_eq!(inputs(&reply), [("call_1".into(), "list".into(), "{}".into())]);

    let reply = play("length-mid-args").await.0.unwrap();
    assert_eq!((reply.stop, reply.cut.len()), (Stop::Length, 1));
    assert!(reply.cut[0].0 == "call_1" && reply.cut[0].1.contains("output limit"), "{:?}", reply.cut);
    assert_eq!(reply.message.parts.len(), 1);

    let reply = play("length-renamed-tool_calls").await.0.unwrap();
    assert_eq!((reply.stop, reply.cut.len()), (Stop::Tools, 1));
    assert!(reply.cut[0].1.contains("not valid JSON"), "{:?}", reply.cut);
}

#[tokio::test]
async fn silence_ends_at_the_idle_limit_and_pings_are_silence() {
    let answer = Answer::of_case(&case("idle-after-first-byte"));
    let (result, kept) = play_with(answer, false, Duration::from_millis(200)).await;
    let f = result.unwrap_err();
    assert_eq!((f.kind, kept.text().is_empty()), (FailureKind::Idle, f.partial.is_none()));

    // The fixture pings each second; here the same pings come faster than a shorter limit.
    let mut answer = Answer::of_case(&case("pings-only-forever"));
    answer.steps.truncate(2);
    let Some(Step::Bytes(ping)) = answer.steps.pop() else { panic!("a ping") };
    answer.steps.push(Step::Repeat(ping, 20));
    let (result, _) = play_with(answer, true, Duration::from_millis(400)).await;
    let f = result.unwrap_err();
    assert!(f.kind == FailureKind::Idle && f.partial.is_none() && retry_delay(2, &f, 0.0).is_some(), "{f:?}");

    let nothing = Answer { steps: vec![Step::Hang], ..Answer::stream("") };
    assert_eq!(play_with(nothing, false, Duration::from_millis(100)).await.0.unwrap_err().kind, FailureKind::Idle);
}

#[tokio::test]
async fn a_stream_that_does_not_end_after_its_reason_is_complete() {
    let body = "data: {\"choices\":[{\"delta\":{\"content\":\"x\"},\"finish_reason\":\"stop\"}]}\n\n";
    let mut answer = Answer::stream(body);
    answer.steps.push(Step::Hang);
    let (result, _) = play_with(answer, false, Duration::from_millis(200)).await;
    assert_eq!(result.unwrap().message.joined_text(), "x");
}

#[tokio::test]
async fn statuses_become_kinds_and_waits() {
    let f = failure_of("429-retry-after-seconds").await;
    assert_eq!((f.kind.clone(), f.status), (FailureKind::Rate, Some(429)));
    assert!(retry_delay(2, &f, 0.0).unwrap() >= Duration::from_secs(3));

    let f = failure_of("429-retry-after-date").await;
    assert!(f.retry_after.unwrap() > Duration::from_secs(365 * 86_400) && retry_delay(2, &f, 0.0).is_none());
    assert!(f.message.contains("days"), "{}", f.message);

    let f = failure_of("429-retry-after-huge").await;
    assert!(retry_delay(2, &f, 0.0).is_none() && f.message.contains("24 h"), "{}", f.message);

    let f = failure_of("429-retry-after-garbage").await;
    assert_eq!(f.retry_after, None);
    assert!(retry_delay(2, &f, 0.0).unwrap() < Duration::from_secs(2));

    let f = failure_of("529").await;
    assert!(f.kind == FailureKind::Server && retry_delay(2, &f, 0.0).is_some());
    let f = failure_of("500-html").await;
    assert_eq!((f.kind, f.message.as_str()), (FailureKind::Server, "openai has a problem (HTTP 502)"));
    for n in 0..5 {
        let f = failure_of(&format!("overflow-{n}")).await;
        assert_eq!(f.kind, FailureKind::Overflow, "overflow-{n}");
        assert_eq!(retry_delay(2, &f, 0.0), None);
    }
}

#[test]
fn every_case_is_played() {
    let here = include_str!("stream_tests.rs");
    for case in cases() {
        let id = case["id"].as_str().unwrap();
        let played = here.contains(&format!("\"{id}\"")) || id.starts_with("overflow-");
        assert!(played, "no test plays {id}");
    }
}

#[tokio::test]
async fn a_wrong_key_names_its_variable_and_is_not_repeated() {
    let body = format!(r#"{{"error":{{"message":"Incorrect API key provided: {KEY}"}}}}"#);
    let (result, _) = play_with(Answer::typed(401, "application/json", &body), false, Duration::from_secs(9)).await;
    let f = result.unwrap_err();
    assert_eq!(f.kind, FailureKind::Auth);
    assert!(f.message.contains("OPENAI_API_KEY") && !f.message.contains("0123456789"), "{}", f.message);
}

#[tokio::test]
async fn an_error_never_quotes_the_conversation() {
    let body = r#"{"error":{"message":"Invalid value: 'my very private diary entry of today' at messages[1]"}}"#;
    let server = Server::start(vec![Answer::typed(400, "application/json", body)]).await;
    let mut call = ask("Listen: my very private diary entry of today, keep it.");
    call.env = env().into();
    let model = models(&server, false).resolve(name(false), &call.env).unwrap();
    let f = model.call(&call, &mut Kept::default(), &CancellationToken::new()).await.unwrap_err();
    assert_eq!(f.kind, FailureKind::Request);
    assert!(f.message.contains("Invalid value") && !f.message.contains("diary"), "{}", f.message);
}

#[tokio::test]
async fn cancelling_is_immediate_wherever_it_hangs() {
    let text = "data: {\"choices\":[{\"delta\":{\"content\":\"half\"}}]}\n\n";
    let mut after_text = Answer::stream(text);
    after_text.steps.push(Step::Hang);
    let before_text = Answer { steps: vec![Step::Hang], ..Answer::stream("") };
    for (answer, partial) in [(after_text, true), (before_text, false)] {
        let server = Server::start(vec![answer]).await;
        let mut call = ask("hello");
        call.env = env().into();
        let model = models(&server, false).resolve(name(false), &call.env).unwrap();
        let cancel = CancellationToken::new();
        // Cancels from inside the sink, at the chunk after which nothing more comes.
        struct Esc(CancellationToken, bool, Option<Instant>);
        impl super::Sink for Esc {
            fn chunk(&mut self, chunk: Chunk) -> futures_util::future::BoxFuture<'_, ()> {
                if matches!(chunk, Chunk::Text(_)) == self.1 {
                    self.2 = Some(Instant::now());
                    self.0.cancel();
                }
                Box::pin(std::future::ready(()))
            }
        }
        let mut sink = Esc(cancel.clone(), partial, None);
        let f = model.call(&call, &mut sink, &cancel).await.unwrap_err();
        assert!(sink.2.unwrap().elapsed() < Duration::from_millis(200));
        assert_eq!((f.kind.clone(), f.partial.is_some()), (FailureKind::Cancelled, partial));
        assert_eq!(retry_delay(2, &f, 0.0), None);
    }
}

#[tokio::test]
async fn cancelling_does_not_wait_for_a_session_that_is_behind() {
    struct Stuck(CancellationToken);
    impl super::Sink for Stuck {
        fn chunk(&mut self, _: Chunk) -> futures_util::future::BoxFuture<'_, ()> {
            self.0.cancel();
            Box::pin(std::future::pending())
        }
    }
    let server = Server::start(vec![Answer::of_case(&case("crlf"))]).await;
    let mut call = ask("hello");
    call.env = env().into();
    let model = models(&server, false).resolve(name(false), &call.env).unwrap();
    let cancel = CancellationToken::new();
    let result = model.call(&call, &mut Stuck(cancel.clone()), &cancel).await;
    assert_eq!(result.unwrap_err().kind, FailureKind::Cancelled);
}

#[tokio::test]
async fn every_case_is_the_same_byte_by_byte() {
    for case in cases().iter().filter(|c| c["id"] != "huge-event" && c["status"] == 200) {
        let whole = Answer::of_case(case);
        // Resets and hangs depend on when; the others have one outcome.
        if whole.steps.iter().any(|s| !matches!(s, Step::Bytes(_))) || case["id"] == "pings-only-forever" {
            continue;
        }
        let mut bytewise = whole.clone();
        bytewise.steps = Vec::new();
        for step in &whole.steps {
            if let Step::Bytes(bytes) = step {
                bytewise.steps.extend(bytes.iter().map(|b| Step::Bytes(vec![*b])));
            }
        }
        let anthropic = case["api"] == "anthropic";
        let outcome = |(result, kept): (Result<Reply, Failure>, Kept)| match result {
            Ok(r) => {
                (r.message.to_raw().unwrap().get().to_owned(), format!("{:?} {:?}", r.tokens, r.stop), kept.joined())
            }
            Err(f) => (f.message, format!("{:?} {:?}", f.kind, f.tokens), kept.joined()),
        };
        let a = outcome(play_with(whole, anthropic, Duration::from_secs(20)).await);
        let b = outcome(play_with(bytewise, anthropic, Duration::from_secs(20)).await);
        assert_eq!(a, b, "{}", case["id"]);
    }
}

#[tokio::test]
async fn nothing_listening_is_a_network_failure_that_names_the_host() {
    let server = Server::start(vec![Answer::stream("")]).await;
    let models = models(&server, false);
    let api = server.api();
    server.stop().await;
    let mut call = ask("hello");
    call.env = env().into();
    let model = models.resolve(name(false), &call.env).unwrap();
    let f = model.call(&call, &mut Kept::default(), &CancellationToken::new()).await.unwrap_err();
    assert_eq!(f.kind, FailureKind::Network);
    let host = api.trim_start_matches("http://").trim_end_matches("/v1");
    assert!(f.message.contains(host) && !f.message.contains("/v1"), "{}", f.message);
}

#[tokio::test]
async fn a_web_page_and_a_redirect_are_explained() {
    let page = Answer::typed(200, "text/html", "<html>login</html>");
    let f = play_with(page, false, Duration::from_secs(9)).await.0.unwrap_err();
    assert!(f.kind == FailureKind::Protocol && f.message.contains("providers.openai.api"), "{}", f.message);
    let mut moved = Answer::typed(301, "text/plain", "");
    moved.headers.push(("location".into(), "http://127.0.0.1:1/".into()));
    let f = play_with(moved, false, Duration::from_secs(9)).await.0.unwrap_err();
    assert!(f.kind == FailureKind::NotFound && f.message.contains("redirect"), "{}", f.message);
}

#[tokio::test]
async fn headers_carry_the_key_and_the_body_the_history() {
    let done = "data: {\"choices\":[{\"delta\":{\"content\":\"ok\"},\"finish_reason\":\"stop\"}]}\n\ndata: [DONE]\n\n";
    let server = Server::start(vec![Answer::stream(done)]).await;
    let messages = history(
        &json!([{"role": "user", "content": "one"}, {"role": "assistant", "content": "two"}, {"role": "user", "content": "three"}]),
    );
    let mut call = call(&messages);
    call.env = env().into();
    let model = models(&server, false).resolve(name(false), &call.env).unwrap();
    model.call(&call, &mut Kept::default(), &CancellationToken::new()).await.unwrap();
    let (head, body) = server.requests().remove(0);
    assert!(head.starts_with("POST /v1/chat/completions "), "{head}");
    assert!(head.contains(&format!("authorization: Bearer {KEY}")), "{head}");
    assert_eq!(body["messages"].as_array().unwrap().len(), 4);
    assert_eq!((&body["prompt_cache_key"], &body["max_completion_tokens"]), (&json!("conversation-1"), &json!(8_000)));
}

#[test]
fn retries_grow_and_are_bounded() {
    let f = super::errors::failure(FailureKind::Server, "x");
    let at = |n, j| retry_delay(n, &f, j).unwrap().as_millis();
    assert_eq!([at(2, 0.0), at(3, 0.0), at(4, 0.0)], [500, 1_000, 2_000]);
    assert_eq!([at(2, 1.0), at(3, 1.0), at(4, 1.0)], [1_000, 2_000, 4_000]);
    for kind in [
        FailureKind::Auth,
        FailureKind::NotFound,
        FailureKind::Overflow,
        FailureKind::Request,
        FailureKind::Protocol,
        FailureKind::Cancelled,
    ] {
        assert_eq!(retry_delay(2, &Failure { kind, ..f.clone() }, 0.0), None);
    }
}
