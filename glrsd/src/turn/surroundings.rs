//! What a turn finds around it before it says anything: configuration, instructions, files that
//! came with its messages.
//!
//! Owns what such a look gives, and that it can be given up. How it is taken is the session's
//! business; nothing of it is looked at by whoever serves clients, since a directory on a dead
//! mount answers nobody.

use super::attach::Taken;
use super::prompt::Instructions;
use crate::config::Loaded;
use crate::tools::Tool;
use futures_util::future::BoxFuture;
use std::sync::Arc;

/// What was found.
pub struct Surroundings {
    /// Whether the working directory is there.
    pub here: bool,
    /// The configuration in force in it.
    pub config: Arc<Loaded>,
    /// Its instruction files.
    pub instructions: Instructions,
    /// How many artifacts the session has.
    pub artifacts: usize,
    /// What came with each of the turn's messages.
    pub taken: Vec<Vec<Taken>>,
}

/// What the turn gets to go on with, once the session has taken that up.
pub struct Means {
    /// Settles which tools there are.
    pub tools: BoxFuture<'static, Arc<[Arc<dyn Tool>]>>,
    /// Makes the door of one call.
    pub ctx: super::CtxOf,
}
