//! How a log's bytes get into its file.
//!
//! Owns the three ways: over the old trailer of a file that is open, as a whole new file under a
//! temporary name, and aside when the file is no longer ours. Must not know what entries mean.

use super::disk::{Stamp, open_regular, read_range};
use super::error::{DiskError, Foreign};
use super::layout::entry_in;
use super::log::Log;
use crate::host::clock;
use serde_json::value::RawValue;
use std::ffi::OsString;
use std::fs;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Why bytes were not written.
pub(super) enum Refused {
    Disk(DiskError),
    Foreign,
}

/// A free name beside `path`: `<path>.<kind>-<time>`.
pub(super) fn beside(path: &Path, kind: &str) -> PathBuf {
    let time: String = clock::now().chars().filter(|c| !matches!(c, '-' | ':')).collect();
    let named = |n: u32| {
        let mut name: OsString = path.as_os_str().to_owned();
        name.push(format!(".{kind}-{time}"));
        if n > 0 {
            name.push(format!("-{n}"));
        }
        PathBuf::from(name)
    };
    (0..1000).map(named).find(|p| p.symlink_metadata().is_err()).unwrap_or_else(|| named(1000))
}

impl Log {
    fn refused(&self, e: &io::Error) -> Refused {
        Refused::Disk(DiskError::new(&self.path, e))
    }

    /// Writes what is not written, by whichever way fits.
    pub(super) fn write(&mut self) -> Result<(), Refused> {
        match fs::metadata(&self.path) {
            Ok(m) if Some(Stamp::of(&m)) == self.stamp => {}
            Ok(_) => return Err(Refused::Foreign),
            // Someone removed the file of a session that lives: it is made again, whole.
            Err(e) if e.kind() == ErrorKind::NotFound && self.stamp.is_some() => {
                self.take_into_memory().map_err(|e| self.refused(&e))?;
            }
            Err(e) if e.kind() == ErrorKind::NotFound => {}
            Err(e) => return Err(self.refused(&e)),
        }
        if self.file.is_none() {
            return self.publish();
        }
        let result = self.write_in_place();
        if let Err(e) = result {
            self.undo();
            // Nothing since the last good sync is taken for granted any more.
            self.written = self.tail_base;
            return Err(self.refused(&e));
        }
        Ok(())
    }

    /// One write of the new lines and a new trailer, over the old trailer only.
    fn write_in_place(&mut self) -> io::Result<()> {
        let Some(mut file) = self.file.clone() else { return Ok(()) };
        if !self.writable {
            let (again, stamp) = open_regular(&self.path, true)?;
            file = Arc::new(again);
            self.file = Some(file.clone());
            self.stamp = Some(stamp);
            self.writable = true;
        }
        if let Some((from, to)) = self.cut.filter(|_| self.keep_cut) {
            let bytes = read_range(&file, from, usize::try_from(to - from).unwrap_or(usize::MAX))?;
            // Tried again under the same name, if its directory could not be synced.
            let aside = self.kept.get_or_insert_with(|| beside(&self.path, "torn"));
            self.inner.disk.put(aside, &bytes)?;
            self.keep_cut = false;
        }
        let trailer = self.trailer_now(self.synced);
        let fresh = usize::try_from(self.written - self.tail_base).unwrap_or(usize::MAX);
        let mut bytes = self.tail.get(fresh..).unwrap_or_default().to_vec();
        bytes.extend_from_slice(&trailer);
        self.inner.disk.write_at(&file, &self.path, &bytes, self.written)?;
        let size = self.end + trailer.len() as u64;
        let mut left = file.metadata()?;
        if left.len() > size {
            self.inner.disk.set_len(&file, &self.path, size)?;
            left = file.metadata()?;
        }
        self.cut = None;
        self.written = self.end;
        self.trailer_at = self.end;
        self.trailer = trailer;
        self.stamp = Some(Stamp::of(&left));
        Ok(())
    }

    /// After a failed write: puts the old trailer back and cuts what is behind it, as far as the
    /// disk lets us. If it does not, opening salvages, and memory has everything anyway.
    fn undo(&mut self) {
        let Some(file) = self.file.clone() else { return };
        if !self.keep_cut && self.writable {
            let disk = &self.inner.disk;
            let _ = disk.write_at(&file, &self.path, &self.trailer, self.trailer_at);
            let _ = disk.set_len(&file, &self.path, self.trailer_at + self.trailer.len() as u64);
        }
        if let Ok(m) = file.metadata() {
            self.stamp = Some(Stamp::of(&m));
        }
    }

    /// Writes the whole log under a temporary name, syncs it and gives it its name.
    fn publish(&mut self) -> Result<(), Refused> {
        let trailer = self.trailer_now(self.end);
        let disk = self.inner.disk.clone();
        // A link to the file stays one: what it points to is replaced.
        let path = fs::canonicalize(&self.path).unwrap_or_else(|_| self.path.clone());
        let dir = path.parent().unwrap_or(Path::new(".")).to_owned();
        let aside = self.keep_original.then(|| beside(&self.path, "torn"));
        let made = (|| {
            disk.make_dir(&dir)?;
            let temp = disk.temp(&dir)?;
            disk.write_at(temp.as_file(), &path, &self.tail, 0)?;
            disk.write_at(temp.as_file(), &path, &trailer, self.end)?;
            if let Some(aside) = &aside {
                disk.link(&path, aside)?;
            }
            disk.publish(temp, &path, self.stamp.is_some())
        })();
        if let (Err(_), Some(aside)) = (&made, &aside) {
            // The file as it was still has its own name.
            let _ = disk.unlink(aside);
        }
        let file = match made {
            Ok(file) => file,
            Err(e) if e.kind() == ErrorKind::AlreadyExists && self.stamp.is_none() => return Err(Refused::Foreign),
            Err(e) => return Err(self.refused(&e)),
        };
        self.stamp = file.metadata().ok().map(|m| Stamp::of(&m));
        self.file = Some(Arc::new(file));
        self.writable = true;
        self.keep_original = false;
        self.kept = aside.or(self.kept.take());
        self.sync_failed = false;
        (self.written, self.synced, self.trailer_at) = (self.end, self.end, self.end);
        self.trailer = trailer;
        // Syncs of a file that had this name before say nothing of this one.
        self.cell = Arc::default();
        self.forget_synced();
        self.failing = None;
        self.sync_directory();
        match &self.failing {
            Some(e) => Err(Refused::Disk(e.clone())),
            None => Ok(()),
        }
    }

    /// Gets the whole log into memory, from the handle that is still open.
    fn take_into_memory(&mut self) -> io::Result<()> {
        if let Some(file) = &self.file {
            let mut bytes = read_range(file, 0, usize::try_from(self.tail_base).unwrap_or(usize::MAX))?;
            bytes.extend_from_slice(&self.tail);
            self.tail = Arc::new(bytes);
            self.tail_base = 0;
        }
        self.file = None;
        self.stamp = None;
        (self.written, self.synced) = (0, 0);
        self.cut = None;
        self.keep_original = false;
        Ok(())
    }

    /// Keeps our unsaved part aside, one entry per line.
    pub(super) fn set_aside(&mut self) -> Foreign {
        let from = usize::try_from(self.own_from.saturating_sub(self.tail_base)).unwrap_or(usize::MAX);
        let unsaved = self.tail.get(from..).unwrap_or_default();
        let entries: Vec<&[u8]> = unsaved.split(|c| *c == b'\n').filter_map(entry_in).collect();
        let mut foreign = Foreign { path: self.path.clone(), aside: None, unsaved: Vec::new() };
        if entries.is_empty() {
            return foreign;
        }
        foreign.unsaved = entries
            .iter()
            .filter_map(|e| RawValue::from_string(String::from_utf8_lossy(e).into_owned()).ok())
            .collect();
        let mut bytes = entries.join(&b'\n');
        bytes.push(b'\n');
        let aside = beside(&self.path, "aside");
        if self.inner.disk.put(&aside, &bytes).is_ok() {
            foreign.aside = Some(aside);
        }
        foreign
    }
}
