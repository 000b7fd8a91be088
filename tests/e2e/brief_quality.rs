//! What a brief keeps: a session with known facts in it is compacted, and looked for them.
//!
//! Without a model only the structure is checked, and said so: every fact reaches the summariser, who
//! is told what to keep, and what it writes is what is replayed. `GLRS_EVAL_MODEL=provider/model` has
//! that model write the brief (its key from the environment; `GLRS_EVAL_CONFIG` names a file with more
//! configuration, such as a local server's address) and prints which facts survived it.

use crate::compaction::{BRIEF, all, briefs, compact, config, done, is_brief, starts_with_brief};
use crate::{KEY, Scene, home};
use glrs_tests::{Dialect, Fake, Reply, Value, json};

/// Something a successor has to know.
struct Fact {
    /// What kind of thing it is.
    kind: &'static str,
    /// Who says it.
    by: By,
    /// Its words.
    said: &'static str,
    /// What a brief has that kept it, in lower case.
    signs: &'static [&'static str],
}

#[derive(PartialEq)]
enum By {
    Person,
    Model,
}

const FACTS: [Fact; 9] = [
    Fact {
        kind: "request",
        by: By::Person,
        said: "Login sends people to the wrong page after a redirect. Please find out why and mend it.",
        signs: &["redirect"],
    },
    Fact {
        kind: "constraint",
        by: By::Person,
        said: "Never touch anything below vendor/, and keep Node 18 working.",
        signs: &["vendor", "18"],
    },
    Fact {
        kind: "path and symbol",
        by: By::Model,
        said: "The cause is `normalizeTarget` in src/auth/redirect.ts: it drops the query.",
        signs: &["normalizetarget", "src/auth/redirect.ts"],
    },
    Fact {
        kind: "decision and why",
        by: By::Model,
        said: "I decided for the WHATWG URL parser instead of a regular expression, since only it knows about ports.",
        signs: &["url", "port"],
    },
    Fact {
        kind: "failure",
        by: By::Model,
        said: "Caching the target in sessionStorage did not work: Safari clears it in private windows.",
        signs: &["sessionstorage", "safari"],
    },
    Fact {
        kind: "verified",
        by: By::Model,
        said: "I ran `npm test -- auth`: 41 tests passed.",
        signs: &["npm test", "41"],
    },
    Fact { kind: "number", by: By::Person, said: "The redirect has to be decided in under 35 ms.", signs: &["35"] },
    Fact {
        kind: "preference",
        by: By::Person,
        said: "Write commit messages in the imperative, without a scope.",
        signs: &["imperative"],
    },
    Fact {
        kind: "left to do",
        by: By::Model,
        said: "What is left: the logout route in src/auth/logout.ts still has the old check.",
        signs: &["src/auth/logout.ts"],
    },
];

/// What the summariser has to be told to keep.
const OUTLINE: [&str; 6] = ["constraint", "decision", "path", "verified", "failed", "left"];

fn scene(summariser: Option<&str>) -> Scene {
    let mut home = home();
    let fake = Fake::start(Dialect::Anthropic);
    home.set_env("FAKE_KEY", KEY);
    let mut config = config(&fake, json!({}));
    if let Some(model) = summariser {
        config["compactModel"] = json!(model);
        for (name, value) in std::env::vars().filter(|(name, _)| name.ends_with("_API_KEY")) {
            home.set_env(&name, &value);
        }
        if let Ok(file) = std::env::var("GLRS_EVAL_CONFIG") {
            let more: Value = std::fs::read_to_string(file).unwrap().parse().expect("GLRS_EVAL_CONFIG is JSON");
            let providers = more["providers"].as_object().expect("it has providers");
            for (id, provider) in providers {
                config["providers"][id] = provider.clone();
            }
        }
    }
    home.config(&config);
    let daemon = home.daemon();
    let wire = home.wire("ann");
    let id = wire.new_session(&home, json!({"mode": "all"}));
    Scene { id, wire, fake, daemon, home }
}

/// A talk in which the facts come up, each in a turn of its own among other words.
fn talk(s: &Scene) {
    for (n, fact) in FACTS.iter().enumerate() {
        let filler = format!("Some words about step {n} that matter to nobody. ").repeat(12);
        let (question, answer) = match fact.by {
            By::Person => (fact.said.to_owned(), filler),
            By::Model => ("Go on.".to_owned(), format!("{filler}\n\n{}\n\n{filler}", fact.said)),
        };
        s.fake.reply(Reply::say(&answer));
        s.wire.turn(&s.id, &question);
    }
    // The newest turns stay as they are; nothing of them is looked for.
    for question in ["Are you there?", "Still there?"] {
        s.fake.reply(Reply::say("Yes."));
        s.wire.turn(&s.id, question);
    }
}

fn brief_of(s: &Scene) -> String {
    let view = s.wire.wait_view(&s.id, "the brief has landed", |v| done(v) && !v.of_type("compacted").is_empty());
    view.of_type("compacted")[0]["summary"].as_str().unwrap().to_owned()
}

#[test]
fn every_fact_reaches_the_summariser_who_is_told_what_to_keep() {
    let s = scene(None);
    talk(&s);
    s.fake.reply(Reply::say(BRIEF));
    compact(&s).unwrap();
    assert_eq!(brief_of(&s), BRIEF);
    assert_eq!(briefs(&s.fake), 1);
    let request = s.fake.requests().into_iter().find(|r| is_brief(&r.body)).unwrap();
    let (sent, told) = (all(&request), request.body["system"].to_string().to_lowercase());
    for fact in &FACTS {
        assert!(
            sent.contains(&json!(fact.said).to_string().trim_matches('"').to_owned()),
            "{} did not reach it",
            fact.kind
        );
    }
    for part in OUTLINE {
        assert!(told.contains(part), "the summariser is not told of {part:?}: {told}");
    }
    assert!(request.body.get("tools").is_none());
    s.fake.reply(Reply::say("going on"));
    s.wire.turn(&s.id, "Go on.");
    starts_with_brief(s.fake.requests().last().unwrap(), BRIEF);
    s.fake.assert_clean();
}

#[test]
fn a_configured_models_brief_is_reported_on() {
    let Ok(model) = std::env::var("GLRS_EVAL_MODEL") else {
        println!("no model is configured (GLRS_EVAL_MODEL): only the structure of briefs was checked");
        return;
    };
    let s = scene(Some(&model));
    talk(&s);
    compact(&s).unwrap();
    let brief = brief_of(&s);
    let low = brief.to_lowercase();
    let kept: Vec<bool> = FACTS.iter().map(|f| f.signs.iter().all(|sign| low.contains(sign))).collect();
    println!("{model} kept {} of {} facts:", kept.iter().filter(|k| **k).count(), FACTS.len());
    for (fact, kept) in FACTS.iter().zip(&kept) {
        println!("  {} {:<18} {}", if *kept { "kept" } else { "LOST" }, fact.kind, fact.said);
    }
    println!("{brief}");
    assert!(
        !brief.trim().is_empty() && brief.lines().next().is_some_and(|title| title.len() < 200),
        "a title leads it"
    );
}
