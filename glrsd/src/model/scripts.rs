//! What a provider's stream looks like, in each dialect, from one description.
//!
//! For tests only. Owns nothing but the shapes; they are written down from the providers' documents,
//! not from the decoders.

use super::catalogue::Dialect;
use serde_json::{Value, json};

/// Something a model says.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Say<'a> {
    /// Text, in two pieces.
    Text(&'a str),
    /// Reasoning and what seals it.
    Thought(&'a str, &'a str),
    /// A call: id, name, input as JSON text, in two pieces where the dialect streams it.
    Call(&'a str, &'a str, &'a str),
}

/// Why it stops.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    /// It is done, or wants its tools.
    Done,
    /// The output limit.
    Length,
    /// It does not say.
    Never,
}

fn halves(text: &str) -> [&str; 2] {
    let mut middle = text.len() / 2;
    while !text.is_char_boundary(middle) {
        middle += 1;
    }
    let (a, b) = text.split_at(middle);
    [a, b]
}

/// The data of each event of a stream: 100 input tokens of which 60 are cached, 7 of output.
pub(crate) fn events(dialect: Dialect, said: &[Say<'_>], end: End) -> Vec<String> {
    let calls = said.iter().any(|s| matches!(s, Say::Call(..)));
    let events = match dialect {
        Dialect::Anthropic => anthropic(said, end, calls),
        Dialect::OpenAi => openai(said, end, calls),
        Dialect::Responses => responses(said, end),
        Dialect::Gemini => gemini(said, end),
    };
    let mut events: Vec<String> = events.iter().map(Value::to_string).collect();
    if dialect == Dialect::OpenAi && end != End::Never {
        events.push("[DONE]".to_owned());
    }
    events
}

/// The same as one body of server-sent events.
pub(crate) fn body(events: &[String]) -> String {
    events.iter().map(|e| format!("data: {e}\n\n")).collect()
}

fn anthropic(said: &[Say<'_>], end: End, calls: bool) -> Vec<Value> {
    let usage = json!({"input_tokens": 40, "cache_read_input_tokens": 60, "cache_creation_input_tokens": 0, "output_tokens": 1});
    let mut out = vec![json!({"type": "message_start", "message": {"content": [], "usage": usage}})];
    for (i, say) in said.iter().enumerate() {
        let (start, deltas) = match say {
            Say::Text(t) => {
                let deltas = halves(t).map(|t| json!({"type": "text_delta", "text": t}));
                (json!({"type": "text", "text": ""}), deltas.to_vec())
            }
            Say::Thought(t, seal) => {
                let deltas = [
                    json!({"type": "thinking_delta", "thinking": t}),
                    json!({"type": "signature_delta", "signature": seal}),
                ];
                (json!({"type": "thinking", "thinking": "", "signature": ""}), deltas.to_vec())
            }
            Say::Call(id, name, input) => {
                let deltas = halves(input).map(|t| json!({"type": "input_json_delta", "partial_json": t}));
                (json!({"type": "tool_use", "id": id, "name": name, "input": {}}), deltas.to_vec())
            }
        };
        out.push(json!({"type": "content_block_start", "index": i, "content_block": start}));
        out.extend(deltas.iter().map(|d| json!({"type": "content_block_delta", "index": i, "delta": d})));
        out.push(json!({"type": "content_block_stop", "index": i}));
    }
    let reason = match end {
        End::Never => return out,
        End::Length => "max_tokens",
        End::Done if calls => "tool_use",
        End::Done => "end_turn",
    };
    out.push(json!({"type": "message_delta", "delta": {"stop_reason": reason}, "usage": {"output_tokens": 7}}));
    out.push(json!({"type": "message_stop"}));
    out
}

fn openai(said: &[Say<'_>], end: End, calls: bool) -> Vec<Value> {
    let chunk = |delta: Value| json!({"choices": [{"index": 0, "delta": delta, "finish_reason": null}]});
    let mut out = vec![chunk(json!({"role": "assistant", "content": ""}))];
    let mut index = 0;
    for say in said {
        match say {
            Say::Text(t) => out.extend(halves(t).map(|t| chunk(json!({"content": t})))),
            Say::Thought(t, _) => out.push(chunk(json!({"reasoning_content": t}))),
            Say::Call(id, name, input) => {
                let [a, b] = halves(input);
                let first =
                    json!({"index": index, "id": id, "type": "function", "function": {"name": name, "arguments": a}});
                out.push(chunk(json!({"tool_calls": [first]})));
                out.push(chunk(json!({"tool_calls": [{"index": index, "function": {"arguments": b}}]})));
                index += 1;
            }
        }
    }
    let reason = match end {
        End::Never => return out,
        End::Length => "length",
        End::Done if calls => "tool_calls",
        End::Done => "stop",
    };
    out.push(json!({"choices": [{"index": 0, "delta": {}, "finish_reason": reason}]}));
    out.push(json!({"choices": [], "usage": {"prompt_tokens": 100, "completion_tokens": 7, "prompt_tokens_details": {"cached_tokens": 60}}}));
    out
}

/// A whole response of the Responses API.
pub(crate) fn response(said: &[Say<'_>], end: End) -> Value {
    let output: Vec<Value> = said.iter().map(item).collect();
    let usage = json!({"input_tokens": 100, "input_tokens_details": {"cached_tokens": 60}, "output_tokens": 7});
    let (status, why) = match end {
        End::Length => ("incomplete", json!({"reason": "max_output_tokens"})),
        _ => ("completed", Value::Null),
    };
    json!({"status": status, "error": null, "incomplete_details": why, "output": output, "usage": usage})
}

fn item(say: &Say<'_>) -> Value {
    match say {
        Say::Text(t) => {
            json!({"id": "msg_1", "type": "message", "role": "assistant", "content": [{"type": "output_text", "text": t, "annotations": []}]})
        }
        Say::Thought(t, seal) => {
            json!({"id": "rs_1", "type": "reasoning", "summary": [{"type": "summary_text", "text": t}], "encrypted_content": seal})
        }
        Say::Call(id, name, input) => {
            json!({"id": "fc_1", "type": "function_call", "call_id": id, "name": name, "arguments": input})
        }
    }
}

fn responses(said: &[Say<'_>], end: End) -> Vec<Value> {
    let mut out = vec![json!({"type": "response.created", "response": {"status": "in_progress", "output": []}})];
    for (i, say) in said.iter().enumerate() {
        let whole = item(say);
        let mut begun = whole.clone();
        for field in ["content", "summary", "arguments"] {
            match begun.get_mut(field) {
                Some(Value::Array(list)) => list.clear(),
                Some(Value::String(text)) => text.clear(),
                _ => {}
            }
        }
        out.push(json!({"type": "response.output_item.added", "output_index": i, "item": begun}));
        let (kind, text) = match say {
            Say::Text(t) => ("output_text", t),
            Say::Thought(t, _) => ("reasoning_summary_text", t),
            Say::Call(_, _, input) => ("function_call_arguments", input),
        };
        for piece in halves(text) {
            out.push(json!({"type": format!("response.{kind}.delta"), "output_index": i, "summary_index": 0, "delta": piece}));
        }
        out.push(json!({"type": "response.output_item.done", "output_index": i, "item": whole}));
    }
    if end != End::Never {
        let whole = response(said, end);
        let kind = format!("response.{}", whole["status"].as_str().unwrap());
        out.push(json!({"type": kind, "response": whole}));
    }
    out
}

fn gemini(said: &[Say<'_>], end: End) -> Vec<Value> {
    let usage = json!({"promptTokenCount": 100, "cachedContentTokenCount": 60, "candidatesTokenCount": 5, "thoughtsTokenCount": 2});
    let chunk = |part: Value| json!({"candidates": [{"content": {"parts": [part], "role": "model"}, "index": 0}], "usageMetadata": usage});
    let mut out = Vec::new();
    let mut seal = None;
    for say in said {
        match say {
            Say::Text(t) => out.extend(halves(t).map(|t| chunk(json!({"text": t})))),
            Say::Thought(t, s) => {
                out.push(chunk(json!({"text": t, "thought": true})));
                seal = Some(*s);
            }
            Say::Call(id, name, input) => {
                let args: Value = serde_json::from_str(input).unwrap_or_else(|_| json!(input));
                let mut part = json!({"functionCall": {"id": id, "name": name, "args": args}});
                if let Some(seal) = seal.take() {
                    part["thoughtSignature"] = json!(seal);
                }
                out.push(chunk(part));
            }
        }
    }
    let reason = match end {
        End::Never => return out,
        End::Length => "MAX_TOKENS",
        End::Done => "STOP",
    };
    let mut last = chunk(json!({"text": "", "thoughtSignature": seal.unwrap_or("end")}));
    last["candidates"][0]["finishReason"] = json!(reason);
    out.push(last);
    out
}
