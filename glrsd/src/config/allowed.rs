//! Rules that "always" added, by project, as text.
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

/// The rules of a project (its root, canonical).
pub fn allowed(json_text: &str, root: &Path) -> Vec<String> {
    let rules = projects(json_text).remove(&trust_key(root));
    let rules = rules.as_ref().and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    rules.iter().filter_map(Value::as_str).map(str::to_owned).collect()
}

/// The text with one more rule of a project; none when there is nothing to be remembered. What
/// names a place outside the project by its absolute path holds for its session only.
pub fn with_allowed(json_text: &str, root: &Path, rule: &str) -> Option<String> {
    let outside = rule.split_once('(').is_some_and(|(_, pattern)| pattern.starts_with('/'));
    let known = allowed(json_text, root);
    if outside || known.len() >= MAX || known.iter().any(|r| r == rule) {
        return None;
    }
    let mut projects = projects(json_text);
    let rules: Vec<Value> = known.into_iter().chain([rule.to_owned()]).map(Value::String).collect();
    projects.insert(trust_key(root), Value::Array(rules));
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
        let text = with_allowed("", root, "bash(git status*)").unwrap();
        assert_eq!(text, "{\n  \"/r\": [\"bash(git status*)\"]\n}\n");
        assert_eq!(with_allowed(&text, root, "bash(git status*)"), None);
        assert_eq!(with_allowed(&text, root, "write(/etc/hosts)"), None);
        let text = with_allowed(&text, root, "write(src/**)").unwrap();
        let text = with_allowed(&text, other, "mcp__x__y").unwrap();
        assert_eq!(allowed(&text, root), ["bash(git status*)", "write(src/**)"]);
        assert_eq!(allowed(&text, other), ["mcp__x__y"]);
        assert!(allowed(&text, Path::new("/r/sub")).is_empty());
        for broken in ["", "[", "[1]", "{\"/r\": 7}", "{\"/r\": [7, null]}"] {
            assert!(allowed(broken, root).is_empty());
            assert_eq!(allowed(&with_allowed(broken, root, "bash(ls*)").unwrap(), root), ["bash(ls*)"]);
        }
    }
}
