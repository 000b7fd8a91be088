//! The socket and the life of the daemon behind it: what stands in its way, what takes it away,
//! who hands it over, and clients that meet a daemon that just died or is of another time.

use crate::{home, rehearsal};
use glrs_tests::process::{Proc, Signal, fds_of, rss_of, state_of};
use glrs_tests::wait::until;
use glrs_tests::{Cli, Home, PATIENCE, Term, Wire, cli, json};
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::os::unix::net::{UnixDatagram, UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

fn mode(path: &Path) -> u32 {
    fs::symlink_metadata(path).unwrap().permissions().mode() & 0o777
}

/// `glrs daemon run` and `glrs sessions list` with the socket elsewhere: both fail, in words.
fn both_fail(home: &Home, socket: &Path) -> String {
    let socket = socket.to_str().unwrap();
    let mut words = String::new();
    for args in [["daemon", "run"], ["sessions", "list"]] {
        let out = Cli::new(home).args(args).env("GLRS_SOCKET", socket).run().code(1);
        assert!(!out.stderr.trim().is_empty() && out.stdout.is_empty(), "{out:?}");
        words += &out.stderr;
    }
    words
}

/// A private directory for sockets.
fn place(home: &Home) -> PathBuf {
    let dir = home.other_dir("s");
    fs::set_permissions(&dir, fs::Permissions::from_mode(0o700)).unwrap();
    dir
}

#[test]
fn a_socket_that_is_removed_under_a_running_daemon_is_made_again() {
    let (home, daemon, wire, id) = rehearsal(json!({}));
    for round in 0..3 {
        if round == 1 {
            fs::rename(home.socket(), home.root().join("elsewhere")).unwrap();
        } else {
            fs::remove_file(home.socket()).unwrap();
        }
        until("the socket is there again", PATIENCE, || UnixStream::connect(home.socket()).ok());
        assert_eq!(mode(&home.socket()), 0o600);
        assert!(daemon.listens());
        home.wire("new").ok("session/info", json!({"id": id}));
    }
    wire.turn(&id, "say 3 words");
    cli(&home, ["sessions", "list"]).ok();
}

#[test]
fn what_is_no_socket_is_named_and_left_alone() {
    let home = home();
    let dir = place(&home);
    let (file, folder) = (dir.join("file"), dir.join("folder"));
    fs::write(&file, "mine").unwrap();
    fs::create_dir(&folder).unwrap();
    fs::write(folder.join("inside"), "mine, too").unwrap();
    for path in [&file, &folder] {
        let words = both_fail(&home, path);
        assert!(words.contains(path.to_str().unwrap()) && words.contains("no socket"), "{words}");
    }
    assert_eq!(fs::read_to_string(file).unwrap(), "mine");
    assert_eq!(fs::read_to_string(folder.join("inside")).unwrap(), "mine, too");
}

#[test]
fn a_path_that_is_too_long_is_said_by_name() {
    let home = home();
    let path = place(&home).join("x".repeat(120));
    let words = both_fail(&home, &path);
    assert!(words.contains("GLRS_SOCKET") || words.contains("shorter"), "{words}");
    // A long data directory is no reason to fail: the socket gets a short name of its own.
    let mut long = crate::home();
    let root = long.other_dir(&"d".repeat(110));
    long.set_env("GLRS_HOME", root.to_str().unwrap());
    Cli::new(&long).args(["sessions", "list"]).run().ok();
    Cli::new(&long).args(["daemon", "stop"]).run().ok();
}

#[test]
fn a_directory_that_is_not_ours_alone_is_refused_or_closed() {
    let home = home();
    let dir = place(&home);
    let link = dir.join("link");
    std::os::unix::fs::symlink(&dir, &link).unwrap();
    assert!(both_fail(&home, &link.join("s.sock")).contains("link"));
    // Somebody's shared directory is refused by both, and left as it is.
    let open = dir.join("open");
    fs::DirBuilder::new().mode(0o700).create(&open).unwrap();
    fs::set_permissions(&open, fs::Permissions::from_mode(0o777)).unwrap();
    assert!(both_fail(&home, &open.join("s.sock")).contains("others may write"));
    assert_eq!(mode(&open), 0o777);
    // One of glrs's own: clients do not trust it as it is; the daemon closes it.
    let open = dir.join("glrs-own");
    fs::DirBuilder::new().mode(0o700).create(&open).unwrap();
    fs::set_permissions(&open, fs::Permissions::from_mode(0o777)).unwrap();
    let socket = open.join("s.sock").display().to_string();
    let out = Cli::new(&home).args(["sessions", "list"]).env("GLRS_SOCKET", &socket).run().code(1);
    assert!(out.stderr.contains("not safe"), "{out:?}");
    if rustix::process::geteuid().is_root() {
        let other = dir.join("other");
        fs::DirBuilder::new().mode(0o700).create(&other).unwrap();
        std::os::unix::fs::chown(&other, Some(12_345), None).unwrap();
        assert!(both_fail(&home, &other.join("s.sock")).contains("another user"));
    }
    let mut daemon = Command::new(glrs_tests::exe())
        .args(["daemon", "run"])
        .env_clear()
        .envs(home.env())
        .env("GLRS_SOCKET", &socket)
        .stdin(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    until("it serves", PATIENCE, || UnixStream::connect(&socket).ok());
    assert_eq!(mode(&open), 0o700);
    end(&mut daemon);
}

/// Ends a daemon gently and waits for it.
fn end(child: &mut std::process::Child) {
    let process = Proc::open(child.id()).unwrap();
    process.signal(Signal::TERM);
    assert!(process.wait(PATIENCE), "it ends when told");
    assert!(child.wait().unwrap().success());
}

/// Runs the daemon with `listener` as the one socket a service manager passes, for the process
/// `pid` (a shell expression).
fn activated(home: &Home, listener: UnixListener, pid: &str, notify: &Path) -> std::process::Child {
    let script = format!("exec 3<&0 </dev/null; LISTEN_PID={pid} LISTEN_FDS=1 exec \"$0\" daemon run");
    Command::new("/bin/sh")
        .args(["-c", &script])
        .arg(glrs_tests::exe())
        .env_clear()
        .envs(home.env())
        .env("NOTIFY_SOCKET", notify)
        .stdin(OwnedFd::from(listener))
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap()
}

fn hear(from: &UnixDatagram) -> String {
    let mut buf = [0; 256];
    let n = from.recv(&mut buf).expect("the service manager is told");
    String::from_utf8_lossy(&buf[..n]).into_owned()
}

#[test]
fn a_service_manager_hands_the_socket_over_and_hears_when_it_serves() {
    let home = home();
    fs::DirBuilder::new().mode(0o700).create(home.root()).unwrap();
    let notify = place(&home).join("n");
    let manager = UnixDatagram::bind(&notify).unwrap();
    manager.set_read_timeout(Some(PATIENCE)).unwrap();
    let listener = UnixListener::bind(home.socket()).unwrap();
    // A client that came before the daemon is answered by it.
    let early = Wire::connect(&home.socket());
    let mut daemon = activated(&home, listener.try_clone().unwrap(), "$$", &notify);
    assert_eq!(hear(&manager), "READY=1");
    early.hello("early");
    let id = early.new_session(&home, json!({}));
    early.turn(&id, "say 3 words");
    cli(&home, ["sessions", "list"]).ok();
    // Tools do not inherit what was handed over.
    early.ok("session/set", json!({"id": id, "mode": "all"}));
    early.turn(&id, "run env; ls -l /proc/self/fd");
    let seen = early.view(&id).of_type("tool")[0].to_string();
    assert!(!seen.contains("LISTEN_") && !seen.contains("NOTIFY_SOCKET"), "{seen}");
    end(&mut daemon);
    assert_eq!(hear(&manager), "STOPPING=1");
    // The name is the manager's, and so is the listener: the next one goes on with both.
    assert!(home.socket().exists());
    let mut next = activated(&home, listener, "$$", &notify);
    assert_eq!(hear(&manager), "READY=1");
    home.wire("later").ok("session/info", json!({"id": id}));
    end(&mut next);
}

#[test]
fn a_socket_meant_for_another_process_is_not_taken() {
    let home = home();
    let dir = place(&home);
    let (notify, elsewhere) = (dir.join("n"), dir.join("elsewhere"));
    let manager = UnixDatagram::bind(&notify).unwrap();
    manager.set_read_timeout(Some(PATIENCE)).unwrap();
    let listener = UnixListener::bind(&elsewhere).unwrap();
    let mut daemon = activated(&home, listener, "1", &notify);
    assert_eq!(hear(&manager), "READY=1");
    home.wire("ann").ok("daemon/status", json!({}));
    end(&mut daemon);
    assert!(!home.socket().exists() && elsewhere.exists());
}

#[test]
fn commands_start_the_next_daemon_right_after_a_kill() {
    let home = home();
    cli(&home, ["sessions", "list"]).ok();
    for _ in 0..8 {
        let process = Proc::open(home.listener().unwrap()).unwrap();
        process.signal(Signal::KILL);
        // Nobody waits for its end: what comes next meets it in any stage of dying.
        cli(&home, ["sessions", "list"]).ok();
        cli(&home, ["sessions", "list"]).ok();
    }
}

#[test]
fn commands_that_run_while_the_daemon_is_killed_fail_in_words_or_not_at_all() {
    let home = home();
    std::thread::scope(|scope| {
        let lists = scope.spawn(|| {
            for _ in 0..20 {
                let out = cli(&home, ["sessions", "list"]);
                // Killed behind hello, the call itself is lost: that is said.
                assert!(out.code == Some(0) || (out.code == Some(1) && !out.stderr.is_empty()), "{out:?}");
            }
        });
        while !lists.is_finished() {
            if let Some(process) = home.listener().and_then(Proc::open) {
                process.signal(Signal::KILL);
                process.wait(PATIENCE);
            }
        }
    });
    cli(&home, ["sessions", "list"]).ok();
}

#[test]
fn a_terminal_reconnects_by_itself_when_the_daemon_is_restarted_under_a_turn() {
    let home = home();
    cli(&home, ["sessions", "list"]).ok();
    let wire = home.wire("ann");
    let id = wire.new_session(&home, json!({}));
    let term = Term::spawn(&home, &["attach", &id], 100, 30);
    wire.wait_view(&id, "the terminal is attached", |v| v.clients == 2);
    term.enter("slow 60 words");
    wire.wait_view(&id, "words", |v| v.streaming("assistant").is_some());
    wire.send(&id, "say 3 words");
    let before = home.listener().unwrap();
    cli(&home, ["daemon", "restart"]).ok();
    assert_ne!(home.listener().unwrap(), before);
    let wire = home.wire("ann");
    wire.attach(&id, json!({}));
    // The step ended before the daemon did; what waited still waits or has run.
    let view = wire.wait_view(&id, "the terminal is back", |v| v.clients == 2);
    let whole = view.of_type("assistant")[0];
    assert!(whole["partial"] != true && whole["text"].as_str().unwrap().split_whitespace().count() == 60, "{whole}");
    wire.ok("session/release", json!({"id": id}));
    wire.wait_view(&id, "the message that waited", |v| v.quiet() && v.texts("user").len() == 2);
    term.enter("say 5 words");
    let view = wire.wait_view(&id, "typed after it", |v| v.quiet() && v.texts("user").len() == 3);
    assert_eq!(view.texts("user")[2], "say 5 words");
}

#[test]
fn a_daemon_of_another_time_is_named_with_the_way_out() {
    let home = home();
    let socket = place(&home).join("old.sock");
    let listener = UnixListener::bind(&socket).unwrap();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let (mut stream, _) = listener.accept().unwrap();
            let mut line = String::new();
            BufReader::new(stream.try_clone().unwrap()).read_line(&mut line).unwrap();
            let call: glrs_tests::Value = line.parse().unwrap();
            let data = json!({"kind": "unsupported_protocol", "min": 7, "max": 9});
            let error = json!({"code": -32010, "message": "no", "data": data});
            writeln!(stream, "{}", json!({"jsonrpc": "2.0", "id": call["id"], "error": error})).unwrap();
            let _ = stream.read(&mut [0; 64]);
        });
        let out = Cli::new(&home).args(["sessions", "list"]).env("GLRS_SOCKET", socket.to_str().unwrap()).run().code(1);
        assert!(out.stderr.contains("7 to 9") && out.stderr.contains("glrs daemon restart"), "{out:?}");
    });
}

#[test]
fn a_stopped_daemon_is_waited_for_and_never_replaced() {
    let (home, daemon, wire, id) = rehearsal(json!({}));
    daemon.stop();
    assert_eq!(state_of(daemon.pid()), Some('T'));
    std::thread::scope(|scope| {
        let listing = scope.spawn(|| cli(&home, ["sessions", "list"]));
        let second = cli(&home, ["daemon", "run", "--background"]);
        // It finds the first one listening, and leaves it to it.
        assert!(second.stdout.starts_with("ready") || second.code == Some(1), "{second:?}");
        daemon.cont();
        listing.join().unwrap();
    });
    assert!(daemon.listens());
    wire.turn(&id, "say 3 words");
}

#[test]
fn ten_thousand_attachments_and_two_thousand_connections_leave_nothing() {
    let (home, daemon, wire, id) = rehearsal(json!({}));
    wire.turn(&id, "say 20 words");
    let call = |n: usize, method: &str, params: glrs_tests::Value| {
        format!("{}\n", json!({"jsonrpc": "2.0", "id": n, "method": method, "params": params}))
    };
    let hello = call(0, "hello", json!({"client": {"name": "brief"}, "protocol": {"min": 1, "max": 1}}));
    let attach = |count: usize| {
        let mut stream = UnixStream::connect(home.socket()).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let mut input = BufReader::new(stream.try_clone().unwrap());
        stream.write_all(hello.as_bytes()).unwrap();
        let mut line = String::new();
        for n in 0..count {
            let pair = call(2 * n, "session/attach", json!({"id": id, "tail": 1}))
                + &call(2 * n + 1, "session/detach", json!({"id": id}));
            stream.write_all(pair.as_bytes()).unwrap();
            while !line.starts_with(&format!("{{\"jsonrpc\":\"2.0\",\"id\":{},", 2 * n + 1)) {
                line.clear();
                assert!(input.read_line(&mut line).unwrap() > 0);
            }
        }
    };
    let connect = |count: usize| {
        for _ in 0..count {
            let mut stream = UnixStream::connect(home.socket()).unwrap();
            stream.write_all(hello.as_bytes()).unwrap();
            assert!(stream.read(&mut [0; 1]).unwrap() > 0);
        }
    };
    wire.ok("session/detach", json!({"id": id}));
    let alone = || {
        until("they are gone", PATIENCE, || (wire.ok("daemon/status", json!({}))["clients"] == 1).then_some(()));
    };
    attach(1000);
    connect(200);
    alone();
    let (fds, rss) = (fds_of(daemon.pid()).unwrap(), rss_of(daemon.pid()).unwrap());
    attach(10_000);
    connect(2000);
    alone();
    assert!(fds_of(daemon.pid()).unwrap() <= fds, "descriptors: {fds} before");
    let grown = rss_of(daemon.pid()).unwrap().saturating_sub(rss);
    assert!(grown < 2 * 1024 * 1024, "memory grew by {grown}");
    assert_eq!(wire.ok("session/info", json!({"id": id}))["session"]["clients"], 0);
}
