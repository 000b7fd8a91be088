//! Torn, NUL-filled, glued and damaged logs of our own layout.

use super::tests::*;
use super::*;

/// Loads the bytes as a session's file, and checks that a later append makes a proper file of it.
fn salvaged(d: &Dir, store: &Store, bytes: &[u8]) -> Result<(Vec<String>, Vec<String>), LoadError> {
    let path = d.put(&format!("{A}.json"), bytes);
    let mut log = store.load(&id(A))?;
    let (kept, notices) = (all(&log), log.salvage().to_vec());
    assert_eq!(kept.len() as u64, log.len());
    assert_eq!(fs::read(&path).unwrap(), bytes, "opening writes nothing");
    log.append(&[user("after")], None).unwrap();
    assert_eq!(log.disk(), None);
    log.append(&[user("after that")], None).unwrap();
    let json = json_of(&path);
    assert_eq!(json["events"].as_array().unwrap().len(), kept.len() + 2);
    let again = store.load(&id(A)).unwrap();
    assert_eq!(again.salvage().len(), 0);
    assert_eq!(all(&again)[..kept.len()], kept[..]);
    Ok((kept, notices))
}

fn torn_files(d: &Dir) -> Vec<PathBuf> {
    d.names().into_iter().filter(|n| n.contains(".torn-")).map(|n| d.paths.sessions().join(n)).collect()
}

/// A file of `n` entries whose trailer says that the disk has all but the last.
fn settled(store: &Store, n: usize) -> Vec<u8> {
    let mut log = filled(store, A, n - 1);
    wait(log.sync()).unwrap();
    log.append(&[user(&format!("m{}", n - 1))], None).unwrap();
    fs::read(log.path()).unwrap()
}

#[test]
fn a_hole_that_a_power_cut_left_is_mended_at_the_first_append() {
    let d = dir();
    let store = d.store();
    let mut log = filled(&store, A, 2);
    wait(log.sync()).unwrap();
    for i in 2..6 {
        log.append(&[user(&format!("m{i}"))], None).unwrap();
    }
    let mut bytes = fs::read(log.path()).unwrap();
    drop(log);
    let at = memchr::memmem::find(&bytes, b"m3").unwrap();
    bytes[at..at + 2].copy_from_slice(&[0, 0]);
    let path = d.put(&format!("{A}.json"), &bytes);
    let mut log = store.load(&id(A)).unwrap();
    assert_eq!((log.len(), log.salvage().len(), log.is_durable()), (6, 1, true));
    assert_eq!(log.entry(6).unwrap().unwrap().get(), user("m5").get());
    assert_eq!(wait(log.sync()), Ok(()));
    assert_eq!(fs::read(&path).unwrap(), bytes, "opening writes nothing");
    assert_eq!(log.append(&[user("m6")], None).unwrap(), 7);
    let events = json_of(&path)["events"].as_array().unwrap().clone();
    assert_eq!((events.len(), &events[3]["type"], &events[4]["text"]), (7, &"notice".into(), &"m4".into()));
    assert_eq!(fs::read(log.kept_aside().unwrap()).unwrap(), bytes);
    assert!(store.load(&id(A)).unwrap().salvage().is_empty());
}

#[test]
fn cut_anywhere_it_opens_with_a_prefix() {
    let d = dir();
    let store = d.store();
    let log = {
        let mut log = store.create(&id(A), "/r", AT);
        for i in 0..60 {
            log.append(&[user(&format!("message {i} ünï \"q\" \\ {}", "y".repeat(i * 7)))], Some(i as u64)).unwrap();
        }
        log
    };
    let bytes = fs::read(log.path()).unwrap();
    let want = all(&log);
    let head = log.header().line.len();
    let first = head + want[0].len() + 1;
    let ends: Vec<usize> = want
        .iter()
        .scan(head, |at, e| {
            let comma = usize::from(*at > head);
            *at += e.len() + 1 + comma;
            Some(*at)
        })
        .collect();
    let mut cuts: Vec<usize> = (ends[56]..bytes.len()).collect();
    let mut seed = 7u64;
    cuts.extend((0..1000).map(|_| {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (seed >> 33) as usize % bytes.len()
    }));
    for cut in cuts {
        let whole = ends.iter().filter(|e| **e <= cut).count();
        match salvaged(&d, &store, &bytes[..cut]) {
            Ok((kept, notices)) => {
                assert_eq!(kept, want[..whole], "cut at {cut}");
                assert!(cut > ends[59] || !notices.is_empty());
            }
            Err(LoadError::Broken { .. }) => assert!(cut < first, "broken when cut at {cut}"),
            Err(e) => panic!("{e}"),
        }
        for torn in torn_files(&d) {
            assert!(memchr::memmem::find(&bytes[..cut], &fs::read(&torn).unwrap()).is_some());
            fs::remove_file(torn).unwrap();
        }
    }
}

#[test]
fn nul_tails_of_any_length_cost_nothing() {
    let d = dir();
    let store = d.store();
    let bytes = fs::read(filled(&store, A, 5).path()).unwrap();
    for n in [1usize, 7, 4096, 300_000] {
        let tail = vec![0; n];
        let (kept, notices) = salvaged(&d, &store, &[bytes.as_slice(), &tail].concat()).unwrap();
        assert_eq!(kept.len(), 5);
        assert!(notices.len() == 1 && notices[0].contains("NUL"), "{notices:?}");
        // Where the trailer and more became NULs.
        let lines_end = memchr::memrchr(b'\n', &bytes).unwrap() + 1;
        for cut in [lines_end, lines_end - 10] {
            let (kept, notices) = salvaged(&d, &store, &[&bytes[..cut], &tail].concat()).unwrap();
            assert_eq!(kept.len(), if cut == lines_end { 5 } else { 4 });
            assert!(notices.iter().any(|n| n.contains("NUL")), "{notices:?}");
        }
    }
    let (kept, notices) = salvaged(&d, &store, &[bytes.as_slice(), b"\n \n"].concat()).unwrap();
    assert_eq!((kept.len(), notices.len()), (5, 0), "an editor's newline is no damage");
}

#[test]
fn a_bad_line_in_the_middle_keeps_its_number() {
    let d = dir();
    let store = d.store();
    let bytes = settled(&store, 7);
    let lines: Vec<&[u8]> = bytes.split(|b| *b == b'\n').collect();
    for bad in [&b",{\"type\":\"user\",\"te"[..], b"garbage", b"", b"\0\0\0\0", b",{\"type\":\"user\",}"] {
        for at in 1..7 {
            let mut with = lines.clone();
            with[at] = bad;
            d.put(&format!("{A}.json"), &with.join(&b'\n'));
            let mut log = store.load(&id(A)).unwrap();
            assert_eq!((log.len(), log.bad_lines()), (7, 1), "{at}");
            let read = log.read(1, 100, usize::MAX).unwrap();
            let numbers: Vec<u64> = read.iter().map(|e| e.n).collect();
            assert_eq!(numbers, (1..=7).filter(|n| *n != at as u64).collect::<Vec<_>>());
            for e in &read {
                assert_eq!(e.entry.get(), user(&format!("m{}", e.n - 1)).get());
            }
            assert!(log.entry(at as u64).unwrap().is_none());
            assert_eq!(log.tail(100, usize::MAX).unwrap().len(), 6);
            assert_eq!(log.append(&[user("x")], None).unwrap(), 8);
            assert_eq!(store.load(&id(A)).unwrap().entry(8).unwrap().unwrap().get(), user("x").get());
            assert_eq!(store.row(&id(A)).unwrap().entries, 8);
        }
    }
    assert!(torn_files(&d).is_empty());
}

#[test]
fn what_power_loss_leaves_behind_synced_is_cut_and_kept() {
    let d = dir();
    let store = d.store();
    let mut log = filled(&store, A, 3);
    wait(log.sync()).unwrap();
    log.append(&[user("four"), user("five")], None).unwrap();
    let mut bytes = fs::read(log.path()).unwrap();
    let i = memchr::memmem::find(&bytes, b",{\"type\":\"user\",\"text\":\"four\"").unwrap();
    let j = memchr::memmem::find(&bytes, b"\n]").unwrap();
    for b in &mut bytes[i + 5..j - 3] {
        *b = 0;
    }
    let (kept, notices) = salvaged(&d, &store, &bytes).unwrap();
    assert_eq!((kept.len(), notices.len()), (3, 1), "{notices:?}");
    assert_eq!(torn_files(&d).len(), 1);
}

#[test]
fn documents_glued_together_give_the_whole_one() {
    let d = dir();
    let store = d.store();
    let ours = fs::read(filled(&store, A, 6).path()).unwrap();
    let theirs = br#"{"schema": 2, "id": "aaaaaaaa", "cwd": "/r", "events": [{"type": "user", "text": "1"}, {"type": "user", "text": "2"}]}"#;
    for cut in [40, 120, 200, ours.len() - 30] {
        let (kept, notices) = salvaged(&d, &store, &[&ours[..cut], &ours].concat()).unwrap();
        assert_eq!((kept.len(), notices.len()), (6, 1), "{cut}");
        let (kept, _) = salvaged(&d, &store, &[&theirs[..cut.min(100)], &ours].concat()).unwrap();
        assert_eq!(kept.len(), 6);
    }
    let (kept, _) = salvaged(&d, &store, &[&theirs[..60], theirs].concat()).unwrap();
    assert_eq!(kept.len(), 2);
    let (kept, _) = salvaged(&d, &store, &[&ours[..], &ours].concat()).unwrap();
    assert_eq!(kept.len(), 6);
}

#[test]
fn a_damaged_start_gives_the_lines_behind_it() {
    let d = dir();
    let store = d.store();
    let mut bytes = fs::read(filled(&store, A, 6).path()).unwrap();
    for b in &mut bytes[..30] {
        *b = 0;
    }
    let (kept, notices) = salvaged(&d, &store, &bytes).unwrap();
    assert_eq!((kept.len(), notices.len()), (6, 1));
    assert_eq!(fs::read(&torn_files(&d)[0]).unwrap(), bytes);
}

#[test]
fn damage_inside_one_long_line_costs_one_entry() {
    let d = dir();
    let store = d.store();
    let entries: Vec<String> = (0..6).map(|i| format!("{{\"type\": \"user\", \"text\": \"m{i}\"}}")).collect();
    let mut text = format!("{{\"schema\": 2, \"events\": [{}], \"cwd\": \"/r\"}}", entries.join(", "));
    let i = text.find("\"text\": \"m2").unwrap();
    text.replace_range(i..=i, "}");
    let (kept, notices) = salvaged(&d, &store, text.as_bytes()).unwrap();
    assert_eq!((kept.len(), notices.len()), (6, 1), "{notices:?}");
    assert!(kept[2].contains("could not be read") && kept[5].contains("m5"));
    assert_eq!(torn_files(&d).len(), 1);
}

#[test]
fn large_files_are_trusted_up_to_synced_and_counted_from_the_trailer() {
    let d = dir();
    let store = d.store();
    let mut log = store.create(&id(A), "/r", AT);
    let big = user(&"z".repeat(100_000));
    for _ in 0..15 {
        log.append(&[big.clone(), user("s")], None).unwrap();
    }
    wait(log.sync()).unwrap();
    log.append(&[user("end")], None).unwrap();
    drop(log);
    let mut log = store.load(&id(A)).unwrap();
    assert_eq!((log.len(), log.salvage().len()), (31, 0));
    assert_eq!(log.tail(1, 10).unwrap()[0].n, 31);
    log.append(&[user("more")], None).unwrap();
    let bytes = fs::read(log.path()).unwrap();
    let synced = memchr::memmem::find(&bytes, b",{\"type\":\"user\",\"text\":\"end\"").unwrap();
    for cut in (synced..bytes.len()).step_by(7) {
        d.put(&format!("{A}.json"), &bytes[..cut]);
        let log = store.load(&id(A)).unwrap();
        assert!((30..=32).contains(&log.len()), "synced entries are there");
    }
}

#[test]
fn any_mix_of_sectors_after_the_last_sync_keeps_what_was_synced() {
    const SECTOR: usize = 64;
    let d = dir();
    let store = d.store();
    let mut log = store.create(&id(A), "/r", AT);
    for i in 0..6 {
        log.append(&[user(&format!("acknowledged {i}"))], None).unwrap();
    }
    wait(log.sync()).unwrap();
    let old = fs::read(log.path()).unwrap();
    for i in 0..5 {
        log.append(&[user(&format!("{i} {}", "w".repeat(i * 40)))], Some(i as u64)).unwrap();
    }
    let new = fs::read(log.path()).unwrap();
    let want = all(&log);
    drop(log);
    let mut seed = 99u64;
    let mut random = || {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        seed >> 40
    };
    for _ in 0..600 {
        // Each sector is as it was, as it is, or was never written; the size may lie anywhere between.
        let len = old.len() + random() as usize % (new.len() - old.len() + 1);
        let mut bytes = vec![0u8; len];
        for (i, sector) in bytes.chunks_mut(SECTOR).enumerate() {
            let from = i * SECTOR;
            let source = if random() % 2 == 0 { &new } else { &old };
            for (j, b) in sector.iter_mut().enumerate() {
                *b = source.get(from + j).copied().unwrap_or(0);
            }
        }
        d.put(&format!("{A}.json"), &bytes);
        let mut log = store.load(&id(A)).unwrap();
        let numbered = log.read(1, 100, usize::MAX).unwrap();
        for (i, text) in want[..6].iter().enumerate() {
            assert_eq!((numbered[i].n, numbered[i].entry.get()), (i as u64 + 1, text.as_str()));
        }
        let n = log.append(&[user("after")], None).unwrap();
        assert_eq!(log.disk(), None);
        let again = store.load(&id(A)).unwrap();
        assert_eq!(again.entry(n).unwrap().unwrap().get(), user("after").get());
        assert_eq!(again.len(), n);
        torn_files(&d).iter().for_each(|f| fs::remove_file(f).unwrap());
    }
}

#[test]
fn a_repair_puts_notices_in_place_of_bad_lines_and_keeps_numbers() {
    let d = dir();
    let store = d.store();
    let bytes = settled(&store, 4);
    let mut lines: Vec<&[u8]> = bytes.split(|b| *b == b'\n').collect();
    lines[2] = b"garbage";
    let damaged = lines.join(&b'\n');
    let path = d.put(&format!("{A}.json"), &damaged);
    let check = store.check(&id(A)).unwrap();
    assert_eq!((check.entries, check.bad.as_slice()), (4, &[2][..]));
    assert_eq!(fs::read(&path).unwrap(), damaged, "a check changes nothing");
    let kept = store.repair(&id(A)).unwrap().unwrap();
    assert_eq!(fs::read(kept).unwrap(), damaged);
    assert_eq!(json_of(&path)["events"][1]["type"], "notice");
    assert_eq!(json_of(&path)["events"][3]["text"], "m3");
    assert!(store.check(&id(A)).unwrap().bad.is_empty());
    assert_eq!(store.repair(&id(A)).unwrap(), None, "nothing to do");
    d.put("bbbbbbbb.json", br#"{"schema":2,"events":[{"type":"user","text":"x"}]}"#);
    assert_eq!(store.repair(&id("bbbbbbbb")).unwrap(), None);
}

fn readable(log: &Log) -> Vec<String> {
    log.read(1, 100, usize::MAX).unwrap().iter().map(|e| e.entry.get().to_owned()).collect()
}

#[test]
fn one_damaged_byte_costs_one_entry_at_most_two() {
    let d = dir();
    let store = d.store();
    let log = filled(&store, A, 6);
    let want = all(&log);
    let bytes = fs::read(log.path()).unwrap();
    drop(log);
    let mut seed = 5u64;
    let mut random = || {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (seed >> 40) as usize
    };
    let newlines = memchr::memchr_iter(b'\n', &bytes).count();
    for round in 0..900 {
        let mut damaged = bytes.clone();
        if round % 4 == 3 {
            // The same as one long line, as the predecessor writes it.
            damaged.retain(|b| *b != b'\n');
            assert!(damaged.len() + newlines == bytes.len());
        }
        let at = random() % damaged.len();
        match round % 3 {
            0 => damaged[at] = (random() % 256) as u8,
            1 => drop(damaged.remove(at)),
            _ => damaged.insert(at, b"{}[]\",\\\n\0 7e"[random() % 12]),
        }
        d.put(&format!("{A}.json"), &damaged);
        let shown = || String::from_utf8_lossy(&damaged).into_owned();
        let mut log = match store.load(&id(A)) {
            Ok(log) => log,
            Err(LoadError::NewerSchema { .. }) => continue,
            Err(e) => panic!("{e}: {}", shown()),
        };
        let kept = readable(&log);
        let same = want.iter().filter(|w| kept.contains(w)).count();
        assert!(same >= 4, "{same} of 6 are left of {}", shown());
        let n = log.append(&[user("after")], None).unwrap();
        assert_eq!(log.disk(), None);
        let again = store.load(&id(A)).unwrap();
        assert_eq!((again.len(), again.entry(n).unwrap().unwrap().get()), (n, user("after").get()), "{}", shown());
        let kept = readable(&again);
        assert!(want.iter().filter(|w| kept.contains(w)).count() >= same);
        torn_files(&d).iter().for_each(|f| fs::remove_file(f).unwrap());
    }
}
