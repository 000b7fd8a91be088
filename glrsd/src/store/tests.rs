//! Logs, forks, blobs, journals, prompts, lock and modes, on a disk that works.

use super::*;
use proptest::prelude::*;
use serde_json::value::RawValue;
use std::os::unix::fs::{MetadataExt, PermissionsExt};

/// A data directory that is gone at the end. In memory where that is possible: syncs are free.
pub(super) struct Dir {
    pub(super) dir: tempfile::TempDir,
    pub(super) paths: Paths,
}

pub(super) fn dir() -> Dir {
    let shm = Path::new("/dev/shm");
    let dir = if shm.is_dir() { tempfile::tempdir_in(shm) } else { tempfile::tempdir() }.unwrap();
    let paths = Paths::scratch(dir.path());
    Dir { dir, paths }
}

impl Dir {
    pub(super) fn store(&self) -> Store {
        Store::open(self.paths.clone()).unwrap()
    }
    pub(super) fn put(&self, name: &str, bytes: &[u8]) -> PathBuf {
        fs::create_dir_all(self.paths.sessions()).unwrap();
        let path = self.paths.sessions().join(name);
        fs::write(&path, bytes).unwrap();
        path
    }
    pub(super) fn names(&self) -> Vec<String> {
        let mut names: Vec<String> = fs::read_dir(self.paths.sessions())
            .unwrap()
            .map(|e| e.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        names
    }
}

pub(super) fn id(text: &str) -> SessionId {
    text.parse().unwrap()
}

pub(super) const A: &str = "aaaaaaaa";
pub(super) const AT: &str = "2026-09-06T14:00:00.000Z";

pub(super) fn raw(text: impl Into<String>) -> Box<RawValue> {
    RawValue::from_string(text.into()).unwrap()
}

pub(super) fn user(text: &str) -> Box<RawValue> {
    raw(format!("{{\"type\":\"user\",\"text\":{},\"at\":\"{AT}\"}}", serde_json::Value::from(text)))
}

pub(super) fn wait<F: Future>(f: F) -> F::Output {
    tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(f)
}

/// The file as any JSON reader has it.
pub(super) fn json_of(path: &Path) -> serde_json::Value {
    let bytes = fs::read(path).unwrap();
    let mut de = serde_json::Deserializer::from_slice(&bytes);
    de.disable_recursion_limit();
    let value = serde::Deserialize::deserialize(&mut de).and_then(|v| de.end().map(|()| v));
    value.unwrap_or_else(|e| panic!("{e}: {}", String::from_utf8_lossy(&bytes)))
}

pub(super) fn all(log: &Log) -> Vec<String> {
    let mut out = Vec::new();
    log.scan(&mut |n, raw| {
        assert_eq!(n, out.len() as u64 + 1);
        out.push(raw.to_owned());
    })
    .unwrap();
    out
}

pub(super) fn filled(store: &Store, name: &str, n: usize) -> Log {
    let mut log = store.create(&id(name), "/r", AT);
    for i in 0..n {
        log.append(&[user(&format!("m{i}"))], None).unwrap();
    }
    assert_eq!(log.disk(), None);
    log
}

#[test]
fn the_bytes_are_as_documented() {
    let d = dir();
    let store = d.store();
    let mut log = store.create(&id(A), "/r", AT);
    assert!(!log.saved() && log.is_empty() && log.size() == 0);
    assert!(d.names().is_empty(), "nothing said, nothing written");
    assert_eq!(log.append(&[user("a"), user("b")], Some(2190)).unwrap(), 1);
    assert_eq!(log.append(&[user("c")], None).unwrap(), 3);
    let text = fs::read_to_string(log.path()).unwrap();
    let head = format!("{{\"schema\":2,\"id\":\"{A}\",\"createdAt\":\"{AT}\",\"cwd\":\"/r\",\"events\":[\n");
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(format!("{}\n", lines[0]), head);
    assert_eq!(lines[1], user("a").get());
    assert_eq!(lines[2], format!(",{}", user("b").get()));
    let synced = head.len() + lines[1].len() + lines[2].len() + 2;
    let trailer = format!("],\"updatedAt\":\"{AT}\",\"contextTokens\":2190,\"entries\":3,\"synced\":{synced}}}");
    assert_eq!(lines[4], trailer);
    assert!(!text.ends_with('\n'));
    assert!(!log.is_durable());
    wait(log.sync()).unwrap();
    assert!(log.is_durable());
}

#[test]
fn appending_never_touches_earlier_bytes_and_is_one_value_at_rest() {
    let d = dir();
    let store = d.store();
    let mut log = store.create(&id(A), "/r", AT);
    let mut before: Vec<u8> = Vec::new();
    for i in 0..40 {
        log.append(&[user(&"x".repeat(i * 37 % 200))], Some(1_000_000_000 >> i.min(29))).unwrap();
        let now = fs::read(log.path()).unwrap();
        let lines_end = memchr::memrchr(b'\n', &before).map_or(0, |i| i + 1);
        assert_eq!(now[..lines_end], before[..lines_end]);
        assert_eq!(json_of(log.path())["events"].as_array().unwrap().len(), i + 1);
        assert_eq!(now.len() as u64, log.size());
        before = now;
    }
}

#[test]
fn fifty_opens_change_nothing() {
    let d = dir();
    let path = {
        let store = d.store();
        filled(&store, A, 5).path().to_owned()
    };
    d.put("bbbbbbbb.json", br#"{"schema":2,"id":"bbbbbbbb","events":[{"type":"user","text":"x"},{"type":"us"#);
    let seen = || {
        let m = fs::metadata(&path).unwrap();
        (fs::read(&path).unwrap(), m.mtime_nsec(), m.ino(), d.names())
    };
    let before = seen();
    for _ in 0..50 {
        let store = d.store();
        let log = store.load(&id(A)).unwrap();
        assert_eq!((log.len(), log.salvage().len()), (5, 0));
        assert_eq!(store.load(&id("bbbbbbbb")).unwrap().len(), 1);
        assert_eq!(log.tail(2, 1000).unwrap().len(), 2);
        assert_eq!(store.list().unwrap().len(), 2);
        assert!(store.live(&id(A)).read_all().unwrap().is_empty() && store.prompts().is_empty());
    }
    assert_eq!(seen(), before);
}

fn entries() -> impl Strategy<Value = Vec<Vec<(String, u8)>>> {
    prop::collection::vec(prop::collection::vec((".{0,40}", 0..6u8), 1..4), 1..8)
}

fn entry_of(text: &str, kind: u8) -> Box<RawValue> {
    let text = serde_json::Value::from(text);
    raw(match kind {
        0 => format!("{{\"type\":\"user\",\"text\":{text},\"at\":{text}}}"),
        1 => format!("{{ \"text\" : {text},\n \"type\":\"assistant\" }}"),
        2 => format!(
            "{{\"type\":\"turn\",\"messages\":[{{\"role\":\"user\",\"content\":{text}}}],\"n\":12.0,\"n\":1e400}}"
        ),
        3 => format!("{{\"type\":\"x\\u0041\",\"lone\":\"\\ud800\",\"t\":{text}}}"),
        4 => format!("{{\"x\":{}{text}{}}}", "[".repeat(200), "]".repeat(200)),
        _ => format!("[{text}]"),
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 40, failure_persistence: None, ..ProptestConfig::default() })]
    #[test]
    fn what_goes_in_comes_out(batches in entries(), cwd in ".{0,20}", reopen in 0..8usize) {
        let d = dir();
        let store = d.store();
        let mut log = store.create(&id(A), &cwd, AT);
        let mut want: Vec<String> = Vec::new();
        for (i, batch) in batches.iter().enumerate() {
            if i == reopen && i > 0 {
                log = store.load(&id(A)).unwrap();
                prop_assert!(log.salvage().is_empty());
            }
            let batch: Vec<_> = batch.iter().map(|(t, k)| entry_of(t, *k)).collect();
            prop_assert_eq!(log.append(&batch, None).unwrap(), want.len() as u64 + 1);
            want.extend(batch.iter().map(|e| String::from_utf8(layout::to_entry(e.get().as_bytes())).unwrap()));
            prop_assert!(json::is_value(&fs::read(log.path()).unwrap()));
        }
        let log = store.load(&id(A)).unwrap();
        prop_assert_eq!(&log.header().cwd, &cwd);
        prop_assert_eq!(log.len(), want.len() as u64);
        prop_assert_eq!(&all(&log), &want);
        for n in 1..=want.len() {
            let read: Vec<String> = log.read(n as u64, 3, usize::MAX).unwrap().iter().map(|e| e.entry.get().to_owned()).collect();
            prop_assert_eq!(&read[..], &want[n - 1..want.len().min(n + 2)]);
            let one = log.entry(n as u64).unwrap().unwrap();
            prop_assert_eq!(one.get(), &want[n - 1]);
            let tail = log.tail(n, usize::MAX).unwrap();
            prop_assert_eq!(tail[0].n, (want.len() - n + 1) as u64);
            prop_assert_eq!(tail[n - 1].entry.get(), want.last().unwrap());
        }
    }
}

#[test]
fn reading_by_number_uses_marks_and_stops_at_bytes() {
    let d = dir();
    let store = d.store();
    let mut log = filled(&store, A, 1);
    let many: Vec<_> = (1..2000).map(|i| user(&format!("m{i}"))).collect();
    log.append(&many, None).unwrap();
    for n in [1u64, 2, 63, 64, 65, 66, 128, 129, 1000, 1743, 1744, 1745, 1999, 2000, 700, 64] {
        let e = log.entry(n).unwrap().unwrap();
        assert_eq!(e.get(), user(&format!("m{}", n - 1)).get());
    }
    let reader = log.reader();
    log.append(&[user("later")], None).unwrap();
    assert_eq!((reader.len(), log.len()), (2000, 2001), "a snapshot stays what it was");
    assert_eq!(reader.read(1990, 100, usize::MAX).unwrap().len(), 11);
    assert_eq!(reader.read(1, 100, 1).unwrap().len(), 1, "one entry at least");
    assert_eq!(reader.tail(100, 200).unwrap().len(), 3);
    assert!(reader.read(2001, 5, 100).unwrap().is_empty() && reader.entry(0).unwrap().is_none());
}

#[test]
fn forks_at_every_entry_and_the_parent_stays() {
    let d = dir();
    let store = d.store();
    let log = filled(&store, A, 12);
    let hash = store.put_blob(&id(A), b"pre-image").unwrap();
    store.put_artifact(&id(A), "2026-09-06T14:00:00.md", b"brief").unwrap();
    let bytes = fs::read(log.path()).unwrap();
    let extra = [raw(format!(
        "{{\"type\":\"custom\",\"custom\":\"glrs:forked\",\"data\":{{\"parent\":\"{A}\",\"at\":1}},\"at\":\"{AT}\"}}"
    ))];
    for n in 0..=12u64 {
        let new = id(&format!("{n:08x}"));
        let mut fork = store.fork(&log.reader(), n, &new, &extra).unwrap();
        assert!(fork.salvage().is_empty() && fork.is_durable());
        assert_eq!(fork.len(), n + 1);
        assert_eq!(all(&fork)[..n as usize], all(&log)[..n as usize]);
        let json = json_of(fork.path());
        assert_eq!((json["id"].as_str(), json["cwd"].as_str()), (Some(new.as_str()), Some("/r")));
        fork.append(&[user("on")], None).unwrap();
        assert_eq!(json_of(fork.path())["events"].as_array().unwrap().len() as u64, n + 2);
        assert_eq!(store.get_blob(&new, &hash).unwrap().unwrap(), b"pre-image");
    }
    assert_eq!(fs::read(log.path()).unwrap(), bytes);
    assert_eq!(fs::metadata(d.paths.blobs(&id(A)).join(&hash)).unwrap().nlink(), 14);
    assert!(matches!(
        store.fork(&log.reader(), 13, &id("ffffffff"), &[]),
        Err(ForkError::NoSuchEntry { at: 13, entries: 12 })
    ));
    assert!(matches!(store.fork(&log.reader(), 1, &id("00000001"), &[]), Err(ForkError::Exists(_))));
    store.delete(&id(A)).unwrap();
    assert_eq!(store.get_blob(&id("00000003"), &hash).unwrap().unwrap(), b"pre-image");
    assert!(store.get_artifact(&id("00000003"), "2026-09-06T14:00:00.md").unwrap().is_some());
    assert!(matches!(store.load(&id(A)), Err(LoadError::NotFound)));
    assert!(matches!(store.delete(&id(A)), Err(DeleteError::NotFound)));
    assert_eq!(store.row(&id("00000003")).unwrap().parent.as_deref(), Some(A));
}

#[test]
fn a_log_that_is_only_in_memory_can_be_forked() {
    let d = dir();
    d.put(
        "bbbbbbbb.json",
        br#"{"events":[{"text":"a","type":"user"},{"type":"user","text":"b"}],"schema":2,"z":[1, 2],"cwd":"/q"}"#,
    );
    let store = d.store();
    let log = store.load(&id("bbbbbbbb")).unwrap();
    let fork = store.fork(&log.reader(), 1, &id(A), &[]).unwrap();
    assert_eq!(all(&fork), [r#"{"type":"user","text":"a"}"#]);
    assert_eq!((json_of(fork.path())["z"][1].as_u64(), fork.header().cwd.as_str()), (Some(2), "/q"));
}

#[test]
fn modes_are_private_whatever_the_umask() {
    for mask in [0o000, 0o077] {
        let old = rustix::process::umask(rustix::fs::Mode::from_raw_mode(mask));
        let d = dir();
        let store = d.store();
        filled(&store, A, 2);
        store.put_blob(&id(A), b"x").unwrap();
        store.push_prompt("p").unwrap();
        store.append_trace(&id(A), "t").unwrap();
        store.put_artifact(&id(A), "a.md", b"x").unwrap();
        store.live(&id(A)).append(&raw("{}")).unwrap();
        rustix::process::umask(old);
        let mut dirs = vec![d.paths.root.clone()];
        let mut seen = 0;
        while let Some(dir) = dirs.pop() {
            assert_eq!(fs::metadata(&dir).unwrap().permissions().mode() & 0o777, 0o700, "{dir:?}");
            for e in fs::read_dir(&dir).unwrap().map(|e| e.unwrap().path()) {
                if e.is_dir() {
                    dirs.push(e);
                } else {
                    assert_eq!(fs::metadata(&e).unwrap().permissions().mode() & 0o777, 0o600, "{e:?}");
                    seen += 1;
                }
            }
        }
        assert_eq!(seen, 7);
    }
}

#[test]
fn a_second_daemon_is_refused_by_pid() {
    let d = dir();
    let store = d.store();
    let e = Store::open(d.paths.clone()).unwrap_err();
    assert!(matches!(e, OpenError::Locked { pid: Some(p) } if p == std::process::id()), "{e}");
    assert!(e.to_string().contains(&std::process::id().to_string()));
    filled(&store, A, 1);
    let reader = Store::open_read_only(d.paths.clone());
    let mut log = reader.load(&id(A)).unwrap();
    log.append(&[user("no")], None).unwrap();
    assert!(log.disk().unwrap().why.contains("reading only"));
    assert_eq!(store.load(&id(A)).unwrap().len(), 1);
    drop((log, reader, store));
    Store::open(d.paths.clone()).unwrap();
}

#[test]
fn a_linked_data_directory_and_a_linked_log_work() {
    let d = dir();
    let real = d.dir.path().join("elsewhere");
    fs::create_dir_all(&real).unwrap();
    std::os::unix::fs::symlink(&real, &d.paths.root).unwrap();
    let store = d.store();
    filled(&store, A, 2);
    assert!(real.join("sessions").join(format!("{A}.json")).is_file());
    let away = d.dir.path().join("moved.json");
    fs::write(&away, br#"{"schema":2,"events":[{"type":"user","text":"a"}]}"#).unwrap();
    let link = d.paths.log(&id("bbbbbbbb"));
    std::os::unix::fs::symlink(&away, &link).unwrap();
    let mut log = store.load(&id("bbbbbbbb")).unwrap();
    log.append(&[user("b")], None).unwrap();
    log.append(&[user("c")], None).unwrap();
    assert_eq!(json_of(&away)["events"].as_array().unwrap().len(), 3);
    assert!(link.symlink_metadata().unwrap().is_symlink());
}

#[test]
fn blobs_are_checked() {
    let d = dir();
    let store = d.store();
    let hash = store.put_blob(&id(A), b"hello").unwrap();
    assert_eq!(hash, "2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824");
    let path = d.paths.blobs(&id(A)).join(&hash);
    let ino = fs::metadata(&path).unwrap().ino();
    store.put_blob(&id(A), b"hello").unwrap();
    assert_eq!(fs::metadata(&path).unwrap().ino(), ino, "not written twice");
    fs::write(&path, b"jello").unwrap();
    assert!(store.get_blob(&id(A), &hash).is_err());
    store.put_blob(&id(A), b"hello").unwrap();
    assert_eq!(store.get_blob(&id(A), &hash).unwrap().unwrap(), b"hello");
    assert_eq!(store.get_blob(&id(A), "../../x").unwrap(), None);
    assert!(store.put_artifact(&id(A), "../x", b"").is_err());
    store.append_trace(&id(A), "one\n").unwrap();
    store.append_trace(&id(A), "two\n").unwrap();
    assert_eq!(store.read_trace(&id(A), 4, 100).unwrap().unwrap(), b"two\n");
    // At its bound the older half goes, at a line's end.
    let long = "x".repeat(1 << 20);
    (0..5).for_each(|i| store.append_trace(&id(A), &format!("{i}{long}\n")).unwrap());
    let trace = store.read_trace(&id(A), 0, usize::MAX).unwrap().unwrap();
    assert!(trace.len() < 4 << 20 && trace.ends_with(b"x\n"), "{}", trace.len());
    assert!(trace.starts_with(b"3x") || trace.starts_with(b"2x"), "{:?}", &trace[..2]);
}

#[test]
fn the_live_journal_grows_empties_and_goes() {
    let d = dir();
    let store = d.store();
    let get = |l: &Live| l.read_all().unwrap().iter().map(|r| r.get().to_owned()).collect::<Vec<_>>();
    let mut live = store.live(&id(A));
    assert!(!d.paths.live(&id(A)).exists());
    live.append(&raw("{\"a\":\n1}")).unwrap();
    wait(live.sync()).unwrap();
    live.append(&raw("{\"b\":2}")).unwrap();
    assert_eq!(get(&live), ["{\"a\":1}", "{\"b\":2}"]);
    assert_eq!(store.live_ids(), [id(A)]);
    drop(live);
    let path = d.paths.live(&id(A));
    let mut bytes = fs::read(&path).unwrap();
    bytes.extend_from_slice(b"garbage\n\0\0\0\n{\"c\":3}\n{\"torn\":");
    fs::write(&path, &bytes).unwrap();
    let mut live = store.live(&id(A));
    assert_eq!(get(&live).len(), 3);
    live.append(&raw("{\"d\":4}")).unwrap();
    assert_eq!(get(&live).last().unwrap(), "{\"d\":4}");
    live.truncate().unwrap();
    assert!(get(&live).is_empty());
    live.append(&raw("{\"e\":5}")).unwrap();
    wait(live.sync()).unwrap();
    assert_eq!(get(&store.live(&id(A))), ["{\"e\":5}"]);
    live.unlink().unwrap();
    assert!(!path.exists());
    live.append(&raw("{\"f\":6}")).unwrap();
    assert_eq!(get(&live), ["{\"f\":6}"]);
    let mut other = store.live(&id(A));
    other.truncate().unwrap();
    assert_eq!(fs::metadata(&path).unwrap().len(), 0);
}

#[test]
fn prompts_are_the_last_hundred_without_repeats() {
    let d = dir();
    let store = d.store();
    for i in 0..105 {
        store.push_prompt(&format!("p{i}")).unwrap();
        store.push_prompt(&format!("p{i}")).unwrap();
    }
    let prompts = store.prompts();
    assert_eq!((prompts.len(), prompts[0].as_str(), prompts[99].as_str()), (100, "p5", "p104"));
}
