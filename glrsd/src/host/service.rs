//! The service manager's side of the process: a listener that it hands over, and telling it how we
//! do. Without one, nothing here does anything.
//!
//! Owns the variables of systemd's protocol. Must not know what is served.

use super::Env;
use std::os::unix::net::{UnixDatagram, UnixListener};

/// The listening socket that the service manager opened for this process, if it did.
///
/// Has to be called before there are other threads: it takes the variables out of the environment,
/// so that nothing this process starts believes that they are meant for it.
///
/// # Errors
/// When what was handed over is no listening Unix stream socket.
pub fn passed_listener(env: &Env) -> Result<Option<UnixListener>, String> {
    // Variables that an ancestor forgot to clear are meant for another process.
    if env.get("LISTEN_PID").and_then(|p| p.parse().ok()) != Some(std::process::id()) {
        return Ok(None);
    }
    let mut fds = listenfd::ListenFd::from_env();
    if fds.len() > 1 {
        return Err(format!("the service manager passed {} sockets, one is needed", fds.len()));
    }
    let listener = fds.take_unix_listener(0).map_err(|e| format!("the service manager's socket: {e}"))?;
    match listener {
        Some(l) if !rustix::net::sockopt::socket_acceptconn(&l).unwrap_or(true) => {
            Err("the service manager's socket does not listen".to_owned())
        }
        other => Ok(other),
    }
}

/// Tells the service manager something, such as `READY=1`. That nobody hears it is no fault.
pub fn notify(env: &Env, what: &str) {
    if let Some(name) = env.get("NOTIFY_SOCKET") {
        let _ = tell(name, what);
    }
}

fn tell(name: &str, what: &str) -> std::io::Result<()> {
    let socket = UnixDatagram::unbound()?;
    socket.set_nonblocking(true)?;
    #[cfg(target_os = "linux")]
    if let Some(name) = name.strip_prefix('@') {
        use std::os::linux::net::SocketAddrExt;
        let address = std::os::unix::net::SocketAddr::from_abstract_name(name)?;
        return socket.send_to_addr(what.as_bytes(), &address).map(drop);
    }
    socket.send_to(what.as_bytes(), name).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_service_manager_is_told_and_its_absence_is_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("n.sock");
        let heard = UnixDatagram::bind(&path).unwrap();
        let mut env = Env::default();
        notify(&env, "READY=1");
        env.set("NOTIFY_SOCKET", path.display().to_string());
        notify(&env, "READY=1");
        let mut buf = [0; 64];
        let n = heard.recv(&mut buf).unwrap();
        assert_eq!(&buf[..n], b"READY=1");
        drop(heard);
        notify(&env, "STOPPING=1");
    }

    #[test]
    fn sockets_meant_for_another_process_are_not_taken() {
        let mut env = Env::default();
        assert!(passed_listener(&env).unwrap().is_none());
        for pid in ["1", "", "x"] {
            env.set("LISTEN_PID", pid);
            assert!(passed_listener(&env).unwrap().is_none());
        }
    }
}
