//! Threads that sync files, so that a session can wait for the disk without standing in anyone's
//! way, and a tool that hangs on a dead mount starves no log.
//!
//! Owns the threads and the rule by which a sync's result is believed. Must not know what is in
//! the files.

use super::disk::Disk;
use std::collections::VecDeque;
use std::fs::File;
use std::io;
use std::path::PathBuf;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use tokio::sync::oneshot;

/// Syncs that can wait. A session has one or two under way; at the bound the caller syncs itself.
const QUEUE: usize = 256;
const THREADS: usize = 4;

pub(crate) fn lock<T>(m: &Mutex<T>) -> MutexGuard<'_, T> {
    m.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What syncs of one file have come to. Results land here whether or not anyone still waits: the
/// kernel reports a failed sync once, and a dropped future must not swallow it.
#[derive(Debug, Default)]
pub(crate) struct SyncCell(Mutex<Synced>);

#[derive(Debug, Default)]
struct Synced {
    /// Counts failures. A success that began before one proves nothing.
    generation: u64,
    reached: u64,
    error: Option<io::Error>,
}

impl SyncCell {
    /// Takes the failure that no one took yet, or says how far the file is known to be on disk.
    pub(crate) fn take(&self) -> Result<u64, io::Error> {
        let mut s = lock(&self.0);
        match s.error.take() {
            Some(e) => Err(e),
            None => Ok(s.reached),
        }
    }
}

/// A sync under way.
#[derive(Debug)]
pub struct SyncJob {
    done: oneshot::Receiver<()>,
    target: u64,
}

/// A sync that came to an end, well or not.
#[derive(Debug)]
pub struct SyncDone {
    pub(crate) target: u64,
}

impl SyncJob {
    /// Waits until it is done. Its result lies with the file that began it; dropping this loses
    /// nothing.
    pub async fn wait(self) -> SyncDone {
        let _ = self.done.await;
        SyncDone { target: self.target }
    }
}

struct Work {
    file: Arc<File>,
    path: PathBuf,
    target: u64,
    generation: u64,
    cell: Arc<SyncCell>,
    done: oneshot::Sender<()>,
}

/// What waits for a thread. A new one wakes one thread and no more: whoever waits for the disk waits
/// for that as well.
#[derive(Default)]
struct Queue {
    waiting: Mutex<Waiting>,
    more: Condvar,
}

#[derive(Default)]
struct Waiting {
    work: VecDeque<Work>,
    /// The last store is gone.
    over: bool,
}

/// The threads. They end when the last store is gone and nothing waits.
pub(crate) struct Pool {
    disk: Disk,
    queue: Option<Arc<Queue>>,
}

impl Drop for Pool {
    fn drop(&mut self) {
        if let Some(queue) = &self.queue {
            lock(&queue.waiting).over = true;
            queue.more.notify_all();
        }
    }
}

impl Pool {
    pub(crate) fn new(disk: &Disk) -> Self {
        let queue = Arc::new(Queue::default());
        let started = (0..if disk.read_only { 0 } else { THREADS }).filter(|i| {
            let (queue, disk) = (queue.clone(), disk.clone());
            std::thread::Builder::new().name(format!("glrs-sync-{i}")).spawn(move || serve(&queue, &disk)).is_ok()
        });
        // Without threads (a process limit) every sync is done by its caller.
        let queue = (started.count() > 0).then_some(queue);
        Self { disk: disk.clone(), queue }
    }

    /// Begins to sync a file that has been written up to `target`.
    pub(crate) fn sync(&self, file: Arc<File>, path: PathBuf, target: u64, cell: &Arc<SyncCell>) -> SyncJob {
        let (done, rx) = oneshot::channel();
        let generation = lock(&cell.0).generation;
        let work = Work { file, path, target, generation, cell: cell.clone(), done };
        let left = match &self.queue {
            Some(queue) => queue.push(work),
            None => Some(work),
        };
        if let Some(work) = left {
            run(work, &self.disk);
        }
        SyncJob { done: rx, target }
    }
}

impl Queue {
    /// Gives it to a thread, or back where too many wait.
    fn push(&self, work: Work) -> Option<Work> {
        let mut waiting = lock(&self.waiting);
        if waiting.work.len() >= QUEUE {
            return Some(work);
        }
        waiting.work.push_back(work);
        drop(waiting);
        self.more.notify_one();
        None
    }

    /// What is next; none when nothing comes any more.
    fn next(&self) -> Option<Work> {
        let mut waiting = lock(&self.waiting);
        loop {
            if let Some(work) = waiting.work.pop_front() {
                return Some(work);
            }
            if waiting.over {
                return None;
            }
            waiting = self.more.wait(waiting).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

fn serve(queue: &Queue, disk: &Disk) {
    while let Some(work) = queue.next() {
        run(work, disk);
    }
}

fn run(work: Work, disk: &Disk) {
    let result = disk.sync_data(&work.file, &work.path);
    {
        let mut s = lock(&work.cell.0);
        match result {
            Ok(()) if s.generation == work.generation => s.reached = s.reached.max(work.target),
            Ok(()) => {}
            Err(e) => {
                s.generation += 1;
                s.error = Some(e);
            }
        }
    }
    let _ = work.done.send(());
}
