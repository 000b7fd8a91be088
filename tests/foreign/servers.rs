//! Real MCP servers over stdio, with a strict fake as the model that calls them.

use crate::install::{self, run};
use crate::{Place, asked, part, say};
use glrs_tests::{Dialect, Fake, Home, PATIENCE, Reply, Value, json};
use std::fs;
use std::process::Command;
use std::time::{Duration, Instant};

/// A daemon whose model is a fake, with these servers running.
struct Hall {
    fake: Fake,
    place: Place,
}

impl Hall {
    fn new(servers: impl FnOnce(&Home) -> Value) -> Self {
        let fake = Fake::start(Dialect::Anthropic);
        let mut names = Vec::new();
        let place = Place::with(|home| {
            let mut config = fake.config();
            config["mcpServers"] = servers(home);
            names.extend(config["mcpServers"].as_object().into_iter().flatten().map(|(name, _)| name.clone()));
            config
        });
        let hall = Self { fake, place };
        // A turn does not wait long for a server; the next one takes it up.
        let ready = || {
            hall.fake.reply(Reply::say("hello"));
            let view = hall.place.turn("hello");
            let told = view.texts("notice").join(" ");
            assert!(!told.contains("does not run"), "{told}");
            let request = hall.fake.requests().pop().expect("a request");
            let tools = request.body["tools"].as_array().cloned().unwrap_or_default();
            let of = |server: &str| {
                tools.iter().filter(|t| t["name"].as_str().is_some_and(|n| n.starts_with(server))).count()
            };
            let counts: Vec<(String, usize)> = names.iter().map(|n| (n.clone(), of(&format!("mcp__{n}__")))).collect();
            counts.iter().all(|(_, n)| *n > 0).then_some(counts)
        };
        for (name, tools) in glrs_tests::wait::until("the servers are ready", 2 * PATIENCE, ready) {
            say(&format!("{name}: {tools} tools"));
        }
        hall
    }

    /// One turn in which the model calls this tool: whether it went well, and its result.
    #[track_caller]
    fn call(&self, tool: &str, input: Value) -> (bool, String) {
        self.fake.reply(Reply::call(&format!("mcp__{tool}"), input));
        self.fake.reply(Reply::say("done"));
        let view = self.place.turn(&format!("call {tool}"));
        assert_eq!(view.last_status(), "done", "{tool}: {:?} {:?}", view.texts("error"), self.fake.violations());
        let tools = view.of_type("tool");
        let last = tools.last().unwrap_or_else(|| panic!("{tool} is not called: {view:#?}"));
        (last["ok"] == true, last["result"].as_str().unwrap_or_default().to_owned())
    }

    /// A call that goes well.
    #[track_caller]
    fn good(&self, tool: &str, input: Value) -> String {
        let (ok, result) = self.call(tool, input);
        assert!(ok, "{tool}: {result}");
        result
    }

    /// A call that the server refuses, which is told to the model and nothing worse.
    #[track_caller]
    fn bad(&self, tool: &str, input: Value) -> String {
        let (ok, result) = self.call(tool, input);
        assert!(!ok && !result.trim().is_empty(), "{tool}: {result}");
        result
    }

    fn clean(&self) {
        self.fake.assert_clean();
        self.place.check();
    }
}

#[test]
fn servers_of_npm_do_as_they_are_told() {
    let Some(_one) = asked() else { return };
    let packages = ["@modelcontextprotocol/server-everything", "@modelcontextprotocol/server-filesystem"];
    let Some(there) = part("MCP servers of npm", install::npm(&packages)) else { return };
    let main = |package: &str| there.path("node_modules").join(package).join("dist/index.js");
    let hall = Hall::new(|home| {
        json!({
            "everything": {"command": "node", "args": [main(packages[0]), "stdio"]},
            "filesystem": {"command": "node", "args": [main(packages[1]), home.work()]},
        })
    });

    assert!(hall.good("everything__echo", json!({"message": "Grüße 你好"})).contains("Grüße 你好"));
    assert!(hall.good("everything__get-sum", json!({"a": 2, "b": 40})).contains("42"));
    assert!(hall.good("everything__get-tiny-image", json!({})).contains("image/png"));
    assert!(hall.good("everything__get-structured-content", json!({"location": "Chicago"})).contains("temperature"));
    hall.good("everything__get-resource-links", json!({"count": 2}));
    hall.good("everything__get-resource-reference", json!({"resourceType": "Text", "resourceId": 1}));
    hall.good("everything__get-annotated-message", json!({"messageType": "error", "includeImage": true}));
    assert!(hall.good("everything__get-env", json!({})).contains("PATH"));
    hall.bad("everything__echo", json!({"massage": 1}));
    hall.bad("everything__get-sum", json!({"a": "two", "b": null}));
    hall.good("everything__trigger-long-running-operation", json!({"duration": 1, "steps": 3}));

    // Esc during a call; the server lives on.
    let long = json!({"duration": 600, "steps": 600});
    hall.fake.reply(Reply::call("mcp__everything__trigger-long-running-operation", long));
    hall.place.wire.send(&hall.place.id, "take long");
    hall.place.wire.wait_view(&hall.place.id, "the call runs", |v| v.streaming("tool").is_some());
    let begun = Instant::now();
    assert_eq!(hall.place.wire.ok("session/interrupt", json!({"id": hall.place.id}))["outcome"], "interrupted");
    assert!(begun.elapsed() < Duration::from_secs(5), "{:?}", begun.elapsed());
    hall.place.wire.wait_quiet(&hall.place.id);
    assert!(hall.good("everything__echo", json!({"message": "still there"})).contains("still there"));

    let file = hall.place.home.file("note.txt");
    hall.good("filesystem__write_file", json!({"path": file, "content": "written\nfrom afar\n"}));
    assert_eq!(fs::read_to_string(&file).unwrap(), "written\nfrom afar\n");
    assert!(hall.good("filesystem__read_text_file", json!({"path": file})).contains("from afar"));
    assert!(hall.good("filesystem__list_directory", json!({"path": hall.place.home.work()})).contains("note.txt"));
    hall.bad("filesystem__read_text_file", json!({"path": "/etc/hostname"}));
    hall.bad("filesystem__read_text_file", json!({"path": hall.place.home.file("gone")}));
    hall.clean();
}

#[test]
fn servers_of_pypi_do_as_they_are_told() {
    let Some(_one) = asked() else { return };
    let Some(there) = part("MCP servers of PyPI", install::pip(&["mcp-server-git", "mcp-server-time"], true)) else {
        return;
    };
    if part("git", repository_works(there.path("try"))).is_none() {
        return;
    }
    let hall = Hall::new(|home| {
        repository(&home.work()).expect("a repository");
        json!({
            "git": {"command": there.path("bin/mcp-server-git"), "args": ["--repository", home.work()]},
            "time": {"command": there.path("bin/mcp-server-time"), "args": ["--local-timezone", "UTC"]},
        })
    });
    let berlin = hall.good("time__get_current_time", json!({"timezone": "Europe/Berlin"}));
    assert!(berlin.contains("Europe/Berlin") && berlin.contains("+0"), "{berlin}");
    let input = json!({"source_timezone": "UTC", "time": "12:00", "target_timezone": "Asia/Tokyo"});
    assert!(hall.good("time__convert_time", input).contains("T21:00"));
    hall.bad("time__get_current_time", json!({"timezone": "Nowhere/Land"}));

    let repository = hall.place.home.work();
    fs::write(repository.join("a.txt"), "first\n").unwrap();
    hall.good("git__git_add", json!({"repo_path": repository, "files": ["a.txt"]}));
    hall.good("git__git_commit", json!({"repo_path": repository, "message": "a first commit"}));
    assert!(hall.good("git__git_log", json!({"repo_path": repository})).contains("a first commit"));
    fs::write(repository.join("a.txt"), "second\n").unwrap();
    assert!(hall.good("git__git_status", json!({"repo_path": repository})).contains("a.txt"));
    assert!(hall.good("git__git_diff_unstaged", json!({"repo_path": repository})).contains("+second"));
    hall.bad("git__git_show", json!({"repo_path": repository, "revision": "no-such-thing"}));
    hall.bad("git__git_log", json!({"repo_path": "/"}));
    hall.clean();
}

/// Whether there is a git to make one with.
fn repository_works(at: std::path::PathBuf) -> Result<(), String> {
    fs::create_dir(&at).map_err(|e| e.to_string())?;
    repository(&at)
}

/// A repository to work in.
fn repository(at: &std::path::Path) -> Result<(), String> {
    let deadline = Instant::now() + PATIENCE;
    for args in [&["init", "-q"][..], &["config", "user.name", "Ann"], &["config", "user.email", "ann@example.com"]] {
        let mut git = Command::new("git");
        git.args(args);
        run(git, at, deadline)?;
    }
    Ok(())
}
