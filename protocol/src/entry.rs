//! The eleven kinds of entry a session log is made of.
//!
//! Owns: the typed view of an entry and how one is written (one line, `type` first). The bytes in
//! the log stay the truth: entries travel and are kept as [`RawValue`], and are parsed only by
//! whoever needs a field. Unknown kinds and fields therefore pass through byte-identical.

use crate::types::PlanItem;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use std::borrow::Cow;

/// Something attached to a message: a file by path, or data inline.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Attachment {
    /// Path as the person gave it, relative to the session's cwd, or a name for inline data.
    pub path: String,
    /// Media type of inline data; absent means text. What a file is, its bytes tell.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub media_type: Option<String>,
    /// Base64 data (standard alphabet, padded) of a PNG, JPEG, GIF or WebP image, a PDF document or a
    /// text, when it does not come from a file the daemon can read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub data: Option<String>,
}

/// A message from a person, recorded when it starts a turn or is delivered into one.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct User {
    /// The message.
    #[serde(default)]
    pub text: String,
    /// True when it joined a running turn.
    #[serde(default, skip_serializing_if = "is_false")]
    pub steer: bool,
    /// Files that came with it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub attachments: Vec<Attachment>,
    /// Who sent it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<String>,
    /// When (RFC 3339 UTC, milliseconds).
    #[serde(default)]
    pub at: String,
    /// The client-made key of the call that made it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
    /// Hash of that call's params.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key_hash: Option<String>,
}

/// What the model answered.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Assistant {
    /// The text.
    #[serde(default)]
    pub text: String,
    /// True when it was cut short.
    #[serde(default, skip_serializing_if = "is_false")]
    pub partial: bool,
    /// When.
    #[serde(default)]
    pub at: String,
}

/// A tool that ran, recorded when the call ended.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Tool {
    /// Tool name.
    #[serde(default)]
    pub name: String,
    /// One line for people: the path, the command.
    #[serde(default)]
    pub detail: String,
    /// How long it ran, in milliseconds.
    #[serde(default)]
    pub elapsed_ms: u64,
    /// Whether it did what was asked.
    #[serde(default)]
    pub ok: bool,
    /// Its input as the model gave it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<serde_json::Value>")]
    pub input: Option<Box<RawValue>>,
    /// What the model was given back, at most 30,000 characters.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub result: Option<String>,
    /// The model's id of the call.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub call_id: Option<String>,
    /// Hash of the blob that has the whole result, when `result` is clipped.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub blob: Option<String>,
    /// Unified diff of what changed on disk, for tools that change files.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub diff: Option<String>,
    /// Who ran it, when a person did (`!cmd`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<String>,
    /// When it ended.
    #[serde(default)]
    pub at: String,
    /// Key of the call that ran it, when a person did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
    /// Hash of that call's params.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key_hash: Option<String>,
}

/// What the model reasoned, in full.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Reasoning {
    /// The text.
    #[serde(default)]
    pub text: String,
    /// How long it took, in milliseconds.
    #[serde(default)]
    pub elapsed_ms: u64,
    /// The reasoning effort that was asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub variant: Option<String>,
    /// When it ended.
    #[serde(default)]
    pub at: String,
}

/// What one model call used.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Usage {
    /// Context size of that call in tokens, cached part and output included.
    #[serde(default, deserialize_with = "lenient_u64")]
    pub tokens: u64,
    /// Of those, read from the provider's cache.
    #[serde(default, deserialize_with = "lenient_u64")]
    pub cached: u64,
    /// Input tokens, cached part included.
    #[serde(default, deserialize_with = "lenient_opt_u64", skip_serializing_if = "Option::is_none")]
    pub input: Option<u64>,
    /// Output tokens.
    #[serde(default, deserialize_with = "lenient_opt_u64", skip_serializing_if = "Option::is_none")]
    pub output: Option<u64>,
    /// Cost in US dollars.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cost: Option<f64>,
    /// "provider/model-id".
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// How long the call took, in milliseconds.
    #[serde(default, deserialize_with = "lenient_opt_u64", skip_serializing_if = "Option::is_none")]
    pub duration_ms: Option<u64>,
    /// When.
    #[serde(default)]
    pub at: String,
}

/// How a turn, or a step of one, ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum TurnStatus {
    /// A step finished; the turn goes on.
    Step,
    /// The model stopped asking for tools.
    Done,
    /// Someone pressed esc, or the daemon died.
    Interrupted,
    /// The provider or the daemon failed.
    Failed,
    /// Stopped to make room.
    Context,
    /// The step ceiling was reached.
    Limit,
    /// A status this build does not know; counts as the end of a turn.
    #[serde(other)]
    Unknown,
}

impl TurnStatus {
    /// Whether the turn is over with this entry.
    pub fn closes(self) -> bool {
        self != Self::Step
    }

    /// The word in the file.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Step => "step",
            Self::Done => "done",
            Self::Interrupted => "interrupted",
            Self::Failed => "failed",
            Self::Context => "context",
            Self::Limit => "limit",
            Self::Unknown => "unknown",
        }
    }
}

/// Raw messages: the only thing that is replayed to the model.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct Turn {
    /// The messages, byte for byte.
    #[serde(default)]
    #[schemars(with = "Vec<serde_json::Value>")]
    pub messages: Vec<Box<RawValue>>,
    /// How it ended. Absent (files of the predecessor) means done.
    #[serde(default = "status_done")]
    pub status: TurnStatus,
    /// When.
    #[serde(default)]
    pub at: String,
}

/// Something glrs says (`notice`) or reports as failed (`error`).
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Text {
    /// The words.
    #[serde(default)]
    pub text: String,
    /// When.
    #[serde(default)]
    pub at: String,
}

/// The replay restarts empty after this entry.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Cleared {
    /// Why.
    #[serde(default)]
    pub reason: String,
    /// When.
    #[serde(default)]
    pub at: String,
    /// Key of the call.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
    /// Hash of that call's params.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key_hash: Option<String>,
}

/// The replay restarts with a brief after this entry.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Compacted {
    /// The brief.
    #[serde(default)]
    pub summary: String,
    /// How many messages of the fold before it was cut it replaced (the brief before counts 1).
    #[serde(default, deserialize_with = "lenient_u64")]
    pub dropped: u64,
    /// What was kept: from message `.1` (from 0) of the `turn` entry numbered `.0` on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kept_from: Option<(u64, u64)>,
    /// The message being worked on when one long turn was cut inside: replayed verbatim behind the
    /// brief, as `[entry, message]`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request: Option<(u64, u64)>,
    /// Name of the artifact that has what was replaced.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub artifact: Option<String>,
    /// When.
    #[serde(default)]
    pub at: String,
}

/// An extension's own data, never sent to the model. Kinds starting `glrs:` are ours.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Custom {
    /// The kind, such as `glrs:title`.
    #[serde(default)]
    pub custom: String,
    /// The data.
    #[serde(default = "raw_null")]
    #[schemars(with = "serde_json::Value")]
    pub data: Box<RawValue>,
    /// When.
    #[serde(default)]
    pub at: String,
    /// Key of the call.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
    /// Hash of that call's params.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key_hash: Option<String>,
}

/// The typed view of an entry.
#[derive(Clone, Debug, JsonSchema)]
#[schemars(untagged)]
#[allow(missing_docs, reason = "each variant is the struct of its name")]
pub enum Entry {
    User(User),
    Assistant(Assistant),
    Tool(Tool),
    Reasoning(Reasoning),
    Usage(Usage),
    Turn(Turn),
    Notice(Text),
    Error(Text),
    Cleared(Cleared),
    Compacted(Compacted),
    Custom(Custom),
    /// A kind this build does not know; the text is its `type`.
    Unknown(String),
}

/// The word in `type` of each kind this build knows, in the order of session-file.md.
pub const KINDS: [&str; 11] =
    ["user", "assistant", "tool", "reasoning", "usage", "turn", "notice", "error", "cleared", "compacted", "custom"];

#[derive(Deserialize)]
struct Head<'a> {
    #[serde(rename = "type", borrow, default)]
    kind: Cow<'a, str>,
}

#[derive(Serialize)]
struct Tagged<'a, T> {
    #[serde(rename = "type")]
    kind: &'static str,
    #[serde(flatten)]
    body: &'a T,
}

/// The `type` of an entry, read from its first bytes where it stands first (as we write it),
/// else by parsing.
pub fn kind_of(raw: &str) -> Cow<'_, str> {
    if let Some(rest) = raw.strip_prefix("{\"type\":\"")
        && let Some(end) = rest.find('"')
        && !rest[..end].contains('\\')
    {
        return Cow::Borrowed(&rest[..end]);
    }
    serde_json::from_str::<Head<'_>>(raw).map(|h| h.kind).unwrap_or_default()
}

impl Entry {
    /// Parses the typed view. A known kind whose fields do not fit is an error: the entry is still
    /// kept and shown raw.
    pub fn parse(raw: &str) -> Result<Self, serde_json::Error> {
        Ok(match kind_of(raw).as_ref() {
            "user" => Self::User(serde_json::from_str(raw)?),
            "assistant" => Self::Assistant(serde_json::from_str(raw)?),
            "tool" => Self::Tool(serde_json::from_str(raw)?),
            "reasoning" => Self::Reasoning(serde_json::from_str(raw)?),
            "usage" => Self::Usage(serde_json::from_str(raw)?),
            "turn" => Self::Turn(serde_json::from_str(raw)?),
            "notice" => Self::Notice(serde_json::from_str(raw)?),
            "error" => Self::Error(serde_json::from_str(raw)?),
            "cleared" => Self::Cleared(serde_json::from_str(raw)?),
            "compacted" => Self::Compacted(serde_json::from_str(raw)?),
            "custom" => Self::Custom(serde_json::from_str(raw)?),
            other => Self::Unknown(other.to_owned()),
        })
    }

    /// The `type` word.
    pub fn kind(&self) -> &str {
        match self {
            Self::User(_) => "user",
            Self::Assistant(_) => "assistant",
            Self::Tool(_) => "tool",
            Self::Reasoning(_) => "reasoning",
            Self::Usage(_) => "usage",
            Self::Turn(_) => "turn",
            Self::Notice(_) => "notice",
            Self::Error(_) => "error",
            Self::Cleared(_) => "cleared",
            Self::Compacted(_) => "compacted",
            Self::Custom(_) => "custom",
            Self::Unknown(k) => k,
        }
    }

    /// The entry as one line of JSON without a newline, `type` first.
    ///
    /// # Errors
    /// An `Unknown` entry cannot be written from its view, only passed on raw.
    pub fn to_raw(&self) -> Result<Box<RawValue>, serde_json::Error> {
        fn tagged<T: Serialize>(kind: &'static str, body: &T) -> Result<Box<RawValue>, serde_json::Error> {
            serde_json::value::to_raw_value(&Tagged { kind, body })
        }
        match self {
            Self::User(e) => tagged("user", e),
            Self::Assistant(e) => tagged("assistant", e),
            Self::Tool(e) => tagged("tool", e),
            Self::Reasoning(e) => tagged("reasoning", e),
            Self::Usage(e) => tagged("usage", e),
            Self::Turn(e) => tagged("turn", e),
            Self::Notice(e) => tagged("notice", e),
            Self::Error(e) => tagged("error", e),
            Self::Cleared(e) => tagged("cleared", e),
            Self::Compacted(e) => tagged("compacted", e),
            Self::Custom(e) => tagged("custom", e),
            Self::Unknown(k) => Err(serde::ser::Error::custom(format!("entry of unknown type {k} has no typed form"))),
        }
    }

    /// A notice.
    pub fn notice(text: impl Into<String>, at: &str) -> Self {
        Self::Notice(Text { text: text.into(), at: at.to_owned() })
    }

    /// An error.
    pub fn error(text: impl Into<String>, at: &str) -> Self {
        Self::Error(Text { text: text.into(), at: at.to_owned() })
    }

    /// A custom entry of our own.
    ///
    /// # Errors
    /// When `data` does not serialise.
    pub fn custom<T: Serialize>(kind: &str, data: &T, at: &str) -> Result<Self, serde_json::Error> {
        Ok(Self::Custom(Custom {
            custom: kind.to_owned(),
            data: serde_json::value::to_raw_value(data)?,
            at: at.to_owned(),
            key: None,
            key_hash: None,
        }))
    }
}

/// `glrs:title`: the session's title and who gave it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Title {
    /// The title.
    pub text: String,
    /// `person` or `model`.
    pub by: String,
}

/// `glrs:files`: the pre-image of a file that a tool changed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct FileChange {
    /// Number of the user entry of the turn that changed it.
    pub user_entry: u64,
    /// Absolute path.
    pub path: String,
    /// Blob of the content before; absent when the file did not exist.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub before: Option<String>,
    /// Unix permission bits before, or of the new file.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mode: Option<u32>,
    /// SHA-256 of the content after.
    pub after: String,
}

/// `glrs:forked`: where a fork came from.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Forked {
    /// The parent's id.
    pub parent: String,
    /// The last entry that was copied.
    pub at: u64,
}

/// `glrs:parent`: whose task a session does. Stands at the beginning of its log.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Parent {
    /// The parent's id.
    pub parent: String,
    /// The parent's call.
    pub call_id: String,
}

/// `glrs:child`: a session that does a task for this one: recorded when it is started, and again
/// with its outcome.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Child {
    /// The child's id.
    pub child: String,
    /// The call that it does.
    pub call_id: String,
    /// The task in one line.
    pub title: String,
    /// How it ended; absent when it starts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub outcome: Option<TurnStatus>,
    /// What it has used, with its outcome.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub usage: Option<crate::types::Spent>,
}

/// `glrs:plan`: the todo list.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Plan {
    /// Its items, in order.
    pub items: Vec<PlanItem>,
}

fn is_false(b: &bool) -> bool {
    !*b
}
fn status_done() -> TurnStatus {
    TurnStatus::Done
}
fn raw_null() -> Box<RawValue> {
    RawValue::NULL.to_owned()
}

/// Takes any JSON number (also `12.0`, `1e9`, negative or absurd ones) as a count, else 0: one
/// odd value must not cost more than itself.
fn lenient_u64<'de, D: serde::Deserializer<'de>>(d: D) -> Result<u64, D::Error> {
    Ok(lenient_opt_u64(d)?.unwrap_or(0))
}
fn lenient_opt_u64<'de, D: serde::Deserializer<'de>>(d: D) -> Result<Option<u64>, D::Error> {
    let raw = Box::<RawValue>::deserialize(d)?;
    Ok(parse_count(raw.get()))
}

/// A JSON number as a count: integers as they are, fractions rounded down, what is negative, out
/// of range or no number at all is `None`.
pub fn parse_count(text: &str) -> Option<u64> {
    if let Ok(n) = text.parse::<u64>() {
        return Some(n);
    }
    match text.parse::<f64>() {
        Ok(f) if f.is_finite() && (0.0..9.0e15).contains(&f) => Some(f as u64),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn type_is_written_first_and_unknown_kinds_have_a_view() {
        let e = Entry::User(User { text: "hi".into(), at: "t".into(), ..User::default() });
        assert_eq!(e.to_raw().unwrap().get(), r#"{"type":"user","text":"hi","at":"t"}"#);
        assert!(
            matches!(Entry::parse(r#"{"type":"banana","peel":true}"#).unwrap(), Entry::Unknown(k) if k == "banana")
        );
        assert_eq!(kind_of(r#"{"a":1,"type":"tool"}"#), "tool");
    }

    #[test]
    fn odd_numbers_cost_only_themselves() {
        let Entry::Usage(u) =
            Entry::parse(r#"{"type":"usage","tokens":12.0,"cached":-1,"input":1e400,"output":"x"}"#).unwrap()
        else {
            panic!()
        };
        assert_eq!((u.tokens, u.cached, u.input, u.output), (12, 0, None, None));
    }

    #[test]
    fn raw_messages_keep_their_bytes() {
        let line =
            r#"{"type":"turn","messages":[{"role":"user","content":"a\u00e9","z":1,"a":2}],"status":"step","at":"t"}"#;
        let e = Entry::parse(line).unwrap();
        assert_eq!(e.to_raw().unwrap().get(), line);
    }
}
