//! The door through which a tool call reaches its session.
//!
//! Owns the implementation of [`ToolCtx`]: what a tool asks goes to the actor as a message, what
//! it keeps goes to the store. A tool never touches the session itself.

use crate::host::Env;
use crate::store::Store;
use crate::tools::{Answer, Ask, ToolCtx};
use crate::turn::Event;
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use glrs_protocol::SessionId;
use glrs_protocol::types::Decision;
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use tokio::sync::{mpsc, oneshot};
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
    pub env: Arc<Env>,
    /// Esc.
    pub cancel: CancellationToken,
    /// Milliseconds a call may take.
    pub timeout_ms: u64,
    /// The user entry of the turn.
    pub user: u64,
    /// Files seen.
    pub seen: Seen,
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

impl ToolCtx for CallDoor {
    fn cwd(&self) -> &Path {
        &self.turn.cwd
    }

    fn env(&self) -> &Env {
        &self.turn.env
    }

    fn cancel(&self) -> &CancellationToken {
        &self.turn.cancel
    }

    fn timeout_ms(&self) -> u64 {
        self.turn.timeout_ms
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
