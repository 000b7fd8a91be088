//! What a session's log and journal say of it, read in one pass.
//!
//! Owns what is taken from the tail of a log for recovery, and which of it the journal has twice. Must not
//! know the actor: [`super::load`] makes one of it.

use super::Shared;
use super::live::LiveState;
use crate::fold::Summary;
use crate::store::{LoadError, Log};
use glrs_protocol::SessionId;
use glrs_protocol::entry::{self, Entry};
use glrs_protocol::message::Output;
use glrs_protocol::types::PieceKind;
use std::collections::HashMap;

/// What one pass over a log gives.
pub(super) struct Loaded {
    pub log: Log,
    pub summary: Summary,
    pub live: LiveState,
    /// Tool entries behind the last `turn` entry, by call id: results of a step that was cut off.
    pub results: HashMap<String, Output>,
    /// What the model said behind the last `turn` entry, where no message of it was noted.
    pub said: Vec<String>,
    /// Keys of all user entries and tombstones behind the position where each row was accepted.
    pub keys: HashMap<String, u64>,
}

/// Reads a session's log and journal. May block.
pub(super) fn read(shared: &Shared, id: &SessionId) -> Result<Loaded, LoadError> {
    let log = shared.store.load(id)?;
    let lines = shared.store.live(id).read_all()?;
    let mut live = LiveState::replay(lines.iter().map(|l| &**l));
    let mut summary = Summary::default();
    let mut results = HashMap::new();
    let mut keys = HashMap::new();
    let mut said = Vec::new();
    let mut last_turn = String::new();
    let recover = !live.is_empty();
    if !recover && let Some(summary) = shared.store.kept_fold(&log).and_then(|fold| serde_json::from_str(&fold).ok()) {
        return Ok(Loaded { log, summary, live, results, said: Vec::new(), keys });
    }
    log.scan(&mut |n, raw| {
        summary.apply(n, raw);
        if !recover {
            return;
        }
        match entry::kind_of(raw).as_ref() {
            "turn" => {
                results.clear();
                said.clear();
                raw.clone_into(&mut last_turn);
            }
            "assistant" | "reasoning" => match Entry::parse(raw) {
                Ok(Entry::Assistant(a)) => said.push((PieceKind::Assistant, a.text)),
                Ok(Entry::Reasoning(r)) => said.push((PieceKind::Reasoning, r.text)),
                _ => {}
            },
            "tool" => {
                let Ok(Entry::Tool(t)) = Entry::parse(raw) else { return };
                if let Some(call) = t.call_id {
                    let text = t.result.unwrap_or_default();
                    results.insert(call, if t.ok { Output::Text(text) } else { Output::Error(text) });
                }
                keys.extend(t.key.map(|k| (k, n)));
            }
            "user" | "custom" => {
                let key = match Entry::parse(raw) {
                    Ok(Entry::User(u)) => u.key,
                    Ok(Entry::Custom(c)) => c.key,
                    _ => None,
                };
                if let Some(k) = key {
                    keys.insert(k, n);
                }
            }
            _ => {}
        }
    })?;
    if is_recorded(&live, &last_turn) {
        live.msgs.clear();
    }
    // An entry that was written just before the daemon's end holds what its piece holds.
    live.parts.retain(|_, p| p.call.is_some() || !said.iter().any(|(k, t)| *k == p.piece && t.starts_with(&p.text)));
    said.retain(|(kind, _)| *kind == PieceKind::Assistant && live.msgs.is_empty());
    let said = said.into_iter().map(|(_, text)| text).collect();
    Ok(Loaded { log, summary, live, results, said, keys })
}

/// Whether the last `turn` entry has the journal's step: the daemon ended after it was recorded and
/// before the journal said so.
fn is_recorded(live: &LiveState, last_turn: &str) -> bool {
    let Some(answer) = live.msgs.last() else { return false };
    match Entry::parse(last_turn) {
        Ok(Entry::Turn(turn)) => turn.messages.iter().any(|m| m.get() == answer),
        _ => false,
    }
}
