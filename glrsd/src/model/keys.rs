//! Where a provider's key comes from: the session's environment, else a file, else a command.
//!
//! Owns: the order, who may read the file, running the command once and within a time limit, and the
//! words when there is none.
//! Keys never appear in messages, logs or `Debug`. Must not know HTTP.

use super::errors::failure;
use super::{Failure, FailureKind};
use crate::host::Env;
use std::fs::{File, Metadata};
use std::io::Read as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;
use tokio::process::Command;
use tokio::sync::Mutex;
use tokio::time::timeout;

/// How long a key command may take.
const COMMAND_TIMEOUT: Duration = Duration::from_secs(10);

/// Most bytes of a key file.
const FILE_MAX: u64 = 64 * 1024;

/// Where one provider's key is looked for, in this order.
#[derive(Default)]
pub(crate) struct Sources {
    /// Environment variables, the usual one first.
    pub names: Vec<String>,
    /// A file that holds it and nothing else.
    pub file: Option<String>,
    /// A command that prints it.
    pub command: Option<String>,
    /// Works without a key (a local server).
    pub optional: bool,
}

/// One provider's key.
pub(crate) struct Keys {
    provider: String,
    from: Sources,
    /// What the command gave.
    cached: Mutex<Option<String>>,
}

impl Keys {
    pub(crate) fn new(provider: &str, from: Sources) -> Self {
        Self { provider: provider.to_owned(), from, cached: Mutex::new(None) }
    }

    /// What is missing, as far as it can be told without running or reading anything.
    pub(crate) fn missing(&self, env: &Env) -> Option<String> {
        let Sources { file, command, optional, .. } = &self.from;
        let there = *optional || file.is_some() || command.is_some() || self.in_env(env).is_some();
        (!there).then(|| self.advice())
    }

    /// What to do about a missing or wrong key.
    pub(crate) fn advice(&self) -> String {
        match (&self.from.file, &self.from.command, self.from.names.first()) {
            (Some(_), ..) => format!("check providers.{}.keyFile", self.provider),
            (_, Some(_), _) => format!("check providers.{}.keyCommand", self.provider),
            (_, _, Some(name)) => format!("set {name} to a valid key"),
            _ => format!("set providers.{}.keyEnv to the variable that holds the key", self.provider),
        }
    }

    fn in_env<'e>(&self, env: &'e Env) -> Option<&'e str> {
        self.from.names.iter().find_map(|n| env.get(n)).map(str::trim).filter(|k| !k.is_empty())
    }

    /// The key; `None` where none is needed.
    pub(crate) async fn get(&self, env: &Env) -> Result<Option<String>, Failure> {
        if let Some(key) = self.in_env(env) {
            return Ok(Some(key.to_owned()));
        }
        if let Some(file) = &self.from.file {
            return self.in_file(file, env).await.map(Some);
        }
        let Some(command) = &self.from.command else {
            return if self.from.optional { Ok(None) } else { Err(self.none()) };
        };
        // Held while the command runs, so that it runs once however many calls wait for it.
        let mut cached = self.cached.lock().await;
        if cached.is_none() {
            *cached = Some(self.run(command, env).await?);
        }
        Ok(cached.clone())
    }

    /// Forgets what the command gave: the provider refused it.
    pub(crate) async fn forget(&self, refused: &str) {
        let mut cached = self.cached.lock().await;
        if cached.as_deref() == Some(refused) {
            *cached = None;
        }
    }

    /// Another key in place of one that was refused, where that came from the command: keys that expire
    /// are fetched again. None when it gives the same one.
    pub(crate) async fn renew(&self, refused: &str, env: &Env) -> Option<String> {
        let fixed = self.from.command.is_none() || self.from.file.is_some() || self.in_env(env).is_some();
        if fixed {
            return None;
        }
        // Who was refused at the same time may have fetched it already.
        self.forget(refused).await;
        self.get(env).await.ok().flatten().filter(|key| key != refused)
    }

    fn none(&self) -> Failure {
        failure(FailureKind::Auth, format!("{} needs a key: {}", self.provider, self.advice()))
    }

    /// Read each time: it is small, and whoever renews it need not tell anyone.
    async fn in_file(&self, file: &str, env: &Env) -> Result<String, Failure> {
        let path = match (file.strip_prefix("~/"), env.get("HOME")) {
            (Some(rest), Some(home)) => Path::new(home).join(rest),
            _ => PathBuf::from(file),
        };
        let read = tokio::task::spawn_blocking(move || read_key(&path)).await;
        read.unwrap_or_else(|_| Err("could not be read".to_owned()))
            .map_err(|what| failure(FailureKind::Auth, format!("providers.{}.keyFile {what}", self.provider)))
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

/// The key in a file that nobody else may read. The error goes on behind the name of the setting.
fn read_key(path: &Path) -> Result<String, String> {
    let at = path.display();
    let broken = |e: std::io::Error| format!("cannot be read: {at}: {}", e.kind());
    // Looked at before it is opened, since opening a pipe waits, and again what was opened.
    let whole = |m: &Metadata| m.is_file() && m.len() <= FILE_MAX;
    let found = std::fs::metadata(path).map_err(broken)?;
    let file = if whole(&found) { Some(File::open(path).map_err(broken)?) } else { None };
    let opened = file.as_ref().map(File::metadata).transpose().map_err(broken)?;
    let (Some(file), Some(opened)) = (file, opened.filter(whole)) else {
        return Err(format!("is no small file: {at}"));
    };
    if opened.permissions().mode() & 0o077 != 0 {
        return Err(format!("can be read or written by others: chmod 600 {at}"));
    }
    let mut key = String::new();
    file.take(FILE_MAX).read_to_string(&mut key).map_err(broken)?;
    let key = key.trim();
    if key.is_empty() || key.contains(['\n', '\r']) {
        return Err(format!("should hold the key and nothing else: {at}"));
    }
    Ok(key.to_owned())
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
        let from = Sources { names: vec!["ACME_KEY".into()], command: Some(command), ..Sources::default() };
        let keys = Keys::new("acme", from);
        for _ in 0..3 {
            assert_eq!(keys.get(&env()).await.unwrap().as_deref(), Some("k-from-command"));
        }
        assert_eq!(std::fs::read_to_string(dir.path().join("ran")).unwrap(), "x\n");
        keys.forget("another").await;
        keys.get(&env()).await.unwrap();
        assert_eq!(std::fs::read_to_string(dir.path().join("ran")).unwrap(), "x\n", "not the one that was refused");
        keys.forget("k-from-command").await;
        keys.get(&env()).await.unwrap();
        assert_eq!(std::fs::read_to_string(dir.path().join("ran")).unwrap(), "x\nx\n");
        assert_eq!(keys.renew("k-from-command", &env()).await, None, "the same again is of no use");
        assert_eq!(std::fs::read_to_string(dir.path().join("ran")).unwrap(), "x\nx\nx\n");
        let mut e = env();
        e.set("ACME_KEY", "k-env");
        assert_eq!(keys.get(&e).await.unwrap().as_deref(), Some("k-env"));
        assert_eq!(keys.renew("k-env", &e).await, None, "the environment's key is nobody's to renew");
    }

    #[tokio::test]
    async fn a_file_that_only_its_owner_reads() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("key");
        let keys = Keys::new("acme", Sources { file: Some("~/key".into()), ..Sources::default() });
        let mut env = env();
        env.set("HOME", dir.path().display().to_string());
        let get = async || keys.get(&env).await;
        assert!(keys.missing(&env).is_none());
        let f = get().await.unwrap_err();
        assert!(f.kind == FailureKind::Auth && f.message.contains("providers.acme.keyFile cannot be read"), "{f}");
        let mode = |mode| std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
        std::fs::write(&path, " k-file\n").unwrap();
        for open in [0o644, 0o640, 0o604, 0o620] {
            mode(open);
            let f = get().await.unwrap_err();
            assert!(f.message.contains(&format!("chmod 600 {}", path.display())), "{f}");
            assert!(!f.message.contains("k-file"), "{f}");
        }
        mode(0o600);
        assert_eq!(get().await.unwrap().as_deref(), Some("k-file"));
        std::fs::write(&path, "k-renewed").unwrap();
        assert_eq!(get().await.unwrap().as_deref(), Some("k-renewed"));
        for odd in ["", "two\nlines", &"x".repeat(70_000)] {
            std::fs::write(&path, odd).unwrap();
            assert!(get().await.unwrap_err().message.contains("keyFile"));
        }
        std::fs::remove_file(&path).unwrap();
        std::fs::create_dir(&path).unwrap();
        assert!(get().await.unwrap_err().message.contains("no small file"));
    }

    #[tokio::test(start_paused = true)]
    async fn a_command_that_hangs_is_ended() {
        let keys = Keys::new("acme", Sources { command: Some("sleep 1000".into()), ..Sources::default() });
        let f = keys.get(&env()).await.unwrap_err();
        assert!(f.message.contains("longer than 10 s"), "{}", f.message);
    }

    #[tokio::test]
    async fn what_is_missing_is_named() {
        let keys = Keys::new("acme", Sources { names: vec!["ACME_KEY".into()], ..Sources::default() });
        let f = keys.get(&env()).await.unwrap_err();
        assert_eq!((f.kind, f.message.as_str()), (FailureKind::Auth, "acme needs a key: set ACME_KEY to a valid key"));
        let command = Some("echo secret-words >&2; exit 3".into());
        let bad = Keys::new("acme", Sources { command, ..Sources::default() });
        let f = bad.get(&env()).await.unwrap_err();
        assert!(f.message.contains("keyCommand failed") && !f.message.contains("secret"), "{}", f.message);
        assert!(
            Keys::new("ollama", Sources { optional: true, ..Sources::default() }).get(&env()).await.unwrap().is_none()
        );
    }
}
