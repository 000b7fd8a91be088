//! Completion in the composer: slash commands and `@paths`.
//!
//! Reads directories below the session's cwd, nothing else.

use super::slash;
use crate::text::one_line;
use std::path::Path;

/// Most candidates that are offered.
const MAX: usize = 50;

/// What can stand in place of the last `bytes` before the cursor.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Completion {
    /// How much before the cursor is replaced.
    pub bytes: usize,
    /// What can stand there, and what is shown beside it.
    pub candidates: Vec<(String, String)>,
    /// The one that is chosen.
    pub chosen: usize,
}

/// What can stand at the cursor; nothing where nothing fits.
pub fn find(before: &str, cwd: &Path) -> Option<Completion> {
    let candidates = slash::complete(before);
    if !candidates.is_empty() {
        return Some(Completion { bytes: before.len(), candidates, chosen: 0 });
    }
    let word = before.rsplit(char::is_whitespace).next().unwrap_or_default();
    let partial = word.strip_prefix('@')?;
    let candidates = paths(cwd, partial);
    (!candidates.is_empty()).then_some(Completion { bytes: word.len(), candidates, chosen: 0 })
}

/// Paths that begin with `partial`, relative to `cwd`; directories end in `/`.
fn paths(cwd: &Path, partial: &str) -> Vec<(String, String)> {
    let (dir, start) = partial.rsplit_once('/').map_or(("", partial), |(d, s)| (d, s));
    let base = if partial.starts_with('/') { Path::new("/").join(dir) } else { cwd.join(dir) };
    let Ok(entries) = std::fs::read_dir(base) else { return Vec::new() };
    let mut out: Vec<(String, String)> = entries
        .filter_map(Result::ok)
        .filter_map(|e| {
            let name = e.file_name().into_string().ok()?;
            // Names with white space or control characters cannot stand behind an `@`.
            let fits = name.starts_with(start)
                && (start.starts_with('.') || !name.starts_with('.'))
                && !name.contains(char::is_whitespace)
                && one_line(&name) == name;
            let slash = if e.path().is_dir() { "/" } else { "" };
            let dir = if partial.contains('/') { format!("{dir}/") } else { String::new() };
            fits.then(|| (format!("@{dir}{name}{slash}"), String::new()))
        })
        .collect();
    out.sort();
    out.truncate(MAX);
    out
}

/// The files that a message names with `@path`, as they are written.
pub fn mentioned(text: &str, cwd: &Path) -> Vec<String> {
    let mut out: Vec<String> = Vec::new();
    for word in text.split_whitespace() {
        let Some(path) = word.strip_prefix('@') else { continue };
        let path =
            if cwd.join(path).is_file() { path } else { path.trim_end_matches([',', '.', ':', ';', ')', '?', '!']) };
        if !path.is_empty() && cwd.join(path).is_file() && !out.iter().any(|p| p == path) {
            out.push(path.to_owned());
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_complete_below_the_directory() {
        let tmp = tempfile::tempdir().unwrap();
        std::fs::create_dir(tmp.path().join("src")).unwrap();
        for f in ["src/main.rs", "setup.py", ".hidden", "with space"] {
            std::fs::write(tmp.path().join(f), "").unwrap();
        }
        let names = |before: &str| {
            let c = find(before, tmp.path()).unwrap_or_default();
            (c.bytes, c.candidates.into_iter().map(|c| c.0).collect::<Vec<_>>())
        };
        assert_eq!(names("look at @s"), (2, vec!["@setup.py".into(), "@src/".into()]));
        assert_eq!(names("@src/"), (5, vec!["@src/main.rs".into()]));
        assert_eq!(names("@w"), (0, vec![]));
        assert_eq!(names("@.h"), (3, vec!["@.hidden".into()]));
        assert_eq!(names("plain s"), (0, vec![]));
        assert_eq!(names("/qu").1, ["/queue", "/quit"]);
        assert_eq!(
            mentioned("see @setup.py, @src and @src/main.rs. mail a@setup.py", tmp.path()),
            ["setup.py", "src/main.rs"]
        );
    }
}
