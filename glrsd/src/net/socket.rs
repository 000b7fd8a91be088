//! The local socket: its directory, its name, who may connect.
//!
//! Owns protocol.md "Socket": directory 0700 and ours, socket 0600, peer uid checked, a stale name
//! removed only by whoever holds the daemon's lock.

use crate::host::paths::SOCKET_MAX;
use interprocess::local_socket::tokio::Listener;
use interprocess::local_socket::{GenericFilePath, ListenerOptions, ToFsName};
use interprocess::os::unix::uds_local_socket::tokio::Listener as UnixListener;
use std::fs::{self, DirBuilder};
use std::os::unix::fs::{DirBuilderExt, FileTypeExt, MetadataExt, PermissionsExt};
use std::path::Path;

/// Why the socket cannot be had. The words say what to do.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct SocketError(String);

fn fail(path: &Path, why: impl std::fmt::Display) -> SocketError {
    SocketError(format!("socket {}: {why}", path.display()))
}

/// Makes the socket's directory (0700) or checks that it is ours alone.
///
/// # Errors
/// When it is a link, another user's, or open to others and cannot be closed.
pub fn prepare_dir(socket: &Path) -> Result<(), SocketError> {
    let dir = socket.parent().ok_or_else(|| fail(socket, "it has no directory"))?;
    if let Err(e) = DirBuilder::new().recursive(true).mode(0o700).create(dir) {
        return Err(fail(socket, format!("its directory {} cannot be made: {e}", dir.display())));
    }
    let meta = fs::symlink_metadata(dir).map_err(|e| fail(socket, e))?;
    let uid = rustix::process::getuid().as_raw();
    if meta.file_type().is_symlink() || !meta.is_dir() {
        return Err(fail(
            socket,
            format!("{} is a link or no directory: remove it, or set GLRS_SOCKET", dir.display()),
        ));
    }
    if meta.uid() != uid {
        return Err(fail(
            socket,
            format!("{} belongs to another user: set GLRS_SOCKET to a path of yours", dir.display()),
        ));
    }
    let ours = dir.join("glrsd.lock").exists()
        || dir.file_name().and_then(|n| n.to_str()).is_some_and(|n| n == "glrs" || n.starts_with("glrs-"));
    if !ours && meta.mode() & 0o022 != 0 {
        return Err(fail(
            socket,
            format!("others may write to {}: set GLRS_SOCKET to a path in a directory of your own", dir.display()),
        ));
    }
    // A directory that is glrs's own is closed; another one (a home directory, say) is left as it
    // is, and the socket's own mode keeps others out.
    if ours && meta.mode() & 0o077 != 0 {
        fs::set_permissions(dir, fs::Permissions::from_mode(0o700))
            .map_err(|e| fail(socket, format!("{} is open to others and cannot be closed: {e}", dir.display())))?;
    }
    Ok(())
}

/// Binds the socket. Only the holder of the daemon's lock may call this: a name that is there is
/// then stale.
///
/// # Errors
/// When the path is too long, taken by something that is no socket, or cannot be bound.
pub fn bind(path: &Path) -> Result<Listener, SocketError> {
    let len = path.as_os_str().len();
    if len > SOCKET_MAX {
        return Err(fail(
            path,
            format!("the path has {len} bytes, the platform takes {SOCKET_MAX}: set GLRS_SOCKET to a shorter one"),
        ));
    }
    prepare_dir(path)?;
    match fs::symlink_metadata(path) {
        Ok(m) if m.file_type().is_socket() => {
            fs::remove_file(path).map_err(|e| fail(path, format!("the stale socket cannot be removed: {e}")))?;
        }
        Ok(_) => return Err(fail(path, "something that is no socket is there: move it away, or set GLRS_SOCKET")),
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => {}
        Err(e) => return Err(fail(path, e)),
    }
    let name = path.to_fs_name::<GenericFilePath>().map_err(|e| fail(path, e))?;
    let listener = ListenerOptions::new().name(name).reclaim_name(false).create_tokio().map_err(|e| fail(path, e))?;
    // The directory keeps others out from the first moment; the mode is for those who look.
    fs::set_permissions(path, fs::Permissions::from_mode(0o600)).map_err(|e| fail(path, e))?;
    Ok(listener)
}

/// Takes a listener that a service manager opened. Its name is the manager's: it is not removed.
///
/// # Errors
/// When the runtime does not take it.
pub fn adopt(listener: std::os::unix::net::UnixListener) -> Result<Listener, SocketError> {
    let failed = |e: std::io::Error| SocketError(format!("the socket that was handed over cannot be used: {e}"));
    listener.set_nonblocking(true).map_err(failed)?;
    let fd = std::os::fd::OwnedFd::from(listener);
    UnixListener::try_from(fd).map(Listener::from).map_err(failed)
}

/// Tells when the socket's name is removed under a running daemon.
pub struct Watch {
    #[cfg(target_os = "linux")]
    events: Option<tokio::net::unix::pipe::Receiver>,
    path: std::path::PathBuf,
}

impl Watch {
    /// Watches the directory of a socket. Where the platform cannot, it never tells.
    pub fn new(path: &Path) -> Self {
        Self {
            #[cfg(target_os = "linux")]
            events: watch_dir(path),
            path: path.to_owned(),
        }
    }

    /// Watches nothing.
    pub fn never() -> Self {
        Self {
            #[cfg(target_os = "linux")]
            events: None,
            path: std::path::PathBuf::new(),
        }
    }

    /// Resolves once the socket is gone. Uses no timer.
    pub async fn gone(&mut self) {
        #[cfg(target_os = "linux")]
        if let Some(events) = &self.events {
            loop {
                if events.readable().await.is_err() {
                    break;
                }
                // What happened is looked up; the events themselves only have to be taken.
                let mut buf = [0u8; 4096];
                while events.try_read(&mut buf).is_ok_and(|n| n > 0) {}
                if !is_socket(&self.path) {
                    return;
                }
            }
        }
        std::future::pending::<()>().await;
    }
}

#[cfg(target_os = "linux")]
fn is_socket(path: &Path) -> bool {
    fs::symlink_metadata(path).is_ok_and(|m| m.file_type().is_socket())
}

#[cfg(target_os = "linux")]
fn watch_dir(path: &Path) -> Option<tokio::net::unix::pipe::Receiver> {
    use rustix::fs::inotify::{CreateFlags, WatchFlags, add_watch, init};
    let fd = init(CreateFlags::NONBLOCK | CreateFlags::CLOEXEC).ok()?;
    let what = WatchFlags::DELETE | WatchFlags::MOVED_FROM | WatchFlags::DELETE_SELF | WatchFlags::MOVE_SELF;
    add_watch(&fd, path.parent()?, what).ok()?;
    // An inotify descriptor is read and polled like a pipe.
    tokio::net::unix::pipe::Receiver::from_file_unchecked(fs::File::from(fd)).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn stale_sockets_are_replaced_and_other_things_are_not() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("d/s.sock");
        drop(bind(&path).unwrap());
        assert!(path.exists(), "the name stays, as after a crash");
        let l = bind(&path).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(fs::metadata(path.parent().unwrap()).unwrap().permissions().mode() & 0o777, 0o700);
        drop(l);
        let file = dir.path().join("d/file");
        fs::write(&file, "mine").unwrap();
        assert!(bind(&file).unwrap_err().to_string().contains("no socket"));
        assert_eq!(fs::read(&file).unwrap(), b"mine");
        let long = dir.path().join("x".repeat(120));
        assert!(bind(&long).unwrap_err().to_string().contains("GLRS_SOCKET"));
        let shared = dir.path().join("shared");
        fs::create_dir(&shared).unwrap();
        for (mode, refused) in [(0o777, true), (0o1777, true), (0o755, false)] {
            fs::set_permissions(&shared, fs::Permissions::from_mode(mode)).unwrap();
            assert_eq!(bind(&shared.join("s.sock")).is_err(), refused, "{mode:o}");
            assert_eq!(fs::metadata(&shared).unwrap().permissions().mode() & 0o7777, mode, "it is left as it is");
        }
        std::os::unix::fs::symlink(dir.path().join("d"), dir.path().join("link")).unwrap();
        assert!(bind(&dir.path().join("link/s.sock")).unwrap_err().to_string().contains("link"));
    }
}
