//! A daemon that a test started: the real executable, in the foreground of its own process.
//!
//! Owns its start (bounded wait for the ready line), its signals and its end.

use crate::exe;
use crate::home::{Home, listener_of};
use crate::process::Proc;
use crate::wait::PATIENCE;
use rustix::process::Signal;
use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc;
use std::time::Duration;

/// A running daemon. Dropping it kills it.
#[derive(Debug)]
pub struct Daemon {
    child: Child,
    process: Proc,
    socket: PathBuf,
}

impl Daemon {
    /// Starts `glrs daemon run --background` in `home` and waits for its ready line.
    ///
    /// # Panics
    /// When the line does not come, naming what the daemon said on stderr.
    pub fn start(home: &Home) -> Self {
        // One that was just killed may still look alive to its successor, which then leaves it the
        // place: as any client would, try again.
        for _ in 0..20 {
            if let Some(daemon) = Self::try_start(home) {
                return daemon;
            }
        }
        panic!("a daemon gets ready again and again and is gone each time");
    }

    fn try_start(home: &Home) -> Option<Self> {
        let err_path = home.work().with_file_name(format!("daemon-{}.err", unique()));
        let err = File::create(&err_path).expect("a file for the daemon's stderr");
        let mut child = Command::new(exe())
            .args(["daemon", "run", "--background"])
            .env_clear()
            .envs(home.env())
            .current_dir(home.work())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(err)
            .spawn()
            .expect("the glrs executable");
        let out = child.stdout.take().expect("a piped stdout");
        let (tell, told) = mpsc::sync_channel(1);
        std::thread::spawn(move || {
            let mut line = String::new();
            let _ = BufReader::new(out).read_line(&mut line);
            let _ = tell.send(line);
        });
        let line = told.recv_timeout(PATIENCE).unwrap_or_default();
        if line != "ready\n" {
            let _ = child.kill();
            let _ = child.wait();
            let said = std::fs::read_to_string(&err_path).unwrap_or_default();
            panic!("the daemon did not get ready: stdout {line:?}, stderr {said:?}");
        }
        match listener_of(&home.socket()).and_then(Proc::open) {
            Some(process) => Some(Self { child, process, socket: home.socket() }),
            None => {
                let _ = child.wait();
                None
            }
        }
    }

    /// Its process id.
    pub fn pid(&self) -> u32 {
        self.process.pid()
    }

    /// Whether it still runs.
    pub fn alive(&self) -> bool {
        self.process.alive()
    }

    /// Whether it is the one that listens on the home's socket.
    pub fn listens(&self) -> bool {
        listener_of(&self.socket) == Some(self.pid())
    }

    /// kill -9, and waits until it is gone.
    ///
    /// # Panics
    /// When it is not.
    pub fn kill9(&mut self) {
        self.process.signal(Signal::KILL);
        self.wait(PATIENCE);
    }

    /// Asks it to stop (SIGTERM). Does not wait.
    pub fn term(&self) {
        self.process.signal(Signal::TERM);
    }

    /// Stops it where it stands (SIGSTOP) and waits until it does.
    ///
    /// # Panics
    /// When it does not stop.
    pub fn stop(&self) {
        self.process.signal(Signal::STOP);
        crate::wait::until("the daemon stands still", PATIENCE, || {
            (crate::process::state_of(self.pid()) == Some('T')).then_some(())
        });
    }

    /// Lets it go on (SIGCONT).
    pub fn cont(&self) {
        self.process.signal(Signal::CONT);
    }

    /// Waits until it has ended.
    ///
    /// # Panics
    /// When it has not after `timeout`.
    pub fn wait(&mut self, timeout: Duration) -> Option<ExitStatus> {
        assert!(self.process.wait(timeout), "the daemon still runs after {timeout:?}");
        if self.child.id() == self.process.pid() { self.child.wait().ok() } else { None }
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        self.process.signal(Signal::KILL);
        self.process.wait(PATIENCE);
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn unique() -> u64 {
    use std::sync::atomic::{AtomicU64, Ordering};
    static NEXT: AtomicU64 = AtomicU64::new(0);
    NEXT.fetch_add(1, Ordering::Relaxed)
}
