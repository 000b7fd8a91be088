//! The tool `ask`: a question to the person.
//!
//! Owns: its words. The question itself is the session's; it waits as long as it takes.

use super::{Answer, Ask as Asked, Outcome, Tool, ToolCtx, ToolSpec, files, input, spec};
use futures_util::future::BoxFuture;
use glrs_protocol::types::Decision;
use serde::Deserialize;
use serde_json::value::RawValue;

/// Most choices of a question.
const MAX_OPTIONS: usize = 20;

/// Asks a person.
#[derive(Debug)]
pub struct Ask;

const EXPECTED: &str = r#"{"question": string, "options"?: [string, …]}"#;

#[derive(Deserialize)]
struct Input {
    question: String,
    #[serde(default)]
    options: Option<Vec<String>>,
}

impl Tool for Ask {
    fn spec(&self) -> ToolSpec {
        spec(
            "ask",
            "Asks the person a question and waits for the answer. For decisions that only they can make and that \
             you cannot go on without; not for permission to use a tool, which is asked by itself. They may answer in \
             their own words even when options are given.",
            r#"{"type":"object","properties":{"question":{"type":"string","description":"The question, with what is needed to answer it."},"options":{"type":"array","items":{"type":"string"},"maxItems":20,"description":"Answers to choose from."}},"required":["question"],"additionalProperties":false}"#,
        )
    }

    fn detail(&self, input: &RawValue) -> String {
        input::one_line(&input::field(input, "question").unwrap_or_default())
    }

    fn run<'a>(&'a self, ctx: &'a dyn ToolCtx, input: &'a RawValue) -> BoxFuture<'a, Outcome> {
        Box::pin(async move { ask(ctx, input).await.unwrap_or_else(|outcome| outcome) })
    }
}

async fn ask(ctx: &dyn ToolCtx, input: &RawValue) -> Result<Outcome, Outcome> {
    let Input { question, options } = input::parse("ask", EXPECTED, input)?;
    if question.trim().is_empty() {
        return Err(Outcome::error(format!("The question is empty.\nExpected: {EXPECTED}")));
    }
    let options: Vec<String> = options.unwrap_or_default().into_iter().filter(|o| !o.trim().is_empty()).collect();
    if options.len() > MAX_OPTIONS {
        return Err(Outcome::error(format!(
            "A question has at most {MAX_OPTIONS} options, this one has {}.",
            options.len()
        )));
    }
    let answer = tokio::select! {
        biased;
        () = ctx.cancel().cancelled() => return Err(files::interrupted()),
        answer = ctx.ask(Asked::Question { text: question, options }) => answer,
    };
    let words = answer.words.as_deref().filter(|w| !w.trim().is_empty());
    Ok(match (&answer, words) {
        (Answer { decision: Decision::Deny, .. }, Some(words)) => {
            Outcome::error(format!("The person did not answer. {words}"))
        }
        (Answer { decision: Decision::Deny, .. }, None) => Outcome::error("The person did not answer."),
        (_, Some(words)) => Outcome::ok(words),
        (_, None) => Outcome::ok("(an empty answer)"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tools::testing::{TestCtx, raw, run};
    use serde_json::json;

    #[tokio::test]
    async fn the_answer_is_the_result() {
        let ctx = TestCtx::new();
        ctx.answer(Decision::Answer, Some("blue"));
        let out = run(&Ask, &ctx, json!({"question": "Which?", "options": ["red", "blue"]})).await;
        assert_eq!((out.ok, out.result.as_str()), (true, "blue"));
        assert_eq!(ctx.asked(), ["Which?"]);
        ctx.answer(Decision::Deny, Some("decide yourself"));
        let out = run(&Ask, &ctx, json!({"question": "Which?"})).await;
        assert_eq!((out.ok, out.result.as_str()), (false, "The person did not answer. decide yourself"));
        for input in [
            json!(null),
            json!({"question": ""}),
            json!({"question": 1}),
            json!({"question": "x", "options": "a"}),
            json!({"question": "x", "options": vec!["a"; 21]}),
        ] {
            let out = run(&Ask, &ctx, input.clone()).await;
            assert!(!out.ok && !out.result.is_empty(), "{input}");
            Ask.detail(&raw(&input));
        }
        ctx.cancel.cancel();
        assert_eq!(run(&Ask, &ctx, json!({"question": "x"})).await.result, "Interrupted.");
    }
}
