//! A model behind HTTP, in whichever dialect.
//!
//! Owns: putting key, headers, body and decoder of one call together. Must not know streams' insides.

use super::catalogue::{self, Dialect, Price};
use super::convert::without_images;
use super::drive::{self, Decoder, Request};
use super::errors::{Origin, failure};
use super::keys::Keys;
use super::{Call, Failure, FailureKind, Model, Reply, Sink, anthropic, gemini, openai, responses};
use crate::host::worker;
use futures_util::future::BoxFuture;
use glrs_protocol::types::ModelRow;
use reqwest::Url;
use reqwest::header::{AUTHORIZATION, CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue};
use serde_json::{Map, Value};
use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;
use tokio_util::sync::CancellationToken;

/// Bytes of a conversation from which on putting it into a body is kept apart from serving others.
const LONG: usize = 512 * 1024;

/// The body of one call in a dialect.
pub(crate) fn build(
    dialect: Dialect,
    provider: &str,
    model: &str,
    call: &Call,
    options: &[&Map<String, Value>],
) -> Vec<u8> {
    match dialect {
        Dialect::Anthropic => anthropic::request::build(provider, model, call, options),
        Dialect::OpenAi => openai::request::build(provider, model, call, options),
        Dialect::Responses => responses::request::build(provider, model, call, options),
        Dialect::Gemini => gemini::request::build(provider, model, call, options),
    }
}

/// What reads one stream of a dialect. `taken` are the ids of calls in the conversation.
pub(crate) fn decoder(
    dialect: Dialect,
    origin: Origin,
    price: Option<Price>,
    taken: HashSet<String>,
) -> Box<dyn Decoder> {
    match dialect {
        Dialect::Anthropic => Box::new(anthropic::stream::Stream::new(origin, price, taken)),
        Dialect::OpenAi => Box::new(openai::stream::Stream::new(origin, price, taken)),
        Dialect::Responses => Box::new(responses::stream::Stream::new(origin, price, taken)),
        Dialect::Gemini => Box::new(gemini::stream::Stream::new(origin, price, taken)),
    }
}

/// A model behind HTTP.
pub(crate) struct Remote {
    pub row: ModelRow,
    pub provider: String,
    pub model: String,
    pub dialect: Dialect,
    pub url: Url,
    pub keys: Arc<Keys>,
    pub headers: BTreeMap<String, String>,
    pub options: [Map<String, Value>; 2],
    pub price: Option<Price>,
}

impl Remote {
    async fn run(&self, call: &Call, sink: &mut dyn Sink, cancel: &CancellationToken) -> Result<Reply, Failure> {
        let key = tokio::select! {
            biased;
            () = cancel.cancelled() => return Err(drive::cancelled()),
            key = self.keys.get(&call.env) => key?,
        };
        let done = self.send(call, key.as_deref(), sink, cancel).await;
        // A key of the command may have expired. A status came, so nothing has streamed yet.
        let (Err(Failure { kind: FailureKind::Auth, status, .. }), Some(key)) = (&done, &key) else { return done };
        if *status == Some(401) {
            let renewed = tokio::select! {
                biased;
                () = cancel.cancelled() => return Err(drive::cancelled()),
                key = self.keys.renew(key, &call.env) => key,
            };
            if let Some(renewed) = renewed {
                let done = self.send(call, Some(&renewed), sink, cancel).await;
                if done.as_ref().is_err_and(|f| f.kind == FailureKind::Auth) {
                    self.keys.forget(&renewed).await;
                }
                return done;
            }
        }
        self.keys.forget(key).await;
        done
    }

    /// One request and its stream.
    async fn send(
        &self,
        call: &Call,
        key: Option<&str>,
        sink: &mut dyn Sink,
        cancel: &CancellationToken,
    ) -> Result<Reply, Failure> {
        let origin =
            Origin { provider: self.provider.clone(), model: self.model.clone(), key_advice: self.keys.advice() };
        let headers = self.headers(call, key)?;
        let body = if call.size() > LONG { worker::aside(|| self.body(call)) } else { self.body(call) };
        let request = Request { url: self.url.clone(), headers, body, key: key.map(str::to_owned) };
        let taken: HashSet<String> = call.messages.iter().flat_map(|m| m.call_ids()).map(str::to_owned).collect();
        let mut decoder = decoder(self.dialect, origin.clone(), self.price, taken);
        drive::drive(&origin, request, &mut *decoder, call, sink, cancel).await
    }

    fn body(&self, call: &Call) -> Vec<u8> {
        let call = Call {
            variant: catalogue::variant(&self.row, call),
            max_output: call.max_output.zip(self.row.output).map(|(asked, most)| asked.min(most)),
            messages: match self.row.images {
                Some(false) => call.messages.iter().map(without_images).collect(),
                _ => call.messages.clone(),
            },
            ..call.clone()
        };
        let options = [&self.options[0], &self.options[1]];
        build(self.dialect, &self.provider, &self.model, &call, &options)
    }

    fn headers(&self, call: &Call, key: Option<&str>) -> Result<HeaderMap, Failure> {
        let mut map = HeaderMap::new();
        map.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        let quirks = openai::quirks::of(&self.provider);
        let key_header = match self.dialect {
            Dialect::Anthropic => {
                map.insert("anthropic-version", HeaderValue::from_static("2023-06-01"));
                Some("x-api-key")
            }
            Dialect::OpenAi | Dialect::Responses => quirks.key_header,
            Dialect::Gemini => Some("x-goog-api-key"),
        };
        if let Some(key) = key {
            let (name, value) = match key_header {
                Some(name) => (HeaderName::from_static(name), HeaderValue::from_str(key)),
                None => (AUTHORIZATION, HeaderValue::from_str(&format!("Bearer {key}"))),
            };
            let mut value = value.map_err(|_| {
                let advice = self.keys.advice();
                failure(FailureKind::Auth, format!("the key of {} has characters no key has; {advice}", self.provider))
            })?;
            // Kept out of Debug output and HTTP/2 tables.
            value.set_sensitive(true);
            map.insert(name, value);
        }
        if let (Some(name), Ok(value)) = (quirks.cache_header, HeaderValue::from_str(&call.cache_key)) {
            map.insert(HeaderName::from_static(name), value);
        }
        for (name, value) in &self.headers {
            let bad = || {
                failure(FailureKind::Request, format!("providers.{}.headers: {name} is no HTTP header", self.provider))
            };
            let mut value = HeaderValue::from_str(value).map_err(|_| bad())?;
            value.set_sensitive(true);
            map.insert(HeaderName::try_from(name.as_str()).map_err(|_| bad())?, value);
        }
        Ok(map)
    }
}

impl Model for Remote {
    fn row(&self) -> &ModelRow {
        &self.row
    }

    fn call<'a>(
        &'a self,
        call: &'a Call,
        sink: &'a mut dyn Sink,
        cancel: &'a CancellationToken,
    ) -> BoxFuture<'a, Result<Reply, Failure>> {
        Box::pin(self.run(call, sink, cancel))
    }
}
