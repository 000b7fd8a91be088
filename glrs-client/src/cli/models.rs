//! `glrs models`: what can be chosen, and what a new session gets.

use super::Ctx;
use super::failure::{Exit, Failure};
use super::output;
use crate::text;
use glrs_protocol::methods::m;
use glrs_protocol::params::ModelList;
use glrs_protocol::types::ModelRow;

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
        output::note(&age(&list));
    }
    Ok(Exit::Done)
}

/// Where windows and prices come from, and how old that is.
fn age(list: &ModelList) -> String {
    let table = format!("built-in table of {}", text::one_line(&list.table));
    match list.fetched.as_deref().map(|at| text::one_line(at.get(..16).unwrap_or(at)).replace('T', " ")) {
        Some(at) => format!("windows and prices: models.dev as of {at} UTC, else the {table}"),
        None => format!("windows and prices: {table}"),
    }
}

/// US dollars per million tokens, input and output.
fn price(row: &ModelRow) -> String {
    match (row.input_cost, row.output_cost) {
        (Some(input), Some(output)) if input > 0.0 || output > 0.0 => format!("${input}/${output}"),
        (Some(_), Some(_)) => "free".to_owned(),
        _ => "-".to_owned(),
    }
}

fn table(list: &ModelList) -> String {
    let head = ["  MODEL", "WINDOW", "$/M IN/OUT", "IMAGES", "STATE", "EFFORTS"].map(str::to_owned).to_vec();
    let rows = list.models.iter().map(|r| {
        let mark = if r.model == list.default { "*" } else { " " };
        let state = if r.ready { "ready".to_owned() } else { r.missing.clone().unwrap_or_default() };
        let variants = if r.variants.is_empty() { String::new() } else { r.variants.join("|") };
        vec![
            format!("{mark} {}", text::one_line(&r.model)),
            text::count(r.context),
            price(r),
            r.images.map_or("-", |takes| if takes { "yes" } else { "no" }).to_owned(),
            text::one_line(&state),
            text::one_line(&variants),
        ]
    });
    output::columns(&std::iter::once(head).chain(rows).collect::<Vec<_>>())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_default_is_marked_and_missing_things_are_named() {
        let list: ModelList = serde_json::from_value(serde_json::json!({
            "default": "a/b", "table": "2026-11-30", "fetched": "2026-12-01T07:08:09.5Z",
            "models": [
                {"model": "a/b", "name": "B", "context": 200_000, "output": 8000, "ready": true, "variants": ["low", "high"],
                 "inputCost": 0.25, "outputCost": 2.0, "images": true},
                {"model": "c/d", "name": "D", "context": 1_000_000, "ready": false, "missing": "C_KEY is not set", "images": false},
                {"model": "e/f", "name": "F", "context": 9_000, "ready": true, "inputCost": 0.0, "outputCost": 0.0}
            ]
        }))
        .unwrap();
        assert_eq!(
            table(&list).lines().collect::<Vec<_>>(),
            [
                "  MODEL  WINDOW  $/M IN/OUT  IMAGES  STATE             EFFORTS",
                "* a/b    200k    $0.25/$2    yes     ready             low|high",
                "  c/d    1M      -           no      C_KEY is not set",
                "  e/f    9k      free        -       ready",
            ]
        );
        assert_eq!(
            age(&list),
            "windows and prices: models.dev as of 2026-12-01 07:08 UTC, else the built-in table of 2026-11-30"
        );
        assert_eq!(age(&ModelList { fetched: None, ..list }), "windows and prices: built-in table of 2026-11-30");
    }
}
