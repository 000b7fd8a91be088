//! Bringing the index up to the logs: for one call, or all of it in the background.
//!
//! Owns the comparison of rows with files, the thread, and when it starts and ends. Must not know
//! the tables.

use super::db::{Db, Known, Shown, Trouble, Unfilled};
use super::{DirTime, PAUSE, State, Swept};
use crate::host::clock;
use crate::store::disk::Stamp;
use crate::store::list::{files, stamp_of};
use crate::store::pool::lock;
use crate::store::row::{self, stem};
use crate::store::{Inner, Row, Store};
use glrs_protocol::SessionId;
use glrs_protocol::entry::{self, Entry};
use std::collections::{HashMap, HashSet};
use std::path::{Path, PathBuf};
use std::sync::{Arc, MutexGuard, Weak};
use std::time::Instant;

/// So many files are read by a call that someone waits for; more are left to the thread, and the
/// logs answer.
const INLINE: usize = 200;
/// So many rows are written at once, so that calls in between have to wait for little.
const BATCH: usize = 256;
/// A directory that changed less than this ago may change again without its time changing.
const TICK_MS: i64 = 100;

/// Where a session's file lies.
pub(super) fn path_of(inner: &Inner, name: &str, legacy: bool) -> PathBuf {
    let dir = if legacy { inner.paths.legacy.clone() } else { inner.paths.sessions() };
    dir.join(format!("{name}.json"))
}

/// Whether the row of a file that could not be read would be another one now.
pub(super) fn differs(inner: &Inner, shown: &Shown) -> bool {
    let path = path_of(inner, &shown.row.name, shown.known.legacy);
    inner.row_and_stamp(&path, shown.known.legacy).0 != shown.row
}

fn dir_time(dir: &Path) -> DirTime {
    let Some(at) = stamp_of(dir).map(|s| s.mtime_ms()) else { return DirTime::Missing };
    let now = clock::parse_ms(&clock::now()).unwrap_or(i64::MIN);
    if at.saturating_add(TICK_MS) < now { DirTime::At(at) } else { DirTime::Unsure }
}

fn dir_times(inner: &Inner) -> [DirTime; 2] {
    [dir_time(&inner.paths.sessions()), dir_time(&inner.paths.legacy)]
}

/// Every session file there is, by name; ours before the predecessor's. Names that are no ids are
/// not listed.
fn names(inner: &Inner) -> Result<HashMap<String, bool>, Trouble> {
    let ours = files(&inner.paths.sessions()).map_err(refused)?;
    let theirs = files(&inner.paths.legacy).unwrap_or_default();
    let mut out = HashMap::with_capacity(ours.len() + theirs.len());
    for (paths, legacy) in [(theirs, true), (ours, false)] {
        let ids = paths.iter().map(|p| stem(p)).filter(|n| n.parse::<SessionId>().is_ok());
        out.extend(ids.map(|n| (n, legacy)));
    }
    Ok(out)
}

/// What has to be changed for the index to be as the files are.
#[derive(Default)]
struct Diff {
    gone: Vec<String>,
    read: Vec<(String, bool)>,
}

impl Diff {
    fn len(&self) -> usize {
        self.gone.len() + self.read.len()
    }
}

/// Compares names, and with `stats` every file, with what the index has.
fn compare(inner: &Inner, db: &Db, touched: &HashSet<String>, stats: bool) -> Result<Diff, Trouble> {
    let mut names = names(inner)?;
    let mut diff = Diff::default();
    db.each_known(&mut |name, known| {
        let Some(legacy) = names.remove(&name) else {
            diff.gone.push(name);
            return;
        };
        let as_it_was = || {
            // One that could not be read is tried again.
            known.stamp.is_some() && known.stamp == stamp_of(&path_of(inner, &name, legacy)).map(|s| s.text())
        };
        if known.legacy != legacy || touched.contains(&name) || (stats && !as_it_was()) {
            diff.read.push((name, legacy));
        }
    })?;
    // Of the others nothing is known.
    diff.read.extend(names);
    Ok(diff)
}

/// Looks only at sessions that are said to have changed.
fn compare_touched(inner: &Inner, touched: &HashSet<String>) -> Diff {
    let mut diff = Diff::default();
    for name in touched.iter().filter(|n| n.parse::<SessionId>().is_ok()) {
        let legacy = [false, true].into_iter().find(|l| path_of(inner, name, *l).symlink_metadata().is_ok());
        match legacy {
            Some(legacy) => diff.read.push((name.clone(), legacy)),
            None => diff.gone.push(name.clone()),
        }
    }
    diff
}

fn apply(inner: &Inner, db: &mut Db, diff: &Diff) -> Result<(), Trouble> {
    for gone in diff.gone.chunks(BATCH) {
        let batch = db.batch()?;
        for name in gone {
            batch.remove(name)?;
        }
        batch.commit()?;
    }
    for part in diff.read.chunks(BATCH) {
        // Files are read before the lock is taken.
        let rows: Vec<(Row, Known)> = part
            .iter()
            .map(|(name, legacy)| {
                let (row, stamp) = inner.row_and_stamp(&path_of(inner, name, *legacy), *legacy);
                (row, Known { legacy: *legacy, stamp: stamp.map(|s| s.text()) })
            })
            .collect();
        let batch = db.batch()?;
        for (row, known) in &rows {
            batch.put(row, known)?;
        }
        batch.commit()?;
    }
    Ok(())
}

/// Opens the index file if it is there and ours.
fn open(inner: &Inner, brief: bool) -> Result<Option<(Db, Stamp)>, Trouble> {
    let path = inner.paths.index();
    let Some(stamp) = stamp_of(&path) else { return Ok(None) };
    let db = Db::open(&path, brief)?;
    Ok(db.is_ours()?.then_some((db, stamp)))
}

/// Deletes the index file and what SQLite keeps beside it.
fn discard(inner: &Inner) -> Result<(), Trouble> {
    let path = inner.paths.index();
    for end in ["-wal", "-shm", "-journal", ""] {
        let mut name = path.clone().into_os_string();
        name.push(end);
        inner.disk.unlink(Path::new(&name)).map_err(refused)?;
    }
    Ok(())
}

fn refused(e: std::io::Error) -> Trouble {
    Trouble::Refused(e.kind().to_string())
}

/// Makes an empty index in the place of whatever is there.
fn make_anew(inner: &Inner) -> Result<(Db, Stamp), Trouble> {
    let path = inner.paths.index();
    discard(inner)?;
    // Made here, for its mode; SQLite gives the same to what it keeps beside it.
    inner.disk.open_or_make(&path).map_err(refused)?;
    let mut db = Db::open(&path, false)?;
    db.make()?;
    let stamp = stamp_of(&path).ok_or_else(|| Trouble::Refused("it went away".to_owned()))?;
    Ok((db, stamp))
}

impl Store {
    /// The index, as the files are now: names compared, and with `stats` every file. `None` when
    /// that is too much for a call that someone waits for.
    pub(super) fn fresh(&self, stats: bool) -> Option<Db> {
        if self.0.disk.read_only {
            return None;
        }
        match self.try_fresh(stats) {
            Ok(Some(db)) => Some(db),
            Ok(None) => {
                self.wake();
                None
            }
            Err(e) => self.in_trouble(e),
        }
    }

    fn try_fresh(&self, stats: bool) -> Result<Option<Db>, Trouble> {
        let inner = &self.0;
        let mut state = lock(&inner.index.state);
        if state.refused.is_some_and(|at| at.elapsed() < PAUSE) {
            return Err(Trouble::Busy);
        }
        if state.sweeping {
            return Ok(None);
        }
        let Some((mut db, file)) = open(inner, true)? else {
            state.swept = None;
            return Ok(None);
        };
        let dirs = dir_times(inner);
        let now = state.swept.as_ref().filter(|s| s.file.same_file(&file));
        let same_names = now.is_some_and(|s| s.dirs[0].holds(dirs[0]) && s.dirs[1].holds(dirs[1]));
        let all = stats || now.is_none();
        let touched = std::mem::take(&mut *lock(&inner.index.touched));
        let done = (|| {
            let diff =
                if same_names && !all { compare_touched(inner, &touched) } else { compare(inner, &db, &touched, all)? };
            if diff.read.len() > INLINE {
                return Ok(None);
            }
            if diff.len() > 0 {
                apply(inner, &mut db, &diff)?;
            }
            Ok(Some(diff))
        })();
        let diff = match done {
            Ok(Some(diff)) => diff,
            other => {
                // It is still to be done.
                lock(&inner.index.touched).extend(touched);
                state.swept = None;
                return other.map(|_| None);
            }
        };
        // Texts are to be filled in: of these, or of those that a daemon before this one left.
        let texts = !diff.read.is_empty() || state.swept.is_none();
        state.swept = Some(Swept { file, dirs });
        drop(state);
        if texts {
            self.wake();
        }
        Ok(Some(db))
    }

    /// Starts the thread if it is not there.
    pub(super) fn wake(&self) {
        self.start(lock(&self.0.index.state));
    }

    /// The same for callers that must not wait: while someone works on the index, the next one who
    /// asks for it sees what is left to do.
    pub(super) fn wake_if_free(&self) {
        if let Ok(state) = self.0.index.state.try_lock() {
            self.start(state);
        }
    }

    fn start(&self, mut state: MutexGuard<'_, State>) {
        state.again = state.working;
        if state.working || state.refused.is_some_and(|at| at.elapsed() < PAUSE) {
            return;
        }
        state.refused = None;
        let me = Arc::downgrade(&self.0);
        // A process without room for a thread has other troubles: the next call tries again.
        state.working = std::thread::Builder::new().name("glrs-index".to_owned()).spawn(move || work(&me)).is_ok();
    }
}

/// The thread: fills the index until nothing is left to do. It holds the store only step by step,
/// so that a store that is let go goes.
fn work(store: &Weak<Inner>) {
    let mut db = None;
    let mut failures = 0;
    while let Some(inner) = store.upgrade() {
        let trouble = match step(&inner, &mut db) {
            Ok(true) => continue,
            Ok(false) => None,
            Err(Trouble::Damaged) if failures < 2 => {
                // Made anew by the next step.
                failures += 1;
                lock(&inner.index.state).damaged();
                continue;
            }
            Err(Trouble::Damaged) => Some("it is damaged again and again".to_owned()),
            Err(Trouble::Busy) => Some("it is in use".to_owned()),
            Err(Trouble::Refused(why)) => Some(why),
        };
        // The last one to close tidies up: before anyone is told that it is done.
        db = None;
        let mut state = lock(&inner.index.state);
        state.sweeping = false;
        if let Some(why) = trouble {
            tracing::warn!(why, "the index of sessions cannot be filled; lists and searches read the logs");
            state.swept = None;
            state.refused = Some(Instant::now());
        } else if state.again {
            // Something came while it was closing.
            state.again = false;
            continue;
        }
        state.working = false;
        // The index remembers what a list has read meanwhile.
        *lock(&inner.rows) = HashMap::new();
        inner.index.rested.notify_all();
        return;
    }
}

/// One step of the filling. `false` when nothing is left to do.
fn step(inner: &Inner, open_db: &mut Option<Db>) -> Result<bool, Trouble> {
    if lock(&inner.index.state).swept.is_none() {
        return sweep(inner, open_db);
    }
    let db = match open_db.as_mut() {
        Some(db) => db,
        None => match open(inner, false)? {
            Some((db, _)) => open_db.insert(db),
            None => return Err(Trouble::Damaged),
        },
    };
    {
        // Held meanwhile: a list that is asked for now waits for these few, and sees them.
        let _state = lock(&inner.index.state);
        let touched = std::mem::take(&mut *lock(&inner.index.touched));
        if let Err(e) = apply(inner, db, &compare_touched(inner, &touched)) {
            lock(&inner.index.touched).extend(touched);
            return Err(e);
        }
    }
    let Some(unfilled) = db.unfilled()? else { return Ok(false) };
    let texts = texts_of(inner, &unfilled);
    let batch = db.batch()?;
    batch.put_texts(&unfilled, &texts)?;
    batch.commit()?;
    Ok(true)
}

/// Compares every file with its row. Makes the index file if there is something to index, and says
/// whether there is.
fn sweep(inner: &Inner, open_db: &mut Option<Db>) -> Result<bool, Trouble> {
    *open_db = None;
    let (touched, damaged) = {
        let mut state = lock(&inner.index.state);
        state.sweeping = true;
        (std::mem::take(&mut *lock(&inner.index.touched)), std::mem::take(&mut state.damaged))
    };
    let dirs = dir_times(inner);
    let opened = if damaged { None } else { open(inner, false)? };
    if opened.is_none() && names(inner)?.is_empty() {
        discard(inner)?;
        return Ok(false);
    }
    let (mut db, file) = opened.map_or_else(|| make_anew(inner), Ok)?;
    let diff = compare(inner, &db, &touched, true)?;
    apply(inner, &mut db, &diff)?;
    *open_db = Some(db);
    let mut state = lock(&inner.index.state);
    state.sweeping = false;
    state.swept = Some(Swept { file, dirs });
    Ok(true)
}

/// What people and models said in a session, in lower case as it is searched. What cannot be read
/// has said nothing.
fn texts_of(inner: &Inner, of: &Unfilled) -> Vec<(u64, String)> {
    let mut out = Vec::new();
    let Ok(id) = of.name.parse::<SessionId>() else { return out };
    let path = path_of(inner, &of.name, of.known.legacy);
    let Ok((reader, ..)) = row::reader(&path, &id, of.known.legacy) else { return out };
    let _ = reader.scan(&mut |n, raw| {
        let text = match Entry::parse(raw) {
            _ if !matches!(entry::kind_of(raw).as_ref(), "user" | "assistant") => return,
            Ok(Entry::User(u)) => u.text,
            Ok(Entry::Assistant(a)) => a.text,
            _ => return,
        };
        // The tokenizer ends at a NUL.
        out.push((n, text.to_lowercase().replace('\0', " ")));
    });
    out
}
