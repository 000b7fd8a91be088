//! Many clients on one session: what one sees, all see.

use crate::{Scene, rehearsal};
use glrs_tests::{Gate, Reply, Value, View, json};
use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;

#[test]
fn a_client_that_attaches_mid_stream_sees_the_text_in_flight() {
    let scene = Scene::plain();
    let gate = Gate::new();
    scene.fake.reply(Reply::say("alpha béta ").gate(&gate).text("gamma delta"));
    scene.wire.send(&scene.id, "go");
    gate.wait_reached();
    let half = |v: &View| v.streaming("assistant") == Some("alpha béta ");
    scene.wire.wait_view(&scene.id, "half the text", half);
    let late = scene.join("bob");
    assert!(half(&late.view(&scene.id)), "{:?}", late.view(&scene.id).in_flight);
    gate.open();
    let (a, b) = (scene.wire.wait_quiet(&scene.id), late.wait_quiet(&scene.id));
    a.same_as(&b).unwrap();
    assert_eq!(b.texts("assistant"), ["alpha béta gamma delta"]);
    assert_eq!(scene.join("cid").view(&scene.id).same_as(&a), Ok(()));
    scene.fake.assert_clean();
}

#[test]
fn the_reply_comes_before_what_the_call_caused() {
    let scene = Scene::plain();
    scene.fake.reply(Reply::say("x"));
    let before = scene.wire.arrivals().len();
    let call = scene.wire.start("session/send", scene.with(json!({"text": "go"})));
    scene.wire.reply(call).unwrap();
    scene.wire.wait_quiet(&scene.id);
    let arrivals = scene.wire.arrivals();
    let reply = arrivals.iter().position(|a| *a == format!("reply {call}")).unwrap();
    let early: Vec<_> =
        arrivals[before..reply].iter().filter(|a| ["entry", "queue", "state"].contains(&a.as_str())).collect();
    assert!(early.is_empty(), "{early:?} overtook the reply");
}

#[test]
fn the_queue_is_shared_and_guarded_by_versions() {
    let scene = Scene::plain();
    let gate = Gate::new();
    scene.fake.reply(Reply::new().gate(&gate).text("first"));
    scene.wire.send(&scene.id, "one");
    gate.wait_reached();
    let bob = scene.join("bob");
    for text in ["two", "three", "four"] {
        let sent = bob.send(&scene.id, text);
        assert!(sent["outcome"] == "queued" && sent["row"].is_u64(), "{sent}");
    }
    let view = scene.wire.wait_view(&scene.id, "three rows", |v| v.queue.len() == 3);
    assert_eq!(view.waiting(), ["two", "three", "four"]);
    assert!(view.queue.iter().all(|r| r["by"].as_str().is_some_and(|b| b.contains("bob"))), "{:?}", view.queue);
    let at = |i: usize, more: Value| {
        let mut params = scene.with(json!({"row": view.queue[i]["row"], "version": view.queue[i]["version"]}));
        params.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        params
    };
    scene.wire.ok("queue/edit", at(1, json!({"text": "drei"})));
    bob.fails("conflict", "queue/edit", at(1, json!({"text": "tres"})));
    bob.fails("conflict", "queue/remove", at(1, json!({})));
    bob.ok("queue/move", at(2, json!({"to": 0})));
    scene.wire.ok("queue/remove", at(0, json!({})));
    scene.wire.fails("not_found", "queue/remove", at(0, json!({})));
    for wire in [&scene.wire, &bob] {
        wire.wait_view(&scene.id, "the queue after it", |v| v.waiting() == ["four", "drei"]);
    }
    scene.fake.reply(Reply::say("second"));
    scene.fake.reply(Reply::say("third"));
    gate.open();
    let (a, b) = (scene.wire.wait_quiet(&scene.id), bob.wait_quiet(&scene.id));
    a.same_as(&b).unwrap();
    assert_eq!(a.texts("user"), ["one", "four", "drei"]);
    scene.fake.assert_clean();
}

#[test]
fn the_first_answer_wins_and_later_ones_learn_who() {
    let scene = Scene::plain();
    scene.fake.reply(Reply::call("write", json!({"path": "a.txt", "content": "hi"})));
    scene.fake.reply(Reply::say("written"));
    scene.wire.send(&scene.id, "write it");
    let bob = scene.join("bob");
    let (card, same) = (scene.wire.request(&scene.id), bob.request(&scene.id));
    assert_eq!(card, same);
    assert!(card["kind"] == "permission" && card["tool"] == "write", "{card}");
    scene.wire.wait_view(&scene.id, "asking", |v| v.phase() == "asking");
    assert!(!scene.home.file("a.txt").exists());
    bob.answer(&scene.id, &card, "allow").unwrap();
    let late = scene.wire.answer(&scene.id, &card, "deny").unwrap_err();
    assert_eq!(late["data"]["kind"], "already_resolved", "{late}");
    assert!(late["data"]["by"].as_str().is_some_and(|b| b.contains("bob")), "{late}");
    for wire in [&scene.wire, &bob] {
        let view = wire.wait_quiet(&scene.id);
        assert_eq!(view.resolved.len(), 1);
        assert!(view.resolved[0]["decision"] == "allow" && view.resolved[0]["by"].as_str().unwrap().contains("bob"));
    }
    assert!(scene.home.file("a.txt").exists());
    scene.wire.fails("not_found", "request/answer", scene.with(json!({"request": "none", "decision": "allow"})));
    scene.fake.assert_clean();
}

#[test]
fn a_repeated_send_runs_once_and_another_text_is_a_conflict() {
    let scene = Scene::plain();
    let gate = Gate::new();
    scene.fake.reply(Reply::new().gate(&gate).text("x"));
    scene.fake.reply(Reply::say("y"));
    let first = scene.with(json!({"text": "one", "key": "k1"}));
    let second = scene.with(json!({"text": "two", "key": "k2"}));
    assert_eq!(scene.wire.ok("session/send", first.clone())["outcome"], "running");
    let queued = scene.wire.ok("session/send", second.clone());
    let bob = scene.join("bob");
    assert_eq!(bob.ok("session/send", second.clone())["row"], queued["row"]);
    bob.ok("session/send", first.clone());
    bob.fails("conflict", "session/send", scene.with(json!({"text": "other", "key": "k1"})));
    bob.fails("conflict", "session/send", scene.with(json!({"text": "other", "key": "k2"})));
    gate.open();
    scene.wire.wait_view(&scene.id, "both ran", |v| v.quiet() && v.texts("assistant").len() == 2);
    let again = scene.wire.ok("session/send", second);
    assert!(again["outcome"] == "sent" && again["entry"].is_u64(), "{again}");
    assert_eq!(scene.wire.view(&scene.id).texts("user"), ["one", "two"]);
    assert_eq!(scene.fake.count(), 2);
}

#[test]
fn a_removed_message_stays_removed_when_its_send_is_repeated() {
    let scene = Scene::plain();
    let gate = Gate::new();
    scene.fake.reply(Reply::new().gate(&gate).text("x"));
    scene.wire.send(&scene.id, "one");
    let two = scene.with(json!({"text": "two", "key": "k"}));
    scene.wire.ok("session/send", two.clone());
    let row = scene.wire.wait_view(&scene.id, "a row", |v| v.queue.len() == 1).queue[0].clone();
    scene.wire.ok("queue/remove", scene.with(json!({"row": row["row"], "version": row["version"]})));
    assert_eq!(scene.wire.ok("session/send", two)["outcome"], "removed");
    gate.open();
    assert_eq!(scene.wire.wait_quiet(&scene.id).texts("user"), ["one"]);
    scene.fake.assert_clean();
}

#[test]
fn attaching_again_after_a_lost_connection_goes_on_without_gap_or_repeat() {
    let scene = Scene::plain();
    let gates = [Gate::new(), Gate::new()];
    scene.fake.reply(Reply::say("a b ").gate(&gates[0]).text("c d ").gate(&gates[1]).text("e f"));
    let lost = scene.join("bob");
    lost.send(&scene.id, "go");
    gates[0].wait_reached();
    let known = lost.wait_view(&scene.id, "the first words", |v| v.streaming("assistant") == Some("a b "));
    lost.close();
    gates[0].open();
    gates[1].wait_reached();
    scene.wire.wait_view(&scene.id, "the next words", |v| v.streaming("assistant") == Some("a b c d "));
    let back = scene.home.wire("bob");
    back.adopt(known.clone());
    let snap = back.attach(&scene.id, json!({"after": {"epoch": known.epoch, "seq": known.seq}}));
    assert_eq!(snap["resumed"], true, "{snap}");
    let entry = scene.home.wire("cid");
    entry.adopt(known.clone());
    let last = known.last_n();
    entry.attach(&scene.id, json!({"afterEntry": {"n": last, "at": known.entries[&last]["at"]}}));
    gates[1].open();
    let whole = scene.wire.wait_quiet(&scene.id);
    for wire in [&back, &entry] {
        wire.wait_quiet(&scene.id).same_as(&whole).unwrap();
    }
}

#[test]
fn a_cursor_that_does_not_fit_gets_a_snapshot() {
    let (_home, _daemon, wire, id) = rehearsal(json!({}));
    wire.turn(&id, "say 3 words");
    for more in [
        json!({"after": {"epoch": "of another life", "seq": 1}}),
        json!({"afterEntry": {"n": 1, "at": "1999-01-01T00:00:00.000Z"}}),
    ] {
        let snap = wire.attach(&id, more);
        assert!(snap["resumed"] != true && snap["entries"][0]["n"] == 1, "{snap}");
    }
    let snap = wire.attach(&id, json!({"tail": 2}));
    assert!(snap["entries"].as_array().unwrap().len() == 2 && snap["more"] == true, "{snap}");
}

#[test]
fn read_only_clients_look_and_do_not_touch() {
    let (home, _daemon, wire, id) = rehearsal(json!({}));
    let reader = home.wire("eve");
    reader.attach(&id, json!({"readOnly": true}));
    reader.fails("forbidden", "session/send", json!({"id": id, "text": "hi"}));
    reader.fails("forbidden", "session/set", json!({"id": id, "mode": "all"}));
    wire.turn(&id, "say 3 words");
    reader.wait_quiet(&id).same_as(&wire.view(&id)).unwrap();
}

#[test]
fn clients_that_come_and_go_are_told() {
    let (home, _daemon, wire, id) = rehearsal(json!({}));
    let bob = home.wire("bob");
    bob.attach(&id, json!({}));
    let came = wire.next_event("bob came", |e| e["kind"] == "clients" && e["joined"].is_string());
    assert!(came["joined"].as_str().unwrap().contains("bob") && came["count"] == 2, "{came}");
    bob.close();
    let left = wire.next_event("bob left", |e| e["kind"] == "clients" && e["left"].is_string());
    assert!(left["left"].as_str().unwrap().contains("bob") && left["count"] == 1, "{left}");
    glrs_tests::wait::until("one client", glrs_tests::PATIENCE, || {
        (wire.ok("client/list", json!({}))["clients"].as_array()?.len() == 1).then_some(())
    });
}

#[test]
fn the_roster_tells_what_runs_and_what_needs_someone() {
    let (home, _daemon, wire, id) = rehearsal(json!({}));
    let board = home.wire("board");
    let rows = board.ok("roster/watch", json!({}));
    assert!(rows["sessions"].as_array().unwrap().iter().any(|s| s["id"] == id.as_str()), "{rows}");
    wire.send(&id, "write a.txt x");
    let asks = |p: &Value| p.to_string().contains("\"needsYou\":true") && p.to_string().contains(&id);
    board.next_notification("roster/event", "a session that needs someone", asks);
    wire.answer(&id, &wire.request(&id), "deny").unwrap();
    wire.wait_quiet(&id);
}

#[test]
fn a_client_that_does_not_read_is_told_it_lagged_and_slows_nobody() {
    let scene = Scene::plain();
    let mut slow = UnixStream::connect(scene.home.socket()).unwrap();
    slow.set_read_timeout(Some(glrs_tests::PATIENCE)).unwrap();
    let call = |id: u64, method: &str, params: Value| {
        format!("{}\n", json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params}))
    };
    let hello = json!({"client": {"name": "slow"}, "protocol": {"min": 1, "max": 1}});
    slow.write_all(call(1, "hello", hello).as_bytes()).unwrap();
    slow.write_all(call(2, "session/attach", json!({"id": scene.id})).as_bytes()).unwrap();
    scene.wire.wait_view(&scene.id, "both attached", |v| v.clients == 2);
    scene.wire.ok("session/detach", scene.with(json!({})));
    let (gate, piece) = (Gate::new(), format!("{} ", "x".repeat(1023)));
    scene.fake.reply(Reply::say(&piece.repeat(3000)).gate(&gate));
    scene.wire.send(&scene.id, "flood");
    gate.wait_reached();
    scene.wire.attach(&scene.id, json!({}));
    let whole = |v: &View| v.streaming("assistant").is_some_and(|t| t.len() == 3000 * 1024);
    // On a busy machine whoever reads may fall behind as well; then it attaches again.
    while !whole(&scene.wire.wait_view(&scene.id, "all of it", |v| v.lagged || whole(v))) {
        scene.wire.attach(&scene.id, json!({}));
    }
    let mut input = BufReader::new(slow);
    let (mut line, mut seq, mut lagged) = (String::new(), None, false);
    while !lagged {
        line.clear();
        assert!(input.read_line(&mut line).unwrap() > 0, "closed without a word");
        let message: Value = serde_json_of(&line);
        let params = &message["params"];
        lagged = params["kind"] == "lagged";
        if let Some(n) = params["seq"].as_u64() {
            assert!(seq.is_none_or(|s: u64| n == s + 1), "a gap before lagged: {seq:?} then {n}");
            seq = Some(n);
        }
    }
    gate.open();
    scene.wire.wait_quiet(&scene.id);
}

fn serde_json_of(line: &str) -> Value {
    line.parse().unwrap_or_else(|e| panic!("no JSON ({e}): {line:?}"))
}
