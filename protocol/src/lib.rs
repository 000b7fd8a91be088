//! What is said between `glrsd` and its clients, and what stands in a session file.
//!
//! Owns: wire types, entry and message types, the method table (one row per method, from which
//! registration, typed calls, JSON Schema, OpenRPC and PROTOCOL.md come), the error table and
//! the protocol's limits.
//!
//! Must not know: sockets, files, clocks, environment. There is no I/O in this crate.

pub mod entry;
pub mod error;
pub mod event;
pub mod frame;
pub mod id;
pub mod message;
pub mod methods;
pub mod params;
pub mod schema;
pub mod types;

pub use error::{ErrorKind, RpcError};
pub use id::SessionId;
pub use methods::{Method, MethodRow, Scope};

/// The protocol's own version: an integer that changes only when old clients would misread new
/// daemons. It is not the release number.
pub const PROTOCOL: u32 = 1;
/// The oldest protocol this build still speaks.
pub const PROTOCOL_MIN: u32 = 1;
/// The schema number of the session files this build writes.
pub const SCHEMA: u64 = 2;
