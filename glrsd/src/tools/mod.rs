//! What the model can do: the tools and the door through which they act.
//!
//! Owns: the [`Tool`] trait, the built-in tools, and [`ToolCtx`], the one door to a session that
//! tools, MCP and subagents use. Must not know `session`: it implements [`ToolCtx`].

pub mod ask;
pub mod bash;
mod change;
pub mod clip;
pub mod edit;
mod files;
pub mod glob;
pub mod grep;
pub mod history;
mod input;
pub mod mcp;
mod output;
pub mod plan;
pub mod read;
pub mod task;
#[cfg(test)]
mod testing;
mod walk;
pub mod write;

use crate::host::Env;
use crate::host::process::Running;
use crate::host::sandbox::Sandbox;
use crate::policy::{Effect, Fence};
use futures_util::future::BoxFuture;
use glrs_protocol::entry::Entry;
use glrs_protocol::types::Decision;
use serde_json::value::RawValue;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tokio::net::unix::pipe;
use tokio_util::sync::CancellationToken;

/// What the model is told of a tool.
#[derive(Clone, Debug)]
pub struct ToolSpec {
    /// Name, `[a-z0-9_]+`; those of MCP servers also `[A-Z-]`.
    pub name: String,
    /// What it does and when to use it.
    pub description: String,
    /// JSON Schema of its input (an object).
    pub schema: Box<RawValue>,
}

/// Something a tool wants a person to answer.
#[derive(Clone, Debug)]
pub enum Ask {
    /// May this run? The session judges by mode and rules first and asks only if it must.
    Permission {
        /// What would happen, for the policy.
        effect: Effect,
        /// The file as it was asked for, links not followed, where it is a single one.
        asked: Option<PathBuf>,
        /// One line for people.
        title: String,
        /// The whole command or diff.
        body: String,
    },
    /// A question from the model to the person.
    Question {
        /// The question.
        text: String,
        /// Choices, if there are any.
        options: Vec<String>,
    },
}

/// The answer.
#[derive(Clone, Debug, PartialEq)]
pub struct Answer {
    /// What was decided; `Allow` also when no question was needed.
    pub decision: Decision,
    /// Words for the model, or the answer to the question.
    pub words: Option<String>,
    /// Who answered, when a person did.
    pub by: Option<String>,
}

/// What a call leaves running when it returns.
#[derive(Debug)]
pub struct Left {
    /// The process group.
    pub running: Running,
    /// Where it still writes to, if it does.
    pub pipe: Option<pipe::Receiver>,
    /// The command line.
    pub command: String,
}

/// Where a session keeps what a call left running.
#[derive(Clone, Debug, PartialEq)]
pub struct Kept {
    /// Its number in the session.
    pub job: u64,
    /// The file that has what it writes from here on; absent when nothing is kept of that.
    pub output: Option<PathBuf>,
}

/// The door to the session a call runs in.
pub trait ToolCtx: Send + Sync {
    /// The session's working directory.
    fn cwd(&self) -> &Path;
    /// Environment for child processes, complete (TMPDIR and the rest included).
    fn env(&self) -> &Env;
    /// Cancelled by esc, by the daemon's end, or when the turn closes.
    fn cancel(&self) -> &CancellationToken;
    /// Milliseconds a call may take.
    fn timeout_ms(&self) -> u64;
    /// What the tool must not look at, for what it finds by itself.
    fn fence(&self) -> Fence;
    /// What commands are kept to; none unless it is switched on.
    fn sandbox(&self) -> Option<Sandbox>;
    /// Hands over what goes on running in the background: the session lists it and ends it when it
    /// goes. None when there is too much already; then it has been ended.
    fn leave(&self, left: Left) -> Option<Kept>;
    /// Asks. Waits as long as it takes; never answered by itself.
    fn ask(&self, ask: Ask) -> BoxFuture<'_, Answer>;
    /// Shows output as it comes. Never blocks for long and never fails.
    fn emit<'a>(&'a self, text: &'a str) -> BoxFuture<'a, ()>;
    /// Keeps bytes beside the session, synced; answers their SHA-256 in hex.
    fn keep<'a>(&'a self, bytes: &'a [u8]) -> BoxFuture<'a, Result<String, String>>;
    /// The result that the session's entry `n` recorded, whole, and the tool's name; for `recall`.
    /// The error is for the model.
    fn recall(&self, n: u64) -> BoxFuture<'_, Result<String, String>>;
    /// What compactions replaced: listing, reading, annotating, deleting. The error is for the model.
    fn artifacts(&self, what: ArtifactCall) -> BoxFuture<'_, Result<String, String>>;
    /// Gives a task to a session of its own, once there is a place for it. The error is for the model.
    fn delegate(&self, task: task::Task) -> BoxFuture<'_, Result<task::Child, String>>;
    /// Number of the user entry of the running turn (for `glrs:files`).
    fn user_entry(&self) -> u64;
    /// Whether this session has read the file since it last changed (write and edit refuse to
    /// overwrite what was never read), as `(mtime in ns, size)` seen at that time.
    fn seen(&self, path: &Path) -> Option<(i128, u64)>;
    /// Notes that the file was read or written in this state.
    fn note_seen(&self, path: PathBuf, state: (i128, u64));
}

/// Something the agent does with an artifact.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ArtifactCall {
    /// Which there are.
    List,
    /// A part of one.
    Read {
        /// Its name.
        id: String,
        /// First byte.
        offset: u64,
        /// Most bytes.
        limit: Option<u64>,
    },
    /// Changes label or note.
    Annotate {
        /// Its name.
        id: String,
        /// The new label.
        label: Option<String>,
        /// The new note.
        note: Option<String>,
    },
    /// Deletes one.
    Delete {
        /// Its name.
        id: String,
    },
}

/// What a call came to.
#[derive(Clone, Debug, Default)]
pub struct Outcome {
    /// Whether it did what was asked.
    pub ok: bool,
    /// What the model is given. The session clips it to 30,000 characters and keeps the whole as a
    /// blob, so a tool gives everything it has (bounded by [`MAX_RESULT`]).
    pub result: String,
    /// So many bytes of it are in neither: they were over the bound.
    pub left_out: usize,
    /// Unified diff of what changed on disk.
    pub diff: Option<String>,
    /// Entries to record before the call's own (plan, `glrs:files`).
    pub entries: Vec<Entry>,
}

/// Most bytes a tool gives back (16 MiB); what is over is dropped from the middle, and said.
pub const MAX_RESULT: usize = 16 * 1024 * 1024;

impl Outcome {
    /// A success.
    pub fn ok(result: impl Into<String>) -> Self {
        Self { ok: true, result: result.into(), ..Self::default() }
    }

    /// A failure the model should see.
    pub fn error(result: impl Into<String>) -> Self {
        Self { ok: false, result: result.into(), ..Self::default() }
    }
}

/// A tool.
pub trait Tool: Send + Sync {
    /// What the model is told.
    fn spec(&self) -> ToolSpec;
    /// One line for people: the path, the command. Takes any input, also a broken one.
    fn detail(&self, input: &RawValue) -> String;
    /// Whether calls of it may run beside other such calls (it changes nothing, or means to run so).
    fn parallel(&self) -> bool {
        false
    }
    /// Runs it. Asks through `ctx` before anything that has an effect. Input that does not fit the
    /// schema is an `Outcome::error` that says what was expected.
    fn run<'a>(&'a self, ctx: &'a dyn ToolCtx, input: &'a RawValue) -> BoxFuture<'a, Outcome>;
}

/// Most characters a tool that can be asked for more gives at once: what is over would be cut from
/// the middle, where nobody finds it.
const PAGE_CHARS: usize = 28_000;

/// A spec from constants. A schema that is none would show in the tests; here it takes anything.
fn spec(name: &str, description: &str, schema: &str) -> ToolSpec {
    let schema = RawValue::from_string(schema.to_owned()).unwrap_or_else(|_| RawValue::TRUE.to_owned());
    ToolSpec { name: name.to_owned(), description: description.to_owned(), schema }
}

/// The built-in tools, always in this order: they are at the head of every prompt, where one byte
/// of difference costs the provider's cache.
pub fn builtin() -> Vec<Arc<dyn Tool>> {
    let tools: Vec<Arc<dyn Tool>> = vec![
        Arc::new(read::Read),
        Arc::new(write::Write),
        Arc::new(edit::Edit),
        Arc::new(bash::Bash),
        Arc::new(grep::Grep),
        Arc::new(glob::Glob),
        Arc::new(plan::Plan),
        Arc::new(ask::Ask),
        Arc::new(history::Recall),
        Arc::new(history::Artifacts::List),
        Arc::new(history::Artifacts::Read),
        Arc::new(history::Artifacts::Annotate),
        Arc::new(history::Artifacts::Delete),
        Arc::new(task::Delegate),
    ];
    tools.into_iter().map(|tool| Arc::new(Known { spec: tool.spec(), tool }) as Arc<dyn Tool>).collect()
}

/// A tool whose spec is read once: each step's request has all of them.
struct Known {
    tool: Arc<dyn Tool>,
    spec: ToolSpec,
}

impl Tool for Known {
    fn spec(&self) -> ToolSpec {
        self.spec.clone()
    }

    fn detail(&self, input: &RawValue) -> String {
        self.tool.detail(input)
    }

    fn parallel(&self) -> bool {
        self.tool.parallel()
    }

    fn run<'a>(&'a self, ctx: &'a dyn ToolCtx, input: &'a RawValue) -> BoxFuture<'a, Outcome> {
        self.tool.run(ctx, input)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_tool_has_a_sound_spec_and_a_line_for_anything() {
        let tools = builtin();
        let names: Vec<String> = tools.iter().map(|t| t.spec().name).collect();
        assert_eq!(names[..8], ["read", "write", "edit", "bash", "grep", "glob", "plan", "ask"]);
        let (last, history) = names[8..].split_last().unwrap();
        assert!(history.iter().all(|n| n == history::RECALL || n.starts_with(history::COMPACTION)));
        assert_eq!(last, task::NAME);
        for tool in tools {
            let spec = tool.spec();
            let schema: serde_json::Value = serde_json::from_str(spec.schema.get()).unwrap();
            assert_eq!(schema["type"], "object", "{}", spec.name);
            assert_eq!(schema["additionalProperties"], false, "{}", spec.name);
            for required in schema["required"].as_array().unwrap() {
                assert!(schema["properties"].get(required.as_str().unwrap()).is_some(), "{}", spec.name);
            }
            assert!(spec.description.len() > 80 && !spec.description.contains("  "), "{}", spec.name);
            for odd in ["null", "7", "[]", "\"x\"", "{\"path\":{}}", "{\"command\":null}"] {
                let line = tool.detail(&RawValue::from_string(odd.to_owned()).unwrap());
                assert!(!line.contains('\n'));
            }
            assert_eq!(tool.parallel(), ["read", "grep", "glob", "recall", "task"].contains(&spec.name.as_str()));
        }
    }
}
