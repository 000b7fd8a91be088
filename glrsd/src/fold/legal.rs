//! Legality: whatever a history looks like, what is sent is a conversation every provider takes.
//!
//! Owns: each tool call has exactly one result directly behind it, ids are unique, no message is
//! empty, no result stands without its call. What one provider wants beyond that (alternation, id
//! formats, block order) is its adapter's business. Deterministic, so that the request's prefix
//! stays byte-stable from step to step.

use glrs_protocol::message::{Message, Output, Part, Role};
use std::collections::{HashSet, VecDeque};
use std::sync::Arc;

/// What stands in for the result of a call that has none.
pub const NO_RESULT: &str = "No result: this call did not finish. Do not assume that it had no effect.";

fn is_blank(part: &Part) -> bool {
    match part {
        Part::Text(t) => t.trim().is_empty(),
        Part::Reasoning { text, opts } => text.trim().is_empty() && opts.is_none(),
        _ => false,
    }
}

fn unique(id: &str, used: &mut HashSet<String>) -> String {
    let base = if id.is_empty() { "call" } else { id };
    let mut candidate = base.to_owned();
    let mut k = 2;
    while !used.insert(candidate.clone()) {
        candidate = format!("{base}_{k}");
        k += 1;
    }
    candidate
}

/// Whether a user message needs no change.
fn plain_user(m: &Message) -> bool {
    !m.parts.is_empty() && m.parts.iter().all(sendable_by_user)
}

/// Whether an assistant message without calls needs no change.
fn plain_assistant(m: &Message) -> bool {
    !m.parts.is_empty() && m.parts.iter().all(assistant_part)
}

/// The messages as they may be sent. Messages that are fine are passed on, not copied.
pub fn legalize(messages: &[Arc<Message>]) -> Vec<Arc<Message>> {
    let mut out: Vec<Arc<Message>> = Vec::with_capacity(messages.len());
    let mut used = HashSet::new();
    let mut i = 0;
    while i < messages.len() {
        let m = &messages[i];
        i += 1;
        match m.role {
            // Old files may hold instructions of another program; a result here has no call.
            Role::System | Role::Tool => {}
            Role::User => {
                if plain_user(m) {
                    out.push(m.clone());
                } else {
                    let parts: Vec<Part> = m.parts.iter().filter(|p| sendable_by_user(p)).cloned().collect();
                    if !parts.is_empty() {
                        out.push(Arc::new(Message { role: Role::User, parts }));
                    }
                }
            }
            Role::Assistant => {
                let has_calls = m.parts.iter().any(|p| matches!(p, Part::ToolCall { .. }));
                if !has_calls {
                    if plain_assistant(m) {
                        if says_something(m) {
                            out.push(m.clone());
                        }
                    } else {
                        let parts: Vec<Part> = m.parts.iter().filter(|p| assistant_part(p)).cloned().collect();
                        let kept = Message { role: Role::Assistant, parts };
                        if says_something(&kept) {
                            out.push(Arc::new(kept));
                        }
                    }
                    continue;
                }
                // Results are looked for up to the next assistant message, so that a message that
                // slipped between a call and its result does not cost the result.
                let mut until = i;
                while until < messages.len() && messages[until].role != Role::Assistant {
                    until += 1;
                }
                let between = &messages[i..until];
                pair(m, between, &mut used, &mut out);
                for b in between.iter().filter(|b| b.role == Role::User) {
                    let parts: Vec<Part> = b.parts.iter().filter(|p| sendable_by_user(p)).cloned().collect();
                    if parts.len() == b.parts.len() && !parts.is_empty() {
                        out.push(b.clone());
                    } else if !parts.is_empty() {
                        out.push(Arc::new(Message { role: Role::User, parts }));
                    }
                }
                i = until;
            }
        }
    }
    out
}

fn sendable_by_user(p: &Part) -> bool {
    !is_blank(p) && matches!(p, Part::Text(_) | Part::File { .. })
}

fn assistant_part(p: &Part) -> bool {
    !is_blank(p) && matches!(p, Part::Text(_) | Part::Reasoning { .. } | Part::File { .. } | Part::Other(_))
}

/// Reasoning alone is no answer: a message of nothing else is dropped with it.
fn says_something(m: &Message) -> bool {
    m.parts.iter().any(|p| !matches!(p, Part::Reasoning { .. }))
}

fn pair(m: &Arc<Message>, between: &[Arc<Message>], used: &mut HashSet<String>, out: &mut Vec<Arc<Message>>) {
    let mut results: VecDeque<(&str, &Output)> = between
        .iter()
        .filter(|b| b.role == Role::Tool)
        .flat_map(|b| &b.parts)
        .filter_map(|p| match p {
            Part::ToolResult { id, output, .. } => Some((id.as_str(), output)),
            _ => None,
        })
        .collect();
    let mut calls = Vec::with_capacity(m.parts.len());
    let mut answers = Vec::new();
    let mut changed = false;
    for p in &m.parts {
        match p {
            Part::ToolCall { id, name, input, opts } => {
                let new_id = unique(id, used);
                changed |= new_id != *id;
                let output = match results.iter().position(|(rid, _)| rid == id) {
                    Some(k) => results.remove(k).map(|(_, o)| o.clone()),
                    None => None,
                };
                answers.push(Part::ToolResult {
                    id: new_id.clone(),
                    name: name.clone(),
                    output: output.unwrap_or_else(|| Output::Error(NO_RESULT.to_owned())),
                });
                calls.push(Part::ToolCall { id: new_id, name: name.clone(), input: input.clone(), opts: opts.clone() });
            }
            p if assistant_part(p) => calls.push(p.clone()),
            _ => changed = true,
        }
    }
    // A pair that was right already is passed on as it stands.
    if !changed
        && let [only] = between.iter().filter(|b| b.role == Role::Tool).collect::<Vec<_>>().as_slice()
        && same_results(only, &answers)
    {
        out.push(m.clone());
        out.push((*only).clone());
        return;
    }
    out.push(if changed { Arc::new(Message { role: Role::Assistant, parts: calls }) } else { m.clone() });
    out.push(Arc::new(Message { role: Role::Tool, parts: answers }));
}

fn same_results(stored: &Message, answers: &[Part]) -> bool {
    stored.parts.len() == answers.len()
        && stored.parts.iter().zip(answers).all(|pair| match pair {
            (Part::ToolResult { id: a, .. }, Part::ToolResult { id: b, .. }) => a == b,
            _ => false,
        })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn parse(texts: &[&str]) -> Vec<Arc<Message>> {
        texts.iter().map(|t| Arc::new(Message::parse(t).unwrap())).collect()
    }

    /// Independent of the code above: what no provider takes.
    fn check(messages: &[Arc<Message>]) -> Result<(), String> {
        let mut seen = HashSet::new();
        let mut i = 0;
        while i < messages.len() {
            let m = &messages[i];
            if m.parts.is_empty() {
                return Err(format!("message {i} is empty"));
            }
            for p in &m.parts {
                if let Part::Text(t) = p
                    && t.trim().is_empty()
                {
                    return Err(format!("blank text in {i}"));
                }
            }
            let calls: Vec<&str> = m.call_ids().collect();
            for c in &calls {
                if !seen.insert((*c).to_owned()) {
                    return Err(format!("id {c} twice"));
                }
            }
            if m.role == Role::Tool {
                return Err(format!("result without call at {i}"));
            }
            if !calls.is_empty() {
                let next = messages.get(i + 1).ok_or("call at the end without result")?;
                let ids: Vec<&str> = next
                    .parts
                    .iter()
                    .filter_map(|p| match p {
                        Part::ToolResult { id, .. } => Some(id.as_str()),
                        _ => None,
                    })
                    .collect();
                if next.role != Role::Tool || ids != calls {
                    return Err(format!("calls {calls:?} answered by {ids:?}"));
                }
                i += 1;
            }
            i += 1;
        }
        Ok(())
    }

    #[test]
    fn dangling_duplicate_and_stray() {
        let call = r#"{"role":"assistant","content":[{"type":"tool-call","toolCallId":"c","toolName":"read","input":{}},{"type":"tool-call","toolCallId":"c","toolName":"read","input":{}}]}"#;
        let res = |v: &str| {
            format!(
                r#"{{"role":"tool","content":[{{"type":"tool-result","toolCallId":"c","toolName":"read","output":{{"type":"text","value":"{v}"}}}}]}}"#
            )
        };
        let out =
            legalize(&parse(&[r#"{"role":"user","content":"q"}"#, call, &res("A"), &res("B"), &res("stray"), call]));
        check(&out).unwrap();
        let text = out.iter().map(|m| m.to_raw().unwrap().get().to_owned()).collect::<String>();
        assert!(
            text.contains("\"A\"") && text.contains("\"B\"") && !text.contains("stray") && text.contains("No result")
        );
    }

    #[test]
    fn good_messages_are_passed_on_not_copied() {
        let ms = parse(&[
            r#"{"role":"user","content":"q"}"#,
            r#"{"role":"assistant","content":[{"type":"tool-call","toolCallId":"c","toolName":"read","input":{}}]}"#,
            r#"{"role":"tool","content":[{"type":"tool-result","toolCallId":"c","toolName":"read","output":{"type":"text","value":""}}]}"#,
            r#"{"role":"assistant","content":[{"type":"text","text":"done"}]}"#,
        ]);
        let out = legalize(&ms);
        assert!(out.len() == 4 && out.iter().zip(&ms).all(|(a, b)| Arc::ptr_eq(a, b)));
    }

    fn part() -> impl Strategy<Value = String> {
        prop_oneof![
            prop_oneof!["[a-z]{0,3}", " {0,2}"].prop_map(|t| format!(r#"{{"type":"text","text":"{t}"}}"#)),
            "[abc]?"
                .prop_map(|id| format!(r#"{{"type":"tool-call","toolCallId":"{id}","toolName":"t","input":{{}}}}"#)),
            "[abcd]?".prop_map(|id| format!(
                r#"{{"type":"tool-result","toolCallId":"{id}","toolName":"t","output":{{"type":"text","value":"v"}}}}"#
            )),
            Just(r#"{"type":"reasoning","text":"hm"}"#.to_owned()),
            Just(r#"{"type":"mystery"}"#.to_owned()),
        ]
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(2000))]
        #[test]
        fn any_history_becomes_legal(
            history in prop::collection::vec(
                (prop_oneof![Just("user"), Just("assistant"), Just("tool"), Just("system")], prop::collection::vec(part(), 0..4)),
                0..12,
            )
        ) {
            let ms: Vec<Arc<Message>> = history
                .iter()
                .map(|(role, parts)| Arc::new(Message::parse(&format!(r#"{{"role":"{role}","content":[{}]}}"#, parts.join(","))).unwrap()))
                .collect();
            let out = legalize(&ms);
            prop_assert_eq!(check(&out), Ok(()));
            let again = legalize(&out);
            let bytes = |v: &[Arc<Message>]| v.iter().map(|m| m.to_raw().unwrap().get().to_owned()).collect::<Vec<_>>();
            prop_assert_eq!(bytes(&out), bytes(&again));
        }
    }
}
