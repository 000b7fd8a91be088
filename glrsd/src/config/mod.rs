//! Configuration: what the files say, merged, checked, and where each value came from.
//!
//! Owns the rules of config.md: nearest wins, lists are united, objects are merged (JSON Merge
//! Patch), a wrong key or value is a notice and never stops a session, project files never set
//! what runs code or sends data elsewhere until the project is trusted. Must not know sessions.
//!
//! One table of keys (`keys`) drives checking, merging, masking and the JSON Schema, so that they
//! cannot disagree. Nothing here writes: what is trusted is given as text, and the store keeps it.

mod allowed;
mod cache;
mod check;
mod files;
mod keys;
mod load;
mod merge;
mod origin;
#[cfg(test)]
mod random;
mod sandbox;
mod schema;
#[cfg(test)]
mod tests;
mod trust;

pub use allowed::{allowed, with_allowed};
pub use cache::Cache;
pub use files::{Found, read_head};
pub use load::{load, project_root};
pub use sandbox::Sandbox;
pub use schema::schema;
pub use trust::{is_trusted, trust_key, with_trusted};

use glrs_protocol::types::Mode;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::PathBuf;

/// How several waiting messages are delivered.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Delivery {
    /// One message per turn (or step).
    #[default]
    OneAtATime,
    /// All together, joined by a blank line.
    All,
}

/// What is known of a model from the configuration. Absent fields come from the catalogue.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ModelMetadata {
    /// Name for people.
    pub name: Option<String>,
    /// Context window in tokens.
    pub context: Option<u64>,
    /// Most output tokens.
    pub output: Option<u64>,
    /// US dollars per million input tokens.
    pub input_cost: Option<f64>,
    /// US dollars per million output tokens.
    pub output_cost: Option<f64>,
    /// Reasoning efforts.
    pub variants: Vec<String>,
    /// Whether it takes images.
    pub images: Option<bool>,
}

/// A model of a provider.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ModelConfig {
    /// What is known of it.
    pub metadata: ModelMetadata,
    /// Merged into each request's body.
    pub request_options: serde_json::Map<String, serde_json::Value>,
}

/// A provider.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ProviderConfig {
    /// Base URL, such as `https://api.example.com/v1`.
    pub api: Option<String>,
    /// `anthropic`, `openai` (Chat Completions), `responses` or `gemini`.
    pub dialect: Option<String>,
    /// Name of the environment variable that has the key.
    pub key_env: Option<String>,
    /// File that holds the key.
    pub key_file: Option<String>,
    /// Command that prints the key.
    pub key_command: Option<String>,
    /// Extra request headers.
    pub headers: BTreeMap<String, String>,
    /// Merged into each request's body.
    pub request_options: serde_json::Map<String, serde_json::Value>,
    /// Its models.
    pub models: BTreeMap<String, ModelConfig>,
}

/// Micro-compaction thresholds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Micro {
    /// Smallest result that is replaced, in bytes.
    pub bytes: u64,
    /// So many newest results stay.
    pub keep: u64,
    /// Smallest result of delegated work that is replaced, in bytes.
    pub delegation_bytes: u64,
}

impl Default for Micro {
    fn default() -> Self {
        Self { bytes: 2048, keep: 4, delegation_bytes: 16384 }
    }
}

/// Tools that are switched off, and what commands may see.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Tools {
    /// Names of tools the model is not offered.
    pub disable: Vec<String>,
    /// Names of variables with providers' keys that commands are given all the same.
    pub env: Vec<String>,
}

/// Tasks that are given to sessions of their own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Tasks {
    /// How many of a turn run at once; further ones wait.
    pub parallel: u32,
}

impl Default for Tasks {
    fn default() -> Self {
        Self { parallel: 4 }
    }
}

/// Extensions: which are off, and their settings.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Extensions {
    /// Names of extensions that are switched off.
    pub disable: Vec<String>,
    /// Settings by extension name.
    pub settings: BTreeMap<String, serde_json::Map<String, serde_json::Value>>,
}

/// An MCP server, as `.mcp.json` describes one. `${NAME}` in it is left as written: whoever starts
/// the server has the session's environment.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct McpServer {
    /// `stdio`, `http` or `sse`; absent: `stdio` with a command, `http` with a URL.
    #[serde(rename = "type", skip_serializing_if = "Option::is_none")]
    pub transport: Option<String>,
    /// Program to start.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub command: Option<String>,
    /// Its arguments.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub args: Vec<String>,
    /// Environment variables it gets besides the session's.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub env: BTreeMap<String, String>,
    /// Directory it starts in; absent: the session's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cwd: Option<String>,
    /// Where a remote server answers.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub url: Option<String>,
    /// Extra request headers for a remote server.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub headers: BTreeMap<String, String>,
}

/// What is deleted by age and number, once someone has turned it on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Retention {
    /// Days after its last change at which a session may go.
    pub days: u64,
    /// Most sessions that are kept.
    pub sessions: u64,
    /// Days after which a trace may go.
    pub trace_days: u64,
    /// Most bytes of traces that are kept.
    pub trace_bytes: u64,
}

impl Default for Retention {
    fn default() -> Self {
        Self { days: 30, sessions: 1000, trace_days: 30, trace_bytes: 2 << 30 }
    }
}

/// The effective configuration. Every field has its default.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Config {
    /// "provider/model-id"; absent: first that works, else builtin/rehearsal.
    pub model: Option<String>,
    /// Reasoning effort.
    pub variant: Option<String>,
    /// Fraction of the window at which it compacts; 0 is off.
    pub compact_at: f64,
    /// Most tokens that are planned with.
    pub compact_window: u64,
    /// Who writes briefs; absent: the session's model.
    pub compact_model: Option<String>,
    /// Recent user turns kept by a compaction.
    pub keep_turns: u64,
    /// Fullness from which one turn is enough.
    pub shrink_at: f64,
    /// Micro-compaction.
    pub micro: Micro,
    /// How steering messages are delivered.
    pub steering_mode: Delivery,
    /// How queued messages are delivered.
    pub follow_up_mode: Delivery,
    /// Milliseconds a tool call may take.
    pub tool_timeout_ms: u64,
    /// Milliseconds a model stream may say nothing.
    pub idle_timeout_ms: u64,
    /// Steps of a turn.
    pub max_steps: u32,
    /// Permission mode of new sessions.
    pub mode: Mode,
    /// Rules that allow.
    pub allow: Vec<String>,
    /// Rules that deny.
    pub deny: Vec<String>,
    /// Whether the model gets vitals.
    pub vitals: bool,
    /// Whether tools get a private temporary directory.
    pub session_tmp: bool,
    /// Soft deadline of a turn, in minutes.
    pub deadline_minutes: Option<u64>,
    /// What the agent's commands are kept to.
    pub sandbox: Sandbox,
    /// Tools that are switched off, and what commands may see.
    pub tools: Tools,
    /// Tasks that are given to sessions of their own.
    pub tasks: Tasks,
    /// Extensions: which are off, and their settings.
    pub extensions: Extensions,
    /// MCP servers by name.
    pub mcp_servers: BTreeMap<String, McpServer>,
    /// Commands by lifecycle event.
    pub hooks: BTreeMap<String, Vec<String>>,
    /// What is deleted by age and number; absent: nothing is.
    pub retention: Option<Retention>,
    /// Providers by id.
    pub providers: BTreeMap<String, ProviderConfig>,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            model: None,
            variant: None,
            compact_at: 0.75,
            compact_window: 256_000,
            compact_model: None,
            keep_turns: 2,
            shrink_at: 0.7,
            micro: Micro::default(),
            steering_mode: Delivery::OneAtATime,
            follow_up_mode: Delivery::OneAtATime,
            tool_timeout_ms: 600_000,
            idle_timeout_ms: 120_000,
            max_steps: 100,
            mode: Mode::Ask,
            allow: Vec::new(),
            deny: Vec::new(),
            vitals: true,
            session_tmp: true,
            deadline_minutes: None,
            sandbox: Sandbox::default(),
            tools: Tools::default(),
            tasks: Tasks::default(),
            extensions: Extensions::default(),
            mcp_servers: BTreeMap::new(),
            hooks: BTreeMap::new(),
            retention: None,
            providers: BTreeMap::new(),
        }
    }
}

/// What `.glrs/.gitignore` holds when it is made: the local file is nobody else's.
pub const GITIGNORE: &str = "# Yours alone: what the project shares is in config.json.\nconfig.local.json\n";

/// The effective value of a key and where it came from, for `glrs doctor`.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Origin {
    /// Path of the key, such as `providers.local.api`.
    pub key: String,
    /// Its value. Header values and other secrets are replaced by `•••`.
    pub value: serde_json::Value,
    /// A file, `env GLRS_MODEL`, or `default`. Several, joined by a comma, where lists were united.
    pub from: String,
}

/// Configuration as loaded for one working directory.
#[derive(Clone, Debug, Default)]
pub struct Loaded {
    /// The effective values.
    pub config: Config,
    /// What was wrong, naming file, key and what was expected.
    pub notices: Vec<String>,
    /// Each key's value and origin.
    pub origins: Vec<Origin>,
    /// Keys of project files that wait for the project to be trusted. Not empty: worth asking.
    pub untrusted: Vec<String>,
    /// Project root: git top level, else the working directory.
    pub root: PathBuf,
}
