//! The session actor under random commands and crashes, against what turns.md promises.
//!
//! A crash here drops the runtime with every task at whatever point it waits, and opens the same
//! directory again: what the files hold is all that is left. (Real SIGKILLs of the real process are
//! in the end-to-end tests.)

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test says what is wrong by panicking")]

use glrs_protocol::entry::{self, Entry};
use glrs_protocol::event::{Event, EventFrame};
use glrs_protocol::params as p;
use glrs_protocol::types::{Decision, Mode, QueueRow, SendMode, StateName};
use glrs_protocol::{RpcError, SessionId};
use glrsd::host::{Env, Paths};
use glrsd::model::ModelSets;
use glrsd::registry::Registry;
use glrsd::session::feed::{Cursor, Drain, Wake};
use glrsd::session::{AttachPoint, Cmd, Reply, Who};
use glrsd::store::{Fault, Faults, Op as DiskOp, Store};
use proptest::prelude::*;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::sync::oneshot;

#[derive(Clone, Debug)]
enum Op {
    Send(SendMode, u8),
    Interrupt,
    Release,
    Edit(u8),
    Remove(u8),
    Move(u8, u8),
    Answer(u8),
    Clear,
    SetMode(Mode),
    Turn,
    Settle,
    Crash,
}

fn op() -> impl Strategy<Value = Op> {
    let mode = prop_oneof![3 => Just(SendMode::Queue), 2 => Just(SendMode::Steer), 1 => Just(SendMode::Interrupt)];
    prop_oneof![
        8 => (mode, 0u8..8).prop_map(|(m, k)| Op::Send(m, k)),
        2 => Just(Op::Interrupt),
        1 => Just(Op::Release),
        1 => any::<u8>().prop_map(Op::Edit),
        1 => any::<u8>().prop_map(Op::Remove),
        1 => (any::<u8>(), any::<u8>()).prop_map(|(a, b)| Op::Move(a, b)),
        3 => (0u8..3).prop_map(Op::Answer),
        1 => Just(Op::Clear),
        1 => prop_oneof![Just(Mode::Ask), Just(Mode::All)].prop_map(Op::SetMode),
        3 => Just(Op::Turn),
        2 => Just(Op::Settle),
        2 => Just(Op::Crash),
    ]
}

/// What the built-in model does with the n-th message; the tag makes each text unique.
fn text(kind: u8, n: usize) -> String {
    match kind {
        0 => format!("say 2 words\ntag {n}"),
        1 => format!("write f{n}.txt x\ntag {n}"),
        2 => format!("steps 2\ntag {n}"),
        3 => format!("slow 3 words\ntag {n}"),
        4 => format!("run echo {n}\ntag {n}"),
        5 => format!("ask really?\ntag {n}"),
        6 => format!("fail\ntag {n}"),
        _ => format!("think 2 words\ntag {n}"),
    }
}

async fn call<T: Send + 'static>(
    r: &Registry,
    id: &SessionId,
    make: impl FnOnce(Reply<T>) -> Cmd,
) -> Result<T, RpcError> {
    let (tx, rx) = oneshot::channel();
    r.send(id, make(Box::new(move |x| drop(tx.send(x))))).await;
    rx.await.expect("every call is answered")
}

fn who() -> Who {
    Who { client: 1, by: "test#1".into() }
}

/// A client's view: the snapshot and every event behind it.
struct View {
    epoch: String,
    seq: u64,
    entries: Vec<(u64, String)>,
    queue: Vec<QueueRow>,
    requests: Vec<String>,
    pieces: BTreeMap<String, usize>,
    state: StateName,
    cursor: Option<Cursor>,
    wake: Arc<Wake>,
}

impl View {
    async fn attach(r: &Registry, id: &SessionId) -> Self {
        let wake: Arc<Wake> = Arc::default();
        let params: p::Attach = serde_json::from_value(serde_json::json!({"id": id})).unwrap();
        let w = wake.clone();
        let make = |reply| Cmd::Attach { who: who(), p: Box::new(params), wake: w, reply };
        let point: Box<AttachPoint> = call(r, id, make).await.unwrap();
        let entries = point.reader.tail(100_000, usize::MAX).unwrap();
        assert_eq!(entries.len() as u64, point.total);
        let s = &point.snapshot;
        Self {
            epoch: s.epoch.clone(),
            seq: s.seq,
            entries: entries.into_iter().map(|e| (e.n, e.entry.get().to_owned())).collect(),
            queue: s.queue.clone(),
            requests: s.requests.iter().map(|r| r.request.clone()).collect(),
            pieces: s.in_flight.iter().map(|f| (f.of.clone(), f.text.len())).collect(),
            state: s.state.name,
            cursor: Some(point.cursor),
            wake,
        }
    }

    /// Takes in what has been published; checks numbers, entries and pieces for gaps.
    fn drain(&mut self) {
        let Some(cursor) = &mut self.cursor else { return };
        let (mut frames, mut taken) = (Vec::new(), 0);
        let end = cursor.drain(&mut frames, &mut taken, usize::MAX);
        assert!(!matches!(end, Drain::Lagged(_)));
        if matches!(end, Drain::Closed(_)) {
            self.cursor = None;
        }
        for f in frames {
            #[derive(serde::Deserialize)]
            struct Line {
                params: Box<serde_json::value::RawValue>,
            }
            let line: Line = serde_json::from_slice(&f).unwrap();
            let frame = EventFrame::parse(line.params.get()).unwrap();
            assert_eq!(frame.head.seq, Some(self.seq + 1), "gap-free");
            assert_eq!(frame.head.epoch, self.epoch);
            self.seq += 1;
            match frame.event {
                Event::Entry(e) => {
                    let last = self.entries.last().map_or(0, |e| e.0);
                    assert_eq!(e.n, last + 1, "entries are numbered gap-free");
                    self.entries.push((e.n, e.entry.get().to_owned()));
                    if let Some(of) = e.of {
                        self.pieces.remove(&of);
                    }
                }
                Event::Delta(d) => {
                    let at = self.pieces.entry(d.of).or_insert(0);
                    assert_eq!(d.offset as usize, *at, "deltas meet");
                    *at += d.text.len();
                }
                Event::Queue(q) => self.queue = q.rows,
                Event::Request(r) => self.requests.push(r.request.request),
                Event::Resolved(r) => self.requests.retain(|x| *x != r.request),
                Event::State(s) => self.state = s.state.name,
                Event::Unknown(k) => panic!("unknown event {k}"),
                _ => {}
            }
        }
    }

    async fn wait(&mut self, what: &str, mut done: impl FnMut(&Self) -> bool) {
        let wait = async {
            loop {
                self.drain();
                if done(self) {
                    return;
                }
                self.wake.wait().await;
            }
        };
        if tokio::time::timeout(Duration::from_secs(20), wait).await.is_err() {
            panic!("never came: {what}; state {:?}, queue {:?}, {:#?}", self.state, self.queue, self.entries);
        }
    }
}

/// Nothing happens any more without someone's doing.
fn resting(v: &View) -> bool {
    v.state != StateName::Running || !v.requests.is_empty()
}

fn open(dir: &std::path::Path) -> Arc<Registry> {
    open_with(dir, Arc::new(|_, _| None))
}

fn open_with(dir: &std::path::Path, faults: Faults) -> Arc<Registry> {
    let env: Env = [("GLRS_HOME".to_owned(), dir.join("g").display().to_string())].into_iter().collect();
    let paths = Paths::from_env(&env, 0).unwrap();
    let store = Store::with_faults(paths.clone(), faults).expect("the directory is free again");
    Registry::new(store, paths, ModelSets::default())
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap()
}

/// What was acknowledged.
#[derive(Default)]
struct Told {
    /// Texts whose send was acknowledged, and their keys.
    sent: Vec<(String, String)>,
    /// What a text was changed to; empty when it was taken back.
    edited: BTreeMap<String, String>,
}

impl Told {
    fn now<'a>(&'a self, text: &'a str) -> &'a str {
        let mut now = text;
        while let Some(next) = self.edited.get(now) {
            now = next;
        }
        now
    }
}

struct World {
    registry: Arc<Registry>,
    id: SessionId,
    view: View,
}

impl World {
    async fn new(dir: &std::path::Path, id: &SessionId, first: bool) -> Self {
        Self::on(open(dir), dir, id, first).await
    }

    async fn on(registry: Arc<Registry>, dir: &std::path::Path, id: &SessionId, first: bool) -> Self {
        if first {
            let path = std::env::var("PATH").unwrap_or_default();
            let new = serde_json::json!({"cwd": dir, "id": id, "model": "builtin/rehearsal", "env": {"PATH": path}});
            registry.make(serde_json::from_value(new).unwrap()).await.unwrap();
        } else {
            registry.recover();
        }
        let view = View::attach(&registry, id).await;
        Self { registry, id: id.clone(), view }
    }

    fn row(&self, k: u8) -> Option<QueueRow> {
        let rows = &self.view.queue;
        (!rows.is_empty()).then(|| rows[k as usize % rows.len()].clone())
    }

    async fn answer(&self, request: &str, decisions: &[Decision]) {
        for decision in decisions {
            let a = p::Answer {
                id: self.id.clone(),
                request: request.to_owned(),
                decision: *decision,
                words: Some("yes".into()),
            };
            // One of them fits the kind of request; the other is refused.
            let _ = call(&self.registry, &self.id, |reply| Cmd::Answer { who: who(), p: a, reply }).await;
        }
    }

    async fn mode(&self, mode: Mode) {
        let mut set: p::SessionSet = serde_json::from_value(serde_json::json!({"id": self.id})).unwrap();
        set.mode = Some(mode);
        call(&self.registry, &self.id, |reply| Cmd::Set { who: who(), p: set, reply }).await.unwrap();
    }

    async fn send(&mut self, mode: SendMode, kind: u8, n: usize, told: &mut Told) {
        let (t, key) = (text(kind, n), format!("k{n}"));
        let message =
            p::Send { id: self.id.clone(), text: t.clone(), attachments: vec![], mode, key: Some(key.clone()) };
        let (m1, m2) = (message.clone(), message);
        let first = call(&self.registry, &self.id, |reply| Cmd::Send { who: who(), p: m1, reply }).await.unwrap();
        told.sent.push((t, key));
        // Repeating it never runs it twice, wherever it is by now.
        let again = call(&self.registry, &self.id, |reply| Cmd::Send { who: who(), p: m2, reply }).await.unwrap();
        assert!(again.entry.is_some() || again.row == first.row, "{first:?} {again:?}");
    }

    async fn apply(&mut self, op: &Op, n: usize, told: &mut Told) {
        let (r, id) = (self.registry.clone(), self.id.clone());
        self.view.drain();
        match op {
            Op::Send(mode, kind) => self.send(*mode, *kind, n, told).await,
            Op::Interrupt => {
                let done = call(&r, &id, |reply| Cmd::Interrupt { who: who(), reply }).await.unwrap();
                self.view.drain();
                if done.outcome == "interrupted" {
                    assert!(self.view.queue.is_empty() || self.view.state != StateName::Idle, "esc holds what waits");
                }
            }
            Op::Release => drop(call(&r, &id, |reply| Cmd::Release { who: who(), reply }).await.unwrap()),
            Op::Edit(k) => {
                if let Some(row) = self.row(*k) {
                    let new = format!("say 1 words\nedited {n}");
                    let edit = p::QueueEdit { id: id.clone(), row: row.row, version: row.version, text: new.clone() };
                    if call(&r, &id, |reply| Cmd::QueueEdit { who: who(), p: edit, reply }).await.is_ok() {
                        told.edited.insert(row.text, new);
                    }
                }
            }
            Op::Remove(k) => {
                if let Some(row) = self.row(*k) {
                    let remove = p::QueueRemove { id: id.clone(), row: row.row, version: row.version };
                    if call(&r, &id, |reply| Cmd::QueueRemove { who: who(), p: remove, reply }).await.is_ok() {
                        told.edited.insert(row.text, String::new());
                    }
                }
            }
            Op::Move(k, to) => {
                if let Some(row) = self.row(*k) {
                    let to = u32::from(*to);
                    let mv = p::QueueMove { id: id.clone(), row: row.row, version: row.version, to };
                    // It may have been taken meanwhile; then it is refused.
                    let _ = call(&r, &id, |reply| Cmd::QueueMove { who: who(), p: mv, reply }).await;
                }
            }
            Op::Answer(d) => {
                if let Some(request) = self.view.requests.first().cloned() {
                    let d = [Decision::Allow, Decision::Always, Decision::Deny][*d as usize];
                    self.answer(&request, &[d, Decision::Answer]).await;
                }
            }
            Op::Clear => {
                let clear = p::Clear { id: id.clone(), key: Some(format!("c{n}")) };
                // Refused while a turn runs.
                let _ = call(&r, &id, |reply| Cmd::Clear { who: who(), p: clear, reply }).await;
            }
            Op::SetMode(mode) => self.mode(*mode).await,
            Op::Turn => {
                let seq = self.view.seq;
                self.view.wait("an event, or rest", |v| v.seq > seq || resting(v)).await;
            }
            Op::Settle => self.view.wait("rest", resting).await,
            Op::Crash => unreachable!("the caller's"),
        }
    }

    /// Answers and releases until everything has run, then looks at what is there.
    async fn finish(&mut self, told: &Told) {
        self.mode(Mode::All).await;
        loop {
            self.view.wait("rest", resting).await;
            if let Some(request) = self.view.requests.first().cloned() {
                self.answer(&request, &[Decision::Allow, Decision::Answer]).await;
                self.view.wait("its end", |v| !v.requests.contains(&request)).await;
            } else if self.view.state == StateName::Held {
                call(&self.registry, &self.id, |reply| Cmd::Release { who: who(), reply }).await.unwrap();
                self.view.wait("no longer held", |v| v.state != StateName::Held).await;
            } else if self.view.state == StateName::Idle {
                break;
            }
        }
        assert!(self.view.queue.is_empty(), "nothing waits at the end");
        check_log(&self.view.entries, told);
        let fresh = View::attach(&self.registry, &self.id).await;
        assert_eq!(fresh.entries, self.view.entries, "who was there all along and who comes anew see the same");
    }
}

fn check_log(entries: &[(u64, String)], told: &Told) {
    let (mut users, mut keys, mut open) = (Vec::new(), Vec::new(), false);
    for (n, raw) in entries {
        assert!(entry::KINDS.contains(&entry::kind_of(raw).as_ref()));
        match Entry::parse(raw).unwrap() {
            Entry::User(u) => {
                users.push(u.text);
                keys.extend(u.key);
                open = true;
            }
            Entry::Custom(c) if c.custom == "glrs:removed" => keys.extend(c.key),
            Entry::Turn(t) if t.status.closes() => {
                assert!(open, "a turn is closed twice, at {n}");
                open = false;
            }
            _ => {}
        }
    }
    assert!(!open, "every turn is closed");
    let mut ran = 0;
    for (t, key) in &told.sent {
        assert_eq!(keys.iter().filter(|k| *k == key).count(), 1, "{t:?} is in the log or taken back, once");
        let now = told.now(t);
        if now.is_empty() {
            assert!(!users.iter().any(|u| u == t), "{t:?} was taken back");
        } else {
            ran += 1;
            assert_eq!(users.iter().filter(|u| *u == now).count(), 1, "{now:?} ran once");
        }
    }
    assert_eq!(users.len(), ran, "nothing ran that nobody sent");
    let ctx = glrsd::fold::context::fold(entries.iter().map(|(n, raw)| (*n, raw.as_str())));
    let legal = glrsd::fold::legalize(&ctx.messages());
    for pair in legal.windows(2) {
        if pair[0].call_ids().next().is_some() {
            assert_eq!(pair[1].role, glrs_protocol::message::Role::Tool);
        }
    }
}

fn play(ops: &[Op]) {
    let dir = tempfile::tempdir().unwrap();
    let id: SessionId = "0a0b0c0d".parse().unwrap();
    let mut told = Told::default();
    let mut rt = runtime();
    let mut w = rt.block_on(World::new(dir.path(), &id, true));
    for (n, op) in ops.iter().enumerate() {
        match op {
            // Before anything was said there is no session to come back to.
            Op::Crash if told.sent.is_empty() => {}
            Op::Crash => {
                drop(w);
                drop(rt);
                rt = runtime();
                w = rt.block_on(World::new(dir.path(), &id, false));
            }
            op => rt.block_on(w.apply(op, n, &mut told)),
        }
    }
    if told.sent.is_empty() {
        return;
    }
    rt.block_on(w.finish(&told));
    let text = std::fs::read(dir.path().join("g/sessions/0a0b0c0d.json")).unwrap();
    serde_json::from_slice::<serde_json::Value>(&text).expect("the file is one JSON value at rest");
}

/// A message that the disk did not take is refused, its turn is as if it had not begun, and it runs once
/// when the disk takes it after all: whether it would have been the first, came to a session that rests,
/// or waited in the queue.
#[test]
fn a_turn_whose_message_is_not_durable_has_not_begun() {
    let dir = tempfile::tempdir().unwrap();
    let id: SessionId = "0a0b0c0d".parse().unwrap();
    let broken = Arc::new(AtomicBool::new(false));
    let fails = broken.clone();
    let faults: Faults = Arc::new(move |op, path| {
        let log =
            path.extension().is_some_and(|e| e == "json") && path.parent().is_some_and(|d| d.ends_with("sessions"));
        (log && op == DiskOp::Sync && fails.load(Ordering::SeqCst)).then_some(Fault::Errno(5))
    });
    runtime().block_on(async {
        let mut w = World::on(open_with(dir.path(), faults), dir.path(), &id, true).await;
        let mut told = Told::default();
        w.send(SendMode::Queue, 0, 0, &mut told).await;
        w.view.wait("rest", resting).await;
        for n in 1..4 {
            broken.store(true, Ordering::SeqCst);
            let t = text(0, n);
            let message = p::Send {
                id: id.clone(),
                text: t.clone(),
                attachments: vec![],
                mode: SendMode::Queue,
                key: Some(format!("k{n}")),
            };
            let m = message.clone();
            let refused = call(&w.registry, &id, |reply| Cmd::Send { who: who(), p: m, reply }).await.unwrap_err();
            assert!(matches!(refused.data, Some(glrs_protocol::ErrorKind::Disk { .. })), "{refused:?}");
            w.view
                .wait("the message, and that nothing runs", |v| {
                    v.state == StateName::Idle
                        && v.entries.last().is_some_and(|(_, raw)| raw.contains(&format!("tag {n}")))
                })
                .await;
            broken.store(false, Ordering::SeqCst);
            let answered = |v: &View| v.entries.iter().filter(|(_, raw)| entry::kind_of(raw) == "turn").count();
            w.view.wait("its turn", |v| answered(v) == n + 1 && v.state == StateName::Idle).await;
            let again = call(&w.registry, &id, |reply| Cmd::Send { who: who(), p: message, reply }).await.unwrap();
            assert_eq!(again.outcome, "sent");
            told.sent.push((t, format!("k{n}")));
        }
        w.finish(&told).await;
        let said = w.view.entries.iter().filter(|(_, raw)| entry::kind_of(raw) == "assistant").count();
        assert_eq!(said, 4, "each was answered once");
    });
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: std::env::var("GLRS_CASES").ok().and_then(|n| n.parse().ok()).unwrap_or(40),
        max_shrink_iters: 60,
        failure_persistence: None,
        ..ProptestConfig::default()
    })]
    #[test]
    fn every_accepted_message_is_there_exactly_once(ops in prop::collection::vec(op(), 1..24)) {
        play(&ops);
    }
}
