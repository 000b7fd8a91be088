//! Environment variables as a value.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError, Weak};

/// A set of environment variables. Never logged: it holds keys.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Env(BTreeMap<String, String>);

impl Env {
    /// This process's own environment.
    pub fn of_process() -> Self {
        Self(std::env::vars_os().filter_map(|(k, v)| Some((k.into_string().ok()?, v.into_string().ok()?))).collect())
    }

    /// A variable; an empty one counts as unset.
    pub fn get(&self, name: &str) -> Option<&str> {
        self.0.get(name).map(String::as_str).filter(|v| !v.is_empty())
    }

    /// All variables.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().map(|(k, v)| (k.as_str(), v.as_str()))
    }

    /// The same without those that `names` names.
    pub fn without(&self, names: &[String]) -> Self {
        let kept = self.0.iter().filter(|(name, _)| !names.contains(name));
        Self(kept.map(|(name, value)| (name.clone(), value.clone())).collect())
    }

    /// Sets a variable.
    pub fn set(&mut self, name: &str, value: impl Into<String>) {
        self.0.insert(name.to_owned(), value.into());
    }
}

/// The environments in use. A thousand sessions of one shell hold one between them.
#[derive(Debug, Default)]
pub struct Envs(Mutex<Vec<Weak<Env>>>);

impl Envs {
    /// The environment, shared with everyone who has an equal one.
    pub fn share(&self, env: Env) -> Arc<Env> {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        known.retain(|e| e.strong_count() > 0);
        if let Some(same) = known.iter().filter_map(Weak::upgrade).find(|e| **e == env) {
            return same;
        }
        let new = Arc::new(env);
        known.push(Arc::downgrade(&new));
        new
    }
}

impl From<BTreeMap<String, String>> for Env {
    fn from(map: BTreeMap<String, String>) -> Self {
        Self(map)
    }
}

impl FromIterator<(String, String)> for Env {
    fn from_iter<I: IntoIterator<Item = (String, String)>>(iter: I) -> Self {
        Self(iter.into_iter().collect())
    }
}

impl std::fmt::Debug for Env {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Env({} variables)", self.0.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_environments_are_one_and_none_outlives_its_users() {
        let envs = Envs::default();
        let env = |v: &str| Env::from_iter([("PATH".to_owned(), v.to_owned())]);
        let (a, b, c) = (envs.share(env("/a")), envs.share(env("/a")), envs.share(env("/c")));
        assert!(Arc::ptr_eq(&a, &b) && !Arc::ptr_eq(&a, &c));
        drop((a, b, c));
        let again = envs.share(env("/d"));
        assert_eq!((again.get("PATH"), envs.0.lock().unwrap().len()), (Some("/d"), 1));
    }
}
