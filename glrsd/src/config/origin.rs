//! Each effective value with where it came from, safe to show.
//!
//! Owns the masking of secrets. Must not know files.

use super::check::dotted;
use super::keys::{Key, ROOT, Show};
use super::merge::Merged;
use super::{Config, Origin};
use serde_json::Value;

/// What stands for a secret.
const MASK: &str = "•••";

/// The origins of a configuration that `merged` came to.
pub(super) fn origins(config: &Config, merged: &Merged) -> Vec<Origin> {
    let mut walk = Walk { merged, path: Vec::new(), out: Vec::new() };
    // A Config is made of maps with text keys, lists and numbers: it always has a JSON form.
    if let Ok(value) = serde_json::to_value(config) {
        walk.value(&value, Some(&ROOT), Show::Plain);
    }
    walk.out
}

struct Walk<'a> {
    merged: &'a Merged,
    path: Vec<String>,
    out: Vec<Origin>,
}

impl Walk<'_> {
    fn value(&mut self, value: &Value, key: Option<&Key>, show: Show) {
        match value {
            Value::Object(map) if !map.is_empty() => {
                for (name, value) in map {
                    let child = key.and_then(|k| k.child(name));
                    self.path.push(name.clone());
                    // Below the table (request options, settings) what was said last holds on.
                    self.value(value, child, child.map_or(show, |k| k.show));
                    self.path.pop();
                }
            }
            leaf => self.leaf(leaf, show),
        }
    }

    fn leaf(&mut self, value: &Value, show: Show) {
        let from = self.merged.from.get(&self.path);
        // What nobody set in a provider or a server has no default worth a line.
        let entry = self.path.len() > 1 && matches!(self.path[0].as_str(), "providers" | "mcpServers");
        if from.is_none() && entry {
            return;
        }
        self.out.push(Origin {
            key: dotted(&self.path),
            value: shown(value, show, self.path.last().map_or("", String::as_str)),
            from: from.map_or_else(|| "default".to_owned(), |sources| sources.join(", ")),
        });
    }
}

/// A value as it may be shown.
fn shown(value: &Value, show: Show, name: &str) -> Value {
    match value {
        Value::String(text) => Value::String(masked(text, show, name)),
        Value::Array(list) => Value::Array(list.iter().map(|v| shown(v, show, name)).collect()),
        Value::Object(map) => Value::Object(map.iter().map(|(k, v)| (k.clone(), shown(v, show, k))).collect()),
        // A number or a flag may be a secret only where its name says so.
        Value::Number(_) if show == Show::ByName && says_secret(name) => Value::from(MASK),
        other => other.clone(),
    }
}

fn masked(text: &str, show: Show, name: &str) -> String {
    match show {
        Show::Plain => text.to_owned(),
        Show::Secret => MASK.to_owned(),
        Show::Command => match text.split_once(char::is_whitespace) {
            // `KEY=… program`: an assignment is not the program's name.
            _ if text.split_whitespace().next().is_none_or(|first| first.contains('=')) => MASK.to_owned(),
            Some((program, _)) if !program.is_empty() => format!("{program} {MASK}"),
            Some(_) => MASK.to_owned(),
            None => text.to_owned(),
        },
        Show::Url => url(text),
        Show::Name if looks_secret(text) && text.contains(|c: char| c.is_ascii_lowercase()) => MASK.to_owned(),
        Show::Name => text.to_owned(),
        Show::ByName if says_secret(name) || looks_secret(text) => MASK.to_owned(),
        Show::ByName => text.to_owned(),
    }
}

fn url(text: &str) -> String {
    let Ok(mut url) = reqwest::Url::parse(text) else { return MASK.to_owned() };
    if url.username().is_empty() && url.password().is_none() && url.query().is_none() && url.fragment().is_none() {
        return text.to_owned();
    }
    let user = !url.username().is_empty() || url.password().is_some();
    let query = url.query().is_some() || url.fragment().is_some();
    if url.set_username("").is_err() || url.set_password(None).is_err() {
        return MASK.to_owned();
    }
    url.set_query(None);
    url.set_fragment(None);
    let bare = url.to_string();
    let bare = if user { bare.replacen("://", &format!("://{MASK}@"), 1) } else { bare };
    if query { format!("{bare}?{MASK}") } else { bare }
}

/// Whether a name is one people give to secrets.
fn says_secret(name: &str) -> bool {
    let name = name.to_lowercase();
    ["key", "token", "secret", "password", "passwd", "auth", "credential", "cookie", "bearer", "signature"]
        .iter()
        .any(|word| name.contains(word))
}

/// Whether a text looks like a key: long, one word, letters and digits mixed.
fn looks_secret(text: &str) -> bool {
    text.len() >= 20
        && !text.contains(char::is_whitespace)
        && text.bytes().any(|b| b.is_ascii_digit())
        && text.bytes().any(|b| b.is_ascii_alphabetic())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_are_masked_and_the_rest_is_readable() {
        let table = [
            ("sk-1", Show::Secret, "x", MASK),
            ("pass show openai", Show::Command, "x", "pass •••"),
            ("./key.sh", Show::Command, "x", "./key.sh"),
            ("K=sk-1 curl", Show::Command, "x", MASK),
            (" pass sk-1", Show::Command, "x", MASK),
            ("https://api.example.com/v1", Show::Url, "x", "https://api.example.com/v1"),
            ("https://me:pw@h/v1?key=1#f", Show::Url, "x", "https://•••@h/v1?•••"),
            ("no url at all", Show::Url, "x", MASK),
            ("ANTHROPIC_API_KEY_2_FOR_WORK", Show::Name, "keyEnv", "ANTHROPIC_API_KEY_2_FOR_WORK"),
            ("sk_ant_0123456789abcdef", Show::Name, "keyEnv", MASK),
            ("high", Show::ByName, "effort", "high"),
            ("high", Show::ByName, "api_key", MASK),
            ("sk-ant-0123456789abcdef", Show::ByName, "user", MASK),
        ];
        for (text, show, name, expected) in table {
            assert_eq!(masked(text, show, name), expected, "{text}");
        }
    }
}
