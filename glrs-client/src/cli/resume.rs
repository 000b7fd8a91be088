//! Bare `glrs --resume`: the picker on a terminal, a list with the command to open each without.

use super::Ctx;
use super::args::{Open, Plan};
use super::failure::{Exit, Failure};
use super::open::{self, Target};
use super::{output, sessions};
use crate::{text, tui};
use glrs_protocol::types::SessionInfo;

/// Runs bare `glrs --resume`.
///
/// # Errors
/// When there is nothing to resume or the daemon does not answer.
pub async fn run(ctx: &Ctx, plan: &Plan, cwd: &str) -> Result<Exit, Failure> {
    let client = ctx.connect(if ctx.terminal { "terminal" } else { "script" }).await?;
    let found = sessions::list(&client, Some(cwd.to_owned()), None, None, 20).await?.sessions;
    if !ctx.terminal {
        if found.is_empty() {
            return Err(Failure::no_session(format!("no session in {cwd} yet: `glrs` begins one")));
        }
        output::text(&listed(&found, jiff::Timestamp::now()))?;
        return Ok(Exit::Done);
    }
    let Some(id) = tui::pick(ctx, &client, cwd).await? else { return Ok(Exit::Done) };
    let plan = Plan { open: Open::Resume(Target::Id(id)), ..plan.clone() };
    let opened = async {
        let session = open::open(ctx, &client, &plan, cwd).await?;
        Ok((client.clone(), tui::Begin { session, tail: None, read_only: false }))
    };
    tui::run(ctx, opened).await
}

fn listed(found: &[SessionInfo], now: jiff::Timestamp) -> String {
    let rows: Vec<Vec<String>> = found
        .iter()
        .map(|s| {
            let title = text::clip(&text::one_line(&s.title), 80);
            vec![format!("glrs --resume {}", s.id), text::ago(&s.updated_at, now), title]
        })
        .collect();
    output::columns(&rows)
}

#[cfg(test)]
mod tests {
    use crate::view::tests::snapshot;

    #[test]
    fn each_line_has_the_command_that_opens_it() {
        let now: jiff::Timestamp = "2026-09-06T14:00:30Z".parse().unwrap();
        let out = super::listed(&[snapshot(0, &[]).info], now);
        assert_eq!(out, "glrs --resume 3f9a1c2b  just now  a title\n");
    }
}
