//! Getting a part: npm and pip, into a scratch directory that goes with the test.
//!
//! Owns the minute an installation may take and the reasons why there is none.

use glrs_tests::process::{Proc, Signal};
use std::ffi::OsStr;
use std::fs::{self, File};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// How long one installation may take.
const MINUTE: Duration = Duration::from_secs(60);

/// What was installed, until it is dropped.
pub struct Installed {
    dir: TempDir,
}

impl Installed {
    fn new() -> Result<Self, String> {
        let dir = tempfile::Builder::new().prefix("gf").tempdir_in("/tmp").map_err(|e| e.to_string())?;
        Ok(Self { dir })
    }

    /// A path inside.
    pub fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// A file of our own beside it.
    pub fn put(&self, name: &str, text: &str) -> PathBuf {
        let path = self.path(name);
        fs::write(&path, text).expect("a file in the scratch directory");
        path
    }
}

/// Packages of npm, for node.
pub fn npm(packages: &[&str]) -> Result<Installed, String> {
    let there = Installed::new()?;
    there.put("package.json", r#"{"private": true, "type": "module"}"#);
    let mut command = Command::new("npm");
    command.args(["install", "--no-audit", "--no-fund", "--ignore-scripts", "--loglevel=error"]).args(packages);
    run(command, there.dir.path(), Instant::now() + MINUTE)?;
    Ok(there)
}

/// Packages of PyPI, in an environment of their own. Without `deps` only they themselves.
pub fn pip(packages: &[&str], deps: bool) -> Result<Installed, String> {
    let there = Installed::new()?;
    let deadline = Instant::now() + MINUTE;
    let mut venv = Command::new("python3");
    venv.args(["-m", "venv", "."]);
    run(venv, there.dir.path(), deadline)?;
    let mut command = Command::new(there.path("bin/python"));
    command.args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--only-binary", ":all:"]);
    command.args((!deps).then_some("--no-deps")).args(packages);
    run(command, there.dir.path(), deadline)?;
    Ok(there)
}

/// Runs a command to its end, or ends it with all it started.
pub fn run(mut command: Command, dir: &Path, deadline: Instant) -> Result<(), String> {
    let name = Path::new(command.get_program()).file_name().unwrap_or(OsStr::new("?")).display().to_string();
    let told = dir.join("install.log");
    let log = File::create(&told).map_err(|e| e.to_string())?;
    let out = log.try_clone().map_err(|e| e.to_string())?;
    command.current_dir(dir).stdin(Stdio::null()).stdout(out).stderr(log).process_group(0);
    let mut child = command.spawn().map_err(|e| format!("{name} cannot be run: {e}"))?;
    let process = Proc::open(child.id()).ok_or_else(|| format!("{name} cannot be waited for"))?;
    if !process.wait(deadline.saturating_duration_since(Instant::now())) {
        // Its own group: nothing but what it started itself.
        let group = i32::try_from(child.id()).ok().and_then(rustix::process::Pid::from_raw);
        let _ = group.map(|pid| rustix::process::kill_process_group(pid, Signal::KILL));
        let _ = child.wait();
        return Err(format!("{name} was not done within {} s", MINUTE.as_secs()));
    }
    let status = child.wait().map_err(|e| e.to_string())?;
    if status.success() {
        return Ok(());
    }
    let said = fs::read(&told).unwrap_or_default();
    let said = String::from_utf8_lossy(&said);
    let last: Vec<&str> = said.lines().rev().filter(|l| !l.trim().is_empty()).take(3).collect();
    Err(format!("{name} ended with {status}: {}", last.into_iter().rev().collect::<Vec<_>>().join(" / ")))
}
