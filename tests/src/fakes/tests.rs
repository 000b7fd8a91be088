//! The fakes' own tests: legal requests pass, each broken rule is refused in the real words.

use super::http::post;
use super::*;

fn fake(dialect: Dialect) -> Fake {
    let fake = Fake::start(dialect);
    fake.answer_by(|_| Reply::say("hello there"));
    fake
}

pub(super) fn ask(fake: &Fake, body: &Value) -> (u16, String, bool) {
    let (path, key) = match fake.server.dialect {
        Dialect::Anthropic => ("/v1/messages", ("x-api-key", "k")),
        Dialect::OpenAi => ("/v1/chat/completions", ("authorization", "Bearer k")),
        Dialect::Responses => ("/v1/responses", ("authorization", "Bearer k")),
        Dialect::Gemini => ("/v1beta/models/gemini-3-m:streamGenerateContent?alt=sse", ("x-goog-api-key", "k")),
    };
    let headers = [key, ("anthropic-version", "2023-06-01"), ("content-type", "application/json")];
    post(fake.addr(), path, &headers, &body.to_string())
}

fn anthropic(messages: Value) -> Value {
    let schema = json!({"type": "object", "properties": {}});
    json!({"model": "m", "max_tokens": 4096, "stream": true, "system": "s", "messages": messages,
        "tools": [{"name": "read", "description": "d", "input_schema": schema}]})
}

fn openai(messages: Value) -> Value {
    let function = json!({"name": "read", "parameters": {"type": "object"}});
    json!({"model": "m", "stream": true, "stream_options": {"include_usage": true}, "messages": messages,
        "tools": [{"type": "function", "function": function}]})
}

fn user(text: &str) -> Value {
    json!({"role": "user", "content": text})
}

fn uses(ids: &[&str]) -> Value {
    let blocks: Vec<Value> =
        ids.iter().map(|id| json!({"type": "tool_use", "id": id, "name": "read", "input": {}})).collect();
    json!({"role": "assistant", "content": blocks})
}

fn results(ids: &[&str]) -> Value {
    let blocks: Vec<Value> =
        ids.iter().map(|id| json!({"type": "tool_result", "tool_use_id": id, "content": "x"})).collect();
    json!({"role": "user", "content": blocks})
}

#[track_caller]
pub(super) fn refused(fake: &Fake, body: &Value, words: &str) {
    let before = fake.violations().len();
    let (status, text, _) = ask(fake, body);
    assert_eq!(status, 400, "{body} was taken: {text}");
    assert!(text.contains(words), "{words:?} is not in {text}");
    assert_eq!(fake.violations().len(), before + 1);
}

#[test]
fn anthropic_takes_legal_requests() {
    let fake = fake(Dialect::Anthropic);
    let mut marked = results(&["a", "b"]);
    marked["content"]
        .as_array_mut()
        .unwrap()
        .push(json!({"type": "text", "text": "and?", "cache_control": {"type": "ephemeral"}}));
    for messages in [
        json!([user("hi")]),
        json!([user("hi"), {"role": "assistant", "content": "yes"}, user("go")]),
        json!([user("hi"), uses(&["a", "b"]), marked]),
    ] {
        let (status, text, whole) = ask(&fake, &anthropic(messages));
        assert!(status == 200 && whole, "{text}");
        assert!(text.contains("event: message_stop") && text.contains("\"text\":\"hello \""), "{text}");
    }
    fake.assert_clean();
    assert_eq!((fake.count(), fake.requests()[0].key.as_deref()), (3, Some("k")));
}

#[test]
fn anthropic_refuses_each_broken_rule() {
    let fake = fake(Dialect::Anthropic);
    let said = |content: Value| json!({"role": "assistant", "content": content});
    let late = json!({"role": "user", "content": [{"type": "text", "text": "t"}, results(&["a"])["content"][0]]});
    for (messages, words) in [
        (json!([]), "at least one message"),
        (json!([said(json!("x"))]), "first message must use"),
        (json!([user("a"), user("b")]), "roles must alternate"),
        (json!([user("a"), said(json!("x"))]), "does not support assistant message prefill"),
        (json!([user("")]), "must be non-empty"),
        (json!([user(" \n")]), "non-whitespace"),
        (json!([{"role": "user", "content": []}]), "non-empty content"),
        (json!([user("a"), uses(&["a"]), user("b")]), "without `tool_result` blocks immediately after: a"),
        (json!([user("a"), uses(&["a", "b"]), results(&["a"])]), "immediately after: b"),
        (json!([user("a"), uses(&["a"]), late]), "immediately after: a"),
        (json!([user("a"), uses(&["a"]), results(&["a", "a"])]), "each tool_use must have a single result"),
        (json!([results(&["a"])]), "unexpected `tool_use_id`"),
        (json!([user("a"), uses(&["a", "a"]), results(&["a"])]), "ids must be unique"),
        (json!([user("a"), uses(&["a.b"]), results(&["a.b"])]), "should match pattern"),
        (
            json!([
                user("a"),
                said(json!([uses(&["a"])["content"][0], {"type": "text", "text": "t"}])),
                results(&["a"])
            ]),
            "no block may follow",
        ),
        (
            json!([user("a"), said(json!([{"type": "thinking", "thinking": "t", "signature": "s"}])), user("b")]),
            "Invalid `signature`",
        ),
        (json!([{"role": "user", "content": "a", "id": "x"}]), "Extra inputs"),
        (
            json!([user("a"), uses(&["a"]), {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "a", "content": "", "is_error": true}]}]),
            "cannot be empty if `is_error`",
        ),
    ] {
        refused(&fake, &anthropic(messages), words);
    }
    let change = |key: &str, value: Value| {
        let mut body = anthropic(json!([user("a")]));
        body[key] = value;
        body
    };
    let tool = |name: &str, schema: Value| json!([{"name": name, "input_schema": schema}]);
    let mark = json!({"type": "text", "text": "t", "cache_control": {"type": "ephemeral"}});
    for (body, words) in [
        (change("max_tokens", Value::Null), "max_tokens: Field required"),
        (change("system", json!("")), "system: text content blocks"),
        (change("surprise", json!(1)), "surprise: Extra inputs"),
        (change("tools", tool("a b", json!({"type": "object"}))), "should match pattern"),
        (change("tools", tool("a", json!({}))), "input_schema.type"),
        (change("thinking", json!({"type": "enabled", "budget_tokens": 9000})), "must be greater than"),
        (change("messages", json!([{"role": "user", "content": vec![mark; 5]}])), "Found 5"),
    ] {
        refused(&fake, &body, words);
    }
}

#[test]
fn anthropic_wants_its_reasoning_back_unchanged() {
    let fake = Fake::start(Dialect::Anthropic);
    fake.reply(Reply::new().reasoning("let me see", "sig1").tool_call("read", json!({"path": "a"})).with_id("toolu_1"));
    let thinking = |messages: Value| {
        let mut body = anthropic(messages);
        body["thinking"] = json!({"type": "enabled", "budget_tokens": 1024});
        body
    };
    let (status, text, _) = ask(&fake, &thinking(json!([user("a")])));
    assert!(
        status == 200 && text.contains("signature_delta") && text.contains("\"stop_reason\":\"tool_use\""),
        "{text}"
    );
    let back = |text: &str, signature: &str| {
        let seal = json!({"type": "thinking", "thinking": text, "signature": signature});
        let call = uses(&["toolu_1"])["content"][0].clone();
        json!([user("a"), {"role": "assistant", "content": [seal, call]}, results(&["toolu_1"])])
    };
    fake.reply(Reply::say("done"));
    assert_eq!(ask(&fake, &thinking(back("let me see", "sig1"))).0, 200);
    fake.assert_clean();
    refused(&fake, &thinking(back("let me See", "sig1")), "Invalid `signature`");
    refused(&fake, &thinking(json!([user("a"), uses(&["toolu_1"]), results(&["toolu_1"])])), "Expected `thinking`");
}

#[test]
fn openai_takes_legal_requests_and_counts_the_cached_part() {
    let fake = Fake::start(Dialect::OpenAi);
    fake.reply(Reply::call("read", json!({"path": "a"})).usage(reply::Figures {
        input: 10,
        output: 5,
        cache_read: 90,
        cache_write: 0,
    }));
    let (status, text, _) = ask(&fake, &openai(json!([{"role": "system", "content": "s"}, user("hi")])));
    assert!(status == 200 && text.ends_with("data: [DONE]\n\n"), "{text}");
    assert!(text.contains("\"prompt_tokens\":100") && text.contains("\"cached_tokens\":90"), "{text}");
    assert!(text.contains("\"finish_reason\":\"tool_calls\""), "{text}");
    fake.assert_clean();
}

#[test]
fn openai_refuses_each_broken_rule() {
    let fake = fake(Dialect::OpenAi);
    let call = |id: &str, arguments: &str| json!({"id": id, "type": "function", "function": {"name": "read", "arguments": arguments}});
    let calls = |list: Value| json!({"role": "assistant", "content": null, "tool_calls": list});
    let tool = |id: &str| json!({"role": "tool", "tool_call_id": id, "content": "x"});
    let one = calls(json!([call("a", "{}")]));
    for (messages, words) in [
        (json!([]), "empty array"),
        (json!([user("a"), one, user("b")]), "did not have response messages: a"),
        (json!([user("a"), one]), "did not have response messages: a"),
        (json!([user("a"), tool("a")]), "must be a response"),
        (json!([user("a"), one, tool("b")]), "not found in 'tool_calls'"),
        (json!([user("a"), one, tool("a"), tool("a")]), "not found in 'tool_calls'"),
        (json!([user("a"), one, user("x"), tool("a")]), "did not have response"),
        (json!([user("a"), calls(json!([])), user("b")]), "empty array"),
        (json!([user("a"), calls(json!([call("a", "{")])), tool("a")]), "expected a string"),
        (json!([user("a"), calls(json!([call(&"x".repeat(41), "{}")])), tool("a")]), "string too long"),
        (json!([user("a"), {"role": "assistant", "content": null}, user("b")]), "got null"),
        (json!([user("a"), {"role": "assistant", "content": "x"}]), "Expected last role"),
        (json!([{"role": "robot", "content": "x"}]), "Supported values"),
    ] {
        refused(&fake, &openai(messages), words);
    }
    let mut both = openai(json!([user("a")]));
    both["max_tokens"] = json!(1);
    both["max_completion_tokens"] = json!(1);
    refused(&fake, &both, "at the same time");
    let mut long = openai(json!([user("a")]));
    long["max_completion_tokens"] = json!(32_000);
    assert_eq!(ask(&fake, &long).0, 200);
    long["model"] = json!("gpt-4o");
    refused(&fake, &long, "is too large: 32000");
    let mut empty = openai(json!([user("a")]));
    empty["tools"] = json!([]);
    refused(&fake, &empty, "empty array");
}

#[test]
fn vendors_behind_chat_completions_have_rules_of_their_own() {
    let fake = fake(Dialect::OpenAi);
    let as_model = |model: &str, messages: Value| {
        let mut body = openai(messages);
        body["model"] = json!(model);
        body
    };
    let looped = |thought: Value| {
        let call = json!({"id": "a", "type": "function", "function": {"name": "read", "arguments": "{}"}});
        let mut said = json!({"role": "assistant", "content": null, "tool_calls": [call]});
        if !thought.is_null() {
            said["reasoning_content"] = thought;
        }
        json!([user("a"), said, {"role": "tool", "tool_call_id": "a", "content": "x"}])
    };
    refused(&fake, &as_model("deepseek-v4-pro", looped(Value::Null)), "must be passed back");
    refused(&fake, &as_model("deepseek-v4-pro", looped(json!(""))), "must be passed back");
    let marked = |n: usize| {
        let part = json!({"type": "text", "text": "t", "cache_control": {"type": "ephemeral"}});
        json!([{"role": "user", "content": vec![part; n]}])
    };
    refused(&fake, &as_model("m", marked(1)), "cache_control");
    refused(&fake, &as_model("anthropic/claude", marked(5)), "Found 5");
    let image = json!({"type": "image_url", "image_url": {"url": "data:"}, "cache_control": {"type": "ephemeral"}});
    refused(&fake, &as_model("anthropic/claude", json!([{"role": "user", "content": [image]}])), "text only");
    let refusals = fake.violations().len();
    for body in [
        as_model("deepseek-v4-pro", looped(json!(" "))),
        as_model("m", looped(Value::Null)),
        as_model("anthropic/claude", marked(4)),
    ] {
        assert_eq!(ask(&fake, &body).0, 200);
    }
    assert_eq!((fake.violations().len(), fake.requests().last().unwrap().cache_marks()), (refusals, 4));
}

#[test]
fn what_is_not_scripted_or_not_allowed_is_a_violation() {
    let fake = Fake::start(Dialect::Anthropic);
    assert_eq!(ask(&fake, &anthropic(json!([user("a")]))).0, 500);
    let (status, text, _) = post(fake.addr(), "/v1/messages", &[], "{}");
    assert!(status == 401 && text.contains("authentication_error"), "{text}");
    assert_eq!(post(fake.addr(), "/v1/complete", &[], "{}").0, 404);
    assert_eq!(fake.violations().len(), 3);
}

#[test]
fn streams_are_held_by_gates_and_broken_where_the_script_says() {
    let fake = Arc::new(Fake::start(Dialect::Anthropic));
    let gate = Gate::new();
    fake.reply(Reply::say("one ").gate(&gate).text("two"));
    let client = Arc::clone(&fake);
    let thread = std::thread::spawn(move || ask(&client, &anthropic(json!([user("a")]))));
    gate.wait_reached();
    assert!(!thread.is_finished());
    gate.open();
    let (_, text, whole) = thread.join().unwrap();
    assert!(whole && text.contains("\"two\""));
    fake.reply(Reply::say("one two three").close_after(300));
    let (status, text, whole) = ask(&fake, &anthropic(json!([user("a")])));
    assert!(status == 200 && !whole, "{text}");
    fake.reply(Reply::nothing());
    assert_eq!(ask(&fake, &anthropic(json!([user("a")]))).0, 0);
    fake.reply(Reply::http(503, "text/html", "<html>"));
    assert_eq!(ask(&fake, &anthropic(json!([user("a")]))), (503, "<html>".to_owned(), true));
    fake.assert_clean();
}
