//! What a turn says to the model besides the conversation: messages with what rides along, and
//! which tools are listed.
//!
//! Owns turns.md "What the model sees" as far as the session decides it; the words are
//! [`crate::turn::prompt`]'s.

use super::actor::Actor;
use super::queue::Waiting;
use crate::tools::history;
use crate::turn::attach::Taken;
use crate::turn::prompt::{self, Instructions};
use glrs_protocol::entry::Entry;
use glrs_protocol::message::{Message, Part, Role};
use std::sync::Arc;

impl Actor {
    /// The messages a turn starts with: those that no turn took up, then these.
    pub(super) fn user_messages(
        &mut self,
        rows: &[Waiting],
        taken: Vec<Vec<Taken>>,
        instructions: Instructions,
    ) -> Vec<Arc<Message>> {
        let rides = self.ctx.as_mut().map(|c| c.take_rides(rows.len())).unwrap_or_default();
        let mut orphans = self.ctx.as_mut().map(crate::fold::Context::take_pending).unwrap_or_default();
        // The last ones are this turn's own entries.
        orphans.truncate(orphans.len().saturating_sub(rows.len()));
        let mut out: Vec<Arc<Message>> = orphans.into_iter().map(Arc::new).collect();
        out.extend(self.row_messages(rows, taken, Some(instructions), rides));
        out
    }

    /// Messages with what rides along: files, and with `instructions` also where the conversation is
    /// and what there is to be reminded of. `rides`: what people ran themselves since the message before.
    pub(super) fn row_messages(
        &mut self,
        rows: &[Waiting],
        taken: Vec<Vec<Taken>>,
        instructions: Option<Instructions>,
        rides: Vec<String>,
    ) -> Vec<Arc<Message>> {
        let mut taken = taken.into_iter();
        let mut notices = Vec::new();
        let place = instructions.is_some();
        let found = instructions.unwrap_or_default();
        let said = found.texts.iter().map(|(_, t)| t).chain(&found.left_out);
        let hash = super::sending::params_hash(&said.map(String::as_str).collect::<Vec<_>>());
        let fresh = place && self.told.as_ref() != Some(&hash);
        if fresh {
            notices.extend(found.left_out.iter().map(|what| format!("({what})")));
        }
        let mut reminders = rides;
        if place {
            reminders.extend(self.artifacts_told());
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

    /// The agent is told once per turn how many artifacts there are.
    fn artifacts_told(&self) -> Vec<String> {
        let told = self.artifacts > 0 && self.listed("compaction_read");
        let reminder = format!(
            "Earlier parts of this conversation were compacted. {} are kept unchanged: compaction_list shows them, compaction_read reads one.",
            self.artifacts
        );
        if told { vec![reminder] } else { Vec::new() }
    }
}
