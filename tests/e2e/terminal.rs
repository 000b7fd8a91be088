//! Real terminals: two on one session, typing, esc, cards, detaching, and nothing raw on the screen.

use crate::{Scene, home, rehearsal};
use glrs_tests::{Dialect, Gate, PATIENCE, Reply, Term, Wire, json};
use std::time::Duration;

const CTRL_D: &str = "\x04";
const ESC: &str = "\x1b";

fn attach(scene: &Scene) -> Term {
    Term::spawn(&scene.home, &["attach", &scene.id], 100, 30)
}

/// Waits until so many clients are attached, the observing wire included: a terminal that is counted
/// has its snapshot.
fn joined(wire: &Wire, id: &str, count: u64) {
    wire.wait_view(id, "the terminals are attached", |v| v.clients == count);
}

/// Presses a card's key until the request is resolved. A card may take keys only once it has stood
/// for a moment; what was typed too early is taken back from the composer first.
fn press(term: &Term, key: &str, wire: &Wire, id: &str) {
    for attempt in 0..20 {
        term.send(if attempt == 0 { "" } else { "\x7f" });
        term.send(key);
        if wire.sees(id, Duration::from_millis(500), |v| !v.resolved.is_empty()) {
            return;
        }
    }
    panic!("the card does not take {key:?}:\n{}", term.text());
}

#[test]
fn the_first_command_opens_an_attached_session() {
    let home = home();
    let term = Term::spawn(&home, &[], 100, 30);
    term.wait_text("the built-in model says what it is", |t| t.contains("builtin/rehearsal"));
    term.enter("say 5 words");
    let wire = glrs_tests::wait::until("a daemon", PATIENCE, || home.listener().map(|_| home.wire("eye")));
    let id = glrs_tests::wait::until("the session is stored", PATIENCE, || {
        wire.ok("session/list", json!({}))["sessions"].as_array()?.iter().find(|s| s["saved"] == true)?["id"]
            .as_str()
            .map(str::to_owned)
    });
    wire.attach(&id, json!({}));
    let view = wire.wait_view(&id, "an answer", |v| v.quiet() && !v.texts("assistant").is_empty());
    let answer = view.texts("assistant")[0].trim().to_owned();
    let last = answer.split_whitespace().last().unwrap().to_owned();
    term.wait_text("the message and its answer", |t| t.contains("say 5 words") && t.contains(&last));
}

#[test]
fn two_terminals_on_one_session_show_the_same() {
    let scene = Scene::plain();
    let gate = Gate::new();
    scene.fake.reply(Reply::say("orchid before ").gate(&gate).text("thistle after"));
    let first = attach(&scene);
    joined(&scene.wire, &scene.id, 2);
    first.enter("tell me of flowers");
    first
        .wait_text("its own message and the first words", |t| t.contains("tell me of flowers") && t.contains("orchid"));
    let second = attach(&scene);
    second.wait_text("the text in flight", |t| t.contains("tell me of flowers") && t.contains("orchid"));
    second.enter("a queued thought");
    scene.wire.wait_view(&scene.id, "a row", |v| v.waiting() == ["a queued thought"]);
    for term in [&first, &second] {
        term.wait_for("the queue", |t| t.contains("a queued thought"));
    }
    scene.fake.reply(Reply::say("marigold last"));
    gate.open();
    scene.wire.wait_view(&scene.id, "both turns", |v| v.quiet() && v.texts("assistant").len() == 2);
    for term in [&first, &second] {
        let once = |text: &str, words: &str| text.matches(words).count() == 1;
        term.wait_text("everything, once", |t| once(t, "thistle after") && once(t, "marigold last"));
    }
    scene.fake.assert_clean();
}

#[test]
fn a_card_answered_in_one_terminal_closes_in_the_other() {
    let scene = Scene::plain();
    scene.fake.reply(Reply::call("bash", json!({"command": "echo card-$((40+2))"})));
    scene.fake.reply(Reply::say("peony finished"));
    let (first, second) = (attach(&scene), attach(&scene));
    joined(&scene.wire, &scene.id, 3);
    scene.wire.send(&scene.id, "run it");
    for term in [&first, &second] {
        term.wait_for("the card with the whole command", |t| t.contains("echo card-$((40+2))"));
    }
    press(&first, "y", &scene.wire, &scene.id);
    let view = scene.wire.wait_quiet(&scene.id);
    assert!(view.resolved.len() == 1 && view.resolved[0]["decision"] == "allow", "{:?}", view.resolved);
    for term in [&first, &second] {
        term.wait_text("the end of the turn", |t| t.contains("peony finished"));
        term.send("typed into the composer");
        term.wait_for("keys go to the composer again", |t| t.contains("typed into the composer"));
    }
    scene.fake.assert_clean();
}

#[test]
fn a_card_can_be_refused() {
    let (home, _daemon, wire, id) = rehearsal(json!({}));
    let term = Term::spawn(&home, &["attach", &id], 100, 30);
    joined(&wire, &id, 2);
    wire.send(&id, "write nope.txt hello");
    term.wait_for("the card", |t| t.contains("nope.txt"));
    wire.request(&id);
    press(&term, "n", &wire, &id);
    assert_eq!(wire.wait_quiet(&id).resolved[0]["decision"], "deny");
    assert!(!home.file("nope.txt").exists());
}

#[test]
fn detaching_leaves_the_turn_running_and_attaching_again_shows_all() {
    let scene = Scene::plain();
    let gate = Gate::new();
    scene.fake.reply(Reply::say("cedar first ").gate(&gate).text("willow last"));
    let mut term = attach(&scene);
    joined(&scene.wire, &scene.id, 2);
    term.enter("go on");
    term.wait_text("the first words", |t| t.contains("cedar first"));
    term.send(CTRL_D);
    assert_eq!(term.wait_exit(PATIENCE), 0);
    joined(&scene.wire, &scene.id, 1);
    assert_eq!(scene.wire.view(&scene.id).state_name(), "running");
    let again = attach(&scene);
    again.wait_text("what was said so far", |t| t.contains("go on") && t.contains("cedar first"));
    gate.open();
    scene.wire.wait_quiet(&scene.id);
    again.wait_text("the rest", |t| t.contains("willow last"));
    scene.fake.assert_clean();
}

#[test]
fn esc_interrupts_and_an_empty_enter_releases() {
    let scene = Scene::plain();
    let gate = Gate::new();
    scene.fake.reply(Reply::say("half ").gate(&gate));
    let term = attach(&scene);
    joined(&scene.wire, &scene.id, 2);
    term.enter("one");
    gate.wait_reached();
    term.wait_text("the text", |t| t.contains("half"));
    term.enter("two");
    scene.wire.wait_view(&scene.id, "a row", |v| v.queue.len() == 1);
    term.send(ESC);
    scene.wire.wait_view(&scene.id, "held", |v| v.state_name() == "held" && v.waiting() == ["two"]);
    term.wait_for("it says that it holds", |t| t.to_lowercase().contains("held"));
    scene.fake.reply(Reply::say("sorrel done"));
    term.send("\r");
    assert_eq!(scene.wire.wait_quiet(&scene.id).texts("user"), ["one", "two"]);
    term.wait_text("the answer", |t| t.contains("sorrel done"));
    scene.fake.assert_clean();
}

#[test]
fn alt_enter_steers() {
    let scene = Scene::plain();
    let gate = Gate::new();
    scene.fake.reply(Reply::say("x ").gate(&gate).tool_call("glob", json!({"pattern": "*"})));
    scene.fake.reply(Reply::say("lupin done"));
    let term = attach(&scene);
    joined(&scene.wire, &scene.id, 2);
    term.enter("one");
    gate.wait_reached();
    term.send("mind the gap\x1b\r");
    scene.wire.wait_view(&scene.id, "a steer waits", |v| v.queue.first().is_some_and(|r| r["mode"] == "steer"));
    gate.open();
    let view = scene.wire.wait_quiet(&scene.id);
    assert!(view.of_type("user")[1]["steer"] == true, "{:?}", view.of_type("user"));
    scene.fake.assert_clean();
}

#[test]
fn long_answers_go_into_the_scrollback_once() {
    let scene = Scene::plain();
    let lines: String = (0..120).map(|i| format!("row-{i:03} of the poem\n\n")).collect();
    scene.fake.reply(Reply::say(&lines));
    let term = attach(&scene);
    joined(&scene.wire, &scene.id, 2);
    term.enter("a long poem");
    scene.wire.wait_quiet(&scene.id);
    let once = |text: &str, i: usize| text.matches(&format!("row-{i:03}")).count() == 1;
    term.wait_text("each row exactly once", |t| (0..120).all(|i| once(t, i)));
}

#[test]
fn stored_text_never_reaches_the_terminal_as_controls() {
    let scene = Scene::new(Dialect::OpenAi, json!({}));
    scene.fake.reply(Reply::say("safe \x1b]0;owned\x07 \x1b[2J \u{9b}31m \u{202e}daisy end"));
    let term = attach(&scene);
    joined(&scene.wire, &scene.id, 2);
    term.enter("go");
    scene.wire.wait_quiet(&scene.id);
    term.wait_text("the answer", |t| t.contains("daisy end"));
    let raw = String::from_utf8_lossy(&term.raw()).into_owned();
    assert!(!raw.contains("\x1b]0;owned") && !raw.contains("\x1b[2J \u{9b}") && !raw.contains('\u{9b}'));
}

#[test]
fn a_closed_window_ends_the_client_and_nothing_else() {
    let scene = Scene::plain();
    let mut term = attach(&scene);
    joined(&scene.wire, &scene.id, 2);
    term.hang_up();
    term.wait_exit(Duration::from_secs(5));
    joined(&scene.wire, &scene.id, 1);
    scene.fake.reply(Reply::say("still here"));
    assert_eq!(scene.wire.turn(&scene.id, "hello?").last_status(), "done");
}

#[test]
fn quitting_an_empty_session_leaves_no_file() {
    let home = home();
    let mut term = Term::spawn(&home, &[], 80, 24);
    term.wait_text("a prompt", |t| t.contains("builtin/rehearsal"));
    term.enter("/quit");
    assert_eq!(term.wait_exit(PATIENCE), 0);
    let files = std::fs::read_dir(home.sessions()).into_iter().flatten().flatten();
    assert!(files.filter(|e| e.path().is_file()).all(|e| e.file_name() == "prompts.json"));
}

#[test]
fn a_terminal_survives_resizing_and_a_tiny_window() {
    let scene = Scene::plain();
    let term = attach(&scene);
    joined(&scene.wire, &scene.id, 2);
    for (cols, rows) in [(20, 5), (200, 60), (60, 12)] {
        term.resize(cols, rows);
    }
    // The last size is drawn: a rule of just its width.
    let rule = "─".repeat(60);
    term.wait_text("the last size", |t| t.lines().any(|l| l.trim_end() == rule));
    scene.fake.reply(Reply::say("fern fits"));
    term.enter("go");
    scene.wire.wait_quiet(&scene.id);
    term.wait_text("the answer", |t| t.contains("fern fits"));
}

#[test]
fn a_terminal_reconnects_when_the_daemon_is_restarted() {
    let mut scene = Scene::plain();
    let term = attach(&scene);
    joined(&scene.wire, &scene.id, 2);
    scene.fake.reply(Reply::say("aster one"));
    term.enter("before");
    scene.wire.wait_quiet(&scene.id);
    term.wait_text("the first answer", |t| t.contains("aster one"));
    scene.daemon.kill9();
    let wire = glrs_tests::wait::until("the terminal brings a daemon back", PATIENCE, || {
        scene.home.listener().map(|_| scene.home.wire("eye"))
    });
    wire.attach(&scene.id, json!({}));
    joined(&wire, &scene.id, 2);
    scene.fake.reply(Reply::say("zinnia two"));
    term.enter("after");
    wire.wait_view(&scene.id, "the second answer", |v| v.quiet() && v.texts("assistant").len() == 2);
    term.wait_text("the second answer", |t| t.contains("zinnia two"));
}

/// A signal and a key at once: neither is left lying until the next key.
#[test]
fn a_key_pressed_as_the_window_is_resized_is_seen_at_once() {
    let scene = Scene::plain();
    let term = attach(&scene);
    joined(&scene.wire, &scene.id, 2);
    for n in 0..80 {
        term.resize(if n % 2 == 0 { 60 } else { 61 }, 12);
        let key = if n % 2 == 0 { "x" } else { "\x7f" };
        term.send(key);
        term.wait_text("the key", |t| t.lines().any(|l| l.trim_end() == "› x") == (n % 2 == 0));
    }
}
