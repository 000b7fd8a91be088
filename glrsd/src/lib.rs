//! The session daemon: it owns every live session.
//!
//! Layers, each importing only what stands below it (see `shared` order in the crate's modules):
//! `net` → `rpc` → `registry` → `session` → `turn` → `model`, `tools` → `fold` → `policy`,
//! `config` → `store` → `host`. Nothing imports `net` or `rpc`. Only `session` changes a session,
//! only `store` writes under the data directory, only `host` reads environment, clock and
//! randomness.

pub mod config;
pub mod fold;
pub mod host;
pub mod model;
pub mod policy;
pub mod store;
pub mod tools;
