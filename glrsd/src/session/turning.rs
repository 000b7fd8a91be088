//! A turn as the actor records it: steps, pieces, tools. How it begins is in [`super::starting`].
//!
//! Owns the order in which a turn's entries are written: what streams becomes an entry when it is
//! whole, a step becomes a `turn` entry when all its calls have ended. How a turn ends is in
//! [`super::settle`].

use super::actor::Actor;
use super::live::Record;
use super::looking::taken_along;
use super::queue::Waiting;
use super::running::CallState;
use super::settle::End;
use crate::config::Delivery;
use crate::fold::legalize;
use crate::fold::summary::{ModeChoice, ModelChoice};
use crate::model::{Call, Chunk, Failure, Reply, Stop};
use crate::turn::{self, Event, Step, StepCall, prompt, vitals::Vitals};
use glrs_protocol::entry::{self, Entry};
use glrs_protocol::message::{Message, Part, Role};
use glrs_protocol::types::{Phase, PieceKind};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::oneshot;
use tokio::time::Instant;

/// Most output tokens a request asks for.
pub(super) const OUTPUT_MAX: u64 = 32_000;

impl Actor {
    /// The `user` entry of a waiting message.
    pub(super) fn user_entry(&self, w: &Waiting, steer: bool) -> Entry {
        Entry::User(entry::User {
            text: w.row.text.clone(),
            steer,
            attachments: w.row.attachments.clone(),
            by: Some(w.row.by.clone()),
            at: self.now(),
            key: Some(w.key.clone()),
            key_hash: Some(w.hash.clone()),
        })
    }

    /// The model that is chosen, and its effort.
    pub(super) fn chosen(&self) -> ModelChoice {
        ModelChoice { model: self.model.clone(), variant: self.variant.clone() }
    }

    /// What a session's log begins with: how it works. None where it has begun.
    pub(super) fn first_entries(&self, at: &str) -> Vec<Entry> {
        if !self.log.is_empty() {
            return Vec::new();
        }
        let model = self.chosen();
        let mode = ModeChoice { mode: self.mode, by: None };
        let mut entries = self.task_entries(at);
        entries.extend(
            [Entry::custom("glrs:model", &model, at), Entry::custom("glrs:mode", &mode, at)].into_iter().flatten(),
        );
        entries
    }

    pub(super) async fn turn_event(&mut self, event: Event) {
        match event {
            Event::Found { found, means } => self.found(found, means).await,
            Event::Next(reply) => self.next_step(reply).await,
            Event::Retry(retry) => {
                if let Some(retry) = &retry {
                    self.trace_retry(retry);
                }
                if let Some(r) = &mut self.running {
                    r.retry = retry;
                    r.phase = Phase::Waiting;
                }
                self.publish_state();
            }
            Event::Chunk(chunk) => self.chunk(chunk),
            Event::Reply { reply, elapsed_ms, ack } => {
                self.replied(*reply, elapsed_ms).await;
                let _ = ack.send(());
            }
            Event::Started { call, detail } => self.tool_started(&call, detail),
            Event::Output { call, text } => self.stream(PieceKind::Tool, Some(&call), &text),
            Event::Ask { call, tool, ask, answer } => self.asked(call, tool, ask, answer).await,
            Event::Delegate { call, task, cancel, reply } => {
                let made = self.delegate(call, *task, cancel).await;
                let _ = reply.send(made);
            }
            Event::Ended(ended) => self.tool_ended(*ended),
            Event::StepDone => self.step_done(),
            Event::Failed(failure) => self.settle(End::Failed(failure)).await,
            Event::Cancelled => self.settle(End::Interrupted).await,
        }
    }

    /// The task is gone without having said how it ended.
    pub(super) async fn turn_vanished(&mut self) {
        self.events = None;
        if self.running.is_some() {
            self.settle(End::Internal).await;
        }
    }

    async fn next_step(&mut self, reply: oneshot::Sender<Step>) {
        let Some(r) = &self.running else {
            let _ = reply.send(Step::Stop);
            return;
        };
        let (step, fresh_resume) = (r.step, r.assistant.is_some() && !r.calls.is_empty());
        if r.stopping.is_some() {
            let _ = reply.send(Step::Stop);
            return self.settle(End::Interrupted).await;
        }
        if fresh_resume {
            let calls = r.calls.iter().filter(|c| c.output.is_none()).map(|c| c.call.clone()).collect();
            let _ = reply.send(Step::Resume(calls));
            return;
        }
        if !self.disk.ok {
            let _ = reply.send(Step::Stop);
            return self.settle(End::Disk).await;
        }
        if self.stopping.is_some() && step > 0 {
            let _ = reply.send(Step::Stop);
            let why = self.stopping.clone();
            if let Some(r) = &mut self.running {
                r.stopping =
                    Some(super::running::Stopping { replies: Vec::new(), deadline: Instant::now(), hold: true, why });
            }
            return self.settle(End::Interrupted).await;
        }
        // Past the line another call would only make it worse; while the brief is being written
        // beside the turn, the turn stops here and goes on when someone says so.
        if step > 0 && self.writing.is_some() {
            let _ = reply.send(Step::Stop);
            return self.settle(End::Context).await;
        }
        let steers = self.take_steers().await;
        if !steers.is_empty() {
            let rides = self.ctx.as_mut().map(|c| c.take_rides(steers.len())).unwrap_or_default();
            let messages = {
                let taken = taken_along(self.cwd.clone(), &steers).await;
                self.row_messages(&steers, taken, None, rides)
            };
            if let Some(ctx) = &mut self.ctx {
                // Their entries are pending in the fold; this turn sends them.
                ctx.take_pending();
            }
            let joined = if self.config.config.steering_mode == Delivery::All && messages.len() > 1 {
                let text = messages.iter().map(|m| m.joined_text()).collect::<Vec<_>>().join("\n\n");
                let files = messages.iter().flat_map(|m| &m.parts).filter(|p| matches!(p, Part::File { .. }));
                let parts = std::iter::once(Part::Text(text)).chain(files.cloned()).collect();
                vec![Arc::new(Message { role: Role::User, parts })]
            } else {
                messages
            };
            if let Some(r) = &mut self.running {
                r.users.extend(joined);
            }
            if steers.iter().any(|w| !w.row.attachments.is_empty()) {
                self.note_step();
            }
        }
        // After a restart the model is looked up once its key is there: whoever attached brought it.
        if self.running.as_ref().is_some_and(|r| r.model.is_none()) {
            match self.resolve_model() {
                Ok(model) => {
                    let chosen = self.chosen();
                    if let Some(r) = &mut self.running {
                        (r.model, r.chosen) = (Some(model), chosen);
                    }
                }
                Err(failure) => {
                    let _ = reply.send(Step::Stop);
                    return self.settle(End::Failed(Box::new(failure))).await;
                }
            }
        }
        self.tell_of_servers();
        let call = self.step_call();
        match call {
            Some(call) => {
                self.publish_state();
                let _ = reply.send(Step::Call(Box::new(call)));
            }
            None => {
                let _ = reply.send(Step::Stop);
                self.settle(End::Internal).await;
            }
        }
    }

    fn step_call(&mut self) -> Option<StepCall> {
        let max_steps = self.max_steps();
        let window = self.window;
        let usage = self.summary.usage.clone();
        let vitals = self.config.config.vitals;
        let deadline = self.deadline_minutes();
        let tools: Vec<_> = self.toolbox.tools().iter().map(|t| t.spec()).filter(|s| self.listed(&s.name)).collect();
        let ctx = self.ctx.as_ref()?;
        let r = self.running.as_mut()?;
        r.step += 1;
        r.phase = Phase::Waiting;
        r.retry = None;
        let mut messages: Vec<Arc<Message>> = ctx.stored().iter().map(|s| s.message.clone()).collect();
        messages.extend(r.users.iter().cloned());
        let mut messages = legalize(&messages);
        if vitals && r.step > 1 {
            let turn = jiff::SignedDuration::try_from(r.started.elapsed()).unwrap_or_default();
            let note = Vitals {
                now: &jiff::Zoned::now(),
                turn,
                deadline: deadline.map(|m| jiff::SignedDuration::from_mins(i64::try_from(m).unwrap_or(i64::MAX / 60))),
                context: (!usage.estimated).then_some((usage.context_tokens, window)),
                spent: &r.spent,
            }
            .note();
            messages.push(Arc::new(Message::text(Role::User, note)));
        }
        let model = r.model.clone()?;
        let max_output = model.row().output.map(|most| most.clamp(1, OUTPUT_MAX));
        let call = Call {
            system: prompt::system().into(),
            messages,
            tools: tools.into(),
            variant: r.chosen.variant.clone(),
            max_output,
            force_text: r.step >= max_steps,
            cache_key: self.id.to_string(),
            idle: Duration::from_millis(self.config.config.idle_timeout_ms),
            env: self.env.clone(),
        };
        Some(StepCall { model, call })
    }

    fn chunk(&mut self, chunk: Chunk) {
        match chunk {
            Chunk::Open => {}
            Chunk::Text(t) => {
                self.set_phase(Phase::Writing);
                self.stream(PieceKind::Assistant, None, &t);
            }
            Chunk::Reasoning(t) => {
                self.set_phase(Phase::Thinking);
                self.stream(PieceKind::Reasoning, None, &t);
            }
            Chunk::Tool(_) => self.set_phase(Phase::Writing),
        }
    }

    fn set_phase(&mut self, phase: Phase) {
        if let Some(r) = &mut self.running
            && r.phase != phase
        {
            r.phase = phase;
            self.publish_state();
        }
    }

    async fn replied(&mut self, reply: Reply, elapsed_ms: u64) {
        let at = self.now();
        self.trace_reply(&reply, elapsed_ms);
        let message = turn::recorded(&reply.message);
        let calls = turn::calls_of(&reply);
        let Some(r) = &mut self.running else { return };
        let ModelChoice { model, variant } = r.chosen.clone();
        r.spent.clone_from(&reply.spent);
        let mut entries: Vec<(Entry, Option<String>)> = Vec::new();
        let thought: String = message
            .parts
            .iter()
            .filter_map(|p| match p {
                Part::Reasoning { text, .. } => Some(text.as_str()),
                _ => None,
            })
            .collect();
        // What was short enough to be whole before the journal had anything of it needs no mark there.
        let journalled: Vec<String> = r.pieces.iter().filter(|p| p.journalled()).map(|p| p.of.clone()).collect();
        let piece = r.take_piece(PieceKind::Reasoning, None);
        if !thought.trim().is_empty() {
            let elapsed = piece.as_ref().map_or(0, |p| p.started.elapsed().as_millis() as u64);
            let e = entry::Reasoning { text: thought, elapsed_ms: elapsed, variant, at: at.clone() };
            entries.push((Entry::Reasoning(e), piece.map(|p| p.of)));
        }
        let text = message.joined_text();
        let piece = r.take_piece(PieceKind::Assistant, None);
        if !text.trim().is_empty() {
            let partial = reply.stop == Stop::Length && calls.is_empty();
            entries.push((Entry::Assistant(entry::Assistant { text, partial, at: at.clone() }), piece.map(|p| p.of)));
        }
        if let Some(t) = reply.tokens {
            let usage = entry::Usage {
                tokens: t.input + t.output,
                cached: t.cached,
                input: Some(t.input),
                output: Some(t.output),
                cost: t.cost,
                model: Some(model),
                duration_ms: Some(elapsed_ms),
                at: at.clone(),
            };
            entries.push((Entry::Usage(usage), None));
        }
        self.task_text(&message.joined_text());
        self.course.reported();
        if calls.is_empty() {
            if let Some(r) = &mut self.running {
                r.said = entries;
                r.calls.clear();
                r.assistant = (!message.parts.is_empty()).then_some(message);
            }
            return self.finished(reply.stop).await;
        }
        let plain: Vec<Entry> = entries.iter().map(|(e, _)| e.clone()).collect();
        let ofs: Vec<Option<String>> = entries.into_iter().map(|(_, of)| of).collect();
        let recorded = self.record(&plain);
        for ((n, raw), of) in recorded.into_iter().zip(ofs) {
            if let Some(of) = of.as_ref().filter(|of| journalled.contains(*of)) {
                self.note(&Record::Whole { of: of.clone() });
            }
            self.publish_entry(n, raw, of);
        }
        self.publish_usage();
        // After the last step the turn's end looks at the line, with the whole turn in the history.
        if self.compaction_due().await {
            self.start_brief(false, None, Vec::new()).await;
        }
        if let Some(r) = &mut self.running {
            r.calls = calls
                .into_iter()
                .map(|call| CallState { call, detail: String::new(), started: None, output: None })
                .collect();
            r.assistant = (!message.parts.is_empty()).then_some(message);
            r.phase = Phase::Tool;
        }
        self.note_step();
        self.publish_state();
    }

    /// The model asked for no tool: the turn is over.
    async fn finished(&mut self, stop: Stop) {
        let limit = self.running.as_ref().is_some_and(|r| r.step >= self.max_steps());
        let silent = self.running.as_ref().is_some_and(|r| r.assistant.is_none());
        let end = match stop {
            Stop::Refused(word) => End::Refused(word),
            _ if limit => End::Limit,
            Stop::Length => End::Length,
            _ if silent => End::Silent,
            _ => End::Done,
        };
        self.settle(end).await;
    }

    /// Puts the running step's messages into the live journal, so that a call that had an effect
    /// is not forgotten when the daemon dies.
    pub(super) fn note_step(&mut self) {
        let Some(r) = &self.running else { return };
        let raw = |m: &Message| m.to_raw().ok().map(|r| r.get().to_owned());
        let mut msgs: Vec<String> = r.users.iter().filter_map(|m| raw(m)).collect();
        msgs.extend(r.assistant.as_ref().and_then(raw));
        let step = r.step;
        self.note(&Record::Step { step, msgs });
    }

    /// All calls of the step have ended: its messages become a `turn` entry.
    fn step_done(&mut self) {
        let at = self.now();
        let Some(r) = &mut self.running else { return };
        let mut messages: Vec<Message> = r.users.drain(..).map(|m| (*m).clone()).collect();
        messages.extend(r.step_messages(crate::fold::legal::NO_RESULT));
        r.tools.clear();
        r.pieces.clear();
        let entry = turn_entry(&messages, entry::TurnStatus::Step, &at);
        let recorded = self.record(&[entry]);
        self.note(&Record::Step { step: 0, msgs: Vec::new() });
        self.publish_entries(recorded);
    }
}

/// A `turn` entry of these messages.
pub(super) fn turn_entry(messages: &[Message], status: entry::TurnStatus, at: &str) -> Entry {
    let messages = messages.iter().filter_map(|m| m.to_raw().ok()).collect();
    Entry::Turn(entry::Turn { messages, status, at: at.to_owned() })
}

/// Words of a failure for the transcript.
pub(super) fn failure_words(f: &Failure) -> String {
    match f.status {
        Some(status) if !f.message.contains(&status.to_string()) => format!("{} (HTTP {status})", f.message),
        _ => f.message.clone(),
    }
}
