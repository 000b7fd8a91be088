//! glrs among parts that nobody here wrote: a small real model, a mock of every dialect, real MCP
//! servers. The real daemon talks to each of them as a person's would.
//!
//! Runs only when asked (`GLRS_FOREIGN=1`), since it installs them from the network; afterwards
//! everything is on the loopback. A part that cannot be had within a minute is passed over and the
//! reason printed: a test fails only when the part is there and glrs does not get along with it.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test says what is wrong by panicking")]

mod install;
mod mock;
mod model;
mod served;
mod servers;

use glrs_tests::{Daemon, Home, Value, View, Wire, json};
use std::io::Write;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// How long a turn may take: a model on a loaded machine is slow.
const TURN: Duration = Duration::from_secs(180);
/// The key of all providers here.
const KEY: &str = "sk-foreign-7d21";

/// Says something on stderr, which the harness does not hold back.
fn say(line: &str) {
    let _ = writeln!(std::io::stderr(), "foreign: {line}");
}

/// The right to go on, when this was asked for. One part at a time: they share the machine.
fn asked() -> Option<MutexGuard<'static, ()>> {
    static ONE: Mutex<()> = Mutex::new(());
    if std::env::var_os("GLRS_FOREIGN").is_none_or(|v| v != "1") {
        say("not asked for (GLRS_FOREIGN=1 runs it)");
        return None;
    }
    Some(ONE.lock().unwrap_or_else(PoisonError::into_inner))
}

/// The part, or `None` with the reason printed.
fn part<T>(name: &str, made: Result<T, String>) -> Option<T> {
    match made {
        Ok(part) => {
            say(&format!("{name}: is there"));
            Some(part)
        }
        Err(why) => {
            say(&format!("{name}: skipped: {why}"));
            None
        }
    }
}

/// A home with a daemon, a client, and a session it is attached to.
struct Place {
    id: String,
    wire: Wire,
    home: Home,
    _daemon: Daemon,
}

impl Place {
    fn new(config: &Value) -> Self {
        Self::with(|_| config.clone())
    }

    /// The same with a configuration that names places in it.
    fn with(config: impl FnOnce(&Home) -> Value) -> Self {
        glrs_tests::set_exe(env!("CARGO_BIN_EXE_glrs"));
        let mut home = Home::new();
        home.set_env("FAKE_KEY", KEY);
        home.config(&config(&home));
        let daemon = home.daemon();
        let wire = home.wire("ann");
        let id = wire.new_session(&home, json!({"mode": "all"}));
        Self { id, wire, home, _daemon: daemon }
    }

    /// Another session, on this model.
    fn session(&mut self, model: &str) {
        self.id = self.wire.new_session(&self.home, json!({"mode": "all", "model": model}));
    }

    /// Sends and waits until the turn is over.
    #[track_caller]
    fn turn(&self, text: &str) -> View {
        self.turn_with(text, json!([]))
    }

    #[track_caller]
    fn turn_with(&self, text: &str, attachments: Value) -> View {
        let before = self.wire.view(&self.id).of_type("user").len();
        self.wire.ok("session/send", json!({"id": self.id, "text": text, "attachments": attachments}));
        let over = self.wire.sees(&self.id, TURN, |v| v.quiet() && v.of_type("user").len() > before);
        let view = self.wire.view(&self.id);
        assert!(over, "{text:?} does not end: {view:#?}");
        view
    }

    /// A turn that has to be answered; the answer.
    #[track_caller]
    fn answer(&self, text: &str) -> String {
        let view = self.turn(text);
        assert_eq!(view.last_status(), "done", "{text:?}: {:?}", view.texts("error"));
        view.texts("assistant").last().unwrap_or_else(|| panic!("{text:?} gets no answer: {view:#?}")).to_string()
    }

    /// The log of the session is sound.
    fn check(&self) {
        glrs_tests::check::check_session(&self.home.log(&self.id)).clean();
    }
}
