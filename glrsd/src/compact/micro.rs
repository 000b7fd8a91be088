//! Micro-compaction: large old results make room without a model call.
//!
//! Owns which results go. The call and its id stay, so pairs stay whole; the log keeps the whole
//! result, and the agent's `recall` tool reads it back. The marker is [`crate::fold::micro`]'s.

use crate::config::Micro;
use crate::fold::context::Stored;
use crate::fold::micro::is_marker;
use glrs_protocol::message::Part;
use std::collections::HashMap;

/// Tools whose results are delegated work: costly to make again, so they stay longer.
const DELEGATED: [&str; 1] = ["task"];

/// Numbers of the `tool` entries whose results go: older than the newest `keep` results and large
/// enough. `entries` maps a call's id to its entry's number.
pub fn choose(stored: &[Stored], entries: &HashMap<String, u64>, rules: &Micro) -> Vec<u64> {
    let mut seen = 0;
    let mut chosen = Vec::new();
    for s in stored.iter().rev() {
        for p in s.message.parts.iter().rev() {
            let Part::ToolResult { id, name, output } = p else { continue };
            seen += 1;
            if seen <= rules.keep || is_marker(output) {
                continue;
            }
            let least = if DELEGATED.contains(&name.as_str()) { rules.delegation_bytes } else { rules.bytes };
            if output.as_text().len() as u64 >= least
                && let Some(n) = entries.get(id)
            {
                chosen.push(*n);
            }
        }
    }
    chosen.reverse();
    chosen
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fold::micro::apply;
    use glrs_protocol::message::{Message, Output, Role};
    use std::sync::Arc;

    #[test]
    fn large_old_results_go_and_small_or_new_ones_stay() {
        let result = |i: usize, size: usize, name: &str| Stored {
            n: i as u64,
            index: 0,
            message: Arc::new(Message {
                role: Role::Tool,
                parts: vec![Part::ToolResult {
                    id: format!("c{i}"),
                    name: name.into(),
                    output: Output::Text("x".repeat(size)),
                }],
            }),
        };
        let mut s = vec![
            result(1, 5000, "read"),
            result(2, 100, "read"),
            result(3, 5000, "task"),
            result(4, 5000, "read"),
            result(5, 5000, "read"),
        ];
        let entries: HashMap<String, u64> = (1..=5).map(|i| (format!("c{i}"), 10 + i as u64)).collect();
        let rules = Micro { keep: 1, ..Micro::default() };
        let chosen = choose(&s, &entries, &rules);
        assert_eq!(chosen, [11, 14]);
        let before = s[1].message.clone();
        apply(&mut s, &entries, &chosen);
        assert!(Arc::ptr_eq(&before, &s[1].message));
        assert!(
            matches!(&s[0].message.parts[0], Part::ToolResult { id, output, .. } if id == "c1" && output.as_text().contains("entry 11"))
        );
        assert!(choose(&s, &entries, &rules).is_empty(), "a marker is not replaced again");
    }
}
