//! Whole sessions at once: making them of files from elsewhere, verifying and repairing them.
//!
//! Owns who may be repaired when, and what makes an import the same as one before. Must not know
//! formats (`import`), bytes (`store`) or connections.

use crate::host::clock;
use crate::import::{self, Format};
use crate::listing;
use crate::registry::{Registry, absolute, taken};
use crate::session::{Cmd, Handle, looking};
use crate::store::{self, DiskError, LoadError, Store, Verdict};
use glrs_protocol::entry::{self, Entry};
use glrs_protocol::params::{CheckProblem, CheckResult, CheckedFile, ImportResult, SessionCheck, SessionImport};
use glrs_protocol::types::StateName;
use glrs_protocol::{ErrorKind, RpcError, SessionId};
use serde::{Deserialize, Serialize};

/// Largest file that is imported: it is held in memory, with its entries.
const MAX_IMPORT: u64 = 256 << 20;
/// The entry that says where a session came from.
const IMPORTED: &str = "glrs:imported";

/// What that entry holds: whose import it was, and of what.
#[derive(Serialize, Deserialize)]
struct Mark {
    id: String,
    format: String,
    hash: String,
}

fn disk(e: &DiskError) -> RpcError {
    RpcError::new(ErrorKind::Disk { path: e.path.display().to_string(), why: e.why.clone() }, e.to_string())
}

fn load_error(id: &SessionId, e: &LoadError) -> RpcError {
    let kind = match e {
        LoadError::NotFound => return RpcError::no_session(id.as_str()),
        LoadError::Broken { why } => ErrorKind::Broken { why: why.clone() },
        LoadError::NewerSchema { schema } => ErrorKind::NewerSchema { schema: *schema },
        LoadError::Disk { path, why } => ErrorKind::Disk { path: path.display().to_string(), why: why.clone() },
    };
    RpcError::new(kind, e.to_string())
}

fn import_error(e: &import::ImportError) -> RpcError {
    use import::ImportError as E;
    let kind = match e {
        E::Broken(why) => ErrorKind::Broken { why: why.clone() },
        E::Newer(schema) => ErrorKind::NewerSchema { schema: *schema },
        E::NoSuchFormat | E::Unknown | E::Empty => ErrorKind::InvalidParams,
    };
    RpcError::new(kind, format!("the file was not imported: {e}"))
}

/// The bytes to be imported. Errors do not repeat the path: whoever asked knows it.
fn source(p: &SessionImport) -> Result<Vec<u8>, RpcError> {
    let path = match (&p.path, &p.text) {
        (None, Some(text)) => return Ok(text.clone().into_bytes()),
        (Some(path), None) => std::path::Path::new(path),
        _ => return Err(RpcError::params("give exactly one of path and text")),
    };
    if !path.is_absolute() {
        return Err(RpcError::params("path has to be absolute"));
    }
    let failed = |e: std::io::Error| RpcError::params(format!("the file cannot be read: {e}"));
    let about = std::fs::metadata(path).map_err(failed)?;
    if !about.is_file() {
        return Err(RpcError::params("path names no regular file"));
    }
    if about.len() > MAX_IMPORT {
        let kind = ErrorKind::Limit { what: "bytes of an imported file".into(), max: MAX_IMPORT };
        return Err(RpcError::new(kind, format!("the file is larger than {} MiB", MAX_IMPORT >> 20)));
    }
    std::fs::read(path).map_err(failed)
}

/// What a session that exists was imported from, if it was.
fn mark_of(store: &Store, id: &SessionId) -> Option<Mark> {
    let log = store.load(id).ok()?;
    let mut found = None;
    log.scan(&mut |_, raw| {
        if entry::kind_of(raw) == "custom"
            && raw.contains(IMPORTED)
            && let Ok(Entry::Custom(c)) = Entry::parse(raw)
            && c.custom == IMPORTED
            && let Ok(mark) = serde_json::from_str::<Mark>(c.data.get())
            // A file that was exported has the marks of other imports, too.
            && mark.id == id.as_str()
        {
            found = Some(mark);
        }
    })
    .ok()?;
    found
}

impl Registry {
    /// Makes a session of a file. It is on disk when this returns. Reads and writes files; runs
    /// outside actors.
    ///
    /// # Errors
    /// When the file is nothing that can be imported, the id is something else's, or the disk
    /// refuses.
    pub fn import(&self, p: SessionImport) -> Result<ImportResult, RpcError> {
        let store = &self.shared.store;
        let format = Format::parse(p.format.as_deref()).map_err(|e| import_error(&e))?;
        let bytes = source(&p)?;
        let hash = store::blob_name(&bytes);
        let cwd = p
            .cwd
            .as_deref()
            .map(|cwd| looking::directory_now(absolute(cwd)?))
            .transpose()?
            .map(|d| d.display().to_string());
        let id = p.id.unwrap_or_else(|| self.free_id());
        let again = || self.imported_before(&id, &hash, format, cwd.as_deref());
        if store.exists(&id) {
            return again();
        }
        if self.lock().contains_key(&id) {
            return Err(taken(&id));
        }
        let mut imported = import::read(&bytes, format, &id, store).map_err(|e| import_error(&e))?;
        drop(bytes);
        let format = imported.format.unwrap_or(Format::Glrs).as_str();
        let now = clock::now();
        let Some(dir) = cwd.clone().or(imported.cwd.take()) else {
            return Err(RpcError::params("the file names no directory: give the one it shall have (cwd)"));
        };
        if cwd.is_none() && !std::path::Path::new(&dir).is_dir() {
            imported.notes.push("Its directory does not exist here: give another one (cwd) to work in it.".to_owned());
        }
        // The last entry: the numbers of those that came stay as they are.
        let mark = Mark { id: id.to_string(), format: format.to_owned(), hash: hash.clone() };
        let mark = Entry::custom(IMPORTED, &mark, &now).and_then(|e| e.to_raw());
        imported.entries.push(mark.map_err(|e| RpcError::internal(e.to_string()))?);
        let created = imported.created_at.as_deref().unwrap_or(&now);
        let made = store.import(&id, (&dir, created), &imported.entries, imported.context_tokens, &imported.blobs);
        match made {
            Ok(log) => drop(log),
            // Someone was faster; perhaps with the same.
            Err(store::ImportError::Exists(_)) => return again(),
            Err(store::ImportError::Disk(e)) => return Err(disk(&e)),
        }
        store.index_touched(&id);
        let session = listing::one(store, &id).ok_or_else(|| RpcError::no_session(id.as_str()))?;
        Ok(ImportResult { session, format: format.to_owned(), notes: imported.notes })
    }

    fn imported_before(
        &self,
        id: &SessionId,
        hash: &str,
        format: Option<Format>,
        cwd: Option<&str>,
    ) -> Result<ImportResult, RpcError> {
        let mark = mark_of(&self.shared.store, id).filter(|m| m.hash == hash);
        let mark = mark.filter(|m| format.is_none_or(|f| f.as_str() == m.format));
        let live = self.lock().get(id).and_then(Handle::info);
        let session = live.or_else(|| listing::one(&self.shared.store, id));
        match (mark, session) {
            (Some(mark), Some(session)) if cwd.is_none_or(|c| c == session.cwd) => {
                Ok(ImportResult { session, format: mark.format, notes: Vec::new() })
            }
            _ => Err(taken(id)),
        }
    }

    /// Verifies stored sessions, one or all, and repairs them when told.
    ///
    /// # Errors
    /// When there is no such session, it is in use and was to be repaired, or the disk refuses.
    pub async fn check(&self, p: SessionCheck) -> Result<CheckResult, RpcError> {
        let store = self.shared.store.clone();
        if let Some(id) = p.id {
            let file = self.check_one(&id, p.repair, true).await?;
            return Ok(result(1, vec![file]));
        }
        let rows = blocking(move || store.list().map_err(|e| disk(&e))).await?;
        let checked = rows.len() as u64;
        let mut files = Vec::new();
        for row in rows {
            let Some(id) = row.id else {
                let what = row.broken.unwrap_or_default();
                let paths = &self.shared.paths;
                let dir = if row.legacy { paths.legacy.clone() } else { paths.sessions() };
                let path = dir.join(format!("{}.json", row.name)).display().to_string();
                let problems = vec![CheckProblem { what, repair: None, repaired: false }];
                let (notes, kept) = (Vec::new(), Vec::new());
                files.push(CheckedFile { name: row.name, path, entries: 0, problems, notes, kept });
                continue;
            };
            match self.check_one(&id, p.repair, false).await {
                Ok(file) if file.problems.is_empty() && file.notes.is_empty() => {}
                Ok(file) => files.push(file),
                // It was deleted meanwhile.
                Err(e) if e.kind() == ErrorKind::NotFound => {}
                Err(e) => return Err(e),
            }
        }
        Ok(result(checked, files))
    }

    /// Verifies one. `alone`: only this one was asked for, so that it must not be passed over.
    async fn check_one(&self, id: &SessionId, repair: bool, alone: bool) -> Result<CheckedFile, RpcError> {
        let handle = self.lock().get(id).cloned();
        let held = handle.is_some();
        let found = self.verdict(id, held, false).await;
        let mut verdict = match found {
            // Nothing was said in it yet: there is no file to be checked.
            Err(e) if held && e.kind() == ErrorKind::NotFound => Verdict::default(),
            other => other?,
        };
        // What can be repaired of a session in memory shows only when it has left it.
        let worth = held || verdict.problems.iter().any(|p| p.repair.is_some());
        if repair && worth {
            match handle {
                Some(h) => match in_use(&h) {
                    Some(state) if alone => return Err(busy(state)),
                    Some(_) => {
                        verdict.notes.push("it is in use and was not repaired: close it and check it again".into())
                    }
                    None => {
                        // Idle, and nobody looks: it may leave memory at once instead of soon.
                        let why = "it is being repaired".to_owned();
                        let _ = h.tx.send(Box::new(Cmd::Stop { drain: true, why })).await;
                        h.tx.closed().await;
                        if self.shared.store.exists(id) {
                            verdict = self.verdict(id, false, true).await?;
                        }
                    }
                },
                None => verdict = self.verdict(id, false, true).await?,
            }
        }
        Ok(checked_file(id, verdict))
    }

    async fn verdict(&self, id: &SessionId, held: bool, repair: bool) -> Result<Verdict, RpcError> {
        let (store, id) = (self.shared.store.clone(), id.clone());
        blocking(move || {
            let done = if repair { store.repair_all(&id) } else { store.verify(&id, held) };
            done.map_err(|e| load_error(&id, &e))
        })
        .await
    }
}

async fn blocking<T: Send + 'static>(f: impl FnOnce() -> Result<T, RpcError> + Send + 'static) -> Result<T, RpcError> {
    tokio::task::spawn_blocking(f).await.unwrap_or_else(|e| Err(RpcError::internal(e.to_string())))
}

/// What a session in memory does that excludes a repair.
fn in_use(h: &Handle) -> Option<&'static str> {
    let Some(info) = h.info() else { return Some("loading") };
    match info.state {
        StateName::Running | StateName::Held => Some(info.state.as_str()),
        _ if info.needs_you => Some("waiting for an answer"),
        _ if info.clients > 0 => Some("attached"),
        _ => None,
    }
}

fn busy(state: &str) -> RpcError {
    let words = format!("the session is {state}: let it end and close it, then repair it");
    RpcError::new(ErrorKind::Busy { state: state.to_owned() }, words)
}

fn checked_file(id: &SessionId, v: Verdict) -> CheckedFile {
    let problem = |p: store::Problem| CheckProblem { what: p.what, repair: p.repair, repaired: p.repaired };
    CheckedFile {
        name: id.to_string(),
        path: v.path.display().to_string(),
        entries: v.entries,
        problems: v.problems.into_iter().map(problem).collect(),
        notes: v.notes,
        kept: v.kept.iter().map(|k| k.display().to_string()).collect(),
    }
}

fn result(checked: u64, files: Vec<CheckedFile>) -> CheckResult {
    let problems = files.iter().flat_map(|f| &f.problems).filter(|p| !p.repaired).count() as u64;
    CheckResult { checked, problems, files }
}

#[cfg(test)]
mod tests;
