//! A server's tool as it can be offered to models.
//!
//! Owns what providers take: one of them refuses the whole request for one odd schema or one long
//! description, and then no turn would run. Pure.

use super::ToolInfo;
use rmcp::model::Tool;
use serde_json::{Map, Value};

/// Largest schema of a tool in bytes.
const MAX_SCHEMA: usize = 128 * 1024;
/// Longest description, in characters: the least of what providers take.
const MAX_DESCRIPTION: usize = 1024;
/// Longest name of a property.
const MAX_PROPERTY: usize = 64;

/// The tool; `None` where some provider would not take it.
pub(super) fn info(tool: Tool) -> Option<ToolInfo> {
    let schema = serde_json::value::to_raw_value(&schema((*tool.input_schema).clone())?).ok()?;
    if tool.name.is_empty() || schema.get().len() > MAX_SCHEMA {
        return None;
    }
    let title = tool.title.as_deref().or(tool.annotations.as_ref().and_then(|a| a.title.as_deref()));
    let description = tool.description.as_deref().filter(|d| !d.trim().is_empty()).or(title).unwrap_or(&tool.name);
    Some(ToolInfo {
        description: description.chars().take(MAX_DESCRIPTION).collect(),
        read_only: tool.annotations.as_ref().and_then(|a| a.read_only_hint) == Some(true),
        name: tool.name.into_owned(),
        schema,
    })
}

/// An object with properties, and no choice between whole schemas: what a choice would demand the
/// server demands all the same when it is called.
fn schema(mut schema: Map<String, Value>) -> Option<Map<String, Value>> {
    if schema.entry("type").or_insert_with(|| "object".into()) != "object" {
        return None;
    }
    schema.retain(|key, _| !["oneOf", "anyOf", "allOf"].contains(&key.as_str()));
    let properties = schema.entry("properties").or_insert_with(|| Value::Object(Map::new()));
    let usual = |c: char| c.is_ascii_alphanumeric() || "_.-".contains(c);
    let fits = |name: &String| (1..=MAX_PROPERTY).contains(&name.len()) && name.chars().all(usual);
    properties.as_object()?.keys().all(fits).then_some(schema)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn of(schema: Value) -> Option<ToolInfo> {
        info(
            serde_json::from_value(json!({"name": "t", "description": "é".repeat(2000), "inputSchema": schema}))
                .unwrap(),
        )
    }

    #[test]
    fn what_some_provider_refuses_is_mended_or_left_out() {
        let tool = of(json!({"properties": {"a": {"anyOf": []}}, "anyOf": [{}], "required": ["a"]})).unwrap();
        assert_eq!(tool.schema.get(), r#"{"properties":{"a":{"anyOf":[]}},"required":["a"],"type":"object"}"#);
        assert_eq!(tool.description.chars().count(), MAX_DESCRIPTION);
        assert_eq!(of(json!({})).unwrap().schema.get(), r#"{"type":"object","properties":{}}"#);
        for odd in [
            json!({"type": "string"}),
            json!({"properties": []}),
            json!({"properties": {"a b": {}}}),
            json!({"properties": {"": {}}}),
            json!({"properties": {"a": {"description": "x".repeat(MAX_SCHEMA)}}}),
        ] {
            assert!(of(odd.clone()).is_none(), "{odd}");
        }
    }

    #[test]
    fn a_tool_without_a_description_has_its_title_or_name() {
        let of = |tool: Value| info(serde_json::from_value(tool).unwrap()).unwrap();
        let schema = json!({"type": "object"});
        assert_eq!(of(json!({"name": "t", "inputSchema": schema})).description, "t");
        let hinted = of(json!({"name": "t", "inputSchema": schema, "description": " ",
            "annotations": {"title": "T", "readOnlyHint": true}}));
        assert_eq!((hinted.description.as_str(), hinted.read_only), ("T", true));
    }
}
