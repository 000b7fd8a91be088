//! A server's life: at rest, starting, ready, down.
//!
//! Owns the state, the one task that holds the connection, and how often it is started; calls of
//! its tools. The task ends with the last holder of the [`Server`]. Must not know what connects.

use super::link::{self, Link, root};
use super::spec::Secrets;
use super::{ToolInfo, content};
use crate::config::McpServer;
use crate::host::{Env, worker};
use futures_util::FutureExt;
use rmcp::model::{CallToolRequest, CallToolRequestParams, ClientRequest, JsonObject, ServerResult};
use rmcp::service::{PeerRequestOptions, RequestHandle, ServiceError};
use std::collections::VecDeque;
use std::panic::AssertUnwindSafe;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::sync::{mpsc, watch};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// So often a server is started within [`WINDOW`].
const STARTS: usize = 4;
/// See [`STARTS`].
const WINDOW: Duration = Duration::from_secs(600);
/// How long telling a server that a call is off may take: esc answers within 200 ms.
const TELL: Duration = Duration::from_millis(100);
/// How long the end of a connection is waited for, to say why a call failed.
const WHY: Duration = Duration::from_secs(1);

/// How a server is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum State {
    /// Nobody needed it yet.
    Idle,
    /// It is being started.
    Starting,
    /// It answers.
    Ready,
    /// It does not run, for this reason.
    Down(String),
}

#[derive(Clone, Debug)]
enum Now {
    Idle,
    Starting,
    Ready(Arc<Link>),
    Down(Arc<str>),
}

/// A call of a tool.
pub struct Call<'a> {
    /// The tool, as its server calls it.
    pub tool: &'a str,
    /// Its input.
    pub input: JsonObject,
    /// How long it may take.
    pub limit: Duration,
    /// Esc.
    pub cancel: &'a CancellationToken,
    /// Gets a line for each progress; what it has no room for is left out.
    pub progress: mpsc::Sender<String>,
}

/// Why there is no result.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CallError {
    /// Esc.
    #[error("Interrupted.")]
    Interrupted,
    /// It took too long.
    #[error(
        "The tool did not answer within {0} s; the server was told that the answer is no longer wanted. What it did until then stays."
    )]
    TimedOut(u64),
    /// The server does not run.
    #[error("The MCP server {server} does not run: {why}. Nothing was done.")]
    Down {
        /// Its name.
        server: String,
        /// Why.
        why: String,
    },
    /// The server went away while it worked.
    #[error("The MCP server {server} went away during the call: {why}. What it did until then stays.")]
    Lost {
        /// Its name.
        server: String,
        /// Why.
        why: String,
    },
    /// The server refused.
    #[error("The MCP server {server} refused the call: {why}")]
    Refused {
        /// Its name.
        server: String,
        /// Its words.
        why: String,
    },
    /// The answer makes no sense.
    #[error("The MCP server {server} answered with something that is no result of a tool.")]
    NoResult {
        /// Its name.
        server: String,
    },
}

#[derive(Debug)]
struct Core {
    name: String,
    spec: McpServer,
    cwd: PathBuf,
    env: Arc<Env>,
    keys: Vec<String>,
    now: watch::Sender<Now>,
    starts: Mutex<VecDeque<Instant>>,
    gone: CancellationToken,
}

/// A server. Dropping the last one ends it.
#[derive(Debug)]
pub struct Server(Arc<Core>);

impl Drop for Server {
    fn drop(&mut self) {
        self.0.gone.cancel();
    }
}

impl Server {
    pub(super) fn new(name: String, spec: McpServer, cwd: PathBuf, env: Arc<Env>, keys: Vec<String>) -> Self {
        let (now, starts) = (watch::Sender::new(Now::Idle), Mutex::default());
        Self(Arc::new(Core { name, spec, cwd, env, keys, now, starts, gone: CancellationToken::new() }))
    }

    pub(super) fn is(&self, name: &str, spec: &McpServer, cwd: &Path, env: &Arc<Env>) -> bool {
        let core = &self.0;
        core.name == name && core.spec == *spec && core.cwd == cwd && (Arc::ptr_eq(&core.env, env) || core.env == *env)
    }

    /// Its name in the configuration.
    pub fn name(&self) -> &str {
        &self.0.name
    }

    /// How it is.
    pub fn state(&self) -> State {
        match &*self.0.now.borrow() {
            Now::Idle => State::Idle,
            Now::Starting => State::Starting,
            Now::Ready(_) => State::Ready,
            Now::Down(why) => State::Down(why.to_string()),
        }
    }

    /// Its tools by name, while it is ready.
    pub fn tools(&self) -> Option<Arc<[ToolInfo]>> {
        self.link().map(|l| l.tools())
    }

    fn link(&self) -> Option<Arc<Link>> {
        match &*self.0.now.borrow() {
            Now::Ready(link) => Some(link.clone()),
            _ => None,
        }
    }

    /// Starts it if it does not run and was not started too often. Waits for nothing.
    pub fn start(&self) {
        let core = &self.0;
        let begun = core.now.send_if_modified(|now| match now {
            Now::Idle => {
                core.may_start();
                *now = Now::Starting;
                true
            }
            Now::Down(why) => {
                if core.may_start() {
                    *now = Now::Starting;
                    return true;
                }
                if !why.contains(TOO_OFTEN) {
                    *why = format!("{why}; {TOO_OFTEN}").into();
                }
                false
            }
            Now::Starting | Now::Ready(_) => false,
        });
        if begun {
            // Ends with the last holder; it contains its own panics.
            tokio::spawn(run(core.clone()));
        }
    }

    /// Waits until it is ready with its present tools, or down. To be raced against a clock.
    pub async fn settled(&self) {
        let mut now = self.0.now.subscribe();
        // The sender is ours: the wait ends only with the state.
        let _ = now.wait_for(|n| matches!(n, Now::Ready(_) | Now::Down(_))).await;
        drop(now);
        if let Some(link) = self.link() {
            link.refresh().await;
        }
    }

    /// Calls a tool; starts the server first if need be. The result is whether the tool did what
    /// was asked, and its words.
    ///
    /// # Errors
    /// See [`CallError`]; the words are for the model.
    pub async fn call(&self, call: Call<'_>) -> Result<(bool, String), CallError> {
        let until = Instant::now() + call.limit;
        let late = || CallError::TimedOut(call.limit.as_secs());
        self.start();
        let link = tokio::select! {
            biased;
            () = call.cancel.cancelled() => return Err(CallError::Interrupted),
            () = tokio::time::sleep_until(until) => return Err(late()),
            link = self.up() => link?,
        };
        link.meter.reset();
        let params = CallToolRequestParams::new(call.tool.to_owned()).with_arguments(call.input);
        let request = ClientRequest::CallToolRequest(CallToolRequest::new(params));
        let asked = tokio::select! {
            biased;
            () = call.cancel.cancelled() => return Err(CallError::Interrupted),
            () = tokio::time::sleep_until(until) => return Err(late()),
            asked = link.peer.send_cancellable_request(request, PeerRequestOptions::no_options()) => asked,
        };
        let mut handle = match asked {
            Ok(handle) => handle,
            Err(e) => return Err(self.failed(e).await),
        };
        let _following = link.heard.follow(handle.progress_token.clone(), call.progress);
        let answer = tokio::select! {
            biased;
            () = call.cancel.cancelled() => {
                off(&link, handle, "interrupted").await;
                return Err(CallError::Interrupted);
            }
            answer = &mut handle.rx => answer,
            () = tokio::time::sleep_until(until) => {
                off(&link, handle, "timed out").await;
                return Err(late());
            }
        };
        link.meter.reset();
        match answer {
            Ok(Ok(ServerResult::CallToolResult(result))) => Ok(content::text(&result)),
            Ok(Ok(ServerResult::EmptyResult(_))) => Ok(content::text(&Default::default())),
            Ok(Ok(_)) => Err(CallError::NoResult { server: self.name().to_owned() }),
            Ok(Err(e)) => Err(self.failed(e).await),
            Err(_) => Err(self.failed(ServiceError::TransportClosed).await),
        }
    }

    /// The connection, once there is one.
    async fn up(&self) -> Result<Arc<Link>, CallError> {
        let mut now = self.0.now.subscribe();
        let down = |why: &str| CallError::Down { server: self.name().to_owned(), why: why.to_owned() };
        let now = now.wait_for(|n| matches!(n, Now::Ready(_) | Now::Down(_))).await.map_err(|_| down("it is gone"))?;
        match &*now {
            Now::Ready(link) => Ok(link.clone()),
            Now::Down(why) => Err(down(why)),
            Now::Idle | Now::Starting => Err(down("it is not started")),
        }
    }

    async fn failed(&self, e: ServiceError) -> CallError {
        let server = self.name().to_owned();
        match e {
            ServiceError::McpError(e) => CallError::Refused { server, why: e.message.into_owned() },
            ServiceError::TransportSend(e) => {
                let mut secrets = Secrets::default();
                let core = &self.0;
                let _ =
                    worker::aside(|| super::spec::place(&core.spec, &core.cwd, &core.env, &core.keys, &mut secrets));
                CallError::Lost { server, why: secrets.hide(&root(&*e.error)) }
            }
            ServiceError::TransportClosed => {
                // The task that holds the connection learns why a moment later.
                let mut now = self.0.now.subscribe();
                let wait = now.wait_for(|n| !matches!(n, Now::Ready(_)));
                let why = match tokio::time::timeout(WHY, wait).await {
                    Ok(Ok(now)) => match &*now {
                        Now::Down(why) => why.to_string(),
                        _ => "it was restarted".to_owned(),
                    },
                    _ => "the connection was closed".to_owned(),
                };
                CallError::Lost { server, why }
            }
            _ => CallError::NoResult { server },
        }
    }
}

/// Part of the reason of a server that is left alone.
const TOO_OFTEN: &str = "it is left alone for some minutes, since it was started again and again";

impl Core {
    /// Counts a start, unless there were too many.
    fn may_start(&self) -> bool {
        let mut starts = self.starts.lock().unwrap_or_else(PoisonError::into_inner);
        let now = Instant::now();
        while starts.front().is_some_and(|t| now.duration_since(*t) > WINDOW) {
            starts.pop_front();
        }
        if starts.len() >= STARTS {
            return false;
        }
        starts.push_back(now);
        true
    }
}

/// Holds the connection as long as there is one.
async fn run(core: Arc<Core>) {
    let mut secrets = Secrets::default();
    let opened = |link| {
        core.now.send_replace(Now::Ready(link));
    };
    let keep = link::keep(&core.spec, &core.cwd, (&core.env, &core.keys), &core.gone, &mut secrets, opened);
    let why = AssertUnwindSafe(keep).catch_unwind().await;
    let why = why.unwrap_or_else(|_| "its connection failed inside glrs".to_owned());
    core.now.send_replace(Now::Down(secrets.hide(&why).into()));
}

/// Tells a server that an answer is no longer wanted. It is on its way even where it takes longer
/// than we wait; a program that does not read it at all is ended.
async fn off(link: &Link, handle: RequestHandle<rmcp::RoleClient>, why: &str) {
    if tokio::time::timeout(TELL, handle.cancel(Some(why.to_owned()))).await.is_err() && link.pipe {
        link.end("it does not read what it is sent");
    }
}
