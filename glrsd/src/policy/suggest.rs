//! What "always" would add.
//!
//! Owns: which rule is offered for an action, and for which none is. Offers only what is narrow
//! enough to be meant, and only rules that let the action itself run.

use super::{Around, rule, shell};
use std::path::Path;

/// Programs whose arguments say what happens, so that no prefix of them is safe to let run.
const DANGEROUS: &[&str] = &[
    "rm",
    "rmdir",
    "unlink",
    "mv",
    "dd",
    "mkfs",
    "shred",
    "truncate",
    "chmod",
    "chown",
    "chgrp",
    "chattr",
    "ln",
    "tee",
    "install",
    "sudo",
    "doas",
    "su",
    "env",
    "nohup",
    "nice",
    "ionice",
    "time",
    "timeout",
    "command",
    "exec",
    "builtin",
    "xargs",
    "parallel",
    "watch",
    "setsid",
    "stdbuf",
    "chroot",
    "unshare",
    "flock",
    "strace",
    "busybox",
    "find",
    "fd",
    "sh",
    "bash",
    "dash",
    "zsh",
    "ksh",
    "ash",
    "fish",
    "eval",
    "source",
    ".",
    "trap",
    "alias",
    "python",
    "python2",
    "python3",
    "perl",
    "ruby",
    "node",
    "deno",
    "bun",
    "php",
    "lua",
    "awk",
    "gawk",
    "sed",
    "curl",
    "wget",
    "ssh",
    "scp",
    "sftp",
    "rsync",
    "nc",
    "ncat",
    "kill",
    "killall",
    "pkill",
    "crontab",
    "at",
    "systemctl",
    "shutdown",
    "npx",
    "bunx",
    "pnpx",
    "uvx",
    "pipx",
    "cp",
    "export",
    "declare",
    "typeset",
    "readonly",
    "set",
    "hash",
    "enable",
    "tar",
    "vim",
    "vi",
    "nvim",
    "view",
    "ex",
    "ed",
    "emacs",
    "nano",
    "mawk",
    "nawk",
    "make",
    "gmake",
    "cmake",
    "ninja",
    "gdb",
    "lldb",
    "valgrind",
    "ltrace",
    "perf",
    "script",
    "screen",
    "tmux",
    "expect",
    "unbuffer",
    "entr",
    "hyperfine",
    "run-parts",
    "systemd-run",
    "pkexec",
    "runuser",
    "setpriv",
    "taskset",
    "chrt",
    "sqlite3",
    "psql",
    "mysql",
    "tclsh",
    "java",
    "julia",
    "Rscript",
    "tsx",
    "ts-node",
    "pwsh",
    "osascript",
    "patch",
    "zip",
    "unzip",
    "cpio",
    "openssl",
    "man",
    "less",
    "more",
];
/// Programs that mostly look, but with some option run another one or write a file (`rg --pre`,
/// `sort -o`, `go test -exec`): the very command is offered, not what begins like it.
const EXACT: &[&str] =
    &["rg", "ag", "ack", "sort", "uniq", "shuf", "split", "csplit", "tree", "iconv", "xxd", "yq", "go", "ctags"];
/// What of git has no such option. `diff`, `log` and `show` write with `--output`, `grep` runs what
/// `-O` names, `fetch`, `pull`, `clone` and `ls-remote` what `--upload-pack` does.
const HARMLESS_GIT: &[&str] = &[
    "status",
    "add",
    "commit",
    "rev-parse",
    "rev-list",
    "merge-base",
    "ls-files",
    "ls-tree",
    "describe",
    "show-ref",
    "name-rev",
    "count-objects",
    "check-ignore",
];
/// Programs whose second word is what they do.
const WITH_VERBS: &[&str] = &[
    "git",
    "cargo",
    "npm",
    "pnpm",
    "yarn",
    "docker",
    "podman",
    "kubectl",
    "helm",
    "gh",
    "glab",
    "rustup",
    "pip",
    "pip3",
    "uv",
    "poetry",
    "bundle",
    "gem",
    "dotnet",
    "mix",
    "gradle",
    "mvn",
    "brew",
    "apt",
    "terraform",
];
/// Of those, what deletes, publishes or runs anything at all.
const DANGEROUS_VERBS: &[&str] = &[
    "push",
    "clean",
    "reset",
    "rebase",
    "bisect",
    "filter-branch",
    "submodule",
    "config",
    "difftool",
    "mergetool",
    "exec",
    "x",
    "dlx",
    "run",
    "install",
    "uninstall",
    "publish",
    "login",
    "logout",
    "delete",
    "apply",
    "destroy",
    "rm",
    "rmi",
    "kill",
    "prune",
    "api",
    "alias",
    "remove",
    "purge",
    "generate",
    "create",
    "init",
    "auth",
    "secret",
    "yank",
    "am",
    "daemon",
    "shell",
    "help",
    "archive",
    "bundle",
    "worktree",
    "remote",
    "send-email",
];

/// The rule that allows this very command, if its text says no more than itself.
fn exact(tool: &str, part: &shell::Part) -> Option<String> {
    let text = part.canonical();
    let tame = !text.contains(['*', '(', ')']) && !text.chars().any(char::is_control) && text.len() <= 200;
    tame.then(|| format!("{tool}({text})"))
}

/// The rule to offer for a command, if there is one.
pub(super) fn command(tool: &str, text: &str) -> Option<String> {
    let line = shell::parse(text);
    let [part] = line.parts.as_slice() else { return None };
    if !line.plain || text.contains('\n') || text.trim_end().ends_with(['&', '|', ';']) {
        return None;
    }
    let first = part.words.first()?;
    let name = first.rsplit('/').next().unwrap_or(first);
    // Versioned interpreters (python3.12) and makers of file systems (mkfs.ext4) are the same thing.
    let stem = name.split('.').next().filter(|s| !s.is_empty()).unwrap_or(name);
    if [name, stem].iter().any(|n| DANGEROUS.contains(n)) || first.contains(['*', '(', ')', '[']) {
        return None;
    }
    if EXACT.contains(&name) {
        return exact(tool, part);
    }
    if !WITH_VERBS.contains(&name) {
        return Some(format!("{tool}({first}*)"));
    }
    let verb = |word: &String| {
        word.starts_with(|c: char| c.is_ascii_lowercase())
            && word.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | ':'))
    };
    let second = part.words.get(1).filter(|w| verb(w))?;
    // A package's own script is named by the third word.
    if second == "run" && matches!(name, "npm" | "pnpm" | "yarn") {
        let third = part.words.get(2).filter(|w| verb(w))?;
        return Some(format!("{tool}({first} run {third}*)"));
    }
    if second == "run" && name == "cargo" {
        return Some(format!("{tool}(cargo run*)"));
    }
    if name == "git" && !DANGEROUS_VERBS.contains(&second.as_str()) && !HARMLESS_GIT.contains(&second.as_str()) {
        return exact(tool, part);
    }
    (!DANGEROUS_VERBS.contains(&second.as_str())).then(|| format!("{tool}({first} {second}*)"))
}

/// The rule to offer for a write, if there is one: the directory inside cwd, else the very file.
pub(super) fn write(path: &Path, around: &Around) -> Option<String> {
    if !rule::is_settled(path) || super::is_guarded(path, around) {
        return None;
    }
    let Ok(relative) = path.strip_prefix(&around.cwd) else {
        return Some(format!("write({})", escape(path.to_str()?)?));
    };
    match relative.parent().filter(|p| !p.as_os_str().is_empty()) {
        Some(dir) => Some(format!("write({}/**)", escape(dir.to_str()?)?)),
        None => Some(format!("write({})", escape(relative.to_str()?)?)),
    }
}

/// A path as a pattern for itself. None for names that would not survive in a rule.
fn escape(path: &str) -> Option<String> {
    if path.chars().any(|c| c.is_control() || matches!(c, '(' | ')' | '\\')) || path.trim() != path {
        return None;
    }
    let mut out = String::with_capacity(path.len());
    for c in path.chars() {
        if "*?[]{}!,".contains(c) {
            out.push('\\');
        }
        out.push(c);
    }
    Some(out)
}
