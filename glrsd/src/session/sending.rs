//! Messages on their way in: send, the queue, held and release, esc.
//!
//! Owns turns.md "Sending" and "Esc". Conservation: every accepted message is at all times exactly
//! one of queued, in the log once, or removed by someone — each step below is durable before the
//! next one begins.

use super::actor::{Actor, next_event};
use super::live::Record;
use super::looking::{Look, check_attachments};
use super::queue::Waiting;
use super::{Reply, Who};
use crate::config::Delivery;
use crate::fold::summary::Removed;
use crate::turn::Event as Turned;
use glrs_protocol::entry::Entry;
use glrs_protocol::event::Event;
use glrs_protocol::frame::MAX_QUEUE_ROWS;
use glrs_protocol::params::{
    InterruptResult, QueueEdit, QueueMove, QueueRemove, QueueResult, ReleaseResult, Send, SendResult,
};
use glrs_protocol::types::{QueueRow, SendMode};
use glrs_protocol::{ErrorKind, RpcError};
use serde_json::value::RawValue;

/// Hash of what makes two calls with one key the same call.
pub(super) fn params_hash(parts: &[&str]) -> String {
    use sha2::{Digest, Sha256};
    let mut h = Sha256::new();
    for p in parts {
        h.update((p.len() as u64).to_be_bytes());
        h.update(p.as_bytes());
    }
    h.finalize().iter().take(8).map(|b| format!("{b:02x}")).collect()
}

pub(super) fn key_conflict(key: &str) -> RpcError {
    RpcError::new(
        ErrorKind::Conflict,
        format!("key {key} was used for another call: make a new key for each new message"),
    )
}

fn result(outcome: &str, row: Option<u64>, entry: Option<u64>) -> SendResult {
    SendResult { outcome: outcome.to_owned(), row, entry }
}

impl Actor {
    /// Where a keyed call went, if it was made before.
    fn known_key(&self, key: &str, hash: &str) -> Option<Result<SendResult, RpcError>> {
        if let Some(w) = self.queue.by_key(key) {
            let outcome = if w.row.mode == SendMode::Steer { "steering" } else { "queued" };
            return Some(if w.hash == hash {
                Ok(result(outcome, Some(w.row.row), None))
            } else {
                Err(key_conflict(key))
            });
        }
        if self.shells.has_key(key) {
            return Some(Err(key_conflict(key)));
        }
        let at = self.summary.find_key(key)?;
        if at.hash != hash {
            return Some(Err(key_conflict(key)));
        }
        let running = self.running.as_ref().is_some_and(|r| r.user <= at.n);
        let outcome = match (at.removed, running) {
            (true, _) => "removed",
            (false, true) => "running",
            (false, false) => "sent",
        };
        Some(Ok(result(outcome, None, (!at.removed).then_some(at.n))))
    }

    pub(super) async fn send(&mut self, who: Who, p: Send, reply: Reply<SendResult>) {
        if p.text.trim().is_empty() && p.attachments.is_empty() {
            return reply(Err(RpcError::params("the message is blank: nothing was sent")));
        }
        if let Some(e) = self.too_late(&who) {
            return reply(Err(e));
        }
        let attachments = serde_json::to_string(&p.attachments).unwrap_or_default();
        let mode = serde_json::to_string(&p.mode).unwrap_or_default();
        let hash = params_hash(&[&p.text, &attachments, &mode]);
        if let Some(key) = &p.key
            && let Some(known) = self.known_key(key, &hash)
        {
            return reply(known);
        }
        if !self.disk.ok {
            return reply(Err(self.disk_error()));
        }
        if self.stopping.is_some() {
            return reply(Err(RpcError::new(
                ErrorKind::ShuttingDown,
                "the daemon is stopping: send again in a moment",
            )));
        }
        if let Err(e) = check_attachments(self.cwd.clone(), &p.attachments).await {
            return reply(Err(e));
        }
        if self.queue.rows.len() >= MAX_QUEUE_ROWS {
            let kind = ErrorKind::Limit { what: "queue rows".into(), max: MAX_QUEUE_ROWS as u64 };
            return reply(Err(RpcError::new(kind, "too many messages wait: let some run or take some back")));
        }
        if let Err(e) = self.queue.room_for(&p.text, attachments.len(), None) {
            return reply(Err(e));
        }
        let key = p.key.unwrap_or_else(|| format!("glrsd-{}", self.word()));
        let w = Waiting {
            row: QueueRow {
                row: self.queue.number(),
                version: 1,
                by: who.by,
                // A turn that is being stopped takes none any more.
                mode: if p.mode == SendMode::Steer && self.running.as_ref().is_some_and(|r| r.stopping.is_none()) {
                    SendMode::Steer
                } else {
                    SendMode::Queue
                },
                text: p.text,
                attachments: p.attachments,
                at: self.now(),
            },
            key,
            hash,
            pos: self.log.len(),
        };
        let free = self.running.is_none() && self.queue.rows.is_empty() && self.start_later.is_none();
        if free && self.writing.is_none() && !self.compaction_due().await {
            return self.start_with(w, reply).await;
        }
        self.wait_in_line(w, p.mode, reply).await;
    }

    /// Why something could not be put into the log.
    pub(super) fn not_recorded(&self) -> RpcError {
        if self.foreign {
            let words = "another program wrote this session's file; it is read again: send again in a moment";
            return RpcError::new(ErrorKind::Conflict, words);
        }
        RpcError::internal("the entry could not be encoded")
    }

    /// Nothing runs and nothing waits: the message goes straight to the log.
    async fn start_with(&mut self, w: Waiting, reply: Reply<SendResult>) {
        let rows = vec![w];
        let look = self.look(&rows);
        let recorded = self.record_start(&rows);
        let Some(user) = recorded.last().map(|(n, _)| *n) else {
            return reply(Err(self.not_recorded()));
        };
        match self.sync_and_start(user, &rows, look).await {
            Ok(()) => {
                reply(Ok(result("running", None, Some(user))));
                self.publish_start(recorded);
                self.publish_info_if_new();
            }
            // Memory holds it and its turn starts when the disk recovers, but it was not
            // acknowledged: the sender is told so, and repeating the call with its key finds it.
            Err(e) => {
                reply(Err(e));
                self.publish_start(recorded);
            }
        }
    }

    /// Makes messages durable that were recorded, and starts their turn meanwhile: the disk's time is
    /// the provider's time as well. What is published waits for [`Self::publish_start`], so that nobody
    /// sees it before the messages. If the disk does not take them the turn is as if it had not been:
    /// it starts when the disk does.
    async fn sync_and_start(&mut self, user: u64, rows: &[Waiting], look: Look) -> Result<(), RpcError> {
        let job = match self.log.begin_sync() {
            Ok(Some(job)) => job,
            _ => {
                if let Err(e) = self.sync().await {
                    self.start_later = Some((user, rows.to_vec()));
                    return Err(e);
                }
                self.start_turn(user, rows.to_vec(), look);
                return Ok(());
            }
        };
        self.hold_back();
        self.start_turn(user, rows.to_vec(), look);
        let mut job = std::pin::pin!(job.wait());
        // What is folded or read first takes longer than the disk: whoever sent it does not wait for that.
        let mut early = self.ctx.is_some();
        let done = loop {
            let event = tokio::select! {
                biased;
                done = &mut job => break done,
                event = next_event(&mut self.events), if early => event,
            };
            // Once its request is on its way, the turn's further words wait for the disk.
            early = matches!(event, Some(Turned::Found { .. }));
            match event {
                Some(event) => self.turn_event(event).await,
                None => self.turn_vanished().await,
            }
        };
        let synced = self.log.finish_sync(&done);
        self.synced(synced).inspect_err(|_| {
            if self.undo_start(user) {
                self.start_later = Some((user, rows.to_vec()));
            }
        })
    }

    /// Publishes the messages of a turn: that it runs before what it runs on, so that nobody sees a
    /// message that nothing seems to be done about, and what it did already behind.
    fn publish_start(&mut self, messages: Vec<(u64, Box<RawValue>)>) {
        let held = self.let_go();
        self.publish_state();
        self.publish_entries(messages);
        for event in held.iter().filter(|e| !matches!(e, Event::State(_))) {
            self.publish(event);
        }
    }

    /// Makes a turn that runs one that has not begun. Tells whether it did run.
    fn undo_start(&mut self, user: u64) -> bool {
        let Some(r) = self.running.take_if(|r| r.user == user) else { return false };
        r.cancel.cancel();
        r.task.abort();
        self.events = None;
        self.note(&Record::Turn { user: 0 });
        // What rode along with its messages rides along again.
        self.ctx = None;
        self.told = None;
        true
    }

    async fn wait_in_line(&mut self, w: Waiting, mode: SendMode, reply: Reply<SendResult>) {
        let front = mode == SendMode::Interrupt;
        let at = if front { 0 } else { self.queue.rows.len() };
        self.note(&Record::Row { at: at as u64, w: w.clone() });
        if let Err(e) = self.sync_live().await {
            self.note(&Record::Gone { row: w.row.row });
            return reply(Err(e));
        }
        let (row, steering) = (w.row.row, w.row.mode == SendMode::Steer);
        self.queue.rows.insert(at, w);
        reply(Ok(result(if steering { "steering" } else { "queued" }, Some(row), None)));
        self.publish_queue();
        if self.running.is_some() {
            if front {
                self.cancel_turn(false, None).await;
            }
        } else {
            self.set_held(false);
            self.run_on().await;
        }
    }

    /// Starts the next turn when nothing runs, nothing holds and something waits.
    pub(super) async fn run_on(&mut self) {
        let blocked = self.held || self.stopping.is_some() || !self.disk.ok || self.start_later.is_some();
        let wanted = self.course.awake || !self.queue.rows.is_empty();
        if self.running.is_none() && !blocked && wanted && self.compaction_due().await {
            // What waits runs on the compacted history.
            self.start_brief(false, None, Vec::new()).await;
        }
        if self.running.is_some() || blocked || self.writing.is_some() || self.queue.rows.is_empty() {
            self.publish_state();
            return self.tidy().await;
        }
        let n = match self.config.config.follow_up_mode {
            Delivery::OneAtATime => 1,
            Delivery::All => self.queue.rows.len(),
        };
        let rows: Vec<Waiting> = self.queue.rows[..n].to_vec();
        let look = self.look(&rows);
        let recorded = self.record_start(&rows);
        let Some(user) = recorded.last().map(|(n, _)| *n) else { return };
        // The rows are in the log now. While it cannot be synced they stay in the journal as well;
        // their keys tell after a crash that they were taken.
        let numbers: Vec<u64> = rows.iter().map(|w| w.row.row).collect();
        self.queue.drop_rows(&numbers);
        let started = self.sync_and_start(user, &rows, look).await;
        if started.is_ok() {
            for row in numbers {
                self.note(&Record::Gone { row });
            }
        }
        self.publish_start(recorded);
        self.publish_queue();
    }

    pub(super) fn set_held(&mut self, on: bool) {
        if self.held != on {
            self.held = on;
            self.note(&Record::Held { on });
        }
    }

    pub(super) async fn release(&mut self, reply: Reply<ReleaseResult>) {
        if !self.held {
            return reply(Ok(ReleaseResult { outcome: "nothing".into() }));
        }
        self.set_held(false);
        if let Err(e) = self.sync_live().await {
            return reply(Err(e));
        }
        reply(Ok(ReleaseResult { outcome: "released".into() }));
        self.run_on().await;
    }

    pub(super) async fn interrupt(&mut self, _who: &Who, reply: Reply<InterruptResult>) {
        let shells = self.shells.stop();
        if self.running.is_none() {
            if shells && self.writing.is_none() {
                return reply(Ok(InterruptResult { outcome: "interrupted".into() }));
            }
            if !self.drop_brief("the brief was abandoned (esc)") {
                return reply(Ok(InterruptResult { outcome: "nothing".into() }));
            }
            let waits = !self.queue.rows.is_empty();
            self.set_held(waits);
            // That it is held is shown at once; if the journal cannot be synced the state says so.
            let _ = self.sync_live().await;
            let recorded = self.record(&[Entry::notice("(compaction abandoned)", &self.now())]);
            reply(Ok(InterruptResult { outcome: "held".into() }));
            self.publish_entries(recorded);
            return self.publish_state();
        }
        self.cancel_turn(true, None).await;
        match self.running.as_mut().and_then(|r| r.stopping.as_mut()) {
            Some(s) => s.replies.push(reply),
            None => reply(Ok(InterruptResult { outcome: "interrupted".into() })),
        }
    }

    /// Puts undelivered steers in front of the queue as ordinary rows; behind what came after them
    /// and stands there already, since it stopped the turn to run next.
    pub(super) fn requeue_steers(&mut self) {
        let steers = self.queue.steers();
        if steers.is_empty() {
            return;
        }
        self.queue.rows.retain(|w| w.row.mode != SendMode::Steer);
        let first = steers.iter().map(|w| w.row.row).min().unwrap_or(0);
        let before = self.queue.rows.iter().take_while(|w| w.row.row > first).count();
        for (i, mut w) in (before..).zip(steers) {
            w.row.mode = SendMode::Queue;
            w.row.version += 1;
            self.note(&Record::Row { at: i as u64, w: w.clone() });
            self.queue.rows.insert(i, w);
        }
        self.publish_queue();
    }

    /// Takes steers for the step that begins: one, or all, as configured. They are in the log
    /// (synced) when this returns.
    pub(super) async fn take_steers(&mut self) -> Vec<Waiting> {
        let mut steers = self.queue.steers();
        if self.config.config.steering_mode == Delivery::OneAtATime {
            steers.truncate(1);
        }
        if steers.is_empty() || !self.disk.ok {
            return Vec::new();
        }
        let entries: Vec<Entry> = steers.iter().map(|w| self.user_entry(w, true)).collect();
        let recorded = self.record(&entries);
        let synced = self.sync().await.is_ok();
        let numbers: Vec<u64> = steers.iter().map(|w| w.row.row).collect();
        self.queue.drop_rows(&numbers);
        if synced {
            for row in numbers {
                self.note(&Record::Gone { row });
            }
        }
        self.publish_entries(recorded);
        self.publish_queue();
        steers
    }

    pub(super) async fn queue_edit(&mut self, p: QueueEdit, reply: Reply<QueueResult>) {
        if p.text.trim().is_empty() {
            return reply(Err(RpcError::params("the text is blank: use queue/remove to take the row back")));
        }
        let at = match self.queue.at(p.row, p.version) {
            Ok(at) => at,
            Err(e) => return reply(Err(e)),
        };
        if let Err(e) = self.queue.room_for(&p.text, 0, Some(p.row)) {
            return reply(Err(e));
        }
        let mut w = self.queue.rows[at].clone();
        w.row.text = p.text;
        w.row.version += 1;
        self.note(&Record::Row { at: at as u64, w: w.clone() });
        if let Err(e) = self.sync_live().await {
            return reply(Err(e));
        }
        self.queue.rows[at] = w;
        self.reply_queue(reply);
    }

    pub(super) async fn queue_move(&mut self, p: QueueMove, reply: Reply<QueueResult>) {
        let from = match self.queue.at(p.row, p.version) {
            Ok(at) => at,
            Err(e) => return reply(Err(e)),
        };
        let mut moved = self.queue.clone();
        moved.shift(from, p.to as usize);
        let to = moved.rows.iter().position(|w| w.row.row == p.row).unwrap_or(from);
        self.note(&Record::Row { at: to as u64, w: moved.rows[to].clone() });
        if let Err(e) = self.sync_live().await {
            return reply(Err(e));
        }
        self.queue = moved;
        self.reply_queue(reply);
    }

    pub(super) async fn queue_remove(&mut self, who: &Who, p: QueueRemove, reply: Reply<QueueResult>) {
        let at = match self.queue.at(p.row, p.version) {
            Ok(at) => at,
            Err(e) => return reply(Err(e)),
        };
        let w = self.queue.rows[at].clone();
        // A tombstone in the log: repeating the send with its key must not bring it back, and the
        // journal is emptied when the session settles.
        let data = Removed { row: p.row, by: who.by.clone() };
        let recorded = match Entry::custom("glrs:removed", &data, &self.now()) {
            Ok(Entry::Custom(mut c)) => {
                c.key = Some(w.key);
                c.key_hash = Some(w.hash);
                self.record(&[Entry::Custom(c)])
            }
            _ => Vec::new(),
        };
        if let Err(e) = self.sync().await {
            return reply(Err(e));
        }
        self.queue.rows.remove(at);
        self.note(&Record::Gone { row: p.row });
        let emptied = self.queue.rows.is_empty();
        if emptied {
            self.set_held(false);
        }
        reply(Ok(QueueResult { rows: self.queue.view() }));
        self.publish_entries(recorded);
        self.publish_queue();
        if emptied {
            self.run_on().await;
        }
    }

    fn reply_queue(&mut self, reply: Reply<QueueResult>) {
        reply(Ok(QueueResult { rows: self.queue.view() }));
        self.publish_queue();
    }
}
