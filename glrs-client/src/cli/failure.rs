//! Exit codes, and how every error becomes one with words for a person.
//!
//! Owns the table of exit codes. Must not know which command failed.

use crate::client::CallError;
use crate::connect::ConnectError;
use glrs_protocol::error::ErrorKind;
use std::process::ExitCode;

/// How `glrs` ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Exit {
    /// It is done.
    Done = 0,
    /// Something failed.
    Error = 1,
    /// The arguments make no sense.
    Usage = 2,
    /// `--timeout` ran out.
    Timeout = 3,
    /// There is no such session.
    NoSession = 4,
    /// A permission was denied.
    Denied = 5,
    /// Somebody interrupted.
    Interrupted = 130,
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(exit as u8)
    }
}

/// Why a command did not do what was asked.
#[derive(Clone, Debug, PartialEq)]
pub struct Failure {
    /// The exit code.
    pub exit: Exit,
    /// What to tell on stderr; empty: nothing.
    pub message: String,
}

impl Failure {
    /// Something failed.
    pub fn error(message: impl Into<String>) -> Self {
        Self { exit: Exit::Error, message: message.into() }
    }

    /// The arguments make no sense.
    pub fn usage(message: impl Into<String>) -> Self {
        Self { exit: Exit::Usage, message: message.into() }
    }

    /// There is no such session.
    pub fn no_session(message: impl Into<String>) -> Self {
        Self { exit: Exit::NoSession, message: message.into() }
    }

    /// Ends without a word.
    pub fn quiet(exit: Exit) -> Self {
        Self { exit, message: String::new() }
    }
}

impl From<ConnectError> for Failure {
    fn from(e: ConnectError) -> Self {
        Self::error(e.to_string())
    }
}

impl From<CallError> for Failure {
    fn from(e: CallError) -> Self {
        let mut message = e.to_string();
        let exit = match e.kind() {
            ErrorKind::NotFound => Exit::NoSession,
            ErrorKind::Forbidden => Exit::Denied,
            ErrorKind::Ambiguous { ids } => {
                for id in ids.iter().filter(|id| !message.contains(id.as_str())).collect::<Vec<_>>() {
                    message.push_str("\n  glrs --resume ");
                    message.push_str(id);
                }
                Exit::Error
            }
            _ => Exit::Error,
        };
        Self { exit, message }
    }
}

impl From<std::io::Error> for Failure {
    fn from(e: std::io::Error) -> Self {
        // The reader of our output has seen enough.
        if e.kind() == std::io::ErrorKind::BrokenPipe {
            return Self::quiet(Exit::Done);
        }
        Self::error(e.to_string())
    }
}

impl From<serde_json::Error> for Failure {
    fn from(e: serde_json::Error) -> Self {
        Self::error(format!("cannot write JSON: {e}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use glrs_protocol::RpcError;

    #[test]
    fn errors_have_their_exit_codes() {
        let exit = |k: ErrorKind| Failure::from(CallError::Rpc(RpcError::new(k, "w"))).exit;
        assert_eq!(exit(ErrorKind::NotFound), Exit::NoSession);
        assert_eq!(exit(ErrorKind::Forbidden), Exit::Denied);
        assert_eq!(exit(ErrorKind::Internal), Exit::Error);
        let f = Failure::from(CallError::Rpc(RpcError::new(
            ErrorKind::Ambiguous { ids: vec!["3f9a1c2b".into(), "00000001".into()] },
            "two sessions fit",
        )));
        assert_eq!((f.exit, f.message.lines().count()), (Exit::Error, 3));
        let pipe = Failure::from(std::io::Error::from(std::io::ErrorKind::BrokenPipe));
        assert_eq!(pipe, Failure::quiet(Exit::Done));
    }
}
