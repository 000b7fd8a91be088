//! Rules that "always" added, by project or, where they count from a directory, by that, as text.
//!
//! Owns the form of `allowed.json` and which rules are remembered beyond their session. Reads and
//! writes nothing: the store owns the bytes. They stand outside the project, so that no checkout
//! can grant itself anything.

use super::trust_key;
use serde_json::{Map, Value};
use std::path::Path;

/// Most rules of a project; at the bound no more are remembered.
const MAX: usize = 1000;

/// The projects; anything but a JSON object is an empty one, which allows nothing.
fn projects(json_text: &str) -> Map<String, Value> {
    match serde_json::from_str(json_text) {
        Ok(Value::Object(map)) => map,
        _ => Map::new(),
    }
}

/// The rules that stand under a directory.
fn rules_of(projects: &Map<String, Value>, dir: &Path) -> Vec<String> {
    let rules = projects.get(&trust_key(dir)).and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    rules.iter().filter_map(Value::as_str).map(str::to_owned).collect()
}

/// Whether what a rule allows depends on the directory that it is read in: a file by a relative
/// path, a program by one.
fn is_relative(rule: &str) -> bool {
    let Some((tool, pattern)) = rule.split_once('(') else { return false };
    match tool {
        "bash" => pattern.split_whitespace().next().is_some_and(|w| w.contains('/') && !w.starts_with('/')),
        "write" | "edit" | "read" => !pattern.starts_with(['/', '~']),
        _ => false,
    }
}

/// The rules that hold in a directory of a project (both canonical). What counts from a directory
/// holds in that directory only: `docs/**` of one is another place than `docs/**` of its neighbour.
pub fn allowed(json_text: &str, root: &Path, cwd: &Path) -> Vec<String> {
    let projects = projects(json_text);
    let mut rules = rules_of(&projects, root);
    if cwd != root {
        rules.retain(|r| !is_relative(r));
        rules.extend(rules_of(&projects, cwd).into_iter().filter(|r| is_relative(r)));
    }
    rules
}

/// The text with one more rule of a project, given in one of its directories; none when there is
/// nothing to be remembered. What names a place outside the project by its absolute path holds for
/// its session only.
pub fn with_allowed(json_text: &str, root: &Path, cwd: &Path, rule: &str) -> Option<String> {
    let outside = rule.split_once('(').is_some_and(|(_, pattern)| pattern.starts_with('/'));
    let dir = if is_relative(rule) { cwd } else { root };
    let known = rules_of(&projects(json_text), dir);
    if outside || known.len() >= MAX || known.iter().any(|r| r == rule) {
        return None;
    }
    let mut projects = projects(json_text);
    let rules: Vec<Value> = known.into_iter().chain([rule.to_owned()]).map(Value::String).collect();
    projects.insert(trust_key(dir), Value::Array(rules));
    // One project per line. Written by hand because pretty-printing can fail, and this cannot.
    let rows: Vec<String> = projects.iter().map(|(k, v)| format!("  {}: {v}", Value::from(k.as_str()))).collect();
    Some(format!("{{\n{}\n}}\n", rows.join(",\n")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_are_kept_by_project_once_and_only_those_that_stay_inside() {
        let (root, other) = (Path::new("/r"), Path::new("/o"));
        let with = |text: &str, root, rule| with_allowed(text, root, root, rule);
        let allowed_in = |text: &str, root| allowed(text, root, root);
        let text = with("", root, "bash(git status*)").unwrap();
        assert_eq!(text, "{\n  \"/r\": [\"bash(git status*)\"]\n}\n");
        assert_eq!(with(&text, root, "bash(git status*)"), None);
        assert_eq!(with(&text, root, "write(/etc/hosts)"), None);
        let text = with(&text, root, "write(src/**)").unwrap();
        let text = with(&text, other, "mcp__x__y").unwrap();
        assert_eq!(allowed_in(&text, root), ["bash(git status*)", "write(src/**)"]);
        assert_eq!(allowed_in(&text, other), ["mcp__x__y"]);
        assert!(allowed_in(&text, Path::new("/r/sub")).is_empty());
        for broken in ["", "[", "[1]", "{\"/r\": 7}", "{\"/r\": [7, null]}"] {
            assert!(allowed_in(broken, root).is_empty());
            assert_eq!(allowed_in(&with(broken, root, "bash(ls*)").unwrap(), root), ["bash(ls*)"]);
        }
    }

    #[test]
    fn what_counts_from_a_directory_holds_there_only() {
        let (root, a, b) = (Path::new("/r"), Path::new("/r/a"), Path::new("/r/b"));
        let mut text = String::new();
        for rule in ["write(docs/**)", "bash(./check.sh*)", "bash(tools/x*)", "bash(git status*)", "mcp__x__y"] {
            text = with_allowed(&text, root, a, rule).unwrap();
        }
        let everywhere = ["bash(git status*)", "mcp__x__y"];
        assert_eq!(allowed(&text, root, root), everywhere);
        assert_eq!(allowed(&text, root, b), everywhere);
        let here: Vec<String> = allowed(&text, root, a);
        assert_eq!(here[..2], everywhere);
        assert_eq!(here[2..], ["write(docs/**)", "bash(./check.sh*)", "bash(tools/x*)"]);
        // Those of the top are not those of a directory below it.
        let text = with_allowed(&text, root, root, "write(docs/**)").unwrap();
        assert_eq!(allowed(&text, root, b), everywhere);
        assert_eq!(allowed(&text, root, root).len(), 3);
    }
}
