//! Whether a sequence of raw messages is legal: what `turn` entries hold, joined.

use serde_json::Value;
use std::collections::HashSet;

fn parts(message: &Value) -> Vec<Value> {
    match &message["content"] {
        Value::Array(parts) => parts.clone(),
        Value::String(text) => vec![serde_json::json!({"type": "text", "text": text})],
        _ => Vec::new(),
    }
}

fn word<'a>(value: &'a Value, key: &str) -> &'a str {
    value[key].as_str().unwrap_or_default()
}

/// Checks that each tool call has exactly one result directly behind its message, that results
/// answer calls, that call ids are unique, that every message has a known role and says something.
pub fn check(messages: &[Value]) -> Vec<String> {
    let mut wrong = Vec::new();
    let mut ids = HashSet::new();
    let mut open: Vec<String> = Vec::new();
    for (i, message) in messages.iter().enumerate() {
        let role = word(message, "role");
        if !["user", "assistant", "tool", "system"].contains(&role) {
            wrong.push(format!("message {i} has the role {role:?}"));
        }
        let parts = parts(message);
        if parts.is_empty() || parts.iter().all(|p| p["type"] == "text" && word(p, "text").trim().is_empty()) {
            wrong.push(format!("message {i} ({role}) says nothing"));
        }
        if role != "tool" && !open.is_empty() {
            wrong.push(format!("message {i} ({role}) comes before the results of {open:?}"));
            open.clear();
        }
        for part in &parts {
            match word(part, "type") {
                "tool-call" => {
                    let id = word(part, "toolCallId").to_owned();
                    if role != "assistant" || id.is_empty() || word(part, "toolName").is_empty() {
                        wrong.push(format!("message {i} ({role}) has an odd call: {part}"));
                    }
                    if !part["input"].is_object() {
                        wrong.push(format!("the input of call {id} is no object"));
                    }
                    if !ids.insert(id.clone()) {
                        wrong.push(format!("call id {id} is used twice"));
                    }
                    open.push(id);
                }
                "tool-result" => {
                    let id = word(part, "toolCallId");
                    match open.iter().position(|o| o == id) {
                        Some(index) if role == "tool" => drop(open.remove(index)),
                        _ => wrong.push(format!("message {i} ({role}) has a result for {id:?} that nobody waits for")),
                    }
                    if !["text", "json", "error-text", "content"].contains(&word(&part["output"], "type")) {
                        wrong.push(format!("the result of {id} has an odd output: {}", part["output"]));
                    }
                }
                _ => {}
            }
        }
    }
    if !open.is_empty() {
        wrong.push(format!("no results for {open:?} at the end"));
    }
    wrong
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn call(id: &str) -> Value {
        json!({"role":"assistant","content":[{"type":"tool-call","toolCallId":id,"toolName":"read","input":{}}]})
    }
    fn result(id: &str) -> Value {
        let output = json!({"type":"text","value":"x"});
        json!({"role":"tool","content":[{"type":"tool-result","toolCallId":id,"toolName":"read","output":output}]})
    }
    fn user() -> Value {
        json!({"role":"user","content":"hi"})
    }

    #[test]
    fn pairs_are_legal_and_everything_else_is_named() {
        assert_eq!(check(&[user(), call("a"), result("a"), user()]), Vec::<String>::new());
        for (messages, about) in [
            (vec![user(), call("a")], "at the end"),
            (vec![user(), call("a"), user(), result("a")], "before the results"),
            (vec![user(), call("a"), result("a"), call("a"), result("a")], "twice"),
            (vec![user(), result("a")], "nobody waits"),
            (vec![json!({"role":"assistant","content":[]})], "says nothing"),
            (vec![json!({"role":"user","content":" "})], "says nothing"),
        ] {
            let wrong = check(&messages);
            assert!(wrong.iter().any(|w| w.contains(about)), "{about}: {wrong:?}");
        }
    }
}
