//! Where things lie: data, configuration, socket. Pure functions of an [`Env`].
//!
//! Owns the rules of session-file.md "Places": `GLRS_HOME` stands for `<data>/glrs` and holds
//! config.json and glrsd.sock too; an empty or relative XDG variable counts as unset.

use super::Env;
use glrs_protocol::SessionId;
use std::path::{Path, PathBuf};

/// The places of one daemon.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Paths {
    /// `<data>/glrs`, or `GLRS_HOME`.
    pub root: PathBuf,
    /// The user's configuration file.
    pub config: PathBuf,
    /// The local socket.
    pub socket: PathBuf,
    /// The predecessor's sessions: read, never written.
    pub legacy: PathBuf,
    /// Below it lie the private temporary directories of sessions.
    pub tmp: PathBuf,
}

/// Longest socket path the platform takes, in bytes (`sun_path` less its NUL).
#[cfg(target_os = "macos")]
pub const SOCKET_MAX: usize = 103;
/// Longest socket path the platform takes, in bytes (`sun_path` less its NUL).
#[cfg(not(target_os = "macos"))]
pub const SOCKET_MAX: usize = 107;

fn absolute(env: &Env, name: &str) -> Option<PathBuf> {
    env.get(name).map(PathBuf::from).filter(|p| p.is_absolute())
}

#[cfg(test)]
impl Paths {
    /// All of it below a directory that goes with its test.
    pub(crate) fn scratch(dir: &Path) -> Self {
        let root = dir.join("glrs");
        Self {
            config: root.join("config.json"),
            socket: root.join("glrsd.sock"),
            legacy: dir.join("glorious/sessions"),
            tmp: dir.join("tmp"),
            root,
        }
    }
}

impl Paths {
    /// The places an environment names. `uid` is the user's number.
    ///
    /// # Errors
    /// When there is neither a home directory nor `GLRS_HOME`, or `GLRS_HOME` is relative.
    pub fn from_env(env: &Env, uid: u32) -> Result<Self, String> {
        if let Some(home) = env.get("GLRS_HOME") {
            let root = PathBuf::from(home);
            if !root.is_absolute() {
                return Err(format!("GLRS_HOME has to be an absolute path, it is {home:?}"));
            }
            let tmp = Self::tmp_of(env, uid);
            let legacy = root.parent().unwrap_or(&root).join("glorious/sessions");
            return Ok(Self {
                config: root.join("config.json"),
                socket: Self::socket_of(env, Some(&root), uid),
                legacy,
                tmp,
                root,
            });
        }
        let home = absolute(env, "HOME")
            .or_else(|| directories::BaseDirs::new().map(|d| d.home_dir().to_path_buf()))
            .ok_or("no home directory: set HOME or GLRS_HOME to an absolute path")?;
        let data = absolute(env, "XDG_DATA_HOME").unwrap_or_else(|| home.join(".local/share"));
        let config = absolute(env, "GLRS_CONFIG_HOME")
            .unwrap_or_else(|| absolute(env, "XDG_CONFIG_HOME").unwrap_or_else(|| home.join(".config")).join("glrs"));
        Ok(Self {
            root: data.join("glrs"),
            config: config.join("config.json"),
            socket: Self::socket_of(env, None, uid),
            legacy: data.join("glorious/sessions"),
            tmp: Self::tmp_of(env, uid),
        })
    }

    fn tmp_of(env: &Env, uid: u32) -> PathBuf {
        absolute(env, "TMPDIR").unwrap_or_else(|| PathBuf::from("/tmp")).join(format!("glrs-tmp-{uid}"))
    }

    fn socket_of(env: &Env, home: Option<&Path>, uid: u32) -> PathBuf {
        if let Some(path) = absolute(env, "GLRS_SOCKET") {
            return path;
        }
        let short = PathBuf::from(format!("/tmp/glrs-{uid}"));
        if let Some(home) = home {
            let path = home.join("glrsd.sock");
            if path.as_os_str().len() <= SOCKET_MAX {
                return path;
            }
            // Too long for the platform: a short name that is the same for the same home.
            use sha2::{Digest, Sha256};
            let hash = Sha256::digest(home.as_os_str().as_encoded_bytes());
            return short.join(format!(
                "{:02x}{:02x}{:02x}{:02x}{:02x}{:02x}.sock",
                hash[0], hash[1], hash[2], hash[3], hash[4], hash[5]
            ));
        }
        match absolute(env, "XDG_RUNTIME_DIR").map(|d| d.join("glrs/glrsd.sock")) {
            Some(path) if path.as_os_str().len() <= SOCKET_MAX => path,
            _ => short.join("glrsd.sock"),
        }
    }

    /// The session files' directory.
    pub fn sessions(&self) -> PathBuf {
        self.root.join("sessions")
    }

    /// A session's log.
    pub fn log(&self, id: &SessionId) -> PathBuf {
        self.sessions().join(format!("{id}.json"))
    }

    /// A session's live journal.
    pub fn live(&self, id: &SessionId) -> PathBuf {
        self.sessions().join("live").join(format!("{id}.jsonl"))
    }

    /// A session's blobs.
    pub fn blobs(&self, id: &SessionId) -> PathBuf {
        self.sessions().join("blobs").join(id.as_str())
    }

    /// A session's artifacts.
    pub fn artifacts(&self, id: &SessionId) -> PathBuf {
        self.sessions().join("artifacts").join(id.as_str())
    }

    /// A session's witness trace.
    pub fn trace(&self, id: &SessionId) -> PathBuf {
        self.sessions().join("traces").join(format!("{id}.jsonl"))
    }

    /// What is kept of a large session so that it need not be read whole: a cache.
    pub fn fold(&self, id: &SessionId) -> PathBuf {
        self.sessions().join("folds").join(format!("{id}.json"))
    }

    /// Prompt history.
    pub fn prompts(&self) -> PathBuf {
        self.sessions().join("prompts.json")
    }

    /// What was fetched of a public list of models: a cache.
    pub fn catalogue(&self) -> PathBuf {
        self.root.join("models.json")
    }

    /// The list of trusted projects.
    pub fn trusted(&self) -> PathBuf {
        self.root.join("trusted.json")
    }

    /// The rules that "always" added, by project.
    pub fn allowed(&self) -> PathBuf {
        self.root.join("allowed.json")
    }

    /// The index of the list and of the full text: a cache.
    pub fn index(&self) -> PathBuf {
        self.root.join("index.sqlite")
    }

    /// The lock that one daemon holds for life.
    pub fn lock(&self) -> PathBuf {
        self.root.join("glrsd.lock")
    }

    /// The daemon's own log.
    pub fn daemon_log(&self) -> PathBuf {
        self.root.join("glrsd.log")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn env(pairs: &[(&str, &str)]) -> Env {
        pairs.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect()
    }

    #[test]
    fn xdg_is_honoured_only_when_absolute() {
        let p = Paths::from_env(&env(&[("HOME", "/h"), ("XDG_DATA_HOME", "rel"), ("XDG_CONFIG_HOME", "")]), 7).unwrap();
        assert_eq!(p.root, PathBuf::from("/h/.local/share/glrs"));
        assert_eq!(p.config, PathBuf::from("/h/.config/glrs/config.json"));
        assert_eq!(p.socket, PathBuf::from("/tmp/glrs-7/glrsd.sock"));
        let p = Paths::from_env(&env(&[("HOME", "/h"), ("XDG_DATA_HOME", "/d"), ("XDG_RUNTIME_DIR", "/run/u")]), 7)
            .unwrap();
        assert_eq!(p.root, PathBuf::from("/d/glrs"));
        assert_eq!(p.legacy, PathBuf::from("/d/glorious/sessions"));
        assert_eq!(p.socket, PathBuf::from("/run/u/glrs/glrsd.sock"));
    }

    #[test]
    fn glrs_home_holds_everything_and_long_paths_fall_back() {
        let p = Paths::from_env(&env(&[("GLRS_HOME", "/x/home")]), 7).unwrap();
        assert_eq!((p.socket, p.legacy), (PathBuf::from("/x/home/glrsd.sock"), PathBuf::from("/x/glorious/sessions")));
        let long = format!("/x/{}", "a".repeat(120));
        let p = Paths::from_env(&env(&[("GLRS_HOME", &long)]), 7).unwrap();
        assert!(p.socket.starts_with("/tmp/glrs-7") && p.socket.as_os_str().len() <= SOCKET_MAX);
        assert!(Paths::from_env(&env(&[("GLRS_HOME", "rel")]), 7).is_err());
    }
}
