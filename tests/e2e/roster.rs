//! What dashboards read: sessions by need, clients by name, figures that are counted.

use crate::{home, rehearsal};
use glrs_tests::{PATIENCE, Value, View, json, wait::until};

#[test]
fn rows_come_by_need_and_say_what_a_dashboard_shows() {
    let home = home();
    let _daemon = home.daemon();
    let wire = home.wire("ann");
    let [idle, running, held, asking] = [(); 4].map(|()| wire.new_session(&home, json!({})));
    wire.turn(&idle, "say 2 words");
    wire.send(&held, "slow 500 words");
    wire.send(&held, "say 2 words");
    wire.ok("session/interrupt", json!({"id": held}));
    wire.wait_view(&held, "held", |v| v.state_name() == "held");
    wire.send(&running, "slow 500 words");
    wire.wait_view(&running, "words", |v| v.streaming("assistant").is_some());
    wire.send(&asking, "write a.txt x");
    wire.request(&asking);
    let board = home.wire("board");
    let rows = board.ok("roster/watch", json!({}))["sessions"].as_array().unwrap().clone();
    let shown: Vec<(&str, &str)> =
        rows.iter().map(|r| (r["id"].as_str().unwrap(), r["state"].as_str().unwrap())).collect();
    let expected = [(asking.as_str(), "running"), (&held, "held"), (&running, "running"), (&idle, "idle")];
    assert_eq!(shown, expected);
    for row in &rows {
        assert!(row["model"].is_string() && row["updatedAt"].is_string() && row["window"].as_u64() > Some(0), "{row}");
        assert!(row["clients"] == 1 && row["needsYou"] == (row["id"] == asking.as_str()), "{row}");
    }
    assert_eq!(rows[1]["queued"], 1);
    let status = board.ok("daemon/status", json!({}));
    assert!(status["loaded"] == 4 && status["running"] == 2 && status["clients"] == 2, "{status}");
    wire.ok("session/interrupt", json!({"id": running}));
    board.next_notification("roster/event", "the stopped session", |p: &Value| {
        p["session"]["id"] == running.as_str() && p["session"]["state"] != "running"
    });
}

#[test]
fn clients_are_listed_with_what_they_attached_to() {
    let (home, _daemon, wire, id) = rehearsal(json!({}));
    let bob = home.wire("bob");
    let row = |name: &str| {
        let rows = wire.ok("client/list", json!({}))["clients"].as_array().unwrap().clone();
        rows.into_iter().find(|c| c["client"]["name"] == name)
    };
    assert_eq!(row("bob").unwrap()["attached"], json!([]));
    bob.attach(&id, json!({}));
    let listed = row("bob").unwrap();
    assert!(listed["attached"] == json!([id]) && listed["client"]["pid"] == std::process::id(), "{listed}");
    assert!(listed["connectedAt"].is_string() && listed["clientId"].is_u64(), "{listed}");
    bob.ok("session/detach", json!({"id": id}));
    bob.ok("session/detach", json!({"id": "deadbeef"}));
    assert_eq!(row("bob").unwrap()["attached"], json!([]));
    bob.close();
    until("bob is gone", PATIENCE, || row("bob").is_none().then_some(()));
}

#[test]
fn figures_count_what_waits_and_who_lagged() {
    let (home, _daemon, wire, id) = rehearsal(json!({}));
    wire.send(&id, "write a.txt x");
    let card = wire.request(&id);
    for text in ["one", "two", "three"] {
        wire.send(&id, text);
    }
    let figures = || wire.ok("daemon/metrics", json!({}));
    let before = figures();
    assert!(before["queueRows"] == 3 && before["lagged"] == 0 && before["fds"].as_u64() > Some(0), "{before}");
    let slow = home.wire("slow");
    slow.attach(&id, json!({}));
    slow.pause(true);
    let data = "x".repeat(200_000);
    for _ in 0..12 {
        wire.ok("session/append", json!({"id": id, "custom": "test:flood", "data": data}));
    }
    slow.pause(false);
    slow.wait_view(&id, "lagged", |v: &View| v.lagged);
    let after = figures();
    assert_eq!(after["lagged"], 1);
    assert!(after["bytesIn"].as_u64().unwrap() > before["bytesIn"].as_u64().unwrap() + 12 * 200_000, "{after}");
    wire.answer(&id, &card, "deny").unwrap();
    wire.wait_quiet(&id);
    until("nothing waits", PATIENCE, || (figures()["queueRows"] == 0).then_some(()));
}
