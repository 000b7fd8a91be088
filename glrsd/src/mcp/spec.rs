//! What a configured server comes to in one place: program or address, with its variables filled in.
//!
//! Owns `${NAME}` and `${NAME:-default}`, finding the program, and the list of what must never be
//! shown. Pure but for looking for the program. Must not know connections.

use crate::config::McpServer;
use crate::host::Env;
use reqwest::Url;
use reqwest::header::{HeaderName, HeaderValue};
use std::collections::HashMap;
use std::path::{Path, PathBuf};

/// Where programs are looked for when nobody says.
const PATH: &str = "/usr/local/bin:/usr/bin:/bin";
/// Shortest value that counts as a secret: shorter ones stand in every other word.
const SECRET_MIN: usize = 5;
/// Longest reason that people are shown, in characters.
const WORDS: usize = 400;

/// How a server is reached.
#[derive(Debug)]
pub(super) enum Place {
    /// By starting it.
    Program {
        /// The program, absolute.
        program: PathBuf,
        /// Its arguments.
        args: Vec<String>,
        /// Where it runs.
        cwd: PathBuf,
        /// Its whole environment.
        env: Env,
    },
    /// By HTTP.
    Remote {
        /// Where it answers.
        url: Url,
        /// What every request carries besides.
        headers: HashMap<HeaderName, HeaderValue>,
    },
}

/// Values that stand for what a person wrote as `${NAME}`, `env` or `headers`. No text that came
/// from a server or a library is shown before it went through [`Secrets::hide`].
#[derive(Default)]
pub(super) struct Secrets(Vec<String>);

impl Secrets {
    fn add(&mut self, value: &str) {
        if value.len() >= SECRET_MIN && !self.0.iter().any(|s| s == value) {
            self.0.push(value.to_owned());
            // A secret that has another one in it goes first, or its rest would stay.
            self.0.sort_by_key(|s| std::cmp::Reverse(s.len()));
        }
    }

    /// A text on one line, of bounded length, with every secret and every address taken out.
    pub fn hide(&self, text: &str) -> String {
        let mut out = text.to_owned();
        for secret in &self.0 {
            out = out.replace(secret.as_str(), "•••");
        }
        // The HTTP client names the address in its errors: a token may be in its query.
        while let Some(at) = out.find(" for url (") {
            let end = out[at..].find(')').map_or(out.len(), |n| at + n + 1);
            out.replace_range(at..end, "");
        }
        let words: Vec<&str> =
            out.split(|c: char| c.is_whitespace() || c.is_control()).filter(|w| !w.is_empty()).collect();
        let line = words.join(" ");
        match line.char_indices().nth(WORDS) {
            Some((at, _)) => format!("{}…", &line[..at]),
            None => line,
        }
    }
}

impl std::fmt::Debug for Secrets {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Secrets({})", self.0.len())
    }
}

/// A server's place, in a session's directory and environment. Its program does not inherit `keys`.
///
/// # Errors
/// What is missing, in words for people; names variables, never their values.
pub(super) fn place(
    server: &McpServer,
    cwd: &Path,
    env: &Env,
    keys: &[String],
    secrets: &mut Secrets,
) -> Result<Place, String> {
    let mut fill = |text: &str, what: &str| expand(text, env, secrets).map_err(|e| format!("{what}: {e}"));
    let kind = server.transport.as_deref();
    match (&server.command, &server.url) {
        (Some(command), None) => {
            if kind.is_some_and(|k| k != "stdio") {
                return Err(format!("type {:?} does not go with a command: leave it out", kind.unwrap_or_default()));
            }
            let command = fill(command, "command")?;
            let args = server.args.iter().map(|a| fill(a, "args")).collect::<Result<Vec<_>, _>>()?;
            let dir = server.cwd.as_deref().map(|d| fill(d, "cwd")).transpose()?;
            let mut own = env.without(keys);
            for (name, value) in &server.env {
                own.set(name, fill(value, &format!("env.{name}"))?);
            }
            server.env.keys().filter_map(|name| own.get(name)).for_each(|value| secrets.add(value));
            let cwd = dir.map_or_else(|| cwd.to_path_buf(), |d| cwd.join(d));
            if !cwd.is_dir() {
                return Err("the directory it should start in does not exist".to_owned());
            }
            Ok(Place::Program { program: find(&command, &cwd, &own)?, args, cwd, env: own })
        }
        (None, Some(url)) => {
            if kind == Some("sse") {
                return Err("type \"sse\" is the old transport, which is not supported: most servers answer to \"http\" too, often at another path".to_owned());
            }
            if kind == Some("stdio") {
                return Err("type \"stdio\" does not go with a url: leave it out".to_owned());
            }
            let url = fill(url, "url")?;
            let filled = server
                .headers
                .iter()
                .map(|(name, value)| Ok((name, fill(value, &format!("headers.{name}"))?)))
                .collect::<Result<Vec<_>, String>>()?;
            let mut headers = HashMap::new();
            for (name, value) in filled {
                let bad = || format!("headers.{name}: not a name and value that HTTP takes");
                headers.insert(name.parse::<HeaderName>().map_err(|_| bad())?, header(&value).ok_or_else(bad)?);
                secrets.add(&value);
            }
            let url: Url = url.parse().map_err(|_| "url: not an address such as https://example.com/mcp".to_owned())?;
            if !matches!(url.scheme(), "http" | "https") || !url.has_host() {
                return Err("url: has to start with http:// or https://".to_owned());
            }
            url.query_pairs().for_each(|(_, value)| secrets.add(&value));
            url.password().into_iter().for_each(|value| secrets.add(value));
            Ok(Place::Remote { url, headers })
        }
        _ => Err("it needs a command or a url, and not both".to_owned()),
    }
}

fn header(value: &str) -> Option<HeaderValue> {
    let mut value: HeaderValue = value.parse().ok()?;
    value.set_sensitive(true);
    Some(value)
}

/// Fills in `${NAME}` and `${NAME:-default}`. What only looks alike stays as it is.
fn expand(text: &str, env: &Env, secrets: &mut Secrets) -> Result<String, String> {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find("${") {
        out.push_str(&rest[..at]);
        let inside = &rest[at + 2..];
        let Some(end) = inside.find('}') else {
            rest = &rest[at..];
            break;
        };
        let (name, default) = match inside[..end].split_once(":-") {
            Some((name, default)) => (name, Some(default)),
            None => (&inside[..end], None),
        };
        let named = name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
            && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
        match (env.get(name), default) {
            _ if !named => out.push_str(&rest[at..at + 2 + end + 1]),
            (Some(value), _) => {
                secrets.add(value);
                out.push_str(value);
            }
            (None, Some(default)) => out.push_str(default),
            (None, None) => {
                return Err(format!("the variable {name} is not set where this session was started from"));
            }
        }
        rest = &inside[end + 1..];
    }
    out.push_str(rest);
    Ok(out)
}

/// The program: a path counts from the directory, a name is looked for in the PATH.
fn find(command: &str, cwd: &Path, env: &Env) -> Result<PathBuf, String> {
    let runs = |p: &Path| p.is_file() && rustix::fs::access(p, rustix::fs::Access::EXEC_OK).is_ok();
    let found = if command.contains('/') {
        Some(cwd.join(command)).filter(|p| runs(p))
    } else {
        let path = env.get("PATH").unwrap_or(PATH);
        path.split(':').map(Path::new).filter(|d| d.is_absolute()).map(|d| d.join(command)).find(|p| runs(p))
    };
    found.ok_or_else(|| {
        let hint = if command.contains(' ') { "; what follows the program belongs into args" } else { "" };
        let first = command.split(' ').next().unwrap_or_default();
        format!("there is no program {first} to be run{hint}")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn env() -> Env {
        [("TOKEN", "s3cr3t-value"), ("EMPTY", ""), ("PATH", "/bin:/usr/bin")]
            .map(|(k, v)| (k.to_owned(), v.to_owned()))
            .into_iter()
            .collect()
    }

    #[test]
    fn variables_are_filled_in_and_what_only_looks_alike_stays() {
        let fill = |text: &str| expand(text, &env(), &mut Secrets::default());
        assert_eq!(fill("a ${TOKEN} b${TOKEN}").unwrap(), "a s3cr3t-value bs3cr3t-value");
        assert_eq!(fill("${NONE:-x y}${EMPTY:-}${EMPTY:-e}").unwrap(), "x ye");
        assert_eq!(fill("$TOKEN ${} ${a b} ${1X} ${TOKEN").unwrap(), "$TOKEN ${} ${a b} ${1X} ${TOKEN");
        assert!(fill("${NONE}").unwrap_err().contains("NONE"));
        assert!(fill("${EMPTY}").is_err());
    }

    #[test]
    fn secrets_and_addresses_are_in_no_text() {
        let mut secrets = Secrets::default();
        let server = McpServer {
            url: Some("https://u:pa55word@h/mcp?key=${TOKEN}".into()),
            headers: [("X-Key".to_owned(), "another-one".to_owned())].into(),
            ..McpServer::default()
        };
        assert!(place(&server, Path::new("/"), &env(), &[], &mut secrets).is_ok());
        let text = "error sending request for url (https://h/mcp?key=s3cr3t-value): s3cr3t-value\nanother-one pa55word";
        assert_eq!(secrets.hide(text), "error sending request: ••• ••• •••");
        assert!(secrets.hide(&"é".repeat(9999)).chars().count() <= WORDS + 1);
        assert!(!format!("{secrets:?}").contains("s3cr3t"));
    }

    #[test]
    fn what_cannot_be_is_said() {
        let of = |json: serde_json::Value| {
            let server: McpServer = serde_json::from_value(json).unwrap();
            place(&server, Path::new("/tmp"), &env(), &["TOKEN".to_owned()], &mut Secrets::default())
        };
        use serde_json::json;
        for (server, words) in [
            (json!({}), "command or a url"),
            (json!({"command": "sh", "url": "http://h"}), "not both"),
            (json!({"command": "no-such-program-here"}), "no-such-program-here"),
            (json!({"command": "npx-none -y x"}), "args"),
            (json!({"command": "sh", "cwd": "/no/such/dir"}), "directory"),
            (json!({"command": "sh", "args": ["${NOPE}"]}), "NOPE"),
            (json!({"command": "sh", "type": "http"}), "type"),
            (json!({"url": "http://h", "type": "sse"}), "sse"),
            (json!({"url": "ftp://h"}), "http://"),
            (json!({"url": "nothing"}), "url"),
            (json!({"url": "http://h", "headers": {"a b": "c"}}), "headers.a b"),
        ] {
            let why = of(server.clone()).unwrap_err();
            assert!(why.contains(words), "{server}: {why}");
        }
        let Place::Program { program, env, cwd, .. } =
            of(json!({"command": "sh", "env": {"A": "${TOKEN}"}, "cwd": "."})).unwrap()
        else {
            panic!("a program");
        };
        assert!(program.is_absolute() && env.get("A") == Some("s3cr3t-value") && cwd.starts_with("/tmp"));
        // A provider's key goes to no program that its configuration does not give it to.
        assert!(env.get("TOKEN").is_none() && env.get("PATH").is_some());
    }
}
