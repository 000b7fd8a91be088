//! What can go wrong with the bytes, typed, in words that say what to do.
//!
//! Owns the store's error types. Must not know what a session does about them.

use std::io;
use std::path::{Path, PathBuf};

/// The disk refused something. The path and the operating system's reason, for people.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}: {why}", path.display())]
pub struct DiskError {
    /// The path that fails.
    pub path: PathBuf,
    /// Why, in the operating system's words.
    pub why: String,
}

impl DiskError {
    /// The error of an operation on a path.
    pub fn new(path: &Path, why: &io::Error) -> Self {
        Self { path: path.to_owned(), why: why.to_string() }
    }
}

/// The data directory cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// Another daemon holds the data directory.
    #[error("another glrsd{} holds this data directory: stop it, or set GLRS_HOME to another one",
        pid.map(|p| format!(" (pid {p})")).unwrap_or_default())]
    Locked {
        /// Its process id, when the lock file names it.
        pid: Option<u32>,
    },
    /// A directory or the lock file cannot be made.
    #[error("cannot use the data directory: {}: {why}: check its permissions and free space", path.display())]
    Disk {
        /// The path that fails.
        path: PathBuf,
        /// Why.
        why: String,
    },
}

/// A session cannot be loaded. Its file is untouched.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LoadError {
    /// There is no such session.
    #[error("no such session: list the sessions to see which there are")]
    NotFound,
    /// The file is damaged beyond what can be salvaged, or is no session.
    #[error("the session's file cannot be used: {why}")]
    Broken {
        /// Why.
        why: String,
    },
    /// The file was written by a newer glrs.
    #[error("the session's file has schema {schema}, this glrs knows up to 2: update glrs; the file is left as it is")]
    NewerSchema {
        /// The schema it names.
        schema: u64,
    },
    /// The file cannot be read.
    #[error("cannot read {}: {why}", path.display())]
    Disk {
        /// The path that fails.
        path: PathBuf,
        /// Why.
        why: String,
    },
}

impl From<DiskError> for LoadError {
    fn from(e: DiskError) -> Self {
        Self::Disk { path: e.path, why: e.why }
    }
}

/// Someone else wrote the file of a loaded log. The log takes nothing any more: load it again.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{} was changed by another program; load it again{}", path.display(),
    aside.as_ref().map(|a| format!("; what was not saved is in {}", a.display())).unwrap_or_default())]
pub struct Foreign {
    /// The log's path.
    pub path: PathBuf,
    /// Where our unsaved part was kept, one entry per line.
    pub aside: Option<PathBuf>,
    /// Our unsaved part itself: the only copy, if even keeping it aside failed.
    pub unsaved: Vec<Box<serde_json::value::RawValue>>,
}

/// A fork was not made.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ForkError {
    /// The new id is taken.
    #[error("session {0} exists already: choose another id")]
    Exists(String),
    /// The parent has no entry of that number.
    #[error("there is no entry {at}: the session has {entries}")]
    NoSuchEntry {
        /// What was asked for.
        at: u64,
        /// How many there are.
        entries: u64,
    },
    /// The disk refused.
    #[error(transparent)]
    Disk(#[from] DiskError),
}

/// A session was not deleted.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DeleteError {
    /// There is no such session.
    #[error("no such session: list the sessions to see which there are")]
    NotFound,
    /// It lies only in the predecessor's directory, which is never written.
    #[error("this session exists only in the predecessor's directory, which glrs never writes: remove {} by hand", path.display())]
    Legacy {
        /// Its file.
        path: PathBuf,
    },
    /// The disk refused.
    #[error(transparent)]
    Disk(#[from] DiskError),
}
