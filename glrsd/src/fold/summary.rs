//! The summary fold: title, usage, model, mode, plan, keys and where turns stand.
//!
//! Owns what is known of a session besides its context. One pass over the entries; lines of kinds
//! that matter here are parsed, the rest are only counted.

use super::context::rewound_to;
use glrs_protocol::entry::{self, Child, Entry, Forked, Parent, Plan, Title};
use glrs_protocol::types::{Mode, PlanItem, UsageInfo};
use serde::{Deserialize, Serialize};
use std::collections::VecDeque;

/// Most keys that are remembered (protocol.md "Keeping promises").
pub const KEYS: usize = 256;
/// Longest derived title, in characters.
pub const TITLE_CHARS: usize = 72;

/// `glrs:model`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ModelChoice {
    /// "provider/model-id".
    pub model: String,
    /// Reasoning effort.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub variant: Option<String>,
}

/// `glrs:mode`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ModeChoice {
    /// The mode.
    pub mode: Mode,
    /// Who chose it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<String>,
}

/// `glrs:cwd`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CwdChoice {
    /// The directory.
    pub cwd: String,
}

/// `glrs:resolved`: an answered request.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ResolvedEntry {
    /// Id of the request.
    pub request: String,
    /// The model's id of the call that asked.
    pub call_id: String,
    /// `allow`, `always`, `deny`, `answer` or `withdrawn`.
    pub decision: String,
    /// Who answered.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<String>,
    /// Words.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub words: Option<String>,
    /// The rule that `always` added.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rule: Option<String>,
}

/// `glrs:removed`: the tombstone of a queue row.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Removed {
    /// The row.
    pub row: u64,
    /// Who took it back.
    pub by: String,
}

/// `glrs:rewound`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RewoundEntry {
    /// The entry after which things stand again.
    pub to: u64,
}

/// A call's key, where it is now.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct KeyAt {
    /// The client's key.
    pub key: String,
    /// Hash of the params.
    pub hash: String,
    /// The entry it made.
    pub n: u64,
    /// True when that entry is the tombstone of a removed row.
    pub removed: bool,
}

/// What is known of a session besides its context. It is kept between two loads of a large session
/// (the store says when that counts); a text that lacks a field is none.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Summary {
    person_title: Option<String>,
    model_title: Option<String>,
    first_user: Option<String>,
    /// The model last chosen.
    pub model: Option<ModelChoice>,
    /// The mode last chosen.
    pub mode: Option<Mode>,
    /// The directory last chosen.
    pub cwd: Option<String>,
    /// The session this one was forked from, or whose task it does.
    pub parent: Option<String>,
    /// Whether it does a task for its parent.
    pub child: bool,
    /// The user entry that begins that task; 0 before it.
    pub task: u64,
    /// Sessions that do tasks for this one and have no outcome yet.
    pub children: Vec<Child>,
    /// The todo list.
    pub plan: Vec<PlanItem>,
    /// Usage so far; `window` and `line` are filled in by whoever knows the model.
    pub usage: UsageInfo,
    /// Providers that were announced as getting the conversation to summarise it.
    pub announced: Vec<String>,
    /// Rules that "always" added.
    pub rules: Vec<String>,
    /// `(n, to)` of each rewind.
    pub rewinds: Vec<(u64, u64)>,
    /// The last user entry.
    pub last_user: u64,
    /// The last entry that ends a turn or restarts the replay.
    pub last_close: u64,
    keys: VecDeque<KeyAt>,
    fork_at: u64,
}

/// One line of at most [`TITLE_CHARS`] characters.
pub fn title_line(text: &str) -> String {
    let line = text.trim().lines().next().unwrap_or("").trim();
    let clean: String = line.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
    if clean.chars().count() <= TITLE_CHARS {
        return clean;
    }
    let cut: String = clean.chars().take(TITLE_CHARS - 1).collect();
    format!("{}…", cut.trim_end())
}

impl Summary {
    /// Takes in one entry, in order.
    pub fn apply(&mut self, n: u64, raw: &str) {
        let kind = entry::kind_of(raw);
        match kind.as_ref() {
            "user" | "usage" | "turn" | "cleared" | "compacted" | "custom" => {}
            // Results may be large; only commands of people have keys, and those stand in the open.
            "tool" if raw.contains("\"keyHash\":\"") => {}
            _ => return,
        }
        if kind == "turn" {
            // Messages may be large; only the status matters, and it stands behind them.
            if turn_closes(raw) {
                self.last_close = n;
            }
            return;
        }
        let Ok(e) = Entry::parse(raw) else { return };
        match e {
            Entry::User(u) => {
                self.last_user = n;
                if self.child && self.task == 0 {
                    self.task = n;
                }
                if self.first_user.is_none() && !u.text.trim().is_empty() {
                    self.first_user = Some(u.text.chars().take(400).collect());
                }
                self.key(u.key, u.key_hash, n, false);
            }
            Entry::Usage(u) => {
                self.usage.calls += 1;
                self.usage.input += u.input.unwrap_or(0);
                self.usage.output += u.output.unwrap_or(0);
                self.usage.cached += u.cached;
                self.usage.cost += u.cost.unwrap_or(0.0);
                self.usage.context_tokens = u.tokens;
                self.usage.estimated = false;
            }
            Entry::Cleared(c) => {
                self.last_close = n;
                self.restart();
                self.key(c.key, c.key_hash, n, false);
            }
            Entry::Tool(t) => self.key(t.key, t.key_hash, n, false),
            Entry::Compacted(_) => self.restart(),
            Entry::Custom(c) => {
                self.custom(n, &c.custom, c.data.get(), raw);
                let removed = c.custom == "glrs:removed";
                self.key(c.key, c.key_hash, n, removed);
            }
            _ => {}
        }
    }

    fn restart(&mut self) {
        // What the provider reported was of the history before: until it reports again this is an
        // estimate, which whoever has the context fills in.
        self.usage.context_tokens = 0;
        self.usage.estimated = true;
    }

    fn custom(&mut self, n: u64, kind: &str, data: &str, raw: &str) {
        match kind {
            "glrs:title" => {
                if let Ok(t) = serde_json::from_str::<Title>(data) {
                    match t.by.as_str() {
                        "person" => self.person_title = Some(t.text),
                        _ => self.model_title = Some(t.text),
                    }
                }
            }
            "glrs:model" => {
                if let Ok(m) = serde_json::from_str::<ModelChoice>(data) {
                    self.usage.estimated =
                        self.usage.estimated || self.model.as_ref().is_some_and(|old| old.model != m.model);
                    self.model = Some(m);
                }
            }
            // The provider's figure was of a context with the whole results.
            "glrs:micro" => self.restart(),
            "glrs:mode" => self.mode = serde_json::from_str::<ModeChoice>(data).ok().map(|m| m.mode).or(self.mode),
            "glrs:cwd" => self.cwd = serde_json::from_str::<CwdChoice>(data).ok().map(|c| c.cwd).or(self.cwd.take()),
            "glrs:plan" => {
                if let Ok(p) = serde_json::from_str::<Plan>(data) {
                    self.plan = p.items;
                }
            }
            "glrs:forked" => {
                self.parent = serde_json::from_str::<Forked>(data).ok().map(|f| f.parent);
                // Nor does it do a task, or have any done.
                self.child = false;
                self.children.clear();
                // A fork takes no running turn along, and keys of its parent do not count.
                self.last_close = n;
                self.fork_at = n;
                self.keys.clear();
            }
            "glrs:parent" => {
                if let Ok(p) = serde_json::from_str::<Parent>(data) {
                    self.parent = Some(p.parent);
                    self.child = true;
                }
            }
            "glrs:child" => {
                if let Ok(c) = serde_json::from_str::<Child>(data) {
                    self.children.retain(|o| o.child != c.child);
                    if let Some(spent) = c.usage {
                        *self.usage.children.get_or_insert_default() += spent;
                    }
                    if c.outcome.is_none() {
                        self.children.push(c);
                    }
                }
            }
            "glrs:resolved" => {
                if let Ok(r) = serde_json::from_str::<ResolvedEntry>(data)
                    && let Some(rule) = r.rule
                    && !self.rules.contains(&rule)
                {
                    self.rules.push(rule);
                }
            }
            "glrs:summariser" => {
                #[derive(Deserialize)]
                struct S {
                    provider: String,
                }
                self.announced.extend(serde_json::from_str::<S>(data).ok().map(|s| s.provider));
            }
            "glrs:rewound" => {
                if let Some(to) = rewound_to(raw) {
                    self.rewinds.push((n, to));
                    self.last_close = n;
                    self.restart();
                }
            }
            _ => {}
        }
    }

    fn key(&mut self, key: Option<String>, hash: Option<String>, n: u64, removed: bool) {
        let Some(key) = key else { return };
        if self.keys.len() == KEYS {
            self.keys.pop_front();
        }
        self.keys.push_back(KeyAt { key, hash: hash.unwrap_or_default(), n, removed });
    }

    /// Where the call with this key went, if it is among the last 256.
    pub fn find_key(&self, key: &str) -> Option<&KeyAt> {
        self.keys.iter().rev().find(|k| k.key == key)
    }

    /// The title: by a person, else by a model, else the first message.
    pub fn title(&self) -> String {
        let text = self.person_title.as_ref().or(self.model_title.as_ref()).or(self.first_user.as_ref());
        text.map(|t| title_line(t)).unwrap_or_default()
    }

    /// Whether a person gave the title.
    pub fn renamed(&self) -> bool {
        self.person_title.is_some()
    }

    /// Whether the last turn has no end in the log.
    pub fn turn_open(&self) -> bool {
        self.last_user > self.last_close
    }
}

/// Whether a `turn` entry ends its turn. Reads the status from the end of the line, where we write
/// it, and parses only lines that are written otherwise.
fn turn_closes(raw: &str) -> bool {
    #[derive(Deserialize)]
    struct S {
        #[serde(default)]
        status: Option<String>,
    }
    let start = raw.len().saturating_sub(96);
    let tail = raw.get(start..).unwrap_or(raw);
    if let Some(at) = tail.rfind("],\"status\":\"") {
        let word = &tail[at + 12..];
        return !word.starts_with("step\"");
    }
    serde_json::from_str::<S>(raw).map(|s| s.status.as_deref() != Some("step")).unwrap_or(true)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fold(lines: &[&str]) -> Summary {
        let mut s = Summary::default();
        for (i, l) in lines.iter().enumerate() {
            s.apply(i as u64 + 1, l);
        }
        s
    }

    #[test]
    fn a_persons_title_wins_and_usage_adds_up() {
        let s = fold(&[
            r#"{"type":"user","text":"hello\nworld","at":""}"#,
            r#"{"type":"usage","tokens":100,"cached":40,"input":90,"output":10,"cost":0.5}"#,
            r#"{"type":"custom","custom":"glrs:title","data":{"text":"Mine","by":"person"}}"#,
            r#"{"type":"custom","custom":"glrs:title","data":{"text":"Its","by":"model"}}"#,
            r#"{"type":"usage","tokens":200,"cached":0,"input":190,"output":10,"cost":0.5}"#,
        ]);
        assert_eq!((s.title().as_str(), s.renamed()), ("Mine", true));
        assert_eq!((s.usage.context_tokens, s.usage.input, s.usage.calls, s.usage.cost), (200, 280, 2, 1.0));
        assert_eq!(fold(&[r#"{"type":"user","text":"hello\nworld"}"#]).title(), "hello");
        let long = "x".repeat(100);
        assert_eq!(title_line(&long).chars().count(), TITLE_CHARS);
    }

    #[test]
    fn a_turn_is_open_until_its_closing_entry() {
        let user = r#"{"type":"user","text":"a"}"#;
        let step = r#"{"type":"turn","messages":[{"role":"user","content":"x \"],\\\"status\\\":\\\"done\\\""}],"status":"step","at":"t"}"#;
        let done = r#"{"type":"turn","messages":[],"status":"done","at":"t"}"#;
        assert!(fold(&[user, step]).turn_open());
        assert!(!fold(&[user, step, done]).turn_open());
        assert!(!fold(&[user, r#"{"type":"turn","messages":[]}"#]).turn_open());
        assert!(!fold(&[user, r#"{"type":"custom","custom":"glrs:forked","data":{"parent":"p","at":1}}"#]).turn_open());
    }

    #[test]
    fn children_are_open_until_their_outcome_and_a_fork_has_none() {
        let parent = r#"{"type":"custom","custom":"glrs:parent","data":{"parent":"p","callId":"c"}}"#;
        let child = r#"{"type":"custom","custom":"glrs:child","data":{"child":"k","callId":"c","title":"t"}}"#;
        let over =
            r#"{"type":"custom","custom":"glrs:child","data":{"child":"k","callId":"c","title":"t","outcome":"done"}}"#;
        let forked = r#"{"type":"custom","custom":"glrs:forked","data":{"parent":"q","at":1}}"#;
        let user = r#"{"type":"user","text":"a"}"#;
        assert_eq!(fold(&[child]).children.len(), 1);
        let spent = r#"{"type":"custom","custom":"glrs:child","data":{"child":"k","callId":"c","title":"t","outcome":"done","usage":{"calls":2,"input":10,"output":3,"cost":0.5}}}"#;
        let usage = fold(&[child, spent, child, spent]).usage;
        assert_eq!(usage.children.map(|c| (c.calls, c.input, c.output, c.cost)), Some((4, 20, 6, 1.0)));
        assert_eq!((usage.calls, usage.cost), (0, 0.0));
        assert!(fold(&[child, over]).children.is_empty() && fold(&[child, forked]).children.is_empty());
        let s = fold(&[parent, user, user]);
        assert_eq!((s.child, s.task, s.parent.as_deref()), (true, 2, Some("p")));
        let s = fold(&[parent, user, forked]);
        assert_eq!((s.child, s.parent.as_deref()), (false, Some("q")));
    }

    #[test]
    fn keys_are_found_and_a_forks_parents_keys_do_not_count() {
        let user = r#"{"type":"user","text":"a","key":"k1","keyHash":"h1"}"#;
        assert_eq!(fold(&[user]).find_key("k1").unwrap().n, 1);
        assert!(
            fold(&[user, r#"{"type":"custom","custom":"glrs:forked","data":{"parent":"p","at":1}}"#])
                .find_key("k1")
                .is_none()
        );
    }
}
