//! What the rules of the dialects share: refusals, names, and what a fake has issued.

use super::reply::{Reply, Step};
use serde_json::Value;
use std::collections::HashMap;

/// Why a request is refused, in the provider's own words.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// HTTP status.
    pub status: u16,
    /// The provider's word for the kind of error.
    pub kind: String,
    /// The provider's message.
    pub message: String,
    /// The parameter at fault, where the dialect names it.
    pub param: Option<String>,
}

impl Refusal {
    /// A refusal.
    pub fn new(status: u16, kind: &str, message: &str) -> Self {
        Self { status, kind: kind.to_owned(), message: message.to_owned(), param: None }
    }

    /// An invalid request.
    pub fn invalid(message: impl Into<String>) -> Self {
        Self { status: 400, kind: "invalid_request_error".to_owned(), message: message.into(), param: None }
    }

    /// The same, naming the parameter.
    #[must_use]
    pub fn at(mut self, param: impl Into<String>) -> Self {
        self.param = Some(param.into());
        self
    }
}

/// What a fake has given out and expects back unchanged.
#[derive(Debug, Default)]
pub struct Issued {
    /// Reasoning text by signature.
    signatures: HashMap<String, String>,
    /// Signature of the reasoning that came before a call, by the call's id.
    before_call: HashMap<String, String>,
    /// Name, input and signature of calls that carry the signature themselves.
    signed_calls: Vec<(String, Value, String)>,
}

impl Issued {
    pub(super) fn remember(&mut self, reply: &Reply) {
        let mut sealed = None;
        let mut on_next = None;
        for step in &reply.steps {
            if let Step::Tool { name, input, .. } = step
                && let Some(signature) = on_next.take()
            {
                let input = serde_json::from_str(input).unwrap_or_default();
                self.signed_calls.push((name.clone(), input, signature));
            }
            match step {
                Step::Reasoning { pieces, signature } => {
                    self.signatures.insert(signature.clone(), pieces.concat());
                    sealed = Some(signature.clone());
                    on_next.clone_from(&sealed);
                }
                Step::Tool { id: Some(id), .. } => {
                    if let Some(signature) = &sealed {
                        self.before_call.insert(id.clone(), signature.clone());
                    }
                }
                _ => {}
            }
        }
    }

    /// Whether this reasoning was issued with this signature, unchanged.
    pub fn genuine(&self, text: &str, signature: &str) -> bool {
        self.signatures.get(signature).is_some_and(|t| t == text)
    }

    /// The text of the reasoning that was issued with this signature.
    pub fn sealed(&self, signature: &str) -> Option<&str> {
        self.signatures.get(signature).map(String::as_str)
    }

    /// Whether a call was issued with this signature on it, unchanged.
    pub fn signed(&self, name: &str, input: &Value, signature: &str) -> bool {
        self.signed_calls.iter().any(|(n, i, s)| n == name && i == input && s == signature)
    }

    /// Signature of the reasoning that has to stand before a call.
    pub fn needed_before(&self, call: &str) -> Option<&str> {
        self.before_call.get(call).map(String::as_str)
    }
}

/// Whether the text has 1 to `most` characters of `[a-zA-Z0-9_-]`.
pub fn is_name(text: &str, most: usize) -> bool {
    (1..=most).contains(&text.len()) && text.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_' || b == b'-')
}

/// The first key of an object that is not among `known`.
pub fn unknown_key<'a>(object: &'a Value, known: &[&str]) -> Option<&'a str> {
    object.as_object()?.keys().map(String::as_str).find(|k| !known.contains(k))
}

/// How many blocks a request marks for the cache.
pub fn marks(value: &Value) -> usize {
    match value {
        Value::Object(map) => {
            // A tool's input is data: what stands in it marks nothing.
            let inner: usize =
                map.iter().filter(|(k, _)| *k != "input" && *k != "input_schema").map(|(_, v)| marks(v)).sum();
            inner + usize::from(map.get("cache_control").is_some_and(|v| !v.is_null()))
        }
        Value::Array(list) => list.iter().map(marks).sum(),
        _ => 0,
    }
}

/// OpenAI's refusal of more output than a model gives; `gpt-4o` stands for all of them.
///
/// # Errors
/// When the request asks for more.
pub fn output_limit(body: &Value) -> Result<(), Refusal> {
    const MOST: u64 = 16_384;
    for key in ["max_tokens", "max_completion_tokens", "max_output_tokens"] {
        if let Some(asked) = body[key].as_u64().filter(|n| *n > MOST && body["model"] == "gpt-4o") {
            let words = format!(
                "{key} is too large: {asked}. This model supports at most {MOST} completion tokens, whereas you provided {asked}."
            );
            return Err(Refusal::invalid(words).at(key));
        }
    }
    Ok(())
}

/// The array under `key`, empty when there is none.
pub fn items<'a>(value: &'a Value, key: &str) -> &'a [Value] {
    value[key].as_array().map_or(&[], Vec::as_slice)
}
