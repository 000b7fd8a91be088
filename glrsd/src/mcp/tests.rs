//! Tests of a server's life against programs of a few lines. What real ones do is tested with the
//! whole daemon.

use super::{Call, CallError, Servers, State};
use crate::config::McpServer;
use crate::host::Env;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

fn env(more: &[(&str, &str)]) -> Arc<Env> {
    let path = Env::of_process().get("PATH").unwrap().to_owned();
    let more = more.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned()));
    Arc::new([("PATH".to_owned(), path)].into_iter().chain(more).collect())
}

fn servers(of: Value) -> BTreeMap<String, McpServer> {
    serde_json::from_value(of).unwrap()
}

fn shell(script: &str) -> BTreeMap<String, McpServer> {
    servers(json!({"s": {"command": "sh", "args": ["-c", script]}}))
}

#[tokio::test]
async fn equal_ones_are_one_and_nothing_else_is() {
    let pool = Servers::default();
    let config = servers(json!({"a": {"command": "x"}, "b": {"command": "x"}}));
    let open = |config: &BTreeMap<_, _>, cwd: &str, env: Arc<Env>| pool.open(config, Path::new(cwd), &env, &[]);
    let first = open(&config, "/tmp", env(&[]));
    assert_eq!(first.iter().map(|s| s.name()).collect::<Vec<_>>(), ["a", "b"]);
    assert!(!Arc::ptr_eq(&first[0], &first[1]));
    let again = open(&config, "/tmp", env(&[]));
    assert!(Arc::ptr_eq(&first[0], &again[0]) && Arc::ptr_eq(&first[1], &again[1]));
    let other = servers(json!({"a": {"command": "y"}, "b": {"command": "x"}}));
    let changed = open(&other, "/tmp", env(&[]));
    assert!(!Arc::ptr_eq(&first[0], &changed[0]) && Arc::ptr_eq(&first[1], &changed[1]));
    for elsewhere in [open(&config, "/", env(&[])), open(&config, "/tmp", env(&[("A", "1")]))] {
        assert!(!Arc::ptr_eq(&first[0], &elsewhere[0]));
    }
    let weak = Arc::downgrade(&first[0]);
    drop((first, again));
    assert!(weak.upgrade().is_none(), "nobody holds it any more");
}

#[tokio::test(start_paused = true)]
async fn one_that_says_nothing_is_given_up_and_its_call_is_told_why() {
    let pool = Servers::default();
    let server = pool.open(&shell("echo deaf >&2; cat >/dev/null"), Path::new("/"), &env(&[]), &[]).remove(0);
    assert_eq!(server.state(), State::Idle);
    server.start();
    server.settled().await;
    let State::Down(why) = server.state() else { panic!("{:?}", server.state()) };
    assert!(why.contains("did not answer within 30 s"), "{why}");
    let cancel = CancellationToken::new();
    let (progress, _told) = mpsc::channel(1);
    let limit = Duration::from_secs(600);
    let call = Call { tool: "t", input: serde_json::Map::new(), limit, cancel: &cancel, progress };
    let error = server.call(call).await.unwrap_err();
    assert!(matches!(error, CallError::Down { .. }), "{error}");
}

#[tokio::test]
async fn one_that_ends_at_once_says_how_and_what_it_complained_of() {
    let pool = Servers::default();
    let secret = env(&[("KEY", "k3y-0f-m1ne")]);
    let script =
        "i=0; while [ $i -lt 5000 ]; do echo \"noise $i\" >&2; i=$((i+1)); done; echo \"bad ${KEY}\" >&2; exit 9";
    let server = pool.open(&shell(script), Path::new("/"), &secret, &[]).remove(0);
    for _ in 0..6 {
        server.start();
        server.settled().await;
    }
    let State::Down(why) = server.state() else { panic!("{:?}", server.state()) };
    assert!(why.starts_with("it ended (exit status: 9); it said: noise 4998 / noise 4999 / bad •••"), "{why}");
    assert!(why.ends_with("it was started again and again"), "{why}");
}

#[tokio::test]
async fn esc_is_heard_while_a_server_starts() {
    let pool = Servers::default();
    let server = pool.open(&shell("cat >/dev/null"), Path::new("/"), &env(&[]), &[]).remove(0);
    let cancel = CancellationToken::new();
    cancel.cancel();
    let (progress, _told) = mpsc::channel(1);
    let limit = Duration::from_secs(600);
    let call = Call { tool: "t", input: serde_json::Map::new(), limit, cancel: &cancel, progress };
    assert_eq!(server.call(call).await.unwrap_err(), CallError::Interrupted);
    assert_eq!(server.state(), State::Starting);
}
