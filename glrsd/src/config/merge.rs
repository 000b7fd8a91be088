//! Merging checked values: JSON Merge Patch, united lists, and who said what.
//!
//! Owns the order "nearest wins" and the origin of each value. Values given to it fit the table of
//! keys. Must not know files.

use super::keys::{Key, Kind, ROOT};
use serde_json::{Map, Value};
use std::collections::BTreeMap;

/// What the layers so far came to.
#[derive(Default)]
pub(super) struct Merged {
    /// The values that were set.
    pub values: Map<String, Value>,
    /// Who set each leaf.
    pub from: BTreeMap<Vec<String>, Vec<String>>,
}

impl Merged {
    /// Puts a nearer layer on top.
    pub fn apply(&mut self, layer: Map<String, Value>, source: &str) {
        let mut patch = Patch { from: &mut self.from, source, path: Vec::new() };
        patch.object(&mut self.values, layer, Some(&ROOT));
    }
}

struct Patch<'a> {
    from: &'a mut BTreeMap<Vec<String>, Vec<String>>,
    source: &'a str,
    path: Vec<String>,
}

impl Patch<'_> {
    fn object(&mut self, target: &mut Map<String, Value>, patch: Map<String, Value>, key: Option<&Key>) {
        for (name, value) in patch {
            let child = key.and_then(|k| k.child(&name));
            self.path.push(name.clone());
            self.member(target, name, value, child);
            self.path.pop();
        }
    }

    fn member(&mut self, target: &mut Map<String, Value>, name: String, value: Value, key: Option<&Key>) {
        match value {
            Value::Null => {
                target.remove(&name);
                self.forget();
            }
            Value::Object(patch) => {
                if !target.get(&name).is_some_and(Value::is_object) {
                    self.forget();
                    target.insert(name.clone(), Value::Object(Map::new()));
                }
                if patch.is_empty() {
                    self.from.entry(self.path.clone()).or_insert_with(|| vec![self.source.to_owned()]);
                }
                if let Some(Value::Object(inner)) = target.get_mut(&name) {
                    self.object(inner, patch, key);
                }
            }
            Value::Array(new) if key.is_some_and(|k| matches!(k.kind, Kind::Texts(_, true))) => {
                let list = target.entry(name).or_insert_with(|| Value::Array(Vec::new()));
                let Value::Array(list) = list else { return };
                let before = list.len();
                for item in new {
                    if !list.contains(&item) {
                        list.push(item);
                    }
                }
                if list.len() > before {
                    self.from.entry(self.path.clone()).or_default().push(self.source.to_owned());
                }
            }
            leaf => {
                self.forget();
                self.from.insert(self.path.clone(), vec![self.source.to_owned()]);
                target.insert(name, leaf);
            }
        }
    }

    /// Forgets who set anything at or below the path: it is gone.
    fn forget(&mut self) {
        let gone: Vec<_> = self
            .from
            .range(self.path.clone()..)
            .map(|(k, _)| k)
            .take_while(|k| k.starts_with(&self.path))
            .cloned()
            .collect();
        for key in gone {
            self.from.remove(&key);
        }
    }
}
