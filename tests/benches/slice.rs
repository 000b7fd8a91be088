//! The figures of the first slice: start, idling, appending, turns and deltas, each with the floor
//! that the same machine needs without glrs, measured in the same run.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::type_complexity,
    reason = "a test says what is wrong by panicking"
)]

use glrs_tests::bench::{Table, cpu_of, median, switches_of, timed, wanted};
use glrs_tests::fakes::http::Plain;
use glrs_tests::process::{Proc, Signal, daemons_of, rss_of};
use glrs_tests::wait::Watched;
use glrs_tests::{Dialect, Fake, Home, PATIENCE, Reply, Value, cli, json};
use std::fs::{self, File};
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::FileExt;
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

fn main() {
    glrs_tests::set_exe(env!("CARGO_BIN_EXE_glrs"));
    let mut table = Table::new("glrs: first slice");
    let parts: [(&str, fn(&mut Table)); 5] =
        [("start", start), ("idle", idle), ("append", append), ("turns", turns), ("long", long)];
    for (_, part) in parts.iter().filter(|(name, _)| wanted(name)) {
        part(&mut table);
    }
    table.finish();
}

fn ms(n: u64) -> Option<Duration> {
    Some(Duration::from_millis(n))
}

fn start(table: &mut Table) {
    let home = Home::new();
    let version = median(15, || timed(|| drop(cli(&home, ["--version"]).ok())));
    let cold = median(9, || {
        let home = Home::new();
        let time = timed(|| drop(cli(&home, ["-p", "say 1 words"]).ok()));
        end_daemons(&home);
        time
    });
    table.time("cold `glrs -p`, no daemon (floor: two bare starts)", cold, Some(version * 2), ms(60));
    let _daemon = home.daemon();
    let warm = median(15, || timed(|| drop(cli(&home, ["-p", "say 1 words"]).ok())));
    table.time("warm `glrs -p` (floor: a bare start)", warm, Some(version), ms(20));
}

fn end_daemons(home: &Home) {
    for process in daemons_of(&home.root()).into_iter().filter_map(Proc::open) {
        process.signal(Signal::KILL);
        process.wait(PATIENCE);
    }
}

fn idle(table: &mut Table) {
    let home = Home::new();
    let daemon = home.daemon();
    let nobody = Watched::new(());
    nobody.wait_for(Duration::from_secs(1), |()| None::<()>);
    let before = switches_of(daemon.pid()).unwrap_or(0);
    nobody.wait_for(Duration::from_secs(5), |()| None::<()>);
    let woken = switches_of(daemon.pid()).unwrap_or(0) - before;
    let rss = rss_of(daemon.pid()).unwrap_or(0) as f64 / 1048576.0;
    table.at_most("idle daemon, resident", rss, "MiB", Some(20.0));
    table.at_most("idle daemon, wake-ups in 5 s", woken as f64, "", Some(0.0));
}

/// A session with about so many bytes of entries, written without glrs.
fn stored(home: &Home, id: &str, bytes: usize) {
    fs::create_dir_all(home.sessions()).expect("the sessions' directory");
    let at = "2026-01-01T00:00:00.000Z";
    let entry = json!({"type": "notice", "text": "x".repeat(1000), "at": at}).to_string();
    let cwd = home.work();
    let mut text =
        format!("{{\"schema\":2,\"id\":\"{id}\",\"createdAt\":\"{at}\",\"cwd\":\"{}\",\"events\":[\n", cwd.display());
    let count = (bytes / entry.len()).max(1);
    for i in 0..count {
        if i > 0 {
            text.push(',');
        }
        text.push_str(&entry);
        text.push('\n');
    }
    let synced = text.len();
    text.push_str(&format!("],\"updatedAt\":\"{at}\",\"contextTokens\":0,\"entries\":{count},\"synced\":{synced}}}"));
    fs::write(home.log(id), text).expect("a session file");
}

fn append(table: &mut Table) {
    let home = Home::new();
    stored(&home, "00000001", 10_000);
    stored(&home, "00000002", 50_000_000);
    let mut daemon = home.daemon();
    let wire = home.wire("bench");
    let floor = {
        let file = File::create(home.work().join("floor")).expect("a file");
        let line = vec![b'x'; 300];
        let mut at = 0;
        median(200, || {
            timed(|| {
                file.write_all_at(&line, at).and_then(|()| file.sync_data()).expect("a write");
                at += 150;
            })
        })
    };
    for (id, name) in [("00000001", "10 kB"), ("00000002", "50 MB")] {
        wire.attach(id, json!({"tail": 1}));
        let call = json!({"id": id, "custom": "bench:entry", "data": {"n": 1}});
        wire.ok("session/append", call.clone());
        let time = median(200, || timed(|| drop(wire.ok("session/append", call.clone()))));
        table.time(&format!("append to a {name} session (floor: pwrite + fdatasync)"), time, Some(floor), None);
        let attach = median(20, || {
            let other = home.wire("other");
            timed(|| drop(other.ok("session/attach", json!({"id": id}))))
        });
        table.time(&format!("attach to a {name} session"), attach, None, ms(10));
    }
    // After a kill the log is read once; a daemon that ends in peace keeps what it knows of it.
    for (how, gate) in [("a kill -9", None), ("an orderly end", ms(10))] {
        if gate.is_some() {
            daemon.term();
            daemon.wait(PATIENCE);
        } else {
            daemon.kill9();
        }
        daemon = home.daemon();
        let other = home.wire("cold");
        let cold = timed(|| drop(other.ok("session/attach", json!({"id": "00000002"}))));
        table.time(&format!("first attach to it after {how}"), cold, None, gate);
    }
}

fn turns(table: &mut Table) {
    let mut home = Home::new();
    let fake = Fake::start(Dialect::OpenAi);
    home.set_env("FAKE_KEY", "k");
    home.config(&fake.config());
    let _daemon = home.daemon();
    let wire = home.wire("bench");
    let sync = durable(&home);
    let headers = [("authorization", "Bearer k"), ("content-type", "application/json")];
    for (words, name) in [(1, "a turn on an instant model"), (2000, "2,000 deltas to one client")] {
        let text = "word ".repeat(words);
        fake.answer_by(move |_| Reply::say(&text));
        // Sessions of their own, so that the history that each request carries stays small.
        let sessions = if words == 1 { 10 } else { 1 };
        let mut times = Vec::new();
        for _ in 0..sessions {
            let id = wire.new_session(&home, json!({}));
            wire.turn(&id, "go");
            wire.ok("session/detach", json!({"id": id}));
            let mut plain = Client::attach(&home, &id);
            // Beside each turn, what its request takes without us: both meet the machine in one state.
            let mut direct = Plain::connect(fake.addr());
            times.extend((0..25).map(|_| {
                let time = plain.turn(&id);
                let body = fake.wait_request(fake.count()).raw;
                (time, timed(|| drop(direct.post("/v1/chat/completions", &headers, &body))))
            }));
        }
        let of = |part: &dyn Fn(&(Duration, Duration)) -> Duration| {
            let mut all = times.iter().map(part);
            median(times.len(), || all.next().unwrap_or_default())
        };
        let (time, floor) = (of(&|t| t.0), of(&|t| t.1));
        table.time(&format!("{name} (floor: its request by itself)"), time, Some(floor), None);
        // What was said and how the turn ended are each on disk before anyone is told.
        let over = time.saturating_sub(floor);
        let gate = if words == 1 { 2 } else { 30 };
        table.time("  over that (floor: pwrite + fdatasync, twice)", over, Some(sync * 2), ms(gate));
    }
    fake.assert_clean();
}

/// A session in which so many bytes were said, written without glrs.
fn talked(home: &Home, id: &str, bytes: usize) {
    fs::create_dir_all(home.sessions()).expect("the sessions' directory");
    let at = "2026-01-01T00:00:00.000Z";
    let said = "so it was said \"before\"\n".repeat(400);
    let messages = json!([{"role": "user", "content": said}, {"role": "assistant", "content": said}]);
    let turn = json!({"type": "turn", "messages": messages, "status": "done", "at": at}).to_string();
    let user = json!({"type": "user", "text": said, "at": at}).to_string();
    let cwd = home.work();
    let mut text =
        format!("{{\"schema\":2,\"id\":\"{id}\",\"createdAt\":\"{at}\",\"cwd\":\"{}\",\"events\":[\n", cwd.display());
    let count = (bytes / (2 * said.len())).max(1);
    for i in 0..count {
        text.push_str(if i > 0 { "," } else { "" });
        text.push_str(&format!("{user}\n,{turn}\n"));
    }
    let synced = text.len();
    let entries = 2 * count;
    text.push_str(&format!("],\"updatedAt\":\"{at}\",\"contextTokens\":0,\"entries\":{entries},\"synced\":{synced}}}"));
    fs::write(home.log(id), text).expect("a session file");
}

/// A turn on a long history: what it costs the daemon is to serialise it, once.
fn long(table: &mut Table) {
    let mut home = Home::new();
    let fake = Fake::start(Dialect::OpenAi);
    home.set_env("FAKE_KEY", "k");
    let mut config = fake.config();
    config["providers"]["fake"]["models"]["m"]["metadata"]["context"] = json!(100_000_000);
    config["compactWindow"] = json!(100_000_000);
    home.config(&config);
    talked(&home, "0000000a", 10_000_000);
    let daemon = home.daemon();
    let wire = home.wire("bench");
    fake.answer_by(|_| Reply::say("word "));
    wire.attach("0000000a", json!({"tail": 1, "env": home.env()}));
    wire.ok("session/set", json!({"id": "0000000a", "model": "fake/m"}));
    // The first folds the log.
    wire.turn("0000000a", "go");
    let before = cpu_of(daemon.pid()).unwrap_or(0);
    let turns = 10;
    (0..turns).for_each(|_| drop(wire.turn("0000000a", "go")));
    let work = Duration::from_micros((cpu_of(daemon.pid()).unwrap_or(0) - before) / turns);
    let body = fake.requests().last().expect("a request").body.clone();
    let floor = median(5, || timed(|| drop(body.to_string())));
    assert!(body.to_string().len() > 10_000_000, "all of the history is sent");
    table.time("daemon's work for a turn on 10 MB (floor: serialised once)", work, Some(floor), Some(floor * 3));
    fake.assert_clean();
}

/// How long it takes this disk to have a line.
fn durable(home: &Home) -> Duration {
    let file = File::create(home.work().join("floor")).expect("a file");
    let mut at = 0;
    median(100, || {
        timed(|| {
            file.write_all_at(&[b'x'; 300], at).and_then(|()| file.sync_data()).expect("a write");
            at += 150;
        })
    })
}

/// A client that does nothing but wait for the turn's end: what it costs is not the daemon's.
struct Client {
    lines: BufReader<UnixStream>,
    line: Vec<u8>,
}

impl Client {
    fn attach(home: &Home, id: &str) -> Self {
        let stream = UnixStream::connect(home.socket()).expect("the daemon listens");
        stream.set_read_timeout(Some(PATIENCE)).expect("a read timeout");
        let mut plain = Self { lines: BufReader::new(stream), line: Vec::new() };
        plain.call("hello", &json!({"client": {"name": "plain"}, "protocol": {"min": 1, "max": 1}}));
        plain.until(b"\"id\":1");
        plain.call("session/attach", &json!({"id": id, "tail": 1}));
        plain.until(b"\"id\":1");
        plain
    }

    fn call(&mut self, method: &str, params: &Value) {
        let call = json!({"jsonrpc": "2.0", "id": 1, "method": method, "params": params});
        self.lines.get_mut().write_all(format!("{call}\n").as_bytes()).expect("the daemon reads");
    }

    fn until(&mut self, mark: &[u8]) {
        loop {
            self.line.clear();
            let n = self.lines.read_until(b'\n', &mut self.line).expect("the daemon answers");
            assert!(n > 0, "the daemon hung up");
            if memchr::memmem::find(&self.line, mark).is_some() {
                return;
            }
        }
    }

    fn turn(&mut self, id: &str) -> Duration {
        let start = Instant::now();
        self.call("session/send", &json!({"id": id, "text": "go"}));
        self.until(b"\"state\":{\"name\":\"idle\"");
        start.elapsed()
    }
}
