//! Whether a session file is what session-file.md says: one JSON value, its lines, its trailer.

use super::messages;
use serde_json::Value;
use std::collections::{HashMap, HashSet};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

const KINDS: [&str; 11] =
    ["user", "assistant", "tool", "reasoning", "usage", "turn", "notice", "error", "cleared", "compacted", "custom"];

type Fits = fn(&Value) -> bool;

/// What is in a session file, and what is wrong with it.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// The header and trailer fields.
    pub head: Value,
    /// The entries, oldest first.
    pub entries: Vec<Value>,
    /// Everything that is wrong.
    pub wrong: Vec<String>,
    /// Length of the file.
    pub bytes: u64,
}

impl Report {
    /// Asserts that nothing is wrong.
    ///
    /// # Panics
    /// When something is.
    #[track_caller]
    pub fn clean(self) -> Self {
        assert!(self.wrong.is_empty(), "an illegal session file: {:#?}", self.wrong);
        self
    }

    /// `text` of the entries of one type.
    pub fn texts(&self, kind: &str) -> Vec<&str> {
        self.entries.iter().filter(|e| e["type"] == kind).filter_map(|e| e["text"].as_str()).collect()
    }

    /// The raw messages of all `turn` entries, joined.
    pub fn messages(&self) -> Vec<Value> {
        let turns = self.entries.iter().filter(|e| e["type"] == "turn");
        turns.flat_map(|t| t["messages"].as_array().cloned().unwrap_or_default()).collect()
    }
}

/// Checks a session file in the layout that glrs writes.
pub fn session(path: &Path) -> Report {
    let mut report = Report::default();
    let bytes = match fs::read(path) {
        Ok(bytes) => bytes,
        Err(e) => {
            report.wrong.push(format!("{}: {e}", path.display()));
            return report;
        }
    };
    report.bytes = bytes.len() as u64;
    if let Ok(meta) = fs::metadata(path)
        && meta.permissions().mode() & 0o777 != 0o600
    {
        report.wrong.push(format!("the file's mode is {:o}", meta.permissions().mode() & 0o777));
    }
    let Ok(text) = String::from_utf8(bytes) else {
        report.wrong.push("the file is not UTF-8".to_owned());
        return report;
    };
    let id = path.file_stem().and_then(|s| s.to_str()).unwrap_or_default();
    report.text(&text, id);
    report
}

impl Report {
    fn bad(&mut self, what: impl Into<String>) {
        self.wrong.push(what.into());
    }

    fn text(&mut self, text: &str, id: &str) {
        match serde_json::from_str::<Value>(text) {
            Ok(whole) => {
                self.entries = whole["events"].as_array().cloned().unwrap_or_default();
                self.head = whole;
                if let Some(map) = self.head.as_object_mut() {
                    map.shift_remove("events");
                }
            }
            Err(e) => return self.bad(format!("the file is not one JSON value: {e}")),
        }
        self.head_fields(id);
        self.lines(text);
        self.trailer(text);
        self.each_entry();
        self.calls();
    }

    fn head_fields(&mut self, id: &str) {
        let head = self.head.clone();
        if head["schema"] != 2 || head["id"] != id {
            self.bad(format!("the header says schema {} and id {}", head["schema"], head["id"]));
        }
        if !head["cwd"].as_str().is_some_and(|c| c.starts_with('/')) {
            self.bad(format!("the header's cwd is {}", head["cwd"]));
        }
        if !head["createdAt"].as_str().is_some_and(is_time) {
            self.bad(format!("createdAt is {}", head["createdAt"]));
        }
    }

    fn lines(&mut self, text: &str) {
        let lines: Vec<&str> = text.split('\n').collect();
        if !lines[0].starts_with("{\"schema\":2,") || !lines[0].ends_with("\"events\":[") {
            self.bad(format!("the header line is {:?}", lines[0]));
        }
        let last = lines.len() - 1;
        if !lines[last].starts_with("],\"updatedAt\":") || !lines[last].ends_with('}') {
            self.bad(format!("the trailer line is {:?}", lines[last]));
        }
        let body = &lines[1..last.max(1)];
        if body.len() != self.entries.len() {
            self.bad(format!("{} lines hold {} entries", body.len(), self.entries.len()));
        }
        for (i, line) in body.iter().enumerate() {
            let entry = if i == 0 { Some(*line) } else { line.strip_prefix(',') };
            if !entry.is_some_and(|e| e.starts_with("{\"type\":\"") && e.ends_with('}')) {
                self.bad(format!("line {} is not an entry as written: {line:?}", i + 2));
            }
        }
    }

    fn trailer(&mut self, text: &str) {
        let head = self.head.clone();
        if head["entries"].as_u64() != Some(self.entries.len() as u64) {
            self.bad(format!("the trailer says {} entries, there are {}", head["entries"], self.entries.len()));
        }
        if let Some(last) = self.entries.last().cloned()
            && head["updatedAt"] != last["at"]
        {
            self.bad(format!("updatedAt is {}, the last entry's at is {}", head["updatedAt"], last["at"]));
        }
        let used =
            self.entries.iter().rev().find(|e| e["type"] == "usage").map_or(0, |e| e["tokens"].as_u64().unwrap_or(0));
        if head["contextTokens"].as_u64() != Some(used) {
            self.bad(format!("contextTokens is {}, the last usage has {used}", head["contextTokens"]));
        }
        let end = text.rfind('\n').map_or(0, |at| at + 1) as u64;
        if head["synced"].as_u64().is_none_or(|s| s > end) {
            self.bad(format!("synced is {}, the entries end at {end}", head["synced"]));
        }
    }

    fn each_entry(&mut self) {
        for (i, entry) in self.entries.clone().iter().enumerate() {
            let (n, kind) = (i + 1, entry["type"].as_str().unwrap_or_default());
            if !KINDS.contains(&kind) {
                self.bad(format!("entry {n} has the kind {kind:?}"));
            }
            if !entry["at"].as_str().is_some_and(is_time) {
                self.bad(format!("entry {n} ({kind}) has at {}", entry["at"]));
            }
            let fields: &[(&str, Fits)] = match kind {
                "user" | "assistant" | "notice" | "error" => &[("text", Value::is_string)],
                "reasoning" => &[("text", Value::is_string), ("elapsedMs", Value::is_u64)],
                "tool" => &[
                    ("name", Value::is_string),
                    ("detail", Value::is_string),
                    ("elapsedMs", Value::is_u64),
                    ("ok", Value::is_boolean),
                    ("result", Value::is_string),
                ],
                "usage" => &[("tokens", Value::is_u64), ("cached", Value::is_u64)],
                "turn" => &[("messages", Value::is_array), ("status", Value::is_string)],
                "cleared" => &[("reason", Value::is_string)],
                "compacted" => {
                    &[("summary", Value::is_string), ("dropped", Value::is_u64), ("keptFrom", Value::is_array)]
                }
                "custom" => &[("custom", Value::is_string), ("data", |_| true)],
                _ => &[],
            };
            for (key, fits) in fields {
                if !entry.get(*key).is_some_and(fits) {
                    self.bad(format!("entry {n} ({kind}) has {key} {:?}", entry.get(*key)));
                }
            }
            let result = entry["result"].as_str().unwrap_or_default().chars().count();
            if kind == "tool" && result > 30_000 {
                self.bad(format!("entry {n} has a result of {result} characters"));
            }
            let status = entry["status"].as_str().unwrap_or_default();
            if kind == "turn" && !["step", "done", "interrupted", "failed", "context", "limit"].contains(&status) {
                self.bad(format!("entry {n} has the status {status:?}"));
            }
        }
    }

    /// Each call in the messages has one result there and one `tool` entry, and no more.
    fn calls(&mut self) {
        self.wrong.extend(messages::check(&self.messages()));
        let mut ended: HashMap<String, usize> = HashMap::new();
        for entry in self.entries.iter().filter(|e| e["type"] == "tool" && e["by"].is_null()) {
            *ended.entry(entry["callId"].as_str().unwrap_or_default().to_owned()).or_default() += 1;
        }
        let called: HashSet<String> = self
            .messages()
            .iter()
            .flat_map(|m| m["content"].as_array().cloned().unwrap_or_default())
            .filter(|p| p["type"] == "tool-call")
            .filter_map(|p| p["toolCallId"].as_str().map(str::to_owned))
            .collect();
        for (id, count) in &ended {
            if *count > 1 || !called.contains(id) {
                self.wrong
                    .push(format!("call {id:?} has {count} tool entries, and is called: {}", called.contains(id)));
            }
        }
        let missing: Vec<&String> = called.iter().filter(|id| !ended.contains_key(*id)).collect();
        if !missing.is_empty() {
            self.wrong.push(format!("calls without a tool entry: {missing:?}"));
        }
        let users: Vec<&str> = self.entries.iter().filter_map(|e| e["key"].as_str()).collect();
        if users.iter().collect::<HashSet<_>>().len() != users.len() {
            self.wrong.push(format!("a key stands on two entries: {users:?}"));
        }
    }
}

/// Whether the text is RFC 3339 UTC with milliseconds, as every `at` is.
pub fn is_time(text: &str) -> bool {
    let shape = b"0000-00-00T00:00:00.000Z";
    text.len() == shape.len()
        && text.bytes().zip(shape).all(|(c, s)| if *s == b'0' { c.is_ascii_digit() } else { c == *s })
}

/// Checks every session file of a data directory, and the modes of its files and directories.
pub fn home(root: &Path) -> Vec<String> {
    let mut wrong = Vec::new();
    let sessions = root.join("sessions");
    for entry in fs::read_dir(&sessions).into_iter().flatten().flatten() {
        let path = entry.path();
        let name = entry.file_name().to_string_lossy().into_owned();
        if path.is_file() && name.ends_with(".json") && name != "prompts.json" {
            wrong.extend(session(&path).wrong.into_iter().map(|w| format!("{name}: {w}")));
        }
    }
    modes(&sessions, &mut wrong);
    wrong
}

fn modes(dir: &Path, wrong: &mut Vec<String>) {
    let Ok(meta) = fs::metadata(dir) else { return };
    if meta.permissions().mode() & 0o777 != 0o700 {
        wrong.push(format!("{} has mode {:o}", dir.display(), meta.permissions().mode() & 0o777));
    }
    for entry in fs::read_dir(dir).into_iter().flatten().flatten() {
        let path = entry.path();
        if path.is_dir() {
            modes(&path, wrong);
        } else if let Ok(meta) = fs::symlink_metadata(&path)
            && meta.permissions().mode() & 0o077 != 0
        {
            wrong.push(format!("{} has mode {:o}", path.display(), meta.permissions().mode() & 0o777));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str = concat!(
        r#"{"schema":2,"id":"3f9a1c2b","createdAt":"2026-09-06T14:00:00.000Z","cwd":"/r","events":["#,
        "\n",
        r#"{"type":"user","text":"hi","at":"2026-09-06T14:00:01.120Z"}"#,
        "\n,",
        r#"{"type":"usage","tokens":7,"cached":0,"at":"2026-09-06T14:00:02.000Z"}"#,
        "\n",
        r#"],"updatedAt":"2026-09-06T14:00:02.000Z","contextTokens":7,"entries":2,"synced":90}"#,
    );

    fn check(text: &str) -> Vec<String> {
        let mut report = Report::default();
        report.text(text, "3f9a1c2b");
        report.wrong
    }

    #[test]
    fn the_layout_is_checked_to_the_letter() {
        assert_eq!(check(GOOD), Vec::<String>::new());
        for (from, to, about) in [
            ("]", "", "one JSON value"),
            (r#""schema":2"#, r#""schema":1"#, "schema"),
            ("3f9a1c2b", "3f9a1c2c", "id"),
            ("\n,", ",\n", "not an entry"),
            (r#"{"type":"user","text":"hi","#, r#"{"text":"hi","type":"user","#, "not an entry"),
            (r#""entries":2"#, r#""entries":3"#, "entries"),
            ("02.000Z\",\"contextTokens\"", "03.000Z\",\"contextTokens\"", "updatedAt"),
            (r#""contextTokens":7"#, r#""contextTokens":8"#, "contextTokens"),
            (r#""synced":90"#, r#""synced":900"#, "synced"),
            ("01.120Z", "01Z", "at"),
            (r#""type":"user""#, r#""type":"guest""#, "kind"),
            (r#""tokens":7"#, r#""tokens":"7""#, "tokens"),
            ("}\n]", "}\n\n]", "lines"),
        ] {
            let wrong = check(&GOOD.replacen(from, to, 1));
            assert!(wrong.iter().any(|w| w.contains(about)), "{from} → {to}: {wrong:?}");
        }
    }
}
