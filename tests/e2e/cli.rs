//! The command line as scripts use it: finding sessions, output, exit codes.

use crate::{Scene, home};
use glrs_tests::process::Proc;
use glrs_tests::{Cli, Gate, Home, Reply, Value, cli, exe, json};
use std::fs;
use std::io::Write;
use std::process::{Command, Stdio};

const UUID: &str = "0192f0a0-1111-7222-8333-444455556666";

/// Runs a turn and returns its session's id.
fn turn(home: &Home, args: &[&str]) -> String {
    let json = ["--output-format", "json"];
    let result = cli(home, args.iter().chain(&json)).ok().json();
    result["session_id"].as_str().unwrap_or_else(|| panic!("{result}")).to_owned()
}

/// The rows of `sessions list --json`, whether it prints a list or an object that holds one.
fn listed(home: &Home, more: &[&str]) -> Vec<Value> {
    let out = cli(home, ["sessions", "list", "--json"].iter().chain(more)).ok().json();
    out.as_array().or_else(|| out["sessions"].as_array()).unwrap_or_else(|| panic!("{out}")).clone()
}

fn shown(home: &Home, id: &str) -> String {
    cli(home, ["sessions", "show", id, "--json"]).ok().stdout
}

#[test]
fn resume_by_id_and_by_title() {
    let home = home();
    let id = turn(&home, &["-p", "say 2 words"]);
    cli(&home, ["sessions", "rename", &id, "My Work"]).ok();
    assert_eq!(turn(&home, &["--resume", &id, "-p", "say 3 words"]), id);
    assert_eq!(turn(&home, &["--resume", "my work", "-p", "say 4 words"]), id);
    let text = shown(&home, &id);
    assert!(["say 2 words", "say 3 words", "say 4 words"].iter().all(|t| text.contains(t)), "{text}");
    cli(&home, ["--resume", "no such title", "-p", "x"]).code(4);
    cli(&home, ["--resume", "deadbeef", "-p", "x"]).code(4);
    cli(&home, ["--resume", UUID, "-p", "x"]).code(4);
}

#[test]
fn a_title_of_several_sessions_lists_their_ids_and_a_sole_rename_wins() {
    let home = home();
    let (one, two) = (turn(&home, &["-p", "say 2 words"]), turn(&home, &["-p", "say 2 words"]));
    let out = cli(&home, ["--resume", "say 2 words", "-p", "x"]);
    assert!(out.code != Some(0) && out.stderr.contains(&one) && out.stderr.contains(&two), "{out:?}");
    cli(&home, ["sessions", "rename", &one, "say 2 words"]).ok();
    assert_eq!(turn(&home, &["--resume", "say 2 words", "-p", "say 1 words"]), one);
}

#[test]
fn continue_takes_the_most_recent_of_this_directory() {
    let home = home();
    cli(&home, ["-c", "-p", "x"]).code(4);
    turn(&home, &["-p", "say 1 words"]);
    let id = turn(&home, &["-p", "say 2 words"]);
    let other = home.other_dir("elsewhere");
    Cli::new(&home).args(["-c", "-p", "x"]).cwd(&other).run().code(4);
    Cli::new(&home).args(["-p", "say 3 words"]).cwd(&other).run().ok();
    assert_eq!(turn(&home, &["-c", "-p", "say 4 words"]), id);
    assert_eq!((listed(&home, &[]).len(), listed(&home, &["--all"]).len()), (2, 3));
}

#[test]
fn a_chosen_id_is_created_once() {
    let home = home();
    assert_eq!(turn(&home, &["-s", UUID, "-p", "say 2 words"]), UUID);
    cli(&home, ["-s", UUID, "-p", "x"]).code(2);
    cli(&home, ["-s", "not-a-uuid", "-p", "x"]).code(2);
    cli(&home, ["-s", "3f9a1c2b", "-p", "x"]).code(2);
    cli(&home, ["-s", "0192f0a0-1111-7222-8333-444455556667", "-c", "-p", "x"]).code(2);
}

#[test]
fn fork_session_continues_in_a_copy() {
    let home = home();
    let id = turn(&home, &["-p", "say 2 words"]);
    let before = std::fs::read(home.log(&id)).unwrap();
    let fork = turn(&home, &["-r", &id, "--fork-session", "-p", "say 3 words"]);
    assert_ne!(id, fork);
    assert_eq!(before, std::fs::read(home.log(&id)).unwrap());
    assert!(shown(&home, &fork).contains("say 2 words") && shown(&home, &fork).contains("say 3 words"));
    assert_eq!(turn(&home, &["-r", &id, "--fork-session", "-s", UUID, "-p", "say 4 words"]), UUID);
    cli(&home, ["--fork-session", "-p", "x"]).code(2);
}

#[test]
fn usage_errors_are_exit_code_2() {
    let home = home();
    for args in [
        &["sessions"][..],
        &["--no-such-flag"],
        &["-p", "x", "--mode", "sideways"],
        &["-p", "x", "--output-format", "xml"],
        &["sessions", "show"],
        &["no-such-command", "x"],
    ] {
        let out = cli(&home, args).code(2);
        assert!(!out.stderr.trim().is_empty() && out.stdout.trim().is_empty(), "{out:?}");
    }
    cli(&home, ["sessions", "show", "deadbeef"]).code(4);
    cli(&home, ["sessions", "export", "deadbeef"]).code(4);
    cli(&home, ["sessions", "delete", "deadbeef"]).code(4);
}

#[test]
fn sessions_are_listed_shown_exported_forked_and_deleted() {
    let home = home();
    let id = turn(&home, &["-p", "say 2 words"]);
    let newer = turn(&home, &["-p", "say 3 words"]);
    let rows = listed(&home, &[]);
    assert_eq!(rows.iter().map(|r| r["id"].as_str().unwrap()).collect::<Vec<_>>(), [newer.as_str(), id.as_str()]);
    assert_eq!(listed(&home, &["--limit", "1"]).len(), 1);
    assert!(cli(&home, ["sessions", "list"]).ok().stdout.contains(&id));
    let whole: Value = cli(&home, ["sessions", "export", &id]).ok().stdout.parse().expect("an export is JSON");
    assert!(whole["schema"] == 2 && whole["id"] == id.as_str() && whole["events"].is_array(), "{whole}");
    cli(&home, ["sessions", "fork", &id]).ok();
    assert_eq!(listed(&home, &[]).len(), 3);
    cli(&home, ["sessions", "delete", &id]).ok();
    assert!(!home.log(&id).exists());
    cli(&home, ["sessions", "show", &id]).code(4);
}

#[test]
fn a_file_whose_name_says_no_session_is_told_of() {
    let home = home();
    let id = turn(&home, &["-p", "say 2 words"]);
    let stray = home.sessions().join("my notes.json");
    fs::copy(home.log(&id), &stray).unwrap();
    let out = cli(&home, ["sessions", "list", "--all"]).ok();
    assert!(out.stderr.contains("my notes.json") && out.stderr.contains("rename it"), "{out:?}");
    assert_eq!(listed(&home, &["--all"]).len(), 1);
    fs::remove_file(&stray).unwrap();
    assert!(!cli(&home, ["sessions", "list", "--all"]).ok().stderr.contains("my notes"));
}

#[test]
fn bare_resume_without_a_terminal_lists_the_commands() {
    let home = home();
    let id = turn(&home, &["-p", "say 2 words"]);
    let out = cli(&home, ["--resume"]);
    assert!(out.stdout.contains(&id) || out.stderr.contains(&id), "{out:?}");
}

#[test]
fn a_resumed_session_keeps_its_model_and_mode() {
    let home = home();
    let id = turn(&home, &["-p", "say 2 words", "--mode", "all"]);
    cli(&home, ["-r", &id, "-p", "write kept.txt hello"]).ok();
    assert!(home.file("kept.txt").exists());
}

#[test]
fn ctrl_c_is_exit_code_130_and_the_turn_settles() {
    let scene = Scene::plain();
    let gate = Gate::new();
    scene.fake.reply(Reply::say("before ").gate(&gate));
    let mut child = Command::new(exe())
        .args(["-p", "go"])
        .env_clear()
        .envs(scene.home.env())
        .current_dir(scene.home.work())
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    gate.wait_reached();
    let process = Proc::open(child.id()).unwrap();
    assert!(Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap().success());
    assert!(process.wait(glrs_tests::PATIENCE), "it did not end");
    assert_eq!(child.wait().unwrap().code(), Some(130));
    scene.fake.wait_aborted(1);
}

#[test]
fn a_closed_pipe_ends_the_client() {
    let home = home();
    let mut child = Command::new(exe())
        .args(["-p", "slow 500 words"])
        .env_clear()
        .envs(home.env())
        .current_dir(home.work())
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    drop(child.stdout.take());
    let process = Proc::open(child.id()).unwrap();
    assert!(process.wait(glrs_tests::PATIENCE), "a client without a reader goes on");
    child.wait().unwrap();
}

#[test]
fn the_proxy_carries_the_same_bytes() {
    let home = home();
    let _daemon = home.daemon();
    let mut child = Command::new(exe())
        .arg("proxy")
        .env_clear()
        .envs(home.env())
        .current_dir(home.work())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let process = Proc::open(child.id()).unwrap();
    let hello = json!({"client": {"name": "piped"}, "protocol": {"min": 1, "max": 1}});
    let call = json!({"jsonrpc": "2.0", "id": "a", "method": "hello", "params": hello});
    let mut input = child.stdin.take().unwrap();
    writeln!(input, "{call}").unwrap();
    let mut line = String::new();
    let mut output = std::io::BufReader::new(child.stdout.take().unwrap());
    std::io::BufRead::read_line(&mut output, &mut line).unwrap();
    let reply: Value = line.parse().unwrap();
    assert!(reply["id"] == "a" && reply["result"]["protocol"] == 1, "{reply}");
    drop(input);
    assert!(process.wait(glrs_tests::PATIENCE), "stdin EOF ends the proxy");
    child.wait().unwrap();
}

#[test]
fn what_describes_itself_is_machine_readable() {
    let home = home();
    assert!(cli(&home, ["doctor", "--json"]).json().is_object());
    let schema = cli(&home, ["schema"]).ok().json();
    let text = schema.to_string();
    assert!(["session/attach", "session/send", "queue/edit"].iter().all(|m| text.contains(m)));
    assert!(cli(&home, ["completions", "bash"]).ok().stdout.contains("glrs"));
    assert!(cli(&home, ["models"]).ok().stdout.contains("builtin/rehearsal"));
    assert!(cli(&home, ["--version"]).ok().stdout.starts_with("glrs "));
    assert!(cli(&home, ["--help"]).ok().stdout.contains("--resume"));
    assert!(glrs_tests::process::daemons_of(&home.root()).len() <= 1);
}

#[test]
fn no_color_and_no_terminal_mean_no_escapes() {
    let home = home();
    let id = turn(&home, &["-p", "say 2 words"]);
    for args in [&["sessions", "list"][..], &["sessions", "show", &id], &["daemon", "status"], &["doctor"]] {
        let out = Cli::new(&home).args(args).env("NO_COLOR", "1").run();
        assert!(!out.stdout.contains('\x1b') && !out.stderr.contains('\x1b'), "{out:?}");
    }
}
