//! PROTOCOL.md: the reference is the code's, every method is shown, and what is shown is true.

use crate::exchange::{Step, replay, steps};
use crate::shape::Names;
use crate::{exe, source, text};
use glrs_protocol::{methods, schema};
use glrs_tests::{Home, PATIENCE, Value, json};
use std::collections::BTreeSet;

const FILE: &str = "protocol/PROTOCOL.md";
const BEGIN: &str = "<!-- generated: begin -->\n";
const END: &str = "<!-- generated: end -->\n";

/// Whether the documents are to be rewritten where the code has moved on.
fn update() -> bool {
    std::env::var_os("UPDATE_DOCS").is_some()
}

/// The document with the generated part as the code has it.
fn generated(document: &str) -> String {
    let (before, rest) = document.split_once(BEGIN).expect("the marker where the generated part begins");
    let (_, after) = rest.split_once(END).expect("the marker where the generated part ends");
    format!("{before}{BEGIN}\n{}\n{END}{after}", schema::markdown())
}

#[test]
fn the_reference_is_generated_from_the_method_table() {
    let document = text(FILE);
    let want = generated(&document);
    if !update() && document != want {
        let differs = document.lines().zip(want.lines()).find(|(a, b)| a != b);
        panic!(
            "{FILE} is not what the code says: UPDATE_DOCS=1 cargo test --test docs rewrites it; first: {differs:?}"
        );
    }
}

#[test]
fn every_method_has_its_exchange_and_no_other_is_shown() {
    let document = text(FILE);
    let known: BTreeSet<String> = methods::table().iter().map(|r| r.name.to_owned()).collect();
    let mut shown = BTreeSet::new();
    for (line, heading, step) in steps(&document) {
        let Step::Send(text) = step else { continue };
        let Ok(call) = serde_json::from_str::<Value>(text) else { continue };
        let method = call["method"].as_str().expect("a method").to_owned();
        assert!(known.contains(&method) || heading == "Errors", "line {line}: there is no method {method}");
        if heading == format!("`{method}`") {
            shown.insert(method);
        }
    }
    assert_eq!(shown, known, "each method has a section of its own in which it is called");
}

#[test]
fn every_kind_of_entry_and_event_is_named() {
    let document = text(FILE);
    for kind in glrs_protocol::event::KINDS {
        assert!(document.contains(&format!("`{kind}`")), "event {kind}");
    }
    for kind in glrs_protocol::entry::KINDS {
        assert!(document.contains(&format!("| `{kind}` |")), "entry {kind}");
    }
}

#[test]
fn the_exchanges_are_what_a_real_daemon_answers() {
    exe();
    let home = Home::new();
    home.config(&json!({"model": "builtin/rehearsal"}));
    let mut daemon = home.daemon();
    let mut names: Names = [("cwd", home.work()), ("data", home.root()), ("socket", home.socket())]
        .map(|(name, path)| (name.to_owned(), path.display().to_string()))
        .into();
    let now = replay(&text(FILE), &home.socket(), &mut names, update());
    // The last exchange asks it to stop.
    daemon.wait(PATIENCE);
    if update() {
        std::fs::write(source(FILE), generated(&now)).unwrap();
    }
}
