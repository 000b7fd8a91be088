//! `glrs -p`: one turn, its answer on stdout.
//!
//! Owns the loop from sending to the result: reconnecting with the same key, denying requests,
//! the time limit and signals. What belongs to the turn is [`super::watch`]'s.

use super::Ctx;
use super::args::{Format, Plan};
use super::failure::{Exit, Failure};
use super::watch::{Cut, Denied, Watch};
use super::{open, output, prompt};
use crate::client::{CallError, Client, Events, Incoming};
use crate::view::{Applied, SessionView, typed};
use glrs_protocol::error::ErrorKind;
use glrs_protocol::event::{Event, EventFrame};
use glrs_protocol::methods::m;
use glrs_protocol::params::{Answer, Attach, Entries, Id, Send};
use glrs_protocol::types::{Decision, NumberedEntry, RequestKind, SendMode};
use serde_json::json;
use std::collections::HashSet;
use std::time::{Duration, Instant};
use tokio::signal::unix::{Signal, SignalKind, signal};

/// How often a lost daemon is looked for again before we give up.
const RECONNECTS: u32 = 5;

/// Runs `glrs -p`.
///
/// # Errors
/// When the turn could not be run; how the turn itself ended is the exit code.
pub async fn run(ctx: &Ctx, plan: &Plan) -> Result<Exit, Failure> {
    let begun = Instant::now();
    let text = prompt::read(plan.print.as_deref().unwrap_or_default()).await?;
    let cwd = ctx.directory(plan.cwd.as_deref())?;
    let client = ctx.connect("print").await?;
    let session = open::open(ctx, &client, plan, &cwd).await?;
    let events = client.events().await?;
    let snapshot = client
        .call::<m::SessionAttachM>(&Attach {
            id: session.id.clone(),
            after: None,
            after_entry: None,
            tail: Some(1),
            read_only: false,
            env: None,
        })
        .await?;
    let view = SessionView::new(snapshot);
    if plan.format == Format::StreamJson {
        output::json_line(&json!({
            "type": "system", "subtype": "init", "session_id": session.id, "sessionId": session.id,
            "cwd": session.cwd, "model": session.model, "mode": session.mode,
        }))?;
    }
    let key = uuid::Uuid::now_v7().to_string();
    let mut run = Run {
        ctx,
        watch: Watch::new(&key, &text),
        send: Send { id: session.id.clone(), text, attachments: Vec::new(), mode: SendMode::Queue, key: Some(key) },
        fed: view.last_entry(),
        view,
        client,
        events,
        row: None,
        answered: HashSet::new(),
        stream: plan.format == Format::StreamJson,
        wait: plan.wait,
        stop: None,
    };
    run.send().await?;
    run.turn(plan.timeout.map(|t| tokio::time::Instant::now() + t)).await?;
    let watch = &run.watch;
    match plan.format {
        Format::Text => {
            if !watch.answer().is_empty() {
                output::text(watch.answer())?;
            }
        }
        Format::Json => output::json_line(&watch.result(session.id.as_str(), millis(begun)))?,
        Format::StreamJson => output::json_line(&watch.result(session.id.as_str(), millis(begun)))?,
    }
    if let Some(trouble) = watch.trouble() {
        output::complain(&trouble);
        output::note(&format!("glrs --resume {} goes on from here", session.id));
    }
    Ok(watch.exit())
}

fn millis(since: Instant) -> u64 {
    u64::try_from(since.elapsed().as_millis()).unwrap_or(u64::MAX)
}

struct Run<'a> {
    ctx: &'a Ctx,
    client: Client,
    events: Events,
    view: SessionView,
    watch: Watch,
    send: Send,
    /// The row our message waits in.
    row: Option<u64>,
    /// Number of the last entry the watch has seen.
    fed: u64,
    /// Requests that were answered, or are to be left alone.
    answered: HashSet<String>,
    stream: bool,
    wait: bool,
    /// Once the turn was interrupted: when to stop waiting for its end.
    stop: Option<tokio::time::Instant>,
}

impl Run<'_> {
    /// Sends the message. The key makes repeating it safe.
    async fn send(&mut self) -> Result<(), Failure> {
        let sent = match self.client.call::<m::SessionSendM>(&self.send).await {
            // The stream's end follows; on the next connection it is sent again.
            Err(e) if e.is_connection() || e.kind() == ErrorKind::ShuttingDown => return Ok(()),
            other => other?,
        };
        self.row = sent.row;
        if sent.outcome == "removed" {
            self.watch.cut = Some(Cut::Removed);
        }
        Ok(())
    }

    async fn turn(&mut self, deadline: Option<tokio::time::Instant>) -> Result<(), Failure> {
        let mut interrupt = Ears::new()?;
        while !self.watch.over() && self.watch.cut != Some(Cut::Removed) {
            let until = self.stop.or(deadline);
            tokio::select! {
                incoming = self.events.next() => self.incoming(incoming).await?,
                () = interrupt.heard() => {
                    if self.stop.is_some() {
                        return Ok(());
                    }
                    self.cut(Cut::Signal).await;
                }
                () = at(until) => {
                    if self.stop.is_some() {
                        return Ok(());
                    }
                    self.cut(Cut::Timeout).await;
                }
            }
        }
        Ok(())
    }

    /// Stops the turn, or takes the message back while it still waits, and gives the end a second.
    async fn cut(&mut self, cut: Cut) {
        self.watch.cut = Some(cut);
        self.stop = Some(tokio::time::Instant::now() + Duration::from_secs(1));
        let waiting = self.row.and_then(|row| self.view.queue.iter().find(|r| r.row == row));
        let stopped = match waiting {
            // Somebody else's turn runs: it is not ours to stop.
            Some(row) if !self.watch.started() => {
                let params =
                    glrs_protocol::params::QueueRemove { id: self.send.id.clone(), row: row.row, version: row.version };
                let removed = self.client.call::<m::QueueRemoveM>(&params).await.map(drop);
                self.stop = Some(tokio::time::Instant::now());
                removed
            }
            _ => self.client.call::<m::SessionInterruptM>(&Id { id: self.send.id.clone() }).await.map(drop),
        };
        if let Err(e) = stopped {
            output::complain(&format!("could not interrupt the turn, it may go on: {e}"));
        }
    }

    async fn incoming(&mut self, incoming: Incoming) -> Result<(), Failure> {
        match incoming {
            Incoming::Session(frame) => match self.view.apply(&frame) {
                Applied::Fresh => self.fresh(&frame).await?,
                Applied::Ignored => {}
                Applied::Reattach => self.attach(true).await?,
                Applied::Closed(why) => match self.attach(true).await {
                    Err(e) if e.exit == Exit::NoSession => {
                        return Err(Failure::error(format!("the session ended: {why}")));
                    }
                    other => other?,
                },
            },
            Incoming::Overflow => self.attach(true).await?,
            Incoming::Roster(_) => {}
            Incoming::Disconnected(why) => self.reconnect(&why).await?,
        }
        Ok(())
    }

    async fn fresh(&mut self, frame: &EventFrame) -> Result<(), Failure> {
        match &frame.event {
            Event::Entry(_) => self.feed()?,
            Event::Delta(d) if self.stream && self.watch.ours() => {
                output::json_line(&json!({
                    "type": "delta", "of": d.of, "piece": d.piece, "offset": d.offset, "text": d.text,
                    "session_id": self.send.id,
                }))?;
            }
            _ => {}
        }
        self.settle().await
    }

    /// Gives the watch every entry it has not seen.
    fn feed(&mut self) -> Result<(), Failure> {
        let from = self.view.entries.partition_point(|e| e.n <= self.fed);
        for entry in &self.view.entries[from..] {
            self.fed = entry.n;
            if self.watch.entry(&typed(entry)) && self.stream {
                output::json_line(&json!({
                    "type": "entry", "n": entry.n, "entry": entry.entry, "session_id": self.send.id,
                }))?;
            }
        }
        Ok(())
    }

    /// Tells the watch how things stand and answers what waits for an answer.
    async fn settle(&mut self) -> Result<(), Failure> {
        let waits = self.row.map(|row| self.view.queue.iter().any(|r| r.row == row));
        if self.watch.state(self.view.running(), waits) {
            // The same key asks where the message is and runs nothing twice.
            self.send().await?;
        }
        if self.wait || !self.watch.ours() {
            return Ok(());
        }
        let open: Vec<_> = self.view.requests.iter().filter(|r| !self.answered.contains(&r.request)).cloned().collect();
        for request in open {
            self.answered.insert(request.request.clone());
            let params = Answer {
                id: self.send.id.clone(),
                request: request.request.clone(),
                decision: Decision::Deny,
                words: Some("nobody is there to answer: this runs unattended".to_owned()),
            };
            match self.client.call::<m::RequestAnswerM>(&params).await {
                Ok(_) => {
                    if request.kind == RequestKind::Permission {
                        let denied = Denied::of(&request);
                        output::complain(&denied.words());
                        self.watch.denied.push(denied);
                    }
                }
                // Somebody was first, or it was withdrawn: their answer counts.
                Err(CallError::Rpc(e))
                    if matches!(e.kind(), ErrorKind::AlreadyResolved { .. } | ErrorKind::NotFound) => {}
                Err(e) if e.is_connection() => {
                    self.answered.remove(&request.request);
                }
                Err(e) => return Err(e.into()),
            }
        }
        Ok(())
    }

    async fn attach(&mut self, same_connection: bool) -> Result<(), Failure> {
        let params = self.view.attach_params(same_connection, false);
        let snapshot = match self.client.call::<m::SessionAttachM>(&params).await {
            // The stream tells of the loss as well, and there it is dealt with.
            Err(e) if e.is_connection() || e.kind() == ErrorKind::ShuttingDown => return Ok(()),
            other => other?,
        };
        self.view.adopt(snapshot);
        // A turn may have made more entries than a snapshot holds.
        while let Some(from) = self.hole() {
            let params = Entries { id: self.send.id.clone(), from: i64::try_from(from).ok(), limit: None };
            let got = self.client.call::<m::SessionEntriesM>(&params).await?.entries;
            if got.first().is_none_or(|e: &NumberedEntry| e.n != from) {
                break;
            }
            self.view.fill(got);
        }
        self.feed()?;
        self.settle().await
    }

    /// First entry that is missing between what the watch has seen and what is here.
    fn hole(&self) -> Option<u64> {
        let here = self.view.entries.iter().map(|e| e.n).skip_while(|n| *n <= self.fed);
        (self.fed + 1..).zip(here).find(|(next, n)| next != n).map(|(next, _)| next)
    }

    async fn reconnect(&mut self, why: &str) -> Result<(), Failure> {
        output::complain(&format!("{why}; connecting again"));
        let mut last = None;
        for attempt in 0..RECONNECTS {
            if attempt > 0 {
                tokio::time::sleep(Duration::from_millis(200 << attempt)).await;
            }
            match self.ctx.connect("print").await {
                Ok(client) => {
                    self.events = client.events().await?;
                    self.client = client;
                    self.attach(false).await?;
                    if !self.watch.started() {
                        self.send().await?;
                    }
                    return Ok(());
                }
                Err(e) => last = Some(e),
            }
        }
        Err(last.unwrap_or_else(|| Failure::error(why.to_owned())))
    }
}

async fn at(when: Option<tokio::time::Instant>) {
    match when {
        Some(when) => tokio::time::sleep_until(when).await,
        None => std::future::pending().await,
    }
}

/// The signals that ask us to stop.
struct Ears {
    int: Signal,
    term: Signal,
}

impl Ears {
    fn new() -> Result<Self, Failure> {
        Ok(Self { int: signal(SignalKind::interrupt())?, term: signal(SignalKind::terminate())? })
    }

    async fn heard(&mut self) {
        tokio::select! {
            _ = self.int.recv() => {}
            _ = self.term.recv() => {}
        }
    }
}
