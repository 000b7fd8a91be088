//! The tool `edit`: replaces exact pieces of a file, all of them or none.
//!
//! Owns: matching and its error messages. How a file is changed is `change`'s.

use super::{Outcome, Tool, ToolCtx, ToolSpec, change, input, spec};
use futures_util::future::BoxFuture;
use serde::Deserialize;
use serde_json::value::RawValue;
use std::borrow::Cow;

/// Edits a file.
#[derive(Debug)]
pub struct Edit;

const EXPECTED: &str = r#"{"path": string, "edits": [{"old": string, "new": string, "all"?: boolean}, …]}"#;

#[derive(Deserialize)]
struct Input {
    #[serde(alias = "file_path")]
    path: String,
    #[serde(default)]
    edits: Option<Vec<Piece>>,
    #[serde(default, alias = "old_string")]
    old: Option<String>,
    #[serde(default, alias = "new_string")]
    new: Option<String>,
    #[serde(default, alias = "replace_all")]
    all: Option<bool>,
}

#[derive(Debug, Deserialize)]
struct Piece {
    #[serde(alias = "old_string")]
    old: String,
    #[serde(alias = "new_string")]
    new: String,
    #[serde(default, alias = "replace_all")]
    all: Option<bool>,
}

impl Input {
    fn pieces(self) -> Result<(String, Vec<Piece>), Outcome> {
        let mut pieces = self.edits.unwrap_or_default();
        match (self.old, self.new) {
            (Some(old), Some(new)) => pieces.push(Piece { old, new, all: self.all }),
            (None, None) if !pieces.is_empty() => {}
            (None, None) => {
                return Err(Outcome::error(format!("There is no edit in the input.\nExpected: {EXPECTED}")));
            }
            _ => return Err(Outcome::error(format!("An edit needs both old and new.\nExpected: {EXPECTED}"))),
        }
        Ok((self.path, pieces))
    }
}

/// Applies the edits in order, each to what the one before left. The error says which failed.
fn apply(text: &str, pieces: &[Piece]) -> Result<(String, usize), String> {
    let crlf = text.contains("\r\n");
    let only_crlf = crlf && text.matches('\n').count() == text.matches("\r\n").count();
    let mut text = text.to_owned();
    let mut count = 0;
    for (i, piece) in pieces.iter().enumerate() {
        let name = format!("edit {} of {}", i + 1, pieces.len());
        if piece.old.is_empty() {
            return Err(format!("{name}: old is empty. Give the text to replace, or use write to create a file"));
        }
        if piece.old == piece.new {
            return Err(format!("{name}: old and new are the same"));
        }
        let (mut old, mut new) = (Cow::Borrowed(piece.old.as_str()), Cow::Borrowed(piece.new.as_str()));
        if only_crlf || (crlf && !text.contains(old.as_ref())) {
            (old, new) = (with_crlf(&old), with_crlf(&new));
        }
        let found = overlapping(&text, &old);
        let all = piece.all == Some(true);
        match found {
            0 => return Err(format!("{name}: old was not found. {}", hint(&text, &piece.old))),
            1 => {}
            _ if all => {}
            n => {
                return Err(format!(
                    "{name}: old was found {n} times. Give more of the text around it so that it is found once, \
                     or set all to true"
                ));
            }
        }
        count += if all { text.matches(old.as_ref()).count() } else { 1 };
        text = if all { text.replace(old.as_ref(), &new) } else { text.replacen(old.as_ref(), &new, 1) };
    }
    Ok((text, count))
}

/// How often a text is found, also where finds overlap (`aa` in `aaa` is ambiguous).
fn overlapping(text: &str, part: &str) -> usize {
    let mut count = 0;
    let mut from = 0;
    while let Some(at) = text.get(from..).and_then(|rest| rest.find(part)) {
        count += 1;
        from += at + part.chars().next().map_or(1, char::len_utf8);
        // Enough to say so, and no more work for a letter in a large file.
        if count >= 10_000 {
            break;
        }
    }
    count
}

fn with_crlf(text: &str) -> Cow<'static, str> {
    Cow::Owned(text.replace("\r\n", "\n").replace('\n', "\r\n"))
}

/// Why a text was probably not found.
fn hint(text: &str, old: &str) -> String {
    let squeeze = |line: &str| line.split_whitespace().collect::<Vec<_>>().join(" ");
    let numbered = |line: &str| {
        line.split_once('\t').is_some_and(|(n, _)| !n.is_empty() && n.trim().bytes().all(|b| b.is_ascii_digit()))
    };
    if old.lines().all(numbered) {
        return "Its lines begin with numbers as read shows them: leave out the number and the tab".to_owned();
    }
    let wanted: Vec<String> = old.lines().map(squeeze).filter(|l| !l.is_empty()).collect();
    let lines: Vec<(usize, String)> =
        text.lines().enumerate().map(|(i, l)| (i + 1, squeeze(l))).filter(|(_, l)| !l.is_empty()).collect();
    let same = |window: &&[(usize, String)]| window.iter().map(|(_, l)| l).eq(wanted.iter());
    if !wanted.is_empty()
        && let Some(window) = lines.windows(wanted.len()).find(same)
    {
        return format!("Line {} differs from it in white space only: copy it exactly", window[0].0);
    }
    if let Some(first) = wanted.first()
        && let Some((n, _)) = lines.iter().find(|(_, l)| l == first)
    {
        return format!("Its first line is at line {n}, but what follows differs. Read the file again");
    }
    "Read the file again and copy the text exactly".to_owned()
}

impl Tool for Edit {
    fn spec(&self) -> ToolSpec {
        spec(
            "edit",
            "Replaces exact pieces of a file. Each `old` has to be in the file exactly once, white space \
             included (or set `all` to replace every one), without the line numbers that read shows. Edits are \
             applied in order, and either all of them or none. The file has to be read in this session first.",
            r#"{"type":"object","properties":{"path":{"type":"string","description":"Path of the file, relative to the working directory or absolute."},"edits":{"type":"array","minItems":1,"items":{"type":"object","properties":{"old":{"type":"string","description":"The exact text to replace, with enough around it to be found once."},"new":{"type":"string","description":"The text to put in its place."},"all":{"type":"boolean","description":"Replace every occurrence."}},"required":["old","new"],"additionalProperties":false}}},"required":["path","edits"],"additionalProperties":false}"#,
        )
    }

    fn detail(&self, input: &RawValue) -> String {
        input::one_line(&input::field(input, "path").unwrap_or_default())
    }

    fn run<'a>(&'a self, ctx: &'a dyn ToolCtx, input: &'a RawValue) -> BoxFuture<'a, Outcome> {
        Box::pin(async move { edit(ctx, input).await.unwrap_or_else(|outcome| outcome) })
    }
}

async fn edit(ctx: &dyn ToolCtx, input: &RawValue) -> Result<Outcome, Outcome> {
    let (path, pieces) = input::parse::<Input>("edit", EXPECTED, input)?.pieces()?;
    let target = change::look(ctx, &path).await?;
    let Some(before) = &target.before else {
        return Err(Outcome::error(format!("{} does not exist. Use write to create it.", target.shown)));
    };
    let text = std::str::from_utf8(&before.bytes)
        .map_err(|_| Outcome::error(format!("{} is no UTF-8 text, so it cannot be edited.", target.shown)))?;
    let (after, count) =
        apply(text, &pieces).map_err(|e| Outcome::error(format!("{e}. {} was not changed.", target.shown)))?;
    let plural = if count == 1 { "" } else { "s" };
    Ok(change::apply(ctx, target, after.into_bytes(), &format!("Made {count} replacement{plural} in")).await)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tools::testing::{TestCtx, raw, run};
    use proptest::prelude::*;
    use serde_json::json;

    #[tokio::test]
    async fn edits_apply_in_order_and_are_recorded() {
        let ctx = TestCtx::new();
        ctx.write("f", "a\nb\nc\n");
        ctx.see("f");
        let out = run(
            &Edit,
            &ctx,
            json!({"path": "f", "edits": [{"old": "a", "new": "b"}, {"old": "b", "new": "x", "all": true}]}),
        )
        .await;
        assert_eq!(out.result, "Made 3 replacements in f (3 lines).");
        assert_eq!(ctx.read("f"), "x\nx\nc\n");
        assert!(out.diff.unwrap().contains("-a\n-b\n+x\n+x\n c\n"));
        assert_eq!(out.entries.len(), 1);
        let out = run(&Edit, &ctx, json!({"path": "f", "old_string": "c", "new_string": ""})).await;
        assert!(out.ok, "{}", out.result);
        assert_eq!(ctx.read("f"), "x\nx\n\n");
    }

    #[tokio::test]
    async fn all_or_nothing() {
        let ctx = TestCtx::new();
        ctx.write("f", "a\nb\nb\n");
        ctx.see("f");
        let before = std::fs::metadata(ctx.path("f")).unwrap().modified().unwrap();
        for (edits, says) in [
            (json!([{"old": "a", "new": "x"}, {"old": "nope", "new": "y"}]), "edit 2 of 2: old was not found"),
            (json!([{"old": "a", "new": "x"}, {"old": "b", "new": "y"}]), "edit 2 of 2: old was found 2 times"),
            (json!([{"old": "", "new": "y"}]), "old is empty"),
            (json!([{"old": "a", "new": "a"}]), "the same"),
            (json!([{"old": "1\ta", "new": "y"}]), "leave out the number"),
            (json!([{"old": "a\n  b", "new": "y"}]), "Line 1 differs from it in white space only"),
            (json!([{"old": "b\nzzz", "new": "y"}]), "first line is at line 2"),
            (json!([]), "no edit"),
        ] {
            let out = run(&Edit, &ctx, json!({"path": "f", "edits": edits})).await;
            assert!(!out.ok && out.result.contains(says), "{says}: {}", out.result);
        }
        assert_eq!(ctx.read("f"), "a\nb\nb\n");
        assert_eq!(std::fs::metadata(ctx.path("f")).unwrap().modified().unwrap(), before);
        assert!(ctx.asked().is_empty());
    }

    #[tokio::test]
    async fn needs_a_text_that_was_read() {
        let ctx = TestCtx::new();
        ctx.write("f", "a");
        let out = run(&Edit, &ctx, json!({"path": "f", "old": "a", "new": "b"})).await;
        assert!(out.result.contains("was not read"));
        let out = run(&Edit, &ctx, json!({"path": "none", "old": "a", "new": "b"})).await;
        assert!(out.result.contains("does not exist"));
        std::fs::write(ctx.path("bin"), b"a\xff").unwrap();
        ctx.see("bin");
        let out = run(&Edit, &ctx, json!({"path": "bin", "old": "a", "new": "b"})).await;
        assert!(out.result.contains("no UTF-8"));
        for input in [
            json!(null),
            json!({"path": "f"}),
            json!({"path": "f", "old": "a"}),
            json!({"path": "f", "edits": "x"}),
            json!({"path": "f", "edits": [{"old": 1, "new": "b"}]}),
        ] {
            let out = run(&Edit, &ctx, input.clone()).await;
            assert!(!out.ok && out.result.contains("Expected:"), "{input}: {}", out.result);
            Edit.detail(&raw(&input));
        }
    }

    #[test]
    fn line_ends_are_kept() {
        let piece = |old: &str, new: &str| [Piece { old: old.into(), new: new.into(), all: None }];
        assert_eq!(apply("a\r\nb\r\n", &piece("a\nb", "x\ny\nz")).unwrap().0, "x\r\ny\r\nz\r\n");
        assert_eq!(apply("a\r\nb\r\n", &piece("a", "x\ny")).unwrap().0, "x\r\ny\r\nb\r\n");
        assert_eq!(apply("a\r\nb\n", &piece("a\nb", "x\ny")).unwrap().0, "x\r\ny\n");
        assert_eq!(apply("a\r\nb\n", &piece("b\n", "c\n")).unwrap().0, "a\r\nc\n");
        assert_eq!(apply("aaa", &piece("aa", "b")).unwrap_err().matches("2 times").count(), 1);
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn only_the_found_piece_changes(before in "[a-c\n]{0,20}", old in "[xé]{1,3}", new in "[a-z\n]{0,5}", after in "[a-c\n]{0,20}") {
            prop_assume!(old != new);
            let piece = [Piece { old: old.clone(), new: new.clone(), all: None }];
            let (got, n) = apply(&format!("{before}{old}{after}"), &piece).unwrap();
            prop_assert_eq!((got, n), (format!("{before}{new}{after}"), 1));
        }
    }
}
