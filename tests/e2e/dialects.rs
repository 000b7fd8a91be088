//! What is particular to Responses and Gemini, and going from any dialect to any other in one session.

use crate::{KEY, Scene, home};
use glrs_tests::fakes::gemini::UNSIGNED;
use glrs_tests::{Daemon, Dialect, Fake, Home, Reply, Value, View, Wire, check, cli, json};
use std::collections::BTreeMap;
use std::fs;

/// The two that keep sealed reasoning beside their blocks, with the model that is strictest about it.
const SEALING: [(Dialect, &str); 2] = [(Dialect::Responses, "fake/m"), (Dialect::Gemini, "fake/gemini-3-m")];

/// A session on that model of a fake, with two files to read.
fn scene(dialect: Dialect, model: &str) -> Scene {
    let scene = Scene::new(dialect, json!({"mode": "all"}));
    scene.wire.ok("session/set", scene.with(json!({ "model": model })));
    for name in ["a.txt", "b.txt"] {
        fs::write(scene.home.file(name), format!("content of {name}\n")).unwrap();
    }
    scene
}

/// Reads a file in the first step, with sealed thoughts before it.
fn reads(file: &str, thought: &str, seal: &str) -> Reply {
    Reply::new().reasoning(thought, seal).tool_call("read", json!({ "path": file }))
}

fn failure(view: &View) -> String {
    view.texts("error").last().map(|e| (*e).to_owned()).unwrap_or_default()
}

#[test]
fn sealed_reasoning_goes_back_in_each_step_and_turn() {
    for (dialect, model) in SEALING {
        let s = scene(dialect, model);
        s.fake.reply(reads("a.txt", "first I look ", "seal+/1=="));
        s.fake.reply(reads("b.txt", "then the other ", "seal+/2=="));
        s.fake.reply(Reply::say("both read"));
        let view = s.wire.turn(&s.id, "go");
        assert_eq!(
            view.texts("reasoning").iter().map(|t| t.trim()).collect::<Vec<_>>(),
            ["first I look", "then the other"]
        );
        assert!(view.of_type("tool").iter().all(|t| t["ok"] == true), "{view:#?}");
        s.fake.reply(Reply::say("again"));
        s.wire.turn(&s.id, "and now?");
        let raw: Vec<String> = s.fake.requests().into_iter().map(|r| r.raw).collect();
        assert!(raw[1].contains("seal+/1==") && !raw[1].contains("seal+/2=="), "{}", raw[1]);
        for later in &raw[2..] {
            assert!(later.contains("seal+/1==") && later.contains("seal+/2=="), "{later}");
        }
        assert!(raw[3].contains("content of b.txt") && !raw[3].contains(UNSIGNED));
        s.fake.assert_clean();
        check::check_session(&s.home.log(&s.id)).clean();
    }
}

#[test]
fn calls_at_once_are_all_answered_in_one_request() {
    for (dialect, model) in SEALING {
        let s = scene(dialect, model);
        let three = reads("a.txt", "all at once ", "seal1").tool_call("read", json!({"path": "b.txt"}));
        s.fake.reply(three.tool_call("glob", json!({"pattern": "*.txt"})));
        s.fake.reply(Reply::say("three results"));
        let view = s.wire.turn(&s.id, "go");
        assert_eq!((view.of_type("tool").len(), view.last_status(), s.fake.count()), (3, "done", 2));
        let second = &s.fake.requests()[1].raw;
        assert!(second.contains("content of a.txt") && second.contains("content of b.txt"), "{second}");
        s.fake.assert_clean();
    }
}

#[test]
fn a_session_survives_the_daemon_with_its_seals() {
    for (dialect, model) in SEALING {
        let mut s = scene(dialect, model);
        s.fake.reply(reads("a.txt", "hm ", "kept+seal="));
        s.fake.reply(Reply::say("read"));
        s.wire.turn(&s.id, "go");
        s.daemon.kill9();
        let daemon = s.home.daemon();
        let wire = s.home.wire("ann");
        wire.attach(&s.id, json!({"env": s.home.env_json()}));
        s.fake.reply(Reply::say("still here"));
        assert_eq!(wire.turn(&s.id, "and?").last_status(), "done");
        assert!(s.fake.requests()[2].raw.contains("kept+seal="));
        s.fake.assert_clean();
        drop(daemon);
    }
}

#[test]
fn the_output_limit_and_refusals_have_their_words() {
    for (dialect, model) in SEALING {
        let s = scene(dialect, model);
        s.fake.reply(Reply::say("as far as").stop(dialect.length()));
        let view = s.wire.turn(&s.id, "long");
        assert!(view.texts("notice").iter().any(|n| n.contains("output limit")), "{view:#?}");
        let word = if dialect == Dialect::Gemini { "SAFETY" } else { "content_filter" };
        s.fake.reply(Reply::new().stop(word));
        let view = s.wire.turn(&s.id, "bad");
        assert!(failure(&view).contains(&word.to_ascii_lowercase()), "{}", failure(&view));
        s.fake.reply(Reply::say("fine"));
        assert_eq!(s.wire.turn(&s.id, "good").last_status(), "done");
        s.fake.assert_clean();
    }
}

#[test]
fn a_prompt_that_is_blocked_is_said_to_be() {
    let s = scene(Dialect::Gemini, "fake/gemini-3-m");
    s.fake.reply(
        Reply::new().raw("data: {\"promptFeedback\":{\"blockReason\":\"PROHIBITED_CONTENT\"}}\r\n\r\n").unfinished(),
    );
    let view = s.wire.turn(&s.id, "go");
    assert!(failure(&view).contains("prompt blocked: prohibited_content"), "{}", failure(&view));
    assert_eq!(s.fake.count(), 1, "asking again would not help");
}

#[test]
fn a_call_the_model_garbled_is_asked_for_again() {
    let s = scene(Dialect::Gemini, "fake/gemini-3-m");
    // The wait before it is short only where the provider says so; this one is half a second at least.
    s.fake.reply(Reply::new().stop("MALFORMED_FUNCTION_CALL"));
    s.fake.reply(Reply::say("better"));
    let view = s.wire.turn(&s.id, "go");
    assert_eq!((view.texts("assistant"), s.fake.count()), (vec!["better"], 2));
    s.fake.assert_clean();
}

#[test]
fn waits_that_google_asks_for_in_the_body_are_kept() {
    let s = scene(Dialect::Gemini, "fake/gemini-3-m");
    let info = json!({"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": "0.01s"});
    let error = |info| json!({"error": {"code": 429, "message": "Quota exceeded", "status": "RESOURCE_EXHAUSTED", "details": [info]}});
    s.fake.reply(Reply::http(429, "application/json", &error(info).to_string()));
    s.fake.reply(Reply::say("at last"));
    assert_eq!(s.wire.turn(&s.id, "go").texts("assistant"), ["at last"]);
    let long = json!({"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": "7200s"});
    s.fake.reply(Reply::http(429, "application/json", &error(long).to_string()));
    let view = s.wire.turn(&s.id, "again");
    assert!(failure(&view).contains("2 h"), "{}", failure(&view));
    assert_eq!(s.fake.count(), 3);
    s.fake.assert_clean();
}

#[test]
fn too_long_a_conversation_is_recognised_in_both() {
    for (dialect, words) in [
        (
            Dialect::Responses,
            "Your input exceeds the context window of this model. Please adjust your input and try again.",
        ),
        (Dialect::Gemini, "The input token count (120000) exceeds the maximum number of tokens allowed (100000)."),
    ] {
        let s = scene(dialect, "fake/m");
        s.fake.reply(Reply::error(dialect, 400, "invalid_request_error", words));
        s.wire.send(&s.id, "far too long");
        let view = s.wire.wait_view(&s.id, "the end", |v| v.quiet() && v.last_status() == "context");
        assert!(view.texts("notice").iter().any(|n| n.contains("nothing of it can be summarised")), "{view:#?}");
        assert_eq!(s.fake.count(), 1);
    }
}

#[test]
fn one_shots_work_in_both() {
    for (dialect, model) in SEALING {
        let (home, fake) = crate::faked(dialect);
        fake.reply(Reply::new().reasoning("hm ", "s").text("forty two"));
        assert_eq!(cli(&home, ["-p", "question", "--model", model]).ok().stdout.trim(), "forty two");
        assert_eq!(fake.requests()[0].model(), model.trim_start_matches("fake/"));
        fake.assert_clean();
    }
}

/// Four providers in four dialects, one session that goes from each to each.
struct Four {
    fakes: Vec<(Dialect, Fake)>,
    wire: Wire,
    id: String,
    home: Home,
    _daemon: Daemon,
}

impl Four {
    fn new() -> Self {
        let mut home = home();
        home.set_env("FAKE_KEY", KEY);
        let fakes: Vec<(Dialect, Fake)> = Dialect::ALL.into_iter().map(|d| (d, Fake::start(d))).collect();
        let providers: BTreeMap<String, Value> =
            fakes.iter().map(|(d, f)| (d.as_str().to_owned(), f.provider())).collect();
        home.config(&json!({"model": "anthropic/m", "mode": "all", "providers": providers}));
        let daemon = home.daemon();
        let wire = home.wire("ann");
        let id = wire.new_session(&home, json!({"mode": "all"}));
        Self { fakes, wire, id, home, _daemon: daemon }
    }

    /// One turn on a provider: sealed thoughts, a call, an answer.
    fn turn(&self, provider: usize, n: usize) {
        let (dialect, fake) = &self.fakes[provider];
        let model = if *dialect == Dialect::Gemini { "gemini-3-m" } else { "m" };
        let name = format!("{}/{model}", dialect.as_str());
        self.wire.ok("session/set", json!({"id": self.id, "model": name}));
        let file = format!("f{n}.txt");
        fs::write(self.home.file(&file), format!("content {n}\n")).unwrap();
        // Chat Completions seals nothing.
        let seal = if *dialect == Dialect::OpenAi { String::new() } else { format!("seal-{}-{n}=", dialect.as_str()) };
        let call = Reply::new().reasoning(&format!("thought {n} "), &seal);
        let call = call.text(&format!("reading {n}")).tool_call("read", json!({ "path": file }));
        let call = match dialect {
            Dialect::OpenAi => call.with_id(&format!("functions.read:{n}")),
            Dialect::Responses => call.with_id(&format!("call_{}", "y".repeat(40 + n))),
            _ => call,
        };
        fake.reply(call);
        fake.reply(Reply::say(&format!("answer {n}")));
        let view = self.wire.turn(&self.id, &format!("question {n}"));
        assert_eq!(view.last_status(), "done", "{name}: {:?} {:?}", view.texts("error").last(), fake.violations());
        assert_eq!(view.texts("assistant").last().copied(), Some(format!("answer {n}").as_str()));
    }
}

#[test]
fn a_session_goes_from_every_dialect_to_every_other() {
    let four = Four::new();
    // Each ordered pair of two different ones follows each other once.
    let way = [0, 1, 0, 2, 0, 3, 1, 2, 1, 3, 2, 3, 0];
    let mut pairs: Vec<(usize, usize)> = way.windows(2).map(|w| (w[0], w[1])).collect();
    pairs.sort_unstable();
    pairs.dedup();
    assert_eq!(pairs.len(), 12);
    for (n, provider) in way.into_iter().enumerate() {
        four.turn(provider, n);
    }
    for (i, (dialect, fake)) in four.fakes.iter().enumerate() {
        fake.assert_clean();
        let last_turn = way.iter().rposition(|p| *p == i).unwrap();
        let last = fake.requests().pop().unwrap().raw;
        for n in 0..=last_turn {
            for kept in [format!("question {n}"), format!("content {n}"), format!("reading {n}")] {
                assert!(last.contains(&kept), "{dialect:?} lost {kept:?}");
            }
        }
        for request in fake.requests() {
            for other in Dialect::ALL.into_iter().filter(|d| d != dialect) {
                assert!(
                    !request.raw.contains(&format!("seal-{}", other.as_str())),
                    "{dialect:?} got a seal of {other:?}"
                );
            }
        }
        if *dialect != Dialect::OpenAi {
            let own = (0..last_turn)
                .filter(|n| way[*n] == i)
                .all(|n| last.contains(&format!("seal-{}-{n}=", dialect.as_str())));
            assert!(own, "{dialect:?} gets its own back");
        }
    }
    check::check_session(&four.home.log(&four.id)).clean();
}

#[test]
fn a_provider_that_is_spoken_to_otherwise_gets_no_seals_of_before() {
    let mut home = home();
    home.set_env("FAKE_KEY", KEY);
    let fakes = [Dialect::Responses, Dialect::OpenAi, Dialect::Anthropic, Dialect::Gemini].map(|d| (d, Fake::start(d)));
    home.config(&fakes[0].1.config());
    let _daemon = home.daemon();
    let wire = home.wire("ann");
    let id = wire.new_session(&home, json!({"mode": "all"}));
    fs::write(home.file("a.txt"), "the content\n").unwrap();
    for (n, (dialect, fake)) in fakes.iter().enumerate() {
        home.config(&fake.config());
        let seal = if *dialect == Dialect::OpenAi { String::new() } else { format!("seal{n}=") };
        fake.reply(reads("a.txt", "hm ", &seal));
        fake.reply(Reply::say("done"));
        let view = wire.turn(&id, "go");
        assert_eq!(view.last_status(), "done", "{dialect:?} {:?} {:?}", view.texts("error"), fake.violations());
        let last = fake.requests().pop().unwrap().raw;
        for before in 0..n {
            assert!(!last.contains(&format!("seal{before}=")), "{dialect:?}: {last}");
        }
        assert!(last.contains("the content"));
        fake.assert_clean();
    }
}

/// A session on a fake of Chat Completions that is configured under that provider's name.
fn as_provider(name: &str, model: &str) -> (Home, Fake, Fake, Daemon, Wire, String) {
    let mut home = home();
    home.set_env("FAKE_KEY", KEY);
    let (fake, other) = (Fake::start(Dialect::OpenAi), Fake::start(Dialect::Anthropic));
    home.config(
        &json!({"model": format!("{name}/{model}"), "providers": {name: fake.provider(), "other": other.provider()}}),
    );
    let daemon = home.daemon();
    let wire = home.wire("ann");
    let id = wire.new_session(&home, json!({"mode": "all"}));
    fs::write(home.file("a.txt"), "the content\n").unwrap();
    (home, fake, other, daemon, wire, id)
}

#[test]
fn deepseek_takes_a_conversation_that_others_began() {
    let (_home, fake, other, _daemon, wire, id) = as_provider("deepseek", "deepseek-v4-pro");
    wire.ok("session/set", json!({"id": id, "model": "other/m"}));
    other.reply(reads("a.txt", "hm ", "seal"));
    other.reply(Reply::say("read there"));
    wire.turn(&id, "go");
    wire.ok("session/set", json!({"id": id, "model": "deepseek/deepseek-v4-pro"}));
    // One step without a thought, one with.
    fake.reply(Reply::call("read", json!({"path": "a.txt"})));
    fake.reply(reads("a.txt", "once more ", ""));
    fake.reply(Reply::new().reasoning("enough ", "").text("read here"));
    fake.reply(Reply::say("good"));
    let view = wire.turn(&id, "and you?");
    assert_eq!(view.last_status(), "done", "{:?} {:?}", view.texts("error"), fake.violations());
    wire.turn(&id, "thanks");
    let last = fake.requests().pop().unwrap().raw;
    assert!(last.contains(r#""reasoning_content":"once more ""#) && last.contains(r#""reasoning_content":"enough ""#));
    fake.assert_clean();
    other.assert_clean();
}

#[test]
fn claude_behind_openrouter_is_cached_from_step_to_step() {
    let (_home, fake, _other, _daemon, wire, id) = as_provider("openrouter", "anthropic/claude-opus-5.5");
    fake.reply(Reply::call("read", json!({"path": "a.txt"})));
    fake.reply(Reply::call("read", json!({"path": "a.txt"})));
    fake.reply(Reply::say("done"));
    wire.turn(&id, "go");
    let requests = fake.requests();
    assert_eq!(requests.iter().map(|r| r.cache_marks()).collect::<Vec<_>>(), [2, 3, 3]);
    let marked = |n: usize| -> Vec<String> {
        let messages = requests[n].messages().iter();
        messages
            .filter(|m| m.to_string().contains("cache_control"))
            .map(|m| m["role"].as_str().unwrap().to_owned())
            .collect()
    };
    assert_eq!(marked(1), ["system", "user", "tool"]);
    assert_eq!(marked(2), ["system", "tool", "tool"]);
    assert!(requests[2].messages().last().unwrap().to_string().contains("[vitals]"), "behind the last mark");
    fake.assert_clean();
}
