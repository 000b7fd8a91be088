//! Markers: what stands in the context for large results that were cleared.
//!
//! Owns the marker's words and putting markers in place, so that a resumed context equals the live
//! one. Which results go is compaction's business.

use super::context::Stored;
use glrs_protocol::message::{Message, Output, Part};
use std::collections::HashMap;
use std::sync::Arc;

/// Start of every marker.
const MARKER: &str = "[result cleared to make room: ";

/// The marker for a result.
pub fn marker(tool: &str, size: usize, entry: u64) -> String {
    format!("{MARKER}{tool}, {size} bytes, entry {entry}; recall{{\"entry\":{entry}}} reads it back]")
}

/// Whether an output is such a marker.
pub fn is_marker(output: &Output) -> bool {
    matches!(output, Output::Text(t) if t.starts_with(MARKER))
}

/// Puts markers in place of the results of these entries. Messages without one are not touched.
pub fn apply(stored: &mut [Stored], entries: &HashMap<String, u64>, chosen: &[u64]) {
    for s in stored {
        let hit = |p: &Part| match p {
            Part::ToolResult { id, .. } => entries.get(id).filter(|n| chosen.contains(n)).copied(),
            _ => None,
        };
        if !s.message.parts.iter().any(|p| hit(p).is_some()) {
            continue;
        }
        let parts = s
            .message
            .parts
            .iter()
            .map(|p| match (hit(p), p) {
                (Some(n), Part::ToolResult { id, name, output }) if !is_marker(output) => Part::ToolResult {
                    id: id.clone(),
                    name: name.clone(),
                    output: Output::Text(marker(name, output.as_text().len(), n)),
                },
                _ => p.clone(),
            })
            .collect();
        s.message = Arc::new(Message { role: s.message.role, parts });
    }
}
