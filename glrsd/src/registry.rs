//! Which sessions exist: in memory, stored, broken.
//!
//! Owns the map of loaded sessions, loading on demand, unloading, listing, and the roster feed.
//! Must not know connections or JSON-RPC.

use crate::host::scratch::Scratch;
use crate::host::{Env, Paths, random};
use crate::listing::{self, Filter, canonical_text, instant};
use crate::model::ModelSets;
use crate::session::feed::Feed;
use crate::session::looking;
use crate::session::{self, Cmd, Handle, Origin, Shared};
use crate::store::{Children, Store};
use bytes::Bytes;
use glrs_protocol::event::RosterEvent;
use glrs_protocol::params::{OtherFile, SearchHit, SessionList, SessionListResult, SessionNew};
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
                scratch: Scratch::new(paths.tmp.clone()),
                paths,
                models,
                tools: crate::tools::builtin(),
                mcp: crate::mcp::Servers::default(),
                envs: crate::host::env::Envs::default(),
                config: crate::config::Cache::default(),
                on_change: Box::new(move |info| publish_row(&feed, info)),
                make_child: {
                    let me: Weak<Self> = me.clone();
                    Box::new(move |new| me.upgrade().map(|me| me.make_child(new)))
                },
            }),
            live: Mutex::new(HashMap::new()),
            went: Notify::new(),
            roster,
            me: me.clone(),
        })
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, HashMap<SessionId, Handle>> {
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
                // Before it is gone from memory: from then on lists take it from its file.
                me.shared.store.index_touched(id);
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
        publish(&self.roster, &RosterEvent::Gone(id.clone()));
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
    pub async fn make(&self, p: SessionNew) -> Result<Handle, RpcError> {
        let cwd = looking::directory(absolute(&p.cwd)?, Path::new("")).await?;
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

    /// Makes a session that does a task for another one. It has no file yet.
    fn make_child(&self, new: session::NewSession) -> Handle {
        let mut live = self.lock();
        let mut id = self.free_id();
        while live.contains_key(&id) {
            id = self.free_id();
        }
        let handle = self.spawn(&id, Origin::New(Box::new(new)));
        live.insert(id, handle.clone());
        handle
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

    /// The sessions in memory as rows.
    fn live_rows(&self) -> Vec<SessionInfo> {
        self.handles().iter().filter_map(Handle::info).collect()
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
        let limit = p.limit.unwrap_or(20).clamp(1, PAGE_MAX) as usize;
        let of =
            match p.children.as_deref() {
                None | Some("all") => None,
                Some(id) => Some(id.parse::<SessionId>().map_err(|_| {
                    RpcError::params(format!("children is \"all\" or the id of a session, it is {id:?}"))
                })?),
            };
        let children = match (&of, &p.children) {
            (Some(id), _) => Children::Of(id.as_str()),
            (None, Some(_)) => Children::All,
            (None, None) => Children::Orphans,
        };
        let filter = Filter { cwd: p.cwd.as_deref(), title: p.query.as_deref(), state: p.state, children };
        let (sessions, total) = listing::page(&self.shared.store, &self.live_rows(), &filter, start, limit);
        let end = (start + sessions.len()) as u64;
        let cursor = (end < total).then(|| end.to_string());
        // They have no id to be filtered by; whoever looks at all or at broken ones should know.
        let all = start == 0 && p.query.is_none() && matches!(p.state, None | Some(StateName::Broken));
        let misnamed = if all { self.shared.store.misnamed().unwrap_or_default() } else { Vec::new() };
        let others =
            misnamed.into_iter().map(|(path, why)| OtherFile { path: path.display().to_string(), why }).collect();
        Ok(SessionListResult { sessions, cursor, total, others })
    }

    /// Searches titles and the messages of people and models, newest session first.
    pub fn search(&self, text: &str, cwd: Option<&str>, limit: usize) -> Vec<SearchHit> {
        listing::search(&self.shared.store, &self.live_rows(), text, cwd, limit)
    }

    /// The session that an id, a title of a directory, or recency names (clients.md "Command line").
    ///
    /// # Errors
    /// `not_found`, or `ambiguous` with the ids.
    pub fn find(&self, title: Option<&str>, cwd: Option<&str>) -> Result<SessionId, RpcError> {
        let cwd = cwd
            .map(canonical_text)
            .ok_or_else(|| RpcError::params("give the directory (cwd) whose sessions are meant"))?;
        let filter = Filter { cwd: Some(&cwd), ..Filter::default() };
        let (mut rows, _) = listing::page(&self.shared.store, &self.live_rows(), &filter, 0, usize::MAX);
        rows.retain(|i| i.saved && i.why.is_none());
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
    Origin::New(Box::new(session::NewSession { cwd, model, variant, mode, env, task: None }))
}

pub(crate) fn taken(id: &SessionId) -> RpcError {
    RpcError::new(
        ErrorKind::Conflict,
        format!("session {id} exists already: resume it with `glrs --resume {id}`, or choose another id"),
    )
}

/// A path that says where it is by itself.
///
/// # Errors
/// `invalid_params`.
pub(crate) fn absolute(cwd: &str) -> Result<&Path, RpcError> {
    let path = Path::new(cwd);
    if path.is_absolute() {
        Ok(path)
    } else {
        Err(RpcError::params(format!("cwd has to be an absolute path, it is {cwd:?}")))
    }
}

fn need(i: &SessionInfo) -> u8 {
    match (i.needs_you, i.state) {
        (true, _) => 0,
        (_, StateName::Held) => 1,
        (_, StateName::Running) => 2,
        _ => 3,
    }
}

fn publish_row(feed: &Feed, info: &SessionInfo) {
    if feed.readers() > 0 {
        publish(feed, &RosterEvent::Row(Box::new(info.clone())));
    }
}

fn publish(feed: &Feed, event: &RosterEvent) {
    match event.encode() {
        Ok(line) => feed.publish(|_| Bytes::from(line)),
        Err(e) => tracing::error!(error = %e, "a roster event did not serialise"),
    }
}
