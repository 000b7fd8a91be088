//! Compaction as the actor runs it: triggers, gates, the brief beside the turn, landing.
//!
//! Owns compaction.md "When" and "Landing". What is cut, what is asked and how an artifact reads
//! are [`crate::compact`]'s business.

use super::actor::Actor;
use super::history::keyed_hash;
use super::{Reply, Who};
use crate::compact::{Numbers, artifact, brief, cut, micro};
use crate::fold::context::Stored;
use glrs_protocol::entry::{Compacted, Entry};
use glrs_protocol::event::{CompactionEvent, Event};
use glrs_protocol::message::Message;
use glrs_protocol::params::{Compact, CompactResult};
use glrs_protocol::types::{Compaction, CompactionState};
use glrs_protocol::{ErrorKind, RpcError};
use serde::{Deserialize, Serialize};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;

/// `glrs:summariser`: the conversation was announced to go to another provider.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Summariser {
    /// The provider.
    pub provider: String,
}

/// `glrs:micro`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct MicroEntry {
    /// Numbers of the `tool` entries whose results went.
    pub entries: Vec<u64>,
}

/// A brief that is being written, or is ready to land.
pub(super) struct Writing {
    cancel: CancellationToken,
    since: String,
    /// Where what is kept begins.
    kept_from: (u64, u64),
    request: Option<(u64, u64)>,
    /// What it replaces.
    messages: Vec<Arc<Message>>,
    kept: usize,
    tokens: u64,
    estimate: u64,
    /// The history it was cut from: a later clear, rewind or compaction makes another one.
    generation: u64,
    replies: Vec<Reply<CompactResult>>,
    /// The answer, once it is there and waits for the turn's end.
    ready: Option<Result<String, String>>,
}

/// What a compaction's course needs to remember between attempts.
#[derive(Default)]
pub(super) struct Course {
    /// Nothing more by itself until a provider reports again.
    pub waits_for_report: bool,
    /// How many in a row freed less than a tenth.
    poor: u32,
    /// An overflow was answered with a compaction, and nothing was reported since.
    pub overflowed: bool,
    /// Counts clears, rewinds and compactions.
    pub generation: u64,
}

impl Course {
    /// A person did something, or a provider reported: try again when it is due.
    pub fn refresh(&mut self) {
        self.poor = 0;
        self.waits_for_report = false;
    }

    /// Whether it gave up by itself.
    pub fn stuck(&self) -> bool {
        self.poor >= 2
    }
}

impl Actor {
    /// The numbers that display, trigger and list use.
    pub(super) fn numbers(&self) -> Numbers {
        let row = self.shared.models.describe(&self.config, &self.model);
        Numbers::of(&self.config.config, self.window, row.output)
    }

    /// Where compaction stands, for clients.
    pub(super) fn compaction(&self) -> Compaction {
        match &self.writing {
            Some(w) => Compaction {
                state: if w.ready.is_some() { CompactionState::Ready } else { CompactionState::Writing },
                gate: self.running.is_none(),
                since: Some(w.since.clone()),
            },
            None if self.course.stuck() => Compaction { state: CompactionState::Stuck, gate: false, since: None },
            None => Compaction::default(),
        }
    }

    pub(super) fn publish_compaction(&mut self) {
        let compaction = self.compaction();
        if self.shown_compaction != compaction {
            self.shown_compaction = compaction.clone();
            self.publish(&Event::Compaction(CompactionEvent { compaction }));
        }
    }

    /// Whether room has to be made now.
    pub(super) fn compaction_due(&self) -> bool {
        self.writing.is_none()
            && !self.course.waits_for_report
            && !self.course.stuck()
            && self.stopping.is_none()
            && self.disk.ok
            && self.numbers().past(self.usage().context_tokens)
    }

    /// `/compact`.
    pub(super) async fn compact(&mut self, _who: &Who, p: Compact, reply: Reply<CompactResult>) {
        let hash = keyed_hash(&["compact", p.instruction.as_deref().unwrap_or("")]);
        match self.keyed(p.key.as_deref(), &hash) {
            Ok(None) => {}
            Ok(Some(_)) => {
                return reply(Ok(CompactResult { outcome: "compacted".into(), notice: "(compacted)".into() }));
            }
            Err(e) => return reply(Err(e)),
        }
        if self.running.is_some() || self.starting.is_some() {
            return reply(Err(self.busy("compact")));
        }
        if self.writing.is_some() {
            return reply(Err(RpcError::new(
                ErrorKind::Busy { state: "compacting".into() },
                "a brief is being written already: wait for it, or stop it (esc)",
            )));
        }
        self.course.refresh();
        self.compact_key = p.key.map(|k| (k, hash));
        let instruction = p.instruction.filter(|i| !i.trim().is_empty());
        self.start_brief(true, instruction, vec![reply]).await;
    }

    /// Cuts and starts writing the brief. Where nothing can be cut, large old results make room.
    pub(super) async fn start_brief(
        &mut self,
        forced: bool,
        instruction: Option<String>,
        replies: Vec<Reply<CompactResult>>,
    ) {
        let fail = |replies: Vec<Reply<CompactResult>>, e: &RpcError| {
            for r in replies {
                r(Err(e.clone()));
            }
        };
        self.course.waits_for_report = true;
        if let Err(why) = self.fold_context().await {
            return fail(replies, &RpcError::internal(why));
        }
        let numbers = self.numbers();
        let usage = self.usage();
        let loaded = self.config.clone();
        let config = &loaded.config;
        let rules = cut::Rules {
            keep: numbers.keep(),
            turns: config.keep_turns,
            shrink: (numbers.window as f64 * config.shrink_at) as u64,
            tokens: usage.context_tokens,
            forced,
        };
        let Some(ctx) = &self.ctx else { return };
        let stored: Vec<Stored> = ctx.stored().to_vec();
        let estimate = ctx.estimate();
        let Some(found) = cut::find(&stored, &rules) else {
            if forced {
                let notice = "(nothing worth compacting yet)".to_owned();
                for r in replies {
                    r(Ok(CompactResult { outcome: "nothing".into(), notice: notice.clone() }));
                }
                return;
            }
            return self.micro_compact().await;
        };
        let name = config.compact_model.clone().unwrap_or_else(|| self.model.clone());
        let model = match self.shared.models.resolve(&self.config, &name, &self.env) {
            Ok(m) => m,
            Err(f) => return self.brief_failed(&f.message, replies).await,
        };
        self.announce(&name).await;
        let (cancel, (tx, rx)) = (CancellationToken::new(), oneshot::channel());
        let (head, tail) = stored.split_at(found.at);
        let messages: Vec<Arc<Message>> = head.iter().map(|s| s.message.clone()).collect();
        let place = |s: &Stored| (s.n, s.index);
        let job = brief::Job {
            messages: messages.clone(),
            instruction,
            model,
            env: self.env.clone(),
            cache_key: self.id.to_string(),
            idle: Duration::from_millis(config.idle_timeout_ms),
        };
        self.writing = Some(Writing {
            cancel: cancel.clone(),
            since: self.now(),
            kept_from: tail.first().map_or((0, 0), place),
            request: found.request.and_then(|i| stored.get(i)).map(place),
            messages,
            kept: tail.len() + usize::from(found.request.is_some()),
            tokens: usage.context_tokens,
            estimate,
            generation: self.course.generation,
            replies,
            ready: None,
        });
        self.brief_rx = Some(rx);
        // Ends by itself: the job is bounded, and cancelled with the session.
        tokio::spawn(async move {
            let written = tokio::select! {
                () = cancel.cancelled() => Err("stopped".to_owned()),
                written = brief::write(&job, &cancel) => written,
            };
            let _ = tx.send(written);
        });
        self.publish_compaction();
        self.publish_state();
    }

    /// Says once per session that the transcript goes to another company.
    async fn announce(&mut self, name: &str) {
        let provider = |m: &str| m.split('/').next().unwrap_or(m).to_owned();
        let other = provider(name);
        if other == provider(&self.model) || self.summary.announced.contains(&other) {
            return;
        }
        let at = self.now();
        let mut entries = vec![Entry::notice(
            format!("(the conversation is sent to {other} to be summarised: compactModel is {name})"),
            &at,
        )];
        entries.extend(Entry::custom("glrs:summariser", &Summariser { provider: other }, &at));
        let recorded = self.record(&entries);
        // If the disk does not take it, the state shows that; nothing here depends on it.
        let _ = self.sync().await;
        self.publish_entries(recorded);
    }

    /// The brief came (or did not): it lands when no turn runs.
    pub(super) async fn brief_written(&mut self, written: Result<String, String>) {
        self.brief_rx = None;
        let Some(w) = &mut self.writing else { return };
        w.ready = Some(written);
        if self.running.is_none() {
            return self.land().await;
        }
        // A brief that failed beside a turn holds nothing up.
        if matches!(&self.writing, Some(Writing { ready: Some(Err(_)), .. })) {
            return self.land().await;
        }
        self.publish_compaction();
    }

    /// Takes a ready brief into the history.
    pub(super) async fn land(&mut self) {
        let Some(mut w) = self.writing.take() else { return };
        let Some(written) = w.ready.take() else {
            self.writing = Some(w);
            return;
        };
        let summary = match written {
            Ok(s) => s,
            Err(why) => {
                self.brief_failed(&why, w.replies).await;
                self.go_on = true;
                return;
            }
        };
        let at = self.now();
        if w.generation != self.course.generation {
            let words = "(the brief was dropped: the conversation it was written from changed meanwhile)";
            let recorded = self.record(&[Entry::notice(words, &at)]);
            for r in w.replies {
                r(Err(RpcError::new(ErrorKind::Cancelled, words)));
            }
            self.publish_entries(recorded);
            self.publish_compaction();
            self.go_on = true;
            return;
        }
        let head = artifact::Head {
            label: artifact::label(&summary),
            created_at: at.clone(),
            messages: w.messages.len() as u64,
            note: String::new(),
        };
        let kept_aside = self.keep_artifact(&head, &w.messages).await;
        let name = match kept_aside {
            Ok(name) => name,
            Err(why) => {
                self.brief_failed(&why, w.replies).await;
                self.go_on = true;
                return;
            }
        };
        let notice =
            format!("(compacted: {} messages summarised, {} kept, from {} tokens)", w.messages.len(), w.kept, w.tokens);
        let mut entries = vec![
            Entry::Compacted(Compacted {
                summary,
                dropped: w.messages.len() as u64,
                kept_from: Some(w.kept_from),
                request: w.request,
                artifact: Some(name),
                at: at.clone(),
            }),
            Entry::notice(notice.clone(), &at),
        ];
        if let Some((key, hash)) = self.compact_key.take()
            && !w.replies.is_empty()
            && let Ok(Entry::Custom(mut c)) = Entry::custom("glrs:compact", &serde_json::json!({}), &at)
        {
            c.key = Some(key);
            c.key_hash = Some(hash);
            entries.push(Entry::Custom(c));
        }
        self.course.generation += 1;
        let recorded = self.record(&entries);
        self.told = None;
        let synced = self.sync().await;
        for r in w.replies {
            r(match &synced {
                Ok(()) => Ok(CompactResult { outcome: "compacted".into(), notice: notice.clone() }),
                Err(e) => Err(e.clone()),
            });
        }
        self.publish_entries(recorded);
        let after = self.ctx.as_ref().map_or(0, crate::fold::Context::estimate);
        let poor = after.saturating_mul(10) > w.estimate.saturating_mul(9);
        self.course.poor = if poor { self.course.poor + 1 } else { 0 };
        if self.numbers().past(after) {
            // The cut alone does not get under the line.
            self.micro_compact().await;
        }
        if self.course.stuck() {
            let words =
                "(compaction frees too little to go on by itself: /clear, or choose a model with a larger window)";
            let recorded = self.record(&[Entry::notice(words, &self.now())]);
            self.publish_entries(recorded);
        }
        self.publish_compaction();
        self.publish_usage();
        self.go_on = true;
    }

    async fn keep_artifact(&mut self, head: &artifact::Head, messages: &[Arc<Message>]) -> Result<String, String> {
        let (store, id) = (self.shared.store.clone(), self.id.clone());
        let text = artifact::render(head, messages);
        let at = head.created_at.clone();
        let kept = tokio::task::spawn_blocking(move || {
            let base = artifact::name(&at);
            let stem = base.trim_end_matches(".md").to_owned();
            // Unique even within a millisecond.
            for k in 1.. {
                let name = if k == 1 { base.clone() } else { format!("{stem}-{k}.md") };
                if store.get_artifact(&id, &name).map_err(|e| e.to_string())?.is_none() {
                    store.put_artifact(&id, &name, text.as_bytes()).map_err(|e| e.to_string())?;
                    return Ok(name);
                }
            }
            Err("no name was free".to_owned())
        });
        kept.await.unwrap_or_else(|e| Err(e.to_string()))
    }

    /// History untouched, the reason visible.
    async fn brief_failed(&mut self, why: &str, replies: Vec<Reply<CompactResult>>) {
        self.writing = None;
        self.compact_key = None;
        let words = format!("(compaction failed: {why})");
        let recorded = self.record(&[Entry::notice(words.clone(), &self.now())]);
        for r in replies {
            r(Err(RpcError::new(ErrorKind::Provider { status: None }, words.clone())));
        }
        self.publish_entries(recorded);
        self.publish_compaction();
        self.publish_state();
    }

    /// Replaces large old results by markers, in the context only.
    async fn micro_compact(&mut self) {
        let Some(ctx) = &self.ctx else { return };
        let before = ctx.estimate();
        let chosen = micro::choose(ctx.stored(), ctx.tools(), &self.config.config.micro);
        if chosen.is_empty() {
            self.course.poor += 1;
            return self.publish_compaction();
        }
        let at = self.now();
        let count = chosen.len();
        let mut entries: Vec<Entry> =
            Entry::custom("glrs:micro", &MicroEntry { entries: chosen }, &at).into_iter().collect();
        entries.push(Entry::notice(
            format!("(made room: {count} large older tool results cleared from the context)"),
            &at,
        ));
        let recorded = self.record(&entries);
        let after = self.ctx.as_ref().map_or(0, crate::fold::Context::estimate);
        if after.saturating_mul(10) > before.saturating_mul(9) {
            self.course.poor += 1;
        } else {
            self.course.poor = 0;
        }
        self.summary.usage.estimated = true;
        // If the disk does not take it, the state shows that; the context is right either way.
        let _ = self.sync().await;
        self.publish_entries(recorded);
        self.publish_usage();
        self.publish_compaction();
    }

    /// Abandons a brief that is being written. Answers whether there was one.
    pub(super) fn drop_brief(&mut self, why: &str) -> bool {
        let Some(w) = self.writing.take() else { return false };
        w.cancel.cancel();
        self.brief_rx = None;
        self.compact_key = None;
        for r in w.replies {
            r(Err(RpcError::new(ErrorKind::Cancelled, why)));
        }
        self.publish_compaction();
        true
    }
}
