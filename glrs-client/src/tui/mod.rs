//! x
pub mod transcript;
use crate::cli::Ctx;
use crate::cli::failure::{Exit, Failure};
use crate::client::Client;
use glrs_protocol::{SessionId, types::SessionInfo};
/// x
pub struct Begin {
    /// x
    pub session: SessionInfo,
    /// x
    pub tail: Option<u32>,
    /// x
    pub read_only: bool,
}
/// x
pub async fn run(_: &Ctx, _: Client, _: Begin) -> Result<Exit, Failure> {
    Ok(Exit::Done)
}
/// x
pub async fn pick(_: &Client, _: &str) -> Result<Option<SessionId>, Failure> {
    Ok(None)
}
