//! `builtin/rehearsal`: a model that needs no key and no network.
//!
//! Owns: answering deterministically through the same interface as any other model: it streams word by
//! word, reasons, calls tools on simple requests (see `script`) and reports usage. For demonstrations,
//! tests, and whoever has nothing configured yet. It holds no state: what it says follows from the
//! conversation alone.

mod script;
#[cfg(test)]
mod tests;

use super::drive::cancelled;
use super::errors::failure;
use super::{Call, Chunk, Failure, FailureKind, Model, Reply, Sink, Stop, Tokens};
use futures_util::future::BoxFuture;
use glrs_protocol::message::{Message, Part, Role, empty_object};
use glrs_protocol::types::ModelRow;
use script::Request;
use std::collections::HashSet;
use std::time::Duration;
use tokio_util::sync::CancellationToken;

/// Its provider id.
pub(crate) const PROVIDER: &str = "builtin";
/// Its name.
pub(crate) const MODEL: &str = "builtin/rehearsal";
/// Between the words of `slow N words`.
const SLOW: Duration = Duration::from_millis(20);
/// Most characters quoted of a result.
const QUOTE_MAX: usize = 200;

const HELP: &str = "\
I am the rehearsal model: built in, without a network, and not intelligent. \
To talk to a real model, set ANTHROPIC_API_KEY, OPENAI_API_KEY or another provider's key and start again, \
or put \"model\": \"provider/model-id\" into config.json, or run a local server such as Ollama.\n\n\
What I understand: read FILE, write FILE TEXT, edit FILE OLD => NEW, run CMD, grep PATTERN, glob PATTERN, \
plan A; B; C, ask QUESTION, say N words, slow N words, think N words, steps N, fail; \
several on lines of their own or joined by \"; then \".";

/// The row it has in the list of models.
pub(crate) fn row() -> ModelRow {
    ModelRow {
        model: MODEL.to_owned(),
        name: "Rehearsal (built in)".to_owned(),
        context: 256_000,
        output: Some(32_000),
        input_cost: Some(0.0),
        output_cost: Some(0.0),
        variants: Vec::new(),
        images: Some(false),
        ready: true,
        missing: None,
    }
}

/// The model.
pub(crate) struct Rehearsal {
    row: ModelRow,
}

impl Rehearsal {
    pub(crate) fn new() -> Self {
        Self { row: row() }
    }
}

impl Model for Rehearsal {
    fn row(&self) -> &ModelRow {
        &self.row
    }

    fn call<'a>(
        &'a self,
        call: &'a Call,
        sink: &'a mut dyn Sink,
        cancel: &'a CancellationToken,
    ) -> BoxFuture<'a, Result<Reply, Failure>> {
        Box::pin(async move {
            let mut voice = Voice {
                sink,
                cancel,
                thought: String::new(),
                text: String::new(),
                calls: Vec::new(),
                max: call.max_output.map_or(u64::MAX, |most| most.saturating_mul(4)),
            };
            let done = perform(call, &mut voice).await;
            voice.close(call, done)
        })
    }
}

/// Why it stopped speaking.
enum End {
    Said(Stop),
    Failed(Failure),
}

impl From<Failure> for End {
    fn from(f: Failure) -> Self {
        Self::Failed(f)
    }
}

async fn perform(call: &Call, voice: &mut Voice<'_>) -> Result<Stop, End> {
    voice.emit(Chunk::Open).await?;
    let asked = script::last_request(&call.messages);
    let is_brief =
        call.tools.is_empty() && ["brief", "summar"].iter().any(|w| call.system.contains(w) || asked.text.contains(w));
    if is_brief {
        voice.say(&script::brief(&call.messages)).await?;
        return Ok(Stop::End);
    }
    let requests = script::parse(&asked.text);
    if requests.is_empty() {
        voice.think("This is no request I know, so I say what I am.").await?;
        voice.say(HELP).await?;
        return Ok(Stop::End);
    }
    if let Some(results) = asked.results {
        for (name, output) in results {
            voice.say(&quote(name, output)).await?;
        }
    }
    // Each tool request is a step of its own; what stands between two is said with the one behind it.
    let mut rounds = asked.rounds;
    for request in requests {
        if rounds > 0 {
            rounds -= usize::from(matches!(request, Request::Tool { .. }));
            continue;
        }
        match request {
            Request::Say(n) => voice.count("word", n, false, false).await?,
            Request::Slow(n) => voice.count("word", n, false, true).await?,
            Request::Think(n) => {
                voice.count("thought", n, true, false).await?;
                voice.say("Thought it over.").await?;
            }
            Request::Fail => {
                return Err(failure(FailureKind::Server, "the rehearsal was asked to fail").into());
            }
            Request::Tool { name, input } => {
                let Some(spec) = call.tools.iter().find(|t| t.name == name).filter(|_| !call.force_text) else {
                    let why = if call.force_text { "this is the last step" } else { "I am not given that tool" };
                    voice.say(&format!("I cannot call {name}: {why}.")).await?;
                    continue;
                };
                voice.think(&format!("The request is clear, so I call {name}.")).await?;
                voice.emit(Chunk::Tool(name.to_owned())).await?;
                voice.calls.push((name, script::fit(input, spec)));
                return Ok(Stop::Tools);
            }
        }
    }
    if voice.text.is_empty() {
        voice.say("Done.").await?;
    }
    Ok(Stop::End)
}

fn quote(name: &str, output: &str) -> String {
    let mut lines = output.lines().map(str::trim_end).filter(|l| !l.trim().is_empty());
    let first: String = lines.by_ref().take(2).collect::<Vec<_>>().join(" / ").chars().take(QUOTE_MAX).collect();
    match (first.is_empty(), lines.count()) {
        (true, _) => format!("{name} gave nothing."),
        (false, 0) => format!("{name} gave: {first}"),
        (false, more) => format!("{name} gave: {first} (and {more} more lines)"),
    }
}

struct Voice<'a> {
    sink: &'a mut dyn Sink,
    cancel: &'a CancellationToken,
    thought: String,
    text: String,
    calls: Vec<(&'static str, String)>,
    /// Most bytes it may say.
    max: u64,
}

impl Voice<'_> {
    async fn emit(&mut self, chunk: Chunk) -> Result<(), End> {
        tokio::select! {
            biased;
            () = self.cancel.cancelled() => Err(End::Failed(cancelled())),
            () = self.sink.chunk(chunk) => Ok(()),
        }
    }

    async fn word(&mut self, word: &str, thinking: bool) -> Result<(), End> {
        if (self.thought.len() + self.text.len() + word.len()) as u64 > self.max {
            return Err(End::Said(Stop::Length));
        }
        let chunk = if thinking { Chunk::Reasoning(word.to_owned()) } else { Chunk::Text(word.to_owned()) };
        self.emit(chunk).await?;
        // After it was shown: what is cut off here was not.
        if thinking { &mut self.thought } else { &mut self.text }.push_str(word);
        Ok(())
    }

    async fn say(&mut self, text: &str) -> Result<(), End> {
        if !self.text.is_empty() {
            self.word("\n\n", false).await?;
        }
        for word in text.split_inclusive(' ') {
            self.word(word, false).await?;
        }
        Ok(())
    }

    async fn think(&mut self, text: &str) -> Result<(), End> {
        for word in text.split_inclusive(' ') {
            self.word(word, true).await?;
        }
        Ok(())
    }

    /// `word1 word2 …`
    async fn count(&mut self, stem: &str, n: u64, thinking: bool, slow: bool) -> Result<(), End> {
        if !thinking && !self.text.is_empty() {
            self.word("\n\n", false).await?;
        }
        for i in 1..=n {
            if slow && i > 1 {
                tokio::select! {
                    () = self.cancel.cancelled() => return Err(End::Failed(cancelled())),
                    () = tokio::time::sleep(SLOW) => {}
                }
            }
            let space = if i == n { "" } else { " " };
            self.word(&format!("{stem}{i}{space}"), thinking).await?;
        }
        Ok(())
    }

    fn close(self, call: &Call, done: Result<Stop, End>) -> Result<Reply, Failure> {
        let said =
            self.thought.len() + self.text.len() + self.calls.iter().map(|(n, i)| n.len() + i.len()).sum::<usize>();
        let tokens = Some(usage(call, said));
        let mut parts = Vec::new();
        if !self.thought.is_empty() {
            parts.push(Part::Reasoning { text: self.thought, opts: None });
        }
        if !self.text.is_empty() {
            parts.push(Part::Text(self.text));
        }
        let stop = match done {
            Ok(stop) | Err(End::Said(stop)) => stop,
            Err(End::Failed(f)) => {
                let partial = (!parts.is_empty()).then_some(Message { role: Role::Assistant, parts });
                return Err(Failure { partial, tokens, ..f });
            }
        };
        let taken: HashSet<&str> = call.messages.iter().flat_map(|m| m.call_ids()).collect();
        let mut number = taken.len();
        for (name, input) in self.calls {
            let mut id = String::new();
            while id.is_empty() || taken.contains(id.as_str()) {
                number += 1;
                id = format!("rehearsal_{number}");
            }
            let input = serde_json::value::RawValue::from_string(input).unwrap_or_else(|_| empty_object());
            parts.push(Part::ToolCall { id, name: name.to_owned(), input, opts: None });
        }
        Ok(Reply {
            message: Message { role: Role::Assistant, parts },
            cut: Vec::new(),
            stop,
            tokens,
            spent: Vec::new(),
        })
    }
}

/// As a provider with a cache would count: what the previous call was sent is read from it.
fn usage(call: &Call, said: usize) -> Tokens {
    let weigh =
        |n: usize| (call.system.len() + call.messages[..n].iter().map(|m| m.weight()).sum::<usize>()) as u64 / 4;
    let before = call.messages.iter().rposition(|m| m.role == Role::Assistant);
    Tokens {
        input: weigh(call.messages.len()),
        cached: before.map_or(0, weigh),
        output: (said as u64).div_ceil(4),
        cost: Some(0.0),
    }
}
