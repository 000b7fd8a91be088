//! Disks that do not answer: a turn fails on them, and nobody else waits.

use crate::Scene;
use glrs_tests::{Reply, json};
use rustix::fs::{CWD, FileType, Mode, mknodat};
use std::fs::{self, OpenOptions};
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// A file that every turn's look reads, and that whoever reads it waits at until it is gone: a pipe
/// stands for a mount that is away.
struct Silent(PathBuf);

impl Silent {
    fn new(scene: &Scene) -> Self {
        let path = scene.home.sessions().with_file_name("trusted.json");
        mknodat(CWD, &path, FileType::Fifo, Mode::from_raw_mode(0o600), 0).unwrap();
        Self(path)
    }
}

impl Drop for Silent {
    fn drop(&mut self) {
        // A writer that comes and goes ends every wait.
        let writer = OpenOptions::new().read(true).write(true).open(&self.0);
        fs::remove_file(&self.0).unwrap();
        drop(writer);
    }
}

#[test]
fn esc_is_answered_while_the_directory_is_silent_and_the_message_stays() {
    let scene = Scene::plain();
    scene.fake.reply(Reply::say("zero"));
    scene.wire.turn(&scene.id, "nought");
    let silent = Silent::new(&scene);
    let sent = Instant::now();
    assert_eq!(scene.wire.send(&scene.id, "first word")["outcome"], "running");
    // Others are served: a second client attaches and sees it run.
    let other = scene.home.wire("other");
    let snapshot = other.attach(&scene.id, json!({}));
    assert_eq!(snapshot["state"]["name"], "running");
    assert_eq!(scene.wire.ok("session/interrupt", json!({"id": scene.id}))["outcome"], "interrupted");
    assert!(sent.elapsed() < Duration::from_secs(4), "it waits for the disk: {:?}", sent.elapsed());
    let view = scene.wire.wait_quiet(&scene.id);
    assert_eq!(view.last_status(), "interrupted");
    assert_eq!(scene.fake.count(), 1, "no request was made");
    drop(silent);
    scene.fake.reply(Reply::say("both"));
    scene.wire.turn(&scene.id, "second word");
    let sent = scene.fake.wait_request(2).raw;
    let at = |text: &str| sent.find(text).unwrap_or_else(|| panic!("{text} is missing: {sent}"));
    assert!(
        at("first word") < at("[The turn above was interrupted")
            && at("[The turn above was interrupted") < at("second word")
    );
    scene.fake.assert_clean();
}

#[test]
fn a_silent_directory_fails_the_turn_with_words_and_the_next_one_runs() {
    let scene = Scene::plain();
    scene.fake.reply(Reply::say("zero"));
    scene.wire.turn(&scene.id, "nought");
    let silent = Silent::new(&scene);
    scene.wire.send(&scene.id, "first word");
    let view = scene.wire.wait_view(&scene.id, "the turn's end", |v| v.last_status() == "failed" && v.quiet());
    let said = view.texts("error").join("\n");
    assert!(said.contains("does not answer") && said.contains("send again"), "{said}");
    drop(silent);
    scene.fake.reply(Reply::say("fine"));
    let view = scene.wire.turn(&scene.id, "second word");
    assert_eq!((view.last_status(), view.texts("assistant").last().copied()), ("done", Some("fine")));
    let sent = scene.fake.wait_request(2).raw;
    assert!(sent.contains("first word") && sent.contains("second word"), "{sent}");
    scene.fake.assert_clean();
}

#[test]
fn a_daemon_that_dies_while_the_directory_is_silent_has_lost_nothing() {
    let mut scene = Scene::plain();
    scene.fake.reply(Reply::say("zero"));
    scene.wire.turn(&scene.id, "nought");
    let silent = Silent::new(&scene);
    assert_eq!(scene.wire.send(&scene.id, "first word")["outcome"], "running");
    scene.daemon.kill9();
    drop(silent);
    let _daemon = scene.home.daemon();
    let wire = scene.home.wire("again");
    let snapshot = wire.attach(&scene.id, json!({"env": scene.home.env_json()}));
    assert_eq!(snapshot["state"]["name"], "idle");
    scene.fake.reply(Reply::say("both"));
    let view = wire.turn(&scene.id, "second word");
    assert_eq!(view.texts("user"), ["nought", "first word", "second word"]);
    let sent = scene.fake.wait_request(2).raw;
    assert_eq!(sent.matches("first word").count(), 1, "{sent}");
    scene.fake.assert_clean();
}

#[test]
fn a_request_waits_on_while_the_directory_is_silent_after_a_restart() {
    let mut scene = Scene::plain();
    scene.fake.reply(Reply::call("write", json!({"path": "a.txt", "content": "x"})));
    scene.wire.send(&scene.id, "write it");
    let request = scene.wire.request(&scene.id);
    scene.daemon.kill9();
    let silent = Silent::new(&scene);
    let _daemon = scene.home.daemon();
    let wire = scene.home.wire("again");
    wire.attach(&scene.id, json!({"env": scene.home.env_json()}));
    // Longer than a look may take.
    let gone = wire.sees(&scene.id, Duration::from_secs(6), |v| v.quiet());
    assert!(!gone, "the turn was given up: {:?}", wire.view(&scene.id).texts("error"));
    drop(silent);
    scene.fake.reply(Reply::say("written"));
    wire.answer(&scene.id, &request, "allow").unwrap();
    let view = wire.wait_quiet(&scene.id);
    assert_eq!((view.last_status(), view.texts("assistant").last().copied()), ("done", Some("written")));
    assert_eq!(fs::read_to_string(scene.home.file("a.txt")).unwrap(), "x");
    scene.fake.assert_clean();
}
