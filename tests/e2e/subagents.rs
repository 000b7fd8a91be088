//! Tasks that are given to sessions of their own: what comes back, what is shown meanwhile, who may
//! answer, and that each has an outcome on record whatever happens.

use crate::{Scene, rehearsal};
use glrs_tests::{Dialect, Gate, PATIENCE, Reply, Value, View, Wire, check, cli, json, wait::until};
use std::fs;
use std::sync::{Arc, Mutex};

/// The first message of a request: whose turn it is.
fn first(body: &Value) -> String {
    body["messages"][0].to_string()
}

/// Whether the request comes with results of tools.
fn told(body: &Value) -> bool {
    body["messages"].to_string().contains("tool_result")
}

fn task(name: &str) -> Value {
    json!({"title": format!("title {name}"), "prompt": format!("please do {name}")})
}

/// A parent that gives these tasks away in one step, and then says `after`; children answer by `child`.
fn brain(scene: &Scene, tasks: &[&str], mut child: impl FnMut(&str, &Value) -> Reply + Send + 'static) {
    let tasks: Vec<String> = tasks.iter().map(|t| (*t).to_owned()).collect();
    scene.fake.answer_by(move |body| {
        let asked = first(body);
        if let Some((_, rest)) = asked.split_once("please do ") {
            let name: String = rest.chars().take_while(char::is_ascii_alphanumeric).collect();
            return child(&name, body);
        }
        if told(body) {
            return Reply::say("after");
        }
        tasks.iter().fold(Reply::say("delegating "), |r, t| r.tool_call("task", task(t)))
    });
}

/// `glrs:child` entries of a view: child, outcome.
fn children(view: &View) -> Vec<(String, Option<String>)> {
    let custom = view.of_type("custom").into_iter().filter(|c| c["custom"] == "glrs:child");
    custom
        .map(|c| (c["data"]["child"].as_str().unwrap().to_owned(), c["data"]["outcome"].as_str().map(str::to_owned)))
        .collect()
}

/// The child that was started first, once it is on record.
fn child_of(wire: &Wire, id: &str, n: usize) -> String {
    let view = wire.wait_view(id, "a child", |v| children(v).iter().filter(|(_, o)| o.is_none()).count() > n);
    children(&view).into_iter().filter(|(_, o)| o.is_none()).nth(n).unwrap().0
}

/// Every child that was started has exactly one outcome.
fn conserved(view: &View) -> Vec<String> {
    let all = children(view);
    let started: Vec<&String> = all.iter().filter(|(_, o)| o.is_none()).map(|(c, _)| c).collect();
    let ended: Vec<(&String, &String)> = all.iter().filter_map(|(c, o)| Some((c, o.as_ref()?))).collect();
    assert_eq!(started.len(), ended.len(), "{all:?}");
    started
        .iter()
        .map(|c| {
            let mine: Vec<&String> = ended.iter().filter(|(e, _)| e == c).map(|(_, o)| *o).collect();
            assert_eq!(mine.len(), 1, "{all:?}");
            mine[0].clone()
        })
        .collect()
}

fn results(view: &View) -> Vec<(bool, String)> {
    let tools = view.of_type("tool").into_iter().filter(|t| t["name"] == "task");
    tools.map(|t| (t["ok"] == true, t["result"].as_str().unwrap().to_owned())).collect()
}

fn ids(list: &Value) -> Vec<String> {
    list["sessions"].as_array().unwrap().iter().map(|s| s["id"].as_str().unwrap().to_owned()).collect()
}

#[test]
fn a_task_is_done_by_a_session_of_its_own_and_its_answer_comes_back() {
    let scene = Scene::plain();
    fs::write(scene.home.file("a.txt"), "content").unwrap();
    brain(&scene, &["one"], |_, body| {
        if told(body) { Reply::say("it says content") } else { Reply::call("read", json!({"path": "a.txt"})) }
    });
    let view = scene.wire.turn(&scene.id, "go");
    assert_eq!((view.last_status(), view.texts("assistant").last()), ("done", Some(&"after")));
    let child = child_of(&scene.wire, &scene.id, 0);
    let (ok, result) = results(&view).remove(0);
    assert!(
        ok && result.starts_with("it says content") && result.contains(&format!("glrs attach {child}")),
        "{result}"
    );
    assert_eq!(conserved(&view), ["done"]);
    // The child's log: whose it is, its own conversation, closed.
    let bob = scene.home.wire("bob");
    bob.attach(&child, json!({}));
    let seen = bob.view(&child);
    assert_eq!((seen.texts("user"), seen.last_status()), (vec!["please do one"], "done"));
    let info = bob.ok("session/info", json!({"id": child}))["session"].clone();
    assert!(info["child"] == true && info["parent"] == scene.id.as_str() && info["title"] == "title one", "{info}");
    let requests = scene.fake.requests();
    let tools = |body: &Value| body["tools"].to_string();
    let of_child = requests.iter().find(|r| first(&r.body).contains("please do one")).unwrap();
    assert!(!tools(&of_child.body).contains("\"task\"") && tools(&requests[0].body).contains("\"task\""));
    assert!(!of_child.body.to_string().contains("delegating"), "a context of its own");
    // Listed under its parent only.
    let list = |more: Value| ids(&bob.ok("session/list", more));
    assert_eq!(list(json!({})), std::slice::from_ref(&scene.id));
    assert_eq!(list(json!({"children": scene.id})), std::slice::from_ref(&child));
    assert_eq!(list(json!({"children": "all"})).len(), 2);
    bob.fails("invalid_params", "session/list", json!({"children": "everything"}));
    // A person goes on with it; a copy of it is nobody's child, nor are a copy's children its.
    assert_eq!(bob.turn(&child, "and more").last_status(), "done");
    let copy = bob.ok("session/fork", json!({"id": child}))["session"].clone();
    assert!(copy["child"] != true && copy["parent"] == child.as_str(), "{copy}");
    let copy = bob.ok("session/fork", json!({"id": scene.id}))["session"]["id"].clone();
    assert_eq!(list(json!({"children": copy})), Vec::<String>::new());
    // Its parent gone, nothing else leads to it.
    scene.wire.ok("session/delete", json!({"id": scene.id, "force": true}));
    until("the child is listed by itself", PATIENCE, || list(json!({})).contains(&child).then_some(()));
    scene.fake.assert_clean();
}

#[test]
fn tasks_of_one_step_run_side_by_side_up_to_the_limit() {
    let scene = Scene::plain();
    let gates: Arc<Vec<Gate>> = Arc::new((0..6).map(|_| Gate::new()).collect());
    let started = Arc::new(Mutex::new(Vec::new()));
    let (held, seen) = (gates.clone(), started.clone());
    brain(&scene, &["0", "1", "2", "3", "4", "5"], move |name, _| {
        seen.lock().unwrap().push(name.to_owned());
        Reply::new().gate(&held[name.parse::<usize>().unwrap()]).text(&format!("did {name}"))
    });
    scene.wire.send(&scene.id, "go");
    gates[..4].iter().for_each(Gate::wait_reached);
    let view = scene.wire.wait_view(&scene.id, "the others wait", |v| {
        v.in_flight.values().filter(|p| p.text.contains("waits: ")).count() == 2
    });
    assert_eq!(children(&view).len(), 4);
    assert_eq!(started.lock().unwrap().len(), 4, "more than the limit began");
    gates[2].open();
    gates[4].wait_reached();
    gates.iter().for_each(Gate::open);
    let view = scene.wire.wait_quiet(&scene.id);
    assert_eq!(conserved(&view), ["done"; 6]);
    let body = scene.fake.requests().pop().unwrap().body;
    let text = body["messages"].to_string();
    let at: Vec<usize> = (0..6).map(|i| text.find(&format!("did {i}")).unwrap()).collect();
    assert!(at.is_sorted(), "results in the order of the calls");
    scene.fake.assert_clean();
}

#[test]
fn how_many_run_at_once_is_configured_and_what_they_use_is_counted_apart() {
    let (home, fake) = crate::faked(Dialect::Anthropic);
    let mut config = fake.config();
    config["tasks"] = json!({"parallel": 1});
    home.config(&config);
    let daemon = home.daemon();
    let wire = home.wire("ann");
    let id = wire.new_session(&home, json!({}));
    let mut scene = Scene { id, wire, fake, daemon, home };
    let gates: Arc<Vec<Gate>> = Arc::new((0..2).map(|_| Gate::new()).collect());
    let held = gates.clone();
    brain(&scene, &["0", "1"], move |name, _| Reply::new().gate(&held[name.parse::<usize>().unwrap()]).text("did it"));
    scene.wire.send(&scene.id, "go");
    gates[0].wait_reached();
    let waits = |v: &View| v.in_flight.values().any(|p| p.text.contains("waits: 1 task runs already"));
    let view = scene.wire.wait_view(&scene.id, "the other waits", waits);
    assert_eq!(children(&view).len(), 1);
    gates.iter().for_each(Gate::open);
    let view = scene.wire.wait_quiet(&scene.id);
    assert_eq!(conserved(&view), ["done"; 2]);
    let usage = view.usage.clone();
    assert_eq!((&usage["calls"], &usage["input"], &usage["output"]), (&json!(2), &json!(200), &json!(20)), "{usage}");
    let theirs = &usage["children"];
    assert_eq!((&theirs["calls"], &theirs["input"], &theirs["output"]), (&json!(2), &json!(200), &json!(20)));
    let shown = cli(&scene.home, ["sessions", "show", scene.id.as_str(), "--limit", "0"]).ok().stdout;
    assert!(shown.contains("by its tasks") && shown.contains("200 in, 20 out, 2 calls"), "{shown}");
    // As much after a restart: the log has it.
    scene.daemon.kill9();
    let _next = scene.home.daemon();
    let wire = scene.home.wire("ann");
    assert_eq!(wire.attach(&scene.id, json!({}))["usage"]["children"], *theirs);
    scene.fake.assert_clean();
}

#[test]
fn a_childs_request_is_answered_in_its_parent_or_in_itself_and_the_first_wins() {
    let scene = Scene::plain();
    brain(&scene, &["one", "two"], |name, body| {
        if told(body) {
            Reply::say("written")
        } else {
            Reply::call("write", json!({"path": format!("{name}.txt"), "content": "x"}))
        }
    });
    scene.wire.send(&scene.id, "go");
    let view = scene.wire.wait_view(&scene.id, "two requests", |v| v.requests.len() == 2);
    assert_eq!(view.phase(), "asking");
    assert_eq!(scene.wire.ok("session/info", scene.with(json!({})))["session"]["needsYou"], true);
    let of = |title: &str| view.requests.iter().find(|r| r["origin"]["title"] == title).unwrap().clone();
    let (one, two) = (of("title one"), of("title two"));
    // Whoever attaches later sees them as well.
    let late = scene.join("late");
    assert_eq!(late.view(&scene.id).requests.len(), 2);
    // The first from the parent's side.
    let child = one["origin"]["session"].as_str().unwrap().to_owned();
    let bob = scene.home.wire("bob");
    bob.attach(&child, json!({}));
    assert!(bob.request(&child)["origin"].is_null() && bob.request(&child)["request"] == one["request"]);
    scene.wire.answer(&scene.id, &one, "allow").unwrap();
    let shown = bob.wait_view(&child, "resolved", |v| v.requests.is_empty());
    assert!(shown.resolved[0]["decision"] == "allow" && shown.resolved[0]["by"].as_str().unwrap().starts_with("ann#"));
    let late_one = late.answer(&scene.id, &one, "deny").unwrap_err();
    assert_eq!(late_one["data"]["kind"], "already_resolved", "{late_one}");
    // The second from the child's.
    let child = two["origin"]["session"].as_str().unwrap().to_owned();
    bob.attach(&child, json!({}));
    bob.answer(&child, &two, "deny").unwrap();
    let view = scene.wire.wait_quiet(&scene.id);
    let by: Vec<(&str, bool)> = view
        .resolved
        .iter()
        .map(|r| (r["decision"].as_str().unwrap(), r["by"].as_str().unwrap().starts_with("bob#")))
        .collect();
    assert!(by.contains(&("allow", false)) && by.contains(&("deny", true)), "{by:?}");
    assert!(scene.home.file("one.txt").exists() && !scene.home.file("two.txt").exists());
    assert_eq!(conserved(&view), ["done", "done"]);
    scene.wire.wait_view(&scene.id, "nothing open", |v| v.requests.is_empty());
    scene.fake.assert_clean();
}

#[test]
fn esc_stops_the_children_and_each_says_so_on_record() {
    let scene = Scene::plain();
    let gate = Gate::new();
    let held = gate.clone();
    brain(&scene, &["one", "two"], move |name, _| match name {
        "one" => Reply::say("half of it ").gate(&held).text("never"),
        _ => Reply::call("write", json!({"path": "b.txt", "content": "x"})),
    });
    scene.wire.send(&scene.id, "go");
    gate.wait_reached();
    let view = scene.wire.wait_view(&scene.id, "a request", |v| !v.requests.is_empty() && children(v).len() == 2);
    let made: Vec<String> = children(&view).into_iter().map(|(c, _)| c).collect();
    assert_eq!(scene.wire.ok("session/interrupt", scene.with(json!({})))["outcome"], "interrupted");
    let view = scene.wire.wait_quiet(&scene.id);
    assert_eq!((view.last_status(), conserved(&view)), ("interrupted", vec!["interrupted".to_owned(); 2]));
    assert!(view.requests.is_empty() && results(&view).iter().all(|(ok, _)| !ok), "{:?}", results(&view));
    let bob = scene.home.wire("bob");
    for child in &made {
        bob.attach(child, json!({}));
        let view = bob.wait_quiet(child);
        assert_eq!((view.last_status(), view.requests.len()), ("interrupted", 0));
    }
    let cut = || scene.fake.requests().iter().any(|r| r.aborted).then_some(());
    until("the model call is cut off", PATIENCE, cut);
    assert!(!scene.home.file("b.txt").exists());
    // The parent goes on.
    assert_eq!(scene.wire.turn(&scene.id, "go on").last_status(), "done");
    scene.fake.assert_clean();
}

#[test]
fn a_child_that_a_person_stops_returns_what_it_has_and_one_that_fails_is_an_error() {
    let scene = Scene::plain();
    let gate = Gate::new();
    let held = gate.clone();
    brain(&scene, &["one", "two"], move |name, _| match name {
        "one" => Reply::say("half of it ").gate(&held).text("never"),
        _ => Reply::error(Dialect::Anthropic, 400, "invalid_request_error", "no such thing"),
    });
    scene.wire.send(&scene.id, "go");
    gate.wait_reached();
    let view = scene
        .wire
        .wait_view(&scene.id, "the failure", |v| children(v).iter().any(|(_, o)| o.as_deref() == Some("failed")));
    let failed = children(&view).into_iter().find(|(_, o)| o.is_some()).unwrap().0;
    let all: Vec<String> = children(&view).into_iter().filter(|(_, o)| o.is_none()).map(|(c, _)| c).collect();
    let one = all.iter().find(|c| **c != failed).unwrap();
    let bob = scene.home.wire("bob");
    bob.attach(one, json!({}));
    bob.wait_view(one, "partial text", |v| v.streaming("assistant").is_some());
    assert_eq!(bob.ok("session/interrupt", json!({"id": one}))["outcome"], "interrupted");
    let view = scene.wire.wait_quiet(&scene.id);
    assert_eq!(view.last_status(), "done", "the parent is told and goes on");
    let results = results(&view);
    let stopped = results.iter().find(|(_, r)| r.contains(one.as_str())).unwrap();
    assert!(!stopped.0 && stopped.1.starts_with("half of it") && stopped.1.contains("stopped"), "{stopped:?}");
    let failure = results.iter().find(|(_, r)| r.contains(failed.as_str())).unwrap();
    assert!(!failure.0 && failure.1.contains("no such thing"), "{failure:?}");
    conserved(&view);
    scene.fake.assert_clean();
}

#[test]
fn limits_and_modes_hold() {
    let scene = Scene::plain();
    let given = Arc::new(Mutex::new(vec![
        json!({"title": "t", "prompt": "please do steps", "steps": 2}),
        json!({"title": "t", "prompt": "please do more", "mode": "all"}),
        json!({"title": "t", "prompt": "please do elsewhere", "cwd": "/"}),
        json!({"title": "t", "prompt": "please do wrong", "model": "nobody/nothing"}),
    ]));
    let calls = given.lock().unwrap().clone();
    scene.fake.answer_by(move |body| {
        if first(body).contains("please do") {
            return if body["tool_choice"]["type"] == "none" || !body["tools"].is_array() {
                Reply::say("forced")
            } else {
                Reply::call("glob", json!({"pattern": "*"}))
            };
        }
        if told(body) {
            return Reply::say("after");
        }
        calls.iter().fold(Reply::new(), |r, input| r.tool_call("task", input.clone()))
    });
    let view = scene.wire.turn(&scene.id, "go");
    let results = results(&view);
    let has = |words: &str| results.iter().find(|(_, r)| r.contains(words)).unwrap_or_else(|| panic!("{results:?}")).0;
    assert!(has("limit of steps") && !has("allows more") && !has("no directory inside") && !has("nobody"));
    assert_eq!(conserved(&view).len(), 2, "what is refused starts nothing");
    drop(given);
    scene.fake.assert_clean();
}

#[test]
fn after_a_kill_every_child_has_its_outcome_and_nothing_runs() {
    let mut scene = Scene::plain();
    let gate = Gate::new();
    let held = gate.clone();
    brain(&scene, &["one", "two", "three"], move |name, _| match name {
        "one" => Reply::say("half of it ").gate(&held).text("never"),
        "two" => Reply::call("write", json!({"path": "b.txt", "content": "x"})),
        _ => Reply::say("all of it"),
    });
    scene.wire.send(&scene.id, "go");
    gate.wait_reached();
    let view = scene.wire.wait_view(&scene.id, "one done, one asking", |v| {
        !v.requests.is_empty() && children(v).iter().any(|(_, o)| o.is_some())
    });
    let made: Vec<String> = children(&view).into_iter().filter(|(_, o)| o.is_none()).map(|(c, _)| c).collect();
    scene.daemon.kill9();
    let count = scene.fake.count();
    let _next = scene.home.daemon();
    let wire = scene.home.wire("ann");
    wire.attach(&scene.id, json!({"env": scene.home.env()}));
    let view = wire.wait_quiet(&scene.id);
    assert_eq!((view.last_status(), view.requests.len()), ("interrupted", 0));
    let mut outcomes = conserved(&view);
    outcomes.sort();
    assert_eq!(outcomes, ["done", "interrupted", "interrupted"]);
    for child in &made {
        wire.attach(child, json!({"env": scene.home.env()}));
        let view = wire.wait_quiet(child);
        assert!(["done", "interrupted"].contains(&view.last_status()) && view.requests.is_empty(), "{view:?}");
        assert_eq!(wire.ok("session/info", json!({"id": child}))["session"]["child"], true);
    }
    assert!(!scene.home.file("b.txt").exists());
    assert_eq!(scene.fake.count(), count, "nothing asked a model by itself");
    assert_eq!(check::check_home(&scene.home.root()), Vec::<String>::new());
    assert_eq!(wire.turn(&scene.id, "go on").last_status(), "done");
    scene.fake.assert_clean();
}

#[test]
fn a_daemon_that_is_told_to_stop_closes_children_and_parent() {
    let mut scene = Scene::plain();
    let gate = Gate::new();
    let held = gate.clone();
    brain(&scene, &["one"], move |_, _| Reply::say("half of it ").gate(&held).text("never"));
    scene.wire.send(&scene.id, "go");
    gate.wait_reached();
    let child = child_of(&scene.wire, &scene.id, 0);
    // The first lets the step end, which does not; the second does not wait for it.
    scene.daemon.term();
    until("it drains", PATIENCE, || scene.wire.ok("daemon/status", json!({}))["draining"].as_bool().filter(|d| *d));
    scene.daemon.term();
    scene.daemon.wait(PATIENCE);
    let _next = scene.home.daemon();
    let wire = scene.home.wire("ann");
    for id in [&scene.id, &child] {
        wire.attach(id, json!({}));
        assert_eq!(wire.wait_quiet(id).last_status(), "interrupted", "{id}");
    }
    assert_eq!(conserved(&wire.view(&scene.id)), ["interrupted"]);
}

#[test]
fn the_built_in_model_gives_tasks_away_as_well() {
    let (_home, _daemon, wire, id) = rehearsal(json!({}));
    let view = wire.turn(&id, "task say 3 words");
    let (ok, result) = results(&view).remove(0);
    assert!(ok && result.starts_with("word1 word2 word3"), "{result}");
}

#[test]
fn an_effort_that_is_gone_keeps_nobody_from_giving_tasks() {
    let (home, fake) = crate::faked(Dialect::Anthropic);
    let config = |efforts: &[&str]| {
        let mut config = fake.config();
        config["providers"]["fake"]["models"]["m"]["metadata"]["variants"] = json!(efforts);
        home.config(&config);
    };
    config(&["low", "high"]);
    let _daemon = home.daemon();
    let wire = home.wire("ann");
    let id = wire.new_session(&home, json!({"variant": "high", "mode": "all"}));
    config(&["low"]);
    fake.reply(Reply::new().tool_call("task", task("one")));
    fake.reply(Reply::say("one is done"));
    fake.reply(Reply::say("after"));
    let view = wire.turn(&id, "go");
    let tools = view.of_type("tool");
    assert!(tools[0]["ok"] == true && tools[0]["result"].as_str().unwrap().contains("one is done"), "{tools:?}");
    fake.assert_clean();
}
