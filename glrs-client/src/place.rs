//! Where the daemon's socket is: a pure function of the environment's values.
//!
//! Owns the client's half of the rule that both sides follow. Must not read the environment: the
//! caller hands it in.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::PathBuf;

/// Longest socket path the platform takes, in bytes (`sun_path` less its NUL).
#[cfg(target_os = "macos")]
pub const SOCKET_MAX: usize = 103;
/// Longest socket path the platform takes, in bytes (`sun_path` less its NUL).
#[cfg(not(target_os = "macos"))]
pub const SOCKET_MAX: usize = 107;

/// The environment as the process got it.
pub type Vars = BTreeMap<OsString, OsString>;

fn absolute(vars: &Vars, name: &str) -> Option<PathBuf> {
    vars.get(std::ffi::OsStr::new(name)).map(PathBuf::from).filter(|p| p.is_absolute())
}

/// The socket that this environment names. `uid` is the user's number.
///
/// # Errors
/// When `GLRS_HOME` is set and relative: the daemon would take it for another place than we.
pub fn socket(vars: &Vars, uid: u32) -> Result<PathBuf, String> {
    let home = match vars.get(std::ffi::OsStr::new("GLRS_HOME")) {
        Some(home) if !home.is_empty() => {
            let home = PathBuf::from(home);
            if !home.is_absolute() {
                return Err(format!("GLRS_HOME has to be an absolute path, it is {}", home.display()));
            }
            Some(home)
        }
        _ => None,
    };
    if let Some(path) = absolute(vars, "GLRS_SOCKET") {
        return Ok(path);
    }
    let short = PathBuf::from(format!("/tmp/glrs-{uid}"));
    if let Some(home) = home {
        let path = home.join("glrsd.sock");
        if path.as_os_str().len() <= SOCKET_MAX {
            return Ok(path);
        }
        // Too long for the platform: a short name that is the same for the same home.
        use sha2::{Digest, Sha256};
        let hash = Sha256::digest(home.as_os_str().as_encoded_bytes());
        let name: String = hash.iter().take(6).map(|b| format!("{b:02x}")).collect();
        return Ok(short.join(format!("{name}.sock")));
    }
    Ok(match absolute(vars, "XDG_RUNTIME_DIR").map(|d| d.join("glrs/glrsd.sock")) {
        Some(path) if path.as_os_str().len() <= SOCKET_MAX => path,
        _ => short.join("glrsd.sock"),
    })
}

/// The daemon's data directory as this environment names it: where its log is, should it not run.
pub fn root(vars: &Vars) -> Option<PathBuf> {
    let data = || absolute(vars, "XDG_DATA_HOME").or_else(|| Some(absolute(vars, "HOME")?.join(".local/share")));
    absolute(vars, "GLRS_HOME").or_else(|| Some(data()?.join("glrs")))
}

/// Names that describe the caller's terminal session, not the work: a tool that ran with them
/// would believe it sits in that terminal.
const TERMINAL_ONLY: [&str; 19] = [
    "_",
    "SHLVL",
    "PWD",
    "OLDPWD",
    "COLUMNS",
    "LINES",
    "WINDOWID",
    "TERM_SESSION_ID",
    "TMUX",
    "TMUX_PANE",
    "STY",
    "WINDOW",
    "SSH_TTY",
    "SSH_CLIENT",
    "SSH_CONNECTION",
    "GPG_TTY",
    "ITERM_SESSION_ID",
    "KITTY_WINDOW_ID",
    "WT_SESSION",
];

/// The environment that a session gets from this caller: everything but what belongs to the
/// terminal the caller sits in. Values that are not UTF-8 cannot travel and are left out.
pub fn session_env(vars: &Vars) -> BTreeMap<String, String> {
    vars.iter()
        .filter_map(|(k, v)| Some((k.to_str()?.to_owned(), v.to_str()?.to_owned())))
        .filter(|(k, _)| !TERMINAL_ONLY.contains(&k.as_str()))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn vars(pairs: &[(&str, &str)]) -> Vars {
        pairs.iter().map(|(k, v)| (OsString::from(k), OsString::from(v))).collect()
    }

    #[test]
    fn the_nearest_rule_wins() {
        let s = |p: &[(&str, &str)]| socket(&vars(p), 7).unwrap();
        assert_eq!(s(&[]), PathBuf::from("/tmp/glrs-7/glrsd.sock"));
        assert_eq!(s(&[("XDG_RUNTIME_DIR", "/run/u")]), PathBuf::from("/run/u/glrs/glrsd.sock"));
        assert_eq!(s(&[("XDG_RUNTIME_DIR", "relative")]), PathBuf::from("/tmp/glrs-7/glrsd.sock"));
        assert_eq!(s(&[("GLRS_HOME", "/x"), ("XDG_RUNTIME_DIR", "/run/u")]), PathBuf::from("/x/glrsd.sock"));
        assert_eq!(s(&[("GLRS_HOME", "/x"), ("GLRS_SOCKET", "/y/s")]), PathBuf::from("/y/s"));
        assert!(socket(&vars(&[("GLRS_HOME", "rel")]), 7).is_err());
    }

    #[test]
    fn the_data_directory_follows_the_same_variables() {
        let r = |p: &[(&str, &str)]| root(&vars(p));
        assert_eq!(r(&[("HOME", "/h")]), Some(PathBuf::from("/h/.local/share/glrs")));
        assert_eq!(r(&[("HOME", "/h"), ("XDG_DATA_HOME", "/d")]), Some(PathBuf::from("/d/glrs")));
        assert_eq!(r(&[("HOME", "/h"), ("GLRS_HOME", "/g")]), Some(PathBuf::from("/g")));
        assert_eq!(r(&[]), None);
    }

    #[test]
    fn long_paths_fall_back_to_a_short_name_that_depends_on_the_home() {
        let a = socket(&vars(&[("GLRS_HOME", &format!("/x/{}", "a".repeat(120)))]), 7).unwrap();
        let b = socket(&vars(&[("GLRS_HOME", &format!("/x/{}", "b".repeat(120)))]), 7).unwrap();
        assert!(a.starts_with("/tmp/glrs-7") && a.as_os_str().len() <= SOCKET_MAX);
        assert_ne!(a, b);
    }

    #[test]
    fn the_session_gets_the_work_not_the_terminal() {
        let env = session_env(&vars(&[("PATH", "/bin"), ("ANTHROPIC_API_KEY", "k"), ("TMUX", "x"), ("TERM", "xterm")]));
        assert_eq!(env.keys().collect::<Vec<_>>(), ["ANTHROPIC_API_KEY", "PATH", "TERM"]);
    }
}
