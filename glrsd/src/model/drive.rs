//! One request and its stream, the same for every dialect.
//!
//! Owns: sending, the event-level idle limit, cancellation, waiting for the sink, and keeping what had
//! come when it fails. Must not know what an event means: that is a [`Decoder`]'s business.

use super::errors::{self, Origin, failure};
use super::sse::Parser;
use super::{Call, Chunk, Failure, FailureKind, Reply, Sink, Tokens, http};
use glrs_protocol::message::Message;
use reqwest::header::{CONTENT_TYPE, HeaderMap};
use reqwest::{Response, Url};
use std::future::Future;
use std::time::Duration;
use tokio::time::{Instant, timeout_at};
use tokio_util::sync::CancellationToken;

/// How long a stream may take to end once the provider has said why it stopped.
const GRACE: Duration = Duration::from_secs(5);
/// Longest idle limit: more is as good as none, and would overflow the clock.
const IDLE_MAX: Duration = Duration::from_secs(7 * 86_400);
/// Most bytes of an answer that is not streamed.
const WHOLE_MAX: usize = 64 * 1024 * 1024;
/// Most bytes of an error body.
const ERROR_MAX: usize = 64 * 1024;

/// What an event was.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Progress {
    /// Nothing that counts: a ping.
    Nothing,
    /// Something.
    Event,
    /// The last one.
    Done,
}

/// Turns one provider's events into chunks and a reply.
pub(crate) trait Decoder: Send {
    /// Takes an event's data.
    fn event(&mut self, data: &str, out: &mut Vec<Chunk>) -> Result<Progress, Failure>;
    /// Takes an answer that came as one JSON document.
    fn whole(&mut self, body: &str, out: &mut Vec<Chunk>) -> Result<(), Failure>;
    /// Whether the provider has said why the model stopped.
    fn complete(&self) -> bool;
    /// The text and reasoning so far, if any.
    fn partial(&self) -> Option<Message>;
    /// The usage so far.
    fn tokens(&self) -> Option<Tokens>;
    /// The reply. Called once, when complete.
    fn finish(&mut self) -> Reply;
}

/// One request, ready to be sent.
pub(crate) struct Request {
    pub url: Url,
    pub headers: HeaderMap,
    pub body: Vec<u8>,
    /// The key in the headers, so that no message can repeat it.
    pub key: Option<String>,
}

/// Sends the request and follows its stream to the end.
pub(crate) async fn drive(
    origin: &Origin,
    request: Request,
    decoder: &mut dyn Decoder,
    call: &Call,
    sink: &mut dyn Sink,
    cancel: &CancellationToken,
) -> Result<Reply, Failure> {
    let key = request.key.clone();
    match follow(origin, request, decoder, call, sink, cancel).await {
        Ok(()) => Ok(decoder.finish()),
        Err(mut f) => {
            f.partial = decoder.partial();
            f.tokens = decoder.tokens();
            f.message = errors::redact(f.message, key.as_deref(), call);
            Err(f)
        }
    }
}

async fn follow(
    origin: &Origin,
    request: Request,
    decoder: &mut dyn Decoder,
    call: &Call,
    sink: &mut dyn Sink,
    cancel: &CancellationToken,
) -> Result<(), Failure> {
    let who = &origin.provider;
    let idle = call.idle.min(IDLE_MAX);
    let limit = Limit { who, idle, cancel };
    let url = request.url;
    let client = limit.within(idle, http::client(&url, &call.env)).await??;
    let sending = client.post(url.clone()).headers(request.headers).body(request.body).send();
    let mut response = limit.within(idle, sending).await?.map_err(|e| http::unreachable(who, &url, &e))?;

    let status = response.status();
    if !status.is_success() {
        // A body that does not come is no reason to lose the status.
        let mut body = Vec::new();
        let read = limit.within(idle.min(GRACE), read_up_to(&mut response, &mut body, ERROR_MAX)).await;
        if let Err(f) = read
            && f.kind == FailureKind::Cancelled
        {
            return Err(f);
        }
        return Err(errors::from_response(origin, status.as_u16(), response.headers(), &body));
    }
    limit.emit(sink, Chunk::Open).await?;

    let mut out = Vec::new();
    let kind = response.headers().get(CONTENT_TYPE).and_then(|v| v.to_str().ok()).unwrap_or("").to_ascii_lowercase();
    if kind.contains("json") && !kind.contains("stream") {
        let mut body = Vec::new();
        let read = limit.within(idle, read_up_to(&mut response, &mut body, WHOLE_MAX)).await?;
        read.map_err(|e| http::unreachable(who, &url, &e))?;
        decoder.whole(&String::from_utf8_lossy(&body), &mut out)?;
        for chunk in out {
            limit.emit(sink, chunk).await?;
        }
        return if decoder.complete() { Ok(()) } else { Err(incomplete(who)) };
    }
    if kind.contains("html") {
        return Err(failure(
            FailureKind::Protocol,
            format!("{who} answered with a web page; check providers.{who}.api"),
        ));
    }

    let mut parser = Parser::default();
    let mut deadline = Instant::now() + idle;
    loop {
        while let Some(data) = parser.next() {
            let progress = decoder.event(&data, &mut out)?;
            for chunk in out.drain(..) {
                limit.emit(sink, chunk).await?;
            }
            match progress {
                Progress::Done if decoder.complete() => return Ok(()),
                Progress::Done => return Err(incomplete(who)),
                Progress::Event if decoder.complete() => deadline = Instant::now() + idle.min(GRACE),
                Progress::Event => deadline = Instant::now() + idle,
                Progress::Nothing => {}
            }
        }
        if parser.too_long() {
            return Err(failure(FailureKind::Protocol, format!("{who} sent an event without end")));
        }
        let piece = match limit.until(deadline, response.chunk()).await {
            // The provider had said why it stopped: nothing is missing but the end of the stream.
            Err(f) if f.kind == FailureKind::Idle && decoder.complete() => return Ok(()),
            Err(f) => return Err(f),
            Ok(Err(_)) if decoder.complete() => return Ok(()),
            Ok(Err(e)) => return Err(http::unreachable(who, &url, &e)),
            Ok(Ok(piece)) => piece,
        };
        match piece {
            Some(bytes) => parser.push(&bytes),
            None if decoder.complete() => return Ok(()),
            None => return Err(incomplete(who)),
        }
    }
}

fn incomplete(who: &str) -> Failure {
    failure(FailureKind::Incomplete, format!("{who} ended the stream without saying why the model stopped"))
}

/// The failure of a cancelled call.
pub(crate) fn cancelled() -> Failure {
    failure(FailureKind::Cancelled, "cancelled")
}

async fn read_up_to(response: &mut Response, body: &mut Vec<u8>, most: usize) -> Result<(), reqwest::Error> {
    while let Some(piece) = response.chunk().await? {
        body.extend_from_slice(&piece[..piece.len().min(most - body.len())]);
        if body.len() == most {
            break;
        }
    }
    Ok(())
}

struct Limit<'a> {
    who: &'a str,
    idle: Duration,
    cancel: &'a CancellationToken,
}

impl Limit<'_> {
    async fn within<T>(&self, time: Duration, work: impl Future<Output = T>) -> Result<T, Failure> {
        self.until(Instant::now() + time, work).await
    }

    async fn until<T>(&self, deadline: Instant, work: impl Future<Output = T>) -> Result<T, Failure> {
        let idle = || {
            let said = errors::say_duration(self.idle.max(Duration::from_secs(1)));
            failure(FailureKind::Idle, format!("{} said nothing for {said}", self.who))
        };
        // `timeout_at` lets work win that is ready at once, so a flood of pings would never end.
        if Instant::now() >= deadline {
            return Err(idle());
        }
        tokio::select! {
            biased;
            () = self.cancel.cancelled() => Err(cancelled()),
            done = timeout_at(deadline, work) => done.map_err(|_| idle()),
        }
    }

    async fn emit(&self, sink: &mut dyn Sink, chunk: Chunk) -> Result<(), Failure> {
        tokio::select! {
            biased;
            () = self.cancel.cancelled() => Err(cancelled()),
            () = sink.chunk(chunk) => Ok(()),
        }
    }
}
