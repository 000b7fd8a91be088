//! What commands leave running in the background.
//!
//! Owns the list of a session's jobs, the files that have what they write, and their end: each is
//! watched by a task of its own while it runs, and all end with the session. Must not know turns.

use crate::host::clock;
use crate::host::process::Running;
use crate::host::scratch::SessionTmp;
use crate::tools::{Kept, Left};
use glrs_protocol::types::JobRow;
use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::io::AsyncReadExt;
use tokio::net::unix::pipe;
use tokio::sync::Notify;
use tokio_util::sync::{CancellationToken, DropGuard};
use tokio_util::task::TaskTracker;

/// Most jobs of a session; one more is ended instead.
pub const MAX: usize = 32;
/// Ended jobs the model has not heard of; at the bound the oldest is forgotten.
const UNHEARD: usize = 32;
/// Most bytes of a job's output that are kept; what is over is dropped, the job goes on.
const OUTPUT_MAX: usize = 16 * 1024 * 1024;
/// How long a job has between TERM and KILL.
const PATIENCE: Duration = Duration::from_secs(2);
/// How often members of a group are looked for whose leader is gone, at first and at most: they are
/// no children of ours, so nothing tells of their end.
const LOOK: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(5));

/// A session's jobs. Dropped, it ends them.
#[derive(Debug)]
pub struct Jobs {
    shared: Arc<Shared>,
    _stop: DropGuard,
}

/// The way to them for tool calls.
#[derive(Clone, Debug)]
pub struct JobsDoor(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    table: Mutex<Table>,
    changed: Notify,
    stop: CancellationToken,
    tasks: TaskTracker,
    tmp: Arc<SessionTmp>,
}

#[derive(Debug, Default)]
struct Table {
    last: u64,
    rows: Vec<JobRow>,
    ended: Vec<String>,
}

impl Shared {
    fn table(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Jobs {
    /// None yet. Output goes to files in the private directory.
    pub fn new(tmp: Arc<SessionTmp>) -> Self {
        let stop = CancellationToken::new();
        let shared = Arc::new(Shared {
            table: Mutex::default(),
            changed: Notify::new(),
            stop: stop.clone(),
            tasks: TaskTracker::new(),
            tmp,
        });
        Self { shared, _stop: stop.drop_guard() }
    }

    /// The way to them for tool calls.
    pub fn door(&self) -> JobsDoor {
        JobsDoor(self.shared.clone())
    }

    /// Those that run, oldest first.
    pub fn rows(&self) -> Vec<JobRow> {
        self.shared.table().rows.clone()
    }

    /// Whether none runs.
    pub fn is_empty(&self) -> bool {
        self.shared.table().rows.is_empty()
    }

    /// Resolves when one came or went.
    pub async fn changed(&self) {
        self.shared.changed.notified().await;
    }

    /// What the model is to be told: what runs, and once what has ended since it was last told.
    pub fn reminders(&self) -> Vec<String> {
        let mut table = self.shared.table();
        let running = table.rows.iter().map(|r| {
            let output = r.output.as_ref().map(|o| format!(", output in {o}")).unwrap_or_default();
            format!(
                "Job {} runs in the background since {} (process group {}{output}): {}",
                r.job, r.since, r.group, r.command
            )
        });
        let mut out: Vec<String> = running.collect();
        out.append(&mut table.ended);
        out
    }

    /// Ends all of them and waits until they are gone.
    pub async fn stop(&self) {
        self.shared.stop.cancel();
        self.shared.tasks.close();
        self.shared.tasks.wait().await;
    }
}

impl JobsDoor {
    /// Takes what a call left running. None when there are too many, or the session is going:
    /// then it is ended.
    pub fn take(&self, left: Left) -> Option<Kept> {
        let Left { running, pipe, command } = left;
        let mut table = self.0.table();
        if table.rows.len() >= MAX || self.0.stop.is_cancelled() {
            return None;
        }
        table.last += 1;
        let job = table.last;
        let file = pipe.as_ref().and_then(|_| make_file(&self.0.tmp, job));
        let output = file.as_ref().map(|(path, _)| path.clone());
        table.rows.push(JobRow {
            job,
            group: running.group(),
            command: crate::fold::summary::title_line(&command),
            output: output.as_ref().map(|p| p.display().to_string()),
            since: clock::now(),
        });
        drop(table);
        let task = watch(self.0.clone(), job, running, pipe, file.map(|(_, file)| file));
        self.0.tasks.spawn(task);
        self.0.changed.notify_one();
        Some(Kept { job, output })
    }
}

fn make_file(tmp: &SessionTmp, job: u64) -> Option<(PathBuf, File)> {
    let path = tmp.path().ok()?.join(format!("job-{job}.out"));
    let file = File::create(&path).ok()?;
    Some((path, file))
}

/// Follows a job to its end.
async fn watch(shared: Arc<Shared>, job: u64, mut running: Running, pipe: Option<pipe::Receiver>, file: Option<File>) {
    let mut sink = Sink { file, room: OUTPUT_MAX };
    let mut pipe = pipe;
    let mut buf = vec![0; 16 * 1024];
    let mut how: Option<String> = None;
    let mut pause = LOOK.0;
    loop {
        tokio::select! {
            biased;
            () = shared.stop.cancelled() => {
                running.ended(PATIENCE).await;
                shared.table().rows.retain(|r| r.job != job);
                return shared.changed.notify_one();
            }
            read = read_some(&mut pipe, &mut buf) => match read {
                Some(n) => sink.write(&buf[..n]),
                None => pipe = None,
            },
            status = running.wait(), if how.is_none() => {
                how = Some(status.map_or_else(|_| "ended".to_owned(), |s| s.to_string()));
            }
            () = tokio::time::sleep(pause), if how.is_some() => {
                if !running.is_alive() {
                    break;
                }
                pause = (pause * 2).min(LOOK.1);
            }
        }
    }
    // What it wrote last may still be in the pipe, whoever else holds its other end.
    while let Some(Ok(n)) = pipe.as_ref().map(|p| p.try_read(&mut buf)) {
        if n == 0 {
            break;
        }
        sink.write(&buf[..n]);
    }
    running.release();
    let mut table = shared.table();
    if let Some(at) = table.rows.iter().position(|r| r.job == job) {
        let row = table.rows.remove(at);
        if table.ended.len() == UNHEARD {
            table.ended.remove(0);
        }
        let how = how.unwrap_or_default();
        let output =
            row.output.as_deref().map(|o| format!(", output in {}", Path::new(o).display())).unwrap_or_default();
        table.ended.push(format!("Job {job} has ended ({how}{output}): {}", row.command));
    }
    drop(table);
    shared.changed.notify_one();
}

/// Bytes of the pipe; none at its end. Never, when there is no pipe.
async fn read_some(pipe: &mut Option<pipe::Receiver>, buf: &mut [u8]) -> Option<usize> {
    match pipe {
        Some(p) => p.read(buf).await.ok().filter(|n| *n > 0),
        None => std::future::pending().await,
    }
}

/// Where a job's output goes, up to a bound.
struct Sink {
    file: Option<File>,
    room: usize,
}

impl Sink {
    /// Keeps what there is room for. A full disk is no reason to end the job.
    fn write(&mut self, bytes: &[u8]) {
        let take = bytes.len().min(self.room);
        self.room -= take;
        if let Some(file) = &mut self.file
            && take > 0
        {
            let _ = file.write_all(&bytes[..take]);
            if self.room == 0 {
                let _ = file.write_all(b"\n[more output was dropped]\n");
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::Env;
    use crate::host::process::testing::{becomes_gone, is_gone};
    use crate::host::process::{Start, Stdin, start};
    use crate::host::scratch::Scratch;

    fn jobs(dir: &Path) -> Jobs {
        let scratch = Scratch::new(dir.join("b"));
        Jobs::new(Arc::new(SessionTmp::new(scratch, "3f9a1c2b".parse().unwrap())))
    }

    fn left(command: &str) -> Left {
        let env = Env::of_process();
        let args = ["-c", command];
        let program = Path::new("/bin/sh");
        let start_it =
            Start { program, args: &args, cwd: Path::new("/"), env: &env, stdin: Stdin::Null, sandbox: None };
        let (running, pipe) = start(&start_it).unwrap();
        Left { running, pipe: Some(pipe), command: command.to_owned() }
    }

    async fn until_none(jobs: &Jobs) {
        let gone = async {
            while !jobs.is_empty() {
                jobs.changed().await;
            }
        };
        tokio::time::timeout(Duration::from_secs(30), gone).await.expect("a job goes on for ever");
    }

    #[tokio::test]
    async fn a_job_is_listed_its_output_kept_and_its_end_told_once() {
        let dir = tempfile::tempdir().unwrap();
        let jobs = jobs(dir.path());
        let kept = jobs.door().take(left("echo out; echo err >&2; exit 3")).unwrap();
        assert_eq!(kept.job, 1);
        until_none(&jobs).await;
        assert_eq!(std::fs::read_to_string(kept.output.unwrap()).unwrap(), "out\nerr\n");
        let told = jobs.reminders();
        assert!(told.len() == 1 && told[0].starts_with("Job 1 has ended (exit status: 3"), "{told:?}");
        assert!(jobs.reminders().is_empty());
        let kept = jobs.door().take(left("sleep 300")).unwrap();
        assert_eq!((kept.job, jobs.rows()[0].command.as_str()), (2, "sleep 300"));
        assert!(jobs.reminders()[0].starts_with("Job 2 runs in the background since "));
        assert_eq!(jobs.reminders().len(), 1);
        jobs.stop().await;
        assert!(jobs.is_empty() && jobs.door().take(left("sleep 300")).is_none());
    }

    #[tokio::test]
    async fn jobs_end_with_their_session_even_unasked() {
        let dir = tempfile::tempdir().unwrap();
        let jobs = jobs(dir.path());
        let group = |j: &Jobs| j.rows()[0].group;
        jobs.door().take(left("trap '' TERM; while :; do sleep 300; done")).unwrap();
        let pid = group(&jobs);
        assert!(!is_gone(pid));
        drop(jobs);
        becomes_gone(pid).await;
    }

    #[tokio::test]
    async fn there_is_a_most_of_them() {
        let dir = tempfile::tempdir().unwrap();
        let jobs = jobs(dir.path());
        for _ in 0..MAX {
            assert!(jobs.door().take(left("sleep 300")).is_some());
        }
        assert!(jobs.door().take(left("sleep 300")).is_none());
        jobs.stop().await;
    }

    #[test]
    fn output_is_bounded() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("f");
        let mut sink = Sink { file: Some(File::create(&path).unwrap()), room: 5 };
        for _ in 0..3 {
            sink.write(b"abc");
        }
        assert_eq!(std::fs::read_to_string(path).unwrap(), "abcab\n[more output was dropped]\n");
    }
}
