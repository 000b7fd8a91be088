//! One session's log.
//!
//! Owns [`Log`]: what is in the file, what is only in memory yet, how far the disk has it. Nothing
//! appended is ever dropped: while the disk fails, memory is the copy, and everything since the
//! last good sync is written again. How bytes get into the file is `write`. Must not know what
//! entries mean, save their `at`.

use super::disk::Stamp;
use super::error::{DiskError, Foreign};
use super::foreign::Loaded;
use super::json;
use super::layout::{Header, Trailer, to_entry};
use super::open::Ours;
use super::pool::{SyncCell, SyncDone, SyncJob};
use super::reader::{Index, LogReader};
use super::{Inner, disk};
use glrs_protocol::types::NumberedEntry;
use serde_json::value::RawValue;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

/// A session's log, held by the one who may change it.
pub struct Log {
    pub(super) inner: Arc<Inner>,
    pub(super) header: Arc<Header>,
    pub(super) path: PathBuf,
    /// The file; `None` while the log is in memory only (not born yet, or in a layout of others).
    pub(super) file: Option<Arc<File>>,
    pub(super) writable: bool,
    /// What the path names, as we left it; `None` when nothing is there.
    pub(super) stamp: Option<Stamp>,
    start: u64,
    /// Offset behind the last entry line, wherever its bytes are.
    pub(super) end: u64,
    count: u64,
    bad: u64,
    /// Up to here bytes are in the file.
    pub(super) written: u64,
    /// Up to here the disk has them.
    pub(super) synced: u64,
    /// Bytes from `tail_base` to `end`: at least what is not synced.
    pub(super) tail: Arc<Vec<u8>>,
    pub(super) tail_base: u64,
    /// Where the file's trailer stands, and the trailer.
    pub(super) trailer_at: u64,
    pub(super) trailer: Vec<u8>,
    /// What is cut off at the next write, and whether it is kept aside first.
    pub(super) cut: Option<(u64, u64)>,
    pub(super) keep_cut: bool,
    /// Whether the file as it was has to be kept aside when it is rewritten.
    pub(super) keep_original: bool,
    /// Where it was kept.
    pub(super) kept: Option<PathBuf>,
    /// Entries from this offset on were appended here.
    pub(super) own_from: u64,
    updated_at: String,
    context_tokens: u64,
    notices: Vec<String>,
    pub(super) failing: Option<DiskError>,
    /// A sync failed, and none has succeeded since.
    pub(super) sync_failed: bool,
    /// The file's name is there, but not yet durable.
    pub(super) dir_unsynced: bool,
    pub(super) foreign: Option<Foreign>,
    pub(super) cell: Arc<SyncCell>,
    index: Arc<Mutex<Index>>,
}

impl std::fmt::Debug for Log {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Log({}, {} entries)", self.header.id, self.count)
    }
}

impl Log {
    /// A log in memory. `stamp` is what stands at its path.
    pub(super) fn in_memory(inner: Arc<Inner>, path: PathBuf, loaded: Loaded, stamp: Option<Stamp>) -> Self {
        let start = loaded.header.line.len() as u64;
        let end = loaded.body.len() as u64;
        Self {
            inner,
            path,
            file: None,
            writable: true,
            stamp,
            start,
            end,
            count: loaded.count,
            bad: 0,
            written: 0,
            synced: 0,
            tail: Arc::new(loaded.body),
            tail_base: 0,
            trailer_at: 0,
            trailer: Vec::new(),
            cut: None,
            keep_cut: false,
            keep_original: loaded.lossy && stamp.is_some(),
            kept: None,
            own_from: end,
            updated_at: loaded.updated_at,
            context_tokens: loaded.context_tokens,
            notices: loaded.notices,
            failing: None,
            sync_failed: false,
            dir_unsynced: false,
            foreign: None,
            cell: Arc::default(),
            index: Arc::default(),
            header: Arc::new(loaded.header),
        }
    }

    /// A log in a file of our layout.
    pub(super) fn in_file(inner: Arc<Inner>, path: PathBuf, o: Ours) -> Self {
        Self {
            inner,
            path,
            file: Some(Arc::new(o.file)),
            writable: o.writable,
            stamp: Some(o.stamp),
            start: o.start,
            end: o.end,
            count: o.count,
            bad: o.bad,
            written: o.end,
            synced: o.synced.min(o.end),
            tail: Arc::default(),
            tail_base: o.end,
            trailer_at: o.end,
            trailer: o.trailer,
            cut: o.cut,
            keep_cut: o.keep_cut,
            keep_original: false,
            kept: None,
            own_from: o.end,
            updated_at: o.updated_at,
            context_tokens: o.context_tokens,
            notices: o.notices,
            failing: None,
            sync_failed: false,
            dir_unsynced: false,
            foreign: None,
            cell: Arc::default(),
            index: Arc::default(),
            header: Arc::new(o.header),
        }
    }

    /// A log that has no file and no entries yet.
    pub(super) fn empty(inner: Arc<Inner>, path: PathBuf, header: Header) -> Self {
        let loaded = Loaded {
            body: header.line.clone(),
            updated_at: header.created_at.clone(),
            header,
            count: 0,
            context_tokens: 0,
            notices: Vec::new(),
            lossy: false,
        };
        Self::in_memory(inner, path, loaded, None)
    }

    /// What stands before the entries: id, time, working directory.
    pub fn header(&self) -> &Header {
        &self.header
    }

    /// The session.
    pub fn id(&self) -> &glrs_protocol::SessionId {
        &self.header.id
    }

    /// Number of entries; unreadable ones count, they keep their number.
    pub fn len(&self) -> u64 {
        self.count
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Where the log lies, or will.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Whether there is a file of ours for it. A session that nobody said anything in has none;
    /// one that was only read from elsewhere has none of ours yet.
    pub fn saved(&self) -> bool {
        self.stamp.is_some()
    }

    /// Size of the file in bytes.
    pub fn size(&self) -> u64 {
        self.stamp.map_or(0, |s| s.size)
    }

    /// `at` of the last entry.
    pub fn updated_at(&self) -> &str {
        &self.updated_at
    }

    /// Context size after the last `usage`.
    pub fn context_tokens(&self) -> u64 {
        self.context_tokens
    }

    /// What opening dropped, skipped or mended, in words. Record them as notices with the first
    /// append: that append mends the file, so they do not come again.
    pub fn salvage(&self) -> &[String] {
        &self.notices
    }

    /// Where the first write kept what it could not keep in the log: a torn end, or the whole file
    /// as it was.
    pub fn kept_aside(&self) -> Option<&Path> {
        self.kept.as_deref()
    }

    /// Lines that hold no whole entry, as far as opening checked. They stay where they are.
    pub fn bad_lines(&self) -> u64 {
        self.bad
    }

    /// The failure, while the disk fails. Nothing is lost that was appended; every further append,
    /// [`flush`](Self::flush) and sync tries again.
    pub fn disk(&self) -> Option<&DiskError> {
        self.failing.as_ref()
    }

    /// Set once someone else wrote the file: this log takes nothing any more.
    pub fn foreign(&self) -> Option<&Foreign> {
        self.foreign.as_ref()
    }

    /// Whether every entry is known to be on disk.
    pub fn is_durable(&self) -> bool {
        !self.is_unwritten() && !self.dir_unsynced && (self.file.is_none() || self.synced == self.end)
    }

    /// Whether something was appended that is in no file. A log that was only read into memory
    /// stays there: reading writes nothing.
    fn is_unwritten(&self) -> bool {
        if self.file.is_some() { self.written < self.end } else { self.own_from < self.end }
    }

    /// Appends entries, all in one write, and gives the number of the first.
    ///
    /// They count from now on, whatever the disk says: while it fails ([`disk`](Self::disk)) they
    /// are kept in memory and can be read.
    ///
    /// # Errors
    /// When someone else wrote the file; then nothing was added to it, and these entries are among
    /// what was kept aside.
    pub fn append(&mut self, entries: &[Box<RawValue>], context_tokens: Option<u64>) -> Result<u64, Foreign> {
        if let Some(f) = &self.foreign {
            let mut f = f.clone();
            f.unsaved = entries.to_vec();
            f.aside = None;
            return Err(f);
        }
        self.absorb();
        let first = self.count + 1;
        if entries.is_empty() {
            return Ok(first);
        }
        let tail = Arc::make_mut(&mut self.tail);
        let before = tail.len();
        for entry in entries {
            let entry = to_entry(entry.get().as_bytes());
            if self.count > 0 {
                tail.push(b',');
            }
            tail.extend_from_slice(&entry);
            tail.push(b'\n');
            self.count += 1;
            if let Some(at) = json::member(&entry, "at").and_then(json::text)
                && !at.is_empty()
            {
                self.updated_at = at;
            }
        }
        self.end += (tail.len() - before) as u64;
        if let Some(tokens) = context_tokens {
            self.context_tokens = tokens;
        }
        self.put().map(|()| first)
    }

    /// Writes what is not written, and remembers how that went.
    fn put(&mut self) -> Result<(), Foreign> {
        match self.write() {
            Ok(()) => {
                if self.dir_unsynced {
                    self.sync_directory();
                } else if !self.sync_failed {
                    self.failing = None;
                }
            }
            Err(super::write::Refused::Disk(e)) => self.failing = Some(e),
            Err(super::write::Refused::Foreign) => {
                let foreign = self.set_aside();
                self.foreign = Some(foreign.clone());
                return Err(foreign);
            }
        }
        Ok(())
    }

    /// Tries again to write what a failing disk refused.
    ///
    /// # Errors
    /// When it still fails, or someone else wrote the file (see [`foreign`](Self::foreign)).
    pub fn flush(&mut self) -> Result<(), DiskError> {
        self.absorb();
        if let Some(f) = &self.foreign {
            return Err(DiskError { path: self.path.clone(), why: f.to_string() });
        }
        if self.is_unwritten() {
            self.put().map_err(|f| DiskError { path: self.path.clone(), why: f.to_string() })?;
        }
        if self.dir_unsynced {
            self.sync_directory();
        }
        match &self.failing {
            // After a failed sync all is written again; only the next sync can tell.
            Some(_) if self.sync_failed && self.written == self.end && !self.dir_unsynced => Ok(()),
            Some(e) => Err(e.clone()),
            None => Ok(()),
        }
    }

    pub(super) fn sync_directory(&mut self) {
        let dir = self.path.parent().unwrap_or(Path::new(".")).to_owned();
        match self.inner.disk.sync_dir(&dir) {
            Ok(()) => {
                self.dir_unsynced = false;
                if !self.sync_failed && self.written == self.end {
                    self.failing = None;
                }
            }
            Err(e) => {
                self.dir_unsynced = true;
                self.failing = Some(DiskError::new(&dir, &e));
            }
        }
    }

    /// Begins to make durable what was appended; `None` when it is already.
    ///
    /// # Errors
    /// When the disk refuses to take it.
    pub fn begin_sync(&mut self) -> Result<Option<SyncJob>, DiskError> {
        self.flush()?;
        let Some(file) = self.file.clone().filter(|_| self.synced < self.end) else { return Ok(None) };
        Ok(Some(self.inner.pool.sync(file, self.path.clone(), self.written, &self.cell)))
    }

    /// Takes the result of a sync.
    ///
    /// # Errors
    /// When what had been written as it began is not durable.
    pub fn finish_sync(&mut self, done: &SyncDone) -> Result<(), DiskError> {
        self.absorb();
        if self.synced >= done.target {
            return Ok(());
        }
        Err(self.failing.clone().unwrap_or_else(|| DiskError {
            path: self.path.clone(),
            why: "a sync before this one failed; it is tried again".to_owned(),
        }))
    }

    /// Makes everything appended durable. May be dropped at any time: what the disk says is kept.
    ///
    /// # Errors
    /// When it is not durable.
    pub async fn sync(&mut self) -> Result<(), DiskError> {
        match self.begin_sync()? {
            Some(job) => {
                let done = job.wait().await;
                self.finish_sync(&done)
            }
            None => Ok(()),
        }
    }

    /// Takes over what syncs came to since last asked.
    pub(super) fn absorb(&mut self) {
        match self.cell.take() {
            Ok(reached) if reached > self.synced => {
                self.synced = reached;
                self.sync_failed = false;
                if self.written == self.end && !self.dir_unsynced {
                    self.failing = None;
                }
                self.forget_synced();
            }
            Ok(_) => {}
            Err(e) => {
                self.failing = Some(DiskError::new(&self.path, &e));
                self.sync_failed = true;
                self.recall_unsynced();
                self.written = self.tail_base;
            }
        }
    }

    /// Drops from memory what the disk has.
    pub(super) fn forget_synced(&mut self) {
        let n = self.synced.min(self.written).saturating_sub(self.tail_base);
        if n == 0 {
            return;
        }
        self.tail_base += n;
        let n = usize::try_from(n).unwrap_or(usize::MAX).min(self.tail.len());
        if n == self.tail.len() {
            self.tail = Arc::default();
        } else {
            Arc::make_mut(&mut self.tail).drain(..n);
        }
    }

    /// After a failed sync: gets back into memory what was written before this log was opened and
    /// never synced, while the kernel still has it, so that it can be written again, too.
    fn recall_unsynced(&mut self) {
        let (from, to) = (self.synced.max(self.start), self.tail_base);
        if let Some(file) = self.file.as_ref().filter(|_| from < to)
            && let Ok(mut bytes) = disk::read_range(file, from, usize::try_from(to - from).unwrap_or(usize::MAX))
        {
            bytes.extend_from_slice(&self.tail);
            self.tail = Arc::new(bytes);
            self.tail_base = from;
        }
    }

    pub(super) fn trailer_now(&self, synced: u64) -> Vec<u8> {
        Trailer {
            updated_at: self.updated_at.clone(),
            context_tokens: self.context_tokens,
            entries: self.count,
            synced: synced.max(self.start),
        }
        .to_bytes()
    }

    /// A snapshot to read from elsewhere.
    pub fn reader(&self) -> LogReader {
        let in_memory = self.written < self.end;
        LogReader {
            header: self.header.clone(),
            path: self.path.clone(),
            file: self.file.clone(),
            start: self.start,
            written: self.written,
            tail: if in_memory { self.tail.clone() } else { Arc::default() },
            tail_base: self.tail_base,
            end: self.end,
            count: self.count,
            index: self.index.clone(),
        }
    }

    /// See [`LogReader::read`].
    ///
    /// # Errors
    /// When the file cannot be read.
    pub fn read(&self, from: u64, limit: usize, max_bytes: usize) -> Result<Vec<NumberedEntry>, DiskError> {
        self.reader().read(from, limit, max_bytes)
    }

    /// See [`LogReader::tail`].
    ///
    /// # Errors
    /// When the file cannot be read.
    pub fn tail(&self, limit: usize, max_bytes: usize) -> Result<Vec<NumberedEntry>, DiskError> {
        self.reader().tail(limit, max_bytes)
    }

    /// See [`LogReader::entry`].
    ///
    /// # Errors
    /// When the file cannot be read.
    pub fn entry(&self, n: u64) -> Result<Option<Box<RawValue>>, DiskError> {
        self.reader().entry(n)
    }

    /// See [`LogReader::scan`].
    ///
    /// # Errors
    /// When the file cannot be read.
    pub fn scan(&self, each: &mut dyn FnMut(u64, &str)) -> Result<u64, DiskError> {
        self.reader().scan(each)
    }
}
