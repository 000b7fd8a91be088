//! Gemini requests.
//!
//! Owns: contents and their parts, signatures on the parts they came with, thinking by model. The same
//! history gives the same bytes, whatever comes behind it. Must not know HTTP.

use super::schema;
use crate::model::body::Body;
use crate::model::convert::{self, IdStyle, Said, Turn};
use crate::model::{Call, ToolSpec};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};
use std::collections::HashMap;

/// Ids pair calls and results here; on the wire only those go that the provider gave itself.
const IDS: IdStyle = IdStyle::Plain(64);

#[derive(Serialize)]
struct Content<'a> {
    role: &'static str,
    parts: Vec<Piece<'a>>,
}

#[derive(Serialize)]
#[serde(untagged)]
enum Piece<'a> {
    Text {
        text: &'a str,
        #[serde(skip_serializing_if = "std::ops::Not::not")]
        thought: bool,
        #[serde(rename = "thoughtSignature", skip_serializing_if = "Option::is_none")]
        signature: Option<Signature<'a>>,
    },
    Call {
        #[serde(rename = "functionCall")]
        call: FunctionCall<'a>,
        #[serde(rename = "thoughtSignature", skip_serializing_if = "Option::is_none")]
        signature: Option<Signature<'a>>,
    },
    Result {
        #[serde(rename = "functionResponse")]
        result: FunctionResponse<'a>,
    },
    Data {
        #[serde(rename = "inlineData")]
        data: Inline<'a>,
    },
    Link {
        #[serde(rename = "fileData")]
        link: FileUri<'a>,
    },
    Raw(&'a RawValue),
}

/// A signature: a JSON string, byte for byte.
#[derive(Clone, Copy, Serialize)]
#[serde(untagged)]
enum Signature<'a> {
    Own(&'a RawValue),
    Word(&'static str),
}

#[derive(Serialize)]
struct FunctionCall<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    id: Option<&'a RawValue>,
    name: String,
    args: &'a RawValue,
}

#[derive(Serialize)]
struct FunctionResponse<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    id: Option<&'a RawValue>,
    name: String,
    response: Outcome<'a>,
}

#[derive(Serialize)]
#[serde(rename_all = "lowercase")]
enum Outcome<'a> {
    Output(&'a str),
    Error(&'a str),
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Inline<'a> {
    mime_type: &'a str,
    data: &'a str,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct FileUri<'a> {
    mime_type: &'a str,
    file_uri: &'a str,
}

#[derive(Serialize)]
struct Declaration<'a> {
    name: &'a str,
    description: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    parameters: Option<Value>,
}

/// What this provider attached to a part.
#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Own<'a> {
    #[serde(borrow, default)]
    thought_signature: Option<&'a RawValue>,
    #[serde(borrow, default)]
    id: Option<&'a RawValue>,
}

impl<'a> Own<'a> {
    fn of(raw: Option<&'a RawValue>) -> Self {
        let own: Self = raw.and_then(|r| serde_json::from_str(r.get()).ok()).unwrap_or_default();
        let text = |f: Option<&'a RawValue>| f.filter(|f| f.get().starts_with('"') && f.get() != "\"\"");
        Self { thought_signature: text(own.thought_signature), id: text(own.id) }
    }
}

/// The name under which this dialect's signatures are kept.
pub(crate) fn own_key(provider: &str) -> String {
    convert::own_key(provider, "gemini")
}

/// The body of one call.
pub(crate) fn build(provider: &str, model: &str, call: &Call, options: &[&Map<String, Value>]) -> Vec<u8> {
    let turns = convert::turns(&call.messages, &own_key(provider), IDS, !call.tools.is_empty());
    let version = Version::of(model);
    let mut contents: Vec<Content<'_>> = Vec::with_capacity(turns.len());
    // The calls of the turn before, by wire id.
    let mut called: HashMap<&str, Called<'_>> = HashMap::new();
    for turn in &turns {
        match turn {
            Turn::User { results, parts } => {
                let mut answers: Vec<(usize, Piece<'_>)> = results
                    .iter()
                    .map(|r| {
                        let Called { at, name, id } = called.remove(r.id.as_str()).unwrap_or_default();
                        let response = if r.is_error() { Outcome::Error(r.text()) } else { Outcome::Output(r.text()) };
                        (at, Piece::Result { result: FunctionResponse { id, name, response } })
                    })
                    .collect();
                // Where there are no ids, the order says which result is whose.
                answers.sort_by_key(|(at, _)| *at);
                let results = answers.into_iter().map(|(_, piece)| piece);
                let parts = results.chain(parts.iter().filter_map(user_piece)).collect();
                contents.push(Content { role: "user", parts });
            }
            Turn::Assistant(said) => contents.push(model_content(said, version, &mut called)),
        }
    }
    let mut body = Body::with_capacity(call.size());
    if !call.system.trim().is_empty() {
        body.set("systemInstruction", &json!({"parts": [{"text": &*call.system}]}));
    }
    if !call.tools.is_empty() {
        body.set("tools", &[json!({"functionDeclarations": declarations(&call.tools)})]);
        if call.force_text {
            body.set("toolConfig", &json!({"functionCallingConfig": {"mode": "NONE"}}));
        }
    }
    body.set("contents", &contents);
    let mut generation = Map::new();
    if let Some(most) = call.max_output {
        generation.insert("maxOutputTokens".to_owned(), json!(most.max(1)));
    }
    if let Some(thinking) = thinking(version, model, call.variant.as_deref()) {
        generation.insert("thinkingConfig".to_owned(), thinking);
    }
    if !generation.is_empty() {
        body.set("generationConfig", &generation);
    }
    for o in options {
        body.merge(o);
    }
    body.into_bytes()
}

fn declarations(specs: &[ToolSpec]) -> Vec<Declaration<'_>> {
    specs
        .iter()
        .map(|t| Declaration { name: &t.name, description: &t.description, parameters: schema::parameters(&t.schema) })
        .collect()
}

fn user_piece<'a>(said: &'a Said<'a>) -> Option<Piece<'a>> {
    match said {
        Said::Text(text) => Some(Piece::Text { text, thought: false, signature: None }),
        Said::File { media_type, data } => Some(file(media_type, data)),
        _ => None,
    }
}

fn file<'a>(media_type: &'a str, data: &'a str) -> Piece<'a> {
    let taken = ["image/", "audio/", "video/", "text/"].iter().any(|k| media_type.starts_with(k));
    if !taken && media_type != "application/pdf" {
        let text = "(a file of a kind this model is not given)";
        return Piece::Text { text, thought: false, signature: None };
    }
    if data.starts_with("http://") || data.starts_with("https://") {
        return Piece::Link { link: FileUri { mime_type: media_type, file_uri: data } };
    }
    let data = data.split_once("base64,").map_or(data, |(_, d)| d);
    Piece::Data { data: Inline { mime_type: media_type, data } }
}

/// What a result repeats of its call, and the call's place among the others.
#[derive(Default)]
struct Called<'a> {
    at: usize,
    name: String,
    id: Option<&'a RawValue>,
}

fn model_content<'a>(said: &'a [Said<'a>], version: Version, called: &mut HashMap<&'a str, Called<'a>>) -> Content<'a> {
    let mut parts: Vec<Piece<'a>> = Vec::new();
    let mut first_call = true;
    for said in said {
        let piece = match said {
            Said::Text(text) => Piece::Text { text, thought: false, signature: None },
            Said::Reasoning(text, own) => match Own::of(Some(own)).thought_signature {
                Some(s) => Piece::Text { text, thought: true, signature: Some(Signature::Own(s)) },
                None => continue,
            },
            Said::Call { id, name, input, opts } => {
                let own = Own::of(*opts);
                let name = function_name(name);
                called.insert(id, Called { at: called.len(), name: name.clone(), id: own.id });
                let signature = match own.thought_signature {
                    Some(s) => Some(Signature::Own(s)),
                    // Each step has to begin with a signed call. One that another model made, or that
                    // was made before signatures, passes with this word.
                    None if first_call && version.signs() => Some(Signature::Word("skip_thought_signature_validator")),
                    None => None,
                };
                first_call = false;
                Piece::Call { call: FunctionCall { id: own.id, name, args: input }, signature }
            }
            Said::Other(raw) => match Own::of(Some(raw)).thought_signature {
                // A signature kept beside the text it came with; alone it came with an empty part.
                Some(s) => match parts.last_mut() {
                    Some(Piece::Text { thought: false, signature: signature @ None, .. }) => {
                        *signature = Some(Signature::Own(s));
                        continue;
                    }
                    _ => Piece::Text { text: "", thought: false, signature: Some(Signature::Own(s)) },
                },
                None if is_other_part(raw) => Piece::Raw(raw),
                None => continue,
            },
            Said::File { .. } => continue,
        };
        parts.push(piece);
    }
    if parts.iter().all(|p| matches!(p, Piece::Text { thought: true, .. })) {
        parts.push(Piece::Text { text: "(no answer)", thought: false, signature: None });
    }
    Content { role: "model", parts }
}

/// Whether this can go back as a part of a kind that is not known here: a part has one kind of data, and
/// those that are known are never raw.
pub(super) fn is_other_part(raw: &RawValue) -> bool {
    const KNOWN: [&str; 3] = ["text", "functionCall", "functionResponse"];
    let Ok(fields) = serde_json::from_str::<HashMap<String, &RawValue>>(raw.get()) else { return false };
    let mut data = fields.keys().filter(|k| !matches!(k.as_str(), "thought" | "thoughtSignature"));
    let kind = data.next();
    kind.is_some_and(|k| !KNOWN.contains(&k.as_str())) && data.next().is_none()
}

/// Names begin with a letter or an underscore.
fn function_name(name: &str) -> String {
    if name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_') {
        return name.to_owned();
    }
    format!("_{name}").chars().take(64).collect()
}

/// What a model's name says of its age.
#[derive(Clone, Copy, Debug, PartialEq, PartialOrd)]
struct Version(f32);

impl Version {
    /// `gemini-2.5-pro` is 2.5; a name without a number is taken for the newest.
    fn of(model: &str) -> Self {
        let rest = model.rsplit('/').next().unwrap_or(model);
        if !rest.starts_with("gemini") {
            return Self(0.0);
        }
        let number = rest.trim_start_matches("gemini-").split('-').next().and_then(|n| n.parse().ok());
        Self(number.unwrap_or(f32::MAX))
    }

    /// Whether it signs calls and wants that back.
    fn signs(self) -> bool {
        self.0 >= 3.0
    }

    fn thinks(self) -> bool {
        self.0 >= 2.5
    }
}

/// Models of the 2.5 line think by budget, later ones by level; earlier ones and those that draw refuse
/// to be asked.
fn thinking(version: Version, model: &str, effort: Option<&str>) -> Option<Value> {
    if !version.thinks() || model.contains("-image") || model.contains("-tts") {
        return None;
    }
    let mut config = json!({"includeThoughts": true});
    match effort {
        None => {}
        Some("none") if !version.signs() => config = json!({"thinkingBudget": 0}),
        Some(effort) if version.signs() => {
            config["thinkingLevel"] = match effort {
                "none" => json!("minimal"),
                "max" | "xhigh" => json!("high"),
                other => json!(other),
            };
        }
        Some(effort) => {
            let budget = match effort {
                "minimal" => 512,
                "low" => 4_096,
                "medium" => 10_240,
                _ => 24_576,
            };
            config["thinkingBudget"] = json!(budget);
        }
    }
    Some(config)
}
