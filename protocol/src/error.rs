//! The error table: every typed error of the wire, its code, and what it carries.
//!
//! Messages are words a person can act on. Nothing in them carries user text, keys or request
//! bodies.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// What went wrong, with the facts a client can act on. Travels as `error.data`, tagged by
/// `kind`. Kinds a client does not know are to be treated by the JSON-RPC code and message alone.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "kind", rename_all = "snake_case", rename_all_fields = "camelCase")]
pub enum ErrorKind {
    /// The line is not JSON.
    ParseError,
    /// The JSON is not a JSON-RPC 2.0 request (batches included: they are not part of this wire).
    InvalidRequest,
    /// There is no such method.
    MethodNotFound,
    /// The params do not fit the method.
    InvalidParams,
    /// A fault of the daemon. The session named is `broken` or unharmed; the connection lives.
    Internal,
    /// No such session, row, request or artifact.
    NotFound,
    /// Several sessions fit.
    Ambiguous {
        /// The ids that fit, newest first.
        ids: Vec<String>,
    },
    /// The id, key or version is already taken by something else.
    Conflict,
    /// The session is doing something that excludes this.
    Busy {
        /// What it is doing: a state name.
        state: String,
    },
    /// Somebody was first.
    AlreadyResolved {
        /// Who answered.
        by: String,
    },
    /// Something is larger or more numerous than the daemon takes.
    Limit {
        /// What was limited.
        what: String,
        /// The limit, in the unit `what` names.
        max: u64,
    },
    /// The session cannot be used.
    Broken {
        /// The reason.
        why: String,
    },
    /// The session file was written by a newer glrs.
    NewerSchema {
        /// The schema number found.
        schema: u64,
    },
    /// Client and daemon share no protocol version.
    UnsupportedProtocol {
        /// Oldest the daemon speaks.
        min: u32,
        /// Newest the daemon speaks.
        max: u32,
    },
    /// Not allowed: a read-only attachment, or a path or name that is refused.
    Forbidden,
    /// The disk does not take it.
    Disk {
        /// The path that failed.
        path: String,
        /// The operating system's reason.
        why: String,
    },
    /// The model's provider refused or failed.
    Provider {
        /// HTTP status, where there was one.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        status: Option<u16>,
    },
    /// The call was cancelled before it took effect.
    Cancelled,
    /// `hello` has to be the first call.
    HelloRequired,
    /// The daemon is stopping and takes no new work.
    ShuttingDown,
    /// A kind this build does not know.
    #[serde(other)]
    Unknown,
}

impl ErrorKind {
    /// The JSON-RPC code of this kind. The table is part of the protocol: codes never change.
    pub fn code(&self) -> i32 {
        match self {
            Self::ParseError => -32700,
            Self::InvalidRequest => -32600,
            Self::MethodNotFound => -32601,
            Self::InvalidParams => -32602,
            Self::Internal | Self::Unknown => -32603,
            Self::NotFound => -32001,
            Self::Ambiguous { .. } => -32002,
            Self::Conflict => -32003,
            Self::Busy { .. } => -32004,
            Self::AlreadyResolved { .. } => -32005,
            Self::Limit { .. } => -32006,
            Self::Broken { .. } => -32007,
            Self::NewerSchema { .. } => -32008,
            Self::UnsupportedProtocol { .. } => -32009,
            Self::Forbidden => -32010,
            Self::Disk { .. } => -32011,
            Self::Provider { .. } => -32012,
            Self::Cancelled => -32013,
            Self::HelloRequired => -32014,
            Self::ShuttingDown => -32015,
        }
    }

    /// Every kind with an example of its data, for the documentation and its test.
    pub fn table() -> Vec<(Self, &'static str)> {
        vec![
            (Self::ParseError, "the line is not JSON"),
            (Self::InvalidRequest, "the JSON is not a JSON-RPC 2.0 request"),
            (Self::MethodNotFound, "there is no such method"),
            (Self::InvalidParams, "the params do not fit the method"),
            (Self::Internal, "a fault of the daemon; the connection lives"),
            (Self::NotFound, "no such session, row, request or artifact"),
            (Self::Ambiguous { ids: vec!["3f9a1c2b".into()] }, "several sessions fit"),
            (Self::Conflict, "the id, key or version is taken by something else"),
            (Self::Busy { state: "running".into() }, "the session is doing something that excludes this"),
            (Self::AlreadyResolved { by: "glrs#2".into() }, "somebody answered first"),
            (Self::Limit { what: "message bytes".into(), max: 33_554_432 }, "larger or more than the daemon takes"),
            (Self::Broken { why: "the file is empty".into() }, "the session cannot be used"),
            (Self::NewerSchema { schema: 3 }, "written by a newer glrs"),
            (Self::UnsupportedProtocol { min: 1, max: 1 }, "client and daemon share no version"),
            (Self::Forbidden, "not allowed here"),
            (
                Self::Disk { path: "sessions/3f9a1c2b.json".into(), why: "No space left on device".into() },
                "the disk does not take it",
            ),
            (Self::Provider { status: Some(401) }, "the model's provider refused or failed"),
            (Self::Cancelled, "cancelled before it took effect"),
            (Self::HelloRequired, "hello has to be the first call"),
            (Self::ShuttingDown, "the daemon is stopping"),
        ]
    }
}

/// An error as it travels: code, words, and [`ErrorKind`] as data.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema, thiserror::Error)]
#[error("{message}")]
pub struct RpcError {
    /// JSON-RPC error code, from [`ErrorKind::code`].
    pub code: i32,
    /// What happened and what to do about it.
    pub message: String,
    /// The typed facts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub data: Option<ErrorKind>,
}

impl RpcError {
    /// Makes an error of `kind` with words that say what to do.
    pub fn new(kind: ErrorKind, message: impl Into<String>) -> Self {
        Self { code: kind.code(), message: message.into(), data: Some(kind) }
    }

    /// The kind, or `Unknown` where the peer sent none.
    pub fn kind(&self) -> ErrorKind {
        self.data.clone().unwrap_or(ErrorKind::Unknown)
    }

    /// No such session.
    pub fn no_session(id: &str) -> Self {
        Self::new(ErrorKind::NotFound, format!("no session {id}: `glrs sessions list --all` shows what there is"))
    }

    /// Params that do not fit.
    pub fn params(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::InvalidParams, message)
    }

    /// A fault of the daemon itself.
    pub fn internal(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::Internal, message)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_are_unique_and_unknown_kinds_parse() {
        let mut codes: Vec<i32> = ErrorKind::table().iter().map(|(k, _)| k.code()).collect();
        let n = codes.len();
        codes.sort_unstable();
        codes.dedup();
        assert_eq!(codes.len(), n);
        let e: ErrorKind = serde_json::from_str(r#"{"kind":"from_the_future","x":1}"#).unwrap();
        assert_eq!(e, ErrorKind::Unknown);
    }
}
