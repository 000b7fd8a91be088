//! Params and results of the methods. One object each; unknown fields are ignored.

use crate::entry::Attachment;
use crate::event::EventHead;
use crate::id::SessionId;
use crate::types::*;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use std::collections::BTreeMap;

macro_rules! wire {
    ($($(#[$m:meta])* $name:ident { $($(#[$fm:meta])* $f:ident : $t:ty),* $(,)? })*) => {$(
        $(#[$m])*
        #[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
        #[serde(rename_all = "camelCase")]
        pub struct $name { $($(#[$fm])* pub $f: $t,)* }
    )*};
}

wire! {
    /// Nothing.
    Empty {}
    /// It is done (and on disk, where that applies).
    Done {}
    /// Names a session.
    Id {
        /// The session.
        id: SessionId,
    }
    /// The range of protocols a client speaks.
    Range {
        /// Oldest.
        min: u32,
        /// Newest.
        max: u32,
    }
    /// First call of every connection.
    Hello {
        /// Who calls.
        client: ClientIdent,
        /// What it speaks.
        protocol: Range,
    }
    /// Answer to hello.
    HelloResult {
        /// The protocol to be spoken on this connection.
        protocol: u32,
        /// The daemon.
        daemon: DaemonInfo,
        /// What it takes at most.
        limits: Limits,
        /// Optional abilities of this daemon, by name.
        capabilities: Vec<String>,
        /// This connection's client id.
        client_id: u64,
    }
    /// How the daemon does.
    DaemonStatus {
        /// Who it is.
        daemon: DaemonInfo,
        /// Data directory.
        data_dir: String,
        /// Socket path.
        socket: String,
        /// Connected clients.
        clients: u64,
        /// Sessions in memory.
        loaded: u64,
        /// Sessions with a running turn.
        running: u64,
        /// True once it takes no new work.
        draining: bool,
        /// What a sandbox can keep commands from here: `files and TCP`, `files`, or `nothing` and why.
        #[serde(default)]
        sandbox: String,
    }
    /// Figures for monitoring.
    Metrics {
        /// Resident memory in bytes.
        rss: u64,
        /// Connected clients.
        clients: u64,
        /// Sessions in memory.
        sessions: u64,
        /// Rows waiting in all queues.
        queue_rows: u64,
        /// Bytes written to clients since start.
        bytes_out: u64,
        /// Bytes read from clients since start.
        bytes_in: u64,
        /// How often a client was told `lagged`.
        lagged: u64,
        /// Seconds since start.
        uptime: u64,
        /// Open file descriptors, where the platform tells.
        fds: u64,
    }
    /// Stops the daemon.
    Shutdown {
        /// True: let running steps end first (up to a limit).
        #[serde(default)]
        drain: bool,
    }
    /// Who is connected.
    ClientList {
        /// The clients.
        clients: Vec<ClientRow>,
    }
    /// Whose models.
    CatalogModels {
        /// Directory whose configuration counts; none: the user's own.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        cwd: Option<String>,
        /// Environment to look for keys in; the daemon's own unless told.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        env: Option<BTreeMap<String, String>>,
    }
    /// Whose configuration.
    ConfigShow {
        /// The directory.
        cwd: String,
        /// Environment whose GLRS_MODEL, GLRS_VARIANT and GLRS_MODE count.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        env: Option<BTreeMap<String, String>>,
    }
    /// A key of the configuration.
    ConfigValue {
        /// Path of the key.
        key: String,
        /// Its effective value; secrets are masked.
        #[schemars(with = "serde_json::Value")]
        value: serde_json::Value,
        /// A file, `env NAME`, or `default`.
        from: String,
    }
    /// The configuration in force for a directory.
    ConfigResult {
        /// Project root.
        root: String,
        /// Whether the project is trusted.
        trusted: bool,
        /// Keys of project files that wait for trust.
        untrusted: Vec<String>,
        /// What is wrong in the files.
        notices: Vec<String>,
        /// Every key.
        values: Vec<ConfigValue>,
    }
    /// Whose MCP servers.
    McpList {
        /// The directory.
        cwd: String,
        /// Environment they get; the daemon's own unless told.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        env: Option<BTreeMap<String, String>>,
        /// Whether those that do not run are started, to see whether they do. They end again
        /// unless a session needs them.
        #[serde(default)]
        start: bool,
    }
    /// The MCP servers of a directory.
    McpListResult {
        /// By name.
        servers: Vec<McpRow>,
    }
    /// Which project to trust.
    ConfigTrust {
        /// A directory of the project.
        cwd: String,
    }
    /// The models.
    ModelList {
        /// Ready ones first.
        models: Vec<ModelRow>,
        /// The one a new session gets.
        default: String,
    }
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
    /// Prompt history.
    Prompts {
        /// Newest last; at most 100.
        prompts: Vec<String>,
    }
    /// Adds a prompt to the history.
    PromptPush {
        /// The prompt; blank ones and repeats of the newest are not stored.
        text: String,
    }
    /// The wire's schema.
    SchemaParams {
        /// `jsonschema`, `openrpc`, `markdown` or `config`; openrpc unless told.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        format: Option<String>,
    }
    /// What notifications look like.
    Notification {
        /// The envelope.
        #[serde(flatten)]
        head: EventHead,
    }
}
