//! The protocol as documents: JSON Schema, OpenRPC and the method part of PROTOCOL.md, all from
//! the method table.

use crate::error::ErrorKind;
use crate::event::{self, Event};
use crate::methods::{MethodRow, table};
use schemars::generate::SchemaSettings;
use schemars::{JsonSchema, SchemaGenerator};
use serde_json::{Map, Value, json};
use std::fmt::Write;

fn generator(path: &'static str) -> SchemaGenerator {
    SchemaSettings::draft2020_12().with(|s| s.definitions_path = path.into()).into_generator()
}

/// Everything on the wire as one JSON Schema document: `$defs` plus a map of methods.
pub fn json_schema() -> Value {
    let mut g = generator("/$defs");
    let methods: Map<String, Value> = table()
        .iter()
        .map(|r| (r.name.to_owned(), json!({"params": (r.params)(&mut g), "result": (r.result)(&mut g)})))
        .collect();
    let event = g.subschema_for::<Event>();
    let error = g.subschema_for::<ErrorKind>();
    let entry = g.subschema_for::<crate::entry::Entry>();
    json!({
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "glrs wire protocol",
        "protocol": crate::PROTOCOL,
        "methods": methods,
        "event": event,
        "entry": entry,
        "errorData": error,
        "$defs": g.take_definitions(true),
    })
}

/// The protocol as an OpenRPC 1.3 document.
pub fn openrpc(version: &str) -> Value {
    let mut g = generator("/components/schemas");
    let errors: Vec<Value> =
        ErrorKind::table().iter().map(|(k, words)| json!({"code": k.code(), "message": words, "data": k})).collect();
    let methods: Vec<Value> = table()
        .iter()
        .map(|r| {
            json!({
                "name": r.name,
                "summary": r.doc,
                "paramStructure": "by-name",
                "tags": [{"name": r.scope.as_str()}],
                "params": [{"name": "params", "required": true, "schema": (r.params)(&mut g)}],
                "result": {"name": "result", "schema": (r.result)(&mut g)},
            })
        })
        .collect();
    json!({
        "openrpc": "1.3.2",
        "info": {"title": "glrs", "version": version, "x-protocol": crate::PROTOCOL},
        "methods": methods,
        "x-errors": errors,
        "components": {"schemas": g.take_definitions(true)},
    })
}

fn type_words(v: &Value) -> String {
    if let Some(r) = v.get("$ref").and_then(Value::as_str) {
        return r.rsplit('/').next().unwrap_or(r).to_owned();
    }
    if let Some(any) = v.get("anyOf").or_else(|| v.get("oneOf")).and_then(Value::as_array) {
        let mut words: Vec<String> = any.iter().map(type_words).filter(|w| w != "null").collect();
        words.dedup();
        return words.join(" or ");
    }
    if let Some(values) = v.get("enum").and_then(Value::as_array) {
        return values.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
    }
    match v.get("type") {
        Some(Value::String(t)) if t == "array" => format!("[{}]", v.get("items").map_or_else(String::new, type_words)),
        Some(Value::String(t)) if t == "object" && v.get("additionalProperties").is_some() => {
            "object of strings".into()
        }
        Some(Value::String(t)) => t.clone(),
        Some(Value::Array(ts)) => {
            ts.iter().filter_map(Value::as_str).filter(|t| *t != "null").collect::<Vec<_>>().join(" or ")
        }
        _ => "any".into(),
    }
}

fn fields(out: &mut String, schema: &Value) {
    let required: Vec<&str> = schema
        .get("required")
        .and_then(Value::as_array)
        .map(|a| a.iter().filter_map(Value::as_str).collect())
        .unwrap_or_default();
    let Some(props) = schema.get("properties").and_then(Value::as_object) else { return };
    for (name, p) in props {
        let doc = p.get("description").and_then(Value::as_str).unwrap_or("").replace('\n', " ");
        let opt = if required.contains(&name.as_str()) { "" } else { "?" };
        let _ = writeln!(out, "- `{name}{opt}` {}: {doc}", type_words(p));
    }
}

fn root_schema<T: JsonSchema>() -> Value {
    let mut g = SchemaSettings::draft2020_12().with(|s| s.inline_subschemas = false).into_generator();
    g.root_schema_for::<T>().to_value()
}

/// The reference part of PROTOCOL.md: methods, events, errors.
pub fn markdown() -> String {
    let mut out = String::from("## Methods\n");
    let mut g = generator("/$defs");
    let rows: Vec<(MethodRow, Value, Value)> = table()
        .into_iter()
        .map(|r| {
            let p = (r.params)(&mut g).to_value();
            let res = (r.result)(&mut g).to_value();
            (r, p, res)
        })
        .collect();
    let event_docs: Vec<(&str, Value)> = vec![
        ("entry", root_schema::<event::EntryEvent>()),
        ("delta", root_schema::<event::Delta>()),
        ("state", root_schema::<event::StateEvent>()),
        ("compaction", root_schema::<event::CompactionEvent>()),
        ("disk", root_schema::<event::DiskEvent>()),
        ("queue", root_schema::<event::QueueEvent>()),
        ("request", root_schema::<event::RequestEvent>()),
        ("resolved", root_schema::<event::Resolved>()),
        ("usage", root_schema::<event::UsageEvent>()),
        ("plan", root_schema::<event::PlanEvent>()),
        ("clients", root_schema::<event::ClientsEvent>()),
        ("info", root_schema::<event::InfoEvent>()),
        ("lagged", root_schema::<event::Lagged>()),
        ("closed", root_schema::<event::Closed>()),
    ];
    let defs = Value::Object(g.take_definitions(true));
    let resolve = |v: &Value| -> Value {
        match v.get("$ref").and_then(Value::as_str).and_then(|r| r.rsplit('/').next()) {
            Some(name) => defs.get(name).cloned().unwrap_or(Value::Null),
            None => v.clone(),
        }
    };
    for (row, params, result) in &rows {
        let _ = writeln!(out, "\n### {}\n\n{} Scope: {}.\n", row.name, row.doc, row.scope.as_str());
        let p = resolve(params);
        out.push_str(if p.get("properties").is_some() { "Params:\n\n" } else { "Params: `{}`\n" });
        fields(&mut out, &p);
        let r = resolve(result);
        out.push_str(if r.get("properties").is_some() { "\nResult:\n\n" } else { "\nResult: `{}`\n" });
        fields(&mut out, &r);
    }
    out.push_str("\n## Events\n\nParams of `session/event`: `session`, `epoch`, `seq` (absent on `lagged` and `closed`), `kind`, and the fields of the kind.\n");
    for (name, schema) in &event_docs {
        let doc = schema.get("description").and_then(Value::as_str).unwrap_or("").replace('\n', " ");
        let _ = writeln!(out, "\n### event {name}\n\n{doc}\n");
        fields(&mut out, schema);
    }
    out.push_str("\n## Types\n");
    if let Some(map) = defs.as_object() {
        let shown: Vec<String> = rows
            .iter()
            .flat_map(|(_, p, r)| [p, r])
            .filter_map(|v| v.get("$ref").and_then(Value::as_str)?.rsplit('/').next().map(str::to_owned))
            .collect();
        for (name, schema) in map {
            if shown.contains(name) {
                continue;
            }
            let doc = schema.get("description").and_then(Value::as_str).unwrap_or("").replace('\n', " ");
            let _ = writeln!(out, "\n### {name}\n\n{doc}\n");
            fields(&mut out, schema);
            if let Some(any) = schema.get("oneOf").and_then(Value::as_array) {
                for v in any {
                    let word = v.get("const").map(ToString::to_string).unwrap_or_else(|| type_words(v));
                    let doc = v.get("description").and_then(Value::as_str).unwrap_or("").replace('\n', " ");
                    let _ = writeln!(out, "- `{word}`: {doc}");
                }
            }
        }
    }
    out.push_str("\n## Errors\n\n| code | kind | data | meaning |\n|---|---|---|---|\n");
    for (kind, words) in ErrorKind::table() {
        let data = serde_json::to_value(&kind).unwrap_or_default();
        let _ = writeln!(out, "| {} | {} | `{}` | {} |", kind.code(), data["kind"].as_str().unwrap_or(""), data, words);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn documents_name_every_method() {
        let (schema, rpc, md) = (json_schema().to_string(), openrpc("x").to_string(), markdown());
        for row in table() {
            assert!(schema.contains(row.name) && rpc.contains(row.name) && md.contains(row.name), "{}", row.name);
        }
        for kind in event::KINDS {
            assert!(md.contains(&format!("### event {kind}")), "{kind}");
        }
    }
}
