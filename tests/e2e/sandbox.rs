//! The sandbox: what the agent's commands may write, and that they do not run without it.

use crate::home;
use glrs_tests::cli::cli;
use glrs_tests::{Daemon, Home, Value, Wire, json};
use std::fs;
use std::net::TcpListener;

/// A home whose sessions are sandboxed like this. None, with the reason printed, where the kernel
/// cannot do it; then it is shown that nothing runs.
fn sandboxed(sandbox: Value, needs: &str) -> Option<(Home, Daemon, Wire, String)> {
    let home = home();
    home.config(&json!({"sandbox": sandbox}));
    let daemon = home.daemon();
    let wire = home.wire("ann");
    let id = wire.new_session(&home, json!({"mode": "all"}));
    let there = wire.ok("daemon/status", json!({}))["sandbox"].as_str().unwrap().to_owned();
    if there.contains(needs) {
        return Some((home, daemon, wire, id));
    }
    println!("skipped: this kernel can keep commands from {there}");
    let view = wire.turn(&id, "run touch ran");
    assert!(!home.file("ran").exists());
    assert!(view.of_type("tool")[0]["result"].as_str().unwrap().contains("nothing was run"));
    None
}

#[test]
fn commands_write_here_and_in_their_temporary_directory_and_nowhere_else() {
    let Some((home, _daemon, wire, id)) = sandboxed(json!(true), "files") else { return };
    let other = home.other_dir("other");
    fs::write(other.join("f"), "kept").unwrap();
    let out = other.display();
    let view = wire.turn(
        &id,
        &format!("run echo in > a && echo tmp > $TMPDIR/b && cat {out}/f && echo x > /dev/null; echo no > {out}/g; echo no >> {out}/f; rm -f {out}/f; mv a {out}/h; ls > c; echo end"),
    );
    let tool = view.of_type("tool")[0];
    assert!(tool["result"].as_str().unwrap().contains("kept") && tool["ok"] == true, "{tool}");
    assert!(home.file("a").exists() && home.file("c").exists());
    assert_eq!(fs::read_to_string(other.join("f")).unwrap(), "kept");
    assert_eq!(fs::read_dir(&other).unwrap().count(), 1);
    // The daemon itself is free: its log took the turn, and a person's own command is not kept.
    wire.ok("session/shell", json!({"id": id, "command": format!("echo mine > {out}/g")}));
    wire.wait_view(&id, "its entry", |v| v.of_type("tool").iter().any(|t| t["by"].is_string()));
    assert_eq!(fs::read_to_string(other.join("g")).unwrap(), "mine\n");
    // What is no command asks as ever.
    wire.ok("session/set", json!({"id": id, "mode": "edits"}));
    wire.send(&id, &format!("write {out}/w.txt x"));
    let card = wire.request(&id);
    assert!(card.get("sandbox").is_none(), "{card}");
    wire.answer(&id, &card, "deny").unwrap();
    wire.wait_quiet(&id);
    assert!(!other.join("w.txt").exists());
}

#[test]
fn cards_and_status_say_so() {
    let Some((home, _daemon, wire, id)) = sandboxed(json!({"network": false}), "TCP") else { return };
    wire.ok("session/set", json!({"id": id, "mode": "ask"}));
    wire.send(&id, "run echo x");
    let card = wire.request(&id);
    let words = card["sandbox"].as_str().unwrap();
    assert!(words.contains("writes only below") && words.ends_with("no TCP"), "{words}");
    wire.answer(&id, &card, "allow").unwrap();
    assert!(wire.wait_quiet(&id).info["sandbox"].as_str().unwrap().contains("no TCP"));
    let doctor = cli(&home, ["doctor", "--json"]).json();
    let said = doctor["checks"].as_array().unwrap().iter().find(|c| c["name"] == "sandbox").unwrap();
    assert!(said["detail"].as_str().unwrap().contains("files and TCP"), "{said}");
}

#[test]
fn tcp_is_off_on_request_only() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let connect = format!("run (exec 3<>/dev/tcp/127.0.0.1/{port}) 2>/dev/null && echo came-through || echo kept-out");
    for (sandbox, words) in [(json!(true), "came-through"), (json!({"network": false}), "kept-out")] {
        let Some((_home, _daemon, wire, id)) = sandboxed(sandbox, "TCP") else { return };
        let view = wire.turn(&id, &connect);
        let tool = view.of_type("tool")[0];
        assert!(tool["result"].as_str().unwrap().starts_with(words), "{tool}");
    }
}
