//! The running turn as the actor sees it: its pieces, calls and messages that no entry holds yet.
//!
//! Pure bookkeeping; nothing here writes or publishes.

use super::looking::Placed;
use super::queue::Waiting;
use crate::fold::summary::ModelChoice;
use crate::model::{Model, Spent};
use crate::turn::ToolCall;
use glrs_protocol::entry::Entry;
use glrs_protocol::event::Delta;
use glrs_protocol::message::{Message, Output, Part, Role};
use glrs_protocol::params::InterruptResult;
use glrs_protocol::types::{InFlight, Phase, PieceKind, Retry, ToolRun};
use std::sync::Arc;
use tokio::task::JoinHandle;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// How much of a command's output is held while it runs, in bytes: the end of it. A quarter more may
/// be there, so that not every piece moves all of it.
const TAIL: usize = 1024 * 1024;
/// How much of it the live journal is given, in bytes: the beginning. What a crash leaves of a call
/// is clipped to less.
const JOURNAL: usize = 256 * 1024;

/// A piece that streams.
pub struct Piece {
    /// Its id.
    pub of: String,
    /// What it is.
    pub kind: PieceKind,
    /// The call, for tool output.
    pub call: Option<String>,
    /// The text so far; of a command's output the end of it.
    pub text: String,
    /// So many bytes came before that and are held no more.
    pub gone: usize,
    /// So many bytes were given to the live journal, or passed over once it had enough.
    flushed: usize,
    /// When it began.
    pub started: Instant,
}

/// A call of the running step.
pub struct CallState {
    /// The call.
    pub call: ToolCall,
    /// One line for people, once it has started.
    pub detail: String,
    /// When it started.
    pub started: Option<Instant>,
    /// Its result, once it has ended.
    pub output: Option<Output>,
}

/// The running turn.
pub struct Running {
    /// Number of the user entry that started it.
    pub user: u64,
    /// The task that runs it.
    pub task: JoinHandle<()>,
    /// Esc.
    pub cancel: CancellationToken,
    /// Whom it talks to.
    pub model: Option<Arc<dyn Model>>,
    /// The name of that, and the effort it was begun with: what is chosen meanwhile counts from the next turn
    /// on.
    pub chosen: ModelChoice,
    /// When it started.
    pub started: Instant,
    /// The same, for people.
    pub since: String,
    /// The step, from 1; 0 before the first.
    pub step: u32,
    /// What it does.
    pub phase: Phase,
    /// The retry that is waited for.
    pub retry: Option<Retry>,
    /// Tools that run.
    pub tools: Vec<ToolRun>,
    /// Messages it began with, until what it works in was looked at; then they are in `users`.
    pub rows: Vec<Waiting>,
    /// What rules count from.
    pub place: Arc<Placed>,
    /// User messages that no `turn` entry holds yet.
    pub users: Vec<Arc<Message>>,
    /// The assistant message whose calls run.
    pub assistant: Option<Message>,
    /// Those calls, in order.
    pub calls: Vec<CallState>,
    /// What streams.
    pub pieces: Vec<Piece>,
    /// What its last answer said of the subscription.
    pub spent: Vec<Spent>,
    /// Entries of the answer that ended it, each with the piece it completes: they are recorded with the
    /// turn's end.
    pub said: Vec<(Entry, Option<String>)>,
    /// Set once esc came: who waits for it, and when the turn is ended by force.
    pub stopping: Option<Stopping>,
}

/// A turn that is being stopped.
pub struct Stopping {
    /// Calls to answer when it has settled.
    pub replies: Vec<super::Reply<InterruptResult>>,
    /// When waiting for its task ends.
    pub deadline: Instant,
    /// Whether what waits is held afterwards.
    pub hold: bool,
    /// What to say about it instead of the usual notice (the daemon stops).
    pub why: Option<String>,
}

impl Piece {
    /// A piece that has nothing yet.
    pub fn new(of: String, kind: PieceKind, call: Option<&str>) -> Self {
        let call = call.map(str::to_owned);
        Self { of, kind, call, text: String::new(), gone: 0, flushed: 0, started: Instant::now() }
    }

    /// Adds text; answers what clients are told of it.
    pub fn push(&mut self, text: &str) -> Delta {
        let elapsed_ms = (self.kind == PieceKind::Tool).then(|| self.started.elapsed().as_millis() as u64);
        let offset = (self.gone + self.text.len()) as u64;
        self.text.push_str(text);
        // Answers and thoughts are bounded by their model, and are recorded whole.
        if self.kind == PieceKind::Tool && self.text.len() > TAIL + TAIL / 4 {
            let over = self.text.len() - TAIL;
            let cut = (over..self.text.len()).find(|&i| self.text.is_char_boundary(i)).unwrap_or(over);
            self.text.drain(..cut);
            self.gone += cut;
        }
        Delta { of: self.of.clone(), piece: self.kind, offset, text: text.to_owned(), elapsed_ms }
    }

    /// Whether the live journal was given anything of it.
    pub fn journalled(&self) -> bool {
        self.flushed > 0
    }

    /// What the live journal is to be given now.
    pub fn unflushed(&mut self) -> Option<String> {
        let all = self.gone + self.text.len();
        let from = std::mem::replace(&mut self.flushed, all);
        if from == all || self.kind == PieceKind::Tool && from >= JOURNAL {
            return None;
        }
        let mut new = self.text.get(from.saturating_sub(self.gone)..).unwrap_or_default().to_owned();
        if self.kind == PieceKind::Tool && all > JOURNAL {
            // The last that it is given. Where more has come at once than is held, nothing joins.
            let room = if from < self.gone { 0 } else { JOURNAL - from };
            let cut = (0..=room.min(new.len())).rev().find(|&i| new.is_char_boundary(i)).unwrap_or(0);
            new.truncate(cut);
            new.push_str("\n[… more output came, which was not kept …]\n");
        }
        Some(new)
    }

    /// What there is of it, and that something is missing.
    pub fn shown(&self) -> String {
        match self.gone {
            0 => self.text.clone(),
            gone => format!("[… {gone} bytes left out: too much output …]\n{}", self.text),
        }
    }

    /// As clients see it.
    pub fn in_flight(&self) -> InFlight {
        InFlight { of: self.of.clone(), piece: self.kind, offset: self.gone as u64, text: self.text.clone() }
    }
}

impl CallState {
    /// Whether it is one of a server's tool, and has not ended.
    pub fn asks_a_server(&self) -> bool {
        self.output.is_none() && crate::tools::mcp::is_one(&self.call.name)
    }
}

impl Running {
    /// The piece of a kind that is not tied to a call, made when it is not there.
    pub fn piece(&mut self, kind: PieceKind, call: Option<&str>, next: &mut u64) -> &mut Piece {
        let found = self.pieces.iter().position(|p| p.kind == kind && p.call.as_deref() == call);
        let i = found.unwrap_or_else(|| {
            *next += 1;
            self.pieces.push(Piece::new(format!("p{next}"), kind, call));
            self.pieces.len() - 1
        });
        &mut self.pieces[i]
    }

    /// Takes a piece out, as its entry is being recorded.
    pub fn take_piece(&mut self, kind: PieceKind, call: Option<&str>) -> Option<Piece> {
        let i = self.pieces.iter().position(|p| p.kind == kind && p.call.as_deref() == call)?;
        Some(self.pieces.remove(i))
    }

    /// What streams, as clients see it.
    pub fn in_flight(&self) -> Vec<InFlight> {
        self.pieces.iter().map(Piece::in_flight).collect()
    }

    /// The running step's calls and results as messages; calls without a result get `missing`.
    pub fn step_messages(&mut self, missing: &str) -> Vec<Message> {
        let Some(assistant) = self.assistant.take() else { return Vec::new() };
        let parts: Vec<Part> = self
            .calls
            .drain(..)
            .map(|c| Part::ToolResult {
                id: c.call.id,
                name: c.call.name,
                output: c.output.unwrap_or_else(|| Output::Error(missing.to_owned())),
            })
            .collect();
        vec![assistant, Message { role: Role::Tool, parts }]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn much_output_is_held_and_journaled_in_part_and_offsets_go_on() {
        let mut piece = Piece::new("p1".into(), PieceKind::Tool, Some("c"));
        let line = "é".repeat(500);
        let (mut all, mut journal, mut most) = (0, String::new(), 0);
        for i in 0..5_000 {
            let delta = piece.push(&line);
            assert_eq!(delta.offset, all as u64);
            all += line.len();
            most = most.max(piece.text.len());
            if i % 7 == 0 {
                journal.extend(piece.unflushed());
            }
        }
        assert!(most <= TAIL + TAIL / 4 + line.len() && piece.text.len() >= TAIL - 1, "{most}");
        assert_eq!(piece.gone + piece.text.len(), all);
        assert_eq!(piece.in_flight().offset, piece.gone as u64);
        assert!(piece.shown().starts_with(&format!("[… {} bytes left out", piece.gone)));
        assert!(journal.len() < JOURNAL + 100 && journal.ends_with("not kept …]\n"), "{}", journal.len());
        // More at once than is held.
        let mut piece = Piece::new("p1".into(), PieceKind::Tool, None);
        piece.push("head");
        assert_eq!(piece.unflushed().as_deref(), Some("head"));
        piece.push(&"x".repeat(3 * TAIL));
        assert!(piece.unflushed().unwrap().starts_with("\n[… more output"));
        assert_eq!(piece.unflushed(), None);
        // What a model says is kept whole.
        let mut piece = Piece::new("p2".into(), PieceKind::Assistant, None);
        piece.push(&"x".repeat(3 * TAIL));
        assert_eq!((piece.text.len(), piece.unflushed().map(|t| t.len())), (3 * TAIL, Some(3 * TAIL)));
    }
}
