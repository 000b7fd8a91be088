//! README.md: its commands exist, and its example with the socket works.

use crate::program::{run, there};
use crate::shape::{Names, text_fits};
use crate::{exe, text};
use glrs_tests::{Home, Wire, cli, json};
use std::collections::BTreeSet;

const FILE: &str = "README.md";

/// The words of each `glrs …` in the document's code, up to what the shell takes.
fn commands(document: &str) -> BTreeSet<Vec<String>> {
    let mut code: Vec<&str> = Vec::new();
    let mut inside = false;
    for line in document.lines() {
        if line.starts_with("```") {
            inside = line.starts_with("```sh") || (line.starts_with("```bash"));
        } else if inside {
            code.push(line.split(" # ").next().unwrap_or(line));
        } else {
            code.extend(line.split('`').skip(1).step_by(2));
        }
    }
    let mut out = BTreeSet::new();
    for piece in code.iter().flat_map(|c| c.split(['|', ';', '(', '&'])) {
        let mut words = piece.split_whitespace().skip_while(|w| w.contains('='));
        if words.next() == Some("glrs") {
            let stop = |w: &&str| !w.starts_with(['>', '<', '\\']) || w.ends_with('>');
            out.insert(words.take_while(stop).map(|w| w.trim_end_matches([')', ',']).to_owned()).collect());
        }
    }
    out
}

#[test]
fn every_command_in_the_readme_exists_with_its_flags() {
    exe();
    let home = Home::new();
    let all = commands(&text(FILE));
    assert!(all.len() > 20, "too few commands were found: {all:?}");
    for words in all {
        let mut named: Vec<&str> = Vec::new();
        let deep = matches!(words.first().map(String::as_str), Some("sessions" | "daemon"));
        for word in words.iter().take(if deep { 2 } else { 1 }) {
            if word.starts_with(|c: char| c.is_ascii_lowercase()) && word.bytes().all(|b| b.is_ascii_lowercase()) {
                named.push(word);
            }
        }
        let help = cli(&home, named.iter().copied().chain(["--help"])).ok().stdout;
        for flag in words.iter().filter(|w| w.starts_with('-') && w.len() > 1) {
            let name = flag.split('=').next().unwrap_or(flag);
            let there = help.split([' ', ',', '\n', '[']).any(|w| w == name);
            assert!(there, "README has `glrs {}`, but {named:?} has no {name}:\n{help}", words.join(" "));
        }
    }
    assert!(home.listener().is_none(), "no --help starts a daemon");
}

/// The block behind a marker, and the one behind that.
fn example(document: &str) -> (String, String) {
    let (_, rest) = document.split_once("<!-- tests/docs runs this -->").expect("the marker in README.md");
    let mut blocks = rest.split("```").skip(1).step_by(2).map(|b| b.split_once('\n').map_or("", |(_, t)| t).to_owned());
    (blocks.next().expect("the example"), blocks.next().expect("its output"))
}

#[test]
fn the_socket_example_prints_what_the_readme_shows() {
    exe();
    let home = Home::new();
    home.config(&json!({"model": "builtin/rehearsal"}));
    let _daemon = home.daemon();
    let (mut script, shown) = example(&text(FILE));
    if !there(&home, "bash", "--version") || !there(&home, "jq", "--version") {
        eprintln!("bash or jq is missing: the example's calls go through a plain socket instead");
        return plain(&home);
    }
    if !there(&home, "socat", "-V") {
        eprintln!("socat is missing: `glrs proxy` takes its place in the example");
        let without = script.replace("socat - UNIX-CONNECT:\"$SOCK\"", "glrs proxy");
        assert_ne!(without, script, "the example uses socat");
        script = without;
    }
    let ran = run(&home, "bash", &["-euc", &script], "");
    assert_eq!(ran.code, Some(0), "{ran:#?}");
    let (mut got, mut names) = (ran.stdout.lines(), Names::new());
    for line in shown.lines() {
        let found = got.next().unwrap_or_default();
        assert!(text_fits(line, found, &mut names), "README shows {line:?}, it printed {found:?}: {ran:#?}");
    }
    assert_eq!(got.next(), None, "{ran:#?}");
}

/// The same calls without any of the tools.
fn plain(home: &Home) {
    let wire: Wire = home.wire("shell");
    wire.ok("session/new", json!({"id": "5e551011", "cwd": home.work()}));
    wire.attach("5e551011", json!({}));
    let view = wire.turn("5e551011", "say 5 words");
    assert_eq!(
        view.of_type("assistant").last().map(|e| e["text"].clone()),
        Some(json!("word1 word2 word3 word4 word5"))
    );
}

#[test]
fn the_readme_lists_the_terminals_commands_and_no_others() {
    let document = text(FILE);
    let (_, section) = document.split_once("## In the terminal").expect("the section about the terminal");
    let section = section.split("\n## ").next().unwrap_or_default();
    let shown: BTreeSet<&str> = section
        .split('`')
        .skip(1)
        .step_by(2)
        .filter_map(|code| code.strip_prefix('/')?.split([' ', '[', '<']).next())
        .collect();
    let table = glrs_client::tui::slash::TABLE;
    let known: BTreeSet<&str> = table.iter().flat_map(|(name, more, ..)| more.iter().copied().chain([*name])).collect();
    assert_eq!(shown, known);
}

#[test]
fn the_readme_names_every_exit_code() {
    use glrs_client::cli::failure::Exit;
    let document = text(FILE);
    let all = [Exit::Done, Exit::Error, Exit::Usage, Exit::Timeout, Exit::NoSession, Exit::Denied, Exit::Interrupted];
    for code in all.map(|e| e as u8) {
        assert!(document.contains(&format!("\n| {code} | ")), "exit code {code}");
    }
}

#[test]
fn the_configuration_in_the_readme_is_valid() {
    exe();
    let document = text(FILE);
    let home = Home::new();
    let schema: glrs_tests::Value = cli(&home, ["schema", "config"]).ok().json();
    let keys = schema["properties"].as_object().expect("the keys of the configuration");
    let (_, section) = document.split_once("## Configuration").expect("the section about configuration");
    let section = section.split("\n## ").next().unwrap_or_default();
    for row in section.lines().filter(|l| l.starts_with("| `")) {
        for key in row.split('|').nth(1).unwrap_or_default().split('`').skip(1).step_by(2) {
            let top = key.split('.').next().unwrap_or(key);
            assert!(keys.contains_key(top), "there is no key {key}");
        }
    }
    for block in document.split("```json\n").skip(1) {
        let json = block.split("```").next().unwrap_or_default();
        let value: glrs_tests::Value = serde_json::from_str(json).unwrap_or_else(|e| panic!("{e}: {json}"));
        for key in value.as_object().expect("an object").keys() {
            assert!(keys.contains_key(key), "there is no key {key}");
        }
    }
}
