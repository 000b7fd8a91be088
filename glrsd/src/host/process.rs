//! Child processes in their own group: started, waited for, and ended whole.
//!
//! Owns: the process group of each child, the signals it gets, and the guard that ends what still
//! runs when this process dies without a word. Must not know what the processes are for.

use super::Env;
use super::sandbox::Sandbox;
use rustix::process::{Pid, Signal, kill_process_group, test_kill_process_group};
use std::collections::BTreeSet;
use std::io::Write;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::process::{ExitStatus, Stdio};
use std::sync::{LazyLock, Mutex, PoisonError};
use std::time::Duration;
use tokio::io::AsyncReadExt as _;
use tokio::net::unix::pipe;
use tokio::process::{Child, ChildStderr, ChildStdin, ChildStdout, Command};
use tokio::time::Instant;
use tokio_util::task::TaskTracker;

/// How long a group has between TERM and KILL.
pub const PATIENCE: Duration = Duration::from_secs(5);

/// What a child reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stdin {
    /// Nothing: /dev/null.
    Null,
    /// What is written to [`Running::take_stdin`].
    Pipe,
}

/// A child to be started.
#[derive(Clone, Copy, Debug)]
pub struct Start<'a> {
    /// The program, by absolute path.
    pub program: &'a Path,
    /// Its arguments.
    pub args: &'a [&'a str],
    /// Where it runs.
    pub cwd: &'a Path,
    /// Its whole environment.
    pub env: &'a Env,
    /// What it reads.
    pub stdin: Stdin,
    /// What it is kept to.
    pub sandbox: Option<&'a Sandbox>,
}

/// A running child and its group. Dropped without a word, it ends the group as [`Running::end`] does.
#[derive(Debug)]
pub struct Running {
    child: Option<Child>,
    group: Pid,
    /// It was asked to end: what traps that is not asked twice.
    asked: bool,
    /// It is being seen off: dropped now, it is killed.
    leaving: bool,
    guarded: Guarded,
}

/// Those that are being seen off in the background.
static FAREWELLS: LazyLock<TaskTracker> = LazyLock::new(TaskTracker::new);

/// Waits until everything that was asked to end is gone, for `most` at most. What is left after that
/// is killed when the runtime ends.
pub async fn farewells(most: Duration) {
    FAREWELLS.close();
    let _ = tokio::time::timeout(most, FAREWELLS.wait()).await;
}

/// The streams of a child, each by itself.
#[derive(Debug)]
pub struct Streams {
    /// What it reads.
    pub stdin: ChildStdin,
    /// What it says.
    pub stdout: ChildStdout,
    /// What it complains of.
    pub stderr: ChildStderr,
}

/// Starts a child as the leader of a new group. What it and its children write, to either stream,
/// comes out of the one pipe in the order it was written.
///
/// # Errors
/// When the program, the directory or the pipe cannot be had.
pub fn start(start: &Start<'_>) -> std::io::Result<(Running, pipe::Receiver)> {
    let (reader, writer) = std::io::pipe()?;
    let reader = pipe::Receiver::from_owned_fd(OwnedFd::from(reader))?;
    let mut command = command(start);
    command.stdout(writer.try_clone()?).stderr(writer);
    let child = spawn(&mut command, start.sandbox)?;
    // Our copies of the pipe's writing end: while one is open the pipe never ends.
    drop(command);
    Ok((Running::of(child)?, reader))
}

/// Starts a child as the leader of a new group, to be talked to: its streams are pipes of their
/// own, whatever [`Start::stdin`] says.
///
/// # Errors
/// When the program, the directory or the pipes cannot be had.
pub fn start_apart(start: &Start<'_>) -> std::io::Result<(Running, Streams)> {
    let mut command = command(start);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = spawn(&mut command, start.sandbox)?;
    let streams = (child.stdin.take(), child.stdout.take(), child.stderr.take());
    let running = Running::of(child)?;
    match streams {
        (Some(stdin), Some(stdout), Some(stderr)) => Ok((running, Streams { stdin, stdout, stderr })),
        _ => Err(std::io::Error::other("the process has no pipes")),
    }
}

fn command(start: &Start<'_>) -> Command {
    let mut command = Command::new(start.program);
    command
        .args(start.args)
        .current_dir(start.cwd)
        .env_clear()
        .envs(start.env.iter())
        .stdin(match start.stdin {
            Stdin::Null => Stdio::null(),
            Stdin::Pipe => Stdio::piped(),
        })
        .process_group(0);
    command
}

/// Starts a child; one that is kept to a sandbox from a thread that is in it, so that the child is in
/// it before it runs.
fn spawn(command: &mut Command, sandbox: Option<&Sandbox>) -> std::io::Result<Child> {
    let Some(sandbox) = sandbox else { return command.spawn() };
    let runtime = tokio::runtime::Handle::try_current().map_err(std::io::Error::other)?;
    let start = || {
        let _runtime = runtime.enter();
        sandbox.enter().map_err(std::io::Error::other)?;
        command.spawn()
    };
    std::thread::scope(|scope| scope.spawn(start).join())
        .unwrap_or_else(|_| Err(std::io::Error::other("the thread that was to start it failed")))
}

impl Running {
    /// A child that was just started as the leader of its group.
    fn of(child: Child) -> std::io::Result<Self> {
        let group = child
            .id()
            .and_then(|id| i32::try_from(id).ok())
            .and_then(Pid::from_raw)
            .ok_or_else(|| std::io::Error::other("the process ended before its number was known"))?;
        Ok(Self { child: Some(child), group, asked: false, leaving: false, guarded: Guarded::new(group) })
    }

    /// The number of the group, which is that of its leader.
    pub fn group(&self) -> i32 {
        self.group.as_raw_nonzero().get()
    }

    /// The writing end of the child's stdin, once, if it was piped.
    pub fn take_stdin(&mut self) -> Option<ChildStdin> {
        self.child.as_mut()?.stdin.take()
    }

    /// Waits for the leader's end. May be dropped and called again.
    ///
    /// # Errors
    /// When the system does not say.
    pub async fn wait(&mut self) -> std::io::Result<ExitStatus> {
        match self.child.as_mut() {
            Some(child) => child.wait().await,
            None => Err(std::io::Error::other("the process was let go")),
        }
    }

    /// Asks the whole group to end, once.
    pub fn terminate(&mut self) {
        if !std::mem::replace(&mut self.asked, true) {
            let _ = kill_process_group(self.group, Signal::TERM);
        }
    }

    /// Whether anything of the group is left that still runs.
    pub fn is_alive(&self) -> bool {
        test_kill_process_group(self.group).is_ok() && has_living(self.group())
    }

    /// Lets what is left of the group run on by itself, also past our own end.
    pub fn release(mut self) {
        // A leader that still runs is waited for by the runtime, so it leaves no zombie.
        self.child = None;
    }

    /// Ends the group in the background: TERM now, KILL for what is left after `patience`, or when
    /// the runtime ends.
    pub fn end(mut self, patience: Duration) {
        self.terminate();
        FAREWELLS.spawn(self.see_off(patience));
    }

    /// The same; what it still writes to the pipe is read and dropped, so that its last words do not
    /// end it before it has tidied up.
    pub fn end_unheard(mut self, mut pipe: pipe::Receiver, patience: Duration) {
        self.terminate();
        FAREWELLS.spawn(async move {
            let drain = async {
                let mut buf = vec![0; 16 * 1024];
                while pipe.read(&mut buf).await.is_ok_and(|n| n > 0) {}
                // Someone else may close it long before the group is gone.
                std::future::pending::<()>().await;
            };
            tokio::select! {
                () = self.see_off(patience) => {}
                () = drain => {}
            }
        });
    }

    /// The same as [`Running::end`], and waits until it is over.
    pub async fn ended(mut self, patience: Duration) {
        self.terminate();
        self.see_off(patience).await;
    }

    /// Members that are no children of ours cannot be waited for, so they are looked for, 100 times
    /// at most.
    async fn see_off(mut self, patience: Duration) {
        self.leaving = true;
        let end = Instant::now() + patience;
        let step = (patience / 100).max(Duration::from_millis(1));
        let reaped = tokio::time::timeout_at(end, self.wait()).await.is_ok();
        while reaped && Instant::now() < end && self.is_alive() {
            tokio::time::sleep(step).await;
        }
        if self.is_alive() {
            let _ = kill_process_group(self.group, Signal::KILL);
        }
        if !reaped {
            let _ = self.wait().await;
        }
        self.child = None;
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let Some(child) = self.child.take() else { return };
        if !self.leaving
            && let Ok(runtime) = tokio::runtime::Handle::try_current()
        {
            // Dropped in the middle, as when esc breaks its call: it may tidy up all the same. A
            // runtime that is ending drops it again, which then ends it.
            let guarded = Guarded(self.guarded.0.take());
            let mut rest = Self { child: Some(child), group: self.group, asked: self.asked, leaving: true, guarded };
            rest.terminate();
            FAREWELLS.spawn_on(rest.see_off(PATIENCE), &runtime);
            return;
        }
        // Nobody is left to be patient.
        let _ = kill_process_group(self.group, Signal::KILL);
        drop(child);
    }
}

/// Whether a group has a member that is not merely waiting to be collected: where process 1 collects
/// nobody, the dead stay members for ever.
#[cfg(target_os = "linux")]
fn has_living(group: i32) -> bool {
    let Ok(all) = std::fs::read_dir("/proc") else { return true };
    let group = group.to_string();
    all.flatten().any(|process| {
        // pid (name) state ppid pgrp …; the name may have anything in it.
        let stat = std::fs::read_to_string(process.path().join("stat")).unwrap_or_default();
        let mut fields = stat.rsplit(')').next().unwrap_or_default().split_whitespace();
        let living = fields.next().is_some_and(|state| !matches!(state, "Z" | "X"));
        living && fields.nth(1) == Some(group.as_str())
    })
}

#[cfg(not(target_os = "linux"))]
fn has_living(_group: i32) -> bool {
    true
}

/// The guard: one small shell for the whole process. It is told which groups run, and when we die,
/// however we die, its input ends and it ends them. (A death signal would reach the leader only,
/// and would come when the *thread* that started it ends.)
struct Guard {
    shell: Option<std::process::Child>,
    groups: BTreeSet<i32>,
}

static GUARD: Mutex<Guard> = Mutex::new(Guard { shell: None, groups: BTreeSet::new() });

const GUARD_SCRIPT: &str = r#"trap '' INT TERM HUP QUIT
g=' '
while read -r a p; do
  case $a in
    +) g="$g$p " ;;
    -) case $g in *" $p "*) g="${g%% $p *} ${g#* $p }" ;; esac ;;
  esac
done
[ "$g" = ' ' ] && exit
for p in $g; do kill -s TERM -- "-$p"; done
sleep 1
for p in $g; do kill -s KILL -- "-$p"; done"#;

impl Guard {
    /// Tells the guard; a guard that is gone is replaced and told everything.
    fn tell(&mut self, line: &str) {
        if self.shell.as_mut().is_some_and(|shell| write_line(shell, line)) {
            return;
        }
        if let Some(mut old) = self.shell.take() {
            let _ = old.kill();
            let _ = old.wait();
        }
        if self.groups.is_empty() {
            return;
        }
        let mut all = String::new();
        for group in &self.groups {
            all.push_str(&format!("+ {group}\n"));
        }
        // Without a guard everything works but for what outlives a kill -9.
        self.shell = start_guard().ok();
        if let Some(shell) = self.shell.as_mut() {
            write_line(shell, &all);
        }
    }
}

fn write_line(shell: &mut std::process::Child, line: &str) -> bool {
    shell.stdin.as_mut().is_some_and(|stdin| stdin.write_all(line.as_bytes()).is_ok())
}

fn start_guard() -> std::io::Result<std::process::Child> {
    use std::os::unix::process::CommandExt;
    let shell = std::process::Command::new("/bin/sh")
        .args(["-c", GUARD_SCRIPT, "glrsd-guard"])
        .current_dir("/")
        .env_clear()
        .env("PATH", "/usr/bin:/bin")
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .process_group(0)
        .spawn()?;
    // A guard that someone stopped must not stop us: a full pipe counts as a guard that is gone.
    if let Some(stdin) = &shell.stdin {
        rustix::io::ioctl_fionbio(stdin, true)?;
    }
    Ok(shell)
}

/// A group the guard knows of, for as long as this lives.
#[derive(Debug)]
struct Guarded(Option<i32>);

impl Guarded {
    fn new(group: Pid) -> Self {
        let group = group.as_raw_nonzero().get();
        let mut guard = GUARD.lock().unwrap_or_else(PoisonError::into_inner);
        guard.groups.insert(group);
        guard.tell(&format!("+ {group}\n"));
        Self(Some(group))
    }
}

impl Drop for Guarded {
    fn drop(&mut self) {
        let Some(group) = self.0 else { return };
        let mut guard = GUARD.lock().unwrap_or_else(PoisonError::into_inner);
        guard.groups.remove(&group);
        guard.tell(&format!("- {group}\n"));
    }
}

/// Seeing that processes end, for tests.
#[cfg(test)]
pub(crate) mod testing {
    use super::{Duration, Pid};

    /// Whether a process is gone, or dead and only not yet collected by whoever inherited it.
    pub fn is_gone(pid: i32) -> bool {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        Pid::from_raw(pid).is_none_or(|p| rustix::process::test_kill_process(p).is_err())
            || stat.rsplit(')').next().is_some_and(|s| s.trim_start().starts_with('Z'))
    }

    /// Waits until it is.
    pub async fn becomes_gone(pid: i32) {
        let gone = async {
            while !is_gone(pid) {
                tokio::time::sleep(Duration::from_millis(2)).await;
            }
        };
        tokio::time::timeout(Duration::from_secs(20), gone).await.expect("the process is still there");
    }
}

#[cfg(test)]
mod tests {
    use super::testing::{becomes_gone, is_gone};
    use super::*;
    use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};

    fn shell<'a>(args: &'a [&'a str], env: &'a Env, stdin: Stdin) -> Start<'a> {
        Start { program: Path::new("/bin/sh"), args, cwd: Path::new("/"), env, stdin, sandbox: None }
    }

    /// A child with a grandchild; answers the grandchild's number.
    async fn family(trap: &str, env: &Env) -> (Running, BufReader<pipe::Receiver>, i32) {
        let script = format!("{trap} sh -c '{trap} echo $$; exec 0<&-; while :; do sleep 60; done' & wait");
        let (running, out) = start(&shell(&["-c", &script], env, Stdin::Null)).unwrap();
        let mut out = BufReader::new(out);
        let mut line = String::new();
        out.read_line(&mut line).await.unwrap();
        (running, out, line.trim().parse().unwrap())
    }

    #[tokio::test]
    async fn both_streams_come_in_order_and_the_environment_is_exact() {
        let env: Env = [("A".to_owned(), "1".to_owned())].into_iter().collect();
        let script = "echo 1; echo 2 >&2; echo 3; echo \"$A${HOME-none}\"; cat";
        let (mut running, mut out) = start(&shell(&["-c", script], &env, Stdin::Pipe)).unwrap();
        let mut stdin = running.take_stdin().unwrap();
        stdin.write_all(b"in").await.unwrap();
        drop(stdin);
        let mut text = String::new();
        out.read_to_string(&mut text).await.unwrap();
        assert_eq!(text, "1\n2\n3\n1none\nin");
        assert!(running.wait().await.unwrap().success());
        running.release();
    }

    #[tokio::test]
    async fn a_dropped_child_takes_its_group_along() {
        let env = Env::of_process();
        let (running, _out, grandchild) = family("", &env).await;
        let child = running.group();
        assert!(running.is_alive());
        drop(running);
        becomes_gone(grandchild).await;
        becomes_gone(child).await;
    }

    #[tokio::test]
    async fn what_is_dropped_may_tidy_up() {
        let env = Env::of_process();
        let dir = tempfile::tempdir().unwrap();
        let mark = dir.path().join("mark");
        let script = format!(
            "trap 'sleep 0.2; echo bye; : > {}; exit' TERM; echo up; while :; do sleep 0.02; done",
            mark.display()
        );
        let (running, out) = start(&shell(&["-c", &script], &env, Stdin::Null)).unwrap();
        let mut out = BufReader::new(out);
        out.read_line(&mut String::new()).await.unwrap();
        let pid = running.group();
        drop(running);
        becomes_gone(pid).await;
        assert!(mark.exists());
    }

    #[test]
    fn what_is_being_seen_off_ends_with_the_runtime() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let env = Env::of_process();
        let (child, grandchild) = runtime.block_on(async {
            let (running, _out, grandchild) = family("trap \"\" TERM;", &env).await;
            let child = running.group();
            drop(running);
            (child, grandchild)
        });
        assert!(!is_gone(child));
        drop(runtime);
        let wait = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        wait.block_on(async {
            becomes_gone(grandchild).await;
            becomes_gone(child).await;
        });
    }

    #[tokio::test]
    async fn what_ignores_term_is_killed() {
        let env = Env::of_process();
        let (running, _out, grandchild) = family("trap \"\" TERM;", &env).await;
        let child = running.group();
        running.end(Duration::from_millis(100));
        becomes_gone(grandchild).await;
        becomes_gone(child).await;
    }

    #[tokio::test]
    async fn what_is_released_runs_on() {
        let env = Env::of_process();
        let (running, _out, grandchild) = family("", &env).await;
        let group = Pid::from_raw(running.group()).unwrap();
        running.release();
        assert!(!is_gone(grandchild));
        kill_process_group(group, Signal::KILL).unwrap();
        becomes_gone(grandchild).await;
    }

    #[tokio::test]
    async fn the_guard_ends_what_it_was_told_of_and_nothing_else() {
        let env = Env::of_process();
        let (kept, _out1, kept_pid) = family("", &env).await;
        let (ended, _out2, ended_pid) = family("trap \"\" TERM;", &env).await;
        let mut guard = start_guard().unwrap();
        let told = format!("+ {}\n+ {}\n+ 999999999\n- {}\n", kept.group(), ended.group(), kept.group());
        assert!(write_line(&mut guard, &told));
        drop(guard.stdin.take());
        becomes_gone(ended_pid).await;
        assert!(!is_gone(kept_pid));
        guard.wait().unwrap();
        drop((kept, ended));
    }

    #[test]
    fn a_guard_that_died_is_replaced() {
        let mut guard = Guard { shell: Some(start_guard().unwrap()), groups: BTreeSet::from([999_999_999]) };
        let first = guard.shell.as_mut().unwrap();
        first.kill().unwrap();
        first.wait().unwrap();
        let first = first.id();
        guard.tell("+ 999999999\n");
        let mut second = guard.shell.take().unwrap();
        assert_ne!(second.id(), first);
        drop(second.stdin.take());
        second.wait().unwrap();
    }
}
