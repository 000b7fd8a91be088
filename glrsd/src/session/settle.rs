//! How a turn ends: exactly once, with everything that finished kept.
//!
//! Owns turns.md "a turn settles exactly once": the closing `turn` entry, partial text, results for
//! calls that have none, the marker the model sees, notices, withdrawn requests, and what happens
//! to what waits.

use super::actor::Actor;
use super::live::Record;
use super::looking;
use super::running::{CallState, Running, Stopping};
use super::turning::{failure_words, turn_entry};
use crate::fold::Context;
use crate::model::{Failure, FailureKind};
use crate::store::Store;
use crate::tools::clip;
use glrs_protocol::SessionId;
use glrs_protocol::entry::{self, Entry, TurnStatus};
use glrs_protocol::message::{Message, Part, Role};
use glrs_protocol::params::InterruptResult;
use glrs_protocol::types::PieceKind;
use std::collections::HashMap;
use std::time::Duration;
use tokio::time::Instant;

/// How long an interrupted turn may take to wind up before it is ended by force. Esc is answered
/// within 200 ms even when a provider or a tool is silent.
const GRACE: Duration = Duration::from_millis(150);

/// How long keeping what broken calls have shown may take in all.
const KEEPING: Duration = Duration::from_millis(30);

/// What the model reads where a turn was interrupted.
const INTERRUPTED: &str = "[The turn above was interrupted before it was finished.]";
/// What the model reads where a turn failed.
const FAILED: &str = "[The turn above ended with an error before it was finished.]";
/// What a call gets that esc broke.
const BROKEN_CALL: &str = "Interrupted: this call did not finish. It may have had an effect.";

/// Why a turn ends.
pub(super) enum End {
    /// The model was done.
    Done,
    /// It said nothing at all.
    Silent,
    /// Its output limit was reached.
    Length,
    /// The provider refused to go on.
    Refused(String),
    /// The step ceiling.
    Limit,
    /// Esc, or the daemon stops.
    Interrupted,
    /// The model call failed.
    Failed(Box<Failure>),
    /// Stopped to make room.
    Context,
    /// The session's directory is gone.
    CwdGone,
    /// It does not answer.
    CwdSilent,
    /// The disk does not take entries.
    Disk,
    /// A fault of the daemon.
    Internal,
}

/// What calls that have no result have shown: the call, the text, and whether it is all of it.
fn broken_output(r: &Running) -> Vec<(String, String, bool)> {
    let broken = r.calls.iter().filter(|c| c.output.is_none());
    let piece = |c: &CallState| r.pieces.iter().find(|p| p.call.as_deref() == Some(&c.call.id));
    broken.filter_map(|c| piece(c).map(|p| (c.call.id.clone(), p.shown(), p.gone == 0))).collect()
}

/// Clips what calls have shown, and keeps all of it beside the session where it is too much. A disk
/// that is slow keeps nobody waiting: then nothing is named that has it.
async fn keep_broken(
    store: Store,
    id: SessionId,
    shown: Vec<(String, String, bool)>,
    most: Duration,
) -> HashMap<String, (String, Option<String>)> {
    let mut all = HashMap::new();
    let until = Instant::now() + most;
    for (call, shown, whole) in shown {
        let (text, cut) = clip::clip(&shown, crate::turn::RESULT_CHARS - 200);
        let mut blob = None;
        if cut {
            let (store, id) = (store.clone(), id.clone());
            let put = tokio::task::spawn_blocking(move || store.put_blob(&id, shown.as_bytes()));
            blob = tokio::time::timeout_at(until, put).await.ok().and_then(Result::ok).and_then(Result::ok);
        }
        let text = match &blob {
            Some(hash) => clip::name_blob(&text, hash, whole),
            None if cut => clip::no_blob(&text),
            None => text,
        };
        all.insert(call, (text, blob));
    }
    all
}

impl Actor {
    /// Asks the running turn to stop. With `hold` what waits is held afterwards.
    pub(super) async fn cancel_turn(&mut self, hold: bool, why: Option<String>) {
        let Some(r) = &mut self.running else { return };
        r.cancel.cancel();
        match &mut r.stopping {
            Some(s) => {
                s.hold |= hold;
                s.why = s.why.take().or(why);
            }
            None => {
                r.stopping = Some(Stopping { replies: Vec::new(), deadline: Instant::now() + GRACE, hold, why });
            }
        }
    }

    /// The grace is over: the turn ends whatever its task does.
    pub(super) async fn stop_by_force(&mut self) {
        // What the task has said by now still counts.
        while let Some(event) = self.events.as_mut().and_then(super::events::Events::try_recv) {
            self.turn_event(event).await;
            if self.running.is_none() {
                return;
            }
        }
        self.settle(End::Interrupted).await;
    }

    /// Ends the running turn. Everything it did is in one write, synced before anyone is told.
    pub(super) async fn settle(&mut self, end: End) {
        let Some(mut r) = self.running.take() else { return };
        self.events = None;
        r.cancel.cancel();
        r.task.abort();
        let at = self.now();
        let stopping = r.stopping.take();
        let end = match end {
            End::Failed(f) if f.kind == FailureKind::Cancelled => End::Interrupted,
            End::Failed(f) if f.kind == FailureKind::Overflow && self.makes_room_once() => End::Context,
            other => other,
        };
        if let End::Failed(f) = &end {
            self.trace_failure(&r, f);
        }
        let mut entries = std::mem::take(&mut r.said);
        let mut messages: Vec<Message> = r.users.drain(..).map(|m| (*m).clone()).collect();
        if !r.rows.is_empty() {
            // It ended while its directory was looked at. Where the history is not in memory the messages
            // stay without a turn, and the next one takes them up.
            messages.extend(self.ctx.as_mut().map(Context::take_pending).unwrap_or_default());
        }

        // What had streamed is kept, marked.
        if let Some(p) = r.take_piece(PieceKind::Reasoning, None) {
            let elapsed_ms = p.started.elapsed().as_millis() as u64;
            let e = entry::Reasoning { text: p.text, elapsed_ms, variant: r.chosen.variant.clone(), at: at.clone() };
            entries.push((Entry::Reasoning(e), Some(p.of)));
        }
        if let Some(p) = r.take_piece(PieceKind::Assistant, None)
            && !p.text.trim().is_empty()
        {
            self.task_text(&p.text);
            messages.push(Message { role: Role::Assistant, parts: vec![Part::Text(p.text.clone())] });
            entries
                .push((Entry::Assistant(entry::Assistant { text: p.text, partial: true, at: at.clone() }), Some(p.of)));
        }
        entries.extend(self.children_over().into_iter().map(|e| (e, None)));
        let mut kept = keep_broken(self.shared.store.clone(), self.id.clone(), broken_output(&r), KEEPING).await;
        // Calls that have no result are entries of their own, those that had not begun as well: the
        // model is told of each.
        for c in r.calls.iter().filter(|c| c.output.is_none()) {
            let detail = if c.started.is_some() { c.detail.clone() } else { self.detail_of(&c.call) };
            let of = r.tools.iter().find(|t| t.call_id == c.call.id).map(|t| t.of.clone());
            let (text, blob) = kept.remove(&c.call.id).unwrap_or_default();
            let result = if text.is_empty() { BROKEN_CALL.to_owned() } else { format!("{text}\n[{BROKEN_CALL}]") };
            let tool = entry::Tool {
                name: c.call.name.clone(),
                detail,
                elapsed_ms: c.started.map_or(0, |s| s.elapsed().as_millis() as u64),
                ok: false,
                input: Some(c.call.input.clone()),
                result: Some(result),
                call_id: Some(c.call.id.clone()),
                blob,
                at: at.clone(),
                ..entry::Tool::default()
            };
            entries.push((Entry::Tool(tool), of));
        }
        self.trace_broken(&r);
        if r.calls.is_empty() {
            messages.extend(r.assistant.take());
        } else {
            messages.extend(r.step_messages(BROKEN_CALL));
        }
        let (status, notice, marker) = self.closing(&end, stopping.as_ref());
        self.trace_turn(&r, status);
        if let End::Failed(f) = &end
            && let Some(t) = f.tokens
        {
            let usage = entry::Usage {
                tokens: t.input + t.output,
                cached: t.cached,
                input: Some(t.input),
                output: Some(t.output),
                cost: t.cost,
                model: Some(r.chosen.model.clone()),
                duration_ms: None,
                at: at.clone(),
            };
            entries.push((Entry::Usage(usage), None));
        }
        let words = match &notice {
            Some(Entry::Notice(n)) => n.text.trim_matches(['(', ')']).to_owned(),
            Some(Entry::Error(e)) => e.text.clone(),
            _ => String::new(),
        };
        messages.extend(marker.filter(|_| !messages.is_empty()).map(|m| Message::text(Role::User, m)));
        entries.extend(notice.map(|n| (n, None)));
        entries.push((turn_entry(&messages, status, &at), None));

        let plain: Vec<Entry> = entries.iter().map(|(e, _)| e.clone()).collect();
        let recorded = self.record(&plain);
        let synced = self.sync().await.is_ok();
        if self.shells.is_empty() {
            self.flush_at = None;
        }
        // What waits for a directory that does not answer would fail in the same way, one by one.
        let hold = matches!(end, End::CwdSilent)
            || matches!(end, End::Interrupted) && stopping.as_ref().is_none_or(|s| s.hold);
        self.withdraw_all();
        self.task_over(status, words, r.step);
        self.requeue_steers();
        let make_room = matches!(end, End::Context) && self.writing.is_none();
        if hold && !self.queue.rows.is_empty() {
            self.set_held(true);
        }
        for reply in stopping.map(|s| s.replies).unwrap_or_default() {
            reply(Ok(InterruptResult { outcome: "interrupted".into() }));
        }
        for ((n, raw), (_, of)) in recorded.into_iter().zip(entries) {
            self.publish_entry(n, raw, of);
        }
        self.publish_usage();
        if synced && !self.is_settled() {
            // Else the journal is emptied as soon as everyone was told.
            self.note(&Record::Turn { user: 0 });
        }
        self.touch();
        self.course.awake = true;
        if make_room && !self.start_brief(false, None, Vec::new()).await {
            let words = "(the conversation is too long for the model, and nothing of it can be summarised: /clear, or choose a model with a larger window)";
            let recorded = self.record(&[Entry::notice(words, &self.now())]);
            self.publish_entries(recorded);
        }
        self.land().await;
        self.publish_compaction();
        self.go_on = true;
    }

    /// Whether a history that is too long for the model is answered with a compaction: once, until
    /// a provider reports again; never while that is switched off.
    fn makes_room_once(&mut self) -> bool {
        let yes = self.numbers().line > 0 && !self.course.overflowed && !self.course.stuck();
        self.course.overflowed = true;
        yes
    }

    /// Status, what people read and what the model reads.
    fn closing(&self, end: &End, stopping: Option<&Stopping>) -> (TurnStatus, Option<Entry>, Option<&'static str>) {
        let at = self.now();
        let notice = |t: &str| Some(Entry::notice(t, &at));
        match end {
            End::Done => (TurnStatus::Done, None, None),
            End::Silent => (TurnStatus::Done, notice("(the model ended its turn without a word)"), None),
            End::Length => {
                (TurnStatus::Done, notice("(the model's output limit was reached: send \"continue\" to go on)"), None)
            }
            End::Refused(word) => (
                TurnStatus::Failed,
                Some(Entry::error(
                    format!("the model refused to go on ({word}): say it differently, or choose another model"),
                    &at,
                )),
                Some(FAILED),
            ),
            End::Limit => (TurnStatus::Limit, notice("(step limit reached: send \"continue\" to resume)"), None),
            End::Interrupted => {
                let words = stopping.and_then(|s| s.why.clone()).unwrap_or_else(|| "interrupted".to_owned());
                (TurnStatus::Interrupted, notice(&format!("({words})")), Some(INTERRUPTED))
            }
            End::Failed(f) => (TurnStatus::Failed, Some(Entry::error(failure_words(f), &at)), Some(FAILED)),
            End::Context => {
                (TurnStatus::Context, notice("(compacting to make room: send \"continue\" to resume)"), None)
            }
            End::CwdGone => (
                TurnStatus::Failed,
                Some(Entry::error(
                    format!(
                        "the session's directory {} is gone: bring it back, or choose another (session/set cwd, or `glrs attach {} --cwd DIR`)",
                        self.cwd.display(),
                        self.id
                    ),
                    &at,
                )),
                Some(FAILED),
            ),
            End::CwdSilent => {
                let words = format!("{}; send again when it does", looking::silence(&self.cwd));
                (TurnStatus::Failed, Some(Entry::error(words, &at)), Some(FAILED))
            }
            End::Disk => (TurnStatus::Failed, Some(Entry::error(self.disk_error().message, &at)), Some(FAILED)),
            End::Internal => (
                TurnStatus::Failed,
                Some(Entry::error(
                    "glrsd failed inside this turn; what had finished is kept: send \"continue\" to resume",
                    &at,
                )),
                Some(FAILED),
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::Paths;

    #[tokio::test]
    async fn what_a_broken_call_has_shown_is_clipped_and_the_rest_kept() {
        let dir = tempfile::tempdir().unwrap();
        let paths = Paths::scratch(dir.path());
        let store = Store::open(paths).unwrap();
        let id: SessionId = "cafe0001".parse().unwrap();
        let long = "x".repeat(50_000);
        let call = |name: &str, text: &str, whole| (name.to_owned(), text.to_owned(), whole);
        let shown = vec![call("short", "a few words", true), call("long", &long, true), call("part", &long, false)];
        let kept = keep_broken(store.clone(), id.clone(), shown.clone(), Duration::from_secs(60)).await;
        assert_eq!(kept["short"], ("a few words".to_owned(), None));
        let (text, blob) = &kept["long"];
        let hash = blob.as_deref().unwrap();
        assert!(text.len() < 30_000 && text.contains(&format!("the whole is in blob {hash}")));
        assert_eq!(store.get_blob(&id, hash).unwrap().unwrap(), long.as_bytes());
        assert!(kept["part"].0.contains("all that was kept") && !kept["part"].0.contains("whole"));
        // A disk that takes too long: what is clipped names nothing that has the rest.
        let kept = keep_broken(store, id, shown, Duration::ZERO).await;
        assert!(kept["long"].0.contains("characters left out …]") || kept["long"].1.is_some());
    }
}
