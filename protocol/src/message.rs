//! Raw model messages: what a `turn` entry holds and what adapters translate.
//!
//! Owns the predecessor's shape: `{role:"user",content}` · `{role:"assistant",content:string|parts}`
//! · `{role:"tool",content:parts}`. Parts this build does not know pass through as they are.
//! Must not know any provider's format: that is the adapters' business.

use serde::ser::SerializeMap;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::value::RawValue;

mod plain;

/// Who speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    /// A person (or what glrs says on a person's side).
    User,
    /// The model.
    Assistant,
    /// Results of tool calls.
    Tool,
    /// Instructions; only found in old files.
    System,
}

/// One message.
#[derive(Clone, Debug)]
pub struct Message {
    /// Who speaks.
    pub role: Role,
    /// Its parts, in order. A string content is one text part.
    pub parts: Vec<Part>,
}

/// A piece of a message.
#[derive(Clone, Debug)]
pub enum Part {
    /// Text.
    Text(String),
    /// Reasoning; `opts` carries what the provider needs back (signatures, encrypted content),
    /// keyed by provider, byte for byte.
    Reasoning {
        /// The text; may be empty where the provider hides it.
        text: String,
        /// `providerOptions`, raw.
        opts: Option<Box<RawValue>>,
    },
    /// The model asks for a tool.
    ToolCall {
        /// Unique id of the call.
        id: String,
        /// Tool name.
        name: String,
        /// Input as the model gave it: always a JSON value, byte for byte.
        input: Box<RawValue>,
        /// `providerOptions`, raw (some providers sign calls).
        opts: Option<Box<RawValue>>,
    },
    /// The result of a call.
    ToolResult {
        /// Id of the call it answers.
        id: String,
        /// Tool name.
        name: String,
        /// What came back.
        output: Output,
    },
    /// An image or a file: base64 data with its media type.
    File {
        /// `image` or `file`, as found.
        kind: &'static str,
        /// Media type.
        media_type: String,
        /// Base64 data or a URL.
        data: String,
    },
    /// A part this build does not know, raw.
    Other(Box<RawValue>),
}

/// The output of a tool result.
#[derive(Clone, Debug)]
pub enum Output {
    /// Plain text.
    Text(String),
    /// An error the model should see.
    Error(String),
    /// JSON, raw.
    Json(Box<RawValue>),
    /// A form this build does not know, raw.
    Other(Box<RawValue>),
}

impl Output {
    /// The output as the text a model is given.
    pub fn as_text(&self) -> &str {
        match self {
            Self::Text(t) | Self::Error(t) => t,
            Self::Json(r) | Self::Other(r) => r.get(),
        }
    }

    /// Whether it reports a failure.
    pub fn is_error(&self) -> bool {
        matches!(self, Self::Error(_))
    }
}

impl Message {
    /// A message of one text part.
    pub fn text(role: Role, text: impl Into<String>) -> Self {
        Self { role, parts: vec![Part::Text(text.into())] }
    }

    /// Parses a stored message.
    ///
    /// # Errors
    /// When it is no object with a known role.
    pub fn parse(raw: &str) -> Result<Self, serde_json::Error> {
        serde_json::from_str::<plain::Plain>(raw).map(Self::from).or_else(|_| serde_json::from_str(raw))
    }

    /// The messages of a `turn` entry, in order and with their place; `None` where one cannot be
    /// read. An entry without a list of messages has none.
    pub fn parse_turn(raw: &str) -> Vec<Option<Self>> {
        /// Only this of a turn is replayed: whatever else is odd about it costs no message.
        #[derive(Deserialize)]
        struct Turn<'a> {
            #[serde(borrow, default)]
            messages: Vec<&'a RawValue>,
        }
        if let Ok(turn) = serde_json::from_str::<plain::PlainTurn>(raw) {
            return turn.messages.into_iter().map(|m| Some(m.into())).collect();
        }
        let turn = serde_json::from_str::<Turn<'_>>(raw).unwrap_or(Turn { messages: Vec::new() });
        turn.messages.into_iter().map(|m| Self::parse(m.get()).ok()).collect()
    }

    /// The message as stored.
    ///
    /// # Errors
    /// When a raw part does not serialise.
    pub fn to_raw(&self) -> Result<Box<RawValue>, serde_json::Error> {
        serde_json::value::to_raw_value(self)
    }

    /// The ids of the calls in it.
    pub fn call_ids(&self) -> impl Iterator<Item = &str> {
        self.parts.iter().filter_map(|p| match p {
            Part::ToolCall { id, .. } => Some(id.as_str()),
            _ => None,
        })
    }

    /// All its text parts joined.
    pub fn joined_text(&self) -> String {
        let mut out = String::new();
        for part in &self.parts {
            if let Part::Text(t) = part {
                out.push_str(t);
            }
        }
        out
    }

    /// Roughly how many bytes it takes on the wire; the basis of token estimates.
    pub fn weight(&self) -> usize {
        self.parts.iter().map(Part::weight).sum::<usize>() + 16
    }
}

impl Part {
    /// Roughly how many bytes the part takes on the wire.
    pub fn weight(&self) -> usize {
        match self {
            Self::Text(t) => t.len(),
            Self::Reasoning { text, opts } => text.len() + opts.as_ref().map_or(0, |o| o.get().len()),
            Self::ToolCall { name, input, .. } => name.len() + input.get().len() + 32,
            Self::ToolResult { output, .. } => output.as_text().len() + 32,
            // An image costs by its area, not its bytes; 1,600 tokens is the usual ceiling.
            Self::File { data, .. } => data.len().min(6_400),
            Self::Other(r) => r.get().len(),
        }
    }
}

struct Parts<'a>(&'a [Part]);

impl Serialize for Parts<'_> {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        s.collect_seq(self.0.iter())
    }
}

impl Serialize for Message {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        let mut m = s.serialize_map(Some(2))?;
        m.serialize_entry("role", &self.role)?;
        match (self.role, self.parts.as_slice()) {
            (Role::User | Role::System, [Part::Text(t)]) => m.serialize_entry("content", t)?,
            (_, parts) => m.serialize_entry("content", &Parts(parts))?,
        }
        m.end()
    }
}

#[derive(Serialize)]
#[serde(tag = "type", content = "value", rename_all = "kebab-case")]
enum OutputOut<'a> {
    Text(&'a str),
    ErrorText(&'a str),
}

impl Serialize for Output {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Text(t) => OutputOut::Text(t).serialize(s),
            Self::Error(t) => OutputOut::ErrorText(t).serialize(s),
            Self::Json(r) => {
                let mut m = s.serialize_map(Some(2))?;
                m.serialize_entry("type", "json")?;
                m.serialize_entry("value", r)?;
                m.end()
            }
            Self::Other(r) => r.serialize(s),
        }
    }
}

impl Serialize for Part {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        if let Self::Other(raw) = self {
            return raw.serialize(s);
        }
        let mut m = s.serialize_map(None)?;
        match self {
            Self::Text(t) => {
                m.serialize_entry("type", "text")?;
                m.serialize_entry("text", t)?;
            }
            Self::Reasoning { text, opts } => {
                m.serialize_entry("type", "reasoning")?;
                m.serialize_entry("text", text)?;
                if let Some(o) = opts {
                    m.serialize_entry("providerOptions", o)?;
                }
            }
            Self::ToolCall { id, name, input, opts } => {
                m.serialize_entry("type", "tool-call")?;
                m.serialize_entry("toolCallId", id)?;
                m.serialize_entry("toolName", name)?;
                m.serialize_entry("input", input)?;
                if let Some(o) = opts {
                    m.serialize_entry("providerOptions", o)?;
                }
            }
            Self::ToolResult { id, name, output } => {
                m.serialize_entry("type", "tool-result")?;
                m.serialize_entry("toolCallId", id)?;
                m.serialize_entry("toolName", name)?;
                m.serialize_entry("output", output)?;
            }
            Self::File { kind, media_type, data } => {
                m.serialize_entry("type", kind)?;
                m.serialize_entry(if *kind == "image" { "image" } else { "data" }, data)?;
                m.serialize_entry("mediaType", media_type)?;
            }
            Self::Other(_) => {}
        }
        m.end()
    }
}

#[derive(Deserialize)]
struct RawMessage {
    role: Role,
    #[serde(default)]
    content: Option<Box<RawValue>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct RawPart {
    #[serde(rename = "type", default)]
    kind: String,
    text: Option<String>,
    tool_call_id: Option<String>,
    tool_name: Option<String>,
    input: Option<Box<RawValue>>,
    output: Option<Box<RawValue>>,
    provider_options: Option<Box<RawValue>>,
    image: Option<String>,
    data: Option<String>,
    media_type: Option<String>,
}

fn part_from(raw: Box<RawValue>) -> Part {
    let Ok(p) = serde_json::from_str::<RawPart>(raw.get()) else {
        return Part::Other(raw);
    };
    match (p.kind.as_str(), p.tool_call_id, p.tool_name) {
        ("text", ..) => match p.text {
            Some(t) => Part::Text(t),
            None => Part::Other(raw),
        },
        ("reasoning", ..) => Part::Reasoning { text: p.text.unwrap_or_default(), opts: p.provider_options },
        ("tool-call", Some(id), Some(name)) => {
            Part::ToolCall { id, name, input: p.input.unwrap_or_else(empty_object), opts: p.provider_options }
        }
        ("tool-result", Some(id), name) => Part::ToolResult {
            id,
            name: name.unwrap_or_default(),
            output: p.output.map_or(Output::Text(String::new()), output_from),
        },
        ("image", ..) => match p.image.or(p.data) {
            Some(data) => {
                Part::File { kind: "image", media_type: p.media_type.unwrap_or_else(|| "image/png".into()), data }
            }
            None => Part::Other(raw),
        },
        ("file", ..) => match p.data {
            Some(data) => Part::File {
                kind: "file",
                media_type: p.media_type.unwrap_or_else(|| "application/octet-stream".into()),
                data,
            },
            None => Part::Other(raw),
        },
        _ => Part::Other(raw),
    }
}

fn output_from(raw: Box<RawValue>) -> Output {
    #[derive(Deserialize)]
    struct O {
        #[serde(rename = "type")]
        kind: String,
        value: Box<RawValue>,
    }
    if let Ok(text) = serde_json::from_str::<String>(raw.get()) {
        return Output::Text(text);
    }
    let Ok(o) = serde_json::from_str::<O>(raw.get()) else {
        return Output::Other(raw);
    };
    let text = || serde_json::from_str::<String>(o.value.get()).ok();
    match o.kind.as_str() {
        "text" => text().map_or(Output::Other(raw), Output::Text),
        "error-text" => text().map_or(Output::Other(raw), Output::Error),
        "json" => Output::Json(o.value),
        _ => Output::Other(raw),
    }
}

/// `{}` as a raw value.
pub fn empty_object() -> Box<RawValue> {
    RawValue::from_string("{}".to_owned()).unwrap_or_else(|_| RawValue::NULL.to_owned())
}

impl<'de> Deserialize<'de> for Message {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        let m = RawMessage::deserialize(d)?;
        let parts = match m.content {
            None => Vec::new(),
            Some(raw) if raw.get().starts_with('"') => {
                vec![Part::Text(serde_json::from_str(raw.get()).map_err(serde::de::Error::custom)?)]
            }
            Some(raw) => match serde_json::from_str::<Vec<Box<RawValue>>>(raw.get()) {
                Ok(parts) => parts.into_iter().map(part_from).collect(),
                Err(_) => Vec::new(),
            },
        };
        Ok(Self { role: m.role, parts })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_round_trip() {
        for raw in [
            r#"{"role":"user","content":"hi"}"#,
            r#"{"role":"assistant","content":[{"type":"text","text":"a"},{"type":"tool-call","toolCallId":"c","toolName":"read","input":{"z":1,"a":1.0}}]}"#,
            r#"{"role":"tool","content":[{"type":"tool-result","toolCallId":"c","toolName":"read","output":{"type":"error-text","value":"no"}}]}"#,
            r#"{"role":"assistant","content":[{"type":"reasoning","text":"t","providerOptions":{"anthropic":{"signature":"s="}}}]}"#,
            r#"{"role":"user","content":[{"type":"hologram","x":1},{"type":"image","image":"QUJD","mediaType":"image/png"}]}"#,
        ] {
            assert_eq!(Message::parse(raw).unwrap().to_raw().unwrap().get(), raw);
        }
    }

    /// Both ways of reading give the same, and the quick one takes what is plain.
    #[test]
    fn the_quick_way_reads_what_the_patient_way_reads() {
        let (text, esc, call) = (
            r#"{"type":"text","text":"a"}"#,
            r#"{"type":"text","text":"a\n\"\u00e9"}"#,
            r#"{"type":"tool-call","toolCallId":"c","toolName":"read","input":{"z":1},"providerOptions":{"x":[1]}}"#,
        );
        let result =
            |output: &str| format!(r#"{{"type":"tool-result","toolCallId":"c","toolName":"read","output":{output}}}"#);
        let plain = [
            text.to_owned(),
            esc.to_owned(),
            call.to_owned(),
            r#"{"type":"reasoning","text":"","providerOptions":{"a":1}}"#.to_owned(),
            r#"{"type":"reasoning"}"#.to_owned(),
            r#"{"new":1,"type":"text","text":"x","z":[{}]}"#.to_owned(),
            r#"{"type":"tool-call","toolCallId":"c","toolName":"read","input":null}"#.to_owned(),
            r#"{"type":"tool-result","toolCallId":"c"}"#.to_owned(),
            result(r#""plain""#),
            result(r#"{"type":"text","value":"v\n"}"#),
            result(r#"{"type":"error-text","value":"v","more":{}}"#),
            result(r#"{"type":"json","value":{"a":[1.0]}}"#),
            result("null"),
        ];
        let odd = [
            r#"{"text":"x"}"#.to_owned(),
            r#"{"type":"text"}"#.to_owned(),
            r#"{"type":"text","text":5}"#.to_owned(),
            r#"{"type":"te\u0078t","text":"x"}"#.to_owned(),
            r#"{"type":"tool-call","toolCallId":7,"toolName":"read"}"#.to_owned(),
            r#"{"type":"image","image":"QQ=="}"#.to_owned(),
            r#"{"type":"file","data":"QQ==","mediaType":"a/b"}"#.to_owned(),
            r#"{"type":"hologram"}"#.to_owned(),
            r#"{"type":"text","text":"a","text":"b"}"#.to_owned(),
            result(r#"{"value":"v","type":"text"}"#),
            result(r#"{"type":"text","value":"v","value":"w"}"#),
            result(r#"{"type":"content","value":[]}"#),
            result("{}"),
            result("[1]"),
            "7".to_owned(),
        ];
        let same = |raw: &str| {
            let patient = serde_json::from_str::<Message>(raw).ok().map(|m| format!("{m:?}"));
            assert_eq!(Message::parse(raw).ok().map(|m| format!("{m:?}")), patient, "{raw}");
            assert_eq!(
                format!("{:?}", Message::parse_turn(&format!(r#"{{"type":"turn","messages":[{raw}],"at":5}}"#))),
                format!("{:?}", [serde_json::from_str::<Message>(raw).ok()]),
                "{raw}"
            );
        };
        for (parts, quick) in [(&plain[..], true), (&odd[..], false)] {
            for part in parts {
                for raw in [
                    format!(r#"{{"role":"assistant","content":[{part}]}}"#),
                    format!(r#"{{"content":[{text},{part}],"role":"tool","more":1}}"#),
                ] {
                    same(&raw);
                    assert_eq!(serde_json::from_str::<plain::Plain>(&raw).is_ok(), quick, "{raw}");
                }
            }
        }
        for raw in [
            r#"{"role":"user","content":"hi \ud83d\ude00"}"#,
            r#"{"role":"user"}"#,
            r#"{"role":"user","content":null}"#,
            r#"{"role":"user","content":{}}"#,
            r#"{"role":"robot","content":"x"}"#,
            r#"{"role":"user","content":"a","content":"b"}"#,
            "[]",
        ] {
            same(raw);
        }
        assert!(Message::parse_turn(r#"{"type":"turn"}"#).is_empty());
        assert!(Message::parse_turn(r#"{"type":"turn","messages":7}"#).is_empty());
    }
}
