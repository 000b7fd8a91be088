//! What the store promised so far, and whether a data directory keeps it.
//!
//! Owns the promises of every session at every moment, the operation under way included, and the
//! check of a directory against them. Written from the specification: it asks the store only to
//! open and read.

use glrs_protocol::SessionId;
use glrsd::host::Paths;
use glrsd::store::{LoadError, Store};
use serde_json::value::RawValue;
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

/// How the machine went down.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// The process was killed: everything it wrote is there.
    Kill,
    /// The power went: what was synced is there, of the rest anything.
    Power,
}

/// Records of a live journal between two times it was emptied.
#[derive(Clone, Debug, Default)]
pub struct Records {
    pub all: Vec<String>,
    pub written: usize,
    pub synced: usize,
}

/// What was promised of one session.
#[derive(Clone, Debug, Default)]
pub struct Promise {
    /// Every entry handed to the store, in order.
    pub entries: Vec<String>,
    /// So many are acknowledged as written.
    pub written: usize,
    /// So many are acknowledged as synced.
    pub synced: usize,
    /// The live journal, oldest generation first.
    pub live: Vec<Records>,
    /// The journal is being emptied: it may be of the generation before.
    pub emptying: bool,
    pub blobs: BTreeMap<String, Vec<u8>>,
    pub artifacts: BTreeMap<String, Vec<u8>>,
    /// It is being made by a fork: there whole, or not at all.
    pub unborn: bool,
    /// It is being deleted: there whole, or gone.
    pub dying: bool,
}

/// What was promised of everything.
#[derive(Clone, Debug, Default)]
pub struct Ledger {
    pub sessions: BTreeMap<String, Promise>,
    pub deleted: Vec<String>,
    pub prompts: Vec<String>,
    pub pushing: Option<String>,
    /// Steps of the workload that came to their end.
    pub steps: u64,
    /// A step is under way.
    pub busy: bool,
}

pub fn paths(root: &Path) -> Paths {
    Paths {
        config: root.join("config.json"),
        socket: root.join("glrsd.sock"),
        legacy: root.join("../glorious/sessions"),
        tmp: root.join("../tmp"),
        root: root.to_owned(),
    }
}

pub fn raw(text: impl Into<String>) -> Box<RawValue> {
    RawValue::from_string(text.into()).unwrap()
}

pub fn sid(name: &str) -> SessionId {
    name.parse().unwrap()
}

/// The file as any JSON reader has it.
pub fn json_of(path: &Path) -> serde_json::Value {
    let bytes = fs::read(path).unwrap();
    serde_json::from_slice(&bytes).unwrap_or_else(|e| {
        panic!("{}: {e}: {}", path.display(), String::from_utf8_lossy(&bytes).chars().take(2000).collect::<String>())
    })
}

/// Whether `some` stand in `all`, in this order; none of them twice.
fn in_order(some: &[String], all: &[String]) -> bool {
    let mut rest = all.iter();
    some.iter().all(|s| rest.any(|a| a == s))
}

impl Ledger {
    /// Opens the directory as the next daemon does, and finds every promise kept and nothing that
    /// nobody said. Appends to each session, after which every file is one JSON value. Returns the
    /// promises as they stand then.
    pub fn check(&self, root: &Path, end: End) -> Self {
        let store = Store::open(paths(root)).unwrap();
        for row in store.list().unwrap() {
            assert_eq!(row.broken, None, "{} is listed as broken", row.name);
            assert!(self.sessions.contains_key(&row.name), "nobody made {}", row.name);
        }
        let mut next = Self { prompts: store.prompts(), deleted: self.deleted.clone(), ..Self::default() };
        let pushed: Vec<String> = self.prompts.iter().chain(&self.pushing).cloned().collect();
        assert!(next.prompts == self.prompts || next.prompts == pushed, "{:?} of {pushed:?}", next.prompts);
        for name in &self.deleted {
            assert!(matches!(store.load(&sid(name)), Err(LoadError::NotFound)), "{name} was deleted and is back");
        }
        for (name, promise) in &self.sessions {
            if let Some(kept) = promise.check(&store, name, end, self.busy) {
                next.sessions.insert(name.clone(), kept);
            }
        }
        for entry in fs::read_dir(root.join("sessions")).unwrap() {
            let name = entry.unwrap().file_name().into_string().unwrap();
            assert!(!name.ends_with(".tmp"), "{name} was left");
        }
        next
    }
}

impl Promise {
    fn check(&self, store: &Store, name: &str, end: End, busy: bool) -> Option<Self> {
        let floor = if end == End::Kill { self.written } else { self.synced };
        let mut log = match store.load(&sid(name)) {
            Ok(log) => log,
            Err(LoadError::NotFound) => {
                assert!(floor == 0 || self.unborn || self.dying, "{name} is not there");
                return None;
            }
            Err(e) => panic!("{name}: {e}"),
        };
        assert!(busy || end == End::Power || log.salvage().is_empty(), "{name}: {:?}", log.salvage());
        let got = log.read(1, usize::MAX, usize::MAX).unwrap();
        let numbered = got.iter().take(floor).enumerate().all(|(i, e)| e.n == i as u64 + 1);
        let mut got: Vec<String> = got.into_iter().map(|e| e.entry.get().to_owned()).collect();
        // What stands under the number of an entry that did not reach the disk.
        got.retain(|e| end == End::Kill || !e.contains("The entry that stood here could not be read."));
        let (have, want) = (got.len(), self.entries.len());
        assert!(have >= floor && numbered, "{name}: {have} entries, {floor} were acknowledged, {want} appended");
        assert_eq!(got[..floor], self.entries[..floor], "{name}: what was acknowledged");
        match end {
            End::Kill => assert!(have <= want && got[..] == self.entries[..have], "{name}: a prefix"),
            End::Power => {
                assert!(in_order(&got[floor..], &self.entries[floor..]), "{name}: something nobody said");
            }
        }
        let records = store.live(&sid(name)).read_all().unwrap();
        let records: Vec<String> = records.iter().map(|r| r.get().to_owned()).collect();
        self.check_records(&records, name, end);
        for (hash, bytes) in &self.blobs {
            assert_eq!(store.get_blob(&sid(name), hash).unwrap().as_ref(), Some(bytes), "{name}: blob {hash}");
        }
        for (artifact, bytes) in &self.artifacts {
            assert_eq!(store.get_artifact(&sid(name), artifact).unwrap().as_ref(), Some(bytes), "{name}: {artifact}");
        }
        let after = format!("{{\"type\":\"notice\",\"text\":\"after {want} of {name}\",\"at\":\"t\"}}");
        let n = log.append(&[raw(after.clone())], None).unwrap();
        assert_eq!(log.disk(), None);
        let json = json_of(log.path());
        assert_eq!(json["entries"].as_u64(), Some(n), "{name}");
        assert_eq!(json["events"].as_array().unwrap().len() as u64, n, "{name}");
        got.push(after);
        let again = store.load(&sid(name)).unwrap();
        assert!(again.len() == n && again.salvage().is_empty());
        let current = Records { written: records.len(), synced: 0, all: records };
        Some(Self {
            written: got.len(),
            synced: floor,
            entries: got,
            live: vec![current],
            blobs: self.blobs.clone(),
            artifacts: self.artifacts.clone(),
            ..Self::default()
        })
    }

    /// Records are those of one generation. After a kill it is the current one; after a power cut
    /// an older one may be back, as long as no later one was synced.
    fn check_records(&self, got: &[String], name: &str, end: End) {
        let last = self.live.len().saturating_sub(1);
        let first = match end {
            End::Kill => last - usize::from(self.emptying && last > 0),
            End::Power => self.live.iter().rposition(|r| r.synced > 0).unwrap_or(0),
        };
        let fits = |r: &Records| {
            let floor = if end == End::Kill { r.written } else { r.synced };
            let whole = got.len() >= floor && got[..floor] == r.all[..floor];
            whole && in_order(&got[floor..], &r.all[floor..])
        };
        let none = got.is_empty() && self.live.is_empty();
        assert!(
            none || self.live[first.min(self.live.len())..].iter().any(fits),
            "{name}: records {got:?} of {:?} (end: {end:?})",
            self.live
        );
    }
}
