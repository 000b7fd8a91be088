//! The log's figures: appending, opening, folding, forking and listing, each with the floor that
//! the same machine needs without glrs, measured in the same run.
//!
//! `GLRS_BENCH_BIG=1` opens a log of 1 GB instead of 64 MB.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::type_complexity,
    reason = "a test says what is wrong by panicking"
)]

use glrs_protocol::SessionId;
use glrs_tests::bench::{Table, median, timed};
use glrs_tests::process::rss_of;
use glrsd::fold::{Context, Summary};
use glrsd::host::Paths;
use glrsd::listing::{Filter, page};
use glrsd::store::Store;
use serde_json::value::RawValue;
use std::fmt::Write as _;
use std::fs::{self, File};
use std::io::{BufWriter, Read, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

const AT: &str = "2026-09-06T14:00:00.000Z";

fn main() {
    let dir = tempfile::tempdir().expect("a scratch directory");
    let root = dir.path().join("g");
    let paths = Paths {
        config: root.join("config.json"),
        socket: root.join("glrsd.sock"),
        legacy: dir.path().join("none"),
        tmp: dir.path().join("tmp"),
        root,
    };
    let store = Store::open(paths).expect("a data directory");
    let bench = Bench { store, sessions: dir.path().join("g/sessions") };
    let mut table = Table::new("glrs: the log");
    bench.append(&mut table);
    bench.open(&mut table);
    bench.fold(&mut table);
    bench.fork(&mut table);
    bench.list(&mut table);
    table.finish();
}

struct Bench {
    store: Store,
    sessions: PathBuf,
}

fn sid(n: usize) -> SessionId {
    format!("{n:08x}").parse().expect("an id")
}

fn us(n: u64) -> Duration {
    Duration::from_micros(n)
}

fn rss() -> u64 {
    rss_of(std::process::id()).unwrap_or(0)
}

/// What one turn with a tool call adds to a log.
fn turn(n: usize) -> Vec<String> {
    let words = "some words that a model wrote about a piece of code, ".repeat(8);
    let output = "    let value = map.get(\\\"key\\\").copied();\\n".repeat(60);
    let input = r#"{"path":"src/main.rs","offset":1,"limit":60}"#;
    vec![
        format!(r#"{{"type":"user","text":"do the thing number {n}","at":"{AT}"}}"#),
        format!(r#"{{"type":"assistant","text":"{words}","at":"{AT}"}}"#),
        format!(r#"{{"type":"usage","tokens":{n},"cached":0,"input":1,"output":1,"model":"a/b","at":"{AT}"}}"#),
        format!(
            r#"{{"type":"tool","name":"read","detail":"src/main.rs","elapsedMs":3,"ok":true,"input":{input},"result":"{output}","callId":"c{n}","at":"{AT}"}}"#
        ),
        format!(
            r#"{{"type":"turn","messages":[{{"role":"user","content":"do the thing number {n}"}},{{"role":"assistant","content":[{{"type":"text","text":"{words}"}},{{"type":"tool-call","toolCallId":"c{n}","toolName":"read","input":{input}}}]}},{{"role":"tool","content":[{{"type":"tool-result","toolCallId":"c{n}","toolName":"read","output":{{"type":"text","value":"{output}"}}}}]}}],"status":"step","at":"{AT}"}}"#
        ),
    ]
}

/// Writes a log in the documented layout; `entries` gives some, until `enough` of (bytes, count).
fn write_log(
    path: &Path,
    id: &SessionId,
    mut entries: impl FnMut(usize) -> Vec<String>,
    enough: impl Fn(u64, u64) -> bool,
) -> u64 {
    fs::create_dir_all(path.parent().expect("a directory")).expect("a directory");
    let mut out = BufWriter::new(File::create(path).expect("a log"));
    let head = format!("{{\"schema\":2,\"id\":\"{id}\",\"createdAt\":\"{AT}\",\"cwd\":\"/r\",\"events\":[\n");
    let (mut bytes, mut count, mut round, mut text) = (head.len() as u64, 0, 0, head);
    while !enough(bytes, count) {
        for entry in entries(round) {
            let comma = if count > 0 { "," } else { "" };
            writeln!(text, "{comma}{entry}").expect("memory");
            count += 1;
        }
        round += 1;
        bytes += if round == 1 { text.len() as u64 - bytes } else { text.len() as u64 };
        out.write_all(text.as_bytes()).expect("a write");
        text.clear();
    }
    let trailer = format!("],\"updatedAt\":\"{AT}\",\"contextTokens\":0,\"entries\":{count},\"synced\":{bytes}}}");
    out.write_all(trailer.as_bytes()).expect("a write");
    let file = out.into_inner().expect("a write");
    file.sync_all().expect("a sync");
    bytes
}

impl Bench {
    fn log(&self, n: usize) -> PathBuf {
        self.sessions.join(format!("{n:08x}.json"))
    }

    fn append(&self, table: &mut Table) {
        const TIMES: usize = 4000;
        let text = format!(r#"{{"type":"user","text":"{}","at":"{AT}"}}"#, "w".repeat(80));
        let entry = RawValue::from_string(text.clone()).expect("an entry");
        let line = vec![b'x'; text.len() + 2 + 120];
        let floor = {
            let file = File::create(self.sessions.join("floor")).expect("a file");
            let mut at = 0;
            median(TIMES, || {
                let time = timed(|| file.write_all_at(&line, at).expect("a write"));
                at += text.len() as u64 + 2;
                time
            })
        };
        let mut first = None;
        for (i, (n, name)) in [(1, "1"), (10_000, "10,000"), (1_000_000, "1,000,000")].into_iter().enumerate() {
            let id = sid(i + 1);
            write_log(&self.log(i + 1), &id, |_| vec![text.clone()], |_, count| count >= n);
            let mut log = self.store.load(&id).expect("a log");
            let entries = std::slice::from_ref(&entry);
            let time = median(TIMES, || timed(|| assert!(log.append(entries, None).expect("ours") > 0)));
            assert!(log.disk().is_none() && log.len() == n + TIMES as u64, "all of it is in the file");
            let what = format!("append to {name} entries (floor: pwrite)");
            table.time(&what, time, Some(floor), Some(floor + us(5)));
            let one = *first.get_or_insert(time);
            table.at_most("  against 1 entry", time.as_secs_f64() / one.as_secs_f64(), "times", (i > 0).then_some(1.5));
            drop(log);
            fs::remove_file(self.log(i + 1)).expect("gone");
        }
    }

    fn open(&self, table: &mut Table) {
        let big = std::env::var("GLRS_BENCH_BIG").is_ok_and(|v| v == "1");
        let sizes = [(1u64 << 22, "4 MB"), if big { (1 << 30, "1 GB") } else { (64 << 20, "64 MB") }];
        for (i, (size, name)) in sizes.into_iter().enumerate() {
            let id = sid(100 + i);
            write_log(&self.log(100 + i), &id, turn, |bytes, _| bytes >= size);
            let before = rss();
            let time = median(15, || {
                timed(|| {
                    let log = self.store.load(&id).expect("a log");
                    assert!(!log.tail(100, 256 * 1024).expect("its end").is_empty());
                })
            });
            let grown = rss().saturating_sub(before);
            table.time(&format!("open {name} to its last screen"), time, None, Some(Duration::from_millis(10)));
            table.at_most("  memory grown", grown as f64 / 1e6, "MB", Some(20.0));
        }
    }

    fn fold(&self, table: &mut Table) {
        let id = sid(200);
        let size = write_log(&self.log(200), &id, turn, |bytes, _| bytes >= 50 << 20);
        let rate = |time: Duration| size as f64 / 1e6 / time.as_secs_f64();
        let mut buf = vec![0; 256 * 1024];
        let floor = median(7, || {
            timed(|| {
                let mut file = File::open(self.log(200)).expect("a log");
                let mut lines = 0;
                loop {
                    let n = file.read(&mut buf).expect("a read");
                    if n == 0 {
                        break;
                    }
                    lines += buf[..n].iter().filter(|c| **c == b'\n').count();
                }
                assert!(lines > 1000);
            })
        });
        let log = self.store.load(&id).expect("a log");
        let scan = median(7, || timed(|| assert_eq!(log.scan(&mut |_, _| ()).expect("a scan"), 0)));
        table.at_least("walk the lines of a 50 MB log (floor: read it)", rate(scan), "MB/s", Some(rate(floor)), None);
        let context = median(7, || {
            timed(|| {
                let mut context = Context::default();
                log.scan(&mut |n, raw| context.apply(n, raw)).expect("a scan");
                assert!(context.stored().len() > 1000);
            })
        });
        table.at_least(
            "fold the context of a 50 MB log (floor: read it)",
            rate(context),
            "MB/s",
            Some(rate(floor)),
            Some(300.0),
        );
        let summary = median(7, || {
            timed(|| {
                let mut summary = Summary::default();
                log.scan(&mut |n, raw| summary.apply(n, raw)).expect("a scan");
            })
        });
        table.at_least("fold its summary", rate(summary), "MB/s", None, None);
    }

    fn fork(&self, table: &mut Table) {
        let (parent, mut n) = (self.store.load(&sid(200)).expect("a log"), 300);
        let copy = self.sessions.join("copy");
        let floor = median(7, || {
            let start = Instant::now();
            fs::copy(self.log(200), &copy).expect("a copy");
            File::open(&copy).and_then(|f| f.sync_data()).expect("a sync");
            let time = start.elapsed();
            fs::remove_file(&copy).expect("gone");
            time
        });
        let time = median(7, || {
            n += 1;
            let time = timed(|| {
                drop(self.store.fork(&parent.reader(), parent.len(), &sid(n), &[]).expect("a fork"));
            });
            self.store.delete(&sid(n)).expect("gone");
            time
        });
        table.time("fork a 50 MB log (floor: kernel copy and sync)", time, Some(floor), Some(floor + floor / 4));
    }

    fn list(&self, table: &mut Table) {
        const MANY: usize = 10_000;
        let mut bytes = 0;
        for n in 0..MANY {
            let id = sid(0x1_0000 + n);
            bytes += write_small(&self.log(0x1_0000 + n), &id);
        }
        let all = |times| median(times, || timed(|| drop(self.store.list().expect("a list"))));
        let (cold, warm) = (all(1), all(5));
        table.time("list 10,000 sessions that changed", cold, None, None);
        let rate = bytes as f64 / 1e6 / cold.as_secs_f64();
        table.at_least("  in bytes of log", rate, "MB/s", None, Some(100.0));
        table.time("list them all again", warm, None, None);
        self.store.index_rest();
        let page = || {
            let (rows, total) = page(&self.store, &[], &Filter::default(), 0, 20);
            assert!(rows.len() == 20 && total as usize >= MANY);
        };
        let time = median(25, || timed(page));
        table.time("list the newest 20 of them from the index", time, None, Some(Duration::from_millis(5)));
    }
}

/// A small log, not synced.
fn write_small(path: &Path, id: &SessionId) -> u64 {
    let mut text = format!("{{\"schema\":2,\"id\":\"{id}\",\"createdAt\":\"{AT}\",\"cwd\":\"/r\",\"events\":[\n");
    for (i, entry) in (0..2).flat_map(turn).enumerate() {
        writeln!(text, "{}{entry}", if i > 0 { "," } else { "" }).expect("memory");
    }
    let synced = text.len();
    write!(text, "],\"updatedAt\":\"{AT}\",\"contextTokens\":0,\"entries\":10,\"synced\":{synced}}}").expect("memory");
    fs::write(path, &text).expect("a log");
    text.len() as u64
}
