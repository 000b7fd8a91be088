//! `glrs daemon …`: the daemon itself. `run` never comes here: the executable routes it to the
//! daemon before arguments are parsed, and is listed for the help only.

use super::Ctx;
use super::failure::{Exit, Failure};
use super::output;
use crate::client::Client;
use crate::connect::{ConnectError, ConnectOptions};
use crate::{place, text};
use clap::Subcommand;
use glrs_protocol::error::ErrorKind;
use glrs_protocol::methods::m;
use glrs_protocol::params::{DaemonStatus, Empty, Shutdown};
use std::io::{Read as _, Seek as _, SeekFrom};
use std::path::PathBuf;
use std::time::Duration;
use tokio::time::{Instant, sleep};

/// How long a draining daemon may take before we stop waiting for it.
const DRAIN: Duration = Duration::from_secs(120);

/// How long a process that serves no more is waited for: its parent may never look after it.
const REAP: Duration = Duration::from_secs(5);

/// What to do with the daemon.
#[derive(Debug, Subcommand)]
pub enum DaemonCmd {
    /// Run the daemon here, in the foreground
    Run {
        /// As clients start it: say `ready` on stdout, log to the log file only
        #[arg(long)]
        background: bool,
    },
    /// How it does
    Status {
        /// As JSON
        #[arg(long)]
        json: bool,
    },
    /// Let running steps end, stop it and start it again
    Restart {
        /// Do not wait for running steps
        #[arg(long)]
        now: bool,
    },
    /// Let running steps end and stop it
    Stop {
        /// Do not wait for running steps
        #[arg(long)]
        now: bool,
    },
    /// Its log
    Logs {
        /// The last so many lines
        #[arg(short = 'n', long, default_value_t = 100)]
        lines: usize,
        /// Go on with what is added
        #[arg(short, long)]
        follow: bool,
    },
}

/// Runs `glrs daemon …`.
///
/// # Errors
/// When the daemon does not do it.
pub async fn run(ctx: &Ctx, command: DaemonCmd) -> Result<Exit, Failure> {
    match command {
        DaemonCmd::Run { .. } => Err(Failure::usage("write `glrs daemon run` with nothing before `daemon`")),
        DaemonCmd::Status { json } => status(ctx, json).await,
        DaemonCmd::Stop { now } => {
            if stop(ctx, now).await? {
                output::note("the daemon has stopped");
            } else {
                output::note("no daemon runs");
            }
            Ok(Exit::Done)
        }
        DaemonCmd::Restart { now } => {
            stop(ctx, now).await?;
            let client = ctx.connect("script").await?;
            let daemon = &client.daemon().daemon;
            output::note(&format!("glrs {} serves, pid {}", daemon.version, daemon.pid));
            Ok(Exit::Done)
        }
        DaemonCmd::Logs { lines, follow } => logs(ctx, lines, follow).await,
    }
}

/// Connects to a daemon that runs already; `None` when none does.
async fn running(ctx: &Ctx) -> Result<Option<Client>, Failure> {
    match Client::connect(&ConnectOptions::new(ctx.socket.clone(), "script")).await {
        Ok(client) => Ok(Some(client)),
        Err(ConnectError::NotRunning(_)) => Ok(None),
        Err(e) => Err(e.into()),
    }
}

async fn status(ctx: &Ctx, json: bool) -> Result<Exit, Failure> {
    let Some(client) = running(ctx).await? else {
        if json {
            output::json(&serde_json::json!({"running": false, "socket": ctx.socket}))?;
        } else {
            output::text(&format!("no daemon runs; commands that need one start it ({})", ctx.socket.display()))?;
        }
        return Ok(Exit::Error);
    };
    let status = client.call::<m::DaemonStatusM>(&Empty {}).await?;
    if json {
        output::json(&status)?;
    } else {
        output::text(&describe(&status, jiff::Timestamp::now()))?;
        if let Some(skew) = client.skew() {
            output::complain(&skew);
        }
    }
    Ok(Exit::Done)
}

fn describe(s: &DaemonStatus, now: jiff::Timestamp) -> String {
    let row = |name: &str, value: String| vec![name.to_owned(), value];
    let draining = if s.draining { ", stopping: it takes no new work" } else { "" };
    output::columns(&[
        row("daemon", format!("glrs {}, pid {}{draining}", s.daemon.version, s.daemon.pid)),
        row("since", format!("{} ({})", s.daemon.started_at, text::ago(&s.daemon.started_at, now))),
        row("data", text::one_line(&s.data_dir)),
        row("socket", text::one_line(&s.socket)),
        row("clients", s.clients.to_string()),
        row("sessions", format!("{} in memory, {} running", s.loaded, s.running)),
    ])
}

/// Stops a daemon that runs; false when none does. Returns once it no longer listens.
async fn stop(ctx: &Ctx, now: bool) -> Result<bool, Failure> {
    let options = ConnectOptions::new(ctx.socket.clone(), "script");
    let client = match Client::connect(&options).await {
        Ok(client) => client,
        Err(ConnectError::NotRunning(_)) => return Ok(false),
        // A daemon of another time: no words in common, but signals mean the same to it.
        Err(ConnectError::Protocol { .. }) => return stop_by_signal(&options, now).await,
        Err(e) => return Err(e.into()),
    };
    let (boot, pid) = (client.daemon().daemon.boot_id.clone(), client.daemon().daemon.pid);
    match client.call::<m::DaemonShutdownM>(&Shutdown { drain: !now }).await {
        Ok(_) => {}
        // Gone before it could answer, or on its way out already: what was asked for.
        Err(e) if e.is_connection() || e.kind() == ErrorKind::ShuttingDown => {}
        Err(e) => return Err(e.into()),
    }
    let deadline = Instant::now() + DRAIN;
    if tokio::time::timeout(Duration::from_secs(2), client.disconnected()).await.is_err() {
        output::note("waiting for running steps to end (ctrl+c leaves it to the daemon; --now does not wait)");
        if tokio::time::timeout_at(deadline, client.disconnected()).await.is_err() {
            return Err(Failure::error("the daemon still runs; `glrs daemon stop --now` does not wait for its steps"));
        }
    }
    // The connection ends a little before the socket and the lock are free.
    let mut ended = None;
    loop {
        match running(ctx).await {
            Ok(None) if !alive(pid) || Instant::now() >= *ended.get_or_insert(Instant::now() + REAP) => {
                return Ok(true);
            }
            // Somebody started the next one already.
            Ok(Some(other)) if other.daemon().daemon.boot_id != boot => return Ok(true),
            _ if Instant::now() >= deadline => return Err(Failure::error("the daemon closes but does not end")),
            _ => sleep(Duration::from_millis(20)).await,
        }
    }
}

/// Whether a process of ours still runs. Until it has ended it holds the data directory; one that
/// has ended and that nobody took note of (as in containers, where process 1 takes its time) does not.
fn alive(pid: u32) -> bool {
    let there = |pid| rustix::process::test_kill_process(pid).is_ok();
    i32::try_from(pid).ok().and_then(rustix::process::Pid::from_raw).is_some_and(there) && !is_zombie(pid)
}

/// Whether a process has ended already. Its state stands behind its name, which may hold anything.
fn is_zombie(pid: u32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit(')').next().is_some_and(|rest| rest.trim_start().starts_with(['Z', 'X']))
}

/// Stops a daemon whose protocol we do not speak.
async fn stop_by_signal(options: &ConnectOptions, now: bool) -> Result<bool, Failure> {
    use interprocess::local_socket::traits::StreamCommon as _;
    use tokio::io::AsyncReadExt as _;
    let mut stream = match crate::connect::open(options).await {
        Ok(stream) => stream,
        Err(ConnectError::NotRunning(_)) => return Ok(false),
        Err(e) => return Err(e.into()),
    };
    let pid = stream.peer_creds()?.pid().and_then(rustix::process::Pid::from_raw);
    let pid = pid.ok_or_else(|| Failure::error("the running daemon's process id is not known: end it by hand"))?;
    let signal = |_| {
        rustix::process::kill_process(pid, rustix::process::Signal::TERM)
            .map_err(|e| Failure::error(format!("the daemon, process {}, cannot be ended: {e}", pid.as_raw_nonzero())))
    };
    signal(())?;
    if now {
        // The second one means: do not wait. Two that come as one would only ask it to drain.
        let mut byte = [0; 1];
        let _ = tokio::time::timeout(Duration::from_millis(200), stream.read(&mut byte)).await;
        let _ = signal(());
    }
    let ended = async {
        let mut sink = [0; 4096];
        while matches!(stream.read(&mut sink).await, Ok(1..)) {}
    };
    if tokio::time::timeout(DRAIN, ended).await.is_err() {
        return Err(Failure::error("the daemon still runs; `glrs daemon stop --now` does not wait for its steps"));
    }
    Ok(true)
}

/// Where the daemon's log is: as it says, else as our environment says.
async fn log_path(ctx: &Ctx) -> Result<PathBuf, Failure> {
    if let Ok(Some(client)) = running(ctx).await
        && let Ok(status) = client.call::<m::DaemonStatusM>(&Empty {}).await
    {
        return Ok(PathBuf::from(status.data_dir).join("glrsd.log"));
    }
    place::root(&ctx.vars)
        .map(|root| root.join("glrsd.log"))
        .ok_or_else(|| Failure::error("no home directory: set HOME or GLRS_HOME to an absolute path"))
}

async fn logs(ctx: &Ctx, lines: usize, follow: bool) -> Result<Exit, Failure> {
    let path = log_path(ctx).await?;
    let mut file =
        std::fs::File::open(&path).map_err(|e| Failure::error(format!("no log to show, {}: {e}", path.display())))?;
    // Enough for the lines of any log; a longer look belongs to a pager.
    let from = file.metadata()?.len().saturating_sub(4 * 1024 * 1024);
    file.seek(SeekFrom::Start(from))?;
    let mut bytes = Vec::new();
    file.read_to_end(&mut bytes)?;
    let shown = last_lines(&String::from_utf8_lossy(&bytes), lines);
    if !shown.is_empty() {
        output::text(&text::sanitise(&shown))?;
    }
    let mut at = from + bytes.len() as u64;
    if !follow {
        return Ok(Exit::Done);
    }
    loop {
        sleep(Duration::from_millis(250)).await;
        // A log that was rotated begins anew.
        let len = std::fs::metadata(&path).map(|m| m.len()).unwrap_or(0);
        if len < at {
            at = 0;
        }
        if len > at
            && let Ok(mut file) = std::fs::File::open(&path)
        {
            file.seek(SeekFrom::Start(at))?;
            let mut bytes = Vec::new();
            file.read_to_end(&mut bytes)?;
            at += bytes.len() as u64;
            output::text(&text::sanitise(&String::from_utf8_lossy(&bytes)))?;
        }
    }
}

fn last_lines(text: &str, count: usize) -> String {
    let lines: Vec<&str> = text.lines().collect();
    lines[lines.len().saturating_sub(count)..].join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_that_ended_is_not_alive() {
        assert!(alive(std::process::id()));
        let mut child = std::process::Command::new("true").spawn().unwrap();
        if cfg!(target_os = "linux") {
            // Ended, and nobody took note of it yet.
            use rustix::process::{Pid, WaitId, WaitIdOptions, waitid};
            let pid = Pid::from_raw(i32::try_from(child.id()).unwrap()).unwrap();
            waitid(WaitId::Pid(pid), WaitIdOptions::EXITED | WaitIdOptions::NOWAIT).unwrap();
            assert!(!alive(child.id()));
        }
        child.wait().unwrap();
        assert!(!alive(child.id()));
    }

    #[test]
    fn the_last_lines_are_shown() {
        assert_eq!(last_lines("a\nb\nc\n", 2), "b\nc");
        assert_eq!(last_lines("", 2), "");
    }
}
