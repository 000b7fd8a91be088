//! Bounds on what a server may say.
//!
//! Owns: the longest message, how much may come that nobody asked for, and how many questions a
//! server may have open. Where a bound is passed the connection ends, and [`Meter::verdict`] says
//! why. Knows the shape of messages, nothing of what they mean.

use rmcp::RoleClient;
use rmcp::model::{ClientJsonRpcMessage, JsonRpcMessage, ServerJsonRpcMessage, ServerNotification};
use rmcp::transport::Transport;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};
use tokio::io::{AsyncRead, ReadBuf};

/// Longest message: the largest result a tool may have, and room for escapes.
pub(super) const MAX_MESSAGE: usize = 24 * 1024 * 1024;
/// Most bytes since the last call: one message and what a chatty server says beside it.
const MAX_UNASKED: usize = 3 * MAX_MESSAGE;
/// Most messages since the last call.
const MAX_MESSAGES: usize = 50_000;
/// Most questions of a server's own that wait for our answer: one that does not read them would
/// have us keep them all.
const MAX_QUESTIONS: usize = 64;

/// What came since the last call, and what is wrong with it.
#[derive(Debug, Default)]
pub(super) struct Meter {
    bytes: AtomicUsize,
    messages: AtomicUsize,
    verdict: OnceLock<&'static str>,
}

impl Meter {
    /// A call begins or ended: what comes from now on counts anew.
    pub fn reset(&self) {
        self.bytes.store(0, Ordering::Relaxed);
        self.messages.store(0, Ordering::Relaxed);
    }

    /// The bound that was passed, in words for people.
    pub fn verdict(&self) -> Option<&'static str> {
        self.verdict.get().copied()
    }

    fn fail(&self, why: &'static str) -> std::io::Error {
        std::io::Error::other(*self.verdict.get_or_init(|| why))
    }
}

/// Counts what a process writes, and ends it where it is too much.
pub(super) struct Metered<R> {
    inner: R,
    line: usize,
    meter: Arc<Meter>,
}

impl<R> Metered<R> {
    pub fn new(inner: R, meter: Arc<Meter>) -> Self {
        Self { inner, line: 0, meter }
    }
}

impl<R: AsyncRead + Unpin> AsyncRead for Metered<R> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<std::io::Result<()>> {
        let before = buf.filled().len();
        std::task::ready!(Pin::new(&mut self.inner).poll_read(cx, buf))?;
        let new = &buf.filled()[before..];
        self.line = match new.iter().rposition(|b| *b == b'\n') {
            Some(at) => new.len() - at - 1,
            None => self.line + new.len(),
        };
        let all = self.meter.bytes.fetch_add(new.len(), Ordering::Relaxed) + new.len();
        if self.line > MAX_MESSAGE {
            return Poll::Ready(Err(self.meter.fail("it sent a message of over 24 MiB")));
        }
        if all > MAX_UNASKED {
            return Poll::Ready(Err(self.meter.fail("it wrote far more than it was asked for")));
        }
        Poll::Ready(Ok(()))
    }
}

/// A transport that passes on only what is of use here.
pub(super) struct Guarded<T> {
    inner: T,
    questions: usize,
    meter: Arc<Meter>,
}

impl<T> Guarded<T> {
    pub fn new(inner: T, meter: Arc<Meter>) -> Self {
        Self { inner, questions: 0, meter }
    }
}

impl<T: Transport<RoleClient>> Transport<RoleClient> for Guarded<T> {
    type Error = T::Error;

    fn send(&mut self, item: ClientJsonRpcMessage) -> impl Future<Output = Result<(), Self::Error>> + Send + 'static {
        if matches!(item, JsonRpcMessage::Response(_) | JsonRpcMessage::Error(_)) {
            self.questions = self.questions.saturating_sub(1);
        }
        self.inner.send(item)
    }

    async fn receive(&mut self) -> Option<ServerJsonRpcMessage> {
        loop {
            let message = self.inner.receive().await?;
            if self.meter.messages.fetch_add(1, Ordering::Relaxed) >= MAX_MESSAGES {
                self.meter.fail("it sent far more messages than it was asked for");
                return None;
            }
            match &message {
                JsonRpcMessage::Request(_) => {
                    self.questions += 1;
                    if self.questions > MAX_QUESTIONS {
                        self.meter.fail("it asks questions and does not read the answers");
                        return None;
                    }
                }
                JsonRpcMessage::Notification(n) if !of_use(&n.notification) => continue,
                _ => {}
            }
            return Some(message);
        }
    }

    fn close(&mut self) -> impl Future<Output = Result<(), Self::Error>> + Send {
        self.inner.close()
    }
}

/// Logs and changes of what is not read here are dropped where they come in.
fn of_use(n: &ServerNotification) -> bool {
    matches!(
        n,
        ServerNotification::ProgressNotification(_)
            | ServerNotification::ToolListChangedNotification(_)
            | ServerNotification::CancelledNotification(_)
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::AsyncReadExt;

    async fn read(text: impl AsyncRead + Unpin, meter: &Arc<Meter>) -> std::io::Result<u64> {
        let mut from = Metered::new(text, meter.clone());
        tokio::io::copy(&mut from, &mut tokio::io::sink()).await
    }

    #[tokio::test]
    async fn a_long_line_and_a_flood_end_what_sends_them() {
        let meter = Arc::new(Meter::default());
        assert!(read(tokio::io::repeat(b'x'), &meter).await.is_err());
        assert!(meter.verdict().unwrap().contains("24 MiB"));
        let meter = Arc::new(Meter::default());
        assert!(read(tokio::io::repeat(b'\n'), &meter).await.is_err());
        assert!(meter.verdict().unwrap().contains("asked for"));
        let meter = Arc::new(Meter::default());
        for _ in 0..5 {
            read(tokio::io::repeat(b'x').take(MAX_MESSAGE as u64), &meter).await.unwrap();
            meter.reset();
        }
        assert_eq!(meter.verdict(), None);
    }
}
