//! Opening a session's file: what is whole in it, and what has to be mended at the next write.
//!
//! Owns the reading of trailer and header, the check of what may not have reached the disk, and
//! the decision between our layout and others. It writes nothing, ever.

use super::disk::{Stamp, open_regular, read_range};
use super::error::LoadError;
use super::foreign::{self, HOLE, Loaded, Unreadable};
use super::json;
use super::layout::{HEADER, Header, TRAILER, Trailer, whole_entry_in};
use super::lines::{Backward, Forward};
use glrs_protocol::SessionId;
use memchr::memmem;
use std::fs::File;
use std::io;
use std::path::Path;

/// A header line longer than this is not looked for.
const HEADER_MAX: u64 = 64 * 1024 * 1024;
/// Files up to this size are checked whole: that costs a millisecond or two and finds what was
/// damaged long after it was synced.
const CHECK_WHOLE: u64 = 1024 * 1024;
/// Up to this size a file with damage among its newest lines is mended whole, in memory.
const MEND_MAX: u64 = 64 * 1024 * 1024;
/// Bytes at the end in which the trailer is looked for; one of ours has at most some 150.
const TRAILER_MAX: u64 = 4096;

/// A file in our layout.
#[derive(Debug)]
pub(crate) struct Ours {
    pub(crate) file: File,
    /// Whether the file was opened for writing, too.
    pub(crate) writable: bool,
    pub(crate) stamp: Stamp,
    pub(crate) header: Header,
    /// Offset of the first entry line.
    pub(crate) start: u64,
    /// Offset behind the last entry line that counts.
    pub(crate) end: u64,
    pub(crate) count: u64,
    /// Lines that hold no whole entry but keep their number, as far as they were checked.
    pub(crate) bad: u64,
    /// Whether such lines, with whole entries behind them, stand where the file is not known to be
    /// on disk: a later page got there without an earlier one.
    unsettled_holes: bool,
    /// How far the file is known to be on disk.
    pub(crate) synced: u64,
    pub(crate) updated_at: String,
    pub(crate) context_tokens: u64,
    /// The trailer as it stands at `end`; empty when there is none.
    pub(crate) trailer: Vec<u8>,
    /// Bytes that are cut off at the next write.
    pub(crate) cut: Option<(u64, u64)>,
    /// Whether those bytes may hold words, and so are kept aside first.
    pub(crate) keep_cut: bool,
    pub(crate) notices: Vec<String>,
}

/// What a file turned out to be.
#[derive(Debug)]
pub(crate) enum Opened {
    /// Our layout: entries stay in the file.
    Ours(Box<Ours>),
    /// Another layout: entries are in memory.
    Foreign(Box<Loaded>, Stamp),
}

/// Opens a session's file.
pub(crate) fn open(path: &Path, id: &SessionId, write: bool) -> Result<Opened, LoadError> {
    let disk = |e: io::Error| match e.kind() {
        io::ErrorKind::NotFound if path.symlink_metadata().is_err() => LoadError::NotFound,
        io::ErrorKind::NotFound => LoadError::Broken { why: "it is a link to a file that is not there".to_owned() },
        io::ErrorKind::InvalidInput => LoadError::Broken { why: e.to_string() },
        _ => LoadError::Disk { path: path.to_owned(), why: e.to_string() },
    };
    // A file that may be read but not written can still be shown; its writes will say why not.
    let (file, stamp, writable) = match open_regular(path, write) {
        Ok((file, stamp)) => (file, stamp, write),
        Err(e) if write && matches!(e.kind(), io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem) => {
            let (file, stamp) = open_regular(path, false).map_err(disk)?;
            (file, stamp, false)
        }
        Err(e) => return Err(disk(e)),
    };
    let file = match ours(file, stamp, writable, id).map_err(disk)? {
        Ok(ours) if ours.unsettled_holes && ours.end <= MEND_MAX => {
            return Ok(Opened::Foreign(Box::new(ours.mended().map_err(disk)?), stamp));
        }
        Ok(ours) => return Ok(Opened::Ours(Box::new(ours))),
        Err(file) => file,
    };
    let bytes = read_range(&file, 0, usize::try_from(stamp.size).unwrap_or(usize::MAX)).map_err(disk)?;
    match foreign::load(&bytes, id) {
        Ok(loaded) => Ok(Opened::Foreign(Box::new(loaded), stamp)),
        Err(Unreadable::Broken(why)) => Err(LoadError::Broken { why }),
        Err(Unreadable::Newer(schema)) => Err(LoadError::NewerSchema { schema }),
    }
}

/// Reads a file as our layout; gives it back when it is none.
fn ours(file: File, stamp: Stamp, writable: bool, id: &SessionId) -> io::Result<Result<Ours, File>> {
    let size = stamp.size;
    let head = read_range(&file, 0, usize::try_from(size.min(64)).unwrap_or(0))?;
    if !Header::is_ours(&head) {
        return Ok(Err(file));
    }
    let mut first = Forward::new(&file, 0, size.min(HEADER_MAX));
    let header = match first.next()? {
        Some(line) if line.ended => Header::parse(&[line.bytes, b"\n"].concat(), id),
        _ => None,
    };
    let Some(header) = header else { return Ok(Err(file)) };
    let start = header.line.len() as u64;
    let mut ours = Ours {
        writable,
        stamp,
        start,
        end: start,
        count: 0,
        bad: 0,
        unsettled_holes: false,
        synced: start,
        updated_at: String::new(),
        context_tokens: 0,
        trailer: Vec::new(),
        cut: None,
        keep_cut: false,
        notices: Vec::new(),
        header,
        file,
    };
    let usable = match trailer(&ours.file, start, size)? {
        Some(found) => ours.check_with_trailer(found)?,
        None => ours.check_without_trailer()?,
    };
    Ok(if usable { Ok(ours) } else { Err(ours.file) })
}

/// A trailer, where it starts, and where the bytes that belong to it end.
struct Found {
    trailer: Trailer,
    at: u64,
    bytes: Vec<u8>,
    nuls: u64,
}

fn trailer(file: &File, start: u64, size: u64) -> io::Result<Option<Found>> {
    // NUL bytes behind it (a power loss after the file grew) may be many: find the real end.
    let mut end = size;
    let mut nuls = 0;
    while end > start {
        let from = end.saturating_sub(64 * 1024).max(start);
        let part = read_range(file, from, usize::try_from(end - from).unwrap_or(0))?;
        let zero = part.iter().rev().take_while(|c| **c == 0).count() as u64;
        nuls += zero;
        end -= zero;
        if zero < part.len() as u64 {
            break;
        }
    }
    let from = end.saturating_sub(TRAILER_MAX).max(start);
    let part = read_range(file, from, usize::try_from(end - from).unwrap_or(0))?;
    let Some(i) = memmem::rfind(&part, TRAILER) else { return Ok(None) };
    let at = from + i as u64;
    if at > start && (i == 0 || part[i - 1] != b'\n') {
        return Ok(None);
    }
    let bytes = part[i..].trim_ascii_end().to_vec();
    Ok(Trailer::parse(&bytes).map(|trailer| Found { trailer, at, bytes, nuls }))
}

impl Ours {
    fn check_with_trailer(&mut self, found: Found) -> io::Result<bool> {
        let (t, size) = (found.trailer, self.stamp.size);
        self.updated_at = t.updated_at;
        self.context_tokens = t.context_tokens;
        self.end = found.at;
        self.trailer = found.bytes;
        let known = t.synced >= self.start
            && t.synced <= found.at
            && read_range(&self.file, t.synced - 1, 1)?.first() == Some(&b'\n');
        self.synced = if known { t.synced } else { self.start };
        let whole = !known || size <= CHECK_WHOLE;
        let from = if whole { self.start } else { self.synced };
        let seen = self.walk(from, found.at)?;
        if seen.glued {
            return Ok(false);
        }
        self.bad = seen.bad;
        // A mark that does not fit is damage of another kind, and for `check --repair`.
        self.unsettled_holes = known && seen.inside;
        self.count = if whole { seen.lines } else { t.entries.max(seen.lines) };
        if seen.good_end < found.at && self.synced < found.at {
            // The last lines never reached the disk whole.
            let keep = seen.good_end.max(self.synced).max(self.start);
            let dropped = seen.lines_behind(keep);
            self.count -= dropped.min(self.count);
            self.bad -= dropped.min(self.bad);
            if self.count == 0 {
                return Ok(false);
            }
            self.cut_at(keep, size, true);
            self.notices.push(format!("The last {dropped} lines of the file were damaged; they are kept beside it."));
        }
        if found.nuls > 0 {
            self.notices
                .push(format!("The file ended in {} NUL bytes, as after a power loss; they were dropped.", found.nuls));
        }
        let bare = self.end + self.trailer.len() as u64;
        if self.cut.is_none() && bare < size {
            self.cut = Some((bare, size));
        }
        if self.bad > 0 {
            tracing::debug!(session = %self.header.id, bad = self.bad, "lines that hold no whole entry");
        }
        Ok(true)
    }

    fn check_without_trailer(&mut self) -> io::Result<bool> {
        let size = self.stamp.size;
        let seen = self.walk(self.start, size)?;
        let keep = seen.good_end.max(self.start);
        self.count = seen.lines - seen.lines_behind(keep);
        self.bad = seen.bad - seen.lines_behind(keep).min(seen.bad);
        self.unsettled_holes = seen.inside;
        if self.count == 0 || seen.glued {
            return Ok(false);
        }
        let rest = read_range(&self.file, keep, usize::try_from(size - keep).unwrap_or(usize::MAX))?;
        let text = rest.iter().rposition(|c| *c != 0).map_or(&rest[..0], |i| &rest[..=i]).trim_ascii();
        // A whole document behind ours, or an end with members that are not ours: read as others'.
        if memmem::find(text, b"{\"schema\"").is_some() || (text.starts_with(b"]") && text.ends_with(b"}")) {
            return Ok(false);
        }
        self.updated_at = self.last_at(keep)?;
        if !rest.is_empty() {
            let torn_trailer = TRAILER.starts_with(text) || text.starts_with(TRAILER);
            self.cut_at(keep, size, !torn_trailer && !text.is_empty());
            if text.len() < rest.len() {
                let nuls = rest.iter().filter(|c| **c == 0).count();
                self.notices
                    .push(format!("The file ended in {nuls} NUL bytes, as after a power loss; they were dropped."));
            }
            if self.keep_cut {
                self.notices.push(format!(
                    "The end of the file was torn after entry {}: {} bytes that are no whole entry are kept beside it.",
                    self.count,
                    text.len()
                ));
            }
        } else {
            self.notices.push(format!(
                "The file ended without its last line, after entry {}: later ones may be lost.",
                self.count
            ));
        }
        self.end = keep;
        Ok(true)
    }

    fn cut_at(&mut self, end: u64, size: u64, keep: bool) {
        self.cut = Some((end, size));
        self.keep_cut = keep;
        self.end = end;
        self.trailer = Vec::new();
    }

    /// Checks the lines in `[from, to)`.
    fn walk(&self, from: u64, to: u64) -> io::Result<Seen> {
        let mut seen = Seen { good_end: from, ..Seen::default() };
        let mut lines = Forward::new(&self.file, from, to);
        while let Some(line) = lines.next()? {
            if !line.ended {
                break;
            }
            seen.lines += 1;
            if whole_entry_in(line.bytes).is_some() {
                seen.good_end = line.end();
                seen.inside |= seen.lines_behind(self.synced) > 0;
                seen.behind.clear();
            } else {
                seen.bad += 1;
                seen.glued |= memmem::find(line.bytes, HEADER).is_some();
                // Only the run of bad lines at the end matters, and only while it may be cut.
                seen.behind.push(line.at);
            }
        }
        Ok(seen)
    }

    /// The file in memory, with a notice under the number of each line that holds no whole entry;
    /// the first append writes it so, and keeps the file as it was. Left in place, such lines would
    /// make it no JSON for as long as it is appended to.
    fn mended(self) -> io::Result<Loaded> {
        let mut body = self.header.line.clone();
        let mut count = 0;
        let mut lines = Forward::new(&self.file, self.start, self.end);
        while let Some(line) = lines.next()? {
            count += 1;
            if count > 1 {
                body.push(b',');
            }
            body.extend_from_slice(whole_entry_in(line.bytes).unwrap_or(HOLE));
            body.push(b'\n');
        }
        let mut notices = self.notices;
        notices.push(format!("{} damaged lines could not be read; the file as it was is kept beside it.", self.bad));
        Ok(Loaded {
            header: self.header,
            body,
            count,
            updated_at: self.updated_at,
            context_tokens: self.context_tokens,
            notices,
            lossy: true,
        })
    }

    /// The `at` of the last whole entry before `end`.
    fn last_at(&self, end: u64) -> io::Result<String> {
        let mut back = Backward::new(&self.file, self.start, end);
        while let Some(line) = back.next()? {
            if let Some(entry) = whole_entry_in(line.bytes) {
                return Ok(json::member(entry, "at").and_then(json::text).unwrap_or_default());
            }
        }
        Ok(String::new())
    }
}

/// What a walk over lines found.
#[derive(Default)]
struct Seen {
    lines: u64,
    bad: u64,
    /// Whether a document starts inside a line: the whole one is chosen elsewhere.
    glued: bool,
    /// Whether a bad line that may not have reached the disk has a whole entry behind it.
    inside: bool,
    /// Behind the last whole entry.
    good_end: u64,
    /// Where the bad lines behind it start.
    behind: Vec<u64>,
}

impl Seen {
    fn lines_behind(&self, offset: u64) -> u64 {
        self.behind.iter().filter(|at| **at >= offset).count() as u64
    }
}
