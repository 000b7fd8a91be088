//! Sessions that come from elsewhere: reading a document that has no file here yet, and writing a
//! whole session at once.
//!
//! Owns: all of it is on disk, or none of it. Must not know formats of other programs.

use super::error::{DiskError, LoadError};
use super::foreign::{self, Unreadable};
use super::layout::entry_in;
use super::{Log, Store};
use glrs_protocol::SessionId;
use serde_json::value::RawValue;

/// A session document, read but not kept.
#[derive(Debug)]
pub struct Document {
    /// When it was made, as it says.
    pub created_at: String,
    /// Its working directory.
    pub cwd: String,
    /// Its entries, in order.
    pub entries: Vec<Box<RawValue>>,
    /// Its context size.
    pub context_tokens: u64,
    /// What was dropped or mended to read it.
    pub notices: Vec<String>,
}

/// A session was not made of what came from elsewhere.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ImportError {
    /// The id is taken.
    #[error("session {0} exists already: choose another id")]
    Exists(SessionId),
    /// The disk refused.
    #[error(transparent)]
    Disk(#[from] DiskError),
}

impl Store {
    /// Reads a document of any layout that is a session, as the session `id`.
    ///
    /// # Errors
    /// When it is none, or a newer one.
    pub fn read_document(&self, bytes: &[u8], id: &SessionId) -> Result<Document, LoadError> {
        let loaded = foreign::load(bytes, id).map_err(|e| match e {
            Unreadable::Broken(why) => LoadError::Broken { why },
            Unreadable::Newer(schema) => LoadError::NewerSchema { schema },
        })?;
        let lines = loaded.body[loaded.header.line.len()..].split(|b| *b == b'\n').filter_map(entry_in);
        let text = |e: &[u8]| RawValue::from_string(String::from_utf8_lossy(e).into_owned()).ok();
        Ok(Document {
            entries: lines.filter_map(text).collect(),
            created_at: loaded.header.created_at,
            cwd: loaded.header.cwd,
            context_tokens: loaded.context_tokens,
            notices: loaded.notices,
        })
    }

    /// Makes a session of entries, and of the blobs that they name. It is on disk when this
    /// returns.
    ///
    /// # Errors
    /// When the id is taken or the disk refuses; then nothing of it is there.
    pub fn import(
        &self,
        id: &SessionId,
        (cwd, created_at): (&str, &str),
        entries: &[Box<RawValue>],
        context_tokens: Option<u64>,
        blobs: &[Vec<u8>],
    ) -> Result<Log, ImportError> {
        if self.exists(id) {
            return Err(ImportError::Exists(id.clone()));
        }
        let mut log = self.create(id, cwd, created_at);
        let made = self.put_all(&mut log, entries, context_tokens, blobs);
        match made {
            Ok(()) => Ok(log),
            Err(ImportError::Exists(id)) => Err(ImportError::Exists(id)),
            Err(e) => {
                // Blobs of a session that is not there would be found by no one; a log that was
                // written but whose directory could not be synced must not turn up later.
                let _ = self.0.disk.remove_tree(&self.0.paths.blobs(id));
                if log.saved() {
                    let _ = self.0.disk.unlink(log.path());
                }
                Err(e)
            }
        }
    }

    fn put_all(
        &self,
        log: &mut Log,
        entries: &[Box<RawValue>],
        context_tokens: Option<u64>,
        blobs: &[Vec<u8>],
    ) -> Result<(), ImportError> {
        for blob in blobs {
            self.put_blob(log.id(), blob)?;
        }
        // The first write of a log is a whole file: synced, then named.
        if log.append(entries, context_tokens).is_err() {
            return Err(ImportError::Exists(log.id().clone()));
        }
        match log.disk() {
            Some(e) => Err(e.clone().into()),
            None if log.is_durable() => Ok(()),
            None => Err(DiskError { path: log.path().to_owned(), why: "it could not be synced".to_owned() }.into()),
        }
    }
}
