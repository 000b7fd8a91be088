//! Checking one file's values against the table of keys.
//!
//! Owns the notices about wrong keys and values, and what an untrusted project may not set. What
//! it lets through fits the table. Must not know where files lie or how they are merged.

use super::keys::{Form, Gate, Key, Kind, ROOT, Show};
use serde_json::{Map, Value};

/// Most notices about one file: one that is wrong all over is not worth a thousand lines.
const MAX_NOTICES: usize = 50;

/// A check of one file.
pub(super) struct Check<'a> {
    file: &'a str,
    trusted: bool,
    path: Vec<String>,
    notices: Vec<String>,
    untrusted: Vec<String>,
}

/// What a check came to.
pub(super) struct Checked {
    /// What fits.
    pub values: Map<String, Value>,
    /// What was wrong.
    pub notices: Vec<String>,
    /// Keys that wait for trust.
    pub untrusted: Vec<String>,
}

/// Checks a file's content. `lower` is what the files below it came to; `trusted` whether it may
/// set everything.
pub(super) fn check(file: &str, trusted: bool, key: &Key, content: Value, lower: &Map<String, Value>) -> Checked {
    let mut check = Check { file, trusted, path: Vec::new(), notices: Vec::new(), untrusted: Vec::new() };
    let values = match (content, key.kind) {
        (Value::Object(map), Kind::Object(keys, open)) => check.object(keys, open, map, Some(lower)),
        (other, _) => {
            check
                .notices
                .push(format!("{file}: expected a JSON object, found {}; ignored", found(&other, Show::Plain)));
            Map::new()
        }
    };
    let mut notices = check.notices;
    if notices.len() > MAX_NOTICES {
        let more = notices.len() - MAX_NOTICES;
        notices.truncate(MAX_NOTICES);
        notices.push(format!("{file}: {more} more wrong keys or values; ignored"));
    }
    Checked { values, notices, untrusted: check.untrusted }
}

impl Check<'_> {
    fn notice(&mut self, text: impl std::fmt::Display) {
        self.notices.push(format!("{}: {}: {text}; ignored", self.file, dotted(&self.path)));
    }

    fn wrong(&mut self, expected: impl std::fmt::Display, value: &Value, show: Show) {
        self.notice(format_args!("expected {expected}, found {}", found(value, show)));
    }

    fn object(
        &mut self,
        keys: &[Key],
        open: bool,
        map: Map<String, Value>,
        lower: Option<&Map<String, Value>>,
    ) -> Map<String, Value> {
        let mut out = Map::new();
        for (name, value) in map {
            self.path.push(name);
            let name = self.path.last().cloned().unwrap_or_default();
            match keys.iter().find(|k| k.name == name) {
                Some(key) => {
                    if let Some(value) = self.value(key, value, lower.and_then(|l| l.get(&name))) {
                        // The one key that is for editors, not for us.
                        if name != "$schema" {
                            out.insert(name, value);
                        }
                    }
                }
                None if open => {}
                None => self.unknown(keys, &name),
            }
            self.path.pop();
        }
        out
    }

    fn unknown(&mut self, keys: &[Key], name: &str) {
        match suggestion(keys, name) {
            Some(known) => self.notice(format_args!("unknown key, did you mean {known}?")),
            None => {
                let known: Vec<&str> = keys.iter().map(|k| k.name).filter(|n| *n != "$schema").collect();
                self.notice(format_args!("unknown key, expected one of {}", known.join(", ")));
            }
        }
    }

    fn value(&mut self, key: &Key, value: Value, lower: Option<&Value>) -> Option<Value> {
        if !self.trusted {
            if let Some(why) = key.refusal(&value, lower) {
                self.untrusted.push(dotted(&self.path));
                self.notice(format_args!("waits until this project is trusted: {why}"));
                return None;
            }
            // Deleting what is not there: nothing to refuse, nothing to do.
            if value.is_null() && matches!(key.gate, Gate::Always(_) | Gate::Lowering(_)) {
                return None;
            }
        }
        if value.is_null() {
            return Some(Value::Null);
        }
        match (key.kind, value) {
            (Kind::Object(keys, open), Value::Object(map)) => {
                Some(Value::Object(self.object(keys, open, map, lower.and_then(Value::as_object))))
            }
            (Kind::Switch(keys), Value::Object(map)) => {
                Some(Value::Object(self.object(keys, false, map, lower.and_then(Value::as_object))))
            }
            (Kind::Map(names, child), Value::Object(map)) => {
                Some(Value::Object(self.map(names, child, map, lower.and_then(Value::as_object))))
            }
            (Kind::Texts(form, _), Value::Array(list)) => Some(Value::Array(self.texts(form, list, key.show))),
            (Kind::Whole(min, max), Value::Number(number)) => match whole(&number) {
                Some(n) if (min..=max).contains(&n) => Some(Value::from(n)),
                _ => {
                    self.wrong(expected(key.kind), &Value::Number(number), key.show);
                    None
                }
            },
            (kind, value) if fits(kind, &value) => Some(value),
            (kind, value) => {
                self.wrong(expected(kind), &value, key.show);
                None
            }
        }
    }

    fn map(
        &mut self,
        names: Form,
        child: &Key,
        map: Map<String, Value>,
        lower: Option<&Map<String, Value>>,
    ) -> Map<String, Value> {
        let mut out = Map::new();
        for (name, value) in map {
            self.path.push(name.clone());
            if names.fits(&name) {
                if let Some(value) = self.value(child, value, lower.and_then(|l| l.get(&name))) {
                    out.insert(name, value);
                }
            } else {
                self.notice(format_args!("the name has to be {}", names.expected()));
            }
            self.path.pop();
        }
        out
    }

    fn texts(&mut self, form: Form, list: Vec<Value>, show: Show) -> Vec<Value> {
        let mut out: Vec<Value> = Vec::new();
        for (at, value) in list.into_iter().enumerate() {
            if value.as_str().is_some_and(|text| form.fits(text)) {
                out.push(value);
            } else {
                self.path.push(at.to_string());
                self.wrong(form.expected(), &value, show);
                self.path.pop();
            }
        }
        out
    }
}

fn fits(kind: Kind, value: &Value) -> bool {
    match (kind, value) {
        (Kind::Flag | Kind::Switch(_), Value::Bool(_)) | (Kind::Anything, Value::Object(_)) => true,
        (Kind::Number(end, included), Value::Number(number)) => {
            number.as_f64().is_some_and(|n| n >= 0.0 && (n < end || (included && n <= end)))
        }
        (Kind::Text(form), Value::String(text)) => form.fits(text),
        (Kind::Choice(words), Value::String(text)) => words.contains(&text.as_str()),
        _ => false,
    }
}

/// A number without fraction; `12.0` is one.
fn whole(number: &serde_json::Number) -> Option<u64> {
    number.as_u64().or_else(|| {
        let n = number.as_f64()?;
        // Above 2^53 a float no longer says which whole number was meant.
        (n.fract() == 0.0 && (0.0..=9_007_199_254_740_991.0).contains(&n)).then_some(n as u64)
    })
}

/// What a kind expects, in words.
pub(super) fn expected(kind: Kind) -> String {
    match kind {
        Kind::Flag => "true or false".to_owned(),
        Kind::Whole(min, max) => format!("a whole number from {min} to {max}"),
        Kind::Number(end, false) => format!("a number from 0 to below {end}"),
        Kind::Number(f64::MAX, true) => "a number of at least 0".to_owned(),
        Kind::Number(end, true) => format!("a number from 0 to {end}"),
        Kind::Text(form) => form.expected().to_owned(),
        Kind::Choice(words) => words.iter().map(|w| format!("\"{w}\"")).collect::<Vec<_>>().join(" or "),
        Kind::Switch(_) => "true, false or an object".to_owned(),
        Kind::Texts(..) => "a list of texts".to_owned(),
        Kind::Object(..) | Kind::Map(..) | Kind::Anything => "an object".to_owned(),
    }
}

/// What was found instead, short, and never a secret: a text that is out of place may be one.
fn found(value: &Value, show: Show) -> String {
    match value {
        Value::Null => "null".to_owned(),
        Value::Number(_) if show != Show::Plain => "a number".to_owned(),
        Value::Bool(_) | Value::Number(_) => value.to_string(),
        Value::String(text) if text.trim().is_empty() => "a blank text".to_owned(),
        Value::String(text) if show == Show::Plain && text.len() <= 24 && !text.chars().any(hidden) => {
            value.to_string()
        }
        Value::String(_) => "a text".to_owned(),
        Value::Array(_) => "a list".to_owned(),
        Value::Object(_) => "an object".to_owned(),
    }
}

/// Whether a terminal might act on a character instead of showing it.
fn hidden(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{feff}')
}

/// A text with what a terminal might act on escaped.
pub(super) fn plain(text: &str) -> String {
    text.chars().map(|c| if hidden(c) { c.escape_unicode().to_string() } else { c.to_string() }).collect()
}

/// A path of keys as text. A name that has a dot in it (model ids do) or looks odd is quoted, one
/// that is no name at all is cut.
pub(super) fn dotted(path: &[String]) -> String {
    let bare = |c: char| !hidden(c) && !c.is_whitespace() && !matches!(c, '.' | '"');
    let part = |name: &String| {
        let mut short: String = name.chars().take(64).collect();
        if short.len() < name.len() {
            short.push('…');
        }
        if !short.is_empty() && short.chars().all(bare) { short } else { plain(&Value::from(short).to_string()) }
    };
    path.iter().map(part).collect::<Vec<_>>().join(".")
}

/// The name without what people vary: case, `_`, `-`.
fn squeezed(name: &str) -> String {
    name.chars().filter(|c| !matches!(c, '_' | '-' | '.')).flat_map(char::to_lowercase).collect()
}

/// The known key nearest to a wrong one: a sibling within a few letters, else the same name
/// elsewhere in the table.
fn suggestion(siblings: &[Key], name: &str) -> Option<String> {
    // A name this long is no typing error, and the distance costs its square.
    if name.len() > 40 {
        return None;
    }
    let wanted = squeezed(name);
    let near = siblings
        .iter()
        .filter(|key| key.name != "$schema")
        .map(|key| (distance(&squeezed(key.name), &wanted), key.name))
        .min()
        .filter(|(far, known)| *far <= known.len().min(wanted.len()).div_ceil(3))
        .map(|(_, known)| known.to_owned());
    near.or_else(|| elsewhere(&ROOT, "", &wanted))
}

/// The path of a key below `key` that has this squeezed name, or is spelled as this squeezed path.
fn elsewhere(key: &Key, prefix: &str, wanted: &str) -> Option<String> {
    let children: &[Key] = match key.kind {
        Kind::Object(keys, _) | Kind::Switch(keys) => keys,
        Kind::Map(_, value) => std::slice::from_ref(value),
        _ => return None,
    };
    let path = |child: &Key| if prefix.is_empty() { child.name.to_owned() } else { format!("{prefix}.{}", child.name) };
    let here = children.iter().map(path).zip(children).find(|(path, child)| {
        !child.name.starts_with('<') && (squeezed(child.name) == wanted || squeezed(path) == wanted)
    });
    here.map(|(path, _)| path).or_else(|| children.iter().find_map(|child| elsewhere(child, &path(child), wanted)))
}

/// Edit distance (insert, delete, replace).
fn distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.chars().enumerate() {
        let mut corner = i;
        let mut left = i + 1;
        row[0] = left;
        for (cell, y) in row[1..].iter_mut().zip(&b) {
            let best = (corner + usize::from(x != *y)).min(left + 1).min(*cell + 1);
            corner = std::mem::replace(cell, best);
            left = best;
        }
    }
    row[b.len()]
}
