//! JSON Schema as Gemini takes it: a subset of OpenAPI's.
//!
//! Owns: leaving out what is refused (`additionalProperties`, `$ref`, `const` …) and saying the same in
//! words that are taken, as far as they go. Schemas come from MCP servers too, so anything may be in
//! one. Must not know requests.

use serde_json::value::RawValue;
use serde_json::{Map, Value, json};

/// Schemas nest, and may refer to themselves; below this anything is an object.
const DEPTH_MAX: usize = 12;

/// What passes as it is.
const PLAIN: [&str; 12] = [
    "title",
    "description",
    "minItems",
    "maxItems",
    "minProperties",
    "maxProperties",
    "minimum",
    "maximum",
    "minLength",
    "maxLength",
    "pattern",
    "nullable",
];

/// The parameters of a function; none where it takes none, since an object without properties is
/// refused.
pub(super) fn parameters(schema: &RawValue) -> Option<Value> {
    let schema: Value = serde_json::from_str(schema.get()).ok()?;
    let mapped = map(&schema, &schema, 0);
    mapped.get("properties").and_then(Value::as_object).is_some_and(|p| !p.is_empty()).then_some(mapped)
}

fn map(schema: &Value, root: &Value, depth: usize) -> Value {
    if depth > DEPTH_MAX {
        return json!({"type": "object"});
    }
    let Some(schema) = schema.as_object() else {
        // `true` and the like: anything goes, and a text can hold anything.
        return json!({"type": "string"});
    };
    if let Some(target) = schema.get("$ref").and_then(Value::as_str) {
        let found = target.strip_prefix('#').and_then(|path| root.pointer(path));
        let mut mapped = found.map_or_else(|| json!({"type": "object"}), |f| map(f, root, depth + 1));
        // What stands beside a reference says more than what it refers to.
        if let Some(words) = schema.get("description").filter(|d| d.is_string()) {
            mapped["description"] = words.clone();
        }
        return mapped;
    }
    let schema = &merged(schema, root);
    let mut out = Map::new();
    let (kinds, nullable) = kinds(schema);
    if nullable {
        out.insert("nullable".into(), json!(true));
    }
    for key in PLAIN {
        if let Some(value) = schema.get(key) {
            out.insert(key.into(), value.clone());
        }
    }
    let alternatives = schema.get("anyOf").or_else(|| schema.get("oneOf")).and_then(Value::as_array);
    match (alternatives, kinds.as_slice()) {
        (Some(list), _) => any_of(&mut out, list.iter().map(|s| map(s, root, depth + 1)).collect()),
        (None, [first, _, ..]) if first != "null" => {
            // Several types: each by itself.
            let each = |kind: &String| {
                let mut one = schema.clone();
                one.retain(|k, _| !PLAIN.contains(&k.as_str()));
                one.insert("type".into(), json!(kind));
                map(&Value::Object(one), root, depth + 1)
            };
            any_of(&mut out, kinds.iter().map(each).collect());
        }
        (None, kinds) => one_kind(&mut out, schema, kinds.first().map_or("string", String::as_str), root, depth),
    }
    Value::Object(out)
}

/// The types it may have, null aside, and whether it may be null.
fn kinds(schema: &Map<String, Value>) -> (Vec<String>, bool) {
    let named: Vec<String> = match schema.get("type") {
        Some(Value::String(kind)) => vec![kind.to_ascii_lowercase()],
        Some(Value::Array(list)) => list.iter().filter_map(Value::as_str).map(str::to_ascii_lowercase).collect(),
        _ => Vec::new(),
    };
    let nullable = named.len() > 1 && named.iter().any(|k| k == "null");
    let mut kinds: Vec<String> = named.into_iter().filter(|k| !nullable || k != "null").collect();
    if kinds.is_empty() {
        let inferred = if schema.contains_key("properties") {
            "object"
        } else if schema.contains_key("items") {
            "array"
        } else {
            "string"
        };
        kinds.push(inferred.to_owned());
    }
    (kinds, nullable)
}

fn any_of(out: &mut Map<String, Value>, mut list: Vec<Value>) {
    let null = |s: &Value| s.get("type").is_some_and(|t| t == "null");
    if list.iter().any(null) {
        out.insert("nullable".into(), json!(true));
        list.retain(|s| !null(s));
    }
    match (list.pop(), list.is_empty()) {
        (Some(Value::Object(only)), true) => only.into_iter().for_each(|(k, v)| {
            out.entry(k).or_insert(v);
        }),
        (Some(last), false) => {
            list.push(last);
            out.insert("anyOf".into(), Value::Array(list));
        }
        _ => {
            out.insert("type".into(), json!("string"));
        }
    }
}

fn one_kind(out: &mut Map<String, Value>, schema: &Map<String, Value>, kind: &str, root: &Value, depth: usize) {
    out.insert("type".into(), json!(kind));
    let format = schema.get("format").and_then(Value::as_str).unwrap_or("");
    let taken = match kind {
        "string" => matches!(format, "enum" | "date-time"),
        "number" => matches!(format, "float" | "double"),
        "integer" => matches!(format, "int32" | "int64"),
        _ => false,
    };
    if taken {
        out.insert("format".into(), json!(format));
    }
    match kind {
        "object" => {
            let properties: Map<String, Value> = schema
                .get("properties")
                .and_then(Value::as_object)
                .into_iter()
                .flatten()
                .map(|(name, s)| (name.clone(), map(s, root, depth + 1)))
                .collect();
            let required: Vec<&Value> = schema
                .get("required")
                .and_then(Value::as_array)
                .into_iter()
                .flatten()
                .filter(|r| r.as_str().is_some_and(|r| properties.contains_key(r)))
                .collect();
            if !required.is_empty() {
                out.insert("required".into(), json!(required));
            }
            if !properties.is_empty() {
                out.insert("properties".into(), Value::Object(properties));
            }
        }
        // Without a word on its items an array is refused; a tuple becomes an array of its first.
        "array" => {
            let items = match schema.get("items") {
                Some(Value::Array(tuple)) => tuple.first(),
                other => other,
            };
            let items = items.or_else(|| schema.get("prefixItems")?.get(0));
            out.insert("items".into(), items.map_or_else(|| json!({"type": "string"}), |i| map(i, root, depth + 1)));
        }
        "string" => {
            let words: Option<Vec<Value>> = match (schema.get("enum"), schema.get("const")) {
                (Some(Value::Array(words)), _) => Some(words.iter().filter(|w| w.is_string()).cloned().collect()),
                (_, Some(word)) if word.is_string() => Some(vec![word.clone()]),
                _ => None,
            };
            if let Some(words) = words.filter(|w| !w.is_empty()) {
                out.insert("enum".into(), Value::Array(words));
            }
        }
        _ => {}
    }
}

/// `allOf` folded into the schema itself.
fn merged(schema: &Map<String, Value>, root: &Value) -> Map<String, Value> {
    let mut out = schema.clone();
    let Some(Value::Array(all)) = out.shift_remove("allOf") else { return out };
    for part in &all {
        let target = part.get("$ref").and_then(Value::as_str).and_then(|t| root.pointer(t.strip_prefix('#')?));
        for (key, value) in target.unwrap_or(part).as_object().into_iter().flatten() {
            match (out.get_mut(key), value) {
                (Some(Value::Object(have)), Value::Object(more)) => have.extend(more.clone()),
                (Some(Value::Array(have)), Value::Array(more)) => have.extend(more.iter().cloned()),
                (Some(_), _) => {}
                (None, _) => {
                    out.insert(key.clone(), value.clone());
                }
            }
        }
    }
    out.shift_remove("allOf");
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mapped(schema: Value) -> Value {
        map(&schema, &schema, 0)
    }

    /// What Gemini refuses, looked for everywhere.
    pub(super) fn check(schema: &Value) {
        const KNOWN: [&str; 21] = [
            "type",
            "format",
            "title",
            "description",
            "nullable",
            "enum",
            "items",
            "maxItems",
            "minItems",
            "properties",
            "required",
            "minProperties",
            "maxProperties",
            "minimum",
            "maximum",
            "minLength",
            "maxLength",
            "pattern",
            "example",
            "anyOf",
            "propertyOrdering",
        ];
        let map = schema.as_object().unwrap();
        for key in map.keys() {
            assert!(KNOWN.contains(&key.as_str()), "{key} in {schema}");
        }
        assert!(map.contains_key("type") || map.contains_key("anyOf"), "{schema}");
        if map.get("type").is_some_and(|t| t == "array") {
            check(&schema["items"]);
        }
        for child in map.get("properties").and_then(Value::as_object).into_iter().flatten() {
            check(child.1);
        }
        for child in map.get("anyOf").and_then(Value::as_array).into_iter().flatten() {
            check(child);
        }
    }

    #[test]
    fn what_is_refused_is_left_out_or_said_otherwise() {
        let schema = mapped(json!({
            "$schema": "https://json-schema.org/draft/2020-12/schema", "type": "object", "additionalProperties": false,
            "$defs": {"node": {"type": "object", "properties": {"next": {"$ref": "#/$defs/node"}}}},
            "required": ["path", "gone"],
            "properties": {
                "path": {"type": "string", "format": "uri", "description": "where", "default": "x", "examples": ["a"]},
                "mode": {"const": "fast"},
                "level": {"enum": ["a", "b", 3]},
                "count": {"type": ["integer", "null"], "exclusiveMinimum": 0, "format": "int32"},
                "either": {"oneOf": [{"type": "string"}, {"type": "number"}, {"type": "null"}]},
                "maybe": {"anyOf": [{"type": "boolean"}, {"type": "null"}], "description": "or not"},
                "mixed": {"type": ["string", "array"], "items": {"type": "integer"}},
                "list": {"type": "array"},
                "pair": {"type": "array", "prefixItems": [{"type": "integer"}, {"type": "string"}]},
                "tree": {"$ref": "#/$defs/node", "description": "of nodes"},
                "lost": {"$ref": "https://elsewhere/x.json"},
                "both": {"allOf": [{"type": "object", "properties": {"a": {"type": "string"}}}, {"properties": {"b": true}}]},
                "open": {"type": "object", "properties": {}, "additionalProperties": {"type": "string"}},
                "any": true
            }
        }));
        check(&schema);
        assert_eq!(schema["required"], json!(["path"]));
        let p = &schema["properties"];
        assert_eq!(p["path"], json!({"description": "where", "type": "string"}));
        assert_eq!(p["mode"], json!({"type": "string", "enum": ["fast"]}));
        assert_eq!(p["level"]["enum"], json!(["a", "b"]));
        assert_eq!(p["count"], json!({"nullable": true, "type": "integer", "format": "int32"}));
        assert_eq!(p["either"], json!({"nullable": true, "anyOf": [{"type": "string"}, {"type": "number"}]}));
        assert_eq!(p["maybe"], json!({"description": "or not", "nullable": true, "type": "boolean"}));
        assert_eq!(p["mixed"]["anyOf"][1], json!({"type": "array", "items": {"type": "integer"}}));
        assert_eq!(p["pair"]["items"], json!({"type": "integer"}));
        assert_eq!((&p["tree"]["description"], &p["tree"]["type"]), (&json!("of nodes"), &json!("object")));
        assert_eq!(p["both"]["properties"]["b"], json!({"type": "string"}));
        assert_eq!(p["open"], json!({"type": "object"}));
    }

    #[test]
    fn a_function_without_parameters_has_none() {
        let raw = |s: &str| RawValue::from_string(s.to_owned()).unwrap();
        assert!(parameters(&raw(r#"{"type":"object","properties":{},"additionalProperties":false}"#)).is_none());
        assert!(parameters(&raw("true")).is_none());
        assert!(parameters(&raw(r#"{"type":"object","properties":{"a":{}}}"#)).is_some());
    }
}
