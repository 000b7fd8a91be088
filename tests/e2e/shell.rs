//! Processes of a session: people's own commands, background jobs, private temporary directories,
//! and that nothing of it outlives the daemon.

use crate::{Scene, home, rehearsal};
use glrs_tests::process::Proc;
use glrs_tests::wait::until;
use glrs_tests::{Daemon, Dialect, Gate, Home, PATIENCE, Reply, Term, Value, View, Wire, json};
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;

/// The process whose number a command wrote into a file.
fn started(home: &Home, name: &str) -> Proc {
    let pid = || fs::read_to_string(home.file(name)).ok()?.trim().parse::<u32>().ok();
    Proc::open(until(name, PATIENCE, pid)).expect("the process runs")
}

/// A home with this configuration on the built-in model, in mode `all`.
fn configured(config: &Value) -> (Home, Daemon, Wire, String) {
    let home = home();
    home.config(config);
    let daemon = home.daemon();
    let wire = home.wire("ann");
    let id = wire.new_session(&home, json!({"mode": "all"}));
    (home, daemon, wire, id)
}

fn shell(wire: &Wire, id: &str, command: &str) -> Value {
    wire.ok("session/shell", json!({"id": id, "command": command}))
}

/// The tool entries that a person's commands left.
fn by_people(view: &View) -> Vec<&Value> {
    view.of_type("tool").into_iter().filter(|t| t["by"].is_string()).collect()
}

fn jobs(view: &View) -> Vec<Value> {
    view.state["jobs"].as_array().cloned().unwrap_or_default()
}

fn result(entry: &Value) -> &str {
    entry["result"].as_str().unwrap_or_default()
}

#[test]
fn a_command_of_a_person_runs_unasked_is_seen_by_all_and_recorded_once() {
    let (home, _daemon, wire, id) = rehearsal(json!({}));
    let bob = home.wire("bob");
    bob.attach(&id, json!({}));
    let params = json!({"id": id, "command": "echo first; while [ ! -e go ]; do sleep 0.01; done; pwd", "key": "k1"});
    let call = wire.ok("session/shell", params.clone());
    assert_eq!(call["outcome"], "running");
    for client in [&wire, &bob] {
        let view = client.wait_view(&id, "its output", |v| v.streaming("tool") == Some("first\n"));
        let row = &view.state["shells"][0];
        assert!(row["callId"] == call["call"] && row["by"].as_str().unwrap().starts_with("ann#"), "{row}");
        assert!(view.state_name() == "idle" && view.requests.is_empty());
    }
    // Who comes in between sees it too, and the same call again is the same command.
    assert_eq!(home.wire("eve").attach(&id, json!({}))["inFlight"][0]["text"], "first\n");
    assert_eq!(wire.ok("session/shell", params.clone())["call"], call["call"]);
    wire.fails("conflict", "session/shell", json!({"id": id, "command": "echo other", "key": "k1"}));
    wire.fails("conflict", "session/send", json!({"id": id, "text": "hello", "key": "k1"}));
    fs::write(home.file("go"), "").unwrap();
    let (a, b) = (wire.wait_quiet(&id), bob.wait_quiet(&id));
    a.same_as(&b).unwrap();
    let entries = by_people(&a);
    assert!(entries.len() == 1 && entries[0]["ok"] == true && entries[0]["key"] == "k1", "{entries:?}");
    let cwd = home.work().canonicalize().unwrap();
    assert_eq!(result(entries[0]), format!("first\n{}\n[exit code 0]", cwd.display()));
    assert_eq!(wire.ok("session/shell", params)["outcome"], "done");
    let elapsed = |e: &Value| e["kind"] == "delta" && e["elapsedMs"].is_u64();
    wire.next_event("a delta with its time", elapsed);
}

#[test]
fn a_read_only_client_runs_nothing() {
    let (home, _daemon, wire, id) = rehearsal(json!({}));
    let eye = home.wire("eye");
    eye.attach(&id, json!({"readOnly": true}));
    eye.fails("forbidden", "session/shell", json!({"id": id, "command": "touch f"}));
    assert!(wire.call("session/shell", json!({"id": id, "command": "  "})).is_err());
    assert!(!home.file("f").exists() && !home.log(&id).exists());
}

#[test]
fn the_model_is_shown_it_with_the_next_message_once_also_when_it_ran_beside_a_turn() {
    for dialect in [Dialect::Anthropic, Dialect::OpenAi] {
        let scene = Scene::new(dialect, json!({}));
        let gate = Gate::new();
        shell(&scene.wire, &scene.id, "echo before-$((40+2))");
        scene.wire.wait_view(&scene.id, "its entry", |v| by_people(v).len() == 1);
        scene.fake.reply(Reply::say("one ").gate(&gate));
        scene.fake.reply(Reply::say("two"));
        scene.fake.reply(Reply::say("three"));
        scene.wire.send(&scene.id, "first");
        gate.wait_reached();
        shell(&scene.wire, &scene.id, "echo beside-$((40+2)); exit 3");
        let beside = |v: &View| by_people(v).len() == 2 && v.state_name() == "running";
        scene.wire.wait_view(&scene.id, "the other's entry, beside the turn", beside);
        gate.open();
        scene.wire.wait_quiet(&scene.id);
        scene.wire.turn(&scene.id, "second");
        scene.wire.turn(&scene.id, "third");
        let requests = scene.fake.requests();
        let count = |n: usize, words: &str| {
            let text: String = requests[n].messages().iter().map(Value::to_string).collect();
            text.matches(words).count()
        };
        let told: Vec<_> = (0..3).map(|n| (count(n, "before-42"), count(n, "beside-42"))).collect();
        assert_eq!(told, [(1, 0), (1, 1), (1, 1)]);
        assert!(count(1, "[exit code 3]") == 1 && count(1, "ann#") == 2);
        scene.fake.assert_clean();
    }
}

#[test]
fn esc_stops_it_with_its_children() {
    let (home, _daemon, wire, id) = rehearsal(json!({}));
    shell(&wire, &id, "echo kept; sleep 300 & echo $! > child; echo $$ > pid; wait");
    let all = [started(&home, "pid"), started(&home, "child")];
    assert_eq!(wire.ok("session/interrupt", json!({"id": id}))["outcome"], "interrupted");
    let view = wire.wait_view(&id, "its entry", |v| by_people(v).len() == 1);
    let entry = by_people(&view)[0];
    assert!(entry["ok"] == false && result(entry).starts_with("kept\n[interrupted"), "{entry}");
    assert!(all.iter().all(|p| p.wait(PATIENCE)));
    assert_eq!(wire.ok("session/interrupt", json!({"id": id}))["outcome"], "nothing");
}

#[test]
fn killed_with_the_daemon_it_is_an_entry_that_says_so_and_runs_no_second_time() {
    let (home, mut daemon, wire, id) = rehearsal(json!({}));
    let params = json!({"id": id, "key": "k1",
        "command": "echo x >> ran; echo so far; sleep 300 & echo $! > child; echo $$ > pid; wait"});
    wire.ok("session/shell", params.clone());
    let all = [started(&home, "pid"), started(&home, "child")];
    let live = home.sessions().join(format!("live/{id}.jsonl"));
    until("the journal has what streamed", PATIENCE, || {
        fs::read_to_string(&live).ok()?.contains(r"so far\n").then_some(())
    });
    daemon.kill9();
    drop(wire);
    assert!(all.iter().all(|p| p.wait(PATIENCE)), "a process outlived the daemon");
    let _next = home.daemon();
    let wire = home.wire("ann");
    wire.attach(&id, json!({}));
    let view = wire.wait_quiet(&id);
    let entries = by_people(&view);
    assert_eq!(entries.len(), 1);
    assert!(entries[0]["ok"] == false && result(entries[0]).starts_with("so far\n[The daemon stopped"), "{entries:?}");
    assert_eq!(wire.ok("session/shell", params)["outcome"], "done");
    assert_eq!(fs::read_to_string(home.file("ran")).unwrap(), "x\n");
}

#[test]
fn jobs_are_listed_told_to_the_model_and_end_with_the_daemon() {
    for kill in [false, true] {
        let mut scene = Scene::new(Dialect::Anthropic, json!({"mode": "all"}));
        let serve = "echo $$ > pid; echo serving; exec sleep 300";
        scene.fake.reply(Reply::call("bash", json!({"command": serve, "background": true})));
        scene.fake.reply(Reply::call("bash", json!({"command": "sleep 300 & echo $! > child"})));
        scene.fake.answer_by(|_| Reply::say("ok"));
        let view = scene.wire.turn(&scene.id, "serve it");
        let (rows, tools) = (jobs(&view), view.of_type("tool"));
        assert!(tools.len() == 2 && rows.len() == 2 && rows[0]["command"] == serve, "{rows:?} {:?}", view.entries);
        let all = [started(&scene.home, "pid"), started(&scene.home, "child")];
        assert_eq!(rows[0]["group"].as_u64().unwrap(), u64::from(all[0].pid()));
        assert!(result(tools[0]).contains("serving\n") && result(tools[0]).contains("[job 1: "), "{tools:?}");
        assert!(result(tools[1]).contains("[job 2: ") && result(tools[1]).contains("holds its output"), "{tools:?}");
        scene.wire.turn(&scene.id, "and now?");
        let last = scene.fake.requests().pop().unwrap();
        let text: String = last.messages().iter().map(Value::to_string).collect();
        assert!(text.contains("Job 1 runs in the background since"), "{text}");
        if kill {
            scene.daemon.kill9()
        } else {
            scene.daemon.term()
        }
        scene.daemon.wait(PATIENCE);
        assert!(all.iter().all(|p| p.wait(PATIENCE)), "a job outlived the daemon (kill: {kill})");
        scene.fake.assert_clean();
    }
}

#[test]
fn a_job_that_ends_leaves_the_list_and_its_output_can_be_read() {
    let (home, _daemon, wire, id) = configured(&json!({}));
    let view = wire.turn(&id, "run (echo early; while [ ! -e go ]; do sleep 0.01; done; echo late) & true");
    let rows = jobs(&view);
    assert_eq!(rows.len(), 1, "{:?}", view.of_type("tool"));
    let output = PathBuf::from(rows[0]["output"].as_str().unwrap());
    fs::write(home.file("go"), "").unwrap();
    wire.wait_view(&id, "no job", |v| jobs(v).is_empty());
    assert_eq!(fs::read_to_string(output).unwrap(), "late\n");
}

#[test]
fn temporary_files_have_a_place_of_their_own_that_goes_with_the_session() {
    let (home, mut daemon, wire, id) = configured(&json!({}));
    wire.turn(&id, "run touch $TMPDIR/x; echo $TMPDIR > a; echo $TMP > b; echo $TEMP > c");
    let read = |name: &str| PathBuf::from(fs::read_to_string(home.file(name)).unwrap().trim());
    let place = read("a");
    assert_eq!((read("b"), read("c")), (place.clone(), place.clone()));
    assert!(place.starts_with(home.other_dir("t")) && place.join("x").exists(), "{}", place.display());
    assert_eq!(fs::metadata(&place).unwrap().mode() & 0o777, 0o700);
    let other = wire.new_session(&home, json!({"mode": "all"}));
    wire.turn(&other, "run echo $TMPDIR > a");
    assert_ne!(read("a"), place);
    // What a killed daemon left goes at the next start, whose own is left alone.
    daemon.kill9();
    assert!(place.exists());
    let mut next = home.daemon();
    until("the old one is reclaimed", PATIENCE, || (!place.exists()).then_some(()));
    let wire = home.wire("ann");
    let id = wire.new_session(&home, json!({"mode": "all"}));
    wire.turn(&id, "run echo $TMPDIR > a");
    let place = read("a");
    assert!(place.exists());
    next.term();
    next.wait(PATIENCE);
    assert!(!place.exists());
}

#[test]
fn session_tmp_false_keeps_the_inherited_one() {
    let (home, _daemon, wire, id) = configured(&json!({"sessionTmp": false}));
    wire.turn(&id, "run echo $TMPDIR > a");
    let said = fs::read_to_string(home.file("a")).unwrap();
    assert_eq!(said.trim(), home.env()["TMPDIR"]);
}

#[test]
fn in_the_terminal_an_exclamation_mark_runs_a_command() {
    let (home, _daemon, wire, id) = rehearsal(json!({}));
    let term = Term::spawn(&home, &["attach", &id], 100, 30);
    wire.wait_view(&id, "the terminal is attached", |v| v.clients == 2);
    term.enter("!echo petunia-$((40+2)); while [ ! -e go ]; do sleep 0.01; done");
    term.wait_for("its output while it runs", |t| t.contains("petunia-42") && t.contains("esc stops"));
    fs::write(home.file("go"), "").unwrap();
    let view = wire.wait_view(&id, "its entry", |v| by_people(v).len() == 1);
    assert!(view.of_type("user").is_empty());
    term.wait_text("its output in the transcript", |t| t.contains("✓ ! echo petunia") && t.contains("[exit code 0]"));
    term.enter("!sleep 300");
    wire.wait_view(&id, "it runs", |v| v.state["shells"].as_array().is_some_and(|s| s.len() == 1));
    term.wait_for("it runs", |t| t.contains("! sleep 300"));
    term.send("\x1b");
    wire.wait_view(&id, "stopped by esc", |v| by_people(v).len() == 2);
}
