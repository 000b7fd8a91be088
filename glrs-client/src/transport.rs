//! One JSON message per line over the daemon's local socket, as jsonrpsee's transport.
//!
//! Owns framing and the size limit on this side. Must not know what the messages mean.

use glrs_protocol::frame::MAX_MESSAGE;
use interprocess::local_socket::tokio::Stream;
use jsonrpsee::core::client::{ReceivedMessage, TransportReceiverT, TransportSenderT};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, ReadHalf, WriteHalf};

/// What can go wrong on the line.
#[derive(Debug, thiserror::Error)]
pub enum TransportError {
    /// The other side ended the connection.
    #[error("the daemon ended the connection")]
    Closed,
    /// A message is larger than either side takes.
    #[error("a message of more than {MAX_MESSAGE} bytes")]
    TooLarge,
    /// The operating system's error.
    #[error("the connection failed: {0}")]
    Io(#[from] std::io::Error),
}

/// The writing half: appends the newline.
pub struct LineSender<W>(W);

/// The reading half. What was read of an unfinished line stays in the buffer, so that a call that
/// is dropped midway loses nothing.
pub struct LineReceiver<R> {
    inner: R,
    buffer: Vec<u8>,
    /// How far the buffer has been searched for a newline.
    searched: usize,
}

/// Splits a connected socket into the two halves.
pub fn halves(stream: Stream) -> (LineSender<WriteHalf<Stream>>, LineReceiver<ReadHalf<Stream>>) {
    let (read, write) = tokio::io::split(stream);
    (LineSender(write), LineReceiver::new(read))
}

impl<R: AsyncRead + Unpin> LineReceiver<R> {
    /// Reads lines from `inner`.
    pub fn new(inner: R) -> Self {
        Self { inner, buffer: Vec::new(), searched: 0 }
    }

    /// The next line that is not blank, without its newline.
    ///
    /// # Errors
    /// When the peer is gone or sends a line over the limit.
    pub async fn line(&mut self) -> Result<Vec<u8>, TransportError> {
        loop {
            if let Some(at) = self.buffer[self.searched..].iter().position(|b| *b == b'\n') {
                let end = self.searched + at;
                let rest = self.buffer.split_off(end + 1);
                let mut line = std::mem::replace(&mut self.buffer, rest);
                self.searched = 0;
                line.pop();
                if line.iter().all(u8::is_ascii_whitespace) {
                    continue;
                }
                return Ok(line);
            }
            self.searched = self.buffer.len();
            if self.buffer.len() >= MAX_MESSAGE {
                return Err(TransportError::TooLarge);
            }
            self.buffer.reserve(16 * 1024);
            if self.inner.read_buf(&mut self.buffer).await? == 0 {
                return Err(TransportError::Closed);
            }
        }
    }
}

impl<W: AsyncWrite + Unpin + Send + 'static> TransportSenderT for LineSender<W> {
    type Error = TransportError;

    async fn send(&mut self, mut msg: String) -> Result<(), TransportError> {
        if msg.len() >= MAX_MESSAGE {
            return Err(TransportError::TooLarge);
        }
        msg.push('\n');
        self.0.write_all(msg.as_bytes()).await?;
        Ok(self.0.flush().await?)
    }

    async fn close(&mut self) -> Result<(), TransportError> {
        Ok(self.0.shutdown().await?)
    }
}

impl<R: AsyncRead + Unpin + Send + 'static> TransportReceiverT for LineReceiver<R> {
    type Error = TransportError;

    async fn receive(&mut self) -> Result<ReceivedMessage, TransportError> {
        self.line().await.map(ReceivedMessage::Bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn lines_are_cut_at_newlines_however_they_arrive() {
        let (mut near, far) = tokio::io::duplex(8);
        let writer = tokio::spawn(async move {
            near.write_all("{\"a\":\"é\u{2028}\"}\n\n \n{\"b\":1}\n{\"half\"".as_bytes()).await.unwrap();
        });
        let mut lines = LineReceiver::new(far);
        assert_eq!(lines.line().await.unwrap(), "{\"a\":\"é\u{2028}\"}".as_bytes());
        assert_eq!(lines.line().await.unwrap(), b"{\"b\":1}");
        assert!(matches!(lines.line().await, Err(TransportError::Closed)));
        writer.await.unwrap();
    }

    #[tokio::test]
    async fn a_dropped_read_loses_nothing() {
        let (mut near, far) = tokio::io::duplex(64);
        let mut lines = LineReceiver::new(far);
        near.write_all(b"{\"a\"").await.unwrap();
        let gave_up = tokio::time::timeout(std::time::Duration::from_millis(20), lines.line()).await;
        assert!(gave_up.is_err());
        near.write_all(b":1}\n").await.unwrap();
        assert_eq!(lines.line().await.unwrap(), b"{\"a\":1}");
    }

    #[tokio::test]
    async fn messages_over_the_limit_are_refused_before_they_are_sent() {
        let (near, _far) = tokio::io::duplex(64);
        let mut sender = LineSender(near);
        let big = "x".repeat(MAX_MESSAGE);
        assert!(matches!(sender.send(big).await, Err(TransportError::TooLarge)));
    }
}
