//! Which projects are trusted: a list of project roots, as text.
//!
//! Owns the form of `trusted.json`. Reads and writes nothing: the store owns the bytes. Trust
//! stands outside the project, so that no checkout can grant it to itself.

use serde_json::Value;
use std::path::Path;

/// How a project root (canonical) stands in the list. A path that is not UTF-8 stands as its
/// bytes in hex, so that two such paths are never taken for each other.
pub fn trust_key(root: &Path) -> String {
    // Without a trailing slash, whoever wrote it.
    let root: std::path::PathBuf = root.components().collect();
    match root.to_str() {
        Some(text) => text.to_owned(),
        None => {
            let hex: String = root.as_os_str().as_encoded_bytes().iter().map(|b| format!("{b:02x}")).collect();
            format!("bytes:{hex}")
        }
    }
}

/// The list; anything but a JSON array is an empty one, which trusts nothing.
fn list(json_text: &str) -> Vec<Value> {
    match serde_json::from_str(json_text) {
        Ok(Value::Array(list)) => list,
        _ => Vec::new(),
    }
}

/// Whether the list has this root (canonical). A directory below a trusted root is another project.
pub fn is_trusted(json_text: &str, root: &Path) -> bool {
    let key = trust_key(root);
    list(json_text).iter().any(|v| *v == key)
}

/// The list with this root (canonical) in it.
pub fn with_trusted(json_text: &str, root: &Path) -> String {
    let key = trust_key(root);
    let mut list = list(json_text);
    if !list.iter().any(|v| *v == key) {
        list.push(Value::String(key));
    }
    // One root per line. Written by hand because pretty-printing can fail, and this cannot.
    let rows: Vec<String> = list.iter().map(|v| format!("  {v}")).collect();
    format!("[\n{}\n]\n", rows.join(",\n"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ffi::OsStr;
    use std::os::unix::ffi::OsStrExt as _;

    #[test]
    fn a_root_is_trusted_once_it_is_in_the_list_and_only_it() {
        let root = Path::new("/r/a \"b\"");
        let text = with_trusted("", root);
        assert!(is_trusted(&text, root) && is_trusted(&text, Path::new("/r/a \"b\"/")));
        assert!(!is_trusted(&text, Path::new("/r")) && !is_trusted(&text, &root.join("sub")));
        assert_eq!(with_trusted(&text, root), text);
        let both = with_trusted(&text, Path::new("/other"));
        assert_eq!(both, "[\n  \"/r/a \\\"b\\\"\",\n  \"/other\"\n]\n");
    }

    #[test]
    fn a_broken_list_trusts_nothing_and_strange_members_stay() {
        for text in ["", "{", "{\"/r\":true}", "\"/r\"", "[[\"/r\"]]", "null"] {
            assert!(!is_trusted(text, Path::new("/r")), "{text}");
            assert!(is_trusted(&with_trusted(text, Path::new("/r")), Path::new("/r")), "{text}");
        }
        assert!(with_trusted("[{\"a\":1}]", Path::new("/r")).contains("{\"a\":1}"));
    }

    #[test]
    fn paths_that_are_not_utf8_are_told_apart() {
        let (a, b) = (Path::new(OsStr::from_bytes(b"/r/\xff")), Path::new(OsStr::from_bytes(b"/r/\xfe")));
        let text = with_trusted("[]", a);
        assert!(is_trusted(&text, a) && !is_trusted(&text, b));
    }
}
