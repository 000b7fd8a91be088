//! The store, struck down at every file operation: by a kill, by a power cut.
//!
//! A random workload (see `workload`) runs on a store whose every file operation is announced
//! before it is done. At such an operation
//! - the data directory is copied as it stands, which is to the byte what a process leaves that is
//!   killed there: its memory is gone, its half-made files and half-written bytes lie where they
//!   lay. Most of the kills below are such pictures: one workload gives many. The next workload
//!   goes on from one of them.
//! - or the process really is killed: this test runs itself again as a child that sends itself
//!   SIGKILL, and reads what it acknowledged from a pipe.
//! - or the state of the disk is put together from what was synced and any part of what was not
//!   (see `disk`).
//!
//! Each time the next daemon's store has to find what `ledger` says. `GLRS_KILLS` sets how many
//! kills, real ones a tenth of them, and how many cuts twice as many; `GLRS_SEED` the first seed.
//! What fails names its seed.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::type_complexity,
    reason = "a test says what is wrong by panicking"
)]

mod disk;
mod ledger;
mod workload;

use disk::{Disk, Tree, picture, plant};
use glrsd::store::{Fault, Faults, Op};
use ledger::{End, Ledger};
use rustix::process::{Signal, getpid, kill_process};
use std::io::{BufRead, BufReader, Write};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex};
use workload::{Rng, Shared, Workload, lock};

/// Environment of the child: where, which workload, and at which file operation it dies.
const CHILD: &str = "GLRS_TEST_CRASH_CHILD";
/// Steps of one workload.
const STEPS: usize = 40;

fn number(name: &str, or: u64) -> u64 {
    std::env::var(name).ok().and_then(|n| n.parse().ok()).unwrap_or(or)
}

fn kills() -> usize {
    usize::try_from(number("GLRS_KILLS", 1000)).unwrap()
}

/// Names the seed when a test fails.
struct Seed(u64);

impl Drop for Seed {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("run it again with GLRS_SEED={}", self.0);
        }
    }
}

/// In memory where that is possible: syncs are free.
fn scratch() -> tempfile::TempDir {
    let shm = Path::new("/dev/shm");
    if shm.is_dir() { tempfile::tempdir_in(shm) } else { tempfile::tempdir() }.unwrap()
}

/// What happens before each file operation.
type Watch = Box<dyn FnMut(Op, &Path) + Send>;

/// Calls `watch` before every file operation, and lets some writes take only a part at first.
fn watched(seed: u64, watch: Watch) -> Faults {
    let state = Mutex::new((Rng(seed ^ 0x5407), false, watch));
    Arc::new(move |op, path| {
        // The index is a cache, filled by a thread of its own whenever that runs: what it does is in
        // no order with the workload, and promises nothing.
        if path.file_name().is_some_and(|n| n.to_string_lossy().starts_with("index.sqlite")) {
            return None;
        }
        let mut state = lock(&state);
        (state.2)(op, path);
        let short = op == Op::Write && !state.1 && state.0.below(3) == 0;
        state.1 = short;
        short.then(|| Fault::Short(1 + state.0.below(700)))
    })
}

/// A moment: what was promised until then, and what lay there.
type Moment = (Ledger, Tree);

/// Runs a workload and keeps a moment now and then.
fn run(root: &Path, seed: u64, from: Ledger, mut look: impl FnMut(&Ledger, Op, &Path) + Send + 'static) -> Ledger {
    let ledger: Shared = Arc::new(Mutex::new(from));
    let shared = ledger.clone();
    let faults = watched(seed, Box::new(move |op, path| look(&lock(&shared), op, path)));
    let mut workload = Workload::new(root, seed, ledger.clone(), faults);
    for _ in 0..STEPS {
        workload.step();
    }
    drop(workload);
    lock(&ledger).clone()
}

fn check(moment: &Moment, end: End, keep: Option<&Path>) -> Ledger {
    let dir = scratch();
    let root = dir.path().join("glrs");
    plant(&root, &moment.1);
    let next = moment.0.check(&root, end);
    if let Some(to) = keep {
        let _ = std::fs::remove_dir_all(to);
        plant(to, &picture(&root));
    }
    next
}

#[test]
fn a_kill_at_any_file_operation_loses_nothing() {
    let (mut seed, mut done) = (number("GLRS_SEED", 1), 0);
    let dir = scratch();
    let root = dir.path().join("glrs");
    let mut ledger = Ledger::default();
    while done < kills() {
        let _named = Seed(seed);
        if seed.is_multiple_of(4) {
            // Not for ever on the same sessions.
            let _ = std::fs::remove_dir_all(&root);
            ledger = Ledger::default();
        }
        let moments: Arc<Mutex<Vec<Moment>>> = Arc::default();
        let (kept, at, mut rng) = (moments.clone(), root.clone(), Rng(seed));
        run(&root, seed, ledger.clone(), move |l, _, _| {
            if rng.below(3) == 0 {
                lock(&kept).push((l.clone(), picture(&at)));
            }
        });
        let moments = std::mem::take(&mut *lock(&moments));
        let next = Rng(seed).below(moments.len());
        for (i, moment) in moments.iter().enumerate() {
            let after = check(moment, End::Kill, (i == next).then_some(&*root));
            if i == next {
                ledger = after;
            }
        }
        done += moments.len();
        seed += 1;
    }
}

#[test]
fn whatever_a_power_cut_leaves_has_what_was_synced_and_nothing_else() {
    let (mut seed, mut done) = (number("GLRS_SEED", 1), 0);
    while done < 2 * kills() {
        let _named = Seed(seed);
        let dir = scratch();
        let root = dir.path().join("glrs");
        std::fs::create_dir_all(&root).unwrap();
        let moments: Arc<Mutex<Vec<Moment>>> = Arc::default();
        let (kept, at, mut rng) = (moments.clone(), root.clone(), Rng(seed));
        let mut disk: Option<Disk> = None;
        run(&root, seed, Ledger::default(), move |l, op, path| {
            // The directories of a new home are there before anything is said.
            if l.steps == 0 && !l.busy {
                return;
            }
            let disk = disk.get_or_insert_with(|| Disk::new(&at));
            disk.before(op, path);
            for _ in 0..rng.below(3) {
                lock(&kept).push((l.clone(), disk.cut(&mut rng)));
            }
        });
        let moments = std::mem::take(&mut *lock(&moments));
        for moment in &moments {
            check(moment, End::Power, None);
        }
        done += moments.len();
        seed += 1;
    }
}

/// Works until it kills itself. Only does so in the process that the test below starts.
#[test]
fn child() {
    let Ok(what) = std::env::var(CHILD) else { return };
    let mut parts = what.splitn(3, ' ');
    let mut next = || parts.next().unwrap();
    let (seed, mut left) = (next().parse().unwrap(), next().parse::<u64>().unwrap());
    let root = PathBuf::from(next());
    let ledger: Shared = Arc::default();
    let watch = move |_: Op, _: &Path| {
        left -= 1;
        if left == 0 {
            kill_process(getpid(), Signal::KILL).unwrap();
        }
    };
    let mut workload = Workload::new(&root, seed, ledger, watched(seed, Box::new(watch)));
    let mut out = std::io::stdout();
    loop {
        workload.step();
        out.write_all(b"ack\n").unwrap();
        out.flush().unwrap();
    }
}

#[test]
fn a_process_that_is_killed_at_a_file_operation_loses_nothing() {
    let first = number("GLRS_SEED", 1);
    for seed in first..first + kills() as u64 / 10 {
        let _named = Seed(seed);
        let dir = scratch();
        let root = dir.path().join("glrs");
        let at = 8 + Rng(seed ^ 0x0dd).next() % 150;
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["child", "--exact", "--nocapture", "--test-threads=1"])
            .env(CHILD, format!("{seed} {at} {}", root.display()))
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        // The harness writes the test's name before the first line.
        let acknowledged = lines.map_while(Result::ok).filter(|l| l.ends_with("ack")).count() as u64;
        assert_eq!(child.wait().unwrap().signal(), Some(9), "it died by its own hand");
        // The same workload elsewhere says what was promised when it died.
        let twin = dir.path().join("twin");
        let promised: Arc<Mutex<Option<Ledger>>> = Arc::default();
        let (tell, ledger, mut left) = (promised.clone(), Shared::default(), at);
        let shared = ledger.clone();
        let watch = move |_: Op, _: &Path| {
            left = left.saturating_sub(1);
            if left == 0 {
                lock(&tell).get_or_insert_with(|| lock(&shared).clone());
            }
        };
        let mut workload = Workload::new(&twin, seed, ledger, watched(seed, Box::new(watch)));
        while lock(&promised).is_none() {
            workload.step();
        }
        drop(workload);
        let promised = lock(&promised).take().unwrap();
        assert_eq!(promised.steps, acknowledged, "what it acknowledged through the pipe");
        promised.check(&root, End::Kill);
    }
}
