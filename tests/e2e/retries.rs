//! Trouble that passes and trouble that does not: how often a request is made, and what is seen meanwhile.

use crate::Scene;
use glrs_tests::{Dialect, Reply, Value, json};

/// Longer than any test waits.
const LONG: &str = "50";

#[test]
fn what_never_recovers_is_asked_four_times_a_message() {
    let never = |dialect: Dialect, status: u16, kind: &'static str| {
        let scene = Scene::new(dialect, json!({}));
        scene.fake.answer_by(move |_| Reply::error(dialect, status, kind, "not now").header("retry-after-ms", "1"));
        for message in 1..=2 {
            let view = scene.wire.turn(&scene.id, "go");
            assert_eq!((view.last_status(), scene.fake.count()), ("failed", 4 * message), "{dialect:?} {status}");
        }
        let requests = scene.fake.requests();
        assert!(requests[..4].iter().all(|r| r.raw == requests[0].raw), "the same request each time");
        scene.fake.assert_clean();
    };
    // Each waits a little between its requests.
    std::thread::scope(|s| {
        for dialect in Dialect::ALL {
            for (status, kind) in [(500, "api_error"), (429, "rate_limit_error")] {
                s.spawn(move || never(dialect, status, kind));
            }
        }
    });
}

/// Seconds of the day in an RFC 3339 time.
fn seconds(at: &Value) -> i64 {
    let time = at.as_str().unwrap().split_once('T').unwrap().1;
    time.split([':', '.', 'Z']).take(3).fold(0, |sum, part| sum * 60 + part.parse::<i64>().unwrap())
}

#[test]
fn a_wait_is_seen_with_its_time_and_esc_ends_it() {
    for dialect in Dialect::ALL {
        let scene = Scene::new(dialect, json!({}));
        scene.fake.reply(Reply::error(dialect, 429, "rate_limit_error", "slow down").header("retry-after", LONG));
        scene.wire.send(&scene.id, "go");
        let view = scene.wire.wait_view(&scene.id, "the wait", |v| v.state["retry"].is_object());
        // Who comes later sees it as well.
        let later = scene.join("bob").view(&scene.id).state["retry"].clone();
        let retry = &view.state["retry"];
        assert_eq!((&later, &retry["attempt"]), (retry, &json!(2)));
        assert!(retry["reason"].as_str().unwrap().contains("429"), "{retry}");
        let wait = (seconds(&retry["at"]) - seconds(&view.state["since"])).rem_euclid(86_400);
        assert!((50..80).contains(&wait), "{wait} {:?}", view.state);
        scene.wire.ok("session/interrupt", scene.with(json!({})));
        let view = scene.wire.wait_quiet(&scene.id);
        assert_eq!((view.last_status(), scene.fake.count()), ("interrupted", 1));
        assert!(view.state["retry"].is_null(), "{:?}", view.state);
        scene.fake.reply(Reply::say("at once"));
        assert_eq!(scene.wire.turn(&scene.id, "again").last_status(), "done");
        scene.fake.assert_clean();
    }
}

#[test]
fn a_wait_that_only_the_words_name_is_kept() {
    for dialect in [Dialect::OpenAi, Dialect::Responses] {
        let scene = Scene::new(dialect, json!({}));
        let busy = |wait: &str| {
            let words = format!("Rate limit reached for gpt-5 on tokens per min (TPM). Please try again in {wait}.");
            Reply::error(dialect, 429, "rate_limit_exceeded", &words)
        };
        scene.fake.reply(busy("3ms"));
        scene.fake.reply(Reply::say("at last"));
        assert_eq!(scene.wire.turn(&scene.id, "go").texts("assistant"), ["at last"]);
        // Longer than a turn waits in silence.
        scene.fake.reply(busy("7m12s"));
        let view = scene.wire.turn(&scene.id, "again");
        let words = view.texts("error").last().map(|w| (*w).to_owned()).unwrap_or_default();
        assert!(words.contains("8 min") && scene.fake.count() == 3, "{words}");
        scene.fake.assert_clean();
    }
}
