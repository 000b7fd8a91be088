//! What was acknowledged survives `kill -9`, whenever it comes.
//!
//! This test runs itself again as a process that appends, syncs and says so, and kills it.

#![allow(clippy::unwrap_used, reason = "a test; a failure is a panic")]

use glrs_protocol::SessionId;
use glrsd::host::Paths;
use glrsd::store::Store;
use serde_json::value::RawValue;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Command, Stdio};

const ROOT: &str = "GLRS_TEST_STORE_ROOT";

fn paths(root: &Path) -> Paths {
    Paths {
        config: root.join("config.json"),
        socket: root.join("glrsd.sock"),
        legacy: root.join("../glorious/sessions"),
        tmp: root.join("../tmp"),
        root: root.to_owned(),
    }
}

fn id() -> SessionId {
    "aaaaaaaa".parse().unwrap()
}

fn entry(n: u64) -> Box<RawValue> {
    let words = "word ".repeat(usize::try_from(n * 37 % 400).unwrap());
    RawValue::from_string(format!("{{\"type\":\"user\",\"text\":\"{n} {words}\",\"at\":\"t\"}}")).unwrap()
}

/// Appends until it is killed. Only does so in the process that the test below starts.
#[test]
fn child() {
    let Some(root) = std::env::var_os(ROOT) else { return };
    let store = Store::open(paths(Path::new(&root))).unwrap();
    let mut log = store.load(&id()).unwrap_or_else(|_| store.create(&id(), "/r", "t"));
    let mut live = store.live(&id());
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let mut out = std::io::stdout();
    loop {
        let n = log.len() + 1;
        live.append(&entry(n)).unwrap();
        assert_eq!(log.append(&[entry(n)], Some(n)).unwrap(), n);
        if n.is_multiple_of(3) {
            runtime.block_on(log.sync()).unwrap();
        }
        writeln!(out, "ack {n}").unwrap();
        out.flush().unwrap();
    }
}

#[test]
fn what_was_acknowledged_survives_a_kill() {
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path().join("glrs");
    let mut before = 0;
    for round in 1..=12u64 {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["child", "--exact", "--nocapture", "--test-threads=1"])
            .env(ROOT, &root)
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let mut acknowledged = before;
        while acknowledged < before + round * 5 {
            let line = lines.next().unwrap().unwrap();
            // The harness writes the test's name before the first line.
            if let Some(n) = line.rsplit_once("ack ").and_then(|(_, n)| n.parse().ok()) {
                acknowledged = n;
            }
        }
        child.kill().unwrap();
        child.wait().unwrap();
        acknowledged = lines
            .map_while(Result::ok)
            .filter_map(|l| l.strip_prefix("ack ")?.parse().ok())
            .last()
            .unwrap_or(acknowledged);

        // The lock died with its holder.
        let store = Store::open(paths(&root)).unwrap();
        let mut log = store.load(&id()).unwrap();
        assert!(log.salvage().is_empty(), "{:?}", log.salvage());
        assert!(log.len() >= acknowledged, "{} of {acknowledged}", log.len());
        for e in log.read(1, usize::MAX, usize::MAX).unwrap() {
            assert_eq!(e.entry.get(), entry(e.n).get());
        }
        // One entry a round was appended here, and has no record.
        let records = store.live(&id()).read_all().unwrap().len() as u64;
        assert!(records + round > acknowledged, "{records} records");
        let bytes = std::fs::read(log.path()).unwrap();
        let json: serde_json::Value = serde_json::from_slice(&bytes).unwrap();
        assert_eq!(json["entries"].as_u64(), Some(log.len()));
        let n = log.len() + 1;
        log.append(&[entry(n)], None).unwrap();
        before = n;
    }
}
