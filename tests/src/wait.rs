//! Waiting for a condition, with a deadline and a name.
//!
//! Owns [`Watched`], a value behind a lock whose changes wake those who wait. [`until`] is for
//! what gives no wake-up (a file that appears): it looks again and again until a deadline.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// How long anything is waited for before a test fails. Long, since it is only ever used up by a
/// failure, and a loaded machine with two cores is slow.
pub const PATIENCE: Duration = Duration::from_secs(30);

/// A value whose changes can be waited for.
#[derive(Debug, Default)]
pub struct Watched<T> {
    value: Mutex<T>,
    changed: Condvar,
}

impl<T> Watched<T> {
    /// Wraps a value.
    pub fn new(value: T) -> Self {
        Self { value: Mutex::new(value), changed: Condvar::new() }
    }

    /// The value, locked. A panic of another thread does not hide it.
    pub fn lock(&self) -> MutexGuard<'_, T> {
        self.value.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes the value and wakes those who wait.
    pub fn update<R>(&self, change: impl FnOnce(&mut T) -> R) -> R {
        let result = change(&mut self.lock());
        self.changed.notify_all();
        result
    }

    /// Waits until `take` gives something, and returns it; `None` after `timeout`.
    pub fn wait_for<R>(&self, timeout: Duration, mut take: impl FnMut(&mut T) -> Option<R>) -> Option<R> {
        let deadline = Instant::now() + timeout;
        let mut value = self.lock();
        loop {
            if let Some(result) = take(&mut value) {
                return Some(result);
            }
            let left = deadline.checked_duration_since(Instant::now())?;
            value = self.changed.wait_timeout(value, left).unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}

/// Looks until `found` gives something. For conditions nobody announces, such as a file.
///
/// # Panics
/// When nothing is found in time; `what` is named.
pub fn until<R>(what: &str, timeout: Duration, mut found: impl FnMut() -> Option<R>) -> R {
    let nobody = Watched::new(());
    let deadline = Instant::now() + timeout;
    loop {
        if let Some(result) = found() {
            return result;
        }
        assert!(Instant::now() < deadline, "waited {timeout:?} in vain for: {what}");
        nobody.wait_for(Duration::from_millis(5), |()| None::<()>);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    #[test]
    fn a_change_wakes_the_waiter_and_a_deadline_ends_the_wait() {
        let cell = Arc::new(Watched::new(0));
        let other = Arc::clone(&cell);
        let thread = std::thread::spawn(move || other.update(|v| *v = 7));
        assert_eq!(cell.wait_for(PATIENCE, |v| (*v == 7).then_some(*v)), Some(7));
        thread.join().unwrap();
        assert_eq!(cell.wait_for(Duration::from_millis(1), |v| (*v == 8).then_some(())), None);
    }
}
