//! Changes to a session besides turns: settings, fork, clear, rewind, extension entries, delete.

use super::actor::Actor;
use super::looking;
use super::sending::{key_conflict, params_hash};
use super::{Reply, Who};
use crate::fold::context;
use crate::fold::summary::{CwdChoice, ModeChoice, ModelChoice, RewoundEntry};
use crate::model::catalogue;
use crate::store::ForkError;
use glrs_protocol::entry::{Cleared, Custom, Entry, FileChange, Forked, Title};
use glrs_protocol::params::{Append, AppendResult, Clear, Done, Fork, Rewind, RewindFile, RewindResult, SessionSet};
use glrs_protocol::types::SessionInfo;
use glrs_protocol::{ErrorKind, RpcError, SessionId};
use serde_json::value::RawValue;
use std::collections::BTreeMap;
use std::path::Path;

/// Hash of what makes two calls with one key the same call.
pub(super) fn keyed_hash(parts: &[&str]) -> String {
    params_hash(parts)
}

impl Actor {
    pub(super) fn busy(&self, what: &str) -> RpcError {
        RpcError::new(
            ErrorKind::Busy { state: self.state().name.as_str().to_owned() },
            format!("a turn or a command is running: stop it first (esc), then {what}"),
        )
    }

    /// A keyed call that was made before: its entry, or a conflict.
    pub(super) fn keyed(&self, key: Option<&str>, hash: &str) -> Result<Option<u64>, RpcError> {
        match key.and_then(|k| self.summary.find_key(k)) {
            Some(at) if at.hash == hash => Ok(Some(at.n)),
            Some(at) => Err(key_conflict(&at.key)),
            None => Ok(None),
        }
    }

    pub(super) async fn set(&mut self, who: &Who, p: SessionSet, reply: Reply<SessionInfo>) {
        let at = self.now();
        let mut entries = Vec::new();
        if let Some(title) = &p.title {
            if title.trim().is_empty() {
                return reply(Err(RpcError::params("the title is blank")));
            }
            entries.push(Entry::custom(
                "glrs:title",
                &Title { text: title.trim().to_owned(), by: "person".into() },
                &at,
            ));
        }
        if p.model.is_some() || p.variant.is_some() {
            let model = p.model.clone().unwrap_or_else(|| self.model.clone());
            if let Err(f) = self.shared.models.resolve(&self.config, &model, &self.env) {
                return reply(Err(RpcError::new(ErrorKind::Provider { status: f.status }, f.message)));
            }
            let variant = match (&p.variant, &p.model) {
                (Some(v), _) => catalogue::named(v),
                (None, Some(_)) => None,
                (None, None) => self.variant.clone(),
            };
            if let Some(v) = variant.as_ref().filter(|_| p.variant.is_some())
                && let Some(why) = catalogue::not_among(&self.shared.models.describe(&self.config, &model), v)
            {
                return reply(Err(RpcError::params(why)));
            }
            self.model.clone_from(&model);
            self.variant.clone_from(&variant);
            entries.push(Entry::custom("glrs:model", &ModelChoice { model, variant }, &at));
            self.learn_window();
            if p.model.is_some() && self.running.is_none() {
                self.drop_brief("the model was changed");
            }
            self.course.refresh();
            self.course.awake = true;
            self.go_on = true;
        }
        if let Some(mode) = p.mode {
            self.mode = mode;
            entries.push(Entry::custom("glrs:mode", &ModeChoice { mode, by: Some(who.by.clone()) }, &at));
        }
        if let Some(cwd) = &p.cwd {
            let path = match looking::directory(&self.cwd, Path::new(cwd)).await {
                Ok(path) => path,
                Err(e) => return reply(Err(e)),
            };
            // Before anything changes: without it neither its rules nor its model would be known.
            let Some(config) = self.shared.configuration_within(&path, &self.env).await else {
                return reply(Err(looking::silent(&path)));
            };
            entries.push(Entry::custom("glrs:cwd", &CwdChoice { cwd: path.display().to_string() }, &at));
            self.cwd = path;
            self.told = None;
            self.configured(config);
        }
        if entries.is_empty() {
            return reply(Err(RpcError::params("nothing to set: give model, variant, mode, title or cwd")));
        }
        // A session nobody said anything in has no file; a title alone makes one, since a person
        // gave it, but model and mode wait for the first message.
        if self.log.is_empty() && p.title.is_none() {
            reply(Ok(self.info()));
            return self.publish_info_if_new();
        }
        let mut all = self.first_entries(&at);
        all.extend(entries.into_iter().flatten());
        let recorded = self.record(&all);
        if let Err(e) = self.sync().await {
            reply(Err(e));
            return self.publish_entries(recorded);
        }
        reply(Ok(self.info()));
        self.publish_entries(recorded);
        self.publish_info_if_new();
        self.publish_usage();
    }

    /// Copies the session. The copying runs beside the actor: bytes of entries never change.
    pub(super) async fn fork(&mut self, _who: &Who, p: Fork, new_id: SessionId, reply: Reply<()>) {
        let total = self.log.len();
        let at = p.at.unwrap_or(total);
        if total == 0 {
            return reply(Err(RpcError::params("nothing was said in this session yet: there is nothing to copy")));
        }
        if at == 0 || at > total {
            return reply(Err(RpcError::params(format!("entry {at} does not exist: give a number from 1 to {total}"))));
        }
        // What is written but not synced must be in the file that is copied from.
        if let Err(e) = self.sync().await {
            return reply(Err(e));
        }
        let forked = Forked { parent: self.id.to_string(), at };
        let extra = match Entry::custom("glrs:forked", &forked, &self.now()).and_then(|e| e.to_raw()) {
            Ok(raw) => raw,
            Err(e) => return reply(Err(RpcError::internal(e.to_string()))),
        };
        let (store, reader) = (self.shared.store.clone(), self.log.reader());
        let parent = self.id.clone();
        tokio::task::spawn_blocking(move || {
            reply(match store.fork(&reader, at, &new_id, &[extra]) {
                Ok(_) => Ok(()),
                Err(ForkError::Exists(_)) if is_fork_of(&store, &new_id, &parent, at) => Ok(()),
                Err(e) => Err(fork_error(e)),
            });
        });
    }

    pub(super) async fn clear(&mut self, p: Clear, reply: Reply<Done>) {
        let hash = params_hash(&["clear"]);
        match self.keyed(p.key.as_deref(), &hash) {
            Ok(None) => {}
            Ok(Some(_)) => return reply(Ok(Done {})),
            Err(e) => return reply(Err(e)),
        }
        if self.running.is_some() {
            return reply(Err(self.busy("clear")));
        }
        if self.log.is_empty() {
            return reply(Ok(Done {}));
        }
        self.drop_brief("the conversation was cleared");
        self.course.refresh();
        let entry = Entry::Cleared(Cleared {
            reason: "cleared by a person".into(),
            at: self.now(),
            key_hash: p.key.is_some().then_some(hash),
            key: p.key,
        });
        let recorded = self.record(&[entry]);
        self.told = None;
        if let Err(e) = self.sync().await {
            reply(Err(e));
            return self.publish_entries(recorded);
        }
        reply(Ok(Done {}));
        self.publish_entries(recorded);
        self.publish_usage();
        self.go_on = true;
    }

    pub(super) async fn rewind(&mut self, _who: &Who, p: Rewind, reply: Reply<RewindResult>) {
        let hash = params_hash(&["rewind", &p.to.to_string(), &format!("{:?}{:?}", p.files, p.conversation)]);
        let known = if p.preview { Ok(None) } else { self.keyed(p.key.as_deref(), &hash) };
        match known {
            Err(e) => return reply(Err(e)),
            Ok(Some(_)) => return reply(Ok(RewindResult { files: Vec::new(), text: String::new(), entries: 0 })),
            Ok(None) if self.running.is_some() => return reply(Err(self.busy("rewind"))),
            Ok(None) => {}
        }
        let plan = match self.rewind_plan(p.to).await {
            Ok(plan) => plan,
            Err(e) => return reply(Err(e)),
        };
        let files_wanted = p.files.unwrap_or(true);
        let mut result = RewindResult {
            files: if files_wanted { plan.files.iter().map(|f| f.shown.clone()).collect() } else { Vec::new() },
            text: plan.text.clone(),
            entries: self.log.len() + 1 - p.to,
        };
        if p.preview {
            return reply(Ok(result));
        }
        if files_wanted {
            let (store, id) = (self.shared.store.clone(), self.id.clone());
            let files = plan.files;
            let done = tokio::task::spawn_blocking(move || restore_all(&store, &id, &files)).await;
            match done {
                Ok(shown) => result.files = shown,
                Err(e) => return reply(Err(RpcError::internal(e.to_string()))),
            }
        }
        if p.conversation.unwrap_or(true) {
            self.drop_brief("the conversation was rewound");
            self.course.refresh();
            let entry = Entry::custom("glrs:rewound", &RewoundEntry { to: p.to - 1 }, &self.now());
            let Ok(Entry::Custom(c)) = entry else {
                return reply(Err(RpcError::internal("the entry did not serialise")));
            };
            let entry = Entry::Custom(Custom { key_hash: p.key.is_some().then_some(hash), key: p.key, ..c });
            let recorded = self.record(&[entry]);
            self.told = None;
            if let Err(e) = self.sync().await {
                reply(Err(e));
                return self.publish_entries(recorded);
            }
            reply(Ok(result));
            self.publish_entries(recorded);
            self.publish_usage();
            self.go_on = true;
        } else {
            reply(Ok(result));
        }
    }

    /// What going back before user entry `to` means: its text, and each file's earliest pre-image.
    async fn rewind_plan(&mut self, to: u64) -> Result<RewindPlan, RpcError> {
        let reader = self.log.reader();
        let ranges = context::live_ranges(&self.summary.rewinds, self.log.len());
        let plan = tokio::task::spawn_blocking(move || {
            let mut text = None;
            let mut files: BTreeMap<String, (FileChange, String)> = BTreeMap::new();
            let scanned = reader.scan(&mut |n, raw| {
                if n < to || !ranges.iter().any(|r| r.contains(&n)) {
                    return;
                }
                if n == to {
                    if let Ok(Entry::User(u)) = Entry::parse(raw) {
                        text = Some(u.text);
                    }
                } else if raw.contains("glrs:files")
                    && let Ok(Entry::Custom(c)) = Entry::parse(raw)
                    && c.custom == "glrs:files"
                    && let Ok(change) = serde_json::from_str::<FileChange>(c.data.get())
                {
                    let after = change.after.clone();
                    files.entry(change.path.clone()).and_modify(|f| f.1.clone_from(&after)).or_insert((change, after));
                }
            });
            scanned.map(|_| (text, files))
        })
        .await
        .map_err(|e| RpcError::internal(e.to_string()))?
        .map_err(|e| {
            RpcError::new(ErrorKind::Disk { path: e.path.display().to_string(), why: e.why.clone() }, e.to_string())
        })?;
        let (Some(text), files) = plan else {
            return Err(RpcError::params(format!(
                "entry {to} is no message of a person that is still part of the conversation"
            )));
        };
        let files = files.into_values().map(|(first, last_after)| PlannedFile::new(first, &last_after)).collect();
        Ok(RewindPlan { text, files })
    }

    pub(super) async fn append_custom(&mut self, p: Append, reply: Reply<AppendResult>) {
        if p.custom.trim().is_empty() || p.custom.starts_with("glrs:") {
            return reply(Err(RpcError::params("the kind has to be your own: not blank, and not starting glrs:")));
        }
        let hash = params_hash(&["append", &p.custom, p.data.get()]);
        match self.keyed(p.key.as_deref(), &hash) {
            Ok(None) => {}
            Ok(Some(n)) => return reply(Ok(AppendResult { n })),
            Err(e) => return reply(Err(e)),
        }
        if !self.disk.ok {
            return reply(Err(self.disk_error()));
        }
        let data = compact(&p.data);
        let entry = Entry::Custom(Custom {
            custom: p.custom,
            data,
            at: self.now(),
            key_hash: p.key.is_some().then_some(hash),
            key: p.key,
        });
        let recorded = self.record(&[entry]);
        let n = recorded.last().map_or(0, |(n, _)| *n);
        if let Err(e) = self.sync().await {
            reply(Err(e));
        } else {
            reply(Ok(AppendResult { n }));
        }
        self.publish_entries(recorded);
    }

    pub(super) fn delete(&mut self, force: bool, reply: Reply<Done>) {
        if self.running.is_some() || !self.shells.is_empty() {
            return reply(Err(self.busy("delete the session")));
        }
        if !force && (!self.clients.is_empty() || !self.queue.rows.is_empty()) {
            return reply(Err(RpcError::new(
                ErrorKind::Busy { state: self.state().name.as_str().to_owned() },
                "clients are attached or messages wait: delete with force if it shall go all the same",
            )));
        }
        let result = if self.log.saved() || self.live_used { self.shared.store.delete(&self.id) } else { Ok(()) };
        match result {
            Ok(()) => {
                self.deleted = true;
                self.feed.close("the session was deleted");
                reply(Ok(Done {}));
            }
            Err(e) => reply(Err(delete_error(&e))),
        }
    }
}

/// One line of JSON: white space between tokens goes, nothing else changes.
fn compact(raw: &RawValue) -> Box<RawValue> {
    if !raw.get().contains(['\n', '\r']) {
        return raw.to_owned();
    }
    let mut out = String::with_capacity(raw.get().len());
    let (mut in_text, mut escaped) = (false, false);
    for c in raw.get().chars() {
        if in_text {
            out.push(c);
            in_text = escaped || c != '"';
            escaped = !escaped && c == '\\';
        } else if !c.is_whitespace() {
            out.push(c);
            in_text = c == '"';
        }
    }
    RawValue::from_string(out).unwrap_or_else(|_| raw.to_owned())
}

pub(crate) fn fork_error(e: ForkError) -> RpcError {
    let words = e.to_string();
    match e {
        ForkError::Exists(_) => RpcError::new(ErrorKind::Conflict, words),
        ForkError::Disk(d) => RpcError::new(ErrorKind::Disk { path: d.path.display().to_string(), why: d.why }, words),
        _ => RpcError::params(words),
    }
}

/// The typed error of a refused deletion.
pub fn delete_error(e: &crate::store::DeleteError) -> RpcError {
    use crate::store::DeleteError as D;
    match e {
        D::Disk(d) => {
            RpcError::new(ErrorKind::Disk { path: d.path.display().to_string(), why: d.why.clone() }, e.to_string())
        }
        D::NotFound => RpcError::new(ErrorKind::NotFound, e.to_string()),
        _ => RpcError::new(ErrorKind::Forbidden, e.to_string()),
    }
}

fn is_fork_of(store: &crate::store::Store, id: &SessionId, parent: &SessionId, at: u64) -> bool {
    let Ok(log) = store.load(id) else { return false };
    let found = log.entry(at + 1).ok().flatten();
    found.is_some_and(|raw| match Entry::parse(raw.get()) {
        Ok(Entry::Custom(c)) if c.custom == "glrs:forked" => {
            serde_json::from_str::<Forked>(c.data.get()).is_ok_and(|f| f.parent == parent.as_str() && f.at == at)
        }
        _ => false,
    })
}

struct RewindPlan {
    text: String,
    files: Vec<PlannedFile>,
}

struct PlannedFile {
    change: FileChange,
    shown: RewindFile,
}

fn hash_of(path: &Path) -> Option<String> {
    use sha2::{Digest, Sha256};
    let bytes = std::fs::read(path).ok()?;
    Some(Sha256::digest(&bytes).iter().map(|b| format!("{b:02x}")).collect())
}

impl PlannedFile {
    fn new(change: FileChange, last_after: &str) -> Self {
        let now = hash_of(Path::new(&change.path));
        let action = if now.as_deref() != Some(last_after) {
            "conflict"
        } else if change.before.is_some() {
            "restore"
        } else {
            "delete"
        };
        let shown = RewindFile { path: change.path.clone(), action: action.into() };
        Self { change, shown }
    }
}

/// Puts files back. One that fails is reported as a conflict; the others are still restored.
fn restore_all(store: &crate::store::Store, id: &SessionId, files: &[PlannedFile]) -> Vec<RewindFile> {
    files
        .iter()
        .map(|f| {
            let path = Path::new(&f.change.path);
            let done = match (f.shown.action.as_str(), &f.change.before) {
                ("delete", _) => std::fs::remove_file(path).is_ok(),
                ("restore", Some(hash)) => match store.get_blob(id, hash) {
                    Ok(Some(bytes)) => restore(path, &bytes, f.change.mode).is_ok(),
                    _ => false,
                },
                _ => return f.shown.clone(),
            };
            let action = if done { f.shown.action.clone() } else { "conflict".into() };
            RewindFile { path: f.shown.path.clone(), action }
        })
        .collect()
}

fn restore(path: &Path, bytes: &[u8], mode: Option<u32>) -> std::io::Result<()> {
    let dir = path.parent().unwrap_or(Path::new("/"));
    let temp = tempfile::NamedTempFile::new_in(dir)?;
    std::fs::write(temp.path(), bytes)?;
    #[cfg(unix)]
    if let Some(mode) = mode {
        use std::os::unix::fs::PermissionsExt;
        std::fs::set_permissions(temp.path(), std::fs::Permissions::from_mode(mode))?;
    }
    temp.persist(path).map_err(|e| e.error)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn data_of_several_lines_becomes_one_and_texts_keep_their_spaces() {
        let raw = RawValue::from_string("{\n \"a b\" : \"c \\\" d\\n\",\n\"n\": [1, 2]\n}".into()).unwrap();
        assert_eq!(compact(&raw).get(), "{\"a b\":\"c \\\" d\\n\",\"n\":[1,2]}");
    }
}
