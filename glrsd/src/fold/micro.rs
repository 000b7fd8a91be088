//! Markers: what stands in the context for large results that were cleared.
//!
//! Owns the marker's words and putting markers in place, so that a resumed context equals the live
//! one. Which results go is compaction's business.

use super::context::Stored;
use glrs_protocol::message::{Message, Output, Part};
use std::collections::{HashMap, HashSet};
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

/// The entry that a marker names; `None` for any other output.
pub fn entry_of(output: &Output) -> Option<u64> {
    match output {
        Output::Text(t) => t.strip_prefix(MARKER)?.rsplit_once(", entry ")?.1.split_once(';')?.0.parse().ok(),
        _ => None,
    }
}

/// Puts markers in place of the results of these entries. Messages without one are not touched.
pub fn apply(stored: &mut [Stored], entries: &HashMap<String, u64>, chosen: &[u64]) {
    let chosen: HashSet<u64> = chosen.iter().copied().collect();
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_marker_names_its_entry() {
        let output = |t: &str| Output::Text(t.to_owned());
        assert_eq!(entry_of(&output(&marker("read, entry 7;", 5_000, 42))), Some(42));
        assert_eq!(entry_of(&output("read, entry 7; x")), None);
        assert!(is_marker(&output(&marker("read", 1, 2))));
    }
}
