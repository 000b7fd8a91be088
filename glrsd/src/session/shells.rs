//! Commands that people run themselves (`!cmd`), beside whatever the turn does.
//!
//! Owns a command from the call to its entry: durable before the reply, shown as it streams, ended
//! by esc, recorded once whatever happens. It runs as a call of the tool `bash` does, with the
//! person's authority: nobody is asked and no sandbox is put around it. How its result reaches the
//! model is the context fold's business.

use super::actor::Actor;
use super::live::{Record, ShellRun};
use super::looking::Placed;
use super::running::Piece;
use super::sending::{key_conflict, params_hash};
use super::toolctx::CallDoor;
use super::{Reply, Who};
use crate::tools::Answer;
use crate::turn::{self, Ended, Event, ToolCall, Turn};
use glrs_protocol::entry::{self, Entry};
use glrs_protocol::event as ev;
use glrs_protocol::params::{Shell, ShellResult};
use glrs_protocol::types::{Decision, PieceKind, ToolRun};
use glrs_protocol::{ErrorKind, RpcError};
use serde_json::value::{RawValue, to_raw_value};
use std::sync::Arc;
use tokio::sync::mpsc;
use tokio_util::sync::{CancellationToken, DropGuard};

/// Most commands of people that run at once in a session.
const MAX: usize = 8;
/// The tool they run as.
const TOOL: &str = "bash";
/// What stands in the entry of a command that the daemon's end cut off.
const CUT: &str = "[The daemon stopped while this command ran. It may have had an effect; it is not run again.]";

/// A command that runs.
pub(super) struct Running {
    run: ShellRun,
    detail: String,
    /// What it has written.
    pub piece: Piece,
    stop: CancellationToken,
    _guard: DropGuard,
}

/// Commands that run, and how they report.
#[derive(Default)]
pub(super) struct Shells {
    running: Vec<Running>,
    /// There while any runs: a session at rest is small.
    events: Option<(mpsc::Sender<Event>, mpsc::Receiver<Event>)>,
}

impl Shells {
    /// What happens next; never, while none runs.
    pub async fn next(&mut self) -> Event {
        if let Some((_, rx)) = &mut self.events
            && let Some(event) = rx.recv().await
        {
            return event;
        }
        std::future::pending().await
    }

    /// Whether none runs.
    pub fn is_empty(&self) -> bool {
        self.running.is_empty()
    }

    /// Those that run.
    pub fn iter(&self) -> impl Iterator<Item = &Running> {
        self.running.iter()
    }

    /// What streams of them.
    pub fn pieces_mut(&mut self) -> impl Iterator<Item = &mut Piece> {
        self.running.iter_mut().map(|r| &mut r.piece)
    }

    /// Those that run, as clients see them.
    pub fn rows(&self) -> Vec<ToolRun> {
        let row = |r: &Running| ToolRun {
            call_id: r.run.call.clone(),
            name: TOOL.to_owned(),
            detail: r.detail.clone(),
            of: r.piece.of.clone(),
            started_at: r.run.at.clone(),
            by: Some(r.run.by.clone()),
        };
        self.running.iter().map(row).collect()
    }

    /// Whether one that runs was called with this key.
    pub fn has_key(&self, key: &str) -> bool {
        self.running.iter().any(|r| r.run.key == key)
    }

    /// Stops all of them; their entries follow. Answers whether there were any.
    pub fn stop(&self) -> bool {
        self.running.iter().for_each(|r| r.stop.cancel());
        !self.running.is_empty()
    }
}

fn input(command: &str) -> Box<RawValue> {
    to_raw_value(&serde_json::json!({ "command": command })).unwrap_or_else(|_| RawValue::NULL.to_owned())
}

impl Actor {
    pub(super) async fn shell(&mut self, who: &Who, p: Shell, reply: Reply<ShellResult>) {
        if p.command.trim().is_empty() {
            return reply(Err(RpcError::params("the command is blank: nothing was run")));
        }
        let hash = params_hash(&["shell", &p.command]);
        match self.known_shell(p.key.as_deref(), &hash) {
            Ok(None) => {}
            Ok(Some(known)) => return reply(Ok(known)),
            Err(e) => return reply(Err(e)),
        }
        if !self.disk.ok {
            return reply(Err(self.disk_error()));
        }
        if self.stopping.is_some() {
            return reply(Err(RpcError::new(ErrorKind::ShuttingDown, "the daemon is stopping: try again in a moment")));
        }
        if self.shells.running.len() >= MAX {
            let kind = ErrorKind::Limit { what: "commands at once".into(), max: MAX as u64 };
            return reply(Err(RpcError::new(kind, "too many commands run: wait for one, or stop them (esc)")));
        }
        // A session's file is there before its journal speaks of it.
        let at = self.now();
        let first = self.first_entries(&at);
        let recorded = self.record(&first);
        if !first.is_empty() && (recorded.is_empty() || self.sync().await.is_err()) {
            return reply(Err(if recorded.is_empty() { self.not_recorded() } else { self.disk_error() }));
        }
        self.next_piece += 1;
        let run = ShellRun {
            call: format!("shell-{}", self.word()),
            of: format!("p{}", self.next_piece),
            by: who.by.clone(),
            command: p.command,
            key: p.key.unwrap_or_else(|| format!("glrsd-{}", self.word())),
            hash,
            at,
        };
        self.note(&Record::Shell { s: run.clone() });
        if let Err(e) = self.sync_live().await {
            self.note(&Record::Whole { of: run.of });
            return reply(Err(e));
        }
        reply(Ok(ShellResult { outcome: "running".into(), call: Some(run.call.clone()), entry: None }));
        self.publish_entries(recorded);
        self.publish_info_if_new();
        self.start_shell(run);
        self.publish_state();
    }

    /// A command that was run before with this key.
    fn known_shell(&self, key: Option<&str>, hash: &str) -> Result<Option<ShellResult>, RpcError> {
        let Some(key) = key else { return Ok(None) };
        if let Some(r) = self.shells.running.iter().find(|r| r.run.key == key) {
            let same = ShellResult { outcome: "running".into(), call: Some(r.run.call.clone()), entry: None };
            return if r.run.hash == hash { Ok(Some(same)) } else { Err(key_conflict(key)) };
        }
        if self.queue.by_key(key).is_some() {
            return Err(key_conflict(key));
        }
        let done = self.keyed(Some(key), hash)?;
        Ok(done.map(|n| ShellResult { outcome: "done".into(), call: None, entry: Some(n) }))
    }

    fn start_shell(&mut self, run: ShellRun) {
        let events = &self.shells.events.get_or_insert_with(|| mpsc::channel(turn::EVENTS)).0.clone();
        let stop = CancellationToken::new();
        let mut door = self.door(&stop, self.summary.last_user, events.clone(), Placed::new(self.place()));
        door.sandbox = None;
        let tools: Vec<_> = self.shared.tools.iter().filter(|t| t.spec().name == TOOL).cloned().collect();
        let turn = Turn {
            tools: tools.into(),
            events: events.clone(),
            cancel: stop.clone(),
            ctx: Arc::new(move |call: &ToolCall| {
                Box::new(CallDoor { turn: door.clone(), call: call.id.clone(), tool: call.name.clone() })
            }),
        };
        let call = ToolCall { id: run.call.clone(), name: TOOL.to_owned(), input: input(&run.command), refused: None };
        // Ends by itself: by the command's end, by time, or with its token, which goes with the session.
        tokio::spawn(async move { turn.run_one(call).await });
        let piece = Piece::new(run.of.clone(), PieceKind::Tool, Some(&run.call));
        let detail = crate::fold::summary::title_line(&run.command);
        self.shells.running.push(Running { run, detail, piece, _guard: stop.clone().drop_guard(), stop });
    }

    pub(super) async fn shell_event(&mut self, event: Event) {
        match event {
            Event::Started { call, detail } => {
                if let Some(r) = self.shells.running.iter_mut().find(|r| r.run.call == call.id) {
                    r.detail = detail;
                }
                self.publish_state();
            }
            Event::Output { call, text } => {
                let Some(r) = self.shells.running.iter_mut().find(|r| r.run.call == call) else { return };
                let delta = r.piece.push(&text);
                self.publish(&ev::Event::Delta(delta));
                self.flush_soon();
            }
            // Whoever typed it has decided.
            Event::Ask { answer, .. } => {
                let _ = answer.send(Answer { decision: Decision::Allow, words: None, by: None });
            }
            Event::Ended(ended) => self.shell_ended(*ended).await,
            _ => {}
        }
    }

    async fn shell_ended(&mut self, e: Ended) {
        let Some(at) = self.shells.running.iter().position(|r| r.run.call == e.call.id) else { return };
        let Running { run, .. } = self.shells.running.remove(at);
        if self.shells.running.is_empty() {
            self.shells.events = None;
        }
        self.trace_tool(&e, Some(&run.by));
        let entry = Entry::Tool(entry::Tool {
            name: e.call.name,
            detail: e.detail,
            elapsed_ms: e.elapsed_ms,
            ok: e.ok,
            input: Some(e.call.input),
            result: Some(e.result),
            blob: e.blob,
            by: Some(run.by),
            at: self.now(),
            key: Some(run.key),
            key_hash: Some(run.hash),
            ..entry::Tool::default()
        });
        let recorded = self.record(&[entry]);
        // The journal lets go of it only once the log has it.
        if self.sync().await.is_ok() {
            self.note(&Record::Whole { of: run.of.clone() });
        }
        for (n, raw) in recorded {
            self.publish_entry(n, raw, Some(run.of.clone()));
        }
        self.touch();
        self.publish_state();
        self.trim_live();
    }

    /// The entries of commands that the daemon's end cut off, and were not recorded yet.
    pub(super) fn cut_shells(&self, live: &super::live::LiveState, known: impl Fn(&str) -> bool) -> Vec<Entry> {
        let at = self.now();
        let cut = live.shells.iter().filter(|s| !known(&s.key)).map(|s| {
            let text = live.parts.get(&s.of).map(|p| p.text.as_str()).unwrap_or_default();
            let text = crate::tools::clip::clip_plain(text, turn::RESULT_CHARS - 200);
            let line = if text.is_empty() || text.ends_with('\n') { "" } else { "\n" };
            Entry::Tool(entry::Tool {
                name: TOOL.to_owned(),
                detail: crate::fold::summary::title_line(&s.command),
                input: Some(input(&s.command)),
                result: Some(format!("{text}{line}{CUT}")),
                by: Some(s.by.clone()),
                at: at.clone(),
                key: Some(s.key.clone()),
                key_hash: Some(s.hash.clone()),
                ..entry::Tool::default()
            })
        });
        cut.collect()
    }
}
