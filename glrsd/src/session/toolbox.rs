//! Which tools a session has: the built-in ones and those of its MCP servers.
//!
//! Owns the one point at which the list may change: the start of a turn. There servers are started
//! and waited for, briefly, by the turn's own task; what is listed then stays for the turn, since
//! the list is at the head of every request and one byte of difference costs the provider's cache.
//! A server that came late or changed its tools is taken up at the next turn's start; one that
//! went away keeps its tools in the list, and is started again when one is called. Must not know
//! how servers run.

use super::actor::Actor;
use super::running::CallState;
use crate::mcp::{self, Server, State, ToolInfo};
use crate::policy;
use crate::tools::Tool;
use crate::tools::mcp::{McpTool, is_one};
use futures_util::future::join_all;
use glrs_protocol::entry::Entry;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio_util::sync::CancellationToken;

/// How long a turn waits for servers that are starting.
const PATIENCE: Duration = Duration::from_secs(2);

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
}

impl Toolbox {
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
    builtin: Vec<Arc<dyn Tool>>,
    servers: Vec<Arc<Server>>,
    disabled: Vec<String>,
    patience: Duration,
}

impl Preparing {
    /// Settles the list of tools. Takes no time where there is no server, or all are ready.
    pub async fn settle(self, cancel: &CancellationToken) -> Arc<[Arc<dyn Tool>]> {
        for server in &self.servers {
            server.start();
        }
        let late = self.toolbox.lock().late.clone();
        let waiting = self.servers.iter().filter(|s| !late.contains(s.name())).map(|s| s.settled());
        tokio::select! {
            biased;
            () = cancel.cancelled() => {}
            _ = join_all(waiting) => {}
            () = tokio::time::sleep(self.patience) => {}
        }
        let mut inner = self.toolbox.lock();
        for server in &self.servers {
            inner.take_up(server, cancel.is_cancelled());
        }
        inner.lists.retain(|name, _| self.servers.iter().any(|s| s.name() == name));
        let all: Vec<(&Arc<Server>, ToolInfo)> = self
            .servers
            .iter()
            .flat_map(|s| inner.lists.get(s.name()).into_iter().flat_map(|l| l.iter()).map(move |t| (s, t.clone())))
            .collect();
        let names = mcp::names(all.iter().map(|(s, t)| (s.name(), t.name.as_str())));
        let theirs = all.into_iter().zip(names).map(|((server, tool), name)| {
            let tool: Arc<dyn Tool> = Arc::new(McpTool::new(server.clone(), tool, name));
            tool
        });
        let mut tools: Vec<Arc<dyn Tool>> = self.builtin.iter().cloned().chain(theirs).collect();
        tools.retain(|t| !self.disabled.iter().any(|d| policy::names(d, &t.spec().name)));
        inner.tools = tools.into();
        inner.servers = self.servers;
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
    /// What the next turn's task needs to settle the tools. `resume` are calls that were left over
    /// by a restart: their tools are worth a longer wait.
    pub(super) fn prepare_tools(&self, resume: &[CallState]) -> Preparing {
        let config = &self.config.config;
        let left_over = resume.iter().any(|c| is_one(&c.call.name));
        Preparing {
            toolbox: self.toolbox.clone(),
            builtin: self.shared.tools.clone(),
            servers: self.shared.mcp.open(&config.mcp_servers, &self.cwd, &self.env),
            disabled: config.tools.disable.clone(),
            patience: if left_over { mcp::START } else { PATIENCE },
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
