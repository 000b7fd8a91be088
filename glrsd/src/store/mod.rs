//! The store: every byte under the data directory.
//!
//! Owns: the lock that makes a daemon the only one, logs, live journals, blobs, artifacts, prompt
//! history and the list of what there is. Nothing else writes there. Must not know sessions,
//! turns, clients, or what entries mean beyond what the list shows.
//!
//! Calls are plain functions that may touch the disk; only syncs can be awaited, on threads of the
//! store's own.

mod blobs;
mod catalogue;
mod check;
mod daemon_log;
mod disk;
mod error;
mod folds;
mod foreign;
mod fork;
mod import;
mod index;
mod json;
mod layout;
mod lines;
mod list;
mod live;
mod log;
mod migrate;
mod open;
mod pool;
mod prompts;
mod reader;
mod row;
mod verify;
mod write;

#[cfg(test)]
mod tests;
#[cfg(test)]
mod tests_faults;
#[cfg(test)]
mod tests_files;
#[cfg(test)]
mod tests_torn;
#[cfg(test)]
mod tests_verify;

pub use blobs::hash_of as blob_name;
pub use check::Check;
pub use daemon_log::DaemonLog;
pub use disk::{Fault, Faults, Op};
pub use error::{DeleteError, DiskError, Foreign, ForkError, LoadError, OpenError};
pub use import::{Document, ImportError};
pub use index::{Candidate, Children, Slot, Want};
pub use layout::Header;
pub use live::Live;
pub use log::Log;
pub use pool::{SyncDone, SyncJob};
pub use reader::LogReader;
pub use row::Row;
pub use verify::{Problem, Verdict};

use crate::host::Paths;
use disk::{Disk, Stamp};
use foreign::Unreadable;
use glrs_protocol::SessionId;
use open::Opened;
use pool::{Pool, lock};
use row::Cached;
use std::collections::HashMap;
use std::ffi::OsStr;
use std::fs::{self, File, TryLockError};
use std::io::{self, ErrorKind, Read};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

/// What all handles of a store share.
/// What the directories were, and what was found in them.
type Misnamed = ([Option<Stamp>; 2], Vec<(PathBuf, String)>);

pub(crate) struct Inner {
    paths: Paths,
    disk: Disk,
    pool: Pool,
    /// Rows of files that have not changed since they were read.
    rows: Mutex<HashMap<PathBuf, (Stamp, Cached)>>,
    /// Files whose names say no session, as long as neither directory changes.
    misnamed: Mutex<Option<Misnamed>>,
    /// The list and full text in a file, behind the logs.
    index: index::Index,
    /// Held while the prompt history is read and replaced.
    prompts: Mutex<()>,
    /// Held, locked, as long as the store lives.
    _lock: Option<File>,
}

/// The data directory. Cheap to clone.
#[derive(Clone)]
pub struct Store(Arc<Inner>);

impl std::fmt::Debug for Store {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Store({})", self.0.paths.root.display())
    }
}

impl Store {
    /// Opens the data directory for the one daemon that may write it; makes what misses.
    ///
    /// # Errors
    /// When another daemon holds it, or it cannot be made or locked.
    pub fn open(paths: Paths) -> Result<Self, OpenError> {
        Self::open_with(paths, None)
    }

    /// Opens the data directory with failures injected. For tests.
    ///
    /// # Errors
    /// As [`open`](Self::open).
    pub fn with_faults(paths: Paths, faults: Faults) -> Result<Self, OpenError> {
        Self::open_with(paths, Some(faults))
    }

    /// Opens the data directory for reading: takes no lock, makes nothing, refuses every write.
    pub fn open_read_only(paths: Paths) -> Self {
        Self::build(paths, Disk { faults: None, read_only: true }, None)
    }

    fn build(paths: Paths, disk: Disk, held: Option<File>) -> Self {
        let pool = Pool::new(&disk);
        Self(Arc::new(Inner {
            paths,
            disk,
            pool,
            rows: Mutex::default(),
            misnamed: Mutex::default(),
            index: index::Index::default(),
            prompts: Mutex::default(),
            _lock: held,
        }))
    }

    fn open_with(paths: Paths, faults: Option<Faults>) -> Result<Self, OpenError> {
        let disk = Disk { faults, read_only: false };
        let failed = |path: &Path| {
            let path = path.to_owned();
            move |e: io::Error| OpenError::Disk { path, why: e.to_string() }
        };
        let sessions = paths.sessions();
        disk.make_dir(&sessions).map_err(failed(&sessions))?;
        let path = paths.lock();
        let mut held = disk.open_or_make(&path).map_err(failed(&path))?;
        match held.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                let mut text = String::new();
                let _ = held.read_to_string(&mut text);
                return Err(OpenError::Locked { pid: text.trim().parse().ok() });
            }
            Err(TryLockError::Error(e)) => return Err(failed(&path)(e)),
        }
        let pid = format!("{}\n", std::process::id());
        held.set_len(0).map_err(failed(&path))?;
        disk.write_at(&held, &path, pid.as_bytes(), 0).map_err(failed(&path))?;
        sweep(&sessions);
        Ok(Self::build(paths, disk, Some(held)))
    }

    /// The places this store works on.
    pub fn paths(&self) -> &Paths {
        &self.0.paths
    }

    /// A log in memory. Its file is born with its first entry.
    pub fn create(&self, id: &SessionId, cwd: &str, created_at: &str) -> Log {
        Log::empty(self.0.clone(), self.0.paths.log(id), Header::new(id, created_at, cwd))
    }

    /// Loads a log: ours, else the predecessor's. Writes nothing, whatever it finds.
    ///
    /// # Errors
    /// When there is none, or its file cannot be used. The file is untouched.
    pub fn load(&self, id: &SessionId) -> Result<Log, LoadError> {
        let path = self.0.paths.log(id);
        match open::open(&path, id, !self.0.disk.read_only) {
            Ok(Opened::Ours(ours)) => Ok(Log::in_file(self.0.clone(), path, *ours)),
            Ok(Opened::Foreign(loaded, stamp)) => Ok(Log::in_memory(self.0.clone(), path, *loaded, Some(stamp))),
            Err(LoadError::NotFound) => self.load_legacy(id, path),
            Err(e) => Err(e),
        }
    }

    fn legacy_path(&self, id: &SessionId) -> PathBuf {
        self.0.paths.legacy.join(format!("{id}.json"))
    }

    fn load_legacy(&self, id: &SessionId, path: PathBuf) -> Result<Log, LoadError> {
        let from = self.legacy_path(id);
        if from.symlink_metadata().is_err() {
            return Err(LoadError::NotFound);
        }
        match read_legacy(&from, id)? {
            Ok((loaded, _)) => Ok(Log::in_memory(self.0.clone(), path, loaded, None)),
            Err(Unreadable::Broken(why)) => Err(LoadError::Broken { why }),
            Err(Unreadable::Newer(schema)) => Err(LoadError::NewerSchema { schema }),
        }
    }

    /// Whether a file with this session's name is there, ours or the predecessor's.
    pub fn exists(&self, id: &SessionId) -> bool {
        self.0.paths.log(id).symlink_metadata().is_ok() || self.legacy_path(id).symlink_metadata().is_ok()
    }

    /// A session's live journal. Its file is born with its first record.
    pub fn live(&self, id: &SessionId) -> Live {
        Live::new(self.0.clone(), self.0.paths.live(id))
    }

    /// Sessions that have a live journal: what a crash may have left unsettled.
    pub fn live_ids(&self) -> Vec<SessionId> {
        let Ok(dir) = fs::read_dir(self.0.paths.sessions().join("live")) else { return Vec::new() };
        let stem = |e: fs::DirEntry| e.file_name().to_str()?.strip_suffix(".jsonl")?.parse().ok();
        dir.filter_map(Result::ok).filter_map(stem).collect()
    }

    /// Deletes a session: log, what was kept beside it, live journal, artifacts, blobs, trace.
    ///
    /// # Errors
    /// When there is none of ours, or the disk refuses.
    pub fn delete(&self, id: &SessionId) -> Result<(), DeleteError> {
        let (paths, disk) = (&self.0.paths, &self.0.disk);
        let path = paths.log(id);
        if path.symlink_metadata().is_err() {
            let legacy = self.legacy_path(id);
            let there = legacy.symlink_metadata().is_ok();
            return Err(if there { DeleteError::Legacy { path: legacy } } else { DeleteError::NotFound });
        }
        let failed = |path: &Path| {
            let path = path.to_owned();
            move |e: io::Error| DeleteError::Disk(DiskError::new(&path, &e))
        };
        // The log goes first: a session whose log is gone is gone, whatever else still lies there.
        disk.unlink(&path).map_err(failed(&path))?;
        let sessions = paths.sessions();
        disk.sync_dir(&sessions).map_err(failed(&sessions))?;
        lock(&self.0.rows).remove(&path);
        self.index_touched(id);
        for file in [paths.live(id), paths.trace(id), paths.fold(id)].into_iter().chain(side_files(&sessions, id)) {
            disk.unlink(&file).map_err(failed(&file))?;
        }
        for dir in [paths.artifacts(id), paths.blobs(id)] {
            disk.remove_tree(&dir).map_err(failed(&dir))?;
        }
        Ok(())
    }
}

/// Reads a file of the predecessor, whatever its layout, into memory.
fn read_legacy(path: &Path, id: &SessionId) -> Result<Result<(foreign::Loaded, Stamp), Unreadable>, DiskError> {
    let failed = |e: io::Error| DiskError::new(path, &e);
    let (file, stamp) = match disk::open_regular(path, false) {
        Ok(opened) => opened,
        Err(e) if e.kind() == ErrorKind::InvalidInput => return Ok(Err(Unreadable::Broken(e.to_string()))),
        Err(e) => return Err(failed(e)),
    };
    let bytes = disk::read_range(&file, 0, usize::try_from(stamp.size).unwrap_or(usize::MAX)).map_err(failed)?;
    Ok(foreign::load(&bytes, id).map(|loaded| (loaded, stamp)))
}

/// What was kept beside a session's log: torn ends and unsaved parts.
fn side_files(sessions: &Path, id: &SessionId) -> Vec<PathBuf> {
    let Ok(dir) = fs::read_dir(sessions) else { return Vec::new() };
    let prefix = format!("{id}.json.");
    let ours = |name: &OsStr| name.to_str().is_some_and(|n| n.starts_with(&prefix));
    dir.filter_map(Result::ok).filter(|e| ours(&e.file_name())).map(|e| e.path()).collect()
}

/// Removes temporary files that a killed daemon left. Only the holder of the lock may.
fn sweep(sessions: &Path) {
    let Ok(dir) = fs::read_dir(sessions) else { return };
    for entry in dir.filter_map(Result::ok) {
        if entry.file_name().to_str().is_some_and(|n| n.starts_with(".glrs-") && n.ends_with(".tmp")) {
            let _ = fs::remove_file(entry.path());
        }
    }
}
