//! Which models there are, and getting one by name.
//!
//! Owns: merging the catalogue with the configuration, the default model, and the words when a name
//! leads nowhere. Must not know dialects' insides.

use super::catalogue::{self, Dialect, PROVIDERS};
use super::discover::{Discovery, join};
use super::errors::failure;
use super::keys::{Keys, Sources};
use super::rehearsal::{self, Rehearsal};
use super::remote::Remote;
use super::upstream::{self, Upstream};
use super::{Failure, FailureKind, Model};
use crate::config::{Config, ProviderConfig};
use crate::host::Env;
use glrs_protocol::types::ModelRow;
use reqwest::Url;
use std::collections::BTreeMap;
use std::sync::Arc;

/// All models that can be named.
pub struct Models {
    model: Option<String>,
    providers: BTreeMap<String, Entry>,
    discovery: Discovery,
    upstream: Arc<Upstream>,
}

struct Entry {
    config: ProviderConfig,
    dialect: Result<Dialect, String>,
    api: Result<Url, String>,
    keys: Arc<Keys>,
    flagship: &'static str,
    /// Its place in the search for a default.
    rank: usize,
    local: bool,
}

/// Names of the variables that providers' keys come from, those of the configuration included.
pub fn key_names(config: &Config) -> Vec<String> {
    let built_in = PROVIDERS.iter().flat_map(|p| p.key_env.iter().map(|name| (*name).to_owned()));
    built_in.chain(config.providers.values().filter_map(|p| p.key_env.clone())).collect()
}

impl Models {
    /// The models of a configuration, by the table alone. Does no I/O.
    pub fn new(config: &Config) -> Self {
        Self::with(config, Arc::default())
    }

    /// The same with a list of models that is fetched now and then.
    pub(crate) fn with(config: &Config, upstream: Arc<Upstream>) -> Self {
        let mut providers = BTreeMap::new();
        let built_in = PROVIDERS.iter().map(|p| p.id);
        let own = config.providers.keys().map(String::as_str).filter(|id| catalogue::provider(id).is_none());
        for (rank, id) in built_in.chain(own).enumerate() {
            if id != rehearsal::PROVIDER {
                let said = config.providers.get(id).cloned().unwrap_or_default();
                providers.insert(id.to_owned(), entry(id, said, rank));
            }
        }
        Self { model: config.model.clone(), providers, discovery: Discovery::default(), upstream }
    }

    /// The model of that name, "provider/model-id".
    ///
    /// # Errors
    /// `NotFound` for a name that leads nowhere, `Auth` for a missing key, `Request` for a provider
    /// whose configuration does not suffice; the words say what to do.
    pub fn resolve(&self, model: &str, env: &Env) -> Result<Arc<dyn Model>, Failure> {
        if model == rehearsal::MODEL {
            return Ok(Arc::new(Rehearsal::new()));
        }
        Ok(Arc::new(self.remote(model, env)?))
    }

    fn remote(&self, model: &str, env: &Env) -> Result<Remote, Failure> {
        let (provider, id) =
            model.split_once('/').filter(|(p, id)| !p.is_empty() && !id.is_empty()).ok_or_else(|| {
                failure(FailureKind::NotFound, format!("{model:?} is no model name: write provider/model-id"))
            })?;
        let Some(entry) = self.providers.get(provider) else {
            let mut known: Vec<&str> = self.providers.keys().map(String::as_str).collect();
            known.push(rehearsal::PROVIDER);
            let words = format!(
                "there is no provider {provider:?}; known are {}; another needs providers.{provider}.api",
                known.join(", ")
            );
            return Err(failure(FailureKind::NotFound, words));
        };
        let request = |words: &String| failure(FailureKind::Request, words.clone());
        let dialect = *entry.dialect.as_ref().map_err(request)?;
        let api = entry.api.as_ref().map_err(request)?;
        if let Some(missing) = entry.keys.missing(env) {
            return Err(failure(FailureKind::Auth, format!("{provider} needs a key: {missing}")));
        }
        let url = endpoint(api, dialect, id)
            .ok_or_else(|| failure(FailureKind::Request, format!("providers.{provider}.api takes no path")))?;
        let config = entry.config.models.get(id);
        let listed = self.upstream.rows();
        let listed = listed.get(provider).and_then(|models| models.get(id));
        let (row, price) = catalogue::describe(provider, id, config, listed);
        Ok(Remote {
            row,
            provider: provider.to_owned(),
            model: id.to_owned(),
            dialect,
            url,
            keys: Arc::clone(&entry.keys),
            headers: entry.config.headers.clone(),
            options: [
                entry.config.request_options.clone(),
                config.map(|c| c.request_options.clone()).unwrap_or_default(),
            ],
            price,
        })
    }

    /// Where a model is called.
    #[cfg(test)]
    fn url(&self, model: &str, env: &Env) -> Result<String, Failure> {
        self.remote(model, env).map(|r| r.url.to_string())
    }

    /// Looks for local servers, in at most 150 ms; [`Self::default_model`] and [`Self::list`] know what
    /// it found. Asks again only after half a minute.
    pub async fn discover(&self) {
        let servers: Vec<(String, Url)> = self
            .by_rank()
            .filter(|(_, e)| e.local)
            .filter_map(|(id, e)| Some((id.clone(), e.api.as_ref().ok()?.clone())))
            .collect();
        self.discovery.ask(&servers).await;
    }

    /// The model a new session gets: the configured one, else `GLRS_MODEL`, else the flagship of the
    /// first provider with a key, else what a local server serves, else the rehearsal.
    pub fn default_model(&self, env: &Env) -> String {
        if let Some(named) = self.model.as_deref().or_else(|| env.get("GLRS_MODEL")) {
            return named.to_owned();
        }
        for (id, entry) in self.by_rank().filter(|(_, e)| !e.local && e.usable(env)) {
            let first = entry.config.models.keys().next().map(String::as_str);
            let model = if entry.flagship.is_empty() { first } else { Some(entry.flagship) };
            if let Some(model) = model {
                return format!("{id}/{model}");
            }
        }
        for found in self.discovery.known() {
            if let Some(model) = found.models.first() {
                return format!("{}/{model}", found.provider);
            }
        }
        rehearsal::MODEL.to_owned()
    }

    /// All known models, those that can be used now first.
    pub fn list(&self, env: &Env) -> Vec<ModelRow> {
        let found = self.discovery.known();
        let listed = self.upstream.rows();
        let mut rows = Vec::new();
        for (id, entry) in self.by_rank() {
            let mut ids: Vec<String> = entry.config.models.keys().cloned().collect();
            ids.extend(catalogue::models().filter(|m| m.provider == id).map(|m| m.id.to_owned()));
            ids.extend(found.iter().filter(|f| f.provider == *id).flat_map(|f| f.models.iter().cloned()));
            let listed = listed.get(id);
            if entry.usable(env) {
                ids.extend(listed.into_iter().flat_map(|models| models.keys().cloned()));
            }
            let mut seen = std::collections::HashSet::new();
            for model in ids.into_iter().filter(|m| seen.insert(m.clone())) {
                let said = listed.and_then(|models| models.get(&model));
                let (mut row, _) = catalogue::describe(id, &model, entry.config.models.get(&model), said);
                row.missing = entry.missing(env);
                row.ready = row.missing.is_none();
                rows.push(row);
            }
        }
        rows.push(rehearsal::row());
        // Stable: the order of providers and models stays within each half.
        rows.sort_by_key(|r| !r.ready);
        rows
    }

    /// What is known of a model by its name, whether or not it can be used now.
    pub fn describe(&self, model: &str) -> ModelRow {
        let (provider, id) = model.split_once('/').unwrap_or(("", model));
        if model == rehearsal::MODEL {
            return rehearsal::row();
        }
        let config = self.providers.get(provider).and_then(|e| e.config.models.get(id));
        let listed = self.upstream.rows();
        catalogue::describe(provider, id, config, listed.get(provider).and_then(|models| models.get(id))).0
    }

    /// Whether the public list of models knows anything of use here: a provider with a key is on it.
    pub(crate) fn wants_list(&self, env: &Env) -> bool {
        self.providers.iter().any(|(id, e)| upstream::lists(id) && e.config.api.is_none() && e.usable(env))
    }

    fn by_rank(&self) -> impl Iterator<Item = (&String, &Entry)> {
        let mut all: Vec<_> = self.providers.iter().collect();
        all.sort_by_key(|(_, e)| e.rank);
        all.into_iter()
    }
}

impl Entry {
    fn missing(&self, env: &Env) -> Option<String> {
        let broken = self.dialect.as_ref().err().or(self.api.as_ref().err()).cloned();
        broken.or_else(|| self.keys.missing(env))
    }

    fn usable(&self, env: &Env) -> bool {
        self.missing(env).is_none()
    }
}

fn entry(id: &str, config: ProviderConfig, rank: usize) -> Entry {
    let known = catalogue::provider(id);
    let api = match config.api.as_deref().or(known.map(|p| p.api)).filter(|a| !a.is_empty()) {
        None => Err(format!("{id} needs an address: set providers.{id}.api")),
        Some(api) => match Url::parse(api) {
            Ok(url) if matches!(url.scheme(), "http" | "https") && url.has_host() => Ok(url),
            _ => Err(format!("providers.{id}.api is no http or https address")),
        },
    };
    let dialect = match config.dialect.as_deref() {
        None => Ok(known.map_or(Dialect::OpenAi, |p| usual(p, api.as_ref().ok()))),
        Some(word) => Dialect::ALL.into_iter().find(|d| d.word() == word).ok_or_else(|| {
            let words = Dialect::ALL.map(Dialect::word).join(", ");
            format!("providers.{id}.dialect: {word:?} is not spoken by this build; it speaks {words}")
        }),
    };
    let local = known.is_some_and(|p| p.key_env.is_empty());
    let names: Vec<String> = match (&config.key_env, known) {
        (Some(name), _) => vec![name.clone()],
        (None, Some(p)) => p.key_env.iter().map(|n| (*n).to_owned()).collect(),
        (None, None) => Vec::new(),
    };
    // A configured server for which no key is named needs none (or has it among its headers).
    let optional = names.is_empty();
    let from = Sources { names, file: config.key_file.clone(), command: config.key_command.clone(), optional };
    let keys = Arc::new(Keys::new(id, from));
    let flagship = known.map_or("", |p| p.flagship);
    Entry { config, dialect, api, keys, flagship, rank, local }
}

/// How a built-in provider is spoken to when nobody says it. What answers at another address than its
/// own imitates it, and what is imitated is Chat Completions.
fn usual(provider: &catalogue::Provider, api: Option<&Url>) -> Dialect {
    if !matches!(provider.dialect, Dialect::Responses | Dialect::Gemini) {
        return provider.dialect;
    }
    let own = Url::parse(provider.api).ok();
    let host = |url: Option<&Url>| url.and_then(|u| u.host_str().map(str::to_owned)).unwrap_or_default();
    let (at, home) = (host(api), host(own.as_ref()));
    // A region stands in front of the name (`eu.api.openai.com`).
    let same = at == home || at.ends_with(&format!(".{home}"));
    let compatible = api.is_some_and(|u| u.path().trim_end_matches('/').ends_with("/openai"));
    if same && !compatible { provider.dialect } else { Dialect::OpenAi }
}

/// Where a model is called.
fn endpoint(api: &Url, dialect: Dialect, model: &str) -> Option<Url> {
    match dialect {
        Dialect::Anthropic => join(api, "messages"),
        Dialect::OpenAi => join(api, "chat/completions"),
        Dialect::Responses => join(api, "responses"),
        Dialect::Gemini => {
            // Tuned models have a path of their own.
            let path = if model.contains('/') { model.to_owned() } else { format!("models/{model}") };
            let mut url = join(api, &format!("{path}:streamGenerateContent"))?;
            url.query_pairs_mut().append_pair("alt", "sse");
            Some(url)
        }
    }
}

#[cfg(test)]
mod tests;
