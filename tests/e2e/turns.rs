//! Who may do what, when: the queue, steering, esc, holding and releasing.

use crate::{Scene, home, rehearsal};
use glrs_tests::process::Proc;
use glrs_tests::wait::until;
use glrs_tests::{Dialect, Gate, PATIENCE, Reply, Value, View, json};
use std::fs;
use std::time::{Duration, Instant};

/// All text a request carries.
fn said(messages: &[Value]) -> String {
    messages.iter().map(Value::to_string).collect()
}

#[test]
fn queued_messages_run_one_after_the_other_in_order() {
    let scene = Scene::plain();
    let gate = Gate::new();
    scene.fake.reply(Reply::new().gate(&gate).text("r-one"));
    scene.fake.reply(Reply::say("r-two"));
    scene.fake.reply(Reply::say("r-three"));
    assert_eq!(scene.wire.send(&scene.id, "one")["outcome"], "running");
    assert_eq!(scene.wire.send(&scene.id, "two")["outcome"], "queued");
    assert_eq!(scene.wire.send(&scene.id, "three")["outcome"], "queued");
    gate.open();
    let view = scene.wire.wait_quiet(&scene.id);
    assert_eq!(view.texts("user"), ["one", "two", "three"]);
    assert_eq!(view.texts("assistant"), ["r-one", "r-two", "r-three"]);
    let requests = scene.fake.requests();
    assert!(said(requests[1].messages()).contains("two") && !said(requests[1].messages()).contains("three"));
    let statuses: Vec<_> = view.of_type("turn").iter().map(|t| t["status"].clone()).collect();
    assert_eq!(statuses.iter().filter(|s| *s == "done").count(), 3, "{statuses:?}");
    scene.fake.assert_clean();
}

#[test]
fn a_steer_is_delivered_into_the_running_turn_at_its_next_step() {
    let scene = Scene::plain();
    fs::write(scene.home.file("a.txt"), "content").unwrap();
    let gate = Gate::new();
    scene.fake.reply(Reply::new().gate(&gate).tool_call("read", json!({"path": "a.txt"})));
    scene.fake.reply(Reply::say("done"));
    scene.wire.send(&scene.id, "one");
    gate.wait_reached();
    let steer = scene.with(json!({"text": "look closer", "mode": "steer"}));
    assert_eq!(scene.wire.ok("session/send", steer)["outcome"], "steering");
    gate.open();
    let view = scene.wire.wait_quiet(&scene.id);
    let users = view.of_type("user");
    assert!(users.len() == 2 && users[1]["steer"] == true && users[1]["text"] == "look closer", "{users:?}");
    assert!(said(scene.fake.requests()[1].messages()).contains("look closer"));
    assert_eq!(view.of_type("turn").iter().filter(|t| t["status"] != "step").count(), 1);
    scene.fake.assert_clean();
}

#[test]
fn a_steer_its_turn_did_not_take_goes_in_front_of_the_queue() {
    let scene = Scene::plain();
    let gate = Gate::new();
    scene.fake.reply(Reply::new().gate(&gate).text("no tools"));
    scene.fake.reply(Reply::say("b"));
    scene.fake.reply(Reply::say("c"));
    scene.wire.send(&scene.id, "one");
    scene.wire.send(&scene.id, "queued");
    scene.wire.ok("session/send", scene.with(json!({"text": "steered", "mode": "steer"})));
    gate.open();
    assert_eq!(scene.wire.wait_quiet(&scene.id).texts("user"), ["one", "steered", "queued"]);
    scene.fake.assert_clean();
}

#[test]
fn esc_keeps_the_partial_text_holds_the_queue_and_release_lets_it_go() {
    for dialect in Dialect::ALL {
        let scene = Scene::new(dialect, json!({}));
        let gate = Gate::new();
        scene.fake.reply(Reply::say("half an ").gate(&gate).text("answer"));
        scene.fake.reply(Reply::say("second"));
        scene.wire.send(&scene.id, "one");
        scene.wire.send(&scene.id, "two");
        scene.wire.wait_view(&scene.id, "partial text", |v| v.streaming("assistant") == Some("half an "));
        let asked = Instant::now();
        assert_eq!(scene.wire.ok("session/interrupt", scene.with(json!({})))["outcome"], "interrupted");
        assert!(asked.elapsed() < Duration::from_secs(2), "esc took {:?}", asked.elapsed());
        let view = scene.wire.wait_view(&scene.id, "held", |v| v.state_name() == "held");
        assert_eq!((view.waiting(), view.last_status()), (vec!["two"], "interrupted"));
        let partial = view.of_type("assistant");
        assert!(partial.len() == 1 && partial[0]["partial"] == true, "{partial:?}");
        assert_eq!(partial[0]["text"].as_str().unwrap().trim(), "half an");
        scene.fake.wait_aborted(1);
        assert_eq!(scene.fake.count(), 1);
        assert_eq!(scene.wire.ok("session/release", scene.with(json!({})))["outcome"], "released");
        let view = scene.wire.wait_quiet(&scene.id);
        assert_eq!((view.texts("user"), view.last_status()), (vec!["one", "two"], "done"));
        scene.fake.assert_clean();
    }
}

#[test]
fn esc_and_release_with_nothing_to_do_say_so() {
    let (_home, _daemon, wire, id) = rehearsal(json!({}));
    assert_eq!(wire.ok("session/interrupt", json!({"id": id}))["outcome"], "nothing");
    assert_eq!(wire.ok("session/release", json!({"id": id}))["outcome"], "nothing");
    assert!(wire.view(&id).quiet());
}

#[test]
fn a_send_on_a_held_session_goes_behind_what_waits_and_releases_all() {
    let scene = Scene::plain();
    let gate = Gate::new();
    scene.fake.reply(Reply::say("x ").gate(&gate));
    scene.wire.send(&scene.id, "one");
    scene.wire.send(&scene.id, "two");
    gate.wait_reached();
    scene.wire.ok("session/interrupt", scene.with(json!({})));
    scene.wire.wait_view(&scene.id, "held", |v| v.state_name() == "held");
    scene.fake.answer_by(|_| Reply::say("ok"));
    scene.wire.send(&scene.id, "three");
    let view = scene.wire.wait_quiet(&scene.id);
    assert_eq!(view.texts("user"), ["one", "two", "three"]);
    scene.fake.assert_clean();
}

#[test]
fn an_interrupting_send_stops_the_turn_and_runs_first() {
    let scene = Scene::plain();
    let gate = Gate::new();
    scene.fake.reply(Reply::say("x ").gate(&gate));
    scene.wire.send(&scene.id, "one");
    scene.wire.send(&scene.id, "two");
    gate.wait_reached();
    scene.fake.answer_by(|_| Reply::say("ok"));
    scene.wire.ok("session/send", scene.with(json!({"text": "now", "mode": "interrupt"})));
    let view =
        scene.wire.wait_view(&scene.id, "now ran", |v| v.texts("user").contains(&"now") && v.state_name() != "running");
    assert_eq!(view.texts("user")[..2], ["one", "now"], "{view:?}");
    if view.state_name() == "held" {
        scene.wire.ok("session/release", scene.with(json!({})));
    }
    assert_eq!(scene.wire.wait_quiet(&scene.id).texts("user"), ["one", "now", "two"]);
    scene.fake.assert_clean();
}

#[test]
fn an_interrupting_send_runs_before_a_steer_that_was_not_taken() {
    let scene = Scene::plain();
    let gate = Gate::new();
    scene.fake.reply(Reply::say("x ").gate(&gate));
    scene.wire.send(&scene.id, "one");
    scene.wire.send(&scene.id, "two");
    gate.wait_reached();
    scene.wire.ok("session/send", scene.with(json!({"text": "steered", "mode": "steer"})));
    scene.fake.answer_by(|_| Reply::say("ok"));
    scene.wire.ok("session/send", scene.with(json!({"text": "now", "mode": "interrupt"})));
    let view = scene.wire.wait_quiet(&scene.id);
    assert_eq!(view.texts("user"), ["one", "now", "steered", "two"]);
    assert!(view.of_type("user").iter().all(|u| u["steer"] != true));
    scene.fake.assert_clean();
}

#[test]
fn esc_ends_a_running_command_with_its_children() {
    let (home, _daemon, wire, id) = rehearsal(json!({"mode": "all"}));
    wire.send(&id, "run echo $$ > pid; sleep 300 & echo $! > child; wait");
    let pid =
        |name: &str| until(name, PATIENCE, || fs::read_to_string(home.file(name)).ok()?.trim().parse::<u32>().ok());
    let started: Vec<Proc> = ["pid", "child"].iter().filter_map(|n| Proc::open(pid(n))).collect();
    assert_eq!(started.len(), 2);
    wire.ok("session/interrupt", json!({"id": id}));
    let view = wire.wait_quiet(&id);
    assert_eq!(view.last_status(), "interrupted");
    assert!(view.of_type("tool").iter().all(|t| t["ok"] == false), "{:?}", view.of_type("tool"));
    assert!(started.iter().all(|p| p.wait(PATIENCE)), "a process outlived esc");
}

#[test]
fn esc_is_answered_at_once_and_a_command_may_tidy_up() {
    let (home, _daemon, wire, id) = rehearsal(json!({"mode": "all"}));
    let tidy = "trap 'sleep 0.7; echo last; : > saved; exit' TERM; yes x | head -c 50000; echo; echo $$ > pid; \
                while :; do sleep 0.02; done";
    wire.send(&id, &format!("run {tidy}"));
    let pid = until("it runs", PATIENCE, || fs::read_to_string(home.file("pid")).ok()?.trim().parse::<u32>().ok());
    let process = Proc::open(pid).unwrap();
    wire.wait_view(&id, "its output", |v| v.streaming("tool").is_some_and(|t| t.len() > 50_000));
    assert_eq!(wire.ok("session/interrupt", json!({"id": id}))["outcome"], "interrupted");
    assert!(!home.file("saved").exists(), "the turn waited for the command");
    let view = wire.wait_quiet(&id);
    let tool = view.of_type("tool")[0].clone();
    let result = tool["result"].as_str().unwrap();
    assert!(tool["ok"] == false && result.contains("[interrupted; the process group was told to end"), "{result}");
    let blob = home.sessions().join(format!("blobs/{id}/{}", tool["blob"].as_str().unwrap()));
    assert!(fs::read_to_string(blob).unwrap().starts_with("x\nx\n"));
    assert!(process.wait(PATIENCE) && home.file("saved").exists(), "it was killed before it was done");
}

#[test]
fn a_stopping_daemon_lets_commands_tidy_up() {
    let (home, mut daemon, wire, id) = rehearsal(json!({}));
    let tidy = "trap 'sleep 0.7; : > saved; exit' TERM; echo $$ > pid; while :; do sleep 0.02; done";
    wire.ok("session/shell", json!({"id": id, "command": tidy}));
    let pid = until("it runs", PATIENCE, || fs::read_to_string(home.file("pid")).ok()?.trim().parse::<u32>().ok());
    let process = Proc::open(pid).unwrap();
    daemon.term();
    assert!(daemon.wait(PATIENCE).is_some());
    assert!(process.wait(PATIENCE) && home.file("saved").exists());
}

#[test]
fn of_a_flood_the_end_is_held_and_who_attaches_is_told() {
    let (home, _daemon, wire, id) = rehearsal(json!({"mode": "all"}));
    let flood = "yes 'a line of the flood' | head -c 6000000; echo; echo over; while [ ! -e go ]; do sleep 0.02; done";
    wire.send(&id, &format!("run {flood}"));
    // Whoever watched the flood has fallen behind; these come when it is over.
    let (late, piece) = until("all of it", PATIENCE, || {
        let late = home.wire("late");
        let piece = late.attach(&id, json!({}))["inFlight"][0].clone();
        piece["text"].as_str().is_some_and(|t| t.ends_with("over\n")).then_some((late, piece))
    });
    let text = piece["text"].as_str().unwrap();
    assert!(piece["offset"].as_u64().unwrap() > 4_000_000 && text.len() < 1_500_000);
    assert_eq!(piece["offset"].as_u64().unwrap() + text.len() as u64, 6_000_006);
    let live = home.sessions().join(format!("live/{id}.jsonl"));
    until("the journal has its part", PATIENCE, || {
        fs::read_to_string(&live).ok()?.contains("which was not kept").then_some(())
    });
    assert!(fs::metadata(&live).unwrap().len() < 1 << 20, "the journal has too much");
    fs::write(home.file("go"), "").unwrap();
    let view = late.wait_quiet(&id);
    assert!(view.of_type("tool")[0]["blob"].is_string());
}

#[test]
fn esc_withdraws_the_open_request_everywhere() {
    let (home, _daemon, wire, id) = rehearsal(json!({}));
    let bob = home.wire("bob");
    bob.attach(&id, json!({}));
    wire.send(&id, "write a.txt hello");
    let card = bob.request(&id);
    wire.ok("session/interrupt", json!({"id": id}));
    let view = bob.wait_quiet(&id);
    assert!(view.resolved.len() == 1 && view.resolved[0]["decision"] == "withdrawn", "{:?}", view.resolved);
    assert!(bob.answer(&id, &card, "allow").is_err());
    assert!(!home.file("a.txt").exists());
}

#[test]
fn a_denial_with_words_reaches_the_model() {
    let scene = Scene::plain();
    scene.fake.reply(Reply::call("write", json!({"path": "a.txt", "content": "x"})));
    scene.fake.reply(Reply::say("as you wish"));
    scene.wire.send(&scene.id, "go");
    let card = scene.wire.request(&scene.id);
    let words = json!({"request": card["request"], "decision": "deny", "words": "use b.txt instead"});
    scene.wire.ok("request/answer", scene.with(words));
    let view = scene.wire.wait_quiet(&scene.id);
    assert!(said(scene.fake.requests()[1].messages()).contains("use b.txt instead"));
    assert!(view.of_type("tool")[0]["ok"] == false && !scene.home.file("a.txt").exists());
    scene.fake.assert_clean();
}

#[test]
fn always_adds_the_rule_it_names() {
    let (home, _daemon, wire, id) = rehearsal(json!({}));
    wire.send(&id, "run echo one");
    let card = wire.request(&id);
    assert!(card["rule"].is_string(), "{card}");
    wire.answer(&id, &card, "always").unwrap();
    wire.wait_quiet(&id);
    let view = wire.turn(&id, "run echo one");
    assert_eq!(view.resolved.len(), 1, "the same command asked again");
    assert!(view.of_type("tool").iter().all(|t| t["ok"] == true));
    drop(home);
}

#[test]
fn always_is_remembered_for_the_project_and_no_other() {
    let (home, mut daemon, wire, id) = rehearsal(json!({}));
    wire.send(&id, "run echo one");
    wire.answer(&id, &wire.request(&id), "always").unwrap();
    wire.wait_quiet(&id);
    daemon.kill9();
    let _next = home.daemon();
    let wire = home.wire("ann");
    let again = wire.new_session(&home, json!({}));
    let view = wire.turn(&again, "run echo two");
    assert!(view.resolved.is_empty() && view.of_type("tool")[0]["ok"] == true);
    let elsewhere = wire.new_session(&home, json!({"cwd": home.other_dir("elsewhere")}));
    wire.send(&elsewhere, "run echo three");
    wire.answer(&elsewhere, &wire.request(&elsewhere), "deny").unwrap();
    wire.wait_quiet(&elsewhere);
}

#[test]
fn writing_outside_the_directory_asks_whatever_else_is_allowed() {
    let home = home();
    home.config(&json!({"allow": ["write", "write(**)"]}));
    let _daemon = home.daemon();
    let wire = home.wire("ann");
    let other = home.other_dir("other");
    let id = wire.new_session(&home, json!({"mode": "edits"}));
    assert!(wire.turn(&id, "write in.txt x").resolved.is_empty());
    let outside = other.join("out.txt").display().to_string();
    std::os::unix::fs::symlink(&other, home.file("link")).unwrap();
    for path in [outside.as_str(), "../other/out.txt", "link/out.txt"] {
        wire.send(&id, &format!("write {path} x"));
        wire.answer(&id, &wire.request(&id), "deny").unwrap();
        wire.wait_quiet(&id);
        assert!(!other.join("out.txt").exists(), "{path}");
    }
    // Allowed always, it holds for this very file and this session.
    wire.send(&id, &format!("write {outside} x"));
    wire.answer(&id, &wire.request(&id), "always").unwrap();
    wire.wait_quiet(&id);
    assert!(other.join("out.txt").exists());
    fs::remove_file(&outside).unwrap();
    let second = wire.new_session(&home, json!({"mode": "edits"}));
    wire.send(&second, &format!("write {outside} y"));
    wire.answer(&second, &wire.request(&second), "deny").unwrap();
    wire.wait_quiet(&second);
    assert!(!other.join("out.txt").exists());
}

#[test]
fn a_persons_title_wins_over_the_derived_one_and_stays() {
    let (home, mut daemon, wire, id) = rehearsal(json!({}));
    let title = |wire: &glrs_tests::Wire| {
        let info = wire.ok("session/info", json!({"id": id}))["session"].clone();
        (info["title"].as_str().unwrap().to_owned(), info["renamed"] == true)
    };
    wire.turn(&id, "say 2 words");
    assert_eq!(title(&wire), ("say 2 words".to_owned(), false));
    wire.ok("session/rename", json!({"id": id, "title": "By hand"}));
    wire.turn(&id, "say 3 words");
    assert_eq!(title(&wire), ("By hand".to_owned(), true));
    daemon.kill9();
    let _next = home.daemon();
    assert_eq!(title(&home.wire("ann")), ("By hand".to_owned(), true));
}

#[test]
fn a_question_is_answered_in_words() {
    let (_home, _daemon, wire, id) = rehearsal(json!({}));
    wire.send(&id, "ask which colour?");
    let card = wire.request(&id);
    assert!(card["kind"] == "question" && card["body"].as_str().unwrap().contains("which colour"), "{card}");
    wire.ok("request/answer", json!({"id": id, "request": card["request"], "decision": "answer", "words": "green"}));
    let view = wire.wait_quiet(&id);
    assert!(view.of_type("tool").iter().any(|t| t["result"].as_str().is_some_and(|r| r.contains("green"))));
}

#[test]
fn one_sessions_request_does_not_block_another() {
    let (home, _daemon, wire, id) = rehearsal(json!({}));
    wire.send(&id, "write a.txt x");
    wire.request(&id);
    let other = wire.new_session(&home, json!({}));
    assert_eq!(wire.turn(&other, "say 3 words").last_status(), "done");
    assert_eq!(wire.view(&id).requests.len(), 1);
}

#[test]
fn the_mode_is_the_sessions_and_changing_it_is_an_entry() {
    let (home, _daemon, wire, id) = rehearsal(json!({}));
    wire.ok("session/set", json!({"id": id, "mode": "edits"}));
    let view = wire.turn(&id, "write a.txt inside");
    assert!(view.resolved.is_empty() && home.file("a.txt").exists());
    assert!(view.of_type("custom").iter().any(|c| c["custom"] == "glrs:mode"), "{:?}", view.of_type("custom"));
    wire.send(&id, "run echo x");
    wire.answer(&id, &wire.request(&id), "deny").unwrap();
    wire.wait_quiet(&id);
}

#[test]
fn two_sends_of_one_moment_get_one_order_that_all_see() {
    let scene = Scene::plain();
    scene.fake.answer_by(|_| Reply::say("ok"));
    let bob = scene.join("bob");
    let calls: Vec<(u64, u64)> = (0..10)
        .map(|i| {
            let send = |who: &str| scene.with(json!({"text": format!("{who} {i}")}));
            (scene.wire.start("session/send", send("ann")), bob.start("session/send", send("bob")))
        })
        .collect();
    for (a, b) in calls {
        scene.wire.reply(a).unwrap();
        bob.reply(b).unwrap();
    }
    let all = |v: &View| v.quiet() && v.texts("user").len() == 20;
    let (a, b) = (scene.wire.wait_view(&scene.id, "all", all), bob.wait_view(&scene.id, "all", all));
    a.same_as(&b).unwrap();
    for who in ["ann", "bob"] {
        let order: Vec<_> = a.texts("user").into_iter().filter(|t| t.starts_with(who)).collect();
        assert_eq!(order, (0..10).map(|i| format!("{who} {i}")).collect::<Vec<_>>());
    }
    scene.fake.assert_clean();
}
