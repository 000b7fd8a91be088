//! One rule and what it matches.
//!
//! Owns: the syntax `tool` or `tool(pattern)`, and how a pattern is held against a command or a
//! path. An allow rule is read narrowly and a deny rule widely, so that what is not understood is
//! asked about. Must not know modes.

use super::Around;
use super::shell::{self, Line, Part};
use globset::{GlobBuilder, GlobMatcher};
use std::path::{Component, Path, PathBuf};

/// A rule, taken apart.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Rule<'a> {
    /// Tool name, `*` allowed.
    pub name: &'a str,
    /// What stands in parentheses.
    pub pattern: Option<&'a str>,
}

impl<'a> Rule<'a> {
    /// Takes a rule apart. An error says what is wrong with it.
    pub fn parse(text: &'a str) -> Result<Self, String> {
        let text = text.trim();
        let (name, pattern) = match text.split_once('(') {
            None => (text, None),
            Some((name, rest)) => match rest.strip_suffix(')') {
                Some(pattern) if !pattern.trim().is_empty() => (name, Some(pattern.trim())),
                Some(_) => return Err(format!("the parentheses of {text:?} are empty")),
                None => return Err(format!("{text:?} has no closing parenthesis at its end")),
            },
        };
        let usual = |c: char| c.is_ascii_alphanumeric() || "_-*.".contains(c);
        if name.is_empty() || !name.chars().all(usual) {
            return Err(format!("{text:?} has to start with the name of a tool, as in bash(git status*)"));
        }
        Ok(Self { name, pattern })
    }

    /// The name of the tool in a rule that may be broken, for rules that forbid.
    pub fn name_of(text: &str) -> &str {
        text.split('(').next().unwrap_or(text).trim()
    }
}

/// Whether a rule's name covers a tool. `write` covers `edit`, `read` covers `grep` and `glob`:
/// they do the same thing to a file.
pub(super) fn covers(name: &str, tool: &str) -> bool {
    wildcard(name, tool)
        || match tool {
            "edit" => name == "write",
            "grep" | "glob" => name == "read",
            _ => false,
        }
}

/// `*` stands for anything, everything else for itself.
pub(super) fn wildcard(pattern: &str, text: &str) -> bool {
    let (p, t) = (pattern.as_bytes(), text.as_bytes());
    let (mut i, mut j) = (0, 0);
    let mut back: Option<(usize, usize)> = None;
    while j < t.len() {
        if i < p.len() && p[i] == b'*' {
            back = Some((i + 1, j));
            i += 1;
        } else if i < p.len() && p[i] == t[j] {
            i += 1;
            j += 1;
        } else if let Some((pi, tj)) = back {
            back = Some((pi, tj + 1));
            i = pi;
            j = tj + 1;
        } else {
            return false;
        }
    }
    p[i..].iter().all(|&b| b == b'*')
}

/// Whether an allow pattern lets this simple command run. A `*` at the end of a word ends at the
/// word's end: `ls*` is `ls` and `ls -l`, not `lsof`.
pub(super) fn allows_command(pattern: &str, part: &Part) -> bool {
    let at_word = pattern.strip_suffix('*').filter(|p| p.ends_with(|c: char| c.is_alphanumeric() || c == '_'));
    [part.raw.as_str(), part.canonical().as_str()].into_iter().any(|text| match at_word {
        Some(prefix) => wildcard(prefix, text) || wildcard(&format!("{prefix} *"), text),
        None => wildcard(pattern, text),
    })
}

/// Programs that run what is named in their arguments.
const WRAPPERS: [&str; 22] = [
    "sudo",
    "doas",
    "env",
    "nohup",
    "nice",
    "ionice",
    "time",
    "timeout",
    "command",
    "exec",
    "builtin",
    "xargs",
    "stdbuf",
    "setsid",
    "chroot",
    "unshare",
    "flock",
    "watch",
    "parallel",
    "busybox",
    "strace",
    "caffeinate",
];
/// Programs that take a command line as text.
pub(super) const SHELLS: [&str; 9] = ["sh", "bash", "dash", "zsh", "ksh", "ash", "fish", "su", "eval"];
/// How many words after a wrapper are tried as the start of a command.
const WRAPPED: usize = 32;

/// Whether a deny pattern forbids a command line: any part of it, also behind `sudo`, `env`,
/// `sh -c` and the like. A guard rail, not a jail: a program may always run another one.
pub(super) fn forbids_command(pattern: &str, line: &Line) -> bool {
    forbids_line(pattern, line, 0)
}

fn forbids_line(pattern: &str, line: &Line, depth: usize) -> bool {
    line.opaque
        || line.parts.iter().any(|part| {
            wildcard_deny(pattern, &part.raw)
                || wildcard_deny(pattern, &part.canonical())
                || forbids_words(pattern, &part.words, true, depth)
        })
}

/// `rm *` forbids a bare `rm` as well.
fn wildcard_deny(pattern: &str, text: &str) -> bool {
    wildcard(pattern, text) || pattern.strip_suffix(" *").is_some_and(|p| wildcard(p, text))
}

/// The words that are no flags: `git --no-pager -C dir push` is `git push`.
fn without_flags<'a>(words: &[&'a str]) -> Vec<&'a str> {
    let mut words = words.iter().copied();
    let mut out: Vec<&str> = words.next().into_iter().collect();
    let git = out.first() == Some(&"git");
    while let Some(word) = words.next() {
        if !word.starts_with('-') {
            out.push(word);
        } else if git && out.len() == 1 && matches!(word, "-C" | "-c" | "--git-dir" | "--work-tree" | "--namespace") {
            words.next();
        }
    }
    out
}

fn base(word: &str) -> &str {
    word.rsplit('/').next().unwrap_or(word)
}

/// How many words stand before the command itself: assignments, and what begins a compound.
fn before_command(words: &[String]) -> usize {
    let mut skip = 0;
    while let Some(word) = words.get(skip) {
        let names_next = match word.as_str() {
            // The word behind it is a name, not a command.
            "function" => true,
            "coproc" => words.get(skip + 2).is_some_and(|w| shell::KEYWORDS.contains(&w.as_str())),
            _ => false,
        };
        // An empty word is what a substitution may leave, which then is no word at all.
        if !word.is_empty() && !shell::is_assignment(word) && !shell::KEYWORDS.contains(&word.as_str()) {
            break;
        }
        skip += if names_next { 2 } else { 1 };
    }
    skip.min(words.len())
}

fn forbids_words(pattern: &str, words: &[String], unwrap: bool, depth: usize) -> bool {
    let words = &words[before_command(words)..];
    let Some((first, rest)) = words.split_first() else { return false };
    let name = base(first.trim_start_matches(['{', '(']));
    if wildcard_deny(pattern, &words.join(" ")) {
        return true;
    }
    let mut short = vec![name];
    short.extend(rest.iter().map(String::as_str));
    if wildcard_deny(pattern, &short.join(" ")) || wildcard_deny(pattern, &without_flags(&short).join(" ")) {
        return true;
    }
    if SHELLS.contains(&name) {
        if depth >= 4 {
            return true;
        }
        let given = rest.iter().filter(|w| !w.starts_with('-'));
        if name == "eval" {
            let text = given.map(String::as_str).collect::<Vec<_>>().join(" ");
            return forbids_line(pattern, &shell::parse(&text), depth + 1);
        }
        return given.into_iter().any(|w| forbids_line(pattern, &shell::parse(w), depth + 1));
    }
    if name == "find" {
        return rest
            .iter()
            .enumerate()
            .filter(|(_, w)| matches!(w.as_str(), "-exec" | "-execdir" | "-ok" | "-okdir"))
            .take(WRAPPED)
            .any(|(i, _)| forbids_words(pattern, &rest[i + 1..], unwrap, depth));
    }
    unwrap
        && WRAPPERS.contains(&name)
        && rest
            .iter()
            .enumerate()
            .filter(|(_, w)| !shell::is_assignment(w))
            .take(WRAPPED)
            .any(|(i, _)| forbids_words(pattern, &rest[i..], false, depth))
}

/// A path without `.` and `..`, by its text alone.
pub(super) fn lexical(path: &Path) -> PathBuf {
    let mut out = PathBuf::new();
    for part in path.components() {
        match part {
            Component::ParentDir => {
                out.pop();
            }
            Component::CurDir => {}
            other => out.push(other),
        }
    }
    out
}

/// Whether a path is absolute and has no `..`, so that its text says where it is.
pub(super) fn is_settled(path: &Path) -> bool {
    path.is_absolute() && !path.components().any(|c| c == Component::ParentDir)
}

/// What a pattern names below the session's home, if it does.
pub(super) fn in_home(pattern: &str) -> Option<&str> {
    let rest = ["~", "$HOME", "${HOME}"].iter().find_map(|home| pattern.strip_prefix(home));
    rest.filter(|r| r.is_empty() || r.starts_with('/'))
}

/// The directories a pattern counts from, each with the rest of it: several where `~` is named in
/// more ways than one.
fn anchors<'a>(pattern: &'a str, around: &Around) -> Vec<(PathBuf, &'a str)> {
    if let Some(rest) = pattern.strip_prefix('/') {
        return vec![(PathBuf::from("/"), rest)];
    }
    if let Some(rest) = in_home(pattern) {
        let rest = rest.trim_start_matches('/');
        return around.homes.iter().map(|home| (home.clone(), rest)).collect();
    }
    let (mut base, mut rest) = (around.cwd.clone(), pattern);
    loop {
        if let Some(r) = rest.strip_prefix("./") {
            rest = r;
        } else if let Some(r) = rest.strip_prefix("../") {
            base.pop();
            rest = r;
        } else {
            return vec![(base, rest)];
        }
    }
}

/// Compiles a file pattern; `*` stays within a directory.
pub(super) fn file_glob(pattern: &str) -> Result<GlobMatcher, String> {
    if pattern.split('/').any(|s| s == "..") {
        return Err(format!("\"..\" may only stand at the start of {pattern:?}"));
    }
    GlobBuilder::new(pattern)
        .literal_separator(true)
        .backslash_escape(true)
        .build()
        .map(|g| g.compile_matcher())
        .map_err(|e| format!("{pattern:?} is no pattern: {}", e.kind()))
}

/// Whether an allow pattern names this file.
pub(super) fn allows_file(pattern: &str, path: &Path, around: &Around) -> bool {
    let named = |(base, rest): (PathBuf, &str)| {
        path.strip_prefix(base).is_ok_and(|relative| file_glob(rest).is_ok_and(|g| g.is_match(relative)))
    };
    is_settled(path) && anchors(pattern, around).into_iter().any(named)
}

/// A deny pattern for files. One that is broken names everything.
#[derive(Clone, Debug)]
pub(super) struct Forbidden {
    bases: Vec<PathBuf>,
    /// None where it is broken.
    glob: Option<GlobMatcher>,
    /// A pattern without a slash counts at any depth.
    loose: bool,
    cwd: PathBuf,
}

impl Forbidden {
    /// Makes a pattern ready.
    pub fn new(pattern: &str, around: &Around) -> Self {
        let anchors = anchors(pattern, around);
        // `~` of a session that says of no home: nothing is known to lie there.
        let rest = anchors.first().map_or("**", |(_, rest)| rest);
        // What stands for nothing in a path would match nothing in a pattern.
        let parts: Vec<&str> = rest.split('/').filter(|part| !part.is_empty() && *part != ".").collect();
        // `~`, `.` and `/` mean all that is in there.
        let rest = if parts.is_empty() { "**".to_owned() } else { parts.join("/") };
        Self {
            glob: file_glob(&rest).ok(),
            loose: !rest.contains('/') && !pattern.starts_with('/') && in_home(pattern).is_none(),
            bases: anchors.into_iter().map(|(base, _)| base).collect(),
            cwd: around.cwd.clone(),
        }
    }

    /// Whether it names this file or a directory it is in.
    pub fn names(&self, path: &Path) -> bool {
        let Some(glob) = &self.glob else { return true };
        let within = |path: &Path, base: &PathBuf| {
            let Ok(relative) = path.strip_prefix(base) else { return false };
            relative.ancestors().filter(|a| !a.as_os_str().is_empty()).any(|a| glob.is_match(a))
                || self.loose && relative.components().any(|c| glob.is_match(Path::new(c.as_os_str())))
        };
        let plain = lexical(&self.cwd.join(path));
        self.bases.iter().any(|base| within(path, base) || within(&plain, base))
    }
}
