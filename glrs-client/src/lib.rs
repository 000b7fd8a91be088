//! Clients of glrsd: a library to talk to the daemon, the `glrs` command line and the attached
//! terminal.
//!
//! Owns: finding and starting the daemon, the connection and its typed calls, what a session looks
//! like from outside ([`view`]), the command line ([`cli`]) and the terminal ([`tui`]).
//!
//! Must not know: the daemon's code, its files, or any conversation that the daemon did not tell.
//! The environment is read in `main` and nowhere else.

pub mod cli;
pub mod client;
pub mod connect;
pub mod export;
pub mod place;
pub mod text;
pub mod transport;
pub mod tui;
pub mod view;

pub use client::{CallError, Client, Events, Incoming};
pub use connect::{ConnectError, ConnectOptions, DaemonCommand};
pub use view::{Adopted, Applied, SessionView};

use std::ffi::OsString;
use std::process::ExitCode;

/// Runs `glrs` with its arguments (the program's name first) and answers how it ended.
pub fn main(args: impl Iterator<Item = OsString>) -> ExitCode {
    cli::main(args.collect(), std::env::vars_os().collect())
}
