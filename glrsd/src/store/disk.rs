//! The few operations by which bytes reach the disk.
//!
//! Owns: explicit modes (0700 and 0600 whatever the umask), positioned writes, syncs, atomic
//! replacement, and the one place where a test can make any of them fail. Must not know what the
//! bytes mean.

use std::fs::{self, DirBuilder, File, OpenOptions, Permissions};
use std::io::{self, ErrorKind};
use std::os::unix::fs::{DirBuilderExt, FileExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::Path;
use std::sync::Arc;
use tempfile::NamedTempFile;

/// An operation that can fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Op {
    /// A file or directory is made or opened for writing.
    Create,
    /// Bytes are written.
    Write,
    /// A file is synced.
    Sync,
    /// A directory is synced.
    SyncDir,
    /// A name is moved over another.
    Rename,
    /// A file is cut.
    Truncate,
    /// A name is removed.
    Unlink,
    /// A file gets a second name.
    Link,
}

/// How an operation is to fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// With this error number.
    Errno(i32),
    /// A write takes only so many bytes.
    Short(usize),
}

/// Decides for each operation whether it fails. Only tests have one.
pub type Faults = Arc<dyn Fn(Op, &Path) -> Option<Fault> + Send + Sync>;

/// The door to the disk. Costs one branch when no faults are set.
#[derive(Clone, Default)]
pub(crate) struct Disk {
    pub(crate) faults: Option<Faults>,
    pub(crate) read_only: bool,
}

/// Identity and extent of a file: differs when someone else wrote it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Stamp {
    dev: u64,
    ino: u64,
    pub(crate) size: u64,
    mtime: (i64, i64),
}

impl Stamp {
    pub(crate) fn of(m: &fs::Metadata) -> Self {
        Self { dev: m.dev(), ino: m.ino(), size: m.size(), mtime: (m.mtime(), m.mtime_nsec()) }
    }

    /// All of it as a text, to be compared with one that was kept.
    pub(crate) fn text(&self) -> String {
        format!("{}:{}:{}:{}:{}", self.dev, self.ino, self.size, self.mtime.0, self.mtime.1)
    }

    /// Whether two stamps are of one file, whatever was written to it.
    pub(crate) fn same_file(&self, other: &Self) -> bool {
        (self.dev, self.ino) == (other.dev, other.ino)
    }

    /// Time of the last change in milliseconds since 1970.
    pub(crate) fn mtime_ms(&self) -> i64 {
        self.mtime.0.saturating_mul(1000).saturating_add(self.mtime.1 / 1_000_000)
    }
}

impl Disk {
    fn gate(&self, op: Op, path: &Path) -> io::Result<Option<usize>> {
        if self.read_only {
            return Err(io::Error::new(ErrorKind::ReadOnlyFilesystem, "the store was opened for reading only"));
        }
        match self.faults.as_ref().and_then(|f| f(op, path)) {
            None => Ok(None),
            Some(Fault::Errno(n)) => Err(io::Error::from_raw_os_error(n)),
            Some(Fault::Short(n)) => Ok(Some(n)),
        }
    }

    /// Writes all of `buf` at `offset`. What an error leaves written is for the caller to undo.
    pub(crate) fn write_at(&self, file: &File, path: &Path, mut buf: &[u8], mut offset: u64) -> io::Result<()> {
        while !buf.is_empty() {
            let most = self.gate(Op::Write, path)?.unwrap_or(buf.len()).min(buf.len());
            match file.write_at(&buf[..most], offset) {
                Ok(0) => return Err(ErrorKind::WriteZero.into()),
                Ok(n) => {
                    buf = &buf[n..];
                    offset += n as u64;
                }
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                Err(e) => return Err(e),
            }
        }
        Ok(())
    }

    pub(crate) fn set_len(&self, file: &File, path: &Path, len: u64) -> io::Result<()> {
        self.gate(Op::Truncate, path)?;
        file.set_len(len)
    }

    pub(crate) fn sync_data(&self, file: &File, path: &Path) -> io::Result<()> {
        self.gate(Op::Sync, path)?;
        file.sync_data()
    }

    pub(crate) fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        self.gate(Op::SyncDir, dir)?;
        match File::open(dir)?.sync_all() {
            // Some network file systems cannot sync a directory; there the rename is all there is.
            Err(e) if e.kind() == ErrorKind::InvalidInput => Ok(()),
            other => other,
        }
    }

    /// Makes a directory and what misses above it, each 0700. Those that exist stay as they are.
    pub(crate) fn make_dir(&self, dir: &Path) -> io::Result<()> {
        if dir.is_dir() {
            return Ok(());
        }
        if let Some(above) = dir.parent() {
            self.make_dir(above)?;
        }
        self.gate(Op::Create, dir)?;
        match DirBuilder::new().mode(0o700).create(dir) {
            Ok(()) => fs::set_permissions(dir, Permissions::from_mode(0o700))?,
            Err(e) if e.kind() == ErrorKind::AlreadyExists && dir.is_dir() => return Ok(()),
            Err(e) => return Err(e),
        }
        if let Some(above) = dir.parent() {
            self.sync_dir(above)?;
        }
        Ok(())
    }

    /// Opens a file for reading and writing; makes it, 0600, when it is not there.
    pub(crate) fn open_or_make(&self, path: &Path) -> io::Result<File> {
        self.gate(Op::Create, path)?;
        match OpenOptions::new().read(true).write(true).create_new(true).mode(0o600).open(path) {
            Ok(f) => {
                f.set_permissions(Permissions::from_mode(0o600))?;
                Ok(f)
            }
            Err(e) if e.kind() == ErrorKind::AlreadyExists => OpenOptions::new().read(true).write(true).open(path),
            Err(e) => Err(e),
        }
    }

    /// A file without its final name, 0600, in the directory it is meant for.
    pub(crate) fn temp(&self, dir: &Path) -> io::Result<NamedTempFile> {
        self.gate(Op::Create, dir)?;
        let temp = tempfile::Builder::new().prefix(".glrs-").suffix(".tmp").tempfile_in(dir)?;
        temp.as_file().set_permissions(Permissions::from_mode(0o600))?;
        Ok(temp)
    }

    /// Syncs a temporary file and gives it its name. `over` says whether it may replace another.
    /// The directory is for the caller to sync.
    pub(crate) fn publish(&self, temp: NamedTempFile, path: &Path, over: bool) -> io::Result<File> {
        self.sync_data(temp.as_file(), path)?;
        self.gate(Op::Rename, path)?;
        if over { temp.persist(path).map_err(|e| e.error) } else { temp.persist_noclobber(path).map_err(|e| e.error) }
    }

    /// Replaces or makes a whole small file, durably.
    pub(crate) fn put(&self, path: &Path, bytes: &[u8]) -> io::Result<()> {
        let dir = path.parent().unwrap_or(Path::new("."));
        let temp = self.temp(dir)?;
        self.write_at(temp.as_file(), path, bytes, 0)?;
        self.publish(temp, path, true)?;
        self.sync_dir(dir)
    }

    /// Replaces or makes a whole small file that may be lost: it is not synced.
    pub(crate) fn put_loosely(&self, path: &Path, bytes: &[u8]) -> io::Result<()> {
        let temp = self.temp(path.parent().unwrap_or(Path::new(".")))?;
        self.write_at(temp.as_file(), path, bytes, 0)?;
        self.gate(Op::Rename, path)?;
        temp.persist(path).map(drop).map_err(|e| e.error)
    }

    /// Copies a range of a file into another: by the kernel where it can, which shares the blocks
    /// on file systems that know how.
    pub(crate) fn copy_range(&self, from: (&File, u64), to: (&File, u64), path: &Path, len: u64) -> io::Result<()> {
        self.gate(Op::Write, path)?;
        let mut done = 0;
        #[cfg(any(target_os = "linux", target_os = "android"))]
        while done < len {
            let (mut a, mut b) = (from.1 + done, to.1 + done);
            let most = usize::try_from(len - done).unwrap_or(usize::MAX);
            match rustix::fs::copy_file_range(from.0, Some(&mut a), to.0, Some(&mut b), most) {
                Ok(0) => break,
                Ok(n) => done += n as u64,
                Err(rustix::io::Errno::INTR) => {}
                Err(rustix::io::Errno::NOSPC) => return Err(rustix::io::Errno::NOSPC.into()),
                // Across file systems, or not supported: by hand.
                Err(_) => break,
            }
        }
        while done < len {
            let n = usize::try_from(len - done).unwrap_or(usize::MAX).min(1 << 20);
            let bytes = read_range(from.0, from.1 + done, n)?;
            self.write_at(to.0, path, &bytes, to.1 + done)?;
            done += n as u64;
        }
        Ok(())
    }

    pub(crate) fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.gate(Op::Rename, from)?;
        fs::rename(from, to)
    }

    /// Gives a file a second name; copies it where the file system has no links.
    pub(crate) fn link(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.gate(Op::Link, to)?;
        match fs::hard_link(from, to) {
            Ok(()) => Ok(()),
            Err(e) if matches!(e.kind(), ErrorKind::NotFound | ErrorKind::AlreadyExists) => Err(e),
            Err(_) => self.put(to, &fs::read(from)?),
        }
    }

    /// Removes a name; one that is not there is fine. Says whether it was there.
    pub(crate) fn unlink(&self, path: &Path) -> io::Result<bool> {
        self.gate(Op::Unlink, path)?;
        match fs::remove_file(path) {
            Ok(()) => Ok(true),
            Err(e) if e.kind() == ErrorKind::NotFound => Ok(false),
            Err(e) => Err(e),
        }
    }

    /// Removes a directory of ours with what is in it; a link in its place is unlinked only.
    pub(crate) fn remove_tree(&self, dir: &Path) -> io::Result<()> {
        self.gate(Op::Unlink, dir)?;
        match fs::symlink_metadata(dir) {
            Err(e) if e.kind() == ErrorKind::NotFound => Ok(()),
            Err(e) => Err(e),
            Ok(m) if m.is_dir() => fs::remove_dir_all(dir),
            Ok(_) => fs::remove_file(dir),
        }
    }
}

/// Opens a regular file for reading and says what it is. Anything else (a directory, a pipe that
/// would block) is refused in words.
pub(crate) fn open_regular(path: &Path, write: bool) -> io::Result<(File, Stamp)> {
    let kind = fs::metadata(path)?.file_type();
    if !kind.is_file() {
        let what = if kind.is_dir() { "a directory" } else { "not a regular file" };
        return Err(io::Error::new(ErrorKind::InvalidInput, format!("it is {what}: move it out of the way")));
    }
    let file = OpenOptions::new().read(true).write(write).open(path)?;
    let stamp = Stamp::of(&file.metadata()?);
    Ok((file, stamp))
}

/// Reads exactly `len` bytes at `offset`.
pub(crate) fn read_range(file: &File, offset: u64, len: usize) -> io::Result<Vec<u8>> {
    let mut buf = vec![0; len];
    file.read_exact_at(&mut buf, offset)?;
    Ok(buf)
}
