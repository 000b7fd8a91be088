//! Conversations of other programs, and sessions of ours from elsewhere, turned into entries.
//!
//! Owns which formats there are, how one is told from another, and what is honestly said about
//! what did not map. Pure: bytes in, entries out; must not know the disk, the clock or the
//! registry.

mod build;
mod claude;
mod codex;
mod document;

use crate::store::Store;
use glrs_protocol::SessionId;
use serde_json::value::RawValue;

/// What a file is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// A session file of glrs, schema 1 or 2.
    Glrs,
    /// A project transcript of Claude Code: JSON lines.
    Claude,
    /// A rollout of Codex: JSON lines.
    Codex,
}

impl Format {
    /// The word on the wire.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Glrs => "glrs",
            Self::Claude => "claude",
            Self::Codex => "codex",
        }
    }

    /// The format a word names; `None` for `auto` and nothing.
    ///
    /// # Errors
    /// When there is no such format.
    pub fn parse(word: Option<&str>) -> Result<Option<Self>, ImportError> {
        match word {
            None | Some("auto") => Ok(None),
            Some("glrs") => Ok(Some(Self::Glrs)),
            Some("claude") => Ok(Some(Self::Claude)),
            Some("codex") => Ok(Some(Self::Codex)),
            Some(_) => Err(ImportError::NoSuchFormat),
        }
    }
}

/// Why a file was not taken.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ImportError {
    /// The format asked for does not exist.
    #[error("there is no such format: auto, glrs, claude or codex")]
    NoSuchFormat,
    /// It is none of the formats.
    #[error(
        "it is neither a glrs session, nor a Claude Code transcript, nor a Codex rollout; name its format if it is"
    )]
    Unknown,
    /// It is of the format, but holds no conversation.
    #[error("it holds no message of a person or a model")]
    Empty,
    /// It is a session file that cannot be read.
    #[error("{0}")]
    Broken(String),
    /// It is a session file of a newer glrs.
    #[error("it has schema {0}, this glrs knows up to 2: update glrs")]
    Newer(u64),
}

/// A conversation as entries.
#[derive(Debug, Default)]
pub struct Imported {
    /// What it was.
    pub format: Option<Format>,
    /// Its working directory, if it names one.
    pub cwd: Option<String>,
    /// When it began, if it says so.
    pub created_at: Option<String>,
    /// Its entries, in order.
    pub entries: Vec<Box<RawValue>>,
    /// Large results that entries name by hash.
    pub blobs: Vec<Vec<u8>>,
    /// The context size that the last model call reported.
    pub context_tokens: Option<u64>,
    /// What did not map, for people.
    pub notes: Vec<String>,
}

/// Turns a file into entries. `id` is the session it is to become.
///
/// # Errors
/// When it is of no known format, or holds nothing.
pub fn read(bytes: &[u8], format: Option<Format>, id: &SessionId, store: &Store) -> Result<Imported, ImportError> {
    let format = match format {
        Some(f) => f,
        None => detect(bytes).ok_or(ImportError::Unknown)?,
    };
    let mut out = match format {
        Format::Glrs => document::read(bytes, id, store)?,
        Format::Claude => claude::read(&lines(bytes))?,
        Format::Codex => codex::read(&lines(bytes))?,
    };
    out.format = Some(format);
    Ok(out)
}

/// A JSON line: its value, or nothing when it is none.
type Line = Option<serde_json::Value>;

fn lines(bytes: &[u8]) -> Vec<Line> {
    let bytes = bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(bytes);
    let whole = bytes.split(|b| *b == b'\n').filter(|l| !l.trim_ascii().is_empty());
    whole.map(|l| serde_json::from_str(&String::from_utf8_lossy(l)).ok()).collect()
}

/// So many lines are looked at before a file is called unknown.
const LOOKED_AT: usize = 64;

/// Tells what a file is by its first lines.
fn detect(bytes: &[u8]) -> Option<Format> {
    const CLAUDE: [&str; 5] = ["uuid", "sessionId", "leafUuid", "parentUuid", "messageId"];
    const CODEX: [&str; 5] = ["session_meta", "response_item", "event_msg", "turn_context", "compacted"];
    let head: Vec<&[u8]> = bytes.split(|b| *b == b'\n').take(LOOKED_AT).collect();
    for line in lines(&head.join(&b'\n')).into_iter().flatten() {
        let kind = line["type"].as_str().unwrap_or_default();
        if line.get("events").is_some_and(serde_json::Value::is_array)
            || line.get("messages").is_some_and(serde_json::Value::is_array)
        {
            return Some(Format::Glrs);
        }
        if CODEX.contains(&kind) && line.get("payload").is_some_and(serde_json::Value::is_object) {
            return Some(Format::Codex);
        }
        if !kind.is_empty() && CLAUDE.iter().any(|k| line.get(k).is_some()) {
            return Some(Format::Claude);
        }
        // The first rollouts had no envelope; their first line names the session alone.
        if kind.is_empty() && line.get("id").is_some() && line.get("timestamp").is_some() {
            return Some(Format::Codex);
        }
    }
    // Ours is one document over many lines, perhaps torn.
    let text = bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(bytes).trim_ascii_start();
    let ours = |k: &[u8]| memchr::memmem::find(&text[..text.len().min(4096)], k).is_some();
    (text.starts_with(b"{") && (ours(b"\"events\"") || ours(b"\"messages\""))).then_some(Format::Glrs)
}

/// What did not map, counted by reason.
#[derive(Debug, Default)]
struct Notes(std::collections::BTreeMap<&'static str, u64>);

impl Notes {
    /// One more of this.
    fn count(&mut self, what: &'static str) {
        *self.0.entry(what).or_default() += 1;
    }

    /// As sentences: the number stands before the words.
    fn sentences(&self) -> Vec<String> {
        self.0.iter().map(|(what, n)| format!("{n} {what}")).collect()
    }
}

#[cfg(test)]
mod tests;
