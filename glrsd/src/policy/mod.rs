//! What may run without asking: modes and rules.
//!
//! Owns: rules such as `bash(git status*)`, `write(src/**)`, `mcp__git__*`, and the verdict on an
//! action. Pure: it reads no file and no environment. Must not know sessions or tools' insides.
//!
//! An allow rule is read narrowly: a command line runs by rule only if it is nothing but simple
//! commands, each named by some rule, with no redirection, substitution or variable in it, and a
//! guarded file is written by rule only if the rule means it (`src/**` does not). A deny
//! rule is read widely and wins in every mode: a file is held against it by the path it was asked
//! for and by where that leads. `write` rules cover `edit`, `read` rules `grep` and `glob` (where
//! they start looking, and with a [`Fence`] each file they meet). Relative patterns count from the
//! session's cwd, `~` is the session's home.

mod fence;
mod rule;
mod shell;
mod suggest;
#[cfg(test)]
mod tests;

pub use fence::Fence;

use glrs_protocol::types::Mode;
use rule::Rule;
use std::path::{Path, PathBuf};

/// What a tool call is about to do.
#[derive(Clone, Debug, PartialEq)]
pub enum Effect {
    /// Reads these files or directories (absolute, links and `..` resolved); changes nothing.
    Read(Vec<PathBuf>),
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
    /// The file as it was asked for (absolute, links not followed), where it is a single one.
    pub asked: Option<&'a Path>,
    /// Where it happens.
    pub around: &'a Around,
}

/// What patterns count from, and what is guarded.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Around {
    /// The session's working directory, canonical.
    pub cwd: PathBuf,
    /// What `~` stands for: the session's home, as named and canonical.
    pub homes: Vec<PathBuf>,
    /// Files and directories that decide what runs later, wherever they lie: our own configuration
    /// and data. Canonical.
    pub guarded: Vec<PathBuf>,
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

/// What is wrong with a rule, for whoever reads configuration. A broken allow rule lets nothing
/// run; a broken deny rule forbids its tool.
///
/// # Errors
/// Says what was expected.
pub fn check_rule(text: &str) -> Result<(), String> {
    let rule = Rule::parse(text)?;
    match rule.pattern {
        Some(pattern) if ["read", "write", "edit", "grep", "glob"].contains(&rule.name) => {
            rule::file_glob(pattern.trim_start_matches("~/").trim_start_matches("./").trim_start_matches("../"))
                .map(|_| ())
        }
        _ => Ok(()),
    }
}

/// Judges a call.
pub fn decide(mode: Mode, rules: &Rules, action: &Action<'_>) -> Verdict {
    if let Some(rule) = rules.deny.iter().find(|r| forbids(r, action)) {
        return Verdict::Deny { rule: rule.clone() };
    }
    if mode == Mode::All || allows(&rules.allow, action) {
        return Verdict::Run;
    }
    let rule = match &action.effect {
        Effect::Read(_) | Effect::None => return Verdict::Run,
        Effect::Write(paths) => {
            let free = |p: &PathBuf| is_inside(p, &action.around.cwd) && !is_guarded(p, action.around);
            if mode == Mode::Edits && !paths.is_empty() && paths.iter().all(free) {
                return Verdict::Run;
            }
            match paths.as_slice() {
                [path] if matches!(action.tool, "write" | "edit") => suggest::write(path, action.around),
                _ => None,
            }
        }
        Effect::Exec(_) if action.tool.starts_with("mcp__") => Some(action.tool.to_owned()),
        Effect::Exec(command) => suggest::command(action.tool, command),
    };
    Verdict::Ask { rule }
}

/// What let a call run that [`decide`] let run: `mode`, `rule` or (what changes nothing) `reading`,
/// with the rule where it was a single one.
pub fn reason(mode: Mode, rules: &Rules, action: &Action<'_>) -> (String, Option<String>) {
    if mode == Mode::All {
        return ("mode".to_owned(), None);
    }
    if matches!(action.effect, Effect::Read(_) | Effect::None) {
        return ("reading".to_owned(), None);
    }
    if !allows(&rules.allow, action) {
        return ("mode".to_owned(), None);
    }
    let one = rules.allow.iter().find(|r| allows(std::slice::from_ref(r), action));
    ("rule".to_owned(), one.cloned())
}

/// Whether a path is in cwd.
fn is_inside(path: &Path, cwd: &Path) -> bool {
    rule::is_settled(path) && path.starts_with(cwd)
}

/// Whether a write there decides what will run later (git's hooks, MCP servers, our own rules): it
/// is as good as a command, so it asks where commands ask, and no rule is offered for it.
fn is_guarded(path: &Path, around: &Around) -> bool {
    let relative = path.strip_prefix(&around.cwd).unwrap_or(path);
    let named = relative.components().any(|c| {
        let name = c.as_os_str().to_string_lossy();
        GUARDED.iter().any(|guarded| name.eq_ignore_ascii_case(guarded))
    });
    named || around.guarded.iter().any(|guarded| path.starts_with(guarded))
}

/// Names of what is guarded wherever it lies.
const GUARDED: [&str; 3] = [".git", ".glrs", ".mcp.json"];

/// Whether an allow pattern means what is guarded, and does not merely take it along: it names it,
/// or the place that we keep our own in.
fn means_guarded(pattern: &str) -> bool {
    GUARDED.iter().any(|name| pattern.contains(name)) || pattern.starts_with('/') || rule::in_home(pattern).is_some()
}

/// Whether a name in which `*` stands for anything (`mcp__git__*`) names this tool.
pub fn names(pattern: &str, tool: &str) -> bool {
    rule::wildcard(pattern, tool)
}

fn forbids(text: &str, action: &Action<'_>) -> bool {
    let rule = match Rule::parse(text) {
        Ok(rule) => rule,
        Err(_) => {
            let name = Rule::name_of(text);
            return !name.is_empty() && rule::covers(name, action.tool);
        }
    };
    if !rule::covers(rule.name, action.tool) {
        return false;
    }
    let Some(pattern) = rule.pattern else { return true };
    match &action.effect {
        Effect::Exec(command) => rule::forbids_command(pattern, &shell::parse(command)),
        Effect::Read(paths) | Effect::Write(paths) => {
            let pattern = rule::Forbidden::new(pattern, action.around);
            paths.iter().map(PathBuf::as_path).chain(action.asked).any(|path| pattern.names(path))
        }
        Effect::None => false,
    }
}

fn allows(rules: &[String], action: &Action<'_>) -> bool {
    let rules: Vec<Rule<'_>> = rules
        .iter()
        .filter_map(|text| Rule::parse(text).ok())
        .filter(|rule| rule::covers(rule.name, action.tool))
        .collect();
    match &action.effect {
        Effect::Read(_) | Effect::None => true,
        Effect::Exec(command) => {
            if rules.iter().any(|r| r.pattern.is_none()) {
                return true;
            }
            let line = shell::parse(command);
            let named = |part| rules.iter().filter_map(|r| r.pattern).any(|p| rule::allows_command(p, part));
            line.plain && !line.parts.is_empty() && line.parts.iter().all(named)
        }
        // A rule without a pattern names no path, so it does not reach out of cwd.
        Effect::Write(paths) => {
            let named = |path: &PathBuf| {
                let guarded = is_guarded(path, action.around);
                rules.iter().any(|r| match r.pattern {
                    Some(pattern) if guarded && !means_guarded(pattern) => false,
                    Some(pattern) => rule::allows_file(pattern, path, action.around),
                    None => !guarded && is_inside(path, &action.around.cwd),
                })
            };
            !paths.is_empty() && paths.iter().all(named)
        }
    }
}
