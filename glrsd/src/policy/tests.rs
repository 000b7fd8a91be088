//! Tables of what is judged how, properties, and a real shell as the referee.

use super::*;
use proptest::prelude::*;

fn rules(allow: &[&str], deny: &[&str]) -> Rules {
    let own = |list: &[&str]| list.iter().map(|s| (*s).to_owned()).collect();
    Rules { allow: own(allow), deny: own(deny) }
}

fn judge(mode: Mode, rules: &Rules, tool: &str, effect: Effect) -> Verdict {
    decide(mode, rules, &Action { tool, effect, asked: None, around: &around() })
}

fn around() -> Around {
    let paths = |list: &[&str]| list.iter().map(PathBuf::from).collect();
    Around {
        cwd: "/w/p".into(),
        homes: paths(&["/h", "/real/h"]),
        guarded: paths(&["/w/p/data/glrs", "/real/h/.config/glrs"]),
    }
}

fn runs(allow: &[&str], command: &str) -> bool {
    judge(Mode::Ask, &rules(allow, &[]), "bash", Effect::Exec(command.to_owned())) == Verdict::Run
}

fn denied(deny: &str, command: &str) -> bool {
    let verdict = judge(Mode::All, &rules(&["bash"], &[deny]), "bash", Effect::Exec(command.to_owned()));
    matches!(verdict, Verdict::Deny { rule } if rule == deny)
}

fn write(path: &str) -> Effect {
    Effect::Write(vec![PathBuf::from(path)])
}

fn offered(command: &str) -> Option<String> {
    match judge(Mode::Ask, &Rules::default(), "bash", Effect::Exec(command.to_owned())) {
        Verdict::Ask { rule } => rule,
        other => panic!("{command}: {other:?}"),
    }
}

#[test]
fn modes() {
    let none = Rules::default();
    let read = || Effect::Read(vec!["/etc/passwd".into()]);
    let exec = || Effect::Exec("ls".into());
    for mode in [Mode::Ask, Mode::Edits, Mode::All] {
        assert_eq!(judge(mode, &none, "read", read()), Verdict::Run);
        assert_eq!(judge(mode, &none, "plan", Effect::None), Verdict::Run);
        let all = mode == Mode::All;
        assert_eq!(judge(mode, &none, "bash", exec()) == Verdict::Run, all);
        assert_eq!(judge(mode, &none, "write", write("/w/p/a")) == Verdict::Run, mode != Mode::Ask);
        for outside in ["/w/pp/a", "/etc/x", "/w/p/../x", "relative", "/w/p/.git/hooks/pre-commit", "/w/p/.glrs/x"]
            .into_iter()
            .chain(["/w/p/.mcp.json", "/w/p/sub/.MCP.json", "/w/p/data/glrs/allowed.json"])
        {
            assert_eq!(judge(mode, &none, "write", write(outside)) == Verdict::Run, all, "{mode:?} {outside}");
        }
        let both = Effect::Write(vec!["/w/p/a".into(), "/etc/x".into()]);
        assert_eq!(judge(mode, &none, "write", both) == Verdict::Run, all);
        assert_eq!(judge(mode, &none, "write", Effect::Write(vec![])) == Verdict::Run, all);
    }
}

#[test]
fn deny_wins_in_every_mode() {
    for mode in [Mode::Ask, Mode::Edits, Mode::All] {
        let r = rules(&["*", "bash", "write(/**)"], &["bash(rm*)", "write(secret/**)", "mcp__x__*", "read(*.pem)"]);
        let deny = |tool: &str, effect| matches!(judge(mode, &r, tool, effect), Verdict::Deny { .. });
        assert!(deny("bash", Effect::Exec("ls; rm -rf x".into())));
        assert!(deny("write", write("/w/p/secret/a")));
        assert!(deny("edit", write("/w/p/secret/b/c")));
        assert!(deny("write", write("/w/p/x/../secret/a")));
        assert!(deny("mcp__x__do", Effect::Exec(String::new())));
        assert!(deny("read", Effect::Read(vec!["/w/p/a/b.pem".into()])));
        assert!(!deny("write", write("/w/p/secrets")));
        assert!(!deny("mcp__y__do", Effect::None));
    }
}

#[test]
fn deny_rules_know_the_home_and_the_path_as_asked() {
    let denies = |rule: &str, asked: &str, path: &str| {
        let (rules, around) = (rules(&[], &[rule]), around());
        let effect = Effect::Read(vec![path.into()]);
        let action = Action { tool: "read", effect, asked: Some(Path::new(asked)), around: &around };
        matches!(decide(Mode::All, &rules, &action), Verdict::Deny { .. })
    };
    for (rule, asked, path) in [
        ("read(~/.ssh/**)", "/h/.ssh/id", "/real/h/.ssh/id"),
        ("read(~/.ssh/**)", "/w/p/link", "/real/h/.ssh/id"),
        ("read(~/.ssh)", "/h/.ssh/id", "/else/id"),
        ("read(~)", "/h/x", "/h/x"),
        ("read(~/)", "/h/x/y", "/h/x/y"),
        ("read($HOME/.ssh/*)", "/h/.ssh/id", "/real/h/.ssh/id"),
        ("read(${HOME}/.ssh)", "/h/.ssh/id", "/real/h/.ssh/id"),
        ("read(.)", "/w/p/a", "/w/p/a"),
        ("read(~x)", "/w/p/a/~x", "/w/p/a/~x"),
        ("read(./)", "/w/p/a/b", "/w/p/a/b"),
        ("read(secret//x/)", "/w/p/secret/x/y", "/w/p/secret/x/y"),
        ("read(/w/./p/x)", "/w/p/x", "/w/p/x"),
        ("read(//w/p/x)", "/w/p/x", "/w/p/x"),
        ("read(link/**)", "/w/p/link/x", "/data/x"),
        ("read(/w/p/link/x)", "/w/p/./link/x", "/data/x"),
        ("read(*.pem)", "/w/p/a.pem", "/data/blob"),
        ("read(*.pem)", "/w/p/innocent", "/w/p/a.pem"),
    ] {
        assert!(denies(rule, asked, path), "{rule} should forbid {asked}");
    }
    assert!(!denies("read(~/.ssh/**)", "/w/p/.ssh/id", "/w/p/.ssh/id"));
    assert!(!denies("read(~x/**)", "/h/x/y", "/h/x/y"));
    assert!(!denies("read(~/*.pem)", "/h/deep/a.pem", "/h/deep/a.pem"));
    let r = rules(&["write(~/notes/**)"], &[]);
    assert_eq!(judge(Mode::Ask, &r, "write", write("/real/h/notes/a")), Verdict::Run);
    assert_ne!(judge(Mode::Ask, &r, "write", write("/w/p/~/notes/a")), Verdict::Run);
    assert_eq!(check_rule("read(~/.ssh/**)"), Ok(()));
}

#[test]
fn allow_rules_for_files() {
    let can =
        |rule: &str, tool: &str, path: &str| judge(Mode::Ask, &rules(&[rule], &[]), tool, write(path)) == Verdict::Run;
    assert!(can("write(src/**)", "write", "/w/p/src/a/b.rs"));
    assert!(can("write(./src/**)", "edit", "/w/p/src/a.rs"));
    assert!(can("write(*.rs)", "write", "/w/p/a.rs"));
    assert!(!can("write(*.rs)", "write", "/w/p/src/a.rs"));
    assert!(!can("write(src/**)", "write", "/w/p/src/../etc"));
    assert!(!can("write(src/**)", "write", "/w/x/src/a"));
    assert!(!can("edit(src/**)", "write", "/w/p/src/a"));
    assert!(can("write(/tmp/**)", "write", "/tmp/a/b"));
    assert!(can("write(../q/*)", "write", "/w/q/a"));
    assert!(can("write", "edit", "/w/p/a") && !can("write", "write", "/etc/a"));
    assert!(!can("write(src/[)", "write", "/w/p/src/["));
    assert!(!can("write(src/../../**)", "write", "/w/a"));
    assert!(!can("write(", "write", "/w/p/a"));
    // What is guarded is not taken along by a rule that means something else.
    for (rule, path) in [
        ("write(src/**)", "/w/p/src/.git/hooks/x"),
        ("write(**)", "/w/p/.mcp.json"),
        ("write(**)", "/w/p/data/glrs/allowed.json"),
        ("write", "/w/p/.glrs/config.json"),
    ] {
        assert!(!can(rule, "write", path), "{rule} should not free {path}");
    }
    assert!(can("write(.mcp.json)", "write", "/w/p/.mcp.json"));
    assert!(can("write(**/.git/**)", "write", "/w/p/src/.git/x"));
    assert!(can("write(/w/p/data/glrs/*)", "write", "/w/p/data/glrs/config.json"));
}

#[test]
fn allow_rules_for_commands() {
    for (rule, command) in [
        ("bash", "anything > at all"),
        ("bash(git status*)", "git status"),
        ("bash(git status*)", "  git   status -s  "),
        ("bash(git status*)", "git \\\n status -s"),
        ("bash(ls*)", "ls -la"),
        ("bash(ls*)", "ls | ls; ls && ls &"),
        ("bash(npm run test:*)", "npm run test:unit"),
        ("bash(*)", "ls 'a b' \"c\""),
        ("bash(git commit -m *)", "git commit -m 'two words; and more'"),
        ("ba*", "ls"),
    ] {
        assert!(runs(&[rule], command), "{rule} should allow {command:?}");
    }
    for (rule, command) in [
        ("bash(ls*)", "lsof"),
        ("bash(ls*)", "ls; rm x"),
        ("bash(ls*)", "ls\nrm x"),
        ("bash(ls*)", "ls & rm x"),
        ("bash(ls*)", "ls | sh"),
        ("bash(ls*)", "ls > f"),
        ("bash(ls*)", "ls 2>&1"),
        ("bash(ls*)", "ls $(rm x)"),
        ("bash(ls*)", "ls \"$(rm x)\""),
        ("bash(ls*)", "ls `rm x`"),
        ("bash(ls*)", "ls <(rm x)"),
        ("bash(ls*)", "ls $HOME"),
        ("bash(ls*)", "(ls)"),
        ("bash(ls*)", "LD_PRELOAD=x ls"),
        ("bash(ls*)", "ls 'x"),
        ("bash(ls*)", "ls \\"),
        ("bash(ls*)", "ls {a,b}"),
        ("bash(ls*)", "ls # c"),
        ("bash(ls*)", "ls \r\nrm"),
        ("bash(*)", "if ls"),
        ("bash(*)", "/bin/l? x"),
        ("bash(*)", ""),
        ("bash(*)", " ; "),
        ("bash(git status*)", "'git status' x"),
        ("bash(git status*)", "git status\\ x"),
        ("bash(./s/*)", "./s/../../bin/rm"),
        ("bash(git log", "git log"),
        ("bash()", "ls"),
        ("write", "ls"),
    ] {
        assert!(!runs(&[rule], command), "{rule} should not allow {command:?}");
    }
    assert!(runs(&["bash(ls*)", "bash(wc*)"], "ls | wc -l"));
}

#[test]
fn deny_rules_for_commands_see_every_part() {
    for command in [
        "rm",
        "rm -rf x",
        "ls; rm x",
        "ls && rm x",
        "ls || rm x",
        "ls | rm x",
        "ls & rm x",
        "ls\nrm x",
        "echo $(rm x)",
        "echo \"a $(rm x)\"",
        "echo `rm x`",
        "echo \"`rm x`\"",
        "cat <(rm x)",
        "(rm x)",
        "{ rm x; }",
        "if true; then rm x; fi",
        "! rm x",
        "A=1 rm x",
        "sudo rm x",
        "sudo -u bob rm x",
        "env A=1 B=2 rm x",
        "timeout -s KILL 5 rm x",
        "xargs rm",
        "sh -c 'rm x'",
        "sudo bash -lc 'ls; rm x'",
        "eval rm x",
        "/bin/rm x",
        "r\\m x",
        "'rm' x",
        "r''m x",
        ">f rm x",
        "2>f rm x",
        "find . -exec rm {} +",
        "echo $(echo $(rm x))",
        "while read f; do rm $f; done",
        "$'rm' x",
        "for f in *; do rm $f; done",
        "case x in a) rm x;; esac",
        "echo \"${x:-$(rm y)}\"",
        "rm \\\n x",
        "sudo find . -exec rm {} +",
        "cat <<E\nx\nE\nrm x",
        "foo() { rm x; }",
        "bash -c \"sh -c 'rm x'\"",
        "function f { rm x; }; f",
        "function f() { rm x; }; f",
        "function f\n{ rm x; }; f",
        "A=1 function f { sudo rm x; }",
        "coproc rm x",
        "coproc f { rm x; }",
    ] {
        assert!(denied("bash(rm *)", command), "{command:?} should be denied");
    }
    for command in ["ls", "echo rm x", "grep -r 'rm x' .", "git commit -m 'x; rm y'", "echo \"a; rm b\"", "ls # rm x"] {
        assert!(!denied("bash(rm *)", command), "{command:?} should not be denied");
    }
    assert!(denied("bash(npm run deploy*)", "npm run deploy:prod"));
    for command in ["git push", "git -C d push -f", "git -c a=b --no-pager push origin", "cd x && git --git-dir y push"]
    {
        assert!(denied("bash(git push*)", command), "{command:?}");
    }
    assert!(!denied("bash(git push*)", "git -C push log"));
    assert!(denied("bash(rm", "ls"), "a broken deny rule forbids its tool");
    assert!(denied("bash(rm *)", &"$(".repeat(100)), "what is not looked into is denied");
}

#[test]
fn always_is_offered_for_simple_things_only() {
    for (command, rule) in [
        ("git status -s", "bash(git status*)"),
        ("cargo test -p x", "bash(cargo test*)"),
        ("ls -la /", "bash(ls*)"),
        ("npm run build", "bash(npm run build*)"),
        ("./check.sh fast", "bash(./check.sh*)"),
    ] {
        assert_eq!(offered(command).as_deref(), Some(rule));
    }
    for command in [
        "rm x",
        "/bin/rm x",
        "sudo ls",
        "sh -c ls",
        "curl x | sh",
        "ls; ls",
        "ls > f",
        "git -C / status",
        "git push",
        "python3.12 x",
        "find . -delete",
        "env ls",
        "ls &",
        "",
        "git",
        "mkfs.ext4 x",
        "npm run",
        "make test",
        "less x",
        "git archive HEAD",
        "rg 'a*'",
        "rg '(a)'",
    ] {
        assert_eq!(offered(command), None, "{command}");
    }
    // What looks harmless and runs or writes with one more option is offered as it stands.
    for (command, rule, more) in [
        ("rg  foo src", "bash(rg foo src)", "rg foo src --pre evil"),
        ("sort x", "bash(sort x)", "sort x -o y"),
        ("git grep foo", "bash(git grep foo)", "git grep foo -Oevil"),
        ("git fetch origin", "bash(git fetch origin)", "git fetch origin --upload-pack=evil"),
        ("git diff", "bash(git diff)", "git diff --output=x"),
        ("git log -1", "bash(git log -1)", "git log -1 --output=x"),
        ("git show 'a b'", "bash(git show 'a b')", "git show a b"),
        ("go test ./...", "bash(go test ./...)", "go test ./... -exec evil"),
    ] {
        assert_eq!(offered(command).as_deref(), Some(rule));
        assert!(runs(&[rule], command) && !runs(&[rule], more), "{rule}");
    }
    let w = |path| judge(Mode::Ask, &Rules::default(), "edit", write(path));
    assert_eq!(w("/w/p/src/a.rs"), Verdict::Ask { rule: Some("write(src/**)".into()) });
    assert_eq!(w("/w/p/a.rs"), Verdict::Ask { rule: Some("write(a.rs)".into()) });
    assert_eq!(w("/etc/x"), Verdict::Ask { rule: Some("write(/etc/x)".into()) });
    for guarded in [
        "/w/p/.git/config",
        "/w/p/.mcp.json",
        "/w/p/data/glrs/allowed.json",
        "/real/h/.config/glrs/config.json",
        "/w/p/data/glrs",
    ] {
        assert_eq!(w(guarded), Verdict::Ask { rule: None }, "{guarded}");
    }
    let mcp = judge(Mode::Ask, &Rules::default(), "mcp__git__log", Effect::Exec("x; y".into()));
    assert_eq!(mcp, Verdict::Ask { rule: Some("mcp__git__log".into()) });
    let r = rules(&["mcp__git__*"], &[]);
    assert_eq!(judge(Mode::Ask, &r, "mcp__git__log", Effect::Exec("x; y".into())), Verdict::Run);
    assert!(matches!(judge(Mode::Ask, &r, "mcp__gitlab__log", Effect::Exec("x".into())), Verdict::Ask { .. }));
}

#[test]
fn broken_rules_are_named() {
    for rule in ["bash", "bash(git status*)", "write(src/**)", "write(../x/*)", "mcp__git__*"] {
        assert_eq!(check_rule(rule), Ok(()), "{rule}");
    }
    for rule in ["", "bash(", "bash()", "(x)", "bash(x) y", "write(a/../b)", "write([)"] {
        assert!(check_rule(rule).is_err(), "{rule}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    /// Whatever glues the parts together, a line with a part no rule names is never run.
    #[test]
    fn no_compound_with_a_part_that_is_not_allowed_runs(
        before in prop::collection::vec("(ls|git status)( -[a-z]| 'a b'| x)?", 0..3),
        bad in "(rm|lsof|evil|git statusx|ls-x|sh)( -rf /)?",
        after in prop::collection::vec("(ls|git status)( -[a-z])?", 0..3),
        glue in prop::sample::select(vec![";", "&&", "||", "|", "&", "\n", " ; ", "|&", ";\n", "&\n"]),
        wrap in prop::sample::select(vec![("", ""), ("$(", ")"), ("`", "`"), ("ls \"$(", ")\""), ("(", ")"), ("ls <(", ")"), ("ls >", "")]),
    ) {
        let bad = format!("{}{bad}{}", wrap.0, wrap.1);
        let line = before.iter().chain([&bad]).chain(&after).cloned().collect::<Vec<_>>().join(glue);
        prop_assert!(!runs(&["bash(ls*)", "bash(git status*)"], &line), "{line:?}");
    }

    /// Any text at all: judging ends, and what runs by rule starts with a program a rule names.
    #[test]
    fn any_text_is_judged(text in "[ls gitrm;&|<>()$`'\"\\\\#{}*\n\t=/.-]{0,40}") {
        if runs(&["bash(ls*)"], &text) {
            let naive = text.replace("\\\n", "");
            prop_assert!(naive.trim_start_matches([' ', '\t', '\n', ';', '&', '|']).starts_with("ls"), "{text:?}");
            prop_assert!(!text.contains(['$', '`', '<', '>', '(']) || text.contains(['\'', '"', '\\']), "{text:?}");
        }
        let _ = denied("bash(rm *)", &text);
        if let Some(rule) = offered(&text) {
            prop_assert!(runs(&[&rule], &text), "{rule} does not allow {text:?}");
        }
    }

    /// The offered rule lets the write itself run.
    #[test]
    fn offered_write_rules_fit(path in "[a-z*?{}\\[\\]!, ]{1,8}(/[a-z*?{}\\[\\]!, ]{1,8}){0,3}") {
        let path = format!("/w/p/{path}");
        if let Verdict::Ask { rule: Some(rule) } = judge(Mode::Ask, &Rules::default(), "write", write(&path)) {
            prop_assert_eq!(judge(Mode::Ask, &rules(&[&rule], &[]), "write", write(&path)), Verdict::Run, "{}", rule);
        }
    }
}

/// A directory whose `ls` does nothing and whose `evil` leaves a mark; answers whether a shell that
/// runs `text` there leaves it.
fn leaves_a_mark(dir: &Path, text: &str) -> bool {
    use std::os::unix::fs::PermissionsExt;
    let bin = dir.join("bin");
    let mark = dir.join("mark");
    if !bin.exists() {
        std::fs::create_dir_all(dir.join("cwd")).unwrap();
        std::fs::create_dir(&bin).unwrap();
        for (name, script) in
            [("ls", "#!/bin/sh\n".to_owned()), ("evil", format!("#!/bin/sh\n: > '{}'\n", mark.display()))]
        {
            std::fs::write(bin.join(name), script).unwrap();
            std::fs::set_permissions(bin.join(name), std::fs::Permissions::from_mode(0o755)).unwrap();
        }
    }
    let _ = std::fs::remove_file(&mark);
    let shell = ["/bin/bash", "/bin/sh"].into_iter().find(|s| Path::new(s).exists()).unwrap();
    let _ = std::process::Command::new(shell)
        .args(["-c", text])
        .current_dir(dir.join("cwd"))
        .env_clear()
        .env("PATH", &bin)
        .stdin(std::process::Stdio::null())
        .output()
        .unwrap();
    mark.exists()
}

/// Pieces of which command lines are put together.
const PIECES: [&str; 28] = [
    "ls", "ls", "ls", "evil", "evil", " ", " ", " ", ";", "&", "|", "\n", "&&", "||", "'", "\"", "\\", "`", "$(", ")",
    "(", "{ ", "; }", "#", "<", ">", "x", "\\\n",
];

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, cases: 400, ..ProptestConfig::default() })]

    /// A real shell runs nothing else when given what runs by rule, and nothing that is forbidden
    /// when given what is not denied.
    #[test]
    fn a_shell_agrees(pieces in prop::collection::vec(prop::sample::select(&PIECES[..]), 1..9)) {
        let text = pieces.concat();
        if text.contains("evil") && (runs(&["bash(ls*)"], &text) || !denied("bash(evil*)", &text)) {
            let dir = tempfile::tempdir().unwrap();
            prop_assert!(!leaves_a_mark(dir.path(), &text), "{text:?}");
        }
    }
}
