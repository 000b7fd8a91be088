//! Methods about MCP servers.
//!
//! Owns what callers are told of them. Which there are is the configuration's, how they run
//! `mcp`'s business.

use super::{CallCtx, register};
use crate::host::{Env, reach};
use crate::mcp::{self, State};
use crate::registry::absolute;
use crate::session::looking;
use futures_util::FutureExt;
use futures_util::future::join_all;
use glrs_protocol::RpcError;
use glrs_protocol::methods::m::McpListM;
use glrs_protocol::params::{McpList, McpListResult};
use glrs_protocol::types::{McpRow, McpState};
use jsonrpsee::RpcModule;
use std::path::Path;
use std::time::Duration;

/// How long a caller waits for servers that are starting.
const PATIENCE: Duration = Duration::from_secs(10);

/// Registers them.
pub(super) fn register_all(m: &mut RpcModule<()>) -> Result<(), String> {
    register::<McpListM, _>(m, |c, p| async move { list(&c, p).await.into() }.boxed())
}

async fn list(c: &CallCtx, p: McpList) -> Result<McpListResult, RpcError> {
    let daemon = c.daemon().clone();
    let shared = daemon.registry.shared.clone();
    let env = shared.envs.share(p.env.map_or_else(|| (*daemon.env).clone(), Env::from));
    let (of, for_config, named) = (shared.clone(), env.clone(), absolute(&p.cwd)?.to_path_buf());
    // A session's directory is canonical, and so it meets the servers of sessions.
    let read = reach::within(Path::new(&p.cwd), reach::PATIENCE, move || {
        let cwd = named.canonicalize().unwrap_or(named);
        (of.configuration(&cwd, &for_config), cwd)
    });
    let (loaded, cwd) = read.await.ok_or_else(|| looking::silent(Path::new(&p.cwd)))?;
    let configured = &loaded.config.mcp_servers;
    let servers = shared.mcp.open(configured, &cwd, &env, &crate::model::key_names(&loaded.config));
    if p.start {
        servers.iter().for_each(|s| s.start());
        let settled = join_all(servers.iter().map(|s| s.settled()));
        // One that takes longer is told of as starting.
        let _ = tokio::time::timeout(PATIENCE, settled).await;
    }
    let lists: Vec<_> = servers.iter().map(|s| s.tools().unwrap_or_default()).collect();
    let pairs = servers.iter().zip(&lists).flat_map(|(s, list)| list.iter().map(|t| (s.name(), t.name.as_str())));
    let mut names = mcp::names(pairs).into_iter();
    let rows = servers.iter().zip(&lists).map(|(server, list)| {
        let (state, why) = match server.state() {
            State::Idle => (McpState::Idle, None),
            State::Starting => (McpState::Starting, None),
            State::Ready => (McpState::Ready, None),
            State::Down(why) => (McpState::Down, Some(why)),
        };
        let transport = configured.get(server.name()).map_or("stdio", mcp::transport).to_owned();
        McpRow {
            name: server.name().to_owned(),
            transport,
            state,
            tools: names.by_ref().take(list.len()).collect(),
            why,
        }
    });
    Ok(McpListResult { servers: rows.collect() })
}
