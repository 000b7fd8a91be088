//! Framing: bytes in, lines out.
//!
//! Owns the split on `\n` and the message limit. Cancel-safe: a half-read line stays in the buffer
//! whatever happens to the future that was reading it.

use glrs_protocol::frame::MAX_MESSAGE;
use tokio::io::{AsyncRead, AsyncReadExt};

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
/// A buffer that grew beyond this is given back once it is empty.
const KEEP: usize = 64 * 1024;

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
                let mut line: Vec<u8> = self.buf.drain(..=end).collect();
                line.pop();
                self.scanned = 0;
                if self.buf.is_empty() && self.buf.capacity() > KEEP {
                    self.buf = Vec::new();
                }
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
            self.buf.reserve(8 * 1024);
            let n = self.stream.read_buf(&mut self.buf).await?;
            self.bytes += n as u64;
            if n == 0 {
                return Ok(Line::End);
            }
        }
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
}
