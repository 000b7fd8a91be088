//! Where a provider's key comes from: the session's environment, else a command.
//!
//! Owns: the order, running the command once and within a time limit, and the words when there is none.
//! Keys never appear in messages, logs or `Debug`. Must not know HTTP.

use super::errors::failure;
use super::{Failure, FailureKind};
use crate::host::Env;
use std::process::Stdio;
use std::time::Duration;
use tokio::process::Command;
use tokio::sync::Mutex;
use tokio::time::timeout;

/// How long a key command may take.
const COMMAND_TIMEOUT: Duration = Duration::from_secs(10);

/// One provider's key.
pub(crate) struct Keys {
    provider: String,
    /// Environment variables, the usual one first.
    names: Vec<String>,
    command: Option<String>,
    /// Works without a key (a local server).
    optional: bool,
    cached: Mutex<Option<String>>,
}

impl Keys {
    pub(crate) fn new(provider: &str, names: Vec<String>, command: Option<String>, optional: bool) -> Self {
        Self { provider: provider.to_owned(), names, command, optional, cached: Mutex::new(None) }
    }

    /// What is missing, as far as it can be told without running anything.
    pub(crate) fn missing(&self, env: &Env) -> Option<String> {
        let there = self.optional || self.command.is_some() || self.in_env(env).is_some();
        (!there).then(|| self.advice())
    }

    /// What to do about a missing or wrong key.
    pub(crate) fn advice(&self) -> String {
        match (&self.command, self.names.first()) {
            (Some(_), _) => format!("check providers.{}.keyCommand", self.provider),
            (None, Some(name)) => format!("set {name} to a valid key"),
            (None, None) => format!("set providers.{}.keyEnv to the variable that holds the key", self.provider),
        }
    }

    fn in_env<'e>(&self, env: &'e Env) -> Option<&'e str> {
        self.names.iter().find_map(|n| env.get(n)).map(str::trim).filter(|k| !k.is_empty())
    }

    /// The key; `None` where none is needed.
    pub(crate) async fn get(&self, env: &Env) -> Result<Option<String>, Failure> {
        if let Some(key) = self.in_env(env) {
            return Ok(Some(key.to_owned()));
        }
        let Some(command) = &self.command else {
            return if self.optional { Ok(None) } else { Err(self.none()) };
        };
        // Held while the command runs, so that it runs once however many calls wait for it.
        let mut cached = self.cached.lock().await;
        if cached.is_none() {
            *cached = Some(self.run(command, env).await?);
        }
        Ok(cached.clone())
    }

    /// Forgets what the command gave: the provider refused it.
    pub(crate) async fn forget(&self) {
        *self.cached.lock().await = None;
    }

    fn none(&self) -> Failure {
        failure(FailureKind::Auth, format!("{} needs a key: {}", self.provider, self.advice()))
    }

    async fn run(&self, command: &str, env: &Env) -> Result<String, Failure> {
        let said = |what: &str| failure(FailureKind::Auth, format!("providers.{}.keyCommand {what}", self.provider));
        let mut child = Command::new("/bin/sh");
        child
            .arg("-c")
            .arg(command)
            .env_clear()
            .envs(env.iter())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            // What it says of failing may name secrets.
            .stderr(Stdio::null())
            // Its own group, so that what it started can be ended with it.
            .process_group(0)
            .kill_on_drop(true);
        let child = child.spawn().map_err(|_| said("could not be started"))?;
        let group = child.id().and_then(|id| rustix::process::Pid::from_raw(i32::try_from(id).ok()?));
        let Ok(done) = timeout(COMMAND_TIMEOUT, child.wait_with_output()).await else {
            if let Some(group) = group {
                let _ = rustix::process::kill_process_group(group, rustix::process::Signal::KILL);
            }
            return Err(said("took longer than 10 s"));
        };
        let done = done.map_err(|_| said("could not be read"))?;
        if !done.status.success() {
            return Err(said(&format!("failed ({})", done.status)));
        }
        let key = String::from_utf8_lossy(&done.stdout).trim().to_owned();
        if key.is_empty() || key.contains(['\n', '\r']) {
            return Err(said("should print the key and nothing else"));
        }
        Ok(key)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn env() -> Env {
        let mut env = Env::default();
        env.set("PATH", "/usr/bin:/bin");
        env
    }

    #[tokio::test]
    async fn environment_first_then_the_command_once() {
        let dir = tempfile::tempdir().unwrap();
        let command = format!("cd {} && echo x >> ran && echo '  k-from-command '", dir.path().display());
        let keys = Keys::new("acme", vec!["ACME_KEY".into()], Some(command), false);
        for _ in 0..3 {
            assert_eq!(keys.get(&env()).await.unwrap().as_deref(), Some("k-from-command"));
        }
        assert_eq!(std::fs::read_to_string(dir.path().join("ran")).unwrap(), "x\n");
        keys.forget().await;
        keys.get(&env()).await.unwrap();
        assert_eq!(std::fs::read_to_string(dir.path().join("ran")).unwrap(), "x\nx\n");
        let mut e = env();
        e.set("ACME_KEY", "k-env");
        assert_eq!(keys.get(&e).await.unwrap().as_deref(), Some("k-env"));
    }

    #[tokio::test(start_paused = true)]
    async fn a_command_that_hangs_is_ended() {
        let keys = Keys::new("acme", vec![], Some("sleep 1000".into()), false);
        let f = keys.get(&env()).await.unwrap_err();
        assert!(f.message.contains("longer than 10 s"), "{}", f.message);
    }

    #[tokio::test]
    async fn what_is_missing_is_named() {
        let keys = Keys::new("acme", vec!["ACME_KEY".into()], None, false);
        let f = keys.get(&env()).await.unwrap_err();
        assert_eq!((f.kind, f.message.as_str()), (FailureKind::Auth, "acme needs a key: set ACME_KEY to a valid key"));
        let bad = Keys::new("acme", vec![], Some("echo secret-words >&2; exit 3".into()), false);
        let f = bad.get(&env()).await.unwrap_err();
        assert!(f.message.contains("keyCommand failed") && !f.message.contains("secret"), "{}", f.message);
        assert!(Keys::new("ollama", vec![], None, true).get(&env()).await.unwrap().is_none());
    }
}
