//! The list of sessions: every file there is, the broken ones with the reason.
//!
//! Owns the walk over both directories, the memory of rows whose files have not changed, and the
//! order. Must not know which sessions are loaded.

use super::disk::Stamp;
use super::error::{DiskError, LoadError};
use super::pool::lock;
use super::row::{self, Row, place, stem};
use super::{Inner, Store};
use crate::host::clock;
use glrs_protocol::SessionId;
use std::collections::HashSet;
use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

impl Store {
    /// Every session, newest first: ours, then those only the predecessor has. A file that has not
    /// changed since it was read is not read again.
    ///
    /// # Errors
    /// When the sessions' directory itself cannot be read.
    pub fn list(&self) -> Result<Vec<Row>, DiskError> {
        let sessions = self.0.paths.sessions();
        let ours = files(&sessions).map_err(|e| DiskError::new(&sessions, &e))?;
        let names: HashSet<String> = ours.iter().map(|p| stem(p)).collect();
        // The predecessor's directory is a courtesy: if it cannot be read, ours still can.
        let theirs = files(&self.0.paths.legacy).unwrap_or_default();
        let theirs = theirs.into_iter().filter(|p| !names.contains(&stem(p)));
        let mut rows: Vec<Row> = ours.iter().map(|p| self.0.row(p, false)).collect();
        rows.extend(theirs.map(|p| self.0.row(&p, true)));
        let now = clock::parse_ms(&clock::now()).unwrap_or(i64::MAX);
        rows.sort_by_cached_key(|r| (std::cmp::Reverse(instant(r, now)), r.name.clone()));
        let mut known = lock(&self.0.rows);
        if known.len() > rows.len() {
            known.retain(|path, _| path.symlink_metadata().is_ok());
        }
        Ok(rows)
    }

    /// Files among the sessions whose names say no session, with what to do about each. Looked for
    /// again only when something was made or removed there.
    ///
    /// # Errors
    /// When the sessions' directory itself cannot be read.
    pub fn misnamed(&self) -> Result<Vec<(PathBuf, String)>, DiskError> {
        let dirs = [self.0.paths.sessions(), self.0.paths.legacy.clone()];
        let stamps = dirs.each_ref().map(|dir| stamp_of(dir));
        let mut known = lock(&self.0.misnamed);
        if let Some((then, found)) = known.as_ref()
            && *then == stamps
        {
            return Ok(found.clone());
        }
        let mut found = Vec::new();
        for (n, dir) in dirs.iter().enumerate() {
            match files(dir) {
                Ok(paths) => found.extend(paths.into_iter().filter_map(|p| named(&stem(&p)).err().map(|why| (p, why)))),
                Err(e) if n == 0 => return Err(DiskError::new(dir, &e)),
                // The predecessor's directory is a courtesy.
                Err(_) => {}
            }
        }
        found.sort();
        *known = Some((stamps, found.clone()));
        Ok(found)
    }

    /// The row of one session; `None` when there is none.
    pub fn row(&self, id: &SessionId) -> Option<Row> {
        let (ours, theirs) = (self.0.paths.log(id), self.legacy_path(id));
        if ours.symlink_metadata().is_ok() {
            return Some(self.0.row(&ours, false));
        }
        theirs.symlink_metadata().is_ok().then(|| self.0.row(&theirs, true))
    }
}

/// The moment a row is sorted by: a clock that was wrong once does not keep it on top for ever,
/// a session that knows no time comes last.
fn instant(row: &Row, now: i64) -> i64 {
    match clock::parse_ms(&row.updated_at) {
        Some(ms) if ms > now => row.mtime_ms,
        Some(ms) => ms,
        None if row.broken.is_some() => row.mtime_ms,
        None => i64::MIN,
    }
}

/// What a path names now.
pub(super) fn stamp_of(path: &Path) -> Option<Stamp> {
    fs::metadata(path).ok().map(|m| Stamp::of(&m))
}

/// The session files in a directory, whatever they are.
pub(super) fn files(dir: &Path) -> std::io::Result<Vec<PathBuf>> {
    let entries = match fs::read_dir(dir) {
        Ok(entries) => entries,
        Err(e) if e.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
        Err(e) => return Err(e),
    };
    let mut out = Vec::new();
    for entry in entries {
        let entry = entry?;
        let name = entry.file_name();
        let bytes = name.as_encoded_bytes();
        if bytes.ends_with(b".json") && !bytes.starts_with(b".") && bytes != b"prompts.json" {
            out.push(entry.path());
        }
    }
    Ok(out)
}

impl Inner {
    fn row(&self, path: &Path, legacy: bool) -> Row {
        self.row_and_stamp(path, legacy).0
    }

    /// A row, and what its file was; `None` when the row holds for now only.
    pub(super) fn row_and_stamp(&self, path: &Path, legacy: bool) -> (Row, Option<Stamp>) {
        let stamp = stamp_of(path);
        if let Some(stamp) = stamp
            && let Some((then, row)) = lock(&self.rows).get(path)
            && *then == stamp
        {
            return (row.clone(), Some(stamp));
        }
        let (row, lasting) = self.read_row(path, legacy);
        let row = place(row, path, stamp, legacy);
        let lasts = stamp.filter(|_| lasting);
        if let Some(stamp) = lasts {
            lock(&self.rows).insert(path.to_owned(), (stamp, row.clone()));
        }
        (row, lasts)
    }

    /// Reads a row, and says whether it holds as long as the file does not change: a file that may
    /// not be read now may be readable later without a change.
    fn read_row(&self, path: &Path, legacy: bool) -> (Row, bool) {
        let id = match named(&stem(path)) {
            Ok(id) => id,
            Err(why) => return (unusable(why), true),
        };
        let (mut row, lasting) = match row::of(path, &id, legacy) {
            Ok(row) => (row, true),
            Err(LoadError::Broken { why }) => (unusable(why), true),
            Err(e @ LoadError::NewerSchema { .. }) => (unusable(e.to_string()), true),
            Err(e) => (unusable(e.to_string()), false),
        };
        row.id = Some(id);
        (row, lasting)
    }
}

/// The session that a file's name says, or what to do about the name.
fn named(name: &str) -> Result<SessionId, String> {
    match name.parse::<SessionId>() {
        Ok(id) if id.as_str() == name => Ok(id),
        Ok(id) => Err(format!("its name is not in lower case: rename it to {id}.json")),
        Err(_) => {
            Err("its name is not a session id: rename it to 8 hex digits or a UUID, with .json behind".to_owned())
        }
    }
}

fn unusable(why: String) -> Row {
    Row { broken: Some(why), ..Row::default() }
}
