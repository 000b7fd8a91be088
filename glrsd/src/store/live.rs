//! The live journal: what of a session has not settled.
//!
//! Owns one file of JSON lines that grows, is emptied when the session settles and unlinked when
//! it unloads. Like the log it keeps in memory what is not synced, and writes it again after a
//! failure. Must not know what the records mean.

use super::Inner;
use super::disk::open_regular;
use super::error::DiskError;
use super::pool::{SyncCell, SyncDone, SyncJob};
use serde_json::value::RawValue;
use std::fs::File;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// A session's live journal, held by the one who may change the session.
pub struct Live {
    inner: Arc<Inner>,
    path: PathBuf,
    file: Option<Arc<File>>,
    /// Bytes since `base`: at least what is not synced.
    tail: Vec<u8>,
    base: u64,
    /// Up to here bytes are in the file and taken for good.
    written: u64,
    /// Up to here whole records have reached the file, even if they are to be written again.
    landed: u64,
    /// The file's name is not durable yet.
    dir_unsynced: bool,
    cell: Arc<SyncCell>,
}

impl std::fmt::Debug for Live {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Live({})", self.path.display())
    }
}

impl Live {
    pub(super) fn new(inner: Arc<Inner>, path: PathBuf) -> Self {
        Self {
            inner,
            path,
            file: None,
            tail: Vec::new(),
            base: 0,
            written: 0,
            landed: 0,
            dir_unsynced: false,
            cell: Arc::default(),
        }
    }

    fn err(&self, e: &io::Error) -> DiskError {
        DiskError::new(&self.path, e)
    }

    fn end(&self) -> u64 {
        self.base + self.tail.len() as u64
    }

    /// The records. Torn or damaged lines are left out.
    ///
    /// # Errors
    /// When the file is there and cannot be read.
    pub fn read_all(&self) -> Result<Vec<Box<RawValue>>, DiskError> {
        let mut bytes = match open_regular(&self.path, false) {
            Ok((file, stamp)) => {
                let len = if self.file.is_some() { self.written.min(stamp.size) } else { stamp.size };
                super::disk::read_range(&file, 0, usize::try_from(len).unwrap_or(usize::MAX))
                    .map_err(|e| self.err(&e))?
            }
            Err(e) if e.kind() == ErrorKind::NotFound => Vec::new(),
            Err(e) => return Err(self.err(&e)),
        };
        if self.written < self.end() {
            bytes.extend_from_slice(self.tail.get(self.unwritten()..).unwrap_or_default());
        }
        // A last line without its newline counts only if it is an object, whole: a torn number
        // would be a number, too.
        let ended = bytes.iter().rposition(|b| *b == b'\n').map_or(0, |i| i + 1);
        let (lines, last) = bytes.split_at(ended);
        let last = Some(last).filter(|l| l.starts_with(b"{"));
        Ok(lines
            .split(|b| *b == b'\n')
            .chain(last)
            .filter(|line| !line.is_empty())
            .filter_map(|line| RawValue::from_string(String::from_utf8(line.to_vec()).ok()?).ok())
            .collect())
    }

    fn unwritten(&self) -> usize {
        usize::try_from(self.written.saturating_sub(self.base)).unwrap_or(usize::MAX)
    }

    /// Adds a record.
    ///
    /// # Errors
    /// When the disk refuses. The record is kept in memory and written with the next one or the
    /// next sync.
    pub fn append(&mut self, record: &RawValue) -> Result<(), DiskError> {
        self.absorb()?;
        self.attach()?;
        let raw = record.get();
        if raw.contains(['\n', '\r']) {
            self.tail.extend_from_slice(&super::json::minify(raw.as_bytes()));
        } else {
            self.tail.extend_from_slice(raw.as_bytes());
        }
        self.tail.push(b'\n');
        self.write()
    }

    /// Opens the file if it is there, to go on behind what it has.
    fn attach(&mut self) -> Result<(), DiskError> {
        if self.file.is_some() || !self.tail.is_empty() {
            return Ok(());
        }
        match open_regular(&self.path, true) {
            Ok((file, stamp)) => {
                self.base = stamp.size;
                self.written = stamp.size;
                self.landed = stamp.size;
                let last = match stamp.size.checked_sub(1) {
                    Some(at) => super::disk::read_range(&file, at, 1).map_err(|e| self.err(&e))?,
                    None => vec![b'\n'],
                };
                self.file = Some(Arc::new(file));
                if last != b"\n" {
                    // The torn line stays by itself and is left out by every reader.
                    self.tail.push(b'\n');
                }
                Ok(())
            }
            Err(e) if e.kind() == ErrorKind::NotFound => Ok(()),
            Err(e) => Err(self.err(&e)),
        }
    }

    fn write(&mut self) -> Result<(), DiskError> {
        let result = self.try_write();
        if let Err(e) = &result {
            if let Some(file) = &self.file {
                let _ = self.inner.disk.set_len(file, &self.path, self.landed);
            }
            self.written = self.base;
            return Err(self.err(e));
        }
        Ok(())
    }

    fn try_write(&mut self) -> io::Result<()> {
        let disk = &self.inner.disk;
        let file = match &self.file {
            Some(file) => file.clone(),
            None => {
                disk.make_dir(self.path.parent().unwrap_or(Path::new(".")))?;
                let file = Arc::new(disk.open_or_make(&self.path)?);
                self.dir_unsynced = true;
                self.file = Some(file.clone());
                file
            }
        };
        let bytes = self.tail.get(self.unwritten()..).unwrap_or_default();
        disk.write_at(&file, &self.path, bytes, self.written)?;
        self.written = self.end();
        self.landed = self.written;
        Ok(())
    }

    fn absorb(&mut self) -> Result<(), DiskError> {
        match self.cell.take() {
            Ok(reached) => {
                let n = usize::try_from(reached.saturating_sub(self.base)).unwrap_or(usize::MAX).min(self.tail.len());
                self.tail.drain(..n);
                self.base += n as u64;
                Ok(())
            }
            Err(e) => {
                self.written = self.base;
                Err(self.err(&e))
            }
        }
    }

    /// Begins to make the records durable; `None` when they are.
    ///
    /// # Errors
    /// When the disk refuses to take them.
    pub fn begin_sync(&mut self) -> Result<Option<SyncJob>, DiskError> {
        // A failure of before is answered by writing again, here.
        let _ = self.absorb();
        if self.written < self.end() {
            self.write()?;
        }
        if self.dir_unsynced {
            let dir = self.path.parent().unwrap_or(Path::new("."));
            self.inner.disk.sync_dir(dir).map_err(|e| DiskError::new(dir, &e))?;
            self.dir_unsynced = false;
        }
        let Some(file) = self.file.clone().filter(|_| self.base < self.end()) else { return Ok(None) };
        Ok(Some(self.inner.pool.sync(file, self.path.clone(), self.written, &self.cell)))
    }

    /// Takes the result of a sync.
    ///
    /// # Errors
    /// When what had been written as it began is not durable.
    pub fn finish_sync(&mut self, done: &SyncDone) -> Result<(), DiskError> {
        self.absorb()?;
        if self.base >= done.target {
            return Ok(());
        }
        Err(DiskError { path: self.path.clone(), why: "a sync before this one failed; it is tried again".to_owned() })
    }

    /// Makes the records durable. May be dropped at any time.
    ///
    /// # Errors
    /// When they are not durable.
    pub async fn sync(&mut self) -> Result<(), DiskError> {
        match self.begin_sync()? {
            Some(job) => {
                let done = job.wait().await;
                self.finish_sync(&done)
            }
            None => Ok(()),
        }
    }

    /// Empties the journal. Not synced: records that come back name a log position that has gone
    /// by.
    ///
    /// # Errors
    /// When the disk refuses.
    pub fn truncate(&mut self) -> Result<(), DiskError> {
        if self.file.is_none() && self.tail.is_empty() {
            self.attach()?;
        }
        self.tail.clear();
        self.cell = Arc::default();
        if let Some(file) = &self.file {
            self.inner.disk.set_len(file, &self.path, 0).map_err(|e| self.err(&e))?;
        }
        (self.base, self.written, self.landed) = (0, 0, 0);
        Ok(())
    }

    /// Removes the journal.
    ///
    /// # Errors
    /// When the disk refuses.
    pub fn unlink(&mut self) -> Result<(), DiskError> {
        self.tail.clear();
        self.file = None;
        self.cell = Arc::default();
        (self.base, self.written, self.landed) = (0, 0, 0);
        if self.inner.disk.unlink(&self.path).map_err(|e| self.err(&e))? {
            let dir = self.path.parent().unwrap_or(Path::new("."));
            self.inner.disk.sync_dir(dir).map_err(|e| DiskError::new(dir, &e))?;
        }
        Ok(())
    }
}
