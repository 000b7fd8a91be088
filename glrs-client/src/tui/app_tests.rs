//! Tests of the terminal as a value: keys and events in, calls and lines out.

use super::*;
use crate::client::CallError;
use crate::tui::draw;
use crate::tui::lines::unstyled;
use crate::view::tests::{frame, snapshot};
use crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use glrs_protocol::types::{Decision, SendMode, StateName};
use serde_json::{Value, json};
use std::time::Duration;

fn app() -> App {
    let mut s = snapshot(5, &[(1, "one"), (2, "two")]);
    s.state = glrs_protocol::types::State::of(StateName::Idle);
    App::new(s, false, "glrs#1".into())
}

fn press_at(app: &mut App, code: KeyCode, modifiers: KeyModifiers, now: Instant) {
    app.key(KeyEvent::new(code, modifiers), now);
}

fn press(app: &mut App, code: KeyCode) {
    press_at(app, code, KeyModifiers::NONE, Instant::now() + Duration::from_secs(5));
}

fn type_text(app: &mut App, text: &str) {
    for c in text.chars() {
        press(app, KeyCode::Char(c));
    }
}

fn event(app: &mut App, seq: u64, kind: &str, body: Value) {
    app.incoming(Incoming::Session(frame(seq, kind, body)));
}

fn entry(app: &mut App, seq: u64, n: u64, text: &str) {
    event(app, seq, "entry", json!({"n": n, "entry": {"type": "notice", "text": text, "at": format!("t{n}")}}));
}

fn state(app: &mut App, seq: u64, name: &str) {
    event(app, seq, "state", json!({"state": {"name": name}}));
}

fn fresh(app: &mut App) -> Vec<String> {
    app.take_fresh(60).iter().map(unstyled).filter(|l| !l.is_empty()).collect()
}

fn sends(app: &mut App) -> Vec<(String, SendMode)> {
    app.calls
        .drain(..)
        .filter_map(|c| match c {
            Call::Send(s) => Some((s.text, s.mode)),
            _ => None,
        })
        .collect()
}

fn ask(app: &mut App, seq: u64) {
    let request = json!({"request": "r1", "kind": "permission", "tool": "bash", "title": "git push", "body": "git push",
        "rule": "bash(git push*)", "callId": "c", "at": "t"});
    event(app, seq, "request", json!({ "request": request }));
}

#[test]
fn entries_reach_the_scrollback_once() {
    let mut a = app();
    assert_eq!(fresh(&mut a), ["one", "two"]);
    entry(&mut a, 6, 3, "three");
    assert_eq!(fresh(&mut a), ["three"]);
    entry(&mut a, 6, 3, "three");
    assert!(fresh(&mut a).is_empty());
    let tail: Vec<String> = a.tail(60, 3).iter().map(unstyled).collect();
    assert_eq!(tail, ["two", "", "three"]);
}

#[test]
fn losing_the_daemon_shows_one_line_and_repeats_nothing() {
    let mut a = app();
    fresh(&mut a);
    a.incoming(Incoming::Disconnected("the daemon ended the connection".into()));
    assert_eq!(fresh(&mut a).len(), 1);
    let Some(Call::Reconnect(attach)) = a.calls.pop() else { panic!() };
    assert_eq!(attach.after_entry.map(|e| e.n), Some(2));
    type_text(&mut a, "hi");
    press(&mut a, KeyCode::Enter);
    assert!(sends(&mut a).is_empty() && a.resend.len() == 1);
    assert!(a.connection_reply(Reply::StillLost("no".into())).is_none());
    assert!(matches!(a.calls.pop(), Some(Call::Reconnect(_))));
    // Events of the new connection wait for its snapshot, whichever arrives first.
    let mut e2 = frame(10, "entry", json!({"n": 4, "entry": {"type": "notice", "text": "four", "at": "t4"}}));
    e2.head.epoch = "e2".into();
    a.incoming(Incoming::Session(e2));
    let mut s = snapshot(9, &[(2, "two"), (3, "three")]);
    s.epoch = "e2".into();
    a.reconnected(s, "glrs#7".into());
    let lines = fresh(&mut a);
    assert!(lines[0].starts_with("(connected again"), "{lines:?}");
    assert_eq!(lines[1..], ["three", "four"]);
    assert_eq!(sends(&mut a), [("hi".to_owned(), SendMode::Queue)]);
}

#[test]
fn a_gap_asks_for_the_missing_events() {
    let mut a = app();
    entry(&mut a, 8, 5, "five");
    let Some(Call::Reattach(attach)) = a.calls.pop() else { panic!() };
    assert_eq!(attach.after.map(|x| x.seq), Some(5));
    entry(&mut a, 6, 3, "three");
    let mut s = snapshot(8, &[]);
    s.resumed = true;
    a.adopt(s);
    assert_eq!(fresh(&mut a), ["one", "two", "three"]);
}

#[test]
fn a_hole_is_fetched_before_what_follows_is_shown() {
    let mut a = app();
    fresh(&mut a);
    a.await_snapshot();
    a.adopt(snapshot(9, &[(5, "five")]));
    assert!(fresh(&mut a).is_empty());
    assert!(matches!(a.calls.pop(), Some(Call::Fill(3, 4))));
    a.filled(snapshot(0, &[(3, "three"), (4, "four")]).entries);
    assert_eq!(fresh(&mut a), ["three", "four", "five"]);
}

#[test]
fn enter_sends_and_alt_enter_steers() {
    let mut a = app();
    type_text(&mut a, "first");
    press_at(&mut a, KeyCode::Char('j'), KeyModifiers::ALT, Instant::now());
    type_text(&mut a, "second");
    press(&mut a, KeyCode::Enter);
    type_text(&mut a, "third");
    press_at(&mut a, KeyCode::Enter, KeyModifiers::ALT, Instant::now());
    press(&mut a, KeyCode::Enter);
    assert_eq!(sends(&mut a), [("first\nsecond".to_owned(), SendMode::Queue), ("third".to_owned(), SendMode::Steer)]);
    press(&mut a, KeyCode::Up);
    press(&mut a, KeyCode::Up);
    assert_eq!(a.composer.text(), "first\nsecond");
}

#[test]
fn commands_are_never_sent() {
    let mut a = app();
    a.calls.clear();
    type_text(&mut a, "/claer");
    press(&mut a, KeyCode::Enter);
    assert!(a.calls.is_empty() && a.hint.as_ref().unwrap().contains("/clear"));
    press_at(&mut a, KeyCode::Char('c'), KeyModifiers::CONTROL, Instant::now());
    type_text(&mut a, "/ren");
    press(&mut a, KeyCode::Enter);
    assert_eq!(a.composer.text(), "/rename ");
    type_text(&mut a, "new name");
    press(&mut a, KeyCode::Enter);
    assert!(matches!(a.calls.as_slice(), [Call::Rename(t)] if t == "new name"));
    type_text(&mut a, "/fork 99");
    press(&mut a, KeyCode::Enter);
    assert_eq!(a.hint.as_deref(), Some("no entry 99: there are 1 to 2"));
    type_text(&mut a, "/usr/bin is a path");
    press(&mut a, KeyCode::Enter);
    assert_eq!(sends(&mut a).len(), 1);
}

#[test]
fn deleting_and_rewinding_ask_first() {
    let mut a = app();
    a.calls.clear();
    type_text(&mut a, "/delete");
    press(&mut a, KeyCode::Enter);
    press(&mut a, KeyCode::Char('n'));
    assert!(a.calls.is_empty());
    type_text(&mut a, "/rewind 1");
    press(&mut a, KeyCode::Enter);
    let Some(Call::Rewind(r)) = a.calls.pop() else { panic!() };
    assert!(r.preview);
    let result = serde_json::from_value(
        json!({"files": [{"path": "/r/a", "action": "conflict"}], "text": "again", "entries": 2}),
    );
    a.reply(Reply::Preview(r, result.unwrap()), jiff::Timestamp::now());
    press(&mut a, KeyCode::Char('c'));
    let Some(Call::Rewind(r)) = a.calls.pop() else { panic!() };
    assert_eq!((r.preview, r.files, r.conversation), (false, Some(false), Some(true)));
    assert!(r.key.is_some());
}

#[test]
fn esc_interrupts_while_something_runs_and_enter_releases_what_is_held() {
    let mut a = app();
    a.calls.clear();
    press(&mut a, KeyCode::Esc);
    assert!(a.calls.is_empty());
    state(&mut a, 6, "running");
    press(&mut a, KeyCode::Esc);
    assert!(matches!(a.calls.as_slice(), [Call::Interrupt]));
    a.calls.clear();
    state(&mut a, 7, "held");
    press(&mut a, KeyCode::Enter);
    assert!(matches!(a.calls.as_slice(), [Call::Release]));
    a.calls.clear();
    event(&mut a, 8, "compaction", json!({"compaction": {"state": "writing", "gate": true}}));
    press(&mut a, KeyCode::Esc);
    assert!(matches!(a.calls.as_slice(), [Call::Interrupt]));
}

#[test]
fn ctrl_c_clears_then_leaves_and_ctrl_d_leaves() {
    let mut a = app();
    let now = Instant::now();
    let ctrl = |a: &mut App, c, at| press_at(a, KeyCode::Char(c), KeyModifiers::CONTROL, at);
    type_text(&mut a, "text");
    ctrl(&mut a, 'c', now);
    assert!(a.composer.is_blank() && a.leave.is_none());
    ctrl(&mut a, 'c', now);
    assert!(a.leave.is_none() && a.hint.is_some());
    ctrl(&mut a, 'c', now + Duration::from_secs(9));
    assert!(a.leave.is_none(), "too late to be the second of two");
    ctrl(&mut a, 'c', now + Duration::from_secs(10));
    assert_eq!(a.leave, Some(Leave::Detach));
    let mut a = app();
    ctrl(&mut a, 'd', now);
    assert_eq!(a.leave, Some(Leave::Detach));
}

#[test]
fn the_card_answers_vanishes_and_says_who() {
    let mut a = app();
    fresh(&mut a);
    a.calls.clear();
    a.focused = false;
    ask(&mut a, 6);
    assert!(a.bell.is_some() && a.title().starts_with('?'));
    press_at(&mut a, KeyCode::Char('y'), KeyModifiers::NONE, Instant::now());
    assert!(a.calls.is_empty(), "a word that was being typed answers nothing");
    assert_eq!(a.composer.take(), "y");
    press(&mut a, KeyCode::Char('a'));
    assert!(matches!(a.calls.pop(), Some(Call::Answer { decision: Decision::Always, .. })));
    press(&mut a, KeyCode::Char('w'));
    type_text(&mut a, "not on main");
    press(&mut a, KeyCode::Enter);
    let Some(Call::Answer { decision: Decision::Deny, words: Some(words), .. }) = a.calls.pop() else { panic!() };
    assert_eq!(words, "not on main");
    press(&mut a, KeyCode::Char('w'));
    event(&mut a, 7, "resolved", json!({"request": "r1", "decision": "allow", "by": "web#2"}));
    assert!(a.card.is_none() && a.words.is_none());
    assert_eq!(fresh(&mut a), ["(web#2 answered allow: git push)"]);
}

#[test]
fn read_only_changes_nothing_and_says_so() {
    let mut a = app();
    a.calls.clear();
    a.read_only = true;
    state(&mut a, 6, "running");
    ask(&mut a, 7);
    press(&mut a, KeyCode::Char('y'));
    press(&mut a, KeyCode::Esc);
    type_text(&mut a, "hello");
    press(&mut a, KeyCode::Enter);
    assert!(a.calls.is_empty() && a.hint.as_ref().unwrap().contains("read-only"));
    assert_eq!(a.composer.text(), "hello");
}

#[test]
fn a_waiting_message_comes_back_and_a_failed_one_is_not_lost() {
    let mut a = app();
    let row = json!({"row": 3, "version": 2, "by": "glrs#1", "mode": "queue", "text": "later", "at": "t"});
    event(&mut a, 6, "queue", json!({ "rows": [row] }));
    press_at(&mut a, KeyCode::Up, KeyModifiers::ALT, Instant::now());
    let Some(Call::TakeBack { row: 3, version: 2, text }) = a.calls.pop() else { panic!() };
    a.reply(Reply::TakenBack(text), jiff::Timestamp::now());
    assert_eq!(a.composer.take(), "later");
    let send = crate::tui::calls::message(a.view.id().clone(), "precious".into(), SendMode::Queue);
    let lost = CallError::Disconnected("gone".into());
    a.reply(Reply::NotSent(send.clone(), lost), jiff::Timestamp::now());
    assert_eq!(a.resend.len(), 1);
    let refused = CallError::Timeout("session/send");
    a.reply(Reply::NotSent(send, refused), jiff::Timestamp::now());
    assert_eq!(a.composer.text(), "precious");
}

#[test]
fn a_deleted_session_ends_the_terminal_and_a_stopping_daemon_does_not() {
    use glrs_protocol::{ErrorKind, RpcError};
    let mut a = app();
    event(&mut a, 6, "closed", json!({"why": "the daemon stops"}));
    assert!(matches!(a.calls.pop(), Some(Call::Reattach(_))));
    let stopping = CallError::Rpc(RpcError::new(ErrorKind::ShuttingDown, "stopping"));
    a.reply(Reply::NotAttached(stopping), jiff::Timestamp::now());
    assert!(a.leave.is_none());
    a.reply(Reply::NotAttached(CallError::Rpc(RpcError::no_session("3f9a1c2b"))), jiff::Timestamp::now());
    assert_eq!(a.leave, Some(Leave::Lost("the daemon stops".into())));
}

fn bottom(a: &App, w: u16, h: u16) -> (Vec<String>, (u16, u16)) {
    let b = draw::bottom(a, w, h, "2026-09-06T14:00:30Z".parse().unwrap());
    (b.lines.iter().map(unstyled).collect(), b.cursor)
}

#[test]
fn the_bottom_shows_what_goes_on_and_always_fits() {
    let mut a = app();
    let (lines, cursor) = bottom(&a, 80, 20);
    assert_eq!(lines.len(), 3);
    assert!(lines[1].starts_with('›') && lines[2].starts_with("p/m · ctx 0/200k (0 %)"));
    assert_eq!(cursor, (1, 2));
    state(&mut a, 6, "running");
    let long: String = (0..40).map(|i| format!("line {i}\n\n")).collect();
    event(&mut a, 7, "delta", json!({"of": "p", "piece": "assistant", "offset": 0, "text": long}));
    ask(&mut a, 8);
    let rows: Vec<Value> = (0..9)
        .map(|i| json!({"row": i, "version": 1, "by": "web#2", "mode": "queue", "text": "wait", "at": "t"}))
        .collect();
    event(&mut a, 9, "queue", json!({ "rows": rows }));
    type_text(&mut a, "two\u{1b}");
    a.paste("lines\nof text");
    let (lines, cursor) = bottom(&a, 80, 30);
    for part in ["line 39", "● ", "? bash git push", "⋯ (web#2) wait", "⋯ 5 more wait", "› two␛lines", "  of text"]
    {
        assert!(lines.iter().any(|l| l.starts_with(part)), "{part} in {lines:#?}");
    }
    assert_eq!(cursor.0 as usize, lines.len() - 2);
    for (w, h) in [(80, 1), (80, 2), (8, 3), (20, 5), (40, 10), (200, 60)] {
        let (lines, cursor) = bottom(&a, w, h);
        assert!(!lines.is_empty() && lines.len() <= usize::from(h.max(2)), "{w}x{h}: {}", lines.len());
        assert!(usize::from(cursor.0) < lines.len(), "{w}x{h}");
        assert!(lines.iter().all(|l| !l.chars().any(char::is_control)));
    }
}

#[test]
fn how_a_turn_ended_is_said_once() {
    let ended = |a: &mut App, seq, n: u64, status: &str| {
        let turn = json!({"type": "turn", "messages": [], "status": status, "at": format!("t{n}")});
        event(a, seq, "entry", json!({"n": n, "entry": turn}));
    };
    let mut a = app();
    fresh(&mut a);
    entry(&mut a, 6, 3, "(interrupted)");
    ended(&mut a, 7, 4, "interrupted");
    assert_eq!(fresh(&mut a), ["(interrupted)"]);
    // A file of another program says it by the status alone.
    ended(&mut a, 8, 5, "interrupted");
    assert_eq!(fresh(&mut a), ["(interrupted)"]);
}
