//! One daemon per data directory, however it is started, stopped, stalled or killed.

use crate::{Scene, home, rehearsal};
use glrs_tests::process::{daemons_of, fds_of, rss_of};
use glrs_tests::wait::until;
use glrs_tests::{Gate, Home, PATIENCE, Reply, Wire, cli, json};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::time::Duration;

/// Process id of the home's only daemon, once any other that tried has given up.
fn only(home: &Home) -> u32 {
    until("exactly one daemon", PATIENCE, || match daemons_of(&home.root())[..] {
        [pid] => Some(pid),
        _ => None,
    })
}

/// Waits until the daemon takes no new work.
fn draining(wire: &Wire) {
    until("it drains", PATIENCE, || (wire.ok("daemon/status", json!({}))["draining"] == true).then_some(()));
}

#[test]
fn twenty_clients_at_once_start_one_daemon() {
    let home = home();
    std::thread::scope(|scope| {
        let runs: Vec<_> = (0..20).map(|_| scope.spawn(|| cli(&home, ["-p", "say 2 words"]))).collect();
        for run in runs {
            let out = run.join().unwrap().ok();
            assert_eq!(out.stdout.split_whitespace().count(), 2, "{out:?}");
        }
    });
    only(&home);
    let wire = home.wire("ann");
    assert_eq!(wire.ok("session/list", json!({"limit": 100}))["total"], 20);
}

#[test]
fn a_stopped_daemon_is_never_taken_for_dead() {
    let home = home();
    let daemon = home.daemon();
    daemon.stop();
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| cli(&home, ["-p", "say 2 words"]));
        let second = cli(&home, ["daemon", "run"]);
        assert!(second.code.is_some_and(|c| c != 0) && !second.stderr.trim().is_empty(), "{second:?}");
        assert!(daemon.alive());
        daemon.cont();
        let out = waiting.join().unwrap();
        // It may have given up on a daemon that did not answer, in words; it must not have replaced it.
        assert!(out.code == Some(0) || !out.stderr.trim().is_empty(), "{out:?}");
    });
    assert!(daemon.listens() && only(&home) == daemon.pid());
    cli(&home, ["-p", "say 2 words"]).ok();
}

#[test]
fn a_second_daemon_says_so_and_leaves_the_first_alone() {
    let home = home();
    let daemon = home.daemon();
    let second = cli(&home, ["daemon", "run"]);
    assert!(second.code.is_some_and(|c| c != 0) && !second.stderr.trim().is_empty(), "{second:?}");
    assert!(daemon.alive() && daemon.listens());
}

#[test]
fn a_stale_socket_is_replaced() {
    let home = home();
    let mut first = home.daemon();
    first.kill9();
    assert!(home.socket().exists(), "kill -9 leaves the socket behind");
    let second = home.daemon();
    assert!(second.listens() && second.pid() != first.pid());
}

#[test]
fn directories_and_socket_are_private() {
    let home = home();
    let _daemon = home.daemon();
    let mode = |path: &std::path::Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!((mode(&home.root()), mode(&home.socket())), (0o700, 0o600));
    for name in ["glrsd.lock", "glrsd.log"] {
        let path = home.root().join(name);
        assert!(!path.exists() || mode(&path) & 0o077 == 0, "{name}: {:o}", mode(&path));
    }
}

#[test]
fn sigterm_lets_the_step_end_and_takes_nothing_new() {
    let mut scene = Scene::plain();
    let gate = Gate::new();
    scene.fake.reply(Reply::say("before ").gate(&gate).text("after"));
    scene.wire.send(&scene.id, "go");
    gate.wait_reached();
    scene.daemon.term();
    draining(&scene.wire);
    scene.wire.fails("shutting_down", "session/send", scene.with(json!({"text": "more"})));
    gate.open();
    let exit = scene.daemon.wait(PATIENCE);
    assert!(exit.is_none_or(|e| e.success()), "{exit:?}");
    assert!(scene.wire.wait_closed(PATIENCE));
    let view = scene.wire.view(&scene.id);
    assert!(view.closed.as_deref().is_some_and(|why| !why.is_empty()), "clients are told why");
    let report = glrs_tests::check::check_session(&scene.home.log(&scene.id)).clean();
    assert!(report.texts("assistant").contains(&"before after"), "{:?}", report.texts("assistant"));
}

#[test]
fn a_second_sigterm_stops_now() {
    let mut scene = Scene::plain();
    let gate = Gate::new();
    scene.fake.reply(Reply::say("before ").gate(&gate));
    scene.wire.send(&scene.id, "go");
    gate.wait_reached();
    scene.daemon.term();
    draining(&scene.wire);
    scene.daemon.term();
    scene.daemon.wait(Duration::from_secs(10));
    let _daemon = scene.home.daemon();
    let wire = scene.home.wire("bob");
    wire.attach(&scene.id, json!({}));
    assert_eq!(wire.view(&scene.id).last_status(), "interrupted");
    glrs_tests::check::check_session(&scene.home.log(&scene.id)).clean();
}

#[test]
fn restart_hands_over_to_a_new_daemon_and_stop_ends_it() {
    let home = home();
    cli(&home, ["-p", "say 2 words"]).ok();
    let first = only(&home);
    cli(&home, ["daemon", "restart"]).ok();
    assert_ne!(only(&home), first);
    cli(&home, ["daemon", "status"]).ok();
    cli(&home, ["daemon", "logs"]).ok();
    cli(&home, ["daemon", "stop"]).ok();
    until("no daemon", PATIENCE, || daemons_of(&home.root()).is_empty().then_some(()));
}

#[test]
fn shutdown_over_the_wire_answers_and_ends() {
    let home = home();
    let mut daemon = home.daemon();
    let wire = home.wire("ann");
    let status = wire.ok("daemon/status", json!({}));
    assert_eq!((&status["daemon"]["pid"], &status["clients"]), (&json!(daemon.pid()), &json!(1)));
    wire.ok("daemon/shutdown", json!({"drain": true}));
    assert!(daemon.wait(PATIENCE).is_none_or(|e| e.success()));
    assert!(wire.wait_closed(PATIENCE));
}

#[test]
fn a_turn_goes_on_when_the_last_client_leaves() {
    let scene = Scene::plain();
    let gate = Gate::new();
    scene.fake.reply(Reply::say("before ").gate(&gate).text("after"));
    scene.wire.send(&scene.id, "go");
    gate.wait_reached();
    scene.wire.close();
    gate.open();
    let wire = scene.join("bob");
    assert_eq!(wire.wait_quiet(&scene.id).texts("assistant"), ["before after"]);
}

#[test]
fn attaching_and_leaving_leaves_nothing_behind() {
    let (home, daemon, wire, id) = rehearsal(json!({}));
    wire.turn(&id, "say 20 words");
    let round = || {
        let other = home.wire("brief");
        other.attach(&id, json!({}));
        other.close();
    };
    let settled = || wire.wait_view(&id, "all gone", |v| v.clients == 1);
    (0..50).for_each(|_| round());
    settled();
    let (fds, rss) = (fds_of(daemon.pid()).unwrap(), rss_of(daemon.pid()).unwrap());
    (0..300).for_each(|_| round());
    settled();
    until("descriptors are given back", PATIENCE, || (fds_of(daemon.pid())? <= fds + 2).then_some(()));
    let after = rss_of(daemon.pid()).unwrap();
    assert!(after < rss + 4 * 1024 * 1024, "memory went from {rss} to {after}");
}

#[test]
fn metrics_count_what_there_is() {
    let (_home, daemon, wire, id) = rehearsal(json!({}));
    wire.turn(&id, "say 3 words");
    let metrics = wire.ok("daemon/metrics", json!({}));
    assert!(metrics["clients"] == 1 && metrics["sessions"] == 1 && metrics["queueRows"] == 0, "{metrics}");
    assert!(metrics["bytesOut"].as_u64().unwrap() > 0 && metrics["bytesIn"].as_u64().unwrap() > 0, "{metrics}");
    let rss = metrics["rss"].as_u64().unwrap();
    assert!(rss > 0 && rss.abs_diff(rss_of(daemon.pid()).unwrap()) < 32 * 1024 * 1024, "{metrics}");
}
