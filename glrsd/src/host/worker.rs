//! The thread that serves everyone.
//!
//! Owns how many there are: one. What a session does for a client is a few microseconds at a time,
//! and handing it to another thread costs more than doing it. Whatever keeps that thread longer does
//! so elsewhere: disks on threads for files (see [`super::reach`]), computing through [`aside`].

/// Threads that serve.
pub const WORKERS: usize = 1;

/// Computes something that may take milliseconds. Everyone else is served meanwhile, by another
/// thread, which costs some ten microseconds.
pub fn aside<T>(work: impl FnOnce() -> T) -> T {
    use tokio::runtime::{Handle, RuntimeFlavor};
    match Handle::try_current().map(|runtime| runtime.runtime_flavor()) {
        Ok(RuntimeFlavor::MultiThread) => tokio::task::block_in_place(work),
        // Nobody else is served here.
        _ => work(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc;

    #[test]
    fn others_are_served_while_something_is_computed() {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(WORKERS).enable_all().build().unwrap();
        runtime.block_on(async {
            let (tell, told) = mpsc::channel();
            // Both run on the one worker: the first ends only once the second was served.
            let first = tokio::spawn(async move { aside(|| told.recv().is_ok()) });
            let second = tokio::spawn(async move { tell.send(()).is_ok() });
            assert!(first.await.unwrap() && second.await.unwrap());
        });
        assert_eq!(aside(|| 7), 7);
    }
}
