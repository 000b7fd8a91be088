//! Tool calls of a turn as the actor records them, and the door they get.
//!
//! Owns: what streams of a call, the entry that ends it, and what a call may use: directory,
//! environment, time. Must not know what any tool does.

use super::actor::Actor;
use super::live::Record;
use super::looking::Placed;
use super::toolctx::TurnDoor;
use super::toolenv::ToolEnv;
use crate::host::Env;
use crate::turn::{Ended, Event, ToolCall};
use glrs_protocol::entry::{self, Entry};
use glrs_protocol::event as ev;
use glrs_protocol::message::Output;
use glrs_protocol::types::{Phase, PieceKind, ToolRun};
use std::sync::Arc;
use tokio::sync::{Semaphore, mpsc};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

impl Actor {
    /// What the calls of a turn (or a person's commands) share.
    pub(super) fn door(
        &self,
        cancel: &CancellationToken,
        user: u64,
        events: mpsc::Sender<Event>,
        place: Arc<Placed>,
    ) -> TurnDoor {
        let private = self.config.config.session_tmp;
        let parallel = self.config.config.tasks.parallel as usize;
        TurnDoor {
            id: self.id.clone(),
            store: self.shared.store.clone(),
            cwd: self.cwd.clone(),
            env: Arc::new(ToolEnv::new(self.command_env(), self.tmp.clone(), private)),
            cancel: cancel.clone(),
            timeout_ms: self.config.config.tool_timeout_ms,
            user,
            seen: self.seen.clone(),
            deny: self.forbidden().into(),
            place,
            sandbox: self.config.config.sandbox.on.then_some(self.config.config.sandbox),
            jobs: self.jobs.door(),
            places: Arc::new(Semaphore::new(parallel)),
            parallel,
            events,
        }
    }

    /// The environment of commands: the session's, without the keys that are for providers only. A
    /// command that the model chose could send them anywhere.
    fn command_env(&self) -> Arc<Env> {
        let config = &self.config.config;
        let mut keys = crate::model::key_names(config);
        keys.retain(|key| self.env.get(key).is_some() && !config.tools.env.contains(key));
        if keys.is_empty() { self.env.clone() } else { Arc::new(self.env.without(&keys)) }
    }

    /// What the agent's commands are kept to, for people; none unless it is switched on.
    pub(super) fn sandbox_words(&self) -> Option<String> {
        let sandbox = self.config.config.sandbox;
        let net = if sandbox.network { "" } else { ", no TCP" };
        let cwd = self.cwd.display();
        sandbox.on.then(|| format!("writes only below {cwd} and its temporary directory{net}"))
    }

    /// Adds to a piece and shows it.
    pub(super) fn stream(&mut self, kind: PieceKind, call: Option<&str>, text: &str) {
        if text.is_empty() {
            return;
        }
        let next = &mut self.next_piece;
        let Some(r) = &mut self.running else { return };
        let known = r.tools.iter().find(|t| Some(t.call_id.as_str()) == call).map(|t| t.of.clone());
        let since = r.calls.iter().find(|c| Some(c.call.id.as_str()) == call).and_then(|c| c.started);
        let piece = r.piece(kind, call, next);
        if let Some(of) = known {
            piece.of = of;
        }
        // The time of a call counts from its start, not from its first output.
        piece.started = since.unwrap_or(piece.started);
        let delta = piece.push(text);
        self.publish(&ev::Event::Delta(delta));
        self.flush_soon();
    }

    pub(super) fn tool_started(&mut self, call: &ToolCall, detail: String) {
        let at = self.now();
        self.next_piece += 1;
        let of = format!("p{}", self.next_piece);
        self.task_line(&format!("{} {detail}", call.name));
        let Some(r) = &mut self.running else { return };
        if let Some(c) = r.calls.iter_mut().find(|c| c.call.id == call.id) {
            c.started = Some(Instant::now());
            c.detail.clone_from(&detail);
        }
        r.tools.push(ToolRun {
            call_id: call.id.clone(),
            name: call.name.clone(),
            detail,
            of,
            started_at: at,
            by: None,
        });
        if r.phase != Phase::Asking {
            r.phase = Phase::Tool;
        }
        self.publish_state();
    }

    pub(super) fn tool_ended(&mut self, e: Ended) {
        let at = self.now();
        self.trace_tool(&e, None);
        let child = self.child_over(&e.call.id);
        let Some(r) = &mut self.running else { return };
        let of = r.tools.iter().find(|t| t.call_id == e.call.id).map(|t| t.of.clone());
        r.tools.retain(|t| t.call_id != e.call.id);
        r.take_piece(PieceKind::Tool, Some(&e.call.id));
        if let Some(c) = r.calls.iter_mut().find(|c| c.call.id == e.call.id) {
            c.output = Some(if e.ok { Output::Text(e.result.clone()) } else { Output::Error(e.result.clone()) });
        }
        let plan = e.entries.iter().any(|x| matches!(x, Entry::Custom(c) if c.custom == "glrs:plan"));
        let mut entries = e.entries;
        entries.extend(child);
        entries.push(Entry::Tool(entry::Tool {
            name: e.call.name,
            detail: e.detail,
            elapsed_ms: e.elapsed_ms,
            ok: e.ok,
            input: Some(e.call.input),
            result: Some(e.result),
            call_id: Some(e.call.id),
            blob: e.blob,
            diff: e.diff,
            at,
            ..entry::Tool::default()
        }));
        let mut recorded = self.record(&entries);
        let last = recorded.pop();
        self.publish_entries(recorded);
        if let Some((n, raw)) = last {
            if let Some(of) = &of {
                self.note(&Record::Whole { of: of.clone() });
            }
            self.publish_entry(n, raw, of);
        }
        if plan {
            let items = self.summary.plan.clone();
            self.publish(&ev::Event::Plan(ev::PlanEvent { items }));
        }
        self.publish_state();
    }
}
