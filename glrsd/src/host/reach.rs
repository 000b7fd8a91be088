//! Looking at places that may not answer: a working directory on a dead mount, an unplugged disk.
//!
//! Owns that nobody waits for such a place longer than said, and that it cannot use up the threads
//! which everything else on disk needs. Our own files are not looked at through this.

use std::future::Future;
use std::time::Duration;
use tokio::sync::{Semaphore, SemaphorePermit};

/// Most looks at once, those included that nobody waits for any more. A thread that a dead mount
/// holds cannot be ended; the daemon's other threads for files are several times as many.
const MOST: usize = 128;
/// How long places that answer need at most, for what is no more than a few looks.
pub const PATIENCE: Duration = Duration::from_secs(5);

static PLACES: Semaphore = Semaphore::const_new(MOST);

/// Runs `work`, which may wait for a disk, on a thread of its own. None when it takes longer than
/// `most`; then it may still be at it.
pub async fn within<T: Send + 'static>(most: Duration, work: impl FnOnce() -> T + Send + 'static) -> Option<T> {
    begin(most, work).await
}

/// The same, begun now: what is done before its result is awaited is done meanwhile.
pub fn begin<T: Send + 'static>(
    most: Duration,
    work: impl FnOnce() -> T + Send + 'static,
) -> impl Future<Output = Option<T>> + Send + 'static {
    let run = |place: SemaphorePermit<'static>| {
        tokio::task::spawn_blocking(move || {
            let _place = place;
            work()
        })
    };
    let begun = match PLACES.try_acquire() {
        Ok(place) => Ok(run(place)),
        Err(_) => Err(run),
    };
    let job = async move {
        let job = match begun {
            Ok(job) => job,
            Err(run) => run(PLACES.acquire().await.ok()?),
        };
        job.await.inspect_err(|error| tracing::error!(%error, "a look at the disk failed inside")).ok()
    };
    async move { tokio::time::timeout(most, job).await.ok().flatten() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc;

    #[tokio::test]
    async fn nobody_waits_for_what_does_not_answer_and_the_rest_goes_on() {
        assert_eq!(within(Duration::from_secs(60), || 7).await, Some(7));
        // A disk that does not answer until it is let go.
        let (let_go, answers) = mpsc::channel::<()>();
        assert_eq!(within(Duration::from_millis(20), move || answers.recv().is_err()).await, None);
        assert_eq!(within(Duration::from_secs(60), || 8).await, Some(8));
        drop(let_go);
        assert_eq!(within(Duration::from_secs(60), || panic!("inside")).await, None::<()>);
    }
}
