//! A mock of every dialect, made by others: its idea of each stream, its errors, its cut answers.

use crate::install::{self, Installed};
use crate::served::Served;
use crate::{Place, asked, part};
use glrs_tests::{Dialect, Value, json};
use std::fs;
use std::process::Command;

/// Serves what is scripted, and a tool over MCP.
const SERVE: &str = r#"
import { readFileSync } from "node:fs";
import { LLMock, MCPMock } from "@copilotkit/aimock";

const mock = new LLMock({ host: "127.0.0.1", port: 0, strict: true, logLevel: "silent" });
mock.addFixturesFromJSON(readFileSync(process.argv[2], "utf8"));
const mcp = new MCPMock();
const inputSchema = { type: "object", properties: { text: { type: "string" } }, required: ["text"] };
mcp.addTool({ name: "shout", description: "Shouts.", inputSchema });
mcp.onToolCall("shout", (args) => String(args.text).toUpperCase());
mock.mount("/mcp", mcp);
console.log("at " + (await mock.start()));
process.stdin.resume();
process.stdin.on("end", () => process.exit(0));
"#;

/// What it answers. It looks at the last words of the person, and whether results follow them.
fn script() -> Value {
    let says = |words: &str, text: &str| json!({"match": {"userMessage": words}, "response": {"content": text}});
    let read = |path: &str| json!({"name": "read", "arguments": json!({"path": path}).to_string()});
    let shout = json!({"name": "mcp__loud__shout", "arguments": r#"{"text":"hear me"}"#});
    let step = |words: &str, after: bool, response: Value| json!({"match": {"userMessage": words, "hasToolResult": after}, "response": response});
    let busy = json!({"error": {"message": "slow down", "type": "rate_limit_error"}, "status": 429});
    let wrong = json!({"error": {"message": "that was wrong", "type": "invalid_request_error"}, "status": 400});
    json!([
        says("greet me", "Grüß Gott, 你好, hello: more than one chunk of twenty characters."),
        step("read both", false, json!({"content": "I look.", "toolCalls": [read("a.txt"), read("b.txt")]})),
        step("read both", true, json!({"content": "I have read both."})),
        step("call out", false, json!({"toolCalls": [shout]})),
        step("call out", true, json!({"content": "It was loud."})),
        {"match": {"userMessage": "think it over"}, "response": {"content": "So it is.", "reasoning": "On the one hand."}},
        {"match": {"userMessage": "you are busy", "sequenceIndex": 0}, "response": busy},
        {"match": {"userMessage": "you are busy", "sequenceIndex": 1}, "response": {"content": "Now I am not."}},
        {"match": {"userMessage": "do wrong"}, "response": wrong},
        {"match": {"userMessage": "stop early"}, "response": {"content": "It goes on and", "finishReason": "length"}},
        {"match": {"userMessage": "break off"}, "response": {"content": "This is to be cut somewhere in its middle, which is rather far from here."},
            "chunkSize": 8, "latency": 30, "truncateAfterChunks": 8},
        says("see this", "A dot."),
    ])
}

fn start() -> Result<(Installed, Served), String> {
    let there = install::npm(&["@copilotkit/aimock"])?;
    let serve = there.put("serve.mjs", SERVE);
    let script = there.put("script.json", &script().to_string());
    let mut command = Command::new("node");
    command.args([serve, script]);
    let served = Served::start(command, &there.path(""))?;
    Ok((there, served))
}

const PNG64: &str = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==";

#[test]
fn a_foreign_mock_is_understood_in_all_four_dialects() {
    let Some(_one) = asked() else { return };
    let Some((_there, served)) = part("@copilotkit/aimock", start()) else { return };
    for dialect in Dialect::ALL {
        let api = format!("{}/{}", served.url(), if dialect == Dialect::Gemini { "v1beta" } else { "v1" });
        let model = json!({"m": {"metadata": {"context": 100_000, "output": 4_000}}});
        let config = json!({
            "model": "mock/m", "vitals": false,
            "providers": {"mock": {"api": api, "dialect": dialect.as_str(), "keyEnv": "FAKE_KEY", "models": model}},
            "mcpServers": {"loud": {"type": "http", "url": format!("{}/mcp", served.url())}},
        });
        // Everyone else's counting starts anew with a session of ours: the mock counts by its own.
        let place = Place::new(&config);
        let hello = place.answer("greet me");
        assert_eq!(hello, "Grüß Gott, 你好, hello: more than one chunk of twenty characters.", "{dialect:?}");

        for name in ["a.txt", "b.txt"] {
            fs::write(place.home.file(name), format!("content of {name}\n")).unwrap();
        }
        assert_eq!(place.answer("read both"), "I have read both.", "{dialect:?}");
        let view = place.wire.view(&place.id);
        // They run side by side and are recorded as they end.
        let mut results: Vec<String> = view.of_type("tool").iter().map(|t| t["result"].to_string()).collect();
        results.sort();
        assert_eq!(results.len(), 2, "{dialect:?}: {results:?}");
        assert!(results[0].contains("content of a.txt") && results[1].contains("content of b.txt"), "{dialect:?}");

        assert_eq!(place.answer("call out"), "It was loud.", "{dialect:?}");
        let view = place.wire.view(&place.id);
        let last = view.of_type("tool").last().unwrap().to_string();
        assert!(last.contains("HEAR ME"), "{dialect:?}: {last}");

        assert_eq!(place.answer("think it over"), "So it is.", "{dialect:?}");
        let view = place.wire.view(&place.id);
        assert_eq!(view.texts("reasoning"), ["On the one hand."], "{dialect:?}");

        let image = json!([{"path": "dot.png", "mediaType": "image/png", "data": PNG64}]);
        let view = place.turn_with("see this", image);
        assert_eq!(view.texts("assistant").last(), Some(&"A dot."), "{dialect:?}: {:?}", view.texts("error"));

        let view = place.turn("stop early");
        assert_eq!(view.texts("assistant").last(), Some(&"It goes on and"), "{dialect:?}");
        assert!(view.texts("notice").iter().any(|n| n.contains("output limit")), "{dialect:?}: {view:#?}");

        let view = place.turn("break off");
        assert_eq!(view.last_status(), "failed", "{dialect:?}: {view:#?}");
        let kept = view.of_type("assistant").last().unwrap().to_string();
        assert!(kept.contains("This is") && kept.contains("partial"), "{dialect:?}: {kept}");

        let view = place.turn("do wrong");
        assert_eq!(view.last_status(), "failed", "{dialect:?}");
        assert!(
            view.texts("error").last().unwrap().contains("that was wrong"),
            "{dialect:?}: {:?}",
            view.texts("error")
        );

        // After all that the conversation is still one it takes.
        place.answer("greet me");
        place.check();
    }
}

#[test]
fn a_foreign_mock_that_is_busy_is_asked_again() {
    let Some(_one) = asked() else { return };
    let Some((_there, served)) = part("@copilotkit/aimock, busy", start()) else { return };
    let model = json!({"m": {"metadata": {"context": 100_000, "output": 4_000}}});
    let provider = json!({"api": format!("{}/v1", served.url()), "dialect": "anthropic", "models": model});
    let place = Place::new(&json!({"model": "mock/m", "providers": {"mock": provider}}));
    assert_eq!(place.answer("you are busy"), "Now I am not.");
    let view = place.turn("what nobody scripted");
    assert_eq!(view.last_status(), "failed");
    place.check();
}
