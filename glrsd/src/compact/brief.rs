//! The brief: what the summariser is asked, and whether its answer is one.
//!
//! Owns the outline, clipping and chunking until a request fits the summariser's window, and the
//! judgement of the answer. Must not know sessions: it is given messages and a model.

use super::artifact::piece;
use crate::fold::context::{BRIEF_CLOSE, BRIEF_OPEN};
use crate::host::Env;
use crate::model::{Call, Chunk, Failure, Model, Sink, Stop};
use crate::tools::clip::clip_plain;
use crate::turn::prompt::CONTEXT_OPEN;
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use glrs_protocol::message::{Message, Output, Part, Role};
use std::sync::Arc;
use std::time::Duration;
use tokio_util::sync::CancellationToken;

/// Most tokens of a brief.
pub const OUTPUT: u64 = 4_000;
/// Most characters of a result that the summariser is sent.
const RESULT_CHARS: usize = 2_000;
/// Most characters of any other piece.
const PIECE_CHARS: usize = 20_000;
/// Most requests for one brief.
pub const REQUESTS: usize = 16;

/// The outline.
const SYSTEM: &str =
    "You write the brief that replaces the older part of a coding session. Whoever continues has only \
your brief and the most recent messages, so leave out nothing they need and nothing you were not shown.

First line: a plain title of under twelve words. Then a blank line. Then the brief, dense, without preamble:
- what the user asked for and every constraint they gave;
- decisions and why they were made;
- exact paths, symbols, commands and values;
- what was verified, and how;
- what failed, and what that rules out;
- what is left to do.
Answer with the brief alone.";

/// What to write a brief of.
pub struct Job {
    /// The messages that it replaces.
    pub messages: Vec<Arc<Message>>,
    /// What a person wants it to keep.
    pub instruction: Option<String>,
    /// Who writes it.
    pub model: Arc<dyn Model>,
    /// Where keys come from.
    pub env: Arc<Env>,
    /// Names the conversation; the brief has its own cache scope.
    pub cache_key: String,
    /// How long the stream may say nothing.
    pub idle: Duration,
}

struct Silent;

impl Sink for Silent {
    fn chunk(&mut self, _: Chunk) -> BoxFuture<'_, ()> {
        std::future::ready(()).boxed()
    }
}

/// A message's block of context without the instructions in it: those are sent again anyway, so
/// they are never part of what is summarised.
fn without_instructions(block: &str) -> String {
    const END: &str = "</instructions>\n";
    let mut out = String::with_capacity(block.len());
    let mut rest = block;
    while let Some(at) = rest.find("<instructions path=\"") {
        let Some(end) = rest[at..].find(END) else { break };
        out.push_str(&rest[..at]);
        rest = &rest[at + end + END.len()..];
    }
    out.push_str(rest);
    out
}

/// The conversation as text for the summariser, clipped.
fn transcript(messages: &[Arc<Message>]) -> Vec<String> {
    messages
        .iter()
        .map(|m| {
            let mut out = String::new();
            for p in &m.parts {
                match p {
                    Part::ToolResult { id, name, output } => {
                        let text = clip_plain(output.as_text(), RESULT_CHARS);
                        let clipped =
                            Part::ToolResult { id: id.clone(), name: name.clone(), output: Output::Text(text) };
                        piece(&mut out, m.role, &clipped);
                    }
                    Part::File { kind, media_type, .. } => out.push_str(&format!("[{kind} {media_type}]\n")),
                    Part::Other(_) => {}
                    other => {
                        let mut one = String::new();
                        match other {
                            Part::Text(t) if m.role == Role::User && t.starts_with(CONTEXT_OPEN) => {
                                piece(&mut one, m.role, &Part::Text(without_instructions(t)));
                            }
                            _ => piece(&mut one, m.role, other),
                        }
                        out.push_str(&clip_plain(&one, PIECE_CHARS));
                        out.push('\n');
                    }
                }
            }
            out
        })
        .collect()
}

/// Splits the pieces so that each request fits: `room` bytes each, at least one piece each.
fn chunks(pieces: Vec<String>, room: usize) -> Vec<String> {
    let mut out: Vec<String> = Vec::new();
    for p in pieces {
        let p = if p.len() > room { clip_plain(&p, room.max(400) / 2) } else { p };
        match out.last_mut() {
            Some(last) if last.len() + p.len() <= room => last.push_str(&p),
            _ => out.push(p),
        }
    }
    out
}

fn question(chunk: &str, before: Option<&str>, part: (usize, usize), instruction: Option<&str>) -> String {
    let mut q = String::new();
    if let Some(b) = before {
        q.push_str(&format!("The brief of what came before:\n{BRIEF_OPEN}\n{b}\n{BRIEF_CLOSE}\n\n"));
    }
    q.push_str("<conversation>\n");
    q.push_str(chunk);
    q.push_str("</conversation>\n\n");
    if part.1 > 1 {
        q.push_str(&format!("This is part {} of {}. ", part.0, part.1));
    }
    q.push_str("Write the brief of everything above now.");
    if let Some(i) = instruction {
        q.push_str(&format!(" Above all: {i}"));
    }
    q
}

/// Writes a brief. The error is the reason, for people.
///
/// # Errors
/// When the summariser fails, refuses, says nothing, or is cut short; never its last words instead.
pub async fn write(job: &Job, cancel: &CancellationToken) -> Result<String, String> {
    let row = job.model.row();
    // Four bytes a token is a guess; a fifth is kept in reserve for where it is a poor one.
    let room_tokens = row.context.saturating_sub(OUTPUT + 1_000) * 4 / 5;
    let room = usize::try_from(room_tokens * 3).unwrap_or(usize::MAX).max(4_000);
    let parts = chunks(transcript(&job.messages), room);
    if parts.len() > REQUESTS {
        return Err(format!("the conversation is too long for {} to summarise", row.model));
    }
    let mut brief: Option<String> = None;
    for (i, chunk) in parts.iter().enumerate() {
        let text = question(chunk, brief.as_deref(), (i + 1, parts.len()), job.instruction.as_deref());
        let call = Call {
            system: SYSTEM.into(),
            messages: vec![Arc::new(Message::text(Role::User, text))],
            tools: Arc::from([]),
            variant: None,
            max_output: row.output.map(|most| OUTPUT.min(most.max(1))),
            force_text: false,
            cache_key: format!("{}:brief", job.cache_key),
            idle: job.idle,
            env: job.env.clone(),
        };
        let reply = job.model.call(&call, &mut Silent, cancel).await.map_err(|f: Failure| f.message)?;
        let text = reply.message.joined_text().trim().to_owned();
        brief = Some(match reply.stop {
            Stop::Refused(word) => return Err(format!("{} refused ({word})", row.model)),
            Stop::Length => return Err(format!("{} was cut short", row.model)),
            _ if text.is_empty() => return Err(format!("{} answered nothing", row.model)),
            Stop::Tools | Stop::End => text,
        });
    }
    brief.ok_or_else(|| "there was nothing to summarise".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_fit_and_every_piece_is_in_one() {
        let pieces: Vec<String> = (0..50).map(|i| format!("[user]\n{}{i}\n", "x".repeat(300))).collect();
        let parts = chunks(pieces.clone(), 1000);
        assert!(parts.iter().all(|p| p.len() <= 1000) && parts.len() > 10);
        assert_eq!(parts.concat(), pieces.concat());
        assert!(chunks(vec!["y".repeat(10_000)], 1000)[0].len() <= 1000);
    }

    #[test]
    fn instructions_are_left_out_and_the_rest_of_their_block_stays() {
        let block = "<context>\nWorking directory: /w\n<instructions path=\"/w/AGENTS.md\">\nrule\n</instructions>\n<file path=\"a\">\nx\n</file>\n</context>";
        let left = without_instructions(block);
        assert_eq!(left, "<context>\nWorking directory: /w\n<file path=\"a\">\nx\n</file>\n</context>");
    }

    #[test]
    fn large_results_are_clipped_for_the_summariser() {
        let m = Message {
            role: Role::Tool,
            parts: vec![Part::ToolResult {
                id: "c".into(),
                name: "read".into(),
                output: Output::Text("z".repeat(100_000)),
            }],
        };
        assert!(transcript(&[Arc::new(m)])[0].len() < 2_500);
    }
}
