//! A session for tests of tools: a directory, an answer to every question, and what was asked.

use super::task::{Child, Standing, Task};
use super::{Answer, Ask, Kept, Left, Outcome, Tool, ToolCtx, files};
use crate::host::Env;
use crate::host::sandbox::Sandbox;
use crate::policy::{Around, Effect, Fence};
use futures_util::future::BoxFuture;
use glrs_protocol::types::Decision;
use serde_json::value::RawValue;
use sha2::{Digest, Sha256};
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

/// See the module.
pub struct TestCtx {
    _dir: tempfile::TempDir,
    cwd: PathBuf,
    env: Env,
    pub cancel: CancellationToken,
    pub timeout_ms: AtomicU64,
    answer: Mutex<(Decision, Option<String>)>,
    asks: Mutex<Vec<Ask>>,
    on_ask: Mutex<Option<Box<dyn FnOnce() + Send>>>,
    emitted: watch::Sender<String>,
    blobs: Mutex<HashMap<String, Vec<u8>>>,
    keep_fails: AtomicBool,
    seen: Mutex<HashMap<PathBuf, (i128, u64)>>,
    left: Mutex<Option<Vec<Left>>>,
    sandbox: Mutex<Option<Sandbox>>,
    standing: Mutex<Option<watch::Sender<Standing>>>,
    task: Mutex<Option<Task>>,
    deny: Mutex<Vec<String>>,
}

/// A value as raw input.
pub fn raw(value: &serde_json::Value) -> Box<RawValue> {
    serde_json::value::to_raw_value(value).unwrap()
}

/// Runs a tool.
pub async fn run(tool: &dyn Tool, ctx: &TestCtx, input: serde_json::Value) -> Outcome {
    tool.run(ctx, &raw(&input)).await
}

impl TestCtx {
    pub fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let cwd = dir.path().canonicalize().unwrap();
        let mut env = Env::default();
        env.set("PATH", Env::of_process().get("PATH").unwrap());
        env.set("HOME", cwd.to_str().unwrap());
        Self {
            _dir: dir,
            cwd,
            env,
            cancel: CancellationToken::new(),
            timeout_ms: AtomicU64::new(60_000),
            answer: Mutex::new((Decision::Allow, None)),
            asks: Mutex::default(),
            on_ask: Mutex::default(),
            emitted: watch::Sender::default(),
            blobs: Mutex::default(),
            keep_fails: AtomicBool::new(false),
            seen: Mutex::default(),
            left: Mutex::new(Some(Vec::new())),
            sandbox: Mutex::default(),
            standing: Mutex::default(),
            task: Mutex::default(),
            deny: Mutex::default(),
        }
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.cwd.join(name)
    }

    pub fn write(&self, name: &str, text: &str) {
        let path = self.path(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }

    pub fn read(&self, name: &str) -> String {
        std::fs::read_to_string(self.path(name)).unwrap()
    }

    /// Marks a file as read in its present state.
    pub fn see(&self, name: &str) {
        let path = self.path(name);
        let state = files::state(&std::fs::metadata(&path).unwrap());
        self.note_seen(path, state);
    }

    pub fn answer(&self, decision: Decision, words: Option<&str>) {
        *self.answer.lock().unwrap() = (decision, words.map(str::to_owned));
    }

    /// Does something while a person is asked.
    pub fn on_ask(&self, f: impl FnOnce() + Send + 'static) {
        *self.on_ask.lock().unwrap() = Some(Box::new(f));
    }

    /// What calls left running.
    pub fn left(&self) -> Vec<Left> {
        std::mem::take(self.left.lock().unwrap().as_mut().unwrap())
    }

    /// From now on nothing may be left running.
    pub fn leave_nothing(&self) {
        *self.left.lock().unwrap() = None;
    }

    /// Deny rules from now on, for what a tool finds by itself. Nothing else is judged here.
    pub fn forbid(&self, rules: &[&str]) {
        *self.deny.lock().unwrap() = rules.iter().map(|r| (*r).to_owned()).collect();
    }

    pub fn confine(&self, sandbox: Sandbox) {
        *self.sandbox.lock().unwrap() = Some(sandbox);
    }

    /// Changes what is seen of the child that does the next task.
    pub fn child(&self, f: impl FnOnce(&mut Standing)) {
        self.standing.lock().unwrap().get_or_insert_default().send_modify(f);
    }

    /// The task that was given away last.
    pub fn task(&self) -> Option<Task> {
        self.task.lock().unwrap().clone()
    }

    pub fn fail_keep(&self) {
        self.keep_fails.store(true, Ordering::Relaxed);
    }

    pub fn kept(&self, hash: &str) -> Vec<u8> {
        self.blobs.lock().unwrap()[hash].clone()
    }

    /// Titles of what was asked.
    pub fn asked(&self) -> Vec<String> {
        let title = |ask: &Ask| match ask {
            Ask::Permission { title, .. } => title.clone(),
            Ask::Question { text, .. } => text.clone(),
        };
        self.asks.lock().unwrap().iter().map(title).collect()
    }

    pub fn effects(&self) -> Vec<Effect> {
        let effect = |ask: &Ask| match ask {
            Ask::Permission { effect, .. } => Some(effect.clone()),
            Ask::Question { .. } => None,
        };
        self.asks.lock().unwrap().iter().filter_map(effect).collect()
    }

    /// What was shown so far.
    pub fn emitted(&self) -> String {
        self.emitted.borrow().clone()
    }

    /// Waits until what was shown satisfies `f`.
    pub async fn shown(&self, f: impl FnMut(&String) -> bool) -> String {
        let mut rx = self.emitted.subscribe();
        let wait = rx.wait_for(f);
        tokio::time::timeout(std::time::Duration::from_secs(30), wait).await.expect("never shown").unwrap().clone()
    }
}

impl ToolCtx for TestCtx {
    fn recall(&self, n: u64) -> BoxFuture<'_, Result<String, String>> {
        Box::pin(async move { Err(format!("there is no entry {n}")) })
    }

    fn artifacts(&self, what: super::ArtifactCall) -> BoxFuture<'_, Result<String, String>> {
        Box::pin(async move { Err(format!("there is nothing: {what:?}")) })
    }

    fn cwd(&self) -> &Path {
        &self.cwd
    }
    fn env(&self) -> &Env {
        &self.env
    }
    fn cancel(&self) -> &CancellationToken {
        &self.cancel
    }
    fn timeout_ms(&self) -> u64 {
        self.timeout_ms.load(Ordering::Relaxed)
    }
    fn fence(&self) -> Fence {
        let around = Around { cwd: self.cwd.clone(), ..Around::default() };
        Fence::new(self.deny.lock().unwrap().iter(), "grep", &around)
    }
    fn sandbox(&self) -> Option<Sandbox> {
        self.sandbox.lock().unwrap().clone()
    }

    fn leave(&self, left: Left) -> Option<Kept> {
        let mut all = self.left.lock().unwrap();
        let all = all.as_mut()?;
        all.push(left);
        Some(Kept { job: all.len() as u64, output: None })
    }

    fn ask(&self, ask: Ask) -> BoxFuture<'_, Answer> {
        Box::pin(async move {
            self.asks.lock().unwrap().push(ask);
            if let Some(f) = self.on_ask.lock().unwrap().take() {
                f();
            }
            let (decision, words) = self.answer.lock().unwrap().clone();
            Answer { decision, words, by: Some("test".to_owned()) }
        })
    }
    fn emit<'a>(&'a self, text: &'a str) -> BoxFuture<'a, ()> {
        Box::pin(async move { self.emitted.send_modify(|all| all.push_str(text)) })
    }
    fn keep<'a>(&'a self, bytes: &'a [u8]) -> BoxFuture<'a, Result<String, String>> {
        Box::pin(async move {
            if self.keep_fails.load(Ordering::Relaxed) {
                return Err("disk full".to_owned());
            }
            let hash: String = Sha256::digest(bytes).iter().map(|b| format!("{b:02x}")).collect();
            self.blobs.lock().unwrap().insert(hash.clone(), bytes.to_vec());
            Ok(hash)
        })
    }
    fn delegate(&self, task: Task) -> BoxFuture<'_, Result<Child, String>> {
        Box::pin(async move {
            let standing = self.standing.lock().unwrap().as_ref().map(watch::Sender::subscribe);
            let standing = standing.ok_or_else(|| "there are no children here".to_owned())?;
            *self.task.lock().unwrap() = Some(task);
            Ok(Child { id: "cafe0001".parse().unwrap(), standing, hold: Box::new(()) })
        })
    }
    fn user_entry(&self) -> u64 {
        7
    }
    fn seen(&self, path: &Path) -> Option<(i128, u64)> {
        self.seen.lock().unwrap().get(path).copied()
    }
    fn note_seen(&self, path: PathBuf, state: (i128, u64)) {
        self.seen.lock().unwrap().insert(path, state);
    }
}
