//! MCP servers: one for all sessions that have the same configuration, directory and environment.
//!
//! Owns: which servers there are ([`Servers`]), their life ([`Server`]: started when first needed,
//! restarted when next used, gone with the last one who holds it), their tools and calls of them.
//! Whatever a server does (hang, die, flood, lie) ends in a reason in words; nobody waits longer
//! than they chose to. Must not know sessions, policy or models: who may call what is decided
//! above. Below: `spec` the configuration filled in, `link` one connection, `guard` its
//! bounds, `client` what we say of ourselves, `offer` and `names` tools as models take
//! them, `content` results as text.

mod client;
mod content;
mod guard;
mod http;
mod link;
mod names;
mod offer;
mod server;
mod spec;
#[cfg(test)]
mod tests;

pub use content::transport;
pub use link::START;
pub use names::names;
pub use server::{Call, CallError, Server, State};

use crate::config::McpServer;
use crate::host::Env;
use serde_json::value::RawValue;
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError, Weak};

/// A tool as its server tells of it.
#[derive(Clone, Debug)]
pub struct ToolInfo {
    /// Its name, as the server calls it.
    pub name: String,
    /// What it does; whatever the server says.
    pub description: String,
    /// JSON Schema of its input.
    pub schema: Box<RawValue>,
    /// Whether the server says that it changes nothing. A hint: it lets no call run unasked.
    pub read_only: bool,
}

/// The servers in use by anyone.
#[derive(Debug, Default)]
pub struct Servers(Mutex<Vec<Weak<Server>>>);

impl Servers {
    /// The servers of a configuration, directory and environment, by name. Starts none. Whoever
    /// holds them keeps those alive that were started. `keys` are variables that no server's program
    /// inherits: it has them only where its configuration names them.
    pub fn open(
        &self,
        servers: &BTreeMap<String, McpServer>,
        cwd: &Path,
        env: &Arc<Env>,
        keys: &[String],
    ) -> Vec<Arc<Server>> {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        known.retain(|s| s.strong_count() > 0);
        let one = |(name, spec): (&String, &McpServer)| {
            let same = known.iter().filter_map(Weak::upgrade).find(|s| s.is(name, spec, cwd, env));
            same.unwrap_or_else(|| {
                let new =
                    Arc::new(Server::new(name.clone(), spec.clone(), cwd.to_path_buf(), env.clone(), keys.to_vec()));
                known.push(Arc::downgrade(&new));
                new
            })
        };
        servers.iter().map(one).collect()
    }
}
