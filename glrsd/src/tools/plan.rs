//! The tool `plan`: the todo list that people see.
//!
//! Owns: its words. The list itself is an entry, `glrs:plan`; the last one counts.

use super::{Outcome, Tool, ToolCtx, ToolSpec, input, spec};
use crate::host::clock;
use futures_util::future::BoxFuture;
use glrs_protocol::entry::{Entry, Plan as Items};
use glrs_protocol::types::{PlanItem, PlanStatus};
use serde::Deserialize;
use serde_json::value::RawValue;

/// Most items of a plan.
const MAX_ITEMS: usize = 200;

/// Writes the plan.
#[derive(Debug)]
pub struct Plan;

const EXPECTED: &str = r#"{"items": [{"text": string, "status": "pending" | "in_progress" | "completed"}, …]}"#;

fn checked(input: &RawValue) -> Result<Items, Outcome> {
    #[derive(Deserialize)]
    struct Input {
        items: Vec<PlanItem>,
    }
    let Input { items } = input::parse("plan", EXPECTED, input)?;
    let refuse = |why: String| Err(Outcome::error(format!("{why}\nExpected: {EXPECTED}")));
    if items.len() > MAX_ITEMS {
        return refuse(format!("A plan has at most {MAX_ITEMS} items, this one has {}.", items.len()));
    }
    for (i, item) in items.iter().enumerate() {
        if item.text.trim().is_empty() {
            return refuse(format!("Item {} has no text.", i + 1));
        }
        if item.status == PlanStatus::Unknown {
            return refuse(format!("Item {} has a status that is none of the three.", i + 1));
        }
    }
    Ok(Items { items })
}

impl Tool for Plan {
    fn spec(&self) -> ToolSpec {
        spec(
            "plan",
            "Writes down the plan for a task of several steps, and how far it is, for the person to see. Each call \
             gives the whole list and replaces the one before. Keep one item in_progress while you work, and mark \
             an item completed when it is done. Not for tasks of one or two steps.",
            r#"{"type":"object","properties":{"items":{"type":"array","items":{"type":"object","properties":{"text":{"type":"string","description":"What is to be done."},"status":{"type":"string","enum":["pending","in_progress","completed"]}},"required":["text","status"],"additionalProperties":false}}},"required":["items"],"additionalProperties":false}"#,
        )
    }

    fn detail(&self, input: &RawValue) -> String {
        let Ok(plan) = checked(input) else { return String::new() };
        let done = plan.items.iter().filter(|i| i.status == PlanStatus::Completed).count();
        let now = plan.items.iter().find(|i| i.status == PlanStatus::InProgress);
        let now = now.map_or_else(String::new, |item| format!(": {}", item.text));
        input::one_line(&format!("{done} of {} done{now}", plan.items.len()))
    }

    fn run<'a>(&'a self, _: &'a dyn ToolCtx, input: &'a RawValue) -> BoxFuture<'a, Outcome> {
        Box::pin(async move {
            let plan = match checked(input) {
                Ok(plan) => plan,
                Err(outcome) => return outcome,
            };
            match Entry::custom("glrs:plan", &plan, &clock::now()) {
                Ok(entry) => Outcome {
                    entries: vec![entry],
                    ..Outcome::ok(format!("The plan is noted. {}.", self.detail(input)))
                },
                Err(e) => Outcome::error(format!("The plan could not be noted: {e}")),
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tools::testing::{TestCtx, raw, run};
    use serde_json::json;

    #[tokio::test]
    async fn the_list_becomes_an_entry() {
        let ctx = TestCtx::new();
        let input = json!({"items": [{"text": "a", "status": "completed"}, {"text": "b", "status": "in_progress"}, {"text": "c"}]});
        let out = run(&Plan, &ctx, input).await;
        assert_eq!((out.ok, out.result.as_str()), (true, "The plan is noted. 1 of 3 done: b."));
        let [Entry::Custom(custom)] = out.entries.as_slice() else { panic!() };
        assert_eq!(custom.custom, "glrs:plan");
        let items: Items = serde_json::from_str(custom.data.get()).unwrap();
        assert_eq!((items.items.len(), items.items[2].status), (3, PlanStatus::Pending));
        assert!(ctx.asked().is_empty());
    }

    #[tokio::test]
    async fn hostile_input_is_answered() {
        let ctx = TestCtx::new();
        for input in [
            json!(null),
            json!({"items": "x"}),
            json!({"items": [{"text": " "}]}),
            json!({"items": [{"text": "a", "status": "later"}]}),
            json!({"items": vec![json!({"text": "a"}); 201]}),
        ] {
            let out = run(&Plan, &ctx, input.clone()).await;
            assert!(!out.ok && out.entries.is_empty() && out.result.contains("Expected:"), "{input}");
            Plan.detail(&raw(&input));
        }
    }
}
