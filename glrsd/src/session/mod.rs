//! A session: the actor that alone owns its log, queue, turn slot and open requests.
//!
//! Owns all change of a session. Everything else sends it [`Cmd`]s through a bounded mailbox and
//! reads its [`Feed`]. Must not know sockets or JSON-RPC: whoever asks hands over a [`Reply`].

mod actor;
pub mod artifacts;
mod calls;
mod children;
mod compacting;
mod course;
mod events;
pub mod feed;
mod history;
mod jobs;
mod live;
mod load;
pub(crate) mod looking;
mod messages;
mod queue;
mod reading;
mod recording;
mod requests;
mod running;
mod sending;
mod settle;
mod shells;
mod starting;
mod toolbox;
mod toolctx;
mod toolenv;
pub mod trace;
mod turning;
mod view;

use crate::config;
use crate::host::env::Envs;
use crate::host::scratch::Scratch;
use crate::host::{Env, Paths};
use crate::model::ModelSets;
use crate::store::{LogReader, Store};
use crate::tools::Tool;
use feed::{Cursor, Feed, Wake};
use glrs_protocol::params as p;
use glrs_protocol::types::SessionInfo;
use glrs_protocol::{RpcError, SessionId};
use std::sync::{Arc, Mutex, PoisonError};
use tokio::sync::mpsc;

pub use actor::{NewSession, Origin, spawn};
pub use children::TaskLink;
pub use history::delete_error;

/// Commands waiting for one session. At the bound callers wait, in order.
pub const MAILBOX: usize = 256;

/// Answers a call. Called exactly once; what it caused is published after it.
pub type Reply<T> = Box<dyn FnOnce(Result<T, RpcError>) + Send>;

/// Who asks.
#[derive(Clone, Debug)]
pub struct Who {
    /// Client id.
    pub client: u64,
    /// `name#id`, as `by` fields have it.
    pub by: String,
}

/// What every session of a daemon shares.
pub struct Shared {
    /// The files.
    pub store: Store,
    /// Where things lie.
    pub paths: Paths,
    /// The models.
    pub models: ModelSets,
    /// Tools, in prompt order.
    pub tools: Vec<Arc<dyn Tool>>,
    /// The MCP servers; those that are the same are one.
    pub mcp: crate::mcp::Servers,
    /// The environments of sessions; those that are equal are one.
    pub envs: Envs,
    /// Private temporary directories.
    pub scratch: Arc<Scratch>,
    /// Configuration by directory.
    pub config: config::Cache,
    /// Rows of sessions in memory, for the roster: called on each change.
    pub on_change: Box<dyn Fn(&SessionInfo) + Send + Sync>,
    /// Makes a session that does a task; none when the daemon is going.
    pub make_child: Box<dyn Fn(NewSession) -> Option<Handle> + Send + Sync>,
}

impl Shared {
    /// The configuration of a directory, its project's trust taken into account. May wait for the disk.
    pub fn configuration(&self, cwd: &std::path::Path, env: &Env) -> Arc<config::Loaded> {
        let root = config::project_root(cwd);
        let trusted = config::is_trusted(&self.store.trusted(), &root);
        self.config.load(&self.paths.config, &root, env, trusted)
    }
}

/// The point at which a client attached.
pub struct AttachPoint {
    /// Everything of the snapshot but its entries.
    pub snapshot: p::Snapshot,
    /// The entries as of that point.
    pub reader: LogReader,
    /// Number of entries as of that point.
    pub total: u64,
    /// Reads the events from the snapshot's `seq` on.
    pub cursor: Cursor,
}

/// What a session can be asked.
#[allow(missing_docs, reason = "each variant is the method of its name, with who asks and how to answer")]
pub enum Cmd {
    Attach {
        who: Who,
        p: Box<p::Attach>,
        wake: Arc<Wake>,
        reply: Reply<Box<AttachPoint>>,
    },
    Detach {
        who: Who,
    },
    Resume {
        env: Option<Env>,
        reply: Reply<SessionInfo>,
    },
    Info {
        reply: Reply<SessionInfo>,
    },
    Read {
        reply: Reply<LogReader>,
    },
    Send {
        who: Who,
        p: p::Send,
        reply: Reply<p::SendResult>,
    },
    Shell {
        who: Who,
        p: p::Shell,
        reply: Reply<p::ShellResult>,
    },
    Interrupt {
        who: Who,
        reply: Reply<p::InterruptResult>,
    },
    Release {
        who: Who,
        reply: Reply<p::ReleaseResult>,
    },
    QueueEdit {
        who: Who,
        p: p::QueueEdit,
        reply: Reply<p::QueueResult>,
    },
    QueueRemove {
        who: Who,
        p: p::QueueRemove,
        reply: Reply<p::QueueResult>,
    },
    QueueMove {
        who: Who,
        p: p::QueueMove,
        reply: Reply<p::QueueResult>,
    },
    Answer {
        who: Who,
        p: p::Answer,
        reply: Reply<p::Done>,
    },
    Set {
        who: Who,
        p: p::SessionSet,
        reply: Reply<SessionInfo>,
    },
    Fork {
        who: Who,
        p: p::Fork,
        new_id: SessionId,
        reply: Reply<()>,
    },
    Clear {
        who: Who,
        p: p::Clear,
        reply: Reply<p::Done>,
    },
    Compact {
        who: Who,
        p: p::Compact,
        reply: Reply<p::CompactResult>,
    },
    Rewind {
        who: Who,
        p: p::Rewind,
        reply: Reply<p::RewindResult>,
    },
    Append {
        who: Who,
        p: p::Append,
        reply: Reply<p::AppendResult>,
    },
    Delete {
        who: Who,
        force: bool,
        reply: Reply<p::Done>,
    },
    /// Stop: settle what runs (at once, or when its step has ended), then go.
    Stop {
        drain: bool,
        why: String,
    },
}

/// A loaded (or loading) session.
#[derive(Clone)]
pub struct Handle {
    /// Its id.
    pub id: SessionId,
    /// Its mailbox. Boxed, since a channel makes room for many at once: a session at rest is small.
    pub tx: mpsc::Sender<Box<Cmd>>,
    /// Its feed.
    pub feed: Arc<Feed>,
    info: Arc<Mutex<Option<SessionInfo>>>,
}

impl Handle {
    /// What it looks like now; `None` until it has loaded.
    pub fn info(&self) -> Option<SessionInfo> {
        self.info.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}
