//! The fakes' own tests, of the dialects that came later: Responses and Gemini.

use super::tests::{ask, refused};
use super::*;

fn responses(input: Value) -> Value {
    let tool = json!({"type": "function", "name": "read", "parameters": {"type": "object"}, "strict": false});
    json!({"model": "m", "stream": true, "store": false, "include": ["reasoning.encrypted_content"],
        "instructions": "s", "max_output_tokens": 4096, "input": input, "tools": [tool]})
}

fn said(text: &str) -> Value {
    json!({"type": "message", "role": "user", "content": [{"type": "input_text", "text": text}]})
}

fn calls(id: &str) -> Value {
    json!({"type": "function_call", "call_id": id, "name": "read", "arguments": "{}"})
}

fn output(id: &str) -> Value {
    json!({"type": "function_call_output", "call_id": id, "output": "x"})
}

#[test]
fn responses_takes_legal_requests() {
    let fake = Fake::start(Dialect::Responses);
    fake.answer_by(|_| Reply::say("hello there"));
    let answer = json!({"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "x"}]});
    for input in [
        json!([said("hi")]),
        json!([said("hi"), answer, said("go")]),
        json!([said("hi"), calls("a"), calls("b"), output("b"), output("a"), said("and?")]),
    ] {
        let (status, text, whole) = ask(&fake, &responses(input));
        assert!(status == 200 && whole, "{text}");
        assert!(text.contains("event: response.completed") && text.contains("\"delta\":\"hello \""), "{text}");
    }
    fake.assert_clean();
    assert_eq!((fake.count(), fake.requests()[0].key.as_deref()), (3, Some("k")));
}

#[test]
fn responses_refuses_each_broken_rule() {
    let fake = Fake::start(Dialect::Responses);
    let wrong_side = json!({"type": "message", "role": "assistant", "content": [{"type": "input_text", "text": "x"}]});
    let mut named = calls("a");
    named["id"] = json!("call_1");
    let mut broken = calls("a");
    broken["arguments"] = json!("{");
    let unknown = json!({"type": "reasoning", "id": "rs_1", "summary": []});
    let forged = json!({"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "made up"});
    for (input, words) in [
        (json!([]), "empty array"),
        (json!([said(" ")]), "Missing required parameter"),
        (json!([said("a"), wrong_side, said("b")]), "Supported values are: 'output_text' and 'refusal'"),
        (json!([said("a"), calls("a"), said("b")]), "No tool output found for function call a"),
        (json!([said("a"), calls("a")]), "No tool output found for function call a"),
        (json!([said("a"), output("a")]), "No tool call found for function call output with call_id a"),
        (json!([said("a"), calls("a"), output("a"), output("a")]), "No tool call found"),
        (json!([said("a"), calls("a"), calls("a"), output("a")]), "Duplicate item"),
        (json!([said("a"), calls(&"x".repeat(65)), output("a")]), "string too long"),
        (json!([said("a"), named, output("a")]), "begins with 'fc'"),
        (json!([said("a"), broken, output("a")]), "Invalid type for"),
        (json!([said("a"), unknown, calls("a"), output("a")]), "Items are not persisted"),
        (json!([said("a"), forged, calls("a"), output("a")]), "could not be verified"),
        (json!([said("a"), {"type": "tool_use", "id": "x"}]), "Supported values are"),
        (json!([{"role": "robot", "content": "x"}]), "Invalid value: 'robot'"),
    ] {
        refused(&fake, &responses(input), words);
    }
    let change = |key: &str, value: Value| {
        let mut body = responses(json!([said("a")]));
        body[key] = value;
        body
    };
    for (body, words) in [
        (change("messages", json!([])), "Unknown parameter: 'messages'"),
        (change("store", json!(true)), "stores nothing"),
        (change("max_output_tokens", json!(1)), "below minimum"),
        (change("tools", json!([])), "empty array"),
        (change("tools", json!([{"type": "function", "function": {"name": "read"}}])), "Unknown parameter"),
        (
            change("tools", json!([{"type": "function", "name": "r", "parameters": {"type": "object"}}])),
            "additionalProperties",
        ),
        (change("model", json!("gpt-4.1")), "Encrypted content is not supported"),
    ] {
        refused(&fake, &body, words);
    }
}

#[test]
fn responses_wants_its_reasoning_back_unchanged_and_with_what_it_led_to() {
    let fake = Fake::start(Dialect::Responses);
    fake.reply(Reply::new().reasoning("let me see", "seal").tool_call("read", json!({})).with_id("call_1"));
    let (_, text, _) = ask(&fake, &responses(json!([said("a")])));
    assert!(text.contains("\"encrypted_content\":\"seal\"") && text.contains("reasoning_summary_text.delta"), "{text}");
    let item = text.split("\"item\":").find(|p| p.contains("encrypted_content") && p.contains("let me see")).unwrap();
    let item: Value = serde_json::Deserializer::from_str(item).into_iter().next().unwrap().unwrap();
    fake.answer_by(|_| Reply::say("done"));
    assert_eq!(ask(&fake, &responses(json!([said("a"), item, calls("call_1"), output("call_1")]))).0, 200);
    fake.assert_clean();
    let mut changed = item.clone();
    changed["summary"][0]["text"] = json!("let me See");
    refused(&fake, &responses(json!([said("a"), changed, calls("call_1"), output("call_1")])), "could not be verified");
    refused(&fake, &responses(json!([said("a"), item, said("b")])), "required following item");
    refused(&fake, &responses(json!([said("a"), item, calls("other"), output("other")])), "required following item");
}

fn gemini(contents: Value) -> Value {
    let schema = json!({"type": "object", "properties": {"path": {"type": "string"}}});
    json!({"contents": contents, "systemInstruction": {"parts": [{"text": "s"}]},
        "tools": [{"functionDeclarations": [{"name": "read", "description": "d", "parameters": schema}]}],
        "generationConfig": {"maxOutputTokens": 4096, "thinkingConfig": {"includeThoughts": true}}})
}

fn user(text: &str) -> Value {
    json!({"role": "user", "parts": [{"text": text}]})
}

fn model(parts: Value) -> Value {
    json!({"role": "model", "parts": parts})
}

fn function(signature: &str) -> Value {
    let mut part = json!({"functionCall": {"name": "read", "args": {"path": "a"}}});
    if !signature.is_empty() {
        part["thoughtSignature"] = json!(signature);
    }
    part
}

fn result(name: &str) -> Value {
    json!({"functionResponse": {"name": name, "response": {"output": "x"}}})
}

fn answers(parts: Value) -> Value {
    json!({"role": "user", "parts": parts})
}

#[test]
fn gemini_takes_legal_requests() {
    let fake = Fake::start(Dialect::Gemini);
    fake.answer_by(|_| Reply::say("hello there"));
    let unsigned = function(gemini::UNSIGNED);
    for contents in [
        json!([user("hi")]),
        json!([user("hi"), model(json!([{"text": "yes"}])), user("go")]),
        json!([
            user("hi"),
            model(json!([unsigned, function("")])),
            answers(json!([result("read"), result("read"), {"text": "and?"}]))
        ]),
        // What lies behind the current turn is not looked at so closely.
        json!([
            user("hi"),
            model(json!([function("")])),
            answers(json!([result("read")])),
            model(json!([{"text": "x"}])),
            user("b")
        ]),
    ] {
        let (status, text, whole) = ask(&fake, &gemini(contents));
        assert!(status == 200 && whole, "{text}");
        assert!(text.contains("\"finishReason\":\"STOP\"") && text.contains("\"text\":\"hello \""), "{text}");
    }
    fake.assert_clean();
    let unstreamed = "/v1beta/models/m:streamGenerateContent";
    let (status, text, _) = http::post(fake.addr(), unstreamed, &[("x-goog-api-key", "k")], "{}");
    assert!(status == 404 && text.contains("NOT_FOUND"), "{text}");
}

#[test]
fn gemini_refuses_each_broken_rule() {
    let fake = Fake::start(Dialect::Gemini);
    let signed = function(gemini::UNSIGNED);
    for (contents, words) in [
        (json!([]), "contents is not specified"),
        (json!([{"role": "assistant", "parts": [{"text": "x"}]}]), "valid role"),
        (json!([user("a"), user("b")]), "alternate"),
        (json!([model(json!([{"text": "x"}]))]), "alternate"),
        (json!([user("a"), model(json!([{"text": "x"}]))]), "end with a user role"),
        (json!([{"role": "user", "parts": []}]), "must not be empty"),
        (json!([user(" ")]), "must have a text parameter"),
        (
            json!([answers(json!([{"text": "a", "inlineData": {"mimeType": "image/png", "data": "QQ=="}}]))]),
            "oneof field 'data'",
        ),
        (json!([answers(json!([{"thought": true}]))]), "oneof field 'data'"),
        (json!([answers(json!([{"type": "text", "text": "a"}]))]), "Unknown name"),
        (json!([user("a"), model(json!([signed])), user("b")]), "number of function response parts"),
        (
            json!([user("a"), model(json!([signed, function("")])), answers(json!([result("read")]))]),
            "number of function response",
        ),
        (json!([answers(json!([result("read")]))]), "number of function response parts"),
        (json!([user("a"), model(json!([signed])), answers(json!([result("write")]))]), "has the name"),
        (
            json!([user("a"), model(json!([function("")])), answers(json!([result("read")]))]),
            "missing a thought_signature",
        ),
        (json!([user("a"), model(json!([function("forged")])), answers(json!([result("read")]))]), "not valid"),
        (json!([user("a"), model(json!([{"text": "x", "thoughtSignature": "forged"}])), user("b")]), "not valid"),
        (
            json!([answers(json!([{"inlineData": {"mimeType": "image/png", "data": "data:image/png;base64,QQ=="}}]))]),
            "Base64",
        ),
    ] {
        refused(&fake, &gemini(contents), words);
    }
    let change = |pointer: &str, value: Value| {
        let mut body = gemini(json!([user("a")]));
        *body.pointer_mut(pointer).unwrap() = value;
        body
    };
    let parameters = "/tools/0/functionDeclarations/0/parameters";
    for (body, words) in [
        (change(parameters, json!({"type": "object", "properties": {}})), "should be non-empty"),
        (change(parameters, json!({"type": "object", "additionalProperties": false})), "additionalProperties"),
        (change(parameters, json!({"type": "object", "properties": {"a": {"type": "array"}}})), "missing field"),
        (
            change(parameters, json!({"type": "object", "properties": {"a": {"type": ["string", "null"]}}})),
            "not repeating",
        ),
        (change(parameters, json!({"type": "object", "properties": {"a": {}}})), "schema type field"),
        (change("/generationConfig/thinkingConfig", json!({"thinkingLevel": "huge"})), "thinking_level"),
        (
            change("/generationConfig/thinkingConfig", json!({"thinkingLevel": "low", "thinkingBudget": 1})),
            "only one of",
        ),
        (change("/tools/0/functionDeclarations/0/name", json!("1read")), "Must start with a letter"),
    ] {
        refused(&fake, &body, words);
    }
    let mut chat = gemini(json!([user("a")]));
    chat["messages"] = json!([]);
    refused(&fake, &chat, "Unknown name");
}

#[test]
fn gemini_wants_signatures_back_on_the_calls_they_came_with() {
    let fake = Fake::start(Dialect::Gemini);
    fake.reply(Reply::new().reasoning("let me see", "seal").tool_call("read", json!({"path": "a"})));
    let (_, text, _) = ask(&fake, &gemini(json!([user("a")])));
    assert!(text.contains("\"thoughtSignature\":\"seal\"") && text.contains("\"thought\":true"), "{text}");
    fake.answer_by(|_| Reply::say("done"));
    let back = |part: Value| gemini(json!([user("a"), model(json!([part])), answers(json!([result("read")]))]));
    assert_eq!(ask(&fake, &back(function("seal"))).0, 200);
    fake.assert_clean();
    let mut changed = function("seal");
    changed["functionCall"]["args"] = json!({"path": "b"});
    refused(&fake, &back(changed), "not valid");
}
