//! HTTP to remote servers.
//!
//! Owns: the client (TLS with the ring provider, the proxies a session's environment names, no
//! redirects) and how often a broken stream is opened again. Must not know what is said.

use super::guard::MAX_MESSAGE;
use crate::host::Env;
use reqwest::header::{HeaderName, HeaderValue};
use reqwest::{Client, NoProxy, Proxy, Url, redirect};
use rmcp::transport::StreamableHttpClientTransport;
use rmcp::transport::common::client_side_sse::SseRetryPolicy;
use rmcp::transport::streamable_http_client::StreamableHttpClientTransportConfig;
use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// How often in a row a stream of notifications is opened again.
const REOPENED: usize = 5;

/// A client for a server's address.
///
/// # Errors
/// In words for people: when TLS or the proxy cannot be set up.
pub(super) async fn client(url: &Url, env: &Env) -> Result<Client, String> {
    let get = |upper: &str, lower: &str| env.get(lower).or_else(|| env.get(upper)).map(str::to_owned);
    let (mut proxy, mut except) = (None, None);
    let tls = url.scheme() == "https";
    // Nothing on this machine is behind a proxy.
    let ip = |h: &str| h.trim_matches(['[', ']']).parse::<IpAddr>().is_ok_and(|ip| ip.is_loopback());
    let local = url.host_str().is_some_and(|h| h == "localhost" || ip(h));
    if !local {
        let own = if tls { get("HTTPS_PROXY", "https_proxy") } else { get("HTTP_PROXY", "http_proxy") };
        proxy = own.or_else(|| get("ALL_PROXY", "all_proxy"));
        except = get("NO_PROXY", "no_proxy");
    }
    // Reads a few hundred certificates from disk.
    tokio::task::spawn_blocking(move || {
        // Fails only when a provider is installed already, which serves as well.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let mut builder = Client::builder()
            .connect_timeout(CONNECT_TIMEOUT)
            .user_agent(concat!("glrs/", env!("CARGO_PKG_VERSION")))
            // A redirect would carry headers with keys to somewhere nobody named.
            .redirect(redirect::Policy::none())
            .no_proxy();
        if !tls && proxy.is_none() {
            builder = builder.tls_certs_only([]);
        }
        if let Some(at) = proxy {
            let proxy = Proxy::all(at).map_err(|_| "the proxy variables name no usable address".to_owned())?;
            builder = builder.proxy(proxy.no_proxy(except.as_deref().and_then(NoProxy::from_string)));
        }
        builder.build().map_err(|e| format!("TLS could not be set up: {}", super::link::root(&e)))
    })
    .await
    .unwrap_or_else(|_| Err("the HTTP client could not be set up".to_owned()))
}

/// The streamable HTTP transport to a server.
pub(super) fn transport(
    client: Client,
    url: Url,
    headers: HashMap<HeaderName, HeaderValue>,
) -> StreamableHttpClientTransport<Client> {
    let mut config = StreamableHttpClientTransportConfig::with_uri(url.as_str())
        .custom_headers(headers)
        .max_sse_event_size(MAX_MESSAGE)
        .max_json_response_size(MAX_MESSAGE);
    config.retry_config = Arc::new(Sparing);
    StreamableHttpClientTransport::with_client(client, config)
}

/// A server that does not want the stream is left alone after a while: nothing runs by the clock
/// for a session at rest.
#[derive(Debug)]
struct Sparing;

impl SseRetryPolicy for Sparing {
    fn retry(&self, times: usize) -> Option<Duration> {
        (times < REOPENED).then(|| Duration::from_secs(1 << times.min(REOPENED)))
    }
}
