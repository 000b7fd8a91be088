//! Params and results about a session's past: forks, compaction, artifacts, rewinding.

use crate::id::SessionId;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

wire! {
    /// Copies a session.
    Fork {
        /// The session.
        id: SessionId,
        /// Copy entries up to this number; all unless told.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        at: Option<u64>,
        /// The id the copy shall have. Calling again with the same one answers the same copy.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        new_id: Option<SessionId>,
    }
    /// The replay restarts empty; the transcript stays.
    Clear {
        /// The session.
        id: SessionId,
        /// Made by the client.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        key: Option<String>,
    }
    /// Summarises the older part of the conversation.
    Compact {
        /// The session.
        id: SessionId,
        /// What the brief shall keep above all.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        instruction: Option<String>,
        /// Made by the client.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        key: Option<String>,
    }
    /// What came of it, once it is on disk.
    CompactResult {
        /// `compacted` or `nothing` (there is nothing worth compacting yet).
        outcome: String,
        /// The notice people see.
        notice: String,
    }
    /// What a compaction replaced.
    ArtifactRow {
        /// Its name.
        artifact: String,
        /// One line.
        label: String,
        /// When it was made.
        created_at: String,
        /// How many messages it has.
        messages: u64,
        /// A note that was put on it.
        note: String,
        /// Bytes.
        bytes: u64,
    }
    /// The artifacts of a session.
    ArtifactList {
        /// Oldest first.
        artifacts: Vec<ArtifactRow>,
    }
    /// Which artifact, and which part of it.
    ArtifactRead {
        /// The session.
        id: SessionId,
        /// The artifact.
        artifact: String,
        /// First byte; 0 unless told. Moved to the start of a character.
        #[serde(default)]
        offset: u64,
        /// At most so many bytes; 1 MiB unless told and at most.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        limit: Option<u64>,
    }
    /// A part of an artifact.
    ArtifactText {
        /// The text.
        text: String,
        /// Bytes of the whole.
        bytes: u64,
        /// Where to go on; absent at the end.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        next: Option<u64>,
    }
    /// Changes an artifact's label or note.
    ArtifactAnnotate {
        /// The session.
        id: SessionId,
        /// The artifact.
        artifact: String,
        /// The new label.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        label: Option<String>,
        /// The new note.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        note: Option<String>,
    }
    /// Deletes an artifact.
    ArtifactDelete {
        /// The session.
        id: SessionId,
        /// The artifact.
        artifact: String,
    }
    /// Goes back to an earlier point.
    Rewind {
        /// The session.
        id: SessionId,
        /// The user entry to go back before.
        to: u64,
        /// Say what would change, change nothing.
        #[serde(default)]
        preview: bool,
        /// Put the files back; true unless told.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        files: Option<bool>,
        /// Cut the conversation; true unless told.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        conversation: Option<bool>,
        /// Made by the client.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        key: Option<String>,
    }
    /// A file that a rewind restores.
    RewindFile {
        /// Absolute path.
        path: String,
        /// `restore`, `delete` or `conflict` (it changed since; it is left alone).
        action: String,
    }
    /// What a rewind does or did.
    RewindResult {
        /// The files.
        files: Vec<RewindFile>,
        /// The message that comes back into the composer.
        text: String,
        /// Entries that leave the context.
        entries: u64,
    }
    /// Appends an extension's entry.
    Append {
        /// The session.
        id: SessionId,
        /// Its kind; kinds starting `glrs:` are refused.
        custom: String,
        /// Its data.
        #[schemars(with = "serde_json::Value")]
        data: Box<RawValue>,
        /// Made by the client.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        key: Option<String>,
    }
    /// The entry's number.
    AppendResult {
        /// Its number.
        n: u64,
    }
    /// Which custom entries.
    CustomList {
        /// The session.
        id: SessionId,
        /// Their kind.
        custom: String,
    }
}
