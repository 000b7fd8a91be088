//! Running a program that a document shows, bounded in time.

use glrs_tests::process::Proc;
use glrs_tests::{Home, PATIENCE};
use rustix::process::Signal;
use std::io::{Read, Write};
use std::process::{Command, Stdio};

/// What a program did.
#[derive(Debug)]
pub struct Ran {
    pub code: Option<i32>,
    pub stdout: String,
    pub stderr: String,
}

/// Whether a program is there and works; `version` makes it say which it is.
pub fn there(home: &Home, name: &str, version: &str) -> bool {
    let mut command = Command::new(name);
    command.arg(version).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    surround(&mut command, home).status().is_ok_and(|s| s.success())
}

/// Gives a program the home's environment, with `glrs` first on its path.
fn surround<'a>(command: &'a mut Command, home: &Home) -> &'a mut Command {
    let bin = home.other_dir("b");
    let link = bin.join("glrs");
    if link.symlink_metadata().is_err() {
        std::os::unix::fs::symlink(glrs_tests::exe(), &link).expect("a link to glrs");
    }
    let path = format!("{}:{}", bin.display(), home.env()["PATH"]);
    // What the loader and Python's launcher need of the caller's environment.
    let kept = ["LD_LIBRARY_PATH", "PYENV_ROOT", "PYENV_VERSION"];
    let kept = kept.into_iter().filter_map(|name| Some((name, std::env::var_os(name)?)));
    command.env_clear().envs(home.env()).envs(kept).env("PATH", path).current_dir(home.work())
}

/// Runs a program in the home's working directory, with `glrs` first on its path.
pub fn run(home: &Home, program: &str, args: &[&str], stdin: &str) -> Ran {
    let mut command = Command::new(program);
    surround(command.args(args), home);
    let mut child = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap_or_else(|e| panic!("{program}: {e}"));
    let process = Proc::open(child.id()).expect("a child can be waited for");
    child.stdin.take().expect("a piped stdin").write_all(stdin.as_bytes()).expect("a short text fits into a pipe");
    let read = |pipe: Box<dyn Read + Send>| {
        std::thread::spawn(move || {
            let (mut pipe, mut text) = (pipe, String::new());
            let _ = pipe.read_to_string(&mut text);
            text
        })
    };
    let stdout = read(Box::new(child.stdout.take().expect("a piped stdout")));
    let stderr = read(Box::new(child.stderr.take().expect("a piped stderr")));
    let ended = process.wait(PATIENCE);
    if !ended {
        process.signal(Signal::KILL);
    }
    let code = child.wait().expect("a child's status").code();
    let ran = Ran { code, stdout: stdout.join().expect("stdout"), stderr: stderr.join().expect("stderr") };
    assert!(ended, "{program} did not end within {PATIENCE:?}: {ran:#?}");
    ran
}
