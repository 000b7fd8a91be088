//! What a turn says to the model besides the conversation: messages with what rides along, and
//! which tools are listed.
//!
//! Owns turns.md "What the model sees" as far as the session decides it; the words are
//! [`crate::turn::prompt`]'s.

use super::actor::Actor;
use super::queue::Waiting;
use crate::tools::history;
use crate::turn::prompt;
use glrs_protocol::message::{Message, Part, Role};
use std::sync::Arc;

impl Actor {
    /// The messages a turn starts with: those that no turn took up, then these.
    pub(super) fn user_messages(&mut self, rows: &[Waiting]) -> Vec<Arc<Message>> {
        let rides = self.ctx.as_mut().map(|c| c.take_rides(rows.len())).unwrap_or_default();
        let mut orphans = self.ctx.as_mut().map(crate::fold::Context::take_pending).unwrap_or_default();
        // The last ones are this turn's own entries.
        orphans.truncate(orphans.len().saturating_sub(rows.len()));
        let mut out: Vec<Arc<Message>> = orphans.into_iter().map(|t| Arc::new(Message::text(Role::User, t))).collect();
        out.extend(self.row_messages(rows, true, rides));
        out
    }

    /// Messages with what rides along. `place`: also where the conversation is, and what there is
    /// to be reminded of. `rides`: what people ran themselves since the message before.
    pub(super) fn row_messages(&mut self, rows: &[Waiting], place: bool, rides: Vec<String>) -> Vec<Arc<Message>> {
        let found = prompt::instructions(&self.config.root, &self.cwd);
        let hash = super::sending::params_hash(&found.iter().map(|(_, t)| t.as_str()).collect::<Vec<_>>());
        let fresh = place && self.told.as_ref() != Some(&hash);
        let mut reminders = rides;
        if place {
            reminders.extend(self.count_artifacts());
            reminders.extend(self.jobs.reminders());
        }
        let mut out = Vec::new();
        for (i, w) in rows.iter().enumerate() {
            let files: Vec<String> = w
                .row
                .attachments
                .iter()
                .filter(|a| a.data.is_none())
                .map(|a| prompt::attachment(&self.cwd, &a.path))
                .collect();
            let first = i == 0 && fresh;
            let block = prompt::context_block(
                first.then_some(self.cwd.as_path()),
                if first { &found } else { &[] },
                &files,
                if i == 0 { &reminders } else { &[] },
            );
            let mut parts = vec![Part::Text(w.row.text.clone())];
            parts.extend(w.row.attachments.iter().filter_map(|a| {
                let data = a.data.clone()?;
                Some(Part::File {
                    kind: "image",
                    media_type: a.media_type.clone().unwrap_or_else(|| "image/png".into()),
                    data,
                })
            }));
            if !block.is_empty() {
                parts.push(Part::Text(block));
            }
            out.push(Arc::new(Message { role: Role::User, parts }));
        }
        if fresh {
            self.told = Some(hash);
        }
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
