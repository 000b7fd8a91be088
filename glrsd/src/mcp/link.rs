//! One connection to a server: made, kept, ended.
//!
//! Owns: starting the program (or opening the HTTP transport), the handshake, the list of tools,
//! and why it ended. The process is a group of its own and goes with the connection, whole. Must
//! not know who uses it or how often it was tried.

use super::client::{Client, Heard};
use super::guard::{Guarded, MAX_MESSAGE, Meter, Metered};
use super::spec::{Place, Secrets, place};
use super::{ToolInfo, http, offer};
use crate::config::McpServer;
use crate::host::process::{self, Start, Stdin, Streams};
use crate::host::{Env, reach};
use reqwest::Url;
use reqwest::header::{HeaderName, HeaderValue};
use rmcp::RoleClient;
use rmcp::model::PaginatedRequestParams;
use rmcp::service::{ClientInitializeError, Peer, ServiceError, serve_client};
use rmcp::transport::Transport;
use rmcp::transport::async_rw::AsyncRwTransport;
use std::collections::HashMap;
use std::path::Path;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt};
use tokio_util::sync::CancellationToken;

/// How long a server may take to start and to list its tools: some are fetched when they are first
/// started.
pub const START: Duration = Duration::from_secs(30);
/// How long its group has between TERM and KILL.
const PATIENCE: Duration = Duration::from_secs(2);
/// How long its last words may take once the program has ended.
const GRACE: Duration = Duration::from_millis(500);
/// Most pages of a list of tools.
const MAX_PAGES: usize = 64;
/// Most tools of a server.
const MAX_TOOLS: usize = 512;
/// So much of its complaints is kept.
const MAX_STDERR: usize = 4096;

/// An open connection.
#[derive(Debug)]
pub(super) struct Link {
    pub peer: Peer<RoleClient>,
    pub heard: Arc<Heard>,
    pub meter: Arc<Meter>,
    /// Whether it is a pipe: what does not go into one at once is not read at all.
    pub pipe: bool,
    tools: Mutex<Arc<[ToolInfo]>>,
    /// One fetches the list, the others wait for it.
    listing: tokio::sync::Mutex<()>,
    stop: CancellationToken,
    why: OnceLock<&'static str>,
}

impl Link {
    /// The tools as last listed.
    pub fn tools(&self) -> Arc<[ToolInfo]> {
        self.tools.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Lists the tools anew if the server said that they changed. A list that does not come, or
    /// that nobody waits for any more, leaves the one there was, and is asked for again next time.
    pub async fn refresh(&self) {
        struct Again<'a>(&'a Heard);
        impl Drop for Again<'_> {
            fn drop(&mut self) {
                self.0.stale.store(true, Ordering::Relaxed);
            }
        }
        let _one = self.listing.lock().await;
        // Before it is asked for: what changes meanwhile is a change of its own.
        if !self.heard.stale.swap(false, Ordering::Relaxed) {
            return;
        }
        let again = Again(&self.heard);
        self.meter.reset();
        if let Ok(Ok(tools)) = tokio::time::timeout(START, list(&self.peer)).await {
            *self.tools.lock().unwrap_or_else(PoisonError::into_inner) = tools;
            std::mem::forget(again);
        }
    }

    /// Ends the connection.
    pub fn end(&self, why: &'static str) {
        self.why.get_or_init(|| why);
        self.stop.cancel();
    }
}

/// Connects, says so, and stays until it is over. Answers why it is.
pub(super) async fn keep(
    server: &McpServer,
    cwd: &Path,
    (env, keys): (&Env, &[String]),
    gone: &CancellationToken,
    secrets: &mut Secrets,
    opened: impl Fn(Arc<Link>),
) -> String {
    // Looks for the program, and starts it: both wait for disks.
    let (server, dir, env_of, keys) = (server.clone(), cwd.to_path_buf(), env.clone(), keys.to_vec());
    let begun = reach::begin(cwd, START, move || {
        let mut secrets = Secrets::default();
        let begun = begin(&server, &dir, (&env_of, &keys), &mut secrets);
        (begun, secrets)
    });
    let begun = tokio::select! {
        biased;
        () = gone.cancelled() => None,
        begun = begun => begun,
    };
    let Some((begun, found)) = begun else { return "its directory does not answer".to_owned() };
    *secrets = found;
    match begun {
        Err(why) => why,
        Ok(Begun::Remote { url, headers }) => {
            let client = match http::client(&url, env).await {
                Ok(client) => client,
                Err(why) => return why,
            };
            let meter = Arc::new(Meter::default());
            let transport = Guarded::new(http::transport(client, url, headers), meter.clone());
            talk(transport, meter, false, gone, &opened).await.1
        }
        Ok(Begun::Program(running, streams)) => program_runs(running, streams, gone, &opened).await,
    }
}

/// A server that is to be talked to.
enum Begun {
    Remote { url: Url, headers: HashMap<HeaderName, HeaderValue> },
    Program(process::Running, Streams),
}

fn begin(
    server: &McpServer,
    cwd: &Path,
    (env, keys): (&Env, &[String]),
    secrets: &mut Secrets,
) -> Result<Begun, String> {
    match place(server, cwd, env, keys, secrets)? {
        Place::Remote { url, headers } => Ok(Begun::Remote { url, headers }),
        Place::Program { program, args, cwd, env } => {
            let args: Vec<&str> = args.iter().map(String::as_str).collect();
            let start =
                Start { program: &program, args: &args, cwd: &cwd, env: &env, stdin: Stdin::Pipe, sandbox: None };
            let started = process::start_apart(&start).map_err(|e| format!("it could not be started: {e}"));
            started.map(|(running, streams)| Begun::Program(running, streams))
        }
    }
}

async fn program_runs(
    mut running: process::Running,
    streams: Streams,
    gone: &CancellationToken,
    opened: &impl Fn(Arc<Link>),
) -> String {
    let Streams { stdin, stdout, stderr } = streams;
    let meter = Arc::new(Meter::default());
    let reader = Metered::new(stdout, meter.clone());
    let transport = AsyncRwTransport::new_client(reader, stdin).with_max_line_length(MAX_MESSAGE * 2);
    let transport = Guarded::new(transport, meter.clone());
    let complaints = Mutex::new(Vec::new());
    let drained = drain(stderr, &complaints);
    let talked = talk(transport, meter, true, gone, opened);
    tokio::pin!(drained, talked);
    let (mut over, mut status, mut silent) = (None, None, false);
    while over.is_none() && status.is_none() {
        tokio::select! {
            why = &mut talked => over = Some(why),
            s = running.wait() => status = Some(s),
            () = &mut drained, if !silent => silent = true,
        }
    }
    // It often ends and says why in the same moment: what is on its way is waited for.
    let last = async {
        if over.is_none() {
            over = Some((&mut talked).await);
        }
        if status.is_none() && matches!(over, Some((Over::Closed, _))) {
            status = Some(running.wait().await);
        }
        if status.is_some() && !silent {
            (&mut drained).await;
        }
    };
    let _ = tokio::time::timeout(GRACE, last).await;
    running.end(PATIENCE);
    let (how, why) = over.unwrap_or((Over::Closed, String::new()));
    let why = match (how, status) {
        (Over::Said, _) => why,
        (Over::Closed, Some(Ok(status))) => format!("it ended ({status})"),
        (Over::Closed, _) => "it closed its output".to_owned(),
    };
    let complaints = std::mem::take(&mut *complaints.lock().unwrap_or_else(PoisonError::into_inner));
    let said = String::from_utf8_lossy(&complaints);
    let said: Vec<&str> = said.lines().rev().map(str::trim).filter(|l| !l.is_empty()).take(3).collect();
    match said.is_empty() {
        true => why,
        false => format!("{why}; it said: {}", said.into_iter().rev().collect::<Vec<_>>().join(" / ")),
    }
}

/// Reads until the end and keeps the last of it: a server that complains without end costs nothing.
async fn drain(mut from: impl AsyncRead + Unpin, keep: &Mutex<Vec<u8>>) {
    let mut buf = vec![0; 8192];
    while let Ok(n @ 1..) = from.read(&mut buf).await {
        let mut kept = keep.lock().unwrap_or_else(PoisonError::into_inner);
        kept.extend_from_slice(&buf[..n]);
        let over = kept.len().saturating_sub(MAX_STDERR);
        kept.drain(..over);
    }
}

/// Who knows why a conversation ended.
#[derive(Clone, Copy, PartialEq)]
enum Over {
    /// The words beside it do.
    Said,
    /// The other side closed it; whoever knows the process knows more.
    Closed,
}

/// The conversation, from the handshake to its end.
async fn talk<T: Transport<RoleClient> + 'static>(
    transport: T,
    meter: Arc<Meter>,
    pipe: bool,
    gone: &CancellationToken,
    opened: &impl Fn(Arc<Link>),
) -> (Over, String) {
    let heard = Arc::new(Heard::default());
    let start = async {
        let running = serve_client(Client(heard.clone()), transport).await.map_err(|e| refused(&e))?;
        let tools = list(running.peer()).await.map_err(|e| (Over::Said, e))?;
        Ok((running, tools))
    };
    let started = tokio::select! {
        () = gone.cancelled() => return (Over::Said, "nobody needs it any more".to_owned()),
        started = tokio::time::timeout(START, start) => started,
    };
    let verdict = |or: (Over, String)| meter.verdict().map_or(or, |v| (Over::Said, v.to_owned()));
    let (running, tools) = match started {
        Ok(Ok(started)) => started,
        Ok(Err(why)) => return verdict(why),
        Err(_) => return verdict((Over::Said, format!("it did not answer within {} s", START.as_secs()))),
    };
    meter.reset();
    let link = Arc::new(Link {
        peer: running.peer().clone(),
        heard,
        meter: meter.clone(),
        pipe,
        tools: Mutex::new(tools),
        listing: tokio::sync::Mutex::new(()),
        stop: CancellationToken::new(),
        why: OnceLock::new(),
    });
    opened(link.clone());
    tokio::select! {
        () = gone.cancelled() => (Over::Said, "nobody needs it any more".to_owned()),
        () = link.stop.cancelled() => (Over::Said, link.why.get().copied().unwrap_or_default().to_owned()),
        _ = running.waiting() => verdict((Over::Closed, "the connection was closed".to_owned())),
    }
}

fn refused(e: &ClientInitializeError) -> (Over, String) {
    if e.is_authorization_required() || e.auth_challenge().is_some() {
        return (
            Over::Said,
            "it wants a login: give a token in headers, as in \"Authorization\": \"Bearer ${TOKEN}\"".to_owned(),
        );
    }
    match e {
        ClientInitializeError::ConnectionClosed(_) => (Over::Closed, "it closed the connection at once".to_owned()),
        ClientInitializeError::JsonRpcError(e) => (Over::Said, format!("it refused: {}", e.message)),
        ClientInitializeError::TransportError { error, .. } => {
            (Over::Said, format!("it is not reached: {}", root(&*error.error)))
        }
        ClientInitializeError::NoCompatibleProtocolVersion { .. } => {
            (Over::Said, "it speaks no version of the protocol that is known here".to_owned())
        }
        _ => (Over::Said, "its answer to the greeting is not understood".to_owned()),
    }
}

/// The innermost words of an error: what is around them names types and addresses.
pub(super) fn root(e: &(dyn std::error::Error + 'static)) -> String {
    let mut e = e;
    while let Some(source) = e.source() {
        e = source;
    }
    e.to_string()
}

/// All pages of the list of tools, by name.
async fn list(peer: &Peer<RoleClient>) -> Result<Arc<[ToolInfo]>, String> {
    let mut all: Vec<ToolInfo> = Vec::new();
    let mut cursor = None;
    for _ in 0..MAX_PAGES {
        let params = PaginatedRequestParams::default().with_cursor(cursor);
        let page = peer.list_tools(Some(params)).await.map_err(|e| match e {
            ServiceError::McpError(e) => format!("it does not list its tools: {}", e.message),
            ServiceError::TransportSend(e) => format!("it is not reached: {}", root(&*e.error)),
            ServiceError::TransportClosed => "it ended before it listed its tools".to_owned(),
            _ => "its list of tools is not understood".to_owned(),
        })?;
        all.extend(page.tools.into_iter().filter_map(offer::info));
        if all.len() > MAX_TOOLS {
            return Err(format!("it has more than {MAX_TOOLS} tools"));
        }
        cursor = page.next_cursor.filter(|c| !c.is_empty());
        if cursor.is_none() {
            // Some list them in any order: the prompt's head stays the same all the same.
            all.sort_by(|a, b| a.name.cmp(&b.name));
            all.dedup_by(|a, b| a.name == b.name);
            return Ok(all.into());
        }
    }
    Err(format!("its list of tools has no end after {MAX_PAGES} pages"))
}
