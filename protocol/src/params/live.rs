//! Params and results of a session that is attached and worked with.

use crate::entry::Attachment;
use crate::id::SessionId;
use crate::types::*;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use std::collections::BTreeMap;

wire! {
    /// A cursor into a session's events.
    After {
        /// The epoch it belongs to.
        epoch: String,
        /// The last number seen.
        seq: u64,
    }
    /// A cursor into a session's entries.
    AfterEntry {
        /// The last entry the client has.
        n: u64,
        /// That entry's `at`.
        at: String,
    }
    /// Joins a session. At most one of `after`, `afterEntry`, `tail`.
    Attach {
        /// The session.
        id: SessionId,
        /// Go on from this event; a snapshot comes when that is no longer possible.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        after: Option<After>,
        /// Snapshot with the entries behind this one.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        after_entry: Option<AfterEntry>,
        /// Snapshot with the last so many entries; 256 unless told and at most.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        tail: Option<u32>,
        /// Look only: calls that change the session are refused on this connection.
        #[serde(default)]
        read_only: bool,
        /// Environment for its tools and provider keys.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        env: Option<BTreeMap<String, String>>,
    }
    /// The session as of event `seq`; `session/event` goes on with `seq` + 1.
    Snapshot {
        /// Epoch of the numbers.
        epoch: String,
        /// Number of the last event this contains.
        seq: u64,
        /// True when `after` was honoured: no entries are here, the missed events follow.
        #[serde(default)]
        resumed: bool,
        /// Info.
        info: SessionInfo,
        /// State.
        state: State,
        /// Compaction.
        compaction: Compaction,
        /// Disk.
        disk: Disk,
        /// Entries, oldest first.
        entries: Vec<NumberedEntry>,
        /// What streams now.
        in_flight: Vec<InFlight>,
        /// What waits.
        queue: Vec<QueueRow>,
        /// What waits for an answer.
        requests: Vec<Request>,
        /// Who is attached, as `name#id`.
        clients: Vec<String>,
        /// Usage.
        usage: UsageInfo,
        /// Plan.
        plan: Vec<PlanItem>,
        /// True when there are entries before the first one here: `session/entries` has them.
        more: bool,
    }
    /// Which entries.
    Entries {
        /// The session.
        id: SessionId,
        /// First entry, from 1; negative counts from the end; 1 unless told.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        from: Option<i64>,
        /// At most so many; 256 unless told and at most, and 1 MiB.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        limit: Option<u32>,
    }
    /// Entries.
    EntriesResult {
        /// The entries.
        entries: Vec<NumberedEntry>,
        /// Number of entries in the session.
        total: u64,
    }
    /// Roster rows now; `roster/event` follows with each row that changes.
    RosterResult {
        /// Sessions in memory, those that need someone first.
        sessions: Vec<SessionInfo>,
    }
    /// Sends a message.
    Send {
        /// The session.
        id: SessionId,
        /// The message; not blank.
        text: String,
        /// Files with it.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        attachments: Vec<Attachment>,
        /// How it is to be taken.
        #[serde(default)]
        mode: SendMode,
        /// Made by the client, unique: repeating the call with it runs nothing twice.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        key: Option<String>,
    }
    /// Where the message is.
    SendResult {
        /// `running`, `queued`, `steering`, `sent` (in the log) or `removed` (someone took it back).
        outcome: String,
        /// Its row while it waits.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        row: Option<u64>,
        /// Its entry once it is in the log.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        entry: Option<u64>,
    }
    /// Runs a person's own command in the session's directory.
    Shell {
        /// The session.
        id: SessionId,
        /// The command line; not blank.
        command: String,
        /// Made by the client, unique: repeating the call with it runs nothing twice.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        key: Option<String>,
    }
    /// Where the command is.
    ShellResult {
        /// `running`, or `done` (in the log).
        outcome: String,
        /// Its `callId` among the state's `shells` while it runs.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        call: Option<String>,
        /// Its entry once it is in the log.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        entry: Option<u64>,
    }
    /// Which part of a session's trace.
    TraceRead {
        /// The session.
        id: SessionId,
        /// First byte; 0 unless told. What is behind the last whole line comes with a later call.
        #[serde(default)]
        offset: u64,
    }
    /// A part of a session's trace.
    TraceResult {
        /// The lines, oldest first.
        #[schemars(with = "Vec<serde_json::Value>")]
        lines: Vec<Box<RawValue>>,
        /// Where to go on; absent at the end.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        next: Option<u64>,
    }
    /// What esc did.
    InterruptResult {
        /// `interrupted`, `held` (a brief was abandoned) or `nothing`.
        outcome: String,
    }
    /// What release did.
    ReleaseResult {
        /// `released` or `nothing`.
        outcome: String,
    }
    /// Changes a waiting row.
    QueueEdit {
        /// The session.
        id: SessionId,
        /// The row.
        row: u64,
        /// The version the client saw.
        version: u64,
        /// The new text.
        text: String,
    }
    /// Takes a waiting row back.
    QueueRemove {
        /// The session.
        id: SessionId,
        /// The row.
        row: u64,
        /// The version the client saw.
        version: u64,
    }
    /// Moves a waiting row.
    QueueMove {
        /// The session.
        id: SessionId,
        /// The row.
        row: u64,
        /// The version the client saw.
        version: u64,
        /// Position it shall have, from 0.
        to: u32,
    }
    /// The queue after the change.
    QueueResult {
        /// The rows.
        rows: Vec<QueueRow>,
    }
    /// Answers a request.
    Answer {
        /// The session.
        id: SessionId,
        /// The request.
        request: String,
        /// The answer.
        decision: Decision,
        /// Words for the model (deny), or the answer to a question.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        words: Option<String>,
    }
    /// Changes how a session works. At least one field besides `id`.
    SessionSet {
        /// The session.
        id: SessionId,
        /// "provider/model-id".
        #[serde(default, skip_serializing_if = "Option::is_none")]
        model: Option<String>,
        /// Reasoning effort.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        variant: Option<String>,
        /// Permission mode.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        mode: Option<Mode>,
        /// Title.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        title: Option<String>,
        /// Working directory, absolute and existing.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        cwd: Option<String>,
    }
}
