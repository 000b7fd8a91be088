//! A random workload on a store: appends, syncs, journals, blobs, forks, deletions, prompts.
//!
//! Owns the choice of steps, the same for the same seed, and the ledger that says at every file
//! operation what was promised until then.

use super::ledger::{Ledger, Promise, Records, paths, raw, sid};
use glrsd::store::{Faults, Live, Log, Store};
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The same numbers for the same seed (splitmix64).
#[derive(Clone, Debug)]
pub struct Rng(pub u64);

impl Rng {
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    pub fn below(&mut self, n: usize) -> usize {
        usize::try_from(self.next() % n.max(1) as u64).unwrap()
    }
}

/// The ledger, shared with whoever watches the file operations.
pub type Shared = Arc<Mutex<Ledger>>;

pub fn lock<T>(m: &Mutex<T>) -> MutexGuard<'_, T> {
    m.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The workload under way.
pub struct Workload {
    store: Store,
    pub rng: Rng,
    ledger: Shared,
    logs: BTreeMap<String, (Log, Live)>,
    made: usize,
    runtime: tokio::runtime::Runtime,
}

impl Workload {
    /// Goes on where `ledger` stands, in `root`.
    pub fn new(root: &Path, seed: u64, ledger: Shared, faults: Faults) -> Self {
        let store = Store::with_faults(paths(root), faults).unwrap();
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let names: Vec<String> = lock(&ledger).sessions.keys().cloned().collect();
        let load = |n: &String| (n.clone(), (store.load(&sid(n)).unwrap(), store.live(&sid(n))));
        let logs = names.iter().map(load).collect();
        let mut rng = Rng(seed);
        let made = usize::try_from(rng.next() >> 40).unwrap();
        Self { store, rng, ledger, logs, made, runtime }
    }

    fn promise<R>(&self, name: &str, change: impl FnOnce(&mut Promise) -> R) -> R {
        change(lock(&self.ledger).sessions.entry(name.to_owned()).or_default())
    }

    fn fresh(&mut self) -> String {
        self.made += 1;
        format!("{:08x}", self.made)
    }

    fn entry(&mut self) -> String {
        let words = match self.rng.below(10) {
            0 => 600 + self.rng.below(1200),
            1 => 0,
            _ => self.rng.below(40),
        };
        let kind = ["user", "assistant", "reasoning", "notice"][self.rng.below(4)];
        let n = self.rng.next();
        format!("{{\"type\":\"{kind}\",\"text\":\"{n:016x} {}\",\"at\":\"t\"}}", "wörd ".repeat(words))
    }

    /// One step.
    pub fn step(&mut self) {
        lock(&self.ledger).busy = true;
        if self.logs.is_empty() || (self.logs.len() < 4 && self.rng.below(8) == 0) {
            let name = self.fresh();
            let log = self.store.create(&sid(&name), "/r", "t");
            let live = self.store.live(&sid(&name));
            self.logs.insert(name, (log, live));
        }
        let k = self.rng.below(self.logs.len());
        let name = self.logs.keys().nth(k).cloned().unwrap();
        match self.rng.below(20) {
            0..=6 => self.append(&name),
            7..=9 => self.sync(&name),
            10..=11 => self.record(&name),
            12 => self.empty(&name),
            13 => self.blob(&name),
            14 => self.artifact(&name),
            15..=16 => self.fork(&name),
            17 => self.push(),
            18 => self.reload(&name),
            _ => self.delete(&name),
        }
        let mut l = lock(&self.ledger);
        l.busy = false;
        l.steps += 1;
    }

    fn append(&mut self, name: &str) {
        let entries: Vec<String> = (0..=self.rng.below(4)).map(|_| self.entry()).collect();
        self.promise(name, |p| p.entries.extend(entries.iter().cloned()));
        let values: Vec<_> = entries.into_iter().map(raw).collect();
        let log = &mut self.logs.get_mut(name).unwrap().0;
        log.append(&values, Some(values.len() as u64)).unwrap();
        assert_eq!(log.disk(), None);
        self.promise(name, |p| p.written = p.entries.len());
    }

    fn sync(&mut self, name: &str) {
        let (log, _) = self.logs.get_mut(name).unwrap();
        self.runtime.block_on(log.sync()).unwrap();
        let len = usize::try_from(log.len()).unwrap();
        if len > 0 {
            self.promise(name, |p| p.synced = p.written);
        }
    }

    fn record(&mut self, name: &str) {
        if self.logs[name].0.is_empty() {
            return self.append(name);
        }
        let record = format!("{{\"n\":{},\"pad\":\"{}\"}}", self.rng.next(), "x".repeat(self.rng.below(900)));
        self.promise(name, |p| {
            if p.live.is_empty() {
                p.live.push(Records::default());
            }
            p.live.last_mut().unwrap().all.push(record.clone());
        });
        let sync = self.rng.below(3) > 0;
        let (_, live) = self.logs.get_mut(name).unwrap();
        live.append(&raw(record)).unwrap();
        let all = |r: &mut Records| r.written = r.all.len();
        self.promise(name, |p| all(p.live.last_mut().unwrap()));
        if sync {
            let (_, live) = self.logs.get_mut(name).unwrap();
            self.runtime.block_on(live.sync()).unwrap();
            self.promise(name, |p| p.live.last_mut().unwrap().synced = p.live.last().unwrap().written);
        }
    }

    /// Empties the journal, or removes it.
    fn empty(&mut self, name: &str) {
        if self.logs[name].0.is_empty() {
            return;
        }
        self.sync(name);
        self.promise(name, |p| {
            p.live.push(Records::default());
            p.emptying = true;
        });
        let unlink = self.rng.below(3) == 0;
        let (_, live) = self.logs.get_mut(name).unwrap();
        if unlink {
            live.unlink().unwrap()
        } else {
            live.truncate().unwrap()
        }
        self.promise(name, |p| {
            p.emptying = false;
            if unlink {
                p.live = vec![Records::default()];
            }
        });
    }

    fn blob(&mut self, name: &str) {
        let bytes = self.rng.next().to_le_bytes().repeat(1 + self.rng.below(900));
        let hash = self.store.put_blob(&sid(name), &bytes).unwrap();
        self.promise(name, |p| p.blobs.insert(hash, bytes));
        self.append(name);
    }

    fn artifact(&mut self, name: &str) {
        let bytes = self.rng.next().to_string().into_bytes();
        let artifact = format!("{:08x}.md", self.rng.next() >> 32);
        self.store.put_artifact(&sid(name), &artifact, &bytes).unwrap();
        self.promise(name, |p| p.artifacts.insert(artifact, bytes));
        self.append(name);
    }

    fn fork(&mut self, name: &str) {
        let (new, extra) = (self.fresh(), self.entry());
        let at = self.rng.below(usize::try_from(self.logs[name].0.len()).unwrap() + 1);
        let (log, _) = &self.logs[name];
        let parent = self.promise(name, |p| p.clone());
        let mut entries = parent.entries[..at].to_vec();
        entries.push(extra.clone());
        let child = Promise {
            written: entries.len(),
            synced: entries.len(),
            entries,
            blobs: parent.blobs,
            artifacts: parent.artifacts,
            unborn: true,
            ..Promise::default()
        };
        lock(&self.ledger).sessions.insert(new.clone(), child);
        let before = fs::read(log.path()).ok();
        let fork = self.store.fork(&log.reader(), at as u64, &sid(&new), &[raw(extra)]).unwrap();
        assert_eq!(fs::read(log.path()).ok(), before, "the parent's bytes do not change");
        self.promise(&new, |p| p.unborn = false);
        let live = self.store.live(&sid(&new));
        self.logs.insert(new, (fork, live));
    }

    fn push(&mut self) {
        let text = self.rng.next().to_string();
        if lock(&self.ledger).prompts.len() == 100 {
            return;
        }
        lock(&self.ledger).pushing = Some(text.clone());
        self.store.push_prompt(&text).unwrap();
        let mut l = lock(&self.ledger);
        l.pushing = None;
        l.prompts.push(text);
    }

    /// Unloads a session and loads it again.
    fn reload(&mut self, name: &str) {
        if self.logs[name].0.is_empty() {
            return;
        }
        self.logs.remove(name);
        let log = self.store.load(&sid(name)).unwrap();
        let live = self.store.live(&sid(name));
        self.logs.insert(name.to_owned(), (log, live));
    }

    fn delete(&mut self, name: &str) {
        if self.logs[name].0.is_empty() || self.logs.len() < 3 {
            return self.append(name);
        }
        self.logs.remove(name);
        self.promise(name, |p| p.dying = true);
        self.store.delete(&sid(name)).unwrap();
        let mut l = lock(&self.ledger);
        l.sessions.remove(name);
        l.deleted.push(name.to_owned());
    }
}
