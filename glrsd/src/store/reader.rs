//! Reading a log's entries: by number, from the end, or all of them in order.
//!
//! Owns [`LogReader`], a cheap snapshot that can be used outside the session: bytes of entries
//! that it covers never change. Must not know what entries mean.

use super::error::DiskError;
use super::json;
use super::layout::{ENTRY, Header, entry_in};
use super::lines::{Backward, Bytes, Forward, Line};
use super::pool::lock;
use glrs_protocol::types::NumberedEntry;
use serde_json::value::RawValue;
use std::borrow::Cow;
use std::fs::File;
use std::io;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};

/// Every so many lines the index has a mark.
const MARK: u64 = 64;
/// From the end backwards, so many lines are cheaper to walk than an index is to build.
const NEAR_END: u64 = 256;

/// Where lines start: marks at every [`MARK`]th line, as far as anyone has walked.
#[derive(Debug, Default)]
pub(crate) struct Index {
    /// `marks[i]` is the offset of line `(i + 1) * MARK`, lines counted from 0.
    marks: Vec<u64>,
}

/// A snapshot of a log that can be read from anywhere.
#[derive(Clone, Debug)]
pub struct LogReader {
    pub(crate) header: Arc<Header>,
    pub(crate) path: PathBuf,
    pub(crate) file: Option<Arc<File>>,
    /// Offset of the first entry line.
    pub(crate) start: u64,
    /// Bytes before this are read from the file, the others from `tail`.
    pub(crate) written: u64,
    pub(crate) tail: Arc<Vec<u8>>,
    /// Offset of `tail[0]`.
    pub(crate) tail_base: u64,
    /// Offset behind the last entry line.
    pub(crate) end: u64,
    pub(crate) count: u64,
    pub(crate) index: Arc<Mutex<Index>>,
}

impl Bytes for LogReader {
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        let from_file = usize::try_from(self.written.saturating_sub(offset)).unwrap_or(usize::MAX).min(buf.len());
        let (a, b) = buf.split_at_mut(from_file);
        if !a.is_empty() {
            match &self.file {
                Some(file) => file.read_at(offset, a)?,
                None => return Err(io::ErrorKind::UnexpectedEof.into()),
            }
        }
        if !b.is_empty() {
            self.tail.as_slice().read_at(offset + from_file as u64 - self.tail_base, b)?;
        }
        Ok(())
    }
}

/// The entry in a line as text; what is no UTF-8 becomes U+FFFD.
fn text_in<'a>(line: &Line<'a>) -> Option<Cow<'a, str>> {
    entry_in(line.bytes).map(json::utf8)
}

/// The entry in a line as a value, when it is whole.
fn value_in(line: &Line<'_>) -> Option<Box<RawValue>> {
    RawValue::from_string(text_in(line)?.into_owned()).ok()
}

impl LogReader {
    /// Number of entries, unreadable ones included.
    pub fn len(&self) -> u64 {
        self.count
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// What stands before the entries.
    pub fn header(&self) -> &Header {
        &self.header
    }

    fn err(&self, e: &io::Error) -> DiskError {
        DiskError::new(&self.path, e)
    }

    /// Where the line of entry `n` starts; of `len() + 1`, where the last one ends.
    pub(crate) fn offset_of(&self, n: u64) -> io::Result<u64> {
        let line = n.saturating_sub(1).min(self.count);
        if line == self.count {
            return Ok(self.end);
        }
        let behind = self.count - line;
        if behind <= NEAR_END {
            let mut back = Backward::new(self, self.start, self.end);
            let mut at = self.end;
            for _ in 0..behind {
                match back.next()? {
                    Some(l) => at = l.at,
                    None => break,
                }
            }
            return Ok(at);
        }
        let (mut at, mut seen) = {
            let index = lock(&self.index);
            let mark = (line / MARK).min(index.marks.len() as u64);
            match mark.checked_sub(1).and_then(|i| index.marks.get(usize::try_from(i).ok()?)) {
                Some(offset) => (*offset, mark * MARK),
                None => (self.start, 0),
            }
        };
        let mut forward = Forward::new(self, at, self.end);
        while seen < line {
            let Some(l) = forward.next()? else { break };
            at = l.end();
            seen += 1;
            if seen.is_multiple_of(MARK) {
                let mut index = lock(&self.index);
                if index.marks.len() as u64 + 1 == seen / MARK {
                    index.marks.push(at);
                }
            }
        }
        Ok(at)
    }

    /// Entries from number `from` on: at most `limit`, and no more once they have `max_bytes`
    /// (but at least one). Entries that cannot be read are left out; the others keep their number.
    ///
    /// # Errors
    /// When the file cannot be read.
    pub fn read(&self, from: u64, limit: usize, max_bytes: usize) -> Result<Vec<NumberedEntry>, DiskError> {
        let mut n = from.max(1);
        let mut out = Vec::new();
        if n > self.count || limit == 0 {
            return Ok(out);
        }
        let at = self.offset_of(n).map_err(|e| self.err(&e))?;
        let mut lines = Forward::new(self, at, self.end);
        let mut bytes = 0usize;
        while let Some(line) = lines.next().map_err(|e| self.err(&e))? {
            if out.len() >= limit || (bytes.saturating_add(line.bytes.len()) > max_bytes && !out.is_empty()) {
                break;
            }
            if let Some(entry) = value_in(&line) {
                bytes += line.bytes.len();
                out.push(NumberedEntry { n, entry });
            }
            n += 1;
        }
        Ok(out)
    }

    /// The last entries, in order: at most `limit`, and no more once they have `max_bytes` (but
    /// at least one). Read backwards: the cost does not depend on the file.
    ///
    /// # Errors
    /// When the file cannot be read.
    pub fn tail(&self, limit: usize, max_bytes: usize) -> Result<Vec<NumberedEntry>, DiskError> {
        let mut out = Vec::new();
        let mut bytes = 0usize;
        let mut n = self.count;
        let mut back = Backward::new(self, self.start, self.end);
        while out.len() < limit && n > 0 {
            let Some(line) = back.next().map_err(|e| self.err(&e))? else { break };
            if bytes.saturating_add(line.bytes.len()) > max_bytes && !out.is_empty() {
                break;
            }
            if let Some(entry) = value_in(&line) {
                bytes += line.bytes.len();
                out.push(NumberedEntry { n, entry });
            }
            n -= 1;
        }
        out.reverse();
        Ok(out)
    }

    /// Entry `n`, if there is one and it can be read.
    ///
    /// # Errors
    /// When the file cannot be read.
    pub fn entry(&self, n: u64) -> Result<Option<Box<RawValue>>, DiskError> {
        if n == 0 || n > self.count {
            return Ok(None);
        }
        let at = self.offset_of(n).map_err(|e| self.err(&e))?;
        let mut lines = Forward::new(self, at, self.end);
        Ok(lines.next().map_err(|e| self.err(&e))?.and_then(|l| value_in(&l)))
    }

    /// Hands out every entry in order, with its number, as it stands. What is inside is not
    /// checked. Returns how many lines held no entry and were left out.
    ///
    /// # Errors
    /// When the file cannot be read.
    pub fn scan(&self, each: &mut dyn FnMut(u64, &str)) -> Result<u64, DiskError> {
        let mut lines = Forward::new(self, self.start, self.end);
        let (mut n, mut bad) = (0, 0);
        while let Some(line) = lines.next().map_err(|e| self.err(&e))? {
            n += 1;
            match text_in(&line) {
                Some(text) => each(n, &text),
                None => bad += 1,
            }
        }
        Ok(bad)
    }

    /// The context size that the last `usage` at or before entry `n` names.
    pub(crate) fn tokens_at(&self, n: u64) -> io::Result<u64> {
        let mut back = Backward::new(self, self.start, self.offset_of(n + 1)?);
        while let Some(line) = back.next()? {
            if let Some(entry) = entry_in(line.bytes)
                && entry[ENTRY.len()..].starts_with(b"usage\"")
                && let Some(tokens) = json::member(entry, "tokens")
            {
                return Ok(glrs_protocol::entry::parse_count(&json::utf8(tokens)).unwrap_or(0));
            }
        }
        Ok(0)
    }
}
