//! What a fake answers: scripted replies and the gates that hold them.
//!
//! Owns the script only; how a reply looks on the wire is its dialect's business.

use super::Dialect;
use crate::wait::{PATIENCE, Watched};
use serde_json::Value;
use std::sync::Arc;

/// Holds a stream at one point until a test lets it go on. Clones are the same gate.
#[derive(Clone, Debug, Default)]
pub struct Gate(Arc<Watched<GateState>>);

#[derive(Debug, Default)]
struct GateState {
    reached: bool,
    open: bool,
}

impl Gate {
    /// A closed gate.
    pub fn new() -> Self {
        Self::default()
    }

    /// Lets everything through from now on.
    pub fn open(&self) {
        self.0.update(|g| g.open = true);
    }

    /// Waits until a stream stands at the gate: all that is scripted before it has been sent.
    ///
    /// # Panics
    /// When none comes.
    #[track_caller]
    pub fn wait_reached(&self) {
        let reached = self.0.wait_for(PATIENCE, |g| g.reached.then_some(()));
        assert!(reached.is_some(), "no stream reached the gate");
    }

    /// Marks it reached; true when it is open. Waits a moment when it is not.
    pub(super) fn pass(&self) -> bool {
        self.0.update(|g| g.reached = true);
        self.0.wait_for(std::time::Duration::from_millis(20), |g| g.open.then_some(())).is_some()
    }
}

/// One thing a stream does.
#[derive(Clone, Debug)]
pub(super) enum Step {
    /// A piece of the answer.
    Text(String),
    /// A reasoning block: its pieces, and the signature that seals it.
    Reasoning { pieces: Vec<String>, signature: String },
    /// A tool call. `input` is JSON text, cut where a script wants it so.
    Tool { id: Option<String>, name: String, input: String },
    /// Wait.
    Gate(Gate),
    /// These bytes, as they are.
    Raw(Vec<u8>),
    /// An error inside the stream.
    Error { kind: String, message: String },
}

/// Token figures of a reply.
#[derive(Clone, Copy, Debug)]
pub struct Figures {
    /// Input tokens that were neither read from nor written to the cache.
    pub input: u64,
    /// Output tokens.
    pub output: u64,
    /// Input tokens read from the cache.
    pub cache_read: u64,
    /// Input tokens written to the cache.
    pub cache_write: u64,
}

#[derive(Clone, Debug)]
pub(super) struct Plain {
    pub status: u16,
    pub content_type: String,
    pub body: String,
}

/// Where a stream breaks.
#[derive(Clone, Copy, Debug)]
pub(super) enum Limit {
    /// After so many bytes nothing more comes, and the connection stays.
    Hang(usize),
    /// After so many bytes the connection is closed.
    Close(usize),
}

/// A scripted reply.
#[derive(Clone, Debug)]
pub struct Reply {
    pub(super) steps: Vec<Step>,
    pub(super) usage: Option<Figures>,
    pub(super) stop: Option<String>,
    pub(super) finish: bool,
    pub(super) plain: Option<Plain>,
    pub(super) headers: Vec<(String, String)>,
    pub(super) limit: Option<Limit>,
    pub(super) before: Option<Gate>,
    pub(super) vanish: bool,
}

impl Default for Reply {
    fn default() -> Self {
        let usage = Some(Figures { input: 100, output: 10, cache_read: 0, cache_write: 0 });
        Self {
            steps: Vec::new(),
            usage,
            stop: None,
            finish: true,
            plain: None,
            headers: Vec::new(),
            limit: None,
            before: None,
            vanish: false,
        }
    }
}

impl Reply {
    /// An answer of nothing, to be filled.
    pub fn new() -> Self {
        Self::default()
    }

    /// An answer in words, one piece per word.
    pub fn say(text: &str) -> Self {
        Self::new().text(text)
    }

    /// An answer that calls one tool.
    pub fn call(name: &str, input: Value) -> Self {
        Self::new().tool_call(name, input)
    }

    /// A plain HTTP response instead of a stream.
    pub fn http(status: u16, content_type: &str, body: &str) -> Self {
        let plain = Plain { status, content_type: content_type.to_owned(), body: body.to_owned() };
        Self { plain: Some(plain), ..Self::default() }
    }

    /// The dialect's error response, as the real provider words it.
    pub fn error(dialect: Dialect, status: u16, kind: &str, message: &str) -> Self {
        let body = dialect.error(&super::Refusal::new(status, kind, message));
        Self::http(status, "application/json", &body.to_string())
    }

    /// The connection is closed without a byte.
    pub fn nothing() -> Self {
        Self { vanish: true, ..Self::default() }
    }

    /// Adds text, one piece per word (spaces stay with the word before them).
    #[must_use]
    pub fn text(mut self, text: &str) -> Self {
        self.steps.extend(words(text).map(Step::Text));
        self
    }

    /// Adds reasoning with its signature.
    #[must_use]
    pub fn reasoning(mut self, text: &str, signature: &str) -> Self {
        self.steps.push(Step::Reasoning { pieces: words(text).collect(), signature: signature.to_owned() });
        self
    }

    /// Adds a tool call.
    #[must_use]
    pub fn tool_call(self, name: &str, input: Value) -> Self {
        self.tool_text(name, &input.to_string())
    }

    /// Adds a tool call whose input is this text, whole JSON or not.
    #[must_use]
    pub fn tool_text(mut self, name: &str, input: &str) -> Self {
        self.steps.push(Step::Tool { id: None, name: name.to_owned(), input: input.to_owned() });
        self
    }

    /// Gives the last tool call added this id.
    #[must_use]
    pub fn with_id(mut self, call: &str) -> Self {
        if let Some(Step::Tool { id, .. }) = self.steps.last_mut() {
            *id = Some(call.to_owned());
        }
        self
    }

    /// Waits at a gate before what is added next.
    #[must_use]
    pub fn gate(mut self, gate: &Gate) -> Self {
        self.steps.push(Step::Gate(gate.clone()));
        self
    }

    /// Waits at a gate before the first byte of the response.
    #[must_use]
    pub fn held_back(mut self, gate: &Gate) -> Self {
        self.before = Some(gate.clone());
        self
    }

    /// Adds bytes to the stream as they are.
    #[must_use]
    pub fn raw(mut self, bytes: impl Into<Vec<u8>>) -> Self {
        self.steps.push(Step::Raw(bytes.into()));
        self
    }

    /// Adds an error inside the stream; it ends there.
    #[must_use]
    pub fn error_event(mut self, kind: &str, message: &str) -> Self {
        self.steps.push(Step::Error { kind: kind.to_owned(), message: message.to_owned() });
        self.finish = false;
        self
    }

    /// Sets the token figures.
    #[must_use]
    pub fn usage(mut self, figures: Figures) -> Self {
        self.usage = Some(figures);
        self
    }

    /// Says nothing about tokens.
    #[must_use]
    pub fn no_usage(mut self) -> Self {
        self.usage = None;
        self
    }

    /// Sets the word that says why the model stopped; otherwise it follows from the content.
    #[must_use]
    pub fn stop(mut self, reason: &str) -> Self {
        self.stop = Some(reason.to_owned());
        self
    }

    /// Ends the stream, cleanly as HTTP goes, without saying why the model stopped.
    #[must_use]
    pub fn unfinished(mut self) -> Self {
        self.finish = false;
        self
    }

    /// Adds a response header.
    #[must_use]
    pub fn header(mut self, name: &str, value: &str) -> Self {
        self.headers.push((name.to_owned(), value.to_owned()));
        self
    }

    /// Sends so many bytes of the stream and then nothing, keeping the connection.
    #[must_use]
    pub fn hang_after(mut self, bytes: usize) -> Self {
        self.limit = Some(Limit::Hang(bytes));
        self
    }

    /// Sends so many bytes of the stream and closes the connection.
    #[must_use]
    pub fn close_after(mut self, bytes: usize) -> Self {
        self.limit = Some(Limit::Close(bytes));
        self
    }

    /// Gives each tool call without an id one that is unique in its fake, where calls have ids.
    pub(super) fn name_calls(&mut self, dialect: Dialect, next: &mut u64) {
        let prefix = match dialect {
            Dialect::Anthropic => "toolu_",
            Dialect::OpenAi | Dialect::Responses => "call_",
            Dialect::Gemini => return,
        };
        for step in &mut self.steps {
            if let Step::Tool { id, .. } = step {
                *next += 1;
                id.get_or_insert_with(|| format!("{prefix}{next:08}"));
            }
        }
    }

    pub(super) fn has_calls(&self) -> bool {
        self.steps.iter().any(|s| matches!(s, Step::Tool { .. }))
    }
}

/// Splits text behind each space.
fn words(text: &str) -> impl Iterator<Item = String> + '_ {
    text.split_inclusive(' ').map(str::to_owned)
}
