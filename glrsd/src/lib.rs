//! The session daemon: it owns every live session.
//!
//! Layers, each importing only what stands below it: `start` → `daemon` → `net`, `rpc` →
//! `archive` → `registry` → `listing`, `import`, `session` → `turn` → `model`, `tools` → `fold` →
//! `mcp`, `policy`, `config` → `store` → `host`. Nothing below `daemon` imports `net` or `rpc`. Only
//! `session` changes a session, only `store` writes under the data directory, only `host` reads
//! environment, clock and randomness.

pub mod archive;
pub mod compact;
pub mod config;
pub mod daemon;
pub mod export;
pub mod fold;
pub mod host;
pub mod import;
pub mod listing;
pub mod mcp;
pub mod model;
pub mod net;
pub mod policy;
pub mod registry;
pub mod rpc;
pub mod session;
mod start;
pub mod store;
pub mod tools;
pub mod turn;

pub use start::main;
