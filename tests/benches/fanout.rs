//! Many clients: deliveries per second and per processor time, memory of idle clients and sessions,
//! and whether one busy session slows another. The floor is a raw copy through socket pairs.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::type_complexity,
    reason = "a test says what is wrong by panicking"
)]

use glrs_tests::bench::{Table, cpu_of, median, timed, wanted};
use glrs_tests::process::rss_of;
use glrs_tests::wait::Watched;
use glrs_tests::{Dialect, Fake, Gate, Home, PATIENCE, Reply, Value, json};
use rustix::event::{PollFd, PollFlags, poll};
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

const CLIENTS: usize = 100;
const DELTAS: usize = 20_000;
/// And to one client: processor time is not counted finely.
const DELTAS_ALONE: usize = 100_000;
/// So many come without a pause: less than a ring holds, since a client of a bench that shares its
/// processors with the daemon may not run for a while.
const LEG: usize = 2500;
/// Bytes of a delta's text.
const PIECE: usize = 200;

fn main() {
    glrs_tests::set_exe(env!("CARGO_BIN_EXE_glrs"));
    let mut table = Table::new("glrs: many clients");
    let parts: [(&str, fn(&mut Table)); 5] = [
        ("alone", alone),
        ("many", many),
        ("beside", other_session),
        ("clients", idle_clients),
        ("sessions", idle_sessions),
    ];
    for (_, part) in parts.iter().filter(|(name, _)| wanted(name)) {
        part(&mut table);
    }
    table.finish();
}

/// A home on a fake provider.
fn faked() -> (Home, Fake) {
    let mut home = Home::new();
    let fake = Fake::start(Dialect::OpenAi);
    home.set_env("FAKE_KEY", "k");
    home.config(&fake.config());
    (home, fake)
}

/// An attached connection that nothing reads yet.
fn attach(home: &Home, id: &str) -> UnixStream {
    let mut stream = UnixStream::connect(home.socket()).expect("the daemon listens");
    stream.set_read_timeout(Some(PATIENCE)).expect("a read timeout");
    let call =
        |n: u64, method: &str, params: Value| json!({"jsonrpc": "2.0", "id": n, "method": method, "params": params});
    let hello = json!({"client": {"name": "many"}, "protocol": {"min": 1, "max": 1}});
    for line in [call(1, "hello", hello), call(2, "session/attach", json!({"id": id}))] {
        stream.write_all(format!("{line}\n").as_bytes()).expect("the daemon reads");
    }
    stream
}

/// What the bench spends on a client is the daemon's loss, so it only counts: bytes of `x`, of which
/// each piece of the flood has [`PIECE`] and no frame around it has any to speak of.
/// Two threads read them all: a thread each would mostly measure the scheduler.
fn count(streams: Vec<UnixStream>) -> Arc<AtomicUsize> {
    let seen = Arc::new(AtomicUsize::new(0));
    let mut streams = streams;
    for mut part in [streams.split_off(streams.len() / 2), streams] {
        let seen = Arc::clone(&seen);
        std::thread::spawn(move || {
            let mut bytes = vec![0; 64 * 1024];
            part.iter().for_each(|s| s.set_nonblocking(true).expect("a socket"));
            while !part.is_empty() {
                let mut fds: Vec<_> = part.iter().map(|s| PollFd::new(s, PollFlags::IN)).collect();
                poll(&mut fds, None).expect("a poll");
                let ready: Vec<bool> = fds.iter().map(|f| !f.revents().is_empty()).collect();
                let mut ready = ready.into_iter();
                part.retain_mut(|stream| {
                    if ready.next() != Some(true) {
                        return true;
                    }
                    match stream.read(&mut bytes) {
                        Ok(n @ 1..) => {
                            let found = bytes[..n].iter().map(|b| usize::from(*b == b'x')).sum();
                            seen.fetch_add(found, Ordering::Relaxed);
                            true
                        }
                        Ok(0) => false,
                        Err(e) => e.kind() == std::io::ErrorKind::WouldBlock,
                    }
                });
            }
        });
    }
    seen
}

/// Lets a flood run to `clients` connections; gives the time and the daemon's µs of work.
fn flood(home: &Home, fake: &Fake, pid: u32, clients: usize, deltas: usize) -> (Duration, f64) {
    let wire = home.wire("bench");
    let id = wire.new_session(home, json!({}));
    let seen = count((0..clients).map(|_| attach(home, &id)).collect());
    wire.wait_view(&id, "all attached", |v| v.clients == clients as u64 + 1);
    wire.ok("session/detach", json!({"id": id}));
    let piece = format!("{} ", "x".repeat(PIECE - 1));
    let gates: Vec<Gate> = (0..=deltas / LEG).map(|_| Gate::new()).collect();
    let (last, legs) = gates.split_last().expect("a gate");
    let reply = legs.iter().fold(Reply::new(), |reply, gate| reply.gate(gate).text(&piece.repeat(LEG)));
    fake.reply(reply.gate(last));
    wire.send(&id, "flood");
    legs[0].wait_reached();
    let work = cpu_of(pid).unwrap_or(0);
    let start = Instant::now();
    let nobody = Watched::new(());
    for (n, gate) in legs.iter().enumerate() {
        gate.open();
        // The daemon joins pieces that came together, so text is counted, not frames.
        let due = (n + 1) * clients * LEG * (PIECE - 1);
        while seen.load(Ordering::Relaxed) < due && start.elapsed() < PATIENCE {
            nobody.wait_for(Duration::from_micros(200), |()| None::<()>);
        }
        assert!(seen.load(Ordering::Relaxed) >= due, "a client was left behind");
    }
    let time = start.elapsed();
    let work = cpu_of(pid).unwrap_or(0) - work;
    last.open();
    (time, work as f64)
}

fn alone(table: &mut Table) {
    let (home, fake) = faked();
    let daemon = home.daemon();
    let (_, work) = flood(&home, &fake, daemon.pid(), 1, DELTAS_ALONE);
    let rate = DELTAS_ALONE as f64 / (work / 1e6);
    table.at_least("a model's deltas to one client, per second of work", rate, "/s", None, Some(100_000.0));
    fake.assert_clean();
}

fn many(table: &mut Table) {
    let (home, fake) = faked();
    let daemon = home.daemon();
    let (_, alone) = flood(&home, &fake, daemon.pid(), 1, DELTAS);
    let (time, work) = flood(&home, &fake, daemon.pid(), CLIENTS, DELTAS);
    let floor = raw_copy();
    let deliveries = (DELTAS * CLIENTS) as f64;
    let rate = deliveries / time.as_secs_f64();
    let gate = Some(2_000_000.0);
    table.at_least("a model's deltas to 100 clients (floor: raw copy)", rate, "/s", Some(floor), gate);
    table.at_most("  daemon's work per delivery", (work - alone).max(0.0) / deliveries, "µs", Some(0.3));
    fake.assert_clean();
}

/// Messages per second of the same size through plain socket pairs, 64 KiB a write.
fn raw_copy() -> f64 {
    let pairs: Vec<_> = (0..CLIENTS).map(|_| UnixStream::pair().expect("a socket pair")).collect();
    let pack = vec![b'x'; 64 * 1024];
    // A delta's frame has about so many bytes.
    let rounds = DELTAS * 330 / pack.len();
    let start = Instant::now();
    std::thread::scope(|scope| {
        let mut inputs = Vec::new();
        for (input, mut output) in pairs {
            inputs.push(input);
            scope.spawn(move || {
                let mut bytes = vec![0; 64 * 1024];
                while let Ok(1..) = output.read(&mut bytes) {}
            });
        }
        for _ in 0..rounds {
            for input in &mut inputs {
                input.write_all(&pack).expect("a socket that is read");
            }
        }
    });
    (rounds * pack.len() / 330 * CLIENTS) as f64 / start.elapsed().as_secs_f64()
}

fn other_session(table: &mut Table) {
    let (home, fake) = faked();
    let _daemon = home.daemon();
    let wire = home.wire("bench");
    let (busy, calm) = (wire.new_session(&home, json!({})), wire.new_session(&home, json!({})));
    let trip = || median(300, || timed(|| drop(wire.ok("session/info", json!({"id": calm})))));
    let quiet = trip();
    wire.ok("session/detach", json!({"id": busy}));
    fake.reply(Reply::say(&"word ".repeat(200_000)));
    wire.send(&busy, "flood");
    fake.wait_request(1);
    let loaded = trip();
    table.time(
        "round trip beside a session at full stream (floor: idle)",
        loaded,
        Some(quiet),
        Some(quiet + Duration::from_millis(2)),
    );
    wire.ok("session/interrupt", json!({"id": busy}));
}

fn idle_clients(table: &mut Table) {
    let home = Home::new();
    let daemon = home.daemon();
    let wire = home.wire("bench");
    let id = wire.new_session(&home, json!({}));
    let before = rss_of(daemon.pid()).unwrap_or(0);
    // Each side of a connection takes a descriptor of this process only once.
    let mut kept: Vec<UnixStream> = Vec::new();
    let mut bytes = vec![0; 64 * 1024];
    // As terminals come: each reads what it is told, also of those that come after it.
    let mut read_all = |kept: &[UnixStream]| -> usize {
        let read =
            |mut s: &UnixStream| -> usize { std::iter::from_fn(|| s.read(&mut bytes).ok().filter(|n| *n > 0)).sum() };
        kept.iter().map(read).sum()
    };
    for n in 1..=800 {
        let stream = attach(&home, &id);
        stream.set_nonblocking(true).expect("a socket");
        kept.push(stream);
        wire.wait_view(&id, "attached", |v| v.clients == n + 1);
        read_all(&kept);
    }
    let nobody = Watched::new(());
    while read_all(&kept) > 0 {
        nobody.wait_for(Duration::from_millis(100), |()| None::<()>);
    }
    let grown = rss_of(daemon.pid()).unwrap_or(0).saturating_sub(before) as f64 / 1048576.0;
    table.at_most("1,000 idle attached clients (from 800)", grown * 1000.0 / kept.len() as f64, "MiB", Some(15.0));
}

fn idle_sessions(table: &mut Table) {
    let home = Home::new();
    let daemon = home.daemon();
    let wire = home.wire("bench");
    let before = rss_of(daemon.pid()).unwrap_or(0);
    for _ in 0..1000 {
        let id = wire.new_session(&home, json!({}));
        wire.turn(&id, "say 3 words");
    }
    let grown = rss_of(daemon.pid()).unwrap_or(0).saturating_sub(before) as f64 / 1048576.0;
    table.at_most("1,000 live idle sessions", grown, "MiB", Some(30.0));
}
