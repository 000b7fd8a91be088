//! Our side of the conversation: who we say we are, and what a server's notifications do.
//!
//! Owns: the mark that a server's list of tools has changed, and which call a progress belongs to.
//! Questions of servers (sampling, elicitation, roots) are not answered: no such ability is
//! announced. Must not know connections.

use rmcp::ClientHandler;
use rmcp::RoleClient;
use rmcp::model::{ClientCapabilities, ClientConfig, Implementation, ProgressNotificationParam, ProgressToken};
use rmcp::service::NotificationContext;
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::mpsc;

/// What a server's notifications change.
#[derive(Debug, Default)]
pub(super) struct Heard {
    /// The list of tools is not the one we have.
    pub stale: AtomicBool,
    waiting: Mutex<HashMap<ProgressToken, mpsc::Sender<String>>>,
}

impl Heard {
    fn waiting(&self) -> MutexGuard<'_, HashMap<ProgressToken, mpsc::Sender<String>>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sends the progress of a call there until the guard is dropped.
    pub fn follow(self: &Arc<Self>, token: ProgressToken, to: mpsc::Sender<String>) -> Following {
        self.waiting().insert(token.clone(), to);
        Following { heard: self.clone(), token }
    }
}

/// A call whose progress is wanted.
pub(super) struct Following {
    heard: Arc<Heard>,
    token: ProgressToken,
}

impl Drop for Following {
    fn drop(&mut self) {
        self.heard.waiting().remove(&self.token);
    }
}

/// The handler of one connection.
#[derive(Debug)]
pub(super) struct Client(pub Arc<Heard>);

impl ClientHandler for Client {
    fn get_info(&self) -> ClientConfig {
        ClientConfig::new(ClientCapabilities::default(), Implementation::new("glrs", env!("CARGO_PKG_VERSION")))
    }

    async fn on_tool_list_changed(&self, _: NotificationContext<RoleClient>) {
        self.0.stale.store(true, Ordering::Relaxed);
    }

    async fn on_progress(&self, p: ProgressNotificationParam, _: NotificationContext<RoleClient>) {
        let to = self.0.waiting().get(&p.progress_token).cloned();
        if let Some(to) = to {
            // More than the session takes in is left out: the next one tells how far it is.
            let _ = to.try_send(progress(&p));
        }
    }
}

/// A progress as a line.
fn progress(p: &ProgressNotificationParam) -> String {
    let count = match p.total {
        Some(total) => format!("[{}/{total}]", p.progress),
        None => format!("[{}]", p.progress),
    };
    match p.message.as_deref().map(str::trim).filter(|m| !m.is_empty()) {
        Some(message) => format!("{count} {}\n", message.chars().take(1000).collect::<String>()),
        None => format!("{count}\n"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_progress_is_a_line() {
        let of = |json: serde_json::Value| progress(&serde_json::from_value(json).unwrap());
        let token = "progressToken";
        assert_eq!(of(serde_json::json!({token: 1, "progress": 2, "total": 5, "message": "half"})), "[2/5] half\n");
        assert_eq!(of(serde_json::json!({token: "a", "progress": 0.5})), "[0.5]\n");
    }
}
