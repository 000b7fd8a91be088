//! The tool `read`: a piece of a text file with line numbers, or what a directory holds.
//!
//! Owns: paging, clipping long lines, refusing what is no text. Notes what was seen, which is what
//! lets `write` and `edit` change it. Must not change anything.

use super::{Outcome, PAGE_CHARS, Tool, ToolCtx, ToolSpec, files, input, spec};
use crate::policy::Effect;
use futures_util::future::BoxFuture;
use serde::Deserialize;
use serde_json::value::RawValue;
use std::io::{self, BufRead, BufReader, Read as _};
use std::path::{Path, PathBuf};
use tokio_util::sync::CancellationToken;

/// Most lines of one call.
const MAX_LINES: u64 = 2_000;
/// Most bytes of a line that are read, and characters that are shown.
const LINE_BYTES: usize = 8_000;
const LINE_CHARS: usize = 2_000;
/// Most names of a directory that are shown.
const MAX_NAMES: usize = 1_000;
/// What is looked at to tell text from something else.
const SNIFF: usize = 8_192;
/// How far on the lines are counted to say how many there are.
const COUNT_BYTES: u64 = 64 * 1024 * 1024;

/// Reads a file.
#[derive(Debug)]
pub struct Read;

const EXPECTED: &str = r#"{"path": string, "offset"?: integer, "limit"?: integer}"#;

#[derive(Deserialize)]
struct Input {
    #[serde(alias = "file_path")]
    path: String,
    #[serde(default, deserialize_with = "input::count")]
    offset: Option<u64>,
    #[serde(default, deserialize_with = "input::count")]
    limit: Option<u64>,
}

impl Tool for Read {
    fn spec(&self) -> ToolSpec {
        spec(
            "read",
            "Reads a text file: each line with its number and a tab before it, up to 2000 lines a call. For a \
             longer file give `offset` (the first line, from 1) and `limit`. Given a directory, lists it. Files that \
             are no text are refused with their type and size.",
            r#"{"type":"object","properties":{"path":{"type":"string","description":"Path of the file or directory, relative to the working directory or absolute."},"offset":{"type":"integer","minimum":1,"description":"Number of the first line to read. Default 1."},"limit":{"type":"integer","minimum":1,"maximum":2000,"description":"How many lines to read. Default 2000."}},"required":["path"],"additionalProperties":false}"#,
        )
    }

    fn detail(&self, input: &RawValue) -> String {
        input::one_line(&input::field(input, "path").unwrap_or_default())
    }

    fn parallel(&self) -> bool {
        true
    }

    fn run<'a>(&'a self, ctx: &'a dyn ToolCtx, input: &'a RawValue) -> BoxFuture<'a, Outcome> {
        Box::pin(async move { read(ctx, input).await.unwrap_or_else(|outcome| outcome) })
    }
}

async fn read(ctx: &dyn ToolCtx, input: &RawValue) -> Result<Outcome, Outcome> {
    let Input { path: given, offset, limit } = input::parse("read", EXPECTED, input)?;
    let asked = files::absolute(ctx, &given)?;
    let from = asked.clone();
    let resolved = files::blocking(ctx, move |_| files::resolve(&from));
    let path = resolved.await?.map_err(|e| files::explain("read", &given, &e))?;
    let shown = files::shown(&path, ctx.cwd());
    let effect = Effect::Read(vec![path.clone()]);
    files::permit_file(ctx, effect, Some(asked), format!("read {shown}"), String::new()).await?;

    let offset = offset.unwrap_or(1).max(1);
    let limit = limit.unwrap_or(MAX_LINES).clamp(1, MAX_LINES);
    let (place, name) = (path.clone(), shown.clone());
    let (text, state) = files::blocking(ctx, move |stop| look(&place, &name, offset, limit, stop)).await??;
    if let Some(state) = state {
        ctx.note_seen(path, state);
    }
    Ok(Outcome::ok(text))
}

/// What was read, and the state of the file it was read from.
type Seen = (String, Option<(i128, u64)>);

fn look(path: &Path, shown: &str, offset: u64, limit: u64, stop: &CancellationToken) -> Result<Seen, Outcome> {
    let explain = |e: io::Error| match e.kind() {
        io::ErrorKind::NotFound => missing(path, shown),
        _ => files::explain("read", shown, &e),
    };
    // Asked before opening: opening a pipe would wait for its other end.
    let meta = std::fs::metadata(path).map_err(explain)?;
    if meta.is_dir() {
        return list(path, shown).map(|text| (text, None)).map_err(explain);
    }
    if !meta.is_file() {
        return Err(Outcome::error(format!("{shown} is no regular file, so it cannot be read.")));
    }
    let file = std::fs::File::open(path).map_err(explain)?;
    // The state before reading: what changes while it is read counts as not seen.
    let meta = file.metadata().map_err(explain)?;
    let mut reader = BufReader::with_capacity(SNIFF, file);
    let head = reader.fill_buf().map_err(explain)?;
    if let Some(kind) = not_text(head) {
        return Err(Outcome::error(format!("{shown} is no text: {kind}, {} bytes.", meta.len())));
    }
    let text = page(&mut reader, shown, offset, limit, stop).map_err(explain)??;
    Ok((text, Some(files::state(&meta))))
}

/// The lines asked for.
fn page(
    reader: &mut impl BufRead,
    shown: &str,
    offset: u64,
    limit: u64,
    stop: &CancellationToken,
) -> io::Result<Result<String, Outcome>> {
    let mut out = String::new();
    let mut chars = 0;
    let mut number = 0;
    let mut next = None;
    let mut line = Vec::new();
    while read_line(reader, &mut line)? {
        number += 1;
        if stop.is_cancelled() {
            return Ok(Err(files::interrupted()));
        }
        if number < offset {
            continue;
        }
        let text = one(&line, number);
        chars += text.chars().count();
        if number >= offset.saturating_add(limit) || (chars > PAGE_CHARS && !out.is_empty()) {
            next = Some(number);
            break;
        }
        out.push_str(&text);
    }
    if let Some(next) = next {
        let total = count_on(reader, stop)?.map(|more| number + more);
        let of = total.map_or_else(String::new, |n| format!(" of {n}"));
        out.push_str(&format!("\n[Lines {offset}-{}{of}. Go on with offset {next}.]\n", next - 1));
    } else if number == 0 {
        out.push_str("[The file is empty.]\n");
    } else if number < offset {
        return Ok(Err(Outcome::error(format!("{shown} has only {number} lines, there is no line {offset}."))));
    }
    Ok(Ok(out))
}

/// A line as it is shown.
fn one(line: &[u8], number: u64) -> String {
    let long = line.len() > LINE_BYTES;
    let line = line.strip_suffix(b"\r").unwrap_or(line);
    let line = if number == 1 { line.strip_prefix(b"\xef\xbb\xbf").unwrap_or(line) } else { line };
    let text = String::from_utf8_lossy(line);
    match text.char_indices().nth(LINE_CHARS) {
        Some((at, _)) => format!("{number}\t{} [… the line goes on]\n", &text[..at]),
        None if long => format!("{number}\t{text} [… the line goes on]\n"),
        None => format!("{number}\t{text}\n"),
    }
}

/// Reads a line without its newline into `line`, of a long one only what may be shown and a byte
/// more. False at the end.
fn read_line(reader: &mut impl BufRead, line: &mut Vec<u8>) -> io::Result<bool> {
    line.clear();
    let mut any = false;
    loop {
        let buf = reader.fill_buf()?;
        if buf.is_empty() {
            return Ok(any);
        }
        any = true;
        let end = memchr::memchr(b'\n', buf);
        let part = &buf[..end.unwrap_or(buf.len())];
        let room = (LINE_BYTES + 1).saturating_sub(line.len());
        line.extend_from_slice(&part[..part.len().min(room)]);
        let used = end.map_or(buf.len(), |e| e + 1);
        reader.consume(used);
        if end.is_some() {
            return Ok(true);
        }
    }
}

/// How many lines follow; none when there is too much to count.
fn count_on(reader: &mut impl BufRead, stop: &CancellationToken) -> io::Result<Option<u64>> {
    let mut reader = reader.take(COUNT_BYTES);
    let (mut lines, mut last) = (0, b'\n');
    loop {
        let buf = reader.fill_buf()?;
        let Some(&end) = buf.last() else { break };
        lines += memchr::memchr_iter(b'\n', buf).count() as u64;
        last = end;
        let n = buf.len();
        reader.consume(n);
        if stop.is_cancelled() {
            return Ok(None);
        }
    }
    Ok((reader.limit() > 0).then_some(lines + u64::from(last != b'\n')))
}

/// What a file is that is no text.
fn not_text(head: &[u8]) -> Option<&'static str> {
    const MAGIC: [(&[u8], &str); 14] = [
        (b"\x89PNG\r\n", "a PNG image"),
        (b"\xff\xd8\xff", "a JPEG image"),
        (b"GIF8", "a GIF image"),
        (b"%PDF-", "a PDF document"),
        (b"PK\x03\x04", "a ZIP archive (or a document made of one)"),
        (b"\x1f\x8b", "gzip data"),
        (b"BZh", "bzip2 data"),
        (b"\xfd7zXZ\0", "xz data"),
        (b"\x28\xb5\x2f\xfd", "zstd data"),
        (b"\x7fELF", "an ELF program or library"),
        (b"\0asm", "a WebAssembly module"),
        (b"SQLite format 3\0", "an SQLite database"),
        (b"\xff\xfe", "UTF-16 text (convert it with iconv)"),
        (b"\xfe\xff", "UTF-16 text (convert it with iconv)"),
    ];
    if head.starts_with(b"RIFF") && head.get(8..12) == Some(b"WEBP") {
        return Some("a WebP image");
    }
    let known = MAGIC.iter().find(|(magic, _)| head.starts_with(magic)).map(|(_, kind)| *kind);
    // Text may begin like one of these; it has no NUL and is UTF-8.
    match (memchr::memchr(0, head), std::str::from_utf8(head)) {
        (None, Ok(_)) if !head.starts_with(b"%PDF-") => None,
        (Some(_), _) => Some(known.unwrap_or("binary data")),
        (None, _) => known,
    }
}

fn list(path: &Path, shown: &str) -> io::Result<String> {
    let mut names: Vec<String> = std::fs::read_dir(path)?
        .filter_map(Result::ok)
        .map(|entry| {
            let mark = match entry.file_type() {
                Ok(kind) if kind.is_dir() => "/",
                Ok(kind) if kind.is_symlink() => "@",
                _ => "",
            };
            format!("{}{mark}", entry.file_name().to_string_lossy())
        })
        .collect();
    names.sort();
    let total = names.len();
    let mut out = format!("{shown} is a directory with {total} entries:\n");
    for name in names.iter().take(MAX_NAMES) {
        out.push_str(name);
        out.push('\n');
    }
    if total > MAX_NAMES {
        out.push_str(&format!("[{} more. Use glob to narrow it down.]\n", total - MAX_NAMES));
    }
    Ok(out)
}

/// What to say of a file that is not there: names near it, or how far the path exists.
fn missing(path: &Path, shown: &str) -> Outcome {
    let mut text = format!("{shown} does not exist.");
    let parent = path.parent().map(PathBuf::from).unwrap_or_default();
    match std::fs::read_dir(&parent) {
        Ok(entries) => {
            let wanted = path.file_name().unwrap_or_default().to_string_lossy().to_lowercase();
            let mut near: Vec<(f32, String)> = entries
                .filter_map(Result::ok)
                .take(5_000)
                .map(|e| e.file_name().to_string_lossy().into_owned())
                .map(|name| (likeness(&wanted, &name.to_lowercase()), name))
                .filter(|(score, _)| *score >= 0.6)
                .collect();
            near.sort_by(|a, b| b.0.total_cmp(&a.0).then_with(|| a.1.cmp(&b.1)));
            let names: Vec<String> = near.into_iter().take(3).map(|(_, name)| name).collect();
            if !names.is_empty() {
                text.push_str(&format!(" Near it there is: {}.", names.join(", ")));
            }
        }
        Err(_) => {
            let there = path.ancestors().skip(1).find(|a| a.is_dir());
            if let Some(there) = there {
                text.push_str(&format!(" The path exists as far as {}.", there.display()));
            }
        }
    }
    Outcome::error(text)
}

fn likeness(wanted: &str, name: &str) -> f32 {
    if wanted.len() > 2 && (name.contains(wanted) || wanted.contains(name) && name.len() > 2) {
        return 0.9;
    }
    similar::TextDiff::from_chars(wanted, name).ratio()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tools::testing::{TestCtx, raw, run};
    use serde_json::json;
    use std::os::unix::fs::symlink;

    #[tokio::test]
    async fn lines_have_numbers_and_the_state_is_noted() {
        let ctx = TestCtx::new();
        ctx.write("f", "\u{feff}one\r\ntwo\n\nfour");
        let out = run(&Read, &ctx, json!({"path": "f"})).await;
        assert_eq!((out.ok, out.result.as_str()), (true, "1\tone\n2\ttwo\n3\t\n4\tfour\n"));
        assert!(ctx.seen(&ctx.path("f")).is_some());
        let out = run(&Read, &ctx, json!({"path": ctx.path("f"), "offset": 2.0, "limit": 1})).await;
        assert_eq!(out.result, "2\ttwo\n\n[Lines 2-2 of 4. Go on with offset 3.]\n");
        let out = run(&Read, &ctx, json!({"path": "f", "offset": 9})).await;
        assert!(!out.ok && out.result.contains("only 4 lines"));
        symlink("f", ctx.path("l")).unwrap();
        assert_eq!(ctx.effects()[0], Effect::Read(vec![ctx.path("f")]));
        assert!(run(&Read, &ctx, json!({"path": "~/l"})).await.ok);
    }

    #[tokio::test]
    async fn long_files_and_lines_are_paged() {
        let ctx = TestCtx::new();
        ctx.write("many", &"x\n".repeat(5_000));
        let out = run(&Read, &ctx, json!({"path": "many"})).await;
        assert!(out.result.contains("[Lines 1-2000 of 5000. Go on with offset 2001.]"));
        ctx.write("long", &format!("{}\nend\n", "é".repeat(5 << 20)));
        let out = run(&Read, &ctx, json!({"path": "long"})).await;
        assert!(
            out.result.len() < 10_000 && out.result.ends_with("[… the line goes on]\n2\tend\n"),
            "{}",
            out.result.len()
        );
        ctx.write("wide", &format!("{}\n", "w".repeat(1_500)).repeat(100));
        let out = run(&Read, &ctx, json!({"path": "wide"})).await;
        assert!(
            out.result.chars().count() < 30_000 && out.result.contains("[Lines 1-18 of 100."),
            "{}",
            &out.result[27_000..]
        );
        ctx.write("empty", "");
        assert_eq!(run(&Read, &ctx, json!({"path": "empty"})).await.result, "[The file is empty.]\n");
    }

    #[tokio::test]
    async fn what_is_no_text_is_refused() {
        let ctx = TestCtx::new();
        std::fs::write(ctx.path("a.png"), b"\x89PNG\r\n\x1a\n\0\0").unwrap();
        let out = run(&Read, &ctx, json!({"path": "a.png"})).await;
        assert_eq!((out.ok, out.result.as_str()), (false, "a.png is no text: a PNG image, 10 bytes."));
        std::fs::write(ctx.path("latin"), b"caf\xe9\n").unwrap();
        assert_eq!(run(&Read, &ctx, json!({"path": "latin"})).await.result, "1\tcaf\u{FFFD}\n");
        ctx.write("BZh.txt", "BZh is how it begins");
        assert!(run(&Read, &ctx, json!({"path": "BZh.txt"})).await.ok);
        assert!(!run(&Read, &ctx, json!({"path": "/dev/zero"})).await.ok);
        assert!(ctx.seen(&ctx.path("a.png")).is_none());
    }

    #[tokio::test]
    async fn directories_and_what_is_missing() {
        let ctx = TestCtx::new();
        ctx.write("src/main.rs", "");
        ctx.write("README.md", "");
        let out = run(&Read, &ctx, json!({"path": "."})).await;
        assert_eq!(out.result, ". is a directory with 2 entries:\nREADME.md\nsrc/\n");
        let out = run(&Read, &ctx, json!({"path": "readme.txt"})).await;
        assert_eq!((out.ok, out.result.as_str()), (false, "readme.txt does not exist. Near it there is: README.md."));
        let out = run(&Read, &ctx, json!({"path": "src/a/b"})).await;
        assert!(out.result.contains("exists as far as") && out.result.ends_with("src."));
    }

    #[tokio::test]
    async fn hostile_input_is_answered() {
        let ctx = TestCtx::new();
        for input in [
            json!(null),
            json!({"path": []}),
            json!({"path": "\u{0}"}),
            json!({"path": ""}),
            json!({"path": "f", "offset": "x"}),
            json!({"path": "f", "limit": -1}),
            json!({"path": "f", "limit": 1.5}),
        ] {
            let out = run(&Read, &ctx, input.clone()).await;
            assert!(!out.ok && !out.result.is_empty(), "{input}");
            Read.detail(&raw(&input));
        }
        ctx.cancel.cancel();
        assert_eq!(run(&Read, &ctx, json!({"path": "."})).await.result, "Interrupted.");
    }
}
