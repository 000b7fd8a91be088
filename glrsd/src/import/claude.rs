//! Transcripts of Claude Code: JSON lines, a tree by `uuid` and `parentUuid`.
//!
//! Owns which lines are the conversation: the branch that the file ends on, without subagents.
//! What people see and what the model was sent are kept apart as far as the lines say so.

use super::build::Builder;
use super::{ImportError, Imported, Line};
use glrs_protocol::entry::Usage;
use glrs_protocol::message::{Part, empty_object};
use serde_json::Value;
use serde_json::value::{RawValue, to_raw_value};
use std::collections::{HashMap, HashSet};

pub(super) fn read(lines: &[Line]) -> Result<Imported, ImportError> {
    let mut b = Builder::default();
    let live = branch(lines, &mut b);
    let mut title = None;
    let mut usages = Usages::default();
    for (i, line) in lines.iter().enumerate() {
        let Some(line) = line else {
            b.notes.count("lines that are no JSON left out");
            continue;
        };
        let kind = line["type"].as_str().unwrap_or_default();
        match kind {
            "summary" => title = line["summary"].as_str().map(|t| (t, "model")).or(title),
            "ai-title" => title = line["aiTitle"].as_str().or(line["title"].as_str()).map(|t| (t, "model")).or(title),
            "custom-title" => {
                title = line["customTitle"].as_str().or(line["title"].as_str()).map(|t| (t, "person")).or(title);
            }
            "user" | "assistant" | "system" if !live.contains(&i) => {}
            "user" => {
                // Results may come between the lines of one answer.
                if ids(Some(line), "tool_result", "tool_use_id").next().is_none() {
                    usages.flush(&mut b);
                }
                b.at(line["timestamp"].as_str());
                b.cwd(line["cwd"].as_str());
                user(&mut b, line);
            }
            "assistant" => {
                let id = line["message"]["id"].as_str();
                usages.next(id, &mut b);
                b.at(line["timestamp"].as_str());
                b.cwd(line["cwd"].as_str());
                assistant(&mut b, line, id);
                usages.take(&line["message"]);
            }
            "system" => match line["subtype"].as_str() {
                // The brief itself comes as a message of its own.
                Some("compact_boundary") => {}
                _ => b.notes.count("messages of the program itself left out (`system` lines)"),
            },
            "" => b.notes.count("lines without a type left out"),
            _ => b.notes.count("lines that are no part of the conversation left out (snapshots, queue, hooks)"),
        }
    }
    usages.flush(&mut b);
    b.end_turn(glrs_protocol::entry::TurnStatus::Done);
    if let Some((text, by)) = title {
        b.title(text, by);
    }
    b.finish()
}

/// The lines of the conversation: from the last message back to the first. Results of calls and
/// parts of answers on the branch belong to it, even where they stand beside it: calls that ran at
/// once make forks of their own.
fn branch(lines: &[Line], b: &mut Builder) -> HashSet<usize> {
    let spoken = |l: &Value| matches!(l["type"].as_str(), Some("user" | "assistant" | "system"));
    let sidechain = |l: &Value| l["isSidechain"].as_bool() == Some(true);
    let mut by_uuid: HashMap<&str, usize> = HashMap::new();
    let mut main: Vec<usize> = Vec::new();
    for (i, line) in lines.iter().enumerate() {
        let Some(line) = line else { continue };
        if sidechain(line) {
            b.notes.count("lines of subagents (sidechains) left out");
            continue;
        }
        if let Some(uuid) = line["uuid"].as_str() {
            by_uuid.insert(uuid, i);
        }
        if spoken(line) {
            main.push(i);
        }
    }
    let mut live: HashSet<usize> = HashSet::new();
    let mut seen: HashSet<usize> = HashSet::new();
    let is_message = |i: &usize| lines[*i].as_ref().is_some_and(|l| l["type"] != "system");
    let mut at = main.iter().rev().find(|i| is_message(i)).copied();
    while let Some(i) = at {
        // A ring of parents is no branch.
        if !seen.insert(i) {
            break;
        }
        let Some(line) = &lines[i] else { break };
        if spoken(line) {
            live.insert(i);
        }
        let parent = line["parentUuid"].as_str().or(line["logicalParentUuid"].as_str());
        at = match parent {
            Some(p) => by_uuid.get(p).copied().or_else(|| before(&main, i)),
            // The first message of the file, or of a file without a tree.
            None if line.get("parentUuid").is_some() => None,
            None => before(&main, i),
        };
    }
    let answers: HashSet<String> = live.iter().filter_map(|i| message_id(lines[*i].as_ref()?)).collect();
    live.extend(main.iter().filter(|i| lines[**i].as_ref().and_then(message_id).is_some_and(|m| answers.contains(&m))));
    let calls: HashSet<&str> = live.iter().flat_map(|i| ids(lines[*i].as_ref(), "tool_use", "id")).collect();
    let results =
        main.iter().filter(|i| ids(lines[**i].as_ref(), "tool_result", "tool_use_id").any(|c| calls.contains(c)));
    live.extend(results.copied().collect::<Vec<_>>());
    for _ in main.iter().filter(|i| !live.contains(i) && is_message(i)) {
        b.notes.count("lines of branches that were left (rewound or edited) left out");
    }
    live
}

fn before(main: &[usize], i: usize) -> Option<usize> {
    main.partition_point(|m| *m < i).checked_sub(1).map(|k| main[k])
}

fn message_id(line: &Value) -> Option<String> {
    (line["type"] == "assistant").then(|| line["message"]["id"].as_str().map(str::to_owned))?
}

/// What the blocks of a kind have in a field.
fn ids<'a>(line: Option<&'a Value>, kind: &'static str, field: &'static str) -> impl Iterator<Item = &'a str> {
    let blocks = line.and_then(|l| l["message"]["content"].as_array()).map(Vec::as_slice).unwrap_or_default();
    blocks.iter().filter(move |b| b["type"] == kind).filter_map(move |b| b[field].as_str())
}

fn user(b: &mut Builder, line: &Value) {
    let content = &line["message"]["content"];
    let mut parts = Vec::new();
    match content {
        Value::String(text) => parts.push(Part::Text(text.clone())),
        Value::Array(blocks) => {
            for block in blocks {
                match block["type"].as_str() {
                    Some("text") => parts.push(Part::Text(block["text"].as_str().unwrap_or_default().to_owned())),
                    Some("tool_result") => {
                        let text = result_text(b, &block["content"]);
                        let ok = block["is_error"].as_bool() != Some(true);
                        b.result(block["tool_use_id"].as_str().unwrap_or_default(), &text, ok);
                    }
                    Some("image") => parts.extend(file(b, block, "image")),
                    Some("document") => parts.extend(file(b, block, "file")),
                    _ => b.notes.count("parts of messages of an unknown kind left out"),
                }
            }
        }
        _ => b.notes.count("messages without content left out"),
    }
    let text = || parts.iter().filter_map(|p| if let Part::Text(t) = p { Some(t.as_str()) } else { None });
    if line["isCompactSummary"].as_bool() == Some(true) {
        let brief = text().collect::<Vec<_>>().join("\n");
        b.compacted(&brief);
    } else if line["isMeta"].as_bool() == Some(true) {
        let said = text().collect::<Vec<_>>().join("\n");
        b.meta(&said);
    } else if text().next().is_some_and(|t| t.starts_with("[Request interrupted by user")) {
        b.end_turn(glrs_protocol::entry::TurnStatus::Interrupted);
    } else if !parts.is_empty() {
        b.user(parts);
    }
}

fn file(b: &mut Builder, block: &Value, kind: &'static str) -> Option<Part> {
    let source = &block["source"];
    match (source["data"].as_str(), source["media_type"].as_str()) {
        (Some(data), Some(media)) if source["type"] == "base64" => {
            Some(Part::File { kind, media_type: media.to_owned(), data: data.to_owned() })
        }
        _ => {
            b.notes.count("images and files that are not in the transcript itself left out");
            None
        }
    }
}

fn result_text(b: &mut Builder, content: &Value) -> String {
    match content {
        Value::String(text) => text.clone(),
        Value::Array(blocks) => {
            let mut out: Vec<&str> = Vec::new();
            for block in blocks {
                match block["text"].as_str() {
                    Some(text) => out.push(text),
                    None => {
                        b.notes.count("images in tool results left out");
                        out.push("[image]");
                    }
                }
            }
            out.join("\n")
        }
        _ => String::new(),
    }
}

fn assistant(b: &mut Builder, line: &Value, id: Option<&str>) {
    let content = &line["message"]["content"];
    if line["isApiErrorMessage"].as_bool() == Some(true) {
        let text = content.as_str().or(content[0]["text"].as_str()).unwrap_or("the model's provider failed");
        return b.failure(text);
    }
    if let Some(text) = content.as_str() {
        return b.assistant(id, text);
    }
    for block in content.as_array().map(Vec::as_slice).unwrap_or_default() {
        match block["type"].as_str() {
            Some("text") => b.assistant(id, block["text"].as_str().unwrap_or_default()),
            Some("tool_use") => {
                let (call, name) = (block["id"].as_str(), block["name"].as_str());
                b.call(id, call.unwrap_or_default(), name.unwrap_or("unknown"), raw(&block["input"]));
            }
            Some("thinking") => {
                b.reasoning(block["thinking"].as_str().unwrap_or_default());
                b.notes.count(
                    "pieces of reasoning are shown, and not sent to a model again: they are signed for one provider",
                );
            }
            Some("redacted_thinking") => b.notes.count("pieces of sealed reasoning left out"),
            _ => b.notes.count("parts of answers of an unknown kind left out"),
        }
    }
}

fn raw(value: &Value) -> Box<RawValue> {
    if value.is_null() { empty_object() } else { to_raw_value(value).unwrap_or_else(|_| empty_object()) }
}

/// The usage of an answer stands on each of its lines; the last one counts.
#[derive(Default)]
struct Usages {
    of: Option<String>,
    last: Option<Usage>,
}

impl Usages {
    fn next(&mut self, id: Option<&str>, b: &mut Builder) {
        if self.of.as_deref() != id || id.is_none() {
            self.flush(b);
            self.of = id.map(str::to_owned);
        }
    }

    fn take(&mut self, message: &Value) {
        let n = |k: &str| message["usage"][k].as_u64().unwrap_or(0);
        let (cached, output) = (n("cache_read_input_tokens"), n("output_tokens"));
        let input = n("input_tokens") + n("cache_creation_input_tokens") + cached;
        if input + output > 0 {
            let model = message["model"].as_str().map(|m| format!("anthropic/{m}"));
            let (input, output) = (Some(input), Some(output));
            let tokens = input.unwrap_or(0) + output.unwrap_or(0);
            self.last = Some(Usage { tokens, cached, input, output, model, ..Usage::default() });
        }
    }

    fn flush(&mut self, b: &mut Builder) {
        if let Some(usage) = self.last.take() {
            b.usage(usage);
        }
    }
}
