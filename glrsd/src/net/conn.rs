//! One connection: what it is owed, and the tasks that read and write it.
//!
//! Owns: the outbox (replies, then frames of attached sessions), per-connection order of calls,
//! and the end of a connection. Calls are started in the order they came; each session's mailbox
//! keeps that order. Must not know what methods do: it hands lines to a [`Service`].

use super::lines::{Line, Lines};
use crate::session::feed::{Cursor, Drain, Wake};
use bytes::{Buf, Bytes};
use futures_util::future::{BoxFuture, poll_immediate};
use futures_util::stream::{FuturesUnordered, StreamExt};
use glrs_protocol::SessionId;
use glrs_protocol::event::{Closed, Event, EventFrame, Lagged, RosterEvent};
use glrs_protocol::frame::MAX_IN_FLIGHT;
use std::cell::RefCell;
use std::collections::{BTreeSet, VecDeque};
use std::future::poll_fn;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt};
use tokio::time::Instant;

/// Most bytes of frames in one write.
const WRITE: usize = 64 * 1024;
/// A client that takes nothing for so long is dropped.
const STALL: Duration = Duration::from_secs(30);
/// Writes a client gets as they come. A stream that goes on faster than one write per [`PACE`] is
/// then written in bundles: a system call per client and token would be most of the daemon's work.
const BURST: u32 = 32;
/// Time between the bundles of a fast stream. Only pieces of streams wait for it: not replies, nor
/// any other event.
const PACE: Duration = Duration::from_millis(4);

/// What a connection reads from.
pub struct Attachment {
    /// The session, or `None` for the roster.
    pub session: Option<String>,
    /// Its epoch.
    pub epoch: String,
    /// Where the client is.
    pub cursor: Cursor,
}

#[derive(Default)]
struct Outbox {
    replies: VecDeque<Bytes>,
    attached: Vec<Attachment>,
    /// Sessions that count it among their clients, whether or not it still reads them.
    joined: BTreeSet<SessionId>,
    closing: bool,
}

/// Figures of all connections.
#[derive(Default)]
pub struct Counters {
    /// Bytes written.
    pub bytes_out: AtomicU64,
    /// Bytes read.
    pub bytes_in: AtomicU64,
    /// How often a client was told `lagged`.
    pub lagged: AtomicU64,
}

/// A connection's outbox. Pushing never waits: replies are bounded by the calls in flight, frames
/// stay in their feeds' rings.
pub struct Conn {
    /// Client id.
    pub id: u64,
    /// Wakes the writer.
    pub wake: Arc<Wake>,
    outbox: Mutex<Outbox>,
}

impl Conn {
    /// A connection with nothing to write.
    pub fn new(id: u64) -> Arc<Self> {
        Arc::new(Self { id, wake: Arc::default(), outbox: Mutex::default() })
    }

    fn lock(&self) -> MutexGuard<'_, Outbox> {
        self.outbox.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Queues a reply: a whole line, or nothing where nothing is owed.
    pub fn reply(&self, line: Bytes) {
        if !line.is_empty() {
            self.lock().replies.push_back(line);
            self.wake.wake_now();
        }
    }

    /// Queues a reply and starts reading a feed behind it: the reply goes out first.
    pub fn reply_and_attach(&self, line: Bytes, attachment: Attachment) {
        let mut out = self.lock();
        out.attached.retain(|a| a.session != attachment.session);
        if !line.is_empty() {
            out.replies.push_back(line);
        }
        out.attached.push(attachment);
        drop(out);
        self.wake.wake_now();
    }

    /// Notes that a session is about to count it as its client. Said before the session is
    /// asked, so that a connection that ends meanwhile is taken off its list all the same.
    pub fn joins(&self, session: &SessionId) {
        self.lock().joined.insert(session.clone());
    }

    /// Stops reading a session's feed.
    pub fn detach(&self, session: &SessionId) {
        let mut out = self.lock();
        out.joined.remove(session);
        let at = out.attached.iter().position(|a| a.session.as_deref() == Some(session.as_str()));
        let gone = at.map(|i| out.attached.remove(i));
        drop(out);
        drop(gone);
    }

    /// The sessions it reads.
    pub fn attached(&self) -> Vec<String> {
        self.lock().attached.iter().filter_map(|a| a.session.clone()).collect()
    }

    /// Lets go of everything it reads: the rings of feeds that nobody else reads are freed.
    /// Answers which sessions count it as their client.
    pub fn forget(&self) -> BTreeSet<SessionId> {
        let mut out = self.lock();
        let (attached, joined) = (std::mem::take(&mut out.attached), std::mem::take(&mut out.joined));
        drop(out);
        drop(attached);
        joined
    }

    /// Ends the connection once what is queued is written.
    pub fn close(&self) {
        self.lock().closing = true;
        self.wake.wake_now();
    }

    /// Collects what to write next. The second value is true when nothing will follow.
    fn collect(&self, out: &mut Vec<Bytes>, counters: &Counters) -> bool {
        let mut o = self.lock();
        let mut taken = 0;
        while let Some(r) = o.replies.pop_front() {
            taken += r.len();
            out.push(r);
        }
        let mut i = 0;
        while i < o.attached.len() && taken < WRITE {
            let a = &mut o.attached[i];
            let last = match a.cursor.drain(out, &mut taken, WRITE) {
                Drain::Open => None,
                Drain::Lagged(at) => {
                    counters.lagged.fetch_add(1, Ordering::Relaxed);
                    Some(Event::Lagged(Lagged { at }))
                }
                Drain::Closed(why) => Some(Event::Closed(Closed { why })),
            };
            match last {
                None => i += 1,
                Some(event) => {
                    match &a.session {
                        Some(s) => out.extend(EventFrame::encode(s, &a.epoch, None, &event).ok().map(Bytes::from)),
                        None => out.extend(RosterEvent::Lagged.encode().ok().map(Bytes::from)),
                    }
                    o.attached.remove(i);
                }
            }
        }
        // Whoever was served last comes first next time, so that one busy session starves no other.
        if o.attached.len() > 1 {
            o.attached.rotate_left(1);
        }
        o.closing && out.is_empty()
    }

    /// Writes until the connection ends.
    pub async fn write<W: AsyncWrite + Unpin>(&self, mut stream: W, counters: &Counters) {
        let mut pace = Pace { left: BURST, at: Instant::now() };
        loop {
            let next = poll_fn(|cx| Poll::Ready(self.write_now(&mut stream, cx, counters))).await;
            let written = match next {
                Next::Over => break,
                Next::Idle => {
                    self.wake.wait().await;
                    continue;
                }
                Next::Written(written) => Ok(written),
                Next::Rest(rest) => write_rest(&mut stream, rest, counters).await,
            };
            let Ok(written) = written else { break };
            if written < WRITE / 2 && pace.is_spent() {
                let _ = tokio::time::timeout(PACE, self.wake.urgent()).await;
            }
        }
        let _ = stream.shutdown().await;
    }

    /// Collects what is due and writes it, as far as the peer takes it without waiting. Small frames
    /// are copied together: a copy costs far less than a system call.
    fn write_now<W: AsyncWrite + Unpin>(&self, stream: &mut W, cx: &mut Context<'_>, counters: &Counters) -> Next {
        PACKING.with_borrow_mut(|(batch, packed)| {
            batch.clear();
            packed.clear();
            if self.collect(batch, counters) {
                return Next::Over;
            }
            if batch.is_empty() {
                return Next::Idle;
            }
            let large = batch.iter().any(|frame| frame.len() >= WRITE);
            let mut done = 0;
            if !large {
                batch.iter().for_each(|frame| packed.extend_from_slice(frame));
                // What fails now fails again below, where it is seen to.
                if let Poll::Ready(Ok(n)) = Pin::new(stream).poll_write(cx, packed) {
                    counters.bytes_out.fetch_add(n as u64, Ordering::Relaxed);
                    done = n;
                }
            }
            if !large && done == packed.len() {
                batch.clear();
                return Next::Written(done);
            }
            let mut rest = VecDeque::from(std::mem::take(batch));
            advance(&mut rest, done);
            Next::Rest(rest)
        })
    }
}

/// What became of what was due.
enum Next {
    /// The connection is over.
    Over,
    /// Nothing was due.
    Idle,
    /// All of it is written: so many bytes.
    Written(usize),
    /// This is left: frames that everyone shares, not a copy.
    Rest(VecDeque<Bytes>),
}

thread_local! {
    /// Where frames are packed. One per thread instead of one per connection: what a thousand clients
    /// are told at once needs no thousand buffers.
    static PACKING: RefCell<(Vec<Bytes>, Vec<u8>)> = const { RefCell::new((Vec::new(), Vec::new())) };
}

/// How many writes may still go out as they come.
struct Pace {
    left: u32,
    at: Instant,
}

impl Pace {
    /// Counts a write; whether the next one should wait for company.
    fn is_spent(&mut self) -> bool {
        let now = Instant::now();
        let gained = u32::try_from((now - self.at).as_millis() / PACE.as_millis()).unwrap_or(u32::MAX);
        if gained > 0 {
            self.left = self.left.saturating_add(gained).min(BURST);
            self.at = now;
        }
        self.left = self.left.saturating_sub(1);
        self.left == 0
    }
}

/// Takes the first `n` bytes off.
fn advance(frames: &mut VecDeque<Bytes>, mut n: usize) {
    while n > 0 {
        match frames.front_mut() {
            Some(first) if first.len() > n => {
                first.advance(n);
                n = 0;
            }
            Some(first) => {
                n -= first.len();
                frames.pop_front();
            }
            None => n = 0,
        }
    }
}

/// Writes frames as the peer takes them, large ones as they are; gives up on a stalled peer. Answers
/// how many bytes they had.
async fn write_rest<W: AsyncWrite + Unpin>(
    stream: &mut W,
    mut rest: VecDeque<Bytes>,
    counters: &Counters,
) -> std::io::Result<usize> {
    let mut written = 0;
    while let Some(first) = rest.front() {
        let some = poll_fn(|cx| {
            PACKING.with_borrow_mut(|(_, packed)| {
                if first.len() >= WRITE {
                    return Pin::new(&mut *stream).poll_write(cx, first);
                }
                packed.clear();
                for frame in rest.iter().take_while(|frame| frame.len() < WRITE) {
                    if packed.len() >= WRITE {
                        break;
                    }
                    packed.extend_from_slice(frame);
                }
                Pin::new(&mut *stream).poll_write(cx, packed)
            })
        });
        let n = tokio::time::timeout(STALL, some)
            .await
            .map_err(|_| std::io::Error::from(std::io::ErrorKind::TimedOut))??;
        if n == 0 {
            return Err(std::io::ErrorKind::WriteZero.into());
        }
        counters.bytes_out.fetch_add(n as u64, Ordering::Relaxed);
        advance(&mut rest, n);
        written += n;
    }
    Ok(written)
}

/// What answers a connection's lines.
pub trait Service: Send + Sync {
    /// Answers one line. Its first poll puts the call in its session's mailbox, so calls keep the
    /// order in which they came. What it resolves to is written; `None` when it was queued already
    /// or nothing is owed.
    fn line(&self, line: Line) -> BoxFuture<'static, Option<Bytes>>;
}

/// Reads a connection until its peer closes it: at most [`MAX_IN_FLIGHT`] unanswered calls; beyond
/// that nothing more is read until one is answered.
pub async fn read<R: AsyncRead + Unpin>(stream: R, conn: &Conn, service: &dyn Service, counters: &Counters) {
    let mut lines = Lines::new(stream);
    let mut calls: FuturesUnordered<BoxFuture<'static, Option<Bytes>>> = FuturesUnordered::new();
    let mut seen = 0;
    loop {
        tokio::select! {
            line = lines.next(), if calls.len() < MAX_IN_FLIGHT => {
                counters.bytes_in.fetch_add(lines.bytes - seen, Ordering::Relaxed);
                seen = lines.bytes;
                match line {
                    Ok(Line::End) | Err(_) => break,
                    Ok(line) => {
                        let mut call = service.line(line);
                        match poll_immediate(&mut call).await {
                            Some(Some(reply)) => conn.reply(reply),
                            Some(None) => {}
                            None => calls.push(call),
                        }
                    }
                }
            }
            Some(reply) = calls.next(), if !calls.is_empty() => {
                if let Some(reply) = reply {
                    conn.reply(reply);
                }
            }
        }
    }
    // A peer that only closed its sending half is still owed its answers.
    while let Some(reply) = calls.next().await {
        if let Some(reply) = reply {
            conn.reply(reply);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::AsyncReadExt;

    #[tokio::test(start_paused = true)]
    async fn a_client_that_takes_nothing_is_dropped_after_the_stall() {
        let (near, _far) = tokio::io::duplex(16);
        let conn = Conn::new(1);
        conn.reply(Bytes::from(vec![b'x'; 1000]));
        let begun = Instant::now();
        conn.write(near, &Counters::default()).await;
        assert!((STALL..STALL * 2).contains(&begun.elapsed()), "{:?}", begun.elapsed());
    }

    #[tokio::test(start_paused = true)]
    async fn a_slow_client_that_takes_something_now_and_then_is_kept() {
        let (near, mut far) = tokio::io::duplex(16);
        let conn = Conn::new(1);
        conn.reply(Bytes::from(vec![b'x'; 160]));
        conn.close();
        let counters = Counters::default();
        let slowly = async {
            let mut got = 0;
            loop {
                tokio::time::sleep(STALL - Duration::from_secs(1)).await;
                let mut some = [0; 16];
                match far.read(&mut some).await.unwrap() {
                    0 => return got,
                    n => got += n,
                }
            }
        };
        let (got, ()) = tokio::join!(slowly, conn.write(near, &counters));
        assert_eq!((got, counters.bytes_out.load(Ordering::Relaxed)), (160, 160));
    }

    #[tokio::test(start_paused = true)]
    async fn a_fast_stream_is_bundled_and_a_reply_does_not_wait_for_it() {
        use crate::session::feed::Feed;
        const FRAMES: usize = 1000;
        let feed = Arc::new(Feed::default());
        let conn = Conn::new(1);
        let cursor = feed.subscribe(0, conn.wake.clone());
        let attachment = Attachment { session: Some("0000000a".into()), epoch: "e".into(), cursor };
        conn.reply_and_attach(Bytes::new(), attachment);
        let (near, mut far) = tokio::io::duplex(1 << 20);
        let counters = Counters::default();
        let stream = async {
            for n in 0..FRAMES {
                feed.publish_streamed(|_| Bytes::from(format!("event {n}\n")));
                tokio::task::yield_now().await;
                if n % 10 == 9 {
                    tokio::time::sleep(PACE).await;
                }
            }
            let asked = Instant::now();
            conn.reply(Bytes::from_static(b"reply\n"));
            let mut got = Vec::new();
            let mut reads = 0;
            while !got.ends_with(b"reply\n") {
                let mut some = vec![0; 1 << 20];
                let n = far.read(&mut some).await.unwrap();
                got.extend_from_slice(&some[..n]);
                reads += 1;
            }
            conn.close();
            assert!(asked.elapsed() < PACE, "the reply waited");
            assert!(reads < 3);
            let lines = String::from_utf8(got).unwrap();
            let events: Vec<String> = (0..FRAMES).map(|n| format!("event {n}")).collect();
            assert_eq!(lines.lines().filter(|l| *l != "reply").collect::<Vec<_>>(), events);
        };
        let mut counted = CountWrites { inner: near, writes: 0 };
        tokio::join!(conn.write(&mut counted, &counters), stream);
        let bundles = FRAMES / 10;
        assert!((bundles / 2..bundles * 2 + BURST as usize).contains(&counted.writes), "{} writes", counted.writes);
    }

    /// A stream that counts the writes it takes.
    struct CountWrites<W> {
        inner: W,
        writes: usize,
    }

    impl<W: AsyncWrite + Unpin> AsyncWrite for CountWrites<W> {
        fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<std::io::Result<usize>> {
            self.writes += 1;
            Pin::new(&mut self.inner).poll_write(cx, buf)
        }

        fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<std::io::Result<()>> {
            Pin::new(&mut self.inner).poll_flush(cx)
        }

        fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<std::io::Result<()>> {
            Pin::new(&mut self.inner).poll_shutdown(cx)
        }
    }

    #[tokio::test]
    async fn replies_overtake_events_and_what_follows_an_attach_is_in_order() {
        use crate::session::feed::Feed;
        let feed = Arc::new(Feed::default());
        let conn = Conn::new(1);
        let cursor = feed.subscribe(0, conn.wake.clone());
        conn.reply_and_attach(
            Bytes::from_static(b"snapshot\n"),
            Attachment { session: Some("0000000a".into()), epoch: "e".into(), cursor },
        );
        feed.publish(|_| Bytes::from_static(b"event 1\n"));
        conn.reply(Bytes::new());
        conn.reply(Bytes::from_static(b"reply\n"));
        feed.publish(|_| Bytes::from_static(b"event 2\n"));
        feed.close("over");
        conn.close();
        let (near, mut far) = tokio::io::duplex(1 << 16);
        conn.write(near, &Counters::default()).await;
        let mut text = String::new();
        far.read_to_string(&mut text).await.unwrap();
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines[..4], ["snapshot", "reply", "event 1", "event 2"]);
        assert!(lines.len() == 5 && lines[4].contains("\"closed\"") && lines[4].contains("over"), "{text}");
        assert_eq!(feed.readers(), 0, "a cursor that is done is let go");
    }
}
