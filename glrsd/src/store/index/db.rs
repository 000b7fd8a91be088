//! The index file itself: its tables and every statement that touches them.
//!
//! Owns the layout of `index.sqlite`. Must not know sessions' files, threads, or when the index is
//! to be believed.

use super::{Children, Slot, Want};
use crate::store::Row;
use rusqlite::config::DbConfig;
use rusqlite::{Connection, OpenFlags, OptionalExtension, Transaction, TransactionBehavior, params};
use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

/// Number of the layout, and of how rows are made of logs: a file with another one is made anew.
const LAYOUT: i64 = 2;

const TABLES: &str = "
CREATE TABLE session(
  id INTEGER PRIMARY KEY,
  name TEXT NOT NULL UNIQUE,
  legacy INTEGER NOT NULL,
  stamp TEXT,
  at INTEGER NOT NULL,
  cwd TEXT NOT NULL,
  title TEXT NOT NULL,
  parent TEXT NOT NULL,
  broken INTEGER NOT NULL,
  texts INTEGER NOT NULL,
  row TEXT NOT NULL
);
CREATE INDEX session_order ON session(at DESC, name);
CREATE INDEX session_cwd ON session(cwd, at DESC, name);
CREATE INDEX session_todo ON session(at DESC) WHERE texts = 0;
CREATE VIRTUAL TABLE text USING fts5(
  t, content='', contentless_delete=1, detail=none, tokenize='trigram case_sensitive 1'
);
";

/// SQLite's code for a file that ends before it should.
const SHORT_READ: i32 = 522;
/// SQLite's code for a file that was removed while it was open.
const MOVED: i32 = 1032;

/// Entry numbers take the lower half of a text's row id, the session's number the upper one.
const ENTRY_BITS: u32 = 32;
/// Trigrams of a needle that are asked for; the rest is left to the comparison with the log.
const TRIGRAMS: usize = 32;

/// What a file was when its row was made, and whose it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Known {
    pub(super) legacy: bool,
    pub(super) stamp: Option<String>,
}

/// A session whose texts are not in yet.
pub(super) struct Unfilled {
    pub(super) id: i64,
    pub(super) name: String,
    pub(super) known: Known,
}

/// A session that may contain what is searched, as the index has it.
pub(super) struct Found {
    pub(super) at: i64,
    pub(super) name: String,
    pub(super) row: String,
    pub(super) entries: Option<Vec<u64>>,
}

/// A row that was shown, with what its file was.
pub(super) struct Shown {
    pub(super) row: Row,
    pub(super) known: Known,
}

/// A page: what was given or is stored, in order.
pub(super) struct Page {
    pub(super) slots: Vec<Slot<Box<Shown>>>,
    pub(super) total: u64,
}

/// An open index.
pub(super) struct Db(Connection);

/// Several changes that take effect together.
pub(super) struct Batch<'a>(Transaction<'a>);

/// Why the index cannot be used.
#[derive(Debug)]
pub(super) enum Trouble {
    /// It is not what it should be: it has to be made anew.
    Damaged,
    /// Someone else works on it.
    Busy,
    /// The disk or the system refuses.
    Refused(String),
}

impl From<rusqlite::Error> for Trouble {
    fn from(e: rusqlite::Error) -> Self {
        use rusqlite::ErrorCode::{
            CannotOpen, DatabaseBusy, DatabaseLocked, DiskFull, FileLockingProtocolFailed, OutOfMemory,
            PermissionDenied, ReadOnly, SystemIoFailure,
        };
        if let rusqlite::Error::SqliteFailure(f, _) = &e
            && matches!(f.extended_code, SHORT_READ | MOVED)
        {
            return Self::Damaged;
        }
        match e.sqlite_error_code() {
            Some(DatabaseBusy | DatabaseLocked) => Self::Busy,
            Some(
                c @ (CannotOpen
                | DiskFull
                | FileLockingProtocolFailed
                | OutOfMemory
                | PermissionDenied
                | ReadOnly
                | SystemIoFailure),
            ) => Self::Refused(format!("{c:?}")),
            // Whatever else a fixed set of statements may meet comes from the file.
            _ => Self::Damaged,
        }
    }
}

impl Db {
    /// Opens a file that is there. `brief` is for calls that someone waits for: they do not wait
    /// for the filling, and leave its clean-up to it.
    pub(super) fn open(path: &Path, brief: bool) -> Result<Self, Trouble> {
        let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let db = Connection::open_with_flags(path, flags)?;
        db.busy_timeout(Duration::from_millis(if brief { 50 } else { 10_000 }))?;
        db.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, brief)?;
        // Memory is for sessions: a list looks at a few dozen pages.
        db.execute_batch("PRAGMA cache_size = -1024; PRAGMA synchronous = NORMAL; PRAGMA temp_store = MEMORY;")?;
        Ok(Self(db))
    }

    /// Whether it has our tables, of this layout.
    pub(super) fn is_ours(&self) -> Result<bool, Trouble> {
        Ok(self.0.pragma_query_value(None, "user_version", |r| r.get::<_, i64>(0))? == LAYOUT)
    }

    /// Makes the tables in a file that is empty. A log beside the file, so that lists are read
    /// while it is being filled.
    pub(super) fn make(&mut self) -> Result<(), Trouble> {
        self.0.pragma_update_and_check(None, "journal_mode", "WAL", |_| Ok(()))?;
        let t = self.0.transaction_with_behavior(TransactionBehavior::Immediate)?;
        t.execute_batch(TABLES)?;
        t.pragma_update(None, "user_version", LAYOUT)?;
        Ok(t.commit()?)
    }

    /// Tells of every session what its file was when its row was made.
    pub(super) fn each_known(&self, each: &mut dyn FnMut(String, Known)) -> Result<(), Trouble> {
        let mut all = self.0.prepare("SELECT name, legacy, stamp FROM session")?;
        let mut rows = all.query([])?;
        while let Some(r) = rows.next()? {
            each(r.get(0)?, Known { legacy: r.get(1)?, stamp: r.get(2)? });
        }
        Ok(())
    }

    /// Begins changes.
    pub(super) fn batch(&mut self) -> Result<Batch<'_>, Trouble> {
        Ok(Batch(self.0.transaction_with_behavior(TransactionBehavior::Immediate)?))
    }

    /// The newest session whose texts are not in yet.
    pub(super) fn unfilled(&self) -> Result<Option<Unfilled>, Trouble> {
        let sql = "SELECT id, name, legacy, stamp FROM session WHERE texts = 0 ORDER BY at DESC LIMIT 1";
        let row = |r: &rusqlite::Row<'_>| {
            Ok(Unfilled { id: r.get(0)?, name: r.get(1)?, known: Known { legacy: r.get(2)?, stamp: r.get(3)? } })
        };
        Ok(self.0.query_row(sql, [], row).optional()?)
    }

    /// The directories that fit, as a JSON list.
    fn dirs(&self, fits: &dyn Fn(&str) -> bool) -> Result<String, Trouble> {
        let mut all = self.0.prepare("SELECT DISTINCT cwd FROM session")?;
        let dirs: Vec<String> = all.query_map([], |r| r.get(0))?.collect::<Result<_, _>>()?;
        Ok(json(dirs.iter().filter(|d| fits(d))))
    }

    /// One page of the list: stored sessions and those given, merged in order.
    pub(super) fn page(&self, want: &Want<'_>) -> Result<Page, Trouble> {
        // One state of the file for all statements.
        let _read = self.0.unchecked_transaction()?;
        // Numbers of parameters that a statement does not use are bound all the same.
        let mut cond = String::from("?1 IS NOT NULL AND ?2 IS NOT NULL AND ?3 IS NOT NULL AND ?4 IS NOT NULL");
        let mut dirs = String::new();
        if let Some(fits) = want.cwd {
            dirs = self.dirs(fits)?;
            cond.push_str(" AND cwd IN (SELECT value FROM json_each(?1))");
        }
        if !want.without.is_empty() {
            cond.push_str(" AND name NOT IN (SELECT value FROM json_each(?2))");
        }
        if want.title.is_some() {
            cond.push_str(" AND instr(title, ?3) > 0");
        }
        let mut parent = "";
        match want.children {
            Children::All => {}
            Children::Orphans => cond.push_str(
                " AND (parent = '' OR (parent NOT IN (SELECT name FROM session) AND parent NOT IN (SELECT value FROM json_each(?2))))",
            ),
            Children::Of(id) => {
                parent = id;
                cond.push_str(" AND parent = ?4");
            }
        }
        match want.broken {
            Some(true) => cond.push_str(" AND broken = 1"),
            Some(false) => cond.push_str(" AND broken = 0"),
            None => {}
        }
        let without = json(want.without.iter());
        let title = want.title.unwrap_or_default();
        let end = want.skip.saturating_add(want.most);
        let (mut keys, mut stored) = (Vec::new(), 0u64);
        if !want.given_only {
            let count = format!("SELECT count(*) FROM session WHERE {cond}");
            stored =
                self.0.query_row(&count, params![dirs, without, title, parent], |r| r.get::<_, i64>(0))?.unsigned_abs();
            let sql = format!("SELECT at, name FROM session WHERE {cond} ORDER BY at DESC, name LIMIT ?5");
            let mut select = self.0.prepare(&sql)?;
            let most = i64::try_from(end).unwrap_or(i64::MAX);
            let rows = select.query_map(params![dirs, without, title, parent, most], |r| Ok((r.get(0)?, r.get(1)?)))?;
            keys = rows.collect::<Result<Vec<(i64, String)>, _>>()?;
        }
        let mut slots = Vec::new();
        let mut one = self.0.prepare("SELECT row, legacy, stamp FROM session WHERE name = ?1")?;
        let (mut a, mut b) = (0, 0);
        for n in 0..end.min(keys.len() + want.given.len()) {
            let given = match (keys.get(a), want.given.get(b)) {
                (Some((at, name)), Some((g_at, g_name))) => (Reverse(*g_at), *g_name) < (Reverse(*at), name.as_str()),
                (None, Some(_)) => true,
                _ => false,
            };
            let slot = if given {
                b += 1;
                Slot::Given(b - 1)
            } else if let Some((_, name)) = keys.get(a) {
                a += 1;
                if n < want.skip {
                    continue;
                }
                let (text, known) = one.query_row([name], |r| {
                    Ok((r.get::<_, String>(0)?, Known { legacy: r.get(1)?, stamp: r.get(2)? }))
                })?;
                Slot::Stored(Box::new(Shown { row: row_of(&text)?, known }))
            } else {
                break;
            };
            if n >= want.skip {
                slots.push(slot);
            }
        }
        Ok(Page { slots, total: stored + want.given.len() as u64 })
    }

    /// The sessions that may contain a text, newest first: those whose title does, those with an
    /// entry that has all its trigrams, and those whose texts are not in yet.
    pub(super) fn search(&self, needle: &str, cwd: Option<&dyn Fn(&str) -> bool>) -> Result<Vec<Found>, Trouble> {
        let _read = self.0.unchecked_transaction()?;
        let mut entries: BTreeMap<i64, Vec<u64>> = BTreeMap::new();
        let asked = trigrams(needle);
        if let Some(asked) = &asked {
            let mut select = self.0.prepare("SELECT rowid FROM text WHERE text MATCH ?1 ORDER BY rowid")?;
            let mut rows = select.query([asked])?;
            while let Some(r) = rows.next()? {
                let id: i64 = r.get(0)?;
                entries.entry(id >> ENTRY_BITS).or_default().push(id.unsigned_abs() & u64::from(u32::MAX));
            }
        }
        let (dirs, cond) = match cwd {
            Some(fits) => (self.dirs(fits)?, "cwd IN (SELECT value FROM json_each(?2))"),
            None => (String::new(), "?2 IS NOT NULL"),
        };
        let sql = format!(
            "SELECT id, at, instr(title, ?1) > 0, texts, name, row FROM session WHERE {cond} ORDER BY at DESC, name"
        );
        let mut select = self.0.prepare(&sql)?;
        let mut rows = select.query([needle, &dirs])?;
        let mut found = Vec::new();
        while let Some(r) = rows.next()? {
            let (id, in_title, filled): (i64, bool, bool) = (r.get(0)?, r.get(2)?, r.get(3)?);
            let known = if asked.is_some() && filled { Some(entries.remove(&id).unwrap_or_default()) } else { None };
            if in_title || known.as_ref().is_none_or(|e| !e.is_empty()) {
                found.push(Found { at: r.get(1)?, name: r.get(4)?, row: r.get(5)?, entries: known });
            }
        }
        Ok(found)
    }
}

fn json<'a>(texts: impl Iterator<Item = impl AsRef<str> + 'a>) -> String {
    serde_json::Value::from_iter(texts.map(|t| t.as_ref().to_owned())).to_string()
}

pub(super) fn row_of(text: &str) -> Result<Row, Trouble> {
    serde_json::from_str(text).map_err(|_| Trouble::Damaged)
}

/// A needle as a question: each of its trigrams. `None` when it is too short to have one, or has
/// what the tokenizer does not take.
fn trigrams(needle: &str) -> Option<String> {
    let chars: Vec<char> = needle.chars().collect();
    if chars.len() < 3 || needle.contains('\0') {
        return None;
    }
    let mut asked: Vec<String> = Vec::new();
    for w in chars.windows(3) {
        let term = format!("\"{}\"", w.iter().collect::<String>().replace('"', "\"\""));
        if !asked.contains(&term) {
            asked.push(term);
        }
        if asked.len() >= TRIGRAMS {
            break;
        }
    }
    Some(asked.join(" AND "))
}

impl Batch<'_> {
    /// Puts a row in the place of whatever was there under its name.
    pub(super) fn put(&self, row: &Row, known: &Known) -> Result<(), Trouble> {
        let text = serde_json::to_string(row).map_err(|e| Trouble::Refused(e.to_string()))?;
        let mut put = self.0.prepare(
            "INSERT INTO session(name, legacy, stamp, at, cwd, title, broken, texts, row, parent) \
             VALUES(?1, ?2, ?3, ?4, ?5, ?6, ?7, 0, ?8, ?9) \
             ON CONFLICT(name) DO UPDATE SET legacy = ?2, stamp = ?3, at = ?4, cwd = ?5, title = ?6, broken = ?7, \
             texts = 0, row = ?8, parent = ?9",
        )?;
        let (title, broken) = (row.title.to_lowercase(), row.broken.is_some());
        let parent = row.parent.as_deref().filter(|_| row.child).unwrap_or_default();
        put.execute(params![row.name, known.legacy, known.stamp, row.instant(), row.cwd, title, broken, text, parent])?;
        Ok(())
    }

    /// Takes a session out.
    pub(super) fn remove(&self, name: &str) -> Result<(), Trouble> {
        let sql = "SELECT id FROM session WHERE name = ?1";
        if let Some(id) = self.0.query_row(sql, [name], |r| r.get::<_, i64>(0)).optional()? {
            self.drop_texts(id)?;
            self.0.execute("DELETE FROM session WHERE id = ?1", [id])?;
        }
        Ok(())
    }

    fn drop_texts(&self, id: i64) -> Result<(), Trouble> {
        let (from, to) = (id << ENTRY_BITS, (id + 1) << ENTRY_BITS);
        self.0.execute("DELETE FROM text WHERE rowid >= ?1 AND rowid < ?2", [from, to])?;
        Ok(())
    }

    /// Puts a session's texts in the place of those that were there. They count only if the file
    /// is the one that the row is of: else they are asked for again.
    pub(super) fn put_texts(&self, of: &Unfilled, texts: &[(u64, String)]) -> Result<(), Trouble> {
        let id = of.id;
        self.drop_texts(id)?;
        let mut put = self.0.prepare("INSERT INTO text(rowid, t) VALUES(?1, ?2)")?;
        for (n, text) in texts {
            if let Ok(n) = u32::try_from(*n) {
                put.execute(params![(id << ENTRY_BITS) | i64::from(n), text])?;
            }
        }
        let sql = "UPDATE session SET texts = 1 WHERE id = ?1 AND stamp IS ?2";
        self.0.execute(sql, params![id, of.known.stamp])?;
        Ok(())
    }

    /// Makes the changes take effect.
    pub(super) fn commit(self) -> Result<(), Trouble> {
        Ok(self.0.commit()?)
    }
}
