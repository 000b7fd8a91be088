//! Walking a tree the way a person would look at it.
//!
//! Owns: what is left out (what .gitignore names, hidden names, `.git`), and patterns for file
//! names. Used by `grep` and `glob`; must not know what they look for.

use super::{Outcome, ToolCtx, files};
use globset::{GlobBuilder, GlobMatcher};
use ignore::{Walk, WalkBuilder};
use std::path::{Path, PathBuf};

/// Where to look, resolved; the directory the session is in when nothing is given.
pub(super) async fn root(ctx: &dyn ToolCtx, given: Option<&str>) -> Result<PathBuf, Outcome> {
    let given = given.filter(|g| !g.is_empty()).unwrap_or(".").to_owned();
    let asked = files::absolute(ctx, &given)?;
    let found = files::blocking(ctx, move |_| {
        let path = files::resolve(&asked)?;
        std::fs::metadata(&path).map(|_| path)
    });
    found.await?.map_err(|e| files::explain("look in", &given, &e))
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
