//! The index: the list's rows and the full text of what people and models said, in one file.
//!
//! Owns `index.sqlite`, a cache of the logs and nothing else: it is filled behind them by a thread
//! of its own that ends when there is nothing left to do, is compared with what the files are now
//! before it is believed, and is deleted and made anew when it is damaged. Whoever asks gets `None`
//! while it cannot answer, and reads the logs instead. Must not know which sessions are loaded.
//!
//! What is believed: a directory whose time has not changed has the same names; a file whose
//! (device, number, size, time) has not changed has the same content. A list compares the
//! directories and the rows it shows, a search and the first call after start every file.

mod db;
mod fill;

use super::disk::Stamp;
use super::pool::lock;
use super::{Row, Store};
use db::{Shown, Trouble};
use glrs_protocol::SessionId;
use std::collections::HashSet;
use std::sync::{Condvar, Mutex};
use std::time::{Duration, Instant};

/// After a refusal by the disk, so long nothing is tried.
const PAUSE: Duration = Duration::from_secs(60);
/// How often a page is taken again because files changed under it.
const TRIES: usize = 3;

/// Which sessions that do tasks of others are wanted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Children<'a> {
    /// None but those whose parent is gone: nothing else leads to them.
    #[default]
    Orphans,
    /// All, beside the others.
    All,
    /// Those of this session, and nothing else.
    Of(&'a str),
}

impl Children<'_> {
    /// Whether a session is wanted. `parent` is whose task it does; `there` tells whether that exists.
    pub fn fits(self, parent: Option<&str>, there: &dyn Fn(&str) -> bool) -> bool {
        match self {
            Self::All => true,
            Self::Orphans => parent.is_none_or(|p| !there(p)),
            Self::Of(id) => parent == Some(id),
        }
    }
}

/// Which part of the list is wanted, and what is to be merged into it.
#[derive(Default)]
pub struct Want<'a> {
    /// Only sessions of the directories for which this is true.
    pub cwd: Option<&'a dyn Fn(&str) -> bool>,
    /// Only those whose title has this, in lower case.
    pub title: Option<&'a str>,
    /// Only broken ones, or only others.
    pub broken: Option<bool>,
    /// Which of those that do tasks of others.
    pub children: Children<'a>,
    /// No stored session fits: only what is given.
    pub given_only: bool,
    /// Sessions that are not to come from the index.
    pub without: Vec<&'a str>,
    /// What is to be merged in, newest first: when, and which.
    pub given: Vec<(i64, &'a str)>,
    /// How many to leave out.
    pub skip: usize,
    /// How many at most.
    pub most: usize,
}

/// One place in a page.
#[derive(Clone, Debug)]
pub enum Slot<T> {
    /// What was given under this number.
    Given(usize),
    /// A stored session.
    Stored(T),
}

/// A session that may contain what is searched.
#[derive(Clone, Debug)]
pub struct Candidate {
    /// When it last changed, for sorting.
    pub at: i64,
    /// Its id.
    pub name: String,
    row: String,
    /// Numbers of the entries that may contain it; `None` when its log has to be read.
    pub entries: Option<Vec<u64>>,
}

impl Candidate {
    /// Its row; `None` when the index is damaged, which [`Store::index_damaged`] has to be told.
    /// Made when it is asked for: most candidates are not.
    pub fn row(&self) -> Option<Row> {
        db::row_of(&self.row).ok()
    }
}

/// The index as all handles of a store share it.
#[derive(Default)]
pub(crate) struct Index {
    state: Mutex<State>,
    /// Sessions that changed since rows and files were compared, by name: no more than there are.
    /// Never held for long, so that a session may say so at any time.
    touched: Mutex<HashSet<String>>,
    rested: Condvar,
}

/// What is known of the index file.
#[derive(Default)]
struct State {
    /// Set while its rows are those of the files.
    swept: Option<Swept>,
    /// Whether the thread is there.
    working: bool,
    /// Whether it is to look again before it ends.
    again: bool,
    /// Whether it compares all files: then rows are not written beside it.
    sweeping: bool,
    /// Whether the index file has to be made anew.
    damaged: bool,
    /// When the disk refused.
    refused: Option<Instant>,
}

impl State {
    fn damaged(&mut self) {
        self.damaged = true;
        self.sweeping = false;
        self.swept = None;
    }
}

/// What was there when rows and files were compared.
struct Swept {
    /// The index file.
    file: Stamp,
    /// The directories, ours and the predecessor's.
    dirs: [DirTime; 2],
}

/// When a directory last changed. `Unsure` equals nothing, not even itself.
#[derive(Clone, Copy, Debug)]
enum DirTime {
    Missing,
    At(i64),
    Unsure,
}

impl DirTime {
    fn holds(self, now: Self) -> bool {
        match (self, now) {
            (Self::Missing, Self::Missing) => true,
            (Self::At(a), Self::At(b)) => a == b,
            _ => false,
        }
    }
}

impl Store {
    /// A part of the list from the index; `None` when the logs have to be asked. Costs what is
    /// shown, not what is there.
    pub fn list_page(&self, want: &Want<'_>) -> Option<(Vec<Slot<Row>>, u64)> {
        for _ in 0..TRIES {
            let db = self.fresh(false)?;
            let page = match db.page(want) {
                Ok(page) => page,
                Err(e) => return self.in_trouble(e),
            };
            let mut stale = Vec::new();
            let mut out = Vec::with_capacity(page.slots.len());
            for slot in page.slots {
                out.push(match slot {
                    Slot::Given(i) => Slot::Given(i),
                    Slot::Stored(shown) => {
                        if self.is_stale(&shown) {
                            stale.push(shown.row.name.clone());
                        }
                        Slot::Stored(shown.row)
                    }
                });
            }
            if stale.is_empty() {
                return Some((out, page.total));
            }
            lock(&self.0.index.touched).extend(stale);
        }
        None
    }

    /// The sessions that may contain a text (in lower case), newest first, each to be compared
    /// with its log; `None` when all logs have to be asked.
    pub fn search_index(&self, needle: &str, cwd: Option<&dyn Fn(&str) -> bool>) -> Option<Vec<Candidate>> {
        let db = self.fresh(true)?;
        match db.search(needle, cwd) {
            Ok(found) => Some(
                found
                    .into_iter()
                    .map(|f| Candidate { at: f.at, name: f.name, row: f.row, entries: f.entries })
                    .collect(),
            ),
            Err(e) => self.in_trouble(e),
        }
    }

    /// Says that a session's files changed, as far as its holder knows: it left memory, it was
    /// made, it was deleted. Filled in by the thread, or by the next call that needs it.
    pub fn index_touched(&self, id: &SessionId) {
        if self.0.disk.read_only {
            return;
        }
        lock(&self.0.index.touched).insert(id.to_string());
        self.wake_if_free();
    }

    /// Says that something in the index cannot be read: it is made anew.
    pub fn index_damaged(&self) {
        let _: Option<()> = self.in_trouble(Trouble::Damaged);
    }

    /// Waits until the thread has nothing left to do. For tests and measurements.
    pub fn index_rest(&self) {
        let index = &self.0.index;
        let state = lock(&index.state);
        let _unused = index.rested.wait_while(state, |s| s.working).unwrap_or_else(std::sync::PoisonError::into_inner);
    }

    fn is_stale(&self, shown: &Shown) -> bool {
        let path = fill::path_of(&self.0, &shown.row.name, shown.known.legacy);
        let now = super::list::stamp_of(&path).map(|s| s.text());
        match &shown.known.stamp {
            // It could not be read when its row was made: whether it can now, only trying tells.
            None => fill::differs(&self.0, shown),
            stamp => now != *stamp,
        }
    }

    /// Takes note of trouble. Always `None`: the logs answer instead.
    fn in_trouble<T>(&self, trouble: Trouble) -> Option<T> {
        let mut state = lock(&self.0.index.state);
        match trouble {
            Trouble::Busy => {}
            Trouble::Damaged => {
                state.damaged();
                drop(state);
                self.wake();
            }
            Trouble::Refused(why) => {
                tracing::warn!(why, "the index of sessions cannot be used; lists and searches read the logs");
                state.swept = None;
                state.refused = Some(Instant::now());
            }
        }
        None
    }
}
