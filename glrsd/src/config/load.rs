//! Loading the configuration of one working directory.
//!
//! Owns which files are read and in which order. It reads, never writes, and never fails: what is
//! wrong becomes a notice. Must not know sessions or flags.

use super::check::{check, dotted, expected, plain};
use super::files::{Found, read, stamp};
use super::keys::{BUILTIN_PROVIDERS, Form, Key, Kind, MCP_FILE, ROOT};
use super::merge::Merged;
use super::origin::origins;
use super::{Config, Loaded};
use crate::host::Env;
use serde_json::{Map, Value};
use std::path::{Path, PathBuf};

/// Variables that stand for keys, above all files.
pub(super) const VARIABLES: [(&str, &str); 3] =
    [("GLRS_MODEL", "model"), ("GLRS_VARIANT", "variant"), ("GLRS_MODE", "mode")];

/// The project a directory belongs to, canonical: the nearest directory upwards that has `.git`
/// (a file in a linked worktree), else the directory itself.
pub fn project_root(cwd: &Path) -> PathBuf {
    let cwd = cwd.canonicalize().unwrap_or_else(|_| cwd.to_path_buf());
    cwd.ancestors().find(|dir| dir.join(".git").symlink_metadata().is_ok()).unwrap_or(&cwd).to_path_buf()
}

/// The files of a project in the order they are laid over the user's.
pub(super) fn project_files(root: &Path) -> [(PathBuf, &'static Key); 3] {
    static FILE: Key = ROOT;
    static SERVERS: Key = MCP_FILE;
    [
        (root.join(".mcp.json"), &SERVERS),
        (root.join(".glrs/config.json"), &FILE),
        (root.join(".glrs/config.local.json"), &FILE),
    ]
}

/// Loads the configuration for a working directory: the user's file, the project's, the
/// environment. `trusted` says whether the project's files may run code and send data elsewhere.
pub fn load(user_file: &Path, cwd: &Path, env: &Env, trusted: bool) -> Loaded {
    let root = project_root(cwd);
    let mut layers = Layers::default();
    layers.file(user_file, None, true, &ROOT);
    for (path, key) in project_files(&root) {
        // With GLRS_HOME or a home directory under git the user's file can be the project's: it
        // is the user's then, and read once.
        if stamp(&path).is_some_and(|here| stamp(user_file) == Some(here)) {
            continue;
        }
        layers.file(&path, Some(&root), trusted, key);
    }
    layers.environment(env);
    layers.finish(root)
}

#[derive(Default)]
struct Layers {
    merged: Merged,
    notices: Vec<String>,
    untrusted: Vec<String>,
}

impl Layers {
    fn file(&mut self, path: &Path, inside: Option<&Path>, trusted: bool, key: &Key) {
        let name = plain(&path.display().to_string());
        let bytes = match read(path, inside) {
            Found::Absent => return,
            Found::Refused(why) => {
                self.notices.push(format!("{name}: {why}; ignored"));
                return;
            }
            Found::Bytes(bytes) => bytes,
        };
        let text = bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(&bytes);
        match serde_json::from_slice(text) {
            Ok(content) => self.layer(&name, trusted, key, content),
            Err(e) => {
                let full = e.to_string();
                let what = full.split(" at line ").next().unwrap_or_default();
                self.notices.push(format!(
                    "{name}: line {}, column {}: not JSON ({what}); the file is ignored",
                    e.line(),
                    e.column()
                ));
            }
        }
    }

    fn layer(&mut self, name: &str, trusted: bool, key: &Key, content: Value) {
        let checked = check(name, trusted, key, content, &self.merged.values);
        self.notices.extend(checked.notices);
        self.untrusted.extend(checked.untrusted);
        self.merged.apply(checked.values, name);
    }

    fn environment(&mut self, env: &Env) {
        for (variable, key) in VARIABLES {
            if let Some(value) = env.get(variable) {
                let content = Map::from_iter([(key.to_owned(), Value::from(value))]);
                self.layer(&format!("env {variable}"), true, &ROOT, Value::Object(content));
            }
        }
    }

    fn finish(mut self, root: PathBuf) -> Loaded {
        let config = match serde_json::from_value(Value::Object(self.merged.values.clone())) {
            Ok(config) => config,
            // What passed the check fits the types (a property test holds it to that). Should it
            // not, a session still starts, and says why it has the defaults.
            Err(e) => {
                self.notices.push(format!("the configuration is ignored: {e}"));
                self.merged = Merged::default();
                Config::default()
            }
        };
        self.incomplete(&config);
        self.untrusted.sort();
        self.untrusted.dedup();
        let origins = origins(&config, &self.merged);
        Loaded { config, notices: self.notices, origins, root, untrusted: self.untrusted }
    }

    /// What can only be seen when everything is merged.
    fn incomplete(&mut self, config: &Config) {
        for (id, provider) in &config.providers {
            let path = ["providers".to_owned(), id.clone(), "api".to_owned()];
            if provider.api.is_none()
                && !BUILTIN_PROVIDERS.contains(&id.as_str())
                && !self.untrusted.contains(&dotted(&path))
            {
                let what = expected(Kind::Text(Form::Url));
                self.missing(&path, &format!("expected {what}, because the provider is not a built-in one"));
            }
        }
        for (name, server) in &config.mcp_servers {
            if server.command.is_some() == server.url.is_some() {
                let path = ["mcpServers".to_owned(), name.clone()];
                self.missing(&path, "expected a command or a url, and not both");
            }
        }
    }

    /// A notice about a key that has to be there, naming a file that set something beside it.
    fn missing(&mut self, path: &[String], what: &str) {
        let beside = &path[..2.min(path.len())];
        let file = self.merged.from.iter().find(|(key, _)| key.starts_with(beside)).and_then(|(_, from)| from.last());
        let file = file.cloned().unwrap_or_else(|| "configuration".to_owned());
        self.notices.push(format!("{file}: {}: {what}", dotted(path)));
    }
}
