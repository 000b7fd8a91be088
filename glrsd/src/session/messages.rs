//! What a turn says to the model besides the conversation: messages with what rides along, and
//! which tools are listed.
//!
//! Owns turns.md "What the model sees" as far as the session decides it; the words are
//! [`crate::turn::prompt`]'s.

use super::actor::Actor;
use super::queue::Waiting;
use crate::tools::history;
use crate::turn::attach::{self, Taken};
use crate::turn::prompt;
use glrs_protocol::entry::{Attachment, Entry};
use glrs_protocol::message::{Message, Part, Role};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

/// How long a disk may take to give the instruction files: a dead mount must not hold the session.
const PATIENCE: Duration = Duration::from_secs(5);

/// What came with messages, read now. The bytes go into the conversation itself: what becomes of the
/// files afterwards changes nothing.
async fn taken_along(cwd: PathBuf, rows: &[Waiting]) -> Vec<Vec<Taken>> {
    if rows.iter().all(|w| w.row.attachments.is_empty()) {
        return Vec::new();
    }
    let all: Vec<Vec<Attachment>> = rows.iter().map(|w| w.row.attachments.clone()).collect();
    let read = tokio::task::spawn_blocking(move || {
        let mut room = attach::IMAGES_MAX;
        all.iter().map(|a| attach::read(&cwd, a, &mut room)).collect()
    });
    read.await.unwrap_or_else(|error| {
        tracing::error!(%error, "what came with a message was not read");
        Vec::new()
    })
}

/// The instruction files, read away from here.
async fn instructions(root: PathBuf, cwd: PathBuf) -> prompt::Instructions {
    let read = tokio::task::spawn_blocking(move || prompt::instructions(&root, &cwd));
    match tokio::time::timeout(PATIENCE, read).await {
        Ok(Ok(found)) => found,
        _ => prompt::Instructions {
            texts: Vec::new(),
            left_out: vec!["the AGENTS.md files were not read: the disk does not answer".to_owned()],
        },
    }
}

impl Actor {
    /// The messages a turn starts with: those that no turn took up, then these.
    pub(super) async fn user_messages(&mut self, rows: &[Waiting]) -> Vec<Arc<Message>> {
        let rides = self.ctx.as_mut().map(|c| c.take_rides(rows.len())).unwrap_or_default();
        let mut orphans = self.ctx.as_mut().map(crate::fold::Context::take_pending).unwrap_or_default();
        // The last ones are this turn's own entries.
        orphans.truncate(orphans.len().saturating_sub(rows.len()));
        let mut out: Vec<Arc<Message>> = orphans.into_iter().map(Arc::new).collect();
        out.extend(self.row_messages(rows, true, rides).await);
        out
    }

    /// Messages with what rides along. `place`: also where the conversation is, and what there is
    /// to be reminded of. `rides`: what people ran themselves since the message before.
    pub(super) async fn row_messages(
        &mut self,
        rows: &[Waiting],
        place: bool,
        rides: Vec<String>,
    ) -> Vec<Arc<Message>> {
        let mut taken = taken_along(self.cwd.clone(), rows).await.into_iter();
        let mut notices = Vec::new();
        let found = match place {
            true => instructions(self.config.root.clone(), self.cwd.clone()).await,
            false => prompt::Instructions::default(),
        };
        let said = found.texts.iter().map(|(_, t)| t).chain(&found.left_out);
        let hash = super::sending::params_hash(&said.map(String::as_str).collect::<Vec<_>>());
        let fresh = place && self.told.as_ref() != Some(&hash);
        if fresh {
            notices.extend(found.left_out.iter().map(|what| format!("({what})")));
        }
        let mut reminders = rides;
        if place {
            reminders.extend(self.count_artifacts());
            reminders.extend(self.jobs.reminders());
        }
        let mut out = Vec::new();
        for (i, w) in rows.iter().enumerate() {
            let mut parts = vec![Part::Text(w.row.text.clone())];
            let mut files = Vec::new();
            for t in taken.next().unwrap_or_default() {
                files.push(t.text);
                parts.extend(t.part);
                notices.extend(t.notice);
            }
            let first = i == 0 && fresh;
            let block = prompt::context_block(
                first.then_some(self.cwd.as_path()),
                if first { &found.texts } else { &[] },
                &files,
                if i == 0 { &reminders } else { &[] },
            );
            if !block.is_empty() {
                parts.push(Part::Text(block));
            }
            out.push(Arc::new(Message { role: Role::User, parts }));
        }
        if fresh {
            self.told = Some(hash);
        }
        let images = out.iter().flat_map(|m| &m.parts).any(|p| matches!(p, Part::File { kind: "image", .. }));
        if images && self.shared.models.describe(&self.config, &self.model).images == Some(false) {
            notices.push(format!("({} takes no images: it is told that there is one)", self.model));
        }
        let at = self.now();
        let entries: Vec<Entry> = notices.into_iter().map(|n| Entry::notice(n, &at)).collect();
        let recorded = self.record(&entries);
        self.publish_entries(recorded);
        out
    }

    /// Whether a tool is in the prompt: those that reach back only once there is something to reach.
    pub(super) fn listed(&self, name: &str) -> bool {
        let config = &self.config.config;
        if config.tools.disable.iter().any(|d| crate::policy::names(d, name)) {
            return false;
        }
        if name == history::RECALL {
            return self.ctx.as_ref().is_some_and(crate::fold::Context::has_markers);
        }
        if name.starts_with(history::COMPACTION) {
            return self.artifacts > 0 && !config.extensions.disable.iter().any(|d| d == history::EXTENSION);
        }
        true
    }

    /// Counts the session's artifacts; the agent is told once per turn how many there are.
    fn count_artifacts(&mut self) -> Vec<String> {
        self.artifacts = self.shared.store.artifact_names(&self.id).map_or(0, |n| n.len());
        let told = self.artifacts > 0 && self.listed("compaction_read");
        let reminder = format!(
            "Earlier parts of this conversation were compacted. {} are kept unchanged: compaction_list shows them, compaction_read reads one.",
            self.artifacts
        );
        if told { vec![reminder] } else { Vec::new() }
    }
}
