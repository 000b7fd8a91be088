//! Params and results of the methods. One object each; unknown fields are ignored.
//!
//! Owns those about the daemon and the connection; the others are in the modules below.

use crate::event::EventHead;
use crate::id::SessionId;
use crate::types::*;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

macro_rules! wire {
    ($($(#[$m:meta])* $name:ident { $($(#[$fm:meta])* $f:ident : $t:ty),* $(,)? })*) => {$(
        $(#[$m])*
        #[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
        #[serde(rename_all = "camelCase")]
        pub struct $name { $($(#[$fm])* pub $f: $t,)* }
    )*};
}

mod history;
mod live;
mod stored;

pub use history::*;
pub use live::*;
pub use stored::*;

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
        /// Date of the built-in table of models.
        #[serde(default)]
        table: String,
        /// When the public list was fetched that beats it; absent where none was.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        fetched: Option<String>,
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
