//! The live journal's records and their replay: what has not settled.
//!
//! Owns the meaning of `live/<id>.jsonl`: queue rows, the held flag, open requests, the running
//! turn and what has streamed of it. Pure: bytes are `store`'s business.

use super::queue::Waiting;
use glrs_protocol::types::{PieceKind, Request};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use std::collections::BTreeMap;

/// A command of a person that runs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ShellRun {
    /// Its id.
    pub call: String,
    /// Piece under which its output streams.
    pub of: String,
    /// Who runs it.
    pub by: String,
    /// The command line.
    pub command: String,
    /// Key of the call.
    pub key: String,
    /// Hash of that call's params.
    pub hash: String,
    /// When it began.
    pub at: String,
}

/// One line of the journal.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(tag = "k", rename_all = "lowercase")]
pub enum Record {
    /// A row waits (new or changed), at this position.
    Row {
        /// Its position in the queue.
        at: u64,
        /// The row.
        w: Waiting,
    },
    /// A row no longer waits.
    Gone {
        /// Its number.
        row: u64,
    },
    /// The queue is held or let go.
    Held {
        /// Whether.
        on: bool,
    },
    /// A request was opened.
    Request {
        /// The request.
        r: Request,
    },
    /// A request was answered or withdrawn.
    Resolved {
        /// Its id.
        id: String,
    },
    /// A turn runs, started by this user entry.
    Turn {
        /// Number of the user entry; 0 when no turn runs any more.
        user: u64,
    },
    /// Messages of the running step that no `turn` entry holds yet, raw.
    Step {
        /// The step, from 1.
        step: u32,
        /// User messages, then the assistant's.
        msgs: Vec<String>,
    },
    /// A call began to take effect (nobody has to be asked any more).
    Ran {
        /// The model's id of the call.
        call: String,
    },
    /// A person runs a command.
    Shell {
        /// The command.
        s: ShellRun,
    },
    /// More of a piece.
    Part {
        /// The piece.
        of: String,
        /// What it is.
        piece: PieceKind,
        /// The call, for tool output.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        call: Option<String>,
        /// The text, to be put behind what came before.
        text: String,
    },
    /// A piece is complete: its entry is in the log. A person's command has ended with its piece.
    Whole {
        /// The piece.
        of: String,
    },
}

/// A piece as far as it came.
#[derive(Clone, Debug, PartialEq)]
pub struct Part {
    /// What it is.
    pub piece: PieceKind,
    /// The call, for tool output.
    pub call: Option<String>,
    /// The text.
    pub text: String,
}

/// What a journal comes to.
#[derive(Clone, Debug, Default)]
pub struct LiveState {
    /// Rows that wait, in order.
    pub rows: Vec<Waiting>,
    /// Highest row number seen.
    pub used: u64,
    /// Whether the queue was held.
    pub held: bool,
    /// Open requests, oldest first.
    pub requests: Vec<Request>,
    /// The user entry of the running turn.
    pub turn: Option<u64>,
    /// The running step.
    pub step: u32,
    /// Its messages, raw.
    pub msgs: Vec<String>,
    /// Calls that took effect.
    pub ran: Vec<String>,
    /// Commands of people that had not ended.
    pub shells: Vec<ShellRun>,
    /// Pieces that are not complete.
    pub parts: BTreeMap<String, Part>,
}

impl LiveState {
    /// Replays a journal. Lines that are no records are passed over: a journal may be torn.
    pub fn replay<'a>(lines: impl Iterator<Item = &'a RawValue>) -> Self {
        let mut s = Self::default();
        for line in lines {
            if let Ok(r) = serde_json::from_str::<Record>(line.get()) {
                s.take(r);
            }
        }
        s
    }

    /// Leaves out what is said of a turn.
    pub fn forget_turn(&mut self) {
        self.take(Record::Turn { user: 0 });
    }

    fn take(&mut self, r: Record) {
        match r {
            Record::Row { at, w } => {
                self.used = self.used.max(w.row.row);
                self.rows.retain(|o| o.row.row != w.row.row);
                let at = usize::try_from(at).unwrap_or(usize::MAX).min(self.rows.len());
                self.rows.insert(at, w);
            }
            Record::Gone { row } => self.rows.retain(|o| o.row.row != row),
            Record::Held { on } => self.held = on,
            Record::Request { r } => {
                self.requests.retain(|o| o.request != r.request);
                self.requests.push(r);
            }
            Record::Resolved { id } => self.requests.retain(|o| o.request != id),
            Record::Turn { user } => {
                self.turn = (user > 0).then_some(user);
                self.step = 0;
                self.msgs.clear();
                self.ran.clear();
                // Commands of people go on beside turns.
                let shells = &self.shells;
                self.parts.retain(|of, _| shells.iter().any(|s| s.of == *of));
            }
            Record::Step { step, msgs } => {
                self.step = step;
                self.msgs = msgs;
                self.ran.clear();
                self.parts.retain(|_, p| p.call.is_some());
            }
            Record::Ran { call } => self.ran.push(call),
            Record::Shell { s } => self.shells.push(s),
            Record::Part { of, piece, call, text } => {
                let p = self.parts.entry(of).or_insert_with(|| Part { piece, call: None, text: String::new() });
                p.call = p.call.take().or(call);
                p.text.push_str(&text);
            }
            Record::Whole { of } => {
                self.parts.remove(&of);
                self.shells.retain(|s| s.of != of);
            }
        }
    }

    /// Whether there is anything to take up again.
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty() && self.requests.is_empty() && self.turn.is_none() && self.shells.is_empty() && !self.held
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use glrs_protocol::types::{QueueRow, SendMode};

    fn w(row: u64, text: &str) -> Waiting {
        Waiting {
            row: QueueRow {
                row,
                version: 1,
                by: "t#1".into(),
                mode: SendMode::Queue,
                text: text.into(),
                attachments: vec![],
                at: String::new(),
            },
            key: format!("k{row}"),
            hash: String::new(),
            pos: 0,
        }
    }

    #[test]
    fn a_journal_replays_and_garbage_costs_only_itself() {
        let records = [
            Record::Row { at: 0, w: w(1, "a") },
            Record::Row { at: 1, w: w(2, "b") },
            Record::Row { at: 0, w: w(3, "c") },
            Record::Gone { row: 1 },
            Record::Turn { user: 7 },
            Record::Part { of: "p1".into(), piece: PieceKind::Assistant, call: None, text: "he".into() },
            Record::Part { of: "p1".into(), piece: PieceKind::Assistant, call: None, text: "llo".into() },
            Record::Held { on: true },
        ];
        let mut lines: Vec<Box<RawValue>> =
            records.iter().map(|r| serde_json::value::to_raw_value(r).unwrap()).collect();
        lines.insert(3, serde_json::value::to_raw_value("garbage").unwrap());
        let s = LiveState::replay(lines.iter().map(|l| &**l));
        assert_eq!(s.rows.iter().map(|w| w.row.row).collect::<Vec<_>>(), [3, 2]);
        assert_eq!((s.turn, s.held, s.used, s.parts["p1"].text.as_str()), (Some(7), true, 3, "hello"));
    }
}
