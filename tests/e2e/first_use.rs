//! An empty home, no key, no network: the first command works.

use crate::home;
use glrs_tests::process::daemons_of;
use glrs_tests::{Cli, check, cli};
use std::fs;

/// Ids of the session files.
fn stored(home: &glrs_tests::Home) -> Vec<String> {
    let names = fs::read_dir(home.sessions()).into_iter().flatten().flatten();
    let names = names.map(|e| e.file_name().to_string_lossy().into_owned());
    names.filter_map(|n| n.strip_suffix(".json").map(str::to_owned)).filter(|n| n != "prompts").collect()
}

#[test]
fn one_turn_in_an_empty_home() {
    let home = home();
    let out = cli(&home, ["-p", "say 5 words"]).ok();
    assert_eq!(out.stdout.split_whitespace().count(), 5, "{out:?}");
    assert!(!out.stdout.contains('\x1b'), "no escapes without a terminal: {out:?}");
    let ids = stored(&home);
    assert_eq!(ids.len(), 1, "{ids:?}");
    let report = check::check_session(&home.log(&ids[0])).clean();
    assert_eq!(report.texts("user"), ["say 5 words"]);
    assert_eq!(report.texts("assistant").concat().trim(), out.stdout.trim());
    assert_eq!(check::check_home(&home.root()), Vec::<String>::new());
}

#[test]
fn the_second_command_uses_the_first_ones_daemon() {
    let home = home();
    cli(&home, ["-p", "say 1 words"]).ok();
    let first = daemons_of(&home.root());
    cli(&home, ["-p", "say 1 words"]).ok();
    assert_eq!((first.len(), daemons_of(&home.root())), (1, first.clone()));
    assert_eq!(stored(&home).len(), 2);
}

#[test]
fn json_is_the_result_object_scripts_know() {
    let home = home();
    let result = cli(&home, ["-p", "say 5 words", "--output-format", "json"]).ok().json();
    assert_eq!(result["type"], "result", "{result}");
    assert_eq!(result["is_error"], false, "{result}");
    assert!(result["subtype"].is_string() && result["usage"].is_object(), "{result}");
    assert_eq!(result["result"].as_str().map(|t| t.split_whitespace().count()), Some(5), "{result}");
    for key in ["num_turns", "duration_ms", "total_cost_usd"] {
        assert!(result[key].is_number(), "{key}: {result}");
    }
    assert_eq!(result["session_id"], result["sessionId"], "{result}");
    assert_eq!(stored(&home), [result["session_id"].as_str().unwrap()]);
}

#[test]
fn stream_json_is_one_object_per_line_and_ends_with_the_result() {
    let home = home();
    let lines = cli(&home, ["-p", "say 5 words", "--output-format", "stream-json"]).ok().json_lines();
    assert!(lines.len() > 1 && lines.iter().all(|l| l["type"].is_string()), "{lines:?}");
    assert_eq!(lines.last().unwrap()["type"], "result");
    assert_eq!(lines.iter().filter(|l| l["type"] == "result").count(), 1);
}

#[test]
fn piped_stdin_comes_along() {
    let home = home();
    Cli::new(&home).args(["-p", "say 3 words"]).stdin("a line from the pipe\n").run().ok();
    let report = check::check_session(&home.log(&stored(&home)[0])).clean();
    assert!(report.texts("user")[0].contains("say 3 words"));
    assert!(report.texts("user")[0].contains("a line from the pipe"));
}

#[test]
fn what_needs_permission_is_denied_by_name_and_runs_when_allowed() {
    let home = home();
    let out = cli(&home, ["-p", "write notes.txt hello"]).code(5);
    assert!(out.stderr.contains("write"), "the rule that would allow it is named: {out:?}");
    assert!(!home.file("notes.txt").exists());
    cli(&home, ["-p", "write notes.txt hello", "--mode", "all"]).ok();
    assert_eq!(fs::read_to_string(home.file("notes.txt")).unwrap().trim(), "hello");
}

#[test]
fn a_failing_model_is_exit_code_1_with_words_on_stderr() {
    let home = home();
    let out = cli(&home, ["-p", "fail"]).code(1);
    assert!(!out.stderr.trim().is_empty(), "{out:?}");
    let result = cli(&home, ["-p", "fail", "--output-format", "json"]).code(1).json();
    assert_eq!(result["is_error"], true, "{result}");
}
