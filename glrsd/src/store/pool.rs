//! Threads that sync files, so that a session can wait for the disk without standing in anyone's
//! way, and a tool that hangs on a dead mount starves no log.
//!
//! Owns the threads and the rule by which a sync's result is believed. Must not know what is in
//! the files.

use super::disk::Disk;
use std::fs::File;
use std::io;
use std::path::PathBuf;
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
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

/// The threads. They end when the last store is gone.
pub(crate) struct Pool {
    disk: Disk,
    queue: Option<SyncSender<Work>>,
}

impl Pool {
    pub(crate) fn new(disk: &Disk) -> Self {
        let (queue, work) = sync_channel::<Work>(QUEUE);
        let work = Arc::new(Mutex::new(work));
        let started = (0..if disk.read_only { 0 } else { THREADS }).filter(|i| {
            let (work, disk) = (work.clone(), disk.clone());
            std::thread::Builder::new().name(format!("glrs-sync-{i}")).spawn(move || serve(&work, &disk)).is_ok()
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
        match &self.queue {
            None => run(work, &self.disk),
            Some(queue) => match queue.try_send(work) {
                Ok(()) => {}
                Err(TrySendError::Full(work) | TrySendError::Disconnected(work)) => run(work, &self.disk),
            },
        }
        SyncJob { done: rx, target }
    }
}

fn serve(work: &Mutex<Receiver<Work>>, disk: &Disk) {
    loop {
        let next = lock(work).recv();
        match next {
            Ok(w) => run(w, disk),
            Err(_) => return,
        }
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
