//! `glrs schema`: the wire protocol as a document, made from this build's own method table.

use super::Ctx;
use super::failure::{Exit, Failure};
use super::output;
use clap::ValueEnum;
use glrs_protocol::methods::m;
use glrs_protocol::params::SchemaParams;

/// Which document.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum SchemaFormat {
    /// OpenRPC
    Openrpc,
    /// JSON Schema of everything on the wire
    Jsonschema,
    /// The methods, for people
    Markdown,
    /// JSON Schema of the configuration
    Config,
}

/// Runs `glrs schema`. Only the configuration's schema needs the daemon.
///
/// # Errors
/// When stdout does not take it, or the daemon does not answer.
pub async fn run(ctx: &Ctx, format: SchemaFormat) -> Result<Exit, Failure> {
    match format {
        SchemaFormat::Openrpc => output::json(&glrs_protocol::schema::openrpc(env!("CARGO_PKG_VERSION")))?,
        SchemaFormat::Jsonschema => output::json(&glrs_protocol::schema::json_schema())?,
        SchemaFormat::Markdown => output::text(&glrs_protocol::schema::markdown())?,
        SchemaFormat::Config => {
            let client = ctx.connect("script").await?;
            let params = SchemaParams { format: Some("config".to_owned()) };
            output::text(&client.call::<m::SchemaM>(&params).await?.text)?;
        }
    }
    Ok(Exit::Done)
}
