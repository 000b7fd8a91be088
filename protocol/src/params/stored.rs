//! Params and results about stored sessions: making, listing, finding, checking them.

use crate::id::SessionId;
use crate::types::*;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

wire! {
    /// Makes a session. It has no file until something is said in it.
    SessionNew {
        /// Working directory, absolute.
        cwd: String,
        /// The id it shall have; a UUID or 8 hex digits. Calling again with the same id while
        /// nothing was said in it answers the same session.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        id: Option<SessionId>,
        /// "provider/model-id".
        #[serde(default, skip_serializing_if = "Option::is_none")]
        model: Option<String>,
        /// Reasoning effort.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        variant: Option<String>,
        /// Permission mode.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        mode: Option<Mode>,
        /// Environment for its tools and provider keys. Kept in memory only.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        env: Option<BTreeMap<String, String>>,
    }
    /// A session.
    SessionResult {
        /// The session.
        session: SessionInfo,
    }
    /// Which sessions to list.
    SessionList {
        /// Only those of this directory (canonical path).
        #[serde(default, skip_serializing_if = "Option::is_none")]
        cwd: Option<String>,
        /// Only those whose title contains this, in lower case.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        query: Option<String>,
        /// Only those in this state.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        state: Option<StateName>,
        /// Those that do tasks of others: left out unless this is `all`, or the id of whose tasks they do.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        children: Option<String>,
        /// At most so many; 20 unless told, 1000 at most.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        limit: Option<u32>,
        /// Where the last page ended.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        cursor: Option<String>,
    }
    /// Sessions, newest first.
    SessionListResult {
        /// The rows; broken files are among them, with `why`.
        sessions: Vec<SessionInfo>,
        /// Pass it back for the next page; absent on the last.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        cursor: Option<String>,
        /// How many there are in all.
        total: u64,
        /// Files among the sessions whose names say no session; with the first page of all or of
        /// broken sessions.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        others: Vec<OtherFile>,
    }
    /// A file that is listed and cannot be opened, since its name is no session's.
    OtherFile {
        /// Where it is.
        path: String,
        /// What is wrong with it and what to do.
        why: String,
    }
    /// Searches titles and messages.
    SessionSearch {
        /// The words, compared in lower case.
        text: String,
        /// Only sessions of this directory.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        cwd: Option<String>,
        /// At most so many; 20 unless told.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        limit: Option<u32>,
    }
    /// A session that contains what was searched.
    SearchHit {
        /// The session.
        session: SessionInfo,
        /// Entry that contains it; absent when the title does.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        n: Option<u64>,
        /// A piece of the text around it.
        excerpt: String,
    }
    /// What was found, newest session first.
    SearchResult {
        /// The hits, one per session.
        hits: Vec<SearchHit>,
    }
    /// Opens a stored session. Exactly one of `id`, `title`, `last`.
    SessionResume {
        /// By id.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        id: Option<SessionId>,
        /// By title, within `cwd`, lower-cased and exact; a sole manual rename wins.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        title: Option<String>,
        /// The most recent of `cwd`.
        #[serde(default)]
        last: bool,
        /// Directory for `title` and `last`.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        cwd: Option<String>,
        /// Environment for its tools and provider keys.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        env: Option<BTreeMap<String, String>>,
    }
    /// Gives a session a title.
    SessionRename {
        /// The session.
        id: SessionId,
        /// The title; not blank.
        title: String,
    }
    /// Deletes a session with all its side files. Refused while a turn runs in it.
    SessionDelete {
        /// The session.
        id: SessionId,
        /// Also when clients are attached or messages wait.
        #[serde(default)]
        force: bool,
    }
    /// Writes a session out.
    SessionExport {
        /// The session.
        id: SessionId,
        /// `json` (schema 2, as stored) or `markdown`.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        format: Option<String>,
        /// The part that starts at this entry: `next` of the part before.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        from: Option<u64>,
    }
    /// A part of the exported text; all parts joined are the whole.
    ExportResult {
        /// The text.
        text: String,
        /// `from` of the next part; absent with the last one.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        next: Option<u64>,
    }
    /// Makes a session of a file. Exactly one of `path` and `text`.
    SessionImport {
        /// The file, as an absolute path that the daemon can read.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        path: Option<String>,
        /// Its content.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        text: Option<String>,
        /// `glrs`, `claude`, `codex`, or `auto`: told by the content.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        format: Option<String>,
        /// The id it shall have. Calling again with the same id and content answers the same
        /// session.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        id: Option<SessionId>,
        /// Its working directory, absolute; that of the file unless told.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        cwd: Option<String>,
    }
    /// What was imported.
    ImportResult {
        /// The session.
        session: SessionInfo,
        /// What the file was: `glrs`, `claude` or `codex`.
        format: String,
        /// What did not map, in words; empty when the session was there already.
        notes: Vec<String>,
    }
    /// Verifies stored sessions.
    SessionCheck {
        /// Only this one.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        id: Option<SessionId>,
        /// Also repair what can be; what is replaced is kept beside it.
        #[serde(default)]
        repair: bool,
    }
    /// Something that is wrong with a session.
    CheckProblem {
        /// What.
        what: String,
        /// What a repair does about it; absent when nothing can be done.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        repair: Option<String>,
        /// Whether it was done.
        repaired: bool,
    }
    /// What was found of one session.
    CheckedFile {
        /// Its file's name without `.json`: its id, unless the name is none.
        name: String,
        /// Its log.
        path: String,
        /// Number of entries, as far as they can be counted.
        entries: u64,
        /// What is wrong.
        problems: Vec<CheckProblem>,
        /// What is worth saying and does no harm.
        notes: Vec<String>,
        /// Where a repair kept what it replaced.
        kept: Vec<String>,
    }
    /// What a check found.
    CheckResult {
        /// How many sessions were verified.
        checked: u64,
        /// How many problems remain.
        problems: u64,
        /// The session that was asked for, or those with something to say.
        files: Vec<CheckedFile>,
    }
}
