//! `glrs proxy`: the daemon's socket over stdin and stdout, byte for byte (`ssh box glrs proxy`).
//!
//! Must not know what the bytes mean.

use super::Ctx;
use super::failure::{Exit, Failure};
use std::time::Duration;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

/// After stdin's end: how long the daemon may be silent before we go.
const LINGER: Duration = Duration::from_millis(900);

/// Runs `glrs proxy`.
///
/// # Errors
/// When there is no daemon, or either side fails.
pub async fn run(ctx: &Ctx) -> Result<Exit, Failure> {
    let stream = crate::connect::open(&ctx.options("proxy")?).await?;
    let (mut from_daemon, mut to_daemon) = tokio::io::split(stream);
    let (mut stdin, mut stdout) = (tokio::io::stdin(), tokio::io::stdout());
    let (mut up, mut down) = (vec![0; 64 * 1024], vec![0; 64 * 1024]);
    let mut open = true;
    loop {
        tokio::select! {
            read = stdin.read(&mut up), if open => match read? {
                0 => {
                    open = false;
                    // Answers to what was piped in may still be on their way.
                    to_daemon.shutdown().await?;
                }
                n => {
                    to_daemon.write_all(&up[..n]).await?;
                    to_daemon.flush().await?;
                }
            },
            read = from_daemon.read(&mut down) => match read {
                Ok(0) => break,
                Ok(n) => {
                    stdout.write_all(&down[..n]).await?;
                    stdout.flush().await?;
                }
                Err(e) if !open || e.kind() == std::io::ErrorKind::ConnectionReset => break,
                Err(e) => return Err(e.into()),
            },
            () = tokio::time::sleep(LINGER), if !open => break,
        }
    }
    Ok(Exit::Done)
}
