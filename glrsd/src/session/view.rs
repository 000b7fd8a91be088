//! What clients see of a session: info, state, snapshot, events, attach and detach.
//!
//! Each value is computed here and nowhere else; every surface shows these.

use super::actor::{Actor, Attached};
use super::feed::Wake;
use super::{AttachPoint, Reply, Who};
use bytes::Bytes;
use glrs_protocol::event::{ClientsEvent, Event, EventFrame, InfoEvent, QueueEvent, StateEvent, UsageEvent};
use glrs_protocol::params::{Attach, Snapshot};
use glrs_protocol::types::{InFlight, Request, SessionInfo, State, StateName, UsageInfo};
use std::sync::{Arc, PoisonError};

impl Actor {
    /// The state: computed here, shown everywhere.
    pub(super) fn state(&self) -> State {
        State { shells: self.shells.rows(), jobs: self.jobs.rows(), ..self.turn_state() }
    }

    fn turn_state(&self) -> State {
        match &self.running {
            Some(r) => State {
                name: StateName::Running,
                step: Some(r.step.max(1)),
                phase: Some(r.phase),
                since: Some(r.since.clone()),
                tools: r.tools.clone(),
                retry: r.retry.clone(),
                ..State::of(StateName::Running)
            },
            None if self.held => State::of(StateName::Held),
            None => State::of(StateName::Idle),
        }
    }

    /// Tokens in the context, for the file's trailer.
    pub(super) fn context_tokens(&self) -> Option<u64> {
        (!self.summary.usage.estimated).then_some(self.summary.usage.context_tokens)
    }

    pub(super) fn usage(&self) -> UsageInfo {
        let mut u = self.summary.usage.clone();
        u.window = self.window;
        u.line = self.numbers().line;
        if u.estimated || u.calls == 0 {
            u.estimated = true;
            u.context_tokens = self.ctx.as_ref().map_or(u.context_tokens, crate::fold::Context::estimate);
        }
        u
    }

    pub(super) fn info(&self) -> SessionInfo {
        let usage = self.usage();
        SessionInfo {
            id: self.id.clone(),
            title: self.summary.title(),
            renamed: self.summary.renamed(),
            cwd: self.cwd.display().to_string(),
            created_at: self.log.header().created_at.clone(),
            updated_at: match self.log.updated_at() {
                "" => self.log.header().created_at.clone(),
                at => at.to_owned(),
            },
            entries: self.log.len(),
            model: self.model.clone(),
            variant: self.variant.clone(),
            mode: self.mode,
            state: self.state().name,
            needs_you: self.shown_requests().next().is_some(),
            clients: self.clients.len() as u64,
            queued: self.queue.rows.len() as u64,
            context_tokens: usage.context_tokens,
            window: self.window,
            saved: self.log.saved() || !self.log.is_empty(),
            parent: self.parent(),
            child: self.is_child(),
            why: None,
            sandbox: self.sandbox_words(),
            legacy: false,
        }
    }

    /// What streams: of the turn, and of commands of people.
    fn in_flight(&self) -> Vec<InFlight> {
        let turn = self.running.as_ref().map(|r| r.in_flight()).unwrap_or_default();
        let shells = self.shells.iter().map(|s| s.piece.in_flight()).filter(|p| !p.text.is_empty());
        turn.into_iter().chain(shells).collect()
    }

    /// Its own requests that wait.
    pub(super) fn open_requests(&self) -> impl Iterator<Item = &Request> {
        self.requests.iter().filter(|o| o.answered.is_none()).map(|o| &o.request)
    }

    /// Requests that wait, those of its children included.
    pub(super) fn shown_requests(&self) -> impl Iterator<Item = &Request> {
        self.open_requests().chain(self.children.requests())
    }

    /// Publishes an event to everyone attached.
    pub(super) fn publish(&self, event: &Event) {
        if let Some(held) = &mut *self.held_back.lock().unwrap_or_else(PoisonError::into_inner) {
            return held.push(event.clone());
        }
        let encode = |seq| match EventFrame::encode(self.id.as_str(), &self.epoch, Some(seq), event) {
            Ok(line) => Bytes::from(line),
            Err(e) => {
                // A frame must take its number's place whatever happens, or every client would see a gap.
                tracing::error!(session = %self.id, kind = event.kind(), error = %e, "an event did not serialise");
                Bytes::from(format!(
                    "{{\"jsonrpc\":\"2.0\",\"method\":\"session/event\",\"params\":{{\"session\":\"{}\",\"epoch\":\"{}\",\"seq\":{seq},\"kind\":\"unencodable\"}}}}\n",
                    self.id, self.epoch
                ))
            }
        };
        match event {
            Event::Delta(_) => self.feed.publish_streamed(encode),
            _ => self.feed.publish(encode),
        }
    }

    /// Publishes the state if it changed, and what others see of the session.
    pub(super) fn publish_state(&mut self) {
        let state = self.state();
        if self.shown.as_ref() != Some(&state) {
            self.shown = Some(state.clone());
            self.publish(&Event::State(StateEvent { state }));
        }
        self.tell_roster();
    }

    /// Publishes the info if what people see of the session changed.
    pub(super) fn publish_info_if_new(&mut self) {
        let i = self.info();
        let face = (i.title, i.renamed, i.model, i.variant, i.mode, i.cwd, i.saved, i.sandbox);
        if self.shown_face.as_ref() != Some(&face) {
            self.shown_face = Some(face);
            self.publish_info();
        }
    }

    /// Updates the row that lists and dashboards read.
    pub(super) fn tell_roster(&self) {
        let info = self.info();
        let mut cell = self.cell.lock().unwrap_or_else(PoisonError::into_inner);
        if cell.as_ref() != Some(&info) {
            *cell = Some(info.clone());
            drop(cell);
            (self.shared.on_change)(&info);
        }
    }

    pub(super) fn publish_queue(&mut self) {
        self.publish(&Event::Queue(QueueEvent { rows: self.queue.view() }));
        self.tell_roster();
    }

    pub(super) fn publish_usage(&mut self) {
        self.task_spent();
        let usage = self.usage();
        if self.shown_usage.as_ref() != Some(&usage) {
            self.shown_usage = Some(usage.clone());
            self.publish(&Event::Usage(UsageEvent { usage }));
        }
    }

    pub(super) fn publish_info(&mut self) {
        self.publish(&Event::Info(InfoEvent { info: self.info() }));
        self.tell_roster();
    }

    /// Snapshot and subscription in one step: what the snapshot has ends at `seq`, the cursor
    /// begins behind it.
    pub(super) fn attach(&mut self, who: Who, p: Attach, wake: Arc<Wake>, reply: Reply<Box<AttachPoint>>) {
        if let Some(env) = p.env
            && !p.read_only
        {
            self.env_came(env.into());
        }
        let joined = self.clients.insert(who.client, Attached { by: who.by.clone(), read_only: p.read_only }).is_none();
        if joined {
            // Told to the others before the subscription: the snapshot has it already.
            self.clients_changed(Some(who.by), None);
        }
        let seq = self.feed.seq();
        let resumed = p.after.as_ref().filter(|a| a.epoch == self.epoch && self.feed.has_after(a.seq)).map(|a| a.seq);
        let cursor = self.feed.subscribe(resumed.unwrap_or(seq), wake);
        let snapshot = Snapshot {
            epoch: self.epoch.clone(),
            seq: resumed.unwrap_or(seq),
            resumed: resumed.is_some(),
            info: self.info(),
            state: self.state(),
            compaction: self.compaction(),
            disk: self.disk.clone(),
            entries: Vec::new(),
            in_flight: self.in_flight(),
            queue: self.queue.view(),
            requests: self.shown_requests().cloned().collect(),
            clients: self.clients.values().map(|c| c.by.clone()).collect(),
            usage: self.usage(),
            plan: self.summary.plan.clone(),
            more: false,
        };
        let point = AttachPoint { snapshot, reader: self.log.reader(), total: self.log.len(), cursor };
        reply(Ok(Box::new(point)));
    }

    pub(super) fn detach(&mut self, who: &Who) {
        if let Some(c) = self.clients.remove(&who.client) {
            self.clients_changed(None, Some(c.by));
        }
    }

    fn clients_changed(&mut self, joined: Option<String>, left: Option<String>) {
        let count = self.clients.len() as u64;
        self.publish(&Event::Clients(ClientsEvent { joined, left, count }));
        self.tell_roster();
    }
}
