//! How a turn begins: its first entries, its task, and what it finds around it.
//!
//! Owns turns.md "Starting" as far as it comes before the first step. The task looks at what the turn
//! works in before the actor goes on, so that the actor waits for no disk but the session's own.

use super::actor::Actor;
use super::events::Events;
use super::live::Record;
use super::looking::{Look, Placed};
use super::queue::Waiting;
use super::running::{CallState, Running};
use super::settle::End;
use super::toolctx::CallDoor;
use super::turning::turn_entry;
use crate::model::{Failure, FailureKind};
use crate::turn::surroundings::{Means, Surroundings};
use crate::turn::{self, Event, ToolCall, Turn};
use futures_util::FutureExt;
use glrs_protocol::entry::TurnStatus;
use glrs_protocol::message::Message;
use glrs_protocol::types::Phase;
use serde_json::value::RawValue;
use std::sync::Arc;
use tokio::sync::{mpsc, oneshot};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

impl Actor {
    /// Records what starts a turn. A session's first entries say how it works; a turn that some
    /// file left open is closed first.
    pub(super) fn record_start(&mut self, rows: &[Waiting]) -> Vec<(u64, Box<RawValue>)> {
        let at = self.now();
        let mut entries = self.first_entries(&at);
        if self.summary.turn_open() {
            // A file that ends inside a turn: its message stands, the turn is over.
            entries.extend(self.children_lost(&at));
            entries.push(turn_entry(&[], TurnStatus::Interrupted, &at));
        }
        entries.extend(self.salvage_notices(&at));
        entries.extend(rows.iter().map(|w| self.user_entry(w, false)));
        self.record(&entries)
    }

    /// Starts the turn of messages that are in the log. What it works in is looked at first, by its
    /// task: see [`Self::found`].
    pub(super) fn start_turn(&mut self, user: u64, rows: Vec<Waiting>, look: Look) {
        self.begin(user, rows, Vec::new(), Vec::new(), look);
    }

    /// Makes the running turn and its task. It begins with `rows`, or, taken up again after a restart,
    /// with messages and calls that were left over.
    pub(super) fn begin(
        &mut self,
        user: u64,
        rows: Vec<Waiting>,
        users: Vec<Arc<Message>>,
        resume: Vec<CallState>,
        look: Look,
    ) {
        let (tx, events) = Events::new();
        let cancel = CancellationToken::new();
        self.note(&Record::Turn { user });
        self.events = Some(events);
        // The task's panic is contained by the runtime; the closed channel tells the actor.
        let task = tokio::spawn(prepared(look, tx, cancel.clone()));
        self.running = Some(Running {
            user,
            task,
            cancel,
            model: None,
            chosen: self.chosen(),
            started: Instant::now(),
            since: self.now(),
            step: 0,
            phase: Phase::Waiting,
            retry: None,
            tools: Vec::new(),
            rows,
            place: Placed::new(self.place()),
            users,
            assistant: None,
            calls: resume,
            pieces: Vec::new(),
            spent: Vec::new(),
            said: Vec::new(),
            stopping: None,
        });
    }

    /// The turn's task begins anew, with another look.
    fn look_again(&mut self) {
        let place = self.place();
        let Some(r) = &self.running else { return };
        r.place.set(place);
        let look = self.look(&r.rows);
        let (tx, events) = Events::new();
        let task = tokio::spawn(prepared(look, tx, r.cancel.clone()));
        self.events = Some(events);
        if let Some(r) = &mut self.running {
            r.task = task;
        }
    }

    /// What the turn works in was looked at: it goes on as configured by now.
    pub(super) async fn found(&mut self, found: Option<Box<Surroundings>>, means: oneshot::Sender<Means>) {
        let Some(r) = &self.running else { return };
        if r.stopping.is_some() {
            return self.settle(End::Interrupted).await;
        }
        // Someone chose another directory meanwhile, or what waits for an answer since before a restart
        // goes on waiting, for its directory as well.
        let moved = r.place.get().cwd != self.cwd;
        if moved || found.is_none() && r.rows.is_empty() {
            return self.look_again();
        }
        let Some(found) = found else { return self.settle(End::CwdSilent).await };
        let Surroundings { here, config, instructions, artifacts, taken } = *found;
        self.configured(config);
        self.artifacts = artifacts;
        let at = self.now();
        let notices = self.config_notices(&at);
        let recorded = self.record(&notices);
        self.publish_entries(recorded);
        let folded = self.fold_context().await;
        let Some(r) = &mut self.running else { return };
        let (rows, user, cancel) = (std::mem::take(&mut r.rows), r.user, r.cancel.clone());
        let place = r.place.clone();
        if !rows.is_empty() {
            let users = self.user_messages(&rows, taken, instructions);
            let (model, chosen) = (self.resolve_model(), self.chosen());
            if let Some(r) = &mut self.running {
                (r.users, r.chosen) = (users, chosen);
                r.model = model.as_ref().ok().cloned();
            }
            if rows.iter().any(|w| !w.row.attachments.is_empty()) {
                // The files may be gone when the daemon comes back.
                self.note_step();
            }
            if let Err(why) = folded {
                return self.settle(End::Failed(Box::new(Failure::of(FailureKind::Protocol, why)))).await;
            }
            if !here {
                return self.settle(End::CwdGone).await;
            }
            if let Err(failure) = model {
                return self.settle(End::Failed(Box::new(failure))).await;
            }
        }
        let Some(events) = self.events.as_ref().and_then(Events::sender) else { return };
        let door = self.door(&cancel, user, events, place);
        let left_over = self.running.as_ref().is_some_and(|r| r.calls.iter().any(CallState::asks_a_server));
        let preparing = self.prepare_tools(left_over);
        let ctx: turn::CtxOf = Arc::new(move |call: &ToolCall| {
            Box::new(CallDoor { turn: door.clone(), call: call.id.clone(), tool: call.name.clone() })
        });
        let tools = async move { preparing.settle(&cancel).await }.boxed();
        // If nobody takes it the task is gone, and says so by its closed channel.
        let _ = means.send(Means { tools, ctx });
    }
}

/// A turn from its look to its end. What waits for a disk or a server waits here and not in the actor,
/// where people attach and press esc.
async fn prepared(look: Look, events: mpsc::Sender<Event>, cancel: CancellationToken) {
    let found = tokio::select! {
        biased;
        () = cancel.cancelled() => return drop(events.send(Event::Cancelled).await),
        found = look => found.map(Box::new),
    };
    let (means, taken_up) = oneshot::channel();
    if events.send(Event::Found { found, means }).await.is_err() {
        return;
    }
    let Ok(Means { tools, ctx }) = taken_up.await else { return };
    let tools = tools.await;
    Turn { tools, events, cancel, ctx }.run().await;
}
