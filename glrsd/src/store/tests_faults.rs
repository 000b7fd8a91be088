//! A failing disk: memory keeps everything, old bytes stay, all lands when it recovers.

use super::tests::*;
use super::*;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};

const EIO: i32 = 5;
const ENOSPC: i32 = 28;

/// Fails from the `n`th operation on (those that `which` picks), until it is mended.
#[derive(Default)]
struct Plan {
    left: AtomicI64,
    broken: AtomicBool,
    count: AtomicI64,
}

fn plan(kind: impl Fn(Op) -> Option<Fault> + Send + Sync + 'static) -> (Arc<Plan>, Faults) {
    let plan = Arc::new(Plan::default());
    let p = plan.clone();
    let faults: Faults = Arc::new(move |op, _| {
        p.count.fetch_add(1, Ordering::SeqCst);
        if !p.broken.load(Ordering::SeqCst) || p.left.fetch_sub(1, Ordering::SeqCst) > 0 {
            return None;
        }
        kind(op)
    });
    (plan, faults)
}

impl Plan {
    fn break_after(&self, n: i64) {
        self.left.store(n, Ordering::SeqCst);
        self.broken.store(true, Ordering::SeqCst);
    }
    fn mend(&self) {
        self.broken.store(false, Ordering::SeqCst);
    }
}

fn texts(n: usize) -> Vec<String> {
    (0..n).map(|i| user(&format!("m{i}")).get().to_owned()).collect()
}

#[test]
fn every_call_may_fail_at_any_point_and_nothing_is_lost() {
    type Kind = fn(Op) -> Option<Fault>;
    let kinds: [(&str, Kind); 5] = [
        ("all EIO", |_| Some(Fault::Errno(EIO))),
        ("writes ENOSPC", |op| (op == Op::Write).then_some(Fault::Errno(ENOSPC))),
        ("syncs EIO", |op| matches!(op, Op::Sync | Op::SyncDir).then_some(Fault::Errno(EIO))),
        ("renames EIO", |op| (op == Op::Rename).then_some(Fault::Errno(EIO))),
        ("truncates EIO", |op| matches!(op, Op::Truncate | Op::Write).then_some(Fault::Errno(EIO))),
    ];
    for (name, kind) in kinds {
        for after in 0..14 {
            let d = dir();
            let (plan, faults) = plan(kind);
            let store = Store::with_faults(d.paths.clone(), faults).unwrap();
            let mut log = store.create(&id(A), "/r", AT);
            let mut durable = 0;
            plan.break_after(after);
            for i in 0..6u64 {
                assert_eq!(log.append(&[user(&format!("m{i}"))], None).unwrap(), i + 1);
                assert_eq!(all(&log), texts(i as usize + 1), "{name} after {after}");
                if wait(log.sync()).is_ok() {
                    durable = i + 1;
                } else {
                    assert!(log.disk().is_some());
                }
                // Whatever the disk did, what was acknowledged is there for the next daemon.
                if durable > 0 {
                    let other = Store::open_read_only(d.paths.clone()).load(&id(A)).unwrap();
                    assert_eq!(all(&other)[..durable as usize], texts(6)[..durable as usize]);
                }
            }
            plan.mend();
            wait(log.sync()).unwrap();
            assert_eq!((log.disk(), log.is_durable(), log.foreign().is_none()), (None, true, true));
            assert_eq!(json_of(log.path())["events"].as_array().unwrap().len(), 6, "{name} after {after}");
            assert_eq!(all(&store.load(&id(A)).unwrap()), texts(6));
            assert!(d.names().iter().all(|n| !n.contains("torn") && !n.ends_with(".tmp")), "{:?}", d.names());
        }
    }
}

#[test]
fn a_short_write_is_truncated_back() {
    for short in [0usize, 1, 10, 60, 100, 170] {
        let d = dir();
        let full = Arc::new(AtomicI64::new(-1));
        let f = full.clone();
        // The first write of a full disk takes a part, the second fails, and then only what fits
        // into old blocks goes.
        let faults: Faults = Arc::new(move |op, _| match (op, f.load(Ordering::SeqCst)) {
            (Op::Write, 0) => {
                f.store(1, Ordering::SeqCst);
                Some(Fault::Short(short.max(1)))
            }
            (Op::Write, 1) => {
                f.store(2, Ordering::SeqCst);
                Some(Fault::Errno(ENOSPC))
            }
            _ => None,
        });
        let store = Store::with_faults(d.paths.clone(), faults).unwrap();
        let mut log = filled(&store, A, 3);
        let before = fs::read(log.path()).unwrap();
        full.store(0, Ordering::SeqCst);
        assert_eq!(log.append(&[user("long enough to be cut somewhere in the middle of its words")], None).unwrap(), 4);
        assert!(log.disk().unwrap().to_string().contains("No space left"));
        assert_eq!(fs::read(log.path()).unwrap(), before);
        assert_eq!(log.read(4, 1, 10).unwrap().len(), 1, "it can be read");
        log.append(&[user("x")], None).unwrap();
        assert_eq!(log.disk(), None);
        assert_eq!(json_of(log.path())["events"].as_array().unwrap().len(), 5);
    }
}

#[test]
fn after_a_failed_sync_everything_since_the_last_good_one_is_written_again() {
    let d = dir();
    let (plan, faults) = plan(|op| (op == Op::Sync).then_some(Fault::Errno(EIO)));
    let store = Store::with_faults(d.paths.clone(), faults).unwrap();
    let mut log = filled(&store, A, 2);
    wait(log.sync()).unwrap();
    log.append(&[user("m2"), user("m3")], None).unwrap();
    plan.break_after(0);
    assert!(wait(log.sync()).is_err());
    assert!(log.disk().is_some() && !log.is_durable());
    plan.mend();
    // The kernel dropped the pages: what is in the file is not what was written.
    let good = fs::read(log.path()).unwrap();
    let mut bad = good.clone();
    let i = memchr::memmem::find(&bad, b"m2").unwrap();
    bad[i] = b'?';
    let file = fs::File::options().write(true).open(log.path()).unwrap();
    std::os::unix::fs::FileExt::write_all_at(&file, &bad, 0).unwrap();
    let m = file.metadata().unwrap();
    log.stamp = Some(Stamp::of(&m));
    assert_eq!(all(&log), texts(4), "read from memory");
    wait(log.sync()).unwrap();
    assert_eq!((log.disk(), log.is_durable()), (None, true));
    assert_eq!(all(&store.load(&id(A)).unwrap()), texts(4));
}

#[test]
fn a_dropped_wait_does_not_swallow_a_failure() {
    let d = dir();
    let (plan, faults) = plan(|op| (op == Op::Sync).then_some(Fault::Errno(EIO)));
    let store = Store::with_faults(d.paths.clone(), faults).unwrap();
    let mut log = filled(&store, A, 2);
    plan.break_after(0);
    let job = log.begin_sync().unwrap().unwrap();
    let _ = wait(job.wait());
    plan.mend();
    // The failure is found at the next step; the sync after it proves something again.
    log.append(&[user("m2")], None).unwrap();
    assert!(log.disk().is_some());
    wait(log.sync()).unwrap();
    assert!(log.disk().is_none() && log.is_durable());
}

#[test]
fn someone_elses_write_is_noticed_and_ours_is_kept_aside() {
    let d = dir();
    let store = d.store();
    let mut log = filled(&store, A, 2);
    wait(log.sync()).unwrap();
    let theirs = br#"{"schema":2,"id":"aaaaaaaa","cwd":"/r","events":[{"type":"user","text":"theirs"}]}"#;
    d.put(&format!("{A}.json"), theirs);
    let f = log.append(&[user("ours"), user("too")], None).unwrap_err();
    assert_eq!(fs::read(log.path()).unwrap(), theirs);
    let aside = fs::read_to_string(f.aside.as_ref().unwrap()).unwrap();
    assert_eq!(aside, format!("{}\n{}\n", user("ours").get(), user("too").get()));
    assert!(f.aside.unwrap().file_name().unwrap().to_str().unwrap().starts_with("aaaaaaaa.json.aside-"));
    assert_eq!(f.unsaved.len(), 2);
    assert!(log.append(&[user("no")], None).is_err() && log.flush().is_err() && log.foreign().is_some());
    let mut log = store.load(&id(A)).unwrap();
    log.append(&f.unsaved, None).unwrap();
    assert_eq!(json_of(log.path())["events"].as_array().unwrap().len(), 3);
}

#[test]
fn a_removed_file_is_made_again_whole() {
    let d = dir();
    let store = d.store();
    let mut log = filled(&store, A, 3);
    wait(log.sync()).unwrap();
    log.append(&[user("m3")], None).unwrap();
    fs::remove_dir_all(d.paths.sessions()).unwrap();
    log.append(&[user("m4")], None).unwrap();
    assert_eq!((log.disk(), log.foreign().is_none()), (None, true));
    assert_eq!(all(&store.load(&id(A)).unwrap()), texts(5));
}

#[test]
fn a_fork_that_fails_leaves_nothing() {
    for after in 0..12 {
        let d = dir();
        let (plan, faults) = plan(|_| Some(Fault::Errno(ENOSPC)));
        let store = Store::with_faults(d.paths.clone(), faults).unwrap();
        let log = filled(&store, A, 3);
        store.put_blob(&id(A), b"x").unwrap();
        let before = fs::read(log.path()).unwrap();
        plan.break_after(after);
        let made = store.fork(&log.reader(), 2, &id("bbbbbbbb"), &[user("f")]);
        plan.mend();
        assert_eq!(fs::read(log.path()).unwrap(), before);
        match made {
            Ok(fork) => assert_eq!(fork.len(), 3),
            Err(ForkError::Disk(e)) => {
                assert!(e.why.contains("No space"), "{e}");
                if !store.exists(&id("bbbbbbbb")) {
                    assert_eq!(store.fork(&log.reader(), 2, &id("bbbbbbbb"), &[]).unwrap().len(), 2);
                }
            }
            Err(e) => panic!("{e}"),
        }
    }
}

#[test]
fn the_live_journal_keeps_its_records_through_failures() {
    for after in 0..8 {
        let d = dir();
        let (plan, faults) = plan(|_| Some(Fault::Errno(EIO)));
        let store = Store::with_faults(d.paths.clone(), faults).unwrap();
        let mut live = store.live(&id(A));
        plan.break_after(after);
        for i in 0..4 {
            let _ = live.append(&raw(format!("{{\"n\":{i}}}")));
            let _ = wait(live.sync());
        }
        plan.mend();
        wait(live.sync()).unwrap();
        let text = fs::read_to_string(d.paths.live(&id(A))).unwrap();
        assert_eq!(text, "{\"n\":0}\n{\"n\":1}\n{\"n\":2}\n{\"n\":3}\n");
    }
}

#[test]
fn a_failing_push_leaves_the_prompts_as_they_were() {
    for after in 0..6 {
        let d = dir();
        let (plan, faults) = plan(|_| Some(Fault::Errno(ENOSPC)));
        let store = Store::with_faults(d.paths.clone(), faults).unwrap();
        store.push_prompt("one").unwrap();
        plan.break_after(after);
        let pushed = store.push_prompt("two").is_ok();
        plan.mend();
        let prompts = store.prompts();
        assert!(prompts[0] == "one" && (!pushed || prompts.len() == 2));
    }
}

#[test]
fn a_torn_write_that_cannot_be_undone_is_salvaged() {
    for short in [1usize, 15, 33, 90, 140, 200] {
        let d = dir();
        let step = Arc::new(AtomicI64::new(-1));
        let s = step.clone();
        // A disk that takes a part of one write and then nothing at all, not even the undoing.
        let faults: Faults = Arc::new(move |op, _| match (op, s.load(Ordering::SeqCst)) {
            (_, -1) => None,
            (Op::Write, 0) => {
                s.store(1, Ordering::SeqCst);
                Some(Fault::Short(short))
            }
            (_, 0) => None,
            _ => Some(Fault::Errno(EIO)),
        });
        let store = Store::with_faults(d.paths.clone(), faults).unwrap();
        let mut log = filled(&store, A, 3);
        wait(log.sync()).unwrap();
        step.store(0, Ordering::SeqCst);
        log.append(&[user("m3"), user("m4")], None).unwrap();
        assert!(log.disk().is_some() && wait(log.sync()).is_err());
        assert_eq!(all(&log), texts(5));
        let torn = Store::open_read_only(d.paths.clone()).load(&id(A)).unwrap();
        let kept = all(&torn);
        assert!(kept.len() >= 3 && kept[..] == texts(5)[..kept.len()], "{kept:?}");
        step.store(-1, Ordering::SeqCst);
        wait(log.sync()).unwrap();
        assert_eq!(json_of(log.path())["events"].as_array().unwrap().len(), 5);
        assert_eq!(all(&store.load(&id(A)).unwrap()), texts(5));
    }
}

#[test]
fn a_repair_of_a_torn_end_that_fails_is_done_later() {
    for after in 0..8 {
        let d = dir();
        let bytes = fs::read(filled(&d.store(), A, 4).path()).unwrap();
        let torn = &bytes[..bytes.len() - 150];
        d.put(&format!("{A}.json"), torn);
        let (plan, faults) = plan(|_| Some(Fault::Errno(ENOSPC)));
        let store = Store::with_faults(d.paths.clone(), faults).unwrap();
        let mut log = store.load(&id(A)).unwrap();
        let kept = all(&log);
        plan.break_after(after);
        log.append(&[user("x")], None).unwrap();
        log.append(&[user("y")], None).unwrap();
        plan.mend();
        wait(log.sync()).unwrap();
        assert_eq!(json_of(log.path())["events"].as_array().unwrap().len(), kept.len() + 2);
        let aside: Vec<_> = d.names().into_iter().filter(|n| n.contains(".torn-")).collect();
        assert_eq!(aside.len(), 1, "{aside:?}");
        assert!(torn.ends_with(&fs::read(d.paths.sessions().join(&aside[0])).unwrap()));
    }
}

#[test]
fn handles_can_go_to_other_threads() {
    fn check<T: Send>(_: &T) {}
    fn check_sync<T: Send + Sync>(_: &T) {}
    let d = dir();
    let store = d.store();
    let mut log = filled(&store, A, 1);
    check_sync(&store);
    check_sync(&log.reader());
    check(&store.live(&id(A)));
    check(&log);
    check(&log.sync());
}
