//! The rehearsal, through the interface every model has.

use super::{HELP, MODEL, Rehearsal};
use crate::model::testing::{Kept, ask, call, history};
use crate::model::{Call, Chunk, Failure, FailureKind, Model, Reply, Stop};
use crate::tools::ToolSpec;
use glrs_protocol::message::{Message, Output, Part, Role};
use serde_json::json;
use serde_json::value::RawValue;
use std::sync::Arc;
use tokio_util::sync::CancellationToken;

async fn run(call: &Call) -> (Result<Reply, Failure>, Kept) {
    let mut kept = Kept::default();
    let result = Rehearsal::new().call(call, &mut kept, &CancellationToken::new()).await;
    (result, kept)
}

/// Name and input of the call it makes.
fn called(reply: &Reply) -> Option<(String, String)> {
    reply.message.parts.iter().find_map(|p| match p {
        Part::ToolCall { name, input, .. } => Some((name.clone(), input.get().to_owned())),
        _ => None,
    })
}

/// Plays a whole turn: each call gets `output` as its result. Answers the calls and the last text.
async fn turn(text: &str, output: &str) -> (Vec<(String, String)>, String) {
    let mut messages = vec![Message::text(Role::User, text)];
    let mut made = Vec::new();
    for _ in 0..50 {
        let reply = run(&call(&messages)).await.0.unwrap();
        let results: Vec<Part> = reply
            .message
            .parts
            .iter()
            .filter_map(|p| match p {
                Part::ToolCall { id, name, .. } => {
                    Some(Part::ToolResult { id: id.clone(), name: name.clone(), output: Output::Text(output.into()) })
                }
                _ => None,
            })
            .collect();
        let said = reply.message.joined_text();
        assert_eq!(reply.stop == Stop::Tools, !results.is_empty());
        made.extend(called(&reply));
        messages.push(reply.message);
        if results.is_empty() {
            let ids: Vec<&str> = messages.iter().flat_map(Message::call_ids).collect();
            let unique: std::collections::HashSet<&&str> = ids.iter().collect();
            assert_eq!(ids.len(), unique.len());
            return (made, said);
        }
        messages.push(Message { role: Role::Tool, parts: results });
    }
    panic!("a turn ends");
}

#[tokio::test]
async fn each_request_calls_its_tool() {
    for (text, name, input) in [
        ("read src/main.rs", "read", json!({"path": "src/main.rs"})),
        ("Write notes.txt hello there", "write", json!({"path": "notes.txt", "content": "hello there"})),
        ("edit a.rs old words => new words", "edit", json!({"path": "a.rs", "old": "old words", "new": "new words"})),
        ("run ls -l | wc", "bash", json!({"command": "ls -l | wc"})),
        ("grep fn main", "grep", json!({"pattern": "fn main"})),
        ("glob **/*.rs", "glob", json!({"pattern": "**/*.rs"})),
        ("ask which one?", "ask", json!({"question": "which one?"})),
        (
            "plan look; write; test",
            "plan",
            json!({"items": [{"text": "look", "status": "pending"}, {"text": "write", "status": "pending"}, {"text": "test", "status": "pending"}]}),
        ),
    ] {
        let (made, said) = turn(text, "first line\nsecond line\nthird\n").await;
        assert_eq!(made, [(name.to_owned(), input.to_string())], "{text}");
        assert_eq!(said, format!("{name} gave: first line / second line (and 1 more lines)"));
    }
}

#[tokio::test]
async fn several_requests_are_steps_one_after_another() {
    let (made, said) = turn("read a\nrun b; then say 2 words; then glob c", "").await;
    assert_eq!(made.iter().map(|c| c.0.as_str()).collect::<Vec<_>>(), ["read", "bash", "glob"]);
    assert_eq!(said, "glob gave nothing.");
    assert_eq!(turn("steps 7", "x").await.0.len(), 7);
}

#[tokio::test]
async fn words_stream_one_by_one_and_the_same_each_time() {
    let (reply, kept) = run(&ask("say 3 words")).await;
    assert_eq!(reply.unwrap().message.joined_text(), "word1 word2 word3");
    assert_eq!(
        kept.0,
        [Chunk::Open, Chunk::Text("word1 ".into()), Chunk::Text("word2 ".into()), Chunk::Text("word3".into())]
    );
    let (reply, kept) = run(&ask("think 2 words")).await;
    assert_eq!((kept.reasoning().as_str(), kept.text().as_str()), ("thought1 thought2", "Thought it over."));
    assert!(
        matches!(&reply.unwrap().message.parts[0], Part::Reasoning { text, opts: None } if text == "thought1 thought2")
    );
    let again = run(&ask("read x")).await.0.unwrap().message.to_raw().unwrap();
    assert_eq!(again.get(), run(&ask("read x")).await.0.unwrap().message.to_raw().unwrap().get());
}

#[tokio::test(start_paused = true)]
async fn slow_words_take_their_time_and_stop_at_once() {
    let begun = tokio::time::Instant::now();
    run(&ask("slow 11 words")).await.0.unwrap();
    assert_eq!(begun.elapsed().as_millis(), 200);

    let cancel = CancellationToken::new();
    let (call, mut kept, model) = (ask("slow 1000000 words"), Kept::default(), Rehearsal::new());
    let (result, ()) = tokio::join!(model.call(&call, &mut kept, &cancel), async {
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
        cancel.cancel();
    });
    let f = result.unwrap_err();
    assert_eq!((f.kind, f.partial.map(|m| m.joined_text())), (FailureKind::Cancelled, Some(kept.text())));
}

#[tokio::test]
async fn what_glrs_adds_is_not_the_request() {
    let messages = history(&json!([
        {"role": "user", "content": "say 1 words\n<context>\ncwd: /x\n</context>\nfail"},
        {"role": "user", "content": "[vitals] 14:02"},
        {"role": "user", "content": "<context>\nmore\n</context>"}
    ]));
    assert_eq!(run(&call(&messages)).await.0.unwrap().message.joined_text(), "word1");
}

#[tokio::test]
async fn anything_else_gets_to_know_what_it_is() {
    for text in ["hello", "read the manual, please", "", "say words"] {
        let said = run(&ask(text)).await.0.unwrap().message.joined_text();
        assert_eq!(said, HELP, "{text}");
    }
    assert!(HELP.contains("ANTHROPIC_API_KEY") && HELP.contains("Ollama"));
    assert_eq!(Rehearsal::new().row().model, MODEL);
}

#[tokio::test]
async fn limits_are_honoured() {
    let f = run(&ask("say 2 words; then fail")).await.0.unwrap_err();
    assert_eq!((f.kind, f.partial.unwrap().joined_text().as_str()), (FailureKind::Server, "word1 word2"));
    let mut last = ask("read x");
    last.force_text = true;
    let reply = run(&last).await.0.unwrap();
    assert_eq!((called(&reply), reply.stop), (None, Stop::End));
    let mut none = ask("read x");
    none.tools = Vec::new().into();
    assert!(called(&run(&none).await.0.unwrap()).is_none());
    let mut short = ask("say 1000 words");
    short.max_output = Some(10);
    let reply = run(&short).await.0.unwrap();
    assert!(reply.stop == Stop::Length && reply.message.joined_text().len() <= 40);
}

#[tokio::test]
async fn usage_counts_the_previous_prefix_as_cached() {
    let first = call(&[Message::text(Role::User, "x".repeat(384))]);
    let (system, t) = (first.system.len() as u64, run(&first).await.0.unwrap().tokens.unwrap());
    assert_eq!((t.input, t.cached, t.cost), ((system + 400) / 4, 0, Some(0.0)));
    let mut messages: Vec<Message> = first.messages.iter().map(|m| Message::clone(m)).collect();
    messages.push(Message::text(Role::Assistant, "ok"));
    messages.push(Message::text(Role::User, "more"));
    assert_eq!(run(&call(&messages)).await.0.unwrap().tokens.unwrap().cached, t.input);
}

#[tokio::test]
async fn an_edit_is_shaped_as_the_tool_wants_it() {
    let schema = r#"{"type":"object","properties":{"path":{},"edits":{"type":"array"}}}"#;
    let schema = RawValue::from_string(schema.into()).unwrap();
    let mut edit = ask("edit a b => c");
    edit.tools = Arc::from(vec![ToolSpec { name: "edit".into(), description: String::new(), schema }]);
    let made = called(&run(&edit).await.0.unwrap()).unwrap();
    assert_eq!(made.1, r#"{"path":"a","edits":[{"old":"b","new":"c"}]}"#);
}

#[tokio::test]
async fn a_compaction_gets_a_brief() {
    let mut brief = ask("read the plan\nand more");
    brief.system = "Write a brief.".into();
    brief.tools = Vec::new().into();
    let said = run(&brief).await.0.unwrap().message.joined_text();
    assert_eq!(said, "Rehearsed conversation\n\nThe user asked:\n- read the plan");
}
