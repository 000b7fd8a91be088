//! Files that others wrote or that something damaged: every fixture of `tests/fixtures/sessions`,
//! and cases of our own.

use super::tests::*;
use super::*;
use std::os::unix::fs::{PermissionsExt, symlink};

fn fixtures() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/fixtures/sessions")
}

fn with_fixtures() -> Dir {
    let d = dir();
    for e in fs::read_dir(fixtures()).unwrap().map(|e| e.unwrap().path()) {
        let name = e.file_name().unwrap().to_str().unwrap().to_owned();
        if name != "MANIFEST.json" {
            d.put(&name, &fs::read(&e).unwrap());
        }
    }
    d
}

fn events_of(bytes: &[u8]) -> Vec<serde_json::Value> {
    let text = String::from_utf8_lossy(bytes);
    let text = text.trim_start_matches('\u{feff}').replace("1e400", "0");
    let mut de = serde_json::Deserializer::from_str(&text);
    de.disable_recursion_limit();
    let value: serde_json::Value = serde::Deserialize::deserialize(&mut de).unwrap();
    value["events"].as_array().unwrap().clone()
}

#[test]
fn every_fixture_is_listed_once_and_reading_writes_nothing() {
    let d = with_fixtures();
    let store = d.store();
    let before: Vec<_> = d.names().iter().map(|n| fs::read(d.paths.sessions().join(n)).unwrap()).collect();
    let rows = store.list().unwrap();
    let mut names: Vec<_> = rows.iter().map(|r| format!("{}.json", r.name)).collect();
    names.sort();
    let files: Vec<_> = d.names().into_iter().filter(|n| n != "prompts.json").collect();
    assert_eq!(names, files);
    for row in &rows {
        let loaded = store.load(row.id.as_ref().unwrap());
        assert_eq!(loaded.is_ok(), row.broken.is_none(), "{}: {:?} {:?}", row.name, row.broken, loaded.err());
        if let Ok(log) = loaded {
            assert_eq!((log.len(), row.cwd.as_str()), (row.entries, "/srv/app"));
        }
    }
    assert_eq!(store.prompts(), ["ok"]);
    let after: Vec<_> = d.names().iter().map(|n| fs::read(d.paths.sessions().join(n)).unwrap()).collect();
    assert_eq!(before, after);
    let broken: Vec<_> = rows.iter().filter(|r| r.broken.is_some()).map(|r| r.name.as_str()).collect();
    assert_eq!(broken.len(), 2, "{broken:?}");
    assert!(rows.iter().find(|r| r.name == "aaaa0003").unwrap().broken.as_ref().unwrap().contains("empty"));
    assert!(rows.iter().find(|r| r.name == "aaaa0011").unwrap().broken.as_ref().unwrap().contains("schema 3"));
    assert_eq!(store.list().unwrap().len(), rows.len());
}

#[test]
fn every_fixture_keeps_its_entries_through_the_first_append() {
    let d = with_fixtures();
    let store = d.store();
    for row in store.list().unwrap().into_iter().filter(|r| r.broken.is_none()) {
        let id = row.id.unwrap();
        let path = d.paths.log(&id);
        let was = fs::read(&path).unwrap();
        let mut log = store.load(&id).unwrap();
        let old = all(&log);
        assert!(log.saved());
        assert_eq!(log.append(&[user("new")], None).unwrap(), old.len() as u64 + 1);
        assert_eq!(log.disk(), None);
        log.append(&[user("newer")], None).unwrap();
        let json = json_of(&path);
        assert_eq!((json["id"].as_str(), json["schema"].as_u64()), (Some(id.as_str()), Some(2)));
        let torn: Vec<_> = d.names().into_iter().filter(|n| n.starts_with(&format!("{id}.json.torn-"))).collect();
        match id.as_str() {
            "aaaa0002" | "aaaa0005" => {
                assert_eq!(torn.len(), 1);
                assert_eq!(fs::read(d.paths.sessions().join(&torn[0])).unwrap(), was);
            }
            _ => assert!(torn.is_empty(), "{torn:?}"),
        }
        match id.as_str() {
            "aaaa0002" => assert_eq!(old.len(), 7),
            "aaaa0004" | "aaaa0005" => {
                assert_eq!(old.len(), 8);
                assert_eq!(log.salvage().len(), 1);
            }
            "aaaa0012" => assert_eq!(old.len(), 3),
            _ => {
                let want = events_of(&was);
                let events = json["events"].as_array().unwrap();
                assert_eq!(events[..want.len()], want[..]);
                assert_eq!(events.len(), want.len() + 2);
                assert!(log.salvage().is_empty());
            }
        }
        assert_eq!(all(&store.load(&id).unwrap())[..old.len()], old[..]);
    }
    let json = json_of(&d.paths.log(&id("aaaa0010")));
    assert_eq!((json["futureField"]["z"].as_u64(), json["events"][1]["peel"].as_bool()), (Some(1), Some(true)));
    assert!(fs::read_to_string(d.paths.log(&id("aaaa0009"))).unwrap().matches("{\"k\":").count() >= 140);
    assert_eq!(store.list().unwrap().len(), events_count(&d));
    assert!(!d.dir.path().join("escape.json").exists() && !d.dir.path().join("glrs/escape.json").exists());
}

fn events_count(d: &Dir) -> usize {
    d.names().iter().filter(|n| n.ends_with(".json") && *n != "prompts.json").count()
}

#[test]
fn a_newer_schema_is_refused_by_name_and_left_alone() {
    let d = with_fixtures();
    let store = d.store();
    let e = store.load(&id("aaaa0011")).unwrap_err();
    assert_eq!(e, LoadError::NewerSchema { schema: 3 });
    assert!(e.to_string().contains("schema 3"));
    assert!(matches!(store.load(&id("aaaa0003")), Err(LoadError::Broken { .. })));
}

#[test]
fn schema_1_becomes_entries_and_one_turn() {
    let d = with_fixtures();
    let log = d.store().load(&id("aaaa0012")).unwrap();
    let at = "\"at\":\"2026-01-02T03:04:05.000Z\"";
    assert_eq!(
        all(&log),
        [
            format!("{{\"type\":\"user\",\"text\":\"old\",{at}}}"),
            format!("{{\"type\":\"assistant\",\"text\":\"older\",{at}}}"),
            format!(
                "{{\"type\":\"turn\",\"messages\":[{{\"role\":\"user\",\"content\":\"old\"}},{{\"role\":\"assistant\",\
                 \"content\":[{{\"type\":\"text\",\"text\":\"older\"}}]}}],\"status\":\"done\",{at}}}"
            ),
        ]
    );
}

#[test]
fn sessions_are_in_the_order_of_instants() {
    let d = with_fixtures();
    let store = d.store();
    let mut new = store.load(&id("aaaa0001")).unwrap();
    // The file whose clock was wrong is old; a turn elsewhere since then is newer.
    let old = std::time::SystemTime::UNIX_EPOCH + std::time::Duration::from_secs(1_700_000_000);
    fs::File::options().write(true).open(d.paths.log(&id("aaaa0029"))).unwrap().set_modified(old).unwrap();
    new.append(&[raw_user("2026-01-02T03:30:00.000Z")], None).unwrap();
    let rows = store.list().unwrap();
    let place = |name: &str| rows.iter().position(|r| r.name == name).unwrap();
    assert!(place("aaaa0001") < place("aaaa0028"), "offset times compare by instant");
    assert!(place("aaaa0001") < place("aaaa0029"), "a wrong clock does not stay on top");
    assert!(place("aaaa0006") < place("aaaa0028"), "by instant, not as text");
    assert_eq!(rows.last().unwrap().name, "aaaa0030", "no time comes last");
    assert_eq!(rows[place("aaaa0001")].title, "one");
}

fn raw_user(at: &str) -> Box<serde_json::value::RawValue> {
    raw(format!("{{\"type\":\"user\",\"text\":\"x\",\"at\":\"{at}\"}}"))
}

#[test]
fn damaged_prompts_are_set_aside_at_the_first_push() {
    let d = with_fixtures();
    let store = d.store();
    store.push_prompt("three").unwrap();
    assert_eq!(store.prompts(), ["ok", "three"]);
    let aside: Vec<_> = d.names().into_iter().filter(|n| n.starts_with("prompts.json.broken-")).collect();
    assert_eq!(fs::read(d.paths.sessions().join(&aside[0])).unwrap(), b"[\"ok\", \"tw");
}

#[test]
fn odd_things_in_the_directory_are_listed_with_the_reason() {
    let d = dir();
    let store = d.store();
    let s = d.paths.sessions();
    filled(&store, A, 1);
    fs::create_dir(s.join("bbbbbbbb.json")).unwrap();
    symlink("/nonexistent/x", s.join("cccccccc.json")).unwrap();
    d.put("dddddddd.json", br#"{"version":1,"iv":"a","tag":"b","data":"c"}"#);
    d.put("eeeeeeee.json", br#"{"hello":1}"#);
    d.put("ffffffff.json", b"\0\0\0\0");
    d.put("notes.json", b"{}");
    d.put("ABCDEF01.json", b"{}");
    d.put("00000001.json", b"not json at all");
    d.put("00000002.json", br#"{"schema":2,"id":"00000002","cwd":"/r","events":[{"type":"us"#);
    d.put("aaaaaaaa.json.torn-x", b"{");
    #[cfg(target_os = "linux")]
    rustix::fs::mknodat(rustix::fs::CWD, s.join("00000003.json"), rustix::fs::FileType::Fifo, 0o600.into(), 0).unwrap();
    let rows = store.list().unwrap();
    let why = |n: &str| rows.iter().find(|r| r.name == n).unwrap().broken.clone().unwrap_or_default();
    for (name, words) in [
        ("bbbbbbbb", "directory"),
        ("cccccccc", "link"),
        ("dddddddd", "encrypted"),
        ("eeeeeeee", "no session"),
        ("ffffffff", "NUL"),
        ("notes", "not a session id"),
        ("ABCDEF01", "abcdef01.json"),
        ("00000001", "no JSON"),
        ("00000002", "before its first entry"),
        #[cfg(target_os = "linux")]
        ("00000003", "not a regular file"),
    ] {
        assert!(why(name).contains(words), "{name}: {}", why(name));
    }
    assert_eq!((rows.len(), why(A)), (d.names().len() - 1, String::new()), "all but what was kept aside");
}

#[test]
fn files_that_may_not_be_read_or_written_say_so_and_come_back() {
    if rustix::process::getuid().is_root() {
        return; // Root may do everything.
    }
    let d = dir();
    let store = d.store();
    let path = filled(&store, A, 2).path().to_owned();
    let mode = |m| fs::set_permissions(&path, fs::Permissions::from_mode(m)).unwrap();
    mode(0o000);
    assert!(matches!(store.load(&id(A)), Err(LoadError::Disk { .. })));
    assert!(store.list().unwrap()[0].broken.as_ref().unwrap().contains("Permission denied"));
    mode(0o400);
    assert_eq!(store.list().unwrap()[0].broken, None);
    let mut log = store.load(&id(A)).unwrap();
    assert_eq!(log.append(&[user("m2")], None).unwrap(), 3);
    assert!(log.disk().unwrap().why.contains("Permission denied") && all(&log).len() == 3);
    mode(0o600);
    wait(log.sync()).unwrap();
    assert_eq!((log.disk(), json_of(&path)["entries"].as_u64()), (None, Some(3)));
}

#[test]
fn the_predecessors_sessions_are_read_and_never_written() {
    let d = dir();
    let theirs = d.paths.legacy.join("aaaaaaaa.json");
    fs::create_dir_all(&d.paths.legacy).unwrap();
    let bytes = br#"{"schema": 2, "id": "aaaaaaaa", "cwd": "/l", "events": [{"type": "user", "text": "old"}]}"#;
    fs::write(&theirs, bytes).unwrap();
    let store = d.store();
    let row = &store.list().unwrap()[0];
    assert!(row.legacy && row.broken.is_none() && row.title == "old");
    assert!(matches!(store.delete(&id(A)), Err(DeleteError::Legacy { .. })));
    let mut log = store.load(&id(A)).unwrap();
    assert!(!log.saved());
    log.append(&[user("new")], None).unwrap();
    assert_eq!(json_of(&d.paths.log(&id(A)))["events"].as_array().unwrap().len(), 2);
    assert_eq!(fs::read(&theirs).unwrap(), bytes);
    let rows = store.list().unwrap();
    assert!(rows.len() == 1 && !rows[0].legacy && rows[0].entries == 2);
}

#[test]
fn foreign_layouts_keep_every_value() {
    let d = dir();
    let store = d.store();
    let deep = format!("{}{}", "[".repeat(5000), "]".repeat(5000));
    let events = [
        "{\"text\":\"lone \\ud800 \\u00e9\",\"type\":\"user\"}".to_owned(),
        "{\"type\":\"usage\",\"tokens\":12.0,\"tokens\":-1e999,\"big\":123456789012345678901234567890}".to_owned(),
        format!("{{\"type\":\"banana\",\"deep\":{deep}}}"),
        "7".to_owned(),
    ];
    let pretty = format!(
        "{{\n  \"schema\": 2,\n  \"x\": {{ \"y\": [ 1.0 ] }},\n  \"events\": [\n    {}\n  ],\n  \"schema\": 2\n}}\n",
        events.join("  ,\n    ")
    );
    d.put("bbbbbbbb.json", pretty.as_bytes());
    let mut log = store.load(&id("bbbbbbbb")).unwrap();
    let want = [
        "{\"type\":\"user\",\"text\":\"lone \\ud800 \\u00e9\"}".to_owned(),
        events[1].clone(),
        events[2].clone(),
        "{\"type\":\"unknown\",\"value\":7}".to_owned(),
    ];
    assert_eq!(all(&log), want);
    assert!(log.salvage().is_empty() && log.is_durable());
    wait(log.sync()).unwrap();
    assert_eq!(fs::read(log.path()).unwrap(), pretty.as_bytes(), "nothing appended, nothing written");
    log.append(&[user("x")], None).unwrap();
    let again = store.load(&id("bbbbbbbb")).unwrap();
    assert_eq!(all(&again)[..4], want);
    assert!(String::from_utf8_lossy(&again.header().line).contains("\"x\":{\"y\":[1.0]}"));
    assert_eq!(d.names(), ["bbbbbbbb.json"]);
}

#[test]
fn bytes_that_are_no_utf8_cost_only_themselves() {
    let d = dir();
    let store = d.store();
    let was =
        b"{\"schema\":2,\"events\":[{\"type\":\"user\",\"text\":\"a\xff\xfeb\"},{\"type\":\"user\",\"text\":\"c\"}]}";
    d.put("bbbbbbbb.json", was);
    let mut log = store.load(&id("bbbbbbbb")).unwrap();
    assert!(all(&log)[0].contains("a\u{fffd}\u{fffd}b") && log.salvage().len() == 1);
    log.append(&[user("x")], None).unwrap();
    assert_eq!(json_of(log.path())["events"].as_array().unwrap().len(), 3);
    let torn = d.names().into_iter().find(|n| n.contains("torn")).unwrap();
    assert_eq!(fs::read(d.paths.sessions().join(torn)).unwrap(), was);
    // In our layout they stay in place.
    let mut log = filled(&store, A, 3);
    let mut bytes = fs::read(log.path()).unwrap();
    let i = memchr::memmem::find(&bytes, b"m1").unwrap();
    bytes[i] = 0xff;
    fs::write(log.path(), &bytes).unwrap();
    assert!(log.append(&[user("y")], None).is_err(), "someone else wrote it");
    let log = store.load(&id(A)).unwrap();
    assert_eq!((log.len(), log.bad_lines()), (3, 0));
    assert!(log.entry(2).unwrap().unwrap().get().contains("\u{fffd}1"));
}

#[test]
fn rows_show_title_model_mode_and_where() {
    let d = dir();
    let store = d.store();
    let mut log = filled(&store, A, 1);
    let custom = |kind: &str, data: &str| {
        raw(format!("{{\"type\":\"custom\",\"custom\":\"{kind}\",\"data\":{data},\"at\":\"{AT}\"}}"))
    };
    assert_eq!(store.list().unwrap()[0].title, "m0");
    log.append(&[custom("glrs:title", r#"{"text":"by model","by":"model"}"#)], None).unwrap();
    assert_eq!(store.list().unwrap()[0].title, "by model");
    log.append(
        &[
            custom("glrs:title", r#"{"text":"by a\nperson","by":"person"}"#),
            custom("glrs:title", r#"{"text":"later","by":"model"}"#),
            custom("glrs:model", r#"{"model":"p/m","variant":"high"}"#),
            custom("glrs:mode", r#"{"mode":"edits"}"#),
            custom("glrs:cwd", r#"{"cwd":"/else"}"#),
        ],
        Some(77),
    )
    .unwrap();
    let row = &store.list().unwrap()[0];
    assert_eq!((row.title.as_str(), row.renamed, row.context_tokens), ("by a person", true, 77));
    assert_eq!((row.model.as_deref(), row.variant.as_deref(), row.cwd.as_str()), (Some("p/m"), Some("high"), "/else"));
    assert_eq!(row.mode, Some(glrs_protocol::types::Mode::Edits));
}

#[test]
fn what_json_has_not_costs_only_itself() {
    let d = dir();
    let store = d.store();
    let was = b"{\"schema\":2,\"odd\":NaN,\"\\q\":1,\"cwd\":\"\\q\",\"events\":[{\"type\":\"usage\",\"tokens\":NaN},\n{\"type\":\"user\",\"text\":\"a\tb\"}]}";
    d.put("bbbbbbbb.json", was);
    let mut log = store.load(&id("bbbbbbbb")).unwrap();
    assert_eq!(all(&log), [r#"{"type":"usage","tokens":"NaN"}"#, r#"{"type":"user","text":"a\u0009b"}"#]);
    log.append(&[user("x")], None).unwrap();
    let json = json_of(log.path());
    assert_eq!((json["odd"].as_str(), json["cwd"].as_str()), (Some("NaN"), Some("\\q")));
    assert!(log.kept_aside().is_some_and(|p| fs::read(p).unwrap() == was), "a key was left out");
}
