//! The whole of glrs, from outside: the real executable in a scratch home, driven by raw sockets,
//! the command line and pseudo-terminals, against strict fake providers.
//!
//! One binary, one module per subject. Every test has its own home and daemon, so all run at once.
//! What is asserted is what the specification fixes; wording is not.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test says what is wrong by panicking")]

mod attachments;
mod bad_input;
mod brief_quality;
mod catalogue;
mod cli;
mod compaction;
mod compaction_kinds;
mod crash;
mod dialects;
mod equivalence;
mod files;
mod first_use;
mod framing;
mod keys;
mod kill;
mod lifecycle;
mod log;
mod mcp;
mod mcp_faults;
mod providers;
mod retries;
mod roster;
mod rules;
mod sandbox;
mod shell;
mod silence;
mod sockets;
mod steps;
mod subagents;
mod terminal;
mod trace;
mod turns;
mod two_clients;

use glrs_tests::{Daemon, Dialect, Fake, Home, Value, Wire, json};

/// A new home that knows the executable.
fn home() -> Home {
    glrs_tests::set_exe(env!("CARGO_BIN_EXE_glrs"));
    Home::new()
}

/// The key of the fake providers, to be found nowhere but in their requests.
const KEY: &str = "sk-fake-5e0c";

/// A home whose default model is a fake provider's.
fn faked(dialect: Dialect) -> (Home, Fake) {
    let mut home = home();
    let fake = Fake::start(dialect);
    home.set_env("FAKE_KEY", KEY);
    home.config(&fake.config());
    (home, fake)
}

/// A home with a fake, its daemon, a client and a session that client is attached to.
struct Scene {
    id: String,
    wire: Wire,
    fake: Fake,
    daemon: Daemon,
    home: Home,
}

impl Scene {
    fn new(dialect: Dialect, more: Value) -> Self {
        let (home, fake) = faked(dialect);
        let daemon = home.daemon();
        let wire = home.wire("ann");
        let id = wire.new_session(&home, more);
        Self { id, wire, fake, daemon, home }
    }

    /// The usual one: Anthropic Messages, mode `ask`.
    fn plain() -> Self {
        Self::new(Dialect::Anthropic, json!({}))
    }

    /// Another client, attached to the same session.
    fn join(&self, name: &str) -> Wire {
        let wire = self.home.wire(name);
        wire.attach(&self.id, json!({}));
        wire
    }

    /// Params that name the session, with `more` beside it.
    fn with(&self, more: Value) -> Value {
        let mut params = json!({"id": self.id});
        if let (Value::Object(to), Value::Object(from)) = (&mut params, more) {
            to.extend(from);
        }
        params
    }
}

/// A home on the built-in model, with its daemon, a client and a session.
fn rehearsal(more: Value) -> (Home, Daemon, Wire, String) {
    let home = home();
    let daemon = home.daemon();
    let wire = home.wire("ann");
    let id = wire.new_session(&home, more);
    (home, daemon, wire, id)
}
