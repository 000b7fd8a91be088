//! JSON-RPC: the hello gate, dispatch through the method table, errors.
//!
//! Owns how a line becomes a call and a result becomes a line. Methods are registered in a
//! jsonrpsee `RpcModule`, one per row of the protocol's table. Must not know framing or sockets
//! beyond the connection's outbox.

mod daemon_methods;
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
use jsonrpsee::core::server::{MethodCallback, MethodResponse, ResponsePayload};
use jsonrpsee::{ConnectionId, Extensions, RpcModule};
use jsonrpsee_types::{ErrorObjectOwned, Id};
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
    id: Arc<RawValue>,
    /// Whether an answer is wanted: a call without an id gets none.
    wants: bool,
}

/// How a method answers.
pub(crate) enum Answer<T> {
    /// With this.
    Now(Result<T, RpcError>),
    /// It was queued by whoever made it, before anything it caused.
    Sent,
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

    fn encode<T: Serialize>(&self, result: &Result<T, RpcError>) -> Bytes {
        if self.wants { encode(&self.id, result) } else { Bytes::new() }
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
    let line = match result {
        Ok(value) => frame::encode_ok(id, value).unwrap_or_else(|e| {
            frame::encode_err(Some(id), &RpcError::internal(format!("the result did not serialise: {e}")))
        }),
        Err(e) => frame::encode_err(Some(id), e),
    };
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
    let callback = MethodCallback::Async(Arc::new(move |id, params, _conn: ConnectionId, max, ext: Extensions| {
        let Some(call) = ext.get::<CallCtx>().cloned() else {
            let e = RpcError::internal("a call came without its connection");
            return std::future::ready(MethodResponse::error(id, error_object(&e))).boxed();
        };
        let parsed = serde_json::from_str::<M::Params>(params.as_str().unwrap_or("{}"));
        match parsed {
            Err(e) => {
                let e = RpcError::params(format!("{}: {e}", M::NAME));
                std::future::ready(MethodResponse::error(id, error_object(&e))).boxed()
            }
            Ok(p) => {
                let answer = handler(call, p);
                async move { respond(id, answer.await, max) }.boxed()
            }
        }
    }));
    module.verify_and_insert(M::NAME, callback).map(|_| ()).map_err(|e| e.to_string())
}

fn respond<T: Serialize + Clone>(id: Id<'static>, answer: Answer<T>, max: usize) -> MethodResponse {
    match answer {
        Answer::Now(Ok(v)) => MethodResponse::response(id, ResponsePayload::success(v), max),
        Answer::Now(Err(e)) => MethodResponse::error(id, error_object(&e)),
        Answer::Sent => MethodResponse::notification(),
    }
}

fn error_object(e: &RpcError) -> ErrorObjectOwned {
    ErrorObjectOwned::owned(e.code, e.message.clone(), e.data.clone())
}

/// The module of all methods.
///
/// # Errors
/// When two rows have one name.
pub fn module() -> Result<RpcModule<()>, String> {
    let mut m = RpcModule::new(());
    daemon_methods::register_all(&mut m)?;
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
    serde_json::from_str::<Id<'_>>(id.get()).is_ok()
}

trait PeerExt {
    fn call(&self, call: Call) -> BoxFuture<'static, Option<Bytes>>;
    fn hello(&self, params: Option<&RawValue>) -> Result<HelloResult, RpcError>;
}

impl PeerExt for Arc<Peer> {
    fn call(&self, call: Call) -> BoxFuture<'static, Option<Bytes>> {
        let id = call.id;
        let wants = id.is_some();
        let raw_id: Box<RawValue> = id.unwrap_or_else(|| RawValue::NULL.to_owned());
        let fail = |e: &RpcError| now(frame::encode_err(Some(&raw_id), e));
        if !valid_id(&raw_id) {
            let e = RpcError::new(ErrorKind::InvalidRequest, "the id has to be a string, a number or null");
            return now(frame::encode_err(None, &e));
        }
        if call.jsonrpc.as_deref() != Some("2.0") {
            return fail(&RpcError::new(ErrorKind::InvalidRequest, "\"jsonrpc\" has to be \"2.0\""));
        }
        let Some(method) = call.method else {
            return fail(&RpcError::new(ErrorKind::InvalidRequest, "the request has no \"method\""));
        };
        if call.params.as_ref().is_some_and(|p| !p.get().starts_with('{')) {
            return fail(&RpcError::params("params have to be one object"));
        }
        if method == "hello" {
            return now(encode(&raw_id, &self.hello(call.params.as_deref())).to_vec());
        }
        if self.ident.get().is_none() {
            return fail(&RpcError::new(
                ErrorKind::HelloRequired,
                "say hello first: {\"method\":\"hello\",\"params\":{\"client\":{\"name\":\"…\"},\"protocol\":{\"min\":1,\"max\":1}}}",
            ));
        }
        let Some(MethodCallback::Async(callback)) = self.daemon.methods.method(&method) else {
            let e = RpcError::new(
                ErrorKind::MethodNotFound,
                format!("there is no method {method}: `glrs schema` lists them"),
            );
            return fail(&e);
        };
        let params = call.params.map_or_else(|| "{}".to_owned(), |p| p.get().to_owned());
        let params = jsonrpsee_types::Params::new(Some(&params)).into_owned();
        let Ok(rpc_id) = serde_json::from_str::<Id<'_>>(raw_id.get()).map(Id::into_owned) else {
            return fail(&RpcError::internal("the id changed while it was read"));
        };
        let mut ext = Extensions::new();
        ext.insert(CallCtx { peer: self.clone(), id: raw_id.clone().into(), wants });
        let future = callback(rpc_id, params, ConnectionId(0), usize::MAX, ext);
        async move {
            // A fault in one call is an error of that call; the connection lives.
            let response = AssertUnwindSafe(future).catch_unwind().await;
            let line = match response {
                Ok(r) if r.is_notification() => return None,
                Ok(r) => {
                    let json = r.into_json();
                    let mut line = String::with_capacity(json.get().len() + 1);
                    line.push_str(json.get());
                    line.push('\n');
                    Bytes::from(line)
                }
                Err(_) => {
                    tracing::error!(%method, "a method failed inside");
                    Bytes::from(frame::encode_err(
                        Some(&raw_id),
                        &RpcError::internal("glrsd failed inside this call; nothing else is affected"),
                    ))
                }
            };
            wants.then_some(line)
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
