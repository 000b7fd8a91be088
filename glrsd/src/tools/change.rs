//! Changing a file: looked at, asked about, its content before kept, then replaced in one step.
//!
//! Owns: the rule that nothing is overwritten that this session has not read as it is now, the
//! diff, the atomic replacement, and the `glrs:files` record. Used by `write` and `edit`; must not
//! know how they came to the new content.

use super::clip::{RESULT_CHARS, clip_plain};
use super::files;
use super::{Outcome, ToolCtx};
use crate::host::clock;
use crate::policy::Effect;
use glrs_protocol::entry::{Entry, FileChange};
use sha2::{Digest, Sha256};
use similar::TextDiff;
use std::io::{self, Read, Write};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Largest file that is changed: its content before is held in memory and kept as a blob.
const MAX_FILE: u64 = 64 * 1024 * 1024;
/// How long a diff may take before it is made coarser.
const DIFF_TIME: Duration = Duration::from_secs(1);

/// A file that is to be changed, as it is now.
#[derive(Debug)]
pub(super) struct Target {
    /// As the model gave it.
    asked: PathBuf,
    /// Where it leads.
    path: PathBuf,
    /// As people read it.
    pub shown: String,
    /// What stands there.
    pub before: Option<Before>,
}

/// A file's content and bits.
#[derive(Debug)]
pub(super) struct Before {
    /// Content.
    pub bytes: Vec<u8>,
    mode: u32,
}

/// What stood there: content, state and permission bits.
type Found = Option<(Vec<u8>, (i128, u64), u32)>;

fn find(path: &Path) -> io::Result<Found> {
    // Asked before opening: opening a pipe would wait for its other end.
    let kind = match std::fs::symlink_metadata(path) {
        Ok(meta) => meta,
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(e) => return Err(e),
    };
    if kind.is_dir() {
        return Err(io::Error::other("it is a directory"));
    }
    if !kind.is_file() {
        return Err(io::Error::other("it is no regular file"));
    }
    let mut file = std::fs::File::open(path)?;
    let meta = file.metadata()?;
    if meta.size() > MAX_FILE {
        return Err(io::Error::other(format!(
            "it has {} bytes, more than the {MAX_FILE} that can be changed",
            meta.size()
        )));
    }
    let mut bytes = Vec::new();
    Read::by_ref(&mut file).take(MAX_FILE + 1).read_to_end(&mut bytes)?;
    Ok(Some((bytes, files::state(&meta), meta.mode() & 0o7777)))
}

/// Looks at what is to be changed. Refuses what this session has not read as it is now.
pub(super) async fn look(ctx: &dyn ToolCtx, path: &str) -> Result<Target, Outcome> {
    let asked = files::absolute(ctx, path)?;
    let from = asked.clone();
    let looked = files::blocking(ctx, move |_| {
        let path = files::resolve(&from)?;
        find(&path).map(|found| (path, found))
    });
    let (path, found) = looked.await?.map_err(|e| files::explain("change", path, &e))?;
    let shown = files::shown(&path, ctx.cwd());
    let Some((bytes, state, mode)) = found else { return Ok(Target { asked, path, shown, before: None }) };
    match ctx.seen(&path) {
        Some(seen) if seen == state => {}
        Some(_) => {
            return Err(Outcome::error(format!(
                "{shown} has changed since it was read. Read it again, then change it."
            )));
        }
        None => {
            return Err(Outcome::error(format!(
                "{shown} exists and was not read in this session. Read it first, so that nothing is overwritten unseen."
            )));
        }
    }
    Ok(Target { asked, path, shown, before: Some(Before { bytes, mode }) })
}

/// Gives a file its new content, if that is allowed. `done` is what the model is told, before the
/// number of lines.
pub(super) async fn apply(ctx: &dyn ToolCtx, target: Target, after: Vec<u8>, done: &str) -> Outcome {
    match try_apply(ctx, target, after, done).await {
        Ok(outcome) | Err(outcome) => outcome,
    }
}

async fn try_apply(ctx: &dyn ToolCtx, target: Target, after: Vec<u8>, done: &str) -> Result<Outcome, Outcome> {
    let Target { asked, path, shown, before } = target;
    if before.as_ref().is_some_and(|b| b.bytes == after) {
        return Ok(Outcome::ok(format!("{shown} already has this content. Nothing was changed.")));
    }
    let lines = memchr::memchr_iter(b'\n', &after).count() + usize::from(!after.is_empty() && !after.ends_with(b"\n"));
    let (name, old, new) = (shown.clone(), before.as_ref().map(|b| b.bytes.clone()), after.clone());
    let diff = files::blocking(ctx, move |_| unified(&name, old.as_deref(), &new)).await?;

    let verb = if before.is_some() { "change" } else { "create" };
    let effect = Effect::Write(vec![path.clone()]);
    files::permit_file(ctx, effect, Some(asked.clone()), format!("{verb} {shown}"), diff.clone()).await?;

    let kept = match &before {
        Some(b) => Some(ctx.keep(&b.bytes).await.map_err(|e| {
            Outcome::error(format!("Nothing was changed: the content of {shown} before could not be kept: {e}"))
        })?),
        None => None,
    };
    if ctx.cancel().is_cancelled() {
        return Err(files::interrupted());
    }
    let after_hash = hex(&Sha256::digest(&after));
    let old_mode = before.as_ref().map(|b| b.mode);
    let place = path.clone();
    // From here on it is not broken off: what is on disk and what is recorded have to agree.
    let replaced = tokio::task::spawn_blocking(move || replace(&asked, &place, before.as_ref(), &after)).await;
    let (state, mode) = match replaced {
        Ok(Ok(done)) => done,
        Ok(Err(e)) => return Err(files::explain("write", &shown, &e)),
        Err(_) => return Err(Outcome::error(format!("The tool failed inside while it wrote {shown}."))),
    };
    ctx.note_seen(path.clone(), state);
    let change = FileChange {
        user_entry: ctx.user_entry(),
        path: path.to_string_lossy().into_owned(),
        before: kept,
        mode: Some(old_mode.unwrap_or(mode)),
        after: after_hash,
    };
    let entries = Entry::custom("glrs:files", &change, &clock::now()).into_iter().collect();
    let plural = if lines == 1 { "" } else { "s" };
    Ok(Outcome {
        ok: true,
        result: format!("{done} {shown} ({lines} line{plural})."),
        diff: Some(diff),
        entries,
        left_out: 0,
    })
}

/// The diff people judge by.
fn unified(shown: &str, before: Option<&[u8]>, after: &[u8]) -> String {
    let texts = (std::str::from_utf8(before.unwrap_or_default()), std::str::from_utf8(after));
    let (Ok(old), Ok(new)) = texts else {
        let size = before.map_or(0, <[u8]>::len);
        return format!("{shown}: no text; {size} bytes become {} bytes\n", after.len());
    };
    let name = shown.trim_start_matches('/');
    let (from, to) = (format!("a/{name}"), format!("b/{name}"));
    let from = if before.is_some() { from.as_str() } else { "/dev/null" };
    let diff = TextDiff::configure().timeout(DIFF_TIME).diff_lines(old, new);
    let text = diff.unified_diff().context_radius(3).header(from, &to).to_string();
    clip_plain(&text, RESULT_CHARS)
}

/// Puts the content in place in one step: whoever reads sees the old file or the new one. Answers
/// the new state and the permission bits.
fn replace(asked: &Path, path: &Path, before: Option<&Before>, after: &[u8]) -> io::Result<((i128, u64), u32)> {
    let unchanged = || -> io::Result<()> {
        let same = files::resolve(asked)? == path
            && match (find(path)?, before) {
                (None, None) => true,
                (Some((bytes, _, mode)), Some(before)) => bytes == before.bytes && mode == before.mode,
                _ => false,
            };
        if same { Ok(()) } else { Err(io::Error::other("it changed in the meantime. Read it again, then change it")) }
    };
    unchanged()?;
    let dir = path.parent().ok_or_else(|| io::Error::other("it has no directory"))?;
    std::fs::create_dir_all(dir)?;
    let mut builder = tempfile::Builder::new();
    builder.prefix(".glrs-").suffix(".tmp");
    if before.is_none() {
        // As any program would make it: the umask takes its part.
        builder.permissions(std::fs::Permissions::from_mode(0o666));
    }
    let mut temp = builder.tempfile_in(dir)?;
    temp.write_all(after)?;
    if let Some(before) = before {
        let old = std::fs::metadata(path)?;
        // Best effort: only root may give a file away, and a group may be one we are not in.
        let _ = std::os::unix::fs::fchown(temp.as_file(), Some(old.uid()), Some(old.gid()))
            .or_else(|_| std::os::unix::fs::fchown(temp.as_file(), None, Some(old.gid())));
        temp.as_file().set_permissions(std::fs::Permissions::from_mode(before.mode))?;
    }
    temp.as_file().sync_all()?;
    unchanged()?;
    let file = match before {
        Some(_) => temp.persist(path).map_err(|e| e.error)?,
        None => temp.persist_noclobber(path).map_err(|e| e.error)?,
    };
    let meta = file.metadata()?;
    Ok((files::state(&meta), meta.mode() & 0o7777))
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|b| format!("{b:02x}")).collect()
}
