//! The witness trace: when things happened in a session, how long they took, and who or what decided.
//!
//! Owns what a line of it may say: names, numbers, times, rules and who answered. Never contents:
//! no text of a person, a model, a tool or a file, no command, no error message. It is for looking
//! into a session, is never read back into one, and losing it costs nothing.

use super::actor::Actor;
use super::running::Running;
use crate::model::{Failure, Reply, Stop};
use crate::store::Store;
use crate::turn::Ended;
use glrs_protocol::entry::{Child, TurnStatus};
use glrs_protocol::params::{TraceRead, TraceResult};
use glrs_protocol::types::Retry;
use glrs_protocol::{ErrorKind, RpcError};
use serde::Serialize;
use serde_json::value::RawValue;
use std::sync::PoisonError;

/// Bytes of a trace that are read at once.
const PAGE: usize = 1 << 20;

/// Something that is worth a line.
#[derive(Debug, Serialize)]
#[serde(tag = "kind", rename_all = "lowercase", rename_all_fields = "camelCase")]
pub(super) enum Witness<'a> {
    /// A turn ended.
    Turn { user: u64, status: &'a str, steps: u32, ms: u64 },
    /// A model call ended well.
    Model { model: &'a str, step: u32, ms: u64, input: u64, output: u64, cached: u64, calls: usize, stop: &'a str },
    /// A model call failed for good.
    Failed {
        model: &'a str,
        step: u32,
        why: String,
        #[serde(skip_serializing_if = "Option::is_none")]
        status: Option<u16>,
    },
    /// A model call is made again.
    Retry { attempt: u32, next: &'a str },
    /// A call of a tool ended.
    Tool {
        tool: &'a str,
        ms: u64,
        ok: bool,
        bytes: usize,
        #[serde(skip_serializing_if = "Option::is_none")]
        by: Option<&'a str>,
    },
    /// A call was let run or not: by the mode, a rule, or a person.
    Permission {
        tool: &'a str,
        decision: &'a str,
        by: &'a str,
        #[serde(skip_serializing_if = "Option::is_none")]
        rule: Option<&'a str>,
    },
    /// A person was asked.
    Asked { tool: &'a str, request: &'a str },
    /// A request was withdrawn: its turn ended before anyone answered.
    Withdrawn { tool: &'a str, request: &'a str },
    /// A call has no result: esc or the end of its turn broke it, or came before it had begun.
    Broken { tool: &'a str, ms: u64, begun: bool },
    /// A session was started to do a task, or its task has ended.
    Task { child: &'a str, what: &'a str },
    /// Something was decided about making room.
    Compaction { what: &'a str, tokens: u64 },
}

#[derive(Serialize)]
struct Line<'a> {
    at: &'a str,
    #[serde(flatten)]
    what: &'a Witness<'a>,
}

impl Actor {
    /// Adds a line. It is written once whoever waits for what happened has been told.
    pub(super) fn trace(&self, what: &Witness<'_>) {
        let Ok(line) = serde_json::to_string(&Line { at: &self.now(), what }) else { return };
        let mut lines = self.traced.lock().unwrap_or_else(PoisonError::into_inner);
        lines.push_str(&line);
        lines.push('\n');
    }

    /// Writes the lines. A disk that does not take them is no matter: what matters shows that itself.
    pub(super) fn write_trace(&mut self) {
        let lines = std::mem::take(self.traced.get_mut().unwrap_or_else(PoisonError::into_inner));
        if lines.is_empty() || self.deleted {
            return;
        }
        if let Err(e) = self.shared.store.append_trace(&self.id, &lines) {
            tracing::debug!(session = %self.id, error = %e, "the trace was not written");
        }
    }

    pub(super) fn trace_reply(&self, reply: &Reply, ms: u64) {
        let tokens = reply.tokens.unwrap_or_default();
        let stop = match &reply.stop {
            Stop::End => "end",
            Stop::Tools => "tools",
            Stop::Length => "length",
            Stop::Refused(_) => "refused",
        };
        self.trace(&Witness::Model {
            model: self.running.as_ref().map_or(&*self.model, |r| &r.chosen.model),
            step: self.running.as_ref().map_or(0, |r| r.step),
            ms,
            input: tokens.input,
            output: tokens.output,
            cached: tokens.cached,
            calls: crate::turn::calls_of(reply).len(),
            stop,
        });
    }

    pub(super) fn trace_failure(&self, r: &Running, f: &Failure) {
        let why = format!("{:?}", f.kind).to_lowercase();
        self.trace(&Witness::Failed { model: &r.chosen.model, step: r.step, why, status: f.status });
    }

    pub(super) fn trace_retry(&self, retry: &Retry) {
        self.trace(&Witness::Retry { attempt: retry.attempt, next: &retry.at });
    }

    pub(super) fn trace_tool(&self, e: &Ended, by: Option<&str>) {
        self.trace(&Witness::Tool { tool: &e.call.name, ms: e.elapsed_ms, ok: e.ok, bytes: e.result.len(), by });
    }

    pub(super) fn trace_turn(&self, r: &Running, status: TurnStatus) {
        let ms = r.started.elapsed().as_millis() as u64;
        self.trace(&Witness::Turn { user: r.user, status: status.as_str(), steps: r.step, ms });
    }

    pub(super) fn trace_broken(&self, r: &Running) {
        for c in r.calls.iter().filter(|c| c.output.is_none()) {
            let ms = c.started.map_or(0, |started| started.elapsed().as_millis() as u64);
            self.trace(&Witness::Broken { tool: &c.call.name, ms, begun: c.started.is_some() });
        }
    }

    pub(super) fn trace_task(&self, child: &Child) {
        let what = child.outcome.as_ref().map_or("started", |s| s.as_str());
        self.trace(&Witness::Task { child: &child.child, what });
    }

    pub(super) fn trace_compaction(&self, what: &str) {
        self.trace(&Witness::Compaction { what, tokens: self.usage().context_tokens });
    }
}

/// A part of a session's trace.
///
/// # Errors
/// When there is no such session, or the disk does not give it.
pub fn read(store: &Store, p: &TraceRead) -> Result<TraceResult, RpcError> {
    let disk = |e: crate::store::DiskError| {
        RpcError::new(ErrorKind::Disk { path: e.path.display().to_string(), why: e.why.clone() }, e.to_string())
    };
    let Some(bytes) = store.read_trace(&p.id, p.offset, PAGE).map_err(disk)? else {
        // Nothing has happened in it yet, or it is none of ours.
        return if store.exists(&p.id) {
            Ok(TraceResult { lines: Vec::new(), next: None })
        } else {
            Err(RpcError::no_session(p.id.as_str()))
        };
    };
    let whole = bytes.iter().rposition(|b| *b == b'\n').map_or(0, |at| at + 1);
    let text = String::from_utf8_lossy(&bytes[..whole]);
    // A line that a crash cut is passed over.
    let lines = text.lines().filter_map(|l| serde_json::from_str::<Box<RawValue>>(l).ok()).collect();
    let next = (bytes.len() == PAGE && whole > 0).then(|| p.offset + whole as u64);
    Ok(TraceResult { lines, next })
}
