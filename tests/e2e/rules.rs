//! What a session may do and look at: guarded files, rules by directory, what a checkout brings.

use crate::{Scene, home, rehearsal};
use glrs_tests::{Reply, View, json};
use rustix::fs::{CWD, FileType, Mode, mknodat};
use std::fs;
use std::path::PathBuf;

/// Results of the tools of the last turn.
fn last_result(view: &View) -> String {
    view.of_type("tool").last().unwrap()["result"].as_str().unwrap().to_owned()
}

#[test]
fn a_pipe_as_instructions_holds_no_turn_and_is_told_once() {
    let (home, _daemon, wire, id) = rehearsal(json!({}));
    mknodat(CWD, home.file("AGENTS.md"), FileType::Fifo, Mode::from_raw_mode(0o600), 0).unwrap();
    assert_eq!(wire.turn(&id, "say 2 words").last_status(), "done");
    let view = wire.turn(&id, "say 3 words");
    let told: Vec<_> = view.texts("notice").into_iter().filter(|t| t.contains("AGENTS.md")).collect();
    assert!(told.len() == 1 && told[0].contains("not a regular file"), "{told:?}");
}

#[test]
fn what_decides_what_runs_later_asks_even_where_edits_run() {
    let home = home();
    let _daemon = home.daemon();
    let wire = home.wire("ann");
    // The data directory lies in what is worked on.
    let top = home.root().parent().unwrap().to_path_buf();
    let id = wire.new_session(&home, json!({"mode": "edits", "cwd": top}));
    assert!(wire.turn(&id, "write plain.txt x").resolved.is_empty());
    for path in [".mcp.json", "w/.mcp.json", "g/allowed.json", "g/config.json", ".git/config"] {
        wire.send(&id, &format!("write {path} x"));
        let card = wire.request(&id);
        assert!(card["rule"].is_null(), "{card}");
        wire.answer(&id, &card, "deny").unwrap();
        wire.wait_quiet(&id);
        assert!(!top.join(path).exists(), "{path}");
    }
}

#[test]
fn always_for_a_directory_frees_none_of_the_same_name() {
    let (home, _daemon, wire, _) = rehearsal(json!({}));
    fs::create_dir(home.file(".git")).unwrap();
    for dir in ["a", "b"] {
        fs::create_dir_all(home.file(dir).join("docs")).unwrap();
    }
    let at = |dir: &str| wire.new_session(&home, json!({"cwd": home.file(dir)}));
    let first = at("a");
    wire.send(&first, "write docs/x.txt one");
    let card = wire.request(&first);
    assert_eq!(card["rule"], "write(docs/**)");
    wire.answer(&first, &card, "always").unwrap();
    wire.wait_quiet(&first);
    let again = at("a");
    assert!(wire.turn(&again, "write docs/y.txt two").resolved.is_empty());
    let other = at("b");
    wire.send(&other, "write docs/x.txt three");
    wire.answer(&other, &wire.request(&other), "deny").unwrap();
    wire.wait_quiet(&other);
    assert!(home.file("a/docs/y.txt").exists() && !home.file("b/docs/x.txt").exists());
}

#[test]
fn what_may_not_be_read_is_not_searched_either() {
    let mut home = home();
    let secrets = home.other_dir("secrets");
    fs::write(secrets.join("key"), "badger").unwrap();
    let user = secrets.parent().unwrap().display().to_string();
    home.set_env("HOME", &user);
    home.config(&json!({"deny": ["read(~/secrets/**)", "read(private/**)", "read(alias)"]}));
    let _daemon = home.daemon();
    let wire = home.wire("ann");
    let id = wire.new_session(&home, json!({"mode": "all"}));
    fs::create_dir(home.file("private")).unwrap();
    fs::write(home.file("private/a.txt"), "badger a").unwrap();
    fs::write(home.file("b.txt"), "badger b").unwrap();
    std::os::unix::fs::symlink("b.txt", home.file("alias")).unwrap();
    let found = last_result(&wire.turn(&id, "grep badger"));
    assert!(found.contains("b.txt:1:badger b") && !found.contains("badger a"), "{found}");
    assert!(found.contains("1 file was left out"), "{found}");
    // By home, and by the name it was asked for.
    for path in [secrets.join("key").display().to_string(), "~/secrets/key".to_owned(), "alias".to_owned()] {
        let read = last_result(&wire.turn(&id, &format!("read {path}")));
        assert!(!read.contains("badger") && read.contains("forbids"), "{path}: {read}");
    }
}

#[test]
fn commands_see_no_key_of_a_provider_unless_it_is_named() {
    for (config, seen) in [
        (json!({"model": "builtin/rehearsal"}), "none"),
        (json!({"model": "builtin/rehearsal", "tools": {"env": ["OPENAI_API_KEY"]}}), "sk-test"),
    ] {
        let mut home = home();
        home.set_env("OPENAI_API_KEY", "sk-test");
        home.set_env("PLAIN", "plain");
        home.config(&config);
        // A project that nobody trusts frees nothing.
        fs::create_dir(home.file(".glrs")).unwrap();
        fs::write(home.file(".glrs/config.json"), r#"{"tools": {"env": ["OPENAI_API_KEY"]}}"#).unwrap();
        let _daemon = home.daemon();
        let wire = home.wire("ann");
        let id = wire.new_session(&home, json!({"mode": "all"}));
        let command = "echo ${OPENAI_API_KEY-none} ${PLAIN-none}";
        assert!(last_result(&wire.turn(&id, &format!("run {command}"))).starts_with(&format!("{seen} plain\n")));
        wire.ok("session/shell", json!({"id": id, "command": command}));
        let view = wire.wait_view(&id, "its entry", |v| v.of_type("tool").len() == 2);
        assert!(last_result(&view).starts_with(&format!("{seen} plain\n")), "{}", last_result(&view));
    }
}

/// Whoever attaches after a restart brings the home that such rules count from.
#[test]
fn rules_about_the_home_hold_in_a_turn_that_goes_on_after_a_restart() {
    let mut scene = Scene::plain();
    let secret = PathBuf::from(&scene.home.env()["HOME"]).join("secret");
    fs::create_dir_all(&secret).unwrap();
    fs::write(secret.join("key"), "the secret itself").unwrap();
    let mut config = scene.fake.config();
    config["deny"] = json!(["read(~/secret/**)"]);
    scene.home.config(&config);
    scene.fake.reply(Reply::call("write", json!({"path": "a.txt", "content": "x"})));
    scene.wire.send(&scene.id, "write it");
    let request = scene.wire.request(&scene.id);
    scene.daemon.kill9();
    let _daemon = scene.home.daemon();
    let wire = scene.home.wire("again");
    wire.attach(&scene.id, json!({}));
    // The call asks again before anyone has brought an environment.
    wire.request(&scene.id);
    wire.attach(&scene.id, json!({"env": scene.home.env_json()}));
    for tool in ["read", "grep"] {
        let input = match tool {
            "read" => json!({"path": secret.join("key")}),
            _ => json!({"pattern": "secret itself", "path": secret}),
        };
        scene.fake.reply(Reply::call(tool, input));
    }
    scene.fake.reply(Reply::say("done"));
    wire.answer(&scene.id, &request, "allow").unwrap();
    let view = wire.wait_quiet(&scene.id);
    assert_eq!(view.last_status(), "done");
    let told: String = scene.fake.requests().iter().map(|r| r.raw.clone()).collect();
    assert!(!told.contains("key:1:") && told.matches("the secret itself").count() == 0, "{told}");
    scene.fake.assert_clean();
}
