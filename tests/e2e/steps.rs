//! What rides on the steps of a turn, and how many there are.

use crate::{Scene, faked};
use glrs_tests::{Dialect, Reply, Value, json};
use std::fs;

/// A scene with more in its configuration.
fn configured(more: &Value) -> Scene {
    let (home, fake) = faked(Dialect::Anthropic);
    let mut config = fake.config();
    for (key, value) in more.as_object().unwrap() {
        config[key] = value.clone();
    }
    home.config(&config);
    let daemon = home.daemon();
    let wire = home.wire("ann");
    let id = wire.new_session(&home, json!({}));
    fs::write(home.file("a.txt"), "content").unwrap();
    Scene { id, wire, fake, daemon, home }
}

#[test]
fn vitals_ride_on_tool_rounds_only_and_are_recorded_nowhere() {
    for (config, shown) in
        [(json!({}), true), (json!({"deadlineMinutes": 30}), true), (json!({"vitals": false}), false)]
    {
        let scene = configured(&config);
        scene.fake.reply(Reply::call("read", json!({"path": "a.txt"})));
        scene.fake.reply(Reply::say("done"));
        let view = scene.wire.turn(&scene.id, "look");
        let requests = scene.fake.requests();
        let said = |n: usize| requests[n].body["messages"].to_string();
        assert!(!said(0).contains("[vitals]"), "{}", said(0));
        assert_eq!(said(1).contains("[vitals] local time "), shown, "{}", said(1));
        assert_eq!(said(1).contains("deadline in "), config["deadlineMinutes"].is_u64());
        if shown {
            // At the tail, behind the results: what stands before it stays the same for the cache.
            let last = requests[1].messages().last().unwrap().to_string();
            let at = |what: &str| last.rfind(what).unwrap_or(0);
            assert!(at("[vitals]") > at("tool_result"), "{last}");
        }
        assert_eq!(view.texts("user"), ["look"]);
        assert!(!view.entries.values().any(|e| e.to_string().contains("[vitals]")), "{:?}", view.entries);
        assert!(!fs::read_to_string(scene.home.log(&scene.id)).unwrap().contains("[vitals]"));
        // The next turn does not know of it either.
        scene.fake.reply(Reply::say("again"));
        scene.wire.turn(&scene.id, "more");
        assert!(!scene.fake.requests()[2].body["messages"].to_string().contains("[vitals]"));
        scene.fake.assert_clean();
    }
}

#[test]
fn the_last_step_is_forced_to_text_and_the_turn_settles_as_limit() {
    let scene = configured(&json!({"maxSteps": 3}));
    for _ in 0..2 {
        scene.fake.reply(Reply::call("read", json!({"path": "a.txt"})));
    }
    scene.fake.reply(Reply::say("so far"));
    let view = scene.wire.turn(&scene.id, "look");
    assert_eq!(view.last_status(), "limit");
    assert_eq!(view.texts("notice").last(), Some(&"(step limit reached: send \"continue\" to resume)"));
    assert_eq!(view.texts("assistant"), ["so far"]);
    let choices: Vec<bool> = scene.fake.requests().iter().map(|r| r.body["tool_choice"]["type"] == "none").collect();
    assert_eq!(choices, [false, false, true]);
    scene.fake.reply(Reply::say("the rest"));
    assert_eq!(scene.wire.turn(&scene.id, "continue").last_status(), "done");
    assert!(scene.fake.requests()[3].body["tool_choice"]["type"] != "none");
    scene.fake.assert_clean();
}
