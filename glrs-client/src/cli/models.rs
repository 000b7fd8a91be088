//! `glrs models`: what can be chosen, and what a new session gets.

use super::Ctx;
use super::failure::{Exit, Failure};
use super::output;
use crate::text;
use glrs_protocol::methods::m;
use glrs_protocol::params::ModelList;

/// Runs `glrs models`.
///
/// # Errors
/// When the daemon does not answer.
pub async fn run(ctx: &Ctx, json: bool) -> Result<Exit, Failure> {
    let client = ctx.connect("script").await?;
    let list = client.call::<m::CatalogModelsM>(&ctx.models_of()).await?;
    if json {
        output::json(&list)?;
    } else {
        output::text(&table(&list))?;
    }
    Ok(Exit::Done)
}

fn table(list: &ModelList) -> String {
    let rows: Vec<Vec<String>> = list
        .models
        .iter()
        .map(|r| {
            let mark = if r.model == list.default { "*" } else { " " };
            let state = if r.ready { "ready".to_owned() } else { r.missing.clone().unwrap_or_default() };
            let variants = if r.variants.is_empty() { String::new() } else { r.variants.join("|") };
            vec![
                format!("{mark} {}", text::one_line(&r.model)),
                text::count(r.context),
                text::one_line(&state),
                text::one_line(&variants),
            ]
        })
        .collect();
    output::columns(&rows)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_default_is_marked_and_missing_things_are_named() {
        let list: ModelList = serde_json::from_value(serde_json::json!({
            "default": "a/b",
            "models": [
                {"model": "a/b", "name": "B", "context": 200_000, "output": 8000, "ready": true, "variants": ["low", "high"]},
                {"model": "c/d", "name": "D", "context": 1_000_000, "output": 8000, "ready": false, "missing": "C_KEY is not set"}
            ]
        }))
        .unwrap();
        assert_eq!(table(&list), "* a/b  200k  ready             low|high\n  c/d  1M    C_KEY is not set\n");
    }
}
