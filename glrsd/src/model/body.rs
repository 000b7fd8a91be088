//! A request body whose parts keep their bytes.
//!
//! Owns: an ordered JSON object of raw values, and merging a configuration's `requestOptions` into it.
//! Raw, because what a provider signed has to go back exactly as it came. Must not know dialects.

use serde::Serialize;
use serde_json::{Map, Value};
use std::ops::Range;

/// What only the adapter may set: changing these would break the conversation or the stream.
const OURS: [&str; 8] =
    ["messages", "system", "tools", "stream", "input", "instructions", "contents", "systemInstruction"];

/// An object under construction: its fields as they are sent, and where each lies. What was set is
/// written once; a long conversation is not copied to put an object around it.
pub(crate) struct Body {
    text: Vec<u8>,
    fields: Vec<Field>,
}

struct Field {
    key: String,
    /// `"key":value`, without what separates it from others.
    all: Range<usize>,
    /// Where its value begins.
    value: usize,
}

impl Body {
    /// For a body of about so many bytes.
    pub(crate) fn with_capacity(bytes: usize) -> Self {
        let mut text = Vec::with_capacity(bytes);
        text.push(b'{');
        Self { text, fields: Vec::new() }
    }

    /// Sets a field, in the order of first setting.
    pub(crate) fn set(&mut self, key: &str, value: &impl Serialize) {
        let start = self.text.len();
        let written = match serde_json::to_writer(&mut self.text, key) {
            Ok(()) => {
                self.text.push(b':');
                let at = self.text.len();
                serde_json::to_writer(&mut self.text, value).map(|()| at)
            }
            Err(e) => Err(e),
        };
        let Ok(value) = written else { return self.text.truncate(start) };
        let all = start..self.text.len();
        self.text.push(b',');
        match self.fields.iter_mut().find(|f| f.key == key) {
            Some(old) => (old.all, old.value) = (all, value),
            None => self.fields.push(Field { key: key.to_owned(), all, value }),
        }
    }

    /// Merges options as JSON Merge Patch does: objects deep, null removes.
    pub(crate) fn merge(&mut self, options: &Map<String, Value>) {
        for (key, value) in options.iter().filter(|(k, _)| !OURS.contains(&k.as_str())) {
            if value.is_null() {
                self.fields.retain(|f| f.key != *key);
                continue;
            }
            let old = self.fields.iter().find(|f| f.key == *key);
            let old = old.and_then(|f| serde_json::from_slice(&self.text[f.value..f.all.end]).ok());
            let mut merged = old.unwrap_or(Value::Null);
            patch(&mut merged, value);
            self.set(key, &merged);
        }
    }

    /// The bytes.
    pub(crate) fn into_bytes(mut self) -> Vec<u8> {
        let mut next = 1;
        let as_written = self.fields.iter().all(|f| {
            let follows = f.all.start == next;
            next = f.all.end + 1;
            follows
        });
        if !as_written || next != self.text.len() {
            let fields: Vec<&[u8]> = self.fields.iter().map(|f| &self.text[f.all.clone()]).collect();
            return [b"{", fields.join(&b',').as_slice(), b"}"].concat();
        }
        if self.fields.is_empty() {
            self.text.push(b'}');
        } else if let Some(last) = self.text.last_mut() {
            *last = b'}';
        }
        self.text
    }
}

fn patch(target: &mut Value, change: &Value) {
    let Value::Object(change) = change else {
        *target = change.clone();
        return;
    };
    if !target.is_object() {
        *target = Value::Object(Map::new());
    }
    if let Value::Object(map) = target {
        for (key, value) in change {
            if value.is_null() {
                map.shift_remove(key);
            } else {
                patch(map.entry(key.clone()).or_insert(Value::Null), value);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn options_merge_deep_and_leave_ours_alone() {
        let body = || {
            let mut b = Body::with_capacity(0);
            b.set("stream", &true);
            b.set("thinking", &json!({"type": "enabled", "budget_tokens": 5}));
            b.set("top", &1);
            b
        };
        let got = String::from_utf8(body().into_bytes()).unwrap();
        assert_eq!(got, r#"{"stream":true,"thinking":{"type":"enabled","budget_tokens":5},"top":1}"#);
        assert_eq!(Body::with_capacity(0).into_bytes(), b"{}");
        let mut b = body();
        let options = json!({"stream": false, "thinking": {"budget_tokens": 9}, "top": null, "seed": 4});
        b.merge(options.as_object().unwrap());
        let got = String::from_utf8(b.into_bytes()).unwrap();
        assert_eq!(got, r#"{"stream":true,"thinking":{"type":"enabled","budget_tokens":9},"seed":4}"#);
        // Each way in which the fields do not lie as they are sent: replaced, and one removed at either end.
        for (options, sent) in [
            (json!({"top": 2}), r#"{"stream":true,"thinking":{"type":"enabled","budget_tokens":5},"top":2}"#),
            (json!({"top": null}), r#"{"stream":true,"thinking":{"type":"enabled","budget_tokens":5}}"#),
            (json!({"thinking": null, "top": null}), r#"{"stream":true}"#),
        ] {
            let mut b = body();
            b.merge(options.as_object().unwrap());
            assert_eq!(String::from_utf8(b.into_bytes()).unwrap(), sent);
        }
        // What cannot be written is not there at all.
        let mut b = body();
        b.set("bad", &std::collections::BTreeMap::from([((1, 2), 3)]));
        assert!(b.into_bytes().ends_with(br#""top":1}"#));
    }
}
