//! The things a session is made of, as clients see them: info, state, queue rows, requests, usage.
//!
//! Each is computed in one place of the daemon; every surface shows these values and derives none.

use crate::entry::Attachment;
use crate::id::SessionId;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

/// What the daemon tells of itself.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct DaemonInfo {
    /// Release version.
    pub version: String,
    /// Process id.
    pub pid: u32,
    /// Made new at each start.
    pub boot_id: String,
    /// When it started.
    pub started_at: String,
}

/// What the daemon takes at most. Going over one is a `limit` error, except `inFlight`: at that
/// many unanswered calls the daemon stops reading the connection until one is answered.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Limits {
    /// Bytes of one message (line), newline included.
    pub message_bytes: u64,
    /// Unanswered calls of one connection.
    pub in_flight: u64,
    /// Connected clients.
    pub clients: u64,
    /// Rows in one session's queue.
    pub queue_rows: u64,
}

/// Who a client says it is.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ClientIdent {
    /// Program name.
    pub name: String,
    /// Its version.
    #[serde(default)]
    pub version: String,
    /// `terminal`, `print`, `editor`, `script`, `web` or any other word.
    #[serde(default)]
    pub kind: String,
    /// Its process id, if it has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pid: Option<u32>,
}

/// A connected client.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ClientRow {
    /// Id given at hello; also what `by` fields name, as `name#id`.
    pub client_id: u64,
    /// Who it says it is.
    pub client: ClientIdent,
    /// Since when.
    pub connected_at: String,
    /// Sessions it is attached to.
    pub attached: Vec<String>,
}

/// Permission mode of a session.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Mode {
    /// Reads run; writes and commands ask.
    #[default]
    Ask,
    /// Writes inside the session's cwd run as well.
    Edits,
    /// Everything runs, except what a deny rule names.
    All,
}

impl Mode {
    /// The word on the wire.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Ask => "ask",
            Self::Edits => "edits",
            Self::All => "all",
        }
    }
}

/// The name of a session's state.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum StateName {
    /// Stored; nothing of it is in memory.
    Unloaded,
    /// Nothing runs, nothing waits.
    Idle,
    /// A turn runs.
    Running,
    /// Someone pressed esc (or the daemon died) and messages wait.
    Held,
    /// It cannot be used; see `why`.
    Broken,
    /// A state this build does not know.
    #[serde(other)]
    Unknown,
}

impl StateName {
    /// The word on the wire.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Unloaded => "unloaded",
            Self::Idle => "idle",
            Self::Running => "running",
            Self::Held => "held",
            Self::Broken => "broken",
            Self::Unknown => "unknown",
        }
    }
}

/// What a running turn is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Phase {
    /// For the model's first word, or for a retry.
    Waiting,
    /// The model reasons.
    Thinking,
    /// The model writes.
    Writing,
    /// Tools run.
    Tool,
    /// A request waits for an answer.
    Asking,
    /// A phase this build does not know.
    #[serde(other)]
    Unknown,
}

/// A tool call that runs now.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ToolRun {
    /// The model's id of the call.
    pub call_id: String,
    /// Tool name.
    pub name: String,
    /// One line for people.
    pub detail: String,
    /// Piece id under which its output streams.
    pub of: String,
    /// When it started.
    pub started_at: String,
    /// Who runs it, when a person does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<String>,
}

/// A process group that a command left running in the background.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct JobRow {
    /// Its number in the session.
    pub job: u64,
    /// Its process group, which is the process id of the shell that led it.
    pub group: i32,
    /// The command, on one line.
    pub command: String,
    /// The file that has what it writes; absent when that is not kept.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output: Option<String>,
    /// Since when it runs in the background.
    pub since: String,
}

/// A retry that is being waited for.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Retry {
    /// Which attempt comes next, from 2.
    pub attempt: u32,
    /// When it is sent.
    pub at: String,
    /// Why the last one failed, in few words.
    pub reason: String,
}

/// A session's state: the one value that every surface shows.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct State {
    /// Its name.
    pub name: StateName,
    /// While running: the step, from 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub step: Option<u32>,
    /// While running: what it does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub phase: Option<Phase>,
    /// When the turn started.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub since: Option<String>,
    /// Tools that run.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tools: Vec<ToolRun>,
    /// The retry that is waited for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry: Option<Retry>,
    /// Commands of people that run, beside whatever the turn does.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub shells: Vec<ToolRun>,
    /// What runs in the background. It ends with the session.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub jobs: Vec<JobRow>,
    /// Why it is broken.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
}

impl State {
    /// A state with a name and nothing else.
    pub fn of(name: StateName) -> Self {
        Self {
            name,
            step: None,
            phase: None,
            since: None,
            tools: Vec::new(),
            retry: None,
            shells: Vec::new(),
            jobs: Vec::new(),
            why: None,
        }
    }
}

/// Whether a brief is being written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum CompactionState {
    /// No.
    #[default]
    None,
    /// Yes; `gate` of [`Compaction`] says whether it holds the queue.
    Writing,
    /// Written; lands when the turn is over.
    Ready,
    /// Two in a row freed less than a tenth: no more by itself until someone does something.
    Stuck,
    /// A state this build does not know.
    #[serde(other)]
    Unknown,
}

/// Compaction beside the state.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Compaction {
    /// Whether one is under way.
    pub state: CompactionState,
    /// Whether it holds the queue.
    #[serde(default)]
    pub gate: bool,
    /// Since when.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub since: Option<String>,
}

/// The disk beside the state.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Disk {
    /// False while writing fails. Nothing is lost that memory holds, and it is tried again.
    pub ok: bool,
    /// The path that fails.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
    /// The operating system's reason.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
}

/// How a message is to be taken.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum SendMode {
    /// Behind what waits; at once when nothing runs or waits.
    #[default]
    Queue,
    /// Into the running turn at its next step; a turn when nothing runs.
    Steer,
    /// Stop the turn, then run.
    Interrupt,
}

/// A message that waits.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct QueueRow {
    /// Its id, unique in the session.
    pub row: u64,
    /// Counts changes; edits name the version they saw.
    pub version: u64,
    /// Who sent it.
    pub by: String,
    /// `queue` or `steer`.
    pub mode: SendMode,
    /// The message.
    pub text: String,
    /// Files with it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub attachments: Vec<Attachment>,
    /// When it was accepted.
    pub at: String,
}

/// What kind of answer a request wants.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum RequestKind {
    /// allow, always or deny.
    Permission,
    /// Words.
    Question,
    /// A kind this build does not know.
    #[serde(other)]
    Unknown,
}

/// Something the session waits for a person to answer.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Request {
    /// Its id, unique in the session.
    pub request: String,
    /// What answer it wants.
    pub kind: RequestKind,
    /// Tool that asks.
    pub tool: String,
    /// One line: what it is about.
    pub title: String,
    /// The whole command, diff or question.
    pub body: String,
    /// Choices of a question, if it has any.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub options: Vec<String>,
    /// The rule that "always" would add, such as `bash(git status*)`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rule: Option<String>,
    /// What the command is kept to, when it would run in a sandbox.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sandbox: Option<String>,
    /// The call that waits.
    pub call_id: String,
    /// Whose it is, when a session that does a task for this one asks; an answer may be given in
    /// either.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub origin: Option<Origin>,
    /// When it was opened.
    pub at: String,
}

/// A session that does a task for another one.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Origin {
    /// Its id.
    pub session: SessionId,
    /// What its task is, in one line.
    pub title: String,
}

/// An answer to a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Decision {
    /// Run it, this once.
    Allow,
    /// Run it, and add the request's rule to the session and its project.
    Always,
    /// Do not run it; `words` tell the model why.
    Deny,
    /// The answer to a question is in `words`.
    Answer,
}

impl Decision {
    /// The word on the wire.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Allow => "allow",
            Self::Always => "always",
            Self::Deny => "deny",
            Self::Answer => "answer",
        }
    }
}

/// What model calls have used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct Spent {
    /// Model calls.
    pub calls: u64,
    /// Input tokens, cached part included.
    pub input: u64,
    /// Output tokens.
    pub output: u64,
    /// Of the input, read from the provider's cache.
    pub cached: u64,
    /// Cost in US dollars.
    pub cost: f64,
}

impl std::ops::AddAssign for Spent {
    fn add_assign(&mut self, more: Self) {
        self.calls += more.calls;
        self.input += more.input;
        self.output += more.output;
        self.cached += more.cached;
        self.cost += more.cost;
    }
}

/// What a session has used and how full its context is.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct UsageInfo {
    /// Tokens in the context now.
    pub context_tokens: u64,
    /// True when that is an estimate.
    #[serde(default)]
    pub estimated: bool,
    /// The model's context window.
    pub window: u64,
    /// Tokens above which it compacts; 0 when that is off.
    pub line: u64,
    /// Model calls so far.
    pub calls: u64,
    /// Input tokens so far, cached part included.
    pub input: u64,
    /// Output tokens so far.
    pub output: u64,
    /// Of the input, read from the provider's cache.
    pub cached: u64,
    /// Cost so far in US dollars.
    pub cost: f64,
    /// What the sessions have used that did tasks for it: in none of the other figures.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub children: Option<Spent>,
}

/// State of a plan item.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum PlanStatus {
    /// Not begun.
    #[default]
    Pending,
    /// Being worked on.
    InProgress,
    /// Done.
    Completed,
    /// A status this build does not know.
    #[serde(other)]
    Unknown,
}

/// An item of the plan.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct PlanItem {
    /// What is to be done.
    pub text: String,
    /// How far it is.
    #[serde(default)]
    pub status: PlanStatus,
}

/// What is known of a session without reading its transcript.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SessionInfo {
    /// Its id.
    pub id: SessionId,
    /// Title: by a person, else by a model, else from the first message.
    pub title: String,
    /// True when a person gave the title.
    #[serde(default)]
    pub renamed: bool,
    /// Working directory.
    pub cwd: String,
    /// When it was made.
    pub created_at: String,
    /// When it last changed.
    pub updated_at: String,
    /// Number of entries.
    pub entries: u64,
    /// "provider/model-id".
    pub model: String,
    /// Reasoning effort.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub variant: Option<String>,
    /// Permission mode.
    pub mode: Mode,
    /// State name.
    pub state: StateName,
    /// True when a request waits.
    #[serde(default)]
    pub needs_you: bool,
    /// Attached clients.
    #[serde(default)]
    pub clients: u64,
    /// Messages that wait.
    #[serde(default)]
    pub queued: u64,
    /// Tokens in the context.
    #[serde(default)]
    pub context_tokens: u64,
    /// The model's window.
    #[serde(default)]
    pub window: u64,
    /// False while nothing was said in it: it has no file yet.
    pub saved: bool,
    /// The session it was forked from; with `child`, the one whose task it does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent: Option<String>,
    /// True when it was made to do a task for its parent.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub child: bool,
    /// Why it cannot be used, when it is broken.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
    /// What its commands are kept to, when they run in a sandbox; told of sessions in memory.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sandbox: Option<String>,
    /// True when it lies in the predecessor's directory only.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub legacy: bool,
}

/// An entry with its number.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct NumberedEntry {
    /// Position in the log, from 1.
    pub n: u64,
    /// The entry, as it stands in the log.
    #[schemars(with = "serde_json::Value")]
    pub entry: Box<RawValue>,
}

/// What kind of piece streams.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum PieceKind {
    /// The model's answer.
    Assistant,
    /// The model's reasoning.
    Reasoning,
    /// Output of a tool.
    Tool,
    /// A kind this build does not know.
    #[serde(other)]
    Unknown,
}

/// A piece that has streamed in part.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct InFlight {
    /// Its id; deltas and the entry that completes it name it.
    pub of: String,
    /// What it is.
    pub piece: PieceKind,
    /// So many bytes came before `text` and are held no more: of a command's output only the last
    /// MiB is.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub offset: u64,
    /// The text so far.
    pub text: String,
}

fn is_zero(n: &u64) -> bool {
    *n == 0
}

/// A model that can be chosen.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ModelRow {
    /// "provider/model-id".
    pub model: String,
    /// Name for people.
    pub name: String,
    /// Context window in tokens.
    pub context: u64,
    /// Most output tokens, if known; where it is not, none are asked for and the provider decides.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output: Option<u64>,
    /// US dollars per million input tokens, if known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub input_cost: Option<f64>,
    /// US dollars per million output tokens, if known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output_cost: Option<f64>,
    /// Reasoning efforts.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub variants: Vec<String>,
    /// Whether it takes images, if known; one that takes none is told in words that there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub images: Option<bool>,
    /// True when it can be used now (a key is there, or none is needed).
    pub ready: bool,
    /// What is missing, when it is not ready.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub missing: Option<String>,
}

/// How an MCP server is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum McpState {
    /// No session needed it yet.
    Idle,
    /// It is being started.
    Starting,
    /// It answers.
    Ready,
    /// It does not run; see `why`.
    Down,
    /// A state this build does not know.
    #[serde(other)]
    Unknown,
}

/// An MCP server.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct McpRow {
    /// Its name in the configuration.
    pub name: String,
    /// `stdio` (a program) or `http`.
    pub transport: String,
    /// How it is.
    pub state: McpState,
    /// Its tools, by the names that models and rules know them by; while it is ready.
    pub tools: Vec<String>,
    /// Why it is down.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
}
