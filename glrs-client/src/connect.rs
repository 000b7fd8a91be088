//! Finding the daemon, starting it when none runs, and the first call.
//!
//! Owns the start lock (many clients that start together make one daemon), the check that the
//! socket's directory is ours, and the words for everything that can go wrong on the way. Must not
//! know what program the daemon is: [`DaemonCommand`] says what to run.

use crate::client::Client;
use glrs_protocol::error::ErrorKind;
use glrs_protocol::types::ClientIdent;
use interprocess::local_socket::tokio::Stream;
use interprocess::local_socket::traits::StreamCommon as _;
use interprocess::local_socket::traits::tokio::Stream as _;
use interprocess::local_socket::{GenericFilePath, ToFsName as _};
use std::ffi::OsString;
use std::io::ErrorKind as Io;
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::time::{Instant, sleep, timeout};

/// The program that is the daemon, and its arguments.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DaemonCommand {
    /// The program, absolute.
    pub program: PathBuf,
    /// Its arguments.
    pub args: Vec<OsString>,
}

impl DaemonCommand {
    /// This executable as the daemon: `glrs daemon run --background`.
    ///
    /// # Errors
    /// When the operating system does not tell where this executable is.
    pub fn this_executable() -> std::io::Result<Self> {
        let mut program = std::env::current_exe()?;
        // Linux says this of an executable that was replaced while it ran; the new one is there.
        if let Some(path) = program.to_str().and_then(|p| p.strip_suffix(" (deleted)")) {
            program = PathBuf::from(path);
        }
        Ok(Self { program, args: ["daemon", "run", "--background"].map(OsString::from).to_vec() })
    }
}

/// How to connect.
#[derive(Clone, Debug)]
pub struct ConnectOptions {
    /// The daemon's socket.
    pub socket: PathBuf,
    /// Who we say we are.
    pub ident: ClientIdent,
    /// How to start a daemon when none runs; `None`: do not.
    pub start: Option<DaemonCommand>,
    /// How long starting and the first answer may take.
    pub patience: Duration,
}

impl ConnectOptions {
    /// Connects to `socket` as a client of this `kind`, and starts no daemon.
    pub fn new(socket: PathBuf, kind: &str) -> Self {
        let ident = ClientIdent {
            name: "glrs".to_owned(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            kind: kind.to_owned(),
            pid: Some(std::process::id()),
        };
        Self { socket, ident, start: None, patience: Duration::from_secs(10) }
    }
}

/// Why there is no connection.
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    /// Nothing listens and we were not to start it.
    #[error("no daemon runs (nothing listens on {0}); any glrs command that needs one starts it")]
    NotRunning(PathBuf),
    /// The socket's directory could belong to somebody else.
    #[error("{path} is not safe to use: {why}")]
    Unsafe {
        /// The directory.
        path: PathBuf,
        /// What is wrong with it.
        why: String,
    },
    /// The daemon's program did not start.
    #[error("the daemon did not start: {program}: {why}")]
    Spawn {
        /// The program.
        program: PathBuf,
        /// The operating system's reason.
        why: std::io::Error,
    },
    /// The daemon said why it cannot serve.
    #[error("the daemon did not start: {0}")]
    Refused(String),
    /// The daemon ended without a word.
    #[error("the daemon ended while starting and said nothing; `glrs daemon logs` may tell why")]
    Died,
    /// Nothing happened for too long.
    #[error("the daemon did not {what} within {seconds} s; `glrs doctor` looks closer")]
    Silent {
        /// What was waited for.
        what: &'static str,
        /// How long.
        seconds: u64,
    },
    /// Client and daemon are of versions that do not understand each other.
    #[error(
        "this glrs ({ours}) and the running daemon share no protocol (it speaks {min} to {max}): \
         `glrs daemon restart` lets running steps end and starts this version"
    )]
    Protocol {
        /// Our release.
        ours: &'static str,
        /// Oldest the daemon speaks.
        min: u32,
        /// Newest the daemon speaks.
        max: u32,
    },
    /// The first call failed otherwise.
    #[error("the daemon refused us: {0}")]
    Hello(#[from] crate::client::CallError),
    /// The operating system's error.
    #[error("{path}: {why}")]
    Io {
        /// The path it was about.
        path: PathBuf,
        /// Its reason.
        why: std::io::Error,
    },
}

/// Connects, starting the daemon when that is wanted and needed, and says hello.
///
/// # Errors
/// See [`ConnectError`].
pub async fn connect(options: &ConnectOptions) -> Result<Client, ConnectError> {
    let deadline = Instant::now() + options.patience;
    let mut leaving = false;
    loop {
        let stream = match open(options).await {
            // It listens no more but has not ended, and so still holds the data directory.
            Err(ConnectError::Refused(_)) if leaving && Instant::now() < deadline => {
                sleep(Duration::from_millis(100)).await;
                continue;
            }
            other => other?,
        };
        match Client::hello(stream, options).await {
            // It is on its way out: wait until it is gone, then start the next one.
            Err(ConnectError::Hello(e)) if options.start.is_some() && is_leaving(&e) && Instant::now() < deadline => {
                leaving = true;
                sleep(Duration::from_millis(50)).await;
            }
            other => return other,
        }
    }
}

/// Opens the socket without saying anything, starting the daemon when that is wanted and needed.
///
/// # Errors
/// See [`ConnectError`].
pub async fn open(options: &ConnectOptions) -> Result<Stream, ConnectError> {
    let dir = options.socket.parent().unwrap_or(Path::new("/"));
    if dir_is_ours(dir)?
        && let Some(stream) = try_open(&options.socket).await?
    {
        return Ok(stream);
    }
    let Some(command) = &options.start else {
        return Err(ConnectError::NotRunning(options.socket.clone()));
    };
    start(options, dir, command).await
}

fn is_leaving(e: &crate::client::CallError) -> bool {
    match e {
        crate::client::CallError::Rpc(e) => e.kind() == ErrorKind::ShuttingDown,
        crate::client::CallError::Disconnected(_) => true,
        _ => false,
    }
}

/// Whether the directory exists. Keys travel over the socket, so a directory that another user
/// owns or may write to is an error, not a place to look.
fn dir_is_ours(dir: &Path) -> Result<bool, ConnectError> {
    let unsafe_ = |why: &str| ConnectError::Unsafe { path: dir.to_path_buf(), why: why.to_owned() };
    match std::fs::symlink_metadata(dir) {
        Ok(m) if m.file_type().is_symlink() => Err(unsafe_("it is a link")),
        Ok(m) if !m.is_dir() => Err(unsafe_("it is no directory")),
        Ok(m) if m.uid() != rustix::process::geteuid().as_raw() => Err(unsafe_("it belongs to another user")),
        Ok(m) if m.mode() & 0o022 != 0 => Err(unsafe_("others may write to it (chmod 700 helps)")),
        Ok(_) => Ok(true),
        Err(e) if e.kind() == Io::NotFound => Ok(false),
        Err(why) => Err(ConnectError::Io { path: dir.to_path_buf(), why }),
    }
}

/// Connects once; `None` when nothing listens there.
async fn try_open(socket: &Path) -> Result<Option<Stream>, ConnectError> {
    let io = |why| ConnectError::Io { path: socket.to_path_buf(), why };
    for _ in 0..100 {
        let name = socket.to_fs_name::<GenericFilePath>().map_err(io)?;
        match Stream::connect(name).await {
            Ok(stream) => {
                let peer = stream.peer_creds().ok().and_then(|c| c.euid());
                if peer.is_some_and(|uid| uid != rustix::process::geteuid().as_raw()) {
                    return Err(ConnectError::Unsafe {
                        path: socket.to_path_buf(),
                        why: "another user's process listens there".to_owned(),
                    });
                }
                return Ok(Some(stream));
            }
            Err(e) if matches!(e.kind(), Io::NotFound | Io::ConnectionRefused) => return Ok(None),
            // More clients at once than the daemon has taken yet: it is alive, only busy.
            Err(e) if matches!(e.kind(), Io::WouldBlock | Io::Interrupted) => sleep(Duration::from_millis(20)).await,
            Err(why) => return Err(io(why)),
        }
    }
    Err(ConnectError::Silent { what: "take the connection", seconds: 2 })
}

async fn start(options: &ConnectOptions, dir: &Path, command: &DaemonCommand) -> Result<Stream, ConnectError> {
    let io = |path: &Path| {
        let path = path.to_path_buf();
        move |why| ConnectError::Io { path, why }
    };
    std::fs::DirBuilder::new().recursive(true).mode(0o700).create(dir).map_err(io(dir))?;
    if !dir_is_ours(dir)? {
        return Err(ConnectError::Unsafe { path: dir.to_path_buf(), why: "it vanished".to_owned() });
    }
    let lock_path = dir.join("start.lock");
    let lock = std::fs::OpenOptions::new()
        .create(true)
        .truncate(false)
        .write(true)
        .mode(0o600)
        .custom_flags(rustix::fs::OFlags::NOFOLLOW.bits().cast_signed())
        .open(&lock_path)
        .map_err(io(&lock_path))?;
    let deadline = Instant::now() + options.patience;
    let seconds = options.patience.as_secs();
    // Whoever holds the lock is starting a daemon, which then serves us too. Asking again instead
    // of blocking keeps the wait bounded.
    while let Err(e) = rustix::fs::flock(&lock, rustix::fs::FlockOperation::NonBlockingLockExclusive) {
        if e != rustix::io::Errno::WOULDBLOCK && e != rustix::io::Errno::INTR {
            return Err(ConnectError::Io { path: lock_path, why: e.into() });
        }
        if Instant::now() >= deadline {
            return Err(ConnectError::Silent { what: "start", seconds });
        }
        sleep(Duration::from_millis(10)).await;
    }
    if let Some(stream) = try_open(&options.socket).await? {
        return Ok(stream);
    }
    spawn_and_wait(command, deadline, seconds).await?;
    drop(lock);
    try_open(&options.socket).await?.ok_or(ConnectError::Died)
}

/// Runs the daemon and waits for its one line: `ready`, or `error: …`.
async fn spawn_and_wait(command: &DaemonCommand, deadline: Instant, seconds: u64) -> Result<(), ConnectError> {
    let mut child = tokio::process::Command::new(&command.program)
        .args(&command.args)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        // A daemon must not keep the caller's directory busy.
        .current_dir("/")
        .spawn()
        .map_err(|why| ConnectError::Spawn { program: command.program.clone(), why })?;
    let Some(out) = child.stdout.take() else { return Err(ConnectError::Died) };
    let mut line = String::new();
    let mut reader = BufReader::new(out);
    let left = deadline.saturating_duration_since(Instant::now());
    match timeout(left, reader.read_line(&mut line)).await {
        Err(_) => Err(ConnectError::Silent { what: "start", seconds }),
        Ok(Err(why)) => Err(ConnectError::Spawn { program: command.program.clone(), why }),
        Ok(Ok(_)) => match line.trim() {
            "ready" => Ok(()),
            "" => Err(ConnectError::Died),
            other => Err(ConnectError::Refused(other.strip_prefix("error:").unwrap_or(other).trim().to_owned())),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options(dir: &Path, script: Option<&str>) -> ConnectOptions {
        let mut o = ConnectOptions::new(dir.join("s.sock"), "script");
        o.patience = Duration::from_millis(1500);
        o.start = script.map(|s| DaemonCommand { program: "/bin/sh".into(), args: vec!["-c".into(), s.into()] });
        o
    }

    async fn fails(o: &ConnectOptions) -> ConnectError {
        match connect(o).await {
            Err(e) => e,
            Ok(_) => panic!("nothing listens there"),
        }
    }

    #[tokio::test]
    async fn every_way_a_daemon_does_not_start_has_its_own_words() {
        let tmp = tempfile::tempdir().unwrap();
        let dir = tmp.path().join("run");
        assert!(matches!(fails(&options(&dir, None)).await, ConnectError::NotRunning(_)));
        assert!(!dir.exists(), "looking makes nothing");
        let e = fails(&options(&dir, Some("echo 'error: the disk is full'"))).await;
        assert!(matches!(&e, ConnectError::Refused(w) if w == "the disk is full"), "{e}");
        assert!(matches!(fails(&options(&dir, Some("exit 3"))).await, ConnectError::Died));
        assert!(matches!(fails(&options(&dir, Some("exec sleep 5"))).await, ConnectError::Silent { .. }));
        let mode = std::fs::metadata(&dir).unwrap().mode() & 0o777;
        assert_eq!(mode, 0o700);
    }

    #[tokio::test]
    async fn a_directory_that_may_be_somebody_elses_is_refused() {
        let tmp = tempfile::tempdir().unwrap();
        let link = tmp.path().join("link");
        std::os::unix::fs::symlink(tmp.path(), &link).unwrap();
        assert!(matches!(fails(&options(&link, Some("echo ready"))).await, ConnectError::Unsafe { .. }));
        let open = tmp.path().join("open");
        std::fs::create_dir(&open).unwrap();
        std::fs::set_permissions(&open, std::os::unix::fs::PermissionsExt::from_mode(0o777)).unwrap();
        assert!(matches!(fails(&options(&open, Some("echo ready"))).await, ConnectError::Unsafe { .. }));
    }

    #[tokio::test]
    async fn the_wait_for_another_starter_is_bounded() {
        let tmp = tempfile::tempdir().unwrap();
        let dir = tmp.path().join("run");
        std::fs::create_dir(&dir).unwrap();
        std::fs::set_permissions(&dir, std::os::unix::fs::PermissionsExt::from_mode(0o700)).unwrap();
        let held = std::fs::File::create(dir.join("start.lock")).unwrap();
        rustix::fs::flock(&held, rustix::fs::FlockOperation::LockExclusive).unwrap();
        let begun = std::time::Instant::now();
        assert!(matches!(fails(&options(&dir, Some("echo ready"))).await, ConnectError::Silent { .. }));
        assert!(begun.elapsed() < Duration::from_secs(5));
    }
}
