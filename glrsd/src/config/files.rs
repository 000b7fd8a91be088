//! Reading one file from disk that a checkout may have put there.
//!
//! Owns what a file may be: regular, of bounded size (a configuration has at most 1 MiB), and, for a
//! project's, inside the project. Must not know keys.

use std::fs::{File, OpenOptions};
use std::io::{ErrorKind, Read as _};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::Path;

/// Largest file that is read (1 MiB): what is larger is no configuration.
pub(super) const MAX_BYTES: u64 = 1024 * 1024;

/// What was found.
#[derive(Debug, PartialEq)]
pub enum Found {
    /// Nothing there.
    Absent,
    /// The bytes.
    Bytes(Vec<u8>),
    /// Something there that is not read; why.
    Refused(String),
}

/// Reads a file. With `inside`, a link that leads out of that directory is refused: a checkout
/// must not make the daemon read what its author could not put there.
pub(super) fn read(path: &Path, inside: Option<&Path>) -> Found {
    match read_head(path, inside, MAX_BYTES) {
        Found::Bytes(bytes) if bytes.len() as u64 > MAX_BYTES => Found::Refused("larger than 1 MiB".to_owned()),
        found => found,
    }
}

/// The same for a file that may be longer: at most one byte more than `most` is read, which tells
/// that there is more.
pub fn read_head(path: &Path, inside: Option<&Path>, most: u64) -> Found {
    let nothing = |e: &std::io::Error| matches!(e.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory);
    // Most files that are looked for are not there: that takes one look.
    if path.symlink_metadata().is_err_and(|e| nothing(&e)) {
        return Found::Absent;
    }
    let real = match path.canonicalize() {
        Ok(real) => real,
        Err(e) if nothing(&e) => return Found::Refused("a link to nothing".to_owned()),
        Err(e) => return Found::Refused(format!("cannot be read: {e}")),
    };
    if inside.is_some_and(|root| !real.starts_with(root)) {
        return Found::Refused("a link that leads out of the project".to_owned());
    }
    // Without O_NONBLOCK, opening a named pipe waits for a writer.
    let flags = rustix::fs::OFlags::NONBLOCK.bits().cast_signed();
    let file = match OpenOptions::new().read(true).custom_flags(flags).open(&real) {
        Ok(file) => file,
        Err(e) if e.kind() == ErrorKind::NotFound => return Found::Absent,
        Err(e) => return Found::Refused(format!("cannot be read: {e}")),
    };
    contents(file, most).unwrap_or_else(|e| Found::Refused(format!("cannot be read: {e}")))
}

fn contents(file: File, most: u64) -> std::io::Result<Found> {
    if !file.metadata()?.is_file() {
        return Ok(Found::Refused("not a regular file".to_owned()));
    }
    let mut bytes = Vec::new();
    file.take(most.saturating_add(1)).read_to_end(&mut bytes)?;
    Ok(Found::Bytes(bytes))
}

/// What tells whether a file is still the one that was read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Stamp {
    file: (u64, u64),
    size: u64,
    mtime: (i64, i64),
    ctime: (i64, i64),
}

/// The stamp of a file as it is now; a link's is that of what it leads to. Absent files have none.
/// A dangling link has its own, so that making it is noticed.
pub(super) fn stamp(path: &Path) -> Option<Stamp> {
    // Most are plain files or absent, and both take one look.
    let mut meta = path.symlink_metadata().ok()?;
    if meta.is_symlink() {
        meta = path.metadata().unwrap_or(meta);
    }
    Some(Stamp {
        file: (meta.dev(), meta.ino()),
        size: meta.size(),
        mtime: (meta.mtime(), meta.mtime_nsec()),
        ctime: (meta.ctime(), meta.ctime_nsec()),
    })
}
