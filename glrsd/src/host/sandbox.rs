//! Keeping a command to where it may write, by the kernel's own means (Landlock).
//!
//! Owns what a sandbox is, whether this kernel has it, and entering it. A thread enters one for
//! good, and what it starts is in it from its first instruction: so a child is started by a thread
//! of its own, and nothing has to be done between fork and exec. Must not know why something is
//! kept in one.

use std::path::PathBuf;

/// What a sandbox lets through. Reading is not restricted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sandbox {
    /// Directories below which anything may be written.
    pub writable: Vec<PathBuf>,
    /// Whether TCP connections may be made and accepted.
    pub network: bool,
}

/// Why a command does not run in a sandbox. It does not run at all then.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SandboxError {
    /// The kernel cannot do it.
    #[error(
        "the sandbox is on and this kernel cannot keep {what}: nothing was run. Linux {since} or newer with Landlock \
         switched on can; \"sandbox\": {instead} in the configuration runs commands without that"
    )]
    Unsupported {
        /// What it cannot keep a command from.
        what: &'static str,
        /// The kernel that can.
        since: &'static str,
        /// What to configure instead.
        instead: &'static str,
    },
    /// Entering it failed.
    #[error("the sandbox could not be entered: nothing was run ({why})")]
    Failed {
        /// The system's reason.
        why: String,
    },
}

/// What this kernel can keep commands from, for people.
pub fn available() -> String {
    match (supported(true), supported(false)) {
        (Ok(()), _) => "files and TCP".to_owned(),
        (Err(_), Ok(())) => "files".to_owned(),
        (_, Err(_)) if cfg!(target_os = "linux") => {
            "nothing (it needs Linux 6.2 or newer with Landlock switched on)".to_owned()
        }
        (_, Err(_)) => "nothing (it needs Linux)".to_owned(),
    }
}

impl Sandbox {
    /// Whether this kernel has what it takes.
    ///
    /// # Errors
    /// When it has not.
    pub fn check(&self) -> Result<(), SandboxError> {
        if supported(false).is_err() {
            return Err(SandboxError::Unsupported {
                what: "commands from writing elsewhere",
                since: "6.2",
                instead: "false",
            });
        }
        if !self.network && supported(true).is_err() {
            return Err(SandboxError::Unsupported { what: "commands from TCP", since: "6.7", instead: "true" });
        }
        Ok(())
    }

    /// What it keeps a command to, for people.
    pub fn describe(&self) -> String {
        let places: Vec<String> = self.writable.iter().map(|p| p.display().to_string()).collect();
        let net = if self.network { "" } else { ", no TCP" };
        format!("writes only below {}{net}", places.join(" and "))
    }

    /// Puts the calling thread, and whatever it starts, into the sandbox for good.
    ///
    /// # Errors
    /// When it is not wholly in it.
    pub fn enter(&self) -> Result<(), SandboxError> {
        self.check()?;
        enter(self)
    }
}

#[cfg(not(target_os = "linux"))]
fn supported(_network: bool) -> Result<(), ()> {
    Err(())
}

#[cfg(not(target_os = "linux"))]
fn enter(_sandbox: &Sandbox) -> Result<(), SandboxError> {
    Err(SandboxError::Failed { why: "this system has none".to_owned() })
}

#[cfg(target_os = "linux")]
use linux::{enter, supported};

#[cfg(target_os = "linux")]
mod linux {
    use super::{Sandbox, SandboxError};
    use landlock::{
        ABI, Access, AccessFs, AccessNet, CompatLevel, Compatible, Ruleset, RulesetAttr, RulesetCreated,
        RulesetCreatedAttr, RulesetError, RulesetStatus, Scope, path_beneath_rules,
    };

    /// What every shell needs to write to.
    const DEVICES: [&str; 8] =
        ["/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom", "/dev/tty", "/dev/ptmx", "/dev/pts"];

    /// The rules without the places: with the third version nothing can be truncated around them,
    /// the fourth knows TCP.
    fn ruleset(network: bool) -> Result<RulesetCreated, RulesetError> {
        let mut rules = Ruleset::default()
            .set_compatibility(CompatLevel::HardRequirement)
            .handle_access(AccessFs::from_write(ABI::V3))?;
        if !network {
            // Sockets by name in the abstract space are a way out where the kernel can close it.
            rules = rules
                .handle_access(AccessNet::from_all(ABI::V4))?
                .set_compatibility(CompatLevel::BestEffort)
                .scope(Scope::AbstractUnixSocket)?
                .set_compatibility(CompatLevel::HardRequirement);
        }
        rules.create()
    }

    /// Whether the kernel takes the rules.
    pub(super) fn supported(tcp: bool) -> Result<(), RulesetError> {
        ruleset(!tcp).map(|_| ())
    }

    pub(super) fn enter(sandbox: &Sandbox) -> Result<(), SandboxError> {
        let entered = || {
            ruleset(sandbox.network)?
                .add_rules(path_beneath_rules(&sandbox.writable, AccessFs::from_write(ABI::V3)))?
                .add_rules(path_beneath_rules(DEVICES, AccessFs::WriteFile | AccessFs::Truncate))?
                .restrict_self()
        };
        match entered() {
            Ok(status) if status.no_new_privs && status.ruleset != RulesetStatus::NotEnforced => Ok(()),
            Ok(_) => Err(SandboxError::Failed { why: "the kernel does not enforce it".to_owned() }),
            Err(e) => Err(SandboxError::Failed { why: e.to_string() }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_missing_is_said_with_a_way_out() {
        let e = SandboxError::Unsupported { what: "commands from TCP", since: "6.7", instead: "true" };
        let words = e.to_string();
        assert!(words.contains("nothing was run") && words.contains("6.7") && words.contains("\"sandbox\": true"));
    }

    #[test]
    fn a_thread_is_kept_and_its_neighbours_are_not() {
        let dir = tempfile::tempdir().unwrap();
        let (inside, outside) = (dir.path().join("in"), dir.path().join("out"));
        std::fs::create_dir(&inside).unwrap();
        std::fs::create_dir(&outside).unwrap();
        std::fs::write(outside.join("f"), "x").unwrap();
        let sandbox = Sandbox { writable: vec![inside.clone()], network: true };
        if let Err(e) = sandbox.check() {
            assert!(sandbox.enter().is_err());
            println!("skipped: {e}");
            return;
        }
        let (i, o) = (inside.clone(), outside.clone());
        std::thread::spawn(move || {
            sandbox.enter().unwrap();
            std::fs::write(i.join("f"), "y").unwrap();
            std::fs::write("/dev/null", "y").unwrap();
            assert_eq!(std::fs::read(o.join("f")).unwrap(), b"x");
            assert!(std::fs::write(o.join("f"), "y").is_err());
            assert!(std::fs::write(o.join("g"), "y").is_err());
            assert!(std::fs::remove_file(o.join("f")).is_err());
            assert!(std::fs::rename(i.join("f"), o.join("h")).is_err());
        })
        .join()
        .unwrap();
        std::fs::write(outside.join("g"), "z").unwrap();
    }
}
