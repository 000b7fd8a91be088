//! MCP servers that work: their tools in the prompt, calls, permission, sharing, their end.

use crate::{Scene, faked};
use glrs_tests::fakes::mcp::{JOURNAL, Journal, MODE, McpHttp, calls, serve_if_asked};
use glrs_tests::process::Proc;
use glrs_tests::wait::until;
use glrs_tests::{Dialect, PATIENCE, Reply, Value, View, cli, json};
use std::fs;
use std::time::{Duration, Instant};

/// Not a test when this binary is started as the server over stdio.
#[test]
fn speaks() {
    serve_if_asked();
}

/// The server over stdio: this binary, started as such.
pub fn program(mode: &str, journal: &Journal) -> Value {
    let exe = std::env::current_exe().unwrap();
    json!({
        "command": exe, "args": ["mcp::speaks", "--exact", "--nocapture", "--test-threads=1"],
        "env": {MODE: mode, JOURNAL: journal.path(), "SECRET": "${SECRET:-none-given}"}
    })
}

/// A scene whose configuration has the server `fake`, made by `server`, and `more`.
pub fn scene(more: Value, session: Value, server: impl FnOnce(&Journal) -> Value) -> (Scene, Journal) {
    let (mut home, fake) = faked(Dialect::Anthropic);
    home.set_env("SECRET", "s3cr3t-7f1e");
    let journal = Journal::new(home.other_dir("j").join("journal"));
    let mut config = fake.config();
    config["mcpServers"] = json!({"fake": server(&journal)});
    if let (Value::Object(to), Value::Object(from)) = (&mut config, more) {
        to.extend(from);
    }
    home.config(&config);
    let daemon = home.daemon();
    let wire = home.wire("ann");
    let id = wire.new_session(&home, session);
    (Scene { id, wire, fake, daemon, home }, journal)
}

/// The usual one: a good server over stdio, everything allowed.
pub fn good() -> (Scene, Journal) {
    scene(json!({}), json!({"mode": "all"}), |j| program("good", j))
}

/// Names of the tools that request `n` (from 1) offered.
pub fn offered(scene: &Scene, n: usize) -> Vec<String> {
    let request = scene.fake.wait_request(n);
    let tools = request.body["tools"].as_array().cloned().unwrap_or_default();
    tools.iter().map(|t| t["name"].as_str().unwrap().to_owned()).collect()
}

/// The result of the last call.
pub fn result(view: &View) -> (bool, String) {
    let tools = view.of_type("tool");
    let last = tools.last().unwrap_or_else(|| panic!("no call: {view:#?}"));
    (last["ok"] == true, last["result"].as_str().unwrap_or_default().to_owned())
}

/// One turn in which the model calls a tool of the server.
#[track_caller]
pub fn call(scene: &Scene, tool: &str) -> (bool, String) {
    scene.fake.reply(calls(tool, "hello"));
    scene.fake.reply(Reply::say("done"));
    result(&scene.wire.turn(&scene.id, &format!("call {tool}")))
}

#[test]
fn tools_are_offered_behind_ours_in_one_order_and_called() {
    for http in [false, true] {
        let mut remote = None;
        let (scene, journal) = scene(json!({}), json!({"mode": "all"}), |journal| {
            if !http {
                return program("good", journal);
            }
            let server = remote.insert(McpHttp::start("s3cr3t-7f1e", journal));
            json!({"type": "http", "url": server.url(), "headers": {"Authorization": "Bearer ${SECRET}"}})
        });
        assert_eq!(call(&scene, "echo"), (true, "echo: hello".to_owned()));
        assert_eq!(call(&scene, "fail"), (false, "it is broken".to_owned()));
        assert_eq!(call(&scene, "dotted_name"), (true, "dotted.name: hello".to_owned()));
        let (ok, kinds) = call(&scene, "kinds");
        assert!(ok && kinds.contains("image/png, 3 bytes") && kinds.contains("file:///a.txt") && kinds.contains("42"));
        assert_eq!(call(&scene, "count"), (true, "counted".to_owned()));
        let (ok, huge) = call(&scene, "huge");
        assert!(
            ok && huge.starts_with("START") && huge.ends_with("END") && huge.len() < 40_000 && huge.contains("blob")
        );
        let names = offered(&scene, 1);
        let first = names.iter().position(|n| n.starts_with("mcp__")).expect("tools of the server");
        assert!(first > 7 && names[first..].is_sorted() && names[first..].iter().all(|n| n.starts_with("mcp__fake__")));
        assert!(names.contains(&"mcp__fake__dotted_name".to_owned()));
        let requests = scene.fake.requests();
        assert!(requests.iter().all(|r| r.body["tools"] == requests[0].body["tools"]), "the list stays as it is");
        scene.fake.assert_clean();
        journal.assert_clean();
    }
}

#[test]
fn progress_is_shown_as_it_comes() {
    let (scene, journal) = good();
    scene.fake.reply(calls("report", ""));
    scene.fake.reply(Reply::say("done"));
    scene.wire.send(&scene.id, "report");
    scene.wire.next_event("progress", |e| {
        e["kind"] == "delta" && e["piece"] == "tool" && e["text"].as_str().is_some_and(|t| t.contains("[1/3] part 1"))
    });
    fs::write(journal.go(), "").unwrap();
    scene.wire.wait_quiet(&scene.id);
    journal.assert_clean();
}

#[test]
fn every_call_asks_with_its_whole_input_whatever_the_server_says_of_it() {
    let (scene, journal) = scene(json!({}), json!({}), |j| program("good", j));
    for (tool, decision) in [("echo", "deny"), ("look", "allow"), ("echo", "always")] {
        scene.fake.reply(Reply::call(&format!("mcp__fake__{tool}"), json!({"text": "the whole\ninput"})));
        scene.fake.reply(Reply::say("done"));
        scene.wire.send(&scene.id, "go");
        let request = scene.wire.request(&scene.id);
        let title = request["title"].as_str().unwrap();
        assert!(title.contains("fake") && title.contains(tool), "{request}");
        let body: Value = serde_json::from_str(request["body"].as_str().unwrap()).unwrap();
        assert_eq!(body, json!({"text": "the whole\ninput"}));
        assert_eq!(request["rule"], format!("mcp__fake__{tool}"));
        assert_eq!(request["tool"], format!("mcp__fake__{tool}"));
        let done = journal.all("tools/call").len();
        scene.wire.answer(&scene.id, &request, decision).unwrap();
        let view = scene.wire.wait_quiet(&scene.id);
        assert_eq!(result(&view).0, decision != "deny", "{:?}", result(&view));
        assert_eq!(journal.all("tools/call").len(), done + usize::from(decision != "deny"));
    }
    assert_eq!(call(&scene, "echo"), (true, "echo: hello".to_owned()), "always means that");
    journal.assert_clean();
}

#[test]
fn rules_and_switched_off_tools_count() {
    let more = json!({
        "allow": ["mcp__fake__*"], "deny": ["mcp__fake__fail"], "tools": {"disable": ["mcp__fake__c*"]}
    });
    let (scene, journal) = scene(more, json!({}), |j| program("good", j));
    assert_eq!(call(&scene, "echo"), (true, "echo: hello".to_owned()));
    let (ok, words) = call(&scene, "fail");
    assert!(!ok && words.contains("mcp__fake__fail"), "{words}");
    let names = offered(&scene, 1);
    assert!(names.contains(&"mcp__fake__hang".to_owned()));
    assert!(!names.iter().any(|n| n.starts_with("mcp__fake__c")), "{names:?}");
    assert!(!call(&scene, "crash").0);
    assert_eq!(journal.all("start").len(), 1);
    assert_eq!(journal.all("tools/call").len(), 1);
    scene.fake.assert_clean();
}

#[test]
fn esc_ends_a_hanging_call_and_tells_the_server() {
    for http in [false, true] {
        let mut remote = None;
        let (scene, journal) = scene(json!({}), json!({"mode": "all"}), |journal| {
            if !http {
                return program("good", journal);
            }
            let server = remote.insert(McpHttp::start("t0ken-of-mine", journal));
            json!({"url": server.url(), "headers": {"Authorization": "Bearer t0ken-of-mine"}})
        });
        scene.fake.reply(calls("hang", ""));
        scene.wire.send(&scene.id, "hang");
        journal.wait("tools/call", 1);
        let asked = Instant::now();
        scene.wire.ok("session/interrupt", scene.with(json!({})));
        let took = asked.elapsed();
        assert!(took < Duration::from_secs(2), "esc took {took:?}");
        assert_eq!(scene.wire.wait_quiet(&scene.id).last_status(), "interrupted");
        let cancelled = journal.wait("notifications/cancelled", 1);
        assert!(!cancelled["requestId"].is_null());
        assert_eq!(call(&scene, "echo"), (true, "echo: hello".to_owned()), "it goes on");
        assert!(journal.all("start").len() <= 1, "it was not started again");
        journal.assert_clean();
    }
}

#[test]
fn a_call_ends_after_the_time_a_tool_may_take() {
    let (scene, journal) = scene(json!({"toolTimeoutMs": 300}), json!({"mode": "all"}), |j| program("good", j));
    let (ok, words) = call(&scene, "hang");
    assert!(!ok && words.contains("did not answer"), "{words}");
    journal.wait("notifications/cancelled", 1);
    journal.assert_clean();
}

#[test]
fn a_changed_list_is_taken_up_when_the_next_turn_starts() {
    let (scene, journal) = good();
    scene.fake.reply(calls("change", ""));
    scene.fake.reply(calls("echo", "x"));
    scene.fake.reply(Reply::say("done"));
    scene.wire.turn(&scene.id, "change");
    let before = offered(&scene, 1);
    assert!(!before.contains(&"mcp__fake__later".to_owned()));
    assert_eq!((offered(&scene, 2), offered(&scene, 3)), (before.clone(), before.clone()), "not within the turn");
    assert_eq!(call(&scene, "later"), (true, "later: hello".to_owned()));
    let after = offered(&scene, 4);
    assert!(after.len() == before.len() + 1 && after[before.len() - 20..].iter().any(|n| n == "mcp__fake__later"));
    journal.assert_clean();
}

#[test]
fn sessions_share_a_server_and_the_last_one_ends_it() {
    let (scene, journal) = good();
    let other = scene.wire.new_session(&scene.home, json!({"mode": "all"}));
    assert!(call(&scene, "child").0);
    scene.fake.reply(calls("echo", "two"));
    scene.fake.reply(Reply::say("done"));
    assert_eq!(result(&scene.wire.turn(&other, "echo")).1, "echo: two");
    assert_eq!(journal.all("start").len(), 1);
    let pid = |name| u32::try_from(journal.wait(name, 1).as_u64().unwrap()).unwrap();
    let (server, child) = (Proc::open(pid("start")).unwrap(), Proc::open(pid("child")).unwrap());
    scene.wire.ok("session/delete", json!({"id": other, "force": true}));
    assert_eq!(call(&scene, "echo").1, "echo: hello");
    assert!(server.alive() && child.alive());
    scene.wire.ok("session/delete", json!({"id": scene.id, "force": true}));
    assert!(server.wait(PATIENCE) && child.wait(PATIENCE), "the server outlived its last session");
    journal.assert_clean();
}

#[test]
fn no_server_outlives_its_daemon() {
    for how in ["kill", "term"] {
        let (mut scene, journal) = good();
        assert!(call(&scene, "child").0);
        let pid = |name| u32::try_from(journal.wait(name, 1).as_u64().unwrap()).unwrap();
        let (server, child) = (Proc::open(pid("start")).unwrap(), Proc::open(pid("child")).unwrap());
        if how == "kill" {
            scene.daemon.kill9();
        } else {
            scene.daemon.term();
            scene.daemon.wait(PATIENCE);
        }
        assert!(server.wait(PATIENCE) && child.wait(PATIENCE), "{how}: the server outlived the daemon");
    }
}

#[test]
fn a_request_of_a_servers_tool_outlives_its_daemon() {
    // The server needs a variable, which nobody but the session's client has.
    let (mut scene, journal) = scene(json!({}), json!({}), |j| {
        let mut server = program("good", j);
        server["env"]["SECRET"] = json!("${SECRET}");
        server
    });
    scene.fake.reply(calls("secret", ""));
    scene.fake.reply(Reply::say("done"));
    scene.wire.send(&scene.id, "go");
    let request = scene.wire.request(&scene.id);
    scene.daemon.kill9();
    let server = Proc::open(u32::try_from(journal.wait("start", 1).as_u64().unwrap()).unwrap_or(0));
    assert!(server.is_none_or(|s| s.wait(PATIENCE)));
    scene.daemon = scene.home.daemon();
    scene.wire = scene.home.wire("bob");
    scene.wire.attach(&scene.id, json!({"env": scene.home.env()}));
    assert_eq!(scene.wire.request(&scene.id)["request"], request["request"]);
    scene.wire.answer(&scene.id, &request, "allow").unwrap();
    let view = scene.wire.wait_quiet(&scene.id);
    assert_eq!((result(&view), view.last_status()), ((true, "s3cr3t-7f1e".to_owned()), "done"));
    assert_eq!(journal.all("start").len(), 2);
    journal.assert_clean();
}

#[test]
fn a_projects_servers_wait_for_trust() {
    let (home, fake) = faked(Dialect::Anthropic);
    let journal = Journal::new(home.other_dir("j").join("journal"));
    let servers = json!({"mcpServers": {"fake": program("good", &journal)}});
    fs::write(home.file(".mcp.json"), servers.to_string()).unwrap();
    let daemon = home.daemon();
    let wire = home.wire("ann");
    let id = wire.new_session(&home, json!({"mode": "all"}));
    let scene = Scene { id, wire, fake, daemon, home };
    scene.fake.reply(Reply::say("nothing"));
    let view = scene.wire.turn(&scene.id, "one");
    assert!(!offered(&scene, 1).iter().any(|n| n.starts_with("mcp__")));
    assert!(view.texts("notice").iter().any(|n| n.contains("glrs trust")), "{view:#?}");
    let list = json!({"cwd": scene.home.work(), "env": scene.home.env(), "start": true});
    assert_eq!(scene.wire.ok("mcp/list", list.clone())["servers"], json!([]));
    cli(&scene.home, ["doctor"]);
    assert_eq!(journal.lines(), Vec::<Value>::new(), "nothing is started unasked");
    cli(&scene.home, ["trust"]).ok();
    assert_eq!(call(&scene, "echo"), (true, "echo: hello".to_owned()));
    let row = scene.wire.ok("mcp/list", list)["servers"][0].clone();
    assert_eq!((&row["name"], &row["state"], &row["transport"]), (&json!("fake"), &json!("ready"), &json!("stdio")));
    assert!(row["tools"].as_array().unwrap().contains(&json!("mcp__fake__echo")));
    assert_eq!(journal.all("start").len(), 1, "whoever asks meets the session's server");
    until("the doctor's word", PATIENCE, || {
        cli(&scene.home, ["doctor"]).stdout.contains("fake is ready, 16 tools").then_some(())
    });
    journal.assert_clean();
}
