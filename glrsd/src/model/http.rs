//! The HTTP clients, made when the first request needs them.
//!
//! Owns: TLS with the ring provider and the system's roots, proxies, connect timeout. A client is made
//! once per process and proxy setting: the settings come with a session's environment, not from this
//! process's own. Must not know providers.

use super::errors::{failure, tidy};
use super::{Failure, FailureKind};
use crate::host::Env;
use reqwest::{Client, NoProxy, Proxy, Url, redirect};
use std::error::Error;
use std::sync::Mutex;
use std::time::Duration;

const CONNECT_TIMEOUT: Duration = Duration::from_secs(20);

/// Most clients kept. Another proxy setting beyond these gets one of its own, which is not kept.
const CLIENTS_MAX: usize = 8;

#[derive(Clone, PartialEq, Eq)]
struct Setting {
    /// Whether it can speak TLS: reading the system's roots takes time, and plain HTTP to a local
    /// server has to work on a machine that has none.
    tls: bool,
    http: Option<String>,
    https: Option<String>,
    except: Option<String>,
}

static CLIENTS: Mutex<Vec<(Setting, Client)>> = Mutex::new(Vec::new());

/// A client for the address, with the proxies the environment names (never for loopback).
///
/// # Errors
/// When TLS cannot be set up or a proxy variable is no address.
pub(crate) async fn client(url: &Url, env: &Env) -> Result<Client, Failure> {
    let get = |upper: &str, lower: &str| env.get(lower).or_else(|| env.get(upper)).map(str::to_owned);
    let mut setting = Setting { tls: url.scheme() == "https", http: None, https: None, except: None };
    if !is_loopback(url) {
        setting.http = get("HTTP_PROXY", "http_proxy").or_else(|| get("ALL_PROXY", "all_proxy"));
        setting.https = get("HTTPS_PROXY", "https_proxy").or_else(|| get("ALL_PROXY", "all_proxy"));
        setting.except = get("NO_PROXY", "no_proxy");
        // A proxy can itself be spoken to by TLS.
        setting.tls |= setting.http.as_ref().is_some_and(|p| p.starts_with("https:"));
    }
    if let Some(found) = lookup(&setting) {
        return Ok(found);
    }
    let wanted = setting.clone();
    // Reads a few hundred certificates from disk.
    let made = tokio::task::spawn_blocking(move || build(&wanted))
        .await
        .map_err(|_| failure(FailureKind::Network, "the HTTP client could not be set up"))??;
    let mut clients = CLIENTS.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    if clients.len() < CLIENTS_MAX && !clients.iter().any(|(s, _)| *s == setting) {
        clients.push((setting, made.clone()));
    }
    Ok(made)
}

fn lookup(setting: &Setting) -> Option<Client> {
    let clients = CLIENTS.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    clients.iter().find(|(s, _)| s == setting).map(|(_, c)| c.clone())
}

fn build(setting: &Setting) -> Result<Client, Failure> {
    // Fails only when a provider is installed already, which serves as well.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let mut builder = Client::builder()
        .connect_timeout(CONNECT_TIMEOUT)
        .user_agent(concat!("glrs/", env!("CARGO_PKG_VERSION")))
        // A redirected POST would carry keys and conversation to somewhere nobody named.
        .redirect(redirect::Policy::none())
        .no_proxy();
    if !setting.tls {
        builder = builder.tls_certs_only([]);
    }
    let bad = |_| failure(FailureKind::Network, "the proxy variables name no usable address (HTTP_PROXY, HTTPS_PROXY)");
    let except = setting.except.as_deref().and_then(NoProxy::from_string);
    if let Some(p) = &setting.http {
        builder = builder.proxy(Proxy::http(p).map_err(bad)?.no_proxy(except.clone()));
    }
    if let Some(p) = &setting.https {
        builder = builder.proxy(Proxy::https(p).map_err(bad)?.no_proxy(except));
    }
    builder.build().map_err(|e| failure(FailureKind::Network, format!("TLS could not be set up: {}", root_words(&e))))
}

/// Whether the address is this machine.
pub(crate) fn is_loopback(url: &Url) -> bool {
    match url.host_str() {
        Some("localhost") => true,
        Some(h) => h.trim_matches(['[', ']']).parse::<std::net::IpAddr>().is_ok_and(|ip| ip.is_loopback()),
        None => false,
    }
}

/// Words for a connection that failed. Names the host only: reqwest's own words hold the whole URL.
pub(crate) fn unreachable(provider: &str, url: &Url, e: &reqwest::Error) -> Failure {
    let host = match (url.host_str(), url.port()) {
        (Some(h), Some(p)) => format!("{h}:{p}"),
        (Some(h), None) => h.to_owned(),
        (None, _) => "its address".to_owned(),
    };
    let what = if e.is_connect() || e.is_timeout() { "could not be reached" } else { "broke the connection" };
    failure(FailureKind::Network, format!("{provider} {what} at {host}: {}", root_words(e)))
}

/// What the innermost cause says: that is the one with the reason, and without an address.
fn root_words(e: &(dyn Error + 'static)) -> String {
    let mut cause = e;
    while let Some(next) = cause.source() {
        cause = next;
    }
    if cause.downcast_ref::<reqwest::Error>().is_some() {
        return "no reason given".to_owned();
    }
    tidy(&cause.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Sets up TLS with ring; a machine without root certificates gets words, not a panic.
    #[tokio::test]
    async fn clients_are_made_per_proxy_setting() {
        let https: Url = "https://api.example.com/v1".parse().unwrap();
        if let Err(f) = client(&https, &Env::default()).await {
            assert!(f.message.starts_with("TLS could not be set up"), "{}", f.message);
        }
        let mut env = Env::default();
        env.set("http_proxy", "http://user:secret@[not an address");
        let f = client(&"http://api.example.com/".parse().unwrap(), &env).await.unwrap_err();
        assert!(f.message.contains("HTTP_PROXY") && !f.message.contains("secret"), "{}", f.message);
        // Loopback never goes through a proxy, so a broken one does not matter.
        client(&"http://127.0.0.1:1/".parse().unwrap(), &env).await.unwrap();
    }

    #[test]
    fn loopback_is_told() {
        for (url, is) in [
            ("http://127.0.0.1:1/v1", true),
            ("http://localhost:1", true),
            ("http://[::1]:2/", true),
            ("https://api.example.com/", false),
            ("http://127.0.0.1.example.com/", false),
        ] {
            assert_eq!(is_loopback(&url.parse().unwrap()), is, "{url}");
        }
    }
}
