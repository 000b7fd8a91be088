//! One request and its stream, the same for every dialect.
//!
//! Owns: sending, the event-level idle limit, cancellation, waiting for the sink, and keeping what had
//! come when it fails. Must not know what an event means: that is a [`Decoder`]'s business.

use super::errors::{self, Origin, failure};
use super::sse::Parser;
use super::{Call, Chunk, Failure, FailureKind, Reply, Sink, Spent, Tokens, http, quota};
use bytes::Bytes;
use glrs_protocol::message::Message;
use reqwest::header::{CONTENT_TYPE, HeaderMap};
use reqwest::{Response, Url};
use std::future::Future;
use std::time::Duration;
use tokio::task::yield_now;
use tokio::time::{Instant, sleep_until, timeout_at};
use tokio_util::sync::CancellationToken;

/// How long a stream may take to end once the provider has said why it stopped.
const GRACE: Duration = Duration::from_secs(5);
/// Longest idle limit: more is as good as none, and would overflow the clock.
const IDLE_MAX: Duration = Duration::from_secs(7 * 86_400);
/// Most bytes of an answer that is not streamed.
const WHOLE_MAX: usize = 64 * 1024 * 1024;
/// Most bytes of an error body.
const ERROR_MAX: usize = 64 * 1024;
/// So many reads may wake us within [`PACE`]; then we wait out the rest of it. A stream of many small
/// events costs a wake-up each otherwise, ten times what is in it.
const BURST: u32 = 16;
/// Late by so much a fast stream may come. Far below what an eye sees, and a slow one never waits.
const PACE: Duration = Duration::from_millis(4);
/// Most pieces of a body, or chunks of an answer, that are gathered before the sink gets them.
const GATHERED: usize = 64;

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
    let mut spent = Vec::new();
    match follow(origin, request, decoder, call, sink, cancel, &mut spent).await {
        Ok(()) => Ok(Reply { spent, ..decoder.finish() }),
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
    spent: &mut Vec<Spent>,
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
    *spent = quota::spent(response.headers());
    limit.emit(sink, Chunk::Open).await?;

    let kind = response.headers().get(CONTENT_TYPE).and_then(|v| v.to_str().ok()).unwrap_or("").to_ascii_lowercase();
    if kind.contains("json") && !kind.contains("stream") {
        let mut body = Vec::new();
        let read = limit.within(idle, read_up_to(&mut response, &mut body, WHOLE_MAX)).await?;
        read.map_err(|e| http::unreachable(who, &url, &e))?;
        let mut out = Vec::new();
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
    let mut out = Gathered::default();
    let mut pace = Pace::new();
    loop {
        while let Some(data) = parser.next() {
            let progress = match decoder.event(&data, &mut out.fresh) {
                Ok(progress) => progress,
                Err(f) => {
                    out.join();
                    limit.emit_all(sink, &mut out).await?;
                    return Err(f);
                }
            };
            out.join();
            match progress {
                Progress::Done => {
                    limit.emit_all(sink, &mut out).await?;
                    return if decoder.complete() { Ok(()) } else { Err(incomplete(who)) };
                }
                Progress::Event if decoder.complete() => deadline = Instant::now() + idle.min(GRACE),
                Progress::Event => deadline = Instant::now() + idle,
                Progress::Nothing => {}
            }
        }
        if parser.too_long() {
            return Err(failure(FailureKind::Protocol, format!("{who} sent an event without end")));
        }
        // What is here already comes along: a fast stream costs by its bytes and not by its events.
        let more = out.go_on();
        let here = if more { here(&mut response).await } else { None };
        let piece = match here {
            Some(Ok(Some(bytes))) => {
                parser.push(&bytes);
                continue;
            }
            here => {
                let until = if more && here.is_none() { pace.wait(out.pieces) } else { None };
                limit.emit_all(sink, &mut out).await?;
                match here {
                    Some(piece) => Ok(piece),
                    None => {
                        if let Some(until) = until {
                            limit.sleep(until).await?;
                        }
                        limit.until(deadline, response.chunk()).await
                    }
                }
            }
        };
        let piece = match piece {
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

/// The next piece of the body, if the connection has it already. The connection is a task of its own
/// that hands over one piece at a time, when asked: it gets its turn to.
async fn here(response: &mut Response) -> Option<Result<Option<Bytes>, reqwest::Error>> {
    tokio::select! {
        biased;
        piece = response.chunk() => Some(piece),
        () = yield_now() => None,
    }
}

/// How often a stream wakes us.
struct Pace {
    since: Instant,
    reads: u32,
    /// We waited before the last read.
    waited: bool,
    /// Waiting brought nothing: not again before this.
    off: Option<Instant>,
}

impl Pace {
    fn new() -> Self {
        Self { since: Instant::now(), reads: 0, waited: false, off: None }
    }

    /// Counts a read that will wake us, after one that brought so many pieces; tells until when to wait
    /// before it, if at all.
    fn wait(&mut self, pieces: usize) -> Option<Instant> {
        let now = Instant::now();
        if std::mem::take(&mut self.waited) && pieces < 3 {
            self.off = Some(now + 32 * PACE);
        }
        if self.off.is_some_and(|off| now < off) {
            return None;
        }
        let until = self.since + PACE;
        if now >= until {
            (self.since, self.reads) = (now, 0);
        }
        self.reads += 1;
        self.waited = self.reads > BURST && now < until;
        self.waited.then_some(until)
    }
}

/// Chunks on their way to the sink, neighbours of one kind joined.
#[derive(Default)]
struct Gathered {
    /// What the last event gave.
    fresh: Vec<Chunk>,
    chunks: Vec<Chunk>,
    /// Pieces of the body read since something was last handed on.
    pieces: usize,
}

impl Gathered {
    fn join(&mut self) {
        for chunk in self.fresh.drain(..) {
            chunk.follow(&mut self.chunks);
        }
    }

    /// Whether more may be gathered before this is handed on. Bounded, so that a provider that is
    /// always faster than we are still shows, is cancelled, and meets its idle limit.
    fn go_on(&mut self) -> bool {
        self.pieces += 1;
        self.pieces <= GATHERED && self.chunks.len() <= GATHERED
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

    /// Waits; the body fills its buffers meanwhile.
    async fn sleep(&self, until: Instant) -> Result<(), Failure> {
        tokio::select! {
            biased;
            () = self.cancel.cancelled() => Err(cancelled()),
            () = sleep_until(until) => Ok(()),
        }
    }

    async fn emit_all(&self, sink: &mut dyn Sink, out: &mut Gathered) -> Result<(), Failure> {
        out.pieces = 0;
        for chunk in out.chunks.drain(..) {
            self.emit(sink, chunk).await?;
        }
        Ok(())
    }

    async fn emit(&self, sink: &mut dyn Sink, chunk: Chunk) -> Result<(), Failure> {
        tokio::select! {
            biased;
            () = self.cancel.cancelled() => Err(cancelled()),
            () = sink.chunk(chunk) => Ok(()),
        }
    }
}
