//! Writing a session out, part by part.
//!
//! Owns the loop over the parts and the new file: one that exists is never written over. Must not
//! know what is in it.

use crate::client::{CallError, Client};
use glrs_protocol::SessionId;
use glrs_protocol::methods::m;
use glrs_protocol::params::SessionExport;
use std::fs::OpenOptions;
use std::io::{self, Write};
use std::path::Path;

/// Why a session was not written out.
#[derive(Debug, thiserror::Error)]
pub enum ExportError {
    /// The daemon refused.
    #[error("{0}")]
    Call(#[from] CallError),
    /// The text could not be written.
    #[error("cannot write it: {0}")]
    Write(#[from] io::Error),
}

/// Writes the session to `out`; `format` is `json` or `markdown`.
///
/// # Errors
/// See [`ExportError`].
pub async fn export(
    client: &Client,
    id: &SessionId,
    format: &str,
    out: &mut (dyn Write + Send),
) -> Result<(), ExportError> {
    let mut params = SessionExport { id: id.clone(), format: Some(format.to_owned()), from: None };
    loop {
        let part = client.call::<m::SessionExportM>(&params).await?;
        out.write_all(part.text.as_bytes())?;
        if part.next.is_none() {
            return Ok(out.flush()?);
        }
        params.from = part.next;
    }
}

/// The same into a new file, synced.
///
/// # Errors
/// See [`ExportError`]; also when the file exists. What was written of it is removed again.
pub async fn export_to(client: &Client, id: &SessionId, format: &str, path: &Path) -> Result<(), ExportError> {
    let mut file = OpenOptions::new().write(true).create_new(true).open(path)?;
    let done = match export(client, id, format, &mut file).await {
        Ok(()) => file.sync_all().map_err(ExportError::from),
        Err(e) => Err(e),
    };
    if done.is_err() {
        // Half an export looks like a whole one.
        let _ = std::fs::remove_file(path);
    }
    done
}
