//! The running turn as the actor sees it: its pieces, calls and messages that no entry holds yet.
//!
//! Pure bookkeeping; nothing here writes or publishes.

use crate::fold::summary::ModelChoice;
use crate::model::{Model, Spent};
use crate::turn::ToolCall;
use glrs_protocol::event::Delta;
use glrs_protocol::message::{Message, Output, Part, Role};
use glrs_protocol::params::InterruptResult;
use glrs_protocol::types::{InFlight, Phase, PieceKind, Retry, ToolRun};
use std::sync::Arc;
use tokio::task::JoinHandle;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// A piece that streams.
pub struct Piece {
    /// Its id.
    pub of: String,
    /// What it is.
    pub kind: PieceKind,
    /// The call, for tool output.
    pub call: Option<String>,
    /// The text so far.
    pub text: String,
    /// So many bytes of it are in the live journal.
    pub flushed: usize,
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
    /// Adds text; answers what clients are told of it.
    pub fn push(&mut self, text: &str) -> Delta {
        let elapsed_ms = (self.kind == PieceKind::Tool).then(|| self.started.elapsed().as_millis() as u64);
        let offset = self.text.len() as u64;
        self.text.push_str(text);
        Delta { of: self.of.clone(), piece: self.kind, offset, text: text.to_owned(), elapsed_ms }
    }

    /// As clients see it.
    pub fn in_flight(&self) -> InFlight {
        InFlight { of: self.of.clone(), piece: self.kind, text: self.text.clone() }
    }
}

impl Running {
    /// The piece of a kind that is not tied to a call, made when it is not there.
    pub fn piece(&mut self, kind: PieceKind, call: Option<&str>, next: &mut u64) -> &mut Piece {
        let found = self.pieces.iter().position(|p| p.kind == kind && p.call.as_deref() == call);
        let i = found.unwrap_or_else(|| {
            *next += 1;
            self.pieces.push(Piece {
                of: format!("p{next}"),
                kind,
                call: call.map(str::to_owned),
                text: String::new(),
                flushed: 0,
                started: Instant::now(),
            });
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
