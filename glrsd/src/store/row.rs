//! What the list shows of one session.
//!
//! Owns [`Row`] and how it is read from a log: header, trailer, the first user text and the few
//! entries of ours that a list needs. Must not know other sessions.

use super::error::LoadError;
use super::json;
use super::open::{self, Opened};
use super::reader::LogReader;
use super::{Stamp, foreign, read_legacy};
use crate::host::clock;
use glrs_protocol::entry::{Entry, Forked, Parent, Title};
use glrs_protocol::{SessionId, types::Mode};
use memchr::memmem;
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Longest title that is made from a first message, in characters.
const TITLE_MAX: usize = 72;

/// A session in the list.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Row {
    /// Its id; `None` when the file's name is none, and then it is broken.
    pub id: Option<SessionId>,
    /// The file's name without `.json`.
    pub name: String,
    /// Title: by a person, else by a model, else from the first message; may be empty.
    pub title: String,
    /// Whether a person gave the title.
    pub renamed: bool,
    /// Working directory.
    pub cwd: String,
    /// When it was made, as the file says.
    pub created_at: String,
    /// When it last changed, as the file says.
    pub updated_at: String,
    /// Number of entries.
    pub entries: u64,
    /// Size of the file in bytes.
    pub size: u64,
    /// When the file was last written, milliseconds since 1970.
    pub mtime_ms: i64,
    /// Context size after the last model call.
    pub context_tokens: u64,
    /// The model chosen last, if one was.
    pub model: Option<String>,
    /// The reasoning effort chosen with it.
    pub variant: Option<String>,
    /// The permission mode chosen last, if one was.
    pub mode: Option<Mode>,
    /// The session it was forked from; with `child`, the one whose task it does.
    pub parent: Option<String>,
    /// Whether it was made to do a task for its parent.
    pub child: bool,
    /// Whether it lies in the predecessor's directory only.
    pub legacy: bool,
    /// Why it cannot be used, if it cannot.
    pub broken: Option<String>,
}

impl Row {
    /// When it last changed, for sorting, in milliseconds: what the file says, but never later
    /// than the file was written (a clock that was wrong once must not keep a session on top for
    /// ever), and last when it says nothing.
    pub fn instant(&self) -> i64 {
        clock::parse_ms(&self.updated_at).map_or(i64::MIN, |at| at.min(self.mtime_ms.saturating_add(1000)))
    }
}

/// What is remembered of a file: its row, or why there is none.
pub(crate) type Cached = Row;

/// Reads the row of a file, ours or the predecessor's.
pub(crate) fn of(path: &Path, id: &SessionId, legacy: bool) -> Result<Row, LoadError> {
    let (reader, updated_at, context_tokens) = reader(path, id, legacy)?;
    read(&reader, updated_at, context_tokens)
}

/// Opens a file for reading; says when it changed last and how large its context is.
pub(crate) fn reader(path: &Path, id: &SessionId, legacy: bool) -> Result<(LogReader, String, u64), LoadError> {
    let loaded = if legacy {
        match read_legacy(path, id)? {
            Ok((loaded, _)) => loaded,
            Err(foreign::Unreadable::Broken(why)) => return Err(LoadError::Broken { why }),
            Err(foreign::Unreadable::Newer(schema)) => return Err(LoadError::NewerSchema { schema }),
        }
    } else {
        match open::open(path, id, false)? {
            Opened::Ours(o) => return Ok(of_ours(path, *o)),
            Opened::Foreign(loaded, _) => *loaded,
        }
    };
    let reader = LogReader {
        path: path.to_owned(),
        file: None,
        start: loaded.header.line.len() as u64,
        written: 0,
        end: loaded.body.len() as u64,
        tail: Arc::new(loaded.body),
        tail_base: 0,
        count: loaded.count,
        index: Arc::default(),
        header: Arc::new(loaded.header),
    };
    Ok((reader, loaded.updated_at, loaded.context_tokens))
}

fn of_ours(path: &Path, o: open::Ours) -> (LogReader, String, u64) {
    let reader = LogReader {
        header: Arc::new(o.header),
        path: path.to_owned(),
        file: Some(Arc::new(o.file)),
        start: o.start,
        written: o.end,
        tail: Arc::default(),
        tail_base: o.end,
        end: o.end,
        count: o.count,
        index: Arc::default(),
    };
    (reader, o.updated_at, o.context_tokens)
}

/// Kinds of ours that a row shows, with the quote that ends them.
const SHOWN: [&[u8]; 6] = [b"title\"", b"model\"", b"mode\"", b"forked\"", b"parent\"", b"cwd\""];

fn read(reader: &LogReader, updated_at: String, context_tokens: u64) -> Result<Row, LoadError> {
    let header = reader.header();
    let mut row = Row {
        cwd: header.cwd.clone(),
        created_at: header.created_at.clone(),
        updated_at,
        entries: reader.len(),
        context_tokens,
        ..Row::default()
    };
    let (mut first, mut by_model) = (None, None);
    let ours = memmem::Finder::new(b"\"glrs:");
    let skip = b"\"glrs:".len();
    // Nearly every line is passed over by its first bytes; only few are parsed.
    reader.scan(&mut |_, raw| {
        if first.is_none() && raw.starts_with("{\"type\":\"user\"") {
            first = json::member(raw.as_bytes(), "text").and_then(json::text).filter(|t| !t.trim().is_empty());
        } else if raw.starts_with("{\"type\":\"custom\"")
            && let Some(i) = ours.find(raw.as_bytes())
            && SHOWN.iter().any(|k| raw.as_bytes()[i + skip..].starts_with(k))
            && let Ok(Entry::Custom(c)) = Entry::parse(raw)
        {
            take(&mut row, &mut by_model, &c.custom, c.data.get());
        }
    })?;
    if !row.renamed {
        row.title = one_line(&by_model.or(first).unwrap_or_default());
    }
    Ok(row)
}

/// Takes a value of ours into the row.
fn take(row: &mut Row, by_model: &mut Option<String>, kind: &str, data: &str) {
    let field = |name| {
        let data = data.as_bytes();
        if data.starts_with(b"\"") { json::text(data) } else { json::member(data, name).and_then(json::text) }
    };
    match kind {
        "glrs:title" => match serde_json::from_str::<Title>(data) {
            Ok(t) if t.by == "person" => {
                row.renamed = true;
                row.title = one_line(&t.text);
            }
            Ok(t) => *by_model = Some(t.text),
            Err(_) => {}
        },
        "glrs:model" => {
            row.model = field("model").or(row.model.take());
            row.variant = json::member(data.as_bytes(), "variant").and_then(json::text);
        }
        "glrs:mode" => {
            let mode = field("mode").and_then(|m| serde_json::from_value(m.into()).ok());
            row.mode = mode.or(row.mode);
        }
        "glrs:forked" => {
            if let Ok(f) = serde_json::from_str::<Forked>(data) {
                row.parent = Some(f.parent);
                // A copy does nobody's task.
                row.child = false;
            }
        }
        "glrs:parent" => {
            if let Ok(p) = serde_json::from_str::<Parent>(data) {
                row.parent = Some(p.parent);
                row.child = true;
            }
        }
        "glrs:cwd" => row.cwd = field("cwd").unwrap_or_else(|| std::mem::take(&mut row.cwd)),
        _ => {}
    }
}

/// A text as one line of at most 72 characters.
fn one_line(text: &str) -> String {
    let mut out = String::new();
    for (n, word) in text.split_whitespace().enumerate() {
        if n > 0 {
            out.push(' ');
        }
        out.extend(word.chars().filter(|c| !c.is_control()));
        if out.len() > TITLE_MAX * 4 {
            break;
        }
    }
    out.trim().chars().take(TITLE_MAX).collect()
}

/// Puts the file's own facts into a row.
pub(crate) fn place(mut row: Row, path: &Path, stamp: Option<Stamp>, legacy: bool) -> Row {
    row.name = stem(path);
    row.size = stamp.map_or(0, |s| s.size);
    row.mtime_ms = stamp.map_or(0, |s| s.mtime_ms());
    row.legacy = legacy;
    row
}

/// A file's name without `.json`.
pub(crate) fn stem(path: &Path) -> String {
    PathBuf::from(path.file_stem().unwrap_or_default()).to_string_lossy().into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn titles_are_one_line_of_72() {
        assert_eq!(one_line("  a\n b\u{1b}[0m\tc "), "a b[0m c");
        assert_eq!(one_line(&"é".repeat(100)).chars().count(), 72);
    }
}
