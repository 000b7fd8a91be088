//! A request body whose parts keep their bytes.
//!
//! Owns: an ordered JSON object of raw values, and merging a configuration's `requestOptions` into it.
//! Raw, because what a provider signed has to go back exactly as it came. Must not know dialects.

use serde::Serialize;
use serde::ser::{SerializeMap, Serializer};
use serde_json::value::RawValue;
use serde_json::{Map, Value};

/// What only the adapter may set: changing these would break the conversation or the stream.
const OURS: [&str; 8] =
    ["messages", "system", "tools", "stream", "input", "instructions", "contents", "systemInstruction"];

/// An object under construction.
#[derive(Default)]
pub(crate) struct Body(Vec<(String, Box<RawValue>)>);

impl Body {
    /// Sets a field, in the order of first setting.
    pub(crate) fn set(&mut self, key: &str, value: &impl Serialize) {
        if let Ok(raw) = serde_json::value::to_raw_value(value) {
            match self.0.iter_mut().find(|(k, _)| k == key) {
                Some((_, old)) => *old = raw,
                None => self.0.push((key.to_owned(), raw)),
            }
        }
    }

    /// Merges options as JSON Merge Patch does: objects deep, null removes.
    pub(crate) fn merge(&mut self, options: &Map<String, Value>) {
        for (key, value) in options.iter().filter(|(k, _)| !OURS.contains(&k.as_str())) {
            if value.is_null() {
                self.0.retain(|(k, _)| k != key);
                continue;
            }
            let old = self.0.iter().find(|(k, _)| k == key).and_then(|(_, v)| serde_json::from_str(v.get()).ok());
            let mut merged = old.unwrap_or(Value::Null);
            patch(&mut merged, value);
            self.set(key, &merged);
        }
    }

    /// The bytes.
    pub(crate) fn into_bytes(self) -> Vec<u8> {
        serde_json::to_vec(&self).unwrap_or_default()
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

impl Serialize for Body {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        let mut m = s.serialize_map(Some(self.0.len()))?;
        for (k, v) in &self.0 {
            m.serialize_entry(k, v)?;
        }
        m.end()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn options_merge_deep_and_leave_ours_alone() {
        let mut b = Body::default();
        b.set("stream", &true);
        b.set("thinking", &json!({"type": "enabled", "budget_tokens": 5}));
        b.set("top", &1);
        let options = json!({"stream": false, "thinking": {"budget_tokens": 9}, "top": null, "seed": 4});
        b.merge(options.as_object().unwrap());
        let got = String::from_utf8(b.into_bytes()).unwrap();
        assert_eq!(got, r#"{"stream":true,"thinking":{"type":"enabled","budget_tokens":9},"seed":4}"#);
    }
}
