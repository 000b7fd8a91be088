//! Methods of the daemon as a whole: status, models, listing, prompts, schema.

use super::{Answer, CallCtx, answered, register};
use crate::daemon::Daemon;
use crate::host::{Env, reach};
use crate::registry::absolute;
use crate::session::looking::silent;
use futures_util::FutureExt;
use glrs_protocol::methods::m::*;
use glrs_protocol::params::*;
use glrs_protocol::{RpcError, SessionId};
use jsonrpsee::RpcModule;
use serde_json::Value;
use std::path::Path;

/// Runs what reads files on a thread of its own.
async fn blocking<T: core::marker::Send + 'static>(
    f: impl FnOnce() -> Result<T, RpcError> + core::marker::Send + 'static,
) -> Answer<T> {
    match tokio::task::spawn_blocking(f).await {
        Ok(r) => Answer::Now(r),
        Err(e) => Answer::Now(Err(RpcError::internal(e.to_string()))),
    }
}

/// The same for what looks at a directory, which may not answer.
async fn looking<T: core::marker::Send + 'static>(
    cwd: String,
    f: impl FnOnce() -> Result<T, RpcError> + core::marker::Send + 'static,
) -> Answer<T> {
    let cwd = Path::new(&cwd);
    Answer::Now(reach::within(cwd, reach::PATIENCE, f).await.unwrap_or_else(|| Err(silent(cwd))))
}

fn pretty(v: &Value) -> String {
    serde_json::to_string_pretty(v).unwrap_or_default()
}

fn schema(format: Option<&str>) -> Result<ExportResult, RpcError> {
    let text = match format.unwrap_or("openrpc") {
        "openrpc" => pretty(&glrs_protocol::schema::openrpc(env!("CARGO_PKG_VERSION"))),
        "jsonschema" => pretty(&glrs_protocol::schema::json_schema()),
        "markdown" => glrs_protocol::schema::markdown(),
        "config" => pretty(&crate::config::schema()),
        other => {
            return Err(RpcError::params(format!(
                "there is no schema format {other}: openrpc, jsonschema, markdown or config"
            )));
        }
    };
    Ok(ExportResult { text, next: None })
}

/// The configuration in force for a directory.
fn config(d: &Daemon, cwd: &str, env: &Env) -> Result<ConfigResult, RpcError> {
    let shared = &d.registry.shared;
    let loaded = shared.configuration(absolute(cwd)?, env);
    Ok(ConfigResult {
        root: loaded.root.display().to_string(),
        trusted: crate::config::is_trusted(&shared.store.trusted(), &loaded.root),
        untrusted: loaded.untrusted.clone(),
        notices: loaded.notices.clone(),
        values: loaded
            .origins
            .iter()
            .map(|o| ConfigValue { key: o.key.clone(), value: o.value.clone(), from: o.from.clone() })
            .collect(),
    })
}

/// Registers the daemon's methods.
pub(super) fn register_all(m: &mut RpcModule<()>) -> Result<(), String> {
    register::<DaemonStatusM, _>(m, |c, _| async move { Ok(c.daemon().status()).into() }.boxed())?;
    register::<DaemonMetricsM, _>(m, |c, _| async move { Ok(c.daemon().metrics()).into() }.boxed())?;
    register::<DaemonShutdownM, _>(m, |c, p| {
        async move {
            c.daemon().stop(p.drain);
            Ok(Done {}).into()
        }
        .boxed()
    })?;
    register::<ClientListM, _>(m, |c, _| {
        async move { Ok(ClientList { clients: c.daemon().clients() }).into() }.boxed()
    })?;
    register::<CatalogModelsM, _>(m, |c, p| {
        async move {
            let d = c.daemon().clone();
            let shared = &d.registry.shared;
            let env = shared.envs.share(p.env.map_or_else(|| (*d.env).clone(), Into::into));
            let cwd = Path::new(p.cwd.as_deref().unwrap_or("/"));
            let Some(config) = shared.configuration_within(cwd, &env).await else { return Err(silent(cwd)).into() };
            let default = shared.models.default_model(&config, &env).await;
            let models = shared.models.list(&config, &env).await;
            let (table, fetched) = shared.models.sources();
            Ok(ModelList { models, default, table, fetched }).into()
        }
        .boxed()
    })?;
    register::<ConfigShowM, _>(m, |c, p| {
        let d = c.daemon().clone();
        let cwd = p.cwd.clone();
        looking(cwd, move || config(&d, &p.cwd, &p.env.map_or_else(|| (*d.env).clone(), Into::into))).boxed()
    })?;
    register::<ConfigTrustM, _>(m, |c, p| {
        let d = c.daemon().clone();
        let cwd = p.cwd.clone();
        looking(cwd, move || {
            let root = crate::config::project_root(absolute(&p.cwd)?);
            let store = &d.registry.shared.store;
            let text = crate::config::with_trusted(&store.trusted(), &root);
            store.set_trusted(&text).map_err(|e| {
                let kind = glrs_protocol::ErrorKind::Disk { path: e.path.display().to_string(), why: e.why.clone() };
                RpcError::new(kind, e.to_string())
            })?;
            config(&d, &p.cwd, &d.env)
        })
        .boxed()
    })?;
    register::<SchemaM, _>(m, |_, p| blocking(move || schema(p.format.as_deref())).boxed())?;
    register::<SessionNewM, _>(m, |c, p| {
        async move {
            let handle = match c.daemon().registry.make(p).await {
                Ok(h) => h,
                Err(e) => return Err(e).into(),
            };
            session_info(&c, handle.id).await
        }
        .boxed()
    })?;
    register::<SessionListM, _>(m, |c, p| {
        let r = c.daemon().registry.clone();
        blocking(move || r.list(&p)).boxed()
    })?;
    register::<SessionSearchM, _>(m, |c, p| {
        let r = c.daemon().registry.clone();
        blocking(move || {
            if p.text.trim().is_empty() {
                return Err(RpcError::params("give something to search for"));
            }
            let limit = p.limit.unwrap_or(20).clamp(1, 1000) as usize;
            Ok(SearchResult { hits: r.search(&p.text, p.cwd.as_deref(), limit) })
        })
        .boxed()
    })?;
    register::<SessionImportM, _>(m, |c, p| {
        let r = c.daemon().registry.clone();
        blocking(move || r.import(p)).boxed()
    })?;
    register::<SessionCheckM, _>(m, |c, p| {
        let r = c.daemon().registry.clone();
        async move { r.check(p).await.into() }.boxed()
    })?;
    register::<SessionResumeM, _>(m, |c, p| {
        async move {
            let id = match (&p.id, &p.title, p.last) {
                (Some(id), None, false) => id.clone(),
                (None, Some(_), false) | (None, None, true) => {
                    let (r, title, cwd) = (c.daemon().registry.clone(), p.title.clone(), p.cwd.clone());
                    match blocking(move || r.find(title.as_deref(), cwd.as_deref())).await {
                        Answer::Now(Ok(id)) => id,
                        Answer::Now(Err(e)) => return Err(e).into(),
                        Answer::Sent => return Answer::Sent,
                    }
                }
                _ => return Err(RpcError::params("give exactly one of id, title and last")).into(),
            };
            let (reply, sent) = c.reply_session();
            c.daemon().registry.send(&id, crate::session::Cmd::Resume { env: p.env.map(Into::into), reply }).await;
            answered(sent).await
        }
        .boxed()
    })?;
    register::<RosterWatchM, _>(m, |c, _| {
        async move {
            let registry = &c.daemon().registry;
            // Subscribed before the rows are read: a change in between comes twice, never not.
            let cursor = registry.roster.subscribe(registry.roster.seq(), c.conn().wake.clone());
            let line = c.encode(&Ok(RosterResult { sessions: registry.roster_rows() }));
            let attachment = crate::net::conn::Attachment { session: None, epoch: String::new(), cursor };
            c.conn().reply_and_attach(line, attachment);
            Answer::Sent
        }
        .boxed()
    })?;
    register::<PromptsListM, _>(m, |c, _| {
        let store = c.daemon().registry.shared.store.clone();
        blocking(move || Ok(Prompts { prompts: store.prompts() })).boxed()
    })?;
    register::<PromptsPushM, _>(m, |c, p| {
        let store = c.daemon().registry.shared.store.clone();
        if p.text.trim().is_empty() {
            return std::future::ready(Ok(Done {}).into()).boxed();
        }
        blocking(move || match store.push_prompt(&p.text) {
            Ok(()) => Ok(Done {}),
            Err(e) => Err(RpcError::new(
                glrs_protocol::ErrorKind::Disk { path: e.path.display().to_string(), why: e.why.clone() },
                e.to_string(),
            )),
        })
        .boxed()
    })?;
    Ok(())
}

/// The info of a session that is in memory or stored.
pub(super) async fn session_info(c: &CallCtx, id: SessionId) -> Answer<SessionResult> {
    let (reply, sent) = c.reply_session();
    c.daemon().registry.send(&id, crate::session::Cmd::Info { reply }).await;
    answered(sent).await
}
