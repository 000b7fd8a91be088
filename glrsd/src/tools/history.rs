//! Tools that reach back into the session: `recall`, and `compaction_*` over artifacts.
//!
//! Owns their words. They are listed only once there is something to reach back to, which the
//! session decides; what they do goes through [`ToolCtx`].

use super::{ArtifactCall, Outcome, Tool, ToolCtx, ToolSpec, input, spec};
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use serde::Deserialize;
use serde_json::value::RawValue;

/// Name of the tool that reads a cleared result back.
pub const RECALL: &str = "recall";
/// What the names of the tools over artifacts start with.
pub const COMPACTION: &str = "compaction_";
/// Name of the extension that the tools over artifacts are.
pub const EXTENSION: &str = "compaction-artifacts";

/// Most bytes of a result in one answer: what is over would be clipped from the middle.
const PAGE: usize = 24_000;

/// Reads a cleared result back.
#[derive(Debug)]
pub struct Recall;

/// Which of the four.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Artifacts {
    /// `compaction_list`
    List,
    /// `compaction_read`
    Read,
    /// `compaction_annotate`
    Annotate,
    /// `compaction_delete`
    Delete,
}

fn outcome(r: Result<String, String>) -> Outcome {
    match r {
        Ok(text) => Outcome::ok(text),
        Err(why) => Outcome::error(why),
    }
}

/// The part of a result from `offset` on that fits one answer, and where to go on.
fn page(whole: &str, offset: u64) -> String {
    let edge = |at: usize| whole.floor_char_boundary(at.min(whole.len()));
    let from = edge(usize::try_from(offset).unwrap_or(usize::MAX));
    let to = edge(from.saturating_add(PAGE));
    if from == 0 && to == whole.len() {
        return whole.to_owned();
    }
    let more = if to < whole.len() { format!("; go on at offset {to}") } else { String::new() };
    format!("{}\n[bytes {from} to {to} of {}{more}]", &whole[from..to], whole.len())
}

impl Tool for Recall {
    fn spec(&self) -> ToolSpec {
        spec(
            RECALL,
            "Reads back the whole result of an earlier tool call that was cleared from the conversation to make room. \
             A cleared result says which entry it was; give that number.",
            r#"{"type":"object","properties":{"entry":{"type":"integer","minimum":1,"description":"The entry number that the cleared result names."},"offset":{"type":"integer","minimum":0,"description":"First byte; 0 unless given. A long result comes in parts."}},"required":["entry"],"additionalProperties":false}"#,
        )
    }

    fn detail(&self, input: &RawValue) -> String {
        #[derive(Deserialize)]
        struct Input {
            entry: serde_json::Number,
        }
        serde_json::from_str::<Input>(input.get()).map(|i| format!("entry {}", i.entry)).unwrap_or_default()
    }

    fn parallel(&self) -> bool {
        true
    }

    fn run<'a>(&'a self, ctx: &'a dyn ToolCtx, raw: &'a RawValue) -> BoxFuture<'a, Outcome> {
        #[derive(Deserialize)]
        struct Input {
            #[serde(deserialize_with = "input::count")]
            entry: Option<u64>,
            #[serde(default, deserialize_with = "input::count")]
            offset: Option<u64>,
        }
        async move {
            match input::parse::<Input>(RECALL, r#"{"entry": number, "offset"?: number}"#, raw) {
                Ok(Input { entry: Some(n), offset }) => {
                    outcome(ctx.recall(n).await.map(|whole| page(&whole, offset.unwrap_or(0))))
                }
                Ok(_) => Outcome::error("Give the entry number that the cleared result names."),
                Err(o) => o,
            }
        }
        .boxed()
    }
}

#[derive(Deserialize)]
struct Which {
    id: String,
    #[serde(default, deserialize_with = "input::count")]
    offset: Option<u64>,
    #[serde(default, deserialize_with = "input::count")]
    limit: Option<u64>,
    #[serde(default)]
    label: Option<String>,
    #[serde(default)]
    note: Option<String>,
}

impl Artifacts {
    fn call(self, raw: &RawValue) -> Result<ArtifactCall, Outcome> {
        if self == Self::List {
            return Ok(ArtifactCall::List);
        }
        let w: Which = input::parse(&self.spec().name, r#"{"id": string, …}"#, raw)?;
        Ok(match self {
            Self::Read => ArtifactCall::Read { id: w.id, offset: w.offset.unwrap_or(0), limit: w.limit },
            Self::Annotate => ArtifactCall::Annotate { id: w.id, label: w.label, note: w.note },
            _ => ArtifactCall::Delete { id: w.id },
        })
    }
}

impl Tool for Artifacts {
    fn spec(&self) -> ToolSpec {
        match self {
            Self::List => spec(
                "compaction_list",
                "Lists what earlier compactions of this conversation replaced: for each its id, label, time, number of \
                 messages and note. Use it when the brief at the start leaves out something you need.",
                r#"{"type":"object","properties":{},"required":[],"additionalProperties":false}"#,
            ),
            Self::Read => spec(
                "compaction_read",
                "Reads the messages that a compaction replaced, unchanged. Long ones come in parts: the answer says at \
                 which offset to go on.",
                r#"{"type":"object","properties":{"id":{"type":"string","description":"The id that compaction_list gave."},"offset":{"type":"integer","minimum":0,"description":"First byte; 0 unless given."},"limit":{"type":"integer","minimum":1,"description":"Most bytes; 24000 unless given."}},"required":["id"],"additionalProperties":false}"#,
            ),
            Self::Annotate => spec(
                "compaction_annotate",
                "Changes the label or the note of what a compaction replaced, so that it is found again later. The \
                 messages themselves stay as they are.",
                r#"{"type":"object","properties":{"id":{"type":"string","description":"The id that compaction_list gave."},"label":{"type":"string","description":"The new label, one line."},"note":{"type":"string","description":"The new note, one line."}},"required":["id"],"additionalProperties":false}"#,
            ),
            Self::Delete => spec(
                "compaction_delete",
                "Deletes what a compaction replaced, for good. The conversation and its brief stay as they are. Only \
                 when the person asked for it.",
                r#"{"type":"object","properties":{"id":{"type":"string","description":"The id that compaction_list gave."}},"required":["id"],"additionalProperties":false}"#,
            ),
        }
    }

    fn detail(&self, raw: &RawValue) -> String {
        input::one_line(&input::field(raw, "id").unwrap_or_default())
    }

    fn run<'a>(&'a self, ctx: &'a dyn ToolCtx, raw: &'a RawValue) -> BoxFuture<'a, Outcome> {
        async move {
            match self.call(raw) {
                Ok(call) => outcome(ctx.artifacts(call).await),
                Err(o) => o,
            }
        }
        .boxed()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_result_comes_back_whole_in_parts() {
        let whole = "é".repeat(30_001);
        let (mut got, mut at) = (String::new(), 0);
        loop {
            let part = page(&whole, at);
            got.push_str(part.rsplit_once("\n[bytes ").unwrap().0);
            match part.rsplit_once("offset ") {
                Some((_, next)) => at = next.trim_end_matches(']').parse().unwrap(),
                None => break,
            }
        }
        assert_eq!(got, whole);
        assert_eq!((page("short", 0).as_str(), page("short", 99).lines().next()), ("short", Some("")));
    }
}
