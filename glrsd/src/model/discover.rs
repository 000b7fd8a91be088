//! Local servers that happen to run.
//!
//! Owns: asking the usual loopback ports, briefly and not often. Where nothing listens, loopback
//! refuses at once, so this delays nobody. Must not know dialects.

use super::http;
use crate::host::Env;
use reqwest::Url;
use serde::Deserialize;
use std::time::Duration;
use tokio::time::{Instant, timeout};

/// How long a server may take to list its models.
const BUDGET: Duration = Duration::from_millis(150);
/// How long the answer holds.
const HOLDS: Duration = Duration::from_secs(30);
/// Most bytes of a listing.
const LISTING_MAX: usize = 1024 * 1024;

/// Models found at one local server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Found {
    /// Provider id.
    pub provider: String,
    /// Model ids, the server's order.
    pub models: Vec<String>,
}

#[derive(Deserialize)]
struct Listing {
    data: Vec<Entry>,
}

#[derive(Deserialize)]
struct Entry {
    id: String,
}

/// What was found, and when.
#[derive(Default)]
pub(crate) struct Discovery {
    found: std::sync::Mutex<Option<(Instant, Vec<Found>)>>,
    /// One asks at a time; the others wait for its answer.
    asking: tokio::sync::Mutex<()>,
}

impl Discovery {
    /// What was found last, without asking.
    pub(crate) fn known(&self) -> Vec<Found> {
        let found = self.found.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        found.as_ref().map(|(_, f)| f.clone()).unwrap_or_default()
    }

    fn fresh(&self) -> bool {
        let found = self.found.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        found.as_ref().is_some_and(|(at, _)| at.elapsed() < HOLDS)
    }

    /// Asks all the servers at once, unless the last answer still holds.
    pub(crate) async fn ask(&self, servers: &[(String, Url)]) {
        let _one = self.asking.lock().await;
        if self.fresh() {
            return;
        }
        let asked = servers.iter().map(|(provider, base)| async move {
            let models = timeout(BUDGET, list(base)).await.ok().flatten()?;
            Some(Found { provider: provider.clone(), models })
        });
        let found = futures_util::future::join_all(asked).await.into_iter().flatten().collect();
        *self.found.lock().unwrap_or_else(std::sync::PoisonError::into_inner) = Some((Instant::now(), found));
    }
}

async fn list(base: &Url) -> Option<Vec<String>> {
    // Only this machine is asked unasked.
    if !http::is_loopback(base) {
        return None;
    }
    let url = join(base, "models")?;
    let client = http::client(&url, &Env::default()).await.ok()?;
    let mut response = client.get(url).send().await.ok()?.error_for_status().ok()?;
    let mut body = Vec::new();
    while let Some(piece) = response.chunk().await.ok()? {
        body.extend_from_slice(&piece);
        if body.len() > LISTING_MAX {
            return None;
        }
    }
    let listing: Listing = serde_json::from_slice(&body).ok()?;
    // Embedding models answer no conversation.
    let ids: Vec<String> =
        listing.data.into_iter().map(|e| e.id).filter(|id| !id.is_empty() && !id.contains("embed")).collect();
    (!ids.is_empty()).then_some(ids)
}

/// A path below a base URL, whose query stays (Azure's `api-version`).
pub(crate) fn join(base: &Url, path: &str) -> Option<Url> {
    let mut url = base.clone();
    url.path_segments_mut().ok()?.pop_if_empty().extend(path.split('/'));
    Some(url)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_join_below_the_base() {
        for (base, want) in [
            ("http://h/v1", "http://h/v1/chat/completions"),
            ("http://h/v1/", "http://h/v1/chat/completions"),
            ("http://h", "http://h/chat/completions"),
            ("https://h/openai/v1?api-version=2", "https://h/openai/v1/chat/completions?api-version=2"),
        ] {
            assert_eq!(join(&base.parse().unwrap(), "chat/completions").unwrap().as_str(), want);
        }
    }
}
