//! The tool `bash`: runs a command line.
//!
//! Owns: one call from asking to its result: the shell, the output as it comes, the end by itself,
//! by esc or by time, and handing over what it leaves running. Groups and signals are
//! `host::process`'s.

use super::output::{Bounded, Repair};
use super::{Left, Outcome, Tool, ToolCtx, ToolSpec, files, input, spec};
use crate::host::process::{self, PATIENCE, Running, Start, Stdin};
use crate::host::sandbox::Sandbox;
use crate::host::{Env, reach};
use crate::policy::Effect;
use futures_util::future::BoxFuture;
use serde::Deserialize;
use serde_json::value::RawValue;
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::pin::pin;
use std::process::ExitStatus;
use std::time::Duration;
use tokio::io::AsyncReadExt;
use tokio::net::unix::pipe;
use tokio::time::Instant;

/// How long the pipe may stay open after the process has ended.
const GRACE: Duration = Duration::from_millis(250);
/// How long a call that esc stops waits for the process to take its leave: less than the turn is
/// given to wind up, so that what came is kept. The process itself has [`PATIENCE`].
const FAREWELL: Duration = Duration::from_millis(60);
/// How long one waits whose time is over: nobody is in a hurry.
const OVERTIME: Duration = Duration::from_millis(500);
/// Bytes read at once.
const CHUNK: usize = 64 * 1024;
/// How long a command that is to run in the background is watched for an early end.
const FIRST_LOOK: Duration = Duration::from_millis(500);
/// How often, and how long apart, the rest of a group is looked at that may just be ending.
const LAST_LOOKS: (u32, Duration) = (10, Duration::from_millis(10));

/// What is said of a process that is in no group of ours any more, and that nobody ends.
const ESCAPED: &str = "\n[something it started made a session of its own and still holds its output, which is \
                       read no further: it is not listed here, and does not end with the session]";

/// Runs a command.
#[derive(Debug)]
pub struct Bash;

const EXPECTED: &str = r#"{"command": string, "timeoutMs"?: integer, "background"?: boolean, "description"?: string}"#;

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Input {
    command: String,
    #[serde(default, alias = "timeout", deserialize_with = "input::count")]
    timeout_ms: Option<u64>,
    #[serde(default)]
    background: Option<bool>,
    #[serde(default)]
    description: Option<String>,
}

impl Tool for Bash {
    fn spec(&self) -> ToolSpec {
        spec(
            "bash",
            "Runs a command line in a shell, in the working directory, and gives back what it wrote (both streams, \
             in order) and its exit code. It has no terminal and no input. Nothing carries over to the next call but \
             files. Set background for what shall go on running, such as a server: the call returns at once and \
             says where the output goes. Use read, edit, grep and glob rather than cat, sed, grep and find.",
            r#"{"type":"object","properties":{"command":{"type":"string","description":"The command line."},"timeoutMs":{"type":"integer","minimum":1,"description":"Milliseconds after which it is ended, if sooner than the session's limit."},"background":{"type":"boolean","description":"Leave it running; it ends with the session."},"description":{"type":"string","description":"What it is for, in a few words, for the person who is asked."}},"required":["command"],"additionalProperties":false}"#,
        )
    }

    fn detail(&self, input: &RawValue) -> String {
        input::one_line(&input::field(input, "command").unwrap_or_default())
    }

    fn run<'a>(&'a self, ctx: &'a dyn ToolCtx, input: &'a RawValue) -> BoxFuture<'a, Outcome> {
        Box::pin(async move { bash(ctx, input).await.unwrap_or_else(|outcome| outcome) })
    }
}

async fn bash(ctx: &dyn ToolCtx, input: &RawValue) -> Result<Outcome, Outcome> {
    let Input { command, timeout_ms, background, description } = input::parse("bash", EXPECTED, input)?;
    if command.trim().is_empty() {
        return Err(Outcome::error("The command is empty."));
    }
    if command.contains('\0') {
        return Err(Outcome::error("The command has a NUL in it: no shell takes that."));
    }
    let sandbox = ctx.sandbox();
    // Nobody is asked about what could not run.
    if let Some(e) = sandbox.as_ref().and_then(|s| s.check().err()) {
        return Err(Outcome::error(e.to_string()));
    }
    // The command stands first: what it is for is only what the model says of it.
    let title = match description.filter(|d| !d.trim().is_empty()) {
        Some(description) => format!("{} ({})", input::one_line(&command), input::one_line(&description)),
        None => input::one_line(&command),
    };
    files::permit(ctx, Effect::Exec(command.clone()), title, command.clone()).await?;
    let limit = ctx.timeout_ms();
    let limit = Duration::from_millis(timeout_ms.filter(|&ms| ms > 0).map_or(limit, |ms| ms.min(limit)));
    let (running, pipe) = started(ctx, command.clone(), sandbox, limit).await?;
    let plan = Plan { command, limit, background: background.unwrap_or(false) };
    Ok(follow(ctx, running, pipe, &plan).await)
}

/// How long esc waits for a command that is being started. Less than a turn has to end.
const STARTING: Duration = Duration::from_millis(75);

/// Starts a command, which waits for its directory and for the disk that has the shell: away from
/// here. One that starts after nobody waits any more is ended at once.
async fn started(
    ctx: &dyn ToolCtx,
    command: String,
    sandbox: Option<Sandbox>,
    limit: Duration,
) -> Result<(Running, pipe::Receiver), Outcome> {
    let (cwd, env) = (ctx.cwd().to_path_buf(), ctx.env().clone());
    let start = reach::begin(ctx.cwd(), limit, move || {
        let shell = shell(&env);
        let args = ["-c", command.as_str()];
        let start =
            Start { program: &shell, args: &args, cwd: &cwd, env: &env, stdin: Stdin::Null, sandbox: sandbox.as_ref() };
        process::start(&start).map_err(|e| {
            let why = if cwd.is_dir() { "" } else { " The working directory is gone." };
            format!("The command could not be started: {e}.{why}")
        })
    });
    let mut start = pin!(start);
    let started = tokio::select! {
        biased;
        started = &mut start => started,
        // It may run already, and have said something: then it is ended like any other.
        () = ctx.cancel().cancelled() => match tokio::time::timeout(STARTING, start).await {
            Ok(started) => started,
            Err(_) => return Err(Outcome::error("Interrupted while it was being started: should it start, it is ended at once.")),
        },
    };
    match started {
        Some(started) => started.map_err(Outcome::error),
        None => Err(Outcome::error("The command could not be started: the working directory does not answer.")),
    }
}

/// How a call is to go.
struct Plan {
    command: String,
    limit: Duration,
    background: bool,
}

/// bash where the session's PATH has it, else the system's sh.
fn shell(env: &Env) -> PathBuf {
    let found = env
        .get("PATH")
        .into_iter()
        .flat_map(|path| path.split(':'))
        .map(PathBuf::from)
        .filter(|dir| dir.is_absolute())
        .map(|dir| dir.join("bash"))
        .find(|file| rustix::fs::access(file, rustix::fs::Access::EXEC_OK).is_ok() && file.is_file());
    found.unwrap_or_else(|| PathBuf::from("/bin/sh"))
}

/// Why a call is stopped.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Stop {
    Interrupted,
    TimedOut,
}

/// What came of a call's process.
struct Seen {
    text: String,
    /// So many bytes of it were dropped.
    left_out: usize,
    status: Option<ExitStatus>,
    stop: Option<Stop>,
    /// The pipe, while someone still holds its other end.
    open: Option<pipe::Receiver>,
}

async fn follow(ctx: &dyn ToolCtx, mut running: Running, mut pipe: pipe::Receiver, plan: &Plan) -> Outcome {
    let mut output = Bounded::default();
    let mut repair = Repair::default();
    let mut buf = vec![0; CHUNK];
    let mut open = true;
    let mut status: Option<ExitStatus> = None;
    let mut stop: Option<Stop> = None;
    // Armed once: when the process has ended, or when it was told to.
    let mut last: Option<Instant> = None;
    let started = Instant::now();
    let first = started + if plan.background { FIRST_LOOK.min(plan.limit) } else { plan.limit };
    while open || status.is_none() {
        let until = last.unwrap_or(first);
        tokio::select! {
            biased;
            () = ctx.cancel().cancelled(), if stop.is_none() => {
                stop = Some(Stop::Interrupted);
                running.terminate();
                last = Some(Instant::now() + FAREWELL);
            }
            () = tokio::time::sleep_until(until) => {
                if last.is_some() || plan.background {
                    break;
                }
                stop = Some(Stop::TimedOut);
                running.terminate();
                last = Some(Instant::now() + OVERTIME);
            }
            ended = running.wait(), if status.is_none() => {
                // A process that cannot be waited for is as good as ended.
                status = Some(ended.unwrap_or_else(|_| ExitStatus::from_raw(0x7f00)));
                last = last.or(Some(Instant::now() + GRACE));
            }
            read = pipe.read(&mut buf), if open => match read {
                Ok(0) | Err(_) => open = false,
                Ok(n) => {
                    let text = repair.push(&buf[..n]);
                    ctx.emit(&text).await;
                    output.push(&text);
                }
            }
        }
    }
    let rest = repair.finish();
    if !rest.is_empty() {
        ctx.emit(&rest).await;
        output.push(&rest);
    }
    let left_out = output.left_out();
    let seen = Seen { text: output.finish(), left_out, status, stop, open: open.then_some(pipe) };
    conclude(ctx, running, seen, plan).await
}

/// Words the result, and ends or hands over what is left of the group.
async fn conclude(ctx: &dyn ToolCtx, running: Running, seen: Seen, plan: &Plan) -> Outcome {
    let Seen { mut text, left_out, status, stop, open } = seen;
    if text.is_empty() {
        text.push_str("(no output)");
    }
    if !text.ends_with('\n') {
        text.push('\n');
    }
    let gone = match status {
        Some(_) if !running.is_alive() => "ended".to_owned(),
        _ => format!("told to end, and has {} s for it", PATIENCE.as_secs()),
    };
    let end = match (stop, status) {
        (Some(Stop::Interrupted), _) => format!("[interrupted; the process group was {gone}]"),
        (Some(Stop::TimedOut), _) => {
            format!("[timed out after {} ms; the process group was {gone}]", plan.limit.as_millis())
        }
        (None, Some(status)) => match (status.code(), status.signal()) {
            (Some(code), _) => format!("[exit code {code}]"),
            (None, Some(signal)) => format!("[ended by signal {signal}]"),
            (None, None) => "[ended]".to_owned(),
        },
        (None, None) if plan.background => "[it runs on in the background]".to_owned(),
        (None, None) => "[ended, nobody knows how]".to_owned(),
    };
    text.push_str(&end);
    let mut ok = stop.is_none() && status.map_or(plan.background, |s| s.success());
    if stop.is_some() {
        match open {
            Some(pipe) => running.end_unheard(pipe, PATIENCE),
            None => running.end(PATIENCE),
        }
    } else if status.is_some() && open.is_some() && !running.is_alive() {
        running.release();
        text.push_str(ESCAPED);
    } else if open.is_some() || status.is_none() || outlives(&running).await {
        let group = running.group();
        let holds = if open.is_some() && status.is_some() { " and holds its output" } else { "" };
        match ctx.leave(Left { running, pipe: open, command: plan.command.clone() }) {
            Some(kept) => {
                let goes = match &kept.output {
                    Some(path) => format!("; what it writes from here on goes to {}", path.display()),
                    None => String::new(),
                };
                text.push_str(&format!(
                    "\n[job {}: process group {group} still runs{holds}{goes}. It ends with the session, or by: kill -- -{group}]",
                    kept.job
                ));
            }
            None => {
                ok = false;
                text.push_str("\n[what it left running was ended: too many jobs run in the background already]");
            }
        }
    } else {
        running.release();
    }
    Outcome { ok, result: text, left_out, ..Outcome::default() }
}

/// Whether something of a group goes on after its leader: a pipeline's other ends take a moment.
async fn outlives(running: &Running) -> bool {
    for _ in 0..LAST_LOOKS.0 {
        if !running.is_alive() {
            return false;
        }
        tokio::time::sleep(LAST_LOOKS.1).await;
    }
    running.is_alive()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::process::testing::{becomes_gone, is_gone};
    use crate::host::sandbox::Sandbox;
    use crate::tools::testing::{TestCtx, raw};
    use glrs_protocol::types::Decision;
    use serde_json::json;
    use std::sync::atomic::Ordering;

    async fn run(ctx: &TestCtx, command: &str) -> Outcome {
        let call = crate::tools::testing::run(&Bash, ctx, json!({"command": command}));
        tokio::time::timeout(Duration::from_secs(60), call).await.expect("the call does not return")
    }

    #[tokio::test]
    async fn output_exit_code_and_order() {
        let ctx = TestCtx::new();
        let out = run(&ctx, "echo a; echo b >&2; pwd; exit 3").await;
        assert_eq!(out.result, format!("a\nb\n{}\n[exit code 3]", ctx.cwd().display()));
        assert!(!out.ok);
        assert_eq!(ctx.effects(), [Effect::Exec("echo a; echo b >&2; pwd; exit 3".into())]);
        assert!(ctx.emitted().starts_with("a\nb\n"));
        let out = run(&ctx, "true").await;
        assert_eq!((out.ok, out.result.as_str()), (true, "(no output)\n[exit code 0]"));
        let out = run(&ctx, "kill -9 $$").await;
        assert_eq!((out.ok, out.result.as_str()), (false, "(no output)\n[ended by signal 9]"));
    }

    #[tokio::test]
    async fn stdin_is_closed_and_the_environment_is_the_sessions() {
        let ctx = TestCtx::new();
        let out = run(&ctx, "cat; read x || echo eof; echo \"${CARGO_MANIFEST_DIR-unset} $HOME\"").await;
        assert_eq!(out.result, format!("eof\nunset {}\n[exit code 0]", ctx.cwd().display()));
    }

    #[tokio::test]
    async fn odd_bytes_are_repaired_across_chunks() {
        let ctx = TestCtx::new();
        // A character in two writes: the first waits for a sign that what came before was shown.
        let call = run(&ctx, r"printf 'a\303'; while [ ! -e go ]; do sleep 0.01; done; printf '\251\000\377b'");
        let go = async {
            ctx.shown(|text| text.contains('a')).await;
            ctx.write("go", "");
        };
        let (out, ()) = tokio::join!(call, go);
        assert_eq!(out.result, "aé\u{2400}\u{FFFD}b\n[exit code 0]");
        assert_eq!(ctx.emitted(), "aé\u{2400}\u{FFFD}b");
    }

    #[tokio::test]
    async fn a_line_of_five_megabytes_and_too_much_output() {
        let ctx = TestCtx::new();
        let out = run(&ctx, "head -c 5000000 /dev/zero | tr '\\0' x").await;
        assert!(out.ok);
        assert_eq!(out.result.len(), 5_000_000 + "\n[exit code 0]".len());
        let out = run(&ctx, "echo first; head -c 40000000 /dev/zero | tr '\\0' x; echo last").await;
        assert!(out.result.len() <= crate::tools::MAX_RESULT);
        assert!(out.result.starts_with("first\n") && out.result.ends_with("last\n[exit code 0]"));
        assert!(out.result.contains("bytes left out"));
        assert!(out.left_out > 20_000_000, "{}", out.left_out);
    }

    #[tokio::test]
    async fn what_is_left_running_is_reported_and_handed_over() {
        let ctx = TestCtx::new();
        let out = run(&ctx, "sleep 300 & echo $!").await;
        assert!(out.ok && out.result.contains("[exit code 0]\n[job 1: process group"), "{}", out.result);
        assert!(out.result.contains("holds its output"), "{}", out.result);
        let first: i32 = out.result.lines().next().unwrap().parse().unwrap();
        let out = run(&ctx, "sleep 300 >/dev/null 2>&1 & echo $!").await;
        assert!(out.result.contains("[job 2: ") && !out.result.contains("holds its output"), "{}", out.result);
        let second: i32 = out.result.lines().next().unwrap().parse().unwrap();
        assert!(!is_gone(first) && !is_gone(second));
        let left = ctx.left();
        assert_eq!((left[0].pipe.is_some(), left[1].pipe.is_some()), (true, false));
        drop(left);
        becomes_gone(first).await;
        becomes_gone(second).await;
        // What ends by itself right behind its leader is not left.
        assert!(run(&ctx, "sleep 0.02 >/dev/null 2>&1 & true").await.result.ends_with("[exit code 0]"));
    }

    #[tokio::test]
    async fn a_command_for_the_background_is_left_unless_it_ends_at_once() {
        let ctx = TestCtx::new();
        let call = |command: &str| json!({"command": command, "background": true});
        let out = crate::tools::testing::run(&Bash, &ctx, call("echo $$; exec sleep 300")).await;
        assert!(out.ok && out.result.contains("[it runs on in the background]\n[job 1: "), "{}", out.result);
        let pid: i32 = out.result.lines().next().unwrap().parse().unwrap();
        drop(ctx.left());
        becomes_gone(pid).await;
        let out = crate::tools::testing::run(&Bash, &ctx, call("echo no; exit 3")).await;
        assert_eq!((out.ok, out.result.as_str()), (false, "no\n[exit code 3]"));
        ctx.leave_nothing();
        let out = crate::tools::testing::run(&Bash, &ctx, call("echo $$; exec sleep 300")).await;
        assert!(!out.ok && out.result.contains("was ended"), "{}", out.result);
        becomes_gone(out.result.lines().next().unwrap().parse().unwrap()).await;
    }

    #[tokio::test]
    async fn in_a_sandbox_it_writes_only_where_it_may() {
        let ctx = TestCtx::new();
        let other = tempfile::tempdir().unwrap();
        let target = other.path().join("f").display().to_string();
        let sandbox = Sandbox { writable: vec![ctx.cwd().to_path_buf()], network: true };
        let there = sandbox.check().is_ok();
        ctx.confine(sandbox);
        let out = run(&ctx, &format!("echo in > f; cat f; echo out > {target}; echo $?; cat /proc/self/comm")).await;
        if !there {
            assert!(!out.ok && out.result.contains("nothing was run") && ctx.asked().is_empty(), "{}", out.result);
            return;
        }
        assert!(out.result.starts_with("in\n") && out.result.contains("\n1\ncat\n"), "{}", out.result);
        assert!(!other.path().join("f").exists());
        // The thread that started it is gone; ours is free.
        std::fs::write(other.path().join("f"), "x").unwrap();
    }

    /// Cancels once the grandchild has said its number, which it answers.
    async fn cancelled(ctx: &TestCtx, command: &str) -> (Outcome, i32, Duration) {
        let cancel = async {
            let text = ctx.shown(|text| text.contains('\n')).await;
            ctx.cancel.cancel();
            (text.lines().next().unwrap().parse().unwrap(), Instant::now())
        };
        let (out, (pid, at)) = tokio::join!(run(ctx, command), cancel);
        (out, pid, at.elapsed())
    }

    #[tokio::test]
    async fn esc_ends_the_whole_group_and_keeps_what_came() {
        let ctx = TestCtx::new();
        let (out, pid, _) = cancelled(&ctx, "sh -c 'echo $$; sleep 300; true' & sleep 300; true").await;
        assert!(!out.ok && out.result.contains("[interrupted"), "{}", out.result);
        assert!(out.result.starts_with(&format!("{pid}\n")));
        becomes_gone(pid).await;
    }

    #[tokio::test]
    async fn esc_does_not_wait_for_what_ignores_it() {
        let ctx = TestCtx::new();
        let (out, pid, took) = cancelled(&ctx, "trap '' TERM; echo $$; while :; do sleep 300; done").await;
        assert!(!out.ok);
        assert!(took < PATIENCE, "{took:?}");
        becomes_gone(pid).await;
    }

    #[tokio::test]
    async fn what_is_interrupted_may_tidy_up_and_is_asked_once() {
        let ctx = TestCtx::new();
        let command = "trap 'echo asked >> asked; sleep 0.5; echo last words; : > saved; exit' TERM; echo $$; \
                       while :; do sleep 0.02; done";
        let (out, pid, _) = cancelled(&ctx, command).await;
        assert!(!out.ok && out.result.starts_with(&format!("{pid}\n")), "{}", out.result);
        assert!(
            out.result.contains("[interrupted; the process group was told to end") && !ctx.path("saved").exists(),
            "{}",
            out.result
        );
        becomes_gone(pid).await;
        assert!(ctx.path("saved").exists());
        assert_eq!(ctx.read("asked"), "asked\n");
    }

    #[tokio::test]
    async fn what_leaves_its_group_is_said_to_stay() {
        let ctx = TestCtx::new();
        if run(&ctx, "command -v setsid").await.ok {
            let out =
                run(&ctx, "setsid -f sh -c 'echo $$ > pid; exec sleep 300'; while [ ! -s pid ]; do sleep 0.01; done")
                    .await;
            let pid: i32 = ctx.read("pid").trim().parse().unwrap();
            let gone = rustix::process::Pid::from_raw(pid).unwrap();
            rustix::process::kill_process(gone, rustix::process::Signal::KILL).unwrap();
            assert!(out.ok && out.result.contains("does not end with the session"), "{}", out.result);
            assert!(!out.result.contains("[job ") && ctx.left().is_empty());
        }
    }

    #[tokio::test]
    async fn time_runs_out() {
        let ctx = TestCtx::new();
        let input = json!({"command": "echo $$; exec sleep 300", "timeoutMs": 300});
        let out = crate::tools::testing::run(&Bash, &ctx, input).await;
        assert!(!out.ok && out.result.contains("[timed out after 300 ms"), "{}", out.result);
        becomes_gone(out.result.lines().next().unwrap().parse().unwrap()).await;
        // A call cannot take more time than its session gives it.
        ctx.timeout_ms.store(50, Ordering::Relaxed);
        let input = json!({"command": "exec sleep 300", "timeoutMs": 1_000_000});
        let out = crate::tools::testing::run(&Bash, &ctx, input).await;
        assert!(out.result.contains("after 50 ms"), "{}", out.result);
    }

    #[tokio::test]
    async fn a_denied_or_broken_call_runs_nothing() {
        let ctx = TestCtx::new();
        for input in [
            json!(null),
            json!({"command": 1}),
            json!({"command": " "}),
            json!({"command": "touch f\u{0}"}),
            json!({"command": "touch f", "timeoutMs": "soon"}),
        ] {
            let out = crate::tools::testing::run(&Bash, &ctx, input.clone()).await;
            assert!(!out.ok && !out.result.is_empty(), "{input}");
            Bash.detail(&raw(&input));
        }
        ctx.answer(Decision::Deny, None);
        assert!(!run(&ctx, "touch f").await.ok);
        assert!(!ctx.path("f").exists());
        assert_eq!(Bash.detail(&raw(&json!({"command": "a\n  b"}))), "a b");
    }

    #[tokio::test]
    async fn without_bash_there_is_sh_and_without_a_directory_nothing() {
        assert_eq!(shell(&Env::default()), PathBuf::from("/bin/sh"));
        let mut env = Env::default();
        env.set("PATH", "relative:/nowhere");
        assert_eq!(shell(&env), PathBuf::from("/bin/sh"));
        let ctx = TestCtx::new();
        std::fs::remove_dir_all(ctx.cwd()).unwrap();
        let out = run(&ctx, "true").await;
        assert!(!out.ok && out.result.contains("The working directory is gone"), "{}", out.result);
    }

    #[tokio::test]
    async fn people_are_shown_the_command_first() {
        let ctx = TestCtx::new();
        let input = json!({"command": "echo a;\n echo b", "description": "harmless"});
        assert!(crate::tools::testing::run(&Bash, &ctx, input).await.ok);
        assert_eq!(ctx.asked(), ["echo a; echo b (harmless)"]);
    }
}
