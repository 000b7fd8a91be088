//! Where a history is cut: what is summarised and what stays verbatim.
//!
//! Owns compaction.md "The cut". A cut never separates a call from its result, leaves the newest
//! work, and leaves the request being worked on.

use crate::fold::context::{BRIEF_OPEN, Stored};
use glrs_protocol::message::{Message, Part, Role};

/// What is planned with.
#[derive(Clone, Copy, Debug)]
pub struct Rules {
    /// Tokens that stay at least.
    pub keep: u64,
    /// User turns that stay as well where that is possible.
    pub turns: u64,
    /// Tokens from which one turn is enough.
    pub shrink: u64,
    /// Tokens in the context now.
    pub tokens: u64,
    /// A person asked: the newest legal boundary, even if less than `keep` remains.
    pub forced: bool,
}

/// A cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cut {
    /// Messages before this index are summarised; the rest stays.
    pub at: usize,
    /// Index of the request being worked on, when it is among those summarised: it is replayed
    /// verbatim behind the brief.
    pub request: Option<usize>,
}

/// Start of the notes that glrs itself puts into a conversation on the user's side.
pub const MARK: &str = "[The turn above ";

/// Whether it is a message of a person.
pub fn is_request(m: &Message) -> bool {
    m.role == Role::User
        && !matches!(m.parts.first(), Some(Part::Text(t)) if t.starts_with(MARK) || t.starts_with(BRIEF_OPEN))
}

/// Roughly how many tokens a message takes.
fn weight(s: &Stored) -> u64 {
    (s.message.weight() / 4) as u64
}

/// Finds the cut; `None` when there is nothing worth summarising.
pub fn find(stored: &[Stored], rules: &Rules) -> Option<Cut> {
    // Summarising the last brief alone makes no room.
    let base = usize::from(stored.first().is_some_and(|s| s.n == 0));
    let requests: Vec<usize> =
        stored.iter().enumerate().skip(base + 1).filter(|(_, s)| is_request(&s.message)).map(|(i, _)| i).collect();
    let newest = requests.last().copied();
    let mut after = 0u64;
    let mut cut = None;
    if rules.forced {
        cut = newest;
    } else {
        let mut next = requests.iter().rev().peekable();
        for i in (0..stored.len()).rev() {
            after += weight(&stored[i]);
            if next.peek() == Some(&&i) {
                next.next();
                if after >= rules.keep {
                    cut = Some(i);
                    break;
                }
            }
        }
    }
    if let Some(at) = cut {
        let wanted = usize::try_from(rules.turns.max(1)).unwrap_or(1);
        let roomy = rules.tokens <= rules.shrink;
        // As many turns as wanted, if that leaves something to summarise and there is room.
        let turns = requests.len().checked_sub(wanted).map(|k| requests[k]);
        let at = match turns {
            Some(t) if t < at && roomy => t,
            _ => at,
        };
        return Some(Cut { at, request: None });
    }
    inside_turn(stored, rules, base)
}

/// One long turn: the newest assistant message directly behind a tool message, such that the work
/// after it is at least `keep` (or, forced, whatever it is). The turn's request stays verbatim.
fn inside_turn(stored: &[Stored], rules: &Rules, base: usize) -> Option<Cut> {
    let request = (base..stored.len()).rev().find(|i| is_request(&stored[*i].message));
    let first = request.map_or(base, |r| r + 1).max(base + 1);
    let mut after = 0u64;
    for at in (first + 1..stored.len()).rev() {
        after += weight(&stored[at]);
        let boundary = stored[at].message.role == Role::Assistant && stored[at - 1].message.role == Role::Tool;
        if boundary && (rules.forced || after >= rules.keep) {
            return Some(Cut { at, request });
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fold::context::brief_message;
    use proptest::prelude::*;
    use std::sync::Arc;

    fn stored(messages: Vec<Message>) -> Vec<Stored> {
        messages
            .into_iter()
            .enumerate()
            .map(|(i, m)| Stored { n: 1 + i as u64, index: 0, message: Arc::new(m) })
            .collect()
    }

    fn user(size: usize) -> Message {
        Message::text(Role::User, "u".repeat(size))
    }
    fn says(size: usize) -> Message {
        Message { role: Role::Assistant, parts: vec![Part::Text("a".repeat(size))] }
    }
    fn calls(id: &str, size: usize) -> [Message; 2] {
        let input = glrs_protocol::message::empty_object();
        let call = Part::ToolCall { id: id.into(), name: "read".into(), input, opts: None };
        let output = glrs_protocol::message::Output::Text("r".repeat(size));
        let result = Part::ToolResult { id: id.into(), name: "read".into(), output };
        [Message { role: Role::Assistant, parts: vec![call] }, Message { role: Role::Tool, parts: vec![result] }]
    }
    fn rules(keep: u64) -> Rules {
        Rules { keep, turns: 2, shrink: 1_000_000, tokens: 0, forced: false }
    }

    #[test]
    fn recent_turns_stay_and_short_talks_are_left_alone() {
        let talk = stored(vec![user(400), says(400), user(400), says(400), user(400), says(400)]);
        // Two turns stay, though one would hold enough.
        assert_eq!(find(&talk, &rules(100)), Some(Cut { at: 2, request: None }));
        assert_eq!(find(&talk, &Rules { shrink: 0, tokens: 1, ..rules(100) }), Some(Cut { at: 4, request: None }));
        assert_eq!(find(&talk, &rules(100_000)), None);
        assert_eq!(find(&talk[..2], &Rules { forced: true, ..rules(0) }), None);
        assert_eq!(find(&talk[..4], &Rules { forced: true, ..rules(0) }), Some(Cut { at: 2, request: None }));
    }

    #[test]
    fn one_long_turn_is_cut_behind_a_result_and_keeps_its_request() {
        let mut m = vec![user(100)];
        for i in 0..10 {
            m.extend(calls(&format!("c{i}"), 4000));
        }
        let c = find(&stored(m), &rules(1500)).unwrap();
        assert_eq!((c.at % 2, c.request), (1, Some(0)));
        assert!(c.at >= 15);
    }

    #[test]
    fn a_brief_alone_is_not_summarised_again() {
        let mut s = stored(vec![brief_message("S"), user(40), says(40)]);
        s[0].n = 0;
        assert_eq!(find(&s, &Rules { forced: true, ..rules(0) }), None);
    }

    #[test]
    fn cutting_a_hundred_thousand_messages_is_fast() {
        let mut m = Vec::with_capacity(100_000);
        for i in 0..25_000 {
            m.extend([user(40), says(40)]);
            m.extend(calls(&format!("c{i}"), 40));
        }
        let s = stored(m);
        // The worst case walks all of it and finds nothing.
        let started = std::time::Instant::now();
        let none = find(&s, &rules(u64::MAX));
        let took = started.elapsed();
        println!("100,000 messages were searched for a cut in {took:?}");
        assert_eq!(none, None);
        // 20 ms in release; a test build on a loaded machine is given far more.
        assert!(took < std::time::Duration::from_secs(2), "{took:?}");
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(10_000))]
        #[test]
        fn no_cut_of_any_history_splits_a_pair(kinds in prop::collection::vec((0u8..4, 1usize..3000), 0..60), keep in 0u64..3000, forced: bool) {
            let mut m = Vec::new();
            for (i, (k, size)) in kinds.iter().enumerate() {
                match k {
                    0 => m.push(user(*size)),
                    1 => m.push(says(*size)),
                    _ => m.extend(calls(&format!("c{i}"), *size)),
                }
            }
            let s = stored(m);
            if let Some(c) = find(&s, &Rules { forced, ..rules(keep) }) {
                prop_assert!(c.at > 0 && c.at < s.len());
                prop_assert!(s[c.at].message.role != Role::Tool);
                // The newest request is behind the cut, or replayed.
                let newest = s.iter().rposition(|x| is_request(&x.message));
                prop_assert!(newest.is_none_or(|n| n >= c.at || c.request == Some(n)));
            }
        }
    }
}
