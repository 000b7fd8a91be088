//! Strict fake providers: real HTTP/1.1 and server-sent events on the loopback, one per dialect.
//!
//! Owns the server ([`Fake`]): it checks each request as the real provider does, answers the real
//! error where a rule is broken, records everything, and otherwise streams the next scripted
//! [`Reply`]. A request nobody scripted is answered 500 and is a violation. Rules live in
//! [`anthropic`], [`openai`], [`responses`] and [`gemini`]; nothing here knows the product.

pub mod anthropic;
pub mod gemini;
pub mod http;
pub mod mcp;
pub mod openai;
pub mod reply;
pub mod responses;
pub mod rules;

pub use reply::{Gate, Reply};

use crate::wait::{PATIENCE, Watched};
use http::{Request, Responder};
use rules::{Issued, Refusal};
use serde_json::{Value, json};
use std::collections::VecDeque;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Which provider's wire format a fake speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dialect {
    /// Anthropic Messages.
    Anthropic,
    /// OpenAI Chat Completions.
    OpenAi,
    /// OpenAI Responses.
    Responses,
    /// Gemini `generateContent`.
    Gemini,
}

impl Dialect {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Anthropic, Self::OpenAi, Self::Responses, Self::Gemini];

    /// The word in `providers.<id>.dialect`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Anthropic => "anthropic",
            Self::OpenAi => "openai",
            Self::Responses => "responses",
            Self::Gemini => "gemini",
        }
    }

    /// The word with which the output limit stops a model.
    pub fn length(self) -> &'static str {
        match self {
            Self::Anthropic => "max_tokens",
            Self::OpenAi => "length",
            Self::Responses => "max_output_tokens",
            Self::Gemini => "MAX_TOKENS",
        }
    }

    /// Path of the base URL.
    fn base(self) -> &'static str {
        if self == Self::Gemini { "/v1beta" } else { "/v1" }
    }

    fn takes(self, path: &str) -> bool {
        let (path, query) = path.split_once('?').unwrap_or((path, ""));
        match self {
            Self::Anthropic => path == "/v1/messages",
            Self::OpenAi => path == "/v1/chat/completions",
            Self::Responses => path == "/v1/responses",
            Self::Gemini => {
                // Without `alt=sse` the real one answers with a list, not a stream.
                path.starts_with("/v1beta/models/") && path.ends_with(":streamGenerateContent") && query == "alt=sse"
            }
        }
    }

    fn key(self, request: &Request) -> Option<String> {
        let key = match self {
            Self::Anthropic => request.header("x-api-key"),
            Self::Gemini => request.header("x-goog-api-key"),
            Self::OpenAi | Self::Responses => request.header("authorization").and_then(|v| v.strip_prefix("Bearer ")),
        };
        key.map(str::to_owned)
    }

    fn check(self, request: &Request, body: &Value, issued: &Issued) -> Result<(), Refusal> {
        match self {
            Self::Anthropic => anthropic::check(request, body, issued),
            Self::OpenAi => openai::check(body).and_then(|()| rules::output_limit(body)),
            Self::Responses => responses::check(request, body, issued).and_then(|()| rules::output_limit(body)),
            Self::Gemini => gemini::check(request, body, issued),
        }
    }

    fn error(self, refusal: &Refusal) -> Value {
        match self {
            Self::Anthropic => anthropic::error(&refusal.kind, &refusal.message),
            Self::OpenAi | Self::Responses => openai::error(&refusal.kind, &refusal.message, refusal.param.as_deref()),
            Self::Gemini => gemini::error(refusal.status, &refusal.message),
        }
    }
}

/// A request as it came.
#[derive(Clone, Debug)]
pub struct Recorded {
    /// Path, query included.
    pub path: String,
    /// Headers, names in lower case.
    pub headers: Vec<(String, String)>,
    /// The body; null when it is no JSON.
    pub body: Value,
    /// The body, byte for byte.
    pub raw: String,
    /// The key it carried.
    pub key: Option<String>,
    /// The rule it broke, if it did.
    pub refused: Option<String>,
    /// True when the client hung up before the answer was complete.
    pub aborted: bool,
    /// True when the answer was sent to its end.
    pub finished: bool,
}

impl Recorded {
    /// A header's value.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(n, _)| n == name).map(|(_, v)| v.as_str())
    }

    /// The messages it carried, under whichever name.
    pub fn messages(&self) -> &[Value] {
        ["messages", "input", "contents"].iter().find_map(|k| self.body[*k].as_array()).map_or(&[], Vec::as_slice)
    }

    /// The system prompt, as the dialect has it.
    pub fn system(&self) -> &Value {
        let named = ["system", "instructions", "systemInstruction"].iter().map(|k| &self.body[*k]);
        named.into_iter().find(|v| !v.is_null()).or(self.messages().first()).unwrap_or(&Value::Null)
    }

    /// How many blocks it marks for the cache.
    pub fn cache_marks(&self) -> usize {
        rules::marks(&self.body)
    }

    /// The model it was for: in the body, or in the path.
    pub fn model(&self) -> &str {
        let in_path = || self.path.split("/models/").nth(1)?.split(':').next();
        self.body["model"].as_str().or_else(in_path).unwrap_or_default()
    }
}

type Brain = Box<dyn FnMut(&Value) -> Reply + Send>;

#[derive(Default)]
struct Inner {
    script: VecDeque<Reply>,
    brain: Option<Brain>,
    requests: Vec<Recorded>,
    others: Vec<String>,
    violations: Vec<String>,
    issued: Issued,
    next_id: u64,
}

struct Server {
    dialect: Dialect,
    needs_key: bool,
    stop: Arc<AtomicBool>,
    inner: Watched<Inner>,
}

/// A running fake provider. Dropping it ends every stream it still holds.
pub struct Fake {
    addr: SocketAddr,
    server: Arc<Server>,
}

impl Fake {
    /// A fake that wants a key.
    ///
    /// # Panics
    /// When the loopback cannot be listened on.
    pub fn start(dialect: Dialect) -> Self {
        Self::listen(dialect, true)
    }

    /// A fake of a local server, which wants no key.
    ///
    /// # Panics
    /// When the loopback cannot be listened on.
    pub fn keyless(dialect: Dialect) -> Self {
        Self::listen(dialect, false)
    }

    fn listen(dialect: Dialect, needs_key: bool) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).expect("a loopback port");
        let addr = listener.local_addr().expect("its address");
        let stop = Arc::new(AtomicBool::new(false));
        let server = Arc::new(Server { dialect, needs_key, stop, inner: Watched::default() });
        let shared = Arc::clone(&server);
        std::thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                if shared.stop.load(Ordering::Relaxed) {
                    break;
                }
                let server = Arc::clone(&shared);
                std::thread::spawn(move || server.connection(stream));
            }
        });
        Self { addr, server }
    }

    /// Where it listens.
    pub fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// Base URL, as `providers.<id>.api` has it.
    pub fn api(&self) -> String {
        format!("http://{}{}", self.addr, self.server.dialect.base())
    }

    /// A `providers.<id>` value that leads here: the key comes from `FAKE_KEY`, the models are `m`
    /// and `n` with windows of 100,000 tokens, and `gemini-3-m`, of which signatures are demanded.
    pub fn provider(&self) -> Value {
        let model = json!({"metadata": {"name": "Fake", "context": 100_000, "output": 4096}});
        let mut provider = json!({
            "api": self.api(), "dialect": self.server.dialect.as_str(),
            "models": {"m": model, "n": model}
        });
        if self.server.dialect == Dialect::Gemini {
            provider["models"]["gemini-3-m"] = model;
        }
        if self.server.needs_key {
            provider["keyEnv"] = json!("FAKE_KEY");
        }
        provider
    }

    /// A whole `config.json` with this provider as `fake` and its model `m` as the default.
    pub fn config(&self) -> Value {
        json!({"model": "fake/m", "providers": {"fake": self.provider()}})
    }

    /// Scripts the answer to the next request that has none.
    pub fn reply(&self, reply: Reply) {
        self.server.inner.update(|s| s.script.push_back(reply));
    }

    /// Answers every request that has no scripted reply by what `brain` makes of its body.
    pub fn answer_by(&self, brain: impl FnMut(&Value) -> Reply + Send + 'static) {
        self.server.inner.update(|s| s.brain = Some(Box::new(brain)));
    }

    /// How many requests came to the dialect's path.
    pub fn count(&self) -> usize {
        self.server.inner.lock().requests.len()
    }

    /// The requests so far.
    pub fn requests(&self) -> Vec<Recorded> {
        self.server.inner.lock().requests.clone()
    }

    /// Method and path of requests to any other path.
    pub fn others(&self) -> Vec<String> {
        self.server.inner.lock().others.clone()
    }

    /// Waits until so many requests came, and returns the last of those.
    ///
    /// # Panics
    /// When they do not come.
    #[track_caller]
    pub fn wait_request(&self, n: usize) -> Recorded {
        let found = self.server.inner.wait_for(PATIENCE, |s| s.requests.get(n - 1).cloned());
        found.unwrap_or_else(|| panic!("request {n} did not come; {} did", self.count()))
    }

    /// Waits until the client has hung up on request `n` (from 1).
    ///
    /// # Panics
    /// When it does not.
    #[track_caller]
    pub fn wait_aborted(&self, n: usize) {
        let found = self.server.inner.wait_for(PATIENCE, |s| s.requests.get(n - 1)?.aborted.then_some(()));
        assert!(found.is_some(), "the client did not hang up on request {n}");
    }

    /// Every rule that was broken so far.
    pub fn violations(&self) -> Vec<String> {
        self.server.inner.lock().violations.clone()
    }

    /// Asserts that no rule was broken and that every scripted reply was asked for.
    ///
    /// # Panics
    /// When one was, or one was not.
    #[track_caller]
    pub fn assert_clean(&self) {
        let inner = self.server.inner.lock();
        assert!(inner.violations.is_empty(), "illegal requests: {:#?}", inner.violations);
        assert!(inner.script.is_empty(), "{} scripted replies were not asked for", inner.script.len());
    }
}

impl Drop for Fake {
    fn drop(&mut self) {
        self.server.stop.store(true, Ordering::Relaxed);
        // Wakes the accept loop, which then sees that it is over.
        drop(TcpStream::connect(self.addr));
    }
}

impl Server {
    fn connection(&self, stream: TcpStream) {
        let _ = stream.set_nodelay(true);
        let Ok(mut input) = stream.try_clone().map(std::io::BufReader::new) else { return };
        let mut responder = Responder::new(stream, Arc::clone(&self.stop));
        while let Some(request) = Request::read(&mut input) {
            if self.request(&request, &mut responder).is_err() {
                break;
            }
        }
        responder.close();
    }

    /// Answers one request; an error ends the connection.
    fn request(&self, request: &Request, out: &mut Responder) -> Result<(), http::Ended> {
        let path = request.path.split('?').next().unwrap_or_default();
        if request.method == "POST" && self.dialect.takes(&request.path) {
            return self.completion(request, out);
        }
        self.inner.update(|s| s.others.push(format!("{} {path}", request.method)));
        if request.method == "GET" && path == "/v1/models" {
            let model = |id: &str| json!({"id": id, "object": "model", "type": "model", "display_name": id});
            let list = json!({"object": "list", "data": [model("m"), model("n")], "has_more": false});
            return out.json(200, &[], &list);
        }
        self.inner.update(|s| s.violations.push(format!("no such path: {} {}", request.method, request.path)));
        out.json(404, &[], &self.dialect.error(&Refusal::new(404, "not_found_error", "Not Found")))
    }

    fn completion(&self, request: &Request, out: &mut Responder) -> Result<(), http::Ended> {
        let raw = String::from_utf8_lossy(&request.body).into_owned();
        let body: Value = serde_json::from_str(&raw).unwrap_or(Value::Null);
        let key = self.dialect.key(request);
        let (index, decision) = self.inner.update(|s| {
            let verdict = if self.needs_key && key.as_deref().is_none_or(|k| k.trim().is_empty()) {
                Err(Refusal::new(401, "authentication_error", "x-api-key header is required"))
            } else {
                self.dialect.check(request, &body, &s.issued)
            };
            let decision = verdict.and_then(|()| {
                let next = s.script.pop_front().or_else(|| s.brain.as_mut().map(|brain| brain(&body)));
                next.ok_or_else(|| Refusal::new(500, "api_error", "nobody scripted a reply to this request"))
            });
            let refused = decision.as_ref().err().map(|r| r.message.clone());
            s.requests.push(Recorded {
                path: request.path.clone(),
                headers: request.headers.clone(),
                body: body.clone(),
                raw,
                key,
                refused: refused.clone(),
                aborted: false,
                finished: false,
            });
            if let Some(words) = refused {
                s.violations.push(format!("request {}: {words}", s.requests.len()));
            }
            let decision = decision.map(|mut reply| {
                reply.name_calls(self.dialect, &mut s.next_id);
                s.issued.remember(&reply);
                reply
            });
            (s.requests.len() - 1, decision)
        });
        let result = match decision {
            Ok(reply) => self.play(&reply, &body, out),
            Err(refusal) => out.json(refusal.status, &[], &self.dialect.error(&refusal)),
        };
        self.inner.update(|s| {
            if let Some(record) = s.requests.get_mut(index) {
                record.aborted = matches!(result, Err(http::Ended::Gone));
                record.finished = result.is_ok();
            }
        });
        result
    }

    fn play(&self, reply: &Reply, body: &Value, out: &mut Responder) -> Result<(), http::Ended> {
        if let Some(gate) = &reply.before {
            out.hold(gate)?;
        }
        if reply.vanish {
            return Err(http::Ended::Script);
        }
        if let Some(plain) = &reply.plain {
            return out.plain(plain.status, &reply.headers, &plain.content_type, plain.body.as_bytes());
        }
        out.start_stream(&reply.headers, reply.limit)?;
        match self.dialect {
            Dialect::Anthropic => anthropic::stream(reply, body, out)?,
            Dialect::OpenAi => openai::stream(reply, body, out)?,
            Dialect::Responses => responses::stream(reply, body, out)?,
            Dialect::Gemini => gemini::stream(reply, body, out)?,
        }
        out.end_stream()
    }
}

#[cfg(test)]
mod tests;
#[cfg(test)]
mod tests_newer;
