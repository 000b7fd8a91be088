//! What the actor writes: entries, the live journal, and the disk's state.
//!
//! Owns the order "recorded, folded, later published": nothing is shown that is not in the log, and
//! what the disk does not take is kept in memory, shown, and tried again.

use super::actor::{Actor, DISK_RETRY, FLUSH};
use crate::host::{clock, random};
use crate::model::Model;
use crate::store::DiskError;
use glrs_protocol::entry::Entry;
use glrs_protocol::event::Event;
use glrs_protocol::types::Disk;
use glrs_protocol::{ErrorKind, RpcError};
use serde_json::value::RawValue;
use std::sync::{Arc, PoisonError};
use tokio::time::Instant;

impl Actor {
    /// Plans writing what streams to the live journal.
    pub fn flush_soon(&mut self) {
        self.flush_at.get_or_insert_with(|| Instant::now() + FLUSH);
    }

    pub(super) fn flush_parts(&mut self) {
        self.flush_at = None;
        let mut records = Vec::new();
        let pieces = self.running.iter_mut().flat_map(|r| &mut r.pieces).chain(self.shells.pieces_mut());
        for p in pieces {
            if let Some(text) = p.unflushed() {
                let (of, piece, call) = (p.of.clone(), p.kind, p.call.clone());
                records.push(super::live::Record::Part { of, piece, call, text });
            }
        }
        for r in &records {
            self.note(r);
        }
    }

    /// Appends a record to the live journal, not synced. A failure shows as the disk's state.
    pub fn note(&mut self, record: &super::live::Record) {
        match serde_json::value::to_raw_value(record) {
            Ok(line) => {
                self.live_used = true;
                if let Err(e) = self.live.append(&line) {
                    self.disk_failed(&e);
                }
            }
            Err(e) => tracing::error!(session = %self.id, error = %e, "a live record did not serialise"),
        }
    }

    /// Keeps what is known of the session for its next load, where that saves reading a large log.
    pub fn keep_fold(&self) {
        let kept = match serde_json::to_string(&self.summary) {
            Ok(fold) => self.shared.store.keep_fold(&self.log, &fold).map_err(|e| e.to_string()),
            Err(e) => Err(e.to_string()),
        };
        if let Err(why) = kept {
            tracing::debug!(session = %self.id, why, "the fold was not kept; the log is read next time");
        }
    }

    /// Syncs the live journal.
    pub async fn sync_live(&mut self) -> Result<(), RpcError> {
        match self.live.sync().await {
            Ok(()) => Ok(()),
            Err(e) => {
                self.disk_failed(&e);
                Err(self.disk_error())
            }
        }
    }

    /// Puts the files beside the log in order, once everyone was told what there is to tell.
    pub(super) async fn tidy(&mut self) {
        tokio::task::yield_now().await;
        self.trim_live();
        self.write_trace();
    }

    /// Empties the live journal once everything has settled.
    pub fn trim_live(&mut self) {
        if self.live_used && self.is_settled() {
            match self.live.truncate() {
                Ok(()) => self.live_used = false,
                Err(e) => self.disk_failed(&e),
            }
        }
    }

    /// Writes entries to the log (not synced) and takes them into the folds. Answers what to
    /// publish, once whoever caused it has been answered.
    pub fn record(&mut self, entries: &[Entry]) -> Vec<(u64, Box<RawValue>)> {
        let mut raws = Vec::with_capacity(entries.len());
        for e in entries {
            match e.to_raw() {
                Ok(raw) => raws.push(raw),
                Err(error) => {
                    tracing::error!(session = %self.id, kind = e.kind(), %error, "an entry did not serialise")
                }
            }
        }
        self.record_raw(raws)
    }

    /// The same for entries that are raw already.
    fn record_raw(&mut self, raws: Vec<Box<RawValue>>) -> Vec<(u64, Box<RawValue>)> {
        if raws.is_empty() || self.foreign {
            return Vec::new();
        }
        let mut out = Vec::with_capacity(raws.len());
        for (n, raw) in (self.log.len() + 1..).zip(&raws) {
            let raw = raw.get();
            self.summary.apply(n, raw);
            let rewound = crate::fold::context::rewound_to(raw).is_some();
            if rewound || glrs_protocol::entry::kind_of(raw) == "cleared" {
                // A brief that is being written no longer fits what it was cut from.
                self.course.generation += 1;
            }
            match &mut self.ctx {
                Some(_) if rewound => self.ctx = None,
                Some(ctx) => ctx.apply(n, raw),
                None => {}
            }
        }
        let tokens = self.context_tokens();
        let first = match self.log.append(&raws, tokens) {
            Ok(first) => first,
            Err(f) => {
                // What we hold no longer fits the file: it is read anew, under a new epoch.
                tracing::warn!(session = %self.id, "{f}");
                self.foreign = true;
                self.feed.close(&f.to_string());
                return Vec::new();
            }
        };
        if let Some(e) = self.log.disk().cloned() {
            self.disk_failed(&e);
        }
        for (i, raw) in raws.into_iter().enumerate() {
            out.push((first + i as u64, raw));
        }
        out
    }

    /// The session's moment: `at` of what is recorded now.
    pub fn now(&self) -> String {
        clock::now()
    }

    /// Makes what was recorded durable.
    pub async fn sync(&mut self) -> Result<(), RpcError> {
        let synced = self.log.sync().await;
        self.synced(synced)
    }

    /// Shows what a sync came to.
    pub(super) fn synced(&mut self, synced: Result<(), DiskError>) -> Result<(), RpcError> {
        match synced {
            Ok(()) => {
                self.disk_recovered();
                Ok(())
            }
            Err(e) => {
                self.disk_failed(&e);
                Err(self.disk_error())
            }
        }
    }

    /// Shows that the disk fails, and plans to try again.
    pub fn disk_failed(&mut self, e: &DiskError) {
        self.disk_retry.get_or_insert_with(|| Instant::now() + DISK_RETRY);
        let disk = Disk { ok: false, path: Some(e.path.display().to_string()), why: Some(e.why.clone()) };
        if self.disk != disk {
            tracing::warn!(session = %self.id, why = e.why, "the disk does not take the session's entries; memory keeps them");
            self.disk = disk.clone();
            self.publish(&Event::Disk(glrs_protocol::event::DiskEvent { disk }));
        }
    }

    fn disk_recovered(&mut self) {
        if !self.disk.ok {
            self.disk = Disk { ok: true, path: None, why: None };
            self.disk_retry = None;
            let disk = self.disk.clone();
            self.publish(&Event::Disk(glrs_protocol::event::DiskEvent { disk }));
        }
    }

    pub(super) async fn retry_disk(&mut self) {
        self.disk_retry = None;
        if self.sync().await.is_err() || self.running.is_some() {
            return;
        }
        match self.start_later.take() {
            Some((user, rows)) => {
                let look = self.look(&rows);
                self.start_turn(user, rows, look);
                self.publish_state();
            }
            None => self.run_on().await,
        }
    }

    /// The error that a refused call gets while the disk fails.
    pub fn disk_error(&self) -> RpcError {
        let path = self.disk.path.clone().unwrap_or_default();
        let why = self.disk.why.clone().unwrap_or_default();
        RpcError::new(
            ErrorKind::Disk { path: path.clone(), why: why.clone() },
            format!("{path}: {why}. Nothing is lost that was acknowledged; make room or fix it and send again"),
        )
    }

    /// From now on what is published waits until [`Self::let_go`].
    pub(super) fn hold_back(&mut self) {
        self.held_back.get_mut().unwrap_or_else(PoisonError::into_inner).get_or_insert_default();
    }

    /// Gives what was held back, unpublished, and holds back no more.
    pub(super) fn let_go(&mut self) -> Vec<Event> {
        let held = self.held_back.get_mut().unwrap_or_else(PoisonError::into_inner).take().unwrap_or_default();
        if held.iter().any(|e| matches!(e, Event::State(_))) {
            // Nobody has seen the states that were held; the one that holds by then is told.
            self.shown = None;
        }
        held
    }

    /// Publishes entries that were recorded.
    pub fn publish_entries(&mut self, entries: Vec<(u64, Box<RawValue>)>) {
        for (n, entry) in entries {
            self.publish_entry(n, entry, None);
        }
    }

    /// Publishes an entry that completes a piece.
    pub fn publish_entry(&mut self, n: u64, entry: Box<RawValue>, of: Option<String>) {
        self.publish(&Event::Entry(glrs_protocol::event::EntryEvent { n, entry, of }));
    }

    /// A new word: request ids and the like.
    pub fn word(&self) -> String {
        random::word()
    }

    /// The model of the session, or why it cannot be used now.
    pub fn resolve_model(&self) -> Result<Arc<dyn Model>, crate::model::Failure> {
        self.shared.models.resolve(&self.config, &self.model, &self.env)
    }
}
