//! Processes by id: signals, and waiting for an exit without polling.
//!
//! Owns the handle on a process ([`Proc`], a pidfd): once held, the id can be reused by another
//! process without any harm, since signals and waiting go through the handle.

use rustix::event::{PollFd, PollFlags, Timespec, poll};
pub use rustix::process::Signal;
use rustix::process::{Pid, PidfdFlags, pidfd_open, pidfd_send_signal};
use std::fs;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::time::{Duration, Instant};

/// A process that a test may end.
#[derive(Debug)]
pub struct Proc {
    pid: u32,
    fd: OwnedFd,
}

impl Proc {
    /// Takes hold of a process; `None` when there is none of that id.
    pub fn open(pid: u32) -> Option<Self> {
        let raw = Pid::from_raw(i32::try_from(pid).ok()?)?;
        Some(Self { pid, fd: pidfd_open(raw, PidfdFlags::empty()).ok()? })
    }

    /// Its id.
    pub fn pid(&self) -> u32 {
        self.pid
    }

    /// Sends a signal. A process that is gone already is no fault.
    pub fn signal(&self, signal: Signal) {
        let _ = pidfd_send_signal(&self.fd, signal);
    }

    /// Whether it still runs (a zombie does not).
    pub fn alive(&self) -> bool {
        !self.wait(Duration::ZERO)
    }

    /// Waits until it has ended; false when it has not after `timeout`.
    pub fn wait(&self, timeout: Duration) -> bool {
        let deadline = Instant::now() + timeout;
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            let spec = Timespec { tv_sec: left.as_secs().cast_signed(), tv_nsec: left.subsec_nanos().into() };
            let mut fds = [PollFd::new(&self.fd, PollFlags::IN)];
            match poll(&mut fds, Some(&spec)) {
                Ok(0) => return false,
                Ok(_) => return true,
                Err(rustix::io::Errno::INTR) => {}
                Err(e) => panic!("poll on process {}: {e}", self.pid),
            }
        }
    }
}

/// Whether the environment of process `pid` has `name` set to `value`: how a test makes sure that
/// an id it read from a file names a process of its own scratch home before it ends it.
pub fn has_env(pid: u32, name: &str, value: &Path) -> bool {
    let mut wanted = name.as_bytes().to_vec();
    wanted.push(b'=');
    wanted.extend_from_slice(value.as_os_str().as_encoded_bytes());
    fs::read(format!("/proc/{pid}/environ")).is_ok_and(|env| env.split(|b| *b == 0).any(|var| var == wanted))
}

/// Ids of all running daemons (`glrs daemon run`) whose `GLRS_HOME` is `home`.
pub fn daemons_of(home: &Path) -> Vec<u32> {
    let Ok(dir) = fs::read_dir("/proc") else { return Vec::new() };
    let ids = dir.filter_map(|e| e.ok()?.file_name().to_str()?.parse::<u32>().ok());
    ids.filter(|pid| {
        let args = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        let words: Vec<&[u8]> = args.split(|b| *b == 0).collect();
        words.windows(2).any(|w| w == [b"daemon".as_slice(), b"run".as_slice()]) && has_env(*pid, "GLRS_HOME", home)
    })
    .collect()
}

/// The state letter of a process (`R`, `S`, `T`, `Z`, …); `None` when it is gone.
pub fn state_of(pid: u32) -> Option<char> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    stat.rsplit_once(')')?.1.trim_start().chars().next()
}

/// Resident memory of a process in bytes.
pub fn rss_of(pid: u32) -> Option<u64> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = status.lines().find_map(|l| l.strip_prefix("VmRSS:"))?;
    Some(line.trim().trim_end_matches("kB").trim().parse::<u64>().ok()? * 1024)
}

/// Number of open file descriptors of a process.
pub fn fds_of(pid: u32) -> Option<usize> {
    Some(fs::read_dir(format!("/proc/{pid}/fd")).ok()?.count())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wait::PATIENCE;
    use std::process::{Command, Stdio};

    #[test]
    fn a_process_is_signalled_and_waited_for_by_handle() {
        let mut child = Command::new("cat").stdin(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap();
        let process = Proc::open(child.id()).unwrap();
        assert!(process.alive() && rss_of(child.id()).is_some() && fds_of(child.id()).is_some());
        process.signal(Signal::STOP);
        crate::wait::until("stopped", PATIENCE, || (state_of(child.id()) == Some('T')).then_some(()));
        assert!(process.alive());
        process.signal(Signal::KILL);
        assert!(process.wait(PATIENCE));
        child.wait().unwrap();
        assert!(Proc::open(u32::MAX).is_none());
    }
}
