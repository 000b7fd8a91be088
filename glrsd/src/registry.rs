//! Which sessions exist: in memory, stored, broken.
//!
//! Owns the map of loaded sessions, loading on demand, unloading, listing, and the roster feed.
//! Must not know connections or JSON-RPC.

use crate::host::{Env, Paths, clock, random};
use crate::model::ModelSets;
use crate::session::feed::Feed;
use crate::session::{self, Cmd, Handle, Origin, Shared};
use crate::store::Store;
use bytes::Bytes;
use glrs_protocol::event::ROSTER_EVENT;
use glrs_protocol::params::{SearchHit, SessionList, SessionListResult, SessionNew};
use glrs_protocol::types::{Mode, SessionInfo, StateName};
use glrs_protocol::{ErrorKind, RpcError, SessionId};
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use tokio::sync::Notify;

/// All sessions of a daemon.
pub struct Registry {
    /// What sessions share.
    pub shared: Arc<Shared>,
    live: Mutex<HashMap<SessionId, Handle>>,
    /// Told when a session has left the map.
    went: Notify,
    /// The roster's feed.
    pub roster: Arc<Feed>,
    me: Weak<Registry>,
}

/// Most rows of one page.
const PAGE_MAX: u32 = 1000;

impl Registry {
    /// Makes the registry of a store.
    pub fn new(store: Store, paths: Paths, models: ModelSets) -> Arc<Self> {
        let roster = Arc::new(Feed::default());
        let feed = roster.clone();
        Arc::new_cyclic(|me| Self {
            shared: Arc::new(Shared {
                store,
                paths,
                models,
                tools: crate::tools::builtin(),
                envs: crate::host::env::Envs::default(),
                config: crate::config::Cache::default(),
                on_change: Box::new(move |info| publish_row(&feed, info)),
            }),
            live: Mutex::new(HashMap::new()),
            went: Notify::new(),
            roster,
            me: me.clone(),
        })
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<SessionId, Handle>> {
        self.live.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The session's mailbox; it is loaded when it is not in memory. Never waits: what is sent to
    /// it meanwhile is answered in order once it has loaded (or cannot be).
    pub fn get(&self, id: &SessionId) -> Handle {
        let mut live = self.lock();
        live.entry(id.clone()).or_insert_with(|| self.spawn(id, Origin::Stored)).clone()
    }

    fn spawn(&self, id: &SessionId, origin: Origin) -> Handle {
        let me = self.me.clone();
        session::spawn(
            self.shared.clone(),
            id.clone(),
            origin,
            Box::new(move |id, rest| {
                let Some(me) = me.upgrade() else { return };
                let mut live = me.lock();
                live.remove(id);
                me.gone(id);
                // What came while it was going is for its successor, in order, before anything newer.
                if !rest.is_empty() {
                    let next = me.spawn(id, Origin::Stored);
                    for cmd in rest {
                        if let Err(e) = next.tx.try_send(cmd) {
                            e.into_inner().fail(RpcError::internal("the session was just unloading: try again"));
                        }
                    }
                    live.insert(id.clone(), next);
                }
                drop(live);
                me.went.notify_waiters();
            }),
        )
    }

    /// Tells dashboards that a session left memory.
    fn gone(&self, id: &SessionId) {
        let row = serde_json::json!({"id": id, "gone": true});
        publish_value(&self.roster, &row);
    }

    /// Sends a command to a session, loading it if need be. Waits only for room in its mailbox.
    pub async fn send(&self, id: &SessionId, cmd: Cmd) {
        let mut cmd = Box::new(cmd);
        loop {
            let handle = self.get(id);
            match handle.tx.send(cmd).await {
                Ok(()) => return,
                Err(e) => cmd = e.0,
            }
            // It is unloading: once it has gone, it is loaded anew.
            let went = self.went.notified();
            if self.live(id).is_some_and(|h| h.tx.same_channel(&handle.tx)) {
                went.await;
            }
        }
    }

    /// Makes a session that has no file yet. Keyed by its id: the same call again, while nothing
    /// was said in it, answers the same session.
    ///
    /// # Errors
    /// `conflict` when the id is taken, `invalid_params` when the directory does not exist.
    pub fn make(&self, p: SessionNew) -> Result<Handle, RpcError> {
        let cwd = canonical_dir(&p.cwd)?;
        let id = p.id.unwrap_or_else(|| self.free_id());
        let mut live = self.lock();
        if let Some(h) = live.get(&id) {
            return match h.info() {
                Some(i) if !i.saved && i.cwd == cwd.display().to_string() => Ok(h.clone()),
                _ => Err(taken(&id)),
            };
        }
        if self.shared.store.exists(&id) {
            return Err(taken(&id));
        }
        let new = session_new(cwd, p.model, p.variant, p.mode, p.env.map(Env::from).unwrap_or_default());
        let handle = self.spawn(&id, new);
        live.insert(id, handle.clone());
        Ok(handle)
    }

    /// An id that no session has.
    pub fn free_id(&self) -> SessionId {
        loop {
            let id = random::session_id();
            if !self.shared.store.exists(&id) {
                return id;
            }
        }
    }

    /// A session that is in memory.
    pub fn live(&self, id: &SessionId) -> Option<Handle> {
        self.lock().get(id).cloned()
    }

    /// The sessions in memory.
    pub fn handles(&self) -> Vec<Handle> {
        self.lock().values().cloned().collect()
    }

    /// Loads sessions whose journal says that something has not settled.
    pub fn recover(&self) {
        for id in self.shared.store.live_ids() {
            self.get(&id);
        }
    }

    /// Rows of the sessions in memory, those that need someone first, then by activity.
    pub fn roster_rows(&self) -> Vec<SessionInfo> {
        let mut rows: Vec<SessionInfo> = self.handles().iter().filter_map(Handle::info).collect();
        rows.sort_by_cached_key(|i| (need(i), std::cmp::Reverse(instant(&i.updated_at))));
        rows
    }

    /// Every session as a row, newest first: those in memory as they are now, those stored as
    /// their file has them, broken ones with the reason. Reads files; runs outside actors.
    pub fn all_rows(&self) -> Vec<SessionInfo> {
        let live: HashMap<SessionId, SessionInfo> =
            self.handles().into_iter().filter_map(|h| Some((h.id.clone(), h.info()?))).collect();
        let mut rows: Vec<(i64, SessionInfo)> = Vec::new();
        let mut seen = std::collections::HashSet::new();
        for row in self.shared.store.list().unwrap_or_default() {
            let at = row_instant(&row);
            let Some(id) = row.id.clone() else { continue };
            seen.insert(id.clone());
            match live.get(&id) {
                Some(info) => rows.push((instant(&info.updated_at).max(at), info.clone())),
                None => rows.push((at, stored_row(row, id))),
            }
        }
        for (id, info) in live {
            if !seen.contains(&id) {
                rows.push((instant(&info.updated_at), info));
            }
        }
        rows.sort_by(|a, b| b.0.cmp(&a.0).then_with(|| a.1.id.cmp(&b.1.id)));
        rows.into_iter().map(|(_, i)| i).collect()
    }

    /// One page of the list.
    ///
    /// # Errors
    /// When the cursor is none of ours.
    pub fn list(&self, p: &SessionList) -> Result<SessionListResult, RpcError> {
        let start: usize = match &p.cursor {
            None => 0,
            Some(c) => c.parse().map_err(|_| RpcError::params("the cursor is none that session/list gave"))?,
        };
        let cwd = p.cwd.as_deref().map(canonical_text);
        let query = p.query.as_ref().map(|q| q.to_lowercase());
        let rows: Vec<SessionInfo> = self
            .all_rows()
            .into_iter()
            .filter(|i| cwd.as_ref().is_none_or(|c| canonical_text(&i.cwd) == *c))
            .filter(|i| query.as_ref().is_none_or(|q| i.title.to_lowercase().contains(q.as_str())))
            .filter(|i| p.state.is_none_or(|s| i.state == s))
            .collect();
        let total = rows.len();
        let limit = p.limit.unwrap_or(20).clamp(1, PAGE_MAX) as usize;
        let sessions: Vec<SessionInfo> = rows.into_iter().skip(start).take(limit).collect();
        let end = start + sessions.len();
        Ok(SessionListResult { sessions, cursor: (end < total).then(|| end.to_string()), total: total as u64 })
    }

    /// Searches titles and the messages of people and models, newest session first.
    pub fn search(&self, text: &str, cwd: Option<&str>, limit: usize) -> Vec<SearchHit> {
        let needle = text.to_lowercase();
        let cwd = cwd.map(canonical_text);
        let mut hits = Vec::new();
        for info in self.all_rows() {
            if hits.len() >= limit || cwd.as_ref().is_some_and(|c| canonical_text(&info.cwd) != *c) {
                continue;
            }
            if info.title.to_lowercase().contains(&needle) {
                hits.push(SearchHit { excerpt: info.title.clone(), n: None, session: info });
            } else if let Some((n, excerpt)) = self.find_in(&info.id, &needle) {
                hits.push(SearchHit { excerpt, n: Some(n), session: info });
            }
        }
        hits
    }

    fn find_in(&self, id: &SessionId, needle: &str) -> Option<(u64, String)> {
        use glrs_protocol::entry::{self, Entry};
        let log = self.shared.store.load(id).ok()?;
        let mut found = None;
        let scanned = log.scan(&mut |n, raw| {
            if found.is_some() || !matches!(entry::kind_of(raw).as_ref(), "user" | "assistant") {
                return;
            }
            let text = match Entry::parse(raw) {
                Ok(Entry::User(u)) => u.text,
                Ok(Entry::Assistant(a)) => a.text,
                _ => return,
            };
            let lower = text.to_lowercase();
            if let Some(at) = lower.find(needle) {
                let from = lower[..at].chars().rev().take(40).map(char::len_utf8).sum::<usize>();
                found = Some((n, lower[at - from..].chars().take(120).collect::<String>().replace('\n', " ")));
            }
        });
        scanned.ok()?;
        found
    }

    /// The session that an id, a title of a directory, or recency names (clients.md "Command line").
    ///
    /// # Errors
    /// `not_found`, or `ambiguous` with the ids.
    pub fn find(&self, title: Option<&str>, cwd: Option<&str>) -> Result<SessionId, RpcError> {
        let cwd = cwd
            .map(canonical_text)
            .ok_or_else(|| RpcError::params("give the directory (cwd) whose sessions are meant"))?;
        let rows: Vec<SessionInfo> = self
            .all_rows()
            .into_iter()
            .filter(|i| i.saved && i.why.is_none() && canonical_text(&i.cwd) == cwd)
            .collect();
        let Some(title) = title else {
            return rows.first().map(|i| i.id.clone()).ok_or_else(|| {
                RpcError::new(ErrorKind::NotFound, format!("no session of {cwd} yet: start one with `glrs`"))
            });
        };
        let wanted = title.trim().to_lowercase();
        let fits: Vec<&SessionInfo> = rows.iter().filter(|i| i.title.to_lowercase() == wanted).collect();
        let renamed: Vec<&&SessionInfo> = fits.iter().filter(|i| i.renamed).collect();
        match (fits.as_slice(), renamed.as_slice()) {
            ([], _) => Err(RpcError::new(
                ErrorKind::NotFound,
                format!("no session of {cwd} has the title {title:?}: `glrs sessions list` shows what there is"),
            )),
            ([one], _) => Ok(one.id.clone()),
            (_, [one]) => Ok(one.id.clone()),
            (several, _) => {
                let ids: Vec<String> = several.iter().map(|i| i.id.to_string()).collect();
                let words = format!("{} sessions have the title {title:?}: give one of {}", ids.len(), ids.join(", "));
                Err(RpcError::new(ErrorKind::Ambiguous { ids }, words))
            }
        }
    }
}

fn session_new(cwd: PathBuf, model: Option<String>, variant: Option<String>, mode: Option<Mode>, env: Env) -> Origin {
    Origin::New(Box::new(session::NewSession { cwd, model, variant, mode, env }))
}

fn taken(id: &SessionId) -> RpcError {
    RpcError::new(
        ErrorKind::Conflict,
        format!("session {id} exists already: resume it with `glrs --resume {id}`, or choose another id"),
    )
}

fn canonical_dir(cwd: &str) -> Result<PathBuf, RpcError> {
    let path = Path::new(cwd);
    if !path.is_absolute() {
        return Err(RpcError::params(format!("cwd has to be an absolute path, it is {cwd:?}")));
    }
    match path.canonicalize() {
        Ok(p) if p.is_dir() => Ok(p),
        Ok(_) => Err(RpcError::params(format!("{cwd} is no directory"))),
        Err(e) => Err(RpcError::params(format!("{cwd}: {e}"))),
    }
}

/// A directory as sessions are compared by: canonical where it exists, else as it is written.
fn canonical_text(cwd: &str) -> String {
    Path::new(cwd).canonicalize().map_or_else(|_| cwd.trim_end_matches('/').to_owned(), |p| p.display().to_string())
}

fn instant(at: &str) -> i64 {
    clock::parse_ms(at).unwrap_or(i64::MIN)
}

/// When a stored session last changed, for sorting: what the file says, but never later than the
/// file was written (a clock that was wrong once must not keep a session on top for ever), and
/// last when it says nothing.
fn row_instant(row: &crate::store::Row) -> i64 {
    clock::parse_ms(&row.updated_at).map_or(i64::MIN, |at| at.min(row.mtime_ms.saturating_add(1000)))
}

fn need(i: &SessionInfo) -> u8 {
    match (i.needs_you, i.state) {
        (true, _) => 0,
        (_, StateName::Held) => 1,
        (_, StateName::Running) => 2,
        _ => 3,
    }
}

fn stored_row(row: crate::store::Row, id: SessionId) -> SessionInfo {
    let broken = row.broken.is_some();
    SessionInfo {
        id,
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
        why: row.broken,
        legacy: row.legacy,
    }
}

fn publish_row(feed: &Feed, info: &SessionInfo) {
    if feed.readers() > 0 {
        publish_value(feed, info);
    }
}

fn publish_value<T: serde::Serialize>(feed: &Feed, row: &T) {
    feed.publish(|_| {
        let row = serde_json::to_string(row).unwrap_or_else(|_| "{}".into());
        Bytes::from(format!("{{\"jsonrpc\":\"2.0\",\"method\":\"{ROSTER_EVENT}\",\"params\":{{\"session\":{row}}}}}\n"))
    });
}
