//! Reading stored messages in one pass over their bytes.
//!
//! Owns the plain case, which is nearly every message: known roles and parts, the tag before what
//! it tags. Anything odd is an error here, and [`super`] reads it again the patient way; what both
//! can read is the same (a test holds them together). Must not know what messages mean.

use super::{Message, Output, Part, Role, empty_object};
use serde::de::{Error, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;
use std::fmt;

/// A message of the plain case.
#[derive(Deserialize)]
pub(super) struct Plain {
    role: Role,
    content: Content,
}

impl From<Plain> for Message {
    fn from(p: Plain) -> Self {
        Self { role: p.role, parts: p.content.0 }
    }
}

/// The messages of a `turn` entry, all plain.
#[derive(Deserialize)]
pub(super) struct PlainTurn {
    pub(super) messages: Vec<Plain>,
}

struct Content(Vec<Part>);

impl<'de> Deserialize<'de> for Content {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        struct Any;
        impl<'de> Visitor<'de> for Any {
            type Value = Content;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("text or parts")
            }

            fn visit_str<E: Error>(self, text: &str) -> Result<Content, E> {
                Ok(Content(vec![Part::Text(text.to_owned())]))
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Content, A::Error> {
                let mut parts = Vec::new();
                while let Some(part) = seq.next_element::<PlainPart<'de>>()? {
                    parts.push(part.into_part().ok_or_else(|| A::Error::custom("an odd part"))?);
                }
                Ok(Content(parts))
            }
        }
        d.deserialize_any(Any)
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct PlainPart<'a> {
    #[serde(rename = "type")]
    kind: &'a str,
    text: Option<String>,
    tool_call_id: Option<String>,
    tool_name: Option<String>,
    #[serde(borrow)]
    input: Option<&'a RawValue>,
    output: Option<PlainOutput>,
    #[serde(borrow)]
    provider_options: Option<&'a RawValue>,
}

impl PlainPart<'_> {
    fn into_part(self) -> Option<Part> {
        let opts = self.provider_options.map(ToOwned::to_owned);
        match (self.kind, self.tool_call_id, self.tool_name) {
            ("text", ..) => self.text.map(Part::Text),
            ("reasoning", ..) => Some(Part::Reasoning { text: self.text.unwrap_or_default(), opts }),
            ("tool-call", Some(id), Some(name)) => {
                let input = self.input.map_or_else(empty_object, ToOwned::to_owned);
                Some(Part::ToolCall { id, name, input, opts })
            }
            ("tool-result", Some(id), name) => {
                let output = self.output.map_or(Output::Text(String::new()), |o| o.0);
                Some(Part::ToolResult { id, name: name.unwrap_or_default(), output })
            }
            _ => None,
        }
    }
}

struct PlainOutput(Output);

impl<'de> Deserialize<'de> for PlainOutput {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        struct Any;
        impl<'de> Visitor<'de> for Any {
            type Value = PlainOutput;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("text, or a type and a value")
            }

            fn visit_str<E: Error>(self, text: &str) -> Result<PlainOutput, E> {
                Ok(PlainOutput(Output::Text(text.to_owned())))
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<PlainOutput, A::Error> {
                let odd = || A::Error::custom("an odd output");
                let (Some("type"), kind) = (map.next_key::<&str>()?, map.next_value::<&str>()?) else {
                    return Err(odd());
                };
                let Some("value") = map.next_key::<&str>()? else { return Err(odd()) };
                let output = match kind {
                    "text" => Output::Text(map.next_value()?),
                    "error-text" => Output::Error(map.next_value()?),
                    "json" => Output::Json(map.next_value::<&RawValue>()?.to_owned()),
                    _ => return Err(odd()),
                };
                while let Some(key) = map.next_key::<&str>()? {
                    if key == "type" || key == "value" {
                        return Err(odd());
                    }
                    map.next_value::<IgnoredAny>()?;
                }
                Ok(PlainOutput(output))
            }
        }
        d.deserialize_any(Any)
    }
}
