//! Framing: bytes in, lines out.
//!
//! Owns the split on `\n` and the message limit. Cancel-safe: a half-read line stays in the buffer
//! whatever happens to the future that was reading it.

use glrs_protocol::frame::MAX_MESSAGE;
use std::cell::RefCell;
use std::pin::Pin;
use std::task::{Poll, ready};
use tokio::io::{AsyncRead, ReadBuf};

/// What came.
#[derive(Debug, PartialEq, Eq)]
pub enum Line {
    /// A whole line, without its newline.
    Message(Vec<u8>),
    /// A line over the limit; its first bytes, for finding its id. It was skipped whole.
    TooLong(Vec<u8>),
    /// The peer closed; a half line before that is dropped.
    End,
}

/// Reads lines of a stream.
pub struct Lines<R> {
    stream: R,
    buf: Vec<u8>,
    /// No newline before this position.
    scanned: usize,
    /// Set while a line over the limit is being skipped: its first bytes.
    skipping: Option<Vec<u8>>,
    /// Bytes read in all.
    pub bytes: u64,
    max: usize,
}

/// So much of a line over the limit is kept.
const HEAD: usize = 4096;
/// Most bytes of one read.
const READ: usize = 64 * 1024;

thread_local! {
    /// What a read lands in first. One per thread instead of one per connection: an idle client
    /// holds no buffer at all.
    static LANDING: RefCell<Vec<u8>> = RefCell::new(vec![0; READ]);
}

impl<R: AsyncRead + Unpin> Lines<R> {
    /// Reads lines of at most 32 MiB.
    pub fn new(stream: R) -> Self {
        Self::with_max(stream, MAX_MESSAGE)
    }

    fn with_max(stream: R, max: usize) -> Self {
        Self { stream, buf: Vec::new(), scanned: 0, skipping: None, bytes: 0, max }
    }

    /// The next line.
    ///
    /// # Errors
    /// When the stream fails.
    pub async fn next(&mut self) -> std::io::Result<Line> {
        loop {
            if let Some(at) = memchr::memchr(b'\n', &self.buf[self.scanned..]) {
                let end = self.scanned + at;
                let mut line = if end + 1 == self.buf.len() {
                    std::mem::take(&mut self.buf)
                } else {
                    self.buf.drain(..=end).collect()
                };
                line.pop();
                self.scanned = 0;
                if let Some(head) = self.skipping.take() {
                    return Ok(Line::TooLong(head));
                }
                if line.len() >= self.max {
                    line.truncate(HEAD);
                    return Ok(Line::TooLong(line));
                }
                return Ok(Line::Message(line));
            }
            self.scanned = self.buf.len();
            if self.scanned >= self.max || self.skipping.is_some() {
                if self.skipping.is_none() {
                    self.skipping = Some(self.buf[..HEAD.min(self.buf.len())].to_vec());
                }
                self.buf.clear();
                self.scanned = 0;
            }
            if self.fill().await? == 0 {
                return Ok(Line::End);
            }
        }
    }

    /// Adds what the stream has to the buffer. Dropped midway it has taken nothing.
    async fn fill(&mut self) -> std::io::Result<usize> {
        let (stream, buf) = (&mut self.stream, &mut self.buf);
        let n = std::future::poll_fn(|cx| {
            LANDING.with_borrow_mut(|landing| {
                let mut read = ReadBuf::new(landing);
                ready!(Pin::new(&mut *stream).poll_read(cx, &mut read))?;
                buf.extend_from_slice(read.filled());
                Poll::Ready(Ok::<_, std::io::Error>(read.filled().len()))
            })
        })
        .await?;
        self.bytes += n as u64;
        Ok(n)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::AsyncWriteExt;

    async fn all(mut lines: Lines<tokio::io::DuplexStream>) -> Vec<Line> {
        let mut out = Vec::new();
        loop {
            let l = lines.next().await.unwrap();
            let end = l == Line::End;
            out.push(l);
            if end {
                return out;
            }
        }
    }

    #[tokio::test]
    async fn lines_survive_any_split_and_only_newlines_split() {
        let (mut tx, rx) = tokio::io::duplex(3);
        let text = "{\"a\":\"\u{2028}\\n\"}\r\n\n{}\nhalf";
        let write = async move {
            for b in text.as_bytes() {
                tx.write_all(&[*b]).await.unwrap();
            }
        };
        let (got, ()) = tokio::join!(all(Lines::new(rx)), write);
        let want = ["{\"a\":\"\u{2028}\\n\"}\r", "", "{}"].map(|s| Line::Message(s.as_bytes().to_vec()));
        assert_eq!(got[..3], want);
        assert_eq!(got[3], Line::End);
    }

    #[tokio::test]
    async fn a_line_over_the_limit_is_skipped_and_the_next_is_read() {
        let (mut tx, rx) = tokio::io::duplex(64);
        let write = async move {
            tx.write_all(format!("{}\n{}\nok\n", "x".repeat(9_999), "y".repeat(100)).as_bytes()).await.unwrap();
        };
        let (got, ()) = tokio::join!(all(Lines::with_max(rx, 5_000)), write);
        assert!(matches!(&got[0], Line::TooLong(h) if h.len() == HEAD && h[0] == b'x'));
        assert_eq!(got[1..3], [Line::Message(vec![b'y'; 100]), Line::Message(b"ok".to_vec())]);
    }

    #[tokio::test]
    async fn the_limit_counts_the_newline_and_is_exact_however_the_bytes_come() {
        for chunk in [1, 7, 100, 1000] {
            let (mut tx, rx) = tokio::io::duplex(chunk);
            let write = async move {
                for n in [98, 99, 100, 101, 0, 5] {
                    tx.write_all(format!("{}\n", "x".repeat(n)).as_bytes()).await.unwrap();
                }
            };
            let (got, ()) = tokio::join!(all(Lines::with_max(rx, 100)), write);
            let message = |n| Line::Message(vec![b'x'; n]);
            assert_eq!((&got[0], &got[1]), (&message(98), &message(99)), "in pieces of {chunk}");
            assert!(matches!((&got[2], &got[3]), (Line::TooLong(_), Line::TooLong(_))), "in pieces of {chunk}");
            assert_eq!(got[4..], [message(0), message(5), Line::End]);
        }
    }
}
