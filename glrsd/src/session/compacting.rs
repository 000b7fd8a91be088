//! Compaction as the actor runs it: triggers, gates, the brief beside the turn, landing.
//!
//! Owns compaction.md "When" and "Landing". What is cut, what is asked and how an artifact reads
//! are [`crate::compact`]'s business.

use super::actor::Actor;
use super::history::keyed_hash;
use super::toolctx::recall;
use super::{Reply, Who};
use crate::compact::{Numbers, RESERVE_MAX, artifact, brief, cut, micro};
use crate::fold::context::Stored;
use crate::fold::micro::{entry_of, is_marker};
use crate::store::Store;
use crate::turn::prompt::has_place;
use glrs_protocol::entry::{Compacted, Entry};
use glrs_protocol::event::{CompactionEvent, Event};
use glrs_protocol::message::{Message, Output, Part};
use glrs_protocol::params::{Compact, CompactResult};
use glrs_protocol::types::{Compaction, CompactionState};
use glrs_protocol::{ErrorKind, RpcError, SessionId};
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
    /// A person asked for it.
    forced: bool,
    /// The history it was cut from: a later clear, rewind or compaction makes another one.
    generation: u64,
    replies: Vec<Reply<CompactResult>>,
    /// The answer, once it is there and waits for the turn's end.
    ready: Option<Result<String, String>>,
}

impl Actor {
    /// The numbers that display, trigger and list use.
    pub(super) fn numbers(&self) -> Numbers {
        let row = self.shared.models.describe(&self.config, &self.model);
        Numbers::of(&self.config.config, self.window, row.output.unwrap_or(RESERVE_MAX))
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
    pub(super) async fn compaction_due(&mut self) -> bool {
        let free = self.writing.is_none() && self.stopping.is_none() && self.disk.ok;
        if !free || !self.course.ready() || self.numbers().line == 0 {
            return false;
        }
        // What is only estimated is estimated from the history, so that has to be in memory.
        if self.usage().estimated && !self.log.is_empty() && self.fold_context().await.is_err() {
            return false;
        }
        self.numbers().past(self.usage().context_tokens)
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
        if self.running.is_some() {
            return reply(Err(self.busy("compact")));
        }
        if let Some(w) = &mut self.writing {
            if p.key.is_some() && self.compact_key == p.key.map(|k| (k, hash)) {
                // The same call again, on another connection: it gets the same answer.
                w.replies.push(reply);
                return;
            }
            return reply(Err(RpcError::new(
                ErrorKind::Busy { state: "compacting".into() },
                "a brief is being written already: wait for it, or stop it (esc)",
            )));
        }
        if !self.disk.ok {
            return reply(Err(self.disk_error()));
        }
        if self.stopping.is_some() {
            return reply(Err(RpcError::new(ErrorKind::ShuttingDown, "the daemon is stopping: try again in a moment")));
        }
        self.course.refresh();
        self.compact_key = p.key.map(|k| (k, hash));
        let instruction = p.instruction.filter(|i| !i.trim().is_empty());
        self.start_brief(true, instruction, vec![reply]).await;
    }

    /// Cuts and starts writing the brief. Where nothing can be cut, large old results make room.
    /// Answers whether anything could be done.
    pub(super) async fn start_brief(
        &mut self,
        forced: bool,
        instruction: Option<String>,
        replies: Vec<Reply<CompactResult>>,
    ) -> bool {
        let fail = |replies: Vec<Reply<CompactResult>>, e: &RpcError| {
            for r in replies {
                r(Err(e.clone()));
            }
        };
        self.course.began();
        if let Err(why) = self.fold_context().await {
            self.compact_key = None;
            fail(replies, &RpcError::internal(why));
            return false;
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
        let Some(ctx) = &self.ctx else { return false };
        let stored: Vec<Stored> = ctx.stored().to_vec();
        let estimate = ctx.estimate();
        // A history that the model refused as too long is longer than it looks: any cut is better.
        let wide = || cut::find(&stored, &cut::Rules { forced: true, ..rules });
        let found = cut::find(&stored, &rules).or_else(|| self.course.overflowed.then(wide).flatten());
        let Some(found) = found else {
            if forced {
                self.compact_key = None;
                self.trace_compaction("nothing to do");
                let notice = "(nothing worth compacting yet)".to_owned();
                for r in replies {
                    r(Ok(CompactResult { outcome: "nothing".into(), notice: notice.clone() }));
                }
                return false;
            }
            if !self.micro_compact().await {
                return false;
            }
            let after = self.ctx.as_ref().map_or(0, crate::fold::Context::estimate);
            self.judge(estimate, after);
            return true;
        };
        let name = config.compact_model.clone().unwrap_or_else(|| self.model.clone());
        let model = match self.shared.models.resolve(&self.config, &name, &self.env) {
            Ok(m) => m,
            Err(f) => {
                self.brief_failed(&f.message, replies).await;
                return true;
            }
        };
        self.announce(&name, model.row().context).await;
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
            forced,
            generation: self.course.generation,
            replies,
            ready: None,
        });
        self.brief_rx = Some(rx);
        self.trace_compaction(if forced { "begun by a person" } else { "begun" });
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
        true
    }

    /// Says once per session that the transcript goes to another company, and that the summariser
    /// reads less at once than is summarised.
    async fn announce(&mut self, name: &str, context: u64) {
        let small = self.config.config.compact_model.is_some() && context < self.numbers().window;
        if small && !std::mem::replace(&mut self.course.small_told, true) {
            let words = format!(
                "(compactModel {name} has a window of {context} tokens, less than is compacted at once: \
                 the conversation is sent to it in parts)"
            );
            let recorded = self.record(&[Entry::notice(words, &self.now())]);
            self.publish_entries(recorded);
        }
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
            self.trace_compaction("dropped");
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
        self.trace_compaction("landed");
        let recorded = self.record(&entries);
        // Instructions that are still in what was kept are not sent a second time.
        let told = |s: &Stored| s.message.parts.iter().any(|p| matches!(p, Part::Text(t) if has_place(t)));
        if !self.ctx.as_ref().is_some_and(|c| c.stored().iter().any(told)) {
            self.told = None;
        }
        let synced = if recorded.is_empty() { Err(self.not_recorded()) } else { self.sync().await };
        for r in w.replies {
            r(match &synced {
                Ok(()) => Ok(CompactResult { outcome: "compacted".into(), notice: notice.clone() }),
                Err(e) => Err(e.clone()),
            });
        }
        self.publish_entries(recorded);
        let left = |a: &Self| a.ctx.as_ref().map_or(0, crate::fold::Context::estimate);
        if self.numbers().past(left(self)) && !w.forced {
            // The cut alone does not get under the line.
            self.micro_compact().await;
        }
        if !w.forced {
            let after = left(self);
            self.judge(w.estimate, after);
        }
        self.publish_compaction();
        self.publish_usage();
        self.go_on = true;
    }

    /// Notes how much an attempt freed, and says so where it gives up.
    fn judge(&mut self, before: u64, after: u64) {
        if self.course.judge(before, after) {
            let words =
                "(compaction frees too little to go on by itself: /clear, or choose a model with a larger window)";
            let recorded = self.record(&[Entry::notice(words, &self.now())]);
            self.publish_entries(recorded);
        }
        self.publish_compaction();
    }

    async fn keep_artifact(&mut self, head: &artifact::Head, messages: &[Arc<Message>]) -> Result<String, String> {
        let (store, id) = (self.shared.store.clone(), self.id.clone());
        let (head, messages) = (head.clone(), messages.to_vec());
        let kept = tokio::task::spawn_blocking(move || {
            let text = artifact::render(&head, &whole(&store, &id, messages));
            let at = head.created_at;
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
        self.course.failed();
        self.trace_compaction("failed");
        let words = format!("(compaction failed: {why})");
        let recorded = self.record(&[Entry::notice(words.clone(), &self.now())]);
        for r in replies {
            r(Err(RpcError::new(ErrorKind::Provider { status: None }, words.clone())));
        }
        self.publish_entries(recorded);
        self.publish_compaction();
        self.publish_state();
    }

    /// Replaces large old results by markers, in the context only. Answers whether there were any.
    async fn micro_compact(&mut self) -> bool {
        let Some(ctx) = &self.ctx else { return false };
        let chosen = micro::choose(ctx.stored(), ctx.tools(), &self.config.config.micro);
        if chosen.is_empty() {
            return false;
        }
        self.trace_compaction("results cleared");
        let at = self.now();
        let count = chosen.len();
        let mut entries: Vec<Entry> =
            Entry::custom("glrs:micro", &MicroEntry { entries: chosen }, &at).into_iter().collect();
        entries.push(Entry::notice(
            format!("(made room: {count} large older tool results cleared from the context)"),
            &at,
        ));
        let recorded = self.record(&entries);
        // If the disk does not take it, the state shows that; the context is right either way.
        let _ = self.sync().await;
        self.publish_entries(recorded);
        self.publish_usage();
        true
    }

    /// Abandons a brief that is being written. Answers whether there was one.
    pub(super) fn drop_brief(&mut self, why: &str) -> bool {
        let Some(w) = self.writing.take() else { return false };
        w.cancel.cancel();
        self.brief_rx = None;
        self.compact_key = None;
        self.trace_compaction("abandoned");
        for r in w.replies {
            r(Err(RpcError::new(ErrorKind::Cancelled, why)));
        }
        self.publish_compaction();
        true
    }
}

/// The messages with the results in them that were cleared: an artifact holds them whole.
fn whole(store: &Store, id: &SessionId, messages: Vec<Arc<Message>>) -> Vec<Arc<Message>> {
    let restored = |p: &Part| match p {
        Part::ToolResult { id: call, name, output } => {
            let text = recall(store, id, entry_of(output)?).ok()?;
            Some(Part::ToolResult { id: call.clone(), name: name.clone(), output: Output::Text(text) })
        }
        _ => None,
    };
    let one = |m: Arc<Message>| {
        let cleared = |p: &Part| matches!(p, Part::ToolResult { output, .. } if is_marker(output));
        if !m.parts.iter().any(cleared) {
            return m;
        }
        let parts = m.parts.iter().map(|p| restored(p).unwrap_or_else(|| p.clone())).collect();
        Arc::new(Message { role: m.role, parts })
    };
    messages.into_iter().map(one).collect()
}
