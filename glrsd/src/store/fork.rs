//! Forks: a new log with the first entries of another.
//!
//! Owns the copy of bytes and the hard links of what they name. The parent's bytes are only read.
//! Must not know what a fork means to a session.

use super::disk::Disk;
use super::error::{DiskError, ForkError};
use super::json;
use super::layout::{Trailer, to_entry};
use super::lines::Bytes;
use super::reader::LogReader;
use super::{Log, Store};
use crate::host::clock;
use glrs_protocol::SessionId;
use serde_json::value::RawValue;
use std::fs;
use std::io::{self, ErrorKind};
use std::path::Path;

impl Store {
    /// Makes a session of the parent's entries up to number `at`, and `extra` ones behind them.
    /// It is on disk when this returns.
    ///
    /// # Errors
    /// When the new id is taken, there is no entry `at`, or the disk refuses.
    pub fn fork(
        &self,
        parent: &LogReader,
        at: u64,
        new_id: &SessionId,
        extra: &[Box<RawValue>],
    ) -> Result<Log, ForkError> {
        if self.exists(new_id) {
            return Err(ForkError::Exists(new_id.to_string()));
        }
        if at > parent.len() {
            return Err(ForkError::NoSuchEntry { at, entries: parent.len() });
        }
        let path = self.0.paths.log(new_id);
        self.link_all(&parent.header().id, new_id)
            .and_then(|()| self.write_fork(parent, at, new_id, extra, &path))
            .map_err(|e| {
                // What was linked for a fork that is not there would be found by no one.
                let _ = self.0.disk.remove_tree(&self.0.paths.artifacts(new_id));
                let _ = self.0.disk.remove_tree(&self.0.paths.blobs(new_id));
                match e.kind() {
                    ErrorKind::AlreadyExists => ForkError::Exists(new_id.to_string()),
                    _ => ForkError::Disk(DiskError::new(&path, &e)),
                }
            })?;
        self.load(new_id).map_err(|e| ForkError::Disk(DiskError { path, why: e.to_string() }))
    }

    fn write_fork(
        &self,
        parent: &LogReader,
        at: u64,
        new_id: &SessionId,
        extra: &[Box<RawValue>],
        path: &Path,
    ) -> io::Result<()> {
        let disk = &self.0.disk;
        let dir = self.0.paths.sessions();
        let header = parent.header().fork(new_id, &clock::now());
        let temp = disk.temp(&dir)?;
        let file = temp.as_file();
        let end = parent.offset_of(at + 1)?;
        let mut to = header.line.len() as u64;
        disk.write_at(file, path, &header.line, 0)?;
        let from_file = end.min(parent.written).saturating_sub(parent.start);
        if let Some(source) = parent.file.as_ref().filter(|_| from_file > 0) {
            disk.copy_range((source, parent.start), (file, to), path, from_file)?;
            to += from_file;
        }
        let from = parent.start + if parent.file.is_some() { from_file } else { 0 };
        if from < end {
            let mut rest = vec![0; usize::try_from(end - from).unwrap_or(usize::MAX)];
            parent.read_at(from, &mut rest)?;
            disk.write_at(file, path, &rest, to)?;
            to += end - from;
        }
        let mut updated_at = None;
        let mut bytes = Vec::new();
        for (i, entry) in extra.iter().enumerate() {
            let entry = to_entry(entry.get().as_bytes());
            updated_at = json::member(&entry, "at").and_then(json::text).or(updated_at);
            if at > 0 || i > 0 {
                bytes.push(b',');
            }
            bytes.extend_from_slice(&entry);
            bytes.push(b'\n');
        }
        let synced = to + bytes.len() as u64;
        let trailer = Trailer {
            updated_at: updated_at.unwrap_or_else(clock::now),
            context_tokens: parent.tokens_at(at)?,
            entries: at + extra.len() as u64,
            synced,
        };
        bytes.extend_from_slice(&trailer.to_bytes());
        disk.write_at(file, path, &bytes, to)?;
        disk.publish(temp, path, false)?;
        disk.sync_dir(&dir)
    }

    /// Gives every artifact and blob of a session a second name under another.
    fn link_all(&self, from: &SessionId, to: &SessionId) -> io::Result<()> {
        let paths = &self.0.paths;
        for (a, b) in [(paths.artifacts(from), paths.artifacts(to)), (paths.blobs(from), paths.blobs(to))] {
            link_dir(&self.0.disk, &a, &b)?;
        }
        Ok(())
    }
}

fn link_dir(disk: &Disk, from: &Path, to: &Path) -> io::Result<()> {
    let entries = match fs::read_dir(from) {
        Ok(entries) => entries,
        Err(e) if e.kind() == ErrorKind::NotFound => return Ok(()),
        Err(e) => return Err(e),
    };
    let mut any = false;
    for entry in entries {
        let entry = entry?;
        let temporary = entry.file_name().to_str().is_some_and(|n| n.starts_with(".glrs-"));
        if temporary || !entry.file_type()?.is_file() {
            continue;
        }
        if !any {
            disk.make_dir(to)?;
            any = true;
        }
        match disk.link(&entry.path(), &to.join(entry.file_name())) {
            Err(e) if e.kind() != ErrorKind::AlreadyExists => return Err(e),
            _ => {}
        }
    }
    if any { disk.sync_dir(to) } else { Ok(()) }
}
