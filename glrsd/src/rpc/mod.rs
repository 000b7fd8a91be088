//! JSON-RPC: the hello gate, dispatch through the method table, errors.
//!
//! Owns how a line becomes a call and a result becomes a line. Methods are registered in a
//! jsonrpsee `RpcModule`, one per row of the protocol's table. Must not know framing or sockets
//! beyond the connection's outbox.

mod daemon_methods;
mod mcp_methods;
mod session_methods;

use crate::daemon::Daemon;
use crate::net::conn::{Conn, Service};
use crate::net::lines::Line;
use crate::session::{Reply, Who};
use bytes::Bytes;
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use glrs_protocol::frame::{self, Call, MAX_MESSAGE};
use glrs_protocol::params::{Hello, HelloResult};
use glrs_protocol::types::{ClientIdent, Limits};
use glrs_protocol::{ErrorKind, Method, PROTOCOL, PROTOCOL_MIN, RpcError};
use jsonrpsee::core::server::{MethodCallback, MethodResponse};
use jsonrpsee::{ConnectionId, Extensions, RpcModule};
use jsonrpsee_types::Id;
use serde::Serialize;
use serde_json::value::RawValue;
use std::panic::AssertUnwindSafe;
use std::sync::{Arc, OnceLock};
use tokio::sync::oneshot;

/// A connection as methods see it.
pub struct Peer {
    /// The daemon.
    pub daemon: Arc<Daemon>,
    /// Its outbox.
    pub conn: Arc<Conn>,
    /// Who it says it is, once it said hello.
    pub ident: OnceLock<ClientIdent>,
    /// Since when.
    pub connected_at: String,
}

/// One call as its method sees it.
#[derive(Clone)]
pub(crate) struct CallCtx {
    peer: Arc<Peer>,
    /// `None` for a notification: it is done, and nothing is answered.
    id: Option<Arc<RawValue>>,
}

/// How a method answers.
pub(crate) enum Answer<T> {
    /// With this.
    Now(Result<T, RpcError>),
    /// It was queued by whoever made it, before anything it caused.
    Sent,
}

/// Waits until whoever took a call has answered it. Where it was dropped instead (its session
/// failed inside), the caller is told so: a call is never left without an answer.
async fn answered<T>(sent: oneshot::Receiver<()>) -> Answer<T> {
    match sent.await {
        Ok(()) => Answer::Sent,
        Err(_) => Answer::Now(Err(RpcError::internal("the session failed inside this call; nothing else is affected"))),
    }
}

impl<T> From<Result<T, RpcError>> for Answer<T> {
    fn from(r: Result<T, RpcError>) -> Self {
        Self::Now(r)
    }
}

impl CallCtx {
    pub(crate) fn who(&self) -> Who {
        let name = self.peer.ident.get().map_or("client", |i| i.name.as_str());
        Who { client: self.peer.conn.id, by: format!("{name}#{}", self.peer.conn.id) }
    }

    pub(crate) fn daemon(&self) -> &Arc<Daemon> {
        &self.peer.daemon
    }

    pub(crate) fn conn(&self) -> &Arc<Conn> {
        &self.peer.conn
    }

    /// The answer as a line; empty when none is owed.
    fn encode<T: Serialize>(&self, result: &Result<T, RpcError>) -> Bytes {
        self.id.as_ref().map(|id| encode(id, result)).unwrap_or_default()
    }

    /// A reply that goes into the outbox from within the session, so that it precedes whatever the
    /// call causes. The receiver resolves once it was called.
    pub(crate) fn reply<T: Serialize + 'static>(&self) -> (Reply<T>, oneshot::Receiver<()>) {
        let (tx, rx) = oneshot::channel();
        let call = self.clone();
        let reply: Reply<T> = Box::new(move |result| {
            call.conn().reply(call.encode(&result));
            let _ = tx.send(());
        });
        (reply, rx)
    }
}

fn encode<T: Serialize>(id: &RawValue, result: &Result<T, RpcError>) -> Bytes {
    let failed = |e: &RpcError| frame::encode_err(Some(id), e);
    let line = match result {
        Ok(value) => frame::encode_ok(id, value)
            .unwrap_or_else(|e| failed(&RpcError::internal(format!("the result did not serialise: {e}")))),
        Err(e) => failed(e),
    };
    if line.len() > MAX_MESSAGE {
        // No client would read it: it would end the connection and everything else on it.
        return Bytes::from(failed(&RpcError::new(
            ErrorKind::Limit { what: "message bytes".into(), max: MAX_MESSAGE as u64 },
            format!("the answer has {} bytes, a message {MAX_MESSAGE} at most: ask for less at once", line.len()),
        )));
    }
    Bytes::from(line)
}

type Handler<T> = BoxFuture<'static, Answer<T>>;

/// Registers one row of the method table.
///
/// # Errors
/// When the name is taken already.
pub(crate) fn register<M, F>(module: &mut RpcModule<()>, handler: F) -> Result<(), String>
where
    M: Method + 'static,
    F: Fn(CallCtx, M::Params) -> Handler<M::Result> + Send + Sync + 'static,
{
    let handler = Arc::new(handler);
    // The answer goes into the outbox from here: ids come back as they were written, which
    // jsonrpsee's own type does not do for every number.
    let callback = MethodCallback::Async(Arc::new(move |_, params, _conn: ConnectionId, _, ext: Extensions| {
        let Some(call) = ext.get::<CallCtx>().cloned() else {
            return std::future::ready(MethodResponse::notification()).boxed();
        };
        match serde_json::from_str::<M::Params>(params.as_str().unwrap_or("{}")) {
            Err(e) => {
                let e: Result<M::Result, RpcError> = Err(RpcError::params(format!("{}: {e}", M::NAME)));
                call.conn().reply(call.encode(&e));
                std::future::ready(MethodResponse::notification()).boxed()
            }
            Ok(p) => {
                let answer = handler(call.clone(), p);
                async move {
                    if let Answer::Now(result) = answer.await {
                        call.conn().reply(call.encode(&result));
                    }
                    MethodResponse::notification()
                }
                .boxed()
            }
        }
    }));
    module.verify_and_insert(M::NAME, callback).map(|_| ()).map_err(|e| e.to_string())
}

/// The module of all methods.
///
/// # Errors
/// When two rows have one name.
pub fn module() -> Result<RpcModule<()>, String> {
    let mut m = RpcModule::new(());
    daemon_methods::register_all(&mut m)?;
    mcp_methods::register_all(&mut m)?;
    session_methods::register_all(&mut m)?;
    Ok(m)
}

impl Service for Arc<Peer> {
    fn line(&self, line: Line) -> BoxFuture<'static, Option<Bytes>> {
        let bytes = match line {
            Line::Message(b) => b,
            Line::TooLong(head) => {
                let e = RpcError::new(
                    ErrorKind::Limit { what: "message bytes".into(), max: MAX_MESSAGE as u64 },
                    format!(
                        "the message is over {MAX_MESSAGE} bytes and was dropped: send less, or attach files by path"
                    ),
                );
                return now(frame::encode_err(frame::salvage_id(&head).as_deref(), &e));
            }
            Line::End => return std::future::ready(None).boxed(),
        };
        if bytes.iter().all(u8::is_ascii_whitespace) {
            return std::future::ready(None).boxed();
        }
        let call: Call = match parse(&bytes) {
            Ok(c) => c,
            Err(e) => return now(frame::encode_err(frame::salvage_id(&bytes).as_deref(), &e)),
        };
        self.call(call)
    }
}

fn now(line: Vec<u8>) -> BoxFuture<'static, Option<Bytes>> {
    std::future::ready(Some(Bytes::from(line))).boxed()
}

fn parse(bytes: &[u8]) -> Result<Call, RpcError> {
    let text = std::str::from_utf8(bytes).map_err(|_| RpcError::new(ErrorKind::ParseError, "the line is not UTF-8"))?;
    if text.trim_start().starts_with('[') {
        return Err(RpcError::new(
            ErrorKind::InvalidRequest,
            "batches are not part of this protocol: send one message per line",
        ));
    }
    match serde_json::from_str::<Call>(text) {
        Ok(c) => Ok(c),
        Err(e) if serde_json::from_str::<serde::de::IgnoredAny>(text).is_ok() => {
            Err(RpcError::new(ErrorKind::InvalidRequest, format!("not a JSON-RPC 2.0 request: {e}")))
        }
        Err(e) => Err(RpcError::new(ErrorKind::ParseError, format!("the line is not JSON: {e}"))),
    }
}

/// JSON-RPC ids are strings, numbers or null; anything else is no id.
fn valid_id(id: &RawValue) -> bool {
    id.get() == "null" || id.get().starts_with(|c: char| c == '"' || c == '-' || c.is_ascii_digit())
}

trait PeerExt {
    fn call(&self, call: Call) -> BoxFuture<'static, Option<Bytes>>;
    fn hello(&self, params: Option<&RawValue>) -> Result<HelloResult, RpcError>;
}

impl PeerExt for Arc<Peer> {
    fn call(&self, call: Call) -> BoxFuture<'static, Option<Bytes>> {
        let id: Option<Arc<RawValue>> = call.id.map(Arc::from);
        let invalid = |words: &str| {
            now(frame::encode_err(
                id.as_deref().filter(|i| valid_id(i)),
                &RpcError::new(ErrorKind::InvalidRequest, words),
            ))
        };
        if id.as_deref().is_some_and(|i| !valid_id(i)) {
            return invalid("the id has to be a string, a number or null");
        }
        if call.jsonrpc.as_deref() != Some("2.0") {
            return invalid("\"jsonrpc\" has to be \"2.0\"");
        }
        let Some(method) = call.method else {
            return invalid("the request has no \"method\"");
        };
        let ctx = CallCtx { peer: self.clone(), id };
        let answer = |line: Bytes| std::future::ready((!line.is_empty()).then_some(line)).boxed();
        let fail = |e: RpcError| answer(ctx.encode::<()>(&Err(e)));
        if call.params.as_ref().is_some_and(|p| !p.get().starts_with('{')) {
            return fail(RpcError::params("params have to be one object"));
        }
        if method == "hello" {
            return answer(ctx.encode(&self.hello(call.params.as_deref())));
        }
        if self.ident.get().is_none() {
            return fail(RpcError::new(
                ErrorKind::HelloRequired,
                "say hello first: {\"method\":\"hello\",\"params\":{\"client\":{\"name\":\"…\"},\"protocol\":{\"min\":1,\"max\":1}}}",
            ));
        }
        let Some(MethodCallback::Async(callback)) = self.daemon.methods.method(&method) else {
            return fail(RpcError::new(
                ErrorKind::MethodNotFound,
                format!("there is no method {method}: `glrs schema` lists them"),
            ));
        };
        let params = call.params.map_or_else(|| "{}".to_owned(), |p| p.get().to_owned());
        let params = jsonrpsee_types::Params::new(Some(&params)).into_owned();
        let mut ext = Extensions::new();
        ext.insert(ctx.clone());
        let future = callback(Id::Null, params, ConnectionId(0), usize::MAX, ext);
        async move {
            // A fault in one call is an error of that call; the connection lives.
            if AssertUnwindSafe(future).catch_unwind().await.is_err() {
                tracing::error!(%method, "a method failed inside");
                let e = RpcError::internal("glrsd failed inside this call; nothing else is affected");
                ctx.conn().reply(ctx.encode::<()>(&Err(e)));
            }
            None
        }
        .boxed()
    }

    fn hello(&self, params: Option<&RawValue>) -> Result<HelloResult, RpcError> {
        let text = params.map_or("{}", RawValue::get);
        let p: Hello = serde_json::from_str(text).map_err(|e| RpcError::params(format!("hello: {e}")))?;
        if p.protocol.max < PROTOCOL_MIN || p.protocol.min > PROTOCOL {
            return Err(RpcError::new(
                ErrorKind::UnsupportedProtocol { min: PROTOCOL_MIN, max: PROTOCOL },
                format!(
                    "this daemon ({}) speaks protocol {PROTOCOL_MIN} to {PROTOCOL}, the client {} to {}: update the older one; `glrs daemon restart` starts the installed version",
                    self.daemon.info.version, p.protocol.min, p.protocol.max
                ),
            ));
        }
        // A second hello changes nothing.
        let _ = self.ident.set(p.client);
        Ok(HelloResult {
            protocol: PROTOCOL.min(p.protocol.max),
            daemon: self.daemon.info.clone(),
            limits: limits(),
            capabilities: vec!["attach.after".into(), "roster".into(), "rewind".into()],
            client_id: self.conn.id,
        })
    }
}

/// What the daemon takes at most.
pub fn limits() -> Limits {
    Limits {
        message_bytes: MAX_MESSAGE as u64,
        in_flight: frame::MAX_IN_FLIGHT as u64,
        clients: frame::MAX_CLIENTS as u64,
        queue_rows: frame::MAX_QUEUE_ROWS as u64,
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn every_row_of_the_table_is_registered_and_nothing_else() {
        let module = super::module().unwrap();
        let mut have: Vec<&str> = module.method_names().chain(["hello"]).collect();
        let mut want: Vec<&str> = glrs_protocol::methods::table().iter().map(|r| r.name).collect();
        have.sort_unstable();
        want.sort_unstable();
        assert_eq!(have, want);
    }
}
