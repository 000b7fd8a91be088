//! What is wrong gets a typed error with words; the connection and every other session live on.

use crate::{home, rehearsal};
use glrs_tests::wire::OURS;
use glrs_tests::{Cli, Wire, cli, json};
use std::fs;
use std::time::Duration;

#[test]
fn malformed_lines_are_answered_and_the_connection_lives() {
    let (_home, _daemon, wire, id) = rehearsal(json!({}));
    for (line, kind, reply_id) in [
        ("hello there\n", "parse_error", json!(null)),
        ("{\"jsonrpc\":\"2.0\",\"id\":2000001,\"method\":\n", "parse_error", json!(OURS * 2 + 1)),
        ("[]\n", "invalid_request", json!(null)),
        (
            "[{\"jsonrpc\":\"2.0\",\"id\":2000002,\"method\":\"daemon/status\",\"params\":{}}]\n",
            "invalid_request",
            json!(null),
        ),
        ("42\n", "invalid_request", json!(null)),
        ("{\"jsonrpc\":\"2.0\",\"id\":2000003,\"method\":7,\"params\":{}}\n", "invalid_request", json!(OURS * 2 + 3)),
        (
            "{\"jsonrpc\":\"2.0\",\"id\":\"word\",\"method\":\"no/such\",\"params\":{}}\n",
            "method_not_found",
            json!("word"),
        ),
        (
            "{\"jsonrpc\":\"2.0\",\"id\":2000004,\"method\":\"session/send\",\"params\":[1]}\n",
            "invalid_params",
            json!(OURS * 2 + 4),
        ),
    ] {
        wire.send_raw(line.as_bytes());
        let reply = wire.loose_reply();
        assert_eq!(reply["error"]["data"]["kind"], kind, "{line} → {reply}");
        // An id inside a batch may be named or not; elsewhere it is fixed.
        assert!(line.starts_with("[{") || reply["id"] == reply_id, "{line} → {reply}");
    }
    wire.send_raw(b"\xff\xfe\n");
    assert_eq!(wire.loose_reply()["error"]["data"]["kind"], "parse_error");
    wire.turn(&id, "say 3 words");
}

#[test]
fn framing_is_by_newline_only_however_the_bytes_arrive() {
    let (_home, _daemon, wire, id) = rehearsal(json!({}));
    let text = "one\u{2028}two\u{85}three\u{c}four\r\u{1b}[31m";
    let call = json!({"jsonrpc": "2.0", "id": OURS, "method": "session/send", "params": {"id": id, "text": text}});
    for byte in format!("{call}\n").bytes() {
        wire.send_raw(&[byte]);
    }
    assert_eq!(wire.loose_reply()["id"], OURS);
    wire.wait_view(&id, "the message", |v| v.quiet() && v.texts("user") == [text]);
    wire.send_raw(b"{\"half\":");
    wire.close();
}

#[test]
fn a_thousand_pipelined_calls_are_answered_in_order() {
    let (_home, _daemon, wire, id) = rehearsal(json!({}));
    let before = wire.answered().len();
    let calls: Vec<u64> = (0..1000).map(|_| wire.start("session/info", json!({"id": id}))).collect();
    for call in &calls {
        wire.reply(*call).unwrap();
    }
    assert_eq!(wire.answered()[before..], calls);
}

#[test]
fn unknown_methods_and_wrong_types_are_named() {
    let (_home, _daemon, wire, id) = rehearsal(json!({}));
    wire.fails("method_not_found", "session/teleport", json!({}));
    for (method, params) in [
        ("session/send", json!({"id": id})),
        ("session/send", json!({"id": id, "text": 7})),
        ("session/send", json!({"id": id, "text": "x", "mode": "sideways"})),
        ("session/info", json!({"id": "../../etc/passwd"})),
        ("session/info", json!({"id": 7})),
        ("session/set", json!({"id": id, "mode": "anything"})),
        ("session/set", json!({"id": id})),
        ("session/append", json!({"id": id, "custom": "glrs:title", "data": {}})),
        ("session/resume", json!({})),
    ] {
        let error = wire.call(method, params.clone()).unwrap_err();
        let kind = error["data"]["kind"].as_str().unwrap();
        assert!(["invalid_params", "forbidden"].contains(&kind), "{method} {params} → {error}");
    }
    wire.ok("session/info", json!({"id": id, "from_the_future": true}));
    wire.turn(&id, "say 3 words");
}

#[test]
fn messages_of_nothing_are_refused() {
    let (_home, _daemon, wire, id) = rehearsal(json!({}));
    for text in ["", " ", "\n\t ", "\u{a0}"] {
        wire.fails("invalid_params", "session/send", json!({"id": id, "text": text}));
    }
    wire.fails("invalid_params", "session/rename", json!({"id": id, "title": "  "}));
    assert!(wire.view(&id).entries.is_empty() && wire.view(&id).quiet());
}

#[test]
fn unknown_ids_are_not_found_everywhere() {
    let (_home, _daemon, wire, _id) = rehearsal(json!({}));
    let none = "deadbeef";
    for (method, params) in [
        ("session/info", json!({"id": none})),
        ("session/attach", json!({"id": none})),
        ("session/send", json!({"id": none, "text": "x"})),
        ("session/interrupt", json!({"id": none})),
        ("session/release", json!({"id": none})),
        ("session/entries", json!({"id": none})),
        ("session/rename", json!({"id": none, "title": "x"})),
        ("session/delete", json!({"id": none})),
        ("session/export", json!({"id": none})),
        ("session/fork", json!({"id": none})),
        ("session/resume", json!({"id": none})),
        ("queue/remove", json!({"id": none, "row": 1, "version": 1})),
        ("request/answer", json!({"id": none, "request": "r", "decision": "allow"})),
    ] {
        wire.fails("not_found", method, params);
    }
}

#[test]
fn before_hello_everything_is_refused_and_hello_still_works() {
    let home = home();
    let _daemon = home.daemon();
    let wire = Wire::connect(&home.socket());
    wire.fails("hello_required", "daemon/status", json!({}));
    wire.fails("hello_required", "session/list", json!({}));
    let client = json!({"name": "old"});
    let error =
        wire.fails("unsupported_protocol", "hello", json!({"client": client, "protocol": {"min": 900, "max": 901}}));
    assert!(error["data"]["min"].is_u64() && error["data"]["max"].is_u64(), "{error}");
    let hello = wire.hello("new");
    assert!(hello["protocol"] == 1 && hello["limits"]["messageBytes"] == 32 * 1024 * 1024, "{hello}");
    assert!(hello["limits"]["inFlight"] == 64 && hello["limits"]["clients"] == 1024, "{hello}");
    assert!(hello["daemon"]["pid"].is_u64() && hello["clientId"].is_u64(), "{hello}");
}

#[test]
fn an_oversized_message_is_a_limit_and_costs_only_itself() {
    let (_home, _daemon, wire, id) = rehearsal(json!({}));
    let head = format!(
        "{{\"jsonrpc\":\"2.0\",\"id\":{OURS},\"method\":\"session/send\",\"params\":{{\"id\":\"{id}\",\"text\":\""
    );
    wire.send_raw(head.as_bytes());
    let piece = "x".repeat(1024 * 1024);
    for _ in 0..33 {
        wire.send_raw(piece.as_bytes());
    }
    wire.send_raw(b"\"}}\n");
    let reply = wire.loose_reply();
    assert!(reply["error"]["data"]["kind"] == "limit" && reply["error"]["data"]["max"].is_u64(), "{reply}");
    let view = wire.turn(&id, "say 3 words");
    assert_eq!(view.texts("user"), ["say 3 words"]);
}

#[test]
fn a_directory_that_is_gone_can_be_read_and_asks_for_another() {
    let (home, _daemon, wire, _) = rehearsal(json!({}));
    assert!(wire.call("session/new", json!({"cwd": home.file("nowhere")})).is_err());
    assert!(wire.call("session/new", json!({"cwd": "relative"})).is_err());
    let dir = home.other_dir("gone");
    let id = wire.new_session(&home, json!({"cwd": dir}));
    wire.turn(&id, "say 3 words");
    fs::remove_dir_all(&dir).unwrap();
    assert_eq!(home.wire("bob").attach(&id, json!({}))["entries"][0]["n"], 1);
    let words = match wire.call("session/send", json!({"id": id, "text": "read a.txt"})) {
        Err(error) => error["message"].as_str().unwrap().to_owned(),
        Ok(_) => {
            let view = wire.wait_view(&id, "a failed turn", |v| v.quiet() && v.last_status() == "failed");
            view.texts("error").last().copied().unwrap_or_default().to_owned()
        }
    };
    assert!(words.contains("gone"), "the directory is named: {words}");
    wire.ok("session/set", json!({"id": id, "cwd": home.work()}));
    assert_eq!(wire.turn(&id, "say 3 words").last_status(), "done");
}

#[test]
fn a_data_directory_that_cannot_be_used_is_named() {
    let home = home();
    fs::write(home.root(), "a file where the directory belongs").unwrap();
    let out = cli(&home, ["-p", "say 1 words"]);
    assert!(out.code.is_some_and(|c| c != 0) && out.stderr.contains(home.root().to_str().unwrap()), "{out:?}");
    let out = Cli::new(&home).args(["-p", "say 1 words"]).env("GLRS_HOME", "relative/path").run();
    assert!(out.code.is_some_and(|c| c != 0) && out.stderr.contains("GLRS_HOME"), "{out:?}");
}

#[test]
fn a_session_that_cannot_be_written_says_path_and_cause_and_recovers() {
    let (home, _daemon, wire, healthy) = rehearsal(json!({}));
    wire.turn(&healthy, "say 3 words");
    let id = wire.new_session(&home, json!({}));
    fs::create_dir(home.log(&id)).unwrap();
    let error = wire.call("session/send", json!({"id": id, "text": "hi", "key": "k"})).unwrap_err();
    assert!(["disk", "conflict", "broken"].contains(&error["data"]["kind"].as_str().unwrap()), "{error}");
    assert_eq!(wire.turn(&healthy, "say 3 words").last_status(), "done");
    fs::remove_dir(home.log(&id)).unwrap();
    let other = wire.new_session(&home, json!({}));
    assert_eq!(wire.turn(&other, "say 3 words").last_status(), "done");
}

#[test]
fn a_config_that_is_wrong_is_a_notice_and_stops_nothing() {
    let home = home();
    fs::create_dir_all(home.root()).unwrap();
    fs::write(home.root().join("config.json"), "{ not json").unwrap();
    cli(&home, ["-p", "say 3 words"]).ok();
    home.config(&json!({"compactAt": "often", "no-such-key": 1, "providers": 7}));
    cli(&home, ["-p", "say 3 words"]).ok();
}

#[test]
fn a_client_that_dies_mid_call_harms_nobody() {
    let (home, daemon, wire, id) = rehearsal(json!({}));
    for i in 0..20 {
        let other = home.wire("brief");
        other.start("session/attach", json!({"id": id}));
        other.start("session/send", json!({"id": id, "text": format!("say {i} words"), "key": format!("k{i}")}));
        drop(other);
    }
    wire.wait_quiet(&id);
    assert!(daemon.alive() && !wire.wait_closed(Duration::ZERO));
    wire.turn(&id, "say 3 words");
}
