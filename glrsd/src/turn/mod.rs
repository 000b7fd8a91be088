//! The step loop of one turn: model call, tools, again, until the model stops asking.
//!
//! Owns: the order of things within a turn, retries while a step has shown nothing, and running
//! tools (those that change nothing side by side). Decides nothing about the session: it asks the
//! actor for each step's messages and reports everything as [`Event`]s, in order, through one
//! bounded channel. Must not know logs, queues or clients.

pub mod attach;
pub mod prompt;
pub mod surroundings;
pub mod vitals;

use crate::host::{clock, random};
use crate::model::{self, Call, Chunk, Failure, FailureKind, Model, Reply, Sink};
use crate::tools::task::{Standing, Task};
use crate::tools::{Answer, Ask, Tool, ToolCtx, clip};
use futures_util::FutureExt;
use futures_util::future::{BoxFuture, join_all};
use glrs_protocol::SessionId;
use glrs_protocol::entry::Entry;
use glrs_protocol::message::{Message, Part};
use glrs_protocol::types::Retry;
use serde_json::value::RawValue;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use surroundings::{Means, Surroundings};
use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

pub use clip::RESULT_CHARS;
/// Events on their way to the actor. At the bound the turn waits: a model is never faster than the
/// session that records it.
pub const EVENTS: usize = 256;

/// A call to be run.
#[derive(Clone, Debug)]
pub struct ToolCall {
    /// The model's id of it.
    pub id: String,
    /// Tool name.
    pub name: String,
    /// Input, raw.
    pub input: Box<RawValue>,
    /// Set when it must not run: the error the model is given instead.
    pub refused: Option<String>,
}

/// What a step is.
pub enum Step {
    /// Call the model.
    Call(Box<StepCall>),
    /// The model was called before the daemon restarted: only these calls are left to run.
    Resume(Vec<ToolCall>),
    /// The turn is over; the actor has settled it.
    Stop,
}

/// A model call to make.
pub struct StepCall {
    /// Whom to call.
    pub model: Arc<dyn Model>,
    /// What to say.
    pub call: Call,
}

/// How a call ended.
#[derive(Debug)]
pub struct Ended {
    /// The call.
    pub call: ToolCall,
    /// One line for people.
    pub detail: String,
    /// Whether it did what was asked.
    pub ok: bool,
    /// What the model is given.
    pub result: String,
    /// Blob with the whole, when `result` is clipped.
    pub blob: Option<String>,
    /// What changed on disk.
    pub diff: Option<String>,
    /// Entries to record before the call's own.
    pub entries: Vec<Entry>,
    /// Milliseconds.
    pub elapsed_ms: u64,
}

/// A session that was started to do a task.
pub struct Started {
    /// Its id.
    pub id: SessionId,
    /// What is seen of it.
    pub standing: watch::Receiver<Standing>,
}

/// What happens in a turn, in order.
pub enum Event {
    /// What the turn works in was looked at, or (`None`) does not answer. Comes first.
    Found {
        /// What was found.
        found: Option<Box<Surroundings>>,
        /// What to go on with.
        means: oneshot::Sender<Means>,
    },
    /// A step begins: what is it to be?
    Next(oneshot::Sender<Step>),
    /// A retry is waited for, or (`None`) the wait is over.
    Retry(Option<Retry>),
    /// Something streamed.
    Chunk(Chunk),
    /// The model answered. Acknowledged once it is recorded, before any tool runs.
    Reply {
        /// The answer.
        reply: Box<Reply>,
        /// Milliseconds.
        elapsed_ms: u64,
        /// Recorded.
        ack: oneshot::Sender<()>,
    },
    /// A call begins.
    Started {
        /// The call.
        call: ToolCall,
        /// One line for people.
        detail: String,
    },
    /// A call's output.
    Output {
        /// The call.
        call: String,
        /// The text.
        text: String,
    },
    /// A call asks.
    Ask {
        /// The call.
        call: String,
        /// The tool.
        tool: String,
        /// What is asked.
        ask: Ask,
        /// The answer.
        answer: oneshot::Sender<Answer>,
    },
    /// A call gives a task to a session of its own.
    Delegate {
        /// The call.
        call: String,
        /// The task.
        task: Box<Task>,
        /// Cancelled when the call is gone.
        cancel: CancellationToken,
        /// Who does it, or the error for the model.
        reply: oneshot::Sender<Result<Started, String>>,
    },
    /// A call ended.
    Ended(Box<Ended>),
    /// All calls of the step have ended.
    StepDone,
    /// The model call failed (or was cancelled).
    Failed(Box<Failure>),
    /// Cancelled while tools ran.
    Cancelled,
}

/// Makes the door of one call.
pub type CtxOf = Arc<dyn Fn(&ToolCall) -> Box<dyn ToolCtx> + Send + Sync>;

/// One turn's means.
#[derive(Clone)]
pub struct Turn {
    /// The tools, in prompt order.
    pub tools: Arc<[Arc<dyn Tool>]>,
    /// Where events go.
    pub events: mpsc::Sender<Event>,
    /// Esc.
    pub cancel: CancellationToken,
    /// Makes the door of one call.
    pub ctx: CtxOf,
}

/// The calls in an answer, those that were cut marked as refused.
pub fn calls_of(reply: &Reply) -> Vec<ToolCall> {
    reply
        .message
        .parts
        .iter()
        .filter_map(|p| match p {
            Part::ToolCall { id, name, input, .. } => Some(ToolCall {
                id: id.clone(),
                name: name.clone(),
                input: input.clone(),
                refused: reply.cut.iter().find(|(cut, _)| cut == id).map(|(_, why)| why.clone()),
            }),
            _ => None,
        })
        .collect()
}

struct Forward<'a> {
    events: &'a mpsc::Sender<Event>,
    shown: bool,
}

impl Sink for Forward<'_> {
    fn chunk(&mut self, chunk: Chunk) -> BoxFuture<'_, ()> {
        async move {
            if chunk == Chunk::Open {
                return;
            }
            self.shown = true;
            // A closed channel means that the actor is gone; the cancel token tells as well.
            let _ = self.events.send(Event::Chunk(chunk)).await;
        }
        .boxed()
    }
}

impl Turn {
    /// Runs the turn. Returns when the actor said stop, or nothing more can be done; the last
    /// event says why.
    pub async fn run(self) {
        loop {
            let (tx, rx) = oneshot::channel();
            if self.events.send(Event::Next(tx)).await.is_err() {
                return;
            }
            let calls = match rx.await {
                Ok(Step::Call(step)) => {
                    let started = Instant::now();
                    match self.call_model(&step).await {
                        Ok(reply) => {
                            let calls = calls_of(&reply);
                            let (ack, recorded) = oneshot::channel();
                            let elapsed_ms = started.elapsed().as_millis() as u64;
                            let event = Event::Reply { reply: Box::new(reply), elapsed_ms, ack };
                            if self.events.send(event).await.is_err() || recorded.await.is_err() {
                                return;
                            }
                            calls
                        }
                        Err(failure) => {
                            let _ = self.events.send(Event::Failed(Box::new(failure))).await;
                            return;
                        }
                    }
                }
                Ok(Step::Resume(calls)) => calls,
                Ok(Step::Stop) | Err(_) => return,
            };
            if calls.is_empty() {
                // The actor settled the turn when it recorded the answer; it says stop next.
                continue;
            }
            self.run_tools(calls).await;
            let last = if self.cancel.is_cancelled() { Event::Cancelled } else { Event::StepDone };
            let over = matches!(last, Event::Cancelled);
            if self.events.send(last).await.is_err() || over {
                return;
            }
        }
    }

    async fn call_model(&self, step: &StepCall) -> Result<Reply, Failure> {
        let mut attempt = 1;
        loop {
            let mut sink = Forward { events: &self.events, shown: false };
            let failure = match step.model.call(&step.call, &mut sink, &self.cancel).await {
                Ok(reply) => return Ok(reply),
                Err(f) => f,
            };
            attempt += 1;
            let shown = sink.shown || failure.partial.is_some();
            let delay = if shown { None } else { model::retry_delay(attempt, &failure, random::fraction()) };
            let Some(delay) = delay else { return Err(failure) };
            let at = jiff::Timestamp::now() + jiff::SignedDuration::try_from(delay).unwrap_or_default();
            let retry = Retry { attempt, at: clock::format(at), reason: failure.message.clone() };
            let _ = self.events.send(Event::Retry(Some(retry))).await;
            tokio::select! {
                () = self.cancel.cancelled() => return Err(Failure { kind: FailureKind::Cancelled, ..failure }),
                () = tokio::time::sleep(delay) => {}
            }
            let _ = self.events.send(Event::Retry(None)).await;
        }
    }

    /// Runs the calls in order; neighbours that change nothing run side by side.
    async fn run_tools(&self, calls: Vec<ToolCall>) {
        let mut group: Vec<ToolCall> = Vec::new();
        for call in calls {
            let parallel = self.tool(&call.name).is_some_and(|t| t.parallel());
            if !parallel {
                join_all(group.drain(..).map(|c| self.run_one(c))).await;
                self.run_one(call).await;
            } else {
                group.push(call);
            }
        }
        join_all(group.drain(..).map(|c| self.run_one(c))).await;
    }

    fn tool(&self, name: &str) -> Option<&Arc<dyn Tool>> {
        self.tools.iter().find(|t| t.spec().name == name)
    }

    /// Runs one call and reports it.
    pub async fn run_one(&self, call: ToolCall) {
        // What had not begun when esc came does not begin; the actor answers for it.
        if self.cancel.is_cancelled() {
            return;
        }
        let tool = self.tool(&call.name).cloned();
        let detail = tool.as_ref().map_or_else(String::new, |t| t.detail(&call.input));
        let started = Instant::now();
        if self.events.send(Event::Started { call: call.clone(), detail: detail.clone() }).await.is_err() {
            return;
        }
        let ctx = (self.ctx)(&call);
        let outcome = match (&call.refused, tool) {
            (Some(why), _) => crate::tools::Outcome::error(why.clone()),
            (None, None) => crate::tools::Outcome::error(format!(
                "There is no tool {}. The tools are: {}.",
                call.name,
                self.tools.iter().map(|t| t.spec().name).collect::<Vec<_>>().join(", ")
            )),
            (None, Some(tool)) => {
                // A tool that panics fails its call, not the turn.
                match AssertUnwindSafe(tool.run(&*ctx, &call.input)).catch_unwind().await {
                    Ok(outcome) => outcome,
                    Err(_) => crate::tools::Outcome::error("The tool failed inside. Try another way."),
                }
            }
        };
        let (result, blob) = clip_result(&*ctx, outcome.result, outcome.left_out == 0).await;
        let ended = Ended {
            call,
            detail,
            ok: outcome.ok,
            result,
            blob,
            diff: outcome.diff,
            entries: outcome.entries,
            elapsed_ms: started.elapsed().as_millis() as u64,
        };
        let _ = self.events.send(Event::Ended(Box::new(ended))).await;
    }
}

/// Clips a result to what the model is given and keeps all of it beside the session. `whole` says
/// whether it is everything there was.
async fn clip_result(ctx: &dyn ToolCtx, all: String, whole: bool) -> (String, Option<String>) {
    let (text, clipped) = clip::clip(&all, RESULT_CHARS);
    if !clipped {
        return (all, None);
    }
    match ctx.keep(all.as_bytes()).await {
        Ok(hash) => (clip::name_blob(&text, &hash, whole), Some(hash)),
        // The head and tail are there; the disk's state is shown by the session.
        Err(_) => (clip::no_blob(&text), None),
    }
}

/// The assistant message of an answer as it is recorded: parts that say nothing are left out.
pub fn recorded(message: &Message) -> Message {
    let parts = message.parts.iter().filter(|p| !matches!(p, Part::Text(t) if t.is_empty())).cloned().collect();
    Message { role: message.role, parts }
}
