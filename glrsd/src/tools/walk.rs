//! Walking a tree the way a person would look at it.
//!
//! Owns: what is left out (what .gitignore names, hidden names, `.git`), and patterns for file
//! names. Used by `grep` and `glob`; must not know what they look for.

use super::{Outcome, ToolCtx, files};
use crate::policy::Fence;
use globset::{GlobBuilder, GlobMatcher};
use ignore::{Walk, WalkBuilder};
use std::path::{Path, PathBuf};

/// Where to look.
#[derive(Debug)]
pub(super) struct Root {
    /// As the model gave it.
    pub asked: PathBuf,
    /// Where that leads.
    pub path: PathBuf,
    /// What must not be looked at in there.
    pub fence: Fence,
}

impl Root {
    /// Whether a rule forbids a file that was met, by where it is or by the way it was come to.
    pub fn keeps_out(&self, path: &Path) -> bool {
        let as_asked = || path.strip_prefix(&self.path).map(|relative| self.asked.join(relative));
        !self.fence.is_open()
            && (self.fence.keeps_out(path) || as_asked().is_ok_and(|asked| self.fence.keeps_out(&asked)))
    }
}

/// What the model is told of files that were left out.
pub(super) fn left_out(files: usize) -> String {
    match files {
        0 => String::new(),
        1 => "\n[1 file was left out: a rule forbids reading it.]\n".to_owned(),
        n => format!("\n[{n} files were left out: rules forbid reading them.]\n"),
    }
}

/// Where to look; the directory the session is in when nothing is given.
pub(super) async fn root(ctx: &dyn ToolCtx, given: Option<&str>) -> Result<Root, Outcome> {
    let given = given.filter(|g| !g.is_empty()).unwrap_or(".").to_owned();
    let asked = files::absolute(ctx, &given)?;
    let from = asked.clone();
    let found = files::blocking(ctx, move |_| {
        let path = files::resolve(&from)?;
        std::fs::metadata(&path).map(|_| path)
    });
    let path = found.await?.map_err(|e| files::explain("look in", &given, &e))?;
    Ok(Root { asked, path, fence: ctx.fence() })
}

/// The files under a root. `hidden` lets hidden names in, but never `.git`.
pub(super) fn walk(root: &Path, hidden: bool) -> Walk {
    WalkBuilder::new(root)
        .hidden(!hidden)
        // A .gitignore says what is not worth seeing also where there is no repository.
        .require_git(false)
        // The user's own ignore file is found through the daemon's environment, which is not the session's.
        .git_global(false)
        .follow_links(false)
        .filter_entry(|entry| entry.depth() == 0 || entry.file_name() != ".git")
        .sort_by_file_name(Ord::cmp)
        .build()
}

/// A pattern for paths below a root.
#[derive(Debug)]
pub(super) struct Names {
    glob: GlobMatcher,
    /// Whether it names something hidden, which is then looked at.
    pub hidden: bool,
}

impl Names {
    /// Compiles a pattern. Without a slash it counts at any depth; an absolute one has to lie in
    /// `root`.
    pub fn new(pattern: &str, root: &Path) -> Result<Self, Outcome> {
        let mut pattern = pattern.trim();
        if pattern.starts_with('/') {
            pattern = root
                .to_str()
                .and_then(|root| pattern.strip_prefix(root))
                .map(|rest| rest.trim_start_matches('/'))
                .ok_or_else(|| {
                    Outcome::error(format!("{pattern} does not lie in {}: give path as well.", root.display()))
                })?;
        }
        let pattern = pattern.trim_start_matches("./");
        if pattern.is_empty() {
            return Err(Outcome::error("The pattern is empty: give one such as **/*.rs."));
        }
        let hidden = pattern.split('/').any(|part| part.starts_with('.'));
        let full = if pattern.contains('/') { pattern.to_owned() } else { format!("**/{pattern}") };
        let glob = GlobBuilder::new(&full)
            .literal_separator(true)
            .build()
            .map_err(|e| Outcome::error(format!("{pattern:?} is no pattern: {}.", e.kind())))?;
        Ok(Self { glob: glob.compile_matcher(), hidden })
    }

    /// Whether a path below `root` is named.
    pub fn is_match(&self, path: &Path, root: &Path) -> bool {
        match path.strip_prefix(root) {
            Ok(relative) if !relative.as_os_str().is_empty() => self.glob.is_match(relative),
            // The root itself is a file.
            _ => path.file_name().is_some_and(|name| self.glob.is_match(Path::new(name))),
        }
    }
}
