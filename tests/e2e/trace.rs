//! The witness trace: what happened, when, and who decided, without a word of what was said.

use crate::{KEY, Scene};
use glrs_tests::cli::cli;
use glrs_tests::{Dialect, Reply, Value, json};
use std::fs;

/// Words that are in messages, answers, commands, files and errors, and must be nowhere in a trace.
const SECRETS: [&str; 8] = ["aardvark", "badger", "caracal", "dingo", "ermine", "ferret", "gecko", "heron"];

#[test]
fn it_tells_times_and_decisions_and_no_contents() {
    let scene = Scene::new(Dialect::Anthropic, json!({}));
    fs::write(scene.home.file("a.txt"), "caracal").unwrap();
    scene.fake.reply(Reply::error(Dialect::Anthropic, 529, "overloaded_error", "heron"));
    scene.fake.reply(Reply::say("badger ").tool_call("read", json!({"path": "a.txt"})));
    scene.fake.reply(Reply::call("bash", json!({"command": "echo dingo", "description": "ermine"})));
    scene.fake.reply(Reply::call("bash", json!({"command": "rm -rf ./ferret"})));
    scene.fake.reply(Reply::say("badger again"));
    scene.wire.send(&scene.id, "aardvark");
    let card = scene.wire.request(&scene.id);
    scene.wire.answer(&scene.id, &card, "always").unwrap();
    let second = |v: &glrs_tests::View| v.requests.iter().any(|r| r["request"] != card["request"]);
    let view = scene.wire.wait_view(&scene.id, "the second card", second);
    let deny = json!({"request": view.requests[0]["request"], "decision": "deny", "words": "gecko"});
    scene.wire.ok("request/answer", scene.with(deny));
    scene.wire.wait_quiet(&scene.id);
    scene.wire.ok("session/shell", scene.with(json!({"command": "echo gecko"})));
    scene.wire.wait_view(&scene.id, "its entry", |v| v.of_type("tool").iter().any(|t| t["by"].is_string()));

    let read = scene.wire.ok("session/trace", scene.with(json!({})));
    let lines: Vec<Value> = read["lines"].as_array().cloned().unwrap();
    let of = |kind: &str| lines.iter().filter(|l| l["kind"] == kind).collect::<Vec<_>>();
    assert!(lines.iter().all(|l| l["at"].is_string()));
    assert_eq!((of("model").len(), of("retry").len(), of("turn").len(), of("asked").len()), (4, 1, 1, 2), "{lines:#?}");
    assert!(of("model")[0]["ms"].is_u64() && of("model")[0]["input"].is_u64() && of("model")[0]["calls"] == 1);
    let turn = of("turn")[0];
    assert!(turn["status"] == "done" && turn["steps"] == 4 && turn["ms"].is_u64(), "{turn}");
    let tools: Vec<_> = of("tool").iter().map(|t| (t["tool"].clone(), t["ok"].clone(), t["by"].is_string())).collect();
    let row = |tool: &str, ok: bool, by: bool| (json!(tool), json!(ok), by);
    assert_eq!(
        tools,
        [row("read", true, false), row("bash", true, false), row("bash", false, false), row("bash", true, true)]
    );
    let decided: Vec<_> = of("permission").iter().map(|p| (p["decision"].clone(), p["by"].clone())).collect();
    let person = of("permission")[1]["by"].clone();
    assert!(person.as_str().unwrap().starts_with("ann#"));
    assert_eq!(
        decided,
        [(json!("allow"), json!("reading")), (json!("always"), person.clone()), (json!("deny"), person)]
    );
    assert_eq!(of("permission")[1]["rule"], card["rule"]);

    let trace = scene.home.sessions().join(format!("traces/{}.jsonl", scene.id));
    let bytes = fs::read_to_string(&trace).unwrap();
    for secret in SECRETS.iter().chain([&KEY]) {
        assert!(!bytes.contains(secret), "the trace says {secret}: {bytes}");
    }
    // The same by command, for people and for programs.
    let told = cli(&scene.home, ["sessions", "trace", &scene.id]).ok();
    assert!(told.stdout.contains("permission  tool=bash  decision=always"), "{}", told.stdout);
    let rows = cli(&scene.home, ["sessions", "trace", &scene.id, "--json"]).ok().json_lines();
    assert_eq!(rows, lines);
    scene.wire.fails("not_found", "session/trace", json!({"id": "00000000"}));
    scene.wire.ok("session/delete", scene.with(json!({"force": true})));
    assert!(!trace.exists());
}

#[test]
fn what_esc_broke_and_withdrew_and_what_tasks_came_to_is_told() {
    let scene = Scene::new(Dialect::Anthropic, json!({}));
    let lines = || {
        let read = scene.wire.ok("session/trace", scene.with(json!({})));
        read["lines"].as_array().cloned().unwrap()
    };
    let of = |kind: &str| lines().into_iter().filter(|l| l["kind"] == kind).collect::<Vec<_>>();
    let write = json!({"path": "badger", "content": "caracal"});
    scene.fake.reply(Reply::call("bash", json!({"command": "echo dingo"})).tool_call("write", write));
    scene.wire.send(&scene.id, "go");
    let card = scene.wire.request(&scene.id);
    scene.wire.ok("session/interrupt", scene.with(json!({})));
    scene.wire.wait_quiet(&scene.id);
    let withdrawn = of("withdrawn");
    assert!(withdrawn.len() == 1 && withdrawn[0]["request"] == card["request"], "{withdrawn:?}");
    assert_eq!(withdrawn[0]["tool"], "bash");
    let broken = of("broken");
    assert_eq!(broken.len() + of("tool").len(), 2, "{:?}", lines());
    assert!(broken.iter().any(|b| b["tool"] == "write" && b["begun"] == false), "{broken:?}");
    let gate = glrs_tests::Gate::new();
    scene.fake.reply(Reply::call("task", json!({"title": "heron", "prompt": "gecko"})));
    scene.fake.reply(Reply::say("x ").gate(&gate));
    scene.wire.send(&scene.id, "delegate");
    gate.wait_reached();
    scene.wire.ok("session/interrupt", scene.with(json!({})));
    scene.wire.wait_quiet(&scene.id);
    let tasks = of("task");
    assert_eq!(tasks.iter().map(|t| t["what"].as_str().unwrap()).collect::<Vec<_>>(), ["started", "interrupted"]);
    assert_eq!(tasks[0]["child"], tasks[1]["child"]);
    let bytes = lines().iter().map(Value::to_string).collect::<String>();
    assert!(!SECRETS.iter().any(|secret| bytes.contains(secret)), "{bytes}");
}

#[test]
fn a_rule_that_lets_something_run_is_named() {
    let scene = Scene::new(Dialect::Anthropic, json!({}));
    scene.wire.ok("session/set", scene.with(json!({"mode": "edits"})));
    scene.fake.reply(Reply::call("write", json!({"path": "b.txt", "content": "x"})));
    scene.fake.reply(Reply::call("bash", json!({"command": "echo one"})));
    scene.fake.reply(Reply::call("bash", json!({"command": "echo two"})));
    scene.fake.reply(Reply::say("done"));
    scene.wire.send(&scene.id, "go");
    let card = scene.wire.request(&scene.id);
    scene.wire.answer(&scene.id, &card, "always").unwrap();
    scene.wire.wait_quiet(&scene.id);
    let read = scene.wire.ok("session/trace", scene.with(json!({})));
    let lines: Vec<Value> = read["lines"].as_array().cloned().unwrap();
    let decided: Vec<_> = lines.iter().filter(|l| l["kind"] == "permission").collect();
    assert!(decided[0]["by"] == "mode" && decided[0]["tool"] == "write", "{decided:?}");
    assert!(decided[2]["by"] == "rule" && decided[2]["rule"] == card["rule"], "{decided:?}");
}
