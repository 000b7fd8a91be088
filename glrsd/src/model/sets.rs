//! Models by configuration: each directory may have its own providers.
//!
//! Owns remembering the [`Models`] of a loaded configuration, so that what was discovered and which
//! keys were fetched is not forgotten from call to call.

use super::upstream::Upstream;
use super::{Failure, Model, Models, catalogue, rehearsal};
use crate::config::Loaded;
use crate::host::{Env, clock};
use crate::store::Store;
use glrs_protocol::types::ModelRow;
use std::sync::{Arc, Mutex, PoisonError};

/// Most configurations that are remembered; the oldest is forgotten first.
const MAX: usize = 32;

/// The models of every configuration in use. The default one knows the built-in table only.
#[derive(Default)]
pub struct ModelSets {
    known: Mutex<Vec<(Arc<Loaded>, Arc<Models>)>>,
    upstream: Arc<Upstream>,
}

impl ModelSets {
    /// With what was fetched of the public list of models in this store.
    pub fn new(store: Store) -> Self {
        Self { upstream: Arc::new(Upstream::new(store)), ..Self::default() }
    }

    fn of(&self, config: &Arc<Loaded>) -> Arc<Models> {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        // Two directories with the same providers share what was found out about them.
        let found = known.iter().find(|(c, _)| {
            Arc::ptr_eq(c, config)
                || (c.config.providers == config.config.providers && c.config.model == config.config.model)
        });
        if let Some((_, models)) = found {
            return models.clone();
        }
        let models = Arc::new(Models::with(&config.config, Arc::clone(&self.upstream)));
        if known.len() == MAX {
            known.remove(0);
        }
        known.push((config.clone(), models.clone()));
        models
    }

    /// The model of that name.
    ///
    /// # Errors
    /// See [`Models::resolve`].
    pub fn resolve(&self, config: &Arc<Loaded>, model: &str, env: &Env) -> Result<Arc<dyn Model>, Failure> {
        self.of(config).resolve(model, env)
    }

    /// The model a new session gets. Local servers are looked for only when nothing else is there.
    pub async fn default_model(&self, config: &Arc<Loaded>, env: &Env) -> String {
        let models = self.of(config);
        if models.wants_list(env) {
            self.upstream.refresh(env);
        }
        let first = models.default_model(env);
        if first != rehearsal::MODEL || config.config.model.is_some() || env.get("GLRS_MODEL").is_some() {
            return first;
        }
        models.discover().await;
        models.default_model(env)
    }

    /// All known models, those that can be used now first.
    pub async fn list(&self, config: &Arc<Loaded>, env: &Env) -> Vec<ModelRow> {
        let models = self.of(config);
        if models.wants_list(env) {
            self.upstream.refresh(env);
        }
        models.discover().await;
        models.list(env)
    }

    /// How old what is known of models is: the date of the table, and when the public list was fetched.
    pub fn sources(&self) -> (String, Option<String>) {
        (catalogue::DATE.to_owned(), self.upstream.fetched().and_then(|at| Some(clock::format(at.try_into().ok()?))))
    }

    /// What is known of a model, whether or not it can be used now.
    pub fn describe(&self, config: &Arc<Loaded>, model: &str) -> ModelRow {
        self.of(config).describe(model)
    }
}
