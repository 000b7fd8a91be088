//! kill -9 at any moment: what was acknowledged is there, once; what broke is closed and said.

use crate::{Scene, faked, rehearsal};
use glrs_tests::wait::until;
use glrs_tests::{Dialect, Gate, PATIENCE, Reply, Rng, Value, View, Wire, check, cli, json};
use std::collections::{BTreeMap, HashMap};
use std::fs;

/// Waits until the live journal of a session holds a text.
fn journalled(scene: &Scene, text: &str) {
    let path = scene.home.sessions().join("live").join(format!("{}.jsonl", scene.id));
    until("text in the live journal", PATIENCE, || fs::read_to_string(&path).ok()?.contains(text).then_some(()));
}

#[test]
fn a_kill_mid_turn_loses_nothing_that_was_acknowledged() {
    let mut scene = Scene::plain();
    let gate = Gate::new();
    scene.fake.reply(Reply::say("words before the end ").gate(&gate));
    scene.wire.send(&scene.id, "one");
    gate.wait_reached();
    scene.wire.send(&scene.id, "two");
    scene.wire.send(&scene.id, "three");
    scene.wire.wait_view(&scene.id, "streaming", |v| v.streaming("assistant").is_some());
    journalled(&scene, "before");
    scene.daemon.kill9();
    assert!(scene.wire.wait_closed(PATIENCE));

    let daemon = scene.home.daemon();
    let wire = scene.home.wire("bob");
    wire.attach(&scene.id, json!({"env": scene.home.env()}));
    let view = wire.view(&scene.id);
    assert_eq!((view.state_name(), view.waiting()), ("held", vec!["two", "three"]));
    assert_eq!((view.texts("user"), view.last_status()), (vec!["one"], "interrupted"));
    let partial = view.of_type("assistant");
    assert!(partial.len() == 1 && partial[0]["partial"] == true, "{partial:?}");
    assert!(partial[0]["text"].as_str().unwrap().contains("before"), "{partial:?}");
    assert!(view.in_flight.is_empty() && !view.texts("notice").is_empty());
    scene.fake.answer_by(|_| Reply::say("after"));
    wire.ok("session/release", scene.with(json!({})));
    assert_eq!(wire.wait_quiet(&scene.id).texts("user"), ["one", "two", "three"]);
    scene.fake.assert_clean();
    check::check_session(&scene.home.log(&scene.id)).clean();
    drop(daemon);
}

/// The step is in the log, and the journal does not say so yet.
#[test]
fn a_kill_between_a_step_and_its_mark_records_the_step_once() {
    let mut scene = Scene::plain();
    let gate = Gate::new();
    scene.fake.reply(Reply::call("glob", json!({"pattern": "*"})));
    scene.fake.reply(Reply::say("never seen").gate(&gate));
    scene.wire.send(&scene.id, "one");
    gate.wait_reached();
    scene.daemon.kill9();
    let journal = scene.home.sessions().join("live").join(format!("{}.jsonl", scene.id));
    let text = fs::read_to_string(&journal).unwrap();
    let (before, _) = text.split_once("{\"k\":\"step\",\"step\":0,").expect("the step's mark");
    assert!(before.contains("\"k\":\"step\",\"step\":1,"), "{before}");
    fs::write(&journal, before).unwrap();

    let daemon = scene.home.daemon();
    let wire = scene.home.wire("bob");
    wire.attach(&scene.id, json!({"env": scene.home.env()}));
    let view = wire.view(&scene.id);
    assert_eq!((view.last_status(), view.of_type("tool").len()), ("interrupted", 1));
    check::check_session(&scene.home.log(&scene.id)).clean();
    scene.fake.reply(Reply::say("going on"));
    assert_eq!(wire.turn(&scene.id, "two").last_status(), "done");
    scene.fake.assert_clean();
    drop(daemon);
}

#[test]
fn the_next_command_starts_a_new_daemon_and_shows_it_all() {
    let (home, mut daemon, wire, id) = rehearsal(json!({}));
    wire.turn(&id, "say 7 words");
    daemon.kill9();
    let shown = cli(&home, ["sessions", "show", &id, "--json"]).ok();
    assert!(shown.stdout.contains("say 7 words") && shown.stdout.contains(&id), "{shown:?}");
}

#[test]
fn an_open_request_survives_and_its_turn_goes_on_when_answered() {
    let mut scene = Scene::plain();
    scene.fake.reply(Reply::call("write", json!({"path": "a.txt", "content": "late"})));
    scene.fake.reply(Reply::say("written"));
    scene.wire.send(&scene.id, "go");
    let card = scene.wire.request(&scene.id);
    scene.daemon.kill9();
    let _daemon = scene.home.daemon();
    let wire = scene.home.wire("bob");
    wire.attach(&scene.id, json!({"env": scene.home.env()}));
    let again = wire.request(&scene.id);
    assert_eq!(again["request"], card["request"]);
    assert!(wire.view(&scene.id).phase() == "asking" && !scene.home.file("a.txt").exists());
    wire.answer(&scene.id, &again, "allow").unwrap();
    let view = wire.wait_quiet(&scene.id);
    assert_eq!((view.last_status(), view.texts("assistant")), ("done", vec!["written"]));
    assert!(scene.home.file("a.txt").exists());
    scene.fake.assert_clean();
    check::check_session(&scene.home.log(&scene.id)).clean();
}

#[test]
fn an_answered_call_that_never_returned_is_not_run_again() {
    let mut scene = Scene::new(Dialect::Anthropic, json!({"mode": "all"}));
    let command = "echo ran >> runs; read forever < fifo";
    assert!(std::process::Command::new("mkfifo").arg(scene.home.file("fifo")).status().unwrap().success());
    scene.fake.reply(Reply::call("bash", json!({"command": command})));
    scene.wire.send(&scene.id, "go");
    until("the command runs", PATIENCE, || scene.home.file("runs").exists().then_some(()));
    scene.daemon.kill9();
    // Lets the orphaned command end.
    fs::OpenOptions::new()
        .write(true)
        .read(true)
        .open(scene.home.file("fifo"))
        .and_then(|mut f| std::io::Write::write_all(&mut f, b"\n"))
        .unwrap();
    let _daemon = scene.home.daemon();
    let wire = scene.home.wire("bob");
    wire.attach(&scene.id, json!({"env": scene.home.env()}));
    let view = wire.wait_quiet(&scene.id);
    assert_eq!((view.last_status(), view.of_type("tool").len()), ("interrupted", 1));
    assert_eq!(view.of_type("tool")[0]["ok"], false);
    assert_eq!(fs::read_to_string(scene.home.file("runs")).unwrap(), "ran\n");
    scene.fake.reply(Reply::say("go on"));
    wire.turn(&scene.id, "what happened?");
    scene.fake.assert_clean();
    check::check_session(&scene.home.log(&scene.id)).clean();
}

#[test]
fn a_repeated_send_is_recognised_across_a_kill() {
    let (home, mut daemon, wire, id) = rehearsal(json!({}));
    let send = json!({"id": id, "text": "say 3 words", "key": "k1"});
    wire.ok("session/send", send.clone());
    wire.wait_quiet(&id);
    daemon.kill9();
    let _daemon = home.daemon();
    let wire = home.wire("bob");
    wire.attach(&id, json!({}));
    assert_eq!(wire.ok("session/send", send)["outcome"], "sent");
    wire.fails("conflict", "session/send", json!({"id": id, "text": "other", "key": "k1"}));
    assert_eq!(wire.wait_quiet(&id).of_type("user").len(), 1);
}

#[test]
fn entries_read_before_a_kill_are_the_same_after_it() {
    let (home, mut daemon, wire, id) = rehearsal(json!({"mode": "all"}));
    wire.turn(&id, "write a.txt hello");
    let before = wire.turn(&id, "plan one; two");
    daemon.kill9();
    let _daemon = home.daemon();
    let wire = home.wire("ann");
    wire.adopt(before.clone());
    let snap = wire.attach(&id, json!({"after": {"epoch": before.epoch, "seq": before.seq}}));
    assert!(snap["resumed"] != true && snap["epoch"] != before.epoch.as_str(), "a new life is a new epoch: {snap}");
    let after = wire.view(&id);
    assert_eq!(before.entries, after.entries);
    assert_eq!((&before.plan, &before.usage["calls"]), (&after.plan, &after.usage["calls"]));
}

/// What a model of the fake does in the random workload: now and then it calls a tool.
fn brain(seed: u64) -> impl FnMut(&Value) -> Reply + Send {
    let mut rng = Rng::new(seed);
    move |body| {
        let last = body["messages"].as_array().and_then(|m| m.last()).map(Value::to_string).unwrap_or_default();
        let told = last.contains("tool_result");
        match rng.below(4) {
            0 if !told => Reply::say("reading ").tool_call("read", json!({"path": "a.txt"})),
            1 if !told => Reply::call("write", json!({"path": "b.txt", "content": last.len().to_string()})),
            2 => Reply::new().reasoning("considering it ", "sig").text("considered"),
            _ => Reply::say("an answer of several words "),
        }
    }
}

/// Sends by key: their params, and whether the daemon acknowledged them.
type Ledger = BTreeMap<String, (Value, bool)>;

/// Every acknowledged message is exactly once in the log or in the queue, every other at most once.
fn conserved(view: &View, ledger: &Ledger, round: u64) {
    let mut found: HashMap<&str, u32> = HashMap::new();
    for text in view.texts("user").into_iter().chain(view.waiting()) {
        *found.entry(text).or_default() += 1;
    }
    for (params, acknowledged) in ledger.values() {
        let text = params["text"].as_str().unwrap_or_default();
        let count = found.remove(text).unwrap_or(0);
        assert!(count == 1 || (count == 0 && !acknowledged), "round {round}: {text:?} is there {count} times");
    }
    assert!(found.is_empty(), "round {round}: nobody sent {found:?}");
}

#[test]
fn twenty_kills_under_a_random_workload_conserve_every_message() {
    let (home, fake) = faked(Dialect::Anthropic);
    fs::write(home.file("a.txt"), "content").unwrap();
    fake.answer_by(brain(11));
    let mut rng = Rng::new(7);
    let mut ledger = Ledger::new();
    let mut id = String::new();
    for round in 0..20 {
        let mut daemon = home.daemon();
        let wire = home.wire("ann");
        if id.is_empty() {
            id = wire.new_session(&home, json!({"mode": "all"}));
        } else {
            wire.attach(&id, json!({"env": home.env()}));
            check_after(&wire, &home, &id, &ledger, round);
            wire.ok("session/release", json!({"id": id}));
        }
        let seen = usize::try_from(rng.below(40)).unwrap();
        for i in 0..1 + rng.below(4) {
            let (key, mode) = (format!("{round}-{i}"), *rng.pick(&["queue", "queue", "steer"]));
            let send = json!({"id": id, "text": format!("message {key}"), "key": key, "mode": mode});
            let sent = wire.try_call("session/send", &send);
            ledger.insert(key, (send, sent.is_some_and(|r| r.is_ok())));
        }
        wire.wait_events(&id, seen);
        // A message that is on its way when the daemon dies may or may not have arrived.
        let key = format!("{round}-last");
        let send = json!({"id": id, "text": format!("message {key}"), "key": key});
        wire.start("session/send", send.clone());
        daemon.kill9();
        ledger.insert(key, (send, false));
    }
    let _daemon = home.daemon();
    let wire = home.wire("ann");
    wire.attach(&id, json!({"env": home.env()}));
    check_after(&wire, &home, &id, &ledger, 20);
    for (send, acknowledged) in ledger.values_mut() {
        // Repeating every send, with its key, changes nothing for those that arrived.
        wire.ok("session/send", send.clone());
        *acknowledged = true;
    }
    wire.call("session/release", json!({"id": id})).unwrap();
    let view = wire.wait_quiet(&id);
    conserved(&view, &ledger, 21);
    assert_eq!(fake.violations(), Vec::<String>::new());
    check::check_session(&home.log(&id)).clean();
}

fn check_after(wire: &Wire, home: &glrs_tests::Home, id: &str, ledger: &Ledger, round: u64) {
    let view = wire.view(id);
    assert!(["held", "idle"].contains(&view.state_name()), "round {round}: {:?}", view.state);
    conserved(&view, ledger, round);
    let turns = view.of_type("turn");
    let closed = turns.last().is_none_or(|t| t["status"] != "step");
    assert!(closed, "round {round}: the broken turn is not closed");
    if home.log(id).exists() {
        check::check_session(&home.log(id)).clean();
    }
}
