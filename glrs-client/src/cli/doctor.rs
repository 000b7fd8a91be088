//! `glrs doctor`: is everything in order, and if not, what to do.
//!
//! Owns the list of checks. Each is one line a person understands; the exit code is 1 when one
//! fails.

use super::Ctx;
use super::failure::{Exit, Failure};
use super::output;
use crate::client::Client;
use crate::connect::{ConnectError, ConnectOptions};
use crate::place;
use glrs_protocol::methods::m;
use glrs_protocol::params::{ConfigResult, ConfigShow, Empty, McpList};
use glrs_protocol::types::{McpRow, McpState};
use serde::Serialize;
use std::path::Path;

/// One thing that was looked at.
#[derive(Debug, Serialize)]
struct Check {
    name: &'static str,
    ok: bool,
    detail: String,
}

fn check(name: &'static str, ok: bool, detail: impl Into<String>) -> Check {
    Check { name, ok, detail: detail.into() }
}

/// Runs `glrs doctor`.
///
/// # Errors
/// When stdout does not take the report.
pub async fn run(ctx: &Ctx, json: bool) -> Result<Exit, Failure> {
    let mut checks =
        vec![check("glrs", true, env!("CARGO_PKG_VERSION")), check("socket", true, ctx.socket.display().to_string())];
    if let Some(root) = place::root(&ctx.vars) {
        checks.push(check("home", true, root.display().to_string()));
    } else {
        checks.push(check("home", false, "no home directory: set HOME or GLRS_HOME to an absolute path"));
    }
    let before = Client::connect(&ConnectOptions::new(ctx.socket.clone(), "doctor")).await;
    let started = matches!(before, Err(ConnectError::NotRunning(_)));
    let mut config = None;
    let mut mcp = Vec::new();
    let client = match before {
        Err(ConnectError::NotRunning(_)) => Client::connect(&ctx.options("doctor")?).await,
        other => other,
    };
    match client {
        Err(e) => checks.push(check("daemon", false, e.to_string())),
        Ok(client) => {
            let d = &client.daemon().daemon;
            let how = if started { "started now" } else { "was running" };
            checks.push(check("daemon", true, format!("glrs {}, pid {}, {how}", d.version, d.pid)));
            let skew = client.skew();
            let detail = skew.clone().unwrap_or_else(|| "client and daemon are the same release".to_owned());
            checks.push(check("versions", skew.is_none(), detail));
            ask(ctx, &client, &mut checks).await;
            config = shown(ctx, &client, &mut checks).await;
            mcp = servers(ctx, &client, &mut checks).await;
        }
    }
    let all = checks.iter().all(|c| c.ok);
    let values = config.as_ref().map(|c| c.values.clone()).unwrap_or_default();
    if json {
        output::json(&serde_json::json!({"ok": all, "checks": checks, "config": config, "mcp": mcp}))?;
    } else {
        let rows: Vec<Vec<String>> = checks
            .iter()
            .map(|c| {
                let mark = if c.ok { "✓" } else { "✗" };
                vec![mark.to_owned(), c.name.to_owned(), crate::text::one_line(&c.detail)]
            })
            .collect();
        output::text(&output::columns(&rows))?;
        // Only what somebody set: the defaults are in the documentation, and all of it in --json.
        let set: Vec<Vec<String>> = values
            .iter()
            .filter(|v| v.from != "default")
            .map(|v| {
                vec![
                    format!("  {}", v.key),
                    crate::text::one_line(&v.value.to_string()),
                    crate::text::one_line(&v.from),
                ]
            })
            .collect();
        if !set.is_empty() {
            output::text("\nset in the configuration:")?;
            output::text(&output::columns(&set))?;
        }
    }
    Ok(if all { Exit::Done } else { Exit::Error })
}

/// What only the daemon knows.
async fn ask(ctx: &Ctx, client: &Client, checks: &mut Vec<Check>) {
    match client.call::<m::DaemonStatusM>(&Empty {}).await {
        Ok(s) => {
            checks.push(writable(Path::new(&s.data_dir)));
            checks.push(check("sandbox", true, format!("this kernel can keep commands from {}", s.sandbox)));
            if s.draining {
                checks.push(check("work", false, "the daemon is stopping and takes no new work"));
            }
        }
        Err(e) => checks.push(check("data", false, e.to_string())),
    }
    match client.call::<m::CatalogModelsM>(&ctx.models_of()).await {
        Ok(list) => {
            let ready = list.models.iter().filter(|m| m.ready).count();
            let detail = format!("{ready} of {} ready, new sessions get {}", list.models.len(), list.default);
            checks.push(check("models", ready > 0, detail));
        }
        Err(e) => checks.push(check("models", false, e.to_string())),
    }
}

/// The configuration of this directory, and what is wrong with it.
async fn shown(ctx: &Ctx, client: &Client, checks: &mut Vec<Check>) -> Option<ConfigResult> {
    let cwd = ctx.directory(None).ok()?;
    match client.call::<m::ConfigShowM>(&ConfigShow { cwd, env: Some(ctx.session_env()) }).await {
        Ok(c) => {
            let mut wrong = c.notices.clone();
            if !c.untrusted.is_empty() {
                wrong.push(format!("{} wait until you trust this project: `glrs trust`", c.untrusted.join(", ")));
            }
            let detail =
                if wrong.is_empty() { format!("{} keys, nothing wrong", c.values.len()) } else { wrong.join("; ") };
            checks.push(check("config", wrong.is_empty(), detail));
            Some(c)
        }
        Err(e) => {
            checks.push(check("config", false, e.to_string()));
            None
        }
    }
}

/// The MCP servers of this directory, each started to see whether it runs.
async fn servers(ctx: &Ctx, client: &Client, checks: &mut Vec<Check>) -> Vec<McpRow> {
    let Ok(cwd) = ctx.directory(None) else { return Vec::new() };
    let params = McpList { cwd, env: Some(ctx.session_env()), start: true };
    match client.call::<m::McpListM>(&params).await {
        Ok(list) => {
            checks.extend(list.servers.iter().map(|s| check("mcp", s.state == McpState::Ready, server(s))));
            list.servers
        }
        Err(e) => {
            checks.push(check("mcp", false, e.to_string()));
            Vec::new()
        }
    }
}

/// One server in a line.
fn server(s: &McpRow) -> String {
    let name = &s.name;
    match (s.state, &s.why) {
        (McpState::Ready, _) => format!("{name} is ready, {} tools", s.tools.len()),
        (McpState::Starting, _) => format!("{name} is still starting"),
        (_, Some(why)) => format!("{name} does not run: {why}"),
        (_, None) => format!("{name} does not run"),
    }
}

fn writable(dir: &Path) -> Check {
    let shown = dir.display();
    match rustix::fs::access(dir, rustix::fs::Access::WRITE_OK | rustix::fs::Access::EXEC_OK) {
        Ok(()) => check("data", true, format!("{shown} can be written")),
        // It is made when the first session is saved.
        Err(rustix::io::Errno::NOENT) => check("data", true, format!("{shown} does not exist yet")),
        Err(e) => check("data", false, format!("{shown} cannot be written: {e}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn directories_are_looked_at_without_touching_them() {
        let tmp = tempfile::tempdir().unwrap();
        assert!(writable(tmp.path()).ok);
        let missing = tmp.path().join("later");
        assert!(writable(&missing).ok && !missing.exists());
        assert!(!writable(&tmp.path().join("file-as-dir/x\0y")).ok);
    }
}
