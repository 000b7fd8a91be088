//! Artifacts: listing, reading, annotating and deleting what compactions replaced.
//!
//! Owns what people's calls and the agent's tools do with them, beside the actor: an artifact is a
//! file of its own that no entry depends on being there.

use crate::compact::artifact::{self, is_name};
use crate::store::Store;
use glrs_protocol::params::{ArtifactList, ArtifactRow, ArtifactText};
use glrs_protocol::{ErrorKind, RpcError, SessionId};

/// Most bytes of one read.
const READ: u64 = 1 << 20;

fn disk(e: &crate::store::DiskError) -> RpcError {
    RpcError::new(ErrorKind::Disk { path: e.path.display().to_string(), why: e.why.clone() }, e.to_string())
}

fn load(store: &Store, id: &SessionId, name: &str) -> Result<String, RpcError> {
    let missing = || RpcError::new(ErrorKind::NotFound, "no such artifact: /artifacts lists them");
    if !is_name(name) {
        return Err(missing());
    }
    let bytes = store.get_artifact(id, name).map_err(|e| disk(&e))?.ok_or_else(missing)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// The artifacts of a session, oldest first.
///
/// # Errors
/// When the directory cannot be read.
pub fn list(store: &Store, id: &SessionId) -> Result<ArtifactList, RpcError> {
    let mut artifacts = Vec::new();
    for name in store.artifact_names(id).map_err(|e| disk(&e))? {
        if !is_name(&name) {
            continue;
        }
        // One that is deleted this moment is not there any more; the others are.
        let Ok(text) = load(store, id, &name) else { continue };
        let (head, _) = artifact::parse(&text).unwrap_or_default();
        artifacts.push(ArtifactRow {
            artifact: name,
            label: head.label,
            created_at: head.created_at,
            messages: head.messages,
            note: head.note,
            bytes: text.len() as u64,
        });
    }
    // Those of one millisecond are numbered: the shorter name is the older one.
    artifacts.sort_by(|a, b| {
        let key = |r: &ArtifactRow| (r.created_at.clone(), r.artifact.len(), r.artifact.clone());
        key(a).cmp(&key(b))
    });
    Ok(ArtifactList { artifacts })
}

/// A part of an artifact.
///
/// # Errors
/// `not_found` for a name that is none.
pub fn read(
    store: &Store,
    id: &SessionId,
    name: &str,
    offset: u64,
    limit: Option<u64>,
) -> Result<ArtifactText, RpcError> {
    let text = load(store, id, name)?;
    let edge = |at: u64| {
        let mut at = usize::try_from(at).unwrap_or(usize::MAX).min(text.len());
        while !text.is_char_boundary(at) {
            at -= 1;
        }
        at
    };
    let from = edge(offset);
    let to = edge(offset.saturating_add(limit.unwrap_or(READ).clamp(4, READ)));
    let next = (to < text.len()).then_some(to as u64);
    Ok(ArtifactText { text: text[from..to].to_owned(), bytes: text.len() as u64, next })
}

/// Changes an artifact's label or note.
///
/// # Errors
/// `not_found` for a name that is none, `invalid_params` when there is nothing to change.
pub fn annotate(
    store: &Store,
    id: &SessionId,
    name: &str,
    label: Option<&str>,
    note: Option<&str>,
) -> Result<(), RpcError> {
    if label.is_none() && note.is_none() {
        return Err(RpcError::params("give a label or a note"));
    }
    let text = load(store, id, name)?;
    let changed = artifact::annotate(&text, label, note).ok_or_else(|| {
        RpcError::new(ErrorKind::Broken { why: "no head".into() }, "the artifact has no head to change")
    })?;
    store.put_artifact(id, name, changed.as_bytes()).map_err(|e| disk(&e))
}

/// Deletes an artifact.
///
/// # Errors
/// `not_found` for a name that is none.
pub fn delete(store: &Store, id: &SessionId, name: &str) -> Result<(), RpcError> {
    load(store, id, name)?;
    store.delete_artifact(id, name).map_err(|e| disk(&e))
}
