//! The kept copy of a public list of models.
//!
//! A cache: what cannot be read counts as absent, and losing it costs one request. Must not know what
//! is in it.

use super::{DiskError, Store};
use std::fs;
use std::time::SystemTime;

/// Largest copy that is read.
const MOST: u64 = 16 * 1024 * 1024;

impl Store {
    /// The copy, and when it was written.
    pub fn catalogue(&self) -> Option<(Vec<u8>, SystemTime)> {
        let path = self.0.paths.catalogue();
        let meta = fs::metadata(&path).ok().filter(|m| m.is_file() && m.len() <= MOST)?;
        Some((fs::read(&path).ok()?, meta.modified().ok()?))
    }

    /// Replaces the copy.
    ///
    /// # Errors
    /// When the disk refuses; the copy is then as it was.
    pub fn keep_catalogue(&self, bytes: &[u8]) -> Result<(), DiskError> {
        let path = self.0.paths.catalogue();
        self.0.disk.put(&path, bytes).map_err(|e| DiskError::new(&path, &e))
    }
}
