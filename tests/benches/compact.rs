//! Making room: finding the cut and the results that go, in a history of 100,000 messages. The floor
//! is looking at every message once.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::type_complexity,
    reason = "a test says what is wrong by panicking"
)]

use glrs_protocol::message::{Message, Output, Part, Role, empty_object};
use glrs_tests::bench::{Table, median, timed};
use glrsd::compact::{cut, micro};
use glrsd::config::Config;
use glrsd::fold::context::Stored;
use glrsd::fold::micro::apply;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

const MESSAGES: usize = 100_000;

fn main() {
    let mut table = Table::new("glrs: making room");
    let (stored, entries) = history();
    let floor = median(15, || timed(|| assert!(stored.iter().map(|s| s.message.weight()).sum::<usize>() > MESSAGES)));
    let tokens = stored.iter().map(|s| s.message.weight() as u64 / 4).sum();
    let rules = cut::Rules { keep: 20_000, turns: 2, shrink: 1_000_000, tokens, forced: false };
    let gate = Some(Duration::from_millis(20));
    let time = median(15, || timed(|| assert!(cut::find(&stored, &rules).is_some())));
    table.time("find the cut (floor: weigh each message once)", time, Some(floor), gate);
    let config = Config::default().micro;
    let time = median(15, || timed(|| assert!(micro::choose(&stored, &entries, &config).len() > 1000)));
    table.time("choose the results that go", time, Some(floor), gate);
    let chosen = micro::choose(&stored, &entries, &config);
    let mut copies: Vec<_> = (0..5).map(|_| stored.clone()).collect();
    let time = median(5, || {
        let mut copy = copies.pop().expect("a copy");
        let time = timed(|| apply(&mut copy, &entries, &chosen));
        // What stays is the very message it was.
        let same = copy.iter().zip(&stored).filter(|(a, b)| Arc::ptr_eq(&a.message, &b.message)).count();
        assert_eq!(same, stored.len() - chosen.len());
        time
    });
    table.time("put markers in their place", time, Some(floor), None);
    table.finish();
}

/// Turns of a request, a call, its result and an answer.
fn history() -> (Vec<Stored>, HashMap<String, u64>) {
    let mut entries = HashMap::new();
    let stored = (0..MESSAGES)
        .map(|i| {
            let id = format!("call-{}", i / 4);
            let parts = match i % 4 {
                0 => return (Role::User, vec![Part::Text(format!("do the thing number {i}"))]),
                1 => vec![Part::ToolCall { id, name: "read".into(), input: empty_object(), opts: None }],
                2 => {
                    entries.insert(id.clone(), i as u64);
                    let size = if i % 8 == 2 { 3000 } else { 300 };
                    vec![Part::ToolResult { id, name: "read".into(), output: Output::Text("x".repeat(size)) }]
                }
                _ => vec![Part::Text("it is done, as far as it can be done".repeat(8))],
            };
            (if i % 4 == 2 { Role::Tool } else { Role::Assistant }, parts)
        })
        .enumerate()
        .map(|(i, (role, parts))| Stored {
            n: i as u64 / 4 + 1,
            index: i as u64 % 4,
            message: Arc::new(Message { role, parts }),
        })
        .collect();
    (stored, entries)
}
