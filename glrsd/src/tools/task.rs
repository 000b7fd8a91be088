//! The tool `task`: work that is given to a session of its own.
//!
//! Owns: what a task is, what is seen of whoever does it, how that is shown while it runs, and the
//! words in which the outcome comes back. Must not know how sessions are made or run: they come by
//! [`ToolCtx::delegate`].

use super::{Outcome, Tool, ToolCtx, ToolSpec, files, input, spec};
use futures_util::future::BoxFuture;
use glrs_protocol::SessionId;
use glrs_protocol::entry::TurnStatus;
use glrs_protocol::event::Resolved;
use glrs_protocol::types::{Mode, Request, Spent};
use serde::Deserialize;
use serde_json::value::RawValue;
use std::collections::VecDeque;
use std::path::PathBuf;
use std::time::Duration;
use tokio::sync::watch;
use tokio::time::Instant;

/// Name of the tool.
pub const NAME: &str = "task";

/// Lines of progress, and answered requests, that are kept for whoever looks late; at the bound the
/// oldest goes.
const REMEMBERED: usize = 64;

/// Work to be done by a session of its own.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Task {
    /// What it is, in one line.
    pub title: String,
    /// The message its session is given.
    pub prompt: String,
    /// Another model than this session's.
    pub model: Option<String>,
    /// A stricter mode than this session's.
    pub mode: Option<Mode>,
    /// A directory inside this session's.
    pub cwd: Option<PathBuf>,
    /// Most model calls.
    pub steps: Option<u32>,
    /// Most minutes.
    pub minutes: Option<u32>,
}

/// What is seen of a session that does a task.
#[derive(Clone, Debug, Default)]
pub struct Standing {
    /// What it did, with numbers that go up.
    lines: VecDeque<(u64, String)>,
    last: u64,
    /// What it waits for people to answer.
    pub requests: Vec<Request>,
    resolved: VecDeque<Resolved>,
    /// What it has used so far.
    pub spent: Spent,
    /// How it ended.
    pub done: Option<Done>,
}

/// How a task ended.
#[derive(Clone, Debug, PartialEq)]
pub struct Done {
    /// How its turn was closed.
    pub status: TurnStatus,
    /// The last that the model said, in part where it was cut off.
    pub text: String,
    /// What people are told of the end, where there is something to tell.
    pub words: String,
    /// Model calls.
    pub steps: u32,
}

impl Done {
    /// A task that did not come to anything.
    pub fn failed(words: impl Into<String>) -> Self {
        Self { status: TurnStatus::Failed, text: String::new(), words: words.into(), steps: 0 }
    }
}

impl Standing {
    /// Adds a line of progress.
    pub fn line(&mut self, text: String) {
        self.last += 1;
        self.lines.push_back((self.last, text));
        if self.lines.len() > REMEMBERED {
            self.lines.pop_front();
        }
    }

    /// Notes how a request was answered.
    pub fn resolve(&mut self, resolved: Resolved) {
        self.requests.retain(|r| r.request != resolved.request);
        self.resolved.push_back(resolved);
        if self.resolved.len() > REMEMBERED {
            self.resolved.pop_front();
        }
    }

    /// How a request was answered; withdrawn where nobody did.
    pub fn resolved(&self, request: &str) -> Resolved {
        self.resolved.iter().rev().find(|r| r.request == request).cloned().unwrap_or_else(|| Resolved {
            request: request.to_owned(),
            decision: "withdrawn".to_owned(),
            by: None,
        })
    }

    /// The lines behind number `seen`, which becomes the last one's.
    fn news(&self, seen: &mut u64) -> Vec<String> {
        let new = self.lines.iter().filter(|(n, _)| n > seen).map(|(_, text)| text.clone()).collect();
        *seen = self.last;
        new
    }
}

/// A session that does a task. Dropped, it is stopped.
pub struct Child {
    /// Its id.
    pub id: SessionId,
    /// What is seen of it.
    pub standing: watch::Receiver<Standing>,
    /// What stops it when it goes, and keeps its place meanwhile.
    pub hold: Box<dyn Send + Sync>,
}

/// Gives work away.
#[derive(Debug)]
pub struct Delegate;

const EXPECTED: &str = r#"{"title": string, "prompt": string, "model"?: string, "mode"?: "ask" | "edits" | "all", "cwd"?: string, "steps"?: integer, "minutes"?: integer}"#;

#[derive(Deserialize)]
struct Input {
    title: String,
    prompt: String,
    #[serde(default)]
    model: Option<String>,
    #[serde(default)]
    mode: Option<Mode>,
    #[serde(default)]
    cwd: Option<PathBuf>,
    #[serde(default, deserialize_with = "input::count")]
    steps: Option<u64>,
    #[serde(default, deserialize_with = "input::count")]
    minutes: Option<u64>,
}

impl Tool for Delegate {
    fn spec(&self) -> ToolSpec {
        spec(
            NAME,
            "Gives a self-contained piece of work to an agent of its own, with the same tools and directory but an \
             empty context, and returns what it answers at its end. For work whose details you need not see: searching \
             a large code base, reading much to say little, independent changes. It knows nothing of this \
             conversation, so the prompt has to say everything, also what the answer shall contain. Several calls in \
             one step run side by side; give them work that does not touch the same files.",
            r#"{"type":"object","properties":{"title":{"type":"string","description":"The task in a few words, for people."},"prompt":{"type":"string","description":"The whole task, and what to answer."},"model":{"type":"string","description":"provider/model-id, when it is to be another model than yours."},"mode":{"type":"string","enum":["ask","edits","all"],"description":"A stricter permission mode than yours."},"cwd":{"type":"string","description":"A directory inside yours to work in."},"steps":{"type":"integer","minimum":1,"description":"Most model calls it may make."},"minutes":{"type":"integer","minimum":1,"description":"Most minutes it may take."}},"required":["title","prompt"],"additionalProperties":false}"#,
        )
    }

    fn detail(&self, input: &RawValue) -> String {
        let title = input::field(input, "title").filter(|t| !t.trim().is_empty());
        input::one_line(&title.or_else(|| input::field(input, "prompt")).unwrap_or_default())
    }

    fn parallel(&self) -> bool {
        true
    }

    fn run<'a>(&'a self, ctx: &'a dyn ToolCtx, input: &'a RawValue) -> BoxFuture<'a, Outcome> {
        Box::pin(async move { delegate(ctx, input).await.unwrap_or_else(|outcome| outcome) })
    }
}

/// A limit that a model gives; none, or at least 1.
fn limit(name: &str, given: Option<u64>) -> Result<Option<u32>, Outcome> {
    match given {
        Some(0) => Err(Outcome::error(format!("{name} has to be at least 1.\nExpected: {EXPECTED}"))),
        other => Ok(other.map(|n| u32::try_from(n).unwrap_or(u32::MAX))),
    }
}

fn read(input: &RawValue) -> Result<Task, Outcome> {
    let i: Input = input::parse(NAME, EXPECTED, input)?;
    if i.prompt.trim().is_empty() {
        return Err(Outcome::error(format!("The prompt is empty.\nExpected: {EXPECTED}")));
    }
    let named = if i.title.trim().is_empty() { &i.prompt } else { &i.title };
    Ok(Task {
        title: input::one_line(named),
        model: i.model.filter(|m| !m.trim().is_empty()),
        mode: i.mode,
        cwd: i.cwd.filter(|c| !c.as_os_str().is_empty()),
        steps: limit("steps", i.steps)?,
        minutes: limit("minutes", i.minutes)?,
        prompt: i.prompt,
    })
}

async fn delegate(ctx: &dyn ToolCtx, input: &RawValue) -> Result<Outcome, Outcome> {
    let task = read(input)?;
    let mut child = tokio::select! {
        biased;
        () = ctx.cancel().cancelled() => return Err(files::interrupted()),
        made = ctx.delegate(task) => made.map_err(Outcome::error)?,
    };
    let started = Instant::now();
    ctx.emit(&format!("session {}\n", child.id)).await;
    let (mut seen, mut asked) = (0, Vec::new());
    // Esc reaches the child by itself; what it comes to is waited for, since it has to be told.
    loop {
        let (lines, asks, done) = {
            let s = child.standing.borrow_and_update();
            let asks: Vec<(String, String)> =
                s.requests.iter().map(|r| (r.request.clone(), input::one_line(&r.title))).collect();
            (s.news(&mut seen), asks, s.done.clone())
        };
        for line in lines {
            ctx.emit(&format!("{} · {line}\n", span(started.elapsed()))).await;
        }
        for (_, title) in asks.iter().filter(|(id, _)| !asked.contains(id)) {
            ctx.emit(&format!("{} · waits for an answer: {title}\n", span(started.elapsed()))).await;
        }
        asked = asks.into_iter().map(|(id, _)| id).collect();
        if let Some(done) = done {
            return Ok(outcome(&child.id, &done, started.elapsed()));
        }
        if child.standing.changed().await.is_err() && child.standing.borrow().done.is_none() {
            let lost = Done::failed("its session went away");
            return Ok(outcome(&child.id, &lost, started.elapsed()));
        }
    }
}

/// A span of time for people.
fn span(t: Duration) -> String {
    let s = t.as_secs();
    if s < 60 { format!("{s} s") } else { format!("{} min {} s", s / 60, s % 60) }
}

/// What the model is given: the answer, then a line that says whose it is and how it came about.
fn outcome(id: &SessionId, done: &Done, took: Duration) -> Outcome {
    let steps = if done.steps == 1 { "1 step".to_owned() } else { format!("{} steps", done.steps) };
    let cost = format!("{steps}, {}; `glrs attach {id}` shows all of it", span(took));
    let why = if done.words.is_empty() { String::new() } else { format!(": {}", done.words) };
    let (ok, line) = match done.status {
        TurnStatus::Done => (true, format!("Done by session {id}{why}")),
        TurnStatus::Limit => (true, format!("Session {id} came to its limit of steps before it was finished")),
        TurnStatus::Interrupted => (false, format!("Session {id} was stopped before it was finished{why}")),
        TurnStatus::Context => (false, format!("Session {id} ran out of context before it was finished")),
        _ => (false, format!("Session {id} failed{why}")),
    };
    let text = done.text.trim();
    let text = match (text.is_empty(), ok) {
        (false, _) => format!("{text}\n\n"),
        (true, true) => "(no answer)\n\n".to_owned(),
        (true, false) => String::new(),
    };
    Outcome { ok, result: format!("{text}[{line}. {cost}.]"), ..Outcome::default() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tools::testing::{TestCtx, raw, run};
    use serde_json::json;

    fn done(status: TurnStatus, text: &str, words: &str) -> Done {
        Done { status, text: text.to_owned(), words: words.to_owned(), steps: 2 }
    }

    async fn comes_to(end: Done) -> (Outcome, TestCtx) {
        let ctx = TestCtx::new();
        ctx.child(|s| {
            s.line("step 1 · read a.txt".to_owned());
            s.done = Some(end);
        });
        let out = run(&Delegate, &ctx, json!({"title": "Look", "prompt": "look at it", "steps": 3.0})).await;
        (out, ctx)
    }

    #[tokio::test]
    async fn the_last_answer_is_the_result_and_names_its_session() {
        let (out, ctx) = comes_to(done(TurnStatus::Done, "it is blue\n", "")).await;
        assert!(out.ok && out.result.starts_with("it is blue\n\n[Done by session cafe0001. 2 steps"), "{}", out.result);
        assert!(out.result.contains("glrs attach cafe0001"));
        assert_eq!(ctx.emitted(), "session cafe0001\n0 s · step 1 · read a.txt\n");
        let task = ctx.task().unwrap();
        assert_eq!((task.title.as_str(), task.prompt.as_str(), task.steps), ("Look", "look at it", Some(3)));
    }

    #[tokio::test]
    async fn what_was_not_finished_says_so_and_keeps_what_there_is() {
        let (out, _) = comes_to(done(TurnStatus::Interrupted, "half of", "its time is up")).await;
        assert!(!out.ok && out.result.starts_with("half of\n\n") && out.result.contains("stopped"), "{}", out.result);
        assert!(out.result.contains("its time is up"));
        let (out, _) = comes_to(done(TurnStatus::Failed, "", "no key")).await;
        assert!(!out.ok && out.result.starts_with("[Session cafe0001 failed: no key."), "{}", out.result);
        let (out, _) = comes_to(done(TurnStatus::Limit, "so far", "x")).await;
        assert!(out.ok && out.result.contains("limit of steps"), "{}", out.result);
        let (out, _) = comes_to(done(TurnStatus::Done, " ", "")).await;
        assert!(out.result.starts_with("(no answer)"), "{}", out.result);
    }

    #[tokio::test]
    async fn bad_input_starts_nothing_and_a_refusal_is_told() {
        let ctx = TestCtx::new();
        for input in [
            json!(null),
            json!({"title": "x"}),
            json!({"title": "x", "prompt": " "}),
            json!({"title": "x", "prompt": "y", "steps": 0}),
            json!({"title": "x", "prompt": "y", "minutes": -1}),
            json!({"title": "x", "prompt": "y", "mode": "root"}),
        ] {
            let out = run(&Delegate, &ctx, input.clone()).await;
            assert!(!out.ok && out.result.contains("Expected"), "{input}: {}", out.result);
            Delegate.detail(&raw(&input));
        }
        assert_eq!(ctx.task(), None);
        let out = run(&Delegate, &ctx, json!({"title": "x", "prompt": "y"})).await;
        assert_eq!((out.ok, out.result.as_str()), (false, "there are no children here"));
        ctx.cancel.cancel();
        assert_eq!(run(&Delegate, &ctx, json!({"title": "x", "prompt": "y"})).await.result, "Interrupted.");
    }

    #[test]
    fn progress_is_bounded_and_answers_are_remembered() {
        let mut s = Standing::default();
        (0..200).for_each(|i| s.line(i.to_string()));
        let mut seen = 150;
        assert_eq!((s.news(&mut seen).len(), seen), (50, 200));
        assert_eq!(s.news(&mut 0).len(), REMEMBERED);
        s.resolve(Resolved { request: "r1".into(), decision: "deny".into(), by: Some("ann#1".into()) });
        assert_eq!(s.resolved("r1").by.as_deref(), Some("ann#1"));
        assert_eq!(s.resolved("r2").decision, "withdrawn");
    }
}
