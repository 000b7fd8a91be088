//! A scratch home: everything a daemon and its clients need, in a short temporary directory.
//!
//! Owns the environment that every process of a test gets (nothing is inherited but the PATH),
//! and the end of whatever runs in it when the test is over.

use crate::daemon::Daemon;
use crate::process::{Proc, daemons_of};
use crate::wire::Wire;
use rustix::process::Signal;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;
use tempfile::TempDir;

/// A scratch home. Dropping it ends the daemons that run in it, by id, and removes it.
#[derive(Debug)]
pub struct Home {
    dir: TempDir,
    env: BTreeMap<String, String>,
}

impl Default for Home {
    fn default() -> Self {
        Self::new()
    }
}

impl Home {
    /// A new, empty home. It lies directly below `/tmp`, since socket paths are short.
    ///
    /// # Panics
    /// When it cannot be made.
    pub fn new() -> Self {
        let dir = tempfile::Builder::new().prefix("gt").rand_bytes(8).tempdir_in("/tmp").expect("a scratch home");
        for name in ["w", "u", "t"] {
            fs::create_dir(dir.path().join(name)).expect("a directory in the scratch home");
        }
        let mut env = BTreeMap::new();
        let mut set = |name: &str, value: String| env.insert(name.to_owned(), value);
        set("PATH", std::env::var("PATH").unwrap_or_else(|_| "/usr/bin:/bin".to_owned()));
        set("HOME", dir.path().join("u").display().to_string());
        set("GLRS_HOME", dir.path().join("g").display().to_string());
        set("TMPDIR", dir.path().join("t").display().to_string());
        set("TERM", "xterm-256color".to_owned());
        set("LANG", "C.UTF-8".to_owned());
        set("SHELL", "/bin/sh".to_owned());
        set("NO_PROXY", "*".to_owned());
        set("no_proxy", "*".to_owned());
        set("GLRS_OFFLINE", "1".to_owned());
        Self { dir, env }
    }

    /// The data directory (`GLRS_HOME`).
    pub fn root(&self) -> PathBuf {
        self.dir.path().join("g")
    }

    /// The directory clients are started in.
    pub fn work(&self) -> PathBuf {
        self.dir.path().join("w")
    }

    /// A path in the directory clients are started in.
    pub fn file(&self, name: &str) -> PathBuf {
        self.work().join(name)
    }

    /// A directory beside the working one, made if it is not there.
    ///
    /// # Panics
    /// When it cannot be made.
    pub fn other_dir(&self, name: &str) -> PathBuf {
        let path = self.dir.path().join(name);
        fs::create_dir_all(&path).expect("a directory in the scratch home");
        path
    }

    /// The socket.
    pub fn socket(&self) -> PathBuf {
        self.root().join("glrsd.sock")
    }

    /// The session files' directory.
    pub fn sessions(&self) -> PathBuf {
        self.root().join("sessions")
    }

    /// A session's log.
    pub fn log(&self, id: &str) -> PathBuf {
        self.sessions().join(format!("{id}.json"))
    }

    /// The environment of every process in this home: HOME, PATH, GLRS_HOME and the like, no
    /// provider key, no XDG variable.
    pub fn env(&self) -> &BTreeMap<String, String> {
        &self.env
    }

    /// Sets a variable for processes started from now on.
    pub fn set_env(&mut self, name: &str, value: &str) {
        self.env.insert(name.to_owned(), value.to_owned());
    }

    /// Writes `config.json`.
    ///
    /// # Panics
    /// When it cannot be written.
    pub fn config(&self, config: &Value) {
        fs::create_dir_all(self.root()).expect("the data directory");
        fs::write(self.root().join("config.json"), config.to_string()).expect("config.json");
    }

    /// Starts the daemon and waits until it listens.
    ///
    /// # Panics
    /// When it does not come up.
    pub fn daemon(&self) -> Daemon {
        Daemon::start(self)
    }

    /// A connection with hello said. The daemon has to run.
    ///
    /// # Panics
    /// When the daemon does not take it.
    pub fn wire(&self, name: &str) -> Wire {
        let wire = Wire::connect(&self.socket());
        wire.hello(name);
        wire
    }

    /// The environment as `env` of session/new, session/resume and session/attach.
    pub fn env_json(&self) -> Value {
        json!(self.env)
    }

    /// Process id of the daemon that listens on the socket, as the kernel tells it: works for one
    /// that is stopped or hangs.
    pub fn listener(&self) -> Option<u32> {
        listener_of(&self.socket())
    }
}

/// Process id of whoever listens on a socket.
pub fn listener_of(socket: &Path) -> Option<u32> {
    let stream = std::os::unix::net::UnixStream::connect(socket).ok()?;
    let cred = rustix::net::sockopt::socket_peercred(&stream).ok()?;
    u32::try_from(cred.pid.as_raw_nonzero().get()).ok()
}

impl Drop for Home {
    fn drop(&mut self) {
        for pid in daemons_of(&self.root()) {
            if let Some(process) = Proc::open(pid) {
                process.signal(Signal::KILL);
                process.signal(Signal::CONT);
                process.wait(Duration::from_secs(10));
            }
        }
    }
}
