//! The environment of a turn's tools: the session's, with its private temporary directory.
//!
//! Owns when that directory is made: when the first call asks for its environment. Must not know
//! what the tools do with it.

use crate::host::Env;
use crate::host::scratch::SessionTmp;
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};

/// What programs look at to find the place for temporary files.
const NAMES: [&str; 3] = ["TMPDIR", "TMP", "TEMP"];

/// See the module.
#[derive(Debug)]
pub struct ToolEnv {
    base: Arc<Env>,
    tmp: Arc<SessionTmp>,
    /// Whether tools get the private directory; else they keep the inherited one.
    private: bool,
    whole: OnceLock<Env>,
}

impl ToolEnv {
    /// The environment that `base` becomes.
    pub fn new(base: Arc<Env>, tmp: Arc<SessionTmp>, private: bool) -> Self {
        Self { base, tmp, private, whole: OnceLock::new() }
    }

    /// The environment. The directory it names is there.
    pub fn get(&self) -> &Env {
        if !self.private {
            return &self.base;
        }
        self.whole.get_or_init(|| {
            let mut env = (*self.base).clone();
            match self.tmp.path() {
                Ok(path) => NAMES.iter().for_each(|n| env.set(n, path.to_string_lossy())),
                // Tools go on with what they inherited: without a place for temporary files little works.
                Err(e) => tracing::warn!(error = %e, "no private temporary directory could be made"),
            }
            env
        })
    }

    /// Where temporary files go.
    pub fn tmp(&self) -> PathBuf {
        self.get().get("TMPDIR").map_or_else(|| PathBuf::from("/tmp"), PathBuf::from)
    }
}
