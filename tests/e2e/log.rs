//! The log through the daemon: opening adds nothing, content costs what it weighs, and a fork
//! stands by itself wherever it was cut and whatever becomes of its parent.

use crate::{Scene, faked};
use glrs_tests::{Dialect, Gate, Home, Reply, Value, Wire, check, json};
use std::fs;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

/// Every file of the sessions' directory with its size and time.
fn files(dir: &Path) -> Vec<(PathBuf, u64, SystemTime)> {
    let mut out = Vec::new();
    for entry in fs::read_dir(dir).into_iter().flatten().flatten() {
        let meta = entry.metadata().unwrap();
        if meta.is_dir() {
            out.extend(files(&entry.path()));
        } else {
            out.push((entry.path(), meta.len(), meta.modified().unwrap()));
        }
    }
    out.sort();
    out
}

/// The lines of a log's entries, without their commas.
fn lines(home: &Home, id: &str) -> Vec<String> {
    let text = fs::read_to_string(home.log(id)).unwrap();
    let entries = text.lines().skip(1).filter(|l| !l.starts_with(']'));
    entries.map(|l| l.trim_start_matches(',').to_owned()).collect()
}

fn fork(wire: &Wire, of: &str, at: usize, id: &str) {
    let made = wire.ok("session/fork", json!({"id": of, "at": at, "newId": id}));
    assert_eq!(made["session"]["id"], id);
}

#[test]
fn fifty_resumes_and_fifty_attaches_add_nothing() {
    let (home, fake) = faked(Dialect::Anthropic);
    fake.answer_by(|_| Reply::say("an answer"));
    let mut daemon = home.daemon();
    let wire = home.wire("ann");
    let id = wire.new_session(&home, json!({}));
    wire.turn(&id, "one");
    wire.turn(&id, "two");
    let mut before = None;
    for _ in 0..10 {
        daemon.kill9();
        daemon = home.daemon();
        // The first start after a kill may tidy up; from then on there is nothing to do.
        let was = before.get_or_insert_with(|| files(&home.sessions())).clone();
        for _ in 0..5 {
            let wire = home.wire("bob");
            let resume = json!({"id": id, "env": home.env()});
            assert_eq!(wire.ok("session/resume", resume)["session"]["id"], id.as_str());
            home.wire("cid").attach(&id, json!({"env": home.env()}));
            assert_eq!(files(&home.sessions()), was);
        }
    }
    assert_eq!(fake.count(), 2);
    drop(daemon);
}

#[test]
fn a_megabyte_of_content_costs_little_more_than_itself_and_its_messages() {
    let (home, fake) = faked(Dialect::Anthropic);
    let text = "a line of \"words\" that is neither long nor short\n".repeat(2000);
    let answer = text[..text.len() / 40].to_owned();
    fake.answer_by(move |_| Reply::say(&answer));
    let _daemon = home.daemon();
    let wire = home.wire("ann");
    let id = wire.new_session(&home, json!({}));
    let mut content = 0;
    while content < 1_000_000 {
        wire.turn(&id, &text);
        content += text.len() + text.len() / 40;
    }
    let entries = lines(&home, &id);
    let turns = entries.iter().filter(|l| l.starts_with("{\"type\":\"turn\""));
    let raw: usize = turns.map(String::len).sum();
    let size = usize::try_from(fs::metadata(home.log(&id)).unwrap().len()).unwrap();
    assert!(size - raw <= content * 13 / 10, "{size} bytes with {raw} of messages for {content} of content");
    check::check_session(&home.log(&id)).clean();
}

/// The text parts a request carries, in order.
fn texts(messages: &[Value]) -> Vec<String> {
    let mut out = Vec::new();
    for message in messages {
        match &message["content"] {
            Value::String(text) => out.push(text.clone()),
            parts => {
                let texts = parts.as_array().into_iter().flatten().filter_map(|p| p["text"].as_str());
                out.extend(texts.map(str::to_owned));
            }
        }
    }
    out
}

#[test]
fn a_fork_at_every_entry_replays_the_turns_inside_it_and_the_cut_message() {
    let (home, fake) = faked(Dialect::Anthropic);
    fake.answer_by(|_| Reply::say("on"));
    let fixture = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/sessions/aaaa0031.json");
    let mut session: Value = fs::read_to_string(fixture).unwrap().parse().unwrap();
    session["cwd"] = json!(home.work());
    for event in session["events"].as_array_mut().unwrap() {
        // The strict wire wants what every entry of ours has.
        event["at"] = json!("2026-09-06T14:00:00.000Z");
    }
    fs::create_dir_all(home.sessions()).unwrap();
    fs::write(home.log("aaaa0031"), session.to_string()).unwrap();
    let events = session["events"].as_array().unwrap().clone();
    let _daemon = home.daemon();
    let wire = home.wire("ann");
    let (mut told, mut pending): (Vec<String>, Vec<String>) = Default::default();
    for (i, event) in events.iter().enumerate() {
        match event["type"].as_str().unwrap() {
            "user" => pending.push(event["text"].as_str().unwrap().to_owned()),
            "turn" => {
                pending.clear();
                told.extend(texts(event["messages"].as_array().unwrap()));
            }
            _ => {}
        }
        let id = format!("{:08x}", i + 1);
        fork(&wire, "aaaa0031", i + 1, &id);
        wire.attach(&id, json!({"env": home.env()}));
        assert_eq!(wire.turn(&id, "next").last_status(), "done");
        let sent = texts(fake.requests().last().unwrap().messages());
        let sent: Vec<String> = sent.into_iter().filter(|t| !t.starts_with("<context>")).collect();
        let want: Vec<String> = told.iter().chain(&pending).cloned().chain(["next".to_owned()]).collect();
        assert_eq!(sent, want, "forked at {}", i + 1);
        let copy = check::check_session(&home.log(&id));
        assert!(copy.entries.len() > i + 1, "{:?}", copy.entries);
    }
    assert_eq!(fs::read_to_string(home.log("aaaa0031")).unwrap(), session.to_string(), "the parent is untouched");
    fake.assert_clean();
}

#[test]
fn forks_of_a_running_session_and_forks_of_forks_outlive_it() {
    let scene = Scene::new(Dialect::Anthropic, json!({"mode": "all"}));
    let (home, wire, id) = (&scene.home, &scene.wire, &scene.id);
    let gate = Gate::new();
    scene.fake.reply(Reply::say("counting ").tool_call("bash", json!({"command": "seq 1 20000"})));
    scene.fake.reply(Reply::call("write", json!({"path": "a.txt", "content": "x"})));
    scene.fake.reply(Reply::say("half a ").gate(&gate).text("sentence"));
    wire.send(id, "go");
    gate.wait_reached();
    wire.wait_view(id, "streaming", |v| v.streaming("assistant").is_some());
    let artifact = home.sessions().join("artifacts").join(id).join("20260906T140000.000Z.md");
    fs::create_dir_all(artifact.parent().unwrap()).unwrap();
    fs::write(&artifact, "a brief").unwrap();
    let (before, parent) = (fs::read(home.log(id)).unwrap(), lines(home, id));
    let blobs = |of: &str| -> Vec<(PathBuf, Vec<u8>)> {
        let dir = fs::read_dir(home.sessions().join("blobs").join(of)).into_iter().flatten().flatten();
        let mut all: Vec<_> = dir.map(|e| (e.file_name().into(), fs::read(e.path()).unwrap())).collect();
        all.sort();
        all
    };
    let kept = blobs(id);
    assert!(!kept.is_empty(), "a long result is a blob");
    let mut made = Vec::new();
    for at in 1..=parent.len() {
        let (child, grandchild) = (format!("c{at:07x}"), format!("d{at:07x}"));
        fork(wire, id, at, &child);
        assert_eq!(lines(home, &child)[..at], parent[..at]);
        fork(wire, &child, at, &grandchild);
        assert_eq!(lines(home, &grandchild)[..at], parent[..at]);
        made.extend([child, grandchild]);
    }
    assert_eq!(fs::read(home.log(id)).unwrap(), before, "a fork leaves its parent's bytes alone");
    gate.open();
    assert_eq!(wire.wait_quiet(id).texts("assistant").last(), Some(&"half a sentence"));
    assert_eq!(lines(home, id)[..parent.len()], parent);
    wire.ok("session/delete", json!({"id": id, "force": true}));
    assert!(!home.log(id).exists() && blobs(id).is_empty() && !artifact.exists());
    scene.fake.answer_by(|_| Reply::say("on"));
    for fork in &made {
        wire.attach(fork, json!({"env": home.env()}));
        assert_eq!(wire.turn(fork, "go on").last_status(), "done");
        assert_eq!(blobs(fork), kept);
        let artifact = home.sessions().join("artifacts").join(fork).join("20260906T140000.000Z.md");
        assert_eq!(fs::read_to_string(artifact).unwrap(), "a brief");
    }
    scene.fake.assert_clean();
}
