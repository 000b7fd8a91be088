//! MCP servers that do not work: late, silent, dying, lying, flooding. None of them hurts anyone,
//! and people are told.

use crate::Scene;
use crate::mcp::{call, good, offered, program, scene};
use glrs_tests::fakes::mcp::{Journal, MODE, McpHttp, calls};
use glrs_tests::process::rss_of;
use glrs_tests::{Reply, Value, View, cli, json};
use std::fs;
use std::time::{Duration, Instant};

fn told(view: &View, words: &str) -> bool {
    view.texts("notice").iter().any(|n| n.contains("MCP server fake") && n.contains(words))
}

/// One turn that needs no tool.
#[track_caller]
fn plain(scene: &Scene) -> View {
    scene.fake.reply(Reply::say("fine"));
    let view = scene.wire.turn(&scene.id, "say something");
    assert_eq!(view.last_status(), "done");
    view
}

fn row(scene: &Scene, start: bool) -> Value {
    let params = json!({"cwd": scene.home.work(), "env": scene.home.env(), "start": start});
    scene.wire.ok("mcp/list", params)["servers"][0].clone()
}

#[test]
fn a_turn_goes_on_without_a_server_that_is_late_and_takes_it_up_later() {
    let (scene, journal) = scene(json!({}), json!({"mode": "all"}), |j| {
        let gate = j.path().with_file_name("gate");
        program(&format!("slow:{}", gate.display()), j)
    });
    let view = plain(&scene);
    assert!(told(&view, "still starting"), "{view:#?}");
    assert!(!offered(&scene, 1).iter().any(|n| n.starts_with("mcp__")));
    assert_eq!(row(&scene, false)["state"], "starting");
    fs::write(journal.path().with_file_name("gate"), "").unwrap();
    assert_eq!(row(&scene, true)["state"], "ready");
    assert_eq!(call(&scene, "echo"), (true, "echo: hello".to_owned()));
    assert!(told(&scene.wire.view(&scene.id), "is ready"));
    assert_eq!(journal.all("start").len(), 1);
    journal.assert_clean();
}

#[test]
fn a_silent_server_delays_one_turn_a_little_and_neither_esc_nor_attaching() {
    let (scene, journal) = scene(json!({}), json!({"mode": "all"}), |j| program("silent", j));
    scene.wire.send(&scene.id, "wait for it");
    journal.wait("start", 1);
    let asked = Instant::now();
    scene.join("bob");
    scene.wire.ok("session/interrupt", scene.with(json!({})));
    scene.wire.wait_view(&scene.id, "interrupted", |v| v.last_status() == "interrupted");
    assert!(asked.elapsed() < Duration::from_secs(2), "it took {:?}", asked.elapsed());
    assert_eq!(scene.fake.count(), 0);
    assert!(told(&plain(&scene), "still starting"));
    let asked = Instant::now();
    plain(&scene);
    assert!(asked.elapsed() < Duration::from_secs(2), "it is waited for once: {:?}", asked.elapsed());
}

#[test]
fn what_is_wrong_with_a_server_is_said_once_and_by_the_doctor() {
    type Make = fn(&Journal) -> Value;
    let cases: [(&str, Make, &str); 5] = [
        ("dies", |j| program("dies", j), "exit status: 3"),
        ("lists nonsense", |j| program("garbage", j), "not understood"),
        ("has no end", |j| program("endless", j), "no end"),
        ("is not there", |_| json!({"command": "no-such-program-at-all"}), "no-such-program-at-all"),
        ("misses a variable", |_| json!({"command": "sh", "args": ["${NOT_SET_HERE}"]}), "NOT_SET_HERE"),
    ];
    for (what, server, words) in cases {
        let (scene, journal) = scene(json!({}), json!({"mode": "all"}), server);
        let view = plain(&scene);
        assert!(told(&view, words), "{what}: {:?}", view.texts("notice"));
        let count = |v: &View| v.texts("notice").iter().filter(|n| n.contains("MCP server fake")).count();
        assert_eq!(count(&plain(&scene)), 1, "{what}: said once");
        let out = cli(&scene.home, ["doctor", "--json"]);
        let doctor = out.json();
        assert_eq!((out.code, &doctor["ok"]), (Some(1), &json!(false)), "{what}");
        assert_eq!(doctor["mcp"][0]["state"], "down", "{what}: {doctor}");
        assert!(doctor["mcp"][0]["why"].as_str().unwrap().contains(words), "{what}: {doctor}");
        let said = format!("{view:?}{}{}", out.stdout, out.stderr);
        assert!(!said.contains("s3cr3t-7f1e"), "{what}: the secret is in what people are told");
        if what == "dies" {
            assert!(doctor["mcp"][0]["why"].as_str().unwrap().contains("the licence of ••• has run out"), "{doctor}");
        }
        journal.assert_clean();
    }
}

#[test]
fn a_wrong_token_is_said_and_is_not_shown() {
    let mut remote = None;
    let (scene, _journal) = scene(json!({}), json!({}), |j| {
        let server = remote.insert(McpHttp::start("another-token", j));
        json!({"url": format!("{}?key=${{SECRET}}", server.url()), "headers": {"Authorization": "Bearer ${SECRET}"}})
    });
    let view = plain(&scene);
    assert!(told(&view, "headers"), "{:?}", view.texts("notice"));
    assert!(!format!("{view:?}").contains("s3cr3t-7f1e"));
    drop(remote);
    let log = fs::read_to_string(scene.home.root().join("glrsd.log")).unwrap_or_default();
    assert!(!log.contains("s3cr3t-7f1e"), "{log}");
}

#[test]
fn a_server_that_is_not_there_over_http_is_said() {
    let (scene, _journal) = scene(json!({}), json!({}), |_| json!({"url": "http://127.0.0.1:1/mcp?key=${SECRET}"}));
    let view = plain(&scene);
    assert!(told(&view, "not reached"), "{:?}", view.texts("notice"));
    assert!(!format!("{view:?}").contains("s3cr3t-7f1e") && !format!("{view:?}").contains("127.0.0.1:1/mcp"));
}

#[test]
fn a_server_that_crashes_is_started_again_when_it_is_used_until_it_is_too_much() {
    let (scene, journal) = good();
    for n in 1..=4 {
        let (ok, words) = call(&scene, "crash");
        assert!(!ok && words.contains("exit status: 7") && words.contains("licence of ••• has run out"), "{words}");
        assert_eq!(journal.all("start").len(), n);
    }
    let (ok, words) = call(&scene, "crash");
    assert!(!ok && words.contains("again and again"), "{words}");
    assert_eq!(journal.all("start").len(), 4);
    let requests = scene.fake.requests();
    assert!(requests.iter().all(|r| r.body["tools"] == requests[0].body["tools"]), "the list stays as it is");
    journal.assert_clean();
}

#[test]
fn a_flood_ends_its_server_and_nothing_else() {
    let (scene, journal) = good();
    for tool in ["flood", "line"] {
        let (ok, words) = call(&scene, tool);
        assert!(!ok && words.contains("it "), "{tool}: {words}");
        let rss = rss_of(scene.daemon.pid()).unwrap();
        assert!(rss < 512 << 20, "{tool}: the daemon has {rss} bytes");
    }
    assert_eq!(call(&scene, "echo"), (true, "echo: hello".to_owned()));
    assert_eq!(journal.all("start").len(), 3);
}

#[test]
fn a_server_that_reads_nothing_is_ended_and_the_next_call_has_a_new_one() {
    // Long enough for a call of the new one on a busy machine.
    let (scene, journal) = scene(json!({"toolTimeoutMs": 3000}), json!({"mode": "all"}), |j| program("good", j));
    for (tool, text) in [("deaf", "small".to_owned()), ("echo", "x".repeat(1_000_000))] {
        scene.fake.reply(Reply::call(&format!("mcp__fake__{tool}"), json!({"text": text})));
        scene.fake.reply(Reply::say("done"));
        let (ok, words) = crate::mcp::result(&scene.wire.turn(&scene.id, "go"));
        assert!(!ok && words.contains("did not answer within"), "{words}");
    }
    assert_eq!(call(&scene, "echo"), (true, "echo: hello".to_owned()));
    assert_eq!(journal.all("start").len(), 2);
}

#[test]
fn all_pages_of_a_list_are_read() {
    let (scene, journal) = scene(json!({}), json!({"mode": "all"}), |j| program("paged", j));
    plain(&scene);
    let names = offered(&scene, 1);
    let theirs: Vec<&str> = names.iter().filter_map(|n| n.strip_prefix("mcp__fake__")).collect();
    assert_eq!(theirs, ["other0", "other1", "other2", "page0", "page1", "page2"]);
    journal.assert_clean();
}

#[test]
fn a_good_server_is_used_beside_a_bad_one() {
    let (scene, journal) = scene(json!({}), json!({"mode": "all"}), |j| program("good", j));
    let mut config = scene.fake.config();
    let mut bad = program("dies", &journal);
    bad["env"][MODE] = json!("dies");
    config["mcpServers"] = json!({"fake": program("good", &journal), "bad": bad, "mute": program("silent", &journal)});
    scene.home.config(&config);
    scene.fake.reply(calls("echo", "hello"));
    scene.fake.reply(Reply::say("done"));
    let view = scene.wire.turn(&scene.id, "echo");
    assert_eq!(crate::mcp::result(&view), (true, "echo: hello".to_owned()));
    let notices = view.texts("notice").join("\n");
    assert!(
        notices.contains("server bad does not run") && notices.contains("server mute is still starting"),
        "{notices}"
    );
}
