//! Remembering what was loaded, so that a session or turn costs a few stats.
//!
//! Owns when a loaded configuration is out of date: when a file it came from, or could have come
//! from, has another size, time or identity. Knows no timer and watches nothing.

use super::Loaded;
use super::files::{Stamp, stamp};
use super::load::{VARIABLES, load, project_files};
use crate::host::Env;
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

/// Most working directories that are remembered. When it is full, all are forgotten and loaded
/// again when asked for: simpler than an order of use, and it costs milliseconds.
const MAX: usize = 256;

/// Everything a result depends on besides the files' content.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Question {
    user_file: PathBuf,
    root: PathBuf,
    variables: [Option<String>; 3],
    trusted: bool,
}

type Stamps = [Option<Stamp>; 4];

/// Loaded configurations. Shared by all sessions; the lock is held for a look-up, never for I/O.
#[derive(Debug, Default)]
pub struct Cache {
    known: Mutex<HashMap<Question, (Stamps, Arc<Loaded>)>>,
}

impl Cache {
    /// The same as [`load`] for a project's root, from memory if no file has changed.
    pub fn load(&self, user_file: &Path, root: &Path, env: &Env, trusted: bool) -> Arc<Loaded> {
        // Taken before the files are read: one that changes meanwhile looks changed next time.
        let [servers, shared, local] = project_files(root).map(|(path, _)| stamp(&path));
        let stamps = [stamp(user_file), servers, shared, local];
        let question = Question {
            user_file: user_file.to_path_buf(),
            root: root.to_path_buf(),
            variables: VARIABLES.map(|(name, _)| env.get(name).map(str::to_owned)),
            trusted,
        };
        {
            let known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
            if let Some((_, loaded)) = known.get(&question).filter(|(then, _)| *then == stamps) {
                return Arc::clone(loaded);
            }
        }
        let loaded = Arc::new(load(user_file, root, env, trusted));
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if known.len() >= MAX {
            known.clear();
        }
        known.insert(question, (stamps, Arc::clone(&loaded)));
        loaded
    }
}
