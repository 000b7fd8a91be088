//! What compaction leaves behind: contexts that resume as they were, artifacts, markers, other
//! providers, and a random walk over everything that can happen to a brief.

use crate::compaction::{
    BRIEF, all, briefs, compact, config, done, is_brief, long, scene, starts_with_brief, talk, used,
};
use crate::{KEY, Scene, home};
use glrs_tests::fakes::Recorded;
use glrs_tests::{Dialect, Fake, Gate, Reply, Rng, Value, View, check, cli, json};
use std::fs;

/// A request's messages as one list of blocks, without the cache marks, which move.
fn blocks(request: &Recorded) -> Vec<Value> {
    let mut out = Vec::new();
    for m in request.messages() {
        let parts = match &m["content"] {
            Value::String(t) => vec![json!({"type": "text", "text": t})],
            other => other.as_array().cloned().unwrap_or_default(),
        };
        for mut p in parts {
            if let Some(o) = p.as_object_mut() {
                o.remove("cache_control");
            }
            out.push(json!({"role": m["role"], "block": p}));
        }
    }
    out
}

fn last(fake: &Fake) -> Recorded {
    fake.requests().pop().unwrap()
}

/// A new daemon after a kill -9, with the session attached again.
fn restart(s: &mut Scene) {
    s.daemon.kill9();
    s.daemon = s.home.daemon();
    s.wire = s.home.wire("ann");
    s.wire.attach(&s.id, json!({"env": s.home.env()}));
}

/// Asserts that a session's next request carries on from what the last one held.
fn carries_on(s: &Scene, id: &str, known: &[Value]) {
    s.fake.reply(Reply::say("carried on"));
    s.wire.turn(id, "and then?");
    let now = blocks(&last(&s.fake));
    assert!(now.len() > known.len());
    for (i, (a, b)) in known.iter().zip(&now).enumerate() {
        assert_eq!(a, b, "block {i} is another one");
    }
}

#[test]
fn a_resumed_or_forked_context_is_what_it_was_live_after_several_compactions() {
    let mut s = scene(json!({}));
    for round in 0..3 {
        talk(&s, 3);
        s.fake.answer_by(move |_| Reply::say(&format!("Round {round}\n\nbrief {round}")));
        assert_eq!(compact(&s).unwrap()["outcome"], "compacted");
        s.fake.reply(Reply::say("on"));
        s.wire.turn(&s.id, "on");
        let live = blocks(&last(&s.fake));
        starts_with_brief(&last(&s.fake), &format!("Round {round}\n\nbrief {round}"));
        restart(&mut s);
        carries_on(&s, &s.id.clone(), &live);
    }
    let live = blocks(&last(&s.fake));
    let fork = s.wire.ok("session/fork", s.with(json!({"newId": "0badf00d"})));
    assert_eq!(fork["session"]["id"], "0badf00d");
    s.wire.attach("0badf00d", json!({"env": s.home.env()}));
    carries_on(&s, "0badf00d", &live);
    let kept = |id: &str| s.wire.ok("artifacts/list", json!({"id": id}))["artifacts"].as_array().unwrap().len();
    assert_eq!((kept(&s.id), kept("0badf00d")), (3, 3));
    let first = s.wire.ok("artifacts/list", json!({"id": s.id}))["artifacts"][0]["artifact"].clone();
    s.wire.ok("artifacts/delete", s.with(json!({"artifact": first})));
    assert_eq!((kept(&s.id), kept("0badf00d")), (2, 3), "a fork keeps its own");
    assert!((3..=6).contains(&briefs(&s.fake)), "{} requests for three briefs", briefs(&s.fake));
    s.fake.assert_clean();
    check::check_session(&s.home.log(&s.id)).clean();
}

#[test]
fn files_of_the_predecessor_that_only_count_what_was_dropped_resume() {
    let s = scene(json!({}));
    let turn = |m: Value| json!({"type": "turn", "messages": m, "status": "done", "at": "2026-09-06T14:00:00.000Z"});
    let user = |t: &str| json!({"role": "user", "content": t});
    let says = |t: &str| json!({"role": "assistant", "content": t});
    let call = json!({"role": "assistant", "content": [{"type": "tool-call", "toolCallId": "c1", "toolName": "read", "input": {}}]});
    let result = json!({"role": "tool", "content": [{"type": "tool-result", "toolCallId": "c1", "toolName": "read", "output": {"type": "text", "value": "r"}}]});
    // The count points between a call and its result.
    let compacted =
        json!({"type": "compacted", "summary": "Old brief", "dropped": 4, "at": "2026-09-06T14:00:00.000Z"});
    let events = json!([
        turn(json!([user("gone"), says("gone too")])),
        turn(json!([user("asks"), call, result, says("kept")])),
        compacted,
        turn(json!([user("later"), says("after")])),
    ]);
    let file = json!({"schema": 2, "id": "0ddba11a", "createdAt": "2026-09-06T14:00:00.000Z", "cwd": s.home.work(),
        "model": "fake/m", "events": events, "updatedAt": "2026-09-06T14:00:00.000Z"});
    fs::create_dir_all(s.home.sessions()).unwrap();
    fs::write(s.home.log("0ddba11a"), file.to_string()).unwrap();
    s.wire.attach("0ddba11a", json!({"env": s.home.env()}));
    s.fake.reply(Reply::say("fine"));
    s.wire.turn("0ddba11a", "now");
    let sent = last(&s.fake);
    starts_with_brief(&sent, "Old brief");
    let text = all(&sent);
    assert!(!text.contains("gone") && !text.contains("tool_result"), "{text}");
    assert!(text.contains("kept") && text.contains("later") && text.contains("after"), "{text}");
    s.fake.assert_clean();
}

#[test]
fn a_summariser_of_another_provider_is_announced_once_and_never_replaced() {
    let mut home = home();
    let (fake, other) = (Fake::start(Dialect::Anthropic), Fake::start(Dialect::OpenAi));
    home.set_env("FAKE_KEY", KEY);
    let mut conf = config(&fake, json!({"compactModel": "elsewhere/m"}));
    conf["providers"]["elsewhere"] = other.provider();
    home.config(&conf);
    let daemon = home.daemon();
    let wire = home.wire("ann");
    let id = wire.new_session(&home, json!({}));
    let s = Scene { id, wire, fake, daemon, home };
    talk(&s, 3);
    other.reply(Reply::say(BRIEF));
    compact(&s).unwrap();
    let announced = |v: &View| v.texts("notice").iter().filter(|n| n.contains("is sent to elsewhere")).count();
    let view = s.wire.wait_view(&s.id, "landed", |v| !v.of_type("compacted").is_empty());
    assert_eq!(announced(&view), 1, "{:?}", view.texts("notice"));
    assert!(view.of_type("custom").iter().any(|c| c["custom"] == "glrs:summariser"));
    talk(&s, 2);
    other.reply(Reply::error(Dialect::OpenAi, 500, "server_error", "down"));
    let error = compact(&s).unwrap_err();
    assert!(error["message"].as_str().is_some_and(|m| m.starts_with("(compaction failed: ")), "{error}");
    let view = s.wire.wait_view(&s.id, "failed", |v| v.texts("notice").iter().any(|n| n.starts_with("(compaction f")));
    assert_eq!(announced(&view), 1, "announced once: {:?}", view.texts("notice"));
    assert_eq!((s.fake.count(), briefs(&s.fake), other.count()), (5, 0, 2), "no fallback");
    other.assert_clean();
    s.fake.assert_clean();
}

#[test]
fn a_smaller_summariser_is_said_and_sent_the_conversation_in_parts() {
    let mut home = home();
    let fake = Fake::start(Dialect::Anthropic);
    home.set_env("FAKE_KEY", KEY);
    let mut conf = config(&fake, json!({"compactModel": "fake/n"}));
    conf["providers"]["fake"]["models"]["n"]["metadata"] = json!({"name": "Tiny", "context": 9_000, "output": 500});
    home.config(&conf);
    let daemon = home.daemon();
    let wire = home.wire("ann");
    let id = wire.new_session(&home, json!({}));
    let s = Scene { id, wire, fake, daemon, home };
    talk(&s, 5);
    s.fake.answer_by(|_| Reply::say(BRIEF));
    compact(&s).unwrap();
    let view = s.wire.wait_view(&s.id, "landed", |v| !v.of_type("compacted").is_empty());
    assert!(view.texts("notice").iter().any(|n| n.contains("9000 tokens")), "{:?}", view.texts("notice"));
    let asked: Vec<Recorded> = s.fake.requests().split_off(5);
    assert!((2..=16).contains(&asked.len()) && asked.iter().all(|r| is_brief(&r.body) && r.raw.len() < 9_000 * 4));
    assert!(all(&asked[1]).contains("The brief of what came before"));
    s.fake.assert_clean();
}

#[test]
fn artifacts_are_for_people_and_for_the_agent() {
    let s = scene(json!({}));
    s.fake.reply(Reply::say("no tools yet"));
    s.wire.turn(&s.id, "look");
    assert!(!last(&s.fake).body["tools"].to_string().contains("compaction_"));
    talk(&s, 3);
    s.fake.reply(Reply::say(BRIEF));
    let made = cli(&s.home, ["sessions", "compact", &s.id, "keep ports"]).ok();
    assert!(made.stdout.contains("(compacted: "), "{made:?}");
    assert!(all(&last(&s.fake)).contains("keep ports"));
    let rows = s.wire.ok("artifacts/list", s.with(json!({})))["artifacts"].clone();
    let name = rows[0]["artifact"].as_str().unwrap().to_owned();
    assert_eq!((&rows[0]["label"], &rows[0]["messages"]), (&json!("Fixed the parser"), &json!(4)));
    let listed = cli(&s.home, ["sessions", "artifacts", &s.id]).ok();
    assert!(listed.stdout.contains(&name) && listed.stdout.contains("Fixed the parser"), "{listed:?}");
    let whole = cli(&s.home, ["sessions", "artifacts", &s.id, &name]).ok().stdout;
    assert!(whole.starts_with("---\nlabel: Fixed the parser\ncreatedAt: "), "{whole:.200}");
    assert!(whole.contains("[user]\nlook\n") && whole.contains("[assistant]\nno tools yet\n"));
    assert!(whole.contains(&"x".repeat(16_000)), "content is unchanged");
    for bad in ["../x.md", "", "a/b.md", "..", "x.json", "/etc/passwd"] {
        s.wire.fails("not_found", "artifacts/read", s.with(json!({"artifact": bad})));
        s.wire.fails("not_found", "artifacts/delete", s.with(json!({"artifact": bad})));
        s.wire.fails("not_found", "artifacts/annotate", s.with(json!({"artifact": bad, "note": "x"})));
    }
    // The agent lists, reads, annotates and is told that there are some.
    s.fake.reply(Reply::call("compaction_list", json!({})));
    s.fake.reply(Reply::call("compaction_read", json!({"id": name, "limit": 100})));
    s.fake.reply(Reply::call("compaction_annotate", json!({"id": name, "note": "about\nports"})));
    s.fake.reply(Reply::call("compaction_read", json!({"id": "../../x.md"})));
    s.fake.reply(Reply::say("seen"));
    let view = s.wire.turn(&s.id, "use them");
    let results: Vec<&str> = view.of_type("tool").iter().map(|t| t["result"].as_str().unwrap()).collect();
    assert!(results[0].contains(&name) && results[1].contains("go on at offset 100"), "{results:?}");
    let ok: Vec<bool> = view.of_type("tool").iter().map(|t| t["ok"] == true).collect();
    assert_eq!(ok, [true, true, true, false], "{results:?}");
    let sent = last(&s.fake);
    assert!(sent.body["tools"].to_string().contains("compaction_read") && all(&sent).contains("compaction_list shows"));
    assert_eq!(s.wire.ok("artifacts/list", s.with(json!({})))["artifacts"][0]["note"], "about ports");
    s.wire.ok("artifacts/annotate", s.with(json!({"artifact": name, "label": "The parser"})));
    s.fake.reply(Reply::call("compaction_delete", json!({"id": name})));
    s.fake.reply(Reply::say("gone"));
    s.wire.turn(&s.id, "delete it");
    assert_eq!(s.wire.ok("artifacts/list", s.with(json!({})))["artifacts"], json!([]));
    s.fake.reply(Reply::say("fine"));
    s.wire.turn(&s.id, "after");
    assert!(!last(&s.fake).body["tools"].to_string().contains("compaction_"));
    s.fake.assert_clean();
}

#[test]
fn a_disabled_extension_loses_its_tools_but_not_its_files() {
    let s = scene(json!({"extensions": {"disable": ["compaction-artifacts"]}}));
    talk(&s, 3);
    s.fake.reply(Reply::say(BRIEF));
    compact(&s).unwrap();
    s.fake.reply(Reply::say("x"));
    s.wire.turn(&s.id, "next");
    assert!(!last(&s.fake).raw.contains("compaction_"));
    assert!(cli(&s.home, ["sessions", "artifacts", &s.id]).ok().stdout.contains("Fixed the parser"));
    s.fake.assert_clean();
}

#[test]
fn large_old_results_become_markers_that_can_be_read_back() {
    let mut s = scene(json!({}));
    let text = |i: usize| format!("secret-{i} {}\n", "some words\n".repeat(640));
    let mut reply = Reply::say("reading ");
    for i in 0..8 {
        fs::write(s.home.file(&format!("f{i}.txt")), text(i)).unwrap();
        reply = reply.tool_call("read", json!({"path": format!("f{i}.txt")}));
    }
    s.fake.reply(reply);
    s.fake.reply(Reply::call("glob", json!({"pattern": "*.none"})).usage(used(15_500)));
    s.fake.reply(Reply::say("done"));
    let view = s.wire.turn(&s.id, "read all");
    assert!(view.texts("notice").iter().any(|n| n.starts_with("(made room: 4 ")), "{:?}", view.texts("notice"));
    assert_eq!((view.last_status(), s.fake.count()), ("done", 3), "no request was made for it");
    let sent = last(&s.fake);
    let markers = all(&sent);
    assert_eq!(markers.matches("[result cleared to make room: read, ").count(), 4);
    assert!(!markers.contains("secret-0 ") && markers.contains("secret-7 "));
    assert!(sent.body["tools"].to_string().contains("\"recall\""));
    assert!(!s.fake.requests()[0].body["tools"].to_string().contains("\"recall\""));
    let entry = markers.split("recall{\\\"entry\\\":").nth(1).and_then(|t| t.split('}').next()).unwrap();
    let entry: u64 = entry.parse().unwrap();
    s.fake.reply(Reply::call("recall", json!({"entry": entry})));
    s.fake.reply(Reply::say("read again"));
    let view = s.wire.turn(&s.id, "recall it");
    assert!(view.of_type("tool").last().unwrap()["result"].as_str().unwrap().contains("secret-0 "));
    let live = blocks(&last(&s.fake));
    restart(&mut s);
    // Vitals are never stored: the last block of a tool round is not part of the history.
    let stored: Vec<Value> = live.into_iter().filter(|b| !b.to_string().contains("[vitals]")).collect();
    carries_on(&s, &s.id.clone(), &stored);
    // A later artifact holds the results whole.
    s.fake.reply(Reply::say(BRIEF));
    compact(&s).unwrap();
    let rows = s.wire.ok("artifacts/list", s.with(json!({})));
    let name = rows["artifacts"][0]["artifact"].clone();
    let whole = s.wire.ok("artifacts/read", s.with(json!({"artifact": name})))["text"].as_str().unwrap().to_owned();
    assert!((0..8).all(|i| whole.contains(&format!("secret-{i} "))) && !whole.contains("[result cleared"));
    s.fake.assert_clean();
    check::check_session(&s.home.log(&s.id)).clean();
}

/// What is done while a brief is being written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Act {
    Esc,
    Clear,
    Rewind,
    Fork,
    Kill,
    Model,
    Send,
    Join,
    Open,
}

#[test]
fn whatever_happens_to_a_brief_the_history_stays_legal_and_nothing_is_lost() {
    const ACTS: [Act; 9] =
        [Act::Esc, Act::Clear, Act::Rewind, Act::Fork, Act::Kill, Act::Model, Act::Send, Act::Join, Act::Open];
    let mut s = scene(json!({}));
    s.fake.answer_by(|b| if is_brief(b) { Reply::say(BRIEF) } else { long("a") });
    let mut rng = Rng::new(20_260_906);
    let (mut sent, mut started) = (0, 0);
    let mut others = Vec::new();
    for round in 0..14 {
        for _ in 0..3 {
            sent += 1;
            s.wire.send(&s.id, &format!("message {sent}"));
            s.wire.wait_view(&s.id, "a turn", done);
        }
        let automatic = briefs(&s.fake);
        let gate = Gate::new();
        s.fake.reply(Reply::say(BRIEF).held_back(&gate));
        let call = s.wire.start("session/compact", s.with(json!({})));
        gate.wait_reached();
        started += 1;
        let mut killed = false;
        for _ in 0..1 + rng.below(3) {
            let act = *rng.pick(&ACTS);
            match act {
                Act::Esc => drop(s.wire.ok("session/interrupt", s.with(json!({})))),
                // A message sent meanwhile may run by now: then it is refused.
                Act::Clear => drop(s.wire.call("session/clear", s.with(json!({})))),
                Act::Rewind => {
                    let v = s.wire.view(&s.id);
                    let to = v.entries.iter().rev().find(|(_, e)| e["type"] == "user").map(|(n, _)| *n);
                    // Behind a clear or a rewind there may be nothing to go back to.
                    let _ = s.wire.call("session/rewind", s.with(json!({"to": to, "files": false})));
                }
                Act::Fork => {
                    let id = format!("f{round:07x}");
                    if !others.contains(&id) {
                        s.wire.ok("session/fork", s.with(json!({"newId": id})));
                        others.push(id);
                    }
                }
                Act::Kill => {
                    restart(&mut s);
                    killed = true;
                }
                Act::Model => {
                    let model = *rng.pick(&["fake/m", "fake/n"]);
                    s.wire.ok("session/set", s.with(json!({"model": model})));
                }
                Act::Send => {
                    sent += 1;
                    s.wire.send(&s.id, &format!("message {sent}"));
                }
                Act::Join => drop(s.join("bob")),
                Act::Open => gate.open(),
            }
        }
        gate.open();
        if !killed {
            // Landed, abandoned or dropped: it is answered either way.
            let _ = s.wire.reply(call);
        }
        if s.wire.call("session/release", s.with(json!({}))).unwrap()["outcome"] == "released" {
            s.wire.wait_view(&s.id, "released", |v| v.state_name() != "held");
        }
        let settled = |v: &View| done(v) || v.state_name() == "held";
        let view = s.wire.wait_view(&s.id, "it settles", settled);
        if view.state_name() == "held" {
            s.wire.ok("session/release", s.with(json!({})));
        }
        let view = s.wire.wait_view(&s.id, "all quiet", done);
        for i in 1..=sent {
            let name = format!("message {i}");
            let there = view.texts("user").iter().filter(|t| **t == name).count();
            assert_eq!(there, 1, "round {round}: {name} is there {there} times");
        }
        check::check_session(&s.home.log(&s.id)).clean();
        assert!(briefs(&s.fake) <= automatic + 4, "round {round}: too many briefs");
        s.wire.ok("session/set", s.with(json!({"model": "fake/m"})));
        s.wire.wait_view(&s.id, "all quiet", done);
    }
    assert!(started == 14 && s.fake.violations().is_empty(), "{:?}", s.fake.violations());
    for id in others {
        check::check_session(&s.home.log(&id)).clean();
    }
}
