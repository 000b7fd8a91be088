//! The door through which a tool call reaches its session.
//!
//! Owns the implementation of [`ToolCtx`]: what a tool asks goes to the actor as a message, what
//! it keeps goes to the store. A tool never touches the session itself.

use super::artifacts;
use super::jobs::JobsDoor;
use super::looking::Placed;
use super::toolenv::ToolEnv;
use crate::config;
use crate::host::Env;
use crate::host::sandbox::Sandbox;
use crate::policy::Fence;
use crate::store::Store;
use crate::tools::task::{Child, Task};
use crate::tools::{Answer, ArtifactCall, Ask, Kept, Left, ToolCtx};
use crate::turn::Event;
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use glrs_protocol::SessionId;
use glrs_protocol::entry::Entry;
use glrs_protocol::types::Decision;
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use tokio::sync::{Semaphore, mpsc, oneshot};
use tokio_util::sync::CancellationToken;

/// States of files as this session last read or wrote them.
pub type Seen = Arc<Mutex<HashMap<PathBuf, (i128, u64)>>>;

/// What all calls of a turn share.
#[derive(Clone)]
pub struct TurnDoor {
    /// The session.
    pub id: SessionId,
    /// Its files.
    pub store: Store,
    /// Its directory.
    pub cwd: PathBuf,
    /// Environment for children.
    pub env: Arc<ToolEnv>,
    /// Esc.
    pub cancel: CancellationToken,
    /// Milliseconds a call may take.
    pub timeout_ms: u64,
    /// The user entry of the turn.
    pub user: u64,
    /// Files seen.
    pub seen: Seen,
    /// Rules that forbid, and what they count from.
    pub deny: Arc<[String]>,
    /// Where it happens.
    pub place: Arc<Placed>,
    /// What commands are kept to.
    pub sandbox: Option<config::Sandbox>,
    /// What runs in the background.
    pub jobs: JobsDoor,
    /// Places for sessions that do tasks, and how many there are.
    pub places: Arc<Semaphore>,
    /// See `places`.
    pub parallel: usize,
    /// The actor.
    pub events: mpsc::Sender<Event>,
}

/// One call's door.
pub struct CallDoor {
    /// What all calls of the turn share.
    pub turn: TurnDoor,
    /// The call.
    pub call: String,
    /// The tool.
    pub tool: String,
}

fn blocking(f: impl FnOnce() -> Result<String, String> + Send + 'static) -> BoxFuture<'static, Result<String, String>> {
    async move { tokio::task::spawn_blocking(f).await.unwrap_or_else(|e| Err(e.to_string())) }.boxed()
}

/// The whole result of a `tool` entry: from its blob when the entry has it clipped.
pub(super) fn recall(store: &Store, id: &SessionId, n: u64) -> Result<String, String> {
    let log = store.load(id).map_err(|e| e.to_string())?;
    let raw = log.entry(n).map_err(|e| e.to_string())?.ok_or_else(|| format!("There is no entry {n}."))?;
    let Ok(Entry::Tool(t)) = Entry::parse(raw.get()) else {
        return Err(format!("Entry {n} is no result of a tool."));
    };
    if let Some(hash) = t.blob
        && let Ok(Some(bytes)) = store.get_blob(id, &hash)
    {
        return Ok(String::from_utf8_lossy(&bytes).into_owned());
    }
    Ok(t.result.unwrap_or_default())
}

/// So much of an artifact comes at once: what is over would be clipped from the middle.
const ARTIFACT_PAGE: u64 = 24_000;

fn artifact_call(store: &Store, id: &SessionId, what: ArtifactCall) -> Result<String, String> {
    let words = |e: glrs_protocol::RpcError| e.message;
    match what {
        ArtifactCall::List => {
            let rows = artifacts::list(store, id).map_err(words)?.artifacts;
            let lines: Vec<String> = rows
                .iter()
                .map(|r| {
                    let note = if r.note.is_empty() { String::new() } else { format!(" · note: {}", r.note) };
                    format!("{} · {} · {} messages · {} bytes{note}", r.artifact, r.label, r.messages, r.bytes)
                })
                .collect();
            Ok(if lines.is_empty() { "There are none.".to_owned() } else { lines.join("\n") })
        }
        ArtifactCall::Read { id: name, offset, limit } => {
            let limit = limit.unwrap_or(ARTIFACT_PAGE).min(ARTIFACT_PAGE);
            let part = artifacts::read(store, id, &name, offset, Some(limit)).map_err(words)?;
            let more = part.next.map(|n| format!("\n[{} bytes in all; go on at offset {n}]", part.bytes));
            Ok(format!("{}{}", part.text, more.unwrap_or_default()))
        }
        ArtifactCall::Annotate { id: name, label, note } => {
            artifacts::annotate(store, id, &name, label.as_deref(), note.as_deref()).map_err(words)?;
            Ok("Done.".to_owned())
        }
        ArtifactCall::Delete { id: name } => {
            artifacts::delete(store, id, &name).map_err(words)?;
            Ok("Deleted.".to_owned())
        }
    }
}

impl ToolCtx for CallDoor {
    fn cwd(&self) -> &Path {
        &self.turn.cwd
    }

    fn env(&self) -> &Env {
        self.turn.env.get()
    }

    fn cancel(&self) -> &CancellationToken {
        &self.turn.cancel
    }

    fn timeout_ms(&self) -> u64 {
        self.turn.timeout_ms
    }

    fn fence(&self) -> Fence {
        if self.turn.deny.is_empty() {
            return Fence::default();
        }
        Fence::new(self.turn.deny.iter(), &self.tool, self.turn.place.get().around())
    }

    fn sandbox(&self) -> Option<Sandbox> {
        let sandbox = self.turn.sandbox?;
        Some(Sandbox { writable: vec![self.turn.cwd.clone(), self.turn.env.tmp()], network: sandbox.network })
    }

    fn leave(&self, left: Left) -> Option<Kept> {
        self.turn.jobs.take(left)
    }

    fn ask(&self, ask: Ask) -> BoxFuture<'_, Answer> {
        async move {
            let no = || Answer { decision: Decision::Deny, words: None, by: None };
            let (tx, rx) = oneshot::channel();
            let event = Event::Ask { call: self.call.clone(), tool: self.tool.clone(), ask, answer: tx };
            if self.turn.events.send(event).await.is_err() {
                return no();
            }
            tokio::select! {
                () = self.turn.cancel.cancelled() => no(),
                answer = rx => answer.unwrap_or_else(|_| no()),
            }
        }
        .boxed()
    }

    fn emit<'a>(&'a self, text: &'a str) -> BoxFuture<'a, ()> {
        async move {
            // The actor being gone ends the turn by other means; output has nowhere to go then.
            let _ = self.turn.events.send(Event::Output { call: self.call.clone(), text: text.to_owned() }).await;
        }
        .boxed()
    }

    fn keep<'a>(&'a self, bytes: &'a [u8]) -> BoxFuture<'a, Result<String, String>> {
        let (store, id, bytes) = (self.turn.store.clone(), self.turn.id.clone(), bytes.to_vec());
        async move {
            tokio::task::spawn_blocking(move || store.put_blob(&id, &bytes).map_err(|e| e.to_string()))
                .await
                .unwrap_or_else(|e| Err(e.to_string()))
        }
        .boxed()
    }

    fn recall(&self, n: u64) -> BoxFuture<'_, Result<String, String>> {
        let (store, id) = (self.turn.store.clone(), self.turn.id.clone());
        blocking(move || recall(&store, &id, n))
    }

    fn artifacts(&self, what: ArtifactCall) -> BoxFuture<'_, Result<String, String>> {
        let (store, id) = (self.turn.store.clone(), self.turn.id.clone());
        blocking(move || artifact_call(&store, &id, what))
    }

    fn delegate(&self, task: Task) -> BoxFuture<'_, Result<Child, String>> {
        async move {
            let gone = || "Interrupted.".to_owned();
            let place = match self.turn.places.clone().try_acquire_owned() {
                Ok(place) => place,
                Err(_) => {
                    let runs = if self.turn.parallel == 1 { "task runs" } else { "tasks run" };
                    self.emit(&format!("waits: {} {runs} already\n", self.turn.parallel)).await;
                    tokio::select! {
                        () = self.turn.cancel.cancelled() => return Err(gone()),
                        place = self.turn.places.clone().acquire_owned() => place.map_err(|_| gone())?,
                    }
                }
            };
            let cancel = self.turn.cancel.child_token();
            let guard = cancel.clone().drop_guard();
            let (reply, rx) = oneshot::channel();
            let event = Event::Delegate { call: self.call.clone(), task: Box::new(task), cancel, reply };
            self.turn.events.send(event).await.map_err(|_| gone())?;
            let started = rx.await.map_err(|_| gone())??;
            Ok(Child { id: started.id, standing: started.standing, hold: Box::new((guard, place)) })
        }
        .boxed()
    }

    fn user_entry(&self) -> u64 {
        self.turn.user
    }

    fn seen(&self, path: &Path) -> Option<(i128, u64)> {
        self.turn.seen.lock().unwrap_or_else(PoisonError::into_inner).get(path).copied()
    }

    fn note_seen(&self, path: PathBuf, state: (i128, u64)) {
        self.turn.seen.lock().unwrap_or_else(PoisonError::into_inner).insert(path, state);
    }
}
