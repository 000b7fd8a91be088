//! The daemon's own log file: appended, rotated, bounded.
//!
//! Owns `glrsd.log` and its one predecessor `glrsd.log.1`: together at most 10 MiB. What cannot be
//! written is dropped: a full disk must not stop the daemon for its log's sake.

use super::{DiskError, Store};
use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard, PoisonError};
use tracing_subscriber::fmt::MakeWriter;

/// Size at which the file is set aside.
const MAX: u64 = 5 * 1024 * 1024;

struct Open {
    file: File,
    size: u64,
    path: PathBuf,
}

/// The log, as a writer for tracing.
pub struct DaemonLog(Mutex<Open>);

/// The log, locked for one line.
pub struct Line<'a>(MutexGuard<'a, Open>);

fn open(path: &std::path::Path) -> io::Result<(File, u64)> {
    let file = OpenOptions::new().append(true).create(true).mode(0o600).open(path)?;
    let size = file.metadata()?.len();
    Ok((file, size))
}

impl DaemonLog {
    /// Opens the log of a data directory.
    ///
    /// # Errors
    /// When the file cannot be opened.
    pub fn open(store: &Store) -> Result<Self, DiskError> {
        let path = store.paths().daemon_log();
        let (file, size) = open(&path).map_err(|e| DiskError::new(&path, &e))?;
        Ok(Self(Mutex::new(Open { file, size, path })))
    }
}

impl<'a> MakeWriter<'a> for DaemonLog {
    type Writer = Line<'a>;

    fn make_writer(&'a self) -> Line<'a> {
        Line(self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Write for Line<'_> {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        let log = &mut *self.0;
        if log.size > MAX {
            // If it cannot be set aside it goes on growing by what comes: better than no log.
            let _ = std::fs::rename(&log.path, log.path.with_extension("log.1"));
            if let Ok((file, size)) = open(&log.path) {
                log.file = file;
                log.size = size;
            }
        }
        let n = log.file.write(buf)?;
        log.size += n as u64;
        Ok(n)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_bounded() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("glrsd.log");
        let (file, size) = open(&path).unwrap();
        let log = DaemonLog(Mutex::new(Open { file, size, path: path.clone() }));
        let line = vec![b'x'; 1 << 20];
        for _ in 0..20 {
            log.make_writer().write_all(&line).unwrap();
        }
        let total: u64 = std::fs::read_dir(dir.path()).unwrap().map(|e| e.unwrap().metadata().unwrap().len()).sum();
        assert!(total <= 2 * (MAX + (2 << 20)), "{total}");
        assert!(path.exists() && dir.path().join("glrsd.log.1").exists());
    }
}
