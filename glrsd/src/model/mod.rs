//! Talking to models: providers, streams, errors, retries, the catalogue.
//!
//! [`Models`] finds a model by name; `registry`, [`catalogue`] and `upstream` know which there are,
//! `keys` and `http` how to reach them. A call goes through `remote` to `drive`, which follows the stream;
//! `anthropic`, `openai` (Chat Completions), `responses` and `gemini` each build requests (from
//! `convert`'s legal turns) and decode streams;
//! `errors` says what went wrong, `quota` how much of a subscription is used. `rehearsal` is a model without a provider.
//!
//! Owns: the adapters' common interface. An adapter turns (system, messages, tools) into one
//! provider request and its stream into [`Chunk`]s and one [`Reply`]. Must not know sessions,
//! entries on disk, or tools' insides.

mod anthropic;
mod body;
pub mod catalogue;
mod convert;
mod discover;
mod drive;
mod errors;
#[cfg(test)]
mod fuzz_tests;
mod gemini;
mod http;
mod keys;
#[cfg(test)]
mod legal_tests;
mod openai;
mod plain;
mod quota;
mod registry;
mod rehearsal;
mod remote;
#[cfg(test)]
mod request_tests;
mod responses;
#[cfg(test)]
mod scripts;
mod sets;
mod sse;
#[cfg(test)]
mod stream_dialect_tests;
#[cfg(test)]
mod stream_tests;
#[cfg(test)]
mod testing;
mod upstream;

pub use registry::{Models, key_names};
pub use sets::ModelSets;

use crate::host::Env;
use crate::tools::ToolSpec;
use futures_util::future::BoxFuture;
use glrs_protocol::message::{Message, Part};
use glrs_protocol::types::ModelRow;
use std::sync::Arc;
use std::time::Duration;
use tokio_util::sync::CancellationToken;

/// One model call.
#[derive(Clone)]
pub struct Call {
    /// System prompt.
    pub system: Arc<str>,
    /// The conversation, legal (see `fold::legal`): each call has its result directly behind it,
    /// ids unique, no empty message.
    pub messages: Vec<Arc<Message>>,
    /// Tools; empty means none may be called.
    pub tools: Arc<[ToolSpec]>,
    /// Reasoning effort.
    pub variant: Option<String>,
    /// Most output tokens; `None` where it is not known how many the model gives.
    pub max_output: Option<u64>,
    /// True on the last step: the model has to answer in text.
    pub force_text: bool,
    /// Names the conversation, for providers that cache by key.
    pub cache_key: String,
    /// How long the stream may say nothing that counts as an event.
    pub idle: Duration,
    /// Where the call's keys come from.
    pub env: Arc<Env>,
}

impl Call {
    /// About how many bytes it takes as a request's body.
    pub fn size(&self) -> usize {
        let bytes = |p: &Part| if let Part::File { data, .. } = p { data.len() } else { p.weight() };
        let said: usize = self.messages.iter().flat_map(|m| &m.parts).map(bytes).sum();
        let tools: usize = self.tools.iter().map(|t| t.description.len() + t.schema.get().len()).sum();
        // Quotes and names around what was said, and what had to be escaped.
        self.system.len() + said + said / 8 + 48 * self.messages.len() + tools + 64 * self.tools.len() + 512
    }
}

/// Something that streamed.
#[derive(Clone, Debug, PartialEq)]
pub enum Chunk {
    /// The request was accepted and the stream is open.
    Open,
    /// More of the answer.
    Text(String),
    /// More reasoning.
    Reasoning(String),
    /// The model is composing a tool call (name as far as known).
    Tool(String),
}

/// Most bytes of chunks that were joined: a client draws them at once.
pub(crate) const JOINED: usize = 16 * 1024;

impl Chunk {
    /// Appends what follows directly where both are pieces of one text; else gives it back.
    pub(crate) fn join(&mut self, next: Self) -> Option<Self> {
        match (self, &next) {
            (Self::Text(a), Self::Text(b)) | (Self::Reasoning(a), Self::Reasoning(b))
                if a.len() + b.len() <= JOINED =>
            {
                a.push_str(b);
                None
            }
            _ => Some(next),
        }
    }

    /// Adds it behind others, joined to the last of them where it is more of that.
    pub(crate) fn follow(self, all: &mut Vec<Self>) {
        let rest = match all.last_mut() {
            Some(last) => last.join(self),
            None => Some(self),
        };
        all.extend(rest);
    }
}

/// Why the model stopped.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Stop {
    /// It was done.
    End,
    /// It wants its tools run.
    Tools,
    /// The output limit was reached: calls whose input is cut are marked in `Reply::cut`.
    Length,
    /// The provider refused to go on; the word it gave.
    Refused(String),
}

/// What one call used, in tokens. `input` includes the cached part.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Tokens {
    /// Input, cache reads and writes included.
    pub input: u64,
    /// Of that, read from the cache.
    pub cached: u64,
    /// Output, reasoning included.
    pub output: u64,
    /// US dollars, when it can be told.
    pub cost: Option<f64>,
}

/// How much of a window of a subscription is used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Spent {
    /// Which window, such as `5h`.
    pub window: String,
    /// In percent.
    pub percent: u64,
}

/// A complete answer.
#[derive(Clone, Debug)]
pub struct Reply {
    /// The assistant message, raw blocks included. May have no parts (the model said nothing).
    pub message: Message,
    /// Ids of tool calls whose input was cut or does not parse, with the reason. They are in
    /// `message` with input `{}` and must not be run.
    pub cut: Vec<(String, String)>,
    /// Why it stopped.
    pub stop: Stop,
    /// What it used, where the provider said.
    pub tokens: Option<Tokens>,
    /// What is used of the subscription that pays for it, where the provider said.
    pub spent: Vec<Spent>,
}

/// What kind of failure, and so what to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FailureKind {
    /// No key, a wrong key, no permission.
    Auth,
    /// No such model or address.
    NotFound,
    /// The conversation is too long for the model.
    Overflow,
    /// Too many requests.
    Rate,
    /// The provider is overloaded or broken (5xx, 529, an error inside the stream).
    Server,
    /// It could not be reached, or the connection broke.
    Network,
    /// The stream ended without saying why the model stopped.
    Incomplete,
    /// Nothing came for too long.
    Idle,
    /// The provider did not like the request.
    Request,
    /// The answer could not be understood.
    Protocol,
    /// Esc.
    Cancelled,
}

/// A failed call. `message` is short, has no HTML, no key and no request text in it, and says what
/// to do where that is known.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{message}")]
pub struct Failure {
    /// What kind.
    pub kind: FailureKind,
    /// HTTP status, where there was one.
    pub status: Option<u16>,
    /// Words for people.
    pub message: String,
    /// How long the provider asked to wait.
    pub retry_after: Option<Duration>,
    /// What had come before it failed: shown text and reasoning (no tool calls).
    pub partial: Option<Message>,
    /// What it used, where the provider said before it failed.
    pub tokens: Option<Tokens>,
}

impl Failure {
    /// A failure of that kind, with nothing else known.
    pub fn of(kind: FailureKind, message: impl Into<String>) -> Self {
        Self { kind, status: None, message: message.into(), retry_after: None, partial: None, tokens: None }
    }
}

/// Takes chunks as they come. Waits when the session is behind, so a stream never outruns it.
pub trait Sink: Send {
    /// Takes one.
    fn chunk(&mut self, chunk: Chunk) -> BoxFuture<'_, ()>;
}

/// A model that can be called.
pub trait Model: Send + Sync {
    /// "provider/model-id" and what is known of it.
    fn row(&self) -> &ModelRow;
    /// Makes one call: no retry inside (the turn retries, by [`retry_delay`]). Dropping the future
    /// or cancelling ends the request at once.
    fn call<'a>(
        &'a self,
        call: &'a Call,
        sink: &'a mut dyn Sink,
        cancel: &'a CancellationToken,
    ) -> BoxFuture<'a, Result<Reply, Failure>>;
}

/// Most attempts of one call, the first included.
const ATTEMPTS_MAX: u32 = 4;
/// Wait before the second attempt; it doubles from there.
const BACKOFF: Duration = Duration::from_secs(1);

/// How long to wait before attempt number `attempt` (2, 3, 4), or `None` when it is not to be
/// retried: the kind does not pass by itself, something was shown, or the provider asks for a longer
/// wait than a turn should take in silence (its message says how long). `jitter` is in 0..1.
///
/// The caller asks only while the step has shown nothing and run no tool.
pub fn retry_delay(attempt: u32, failure: &Failure, jitter: f64) -> Option<Duration> {
    use FailureKind::{Idle, Incomplete, Network, Rate, Server};
    let passes = matches!(failure.kind, Rate | Server | Network | Incomplete | Idle);
    if !passes || failure.partial.is_some() || !(2..=ATTEMPTS_MAX).contains(&attempt) {
        return None;
    }
    let jitter = if jitter.is_finite() { jitter.clamp(0.0, 1.0) } else { 0.0 };
    match failure.retry_after {
        Some(wait) if wait > errors::RETRY_CAP => None,
        // Never earlier than asked; a little later, so that many sessions do not come back at once.
        Some(wait) => Some(wait + Duration::from_millis((jitter * 500.0) as u64)),
        // Half is fixed, half is chance.
        None => Some((BACKOFF * 2_u32.pow(attempt - 2)).mul_f64(0.5 + jitter / 2.0)),
    }
}
