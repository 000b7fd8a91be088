//! A connection to the daemon: typed calls and the stream of what happens.
//!
//! Owns jsonrpsee's client, the decoding of errors and the bounded buffer of notifications. Must
//! not know what a session looks like (that is [`crate::view`]) nor where the socket is.

use crate::connect::{ConnectError, ConnectOptions};
use crate::transport;
use glrs_protocol::error::{ErrorKind, RpcError};
use glrs_protocol::event::{EventFrame, ROSTER_EVENT, RosterEvent, SESSION_EVENT};
use glrs_protocol::methods::{Method, m};
use glrs_protocol::params::{Hello, HelloResult, Range};
use glrs_protocol::{PROTOCOL, PROTOCOL_MIN};
use interprocess::local_socket::tokio::Stream;
use jsonrpsee::core::client::{
    Client as Rpc, ClientBuilder, ClientT as _, Error, Subscription, SubscriptionClientT as _, SubscriptionCloseReason,
};
use jsonrpsee::core::traits::ToRpcParams;
use serde_json::value::RawValue;
use std::sync::Arc;
use std::time::Duration;

/// Notifications kept for a reader that is busy. At the bound the reader is told
/// [`Incoming::Overflow`] and attaches again from what it has, as with the daemon's own ring.
const EVENT_BUFFER: usize = 8192;

/// Why a call has no result.
#[derive(Clone, Debug, thiserror::Error)]
pub enum CallError {
    /// The daemon's answer is an error.
    #[error("{0}")]
    Rpc(#[from] RpcError),
    /// The connection is gone. Calls that carry a key may be repeated on the next one.
    #[error("the connection to the daemon is gone: {0}")]
    Disconnected(String),
    /// No answer in time. The daemon may still do it.
    #[error("the daemon did not answer {0} in time; `glrs doctor` looks closer")]
    Timeout(&'static str),
    /// The answer is not what the protocol says.
    #[error("the daemon's answer to {method} cannot be read: {why}")]
    Malformed {
        /// The method.
        method: &'static str,
        /// What is wrong with it.
        why: String,
    },
}

impl CallError {
    /// The typed facts of a daemon's error; `Unknown` for all others.
    pub fn kind(&self) -> ErrorKind {
        match self {
            Self::Rpc(e) => e.kind(),
            _ => ErrorKind::Unknown,
        }
    }

    /// Whether the connection is at fault, not the call.
    pub fn is_connection(&self) -> bool {
        matches!(self, Self::Disconnected(_))
    }
}

/// A connection on which hello was said. Cheap to clone; the connection ends with the last clone.
#[derive(Clone)]
pub struct Client {
    inner: Arc<Inner>,
}

struct Inner {
    rpc: Rpc,
    hello: HelloResult,
}

struct Object<'a, T>(&'a T);

impl<T: serde::Serialize> ToRpcParams for Object<'_, T> {
    fn to_rpc_params(self) -> Result<Option<Box<RawValue>>, serde_json::Error> {
        serde_json::value::to_raw_value(self.0).map(Some)
    }
}

impl Client {
    /// Connects, starts the daemon when that is wanted and needed, and says hello.
    ///
    /// # Errors
    /// See [`ConnectError`].
    pub async fn connect(options: &ConnectOptions) -> Result<Self, ConnectError> {
        crate::connect::connect(options).await
    }

    /// Says hello on a fresh socket.
    pub(crate) async fn hello(stream: Stream, options: &ConnectOptions) -> Result<Self, ConnectError> {
        let (sender, receiver) = transport::halves(stream);
        let rpc = ClientBuilder::new()
            .request_timeout(Duration::from_secs(120))
            .max_buffer_capacity_per_subscription(EVENT_BUFFER)
            .build_with_tokio(sender, receiver);
        let params = Hello { client: options.ident.clone(), protocol: Range { min: PROTOCOL_MIN, max: PROTOCOL } };
        let first = tokio::time::timeout(options.patience, request::<m::HelloM>(&rpc, &params)).await;
        let hello = match first {
            Err(_) => {
                return Err(ConnectError::Silent { what: "answer", seconds: options.patience.as_secs() });
            }
            Ok(Err(CallError::Rpc(e))) => {
                return Err(match e.kind() {
                    ErrorKind::UnsupportedProtocol { min, max } => {
                        ConnectError::Protocol { ours: env!("CARGO_PKG_VERSION"), min, max }
                    }
                    _ => ConnectError::Hello(CallError::Rpc(e)),
                });
            }
            Ok(other) => other?,
        };
        Ok(Self { inner: Arc::new(Inner { rpc, hello }) })
    }

    /// What the daemon said of itself.
    pub fn daemon(&self) -> &HelloResult {
        &self.inner.hello
    }

    /// A sentence when client and daemon are of different releases.
    pub fn skew(&self) -> Option<String> {
        let (ours, theirs) = (env!("CARGO_PKG_VERSION"), &self.inner.hello.daemon.version);
        (ours != theirs)
            .then(|| format!("the daemon is glrs {theirs}, this is {ours}: `glrs daemon restart` brings them together"))
    }

    /// Calls a method.
    ///
    /// # Errors
    /// See [`CallError`].
    pub async fn call<M: Method>(&self, params: &M::Params) -> Result<M::Result, CallError>
    where
        M::Params: Sync,
    {
        request::<M>(&self.inner.rpc, params).await
    }

    /// Begins to listen. Has to be called before `session/attach` or `roster/watch`, so that
    /// nothing they cause is missed, and once per connection.
    ///
    /// # Errors
    /// When the connection is gone or somebody listens already.
    pub async fn events(&self) -> Result<Events, CallError> {
        let session = listen(&self.inner.rpc, SESSION_EVENT).await?;
        let roster = listen(&self.inner.rpc, ROSTER_EVENT).await?;
        Ok(Events { client: self.clone(), session, roster, over: false })
    }

    /// Waits until the connection is gone and says why.
    pub async fn disconnected(&self) -> String {
        words(&self.inner.rpc.on_disconnect().await)
    }

    /// Whether the connection still stands.
    pub fn is_connected(&self) -> bool {
        self.inner.rpc.is_connected()
    }
}

async fn request<M: Method>(rpc: &Rpc, params: &M::Params) -> Result<M::Result, CallError>
where
    M::Params: Sync,
{
    rpc.request::<M::Result, _>(M::NAME, Object(params)).await.map_err(|e| match e {
        Error::Call(e) => {
            let data = e.data().and_then(|d| serde_json::from_str::<ErrorKind>(d.get()).ok());
            CallError::Rpc(RpcError { code: e.code(), message: e.message().to_owned(), data })
        }
        Error::RequestTimeout => CallError::Timeout(M::NAME),
        Error::ParseError(e) => CallError::Malformed { method: M::NAME, why: e.to_string() },
        other => CallError::Disconnected(words(&other)),
    })
}

async fn listen(rpc: &Rpc, method: &str) -> Result<Subscription<Box<RawValue>>, CallError> {
    rpc.subscribe_to_method(method).await.map_err(|e| CallError::Disconnected(words(&e)))
}

/// The innermost words of a connection error: what surrounds them is about the library.
fn words(e: &Error) -> String {
    match e {
        Error::RestartNeeded(inner) => words(inner),
        other => other.to_string(),
    }
}

/// Something that arrived unasked.
#[derive(Debug)]
pub enum Incoming {
    /// An event of an attached session.
    Session(EventFrame),
    /// A roster row that changed or went.
    Roster(RosterEvent),
    /// We read too slowly and events are missing: attach again from what you have.
    Overflow,
    /// The connection is gone, and why. Nothing follows.
    Disconnected(String),
}

/// What arrives unasked on a connection.
pub struct Events {
    client: Client,
    session: Subscription<Box<RawValue>>,
    roster: Subscription<Box<RawValue>>,
    over: bool,
}

impl Events {
    /// The next thing that arrives. After [`Incoming::Disconnected`] it waits forever. Dropping
    /// the call midway loses nothing.
    pub async fn next(&mut self) -> Incoming {
        loop {
            if self.over {
                std::future::pending::<()>().await;
            }
            let (which, raw) = tokio::select! {
                raw = self.session.next() => (SESSION_EVENT, raw),
                raw = self.roster.next() => (ROSTER_EVENT, raw),
            };
            match raw {
                Some(Ok(raw)) if which == SESSION_EVENT => match EventFrame::parse(raw.get()) {
                    Ok(frame) => return Incoming::Session(frame),
                    // A frame that cannot be read is a missing number: the next one tells.
                    Err(e) => tracing::warn!(error = %e, "unreadable session event"),
                },
                Some(Ok(raw)) => match RosterEvent::parse(raw.get()) {
                    Ok(event) => return Incoming::Roster(event),
                    Err(e) => tracing::warn!(error = %e, "unreadable roster event"),
                },
                Some(Err(e)) => tracing::warn!(error = %e, "unreadable notification"),
                None => return self.ended(which).await,
            }
        }
    }

    async fn ended(&mut self, which: &str) -> Incoming {
        let slot = if which == SESSION_EVENT { &mut self.session } else { &mut self.roster };
        let lagged = matches!(slot.close_reason(), Some(SubscriptionCloseReason::Lagged));
        if lagged && let Ok(again) = listen(&self.client.inner.rpc, which).await {
            *slot = again;
            return Incoming::Overflow;
        }
        self.over = true;
        Incoming::Disconnected(self.client.disconnected().await)
    }
}
