//! A public list of models, models.dev, as far as this machine has it.
//!
//! Owns: when it is asked for (at most once a day, when models are listed or a session is made and there
//! is a key for a provider that is on it), reading it, and the copy that the store keeps. Nobody waits
//! for it, and nothing but the request itself is sent. `GLRS_OFFLINE` turns it off, `GLRS_CATALOG_URL`
//! names another address. Must not know sessions.

use super::catalogue::Price;
use super::http;
use crate::host::Env;
use crate::store::Store;
use reqwest::Url;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime};
use tokio::time::{Instant, timeout};

const ADDRESS: &str = "https://models.dev/api.json";
/// How long a copy holds.
const HOLDS: Duration = Duration::from_secs(24 * 3_600);
/// How long nothing is asked after an attempt that failed.
const PAUSE: Duration = Duration::from_secs(3_600);
/// How long the list may take to come.
const PATIENCE: Duration = Duration::from_secs(30);
/// Most bytes of it.
const MOST: usize = 32 * 1024 * 1024;

/// Our providers that are on the list, and the names they have there.
const LISTED: [(&str, &str); 12] = [
    ("anthropic", "anthropic"),
    ("openai", "openai"),
    ("azure", "azure"),
    ("google", "google"),
    ("xai", "xai"),
    ("openrouter", "openrouter"),
    ("groq", "groq"),
    ("mistral", "mistral"),
    ("deepseek", "deepseek"),
    ("together", "togetherai"),
    ("cerebras", "cerebras"),
    ("fireworks", "fireworks-ai"),
];

/// Whether a provider is on the list.
pub(crate) fn lists(provider: &str) -> bool {
    LISTED.iter().any(|(id, _)| *id == provider)
}

/// What the list says of a model.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Listed {
    /// Name for people.
    pub name: String,
    /// Context window in tokens.
    pub context: u64,
    /// Most output tokens, where the list says it.
    #[serde(default)]
    pub output: Option<u64>,
    /// Price, where the list has one.
    pub price: Option<Price>,
    /// Whether it takes images, where the list says it.
    #[serde(default)]
    pub images: Option<bool>,
}

/// The list, by provider and model id of ours.
pub(crate) type Rows = BTreeMap<String, BTreeMap<String, Listed>>;

/// The list as far as it is known.
#[derive(Default)]
pub(crate) struct Upstream {
    /// Where the copy is; without a store nothing is ever asked.
    store: Option<Store>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// Read from the copy once, replaced by each answer.
    rows: Option<Arc<Rows>>,
    /// When the copy was written.
    written: Option<SystemTime>,
    /// When it was last asked for, by this process.
    asked: Option<Instant>,
}

impl Upstream {
    /// With the copy in this store.
    pub(crate) fn new(store: Store) -> Self {
        Self { store: Some(store), ..Self::default() }
    }

    /// What is known now.
    pub(crate) fn rows(&self) -> Arc<Rows> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        self.load(&mut state)
    }

    /// When the list was fetched that is in use, if one is.
    pub(crate) fn fetched(&self) -> Option<SystemTime> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let rows = self.load(&mut state);
        state.written.filter(|_| !rows.is_empty())
    }

    fn load(&self, state: &mut State) -> Arc<Rows> {
        if let Some(rows) = &state.rows {
            return Arc::clone(rows);
        }
        let kept = self.store.as_ref().and_then(Store::catalogue);
        let read = kept.and_then(|(bytes, at)| Some((serde_json::from_slice::<Rows>(&bytes).ok()?, at)));
        let (rows, written) = read.unzip();
        state.written = written;
        let rows = Arc::new(rows.unwrap_or_default());
        state.rows = Some(Arc::clone(&rows));
        rows
    }

    /// Asks for the list in the background, if it is time to.
    pub(crate) fn refresh(self: &Arc<Self>, env: &Env) {
        if let Some(url) = self.due(env, SystemTime::now()) {
            let (me, env) = (Arc::clone(self), env.clone());
            // It ends by itself: the request has its limit.
            tokio::spawn(async move { me.fetch(url, &env).await });
        }
    }

    /// Where to ask now, if it is time to; then it counts as asked.
    fn due(&self, env: &Env, now: SystemTime) -> Option<Url> {
        if self.store.is_none() || env.get("GLRS_OFFLINE").is_some() {
            return None;
        }
        let url = Url::parse(env.get("GLRS_CATALOG_URL").unwrap_or(ADDRESS)).ok()?;
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        self.load(&mut state);
        // A clock that was set back makes the copy look young; then it holds until the clock is there.
        let fresh = state.written.is_some_and(|w| now.duration_since(w).map_or(true, |age| age < HOLDS));
        if fresh || state.asked.is_some_and(|a| a.elapsed() < PAUSE) {
            return None;
        }
        state.asked = Some(Instant::now());
        Some(url)
    }

    async fn fetch(&self, url: Url, env: &Env) {
        let Some(bytes) = timeout(PATIENCE, download(&url, env)).await.ok().flatten() else {
            tracing::debug!("the list of models could not be fetched");
            return;
        };
        let Some(store) = self.store.clone() else { return };
        // Some megabytes are taken apart, and the disk is waited for.
        let read = tokio::task::spawn_blocking(move || {
            let rows = read(&bytes)?;
            let kept = serde_json::to_vec(&rows).ok()?;
            if let Err(e) = store.keep_catalogue(&kept) {
                tracing::warn!(%e, "the list of models is not kept");
            }
            Some(rows)
        });
        if let Ok(Some(rows)) = read.await {
            let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
            state.rows = Some(Arc::new(rows));
            state.written = Some(SystemTime::now());
        }
    }
}

async fn download(url: &Url, env: &Env) -> Option<Vec<u8>> {
    let client = http::client(url, env).await.ok()?;
    let mut response = client.get(url.clone()).send().await.ok()?.error_for_status().ok()?;
    let mut body = Vec::new();
    while let Some(piece) = response.chunk().await.ok()? {
        body.extend_from_slice(&piece);
        if body.len() > MOST {
            return None;
        }
    }
    Some(body)
}

/// The list as it is published, reduced to what is of use here: models that call tools. `None` when it
/// is something else, such as a login page.
fn read(bytes: &[u8]) -> Option<Rows> {
    let list: Value = serde_json::from_slice(bytes).ok()?;
    let mut rows = Rows::new();
    for (ours, theirs) in LISTED {
        let models = list.get(theirs).and_then(|p| p.get("models")).and_then(Value::as_object);
        for (id, model) in models.into_iter().flatten() {
            let number = |path: &str| model.pointer(path).and_then(Value::as_u64).filter(|n| *n > 0);
            let (Some(context), Some(true)) =
                (number("/limit/context"), model.get("tool_call").and_then(Value::as_bool))
            else {
                continue;
            };
            let output = number("/limit/output").map(|o| o.min(context));
            let name = model.get("name").and_then(Value::as_str).unwrap_or(id).to_owned();
            let inputs = model.pointer("/modalities/input").and_then(Value::as_array);
            let images = inputs.map(|kinds| kinds.iter().any(|k| k == "image"));
            let listed = Listed { name, context, output, price: price(model), images };
            rows.entry(ours.to_owned()).or_default().insert(id.clone(), listed);
        }
    }
    (!rows.is_empty()).then_some(rows)
}

fn price(model: &Value) -> Option<Price> {
    let cost = |key: &str| model.get("cost")?.get(key)?.as_f64().filter(|c| c.is_finite() && *c >= 0.0);
    let (input, output) = (cost("input")?, cost("output")?);
    Some(Price {
        input,
        output,
        read: cost("cache_read").unwrap_or(input),
        write: cost("cache_write").unwrap_or(input),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{Config, ModelConfig, ModelMetadata};
    use crate::host::Paths;
    use crate::model::Models;
    use crate::model::testing::{Answer, Server};
    use std::path::Path;

    const LIST: &str = r#"{
        "openai": {"id": "openai", "models": {
            "gpt-5": {"id": "gpt-5", "name": "GPT-5 as listed", "tool_call": true, "reasoning": true,
                "cost": {"input": 9, "output": 8, "cache_read": 0.5}, "limit": {"context": 500000, "output": 100000}},
            "gpt-9": {"id": "gpt-9", "name": "GPT-9", "tool_call": true, "modalities": {"input": ["text"]}, "limit": {"context": 2000000, "output": 0}},
            "text-embedding-9": {"id": "text-embedding-9", "tool_call": false, "limit": {"context": 8192, "output": 1}},
            "odd": {"tool_call": true, "limit": "?"}
        }},
        "togetherai": {"models": {"some/model": {"tool_call": true, "limit": {"context": 64000, "output": 4000}}}},
        "someone-else": {"models": {"x": {"tool_call": true, "limit": {"context": 1, "output": 1}}}}
    }"#;

    fn store(root: &Path) -> Store {
        Store::open(Paths::scratch(root)).unwrap()
    }

    fn env(pairs: &[(&str, &str)]) -> Env {
        pairs.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect()
    }

    fn later(hours: u64) -> SystemTime {
        SystemTime::now() + Duration::from_secs(hours * 3_600)
    }

    #[tokio::test]
    async fn the_list_is_fetched_once_a_day_kept_and_used() {
        let dir = tempfile::tempdir().unwrap();
        let server = Server::start(vec![Answer::typed(200, "application/json", LIST)]).await;
        let e = env(&[("GLRS_CATALOG_URL", &server.api()), ("OPENAI_API_KEY", "k")]);
        let upstream = Arc::new(Upstream::new(store(dir.path())));
        let mut config = Config::default();
        let metadata = ModelMetadata { output: Some(7_000), ..Default::default() };
        let provider = config.providers.entry("openai".to_owned()).or_default();
        provider.models.insert("gpt-5".to_owned(), ModelConfig { metadata, ..Default::default() });
        let models = Models::with(&config, Arc::clone(&upstream));
        assert_eq!(models.describe("openai/gpt-5").context, 400_000, "the table, while there is no list");
        assert_eq!(upstream.fetched(), None);

        let url = upstream.due(&e, SystemTime::now()).unwrap();
        assert_eq!(url.as_str(), server.api());
        upstream.fetch(url, &e).await;
        assert!(upstream.fetched().is_some());
        let row = models.describe("openai/gpt-5");
        assert_eq!(
            (row.context, row.output, row.input_cost),
            (500_000, Some(7_000), Some(9.0)),
            "configuration beats the list"
        );
        assert_eq!((row.name.as_str(), row.variants.len()), ("GPT-5 as listed", 4), "what it does not say stays");
        assert_eq!(models.describe("openai/gpt-9").output, None);
        assert_eq!(models.describe("openai/gpt-9").images, Some(false));
        assert_eq!(models.describe("together/some/model").context, 64_000);
        assert_eq!(models.describe("openai/unheard-of").context, 256_000);
        let listed: Vec<String> = models.list(&e).into_iter().filter(|r| r.ready).map(|r| r.model).collect();
        assert!(listed.contains(&"openai/gpt-9".to_owned()) && !listed.iter().any(|m| m.contains("embedding")));
        let without = models.list(&Env::default());
        assert!(!without.iter().any(|r| r.model == "openai/gpt-9"), "the table alone where there is no key");

        assert!(upstream.due(&e, SystemTime::now()).is_none() && upstream.due(&e, later(23)).is_none());
        let (head, _) = server.requests().remove(0);
        assert!(!head.contains("authorization") && server.requests().len() == 1, "{head}");
        drop((models, upstream));
        // The next process has the copy, and asks when it is a day old.
        let next = Arc::new(Upstream::new(store(dir.path())));
        assert_eq!(next.rows()["openai"]["gpt-5"].price.map(|p| p.read), Some(0.5));
        assert!(next.due(&e, later(23)).is_none());
        assert!(next.due(&e, later(25)).is_some() && next.due(&e, later(25)).is_none(), "not twice");
    }

    #[tokio::test]
    async fn nothing_is_asked_that_should_not_be_and_no_answer_harms() {
        let dir = tempfile::tempdir().unwrap();
        let upstream = Arc::new(Upstream::new(store(dir.path())));
        assert!(upstream.due(&env(&[("GLRS_OFFLINE", "1")]), SystemTime::now()).is_none());
        assert!(Upstream::default().due(&Env::default(), SystemTime::now()).is_none(), "no store, no asking");
        let models = |env: &Env| Models::with(&Config::default(), Arc::clone(&upstream)).wants_list(env);
        assert!(!models(&Env::default()), "without a key there is nothing to know");
        assert!(models(&env(&[("GROQ_API_KEY", "k")])));
        for (status, body) in [(200, "<html>login</html>"), (200, "{}"), (200, r#"{"openai": 7}"#), (500, LIST)] {
            let server = Server::start(vec![Answer::typed(status, "application/json", body)]).await;
            upstream.fetch(server.api().parse().unwrap(), &Env::default()).await;
            assert!(upstream.rows().is_empty() && server.requests().len() == 1, "{body}");
        }
        std::fs::write(dir.path().join("models.json"), "{half").unwrap();
        let broken = Upstream::new(upstream.store.clone().unwrap());
        assert!(broken.rows().is_empty());
        assert!(broken.due(&env(&[("GLRS_CATALOG_URL", "http://127.0.0.1:1/")]), SystemTime::now()).is_some());
    }
}
