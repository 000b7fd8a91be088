//! Which tools a session has: the built-in ones and those of its MCP servers.
//!
//! Owns the one point at which the list may change: the start of a turn. There servers are started
//! and waited for, briefly, by the turn's own task; what is listed then stays for the turn, since
//! the list is at the head of every request and one byte of difference costs the provider's cache.
//! A server that came late or changed its tools is taken up at the next turn's start; one that
//! went away keeps its tools in the list, and is started again when one is called. Must not know
//! how servers run.

use super::Shared;
use super::actor::Actor;
use crate::config::Loaded;
use crate::host::Env;
use crate::mcp::{self, Server, State, ToolInfo};
use crate::model::key_names;
use crate::policy;
use crate::tools::Tool;
use crate::tools::mcp::McpTool;
use crate::tools::task;
use futures_util::future::join_all;
use glrs_protocol::entry::Entry;
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

/// How long a turn waits for servers that are starting.
const PATIENCE: Duration = Duration::from_secs(2);

/// Most tools of a request: the least of what providers take.
const MOST: usize = 128;

/// A session's tools. Its clones are one.
#[derive(Clone, Default)]
pub(super) struct Toolbox(Arc<Mutex<Inner>>);

#[derive(Default)]
struct Inner {
    /// As settled for the running turn.
    tools: Arc<[Arc<dyn Tool>]>,
    /// What holds the servers alive.
    servers: Vec<Arc<Server>>,
    /// Each server's tools as last taken up.
    lists: BTreeMap<String, Arc<[ToolInfo]>>,
    /// Servers that were waited for in vain: once is enough.
    late: BTreeSet<String>,
    /// What people were told while the session is in memory, and are to be told.
    told: BTreeSet<String>,
    untold: Vec<String>,
    /// The environment of whoever came while a turn waits for it.
    env: Option<Arc<Env>>,
    came: Arc<Notify>,
}

impl Toolbox {
    /// Someone brought this environment.
    pub fn env_came(&self, env: &Arc<Env>) {
        let mut inner = self.lock();
        inner.env = Some(env.clone());
        inner.came.notify_one();
    }

    /// Someone answered before the call asked again: it is to go on with what there is.
    pub fn answer_came(&self) {
        self.lock().came.notify_one();
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The tools of the running turn, in prompt order.
    pub fn tools(&self) -> Arc<[Arc<dyn Tool>]> {
        self.lock().tools.clone()
    }
}

/// What a turn's task does before its first step.
pub(super) struct Preparing {
    toolbox: Toolbox,
    shared: Arc<Shared>,
    config: Arc<Loaded>,
    cwd: PathBuf,
    env: Arc<Env>,
    /// Whether it does a task: such a session gives none away.
    child: bool,
    /// Whether calls of servers' tools were left over by a restart.
    left_over: bool,
}

impl Preparing {
    /// Settles the list of tools. Takes no time where there is no server, or all are ready.
    pub async fn settle(mut self, cancel: &CancellationToken) -> Arc<[Arc<dyn Tool>]> {
        let mut patience = PATIENCE;
        if self.left_over {
            // A restart forgets the environment, and with it the servers' keys. The call waits for
            // an answer anyway, and whoever gives it brings one.
            let came = self.toolbox.lock().came.clone();
            tokio::select! {
                () = cancel.cancelled() => {}
                () = came.notified() => {}
            }
            if let Some(env) = self.toolbox.lock().env.take() {
                self.env = env;
            }
            patience = mcp::START;
        }
        let config = &self.config.config;
        let servers = self.shared.mcp.open(&config.mcp_servers, &self.cwd, &self.env, &key_names(config));
        if !cancel.is_cancelled() {
            servers.iter().for_each(|s| s.start());
        }
        let late = self.toolbox.lock().late.clone();
        let waiting = servers.iter().filter(|s| !late.contains(s.name())).map(|s| s.settled());
        tokio::select! {
            biased;
            () = cancel.cancelled() => {}
            _ = join_all(waiting) => {}
            () = tokio::time::sleep(patience) => {}
        }
        let mut inner = self.toolbox.lock();
        for server in &servers {
            inner.take_up(server, cancel.is_cancelled());
        }
        inner.lists.retain(|name, _| servers.iter().any(|s| s.name() == name));
        let all: Vec<(&Arc<Server>, ToolInfo)> = servers
            .iter()
            .flat_map(|s| inner.lists.get(s.name()).into_iter().flat_map(|l| l.iter()).map(move |t| (s, t.clone())))
            .collect();
        let names = mcp::names(all.iter().map(|(s, t)| (s.name(), t.name.as_str())));
        let theirs = all.into_iter().zip(names).map(|((server, tool), name)| {
            let tool: Arc<dyn Tool> = Arc::new(McpTool::new(server.clone(), tool, name));
            tool
        });
        let mut tools: Vec<Arc<dyn Tool>> = self.shared.tools.iter().cloned().chain(theirs).collect();
        tools.retain(|t| !(self.child && t.spec().name == task::NAME));
        tools.retain(|t| !config.tools.disable.iter().any(|d| policy::names(d, &t.spec().name)));
        if tools.len() > MOST {
            let over = tools.len() - MOST;
            tools.truncate(MOST);
            inner.tell(format!(
                "{over} tools of MCP servers are left out, since models take {MOST} at most: switch some off with tools.disable"
            ));
        }
        inner.tools = tools.into();
        inner.servers = servers;
        inner.tools.clone()
    }
}

impl Inner {
    /// A server's tools as they are now, and what people are told of it.
    fn take_up(&mut self, server: &Server, cancelled: bool) {
        let name = server.name();
        if let Some(tools) = server.tools() {
            if self.late.remove(name) {
                self.tell(format!("the MCP server {name} is ready, with {} tools", tools.len()));
            }
            self.lists.insert(name.to_owned(), tools);
            return;
        }
        let known = self.lists.contains_key(name);
        match server.state() {
            State::Down(why) if !known => {
                self.tell(format!("the MCP server {name} does not run, so its tools are missing: {why}"));
            }
            State::Starting if !known && !cancelled && self.late.insert(name.to_owned()) => {
                self.tell(format!("the MCP server {name} is still starting: this turn goes on without its tools"));
            }
            _ => {}
        }
    }

    fn tell(&mut self, words: String) {
        if self.told.insert(words.clone()) {
            self.untold.push(words);
        }
    }
}

impl Actor {
    /// What the next turn's task needs to settle the tools. `left_over`: calls of servers' tools were
    /// left over by a restart.
    pub(super) fn prepare_tools(&self, left_over: bool) -> Preparing {
        Preparing {
            toolbox: self.toolbox.clone(),
            shared: self.shared.clone(),
            config: self.config.clone(),
            cwd: self.cwd.clone(),
            env: self.env.clone(),
            child: self.is_child(),
            left_over,
        }
    }

    /// Records what there is to be told of servers.
    pub(super) fn tell_of_servers(&mut self) {
        let words = std::mem::take(&mut self.toolbox.lock().untold);
        if words.is_empty() {
            return;
        }
        let at = self.now();
        let entries: Vec<Entry> = words.into_iter().map(|w| Entry::notice(format!("({w})"), &at)).collect();
        let recorded = self.record(&entries);
        self.publish_entries(recorded);
    }
}
