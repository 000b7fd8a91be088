//! What lies on disk after real work: one valid JSON value, append only, nothing that nobody asked for.

use crate::{KEY, Scene, rehearsal};
use glrs_tests::{Home, PATIENCE, Reply, Value, Wire, check, cli, json};
use std::collections::BTreeMap;
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};

/// Every file below a directory with its bytes.
fn tree(dir: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut files = BTreeMap::new();
    for entry in fs::read_dir(dir).into_iter().flatten().flatten() {
        if entry.path().is_dir() {
            files.extend(tree(&entry.path()));
        } else if let Ok(bytes) = fs::read(entry.path()) {
            files.insert(entry.path(), bytes);
        }
    }
    files
}

/// A file's bytes up to its trailer line.
fn entries_part(path: &Path) -> Vec<u8> {
    let bytes = fs::read(path).unwrap();
    let end = bytes.iter().rposition(|b| *b == b'\n').unwrap();
    bytes[..=end].to_vec()
}

#[test]
fn real_turns_leave_a_legal_file_and_pre_images() {
    let (home, _daemon, wire, id) = rehearsal(json!({"mode": "all"}));
    fs::write(home.file("notes.txt"), "before\n").unwrap();
    for text in [
        "read notes.txt",
        "write notes.txt after",
        "run ls -la",
        "grep after",
        "glob *.txt",
        "plan one; two",
        "think 5 words",
        "steps 2",
    ] {
        let view = wire.turn(&id, text);
        assert_eq!(view.last_status(), "done", "{text}: {:#?}", view.texts("error"));
    }
    let report = check::check_session(&home.log(&id)).clean();
    assert_eq!(check::check_home(&home.root()), Vec::<String>::new());
    assert_eq!(report.entries.len() as u64, wire.view(&id).last_n());
    for (n, entry) in &wire.view(&id).entries {
        assert_eq!(*entry, report.entries[usize::try_from(*n).unwrap() - 1], "entry {n} on the wire and on disk");
    }
    let files: Vec<&Value> = report.entries.iter().filter(|e| e["custom"] == "glrs:files").collect();
    let change = &files.iter().find(|f| f["data"]["path"].as_str().unwrap().ends_with("notes.txt")).unwrap()["data"];
    let blob = home.sessions().join("blobs").join(&id).join(change["before"].as_str().unwrap());
    assert_eq!(fs::read_to_string(blob).unwrap(), "before\n");
    assert!(report.entries.iter().any(|e| e["custom"] == "glrs:plan"));
    assert!(wire.view(&id).plan.as_array().unwrap().len() == 2);
}

#[test]
fn entries_are_appended_and_never_written_again() {
    let (home, _daemon, wire, id) = rehearsal(json!({}));
    wire.turn(&id, "say 5 words");
    for i in 0..5 {
        let before = entries_part(&home.log(&id));
        wire.turn(&id, &format!("say {i} words and more"));
        let after = entries_part(&home.log(&id));
        assert!(after.len() > before.len() && after.starts_with(&before), "turn {i} changed earlier bytes");
        check::check_session(&home.log(&id)).clean();
    }
}

#[test]
fn looking_writes_nothing_and_grows_nothing() {
    let (home, mut daemon, wire, id) = rehearsal(json!({}));
    wire.turn(&id, "say 5 words");
    wire.close();
    daemon.kill9();
    let _first = home.daemon();
    home.wire("settle").attach(&id, json!({}));
    let before = tree(&home.sessions());
    for i in 0..10 {
        let other = home.wire("reader");
        other.attach(&id, if i % 2 == 0 { json!({}) } else { json!({"tail": 1}) });
        other.ok("session/list", json!({}));
        other.ok("session/info", json!({"id": id}));
        other.ok("session/resume", json!({"id": id}));
        other.ok("session/entries", json!({"id": id, "from": -1}));
        other.ok("session/export", json!({"id": id}));
    }
    assert_eq!(before.keys().collect::<Vec<_>>(), tree(&home.sessions()).keys().collect::<Vec<_>>());
    assert_eq!(before[&home.log(&id)], fs::read(home.log(&id)).unwrap());
}

/// What is kept for the next load changes nothing that anyone sees, and is not believed once the log
/// is another.
#[test]
fn a_large_session_is_the_same_with_and_without_its_kept_fold() {
    let (home, mut daemon, wire, id) = rehearsal(json!({}));
    wire.ok("session/rename", json!({"id": id, "title": "a name"}));
    wire.turn(&id, "say 5 words");
    let large = "x".repeat(2 << 20);
    wire.ok("session/append", json!({"id": id, "custom": "test:large", "data": large}));
    let send = json!({"id": id, "text": "say 2 words", "key": "k"});
    let sent = wire.ok("session/send", send.clone());
    wire.wait_view(&id, "the turn's end", |v| v.quiet());
    let seen = |wire: &Wire| {
        let mut snapshot = wire.ok("session/attach", json!({"id": id, "tail": 3}));
        for own in ["epoch", "seq", "clients", "resumed"] {
            snapshot.as_object_mut().unwrap().remove(own);
        }
        assert_eq!(wire.ok("session/send", send.clone())["entry"], sent["entry"], "a repeated call is known");
        snapshot
    };
    wire.close();
    let fold = home.sessions().join("folds").join(format!("{id}.json"));
    assert!(!fold.exists());
    let mut views = Vec::new();
    for round in 0..4 {
        daemon.term();
        daemon.wait(PATIENCE);
        assert!(fold.exists(), "kept in round {round}");
        match round {
            1 => fs::remove_file(&fold).unwrap(),
            2 => fs::write(&fold, "nonsense").unwrap(),
            3 => {
                // As another program's log would: same bytes, another moment.
                let later = std::time::SystemTime::now() + std::time::Duration::from_secs(1);
                fs::File::options().write(true).open(home.log(&id)).unwrap().set_modified(later).unwrap();
                fs::write(&fold, fs::read_to_string(&fold).unwrap().replace("a name", "no name")).unwrap();
            }
            _ => {}
        }
        daemon = home.daemon();
        views.push(seen(&home.wire("again")));
    }
    assert_eq!(views[0]["info"]["title"], "a name");
    assert!(views.iter().all(|v| *v == views[0]), "{views:#?}");
    home.wire("last").ok("session/delete", json!({"id": id, "force": true}));
    assert!(!fold.exists());
}

/// Larger than a message may be: it goes out in parts, which joined are the document.
#[test]
fn a_session_larger_than_a_message_is_exported_whole() {
    const PARTS: usize = 12;
    const PIECES: usize = 300_000;
    let home = Home::new();
    fs::create_dir_all(home.sessions()).unwrap();
    let at = "2026-01-01T00:00:00.000Z";
    let head = json!({"schema": 2, "id": "00c0ffee", "createdAt": at, "cwd": home.work()}).to_string();
    let mut file = fs::File::create(home.log("00c0ffee")).unwrap();
    let lines: Vec<String> = (0..PARTS)
        .map(|n| json!({"type": "notice", "text": format!("{n}{}", "x\"\n".repeat(PIECES)), "at": at}).to_string())
        .collect();
    write!(file, "{},\"events\":[\n{}\n]}}", &head[..head.len() - 1], lines.join("\n,")).unwrap();
    let daemon = home.daemon();
    let whole: Value = cli(&home, ["sessions", "export", "00c0ffee"]).ok().stdout.parse().expect("an export is JSON");
    let events = whole["events"].as_array().unwrap();
    assert!(events.iter().map(Value::to_string).eq(lines.iter().map(|l| l.parse::<Value>().unwrap().to_string())));
    assert_eq!((&whole["updatedAt"], &whole["id"]), (&json!(at), &json!("00c0ffee")));
    let out = home.work().join("out.md");
    cli(&home, ["sessions", "export", "00c0ffee", "--format", "markdown", "--output", out.to_str().unwrap()]).ok();
    let text = fs::read_to_string(&out).unwrap();
    assert_eq!(text.matches("x\"").count(), PARTS * PIECES);
    let again = cli(&home, ["sessions", "export", "00c0ffee", "--output", out.to_str().unwrap()]);
    assert!(again.code != Some(0) && fs::read_to_string(&out).unwrap() == text, "no file is written over");
    drop(daemon);
}

#[test]
fn a_session_nobody_spoke_in_leaves_no_trace() {
    let (home, daemon, wire, id) = rehearsal(json!({}));
    assert_eq!(wire.view(&id).info["saved"], false);
    drop((wire, daemon));
    assert!(tree(&home.sessions()).keys().all(|p| !p.to_string_lossy().contains(&id)));
}

#[test]
fn a_large_result_is_clipped_and_whole_in_its_blob() {
    let (home, _daemon, wire, id) = rehearsal(json!({"mode": "all"}));
    let view = wire.turn(&id, "run seq 1 20000");
    let tool = view.of_type("tool")[0].clone();
    assert!(tool["result"].as_str().unwrap().chars().count() <= 30_000, "not clipped");
    let blob = home.sessions().join("blobs").join(&id).join(tool["blob"].as_str().unwrap());
    let whole = fs::read_to_string(blob).unwrap();
    assert!(whole.contains("\n10000\n") && whole.contains("\n20000\n"), "{} bytes", whole.len());
    check::check_session(&home.log(&id)).clean();
}

#[test]
fn a_torn_tail_is_cut_kept_beside_and_said() {
    let (home, mut daemon, wire, id) = rehearsal(json!({}));
    wire.turn(&id, "say 5 words");
    let whole = wire.turn(&id, "say 6 words");
    daemon.kill9();
    let mut bytes = entries_part(&home.log(&id));
    bytes.extend_from_slice(b",{\"type\":\"assistant\",\"text\":\"torn in the mid");
    fs::write(home.log(&id), &bytes).unwrap();
    let _daemon = home.daemon();
    let wire = home.wire("bob");
    let listed = wire.ok("session/list", json!({}));
    assert_eq!(listed["sessions"][0]["id"], id.as_str(), "{listed}");
    wire.attach(&id, json!({}));
    let kept: Vec<_> = wire.view(&id).entries.into_iter().filter(|(n, _)| *n <= whole.last_n()).collect();
    assert_eq!(kept, whole.entries.into_iter().collect::<Vec<_>>());
    let view = wire.turn(&id, "say 7 words");
    assert!(!view.texts("notice").is_empty(), "the cut is said");
    let torn = tree(&home.sessions()).into_iter().find(|(p, _)| p.to_string_lossy().contains(".torn-"));
    assert!(String::from_utf8_lossy(&torn.expect("what was cut is kept").1).contains("torn in the mid"));
    check::check_session(&home.log(&id)).clean();
}

#[test]
fn any_valid_layout_is_read_and_rewritten_only_at_the_first_append() {
    let (home, _daemon, wire, _) = rehearsal(json!({}));
    let id = "abcdef01";
    let pretty = json!({"schema": 2, "id": id, "createdAt": "2026-01-01T00:00:00.000Z", "cwd": home.work(), "extra": [1], "events": [
        {"text": "a question", "at": "2026-01-01T00:00:01.000Z", "type": "user", "odd": {"z": 1, "a": 2}},
        {"type": "assistant", "text": "an answer", "at": "2026-01-01T00:00:02.000Z"},
        {"type": "turn", "at": "2026-01-01T00:00:02.000Z", "status": "done", "messages": [
            {"role": "user", "content": "a question"}, {"role": "assistant", "content": "an answer"}]},
        {"type": "hologram", "at": "2026-01-01T00:00:03.000Z", "x": 1}
    ], "updatedAt": "2026-01-01T00:00:03.000Z"});
    let text = format!("{pretty:#}\n");
    fs::create_dir_all(home.sessions()).unwrap();
    fs::write(home.log(id), &text).unwrap();
    let snap = home.wire("eve").attach(id, json!({"readOnly": true}));
    assert_eq!(snap["entries"].as_array().unwrap().len(), 4, "{snap}");
    assert_eq!(fs::read_to_string(home.log(id)).unwrap(), text, "reading changed the file");
    wire.attach(id, json!({"env": home.env()}));
    wire.turn(id, "say 3 words");
    let report = check::check_session(&home.log(id));
    let wrong: Vec<_> = report.wrong.iter().filter(|w| !w.contains("hologram") && !w.contains("mode is")).collect();
    assert!(wrong.is_empty(), "{wrong:?}");
    assert_eq!(report.entries[0]["odd"], json!({"z": 1, "a": 2}));
    assert_eq!(report.entries[3]["type"], "hologram");
}

#[test]
fn newer_and_broken_files_are_listed_with_the_reason_and_left_alone() {
    let (home, _daemon, wire, _) = rehearsal(json!({}));
    fs::create_dir_all(home.sessions()).unwrap();
    let files = [
        ("aaaaaaa1", "{\"schema\":3,\"id\":\"aaaaaaa1\",\"events\":[]}"),
        ("aaaaaaa2", "no json at all"),
        ("aaaaaaa3", ""),
    ];
    for (id, text) in files {
        fs::write(home.log(id), text).unwrap();
    }
    let listed = wire.ok("session/list", json!({"limit": 100}));
    for (id, text) in files {
        let row = listed["sessions"]
            .as_array()
            .unwrap()
            .iter()
            .find(|s| s["id"] == id)
            .unwrap_or_else(|| panic!("{id}: {listed}"))
            .clone();
        assert!(row["state"] == "broken" && row["why"].as_str().is_some_and(|w| !w.is_empty()), "{row}");
        let kind = if id == "aaaaaaa1" { "newer_schema" } else { "broken" };
        wire.fails(kind, "session/send", json!({"id": id, "text": "hi"}));
        assert_eq!(fs::read_to_string(home.log(id)).unwrap(), text);
    }
}

#[test]
fn a_fork_is_a_file_of_its_own_and_leaves_the_parent_alone() {
    let (home, _daemon, wire, id) = rehearsal(json!({"mode": "all"}));
    wire.turn(&id, "write a.txt one");
    let at = wire.view(&id).last_n();
    wire.turn(&id, "say 5 words");
    let before = fs::read(home.log(&id)).unwrap();
    let fork = json!({"id": id, "at": at, "newId": "0badf00d"});
    let made = wire.ok("session/fork", fork.clone());
    assert_eq!((&made["session"]["id"], &made["session"]["parent"]), (&json!("0badf00d"), &json!(id)));
    assert_eq!(wire.ok("session/fork", fork)["session"]["id"], "0badf00d");
    assert_eq!(before, fs::read(home.log(&id)).unwrap());
    let (parent, copy) =
        (check::check_session(&home.log(&id)).clean(), check::check_session(&home.log("0badf00d")).clean());
    let at = usize::try_from(at).unwrap();
    assert_eq!(parent.entries[..at], copy.entries[..at]);
    assert!(copy.entries[at..].iter().any(|e| e["custom"] == "glrs:forked" && e["data"]["parent"] == id.as_str()));
    wire.ok("session/delete", json!({"id": id, "force": true}));
    assert!(!home.log(&id).exists());
    wire.attach("0badf00d", json!({"env": home.env()}));
    assert_eq!(wire.turn("0badf00d", "say 3 words").last_status(), "done");
    check::check_session(&home.log("0badf00d")).clean();
}

#[test]
fn prompt_history_keeps_the_last_hundred_without_repeats() {
    let (home, _daemon, wire, _) = rehearsal(json!({}));
    for i in 0..105 {
        wire.ok("prompts/push", json!({"text": format!("prompt {i}")}));
        wire.ok("prompts/push", json!({"text": format!("prompt {i}")}));
    }
    wire.ok("prompts/push", json!({"text": "  "}));
    let kept = wire.ok("prompts/list", json!({}))["prompts"].clone();
    let expected: Vec<String> = (5..105).map(|i| format!("prompt {i}")).collect();
    assert_eq!(kept, json!(expected));
    let file: Value = fs::read_to_string(home.sessions().join("prompts.json")).unwrap().parse().unwrap();
    assert_eq!(file, kept);
}

#[test]
fn an_extensions_entry_is_kept_and_never_sent() {
    let scene = Scene::plain();
    scene.fake.answer_by(|_| Reply::say("ok"));
    let append = scene.with(json!({"custom": "mine:note", "data": {"secret": "for me only"}, "key": "k"}));
    let n = scene.wire.ok("session/append", append.clone())["n"].clone();
    assert_eq!(scene.wire.ok("session/append", append)["n"], n);
    scene.wire.turn(&scene.id, "hello");
    assert!(!scene.fake.requests()[0].raw.contains("for me only"));
    let rows = scene.wire.ok("session/custom", scene.with(json!({"custom": "mine:note"})));
    assert!(rows["entries"].as_array().unwrap().len() == 1 && rows["entries"][0]["n"] == n, "{rows}");
}

#[test]
fn neither_keys_nor_words_are_in_the_log_and_keys_are_nowhere() {
    let scene = Scene::plain();
    scene.fake.reply(Reply::error(glrs_tests::Dialect::Anthropic, 401, "authentication_error", "invalid x-api-key"));
    scene.wire.turn(&scene.id, "xyzzy is what I said");
    for (path, bytes) in tree(&scene.home.root()) {
        let text = String::from_utf8_lossy(&bytes);
        assert!(!text.contains(KEY), "a key is in {}", path.display());
        let log = path.file_name().is_some_and(|n| n.to_string_lossy().starts_with("glrsd.log"));
        assert!(!log || !text.contains("xyzzy"), "what a person said is in {}", path.display());
    }
}
