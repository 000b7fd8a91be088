//! The wire's own tests, against a server of a few lines.

use super::*;
use std::io::{BufRead, BufReader};
use std::os::unix::net::UnixListener;

/// A server that answers each line by what `answer` makes of it.
fn serve(answer: impl Fn(&Value) -> Vec<Value> + Send + 'static) -> (tempfile::TempDir, Wire) {
    let dir = tempfile::tempdir_in("/tmp").unwrap();
    let socket = dir.path().join("s");
    let listener = UnixListener::bind(&socket).unwrap();
    std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        for line in BufReader::new(stream.try_clone().unwrap()).lines().map_while(Result::ok) {
            for out in answer(&line.parse().unwrap_or(Value::Null)) {
                if writeln!(stream, "{out}").is_err() {
                    return;
                }
            }
        }
    });
    let wire = Wire::connect(&socket);
    (dir, wire)
}

fn reply(call: &Value, result: Value) -> Value {
    json!({"jsonrpc": "2.0", "id": call["id"], "result": result})
}

fn event(seq: u64, more: Value) -> Value {
    let mut params = json!({"session": "3f9a1c2b", "epoch": "e", "seq": seq});
    params.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    json!({"jsonrpc": "2.0", "method": "session/event", "params": params})
}

fn snapshot() -> Value {
    let info = json!({"id": "3f9a1c2b", "title": "t", "cwd": "/", "createdAt": "t", "updatedAt": "t", "entries": 0,
        "model": "builtin/rehearsal", "mode": "ask", "state": "idle", "saved": false});
    let usage = json!({"contextTokens": 0, "window": 1, "line": 0, "calls": 0, "input": 0, "output": 0, "cached": 0,
        "cost": 0.0});
    json!({"epoch": "e", "seq": 0, "info": info, "state": {"name": "idle"}, "compaction": {"state": "none"},
        "disk": {"ok": true}, "entries": [], "inFlight": [], "queue": [], "requests": [], "clients": ["a#1"],
        "usage": usage, "plan": [], "more": false})
}

fn daemon(call: &Value) -> Vec<Value> {
    match call["method"].as_str() {
        Some("session/attach") => vec![reply(call, snapshot())],
        Some("session/send") => vec![
            reply(call, json!({"outcome": "running"})),
            event(1, json!({"kind": "state", "state": {"name": "running"}})),
            event(
                2,
                json!({"kind": "entry", "n": 1, "entry": {"type": "user", "text": call["params"]["text"], "at": "t"}}),
            ),
            event(3, json!({"kind": "state", "state": {"name": "idle"}})),
        ],
        Some(_) => {
            let error = json!({"code": -32601, "message": "no such method", "data": {"kind": "method_not_found"}});
            vec![json!({"jsonrpc": "2.0", "id": call["id"], "error": error})]
        }
        None => vec![
            json!({"jsonrpc": "2.0", "id": null, "error": {"code": 1, "message": "x", "data": {"kind": "parse_error"}}}),
        ],
    }
}

#[test]
fn calls_events_and_views_go_together() {
    let (_dir, wire) = serve(daemon);
    wire.attach("3f9a1c2b", json!({}));
    let view = wire.turn("3f9a1c2b", "hi");
    assert_eq!(view.texts("user"), ["hi"]);
    assert_eq!(wire.next_event("idle", |e| e["state"]["name"] == "idle")["seq"], 3);
    wire.fails("method_not_found", "no/such", json!({}));
    wire.send_raw(b"garbage\n");
    assert_eq!(wire.loose_reply()["error"]["data"]["kind"], "parse_error");
    assert_eq!(wire.faults(), Vec::<String>::new());
    wire.close();
    assert!(wire.try_call("daemon/status", &json!({})).is_none());
}

#[test]
fn a_quiet_session_is_not_reported_before_the_send_shows() {
    let (_dir, wire) = serve(daemon);
    wire.attach("3f9a1c2b", json!({}));
    wire.send("3f9a1c2b", "hi");
    assert_eq!(wire.wait_quiet("3f9a1c2b").last_n(), 1);
}

#[test]
fn what_breaks_the_protocol_is_a_fault() {
    let (_dir, wire) = serve(|call| {
        let mut twice = reply(call, json!({}));
        twice["error"] = json!({"code": 1});
        vec![event(9, json!({"kind": "state"})), json!({"jsonrpc": "1.0", "method": "x"}), twice]
    });
    wire.call("any", json!({})).unwrap_err();
    let faults = wire.faults().join("\n");
    for about in ["not attached", "not JSON-RPC 2.0", "one of result and error", "without code, words or kind"] {
        assert!(faults.contains(about), "{about}: {faults}");
    }
    assert!(std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| drop(wire))).is_err());
}
