//! What the rehearsal understands.
//!
//! Owns: finding the request in a conversation and reading it. Pure.

use crate::tools::ToolSpec;
use glrs_protocol::message::{Message, Part, Role};
use serde_json::{Value, json};
use std::sync::Arc;

/// Most words and steps a request may ask for.
const MOST: u64 = 1_000_000;
/// Most steps a request may ask for: more than any turn is allowed.
const MOST_STEPS: u64 = 1_000;

/// One thing to do.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Request {
    Tool { name: &'static str, input: Value },
    Say(u64),
    Slow(u64),
    Think(u64),
    Fail,
}

/// The last thing a person asked, and how far it has come.
#[derive(Default)]
pub(super) struct Asked<'a> {
    /// The words.
    pub text: String,
    /// Tool rounds since.
    pub rounds: usize,
    /// Name and output of the last round's results.
    pub results: Option<Vec<(&'a str, &'a str)>>,
}

/// Finds the last message a person wrote. What glrs adds (vitals, context, a compacted conversation) is
/// not that.
pub(super) fn last_request(messages: &[Arc<Message>]) -> Asked<'_> {
    let Some((at, text)) = messages.iter().enumerate().rev().find_map(|(i, m)| Some((i, words(m)?))) else {
        return Asked::default();
    };
    let since = &messages[at + 1..];
    let rounds = since.iter().filter(|m| m.call_ids().next().is_some()).count();
    let last_call = since.iter().rposition(|m| m.role == Role::Assistant).map_or(0, |i| i + 1);
    let results: Vec<(&str, &str)> = since[last_call..]
        .iter()
        .flat_map(|m| &m.parts)
        .filter_map(|p| match p {
            Part::ToolResult { name, output, .. } => Some((name.as_str(), output.as_text())),
            _ => None,
        })
        .collect();
    Asked { text, rounds, results: (!results.is_empty()).then_some(results) }
}

/// A person's words in a message, without what was attached to them.
fn words(message: &Message) -> Option<String> {
    if message.role != Role::User {
        return None;
    }
    let text = message.parts.iter().find_map(|p| if let Part::Text(t) = p { Some(t) } else { None })?;
    let own: Vec<&str> =
        text.lines().take_while(|l| !l.starts_with("<context") && !l.starts_with("[vitals]")).collect();
    let own = own.join("\n").trim().to_owned();
    (!own.is_empty() && !own.starts_with("<earlier-conversation>")).then_some(own)
}

/// Reads requests: one a line, or joined by `; then `. Nothing when the first is none.
pub(super) fn parse(text: &str) -> Vec<Request> {
    let mut out = Vec::new();
    for (i, line) in text.lines().flat_map(|l| l.split("; then ")).map(str::trim).enumerate() {
        match request(line) {
            Some(mut found) => out.append(&mut found),
            None if i == 0 => return Vec::new(),
            None => {}
        }
    }
    out
}

fn request(line: &str) -> Option<Vec<Request>> {
    let (verb, rest) = line.split_once(char::is_whitespace).unwrap_or((line, ""));
    let rest = rest.trim();
    let tool = |name, input| Some(vec![Request::Tool { name, input }]);
    let count = |make: fn(u64) -> Request| {
        let (n, unit) = rest.split_once(' ').unwrap_or((rest, "words"));
        (unit == "words" || unit == "word").then_some(())?;
        Some(vec![make(n.parse::<u64>().ok()?.min(MOST))])
    };
    let verb = verb.to_ascii_lowercase();
    match verb.as_str() {
        "fail" if rest.is_empty() => Some(vec![Request::Fail]),
        "say" => count(Request::Say),
        "slow" => count(Request::Slow),
        "think" => count(Request::Think),
        "steps" => {
            let n = rest.parse::<u64>().ok()?.min(MOST_STEPS);
            Some((0..n).map(|_| Request::Tool { name: "glob", input: json!({"pattern": "*"}) }).collect())
        }
        _ if rest.is_empty() => None,
        // One word only: `read the manual` is no request.
        "read" if !rest.contains(char::is_whitespace) => tool("read", json!({ "path": rest })),
        "write" => {
            let (path, content) = rest.split_once(char::is_whitespace).unwrap_or((rest, ""));
            tool("write", json!({"path": path, "content": content.trim_start()}))
        }
        "edit" => {
            let (path, change) = rest.split_once(char::is_whitespace)?;
            let (old, new) = change.split_once("=>")?;
            tool("edit", json!({"path": path, "old": old.trim(), "new": new.trim()}))
        }
        "run" => tool("bash", json!({ "command": rest })),
        "grep" => tool("grep", json!({ "pattern": rest })),
        "glob" => tool("glob", json!({ "pattern": rest })),
        "task" => tool("task", json!({ "title": rest, "prompt": rest })),
        "ask" => tool("ask", json!({ "question": rest })),
        "plan" => {
            let items: Vec<Value> = rest
                .split(';')
                .map(str::trim)
                .filter(|t| !t.is_empty())
                .map(|t| json!({"text": t, "status": "pending"}))
                .collect();
            tool("plan", json!({ "items": items }))
        }
        _ => None,
    }
}

/// The input as the tool's schema has it: an `edit` that takes a list of edits gets one.
pub(super) fn fit(mut input: Value, spec: &ToolSpec) -> String {
    let schema: Value = serde_json::from_str(spec.schema.get()).unwrap_or_default();
    let wants_list = spec.name == "edit" && schema.pointer("/properties/edits").is_some();
    if wants_list && let Some(map) = input.as_object_mut() {
        let old = map.shift_remove("old");
        let new = map.shift_remove("new");
        map.insert("edits".into(), json!([{"old": old, "new": new}]));
    }
    input.to_string()
}

/// A brief of the conversation, as a compaction wants it: a title, a blank line, what was asked.
pub(super) fn brief(messages: &[Arc<Message>]) -> String {
    let first_line = |t: String| t.lines().next().unwrap_or("").chars().take(120).collect::<String>();
    let asked: Vec<String> = messages.iter().filter_map(|m| words(m)).map(first_line).collect();
    let mut out = String::from("Rehearsed conversation\n\nThe user asked:");
    for line in asked.iter().take(20) {
        out.push_str("\n- ");
        out.push_str(line);
    }
    out
}
