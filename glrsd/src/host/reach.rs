//! Looking at places that may not answer: a working directory on a dead mount, an unplugged disk.
//!
//! Owns that nobody waits for such a place longer than said, and that it cannot use up the threads
//! which everything else on disk needs. Our own files are not looked at through this.

use std::collections::HashMap;
use std::future::Future;
use std::path::{Path, PathBuf};
use std::sync::{Arc, LazyLock, Mutex, PoisonError};
use std::time::Duration;
use tokio::sync::{Notify, Semaphore, SemaphorePermit};

/// Most looks at once, those included that nobody waits for any more. A thread that a dead mount
/// holds cannot be ended; the daemon's other threads for files are several times as many.
const MOST: usize = 128;
/// How long places that answer need at most, for what is no more than a few looks.
pub const PATIENCE: Duration = Duration::from_secs(5);

static SLOTS: Semaphore = Semaphore::const_new(MOST);
/// Looks that nobody waits for and that are not over, by place. Another one at such a place begins once
/// they are: one dead mount does not take all slots.
static LEFT: LazyLock<Mutex<HashMap<PathBuf, usize>>> = LazyLock::new(Mutex::default);
static OVER: Notify = Notify::const_new();

/// One look, as both its thread and whoever waits for it know it.
struct Look {
    place: PathBuf,
    state: Mutex<State>,
}

#[derive(PartialEq)]
enum State {
    Waited,
    Left,
    Over,
}

impl Look {
    fn turn(&self, to: State) {
        let mut left = LEFT.lock().unwrap_or_else(PoisonError::into_inner);
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        match (&*state, &to) {
            (State::Waited, State::Left) => *left.entry(self.place.clone()).or_default() += 1,
            (State::Left, State::Over) => {
                if let Some(n) = left.get_mut(&self.place) {
                    *n -= 1;
                }
                left.retain(|_, n| *n > 0);
                OVER.notify_waiters();
            }
            (State::Over, _) => return,
            _ => {}
        }
        *state = to;
    }
}

/// Tells the look that it is over, or that nobody waits for it, however that comes.
struct Ends(Arc<Look>, fn() -> State);

impl Drop for Ends {
    fn drop(&mut self) {
        self.0.turn(self.1());
    }
}

fn is_silent(place: &Path) -> bool {
    LEFT.lock().unwrap_or_else(PoisonError::into_inner).contains_key(place)
}

/// Runs `work`, which may wait for the disk of a place, on a thread of its own. None when it takes longer
/// than `most`; then it may still be at it.
pub async fn within<T: Send + 'static>(
    place: &Path,
    most: Duration,
    work: impl FnOnce() -> T + Send + 'static,
) -> Option<T> {
    begin(place, most, work).await
}

/// The same, begun now: what is done before its result is awaited is done meanwhile.
pub fn begin<T: Send + 'static>(
    place: &Path,
    most: Duration,
    work: impl FnOnce() -> T + Send + 'static,
) -> impl Future<Output = Option<T>> + Send + 'static {
    let place = place.to_path_buf();
    let look = Arc::new(Look { place: place.clone(), state: Mutex::new(State::Waited) });
    let over = Ends(look.clone(), || State::Over);
    let left = Ends(look, || State::Left);
    let run = |slot: SemaphorePermit<'static>| {
        tokio::task::spawn_blocking(move || {
            let _ends = (over, slot);
            work()
        })
    };
    let begun = match SLOTS.try_acquire() {
        Ok(slot) if !is_silent(&place) => Ok(run(slot)),
        _ => Err(run),
    };
    let job = async move {
        let job = match begun {
            Ok(job) => job,
            Err(run) => {
                loop {
                    let over = OVER.notified();
                    if !is_silent(&place) {
                        break;
                    }
                    over.await;
                }
                run(SLOTS.acquire().await.ok()?)
            }
        };
        job.await.inspect_err(|error| tracing::error!(%error, "a look at the disk failed inside")).ok()
    };
    async move {
        let _left = left;
        tokio::time::timeout(most, job).await.ok().flatten()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc;

    const LONG: Duration = Duration::from_secs(60);
    const SHORT: Duration = Duration::from_millis(20);

    #[tokio::test]
    async fn nobody_waits_for_what_does_not_answer_and_the_rest_goes_on() {
        let (dead, fine) = (Path::new("/reach/dead"), Path::new("/reach/fine"));
        assert_eq!(within(fine, LONG, || 7).await, Some(7));
        // A disk that does not answer until it is let go.
        let (let_go, answers) = mpsc::channel::<()>();
        assert_eq!(within(dead, SHORT, move || answers.recv().is_err()).await, None);
        assert_eq!(within(fine, LONG, || 8).await, Some(8));
        // Nothing else begins there meanwhile, however often it is tried.
        for _ in 0..3 {
            assert_eq!(within(dead, SHORT, || 9).await, None);
        }
        assert!(is_silent(dead));
        // Once it answers, whoever waits is served.
        let next = begin(dead, LONG, || 10);
        drop(let_go);
        assert_eq!(next.await, Some(10));
        assert!(!is_silent(dead));
        assert_eq!(within(fine, LONG, || panic!("inside")).await, None::<()>);
    }

    #[tokio::test]
    async fn a_look_that_is_given_up_counts_until_it_is_over() {
        let place = Path::new("/reach/given-up");
        let (let_go, answers) = mpsc::channel::<()>();
        drop(begin(place, LONG, move || answers.recv().is_err()));
        assert!(is_silent(place));
        drop(let_go);
        assert_eq!(within(place, LONG, || 1).await, Some(1));
    }
}
