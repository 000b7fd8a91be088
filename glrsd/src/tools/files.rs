//! Where a path leads and what stands there.
//!
//! Owns: resolving a path as the model gave it, the state of a file that tells whether it changed,
//! and running file work off the event loop. Must not know any tool. Changes nothing.

use super::{Answer, Ask, Outcome, ToolCtx};
use crate::policy::Effect;
use glrs_protocol::types::Decision;
use std::collections::VecDeque;
use std::ffi::OsString;
use std::fs::Metadata;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Component, Path, PathBuf};
use std::time::Duration;
use tokio_util::sync::CancellationToken;

/// Links followed before a path counts as a loop.
const LINKS: usize = 40;

/// What tells whether a file changed: its mtime in nanoseconds and its size.
pub(super) fn state(meta: &Metadata) -> (i128, u64) {
    (i128::from(meta.mtime()) * 1_000_000_000 + i128::from(meta.mtime_nsec()), meta.size())
}

/// A path as the model gave it, as an absolute one: relative to cwd, `~` for home.
pub(super) fn absolute(ctx: &dyn ToolCtx, path: &str) -> Result<PathBuf, Outcome> {
    if path.trim().is_empty() {
        return Err(Outcome::error(
            "The path is empty: give a path relative to the working directory, or an absolute one.",
        ));
    }
    if path.contains('\0') {
        return Err(Outcome::error("The path has a NUL in it: no file has such a name."));
    }
    let home = ctx.env().get("HOME").map(PathBuf::from);
    Ok(match (path.strip_prefix('~'), home) {
        (Some(""), Some(home)) => home,
        (Some(rest), Some(home)) if rest.starts_with('/') => home.join(rest.trim_start_matches('/')),
        _ => ctx.cwd().join(path),
    })
}

/// Where a path leads: links and `..` resolved as far as it exists, the rest taken as it stands.
/// A link to nowhere is followed too, so that writing through it cannot surprise.
pub(super) fn resolve(path: &Path) -> io::Result<PathBuf> {
    let own = |c: Component<'_>| match c {
        Component::RootDir => OsString::from("/"),
        other => other.as_os_str().to_owned(),
    };
    let mut todo: VecDeque<OsString> = path.components().map(own).collect();
    let mut out = PathBuf::from("/");
    let mut links = 0;
    while let Some(part) = todo.pop_front() {
        match part.to_str() {
            Some("/") => out = PathBuf::from("/"),
            Some(".") => {}
            Some("..") => {
                out.pop();
            }
            _ => {
                let next = out.join(&part);
                match std::fs::symlink_metadata(&next) {
                    Ok(meta) if meta.is_symlink() => {
                        links += 1;
                        if links > LINKS {
                            return Err(io::Error::other("too many symbolic links"));
                        }
                        let target = std::fs::read_link(&next)?;
                        for part in target.components().rev().map(own) {
                            todo.push_front(part);
                        }
                    }
                    Ok(_) => out = next,
                    Err(e) if matches!(e.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => out = next,
                    Err(e) => return Err(e),
                }
            }
        }
    }
    Ok(out)
}

/// A path as people read it: relative to cwd where it is inside.
pub(super) fn shown(path: &Path, cwd: &Path) -> String {
    match path.strip_prefix(cwd) {
        Ok(p) if p.as_os_str().is_empty() => ".".to_owned(),
        Ok(p) => p.display().to_string(),
        Err(_) => path.display().to_string(),
    }
}

/// An I/O error as the model should read it.
pub(super) fn explain(what: &str, path: &str, e: &io::Error) -> Outcome {
    Outcome::error(format!("Cannot {what} {path}: {e}"))
}

/// Runs file work where it may block (a dead mount, a large tree). Ends early, with the token given
/// to the work cancelled, when the call is cancelled or takes too long.
pub(super) async fn blocking<T, F>(ctx: &dyn ToolCtx, work: F) -> Result<T, Outcome>
where
    T: Send + 'static,
    F: FnOnce(&CancellationToken) -> T + Send + 'static,
{
    let token = ctx.cancel().child_token();
    let stop = token.clone();
    let _dropped = stop.clone().drop_guard();
    let job = tokio::task::spawn_blocking(move || work(&token));
    tokio::select! {
        biased;
        () = ctx.cancel().cancelled() => Err(interrupted()),
        done = job => done.map_err(|_| Outcome::error("The tool failed inside. Nothing was changed.")),
        () = tokio::time::sleep(Duration::from_millis(ctx.timeout_ms())) => {
            Err(Outcome::error(format!("Stopped: it took longer than {} ms.", ctx.timeout_ms())))
        }
    }
}

/// The result of a call that was stopped.
pub(super) fn interrupted() -> Outcome {
    Outcome::error("Interrupted.")
}

/// Asks whether an effect may happen. The error is what the model is told when it may not.
pub(super) async fn permit(ctx: &dyn ToolCtx, effect: Effect, title: String, body: String) -> Result<(), Outcome> {
    permit_file(ctx, effect, None, title, body).await
}

/// The same for a file, which was asked for by this path.
pub(super) async fn permit_file(
    ctx: &dyn ToolCtx,
    effect: Effect,
    asked: Option<PathBuf>,
    title: String,
    body: String,
) -> Result<(), Outcome> {
    let answer = tokio::select! {
        biased;
        () = ctx.cancel().cancelled() => return Err(interrupted()),
        answer = ctx.ask(Ask::Permission { effect, asked, title, body }) => answer,
    };
    match answer {
        Answer { decision: Decision::Allow | Decision::Always, .. } => Ok(()),
        Answer { words, by, .. } => {
            let who = if by.is_some() { "The person did not allow this." } else { "This is not allowed." };
            Err(Outcome::error(match words.filter(|w| !w.trim().is_empty()) {
                Some(words) => format!("{who} {words}"),
                None => format!("{who} Nothing was done."),
            }))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    #[test]
    fn links_and_dots_are_resolved_as_far_as_there_is_something() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().canonicalize().unwrap();
        std::fs::create_dir_all(root.join("a/b")).unwrap();
        symlink("a/b", root.join("l")).unwrap();
        symlink("../nowhere/x", root.join("a/dangling")).unwrap();
        symlink("loop", root.join("loop")).unwrap();
        for (path, want) in [
            ("l/../c", "a/c"),
            ("a/./b/new/x", "a/b/new/x"),
            ("a/dangling", "nowhere/x"),
            ("new/../a", "a"),
            ("l", "a/b"),
        ] {
            assert_eq!(resolve(&root.join(path)).unwrap(), root.join(want), "{path}");
        }
        assert!(resolve(&root.join("loop")).is_err());
        assert_eq!(resolve(Path::new("/../../x-none")).unwrap(), PathBuf::from("/x-none"));
    }

    #[tokio::test]
    async fn blocking_work_does_not_hold_a_call() {
        use super::super::testing::TestCtx;
        use std::sync::atomic::Ordering;
        let work = |stop: &CancellationToken| {
            while !stop.is_cancelled() {
                std::thread::yield_now();
            }
        };
        let ctx = TestCtx::new();
        let (done, ()) = tokio::join!(blocking(&ctx, work), async { ctx.cancel.cancel() });
        assert_eq!(done.unwrap_err().result, "Interrupted.");
        let ctx = TestCtx::new();
        ctx.timeout_ms.store(20, Ordering::Relaxed);
        assert!(blocking(&ctx, work).await.unwrap_err().result.contains("longer than 20 ms"));
        let broken = blocking(&TestCtx::new(), |_| -> () { panic!("on purpose") }).await;
        assert!(broken.unwrap_err().result.contains("failed inside"));
    }
}
