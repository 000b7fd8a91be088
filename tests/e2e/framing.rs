//! Lines on the wire: limits to the byte, garbage between good lines, ids of every kind,
//! notifications, half-closed connections, and the order of answers.

use crate::rehearsal;
use glrs_tests::{Home, PATIENCE, Value, Wire, json};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;

const LIMIT: usize = 32 * 1024 * 1024;

fn call(id: Value, method: &str, params: Value) -> String {
    format!("{}\n", json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params}))
}

fn hello() -> String {
    call(json!("hello"), "hello", json!({"client": {"name": "raw"}, "protocol": {"min": 1, "max": 1}}))
}

/// A connection of bytes, on which nothing was said.
fn raw(home: &Home) -> UnixStream {
    let stream = UnixStream::connect(home.socket()).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream
}

/// Writes all of it at once, says that nothing follows, and reads every answer.
fn exchange(home: &Home, bytes: &[u8]) -> Vec<Value> {
    let mut stream = raw(home);
    stream.write_all(bytes).unwrap();
    stream.shutdown(Shutdown::Write).unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    text.lines().map(|l| l.parse().unwrap_or_else(|e| panic!("no JSON ({e}): {l}"))).collect()
}

fn kind(answer: &Value) -> &str {
    answer["error"]["data"]["kind"].as_str().unwrap_or("")
}

#[test]
fn a_line_may_have_32_mib_and_not_one_byte_more() {
    let (home, _daemon, _wire, id) = rehearsal(json!({}));
    let mut stream = raw(&home);
    let mut answers = BufReader::new(stream.try_clone().unwrap()).lines().map(|l| l.unwrap().parse::<Value>().unwrap());
    stream.write_all(hello().as_bytes()).unwrap();
    assert!(answers.next().unwrap()["result"].is_object());
    let line = |n: u64, len: usize| {
        let empty = call(json!(n), "session/info", json!({"id": id, "pad": ""})).len();
        call(json!(n), "session/info", json!({"id": id, "pad": "x".repeat(len - empty)}))
    };
    for (n, over) in [(1, 0), (2, 1), (3, 0)] {
        let text = line(n, LIMIT + over);
        assert_eq!(text.len(), LIMIT + over);
        stream.write_all(text.as_bytes()).unwrap();
        let answer = answers.next().unwrap();
        assert_eq!(answer["id"], n);
        if over == 0 {
            assert_eq!(answer["result"]["session"]["id"], id.as_str());
        } else {
            assert!(kind(&answer) == "limit" && answer["error"]["data"]["max"] == LIMIT, "{answer}");
        }
    }
}

#[test]
fn what_is_accepted_can_be_shown_to_everyone() {
    let (home, _daemon, wire, id) = rehearsal(json!({}));
    let text = |len: usize| format!("say 2 words\n{}", "x".repeat(len));
    let error = wire.fails("limit", "session/send", json!({"id": id, "text": text(9 << 20)}));
    assert!(error["data"]["max"].is_u64(), "{error}");
    // Each of these is six bytes as JSON.
    wire.fails("limit", "session/send", json!({"id": id, "text": text(0) + &"\u{1}".repeat(2 << 20)}));
    wire.send(&id, "write a.txt x");
    let card = wire.request(&id);
    wire.send(&id, &text(7 << 20));
    wire.send(&id, &text(7 << 20));
    let error = wire.fails("limit", "session/send", json!({"id": id, "text": text(7 << 20)}));
    assert_eq!(error["data"]["what"], "queue bytes");
    let row = wire.wait_view(&id, "two rows", |v| v.queue.len() == 2).queue[0].clone();
    let edit = json!({"id": id, "row": row["row"], "version": row["version"], "text": text(9 << 20)});
    wire.fails("limit", "queue/edit", edit);
    let bob = home.wire("bob");
    bob.attach(&id, json!({}));
    assert_eq!(bob.view(&id).queue.len(), 2);
    for row in bob.view(&id).queue {
        bob.ok("queue/remove", json!({"id": id, "row": row["row"], "version": row["version"]}));
    }
    wire.answer(&id, &card, "deny").unwrap();
    wire.wait_quiet(&id);
}

#[test]
fn garbage_between_good_lines_costs_only_itself_and_order_is_kept() {
    let (home, _daemon, _wire, id) = rehearsal(json!({}));
    let info = |n: u64| call(json!(n), "session/info", json!({"id": id}));
    let mut bytes = hello().into_bytes();
    let garbage: [&[u8]; 9] = [
        b"\xff\xfe\xfd\n",
        b"\x00\x01\x02\n",
        b"{\"jsonrpc\":\"2.0\",\"id\":1\n",
        b"\"just text\"\n",
        b"null\n",
        b"{}{}\n",
        "{\"jsonrpc\":\"2.0\",\"id\":9,\"method\":\"\u{2028}\"}\n".as_bytes(),
        b"[{\"jsonrpc\":\"2.0\",\"id\":9,\"method\":\"session/info\",\"params\":{}}]\n",
        b"GET / HTTP/1.1\r\n",
    ];
    for (n, line) in garbage.iter().enumerate() {
        bytes.extend_from_slice(line);
        bytes.extend_from_slice(info(n as u64).trim_end().as_bytes());
        bytes.extend_from_slice(b" \r\n\r\n\n \t\n");
    }
    let answers = exchange(&home, &bytes);
    assert_eq!(answers.len(), 1 + 2 * garbage.len(), "{answers:#?}");
    let good: Vec<&Value> = answers[1..].iter().filter(|a| a["result"].is_object()).map(|a| &a["id"]).collect();
    assert_eq!(good, (0..garbage.len()).map(|n| json!(n)).collect::<Vec<_>>().iter().collect::<Vec<_>>());
    let kinds: Vec<&str> = answers[1..].iter().map(kind).filter(|k| !k.is_empty()).collect();
    assert!(kinds.iter().all(|k| ["parse_error", "invalid_request", "method_not_found"].contains(k)), "{kinds:?}");
}

#[test]
fn ids_come_back_as_they_were_written() {
    let (home, _daemon, _wire, _id) = rehearsal(json!({}));
    let ids = ["0", "-7", "1.50", "1e3", "18446744073709551616", "\"\"", "\"a\\u0062\"", "\"\u{2028}é\"", "null"];
    for method in ["daemon/status", "session/list", "no/such"] {
        let mut text = hello();
        for id in ids {
            text += &format!("{{\"jsonrpc\":\"2.0\",\"id\":{id},\"method\":\"{method}\"}}\n");
        }
        let mut stream = raw(&home);
        stream.write_all(text.as_bytes()).unwrap();
        stream.shutdown(Shutdown::Write).unwrap();
        let mut answers = String::new();
        stream.read_to_string(&mut answers).unwrap();
        for id in ids {
            assert!(answers.contains(&format!("\"id\":{id},")), "{method}: {id} in {answers}");
        }
        assert_eq!(answers.lines().count(), 1 + ids.len());
    }
    for id in ["true", "[1]", "{\"a\":1}"] {
        let line = format!("{}{{\"jsonrpc\":\"2.0\",\"id\":{id},\"method\":\"daemon/status\"}}\n", hello());
        let answers = exchange(&home, line.as_bytes());
        assert!(answers[1]["id"].is_null() && kind(&answers[1]) == "invalid_request", "{answers:?}");
    }
}

#[test]
fn notifications_are_done_and_never_answered() {
    let (home, _daemon, wire, id) = rehearsal(json!({}));
    let note =
        |method: &str, params: Value| format!("{}\n", json!({"jsonrpc": "2.0", "method": method, "params": params}));
    let mut text = hello();
    for line in [
        note("session/rename", json!({"id": id, "title": "told, not asked"})),
        note("session/attach", json!({"id": id, "tail": 0})),
        note("session/list", json!({})),
        note("no/such", json!({})),
        note("session/rename", json!({"id": id})),
        note("session/send", json!({"id": "deadbeef", "text": "x"})),
        note("hello", json!({})),
    ] {
        text += &line;
    }
    text += &call(json!(1), "session/info", json!({"id": id}));
    let answers = exchange(&home, text.as_bytes());
    let ids: Vec<&Value> = answers.iter().filter(|a| a["method"].is_null()).map(|a| &a["id"]).collect();
    assert_eq!(ids, [&json!("hello"), &json!(1)], "{answers:#?}");
    wire.wait_view(&id, "the new title", |v| v.info["title"] == "told, not asked");
    // Before hello they are refused as silently.
    assert_eq!(exchange(&home, note("session/rename", json!({"id": id, "title": "no"})).as_bytes()), [Value::Null; 0]);
    assert_eq!(wire.ok("session/info", json!({"id": id}))["session"]["title"], "told, not asked");
}

#[test]
fn a_connection_that_only_stopped_sending_still_gets_its_answers() {
    let (home, _daemon, _wire, id) = rehearsal(json!({}));
    let mut text = hello();
    for n in 0..200 {
        text += &call(json!(n), "session/append", json!({"id": id, "custom": "test:entry", "data": n}));
    }
    let answers = exchange(&home, text.as_bytes());
    let numbers: Vec<&Value> = answers[1..].iter().map(|a| &a["id"]).collect();
    assert_eq!(numbers, (0..200).map(|n| json!(n)).collect::<Vec<_>>().iter().collect::<Vec<_>>());
}

#[test]
fn half_a_line_at_the_end_is_nothing() {
    let (home, _daemon, wire, id) = rehearsal(json!({}));
    let rename = call(json!(1), "session/rename", json!({"id": id, "title": "half"}));
    let answers = exchange(&home, (hello() + rename.trim_end()).as_bytes());
    assert_eq!(answers.len(), 1, "{answers:?}");
    assert_ne!(wire.ok("session/info", json!({"id": id}))["session"]["title"], "half");
}

#[test]
fn escapes_arrive_as_they_were_meant() {
    let (_home, _daemon, wire, id) = rehearsal(json!({}));
    // As a client may write it: everything escaped, surrogate pairs, an escaped newline.
    let text = "say 2 words\\n\\u0022\\u005c\\/\\ud83d\\ude00\\u2028\\t\\u007f\\u0000";
    let line = format!(
        "{{\"jsonrpc\":\"2.0\",\"id\":{},\"method\":\"session/send\",\"params\":{{\"id\":\"{id}\",\"text\":\"{text}\"}}}}\n",
        glrs_tests::wire::OURS
    );
    wire.send_raw(line.as_bytes());
    assert!(wire.loose_reply()["result"].is_object());
    let meant = "say 2 words\n\"\\/\u{1f600}\u{2028}\t\u{7f}\0";
    wire.wait_view(&id, "the message", |v| v.quiet() && v.texts("user") == [meant]);
    // Half a pair is no text; it costs only itself.
    let half = line.replace(text, "\\ud83d");
    wire.send_raw(half.as_bytes());
    assert!(["parse_error", "invalid_params", "invalid_request"].contains(&kind(&wire.loose_reply())));
    wire.turn(&id, "say 3 words");
}

#[test]
fn a_thousand_pipelined_changes_happen_in_the_order_they_were_sent() {
    let (home, _daemon, wire, id) = rehearsal(json!({}));
    let before = wire.answered().len();
    let calls: Vec<u64> =
        (0..1000).map(|n| wire.start("session/append", json!({"id": id, "custom": "test:entry", "data": n}))).collect();
    for (n, call) in calls.iter().enumerate() {
        assert_eq!(wire.reply(*call).unwrap()["n"], n + 1);
    }
    assert_eq!(wire.answered()[before..], calls);
    let other = home.wire("bob");
    other.attach(&id, json!({}));
    let view = other.view(&id);
    assert!((1..=1000).all(|n| view.entries[&n]["data"] == n - 1));
}

#[test]
fn a_second_hello_changes_nothing_and_versions_are_negotiated() {
    let (home, _daemon, _wire, _id) = rehearsal(json!({}));
    let wire = Wire::connect(&home.socket());
    let hello = |name: &str, min: u32, max: u32| json!({"client": {"name": name, "glow": {"in": "the dark"}}, "protocol": {"min": min, "max": max}, "later": [1]});
    let error = wire.fails("unsupported_protocol", "hello", hello("future", 99, 120));
    let words = error["message"].as_str().unwrap();
    assert!(words.contains("99") && words.contains("glrs daemon restart"), "{words}");
    assert!(error["data"]["min"] == 1 && error["data"]["max"] == 1, "{error}");
    wire.fails("unsupported_protocol", "hello", hello("past", 0, 0));
    wire.fails("invalid_params", "hello", json!({"protocol": {"min": 1, "max": 1}}));
    let first = wire.ok("hello", hello("now", 0, 99));
    assert!(first["protocol"] == 1 && first["capabilities"].is_array(), "{first}");
    assert_eq!(wire.ok("hello", hello("other", 1, 1))["clientId"], first["clientId"]);
    let rows = wire.ok("client/list", json!({}));
    assert!(rows["clients"].as_array().unwrap().iter().any(|c| c["client"]["name"] == "now"), "{rows}");
}
