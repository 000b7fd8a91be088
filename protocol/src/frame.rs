//! Framing: one JSON-RPC 2.0 message per line, split on `\n` only.
//!
//! Owns the limits and the shape of requests and responses. Must not know sockets: both sides
//! feed it bytes.

use crate::error::RpcError;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

/// Most bytes of one message, newline included (32 MiB).
pub const MAX_MESSAGE: usize = 32 * 1024 * 1024;
/// Unanswered calls of one connection before the daemon stops reading it.
pub const MAX_IN_FLIGHT: usize = 64;
/// Connected clients.
pub const MAX_CLIENTS: usize = 1024;
/// Rows in one session's queue.
pub const MAX_QUEUE_ROWS: usize = 256;

/// A call as it arrives. `id` is absent on notifications.
#[derive(Debug, Deserialize)]
pub struct Call {
    /// Has to be "2.0".
    #[serde(default)]
    pub jsonrpc: Option<String>,
    /// A string, a number or null.
    #[serde(default, deserialize_with = "present")]
    pub id: Option<Box<RawValue>>,
    /// The method.
    #[serde(default)]
    pub method: Option<String>,
    /// One object.
    #[serde(default)]
    pub params: Option<Box<RawValue>>,
}

/// Keeps `"id":null` apart from no id.
fn present<'de, D: serde::Deserializer<'de>>(d: D) -> Result<Option<Box<RawValue>>, D::Error> {
    Box::<RawValue>::deserialize(d).map(Some)
}

#[derive(Serialize)]
struct Ok_<'a, T> {
    jsonrpc: &'static str,
    id: &'a RawValue,
    result: &'a T,
}

#[derive(Serialize)]
struct Err_<'a> {
    jsonrpc: &'static str,
    id: &'a RawValue,
    error: &'a RpcError,
}

/// A success response as one line, newline included.
///
/// # Errors
/// When the result does not serialise.
pub fn encode_ok<T: Serialize>(id: &RawValue, result: &T) -> Result<Vec<u8>, serde_json::Error> {
    let mut out = serde_json::to_vec(&Ok_ { jsonrpc: "2.0", id, result })?;
    out.push(b'\n');
    Ok(out)
}

/// An error response as one line, newline included. `id` is null where none could be read.
pub fn encode_err(id: Option<&RawValue>, error: &RpcError) -> Vec<u8> {
    let id = id.unwrap_or(RawValue::NULL);
    let mut out = serde_json::to_vec(&Err_ { jsonrpc: "2.0", id, error }).unwrap_or_else(|_| {
        br#"{"jsonrpc":"2.0","id":null,"error":{"code":-32603,"message":"unencodable error"}}"#.to_vec()
    });
    out.push(b'\n');
    out
}

/// Finds a usable `id` in a line that is not a valid call, so that its sender learns which call
/// failed: a top-level `"id": <string or number>` near either end of the text.
pub fn salvage_id(line: &[u8]) -> Option<Box<RawValue>> {
    let text = String::from_utf8_lossy(&line[..line.len().min(4096)]);
    let at = text.find("\"id\"")?;
    let rest = text[at + 4..].trim_start().strip_prefix(':')?.trim_start();
    let end = if let Some(s) = rest.strip_prefix('"') {
        s.find('"')? + 2
    } else {
        rest.find(|c: char| !(c.is_ascii_digit() || c == '-'))?
    };
    let candidate = &rest[..end];
    serde_json::from_str::<Box<RawValue>>(candidate).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_salvaged_from_bad_lines() {
        assert_eq!(salvage_id(br#"{"jsonrpc":"2.0","id": 7,"method":"#).unwrap().get(), "7");
        assert_eq!(salvage_id(br#"{"id":"a b",oops"#).unwrap().get(), "\"a b\"");
        assert!(salvage_id(b"hello").is_none());
    }
}
