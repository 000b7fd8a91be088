//! The tool `glob`: files by name, the newest first.
//!
//! Owns: its words and its limits. What is looked at is `walk`'s.

use super::walk::{self, Names, Root, walk};
use super::{Outcome, PAGE_CHARS, Tool, ToolCtx, ToolSpec, files, input, spec};
use crate::policy::Effect;
use futures_util::future::BoxFuture;
use serde::Deserialize;
use serde_json::value::RawValue;
use std::path::{Path, PathBuf};
use std::time::SystemTime;
use tokio_util::sync::CancellationToken;

/// Most files shown.
const LIMIT: usize = 500;
/// Most files kept for sorting; a tree with more is told to be narrowed.
const KEEP: usize = 200_000;

/// Finds files.
#[derive(Debug)]
pub struct Glob;

const EXPECTED: &str = r#"{"pattern": string, "path"?: string}"#;

#[derive(Deserialize)]
struct Input {
    pattern: String,
    #[serde(default)]
    path: Option<String>,
}

impl Tool for Glob {
    fn spec(&self) -> ToolSpec {
        spec(
            "glob",
            "Finds files by name with a pattern such as **/*.rs or src/**/*.{ts,tsx}, the last changed first. A \
             pattern without a slash counts in every directory. Leaves out what .gitignore names and hidden files, \
             unless the pattern names them.",
            r#"{"type":"object","properties":{"pattern":{"type":"string","description":"The pattern, relative to path."},"path":{"type":"string","description":"Directory to look in. Default: the working directory."}},"required":["pattern"],"additionalProperties":false}"#,
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
        Box::pin(async move { glob(ctx, input).await.unwrap_or_else(|outcome| outcome) })
    }
}

async fn glob(ctx: &dyn ToolCtx, input: &RawValue) -> Result<Outcome, Outcome> {
    let input: Input = input::parse("glob", EXPECTED, input)?;
    let root = walk::root(ctx, input.path.as_deref()).await?;
    let names = Names::new(&input.pattern, &root.path)?;
    let title = input::one_line(&format!("find {} in {}", input.pattern, files::shown(&root.path, ctx.cwd())));
    let effect = Effect::Read(vec![root.path.clone()]);
    files::permit_file(ctx, effect, Some(root.asked.clone()), title, String::new()).await?;
    let cwd = ctx.cwd().to_path_buf();
    let found = files::blocking(ctx, move |stop| find(&root, &cwd, &names, stop)).await?;
    Ok(Outcome::ok(found))
}

fn find(root: &Root, cwd: &Path, names: &Names, stop: &CancellationToken) -> String {
    let mut found: Vec<(SystemTime, PathBuf)> = Vec::new();
    let mut forbidden = 0;
    for entry in walk(&root.path, names.hidden) {
        if found.len() >= KEEP || stop.is_cancelled() {
            break;
        }
        let Ok(entry) = entry else { continue };
        if entry.file_type().is_some_and(|t| !t.is_dir()) && names.is_match(entry.path(), &root.path) {
            if root.keeps_out(entry.path()) {
                forbidden += 1;
                continue;
            }
            let time = entry.metadata().ok().and_then(|m| m.modified().ok()).unwrap_or(SystemTime::UNIX_EPOCH);
            found.push((time, entry.into_path()));
        }
    }
    found.sort_by(|a, b| b.0.cmp(&a.0).then_with(|| a.1.cmp(&b.1)));
    if found.is_empty() {
        return format!("No files.\n{}", walk::left_out(forbidden));
    }
    let mut out = String::new();
    let (mut shown, mut chars) = (0, 0);
    for (_, path) in found.iter().take(LIMIT) {
        let line = files::shown(path, cwd);
        chars += line.chars().count() + 1;
        if chars > PAGE_CHARS {
            break;
        }
        out.push_str(&line);
        out.push('\n');
        shown += 1;
    }
    if shown < found.len() {
        let more = if found.len() >= KEEP { "more than " } else { "" };
        out.push_str(&format!(
            "\n[The newest {shown} of {more}{} files. Narrow the pattern or the path.]\n",
            found.len()
        ));
    }
    out.push_str(&walk::left_out(forbidden));
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tools::testing::{TestCtx, raw, run};
    use serde_json::json;
    use std::time::Duration;

    fn at(ctx: &TestCtx, name: &str, seconds: u64) {
        ctx.write(name, "");
        let file = std::fs::File::options().write(true).open(ctx.path(name)).unwrap();
        file.set_modified(SystemTime::UNIX_EPOCH + Duration::from_secs(seconds)).unwrap();
    }

    #[tokio::test]
    async fn the_newest_come_first() {
        let ctx = TestCtx::new();
        at(&ctx, "a.rs", 10);
        at(&ctx, "src/b.rs", 30);
        at(&ctx, "src/deep/c.rs", 20);
        at(&ctx, "src/d.ts", 40);
        at(&ctx, "out/e.rs", 50);
        at(&ctx, ".github/f.yml", 60);
        ctx.write(".ignore", "out\n");
        for (input, want) in [
            (json!({"pattern": "*.rs"}), "src/b.rs\nsrc/deep/c.rs\na.rs\n"),
            (json!({"pattern": "src/*.{rs,ts}"}), "src/d.ts\nsrc/b.rs\n"),
            (json!({"pattern": "**/c.rs"}), "src/deep/c.rs\n"),
            (json!({"pattern": "*.rs", "path": "src"}), "src/b.rs\nsrc/deep/c.rs\n"),
            (json!({"pattern": ctx.path("src/*.ts")}), "src/d.ts\n"),
            (json!({"pattern": ".github/**"}), ".github/f.yml\n"),
            (json!({"pattern": "*.none"}), "No files.\n"),
        ] {
            let out = run(&Glob, &ctx, input.clone()).await;
            assert_eq!((out.ok, out.result.as_str()), (true, want), "{input}");
        }
    }

    #[tokio::test]
    async fn results_are_bounded_and_hostile_input_is_answered() {
        let ctx = TestCtx::new();
        for i in 0..LIMIT + 10 {
            ctx.write(&format!("f{i}"), "");
        }
        let out = run(&Glob, &ctx, json!({"pattern": "f*"})).await;
        assert!(out.result.ends_with("[The newest 500 of 510 files. Narrow the pattern or the path.]\n"));
        for input in [
            json!(null),
            json!({"pattern": ""}),
            json!({"pattern": "{"}),
            json!({"pattern": []}),
            json!({"pattern": "*", "path": "none"}),
        ] {
            let out = run(&Glob, &ctx, input.clone()).await;
            assert!(!out.ok && !out.result.is_empty(), "{input}");
            Glob.detail(&raw(&input));
        }
    }
    #[tokio::test]
    async fn what_a_rule_forbids_to_read_is_left_out_and_counted() {
        let ctx = TestCtx::new();
        ctx.write("a.txt", "");
        ctx.write("secret/b.txt", "");
        ctx.forbid(&["read(secret/**)"]);
        let want = "a.txt\n\n[1 file was left out: a rule forbids reading it.]\n";
        assert_eq!(run(&Glob, &ctx, json!({"pattern": "**/*.txt"})).await.result, want);
        let want = "No files.\n\n[1 file was left out: a rule forbids reading it.]\n";
        assert_eq!(run(&Glob, &ctx, json!({"pattern": "*", "path": "secret"})).await.result, want);
    }
}
