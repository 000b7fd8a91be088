//! Running `glrs` as a person's shell or a script does, bounded in time.
//!
//! Owns [`Cli`], one invocation, and [`Output`], what came of it.

use crate::exe;
use crate::home::Home;
use crate::process::Proc;
use serde_json::Value;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::mpsc;
use std::time::Duration;

/// Runs `glrs ARGS` in the home's working directory, with nothing on stdin.
///
/// # Panics
/// When it does not end in time.
pub fn cli<S: AsRef<str>>(home: &Home, args: impl IntoIterator<Item = S>) -> Output {
    Cli::new(home).args(args).run()
}

/// One invocation of `glrs`.
#[derive(Debug)]
pub struct Cli<'a> {
    home: &'a Home,
    args: Vec<String>,
    cwd: PathBuf,
    stdin: Option<Vec<u8>>,
    env: Vec<(String, String)>,
    timeout: Duration,
}

/// What an invocation did.
#[derive(Clone, Debug)]
pub struct Output {
    /// The arguments, for messages.
    pub args: Vec<String>,
    /// Exit code; `None` when a signal ended it.
    pub code: Option<i32>,
    /// What it wrote on stdout.
    pub stdout: String,
    /// What it wrote on stderr.
    pub stderr: String,
}

impl<'a> Cli<'a> {
    /// An invocation without arguments.
    pub fn new(home: &'a Home) -> Self {
        let timeout = Duration::from_secs(60);
        Self { home, args: Vec::new(), cwd: home.work(), stdin: None, env: Vec::new(), timeout }
    }

    /// Adds arguments.
    #[must_use]
    pub fn args<S: AsRef<str>>(mut self, args: impl IntoIterator<Item = S>) -> Self {
        self.args.extend(args.into_iter().map(|a| a.as_ref().to_owned()));
        self
    }

    /// Runs it in another directory.
    #[must_use]
    pub fn cwd(mut self, dir: impl AsRef<Path>) -> Self {
        self.cwd = dir.as_ref().to_owned();
        self
    }

    /// Pipes these bytes in.
    #[must_use]
    pub fn stdin(mut self, bytes: impl Into<Vec<u8>>) -> Self {
        self.stdin = Some(bytes.into());
        self
    }

    /// Sets a variable for this invocation.
    #[must_use]
    pub fn env(mut self, name: &str, value: &str) -> Self {
        self.env.push((name.to_owned(), value.to_owned()));
        self
    }

    /// Allows it so much time.
    #[must_use]
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self
    }

    /// Runs it.
    ///
    /// # Panics
    /// When it does not end in time, or leaves a process behind that holds its stdout or stderr.
    pub fn run(self) -> Output {
        let mut child = Command::new(exe())
            .args(&self.args)
            .env_clear()
            .envs(self.home.env())
            .envs(self.env.iter().map(|(k, v)| (k, v)))
            .current_dir(&self.cwd)
            .stdin(if self.stdin.is_some() { Stdio::piped() } else { Stdio::null() })
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("the glrs executable");
        let process = Proc::open(child.id()).expect("a child can be waited for");
        if let (Some(bytes), Some(mut pipe)) = (self.stdin, child.stdin.take()) {
            // A client that does not read all of it closes the pipe; that is its right.
            std::thread::spawn(move || drop(pipe.write_all(&bytes)));
        }
        let stdout = collect(child.stdout.take());
        let stderr = collect(child.stderr.take());
        let ended = process.wait(self.timeout);
        if !ended {
            let _ = child.kill();
        }
        let status = child.wait().expect("a child's status");
        let text = |from: &mpsc::Receiver<String>, name: &str| {
            from.recv_timeout(Duration::from_secs(5))
                .unwrap_or_else(|_| panic!("glrs {:?} is gone but its {name} is held open", self.args))
        };
        let output = Output {
            code: status.code(),
            stdout: text(&stdout, "stdout"),
            stderr: text(&stderr, "stderr"),
            args: self.args,
        };
        assert!(ended, "did not end within {:?}: {output:?}", self.timeout);
        output
    }
}

fn collect(pipe: Option<impl Read + Send + 'static>) -> mpsc::Receiver<String> {
    let (tell, told) = mpsc::sync_channel(1);
    std::thread::spawn(move || {
        let mut bytes = Vec::new();
        if let Some(mut pipe) = pipe {
            let _ = pipe.read_to_end(&mut bytes);
        }
        let _ = tell.send(String::from_utf8_lossy(&bytes).into_owned());
    });
    told
}

impl Output {
    /// Asserts the exit code.
    ///
    /// # Panics
    /// When it is another one, showing all that was written.
    #[track_caller]
    pub fn code(self, code: i32) -> Self {
        assert_eq!(self.code, Some(code), "{self:#?}");
        self
    }

    /// Asserts exit code 0.
    ///
    /// # Panics
    /// When it is another one.
    #[track_caller]
    pub fn ok(self) -> Self {
        self.code(0)
    }

    /// Stdout as one JSON value.
    ///
    /// # Panics
    /// When it is none.
    #[track_caller]
    pub fn json(&self) -> Value {
        serde_json::from_str(&self.stdout).unwrap_or_else(|e| panic!("stdout is no JSON ({e}): {self:#?}"))
    }

    /// Stdout as one JSON value per line.
    ///
    /// # Panics
    /// When a line is none.
    #[track_caller]
    pub fn json_lines(&self) -> Vec<Value> {
        let parse = |l: &str| serde_json::from_str(l).unwrap_or_else(|e| panic!("no JSON ({e}): {l:?} in {self:#?}"));
        self.stdout.lines().filter(|l| !l.trim().is_empty()).map(parse).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn output_exit_code_and_input_are_kept_apart() {
        crate::set_exe("/bin/sh");
        let home = Home::new();
        let script = "read -r line; echo \"{\\\"got\\\": \\\"$line\\\"}\"; echo \"$EXTRA\" >&2; exit 4";
        let out = Cli::new(&home).args(["-c", script]).stdin("word\n").env("EXTRA", "said").run().code(4);
        assert_eq!((out.json()["got"].as_str(), out.stderr.trim()), (Some("word"), "said"));
        assert_eq!(cli(&home, ["-c", "env | grep -c XDG_"]).code(1).stdout.trim(), "0");
    }

    #[test]
    fn what_does_not_end_in_time_is_ended_and_reported() {
        crate::set_exe("/bin/sh");
        let home = Home::new();
        let run = || Cli::new(&home).args(["-c", "exec tail -f /dev/null"]).timeout(Duration::from_millis(50)).run();
        assert!(std::panic::catch_unwind(std::panic::AssertUnwindSafe(run)).is_err());
    }
}
