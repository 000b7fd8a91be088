//! Every dialect against strict fakes: tools, reasoning, usage, failures, switching.

use crate::{KEY, Scene, faked, home};
use glrs_tests::fakes::reply::Figures;
use glrs_tests::{Dialect, Fake, Gate, Reply, Value, View, check, cli, json};
use std::fs;

fn text_of(messages: &[Value]) -> String {
    messages.iter().map(Value::to_string).collect()
}

/// The words of the last failure a person is shown.
fn failure(view: &View) -> String {
    (*view.texts("error").last().unwrap_or_else(|| panic!("no error entry: {view:#?}"))).to_owned()
}

#[test]
fn a_tool_round_trip_is_legal_and_its_result_reaches_the_model() {
    for dialect in Dialect::ALL {
        let scene = Scene::new(dialect, json!({}));
        fs::write(scene.home.file("a.txt"), "the content of a\n").unwrap();
        fs::write(scene.home.file("b.txt"), "the content of b\n").unwrap();
        let two = Reply::say("let me look").tool_call("read", json!({"path": "a.txt"}));
        scene.fake.reply(two.tool_call("read", json!({"path": "b.txt"})));
        scene.fake.reply(Reply::say("I have read them"));
        let view = scene.wire.turn(&scene.id, "read both");
        assert_eq!(view.texts("assistant"), ["let me look", "I have read them"]);
        let tools = view.of_type("tool");
        assert!(tools.len() == 2 && tools.iter().all(|t| t["ok"] == true && t["name"] == "read"), "{tools:?}");
        let requests = scene.fake.requests();
        let second = text_of(requests[1].messages());
        assert!(second.contains("the content of a") && second.contains("the content of b"), "{second}");
        assert_eq!(requests[0].body["tools"], requests[1].body["tools"]);
        assert!(requests.iter().all(|r| r.key.as_deref() == Some(KEY)));
        scene.fake.assert_clean();
        check::check_session(&scene.home.log(&scene.id)).clean();
    }
}

#[test]
fn the_system_prompt_is_byte_stable_and_history_only_grows() {
    for dialect in Dialect::ALL {
        let scene = Scene::new(dialect, json!({}));
        for i in 0..3 {
            scene.fake.reply(Reply::say(&format!("answer {i}")));
            scene.wire.turn(&scene.id, &format!("question {i}"));
        }
        let requests = scene.fake.requests();
        let system = |r: &glrs_tests::fakes::Recorded| without_marks(r.system());
        for pair in requests.windows(2) {
            assert_eq!(system(&pair[0]), system(&pair[1]));
            assert!(pair[0].messages().len() < pair[1].messages().len());
        }
        let last = text_of(requests[2].messages());
        assert!((0..3).all(|i| last.contains(&format!("question {i}"))) && last.contains("answer 1"), "{last}");
        scene.fake.assert_clean();
    }
}

/// A value without its cache marks, which move as the conversation grows.
fn without_marks(value: &Value) -> Value {
    match value {
        Value::Object(map) => {
            map.iter().filter(|(k, _)| *k != "cache_control").map(|(k, v)| (k.clone(), without_marks(v))).collect()
        }
        Value::Array(list) => list.iter().map(without_marks).collect(),
        other => other.clone(),
    }
}

#[test]
fn usage_counts_the_cached_part_the_same_in_every_dialect() {
    for dialect in Dialect::ALL {
        let scene = Scene::new(dialect, json!({}));
        let figures = Figures { input: 30, output: 7, cache_read: 60, cache_write: 0 };
        scene.fake.reply(Reply::say("counted").usage(figures));
        let view = scene.wire.turn(&scene.id, "go");
        let usage = view.of_type("usage")[0].clone();
        assert!(usage["cached"] == 60 && usage["input"] == 90 && usage["output"] == 7, "{usage}");
        assert!(usage["tokens"] == 97 && usage["model"] == "fake/m", "{usage}");
        assert_eq!(view.usage["contextTokens"], 97, "{}", view.usage);
        assert_eq!((&view.usage["window"], &view.usage["estimated"]), (&json!(100_000), &json!(false)));
        scene.fake.assert_clean();
    }
}

#[test]
fn anthropic_requests_mark_what_is_to_be_cached() {
    let scene = Scene::plain();
    scene.fake.reply(Reply::say("x"));
    scene.wire.turn(&scene.id, "go");
    assert!(scene.fake.requests()[0].body.to_string().contains("cache_control"));
}

#[test]
fn reasoning_is_shown_and_goes_back_with_its_signature() {
    let scene = Scene::plain();
    fs::write(scene.home.file("a.txt"), "x").unwrap();
    let thought = Reply::new().reasoning("first I read the file ", "c2lnbmF0dXJl");
    scene.fake.reply(thought.tool_call("read", json!({"path": "a.txt"})));
    scene.fake.reply(Reply::say("done"));
    let view = scene.wire.turn(&scene.id, "go");
    assert_eq!(view.texts("reasoning")[0].trim(), "first I read the file");
    assert!(text_of(scene.fake.requests()[1].messages()).contains("c2lnbmF0dXJl"));
    scene.fake.assert_clean();
}

#[test]
fn openai_reasoning_is_shown() {
    let scene = Scene::new(Dialect::OpenAi, json!({}));
    scene.fake.reply(Reply::new().reasoning("thinking aloud ", "").text("done"));
    let view = scene.wire.turn(&scene.id, "go");
    assert_eq!((view.texts("reasoning")[0].trim(), view.texts("assistant")[0]), ("thinking aloud", "done"));
    scene.fake.assert_clean();
}

#[test]
fn each_failure_has_its_own_words_and_the_session_lives_on() {
    for dialect in Dialect::ALL {
        let scene = Scene::new(dialect, json!({}));
        let html = "<html><head><title>Bad gateway</title></head><body>nginx</body></html>";
        let failures = [
            (Reply::error(dialect, 401, "authentication_error", "invalid x-api-key"), "401"),
            (Reply::error(dialect, 404, "not_found_error", "model: m"), "404"),
            (Reply::error(dialect, 500, "api_error", "Internal server error"), "500"),
            (Reply::http(502, "text/html", html), "502"),
            (Reply::http(200, "text/html", html), ""),
            (Reply::nothing(), ""),
        ];
        let mut seen = Vec::new();
        for (reply, status) in failures {
            let reply = reply.header("retry-after-ms", "1");
            scene.fake.answer_by(move |_| reply.clone());
            let view = scene.wire.turn(&scene.id, "try");
            let words = failure(&view);
            assert_eq!(view.last_status(), "failed", "{words}");
            assert!(words.contains(status), "{status}: {words}");
            assert!(!words.contains('<') && !words.contains(KEY), "{words}");
            assert!(!seen.contains(&words), "two failures share their words: {words}");
            seen.push(words);
        }
        scene.fake.answer_by(|_| Reply::say("well again"));
        let view = scene.wire.turn(&scene.id, "and now");
        assert_eq!((view.last_status(), view.texts("assistant").last().copied()), ("done", Some("well again")));
        scene.fake.assert_clean();
        check::check_session(&scene.home.log(&scene.id)).clean();
    }
}

#[test]
fn refusals_of_the_key_are_not_retried() {
    for dialect in Dialect::ALL {
        let scene = Scene::new(dialect, json!({}));
        scene.fake.answer_by(move |_| Reply::error(dialect, 401, "authentication_error", "invalid x-api-key"));
        let view = scene.wire.turn(&scene.id, "try");
        assert!(failure(&view).contains("FAKE_KEY"), "the words say what to set: {}", failure(&view));
        assert_eq!(scene.fake.count(), 1);
    }
}

#[test]
fn a_busy_provider_is_tried_again_with_the_same_messages() {
    for dialect in Dialect::ALL {
        let scene = Scene::new(dialect, json!({}));
        let busy = Reply::error(dialect, 429, "rate_limit_error", "slow down");
        scene.fake.reply(busy.header("retry-after-ms", "1"));
        scene.fake.reply(Reply::say("at last"));
        let view = scene.wire.turn(&scene.id, "go");
        assert_eq!((view.texts("assistant"), view.last_status()), (vec!["at last"], "done"));
        let requests = scene.fake.requests();
        assert_eq!(requests[0].raw, requests[1].raw);
        scene.fake.assert_clean();
    }
}

#[test]
fn a_stream_that_breaks_after_text_fails_the_turn_and_keeps_the_work() {
    for dialect in Dialect::ALL {
        for unfinished in [false, true] {
            let scene = Scene::new(dialect, json!({}));
            let gate = Gate::new();
            let reply = Reply::say("kept words ").gate(&gate);
            scene.fake.reply(if unfinished {
                reply.unfinished()
            } else {
                reply.error_event("overloaded_error", "Overloaded")
            });
            scene.wire.send(&scene.id, "go");
            scene.wire.wait_view(&scene.id, "the words", |v| v.streaming("assistant") == Some("kept words "));
            gate.open();
            let view = scene.wire.wait_quiet(&scene.id);
            let kept = view.of_type("assistant");
            assert!(kept[0]["partial"] == true && kept[0]["text"].as_str().unwrap().trim() == "kept words", "{kept:?}");
            assert_eq!((view.last_status(), scene.fake.count()), ("failed", 1));
            scene.fake.reply(Reply::say("on we go"));
            assert_eq!(scene.wire.turn(&scene.id, "again").last_status(), "done");
            scene.fake.assert_clean();
        }
    }
}

#[test]
fn a_connection_that_closes_mid_stream_fails_the_turn() {
    let scene = Scene::plain();
    scene.fake.reply(Reply::say(&"word ".repeat(200)).close_after(8000));
    let view = scene.wire.turn(&scene.id, "go");
    assert!(view.last_status() == "failed" && view.of_type("assistant")[0]["partial"] == true, "{view:#?}");
    assert_eq!(scene.fake.count(), 1);
}

#[test]
fn tool_input_cut_by_the_output_limit_is_never_run() {
    // Gemini gives calls whole: one that is cut does not come at all.
    for dialect in [Dialect::Anthropic, Dialect::OpenAi, Dialect::Responses] {
        let scene = Scene::new(dialect, json!({"mode": "all"}));
        let cut = Reply::say("writing").tool_text("write", r#"{"path":"cut.txt","content":"half of"#);
        scene.fake.reply(cut.stop(dialect.length()));
        scene.fake.answer_by(|_| Reply::say("so be it"));
        let view = scene.wire.turn(&scene.id, "go");
        assert!(!scene.home.file("cut.txt").exists());
        assert!(view.of_type("tool").iter().all(|t| t["ok"] == false));
        scene.wire.turn(&scene.id, "again");
        scene.fake.assert_clean();
        check::check_session(&scene.home.log(&scene.id)).clean();
    }
}

#[test]
fn input_that_is_no_json_and_tools_that_do_not_exist_get_an_error_result() {
    for dialect in Dialect::ALL {
        let scene = Scene::new(dialect, json!({"mode": "all"}));
        scene.fake.reply(Reply::new().tool_text("write", "{not json").tool_call("teleport", json!({"to": "mars"})));
        scene.fake.reply(Reply::say("I see"));
        let view = scene.wire.turn(&scene.id, "go");
        assert!(view.of_type("tool").iter().all(|t| t["ok"] == false), "{:?}", view.of_type("tool"));
        assert_eq!(view.last_status(), "done");
        scene.fake.assert_clean();
        check::check_session(&scene.home.log(&scene.id)).clean();
    }
}

#[test]
fn esc_ends_a_silent_provider_at_once() {
    let scene = Scene::plain();
    scene.fake.reply(Reply::say("never ends").hang_after(0));
    scene.wire.send(&scene.id, "go");
    scene.fake.wait_request(1);
    scene.wire.ok("session/interrupt", scene.with(json!({})));
    assert_eq!(scene.wire.wait_quiet(&scene.id).last_status(), "interrupted");
    scene.fake.wait_aborted(1);
}

#[test]
fn switching_providers_mid_session_keeps_every_context_legal() {
    let mut home = home();
    let (one, two) = (Fake::start(Dialect::Anthropic), Fake::start(Dialect::OpenAi));
    home.set_env("FAKE_KEY", KEY);
    home.config(&json!({"model": "one/m", "providers": {"one": one.provider(), "two": two.provider()}}));
    let _daemon = home.daemon();
    let wire = home.wire("ann");
    let id = wire.new_session(&home, json!({}));
    fs::write(home.file("a.txt"), "shared content").unwrap();
    let long = format!("toolu_{}", "x".repeat(50));
    one.reply(Reply::new().reasoning("hm ", "s1").tool_call("read", json!({"path": "a.txt"})).with_id(&long));
    one.reply(Reply::say("read on one"));
    wire.turn(&id, "first");
    wire.ok("session/set", json!({"id": id, "model": "two/m"}));
    two.reply(Reply::call("read", json!({"path": "a.txt"})).with_id("call:odd|id"));
    two.reply(Reply::say("read on two"));
    wire.turn(&id, "second");
    wire.ok("session/set", json!({"id": id, "model": "one/n"}));
    one.reply(Reply::say("back on one"));
    let view = wire.turn(&id, "third");
    assert_eq!(view.texts("assistant"), ["read on one", "read on two", "back on one"]);
    assert_eq!(view.info["model"], "one/n");
    assert!(text_of(two.requests()[0].messages()).contains("shared content"));
    assert_eq!(one.requests().last().unwrap().body["model"], "n");
    one.assert_clean();
    two.assert_clean();
}

#[test]
fn a_missing_key_names_its_variable_and_sends_nothing() {
    let home = home();
    let fake = Fake::start(Dialect::OpenAi);
    home.config(&fake.config());
    let _daemon = home.daemon();
    let wire = home.wire("ann");
    let id = wire.new_session(&home, json!({}));
    let words = match wire.call("session/send", json!({"id": id, "text": "go"})) {
        Err(error) => error["message"].as_str().unwrap().to_owned(),
        Ok(_) => failure(&wire.wait_view(&id, "a failed turn", |v| v.quiet() && !v.texts("error").is_empty())),
    };
    assert!(words.contains("FAKE_KEY"), "{words}");
    assert_eq!(fake.count(), 0);
    assert!(cli(&home, ["-p", "go"]).code(1).stderr.contains("FAKE_KEY"));
}

#[test]
fn keys_come_from_the_client_not_from_the_shell_that_started_the_daemon() {
    let (mut home, fake) = faked(Dialect::Anthropic);
    home.set_env("FAKE_KEY", "of-the-daemon");
    let _daemon = home.daemon();
    fake.answer_by(|_| Reply::say("x"));
    home.set_env("FAKE_KEY", "of-the-client");
    cli(&home, ["-p", "go"]).ok();
    assert_eq!(fake.requests()[0].key.as_deref(), Some("of-the-client"));
}

#[test]
fn a_local_server_needs_no_key() {
    let home = home();
    let fake = Fake::keyless(Dialect::OpenAi);
    home.config(&fake.config());
    fake.answer_by(|_| Reply::say("local words"));
    assert_eq!(cli(&home, ["-p", "go"]).ok().stdout.trim(), "local words");
    fake.assert_clean();
}

#[test]
fn the_catalogue_lists_configured_models_and_what_they_miss() {
    let (home, _fake) = faked(Dialect::Anthropic);
    let _daemon = home.daemon();
    let wire = home.wire("ann");
    let list = wire.ok("catalog/models", json!({}));
    let rows = list["models"].as_array().unwrap();
    let row = |name: &str| rows.iter().find(|r| r["model"] == name).unwrap_or_else(|| panic!("{name}: {list}"));
    assert_eq!((&row("fake/m")["context"], &row("fake/m")["output"]), (&json!(100_000), &json!(4096)));
    assert_eq!(row("builtin/rehearsal")["ready"], true);
    assert_eq!(list["default"], "fake/m");
}

#[test]
fn a_model_nobody_knows_is_asked_for_no_output_limit() {
    for (dialect, model) in [
        (Dialect::OpenAi, "gpt-4o"),
        (Dialect::Responses, "gpt-4o"),
        (Dialect::Gemini, "gemini-9"),
        (Dialect::Anthropic, "claude-9"),
    ] {
        let scene = Scene::new(dialect, json!({}));
        scene.wire.ok("session/set", scene.with(json!({"model": format!("fake/{model}")})));
        scene.fake.reply(Reply::say("as much as I can"));
        let view = scene.wire.turn(&scene.id, "go");
        assert_eq!(view.last_status(), "done", "{:?}", view.texts("error"));
        let body = scene.fake.requests()[0].body.clone();
        let asked = ["max_tokens", "max_completion_tokens", "max_output_tokens"].map(|k| body[k].as_u64());
        let asked = asked.into_iter().flatten().next().or(body["generationConfig"]["maxOutputTokens"].as_u64());
        assert_eq!(asked, (dialect == Dialect::Anthropic).then_some(8_192), "{body}");
        scene.fake.assert_clean();
    }
}

#[test]
fn efforts_that_a_model_does_not_have_are_refused_or_told_of() {
    let (home, fake) = faked(Dialect::OpenAi);
    let mut config = fake.config();
    config["providers"]["fake"]["models"]["m"]["metadata"]["variants"] = json!(["low", "high"]);
    config["variant"] = json!("ultra");
    home.config(&config);
    let _daemon = home.daemon();
    let wire = home.wire("ann");
    let id = wire.new_session(&home, json!({}));
    fake.answer_by(|_| Reply::say("x"));
    let view = wire.turn(&id, "go");
    let told = view.texts("notice").concat();
    assert!(told.contains("ultra") && told.contains("low, high"), "{told}");
    assert!(view.info["variant"].is_null(), "{:?}", view.info);
    for (method, more) in
        [("session/set", json!({"id": id})), ("session/new", json!({"cwd": home.work(), "env": home.env()}))]
    {
        let with = |variant: &str| {
            let mut params = more.clone();
            params["variant"] = json!(variant);
            wire.call(method, params)
        };
        let words = with("extreme").unwrap_err()["message"].as_str().unwrap().to_owned();
        assert!(words.contains("extreme") && words.contains("low, high"), "{method}: {words}");
        assert_eq!(with("high").unwrap()["session"]["variant"], "high", "{method}");
        assert!(with("none").unwrap()["session"]["variant"].is_null(), "{method}");
    }
    assert_eq!(wire.turn(&id, "again").texts("notice").len(), view.texts("notice").len(), "told once");
    // Of another model nothing is known: it takes what it is given.
    wire.ok("session/set", json!({"id": id, "model": "fake/n", "variant": "extreme"}));
    wire.turn(&id, "go");
    let asked: Vec<Value> = fake.requests().into_iter().map(|r| r.body["reasoning_effort"].clone()).collect();
    assert_eq!(asked, [Value::Null, Value::Null, json!("extreme")]);
    fake.assert_clean();
}

#[test]
fn a_model_that_is_chosen_during_a_turn_counts_from_the_next_one_on() {
    let mut home = home();
    let (one, two) = (Fake::start(Dialect::Anthropic), Fake::start(Dialect::OpenAi));
    home.set_env("FAKE_KEY", KEY);
    home.config(&json!({"model": "one/claude-opus-5-5", "providers": {"one": one.provider(), "two": two.provider()}}));
    let _daemon = home.daemon();
    let wire = home.wire("ann");
    let id = wire.new_session(&home, json!({"variant": "high"}));
    fs::write(home.file("a.txt"), "x").unwrap();
    let gate = Gate::new();
    let first = Reply::new().reasoning("hm ", "s1").gate(&gate);
    one.reply(first.tool_call("read", json!({"path": "a.txt"})));
    one.reply(Reply::new().reasoning("so ", "s2").text("read"));
    wire.send(&id, "go");
    gate.wait_reached();
    wire.ok("session/set", json!({"id": id, "model": "two/m", "variant": "low"}));
    gate.open();
    let view = wire.wait_quiet(&id);
    assert_eq!(view.info["model"], "two/m");
    let bodies: Vec<Value> = one.requests().into_iter().map(|r| r.body).collect();
    assert_eq!(bodies.len(), 2, "{:?} {:?}", view.texts("error"), two.violations());
    assert!(
        bodies.iter().all(|b| b["output_config"]["effort"] == "high" && b["model"] == "claude-opus-5-5"),
        "{bodies:?}"
    );
    assert!(view.of_type("usage").iter().all(|u| u["model"] == "one/claude-opus-5-5"), "{view:#?}");
    assert!(view.of_type("reasoning").iter().all(|r| r["variant"] == "high"), "{view:#?}");
    two.reply(Reply::say("here"));
    let view = wire.turn(&id, "and now?");
    assert_eq!(view.of_type("usage").last().unwrap()["model"], "two/m");
    assert_eq!(two.requests()[0].body["reasoning_effort"], "low");
    one.assert_clean();
    two.assert_clean();
}

#[test]
fn a_turn_that_fails_is_booked_to_the_model_it_ran_on() {
    let mut home = home();
    let (one, two) = (Fake::start(Dialect::Anthropic), Fake::start(Dialect::OpenAi));
    home.set_env("FAKE_KEY", KEY);
    home.config(&json!({"model": "one/m", "providers": {"one": one.provider(), "two": two.provider()}}));
    let _daemon = home.daemon();
    let wire = home.wire("ann");
    let id = wire.new_session(&home, json!({}));
    let gate = Gate::new();
    one.reply(Reply::say("half ").gate(&gate).error_event("overloaded_error", "Overloaded"));
    wire.send(&id, "go");
    gate.wait_reached();
    wire.ok("session/set", json!({"id": id, "model": "two/m"}));
    gate.open();
    let view = wire.wait_quiet(&id);
    assert_eq!((view.last_status(), &view.of_type("usage")[0]["model"]), ("failed", &json!("one/m")));
}

#[test]
fn a_subscription_that_runs_out_is_in_the_vitals() {
    for (dialect, names) in [
        (
            Dialect::Anthropic,
            ["anthropic-ratelimit-unified-5h-utilization", "anthropic-ratelimit-unified-7d-utilization"],
        ),
        (Dialect::Responses, ["x-codex-primary-used-percent", "x-codex-secondary-used-percent"]),
    ] {
        let scene = Scene::new(dialect, json!({}));
        fs::write(scene.home.file("a.txt"), "x").unwrap();
        let scale = |percent: f64| if dialect == Dialect::Anthropic { percent / 100.0 } else { percent };
        for used in [79.0, 85.0, 91.0] {
            let reply = Reply::call("read", json!({"path": "a.txt"}));
            scene
                .fake
                .reply(reply.header(names[0], &scale(used).to_string()).header(names[1], &scale(12.0).to_string()));
        }
        // One that says nothing of it.
        scene.fake.reply(Reply::call("read", json!({"path": "a.txt"})));
        scene.fake.reply(Reply::say("done"));
        scene.wire.turn(&scene.id, "go");
        let vitals: Vec<String> = scene
            .fake
            .requests()
            .iter()
            .skip(1)
            .map(|r| r.raw[r.raw.rfind("[vitals]").expect("vitals")..].chars().take(120).collect())
            .collect();
        assert!(!vitals[0].contains("subscription") && !vitals[3].contains("subscription"), "{vitals:?}");
        assert!(vitals[1].contains("subscription 85 % of ") && !vitals[1].contains("high"), "{vitals:?}");
        assert!(vitals[2].contains("subscription 91 % of ") && vitals[2].contains("(high)"), "{vitals:?}");
        assert!(vitals.iter().all(|v| !v.contains("12 %")), "{vitals:?}");
        scene.fake.assert_clean();
    }
}

#[test]
fn what_the_cache_gave_is_shown() {
    let scene = Scene::plain();
    let figures = Figures { input: 30, output: 7, cache_read: 60, cache_write: 0 };
    scene.fake.reply(Reply::say("counted").usage(figures));
    scene.wire.turn(&scene.id, "go");
    let shown = || cli(&scene.home, ["sessions", "show", scene.id.as_str()]).ok().stdout;
    assert!(shown().contains("90 in (66 % cached), 7 out, 1 call"), "{}", shown());
    let json = cli(&scene.home, ["sessions", "show", scene.id.as_str(), "--json"]).ok().json();
    assert_eq!(json["usage"]["cached"], 60, "{json}");
    let Scene { id, wire, home, mut daemon, .. } = scene;
    drop(wire);
    daemon.kill9();
    let _daemon = home.daemon();
    let shown = cli(&home, ["sessions", "show", id.as_str()]).ok().stdout;
    assert!(shown.contains("66 % cached"), "of one that was not in memory: {shown}");
}

#[test]
fn the_list_of_models_says_how_old_it_is_and_what_each_costs() {
    let (home, fake) = faked(Dialect::Anthropic);
    let mut config = fake.config();
    config["providers"]["fake"]["models"]["m"]["metadata"]["inputCost"] = json!(2.5);
    config["providers"]["fake"]["models"]["m"]["metadata"]["outputCost"] = json!(10);
    home.config(&config);
    let listed = cli(&home, ["models"]).ok();
    let row = listed.stdout.lines().find(|l| l.contains("fake/m")).unwrap().to_owned();
    assert!(row.starts_with('*') && row.contains("$2.5/$10") && row.contains("100k"), "{row}");
    assert!(listed.stderr.contains("built-in table of 20"), "{}", listed.stderr);
}
