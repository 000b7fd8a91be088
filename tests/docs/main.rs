//! The documents, held against the product: what README.md and PROTOCOL.md show is run against the
//! real daemon, and what they list is compared with the code.
//!
//! Rewrite the generated part of PROTOCOL.md: `UPDATE_DOCS=1 cargo test --test docs`.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::type_complexity,
    reason = "a test says what is wrong by panicking"
)]

mod exchange;
mod program;
mod protocol;
mod python;
mod readme;
mod shape;

use std::fs;
use std::path::PathBuf;

/// A path in the source tree.
fn source(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join(name)
}

/// A file of the source tree.
fn text(name: &str) -> String {
    let path = source(name);
    fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}

/// The executable under test.
fn exe() {
    glrs_tests::set_exe(env!("CARGO_BIN_EXE_glrs"));
}
