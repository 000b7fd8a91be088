//! How a session comes into memory: from its log, its journal, or anew.
//!
//! Owns recovery (session-file.md "live"): after a crash queued messages are held, an open turn
//! either goes on asking or is closed as interrupted, and nothing acknowledged is lost or doubled.
//! Opening writes nothing unless there is something to recover.

use super::actor::{Actor, NewSession, Origin};
use super::feed::Feed;
use super::live::{LiveState, Record};
use super::looking;
use super::queue::Queue;
use super::reading::{Loaded, read};
use super::requests::Open;
use super::running::CallState;
use super::turning::turn_entry;
use super::{Shared, feed};
use crate::fold::{Context, Summary, context};
use crate::host::scratch::SessionTmp;
use crate::host::{Env, clock, random};
use crate::model::catalogue;
use crate::store::{LoadError, Log};
use crate::turn::ToolCall;
use glrs_protocol::entry::{self, Entry, TurnStatus};
use glrs_protocol::message::{Message, Output, Part, Role};
use glrs_protocol::types::{Disk, PieceKind, SessionInfo};
use glrs_protocol::{ErrorKind, RpcError, SessionId};
use std::collections::{BTreeMap, HashMap};
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use tokio::time::Instant;

/// The typed error of a session that does not load.
pub fn load_error(id: &SessionId, e: LoadError) -> RpcError {
    let words = e.to_string();
    match e {
        LoadError::NotFound => RpcError::no_session(id.as_str()),
        LoadError::Broken { why } => RpcError::new(ErrorKind::Broken { why }, words),
        LoadError::NewerSchema { schema } => RpcError::new(ErrorKind::NewerSchema { schema }, words),
        LoadError::Disk { path, why } => {
            RpcError::new(ErrorKind::Disk { path: path.display().to_string(), why }, words)
        }
    }
}

/// Where a session works, as it is loaded.
struct Place {
    cwd: PathBuf,
    env: Arc<Env>,
    config: Arc<crate::config::Loaded>,
}

impl Actor {
    /// Brings a session into memory.
    pub(super) async fn open(
        shared: Arc<Shared>,
        id: SessionId,
        origin: Origin,
        feed: Arc<feed::Feed>,
        cell: Arc<Mutex<Option<SessionInfo>>>,
    ) -> Result<Self, RpcError> {
        match origin {
            Origin::New(new) => Self::make(shared, id, *new, feed, cell).await,
            Origin::Stored => {
                let (s, i) = (shared.clone(), id.clone());
                let loaded = tokio::task::spawn_blocking(move || read(&s, &i))
                    .await
                    .map_err(|e| RpcError::internal(e.to_string()))?
                    .map_err(|e| load_error(&id, e))?;
                let Loaded { log, summary, live, results, said, keys } = loaded;
                let cwd = PathBuf::from(summary.cwd.clone().unwrap_or_else(|| log.header().cwd.clone()));
                let env = shared.envs.share(Env::default());
                // What was said can be read wherever it was said; a turn looks again.
                let config = shared.configuration_within(&cwd, &env).await.unwrap_or_else(|| {
                    let notices = vec![format!("{}: the configuration was not read", looking::silence(&cwd))];
                    Arc::new(crate::config::Loaded { notices, root: cwd.clone(), ..Default::default() })
                });
                let place = Place { cwd, env, config };
                let mut actor = Self::with(shared, id, log, summary, place, feed, cell).await;
                actor.recover(live, &results, said, &keys).await;
                Ok(actor)
            }
        }
    }

    async fn make(
        shared: Arc<Shared>,
        id: SessionId,
        new: NewSession,
        feed: Arc<Feed>,
        cell: Arc<Mutex<Option<SessionInfo>>>,
    ) -> Result<Self, RpcError> {
        let env = shared.envs.share(new.env);
        let config = shared.configuration_within(&new.cwd, &env).await.ok_or_else(|| looking::silent(&new.cwd))?;
        let log = shared.store.create(&id, &new.cwd.display().to_string(), &clock::now());
        let place = Place { cwd: new.cwd, env, config };
        let mut actor = Self::with(shared, id, log, Summary::default(), place, feed, cell).await;
        if let Some(task) = new.task {
            actor.tmp = Arc::new(SessionTmp::within(&task.tmp, actor.id.clone()));
            actor.jobs = super::jobs::Jobs::new(actor.tmp.clone());
            actor.task = Some(task);
        }
        if let Some(m) = new.mode {
            actor.mode = m;
        }
        if let Some(m) = new.model {
            actor.model = m;
            actor.learn_window();
        }
        // A task takes what its parent has, which an older table may have let through.
        let asked = new.variant.is_some() && actor.task.is_none();
        actor.variant = new.variant.or(actor.variant).as_deref().and_then(catalogue::named);
        // One that was asked for is refused; one of the configuration is not used, and a notice says so.
        match actor.variant.as_deref().and_then(|v| actor.not_among(v)) {
            Some(why) if asked => return Err(RpcError::params(why)),
            Some(_) => actor.variant = None,
            None => {}
        }
        Ok(actor)
    }

    async fn with(
        shared: Arc<Shared>,
        id: SessionId,
        log: Log,
        summary: Summary,
        Place { cwd, env, config }: Place,
        feed: Arc<Feed>,
        cell: Arc<Mutex<Option<SessionInfo>>>,
    ) -> Self {
        let live = shared.store.live(&id);
        let tmp = Arc::new(SessionTmp::new(shared.scratch.clone(), id.clone()));
        let mut actor = Self {
            epoch: random::word(),
            live,
            live_used: false,
            ctx: None,
            model: String::new(),
            variant: config.config.variant.clone(),
            mode: summary.mode.unwrap_or(config.config.mode),
            window: crate::model::catalogue::UNKNOWN_CONTEXT,
            cwd,
            queue: Queue::default(),
            writing: None,
            brief_rx: None,
            course: super::course::Course::default(),
            artifacts: 0,
            compact_key: None,
            shown_compaction: glrs_protocol::types::Compaction::default(),
            held: false,
            start_later: None,
            requests: Vec::new(),
            answered: super::requests::Answered::default(),
            running: None,
            held_back: Mutex::default(),
            traced: Mutex::default(),
            events: None,
            next_piece: 0,
            clients: BTreeMap::new(),
            env,
            toolbox: super::toolbox::Toolbox::default(),
            jobs: super::jobs::Jobs::new(tmp.clone()),
            shells: super::shells::Shells::default(),
            tmp,
            seen: Arc::default(),
            task: None,
            children: super::children::Children::default(),
            disk: Disk { ok: true, path: None, why: None },
            disk_retry: None,
            config,
            told: None,
            quiet_since: Instant::now(),
            flush_at: None,
            stopping: None,
            deleted: false,
            go_on: false,
            foreign: false,
            shown: None,
            shown_usage: None,
            shown_face: None,
            salvage_told: false,
            config_told: Vec::new(),
            shared,
            id,
            feed,
            cell,
            log,
            summary,
        };
        match actor.summary.model.clone() {
            Some(m) => {
                actor.model = m.model;
                actor.variant = m.variant;
            }
            None => actor.model = actor.shared.models.default_model(&actor.config, &actor.env).await,
        }
        actor.learn_window();
        actor
    }

    /// Why the session's model does not take this effort.
    fn not_among(&self, variant: &str) -> Option<String> {
        catalogue::not_among(&self.shared.models.describe(&self.config, &self.model), variant)
    }

    /// Asks the catalogue for the model's window.
    pub(super) fn learn_window(&mut self) {
        self.window = self.shared.models.describe(&self.config, &self.model).context;
    }

    /// From now on this configuration is in force.
    pub(super) fn configured(&mut self, config: Arc<crate::config::Loaded>) {
        self.config = config;
        self.window = self.shared.models.describe(&self.config, &self.model).context;
    }

    /// Folds the context if it is not in memory. The error is for people.
    pub(super) async fn fold_context(&mut self) -> Result<(), String> {
        if self.ctx.is_some() {
            return Ok(());
        }
        let reader = self.log.reader();
        let ranges = context::live_ranges(&self.summary.rewinds, self.log.len());
        let folded = tokio::task::spawn_blocking(move || {
            let mut ctx = Context::default();
            reader.scan(&mut |n, raw| {
                if ranges.iter().any(|r| r.contains(&n)) {
                    ctx.apply(n, raw);
                }
            })?;
            Ok::<_, crate::store::DiskError>(ctx)
        })
        .await
        .map_err(|e| e.to_string())?;
        self.ctx = Some(folded.map_err(|e| e.to_string())?);
        Ok(())
    }

    /// What opening had to leave out, said once, at the first append.
    pub(super) fn salvage_notices(&mut self, at: &str) -> Vec<Entry> {
        if std::mem::replace(&mut self.salvage_told, true) {
            return Vec::new();
        }
        self.log.salvage().iter().map(|t| Entry::notice(format!("({t})"), at)).collect()
    }

    /// What is wrong in the configuration, said once while the session is in memory.
    pub(super) fn config_notices(&mut self, at: &str) -> Vec<Entry> {
        let mut said = self.config.notices.clone();
        if !self.config.untrusted.is_empty() {
            let keys = self.config.untrusted.join(", ");
            said.push(format!("this project sets {keys}, which count once you trust it: `glrs trust`"));
        }
        // What the session begins with; later it has its own.
        if let Some(v) =
            self.config.config.variant.as_deref().filter(|_| self.summary.last_close == 0 && self.variant.is_none())
            && let Some(why) = catalogue::named(v).and_then(|v| self.not_among(&v))
        {
            said.push(format!("variant: {why}; ignored"));
        }
        said.retain(|n| !self.config_told.contains(n));
        self.config_told.extend(said.iter().cloned());
        said.into_iter().map(|n| Entry::notice(format!("({n})"), at)).collect()
    }

    async fn recover(
        &mut self,
        live: LiveState,
        results: &HashMap<String, Output>,
        said: Vec<String>,
        keys: &HashMap<String, u64>,
    ) {
        let mut live = live;
        if live.turn.is_some_and(|user| user <= self.summary.last_close) {
            // It was closed; that its journal was to be emptied had not come to the disk.
            live.forget_turn();
        }
        self.live_used = !live.is_empty();
        if live.is_empty() {
            return;
        }
        let rows = live.rows.iter().filter(|w| keys.get(&w.key).is_none_or(|n| *n <= w.pos)).cloned().collect();
        self.queue = Queue::reload(rows, live.used);
        let open = live.turn.or(Some(self.summary.last_user)).filter(|_| self.summary.turn_open());
        let resumed = match open {
            Some(user) => self.resume_or_close(user, &live, results, said).await,
            None => false,
        };
        if !resumed {
            for r in &live.requests {
                self.note(&Record::Resolved { id: r.request.clone() });
            }
            if live.turn.is_some() {
                self.note(&Record::Turn { user: 0 });
            }
            self.requeue_steers();
        }
        let cut = self.cut_shells(&live, |key| keys.contains_key(key));
        if !cut.is_empty() {
            self.record(&cut);
            // If this fails the disk's state shows it and it is tried again.
            let _ = self.sync().await;
        }
        for s in &live.shells {
            self.note(&Record::Whole { of: s.of.clone() });
        }
        let hold = !self.queue.rows.is_empty();
        if live.held != hold || hold {
            self.held = hold;
            self.note(&Record::Held { on: hold });
        }
        // If this fails the disk's state shows it; the journal still has what it had.
        let _ = self.sync_live().await;
        self.trim_live();
    }

    /// Takes a turn up again whose unfinished calls only wait for an answer, or closes it.
    async fn resume_or_close(
        &mut self,
        user: u64,
        live: &LiveState,
        results: &HashMap<String, Output>,
        said: Vec<String>,
    ) -> bool {
        let mut users = Vec::new();
        let mut assistant = None;
        for raw in &live.msgs {
            match Message::parse(raw) {
                Ok(m) if m.role == Role::Assistant => assistant = Some(m),
                Ok(m) => users.push(Arc::new(m)),
                Err(_) => {}
            }
        }
        if self.fold_context().await.is_err() {
            return false;
        }
        let calls: Vec<CallState> =
            assistant.iter().flat_map(|m| &m.parts).filter_map(|p| call_state(p, results)).collect();
        let unfinished: Vec<&CallState> = calls.iter().filter(|c| c.output.is_none()).collect();
        // Nobody waits any more for what a child did: it is over with its parent's call.
        let delegated = self.summary.child && self.summary.task == user;
        let waits = !delegated
            && !unfinished.is_empty()
            && unfinished.iter().all(|c| !live.ran.contains(&c.call.id))
            && live.requests.iter().any(|r| unfinished.iter().any(|c| c.call.id == r.call_id));
        if waits {
            if let Some(ctx) = &mut self.ctx {
                // Their messages are in the journal's step and are sent with it.
                ctx.take_pending();
            }
            self.requests =
                live.requests.iter().map(|r| Open { request: r.clone(), waiter: None, answered: None }).collect();
            let step = live.step.max(1);
            let msgs = live.msgs.clone();
            let look = self.look(&[]);
            self.begin(user, Vec::new(), users, calls, look);
            self.note(&Record::Step { step, msgs });
            if let Some(r) = &mut self.running {
                r.assistant = assistant;
                r.step = step;
                r.phase = glrs_protocol::types::Phase::Asking;
            }
            return true;
        }
        self.close_open_turn(live, users, said, assistant, calls).await;
        false
    }

    /// A call's line for people.
    pub(super) fn detail_of(&self, call: &ToolCall) -> String {
        let tool = self.shared.tools.iter().find(|t| t.spec().name == call.name);
        match tool {
            Some(tool) => tool.detail(&call.input),
            None if crate::tools::mcp::is_one(&call.name) => crate::tools::mcp::detail(&call.input),
            None => String::new(),
        }
    }

    /// Closes a turn that the daemon's end cut off, with what is known of it.
    async fn close_open_turn(
        &mut self,
        live: &LiveState,
        users: Vec<Arc<Message>>,
        said: Vec<String>,
        assistant: Option<Message>,
        calls: Vec<CallState>,
    ) {
        const LOST: &str = "The daemon stopped while this call ran. It may have had an effect; it is not run again.";
        let at = self.now();
        let mut entries = Vec::new();
        let mut messages: Vec<Message> = users.iter().map(|m| (**m).clone()).collect();
        if messages.is_empty() {
            let pending = self.ctx.as_mut().map(Context::take_pending).unwrap_or_default();
            messages.extend(pending);
        }
        messages.extend(said.into_iter().map(|text| Message::text(Role::Assistant, text)));
        for part in live.parts.values() {
            match part.piece {
                PieceKind::Assistant if !part.text.trim().is_empty() => {
                    entries.push(Entry::Assistant(entry::Assistant {
                        text: part.text.clone(),
                        partial: true,
                        at: at.clone(),
                    }));
                    messages.push(Message { role: Role::Assistant, parts: vec![Part::Text(part.text.clone())] });
                }
                PieceKind::Reasoning if !part.text.trim().is_empty() => {
                    entries.push(Entry::Reasoning(entry::Reasoning {
                        text: part.text.clone(),
                        elapsed_ms: 0,
                        variant: self.variant.clone(),
                        at: at.clone(),
                    }));
                }
                _ => {}
            }
        }
        for c in calls.iter().filter(|c| c.output.is_none()) {
            let shown = live.parts.values().find(|p| p.call.as_deref() == Some(&c.call.id)).map(|p| p.text.clone());
            let result = shown.map_or_else(|| LOST.to_owned(), |t| format!("{t}\n[{LOST}]"));
            let result = crate::tools::clip::clip_plain(&result, crate::turn::RESULT_CHARS);
            entries.push(Entry::Tool(entry::Tool {
                name: c.call.name.clone(),
                detail: self.detail_of(&c.call),
                elapsed_ms: 0,
                ok: false,
                input: Some(c.call.input.clone()),
                result: Some(result),
                call_id: Some(c.call.id.clone()),
                at: at.clone(),
                ..entry::Tool::default()
            }));
        }
        if let Some(a) = assistant {
            messages.push(a);
            let parts: Vec<Part> = calls
                .into_iter()
                .map(|c| Part::ToolResult {
                    id: c.call.id,
                    name: c.call.name,
                    output: c.output.unwrap_or_else(|| Output::Error(LOST.to_owned())),
                })
                .collect();
            if !parts.is_empty() {
                messages.push(Message { role: Role::Tool, parts });
            }
        }
        messages.push(Message::text(Role::User, "[The turn above was interrupted before it was finished.]"));
        entries.extend(self.children_lost(&at));
        entries.push(Entry::notice("(the daemon stopped during this turn: it was closed as interrupted)", &at));
        entries.push(turn_entry(&messages, TurnStatus::Interrupted, &at));
        self.record(&entries);
        // If this fails the disk's state shows it and it is tried again.
        let _ = self.sync().await;
    }
}

fn call_state(p: &Part, results: &HashMap<String, Output>) -> Option<CallState> {
    let Part::ToolCall { id, name, input, .. } = p else { return None };
    Some(CallState {
        call: ToolCall { id: id.clone(), name: name.clone(), input: input.clone(), refused: None },
        detail: String::new(),
        started: None,
        output: results.get(id).cloned(),
    })
}
