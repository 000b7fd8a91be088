//! The feed: numbered events as encoded frames, read by any number of cursors.
//!
//! Owns: the ring of frames (1 MiB at most, kept only while someone is attached), the numbering,
//! and the cursors. A frame is encoded once for everyone. A cursor that falls below the ring is
//! told so and dropped; the publisher never waits for anyone. Must not know what events mean.

use bytes::Bytes;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::Notify;

/// Most bytes of frames a ring holds. At the bound the oldest frames leave; a cursor that still
/// needed one is told `lagged`.
pub const RING_BYTES: usize = 1 << 20;
/// The newest frames stay whatever they weigh: the entries of one moment are published together,
/// and two large ones must not make everyone lag who was reading all along.
pub const RING_FRAMES: usize = 8;

/// Wakes one connection's writer. Many feeds share it.
#[derive(Default)]
pub struct Wake {
    flagged: AtomicBool,
    notify: Notify,
    now: Notify,
}

impl Wake {
    /// Wakes the writer; cheap when it is awake already.
    pub fn wake(&self) {
        if !self.flagged.swap(true, Ordering::AcqRel) {
            self.notify.notify_one();
        }
    }

    /// Wakes the writer even where it keeps to its pace.
    pub fn wake_now(&self) {
        self.now.notify_one();
        self.wake();
    }

    /// Waits for [`Self::wake_now`].
    pub async fn urgent(&self) {
        self.now.notified().await;
    }

    /// Waits to be woken. Whoever returns from here looks at everything there is to write.
    pub async fn wait(&self) {
        self.notify.notified().await;
        self.flagged.store(false, Ordering::Release);
    }
}

#[derive(Default)]
struct Ring {
    /// Number of the last frame.
    seq: u64,
    frames: VecDeque<Bytes>,
    bytes: usize,
    readers: Vec<(u64, Arc<Wake>)>,
    next_reader: u64,
    closed: Option<String>,
}

/// One session's feed (or the roster's).
#[derive(Default)]
pub struct Feed {
    ring: Mutex<Ring>,
}

/// What a cursor found.
#[derive(Debug, PartialEq, Eq)]
pub enum Drain {
    /// Frames were taken, or there were none; more may follow.
    Open,
    /// Frames up to this number left the ring unread. The cursor is of no more use.
    Lagged(u64),
    /// Everything was read and nothing will follow, for this reason.
    Closed(String),
}

impl Feed {
    fn lock(&self) -> MutexGuard<'_, Ring> {
        // Nothing that can panic runs under this lock, and a ring is valid between statements.
        self.ring.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Publishes one event. `encode` gets the number and is only called when someone is attached.
    pub fn publish(&self, encode: impl FnOnce(u64) -> Bytes) {
        self.put(encode, Wake::wake_now);
    }

    /// Publishes one of many, such as a piece of a stream: a writer that is busy with those may let
    /// it wait for the next.
    pub fn publish_streamed(&self, encode: impl FnOnce(u64) -> Bytes) {
        self.put(encode, Wake::wake);
    }

    fn put(&self, encode: impl FnOnce(u64) -> Bytes, wake: impl Fn(&Wake)) {
        let mut ring = self.lock();
        ring.seq += 1;
        if ring.readers.is_empty() {
            return;
        }
        let frame = encode(ring.seq);
        ring.bytes += frame.len();
        ring.frames.push_back(frame);
        while ring.bytes > RING_BYTES && ring.frames.len() > RING_FRAMES {
            if let Some(old) = ring.frames.pop_front() {
                ring.bytes -= old.len();
            }
        }
        for (_, reader) in &ring.readers {
            wake(reader);
        }
    }

    /// The last number given out.
    pub fn seq(&self) -> u64 {
        self.lock().seq
    }

    /// How many cursors there are.
    pub fn readers(&self) -> usize {
        self.lock().readers.len()
    }

    /// Whether every event after `seq` is still here (or none was published since).
    pub fn has_after(&self, seq: u64) -> bool {
        let ring = self.lock();
        seq <= ring.seq && ring.seq - seq <= ring.frames.len() as u64
    }

    /// A cursor that reads from the event after `seq`.
    pub fn subscribe(self: &Arc<Self>, seq: u64, wake: Arc<Wake>) -> Cursor {
        let mut ring = self.lock();
        let id = ring.next_reader;
        ring.next_reader += 1;
        ring.readers.push((id, wake));
        Cursor { feed: self.clone(), id, next: seq + 1 }
    }

    /// Ends the feed: cursors read what is there, then learn why.
    pub fn close(&self, why: &str) {
        let mut ring = self.lock();
        ring.closed.get_or_insert_with(|| why.to_owned());
        for (_, wake) in &ring.readers {
            wake.wake_now();
        }
    }
}

/// A place in a feed. Dropping it frees the ring when it was the last.
pub struct Cursor {
    feed: Arc<Feed>,
    id: u64,
    next: u64,
}

impl Cursor {
    /// Takes frames into `out` until it holds `max` bytes or more, or there are none left.
    pub fn drain(&mut self, out: &mut Vec<Bytes>, taken: &mut usize, max: usize) -> Drain {
        let ring = self.feed.lock();
        let first = ring.seq + 1 - ring.frames.len() as u64;
        if self.next < first {
            return Drain::Lagged(first - 1);
        }
        let mut at = (self.next - first) as usize;
        while *taken < max {
            let Some(frame) = ring.frames.get(at) else { break };
            *taken += frame.len();
            out.push(frame.clone());
            at += 1;
            self.next += 1;
        }
        match &ring.closed {
            Some(why) if self.next > ring.seq => Drain::Closed(why.clone()),
            _ => Drain::Open,
        }
    }
}

impl Drop for Cursor {
    fn drop(&mut self) {
        let mut ring = self.feed.lock();
        ring.readers.retain(|(id, _)| *id != self.id);
        if ring.readers.is_empty() {
            ring.frames = VecDeque::new();
            ring.bytes = 0;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(n: u64, size: usize) -> Bytes {
        Bytes::from(format!("{n}:{}", "x".repeat(size)))
    }

    fn read(c: &mut Cursor, max: usize) -> (Vec<u64>, Drain) {
        let (mut out, mut taken) = (Vec::new(), 0);
        let d = c.drain(&mut out, &mut taken, max);
        let ns = out.iter().map(|b| String::from_utf8_lossy(b).split(':').next().unwrap().parse().unwrap()).collect();
        (ns, d)
    }

    #[test]
    fn numbers_go_on_unread_and_a_cursor_starts_where_it_attached() {
        let feed = Arc::new(Feed::default());
        for _ in 0..5 {
            feed.publish(|n| frame(n, 1));
        }
        let mut c = feed.subscribe(feed.seq(), Arc::default());
        assert_eq!(read(&mut c, 100), (vec![], Drain::Open));
        feed.publish(|n| frame(n, 1));
        feed.publish(|n| frame(n, 1));
        assert_eq!(read(&mut c, 1), (vec![6], Drain::Open));
        assert_eq!(read(&mut c, 100), (vec![7], Drain::Open));
        assert!(feed.has_after(5) && !feed.has_after(4) && !feed.has_after(8));
        feed.close("bye");
        assert_eq!(read(&mut c, 100), (vec![], Drain::Closed("bye".into())));
    }

    #[test]
    fn a_slow_cursor_is_told_and_the_ring_is_bounded_and_freed() {
        let feed = Arc::new(Feed::default());
        let mut slow = feed.subscribe(0, Arc::default());
        for _ in 0..100 {
            feed.publish(|n| frame(n, 50_000));
        }
        assert!(feed.lock().bytes <= RING_BYTES);
        assert!(matches!(read(&mut slow, 100).1, Drain::Lagged(at) if at == 100 - feed.lock().frames.len() as u64));
        drop(slow);
        assert!(feed.lock().frames.is_empty());
        // A frame larger than the ring still reaches those who keep up.
        let mut c = feed.subscribe(feed.seq(), Arc::default());
        feed.publish(|n| frame(n, 2 * RING_BYTES));
        feed.publish(|n| frame(n, 2 * RING_BYTES));
        assert_eq!(read(&mut c, usize::MAX).0, vec![101, 102]);
    }
}
