//! Compaction from outside: when it starts, what it holds, how it lands and how it fails.
//!
//! Every test counts the requests that reach the provider: none more than the rules allow.

use crate::{KEY, Scene, home};
use glrs_tests::fakes::Recorded;
use glrs_tests::fakes::reply::Figures;
use glrs_tests::{Dialect, Fake, Gate, Reply, Value, View, check, json};
use std::fs;

/// What the strict fake's model answers when it writes a brief.
pub(crate) const BRIEF: &str = "Fixed the **parser**.\n\nThe user asked for a parser; src/parse.rs has it.";
/// The exact words of a turn that stops to make room.
const STOPPED: &str = "(compacting to make room: send \"continue\" to resume)";

/// Figures that put the context at `tokens`.
pub(crate) fn used(tokens: u64) -> Figures {
    Figures { input: tokens - 10, output: 10, cache_read: 0, cache_write: 0 }
}

/// A scene whose model `m` has a window of 20,000 tokens: line 15,000, 7,500 stay at least.
pub(crate) fn scene(more: Value) -> Scene {
    let mut home = home();
    let fake = Fake::start(Dialect::Anthropic);
    home.set_env("FAKE_KEY", KEY);
    home.config(&config(&fake, more));
    let daemon = home.daemon();
    let wire = home.wire("ann");
    let id = wire.new_session(&home, json!({"mode": "all"}));
    Scene { id, wire, fake, daemon, home }
}

/// The configuration of such a scene.
pub(crate) fn config(fake: &Fake, more: Value) -> Value {
    let mut config = fake.config();
    config["providers"]["fake"]["models"]["m"]["metadata"] =
        json!({"name": "Small", "context": 20_000, "output": 1_000});
    if let (Value::Object(to), Value::Object(from)) = (&mut config, more) {
        to.extend(from);
    }
    config
}

/// An answer of some 4,000 tokens.
pub(crate) fn long(name: &str) -> Reply {
    Reply::say(&format!("{name} {}", "x".repeat(16_000)))
}

/// `n` turns of some 4,000 tokens each, none of them past the line.
pub(crate) fn talk(s: &Scene, n: usize) {
    for i in 0..n {
        s.fake.reply(long(&format!("answer-{i}")));
        s.wire.turn(&s.id, &format!("question-{i}"));
    }
}

/// All text of a message.
pub(crate) fn text(message: &Value) -> String {
    match &message["content"] {
        Value::String(t) => t.clone(),
        Value::Array(parts) => {
            parts.iter().map(|p| p["text"].as_str().or(p["content"].as_str()).unwrap_or_default()).collect()
        }
        _ => String::new(),
    }
}

/// All text of a request's messages.
pub(crate) fn all(request: &Recorded) -> String {
    request.messages().iter().map(Value::to_string).collect()
}

/// Whether a request's body asks for a brief.
pub(crate) fn is_brief(body: &Value) -> bool {
    body["system"].to_string().contains("You write the brief")
}

/// How many requests asked for a brief.
pub(crate) fn briefs(fake: &Fake) -> usize {
    fake.requests().iter().filter(|r| is_brief(&r.body)).count()
}

/// Whether nothing runs, waits or is being written.
pub(crate) fn done(v: &View) -> bool {
    v.quiet() && v.compaction["state"] != "writing" && v.compaction["state"] != "ready"
}

/// What `/compact` answers.
pub(crate) fn compact(s: &Scene) -> Result<Value, Value> {
    s.wire.call("session/compact", s.with(json!({})))
}

#[track_caller]
pub(crate) fn starts_with_brief(request: &Recorded, brief: &str) {
    let first = text(&request.messages()[0]);
    let open =
        format!("<earlier-conversation>\n{brief}\n</earlier-conversation>\n\nThe conversation above was compacted");
    assert!(first.starts_with(&open), "{:.300}", first);
}

/// Past the line on the last step; the brief waits at the gate.
fn idle_writing(s: &Scene) -> Gate {
    talk(s, 3);
    let gate = Gate::new();
    s.fake.reply(Reply::say("answer-3").usage(used(15_500)));
    s.fake.reply(Reply::say(BRIEF).held_back(&gate));
    s.wire.send(&s.id, "question-3");
    gate.wait_reached();
    let writing = |v: &View| v.compaction["state"] == "writing" && v.state_name() == "idle";
    let view = s.wire.wait_view(&s.id, "a brief is being written at idle", writing);
    assert_eq!(view.compaction["gate"], true, "{}", view.compaction);
    gate
}

#[test]
fn at_idle_it_holds_the_queue_and_what_was_typed_runs_on_the_compacted_history() {
    let s = scene(json!({}));
    let gate = idle_writing(&s);
    assert_eq!(s.wire.view(&s.id).usage["line"], 15_000);
    assert_eq!(s.wire.send(&s.id, "typed meanwhile")["outcome"], "queued");
    assert_eq!(s.fake.count(), 5);
    s.fake.reply(Reply::say("typed-answer"));
    gate.open();
    let view = s.wire.wait_view(&s.id, "the typed message ran", |v| done(v) && v.texts("user").len() == 5);
    let said = "(compacted: 2 messages summarised, 6 kept, from 15500 tokens)";
    assert!(view.texts("notice").contains(&said), "{:?}", view.texts("notice"));
    assert!(!view.texts("notice").contains(&STOPPED));
    let requests = s.fake.requests();
    assert_eq!(requests.len(), 6);
    starts_with_brief(&requests[5], BRIEF);
    let sent = all(&requests[5]);
    assert!(!sent.contains("question-0") && sent.contains("question-1") && sent.contains("typed meanwhile"));
    let brief = &requests[4].body;
    assert!(is_brief(brief) && brief.get("tools").is_none() && brief.get("tool_choice").is_none(), "{brief}");
    assert!(brief.get("thinking").is_none() && brief["max_tokens"].as_u64().is_some_and(|t| t <= 4_000));
    assert!(all(&requests[4]).contains("question-0") && !all(&requests[4]).contains("question-1"));
    assert_eq!(view.of_type("compacted")[0]["summary"], BRIEF);
    s.fake.assert_clean();
    check::check_session(&s.home.log(&s.id)).clean();
}

#[test]
fn esc_abandons_the_brief_and_holds_what_waits() {
    let s = scene(json!({}));
    let _gate = idle_writing(&s);
    s.wire.send(&s.id, "typed");
    assert_eq!(s.wire.ok("session/interrupt", s.with(json!({})))["outcome"], "held");
    s.fake.wait_aborted(5);
    let view = s.wire.wait_view(&s.id, "held", |v| v.state_name() == "held" && v.compaction["state"] == "none");
    assert!(view.of_type("compacted").is_empty() && view.waiting() == ["typed"]);
    s.fake.answer_by(|_| Reply::say("ok"));
    s.wire.send(&s.id, "more");
    let view = s.wire.wait_view(&s.id, "both ran", |v| done(v) && v.texts("user").len() == 6);
    assert!(view.of_type("compacted").is_empty());
    assert_eq!((s.fake.count(), briefs(&s.fake)), (7, 1));
    assert!(text(&s.fake.requests()[6].messages()[0]).starts_with("question-0"));
    s.fake.assert_clean();
}

#[test]
fn before_a_turn_and_never_by_merely_looking() {
    let mut s = scene(json!({"compactAt": 0}));
    talk(&s, 3);
    s.fake.reply(Reply::say("answer-3").usage(used(15_500)));
    s.wire.turn(&s.id, "question-3");
    s.daemon.kill9();
    s.home.config(&config(&s.fake, json!({})));
    s.daemon = s.home.daemon();
    s.wire = s.home.wire("ann");
    s.wire.attach(&s.id, json!({"env": s.home.env()}));
    s.wire.ok("session/release", s.with(json!({})));
    let log = fs::read(s.home.log(&s.id)).unwrap();
    assert_eq!(s.fake.count(), 4, "looking at a session costs nothing");
    s.fake.reply(Reply::say(BRIEF));
    s.fake.reply(Reply::say("answer-4"));
    s.wire.send(&s.id, "question-4");
    s.wire.wait_view(&s.id, "the turn", |v| done(v) && v.texts("user").len() == 5);
    assert!(fs::read(s.home.log(&s.id)).unwrap().len() > log.len());
    let requests = s.fake.requests();
    assert!(requests.len() == 6 && is_brief(&requests[4].body));
    starts_with_brief(&requests[5], BRIEF);
    s.fake.assert_clean();
}

#[test]
fn mid_turn_it_writes_beside_the_turn_which_stops_at_its_next_step() {
    let s = scene(json!({}));
    fs::write(s.home.file("a.txt"), "content of a").unwrap();
    talk(&s, 3);
    let gate = Gate::new();
    s.fake.reply(Reply::call("read", json!({"path": "a.txt"})).usage(used(15_500)));
    s.fake.reply(Reply::say(BRIEF).held_back(&gate));
    s.wire.send(&s.id, "the running request");
    let stopped = |v: &View| v.state_name() == "idle" && v.texts("notice").contains(&STOPPED);
    let view = s.wire.wait_view(&s.id, "the turn stops", stopped);
    assert_eq!((view.last_status(), &view.compaction["state"]), ("context", &json!("writing")));
    assert!(view.of_type("tool")[0]["ok"] == true);
    assert_eq!(s.wire.send(&s.id, "continue")["outcome"], "queued");
    s.fake.reply(Reply::say("resumed"));
    gate.open();
    let view = s.wire.wait_view(&s.id, "the rest", |v| done(v) && v.texts("user").len() == 5);
    assert_eq!(view.last_status(), "done");
    let last = s.fake.requests().pop().unwrap();
    starts_with_brief(&last, BRIEF);
    let sent = all(&last);
    assert!(sent.contains("the running request") && sent.contains("content of a") && sent.contains("continue"));
    assert_eq!((s.fake.count(), briefs(&s.fake)), (6, 1));
    s.fake.assert_clean();
    check::check_session(&s.home.log(&s.id)).clean();
}

#[test]
fn esc_beside_a_brief_stops_the_turn_only() {
    let s = scene(json!({}));
    talk(&s, 3);
    let gate = Gate::new();
    s.fake.reply(Reply::call("ask", json!({"question": "which?"})).usage(used(15_500)));
    s.fake.reply(Reply::say(BRIEF).held_back(&gate));
    s.wire.send(&s.id, "go");
    gate.wait_reached();
    s.wire.wait_view(&s.id, "asking", |v| !v.requests.is_empty() && v.compaction["state"] == "writing");
    s.wire.fails("busy", "session/compact", s.with(json!({})));
    s.wire.fails("busy", "session/clear", s.with(json!({})));
    s.wire.ok("session/interrupt", s.with(json!({})));
    let view = s.wire.wait_view(&s.id, "stopped", |v| v.state_name() == "idle");
    assert_eq!((view.last_status(), &view.compaction["state"]), ("interrupted", &json!("writing")));
    gate.open();
    let view = s.wire.wait_view(&s.id, "landed", |v| done(v) && !v.of_type("compacted").is_empty());
    assert!(!view.texts("notice").contains(&STOPPED));
    assert_eq!((s.fake.count(), briefs(&s.fake)), (5, 1));
    s.fake.assert_clean();
}

#[test]
fn a_brief_that_fails_beside_a_turn_does_not_stop_it() {
    let s = scene(json!({}));
    talk(&s, 3);
    s.fake.reply(Reply::call("ask", json!({"question": "which?"})).usage(used(15_500)));
    s.fake.reply(Reply::say(" "));
    s.wire.send(&s.id, "go");
    let failed = |v: &View| v.texts("notice").iter().any(|n| n.starts_with("(compaction failed: "));
    s.wire.wait_view(&s.id, "the brief failed", |v| failed(v) && !v.requests.is_empty());
    s.fake.reply(Reply::say("went on"));
    let card = s.wire.request(&s.id);
    s.wire.ok("request/answer", s.with(json!({"request": card["request"], "decision": "answer", "words": "this"})));
    let view = s.wire.wait_view(&s.id, "the end", done);
    assert_eq!((view.last_status(), view.texts("assistant").last().copied()), ("done", Some("went on")));
    assert_eq!((s.fake.count(), briefs(&s.fake)), (6, 1));
    s.fake.assert_clean();
}

fn overflow() -> Reply {
    let words = "prompt is too long: 20513 tokens > 20000 maximum";
    Reply::error(Dialect::Anthropic, 400, "invalid_request_error", words)
}

#[test]
fn an_overflow_is_answered_once_and_then_named() {
    let s = scene(json!({}));
    talk(&s, 3);
    s.fake.reply(overflow());
    s.fake.reply(Reply::say(BRIEF));
    s.wire.send(&s.id, "one more");
    let view = s.wire.wait_view(&s.id, "landed", |v| done(v) && !v.of_type("compacted").is_empty());
    assert!(view.last_status() == "context" && view.texts("notice").contains(&STOPPED));
    s.fake.reply(overflow());
    let view = s.wire.turn(&s.id, "continue");
    assert_eq!(view.last_status(), "failed");
    assert!(view.texts("error").last().is_some_and(|e| e.contains("too long")), "{:?}", view.texts("error"));
    assert_eq!((s.fake.count(), briefs(&s.fake)), (6, 1));
    starts_with_brief(&s.fake.requests()[5], BRIEF);
    assert!(all(&s.fake.requests()[5]).contains("one more"));
    s.fake.assert_clean();
}

#[test]
fn a_first_message_that_is_too_long_is_said_to_be() {
    let s = scene(json!({}));
    s.fake.reply(overflow());
    s.wire.send(&s.id, "far too long");
    let view = s.wire.wait_view(&s.id, "the end", |v| done(v) && v.last_status() == "context");
    assert!(view.texts("notice").iter().any(|n| n.contains("nothing of it can be summarised")), "{view:#?}");
    assert_eq!(s.fake.count(), 1);
}

#[test]
fn switching_to_a_smaller_window_compacts() {
    let s = scene(json!({}));
    s.wire.ok("session/set", s.with(json!({"model": "fake/n"})));
    talk(&s, 5);
    assert_eq!(briefs(&s.fake), 0);
    s.fake.answer_by(|_| Reply::say(BRIEF));
    s.wire.ok("session/set", s.with(json!({"model": "fake/m"})));
    let view = s.wire.wait_view(&s.id, "landed", |v| done(v) && !v.of_type("compacted").is_empty());
    assert!(view.usage["estimated"] == true && view.usage["line"] == 15_000, "{}", view.usage);
    // What goes is too much for one request to a model of this window: it is sent in two parts.
    assert_eq!((s.fake.count(), briefs(&s.fake)), (7, 2));
    s.fake.assert_clean();
}

#[test]
fn zero_turns_it_off_and_compact_still_works() {
    let s = scene(json!({"compactAt": 0}));
    talk(&s, 3);
    s.fake.reply(Reply::call("read", json!({"path": "none"})).usage(used(19_000)));
    s.fake.reply(Reply::say("x").usage(used(19_500)));
    let view = s.wire.turn(&s.id, "go");
    assert_eq!((view.last_status(), &view.usage["line"]), ("done", &json!(0)));
    s.fake.reply(overflow());
    let view = s.wire.turn(&s.id, "more");
    assert!(view.last_status() == "failed" && view.texts("error").last().is_some_and(|e| e.contains("too long")));
    assert_eq!((s.fake.count(), briefs(&s.fake)), (6, 0));
    s.fake.answer_by(|_| Reply::say(BRIEF));
    assert_eq!(compact(&s).unwrap()["outcome"], "compacted");
    // Too much for one request to a model of this window: it is sent in two parts.
    assert_eq!((s.fake.count(), briefs(&s.fake)), (8, 2));
    s.fake.assert_clean();
}

#[test]
fn the_window_that_is_planned_with_is_the_smaller_one() {
    let s = scene(json!({"compactWindow": 12_000}));
    // 75 % of it, while the context shown stays the model's own.
    talk(&s, 3);
    let usage = s.wire.view(&s.id).usage;
    assert_eq!((&usage["line"], &usage["window"]), (&json!(9_000), &json!(20_000)));
    s.fake.reply(Reply::say("x").usage(used(9_000)));
    s.wire.turn(&s.id, "on the line");
    assert_eq!(briefs(&s.fake), 0);
    s.fake.reply(Reply::say("x").usage(used(9_001)));
    s.fake.reply(Reply::say(BRIEF));
    s.wire.send(&s.id, "past it");
    s.wire.wait_view(&s.id, "landed", |v| done(v) && !v.of_type("compacted").is_empty());
    assert_eq!((s.fake.count(), briefs(&s.fake)), (6, 1));
    s.fake.assert_clean();
}

#[test]
fn a_person_compacts_with_and_without_words_twice_and_with_nothing_to_do() {
    let s = scene(json!({}));
    assert_eq!(compact(&s).unwrap()["notice"], "(nothing worth compacting yet)");
    s.fake.answer_by(|b| Reply::say(if is_brief(b) { BRIEF } else { "short" }));
    s.wire.turn(&s.id, "one");
    assert_eq!(compact(&s).unwrap()["outcome"], "nothing");
    s.wire.turn(&s.id, "two");
    s.wire.turn(&s.id, "three");
    assert_eq!(s.fake.count(), 3);
    let words = s.with(json!({"instruction": "keep the port number", "key": "c1"}));
    let first = s.wire.ok("session/compact", words.clone());
    assert_eq!(
        first["notice"].as_str().map(|n| n.starts_with("(compacted: 2 messages summarised, 4 kept")),
        Some(true)
    );
    assert!(all(&s.fake.requests()[3]).contains("Above all: keep the port number"));
    // The same call again is the same call.
    assert_eq!(s.wire.ok("session/compact", words)["outcome"], "compacted");
    s.wire.fails("conflict", "session/compact", s.with(json!({"key": "c1"})));
    // Two turns were kept; asked again, one of them goes as well, and then there is nothing left.
    assert_eq!(compact(&s).unwrap()["outcome"], "compacted");
    assert!(all(&s.fake.requests()[4]).contains("earlier-conversation"), "the second brief builds on the first");
    assert_eq!(compact(&s).unwrap()["outcome"], "nothing");
    s.wire.turn(&s.id, "four");
    s.wire.turn(&s.id, "five");
    assert_eq!((s.fake.count(), briefs(&s.fake)), (7, 2));
    let sent = all(&s.fake.requests()[6]);
    assert_eq!(sent.matches("<earlier-conversation>").count(), 1);
    s.fake.assert_clean();
    check::check_session(&s.home.log(&s.id)).clean();
}

#[test]
fn two_clients_at_once_are_one_brief_and_one_busy() {
    let s = scene(json!({}));
    s.fake.answer_by(|_| Reply::say("ok"));
    for i in 0..3 {
        s.wire.turn(&s.id, &format!("{i}"));
    }
    let gate = Gate::new();
    s.fake.reply(Reply::say(BRIEF).held_back(&gate));
    let bob = s.join("bob");
    let keyed = s.with(json!({"key": "mine"}));
    let first = s.wire.start("session/compact", keyed.clone());
    gate.wait_reached();
    bob.fails("busy", "session/compact", s.with(json!({})));
    let again = bob.start("session/compact", keyed);
    bob.ok("session/info", s.with(json!({})));
    gate.open();
    assert_eq!(s.wire.reply(first).unwrap()["outcome"], "compacted");
    assert_eq!(bob.reply(again).unwrap()["outcome"], "compacted");
    assert_eq!((s.fake.count(), briefs(&s.fake)), (4, 1));
    let landed = |v: &View| done(v) && v.usage["estimated"] == true;
    let (a, b) = (s.wire.wait_view(&s.id, "landed", landed), bob.wait_view(&s.id, "landed", landed));
    a.same_as(&b).unwrap();
}

#[test]
fn every_kind_of_failure_leaves_the_history_as_it_was() {
    let s = scene(json!({"idleTimeoutMs": 300}));
    talk(&s, 3);
    let error = |status, kind: &str| Reply::error(Dialect::Anthropic, status, kind, "no");
    let kinds = [
        Reply::new(),
        Reply::say(" \n "),
        Reply::new().reasoning("only a thought ", "sig"),
        Reply::say("I will not").stop("refusal"),
        Reply::say("cut short").stop("max_tokens"),
        error(500, "api_error"),
        error(401, "authentication_error"),
        Reply::say("never ends").hang_after(0),
        Reply::say("breaks off ").unfinished(),
        overflow(),
    ];
    let count = kinds.len();
    for reply in kinds {
        let before = s.wire.view(&s.id);
        let asked = s.fake.count();
        s.fake.reply(reply.clone());
        let error = compact(&s).unwrap_err();
        assert!(error["message"].as_str().is_some_and(|m| m.starts_with("(compaction failed: ")), "{error}");
        let view = s.wire.wait_view(&s.id, "the reason", |v| v.last_n() > before.last_n() && done(v));
        let fresh: Vec<&Value> = view.entries.range(before.last_n() + 1..).map(|(_, e)| e).collect();
        assert!(fresh.len() == 1 && fresh[0]["type"] == "notice", "{reply:?}: {fresh:?}");
        assert_eq!(fresh[0]["text"], error["message"]);
        assert_eq!(s.fake.count(), asked + 1, "{reply:?}");
    }
    s.fake.reply(Reply::say("still whole"));
    s.wire.turn(&s.id, "and now");
    let requests = s.fake.requests();
    let sent = all(requests.last().unwrap());
    assert!((0..3).all(|i| sent.contains(&format!("question-{i}")) && sent.contains(&format!("answer-{i}"))));
    s.fake.reply(Reply::say(BRIEF));
    assert_eq!(compact(&s).unwrap()["outcome"], "compacted");
    let last = s.fake.requests().pop().unwrap();
    assert!(!all(&last).contains("compaction failed") && !all(&last).contains("cut short"), "a polluted attempt");
    assert_eq!(s.fake.count(), 3 + count + 2);
    s.fake.assert_clean();
    check::check_session(&s.home.log(&s.id)).clean();
}

#[test]
fn a_failing_summariser_is_not_asked_again_and_again() {
    let s = scene(json!({}));
    talk(&s, 3);
    s.fake.answer_by(|b| if is_brief(b) { Reply::say(" ") } else { Reply::say("ok").usage(used(15_500)) });
    for i in 0..12 {
        s.wire.send(&s.id, &format!("again {i}"));
        s.wire.wait_view(&s.id, "the turn", |v| done(v) && v.texts("user").len() == 4 + i);
    }
    // Failed after answers 1, 2, 4, 8 of twelve, not after each.
    assert_eq!(briefs(&s.fake), 4);
    s.fake.assert_clean();
}

#[test]
fn one_long_turn_is_cut_inside_and_its_request_stays_verbatim() {
    let s = scene(json!({}));
    fs::write(s.home.file("AGENTS.md"), "AGENTS-MARK: be brief").unwrap();
    fs::write(s.home.file("big.txt"), "line of the big file\n".repeat(400)).unwrap();
    for i in 0..9 {
        let tokens = if i == 8 { 15_500 } else { 1_000 + 1_000 * i };
        s.fake.reply(Reply::call("read", json!({"path": "big.txt"})).usage(used(tokens)));
    }
    let gate = Gate::new();
    s.fake.reply(Reply::say(BRIEF).held_back(&gate));
    s.wire.send(&s.id, "the long request");
    s.wire.wait_view(&s.id, "stopped", |v| v.last_status() == "context");
    s.fake.reply(Reply::say("resumed"));
    s.wire.send(&s.id, "continue");
    gate.open();
    let view = s.wire.wait_view(&s.id, "resumed", |v| done(v) && v.last_status() == "done");
    assert_eq!((s.fake.count(), briefs(&s.fake)), (11, 1));
    let last = s.fake.requests().pop().unwrap();
    starts_with_brief(&last, BRIEF);
    let sent = all(&last);
    assert_eq!(sent.matches("the long request").count(), 1);
    assert_eq!(sent.matches("AGENTS-MARK").count(), 1, "instructions that were kept are not sent again");
    assert!(!all(&s.fake.requests()[9]).contains("AGENTS-MARK"), "instructions are never summarised");
    let kept = sent.matches("tool_result").count();
    assert!((3..9).contains(&kept), "{kept} results kept");
    assert!(view.of_type("compacted")[0]["request"].is_array(), "{:?}", view.of_type("compacted"));
    s.fake.assert_clean();
    check::check_session(&s.home.log(&s.id)).clean();
}

#[test]
fn what_cannot_shrink_is_named_and_not_tried_a_third_time() {
    let s = scene(json!({}));
    talk(&s, 3);
    let grown = |size: usize| Reply::say(&format!("Title\n\n{}", "b".repeat(size)));
    let settle = |users: usize| {
        s.wire.wait_view(&s.id, "the turn", |v| done(v) && v.texts("user").len() == users);
    };
    s.fake.reply(Reply::say("a").usage(used(15_500)));
    s.fake.reply(grown(18_000));
    s.wire.send(&s.id, "three");
    settle(4);
    s.fake.reply(long("b").usage(used(15_500)));
    s.fake.reply(grown(40_000));
    s.wire.send(&s.id, "four");
    settle(5);
    let view = s.wire.wait_view(&s.id, "stuck", |v| v.compaction["state"] == "stuck");
    assert!(view.texts("notice").iter().any(|n| n.contains("frees too little")), "{:?}", view.texts("notice"));
    assert_eq!(briefs(&s.fake), 2);
    s.fake.reply(Reply::say("c").usage(used(15_900)));
    s.wire.send(&s.id, "five");
    settle(6);
    assert_eq!((s.fake.count(), briefs(&s.fake)), (8, 2));
    // A person can still ask for it.
    s.fake.answer_by(|_| Reply::say(BRIEF));
    assert_eq!(compact(&s).unwrap()["outcome"], "compacted");
    assert_eq!(s.wire.wait_view(&s.id, "over", |v| v.compaction["state"] != "writing").compaction["state"], "none");
    s.fake.assert_clean();
}

#[test]
fn instructions_that_went_are_sent_again_once() {
    let s = scene(json!({}));
    fs::write(s.home.file("AGENTS.md"), "AGENTS-MARK: be brief").unwrap();
    talk(&s, 3);
    s.fake.answer_by(|b| Reply::say(if is_brief(b) { BRIEF } else { "ok" }));
    assert_eq!(compact(&s).unwrap()["outcome"], "compacted");
    assert!(!all(&s.fake.requests()[3]).contains("AGENTS-MARK"));
    s.wire.turn(&s.id, "four");
    s.wire.turn(&s.id, "five");
    assert_eq!(all(&s.fake.requests()[5]).matches("AGENTS-MARK").count(), 1);
    s.fake.assert_clean();
}

#[test]
fn going_back_before_a_compaction_brings_the_whole_history_back() {
    let s = scene(json!({}));
    talk(&s, 3);
    let to = *s.wire.view(&s.id).entries.iter().find(|(_, e)| e["text"] == "question-2").unwrap().0;
    s.fake.answer_by(|b| Reply::say(if is_brief(b) { BRIEF } else { "ok" }));
    assert_eq!(compact(&s).unwrap()["outcome"], "compacted");
    s.wire.turn(&s.id, "later");
    s.wire.ok("session/rewind", s.with(json!({"to": to, "files": false})));
    s.wire.turn(&s.id, "instead");
    let sent = all(&s.fake.requests()[5]);
    assert!(sent.contains("question-0") && sent.contains("answer-1") && !sent.contains("earlier-conversation"));
    assert!(!sent.contains("question-2") && !sent.contains("later"));
    s.wire.ok("session/clear", s.with(json!({})));
    s.wire.turn(&s.id, "afresh");
    assert!(text(&s.fake.requests()[6].messages()[0]).starts_with("afresh"));
    assert_eq!(briefs(&s.fake), 1);
    s.fake.assert_clean();
}

#[test]
fn a_session_that_goes_answers_whoever_waits_for_its_brief() {
    let mut s = scene(json!({}));
    talk(&s, 3);
    let other = s.home.wire("bob");
    let begin = |s: &Scene| {
        let gate = Gate::new();
        s.fake.reply(Reply::say(BRIEF).held_back(&gate));
        let call = other.start("session/compact", s.with(json!({})));
        gate.wait_reached();
        call
    };
    let call = begin(&s);
    s.wire.ok("session/delete", s.with(json!({"force": true})));
    assert_eq!(other.reply(call).unwrap_err()["data"]["kind"], "cancelled");
    s.fake.wait_aborted(4);
    // A daemon that is asked to stop does not wait for a brief.
    s.id = s.wire.new_session(&s.home, json!({}));
    talk(&s, 3);
    begin(&s);
    s.daemon.term();
    assert!(s.daemon.wait(glrs_tests::PATIENCE).is_some());
    s.fake.wait_aborted(8);
    s.daemon = s.home.daemon();
    s.wire = s.home.wire("ann");
    s.wire.attach(&s.id, json!({"env": s.home.env()}));
    s.fake.reply(Reply::say("whole"));
    s.wire.turn(&s.id, "and now");
    assert!(text(&s.fake.requests()[8].messages()[0]).starts_with("question-0"));
    assert_eq!(s.fake.count(), 9);
    s.fake.assert_clean();
}
