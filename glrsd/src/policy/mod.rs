//! What may run without asking: modes and rules.
//!
//! Owns: rules such as `bash(git status*)`, `write(src/**)`, `mcp__git__*`, and the verdict on an
//! action. Pure: it reads no file and no environment. Must not know sessions or tools' insides.

use glrs_protocol::types::Mode;
use std::path::{Path, PathBuf};

/// What a tool call is about to do.
#[derive(Clone, Debug, PartialEq)]
pub enum Effect {
    /// Reads files only.
    Read,
    /// Changes these files (absolute, links and `..` resolved as far as they exist).
    Write(Vec<PathBuf>),
    /// Runs this command line.
    Exec(String),
    /// Touches nothing outside the session (plan, questions).
    None,
}

/// A call to be judged.
#[derive(Clone, Debug)]
pub struct Action<'a> {
    /// Tool name.
    pub tool: &'a str,
    /// What it would do.
    pub effect: Effect,
    /// The session's working directory, canonical.
    pub cwd: &'a Path,
}

/// The verdict.
#[derive(Clone, Debug, PartialEq)]
pub enum Verdict {
    /// Run it.
    Run,
    /// Ask a person; `rule` is what "always" would add (absent where none is safe to offer).
    Ask {
        /// The rule, such as `bash(git status*)`.
        rule: Option<String>,
    },
    /// Do not run it.
    Deny {
        /// The rule that forbids it.
        rule: String,
    },
}

/// Rules in force.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Rules {
    /// What runs without asking.
    pub allow: Vec<String>,
    /// What never runs. Wins over everything.
    pub deny: Vec<String>,
}

/// Judges a call.
pub fn decide(mode: Mode, rules: &Rules, action: &Action<'_>) -> Verdict {
    let _ = (mode, rules, action);
    Verdict::Ask { rule: None }
}
