//! Lists and searches over all sessions: those in memory as they are now, the others as their
//! files have them.
//!
//! Owns the order and the filters, from the index where it answers and from the logs where it does
//! not: both give the same. Reads files; must not be called from a session. Must not know
//! connections, or how sessions are loaded.

use crate::host::clock;
use crate::store::{Candidate, Children, Row, Slot, Store, Want};
use glrs_protocol::SessionId;
use glrs_protocol::entry::{self, Entry};
use glrs_protocol::params::SearchHit;
use glrs_protocol::types::{SessionInfo, StateName};
use std::cell::RefCell;
use std::cmp::Reverse;
use std::collections::{HashMap, HashSet};
use std::path::Path;

/// Characters of an excerpt, and how many of them stand before what was found.
const EXCERPT: (usize, usize) = (120, 40);

/// Which sessions are wanted.
#[derive(Default)]
pub struct Filter<'a> {
    /// Only those of this directory.
    pub cwd: Option<&'a str>,
    /// Only those whose title has this, whatever the case.
    pub title: Option<&'a str>,
    /// Only those in this state.
    pub state: Option<StateName>,
    /// Which of those that do tasks of others.
    pub children: Children<'a>,
}

/// Sessions of one directory, however their files write it. Each way is looked up once.
struct Dir {
    wanted: Option<String>,
    seen: RefCell<HashMap<String, bool>>,
}

impl Dir {
    fn new(cwd: Option<&str>) -> Self {
        Self { wanted: cwd.map(canonical_text), seen: RefCell::default() }
    }

    fn fits(&self, cwd: &str) -> bool {
        let Some(wanted) = &self.wanted else { return true };
        if let Some(known) = self.seen.borrow().get(cwd) {
            return *known;
        }
        let fits = canonical_text(cwd) == *wanted;
        self.seen.borrow_mut().insert(cwd.to_owned(), fits);
        fits
    }
}

/// A directory as sessions are compared by: canonical where it exists, else as it is written.
pub fn canonical_text(cwd: &str) -> String {
    Path::new(cwd).canonicalize().map_or_else(|_| cwd.trim_end_matches('/').to_owned(), |p| p.display().to_string())
}

/// A moment as milliseconds, for sorting; what knows none comes last.
pub fn instant(at: &str) -> i64 {
    clock::parse_ms(at).unwrap_or(i64::MIN)
}

/// What sessions are sorted by: newest first.
fn key(i: &SessionInfo) -> (Reverse<i64>, SessionId) {
    (Reverse(instant(&i.updated_at)), i.id.clone())
}

/// Every stored session that is not in memory, with when it changed last. Reads all their logs
/// that are not remembered.
fn scan(store: &Store, live: &HashSet<&SessionId>) -> Vec<(i64, SessionInfo)> {
    let rows = store.list().unwrap_or_default();
    let stored = rows.into_iter().filter_map(|r| Some((r.instant(), stored(r)?)));
    stored.filter(|(_, i)| !live.contains(&i.id)).collect()
}

/// One page of the sessions that are wanted, newest first, and how many there are in all. `live`
/// are those in memory.
pub fn page(store: &Store, live: &[SessionInfo], f: &Filter<'_>, skip: usize, most: usize) -> (Vec<SessionInfo>, u64) {
    let dir = Dir::new(f.cwd);
    let title = f.title.map(str::to_lowercase);
    let there =
        |id: &str| live.iter().any(|i| i.id.as_str() == id) || id.parse().is_ok_and(|id: SessionId| store.exists(&id));
    let fits = |i: &SessionInfo| {
        f.state.is_none_or(|s| i.state == s)
            && title.as_ref().is_none_or(|t| i.title.to_lowercase().contains(t.as_str()))
            && dir.fits(&i.cwd)
            && f.children.fits(i.parent.as_deref().filter(|_| i.child), &there)
    };
    let mut given: Vec<&SessionInfo> = live.iter().filter(|i| fits(i)).collect();
    given.sort_by_cached_key(|i| key(i));
    let cwd = |cwd: &str| dir.fits(cwd);
    let want = Want {
        cwd: f.cwd.is_some().then_some(&cwd as &dyn Fn(&str) -> bool),
        title: title.as_deref(),
        broken: f.state.map(|s| s == StateName::Broken),
        children: f.children,
        given_only: !matches!(f.state, None | Some(StateName::Broken | StateName::Unloaded)),
        without: live.iter().map(|i| i.id.as_str()).collect(),
        given: given.iter().map(|i| (instant(&i.updated_at), i.id.as_str())).collect(),
        skip,
        most,
    };
    if let Some((slots, total)) = store.list_page(&want) {
        let info = |slot| match slot {
            Slot::Given(i) => given.get(i).map(|i| (*i).clone()),
            Slot::Stored(row) => stored(row),
        };
        return (slots.into_iter().filter_map(info).collect(), total);
    }
    let mut rows = scan(store, &live.iter().map(|i| &i.id).collect());
    rows.retain(|(_, i)| fits(i));
    rows.extend(given.into_iter().map(|i| (instant(&i.updated_at), i.clone())));
    rows.sort_by(|a, b| b.0.cmp(&a.0).then_with(|| a.1.id.cmp(&b.1.id)));
    let total = rows.len() as u64;
    (rows.into_iter().skip(skip).take(most).map(|(_, i)| i).collect(), total)
}

/// A session that may contain what is searched.
enum Place<'a> {
    /// It is in memory: read from its log, which may be ahead of the index.
    Live(&'a SessionInfo),
    /// The index knows where, or that all of its log has to be read.
    Known(Candidate),
    /// There is no index: all of its log has to be read.
    Log(SessionInfo),
}

/// Searches titles and the messages of people and models, newest session first.
pub fn search(store: &Store, live: &[SessionInfo], text: &str, cwd: Option<&str>, limit: usize) -> Vec<SearchHit> {
    let needle = text.to_lowercase();
    let dir = Dir::new(cwd);
    let in_memory: HashSet<&SessionId> = live.iter().map(|i| &i.id).collect();
    let fits = |dir_text: &str| dir.fits(dir_text);
    let by_dir = cwd.is_some().then_some(&fits as &dyn Fn(&str) -> bool);
    if let Some(found) = store.search_index(&needle, by_dir) {
        let names: HashSet<&str> = in_memory.iter().map(|i| i.as_str()).collect();
        let places = found
            .into_iter()
            .filter(|c| !names.contains(c.name.as_str()))
            .map(|c| (c.at, c.name.clone(), Place::Known(c)));
        match find_all(store, places.collect(), live, &needle, &dir, limit) {
            Some(hits) => return hits,
            None => store.index_damaged(),
        }
    }
    let places = scan(store, &in_memory).into_iter().map(|(at, i)| (at, i.id.to_string(), Place::Log(i)));
    find_all(store, places.collect(), live, &needle, &dir, limit).unwrap_or_default()
}

/// Looks into one session after the other, newest first. `None` when the index is damaged.
fn find_all<'a>(
    store: &Store,
    mut places: Vec<(i64, String, Place<'a>)>,
    live: &'a [SessionInfo],
    needle: &str,
    dir: &Dir,
    limit: usize,
) -> Option<Vec<SearchHit>> {
    places.extend(live.iter().map(|i| (instant(&i.updated_at), i.id.to_string(), Place::Live(i))));
    places.sort_by(|a, b| b.0.cmp(&a.0).then_with(|| a.1.cmp(&b.1)));
    let mut hits = Vec::new();
    for (_, _, place) in places {
        if hits.len() >= limit {
            break;
        }
        let (info, entries) = match place {
            Place::Live(i) => (i.clone(), None),
            Place::Log(i) => (i, None),
            Place::Known(c) => match stored(c.row()?) {
                Some(info) => (info, c.entries),
                None => continue,
            },
        };
        if !dir.fits(&info.cwd) {
            continue;
        }
        if info.title.to_lowercase().contains(needle) {
            hits.push(SearchHit { excerpt: info.title.clone(), n: None, session: info });
        } else if let Some((n, excerpt)) = find_in(store, &info.id, needle, entries.as_deref()) {
            hits.push(SearchHit { excerpt, n: Some(n), session: info });
        }
    }
    Some(hits)
}

/// The first entry of a session that contains a text, among those named or all.
fn find_in(store: &Store, id: &SessionId, needle: &str, entries: Option<&[u64]>) -> Option<(u64, String)> {
    if entries.is_some_and(<[u64]>::is_empty) {
        return None;
    }
    let log = store.load(id).ok()?;
    let reader = log.reader();
    if let Some(entries) = entries {
        return entries.iter().find_map(|n| {
            let raw = reader.entry(*n).ok()??;
            Some((*n, excerpt(raw.get(), needle)?))
        });
    }
    let mut found = None;
    reader
        .scan(&mut |n, raw| {
            if found.is_none() {
                found = excerpt(raw, needle).map(|e| (n, e));
            }
        })
        .ok()?;
    found
}

/// The piece around a text in what a person or a model said.
fn excerpt(raw: &str, needle: &str) -> Option<String> {
    if !matches!(entry::kind_of(raw).as_ref(), "user" | "assistant") {
        return None;
    }
    let text = match Entry::parse(raw).ok()? {
        Entry::User(u) => u.text,
        Entry::Assistant(a) => a.text,
        _ => return None,
    };
    let lower = text.to_lowercase();
    let at = lower.find(needle)?;
    let from = lower[..at].chars().rev().take(EXCERPT.1).map(char::len_utf8).sum::<usize>();
    Some(lower[at - from..].chars().take(EXCERPT.0).collect::<String>().replace('\n', " "))
}

/// One stored session as clients see it.
pub fn one(store: &Store, id: &SessionId) -> Option<SessionInfo> {
    stored(store.row(id)?)
}

/// A stored session as clients see it; `None` for a file whose name is no id.
fn stored(row: Row) -> Option<SessionInfo> {
    let broken = row.broken.is_some();
    Some(SessionInfo {
        sandbox: None,
        id: row.id?,
        title: crate::fold::summary::title_line(&row.title),
        renamed: row.renamed,
        cwd: row.cwd,
        created_at: row.created_at,
        updated_at: row.updated_at,
        entries: row.entries,
        model: row.model.unwrap_or_default(),
        variant: None,
        mode: row.mode.unwrap_or_default(),
        state: if broken { StateName::Broken } else { StateName::Unloaded },
        needs_you: false,
        clients: 0,
        queued: 0,
        context_tokens: row.context_tokens,
        window: 0,
        saved: true,
        parent: row.parent,
        child: row.child,
        why: row.broken,
        legacy: row.legacy,
    })
}

#[cfg(test)]
mod tests;
