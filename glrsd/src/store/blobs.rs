//! Large payloads, pre-images of files, artifacts of compactions, traces.
//!
//! Owns: files named by the hash of their content, and named files beside a session. Each is on
//! disk before its call returns, so that an entry may name it. Must not know what they hold.

use super::error::DiskError;
use super::{Store, disk};
use glrs_protocol::SessionId;
use sha2::{Digest, Sha256};
use std::fs;
use std::io::{self, ErrorKind};
use std::os::unix::fs::FileExt;
use std::path::Path;

/// Most bytes of a session's trace: weeks of work.
const TRACE_MAX: u64 = 4 << 20;

/// The name of a blob: its content's SHA-256 in lower-case hex.
pub fn hash_of(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().map(|b| format!("{b:02x}")).collect()
}

/// A name that is safe to be joined to a path.
fn is_safe(name: &str) -> bool {
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_' | ':');
    !name.is_empty() && name.len() <= 200 && !name.starts_with('.') && name.chars().all(plain)
}

fn read(path: &Path) -> Result<Option<Vec<u8>>, DiskError> {
    match fs::read(path) {
        Ok(bytes) => Ok(Some(bytes)),
        Err(e) if e.kind() == ErrorKind::NotFound => Ok(None),
        Err(e) => Err(DiskError::new(path, &e)),
    }
}

impl Store {
    /// Keeps bytes under their hash, which is returned. Bytes that are there already are not
    /// written again.
    ///
    /// # Errors
    /// When the disk refuses.
    pub fn put_blob(&self, id: &SessionId, bytes: &[u8]) -> Result<String, DiskError> {
        let hash = hash_of(bytes);
        let path = self.0.paths.blobs(id).join(&hash);
        // One that is there but damaged is replaced.
        if fs::read(&path).is_ok_and(|there| there == bytes) {
            return Ok(hash);
        }
        self.put_file(&path, bytes)?;
        Ok(hash)
    }

    /// A blob by its hash; `None` when there is none.
    ///
    /// # Errors
    /// When it cannot be read, or its content is not what its name says.
    pub fn get_blob(&self, id: &SessionId, hash: &str) -> Result<Option<Vec<u8>>, DiskError> {
        if hash.len() != 64 || !hash.bytes().all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b)) {
            return Ok(None);
        }
        let path = self.0.paths.blobs(id).join(hash);
        match read(&path)? {
            Some(bytes) if hash_of(&bytes) != hash => {
                Err(DiskError { path, why: "its content is not what its name says: it is damaged".to_owned() })
            }
            other => Ok(other),
        }
    }

    /// Keeps what a compaction replaced, under a name that the caller makes (a time, say).
    ///
    /// # Errors
    /// When the name is not safe, or the disk refuses.
    pub fn put_artifact(&self, id: &SessionId, name: &str, bytes: &[u8]) -> Result<(), DiskError> {
        let dir = self.0.paths.artifacts(id);
        if !is_safe(name) {
            return Err(DiskError { path: dir, why: format!("{name:?} is no name for an artifact") });
        }
        self.put_file(&dir.join(name), bytes)
    }

    /// An artifact; `None` when there is none of that name.
    ///
    /// # Errors
    /// When it cannot be read.
    pub fn get_artifact(&self, id: &SessionId, name: &str) -> Result<Option<Vec<u8>>, DiskError> {
        if !is_safe(name) {
            return Ok(None);
        }
        read(&self.0.paths.artifacts(id).join(name))
    }

    /// Names of a session's artifacts, in no order; none when it has no such directory.
    ///
    /// # Errors
    /// When the directory cannot be read.
    pub fn artifact_names(&self, id: &SessionId) -> Result<Vec<String>, DiskError> {
        let dir = self.0.paths.artifacts(id);
        match std::fs::read_dir(&dir) {
            Ok(entries) => Ok(entries.filter_map(|e| e.ok()?.file_name().into_string().ok()).collect()),
            Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
            Err(e) => Err(DiskError::new(&dir, &e)),
        }
    }

    /// Deletes an artifact.
    ///
    /// # Errors
    /// When the disk refuses.
    pub fn delete_artifact(&self, id: &SessionId, name: &str) -> Result<(), DiskError> {
        let path = self.0.paths.artifacts(id).join(name);
        if !is_safe(name) {
            return Err(DiskError { path, why: format!("{name:?} is no name for an artifact") });
        }
        self.0.disk.unlink(&path).map(|_| ()).map_err(|e| DiskError::new(&path, &e))
    }

    /// Adds a line to a session's trace. Not synced: a trace is never read back into a session. At its
    /// bound the older half of it goes.
    ///
    /// # Errors
    /// When the disk refuses.
    pub fn append_trace(&self, id: &SessionId, lines: &str) -> Result<(), DiskError> {
        let path = self.0.paths.trace(id);
        let append = || -> io::Result<()> {
            self.0.disk.make_dir(path.parent().unwrap_or(Path::new(".")))?;
            let file = self.0.disk.open_or_make(&path)?;
            let size = file.metadata()?.len();
            if size + lines.len() as u64 <= TRACE_MAX {
                return self.0.disk.write_at(&file, &path, lines.as_bytes(), size);
            }
            let mut kept = vec![0; usize::try_from(TRACE_MAX / 2).unwrap_or_default()];
            let behind = size.saturating_sub(kept.len() as u64);
            file.read_exact_at(&mut kept, behind)?;
            // From the first whole line on.
            let from = kept.iter().position(|b| *b == b'\n').map_or(kept.len(), |at| at + 1);
            kept.drain(..from);
            kept.extend_from_slice(lines.as_bytes());
            self.0.disk.put(&path, &kept)
        };
        append().map_err(|e| DiskError::new(&path, &e))
    }

    /// A part of a session's trace, from an offset on; `None` when there is none.
    ///
    /// # Errors
    /// When it cannot be read.
    pub fn read_trace(&self, id: &SessionId, offset: u64, most: usize) -> Result<Option<Vec<u8>>, DiskError> {
        let path = self.0.paths.trace(id);
        match disk::open_regular(&path, false) {
            Err(e) if e.kind() == ErrorKind::NotFound => Ok(None),
            Err(e) => Err(DiskError::new(&path, &e)),
            Ok((file, stamp)) => {
                let len = usize::try_from(stamp.size.saturating_sub(offset)).unwrap_or(usize::MAX).min(most);
                let mut bytes = vec![0; len];
                file.read_exact_at(&mut bytes, offset).map_err(|e| DiskError::new(&path, &e))?;
                Ok(Some(bytes))
            }
        }
    }

    fn put_file(&self, path: &Path, bytes: &[u8]) -> Result<(), DiskError> {
        let put = || {
            self.0.disk.make_dir(path.parent().unwrap_or(Path::new(".")))?;
            self.0.disk.put(path, bytes)
        };
        put().map_err(|e| DiskError::new(path, &e))
    }
}
