//! The figures of the first slice: start, idling, appending, turns and deltas, each with the floor
//! that the same machine needs without glrs, measured in the same run.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::type_complexity,
    reason = "a test says what is wrong by panicking"
)]

use glrs_tests::bench::{Table, median, switches_of, timed};
use glrs_tests::fakes::http::post;
use glrs_tests::process::{Proc, Signal, daemons_of, rss_of};
use glrs_tests::wait::Watched;
use glrs_tests::{Dialect, Fake, Home, PATIENCE, Reply, Wire, cli, json};
use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::time::{Duration, Instant};

fn main() {
    glrs_tests::set_exe(env!("CARGO_BIN_EXE_glrs"));
    let mut table = Table::new("glrs: first slice");
    start(&mut table);
    idle(&mut table);
    append(&mut table);
    turns(&mut table);
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
    daemon.kill9();
    let _again = home.daemon();
    let other = home.wire("cold");
    let cold = timed(|| drop(other.ok("session/attach", json!({"id": "00000002"}))));
    table.time("first attach to a 50 MB session after a start", cold, None, None);
}

fn turns(table: &mut Table) {
    let mut home = Home::new();
    let fake = Fake::start(Dialect::OpenAi);
    home.set_env("FAKE_KEY", "k");
    home.config(&fake.config());
    let _daemon = home.daemon();
    let wire = home.wire("bench");
    for (words, name, gate) in [(1, "a turn on an instant model", None), (2000, "2,000 deltas to one client", ms(30))] {
        let text = "word ".repeat(words);
        fake.answer_by(move |_| Reply::say(&text));
        let id = wire.new_session(&home, json!({}));
        turn(&wire, &id);
        let time = median(15, || turn(&wire, &id));
        let message = json!([{"role": "user", "content": "go"}]);
        let body =
            json!({"model": "m", "stream": true, "stream_options": {"include_usage": true}, "messages": message});
        let headers = [("authorization", "Bearer k"), ("content-type", "application/json")];
        let floor =
            median(15, || timed(|| drop(post(fake.addr(), "/v1/chat/completions", &headers, &body.to_string()))));
        table.time(&format!("{name} (floor: the provider itself)"), time, Some(floor), gate);
        if words == 1 {
            table.time("overhead of a turn", time.saturating_sub(floor), None, ms(2));
        }
    }
    fake.assert_clean();
}

fn turn(wire: &Wire, id: &str) -> Duration {
    let start = Instant::now();
    wire.turn(id, "go");
    start.elapsed()
}
