//! What comes with a message: images by path and inline, texts, what cannot go along, and that the
//! conversation keeps what it was given.

use crate::{KEY, Scene, home};
use glrs_tests::{Dialect, Fake, PATIENCE, Reply, Value, check, json};
use std::fs;

/// An image of one pixel, and its base64.
const PNG: &[u8] = &[
    0x89, b'P', b'N', b'G', 0x0d, 0x0a, 0x1a, 0x0a, 0, 0, 0, 0x0d, b'I', b'H', b'D', b'R', 0, 0, 0, 1, 0, 0, 0, 1, 8,
    6, 0, 0, 0, 0x1f, 0x15, 0xc4, 0x89,
];
const PNG64: &str = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJ";
const GIF64: &str = "R0lGODlhAQABAIAAAAUEBAAAACw=";

fn send(scene: &Scene, text: &str, attachments: Value) -> Result<Value, Value> {
    scene.wire.call("session/send", scene.with(json!({"text": text, "attachments": attachments})))
}

/// Sends and waits until the turn is over.
fn turn(scene: &Scene, text: &str, attachments: Value) -> glrs_tests::View {
    scene.fake.reply(Reply::say("seen"));
    send(scene, text, attachments).unwrap_or_else(|e| panic!("{e}"));
    scene.wire.wait_quiet(&scene.id)
}

#[test]
fn an_image_goes_to_the_model_and_stays_whatever_becomes_of_its_file() {
    for dialect in Dialect::ALL {
        let mut scene = Scene::new(dialect, json!({}));
        // The name lies: bytes tell what it is.
        fs::write(scene.home.file("pic.txt"), PNG).unwrap();
        let given = json!([{"path": "pic.txt"}, {"path": "b", "mediaType": "image/gif", "data": GIF64}]);
        let view = turn(&scene, "look", given);
        assert_eq!(view.last_status(), "done", "{:?}", scene.fake.violations());
        fs::remove_file(scene.home.file("pic.txt")).unwrap();
        turn(&scene, "again", json!([]));
        scene.daemon.kill9();
        scene.daemon = scene.home.daemon();
        scene.wire = scene.home.wire("ann");
        scene.wire.attach(&scene.id, json!({"env": scene.home.env_json()}));
        turn(&scene, "and again", json!([]));
        let requests = scene.fake.requests();
        assert_eq!(requests.len(), 3);
        for request in requests {
            let raw = request.raw;
            assert!(raw.contains(PNG64) && raw.contains("image/png"), "{dialect:?}: {raw}");
            assert!(raw.contains(GIF64) && raw.contains("image/gif"), "{dialect:?}: {raw}");
        }
        scene.fake.assert_clean();
        check::check_session(&scene.home.log(&scene.id)).clean();
    }
}

#[test]
fn an_image_survives_the_end_of_the_daemon_in_its_first_step() {
    let mut scene = Scene::plain();
    fs::write(scene.home.file("pic.png"), PNG).unwrap();
    let gate = glrs_tests::Gate::new();
    scene.fake.reply(Reply::say("never said").held_back(&gate));
    send(&scene, "behold", json!([{"path": "pic.png"}])).unwrap();
    scene.fake.wait_request(1);
    scene.daemon.kill9();
    gate.open();
    fs::remove_file(scene.home.file("pic.png")).unwrap();
    scene.daemon = scene.home.daemon();
    scene.wire = scene.home.wire("ann");
    scene.wire.attach(&scene.id, json!({"env": scene.home.env_json()}));
    turn(&scene, "now?", json!([]));
    let last = scene.fake.requests().pop().unwrap().raw;
    assert!(last.contains(PNG64) && last.matches("behold").count() == 1, "{last}");
    check::check_session(&scene.home.log(&scene.id)).clean();
}

#[test]
fn a_model_without_images_is_told_and_the_next_one_sees_them() {
    for (blind, seeing) in [(Dialect::OpenAi, Dialect::Anthropic), (Dialect::Gemini, Dialect::Responses)] {
        let mut home = home();
        home.set_env("FAKE_KEY", KEY);
        let (fake, other) = (Fake::start(blind), Fake::start(seeing));
        let mut config = fake.config();
        config["providers"]["fake"]["models"]["m"]["metadata"]["images"] = json!(false);
        config["providers"]["other"] = other.provider();
        home.config(&config);
        let daemon = home.daemon();
        let wire = home.wire("ann");
        let id = wire.new_session(&home, json!({}));
        fs::write(home.file("pic.png"), PNG).unwrap();
        let scene = Scene { id, wire, fake, daemon, home };
        let view = turn(&scene, "look", json!([{"path": "pic.png"}]));
        assert!(view.texts("notice").iter().any(|n| n.contains("takes no images")), "{:?}", view.texts("notice"));
        let raw = scene.fake.requests()[0].raw.clone();
        assert!(!raw.contains(PNG64) && raw.contains("not given images"), "{raw}");
        scene.wire.ok("session/set", scene.with(json!({"model": "other/m"})));
        other.reply(Reply::say("now I see"));
        let view = scene.wire.turn(&scene.id, "and you?");
        assert_eq!(view.texts("assistant").last(), Some(&"now I see"));
        assert!(other.requests()[0].raw.contains(PNG64));
        scene.fake.assert_clean();
        other.assert_clean();
    }
}

#[test]
fn what_cannot_go_along_is_refused_before_it_is_a_message() {
    let scene = Scene::plain();
    let mut huge = PNG.to_vec();
    huge.resize(5 * 1024 * 1024 + 1, 0);
    fs::write(scene.home.file("huge.png"), &huge).unwrap();
    huge.pop();
    fs::write(scene.home.file("large.png"), &huge).unwrap();
    for (kind, attachment) in [
        ("not_found", json!({"path": "gone.png"})),
        ("limit", json!({"path": "huge.png"})),
        ("invalid_params", json!({"path": "x", "mediaType": "image/png", "data": "no base64!"})),
        ("invalid_params", json!({"path": "x", "mediaType": "image/png", "data": "QUI"})),
        ("invalid_params", json!({"path": "x", "mediaType": "image/png", "data": ""})),
        ("invalid_params", json!({"path": "x", "mediaType": "image/jpeg", "data": PNG64})),
        ("invalid_params", json!({"path": "x", "mediaType": "image/tiff", "data": PNG64})),
        ("invalid_params", json!({"path": "x", "data": PNG64})),
        ("invalid_params", json!({"path": "x", "mediaType": 7})),
    ] {
        let params = scene.with(json!({"text": "hi", "attachments": [{"path": "large.png"}, attachment]}));
        let error = scene.wire.fails(kind, "session/send", params);
        assert!(!error["message"].as_str().unwrap_or_default().contains(PNG64), "{error}");
    }
    let three = json!([{"path": "large.png"}, {"path": "large.png"}, {"path": "large.png"}]);
    scene.wire.fails("limit", "session/send", scene.with(json!({"text": "hi", "attachments": three})));
    assert_eq!(scene.fake.count(), 0);
    let view = scene.wire.view(&scene.id);
    assert!(view.of_type("user").is_empty() && view.quiet());
}

#[test]
fn what_is_no_use_as_it_is_or_changed_meanwhile_is_said_to_both_sides() {
    let scene = Scene::plain();
    let put = |name: &str, bytes: &[u8]| fs::write(scene.home.file(name), bytes).unwrap();
    put("a.txt", "plain words".as_bytes());
    put("odd.bin", b"a\0b");
    put("long.txt", &vec![b'x'; 300_000]);
    put("pic.png", PNG);
    put("goes.png", PNG);
    fs::create_dir(scene.home.file("sub")).unwrap();
    let gate = glrs_tests::Gate::new();
    scene.fake.reply(Reply::say("first").held_back(&gate));
    scene.wire.send(&scene.id, "first");
    scene.fake.wait_request(1);
    let names = ["a.txt", "odd.bin", "long.txt", "pic.png", "goes.png", "sub"];
    let files: Vec<Value> = names.iter().map(|n| json!({ "path": n })).collect();
    let inline = json!({"path": "notes", "data": "aW5saW5lIHdvcmRz"});
    scene.fake.reply(Reply::say("second"));
    let sent = send(&scene, "second", json!([files.as_slice(), &[inline]].concat())).unwrap();
    assert_eq!(sent["outcome"], "queued");
    fs::remove_file(scene.home.file("goes.png")).unwrap();
    gate.open();
    let view = scene.wire.wait_view(&scene.id, "both are answered", |v| v.quiet() && v.texts("assistant").len() == 2);
    let raw = scene.fake.wait_request(2).raw;
    for told in [
        "plain words",
        "a binary file",
        "too large to attach",
        PNG64,
        "could not be read",
        "a directory",
        "inline words",
    ] {
        assert!(raw.contains(told), "{told}: {raw}");
    }
    let notices = view.texts("notice").join("\n");
    for name in ["odd.bin", "long.txt", "goes.png"] {
        assert!(notices.contains(name), "{name}: {notices}");
    }
    assert!(!notices.contains("pic.png") && !notices.contains("a.txt"), "{notices}");
    scene.fake.assert_clean();
}

#[test]
fn images_come_along_with_words_that_join_a_running_turn() {
    for all in [false, true] {
        let mut home = home();
        home.set_env("FAKE_KEY", KEY);
        let fake = Fake::start(Dialect::Anthropic);
        let mut config = fake.config();
        config["steeringMode"] = json!(if all { "all" } else { "one-at-a-time" });
        home.config(&config);
        let daemon = home.daemon();
        let wire = home.wire("ann");
        let id = wire.new_session(&home, json!({"mode": "all"}));
        let scene = Scene { id, wire, fake, daemon, home };
        fs::write(scene.home.file("a.txt"), "x").unwrap();
        let gate = glrs_tests::Gate::new();
        scene.fake.reply(Reply::call("read", json!({"path": "a.txt"})).held_back(&gate));
        scene.wire.send(&scene.id, "go");
        scene.fake.wait_request(1);
        for (text, type_, data) in [("this", "image/png", PNG64), ("and this", "image/gif", GIF64)] {
            let image = json!([{"path": text, "mediaType": type_, "data": data}]);
            let params = scene.with(json!({"text": text, "mode": "steer", "attachments": image}));
            assert_eq!(scene.wire.ok("session/send", params)["outcome"], "steering");
        }
        for _ in 0..2 {
            scene.fake.reply(Reply::call("read", json!({"path": "a.txt"})));
        }
        scene.fake.reply(Reply::say("done"));
        gate.open();
        let quiet = scene.wire.sees(&scene.id, PATIENCE, |v| v.quiet() && v.texts("assistant").contains(&"done"));
        assert!(quiet, "{:?}", scene.fake.violations());
        let second = scene.fake.requests()[1].raw.clone();
        let last = scene.fake.requests().pop().unwrap().raw;
        assert!(second.contains(PNG64) && second.contains(GIF64) == all, "{second}");
        assert!(last.contains(PNG64) && last.contains(GIF64), "{last}");
        scene.fake.assert_clean();
        check::check_session(&scene.home.log(&scene.id)).clean();
    }
}
