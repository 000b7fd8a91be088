//! The method table: name, params, result, scope and doc in one row.
//!
//! Registration in the daemon, typed calls in the client, JSON Schema, OpenRPC and PROTOCOL.md all
//! come from these rows.

use crate::params::*;
use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::Serialize;
use serde::de::DeserializeOwned;

/// What a method touches, and so where its calls are ordered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    /// The connection itself.
    Connection,
    /// The daemon.
    Daemon,
    /// One session, read only: allowed on read-only attachments.
    Read,
    /// One session, changing it: ordered by its actor.
    Write,
}

impl Scope {
    /// The word in the documentation.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Connection => "connection",
            Self::Daemon => "daemon",
            Self::Read => "session (read)",
            Self::Write => "session (write)",
        }
    }
}

/// A method of the wire.
pub trait Method {
    /// Its name.
    const NAME: &'static str;
    /// What it touches.
    const SCOPE: Scope;
    /// What it does.
    const DOC: &'static str;
    /// Its params: one object.
    type Params: Serialize + DeserializeOwned + JsonSchema + Clone + core::marker::Send + 'static;
    /// Its result.
    type Result: Serialize + DeserializeOwned + JsonSchema + Clone + core::marker::Send + 'static;
}

/// A row of the table, for those that go through all of them.
pub struct MethodRow {
    /// Its name.
    pub name: &'static str,
    /// What it touches.
    pub scope: Scope,
    /// What it does.
    pub doc: &'static str,
    /// Schema of the params.
    pub params: fn(&mut SchemaGenerator) -> Schema,
    /// Schema of the result.
    pub result: fn(&mut SchemaGenerator) -> Schema,
}

macro_rules! methods {
    ($($ty:ident $name:literal $scope:ident ($params:ty) -> $result:ty : $doc:literal;)*) => {
        $(
            #[doc = $doc]
            pub struct $ty;
            impl Method for $ty {
                const NAME: &'static str = $name;
                const SCOPE: Scope = Scope::$scope;
                const DOC: &'static str = $doc;
                type Params = $params;
                type Result = $result;
            }
        )*

        /// All methods, in the order of the documentation.
        pub fn table() -> Vec<MethodRow> {
            vec![$(MethodRow {
                name: $name,
                scope: Scope::$scope,
                doc: $doc,
                params: |g| g.subschema_for::<$params>(),
                result: |g| g.subschema_for::<$result>(),
            }),*]
        }
    };
}

/// The types of the methods, one each.
pub mod m {
    use super::*;
    methods! {
        HelloM "hello" Connection (Hello) -> HelloResult: "First call of every connection; everything else is refused before it.";
        DaemonStatusM "daemon/status" Daemon (Empty) -> DaemonStatus: "How the daemon does.";
        DaemonMetricsM "daemon/metrics" Daemon (Empty) -> Metrics: "Figures for monitoring.";
        DaemonShutdownM "daemon/shutdown" Daemon (Shutdown) -> Done: "Stops the daemon; with `drain` running steps end first, up to a limit.";
        ClientListM "client/list" Daemon (Empty) -> ClientList: "Who is connected.";
        CatalogModelsM "catalog/models" Daemon (CatalogModels) -> ModelList: "The models that can be chosen, and which a new session gets.";
        ConfigShowM "config/show" Daemon (ConfigShow) -> ConfigResult: "The configuration in force for a directory, where each value comes from, and what is wrong.";
        ConfigTrustM "config/trust" Daemon (ConfigTrust) -> ConfigResult: "Trusts a project: its files may then set what runs code or sends data elsewhere.";
        McpListM "mcp/list" Daemon (McpList) -> McpListResult: "The MCP servers configured for a directory, how each is, and its tools. Those of a project count once it is trusted.";
        SchemaM "schema" Daemon (SchemaParams) -> ExportResult: "This protocol as JSON Schema, OpenRPC or Markdown, or the configuration's JSON Schema.";
        SessionNewM "session/new" Daemon (SessionNew) -> SessionResult: "Makes a session. It has no file until something is said in it.";
        SessionListM "session/list" Daemon (SessionList) -> SessionListResult: "Stored and live sessions, newest first; broken files are listed with the reason.";
        SessionSearchM "session/search" Daemon (SessionSearch) -> SearchResult: "Searches titles and messages.";
        SessionInfoM "session/info" Read (Id) -> SessionResult: "What is known of a session without its transcript.";
        SessionResumeM "session/resume" Daemon (SessionResume) -> SessionResult: "Finds a session by id, title or recency and takes the caller's environment for it. Writes nothing.";
        SessionRenameM "session/rename" Write (SessionRename) -> SessionResult: "Gives the session a title; it wins over derived ones.";
        SessionDeleteM "session/delete" Write (SessionDelete) -> Done: "Deletes a session with its side files; refused while a turn runs, and while clients are attached unless forced.";
        SessionExportM "session/export" Read (SessionExport) -> ExportResult: "The session as schema-2 JSON or Markdown, in parts of a few MiB.";
        SessionImportM "session/import" Daemon (SessionImport) -> ImportResult: "Makes a session of a file of glrs, Claude Code or Codex; on disk before the reply. Says what did not map.";
        SessionCheckM "session/check" Daemon (SessionCheck) -> CheckResult: "Verifies stored sessions with all that belongs to them, and repairs them when told: what is replaced is kept. A repair is refused while the session is in use.";
        SessionTraceM "session/trace" Read (TraceRead) -> TraceResult: "The witness trace: times, retries and decisions, without contents.";
        SessionAttachM "session/attach" Read (Attach) -> Snapshot: "Joins a session: the snapshot, then `session/event` notifications from `seq` + 1 on.";
        SessionDetachM "session/detach" Read (Id) -> Done: "Leaves a session; it goes on.";
        SessionEntriesM "session/entries" Read (Entries) -> EntriesResult: "Entries by number; a negative `from` counts from the end.";
        RosterWatchM "roster/watch" Daemon (Empty) -> RosterResult: "The sessions in memory, then `roster/event` for each that changes.";
        SessionSendM "session/send" Write (Send) -> SendResult: "Sends a message. It is on disk before the reply.";
        SessionShellM "session/shell" Write (Shell) -> ShellResult: "Runs a command of a person's own, also beside a turn. Nobody is asked. It is on disk before the reply; its end is a `tool` entry with `by`, which the model is shown with the next message.";
        SessionInterruptM "session/interrupt" Write (Id) -> InterruptResult: "Esc: stops the turn and commands of people, keeps what finished, holds what waits.";
        SessionReleaseM "session/release" Write (Id) -> ReleaseResult: "Lets a held queue go.";
        QueueEditM "queue/edit" Write (QueueEdit) -> QueueResult: "Changes the text of a waiting row.";
        QueueRemoveM "queue/remove" Write (QueueRemove) -> QueueResult: "Takes a waiting row back.";
        QueueMoveM "queue/move" Write (QueueMove) -> QueueResult: "Moves a waiting row.";
        RequestAnswerM "request/answer" Write (Answer) -> Done: "Answers a permission request or a question; the first valid answer wins.";
        SessionSetM "session/set" Write (SessionSet) -> SessionResult: "Changes model, variant, mode, title or cwd, as entries everyone sees.";
        SessionForkM "session/fork" Read (Fork) -> SessionResult: "Copies the session up to an entry into a new id; on disk before the reply, the parent's bytes do not change.";
        SessionClearM "session/clear" Write (Clear) -> Done: "The replay restarts empty; the transcript stays. Refused while a turn runs.";
        SessionCompactM "session/compact" Write (Compact) -> CompactResult: "Summarises the older part now; answers once that is on disk. Refused while a turn runs or a brief is being written.";
        ArtifactsListM "artifacts/list" Read (Id) -> ArtifactList: "What compactions replaced, oldest first.";
        ArtifactsReadM "artifacts/read" Read (ArtifactRead) -> ArtifactText: "A part of an artifact.";
        ArtifactsAnnotateM "artifacts/annotate" Write (ArtifactAnnotate) -> Done: "Changes an artifact's label or note; its content stays.";
        ArtifactsDeleteM "artifacts/delete" Write (ArtifactDelete) -> Done: "Deletes an artifact; the session's log is not touched.";
        SessionRewindM "session/rewind" Write (Rewind) -> RewindResult: "Goes back to before a user message: files, conversation or both; `preview` changes nothing.";
        SessionAppendM "session/append" Write (Append) -> AppendResult: "Appends an extension's own entry; never sent to the model.";
        SessionCustomM "session/custom" Read (CustomList) -> EntriesResult: "All custom entries of one kind.";
        PromptsListM "prompts/list" Daemon (Empty) -> Prompts: "Prompt history, newest last.";
        PromptsPushM "prompts/push" Daemon (PromptPush) -> Done: "Adds to the prompt history.";
    }
}

pub use m::table;
