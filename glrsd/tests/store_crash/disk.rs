//! A disk that can lose its power.
//!
//! Owns pictures of a directory tree, and from a series of them, with what was synced between,
//! every state a power cut may leave: of a file what its last sync covered, and of each 4 KiB page
//! since then any version, later pages without earlier ones included, behind any of its sizes; of
//! a directory what its last sync covered, and of the names changed since then any. A rename
//! happened or did not; so did a cut of a file (no page from before it stands beside one from
//! after it). This is what POSIX allows, and more than journaling file systems do.

use super::workload::Rng;
use glrsd::store::Op;
use std::collections::{BTreeMap, HashMap};
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

const PAGE: usize = 4096;

/// A directory tree in memory: files with their content, directories without.
pub type Tree = Vec<(PathBuf, Option<Arc<Vec<u8>>>)>;

/// Writes a tree below `root`.
pub fn plant(root: &Path, tree: &Tree) {
    fs::create_dir_all(root).unwrap();
    for (path, content) in tree {
        match content {
            Some(bytes) => fs::write(root.join(path), bytes.as_slice()).unwrap(),
            None => fs::create_dir_all(root.join(path)).unwrap(),
        }
    }
}

/// The tree below `root`, with the identity of each node.
fn scan(root: &Path) -> Vec<(PathBuf, u64, Option<Arc<Vec<u8>>>)> {
    let mut out = Vec::new();
    let mut dirs = vec![PathBuf::new()];
    while let Some(dir) = dirs.pop() {
        for entry in fs::read_dir(root.join(&dir)).into_iter().flatten().flatten() {
            let path = dir.join(entry.file_name());
            // The lock is held, not kept; the index is a cache that a thread of its own writes.
            if path.as_os_str() == "glrsd.lock" || path.to_string_lossy().starts_with("index.sqlite") {
                continue;
            }
            let Ok(meta) = fs::symlink_metadata(entry.path()) else { continue };
            if meta.is_dir() {
                dirs.push(path.clone());
                out.push((path, meta.ino(), None));
            } else {
                out.push((path, meta.ino(), Some(Arc::new(fs::read(entry.path()).unwrap()))));
            }
        }
    }
    out.sort();
    out
}

/// The tree below `root` as it stands.
pub fn picture(root: &Path) -> Tree {
    scan(root).into_iter().map(|(path, _, content)| (path, content)).collect()
}

/// A file or directory, with what the disk has of it for sure and what may have reached it.
#[derive(Default)]
struct Node {
    /// File: the versions since the last sync, that one first; `None` stands where it was cut.
    versions: Vec<Option<Arc<Vec<u8>>>>,
    /// Directory: names as of its last sync, and changes since, each a group that is one.
    synced: BTreeMap<String, u64>,
    changes: Vec<Vec<(String, Option<u64>)>>,
    names: BTreeMap<String, u64>,
    is_dir: bool,
}

/// The disk under a data directory.
pub struct Disk {
    root: PathBuf,
    nodes: HashMap<u64, Node>,
    /// Nodes by their identity on the real disk, which may be used again.
    known: HashMap<u64, u64>,
    next: u64,
    last: Option<(Op, PathBuf)>,
}

impl Disk {
    /// A disk that has everything below `root` for sure.
    pub fn new(root: &Path) -> Self {
        let mut disk =
            Self { root: root.to_owned(), nodes: HashMap::new(), known: HashMap::new(), next: 1, last: None };
        disk.nodes.insert(0, Node { is_dir: true, ..Node::default() });
        disk.look();
        for node in disk.nodes.values_mut() {
            node.settle();
        }
        disk
    }

    /// Takes note of an operation that is about to be done; the one before it is over.
    pub fn before(&mut self, op: Op, path: &Path) {
        self.look();
        self.last = Some((op, path.strip_prefix(&self.root).unwrap_or(path).to_owned()));
    }

    /// Takes note of what the last operation did.
    pub fn look(&mut self) {
        let last = self.last.take();
        let seen = scan(&self.root);
        let real: HashMap<u64, u64> =
            seen.iter().filter_map(|(_, ino, _)| Some((*ino, *self.known.get(ino)?))).collect();
        self.known = real;
        let mut keys: HashMap<PathBuf, u64> = HashMap::from([(PathBuf::new(), 0)]);
        let mut dirs: BTreeMap<u64, BTreeMap<String, u64>> = BTreeMap::from([(0, BTreeMap::new())]);
        for (path, ino, content) in &seen {
            let key = *self.known.entry(*ino).or_insert_with(|| {
                self.next += 1;
                self.next
            });
            keys.insert(path.clone(), key);
            let above = keys[path.parent().unwrap()];
            let name = path.file_name().unwrap().to_str().unwrap().to_owned();
            dirs.entry(above).or_default().insert(name, key);
            let node = self.nodes.entry(key).or_default();
            match content {
                None => {
                    node.is_dir = true;
                    dirs.entry(key).or_default();
                }
                Some(bytes) => node.write(bytes),
            }
        }
        let renamed = matches!(last, Some((Op::Rename, _)));
        for (key, names) in dirs {
            if let Some(node) = self.nodes.get_mut(&key) {
                node.rename(names, renamed);
            }
        }
        match last {
            Some((Op::SyncDir, dir)) => {
                if let Some(node) = keys.get(&dir).and_then(|k| self.nodes.get_mut(k)) {
                    node.settle();
                }
            }
            Some((Op::Sync, path)) => {
                // A file that is to get this name is synced under its temporary one.
                let dir = path.parent().unwrap_or(Path::new(""));
                let temp = |p: &&PathBuf| p.parent() == Some(dir) && p.extension().is_some_and(|e| e == "tmp");
                let of = keys.keys().find(temp).cloned().unwrap_or(path);
                if let Some(node) = keys.get(&of).and_then(|k| self.nodes.get_mut(k)) {
                    node.settle();
                }
            }
            _ => {}
        }
    }

    /// A state that a power cut may leave now.
    pub fn cut(&self, rng: &mut Rng) -> Tree {
        let mut tree = Tree::new();
        // From nothing that was not synced to all of it.
        let luck = rng.below(5);
        self.gather(0, Path::new(""), rng, luck, &mut tree);
        tree
    }

    fn gather(&self, key: u64, path: &Path, rng: &mut Rng, luck: usize, tree: &mut Tree) {
        let node = &self.nodes[&key];
        if !node.is_dir {
            tree.push((path.to_owned(), Some(Arc::new(node.content(rng, luck)))));
            return;
        }
        if key != 0 {
            tree.push((path.to_owned(), None));
        }
        let mut names = node.synced.clone();
        for group in node.changes.iter().filter(|_| rng.below(4) < luck).collect::<Vec<_>>() {
            for (name, to) in group {
                match to {
                    Some(key) => names.insert(name.clone(), *key),
                    None => names.remove(name),
                };
            }
        }
        for (name, key) in names {
            self.gather(key, &path.join(name), rng, luck, tree);
        }
    }
}

impl Node {
    fn write(&mut self, bytes: &Arc<Vec<u8>>) {
        if self.versions.is_empty() {
            self.versions.push(Some(Arc::default()));
        }
        if let Some(Some(last)) = self.versions.last() {
            if last == bytes {
                return;
            }
            if bytes.len() < last.len() {
                self.versions.push(None);
            }
        }
        self.versions.push(Some(bytes.clone()));
    }

    fn rename(&mut self, names: BTreeMap<String, u64>, as_one: bool) {
        let gone = self.names.keys().filter(|n| !names.contains_key(*n)).map(|n| (n.clone(), None));
        let set = names.iter().filter(|(n, k)| self.names.get(*n) != Some(*k)).map(|(n, k)| (n.clone(), Some(*k)));
        let changes: Vec<_> = gone.chain(set).collect();
        if as_one && !changes.is_empty() {
            self.changes.push(changes);
        } else {
            self.changes.extend(changes.into_iter().map(|c| vec![c]));
        }
        self.names = names;
    }

    fn settle(&mut self) {
        let last = self.versions.pop();
        self.versions.clear();
        self.versions.extend(last);
        self.changes.clear();
        self.synced = self.names.clone();
    }

    fn content(&self, rng: &mut Rng, luck: usize) -> Vec<u8> {
        let parts: Vec<Vec<&Arc<Vec<u8>>>> =
            self.versions.split(Option::is_none).map(|part| part.iter().flatten().collect()).collect();
        let Some(part) = parts.get(if luck == 0 { 0 } else { rng.below(parts.len()) }) else { return Vec::new() };
        let (first, last) = (part[0], part[part.len() - 1]);
        let mut pick = || match luck {
            0 => first,
            4 => last,
            _ => part[rng.below(part.len())],
        };
        let mut out = vec![0; pick().len()];
        for (i, page) in out.chunks_mut(PAGE).enumerate() {
            let from = pick().get(i * PAGE..).unwrap_or_default();
            let n = from.len().min(page.len());
            page[..n].copy_from_slice(&from[..n]);
        }
        out
    }
}
