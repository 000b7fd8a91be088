//! From messages and calls, as they come, to entries and legal `turn`s.
//!
//! Owns the shape of an imported turn: entries for people as things happened, one `turn` with all
//! its messages behind them. Every call has exactly one result, whatever was found. Must not know
//! any program's format.

use super::{ImportError, Imported, Notes};
use crate::fold::legal::{NO_RESULT, legalize};
use crate::host::clock;
use crate::store::blob_name;
use crate::tools::clip::{RESULT_CHARS, clip, name_blob};
use glrs_protocol::entry::{
    Assistant, Attachment, Compacted, Entry, Reasoning, Title, Tool, Turn, TurnStatus, Usage, User,
};
use glrs_protocol::message::{Message, Output, Part, Role};
use serde_json::value::RawValue;
use std::sync::Arc;

/// A call of the running turn.
struct Call {
    id: String,
    name: String,
    input: Box<RawValue>,
    output: Option<Output>,
}

/// A piece of the running turn.
enum Piece {
    /// A message as it is.
    Said(Message),
    /// What the model said in one answer, and the calls in it.
    Step { key: Option<String>, parts: Vec<Part>, calls: Vec<Call> },
}

/// Collects a conversation.
#[derive(Default)]
pub(super) struct Builder {
    out: Imported,
    pub(super) notes: Notes,
    turn: Vec<Piece>,
    /// Messages in the context so far, since it was last cut.
    stored: u64,
    brief: bool,
    at: String,
    spoken: bool,
}

/// The fields of an input that say in one line what a call is about.
const DETAIL: [&str; 9] =
    ["command", "cmd", "file_path", "path", "notebook_path", "pattern", "query", "url", "description"];

fn detail_of(input: &RawValue) -> String {
    let Ok(value) = serde_json::from_str::<serde_json::Value>(input.get()) else { return String::new() };
    let text = DETAIL.iter().find_map(|k| match value.get(k)? {
        serde_json::Value::String(s) => Some(s.clone()),
        serde_json::Value::Array(words) => Some(words.iter().filter_map(|w| w.as_str()).collect::<Vec<_>>().join(" ")),
        _ => None,
    });
    let text = text.or_else(|| value.as_str().map(str::to_owned)).unwrap_or_default();
    text.lines().next().unwrap_or_default().chars().take(200).collect()
}

impl Builder {
    /// Sets the time of what comes next; one that cannot be read leaves it.
    pub(super) fn at(&mut self, text: Option<&str>) {
        let Some(ms) = text.and_then(clock::parse_ms) else { return };
        let Some(at) = clock::from_ms(ms) else { return };
        self.out.created_at.get_or_insert_with(|| at.clone());
        self.at = at;
    }

    /// Sets the working directory, if none is known yet.
    pub(super) fn cwd(&mut self, cwd: Option<&str>) {
        if let Some(cwd) = cwd.filter(|c| !c.is_empty()) {
            self.out.cwd.get_or_insert_with(|| cwd.to_owned());
        }
    }

    fn push(&mut self, entry: &Entry) {
        // Only entries of unknown kinds do not serialise, and none is made here.
        if let Ok(raw) = entry.to_raw() {
            self.out.entries.push(raw);
        }
    }

    /// A person said something: a new turn begins, unless the model has not answered yet.
    pub(super) fn user(&mut self, parts: Vec<Part>) {
        let message = Message { role: Role::User, parts };
        let mut attachments = Vec::new();
        for p in &message.parts {
            if let Part::File { kind, media_type, .. } = p {
                let path = format!("{kind}-{}", attachments.len() + 1);
                attachments.push(Attachment { path, media_type: Some(media_type.clone()), data: None });
            }
        }
        let text = message.joined_text();
        if text.trim().is_empty() && attachments.is_empty() {
            return;
        }
        if self.turn.iter().any(|p| matches!(p, Piece::Step { .. })) {
            self.end_turn(TurnStatus::Done);
        }
        self.spoken = true;
        self.push(&Entry::User(User { text, attachments, at: self.at.clone(), ..User::default() }));
        self.turn.push(Piece::Said(message));
    }

    /// Something the other program said on the person's side: the model is sent it, people are
    /// not shown it as theirs.
    pub(super) fn meta(&mut self, text: &str) {
        if !text.trim().is_empty() {
            self.turn.push(Piece::Said(Message::text(Role::User, text)));
        }
    }

    /// The step that what the model says belongs to: the running one while it is of the same
    /// answer, or, where answers have no name, until a result came.
    fn step(&mut self, key: Option<&str>) -> usize {
        let same = match self.turn.last() {
            Some(Piece::Step { key: Some(k), .. }) => key == Some(k.as_str()),
            Some(Piece::Step { key: None, calls, .. }) => key.is_none() && calls.iter().all(|c| c.output.is_none()),
            _ => false,
        };
        if !same {
            let key = key.map(str::to_owned);
            self.turn.push(Piece::Step { key, parts: Vec::new(), calls: Vec::new() });
        }
        self.turn.len() - 1
    }

    /// The model said something.
    pub(super) fn assistant(&mut self, key: Option<&str>, text: &str) {
        if text.trim().is_empty() {
            return;
        }
        self.spoken = true;
        let step = self.step(key);
        if let Some(Piece::Step { parts, .. }) = self.turn.get_mut(step) {
            parts.push(Part::Text(text.to_owned()));
        }
        self.push(&Entry::Assistant(Assistant { text: text.to_owned(), partial: false, at: self.at.clone() }));
    }

    /// The model reasoned. Shown, and not sent again: it is signed or sealed for one provider.
    pub(super) fn reasoning(&mut self, text: &str) {
        if !text.trim().is_empty() {
            self.push(&Entry::Reasoning(Reasoning {
                text: text.to_owned(),
                at: self.at.clone(),
                ..Reasoning::default()
            }));
        }
    }

    /// The model asked for a tool.
    pub(super) fn call(&mut self, key: Option<&str>, id: &str, name: &str, input: Box<RawValue>) {
        let step = self.step(key);
        if let Some(Piece::Step { parts, calls, .. }) = self.turn.get_mut(step) {
            let (id, name) = (id.to_owned(), name.to_owned());
            parts.push(Part::ToolCall { id: id.clone(), name: name.clone(), input: input.clone(), opts: None });
            calls.push(Call { id, name, input, output: None });
        }
    }

    /// A tool answered. A result whose call was not found says nothing to anyone.
    pub(super) fn result(&mut self, id: &str, text: &str, ok: bool) {
        let place = self.turn.iter().enumerate().rev().find_map(|(i, p)| match p {
            Piece::Step { calls, .. } => calls.iter().position(|c| c.id == id && c.output.is_none()).map(|k| (i, k)),
            Piece::Said(_) => None,
        });
        let Some((i, k)) = place else {
            self.notes.count("tool results without their call left out");
            return;
        };
        let (mut shown, cut) = clip(text, RESULT_CHARS);
        let mut blob = None;
        if cut {
            let name = blob_name(text.as_bytes());
            shown = name_blob(&shown, &name, true);
            self.out.blobs.push(text.as_bytes().to_vec());
            blob = Some(name);
        }
        let Some(Piece::Step { calls, .. }) = self.turn.get_mut(i) else { return };
        let call = &mut calls[k];
        call.output = Some(if ok { Output::Text(shown.clone()) } else { Output::Error(shown.clone()) });
        let entry = tool_entry(call, ok, shown, blob, &self.at);
        self.push(&entry);
    }

    /// What a model call used.
    pub(super) fn usage(&mut self, usage: Usage) {
        self.out.context_tokens = Some(usage.tokens);
        self.push(&Entry::Usage(Usage { at: self.at.clone(), ..usage }));
    }

    /// The other program reported a failure.
    pub(super) fn failure(&mut self, text: &str) {
        let at = self.at.clone();
        self.push(&Entry::error(text, &at));
    }

    /// The other program replaced what was said so far by a brief.
    pub(super) fn compacted(&mut self, summary: &str) {
        self.end_turn(TurnStatus::Done);
        let dropped = self.stored + u64::from(self.brief);
        self.push(&Entry::Compacted(Compacted {
            summary: summary.to_owned(),
            dropped,
            at: self.at.clone(),
            ..Compacted::default()
        }));
        self.stored = 0;
        self.brief = !summary.trim().is_empty();
    }

    /// A title that a model gave.
    pub(super) fn title(&mut self, text: &str, by: &str) {
        let title = Title { text: text.to_owned(), by: by.to_owned() };
        if let Ok(entry) = Entry::custom("glrs:title", &title, &self.at) {
            self.push(&entry);
        }
    }

    /// The turn is over.
    pub(super) fn end_turn(&mut self, status: TurnStatus) {
        let pieces = std::mem::take(&mut self.turn);
        let mut messages = Vec::new();
        let (mut answered, mut dangling) = (false, 0u64);
        for piece in pieces {
            let (parts, calls) = match piece {
                Piece::Said(m) => {
                    messages.push(Arc::new(m));
                    continue;
                }
                Piece::Step { parts, calls, .. } => (parts, calls),
            };
            answered = true;
            messages.push(Arc::new(Message { role: Role::Assistant, parts }));
            let mut results = Vec::new();
            for call in calls {
                let output = call.output.clone().unwrap_or_else(|| {
                    dangling += 1;
                    let entry = tool_entry(&call, false, NO_RESULT.to_owned(), None, &self.at);
                    self.push(&entry);
                    Output::Error(NO_RESULT.to_owned())
                });
                results.push(Part::ToolResult { id: call.id, name: call.name, output });
            }
            if !results.is_empty() {
                messages.push(Arc::new(Message { role: Role::Tool, parts: results }));
            }
        }
        for _ in 0..dangling {
            self.notes.count("tool calls without a result: each got one that says so");
        }
        let raw: Vec<_> = legalize(&messages).iter().filter_map(|m| m.to_raw().ok()).collect();
        if raw.is_empty() {
            return;
        }
        self.stored += raw.len() as u64;
        let status = if answered && dangling == 0 { status } else { TurnStatus::Interrupted };
        self.push(&Entry::Turn(Turn { messages: raw, status, at: self.at.clone() }));
    }

    /// All of it.
    pub(super) fn finish(mut self) -> Result<Imported, ImportError> {
        self.end_turn(TurnStatus::Done);
        if !self.spoken {
            return Err(ImportError::Empty);
        }
        self.out.notes = self.notes.sentences();
        Ok(self.out)
    }
}

fn tool_entry(call: &Call, ok: bool, result: String, blob: Option<String>, at: &str) -> Entry {
    Entry::Tool(Tool {
        name: call.name.clone(),
        detail: detail_of(&call.input),
        elapsed_ms: 0,
        ok,
        input: Some(call.input.clone()),
        result: Some(result),
        call_id: Some(call.id.clone()),
        blob,
        at: at.to_owned(),
        ..Tool::default()
    })
}
