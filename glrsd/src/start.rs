//! Starting the process: arguments, log, lock, socket, signals.
//!
//! The order matters: the lock decides who serves before the socket is touched, and `ready` is
//! said only once connections are accepted.

use crate::daemon::Daemon;
use crate::host::{Env, Paths, service};
use crate::model::ModelSets;
use crate::net::socket;
use crate::registry::Registry;
use crate::store::{DaemonLog, OpenError, Store};
use clap::Parser;
use std::ffi::OsString;
use std::io::Write;
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;
use tokio::signal::unix::{SignalKind, signal};
use tracing_subscriber::EnvFilter;

/// How long reads that nobody waits for any more may take at the end.
const LEAVE: Duration = Duration::from_secs(1);

/// The glrs daemon: owns every live session, serves clients on a local socket.
#[derive(Parser)]
#[command(name = "glrsd", version)]
struct Args {
    /// Leave the terminal, log to <data>/glrs/glrsd.log, and say `ready` on stdout once serving.
    #[arg(long)]
    background: bool,
}

/// Runs the daemon with the arguments behind the program's name (and `daemon run`).
pub fn main(args: impl Iterator<Item = OsString>) -> ExitCode {
    let args = match Args::try_parse_from(std::iter::once(OsString::from("glrsd")).chain(args)) {
        Ok(a) => a,
        Err(e) => {
            let _ = e.print();
            return ExitCode::from(if e.use_stderr() { 2 } else { 0 });
        }
    };
    match run(&args) {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            if args.background {
                say(&format!("error: {}\n", why.replace('\n', " ")));
            } else {
                eprintln!("glrsd: {why}");
            }
            ExitCode::FAILURE
        }
    }
}

/// Tells whoever started us. That they are gone is no reason to stop.
fn say(text: &str) {
    let mut out = std::io::stdout();
    let _ = out.write_all(text.as_bytes());
    let _ = out.flush();
}

fn run(args: &Args) -> Result<(), String> {
    let env = Env::of_process();
    let passed = service::passed_listener(&env)?;
    let paths = Paths::from_env(&env, rustix::process::getuid().as_raw())?;
    if args.background {
        // Its own session: closing the terminal that started it ends nothing. It fails only for a
        // process that leads a group already, which then has its own anyway.
        let _ = rustix::process::setsid();
    }
    let store = match Store::open(paths.clone()) {
        Ok(s) => s,
        Err(OpenError::Locked { .. }) if args.background && serves(&paths) => {
            say("ready\n");
            return Ok(());
        }
        // The holder does not listen (any more): it is on its way out, and we are its successor.
        Err(OpenError::Locked { pid: Some(pid) }) if args.background && exits(pid) => {
            Store::open(paths.clone()).map_err(|e| e.to_string())?
        }
        Err(e) => return Err(e.to_string()),
    };
    logging(args.background, &store, &env)?;
    raise_fd_limit();
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(crate::host::worker::WORKERS)
        .thread_stack_size(1 << 20)
        .enable_all()
        .build()
        .map_err(|e| format!("the runtime did not start: {e}"))?;
    let served = runtime.block_on(serve(args, paths, env, store, passed));
    // Everything has settled. A read that hangs on a dead mount must not keep the process.
    runtime.shutdown_timeout(LEAVE);
    served
}

/// Whether a daemon answers on the socket: then ours is not needed.
fn serves(paths: &Paths) -> bool {
    std::os::unix::net::UnixStream::connect(&paths.socket).is_ok()
}

/// Elsewhere there is no way to wait for another's process: it is started again by hand.
#[cfg(not(target_os = "linux"))]
fn exits(_pid: u32) -> bool {
    false
}

/// Waits for a process to end; false when it is still there after a while.
#[cfg(target_os = "linux")]
fn exits(pid: u32) -> bool {
    use rustix::event::{PollFd, PollFlags, Timespec, poll};
    use rustix::process::{Pid, PidfdFlags, pidfd_open};
    let Some(pid) = i32::try_from(pid).ok().and_then(Pid::from_raw) else { return false };
    let Ok(fd) = pidfd_open(pid, PidfdFlags::empty()) else {
        // It is gone already.
        return true;
    };
    let patience = Timespec { tv_sec: 5, tv_nsec: 0 };
    matches!(poll(&mut [PollFd::new(&fd, PollFlags::IN)], Some(&patience)), Ok(n) if n > 0)
}

fn logging(background: bool, store: &Store, env: &Env) -> Result<(), String> {
    // The MCP library logs what servers say at the usual level; who wants that asks for it by name.
    let asked = env.get("GLRS_LOG").unwrap_or("info");
    let wanted = if asked.contains("rmcp") { asked.to_owned() } else { format!("{asked},rmcp=off") };
    let filter = EnvFilter::try_new(wanted).unwrap_or_else(|_| EnvFilter::new("info,rmcp=off"));
    let builder = tracing_subscriber::fmt().with_env_filter(filter).with_ansi(false).with_target(false);
    let set = if background {
        let log = DaemonLog::open(store).map_err(|e| e.to_string())?;
        builder.with_writer(log).try_init()
    } else {
        builder.with_writer(std::io::stderr).try_init()
    };
    set.map_err(|e| e.to_string())
}

/// Each session and client may hold a descriptor; the soft limit is often 1,024.
fn raise_fd_limit() {
    use rustix::process::{Resource, getrlimit, setrlimit};
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    let _ = setrlimit(Resource::Nofile, limit);
}

async fn serve(args: &Args, paths: Paths, env: Env, store: Store, passed: Option<UnixListener>) -> Result<(), String> {
    let registry = Registry::new(store.clone(), paths.clone(), ModelSets::new(store));
    let daemon = Daemon::new(registry.clone(), paths.clone(), env)?;
    // Before anyone can connect: from then on a signal means to drain.
    let signals = watch_signals(daemon.clone())?;
    let ours = passed.is_none();
    let listener = match passed {
        Some(l) => {
            note_elsewhere(&l, &paths);
            socket::adopt(l)
        }
        None => socket::bind(&paths.socket),
    }
    .map_err(|e| e.to_string())?;
    registry.recover();
    reclaim(&registry);
    tracing::info!(pid = daemon.info.pid, version = daemon.info.version, "serving");
    if args.background {
        say("ready\n");
        detach_stdio();
    } else {
        eprintln!("glrsd {} serving on {}", daemon.info.version, paths.socket.display());
    }
    service::notify(&daemon.env, "READY=1");
    daemon.serve(listener, ours).await;
    signals.abort();
    tracing::info!("stopped");
    Ok(())
}

/// Removes temporary directories that dead daemons left, beside everything else: there may be much.
fn reclaim(registry: &Arc<Registry>) {
    let scratch = registry.shared.scratch.clone();
    tokio::task::spawn_blocking(move || match scratch.reclaim() {
        0 => {}
        count => tracing::info!(count, "removed temporary directories that were left behind"),
    });
}

/// Says so when the service manager listens where clients do not look.
fn note_elsewhere(listener: &UnixListener, paths: &Paths) {
    let at = listener.local_addr().ok().and_then(|a| a.as_pathname().map(Path::to_path_buf));
    if at.as_deref() != Some(&paths.socket) {
        let at = at.unwrap_or_default();
        tracing::warn!(at = %at.display(), expected = %paths.socket.display(), "the socket that was handed over is not where clients look");
    }
}

/// Lets go of the starter's pipe, so that it sees its end.
fn detach_stdio() {
    if let Ok(null) = std::fs::OpenOptions::new().read(true).write(true).open("/dev/null") {
        let _ = rustix::stdio::dup2_stdout(&null);
        let _ = rustix::stdio::dup2_stdin(&null);
        let _ = rustix::stdio::dup2_stderr(&null);
    }
}

/// SIGTERM and SIGINT drain, a second one stops now; SIGHUP is not for us.
fn watch_signals(daemon: Arc<Daemon>) -> Result<tokio::task::JoinHandle<()>, String> {
    let failed = |e: std::io::Error| format!("signals cannot be watched: {e}");
    let mut term = signal(SignalKind::terminate()).map_err(failed)?;
    let mut int = signal(SignalKind::interrupt()).map_err(failed)?;
    let mut hup = signal(SignalKind::hangup()).map_err(failed)?;
    Ok(tokio::spawn(async move {
        loop {
            tokio::select! {
                _ = term.recv() => daemon.stop(true),
                _ = int.recv() => daemon.stop(true),
                _ = hup.recv() => {}
            }
        }
    }))
}
