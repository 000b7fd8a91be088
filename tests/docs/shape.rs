//! Whether an answer is what a document shows.
//!
//! Owns the reading of documented values: `<name>` is any text, the same one everywhere; `…` at the
//! end of a text or a list means that it goes on; times and numbers are examples. Everything else,
//! the set of an object's keys included, has to be exactly as shown.

use glrs_tests::Value;
use std::collections::BTreeMap;

/// What the names stand for, as far as it is known.
pub type Names = BTreeMap<String, String>;

/// A piece of a documented text.
#[derive(Debug, PartialEq)]
enum Part<'a> {
    Plain(&'a str),
    Name(&'a str),
    Rest,
}

fn parts(text: &str) -> Vec<Part<'_>> {
    let mut out = Vec::new();
    let (mut rest, open) = match text.strip_suffix('…') {
        Some(t) => (t, true),
        None => (text, false),
    };
    let is_name =
        |n: &str| !n.is_empty() && n.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-');
    let mut from = 0;
    while let Some(at) = rest[from..].find('<').map(|i| i + from) {
        match rest[at + 1..].split_once('>') {
            Some((name, after)) if is_name(name) => {
                out.extend((at > 0).then_some(Part::Plain(&rest[..at])));
                out.push(Part::Name(name));
                (rest, from) = (after, 0);
            }
            _ => from = at + 1,
        }
    }
    out.extend((!rest.is_empty()).then_some(Part::Plain(rest)));
    out.extend(open.then_some(Part::Rest));
    out
}

/// `text` with the known names replaced.
pub fn fill(text: &str, names: &Names) -> String {
    let known = |p: &Part<'_>| match p {
        Part::Plain(t) => (*t).to_owned(),
        Part::Name(n) => names.get(*n).cloned().unwrap_or_else(|| format!("<{n}>")),
        Part::Rest => "…".to_owned(),
    };
    parts(text).iter().map(known).collect()
}

/// Whether a text is as shown. Learns what names stand for.
pub fn text_fits(shown: &str, got: &str, names: &mut Names) -> bool {
    let parts = parts(shown);
    let mut rest = got;
    for (i, part) in parts.iter().enumerate() {
        match part {
            Part::Rest => return true,
            Part::Plain(t) => match rest.strip_prefix(t) {
                Some(after) => rest = after,
                None => return false,
            },
            Part::Name(name) => {
                let known = names.get(*name).cloned();
                let value = known.unwrap_or_else(|| match parts.get(i + 1) {
                    Some(Part::Plain(next)) => rest.find(next).map_or(String::new(), |at| rest[..at].to_owned()),
                    _ => rest.to_owned(),
                });
                match rest.strip_prefix(value.as_str()) {
                    Some(after) if !value.is_empty() => rest = after,
                    _ => return false,
                }
                names.insert((*name).to_owned(), value);
            }
        }
    }
    rest.is_empty()
}

/// `2026-11-30T15:38:04.714Z`
fn is_time(text: &str) -> bool {
    let form: String = text.chars().map(|c| if c.is_ascii_digit() { '0' } else { c }).collect();
    form == "0000-00-00T00:00:00.000Z"
}

/// Whether a value is as shown. Learns names.
///
/// # Errors
/// Where it differs first, and how.
pub fn fits(shown: &Value, got: &Value, names: &mut Names) -> Result<(), String> {
    compare(shown, got, names, "", true)
}

/// The same, but objects may have fields more or less.
pub fn resembles(shown: &Value, got: &Value, names: &mut Names) -> Result<(), String> {
    compare(shown, got, names, "", false)
}

fn compare(shown: &Value, got: &Value, names: &mut Names, at: &str, strict: bool) -> Result<(), String> {
    let differs = || Err(format!("{at}: the document has {shown}, the daemon {got}"));
    match (shown, got) {
        (Value::Object(a), Value::Object(b)) => {
            let (mut want, mut have): (Vec<_>, Vec<_>) = (a.keys().collect(), b.keys().collect());
            want.sort();
            have.sort();
            if strict && want != have {
                return Err(format!("{at}: the document has the fields {want:?}, the daemon {have:?}"));
            }
            let mut both = a.iter().filter_map(|(k, v)| Some((k, v, b.get(k)?)));
            both.try_for_each(|(k, v, g)| compare(v, g, names, &format!("{at}.{k}"), strict))
        }
        (Value::Array(a), Value::Array(b)) if a.last().is_some_and(|l| l == "…") => {
            for (i, v) in a[..a.len() - 1].iter().enumerate() {
                let mut why = Vec::new();
                let found = b.iter().find_map(|g| {
                    let mut learned = names.clone();
                    compare(v, g, &mut learned, "", strict).map_err(|e| why.push(e)).ok().map(|()| learned)
                });
                match found {
                    Some(learned) => *names = learned,
                    None => return Err(format!("{at}[{i}]: none of the daemon's {} fits: {why:?}", b.len())),
                }
            }
            Ok(())
        }
        (Value::Array(a), Value::Array(b)) if a.len() == b.len() => {
            a.iter().zip(b).enumerate().try_for_each(|(i, (v, g))| compare(v, g, names, &format!("{at}[{i}]"), strict))
        }
        (Value::Number(_), Value::Number(_)) => Ok(()),
        (Value::String(a), Value::String(b)) if is_time(a) && is_time(b) => Ok(()),
        (Value::String(a), Value::String(b)) if text_fits(a, b, names) => Ok(()),
        (Value::Bool(_) | Value::Null, _) if shown == got => Ok(()),
        _ => differs(),
    }
}

/// What a document should show: the daemon's fields, with the document's values where they still
/// fit, and names for what has one.
pub fn renewed(shown: &Value, got: &Value, names: &Names) -> Value {
    match (shown, got) {
        (Value::Object(a), Value::Object(b)) => Value::Object(
            b.iter().map(|(k, g)| (k.clone(), renewed(a.get(k).unwrap_or(&Value::Null), g, names))).collect(),
        ),
        (Value::Array(a), Value::Array(b)) if a.len() == b.len() => {
            a.iter().zip(b).map(|(v, g)| renewed(v, g, names)).collect()
        }
        (Value::Array(a), Value::Array(b)) if a.last().is_some_and(|l| l == "…") => {
            // The element that is shown, as one of the daemon's now is.
            let like = |v: &Value| {
                b.iter().find(|g| resembles(v, g, &mut names.clone()).is_ok()).map(|g| renewed(v, g, names))
            };
            a.iter().filter_map(|v| if v == "…" { Some(v.clone()) } else { like(v) }).collect()
        }
        _ if fits(shown, got, &mut names.clone()).is_ok() => shown.clone(),
        (_, Value::String(text)) => {
            let named = names
                .iter()
                .filter(|(_, v)| v.len() > 3)
                .fold(text.clone(), |t, (n, v)| t.replace(v, &format!("<{n}>")));
            Value::String(named)
        }
        (_, Value::Array(b)) => b.iter().map(|g| renewed(&Value::Null, g, names)).collect(),
        (_, Value::Object(b)) => {
            Value::Object(b.iter().map(|(k, g)| (k.clone(), renewed(&Value::Null, g, names))).collect())
        }
        _ => got.clone(),
    }
}

#[test]
fn documents_are_read_narrowly() {
    use glrs_tests::json;
    let mut names = Names::new();
    let mut ok = |shown: Value, got: Value| fits(&shown, &got, &mut names).is_ok();
    assert!(ok(json!({"id": "<a>", "n": 1}), json!({"n": 7, "id": "q"})));
    assert!(ok(json!("by <a>#<b>"), json!("by q#5")) && !ok(json!("<a>"), json!("r")));
    assert!(ok(json!("to…"), json!("together")) && !ok(json!("to"), json!("together")));
    assert!(
        ok(json!([1, "…"]), json!([2, 3])) && !ok(json!([1]), json!([2, 3])) && !ok(json!(["z", "…"]), json!(["y"]))
    );
    assert!(ok(json!("2026-11-30T15:38:04.714Z"), json!("2027-01-01T00:00:00.000Z")));
    assert!(
        !ok(json!({"a": 1}), json!({"a": 1, "b": 2})) && !ok(json!({"a": 1}), json!({})) && !ok(json!(1), json!("1"))
    );
    assert!(!ok(json!(true), json!(false)) && !ok(json!("a < b"), json!("a")) && ok(json!("a < b"), json!("a < b")));
    let new = renewed(&json!({"id": "<a>", "old": 1, "n": 5}), &json!({"id": "q", "n": 6, "x": "far"}), &names);
    assert_eq!(new, json!({"id": "<a>", "n": 5, "x": "far"}));
    assert_eq!(fill("<a> and <unknown>", &names), "q and <unknown>");
}
