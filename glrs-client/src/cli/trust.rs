//! `glrs trust`: lets a project's own configuration files count in full.

use super::Ctx;
use super::failure::{Exit, Failure};
use super::output;
use crate::text;
use glrs_protocol::methods::m;
use glrs_protocol::params::{ConfigShow, ConfigTrust};
use std::path::Path;

/// Runs `glrs trust`: shows what it means first, then does it.
///
/// # Errors
/// When the directory does not exist or the daemon does not do it.
pub async fn run(ctx: &Ctx, dir: Option<&Path>) -> Result<Exit, Failure> {
    let client = ctx.connect("script").await?;
    let cwd = ctx.directory(dir)?;
    let before = client.call::<m::ConfigShowM>(&ConfigShow { cwd: cwd.clone(), env: None }).await?;
    if before.trusted {
        output::text(&format!("{} is trusted already", text::one_line(&before.root)))?;
        return Ok(Exit::Done);
    }
    for key in &before.untrusted {
        output::note(&format!("counts from now on: {}", text::one_line(key)));
    }
    let after = client.call::<m::ConfigTrustM>(&ConfigTrust { cwd }).await?;
    output::text(&format!("{} is trusted now", text::one_line(&after.root)))?;
    Ok(Exit::Done)
}
