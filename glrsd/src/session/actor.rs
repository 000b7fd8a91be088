//! The actor: one task per loaded session, one loop, one thing at a time.
//!
//! Owns the loop and the timers. What is written is in [`super::recording`], what each command means in the
//! other sibling modules. A panic inside is contained here: the session is then `broken`, the rest of
//! the daemon serves on.

use super::children::{self, Children, TaskLink};
use super::events::Events;
use super::feed::Feed;
use super::jobs::Jobs;
use super::queue::Queue;
use super::requests::Open;
use super::running::Running;
use super::shells::Shells;
use super::toolctx::Seen;
use super::{Cmd, Handle, MAILBOX, Shared};
use crate::config;
use crate::fold::{Context, Summary};
use crate::host::Env;
use crate::host::scratch::SessionTmp;
use crate::store::{Live, Log};
use crate::turn;
use futures_util::FutureExt;
use glrs_protocol::event::Event;
use glrs_protocol::types::{Disk, Mode, SessionInfo, StateName};
use glrs_protocol::{ErrorKind, RpcError, SessionId};
use std::collections::BTreeMap;
use std::panic::AssertUnwindSafe;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::sync::mpsc;
use tokio::time::Instant;

/// How long an idle session nobody looks at stays in memory.
pub const LINGER: Duration = Duration::from_secs(60);
/// How often what streams goes to the live journal.
pub(super) const FLUSH: Duration = Duration::from_millis(250);
/// How long between attempts while the disk fails.
pub(super) const DISK_RETRY: Duration = Duration::from_secs(1);

/// Where a session comes from.
pub enum Origin {
    /// It lies in the store.
    Stored,
    /// A client just made it.
    New(Box<NewSession>),
}

/// A session that a client makes.
pub struct NewSession {
    /// Working directory.
    pub cwd: PathBuf,
    /// Model and variant; the default where absent.
    pub model: Option<String>,
    /// Reasoning effort.
    pub variant: Option<String>,
    /// Permission mode.
    pub mode: Option<Mode>,
    /// Environment of its maker.
    pub env: Env,
    /// The task it is made for, if it is.
    pub task: Option<Box<TaskLink>>,
}

/// Told when a session has ended, with what is left in its mailbox.
pub type Gone = Box<dyn FnOnce(&SessionId, Vec<Box<Cmd>>) + Send>;

/// Title, renamed, model, variant, mode, cwd, saved, sandbox.
pub(super) type Face = (String, bool, String, Option<String>, Mode, String, bool, Option<String>);

/// An attached client.
pub(super) struct Attached {
    pub by: String,
    pub read_only: bool,
}

/// Why the loop ended.
pub(super) enum Exit {
    /// It went quietly; what is in its mailbox goes to its successor.
    Unloaded,
    /// It cannot be used: everyone is told this.
    Failed(RpcError),
}

/// A session's state. Only its own task touches it.
pub(super) struct Actor {
    pub shared: Arc<Shared>,
    pub id: SessionId,
    pub epoch: String,
    pub feed: Arc<Feed>,
    pub cell: Arc<Mutex<Option<SessionInfo>>>,
    pub log: Log,
    pub live: Live,
    /// Whether the live journal has lines.
    pub live_used: bool,
    pub summary: Summary,
    /// The context, folded when it is first needed.
    pub ctx: Option<Context>,
    /// The model and mode of a session that has no file yet, or the effective ones.
    pub model: String,
    pub variant: Option<String>,
    pub mode: Mode,
    pub window: u64,
    pub cwd: PathBuf,
    pub queue: Queue,
    /// A brief that is being written or waits to land.
    pub writing: Option<super::compacting::Writing>,
    pub brief_rx: Option<tokio::sync::oneshot::Receiver<Result<String, String>>>,
    pub course: super::course::Course,
    /// How many artifacts there were when the turn began.
    pub artifacts: usize,
    pub compact_key: Option<(String, String)>,
    pub shown_compaction: glrs_protocol::types::Compaction,
    pub held: bool,
    /// Messages in the log whose turn waits for the disk.
    pub start_later: Option<(u64, Vec<super::queue::Waiting>)>,
    pub requests: Vec<Open>,
    pub answered: super::requests::Answered,
    pub running: Option<Running>,
    pub events: Option<Events>,
    /// Events that wait for entries before them to be durable.
    pub held_back: Mutex<Option<Vec<Event>>>,
    /// Lines of the trace that are not written yet.
    pub traced: Mutex<String>,
    pub next_piece: u64,
    pub clients: BTreeMap<u64, Attached>,
    pub env: Arc<Env>,
    /// Where tools put what is temporary.
    pub tmp: Arc<SessionTmp>,
    /// What runs in the background.
    pub jobs: Jobs,
    /// Commands of people.
    pub shells: Shells,
    pub seen: Seen,
    /// The task it does for another session.
    pub task: Option<Box<TaskLink>>,
    /// Sessions that do tasks for it.
    pub children: Children,
    pub toolbox: super::toolbox::Toolbox,
    pub disk: Disk,
    pub disk_retry: Option<Instant>,
    pub config: Arc<config::Loaded>,
    /// Hash of the instructions the context has; they are sent again when they changed.
    pub told: Option<String>,
    pub quiet_since: Instant,
    pub flush_at: Option<Instant>,
    pub stopping: Option<String>,
    pub deleted: bool,
    /// A turn has settled: the next one may start.
    pub go_on: bool,
    /// Another program wrote the file: the session is read anew.
    pub foreign: bool,
    /// State as last published.
    pub shown: Option<glrs_protocol::types::State>,
    /// What people see of it (see `publish_info_if_new`), as last published.
    pub shown_face: Option<Face>,
    /// Usage as last published.
    pub shown_usage: Option<glrs_protocol::types::UsageInfo>,
    /// Whether what opening left out was said.
    pub salvage_told: bool,
    /// What was said of the configuration.
    pub config_told: Vec<String>,
}

/// Starts a session's task. `gone` is called when it has ended, with what is left in its mailbox.
pub fn spawn(shared: Arc<Shared>, id: SessionId, origin: Origin, gone: Gone) -> Handle {
    let (tx, mut rx) = mpsc::channel(MAILBOX);
    let feed = Arc::new(Feed::default());
    let info = Arc::new(Mutex::new(None));
    let handle = Handle { id: id.clone(), tx, feed: feed.clone(), info: info.clone() };
    tokio::spawn(async move {
        let body = async {
            match Actor::open(shared.clone(), id.clone(), origin, feed.clone(), info.clone()).await {
                Ok(mut actor) => actor.serve(&mut rx).await,
                Err(e) => Exit::Failed(e),
            }
        };
        let exit = AssertUnwindSafe(body).catch_unwind().await.unwrap_or_else(|_| {
            tracing::error!(session = %id, "the session failed inside and is out of use until the daemon restarts");
            Exit::Failed(RpcError::new(
                ErrorKind::Broken { why: "internal fault".into() },
                format!(
                    "session {id} failed inside; what was acknowledged is on disk. `glrs daemon restart` loads it anew"
                ),
            ))
        });
        if let Exit::Failed(error) = exit {
            refuse(&mut rx, &error, &info, &feed, &shared).await;
        }
        feed.close("the session was unloaded; attach again");
        rx.close();
        let mut rest = Vec::new();
        // To the last one: `recv` also waits for senders that had a place already.
        while let Some(cmd) = rx.recv().await {
            rest.push(cmd);
        }
        gone(&id, rest);
    });
    handle
}

/// Answers everyone with `error`. A session that is merely absent goes when its mailbox is empty;
/// a broken one stays, so that its state can be seen.
async fn refuse(
    rx: &mut mpsc::Receiver<Box<Cmd>>,
    error: &RpcError,
    info: &Mutex<Option<SessionInfo>>,
    feed: &Feed,
    shared: &Shared,
) {
    let internal = matches!(&error.data, Some(ErrorKind::Broken { why }) if why == "internal fault");
    if internal {
        feed.close(&error.message);
        let mut cell = info.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(i) = cell.as_mut() {
            i.state = StateName::Broken;
            i.why = Some(error.message.clone());
            (shared.on_change)(i);
        }
    }
    loop {
        let cmd = if internal { rx.recv().await } else { rx.try_recv().ok() };
        match cmd.map(|c| *c) {
            Some(Cmd::Stop { .. }) | None => return,
            Some(cmd) => cmd.fail(error.clone()),
        }
    }
}

impl Cmd {
    /// Answers with an error.
    pub fn fail(self, e: RpcError) {
        match self {
            Self::Attach { reply, .. } => reply(Err(e)),
            Self::Resume { reply, .. } | Self::Info { reply } | Self::Set { reply, .. } => reply(Err(e)),
            Self::Read { reply } => reply(Err(e)),
            Self::Send { reply, .. } => reply(Err(e)),
            Self::Shell { reply, .. } => reply(Err(e)),
            Self::Interrupt { reply, .. } => reply(Err(e)),
            Self::Release { reply, .. } => reply(Err(e)),
            Self::QueueEdit { reply, .. } => reply(Err(e)),
            Self::QueueRemove { reply, .. } => reply(Err(e)),
            Self::QueueMove { reply, .. } => reply(Err(e)),
            Self::Answer { reply, .. } | Self::Clear { reply, .. } | Self::Delete { reply, .. } => reply(Err(e)),
            Self::Fork { reply, .. } => reply(Err(e)),
            Self::Compact { reply, .. } => reply(Err(e)),
            Self::Rewind { reply, .. } => reply(Err(e)),
            Self::Append { reply, .. } => reply(Err(e)),
            Self::Detach { .. } | Self::Stop { .. } => {}
        }
    }

    /// Who asks for a change, so that read-only attachments can be refused.
    fn changer(&self) -> Option<&super::Who> {
        match self {
            Self::Send { who, .. }
            | Self::Shell { who, .. }
            | Self::Interrupt { who, .. }
            | Self::Release { who, .. }
            | Self::QueueEdit { who, .. }
            | Self::QueueRemove { who, .. }
            | Self::QueueMove { who, .. }
            | Self::Answer { who, .. }
            | Self::Set { who, .. }
            | Self::Clear { who, .. }
            | Self::Compact { who, .. }
            | Self::Rewind { who, .. }
            | Self::Append { who, .. }
            | Self::Delete { who, .. } => Some(who),
            _ => None,
        }
    }
}

pub(super) async fn next_event(events: &mut Option<Events>) -> Option<turn::Event> {
    match events {
        Some(events) => events.recv().await,
        None => std::future::pending().await,
    }
}

async fn next_brief(rx: &mut Option<tokio::sync::oneshot::Receiver<Result<String, String>>>) -> Result<String, String> {
    match rx {
        Some(rx) => rx.await.unwrap_or_else(|_| Err("the summariser failed inside".to_owned())),
        None => std::future::pending().await,
    }
}

impl Actor {
    async fn serve(&mut self, rx: &mut mpsc::Receiver<Box<Cmd>>) -> Exit {
        self.touch();
        self.run_on().await;
        loop {
            // A turn may fail before it begins; then the next one is started at once.
            while std::mem::take(&mut self.go_on) {
                self.run_on().await;
            }
            if self.deleted || self.foreign || self.is_stopped() {
                return self.leave().await;
            }
            self.write_trace();
            let timer = self.next_timer();
            tokio::select! {
                cmd = rx.recv() => match cmd {
                    Some(cmd) => self.command(*cmd).await,
                    None => return self.leave().await,
                },
                event = next_event(&mut self.events) => match event {
                    Some(event) => self.turn_event(event).await,
                    None => self.turn_vanished().await,
                },
                event = self.shells.next() => self.shell_event(event).await,
                () = self.jobs.changed() => {
                    self.touch();
                    self.publish_state();
                }
                i = self.children.changed() => self.child_changed(i),
                () = children::called_off(&self.task) => self.task_called_off().await,
                written = next_brief(&mut self.brief_rx) => self.brief_written(written).await,
                () = tokio::time::sleep_until(timer.unwrap_or_else(Instant::now)), if timer.is_some() => {
                    if self.on_timer().await {
                        return self.leave().await;
                    }
                }
            }
        }
    }

    async fn leave(&mut self) -> Exit {
        self.drop_brief("the session was unloaded");
        if let Some(why) = &self.stopping {
            self.feed.close(why);
        }
        self.shells.stop();
        self.jobs.stop().await;
        // Nothing of it runs any more; the tree may be large.
        let tmp = self.tmp.clone();
        let _ = tokio::task::spawn_blocking(move || tmp.remove()).await;
        self.write_trace();
        if !self.deleted {
            // What is not synced yet is synced on the way out; a failure was shown already.
            let _ = self.log.sync().await;
            self.keep_fold();
            if self.live_used && self.is_settled() {
                let _ = self.live.unlink();
            }
        }
        Exit::Unloaded
    }

    async fn command(&mut self, cmd: Cmd) {
        if let Some(who) = cmd.changer()
            && self.clients.get(&who.client).is_some_and(|c| c.read_only)
        {
            return cmd.fail(RpcError::new(
                ErrorKind::Forbidden,
                "you attached read-only: attach again without --read-only to change the session",
            ));
        }
        match cmd {
            Cmd::Attach { who, p, wake, reply } => self.attach(who, *p, wake, reply),
            Cmd::Detach { who } => self.detach(&who),
            Cmd::Resume { env, reply } => {
                if let Some(env) = env {
                    self.env_came(env);
                }
                reply(Ok(self.info()));
            }
            Cmd::Info { reply } => reply(Ok(self.info())),
            Cmd::Read { reply } => reply(Ok(self.log.reader())),
            Cmd::Send { who, p, reply } => self.send(who, p, reply).await,
            Cmd::Shell { who, p, reply } => self.shell(&who, p, reply).await,
            Cmd::Interrupt { who, reply } => self.interrupt(&who, reply).await,
            Cmd::Release { reply, .. } => self.release(reply).await,
            Cmd::QueueEdit { p, reply, .. } => self.queue_edit(p, reply).await,
            Cmd::QueueRemove { who, p, reply } => self.queue_remove(&who, p, reply).await,
            Cmd::QueueMove { p, reply, .. } => self.queue_move(p, reply).await,
            Cmd::Answer { who, p, reply } => self.answer(&who, p, reply).await,
            Cmd::Set { who, p, reply } => self.set(&who, p, reply).await,
            Cmd::Fork { who, p, new_id, reply } => self.fork(&who, p, new_id, reply).await,
            Cmd::Clear { p, reply, .. } => self.clear(p, reply).await,
            Cmd::Compact { who, p, reply } => self.compact(&who, p, reply).await,
            Cmd::Rewind { who, p, reply } => self.rewind(&who, p, reply).await,
            Cmd::Append { p, reply, .. } => self.append_custom(p, reply).await,
            Cmd::Delete { force, reply, .. } => self.delete(force, reply),
            Cmd::Stop { drain, why } => self.stop(drain, why).await,
        }
        self.touch();
    }

    /// The daemon stops: with `drain` the running step may end first.
    async fn stop(&mut self, drain: bool, why: String) {
        self.stopping = Some(why.clone());
        self.drop_brief(&why);
        // They are no steps: nothing would be won by waiting for them.
        self.shells.stop();
        if !drain && self.running.is_some() {
            self.cancel_turn(true, Some(why)).await;
        }
    }

    /// Whether it was told to stop and nothing is left to be recorded.
    fn is_stopped(&self) -> bool {
        self.stopping.is_some() && self.running.is_none() && self.shells.is_empty()
    }

    fn next_timer(&self) -> Option<Instant> {
        let stopping = self.running.as_ref().and_then(|r| r.stopping.as_ref()).map(|s| s.deadline);
        let linger = self.is_quiet().then(|| self.quiet_since + LINGER);
        [stopping, self.flush_at, self.disk_retry, linger, self.task_until()].into_iter().flatten().min()
    }

    /// Returns true when it is time to unload.
    async fn on_timer(&mut self) -> bool {
        let now = Instant::now();
        if self.running.as_ref().and_then(|r| r.stopping.as_ref()).is_some_and(|s| s.deadline <= now) {
            self.stop_by_force().await;
        }
        self.task_timer(now).await;
        if self.flush_at.is_some_and(|t| t <= now) {
            self.flush_parts();
        }
        if self.disk_retry.is_some_and(|t| t <= now) {
            self.retry_disk().await;
        }
        self.is_quiet() && self.quiet_since + LINGER <= now
    }

    /// Whether nothing of it needs to be in memory.
    fn is_quiet(&self) -> bool {
        self.clients.is_empty() && self.is_settled() && self.jobs.is_empty() && self.disk.ok
    }

    /// Whether nothing runs or waits.
    pub fn is_settled(&self) -> bool {
        self.running.is_none()
            && self.shells.is_empty()
            && self.queue.rows.is_empty()
            && self.requests.is_empty()
            && !self.held
            && self.start_later.is_none()
            && self.writing.is_none()
    }

    /// Notes that something happened: the linger starts anew.
    pub fn touch(&mut self) {
        self.quiet_since = Instant::now();
    }
}
