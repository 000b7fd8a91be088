//! Configuration: what the files say, merged, checked, and where each value came from.
//!
//! Owns the rules of config.md: nearest wins, lists are united, objects are merged (JSON Merge
//! Patch), a wrong key or value is a notice and never stops a session, project files never set
//! what runs code or sends data elsewhere until the project is trusted. Must not know sessions.

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
    /// Names of tools that are switched off.
    #[serde(rename = "tools.disable")]
    pub tools_disable: Vec<String>,
    /// Names of extensions that are switched off.
    #[serde(rename = "extensions.disable")]
    pub extensions_disable: Vec<String>,
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
            tools_disable: Vec::new(),
            extensions_disable: Vec::new(),
            providers: BTreeMap::new(),
        }
    }
}

/// The effective value of a key and where it came from, for `glrs doctor`.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Origin {
    /// Path of the key, such as `providers.local.api`.
    pub key: String,
    /// Its value. Header values and other secrets are replaced by `•••`.
    pub value: serde_json::Value,
    /// A file, `env GLRS_MODEL`, or `default`.
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
    /// Project root: git top level, else the working directory.
    pub root: PathBuf,
}
