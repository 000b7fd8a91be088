//! From the stored conversation to one that any provider takes.
//!
//! Owns what the dialects share: alternating turns, each call's result directly behind it, no empty
//! text, wire ids and names. `fold::legal` sees to most of it; this holds for any history, because a
//! provider refuses the whole request for one slip. Must not know a wire format.

use glrs_protocol::message::{Message, Output, Part, Role};
use serde_json::value::RawValue;
use sha2::{Digest, Sha256};
use std::collections::{HashMap, HashSet};
use std::fmt::Write;
use std::sync::Arc;

/// Which ids a provider takes for calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum IdStyle {
    /// `[a-zA-Z0-9_-]`, at most so many.
    Plain(usize),
    /// Exactly nine letters and digits (Mistral).
    Nine,
}

/// One turn of a legal conversation.
#[derive(Debug)]
pub(crate) enum Turn<'a> {
    /// From the user's side: results first, then text and files.
    User {
        /// Results of exactly the calls of the assistant turn before.
        results: Vec<Answered<'a>>,
        /// Text and files.
        parts: Vec<Said<'a>>,
    },
    /// From the model: no call is followed by text, and a turn with calls ends in one.
    Assistant(Vec<Said<'a>>),
}

/// A result on its way out.
#[derive(Debug)]
pub(crate) struct Answered<'a> {
    /// Wire id of its call.
    pub id: String,
    /// What came back; `None` when nothing ever did.
    pub output: Option<&'a Output>,
}

impl Answered<'_> {
    /// What the model is given; never blank.
    pub(crate) fn text(&self) -> &str {
        match self.output {
            None => "(no result: the call was interrupted)",
            Some(o) if o.as_text().trim().is_empty() => "(no output)",
            Some(o) => o.as_text(),
        }
    }

    /// Whether it reports a failure.
    pub(crate) fn is_error(&self) -> bool {
        self.output.is_none_or(Output::is_error)
    }
}

/// A part on its way out.
#[derive(Debug)]
pub(crate) enum Said<'a> {
    /// Text that is not blank.
    Text(std::borrow::Cow<'a, str>),
    /// Reasoning of this provider, with what it needs back.
    Reasoning(&'a str, &'a RawValue),
    /// A call with its wire id and name, and what this provider attached to it.
    Call { id: String, name: String, input: &'a RawValue, opts: Option<&'a RawValue> },
    /// An image or a file.
    File { media_type: &'a str, data: &'a str },
    /// A block of this provider that this build does not understand.
    Other(&'a RawValue),
}

/// The conversation as legal turns: it begins and ends on the user's side, sides alternate, and every
/// call has one result. Without tools (`with_tools` false) calls and results become text, since several
/// providers refuse calls in a request that defines no tools.
/// Reasoning, signatures and unknown blocks go back only to where they came from: `own` is the name
/// under which they were kept (a provider, or `provider/dialect`, see [`own_key`]).
pub(crate) fn turns<'a>(messages: &'a [Arc<Message>], own: &str, style: IdStyle, with_tools: bool) -> Vec<Turn<'a>> {
    let mut ids = Ids { style, used: HashSet::new(), last: HashMap::new() };
    let mut out: Vec<Turn<'_>> = Vec::new();
    // Calls of the last assistant turn, by wire id, in order; results are sought until the model speaks.
    let mut open: Vec<String> = Vec::new();
    for message in messages {
        if message.role == Role::Assistant {
            let said = assistant(message, &mut ids, own, with_tools);
            if said.is_empty() {
                continue;
            }
            let calls: Vec<String> = call_ids(&said).map(str::to_owned).collect();
            match out.last_mut() {
                Some(Turn::Assistant(before)) => {
                    before.extend(said);
                    open.extend(calls);
                }
                _ => {
                    out.push(Turn::Assistant(said));
                    open = calls;
                }
            }
            continue;
        }
        let (mut results, mut parts) = (Vec::new(), Vec::new());
        for part in &message.parts {
            match part {
                Part::ToolResult { id, output, .. } if with_tools => {
                    // A result without a call, or a second one, has no place on the wire.
                    if let Some(wire) = ids.last.get(id.as_str())
                        && let Some(at) = open.iter().position(|o| o == wire)
                    {
                        results.push(Answered { id: open.remove(at), output: Some(output) });
                    }
                }
                Part::ToolResult { name, output, .. } => {
                    let word = if output.is_error() { "error" } else { "result" };
                    parts.push(Said::Text(format!("[{word} of {name}]\n{}", output.as_text()).into()));
                }
                Part::Text(t) if !t.trim().is_empty() => parts.push(Said::Text(t.as_str().into())),
                Part::File { media_type, data, .. } => parts.push(Said::File { media_type, data }),
                _ => {}
            }
        }
        if results.is_empty() && parts.is_empty() {
            continue;
        }
        match out.last_mut() {
            Some(Turn::User { results: r, parts: p }) => {
                r.extend(results);
                p.extend(parts);
            }
            _ => out.push(Turn::User { results, parts }),
        }
    }
    complete(&mut out);
    out
}

/// A message for a model that takes no images: in the place of each it is told that there is one. The
/// conversation keeps it, for a model that does.
pub(crate) fn without_images(message: &Arc<Message>) -> Arc<Message> {
    let image = |p: &Part| matches!(p, Part::File { media_type, .. } if media_type.starts_with("image/"));
    if !message.parts.iter().any(image) {
        return Arc::clone(message);
    }
    let told = |p: &Part| match p {
        Part::File { media_type, .. } if image(p) => {
            Part::Text(format!("[an image ({media_type}) is here, but you are not given images: say so if it matters]"))
        }
        other => other.clone(),
    };
    Arc::new(Message { role: message.role, parts: message.parts.iter().map(told).collect() })
}

/// Adds what is missing: results of calls that have none, a first and a last word of the user, and text
/// before calls where it came the wrong way round.
fn complete(turns: &mut Vec<Turn<'_>>) {
    if matches!(turns.first(), Some(Turn::Assistant(_))) {
        turns.insert(0, user("(the beginning of this conversation is not shown)"));
    }
    if matches!(turns.last(), None | Some(Turn::Assistant(_))) {
        turns.push(user("(continue)"));
    }
    let mut calls: Vec<String> = Vec::new();
    for turn in turns.iter_mut() {
        match turn {
            Turn::Assistant(parts) => {
                calls = call_ids(parts).map(str::to_owned).collect();
                let behind = parts.iter().skip_while(|p| !matches!(p, Said::Call { .. }));
                let text_behind = behind.clone().any(|p| matches!(p, Said::Text(_)));
                let ends_otherwise = behind.last().is_some_and(|p| !matches!(p, Said::Call { .. }));
                if text_behind || ends_otherwise {
                    // Stable: everything else stays in its order.
                    parts.sort_by_key(|p| matches!(p, Said::Call { .. }));
                }
            }
            Turn::User { results, .. } => {
                for id in std::mem::take(&mut calls) {
                    if !results.iter().any(|r| r.id == id) {
                        results.push(Answered { id, output: None });
                    }
                }
            }
        }
    }
}

fn user(text: &'static str) -> Turn<'static> {
    Turn::User { results: Vec::new(), parts: vec![Said::Text(text.into())] }
}

fn call_ids<'b>(parts: &'b [Said<'_>]) -> impl Iterator<Item = &'b str> {
    parts.iter().filter_map(|p| match p {
        Said::Call { id, .. } => Some(id.as_str()),
        _ => None,
    })
}

fn assistant<'a>(message: &'a Message, ids: &mut Ids<'a>, key: &str, with_tools: bool) -> Vec<Said<'a>> {
    let mut said = Vec::new();
    for part in &message.parts {
        match part {
            Part::Text(t) if !t.trim().is_empty() => said.push(Said::Text(t.as_str().into())),
            Part::Reasoning { text, opts } => {
                said.extend(opts_of(opts.as_deref(), key).map(|own| Said::Reasoning(text, own)));
            }
            Part::ToolCall { id, name, input, opts } if with_tools => said.push(Said::Call {
                id: ids.of_call(id),
                name: wire_name(name),
                input,
                opts: opts_of(opts.as_deref(), key),
            }),
            Part::ToolCall { name, input, .. } => {
                said.push(Said::Text(format!("[called {name} with {}]", input.get()).into()));
            }
            Part::Other(raw) => said.extend(block_of(raw, key).map(Said::Other)),
            _ => {}
        }
    }
    said
}

/// Wire ids. The same history gives the same ids every time, whatever comes behind it.
struct Ids<'a> {
    style: IdStyle,
    used: HashSet<String>,
    last: HashMap<&'a str, String>,
}

impl<'a> Ids<'a> {
    fn of_call(&mut self, id: &'a str) -> String {
        let mut wire = wire_id(id, self.style);
        let mut nth = 1;
        while self.used.contains(&wire) {
            nth += 1;
            wire = wire_id(&format!("{id}#{nth}"), self.style);
        }
        self.used.insert(wire.clone());
        self.last.insert(id, wire.clone());
        wire
    }
}

/// An id as the provider takes it: as it is when it can be, else shortened with a hash of the whole.
pub(crate) fn wire_id(id: &str, style: IdStyle) -> String {
    let most = match style {
        IdStyle::Nine if id.len() == 9 && id.bytes().all(|b| b.is_ascii_alphanumeric()) => return id.to_owned(),
        IdStyle::Nine => return hash(id, 9),
        IdStyle::Plain(most) => most,
    };
    let ok = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
    if !id.is_empty() && id.len() <= most && id.chars().all(ok) {
        return id.to_owned();
    }
    let head: String = id.chars().map(|c| if ok(c) { c } else { '_' }).take(most - 9).collect();
    format!("{head}_{}", hash(id, 8))
}

fn hash(text: &str, length: usize) -> String {
    let mut hex = String::new();
    for b in Sha256::digest(text.as_bytes()).iter().take(length.div_ceil(2)) {
        let _ = write!(hex, "{b:02x}");
    }
    hex.truncate(length);
    hex
}

/// A tool name every provider takes. Models invent names; what they called stays in the history.
pub(crate) fn wire_name(name: &str) -> String {
    let ok = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
    let wire: String = name.chars().map(|c| if ok(c) { c } else { '_' }).take(64).collect();
    if wire.is_empty() { "unknown".into() } else { wire }
}

/// Under which name a provider's own blocks are kept in a dialect that came later than the others:
/// the same provider may be spoken to in several, and takes back only what it said in the same one.
/// No provider's id has a slash in it.
pub(crate) fn own_key(provider: &str, dialect: &str) -> String {
    format!("{provider}/{dialect}")
}

/// What was put into `providerOptions` under that name, raw.
pub(crate) fn opts_of<'a>(opts: Option<&'a RawValue>, key: &str) -> Option<&'a RawValue> {
    let map: HashMap<String, &RawValue> = serde_json::from_str(opts?.get()).ok()?;
    map.get(key).copied()
}

/// `providerOptions` with this JSON under that name.
pub(crate) fn opts_with(key: &str, own: &str) -> Option<Box<RawValue>> {
    let key = serde_json::to_string(key).ok()?;
    RawValue::from_string(format!("{{{key}:{}}}", one_line(own))).ok()
}

/// A block this build does not know, tagged with the name of where it may go back to.
pub(crate) fn tagged_block(key: &str, block: &str) -> Option<Part> {
    let provider = serde_json::to_string(key).ok()?;
    let json = format!(r#"{{"type":"provider-block","provider":{provider},"block":{}}}"#, one_line(block));
    RawValue::from_string(json).ok().map(Part::Other)
}

fn block_of<'a>(raw: &'a RawValue, key: &str) -> Option<&'a RawValue> {
    #[derive(serde::Deserialize)]
    struct Tagged<'b> {
        provider: String,
        #[serde(borrow)]
        block: &'b RawValue,
    }
    let tagged: Tagged<'a> = serde_json::from_str(raw.get()).ok()?;
    (tagged.provider == key).then_some(tagged.block)
}

/// An id for a call that the conversation does not have yet, and from now on has.
pub(crate) fn unique(taken: &mut HashSet<String>, id: &str) -> String {
    let base = if id.is_empty() { "call" } else { id };
    let mut unique = if id.is_empty() { "call_1".to_owned() } else { id.to_owned() };
    let mut nth = 1;
    while taken.contains(&unique) {
        nth += 1;
        unique = format!("{base}_{nth}");
    }
    taken.insert(unique.clone());
    unique
}

/// JSON on one line. Line ends between tokens become spaces: entries are kept one a line. Inside
/// strings JSON has no raw line ends.
pub(crate) fn one_line(json: &str) -> String {
    json.replace(['\n', '\r'], " ")
}

/// Why a call's input cannot be used, or the input: an object, byte for byte as the model gave it.
pub(crate) fn tool_input(args: &str, cut_by_length: bool) -> Result<Box<RawValue>, String> {
    const CUT: &str = "the output limit was reached while the input was being written; it was not run";
    let args = args.trim();
    if args.is_empty() && cut_by_length {
        return Err(CUT.into());
    }
    let args = if args.is_empty() { "{}".to_owned() } else { one_line(args) };
    match serde_json::from_str::<Box<RawValue>>(&args) {
        Ok(raw) if raw.get().starts_with('{') => Ok(raw),
        Ok(_) => Err("the input is not a JSON object; it was not run".into()),
        Err(_) if cut_by_length => Err(CUT.into()),
        Err(_) => Err("the input is not valid JSON; it was not run".into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_stable_and_fit() {
        let p = IdStyle::Plain(40);
        assert_eq!(wire_id("call_1-A", p), "call_1-A");
        let odd = wire_id("functions.read:0", p);
        assert_eq!(odd, wire_id("functions.read:0", p));
        assert_ne!(odd, wire_id("functions_read:0", p));
        assert!(wire_id(&"x".repeat(200), p).len() <= 40);
        assert_eq!(wire_id("abcDEF123", IdStyle::Nine), "abcDEF123");
        assert_eq!(wire_id("call_1", IdStyle::Nine).len(), 9);
        assert!(!wire_id("", p).is_empty());
    }

    #[test]
    fn input_is_kept_byte_for_byte_or_refused() {
        assert_eq!(tool_input("", false).unwrap().get(), "{}");
        assert_eq!(tool_input(r#" {"b":1.0,"a":[ 1 ]}"#, false).unwrap().get(), r#"{"b":1.0,"a":[ 1 ]}"#);
        assert_eq!(tool_input("{\n \"a\": \"x\\ny\"\n}", false).unwrap().get(), r#"{  "a": "x\ny" }"#);
        assert!(tool_input(r#"{"path":"a"#, true).unwrap_err().contains("output limit"));
        assert!(tool_input("", true).is_err());
        assert!(tool_input(r#"{"path":"a"#, false).unwrap_err().contains("not valid JSON"));
        assert!(tool_input("[1]", false).is_err());
        let deep = format!("{{\"a\":{}{}}}", "[".repeat(400), "]".repeat(400));
        assert_eq!(tool_input(&deep, false).unwrap().get(), deep);
    }

    #[test]
    fn a_model_without_eyes_is_told_what_it_misses() {
        let raw = r#"{"role":"user","content":[{"type":"text","text":"see"},{"type":"image","image":"QUJD","mediaType":"image/png"},{"type":"file","data":"QQ==","mediaType":"application/pdf"}]}"#;
        let seen = Arc::new(Message::parse(raw).unwrap());
        let told = without_images(&seen);
        assert!(told.joined_text().contains("an image (image/png)"));
        assert!(matches!(told.parts[2], Part::File { kind: "file", .. }));
        let plain = Arc::new(Message::text(Role::User, "x"));
        assert!(Arc::ptr_eq(&plain, &without_images(&plain)));
    }

    #[test]
    fn opts_are_found_by_provider() {
        let raw = RawValue::from_string(r#"{"anthropic":{"signature":"s="}}"#.into()).unwrap();
        assert_eq!(opts_of(Some(&raw), "anthropic").unwrap().get(), r#"{"signature":"s="}"#);
        assert!(opts_of(Some(&raw), "openai").is_none());
    }
}
