//! The JSON Schema of a configuration file, from the table of keys.
//!
//! Owns nothing: kinds and meanings come from the table, defaults from `Config::default()`.

use super::keys::{Key, Kind, ROOT};
use super::{Config, Retention};
use serde_json::{Map, Value, json};

/// JSON Schema (draft 2020-12) of a configuration file.
pub fn schema() -> Value {
    // Both always have a JSON form; without one the schema would only lack its defaults.
    let mut defaults = serde_json::to_value(Config::default()).unwrap_or_default();
    // Off by default, and these once it is on.
    defaults["retention"] = serde_json::to_value(Retention::default()).unwrap_or_default();
    let mut schema = of(&ROOT, Some(&defaults));
    schema["type"] = json!("object");
    let mut out = Map::new();
    out.insert("$schema".to_owned(), json!("https://json-schema.org/draft/2020-12/schema"));
    out.insert("title".to_owned(), json!("glrs configuration"));
    if let Value::Object(rest) = schema {
        out.extend(rest);
    }
    Value::Object(out)
}

/// A key's schema. Every key may be null, which deletes what a lower file set.
fn of(key: &Key, default: Option<&Value>) -> Value {
    let mut schema = match key.kind {
        Kind::Flag => json!({"type": ["boolean", "null"]}),
        Kind::Whole(min, max) => json!({"type": ["integer", "null"], "minimum": min, "maximum": max}),
        Kind::Number(f64::MAX, _) => json!({"type": ["number", "null"], "minimum": 0}),
        Kind::Number(end, true) => json!({"type": ["number", "null"], "minimum": 0, "maximum": end}),
        Kind::Number(end, false) => json!({"type": ["number", "null"], "minimum": 0, "exclusiveMaximum": end}),
        Kind::Text(form) => match form.pattern() {
            Some(pattern) => json!({"type": ["string", "null"], "pattern": pattern}),
            None => json!({"type": ["string", "null"]}),
        },
        Kind::Choice(words) => {
            let words: Vec<Value> = words.iter().map(|w| json!(w)).chain([Value::Null]).collect();
            json!({"enum": words})
        }
        Kind::Texts(form, _) => {
            let mut items = json!({"type": "string"});
            if let Some(pattern) = form.pattern() {
                items["pattern"] = json!(pattern);
            }
            json!({"type": ["array", "null"], "items": items})
        }
        Kind::Object(keys, open) => {
            let properties: Map<String, Value> =
                keys.iter().map(|k| (k.name.to_owned(), of(k, default.and_then(|d| d.get(k.name))))).collect();
            json!({"type": ["object", "null"], "properties": properties, "additionalProperties": open})
        }
        Kind::Switch(keys) => {
            let properties: Map<String, Value> = keys.iter().map(|k| (k.name.to_owned(), of(k, None))).collect();
            json!({"type": ["boolean", "object", "null"], "properties": properties, "additionalProperties": false})
        }
        Kind::Map(names, value) => {
            let mut schema = json!({"type": ["object", "null"], "additionalProperties": of(value, None)});
            if let Some(pattern) = names.pattern() {
                schema["propertyNames"] = json!({"pattern": pattern});
            }
            schema
        }
        Kind::Anything => json!({"type": ["object", "null"]}),
    };
    schema["description"] = json!(key.doc);
    // An object's defaults stand at its keys.
    let leaf = !matches!(key.kind, Kind::Object(..));
    if let Some(default) = default.filter(|d| leaf && !d.is_null()) {
        schema["default"] = default.clone();
    }
    schema
}

#[cfg(test)]
mod tests {
    use super::super::check::check;
    use super::super::keys::Form;
    use super::super::random::likely_json;
    use super::*;
    use proptest::prelude::*;

    const FORMS: [Form; 9] = [
        Form::Any,
        Form::Free,
        Form::Model,
        Form::Url,
        Form::EnvName,
        Form::Id,
        Form::File,
        Form::HeaderName,
        Form::HeaderValue,
    ];

    /// The defaults a schema names, as an object, and the leaves it knows.
    fn defaults(schema: &Value, leaves: &mut Vec<String>, path: &str) -> Value {
        // A switch is a leaf, whatever it may have in it.
        let switch = schema["type"].as_array().is_some_and(|t| t.iter().any(|t| t == "boolean"));
        match schema.get("properties").filter(|_| !switch).and_then(Value::as_object) {
            Some(properties) => Value::Object(
                properties
                    .iter()
                    .map(|(k, s)| (k.clone(), defaults(s, leaves, &format!("{path}/{k}"))))
                    .filter(|(_, v)| !v.is_null())
                    .collect(),
            ),
            None => {
                leaves.push(path.to_owned());
                schema.get("default").cloned().unwrap_or_default()
            }
        }
    }

    #[test]
    fn defaults_are_those_of_config_and_no_key_is_missing() {
        let mut leaves = Vec::new();
        let mut named = defaults(&schema(), &mut leaves, "");
        assert_eq!(named["retention"], serde_json::to_value(Retention::default()).unwrap());
        named.as_object_mut().unwrap().remove("retention");
        assert_eq!(serde_json::from_value::<Config>(named.clone()).unwrap(), Config::default());

        let config = Config { retention: Some(Retention::default()), ..Config::default() };
        let config = serde_json::to_value(&config).unwrap();
        for leaf in &leaves {
            assert!(leaf == "/$schema" || config.pointer(leaf).is_some(), "{leaf} is in the table only");
            let default = named.pointer(leaf).cloned().unwrap_or_default();
            if leaf != "/$schema" && !leaf.starts_with("/retention") {
                assert_eq!(&default, config.pointer(leaf).unwrap(), "{leaf}");
            }
        }
        fn known(value: &Value, path: &str, leaves: &[String]) {
            match value.as_object().filter(|_| !leaves.iter().any(|l| l == path)) {
                Some(map) => map.iter().for_each(|(k, v)| known(v, &format!("{path}/{k}"), leaves)),
                None => assert!(leaves.iter().any(|l| l == path), "{path} is in Config only"),
            }
        }
        known(&config, "", &leaves);
    }

    /// As much of JSON Schema as ours uses.
    fn valid(schema: &Value, value: &Value) -> bool {
        let fits =
            |pattern: &Value, text: &str| FORMS.iter().find(|f| f.pattern() == pattern.as_str()).unwrap().fits(text);
        let is = |name: &str| match value {
            Value::Null => name == "null",
            Value::Bool(_) => name == "boolean",
            Value::Number(n) => name == "number" || (name == "integer" && n.as_f64().is_some_and(|n| n.fract() == 0.0)),
            Value::String(_) => name == "string",
            Value::Array(_) => name == "array",
            Value::Object(_) => name == "object",
        };
        let typed = match &schema["type"] {
            Value::String(name) => is(name),
            Value::Array(names) => names.iter().any(|n| is(n.as_str().unwrap())),
            _ => true,
        };
        let number = value.as_f64();
        let bound = |name: &str, holds: fn(f64, f64) -> bool| match (number, schema[name].as_f64()) {
            (Some(n), Some(end)) => holds(n, end),
            _ => true,
        };
        typed
            && schema["enum"].as_array().is_none_or(|words| words.contains(value))
            && bound("minimum", |n, end| n >= end)
            && bound("maximum", |n, end| n <= end)
            && bound("exclusiveMaximum", |n, end| n < end)
            && value.as_str().is_none_or(|t| schema["pattern"].is_null() || fits(&schema["pattern"], t))
            && value
                .as_array()
                .is_none_or(|l| schema["items"].is_null() || l.iter().all(|v| valid(&schema["items"], v)))
            && value.as_object().is_none_or(|map| {
                map.iter().all(|(name, v)| {
                    let names = &schema["propertyNames"]["pattern"];
                    (names.is_null() || fits(names, name))
                        && match (schema["properties"].get(name), &schema["additionalProperties"]) {
                            (Some(property), _) => valid(property, v),
                            (None, Value::Bool(false)) => false,
                            (None, Value::Bool(true) | Value::Null) => true,
                            (None, other) => valid(other, v),
                        }
                })
            })
    }

    /// Whether check and schema agree on a file.
    fn agree(content: &Value) -> bool {
        static SCHEMA: std::sync::LazyLock<Value> = std::sync::LazyLock::new(schema);
        valid(&SCHEMA, content) == check("f", true, &ROOT, content.clone(), &Map::new()).notices.is_empty()
    }

    /// Puts each sample at each key of the table, alone in a file.
    fn each(key: &Key, wrap: &dyn Fn(Value) -> Value, tried: &mut usize) {
        let samples = json!([
            null, true, -1, -0.1, 0, 0.5, 0.999, 1, 1.001, 2, 12.0, 525_600, 525_601, 1_000_000, 1_000_001, i32::MAX,
            2_147_483_648_u64, 9_007_199_254_740_991_u64, 9_007_199_254_740_992_u64, 1e300, "", " ", "a/b", "http://h/v1",
            "KEY", "sk-1", "all", "edits", "openai", "stdio", "x\ny", [], ["a"], [" "], [1], {}, {"a": "b"}, {"a/b": {}},
            {"a": 1}, {"": []},
        ]);
        for sample in samples.as_array().unwrap() {
            let content = wrap(sample.clone());
            assert!(agree(&content), "{content}");
            *tried += 1;
        }
        let children = match key.kind {
            Kind::Object(keys, _) => keys,
            Kind::Map(_, value) => std::slice::from_ref(value),
            _ => return,
        };
        for child in children {
            let name = if child.name.starts_with('<') { "x" } else { child.name };
            each(child, &|value| wrap(json!({ name: value })), tried);
        }
    }

    #[test]
    fn schema_and_check_agree_at_every_key() {
        let Kind::Object(keys, _) = ROOT.kind else { unreachable!() };
        let mut tried = 0;
        for key in keys {
            each(key, &|value| json!({ key.name: value }), &mut tried);
        }
        assert!(tried > 2000, "{tried}");
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(200) })]

        #[test]
        fn the_schema_accepts_exactly_what_the_check_does(content in likely_json()) {
            prop_assert!(agree(&content));
        }
    }

    #[test]
    fn patterns_say_what_the_forms_check() {
        use proptest::strategy::ValueTree as _;
        let mut runner = proptest::test_runner::TestRunner::deterministic();
        for form in FORMS {
            // A URL's host has rules no pattern can tell; the others are the same both ways.
            let Some(pattern) = form.pattern().filter(|_| form != Form::Url) else { continue };
            let bare = pattern.trim_start_matches('^').trim_end_matches('$').replace("\\u00", "\\x");
            let texts = proptest::string::string_regex(&bare).unwrap();
            for _ in 0..200 {
                let text = texts.new_tree(&mut runner).unwrap().current();
                assert!(form.fits(&text), "{form:?} {text:?}");
            }
        }
        let wrong = [
            (Form::Any, " "),
            (Form::Model, "gpt"),
            (Form::Model, "/gpt"),
            (Form::Model, "a b/c"),
            (Form::Url, "ftp://h"),
            (Form::Url, "http://"),
            (Form::Url, "localhost:1"),
            (Form::EnvName, "sk-1"),
            (Form::EnvName, "1A"),
            (Form::EnvName, ""),
            (Form::File, "sk-1"),
            (Form::File, "~/"),
            (Form::Id, "a/b"),
            (Form::HeaderName, "a b"),
            (Form::HeaderValue, "a\r\nb"),
        ];
        for (form, text) in wrong {
            assert!(!form.fits(text), "{form:?} {text:?}");
        }
        assert!(Form::Url.fits("http://127.0.0.1:8080/v1") && Form::Model.fits("openrouter/a/b:free"));
    }
}
