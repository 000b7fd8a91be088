//! Verifying and repairing: sound sessions stay as they are, damaged ones lose nothing.

use super::tests::*;
use super::*;
use glrs_protocol::entry::{Entry, FileChange};

fn tool(blob: &str) -> Box<serde_json::value::RawValue> {
    raw(format!("{{\"type\":\"tool\",\"name\":\"bash\",\"ok\":true,\"blob\":\"{blob}\",\"at\":\"{AT}\"}}"))
}

fn words(v: &Verdict) -> String {
    v.problems.iter().map(|p| p.what.as_str()).collect::<Vec<_>>().join("; ")
}

#[test]
fn a_sound_session_has_no_problems_and_is_not_touched() {
    let d = dir();
    let store = d.store();
    let mut log = filled(&store, A, 5);
    let blob = store.put_blob(&id(A), b"whole result").unwrap();
    store.put_artifact(&id(A), "t.md", b"old").unwrap();
    let change =
        FileChange { user_entry: 1, path: "/f".into(), before: Some(blob.clone()), mode: None, after: "h".into() };
    let compacted = format!("{{\"type\":\"compacted\",\"summary\":\"s\",\"artifact\":\"t.md\",\"at\":\"{AT}\"}}");
    let files = Entry::custom("glrs:files", &change, AT).unwrap().to_raw().unwrap();
    log.append(&[tool(&blob), raw(compacted), files], None).unwrap();
    let before = fs::read(log.path()).unwrap();
    let v = store.verify(&id(A), true).unwrap();
    assert_eq!((v.entries, words(&v).as_str(), v.notes.len()), (8, "", 0));
    assert_eq!(store.repair_all(&id(A)).unwrap(), store.verify(&id(A), false).unwrap());
    assert_eq!(fs::read(log.path()).unwrap(), before);
    assert_eq!(store.verify(&id("bbbbbbbb"), false), Err(LoadError::NotFound));
}

#[test]
fn what_entries_name_and_is_not_there_is_a_problem_that_stays() {
    let d = dir();
    let store = d.store();
    let blob = store.put_blob(&id(A), b"whole result").unwrap();
    let missing = "0".repeat(64);
    let compacted = format!("{{\"type\":\"compacted\",\"summary\":\"s\",\"artifact\":\"gone.md\",\"at\":\"{AT}\"}}");
    let mut log = store.create(&id(A), "/r", AT);
    log.append(&[user("x"), tool(&blob), tool(&missing), raw(compacted)], None).unwrap();
    fs::write(d.paths.blobs(&id(A)).join(&blob), b"rotten").unwrap();
    let v = store.repair_all(&id(A)).unwrap();
    assert_eq!(v.problems.len(), 2, "{v:?}");
    assert!(v.remains() && v.kept.is_empty());
    assert!(words(&v).contains("entry 2") && words(&v).contains("entry 3"));
    // An artifact may be deleted by whoever likes to.
    assert!(v.notes.iter().any(|n| n.contains("entry 4") && n.contains("deleted")), "{v:?}");
}

#[test]
fn every_cut_is_repaired_and_what_was_there_is_kept() {
    let d = dir();
    let store = d.store();
    let whole = fs::read(filled(&store, A, 4).path()).unwrap();
    let first = whole.iter().position(|b| *b == b'\n').unwrap();
    let path = d.paths.log(&id(A));
    for len in (0..whole.len()).step_by(7) {
        for name in d.names().iter().filter(|n| n.starts_with(A)) {
            fs::remove_file(d.paths.sessions().join(name)).unwrap();
        }
        fs::write(&path, &whole[..len]).unwrap();
        let found = store.verify(&id(A), false).unwrap();
        assert!(found.remains(), "{len}");
        assert_eq!(fs::read(&path).unwrap(), whole[..len], "a check changes nothing");
        let v = store.repair_all(&id(A)).unwrap();
        if v.remains() {
            // Nothing whole was left: never an empty session in its place.
            assert!(len < first + 60, "{len}: {v:?}");
            assert_eq!(fs::read(&path).unwrap(), whole[..len]);
            continue;
        }
        assert_eq!(v.kept.len(), 1, "{len}: {v:?}");
        assert_eq!(fs::read(&v.kept[0]).unwrap(), whole[..len]);
        assert!(v.entries > 0 && json_of(&path)["events"].as_array().unwrap().len() as u64 == v.entries);
        assert!(!store.verify(&id(A), false).unwrap().remains());
    }
}

#[test]
fn a_wrong_number_in_the_last_line_is_found() {
    let d = dir();
    let store = d.store();
    let text = fs::read_to_string(filled(&store, A, 4).path()).unwrap();
    let path = d.put(&format!("{A}.json"), text.replace("\"entries\":4", "\"entries\":9").as_bytes());
    let v = store.repair_all(&id(A)).unwrap();
    // Small files are counted at opening; either way the file is right afterwards.
    assert!(!v.remains());
    assert!(!store.verify(&id(A), false).unwrap().remains());
    let _ = path;
}

#[test]
fn a_torn_journal_keeps_its_whole_lines() {
    let d = dir();
    let store = d.store();
    filled(&store, A, 1);
    let live = d.paths.live(&id(A));
    fs::create_dir_all(live.parent().unwrap()).unwrap();
    let torn = b"{\"k\":\"held\",\"on\":true}\ngarbage\n{\"k\":\"gone\",\"row\":1}\n{\"k\":\"ro";
    fs::write(&live, torn).unwrap();
    assert!(!store.verify(&id(A), true).unwrap().remains(), "a loaded session's journal is its own business");
    let v = store.repair_all(&id(A)).unwrap();
    assert!(!v.remains() && v.problems.len() == 1, "{v:?}");
    assert_eq!(fs::read(&v.kept[0]).unwrap(), torn);
    assert_eq!(fs::read(&live).unwrap(), b"{\"k\":\"held\",\"on\":true}\n{\"k\":\"gone\",\"row\":1}\n");
    store.delete(&id(A)).unwrap();
    assert!(!v.kept[0].exists());
}

#[test]
fn what_cannot_be_read_stays_and_is_named() {
    let d = dir();
    let store = d.store();
    for (name, bytes, why) in [
        ("aaaaaaaa", &b""[..], "empty"),
        ("bbbbbbbb", b"{\"schema\":3,\"id\":\"bbbbbbbb\",\"events\":[]}", "schema 3"),
        ("cccccccc", b"no json", "no JSON"),
    ] {
        let path = d.put(&format!("{name}.json"), bytes);
        let v = store.repair_all(&id(name)).unwrap();
        assert!(v.remains() && words(&v).contains(why), "{v:?}");
        assert_eq!(fs::read(path).unwrap(), bytes);
    }
    fs::create_dir_all(&d.paths.legacy).unwrap();
    let legacy = d.paths.legacy.join("dddddddd.json");
    let torn = br#"{"schema":2,"id":"dddddddd","cwd":"/r","events":[{"type":"user","text":"x"},{"type":"us"#;
    fs::write(&legacy, torn).unwrap();
    let v = store.repair_all(&id("dddddddd")).unwrap();
    assert!(v.remains() && v.path == legacy);
    assert_eq!(fs::read(&legacy).unwrap(), torn);
}
