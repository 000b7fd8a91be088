//! The tool `grep`: lines that match, in a file or a tree.
//!
//! Owns: its words and its limits. What is looked at is `walk`'s.

use super::walk::{self, Names, Root, walk};
use super::{Outcome, PAGE_CHARS, Tool, ToolCtx, ToolSpec, files, input, spec};
use crate::policy::Effect;
use futures_util::future::BoxFuture;
use grep_regex::{RegexMatcher, RegexMatcherBuilder};
use grep_searcher::{BinaryDetection, Searcher, SearcherBuilder, Sink, SinkMatch};
use serde::Deserialize;
use serde_json::value::RawValue;
use std::io;
use std::path::{Path, PathBuf};
use tokio_util::sync::CancellationToken;

/// Matches given back unless asked otherwise, and at most.
const LIMIT: u64 = 200;
const MAX_LIMIT: u64 = 2_000;
/// Most characters of a line that are shown.
const LINE_CHARS: usize = 500;
/// Most memory for a line; a file with a longer one is left out, and counted.
const HEAP: usize = 64 * 1024 * 1024;

/// Searches files.
#[derive(Debug)]
pub struct Grep;

const EXPECTED: &str =
    r#"{"pattern": string, "path"?: string, "glob"?: string, "ignoreCase"?: boolean, "limit"?: integer}"#;

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Input {
    pattern: String,
    #[serde(default)]
    path: Option<String>,
    #[serde(default)]
    glob: Option<String>,
    #[serde(default)]
    ignore_case: Option<bool>,
    #[serde(default, deserialize_with = "input::count")]
    limit: Option<u64>,
}

impl Tool for Grep {
    fn spec(&self) -> ToolSpec {
        spec(
            "grep",
            "Searches file contents with a regular expression (Rust syntax, line by line) and gives back \
             path:line:text. Leaves out what .gitignore names, hidden files and files that are no text.",
            r#"{"type":"object","properties":{"pattern":{"type":"string","description":"The regular expression."},"path":{"type":"string","description":"File or directory to search. Default: the working directory."},"glob":{"type":"string","description":"Only files it names, such as *.rs or src/**/*.{ts,tsx}."},"ignoreCase":{"type":"boolean","description":"Take upper and lower case as the same."},"limit":{"type":"integer","minimum":1,"maximum":2000,"description":"Most matches to give back. Default 200."}},"required":["pattern"],"additionalProperties":false}"#,
        )
    }

    fn detail(&self, input: &RawValue) -> String {
        let pattern = input::field(input, "pattern").unwrap_or_default();
        match input::field(input, "path") {
            Some(path) => input::one_line(&format!("{pattern} in {path}")),
            None => input::one_line(&pattern),
        }
    }

    fn parallel(&self) -> bool {
        true
    }

    fn run<'a>(&'a self, ctx: &'a dyn ToolCtx, input: &'a RawValue) -> BoxFuture<'a, Outcome> {
        Box::pin(async move { grep(ctx, input).await.unwrap_or_else(|outcome| outcome) })
    }
}

async fn grep(ctx: &dyn ToolCtx, input: &RawValue) -> Result<Outcome, Outcome> {
    let input: Input = input::parse("grep", EXPECTED, input)?;
    if input.pattern.is_empty() {
        return Err(Outcome::error(format!("The pattern is empty.\nExpected: {EXPECTED}")));
    }
    let matcher = RegexMatcherBuilder::new()
        .case_insensitive(input.ignore_case == Some(true))
        .line_terminator(Some(b'\n'))
        .build(&input.pattern)
        .map_err(|e| Outcome::error(format!("The pattern is no regular expression: {e}")))?;
    let root = walk::root(ctx, input.path.as_deref()).await?;
    let names = match input.glob.as_deref().filter(|g| !g.trim().is_empty()) {
        Some(glob) => Some(Names::new(glob, &root.path)?),
        None => None,
    };
    let shown = files::shown(&root.path, ctx.cwd());
    let title = input::one_line(&format!("search {shown} for {}", input.pattern));
    let effect = Effect::Read(vec![root.path.clone()]);
    files::permit_file(ctx, effect, Some(root.asked.clone()), title, String::new()).await?;
    let limit = input.limit.unwrap_or(LIMIT).clamp(1, MAX_LIMIT);
    let cwd = ctx.cwd().to_path_buf();
    let found = files::blocking(ctx, move |stop| search(&root, &cwd, &matcher, names.as_ref(), limit, stop)).await?;
    Ok(Outcome::ok(found))
}

fn search(
    root: &Root,
    cwd: &Path,
    matcher: &RegexMatcher,
    names: Option<&Names>,
    limit: u64,
    stop: &CancellationToken,
) -> String {
    let mut searcher = SearcherBuilder::new()
        .binary_detection(BinaryDetection::quit(0))
        .line_number(true)
        .heap_limit(Some(HEAP))
        .build();
    let mut hits = Hits { out: String::new(), chars: 0, count: 0, limit, full: false, name: String::new(), stop };
    let mut unread: Vec<PathBuf> = Vec::new();
    let mut forbidden = 0;
    for entry in walk(&root.path, names.is_some_and(|n| n.hidden)) {
        if hits.full || stop.is_cancelled() {
            break;
        }
        let Ok(entry) = entry else { continue };
        let wanted = entry.file_type().is_some_and(|t| t.is_file())
            && names.is_none_or(|names| names.is_match(entry.path(), &root.path));
        if !wanted {
            continue;
        }
        if root.keeps_out(entry.path()) {
            forbidden += 1;
            continue;
        }
        hits.name = files::shown(entry.path(), cwd);
        if searcher.search_path(matcher, entry.path(), &mut hits).is_err() {
            unread.push(entry.into_path());
        }
    }
    let mut out = hits.out;
    if hits.count == 0 {
        out.push_str("No matches.\n");
    }
    if hits.full {
        out.push_str(&format!(
            "\n[Only the first {} matches. Narrow the pattern, the path or the glob.]\n",
            hits.count
        ));
    }
    if let Some(first) = unread.first() {
        let first = files::shown(first, cwd);
        out.push_str(&format!("\n[{} files could not be read, such as {first}.]\n", unread.len()));
    }
    out.push_str(&walk::left_out(forbidden));
    out
}

/// Matches as text.
struct Hits<'a> {
    out: String,
    chars: usize,
    count: u64,
    limit: u64,
    full: bool,
    name: String,
    stop: &'a CancellationToken,
}

impl Sink for Hits<'_> {
    type Error = io::Error;

    fn matched(&mut self, _: &Searcher, found: &SinkMatch<'_>) -> Result<bool, io::Error> {
        let first = found.line_number().unwrap_or(0);
        for (i, line) in found.lines().enumerate() {
            if self.count >= self.limit || self.chars >= PAGE_CHARS {
                self.full = true;
                return Ok(false);
            }
            let text = String::from_utf8_lossy(line);
            let text = text.trim_end_matches(['\n', '\r']);
            let line = match text.char_indices().nth(LINE_CHARS) {
                Some((at, _)) => format!("{}:{}:{} [… the line goes on]\n", self.name, first + i as u64, &text[..at]),
                None => format!("{}:{}:{text}\n", self.name, first + i as u64),
            };
            self.chars += line.chars().count();
            self.count += 1;
            self.out.push_str(&line);
        }
        Ok(!self.stop.is_cancelled())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tools::testing::{TestCtx, raw, run};
    use serde_json::json;

    #[tokio::test]
    async fn finds_lines_and_leaves_out_what_is_ignored() {
        let ctx = TestCtx::new();
        ctx.write("a.rs", "fn one() {}\nfn two() {}\r\n");
        ctx.write("sub/b.txt", "a fn here\n");
        ctx.write("target/c.rs", "fn ignored() {}\n");
        ctx.write(".gitignore", "target\n");
        ctx.write(".hidden/d.rs", "fn hidden() {}\n");
        ctx.write(".git/e.rs", "fn git() {}\n");
        ctx.write("bin", "fn\0\n");
        std::fs::write(ctx.path("latin"), b"fn caf\xe9\n").unwrap();
        let out = run(&Grep, &ctx, json!({"pattern": "fn"})).await;
        assert_eq!(
            out.result,
            "a.rs:1:fn one() {}\na.rs:2:fn two() {}\nlatin:1:fn caf\u{FFFD}\nsub/b.txt:1:a fn here\n"
        );
        for (input, want) in [
            (json!({"pattern": "FN T", "ignoreCase": true}), "a.rs:2:fn two() {}\n"),
            (json!({"pattern": "fn", "glob": "*.txt"}), "sub/b.txt:1:a fn here\n"),
            (json!({"pattern": "fn", "path": "sub"}), "sub/b.txt:1:a fn here\n"),
            (json!({"pattern": "two", "path": "a.rs"}), "a.rs:2:fn two() {}\n"),
            (json!({"pattern": "fn", "glob": ".hidden/**"}), ".hidden/d.rs:1:fn hidden() {}\n"),
            (json!({"pattern": "nothing like it"}), "No matches.\n"),
            (
                json!({"pattern": "^fn", "limit": 1}),
                "a.rs:1:fn one() {}\n\n[Only the first 1 matches. Narrow the pattern, the path or the glob.]\n",
            ),
        ] {
            let out = run(&Grep, &ctx, input.clone()).await;
            assert_eq!((out.ok, out.result.as_str()), (true, want), "{input}");
        }
        assert!(ctx.effects().iter().all(|e| matches!(e, Effect::Read(_))));
    }

    #[tokio::test]
    async fn what_a_rule_forbids_to_read_is_left_out_and_counted() {
        let ctx = TestCtx::new();
        for name in ["a.txt", "secret/b.txt", "sub/c.pem", "sub/d.txt"] {
            ctx.write(name, "key\n");
        }
        std::os::unix::fs::symlink("sub", ctx.path("link")).unwrap();
        ctx.forbid(&["read(secret/**)", "read(*.pem)", "write(a.txt)"]);
        let out = run(&Grep, &ctx, json!({"pattern": "key"})).await;
        assert_eq!(out.result, "a.txt:1:key\nsub/d.txt:1:key\n\n[2 files were left out: rules forbid reading them.]\n");
        // By the path it was asked for as well as by where that leads.
        ctx.forbid(&["grep(link/*.txt)"]);
        let out = run(&Grep, &ctx, json!({"pattern": "key", "path": "link"})).await;
        assert_eq!(out.result, "sub/c.pem:1:key\n\n[1 file was left out: a rule forbids reading it.]\n");
        ctx.forbid(&["read("]);
        let out = run(&Grep, &ctx, json!({"pattern": "key"})).await;
        assert!(out.result.starts_with("No matches.\n\n[4 files"), "{}", out.result);
    }

    #[tokio::test]
    async fn results_are_bounded() {
        let ctx = TestCtx::new();
        ctx.write("long", &"x".repeat(5 << 20));
        let out = run(&Grep, &ctx, json!({"pattern": "x"})).await;
        assert!(out.result.len() < 1_000);
        ctx.write("many", &"yyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyy\n".repeat(10_000));
        let out = run(&Grep, &ctx, json!({"pattern": "y", "limit": 999_999})).await;
        assert!(out.result.chars().count() < 30_000 && out.result.contains("[Only the first"));
    }

    #[tokio::test]
    async fn hostile_input_is_answered() {
        let ctx = TestCtx::new();
        for input in [
            json!(null),
            json!({"pattern": "("}),
            json!({"pattern": ""}),
            json!({"pattern": 1}),
            json!({"pattern": "a\n"}),
            json!({"pattern": "x", "path": "none"}),
            json!({"pattern": "x", "glob": "["}),
            json!({"pattern": "x", "glob": "/elsewhere/*"}),
        ] {
            let out = run(&Grep, &ctx, input.clone()).await;
            assert!(!out.ok && !out.result.is_empty(), "{input}");
            Grep.detail(&raw(&input));
        }
        ctx.cancel.cancel();
        assert_eq!(run(&Grep, &ctx, json!({"pattern": "x"})).await.result, "Interrupted.");
    }
}
