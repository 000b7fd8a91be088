//! What the end-to-end tests of glrs are made of: a scratch home with the real executable, raw
//! clients that check every event they see, pseudo-terminals, strict fake providers and
//! independent checkers of what was written.
//!
//! Owns no rule of the product: everything here is written from the specification alone, so that
//! a fault in the product cannot hide in a shared helper. Nothing waits by the clock; whatever
//! waits has a deadline and says what it waited for.

pub mod bench;
pub mod check;
pub mod cli;
pub mod daemon;
pub mod fakes;
pub mod home;
pub mod process;
pub mod rng;
pub mod term;
pub mod view;
pub mod wait;
pub mod wire;

pub use cli::{Cli, Output, cli};
pub use daemon::Daemon;
pub use fakes::{Dialect, Fake, Gate, Reply};
pub use home::Home;
pub use rng::Rng;
pub use serde_json::{Value, json};
pub use term::Term;
pub use view::View;
pub use wait::PATIENCE;
pub use wire::Wire;

use std::path::{Path, PathBuf};
use std::sync::OnceLock;

static EXE: OnceLock<PathBuf> = OnceLock::new();

/// Says where the built `glrs` is. The test binary knows it (`env!("CARGO_BIN_EXE_glrs")`), this
/// library does not. Calling it again changes nothing.
pub fn set_exe(path: impl Into<PathBuf>) {
    EXE.get_or_init(|| path.into());
}

/// The built `glrs`.
///
/// # Panics
/// When [`set_exe`] was never called.
pub fn exe() -> &'static Path {
    EXE.get().expect("glrs_tests::set_exe was not called before the executable was needed")
}
