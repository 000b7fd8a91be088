//! Verifying a session with all that belongs to it: log, live journal, blobs, artifacts.
//!
//! Owns what is a problem, what would be done about it, and the doing. Nothing is removed without
//! being kept beside. Must not know who asks, or whether a session is loaded: the caller says so.

use super::error::{DiskError, LoadError};
use super::write::beside;
use super::{Check, Log, Store};
use glrs_protocol::SessionId;
use glrs_protocol::entry::{self, Entry, FileChange};
use serde_json::value::RawValue;
use std::collections::BTreeMap;
use std::fs;
use std::io::ErrorKind;
use std::path::PathBuf;

/// Most numbers that a sentence lists.
const LISTED: usize = 10;
/// How often a file that is being written is read again.
const TRIES: usize = 3;

/// Something that is wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// What.
    pub what: String,
    /// What a repair does about it; `None` when nothing can be done.
    pub repair: Option<String>,
    /// Whether it was done.
    pub repaired: bool,
}

/// What was found of one session.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Verdict {
    /// Its log.
    pub path: PathBuf,
    /// Number of entries, as far as they can be counted.
    pub entries: u64,
    /// What is wrong.
    pub problems: Vec<Problem>,
    /// What is worth saying and does no harm.
    pub notes: Vec<String>,
    /// Where a repair kept what it replaced.
    pub kept: Vec<PathBuf>,
}

impl Verdict {
    fn bad(&mut self, what: impl Into<String>, repair: Option<&str>) {
        self.problems.push(Problem { what: what.into(), repair: repair.map(str::to_owned), repaired: false });
    }

    /// Whether something is wrong still.
    pub fn remains(&self) -> bool {
        self.problems.iter().any(|p| !p.repaired)
    }
}

fn numbers(of: &[u64]) -> String {
    let mut words: Vec<String> = of.iter().take(LISTED).map(u64::to_string).collect();
    if of.len() > LISTED {
        words.push(format!("{} more", of.len() - LISTED));
    }
    words.join(", ")
}

impl Store {
    /// Verifies a session. Changes nothing. `held` says that it is in memory: then its file may be
    /// written meanwhile, and its live journal is its holder's business.
    ///
    /// # Errors
    /// When there is no such session.
    pub fn verify(&self, id: &SessionId, held: bool) -> Result<Verdict, LoadError> {
        let path = self.0.paths.log(id);
        for _ in 0..if held { TRIES } else { 0 } {
            let before = super::list::stamp_of(&path);
            let verdict = self.verify_now(id, held)?;
            if before == super::list::stamp_of(&path) {
                return Ok(verdict);
            }
        }
        self.verify_now(id, held)
    }

    /// Verifies a session that no one has in memory, and repairs what can be repaired.
    ///
    /// # Errors
    /// When there is no such session, or the disk refuses.
    pub fn repair_all(&self, id: &SessionId) -> Result<Verdict, LoadError> {
        let mut verdict = self.verify(id, false)?;
        if verdict.problems.iter().all(|p| p.repair.is_none()) {
            return Ok(verdict);
        }
        let log = match self.load(id) {
            Ok(_) => self.repair(id)?,
            Err(_) => None,
        };
        verdict.kept.extend(log);
        verdict.kept.extend(self.repair_journal(id)?);
        // What is repaired is what a second look does not find.
        let after = self.verify(id, false)?;
        for p in &mut verdict.problems {
            p.repaired = p.repair.is_some() && !after.problems.iter().any(|q| q.what == p.what);
        }
        verdict.entries = after.entries;
        self.index_touched(id);
        Ok(verdict)
    }

    fn verify_now(&self, id: &SessionId, held: bool) -> Result<Verdict, LoadError> {
        let mut v = Verdict { path: self.0.paths.log(id), ..Verdict::default() };
        match self.load(id) {
            Ok(log) => match self.check(id) {
                Ok(check) => self.judge(&log, &check, &mut v),
                Err(e) => v.bad(e.to_string(), None),
            },
            Err(LoadError::NotFound) => return Err(LoadError::NotFound),
            Err(e) => {
                if self.0.paths.log(id).symlink_metadata().is_err() {
                    v.path = self.legacy_path(id);
                }
                v.bad(e.to_string(), None);
            }
        }
        if !held {
            let (_, torn) = self.journal(id)?;
            if torn > 0 {
                let what = format!("{torn} lines of the live journal (what had not settled) are torn or damaged");
                v.bad(what, Some("leave them out of the journal, and keep it as it is beside the session"));
            }
        }
        let beside = super::side_files(&self.0.paths.sessions(), id).len();
        if beside > 0 {
            v.notes.push(format!("{beside} files beside it keep what was cut off or replaced before"));
        }
        Ok(v)
    }

    /// The log's own problems, and those of what its entries name.
    fn judge(&self, log: &Log, check: &Check, v: &mut Verdict) {
        v.entries = check.entries;
        let legacy = !log.saved();
        if legacy {
            v.path = self.legacy_path(log.id());
            v.notes.push("it lies in the predecessor's directory, which is never written".to_owned());
        }
        let mend = |words| (!legacy).then_some(words);
        for notice in &check.notices {
            v.bad(notice, mend("write it anew without what is damaged, and keep the file as it is beside it"));
        }
        if !check.bad.is_empty() {
            let what = format!("lines that hold no whole entry: {}", numbers(&check.bad));
            v.bad(what, mend("put a notice in the place of each, and keep the file as it is beside it"));
        }
        if check.last_line && check.notices.is_empty() {
            let what = "the last line is missing, torn, or names a wrong number of entries";
            v.bad(what, mend("write it anew from the entries, and keep the file as it is beside it"));
        }
        if !legacy && log.file.is_none() {
            v.notes.push("it is in the layout of another program; it is written in ours when it grows".to_owned());
        }
        self.judge_entries(log, v);
    }

    fn judge_entries(&self, log: &Log, v: &mut Verdict) {
        let mut odd = Vec::new();
        let mut blobs: BTreeMap<String, u64> = BTreeMap::new();
        let mut artifacts: BTreeMap<String, u64> = BTreeMap::new();
        let scanned = log.scan(&mut |n, raw| {
            // Most entries name nothing: they are parsed only for their fields' sake.
            match Entry::parse(raw) {
                Ok(Entry::Tool(t)) => blobs.extend(t.blob.map(|b| (b, n))),
                Ok(Entry::Compacted(c)) => artifacts.extend(c.artifact.map(|a| (a, n))),
                Ok(Entry::Custom(c)) if c.custom == "glrs:files" => {
                    let change = serde_json::from_str::<FileChange>(c.data.get());
                    blobs.extend(change.ok().and_then(|f| f.before).map(|b| (b, n)));
                }
                Ok(_) => {}
                // A bad line was counted already; this is a whole entry with fields of its own.
                Err(_) if entry::KINDS.contains(&entry::kind_of(raw).as_ref()) => {
                    if serde_json::from_str::<&RawValue>(raw).is_ok() {
                        odd.push(n);
                    }
                }
                Err(_) => {}
            }
        });
        if let Err(e) = scanned {
            v.bad(e.to_string(), None);
        }
        if !odd.is_empty() {
            v.notes.push(format!(
                "entries whose fields are not those of their kind, shown as they are: {}",
                numbers(&odd)
            ));
        }
        for (hash, n) in blobs {
            match self.get_blob(log.id(), &hash) {
                Ok(Some(_)) => {}
                Ok(None) => v.bad(format!("the blob that entry {n} names is not there"), None),
                Err(DiskError { why, .. }) => v.bad(format!("the blob that entry {n} names: {why}"), None),
            }
        }
        for (name, n) in artifacts {
            match self.get_artifact(log.id(), &name) {
                Ok(Some(_)) => {}
                // People and agents may delete artifacts: nothing that is replayed needs one.
                Ok(None) => v.notes.push(format!("the artifact that entry {n} names was deleted")),
                Err(DiskError { why, .. }) => v.bad(format!("the artifact that entry {n} names: {why}"), None),
            }
        }
    }

    /// The journal's whole lines, and how many others it has.
    fn journal(&self, id: &SessionId) -> Result<(Vec<u8>, usize), DiskError> {
        let path = self.0.paths.live(id);
        let bytes = match fs::read(&path) {
            Ok(bytes) => bytes,
            Err(e) if e.kind() == ErrorKind::NotFound => return Ok((Vec::new(), 0)),
            Err(e) => return Err(DiskError::new(&path, &e)),
        };
        let (mut whole, mut torn) = (Vec::new(), 0);
        for line in bytes.split(|b| *b == b'\n').filter(|l| !l.trim_ascii().is_empty()) {
            if line.starts_with(b"{") && serde_json::from_slice::<&RawValue>(line).is_ok() {
                whole.extend_from_slice(line);
                whole.push(b'\n');
            } else {
                torn += 1;
            }
        }
        Ok((whole, torn))
    }

    fn repair_journal(&self, id: &SessionId) -> Result<Option<PathBuf>, DiskError> {
        let (whole, torn) = self.journal(id)?;
        if torn == 0 {
            return Ok(None);
        }
        let path = self.0.paths.live(id);
        // Beside the log, so that it goes with the session.
        let kept = beside(&self.0.paths.log(id), "bad");
        let failed = |e: std::io::Error| DiskError::new(&path, &e);
        self.0.disk.link(&path, &kept).map_err(failed)?;
        self.0.disk.sync_dir(&self.0.paths.sessions()).map_err(failed)?;
        self.0.disk.put(&path, &whole).map_err(failed)?;
        Ok(Some(kept))
    }
}
