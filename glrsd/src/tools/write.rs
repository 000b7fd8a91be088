//! The tool `write`: gives a file its whole content.
//!
//! Owns: its schema and words. How a file is changed is `change`'s.

use super::{Outcome, Tool, ToolCtx, ToolSpec, change, input, spec};
use futures_util::future::BoxFuture;
use serde::Deserialize;
use serde_json::value::RawValue;

/// Writes a file.
#[derive(Debug)]
pub struct Write;

const EXPECTED: &str = r#"{"path": string, "content": string}"#;

#[derive(Deserialize)]
struct Input {
    #[serde(alias = "file_path")]
    path: String,
    content: String,
}

impl Tool for Write {
    fn spec(&self) -> ToolSpec {
        spec(
            "write",
            "Writes a file: creates it, with the directories it needs, or replaces its whole content. \
             A file that exists has to be read in this session before it is replaced. To change part of \
             a file, use edit instead.",
            r#"{"type":"object","properties":{"path":{"type":"string","description":"Path of the file, relative to the working directory or absolute."},"content":{"type":"string","description":"The whole content."}},"required":["path","content"],"additionalProperties":false}"#,
        )
    }

    fn detail(&self, input: &RawValue) -> String {
        input::one_line(&input::field(input, "path").unwrap_or_default())
    }

    fn run<'a>(&'a self, ctx: &'a dyn ToolCtx, input: &'a RawValue) -> BoxFuture<'a, Outcome> {
        Box::pin(async move {
            let input: Input = match input::parse("write", EXPECTED, input) {
                Ok(input) => input,
                Err(outcome) => return outcome,
            };
            let target = match change::look(ctx, &input.path).await {
                Ok(target) => target,
                Err(outcome) => return outcome,
            };
            let done = if target.before.is_some() { "Replaced" } else { "Created" };
            change::apply(ctx, target, input.content.into_bytes(), done).await
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tools::testing::{TestCtx, raw, run};
    use glrs_protocol::entry::{Entry, FileChange};
    use glrs_protocol::types::Decision;
    use serde_json::json;
    use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};

    fn change_of(outcome: &Outcome) -> FileChange {
        let [Entry::Custom(custom)] = outcome.entries.as_slice() else { panic!("{:?}", outcome.entries) };
        assert_eq!(custom.custom, "glrs:files");
        serde_json::from_str(custom.data.get()).unwrap()
    }

    #[tokio::test]
    async fn creates_with_directories_and_records_it() {
        let ctx = TestCtx::new();
        let out = run(&Write, &ctx, json!({"path": "a/b/c.txt", "content": "one\ntwo\n"})).await;
        assert_eq!(out.result, "Created a/b/c.txt (2 lines).");
        assert!(
            out.ok && out.diff.as_deref().unwrap().contains("--- /dev/null\n+++ b/a/b/c.txt\n@@ -0,0 +1,2 @@\n+one\n")
        );
        assert_eq!(ctx.read("a/b/c.txt"), "one\ntwo\n");
        let change = change_of(&out);
        assert_eq!((change.user_entry, change.before.as_deref()), (7, None));
        assert_eq!(change.path, ctx.path("a/b/c.txt").to_str().unwrap());
        assert_eq!(change.after.len(), 64);
        assert_eq!(ctx.asked(), ["create a/b/c.txt"]);
        // It has been seen now, and may be replaced.
        let out = run(&Write, &ctx, json!({"path": "./a/../a/b/c.txt", "content": "one\n2\n"})).await;
        assert!(out.ok, "{}", out.result);
        let before = change_of(&out).before.unwrap();
        assert_eq!(ctx.kept(&before), b"one\ntwo\n");
        assert!(std::fs::read_dir(ctx.path("a/b")).unwrap().count() == 1, "nothing is left beside it");
    }

    #[tokio::test]
    async fn what_was_not_read_or_changed_since_is_not_overwritten() {
        let ctx = TestCtx::new();
        ctx.write("f", "mine");
        let out = run(&Write, &ctx, json!({"path": "f", "content": "x"})).await;
        assert!(!out.ok && out.result.contains("was not read"), "{}", out.result);
        ctx.see("f");
        ctx.write("f", "changed since");
        let out = run(&Write, &ctx, json!({"path": "f", "content": "x"})).await;
        assert!(!out.ok && out.result.contains("has changed"), "{}", out.result);
        assert_eq!((ctx.read("f").as_str(), ctx.asked().len()), ("changed since", 0));
        ctx.see("f");
        let out = run(&Write, &ctx, json!({"path": "f", "content": "changed since"})).await;
        assert!(out.ok && out.entries.is_empty() && out.diff.is_none());
    }

    #[tokio::test]
    async fn what_changes_while_a_person_thinks_is_not_overwritten() {
        let ctx = TestCtx::new();
        ctx.write("f", "old");
        ctx.see("f");
        let path = ctx.path("f");
        ctx.on_ask(move || std::fs::write(&path, "new").unwrap());
        let out = run(&Write, &ctx, json!({"path": "f", "content": "x"})).await;
        assert!(!out.ok && out.result.contains("in the meantime"), "{}", out.result);
        assert_eq!(ctx.read("f"), "new");
        // A link put in its place while asking leads nowhere either.
        let (link, other) = (ctx.path("n"), ctx.path("f"));
        ctx.on_ask(move || symlink(&other, &link).unwrap());
        let out = run(&Write, &ctx, json!({"path": "n", "content": "x"})).await;
        assert!(!out.ok, "{}", out.result);
        assert_eq!(ctx.read("f"), "new");
    }

    #[tokio::test]
    async fn a_denial_changes_nothing_and_its_words_reach_the_model() {
        let ctx = TestCtx::new();
        ctx.answer(Decision::Deny, Some("not there"));
        let out = run(&Write, &ctx, json!({"path": "d/f", "content": "x"})).await;
        assert!(!out.ok && out.result.ends_with("not there"));
        assert!(!ctx.path("d").exists());
    }

    #[tokio::test]
    async fn links_are_followed_and_bits_kept() {
        let ctx = TestCtx::new();
        ctx.write("real", "#!/bin/sh\n");
        std::fs::set_permissions(ctx.path("real"), std::fs::Permissions::from_mode(0o754)).unwrap();
        symlink("real", ctx.path("link")).unwrap();
        ctx.see("real");
        let out = run(&Write, &ctx, json!({"path": "link", "content": "#!/bin/bash\n"})).await;
        assert!(out.ok, "{}", out.result);
        assert!(std::fs::symlink_metadata(ctx.path("link")).unwrap().is_symlink());
        assert_eq!(ctx.read("real"), "#!/bin/bash\n");
        assert_eq!(std::fs::metadata(ctx.path("real")).unwrap().mode() & 0o7777, 0o754);
        assert_eq!(change_of(&out).mode, Some(0o754));
        symlink("not/yet", ctx.path("dangling")).unwrap();
        let out = run(&Write, &ctx, json!({"path": "dangling", "content": "x"})).await;
        assert_eq!((out.result.as_str(), ctx.read("not/yet").as_str()), ("Created not/yet (1 line).", "x"));
    }

    #[tokio::test]
    async fn the_effect_names_where_it_really_goes() {
        let ctx = TestCtx::new();
        let outside = tempfile::tempdir().unwrap();
        symlink(outside.path(), ctx.path("out")).unwrap();
        ctx.answer(Decision::Deny, None);
        run(&Write, &ctx, json!({"path": "out/f", "content": "x"})).await;
        let real = outside.path().canonicalize().unwrap().join("f");
        assert_eq!(ctx.effects(), [crate::policy::Effect::Write(vec![real])]);
    }

    #[tokio::test]
    async fn hostile_input_is_answered() {
        let ctx = TestCtx::new();
        std::fs::create_dir(ctx.path("dir")).unwrap();
        ctx.write("file", "");
        for input in [
            json!(null),
            json!([]),
            json!({"path": 3, "content": "x"}),
            json!({"path": "x"}),
            json!({"path": "", "content": "x"}),
            json!({"path": "a\u{0}b", "content": "x"}),
            json!({"path": "dir", "content": "x"}),
            json!({"path": "file/x", "content": "x"}),
            json!({"path": "x".repeat(5000), "content": "x"}),
            json!({"path": "/dev/null", "content": "x"}),
        ] {
            let out = run(&Write, &ctx, input.clone()).await;
            assert!(!out.ok && !out.result.is_empty(), "{input}");
            Write.detail(&raw(&input));
        }
        let out = run(&Write, &ctx, json!({"path": "x"})).await;
        assert!(out.result.contains("missing field `content`") && out.result.contains(EXPECTED), "{}", out.result);
    }

    #[tokio::test]
    async fn without_the_content_before_nothing_is_changed() {
        let ctx = TestCtx::new();
        ctx.write("f", "old");
        ctx.see("f");
        ctx.fail_keep();
        let out = run(&Write, &ctx, json!({"path": "f", "content": "x"})).await;
        assert!(!out.ok && out.result.contains("disk full"));
        assert_eq!(ctx.read("f"), "old");
    }
}
