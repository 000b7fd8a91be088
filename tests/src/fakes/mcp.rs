//! A strict fake MCP server: over stdin and stdout in a process of its own, or over streamable HTTP
//! in the test's.
//!
//! Owns the rules of the protocol as a server may insist on them, the tools that behave well or
//! badly, and a journal of everything that came ([`Journal`]): a file, since the server over stdio
//! is another process. Nothing here knows the product.

use super::http::{Ended, Request, Responder};
use super::{Gate, Reply};
use crate::wait::{PATIENCE, until};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::fs::OpenOptions;
use std::io::{BufRead, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// Variable that says how the server over stdio behaves.
pub const MODE: &str = "FAKE_MCP_MODE";
/// Variable that says where its journal is.
pub const JOURNAL: &str = "FAKE_MCP_JOURNAL";

/// What a server was told and did, one JSON object a line.
#[derive(Clone, Debug)]
pub struct Journal(PathBuf);

impl Journal {
    /// A journal in this file.
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self(path.into())
    }

    /// The file.
    pub fn path(&self) -> &Path {
        &self.0
    }

    /// The file that lets a report be finished.
    pub fn go(&self) -> PathBuf {
        self.0.with_extension("go")
    }

    fn note(&self, line: &Value) {
        let file = OpenOptions::new().create(true).append(true).open(&self.0);
        let _ = file.and_then(|mut f| f.write_all(format!("{line}\n").as_bytes()));
    }

    /// What stands in it.
    pub fn lines(&self) -> Vec<Value> {
        let text = std::fs::read_to_string(&self.0).unwrap_or_default();
        text.lines().filter_map(|l| serde_json::from_str(l).ok()).collect()
    }

    /// The values noted under a name.
    pub fn all(&self, name: &str) -> Vec<Value> {
        self.lines().into_iter().filter_map(|mut l| l.get_mut(name).map(Value::take)).collect()
    }

    /// Waits until so many values are noted under a name, and returns the last of those.
    ///
    /// # Panics
    /// When they do not come.
    #[track_caller]
    pub fn wait(&self, name: &str, n: usize) -> Value {
        until(&format!("{n} of {name} in the journal"), PATIENCE, || self.all(name).get(n - 1).cloned())
    }

    /// Asserts that no rule was broken.
    ///
    /// # Panics
    /// When one was.
    #[track_caller]
    pub fn assert_clean(&self) {
        let broken = self.all("violation");
        assert!(broken.is_empty(), "rules were broken: {broken:#?}");
    }
}

/// What comes of a message.
enum Then {
    /// Send these.
    Say(Vec<Value>),
    /// Send these, and the last one once the test has made the file beside the journal.
    Report(Vec<Value>, Value),
    /// Stop, with this exit code.
    Die(i32),
    /// Read nothing more, and stay.
    Deaf,
    /// Write these bytes without end.
    Flood(&'static [u8]),
}

/// The server's side of one conversation.
struct Speaker {
    mode: String,
    journal: Journal,
    greeted: bool,
    ready: bool,
    ids: BTreeSet<String>,
    changed: bool,
    children: Vec<std::process::Child>,
}

fn text(words: impl Into<String>) -> Value {
    json!({"content": [{"type": "text", "text": words.into()}]})
}

impl Speaker {
    fn new(mode: &str, journal: Journal) -> Self {
        Self {
            mode: mode.to_owned(),
            journal,
            greeted: false,
            ready: false,
            ids: BTreeSet::new(),
            changed: false,
            children: Vec::new(),
        }
    }

    fn broken(&self, rule: &str, message: &Value) {
        self.journal.note(&json!({"violation": format!("{rule}: {message}")}));
    }

    fn hear(&mut self, message: &Value) -> Then {
        if message["jsonrpc"] != "2.0" {
            self.broken("jsonrpc has to be 2.0", message);
        }
        let Some(method) = message["method"].as_str() else {
            self.journal.note(&json!({"answer": message}));
            return Then::Say(Vec::new());
        };
        self.journal.note(&json!({method: message["params"]}));
        let id = &message["id"];
        if id.is_null() {
            match method {
                "notifications/initialized" if self.greeted => self.ready = true,
                "notifications/cancelled" if !message["params"]["requestId"].is_null() => {}
                _ => self.broken("no such notification now", message),
            }
            return Then::Say(Vec::new());
        }
        if !self.ids.insert(id.to_string()) {
            self.broken("an id comes twice", message);
        }
        if (method == "initialize") == self.greeted || (method != "initialize" && !self.ready) {
            self.broken("not in this order", message);
        }
        let result = |r: Value| json!({"jsonrpc": "2.0", "id": id, "result": r});
        match method {
            "initialize" => {
                self.greeted = true;
                let p = &message["params"];
                let whole = p["protocolVersion"].is_string()
                    && p["capabilities"].is_object()
                    && p["clientInfo"]["version"].is_string();
                if !whole || p["clientInfo"]["name"] != "glrs" {
                    self.broken("initialize is not whole", message);
                }
                match self.mode.as_str() {
                    "silent" => Then::Say(Vec::new()),
                    "dies" => Then::Die(3),
                    _ => Then::Say(vec![result(json!({
                        "protocolVersion": p["protocolVersion"], "capabilities": {"tools": {"listChanged": true}},
                        "serverInfo": {"name": "fake", "version": "1"}
                    }))]),
                }
            }
            "tools/list" => Then::Say(vec![result(self.list(&message["params"]))]),
            "tools/call" => self.call(message, &result),
            "ping" => Then::Say(vec![result(json!({}))]),
            _ => {
                self.broken("no such method", message);
                Then::Say(vec![
                    json!({"jsonrpc": "2.0", "id": id, "error": {"code": -32601, "message": "no such method"}}),
                ])
            }
        }
    }

    fn list(&self, params: &Value) -> Value {
        let tool = |name: &str| {
            json!({"name": name, "description": format!("Does {name}."),
                "inputSchema": {"type": "object", "properties": {"text": {"type": "string"}}}})
        };
        if self.mode == "garbage" {
            return json!({"tools": "nonsense"});
        }
        if self.mode == "paged" || self.mode == "endless" {
            let page: u32 = params["cursor"].as_str().and_then(|c| c.parse().ok()).unwrap_or(0);
            let more = self.mode == "endless" || page < 2;
            let next = if more { json!((page + 1).to_string()) } else { Value::Null };
            let mut list = json!({"tools": [tool(&format!("page{page}")), tool(&format!("other{page}"))]});
            if more {
                list["nextCursor"] = next;
            }
            return list;
        }
        // In no order, and not the same one each time.
        let mut names = vec!["echo", "fail", "hang", "count", "crash", "kinds", "huge", "change", "child", "secret"];
        names.extend(["flood", "line", "dotted.name", "report", "deaf"]);
        if self.changed {
            names.push("later");
            names.reverse();
        }
        let mut tools: Vec<Value> = names.into_iter().map(tool).collect();
        let mut look = tool("look");
        look["annotations"] = json!({"readOnlyHint": true});
        tools.push(look);
        json!({"tools": tools})
    }

    fn call(&mut self, message: &Value, result: &dyn Fn(Value) -> Value) -> Then {
        let params = &message["params"];
        let token = &params["_meta"]["progressToken"];
        if !params["arguments"].is_object() || token.is_null() {
            self.broken("a call has arguments and a progress token", message);
        }
        let words = params["arguments"]["text"].as_str().unwrap_or_default();
        let say = |r: Value| Then::Say(vec![result(r)]);
        match params["name"].as_str().unwrap_or_default() {
            name @ ("echo" | "look" | "later" | "dotted.name") => say(text(format!("{name}: {words}"))),
            "fail" => {
                let mut r = text("it is broken");
                r["isError"] = json!(true);
                say(r)
            }
            "hang" => Then::Say(Vec::new()),
            "count" | "report" => {
                let step = |n: u32| {
                    json!({"jsonrpc": "2.0", "method": "notifications/progress",
                        "params": {"progressToken": token, "progress": n, "total": 3, "message": format!("part {n}")}})
                };
                if params["name"] == "report" {
                    return Then::Report(vec![step(1)], result(text("reported")));
                }
                Then::Say(vec![step(1), step(2), step(3), result(text("counted"))])
            }
            "crash" => Then::Die(7),
            "kinds" => say(json!({"content": [
                {"type": "image", "data": "QUJD", "mimeType": "image/png"},
                {"type": "resource_link", "uri": "file:///a.txt", "name": "a.txt"}
            ], "structuredContent": {"answer": 42}})),
            "huge" => say(text(format!("START{}END", "x".repeat(200_000)))),
            "change" => {
                self.changed = true;
                let told = json!({"jsonrpc": "2.0", "method": "notifications/tools/list_changed"});
                Then::Say(vec![told, result(text("changed"))])
            }
            "child" => {
                let child = std::process::Command::new("sleep").arg("600").spawn().expect("sleep");
                self.journal.note(&json!({"child": child.id()}));
                // Whoever ends the server has to end it too.
                self.children.push(child);
                say(text("started"))
            }
            "secret" => say(text(std::env::var("SECRET").unwrap_or_default())),
            "deaf" => Then::Deaf,
            "flood" => Then::Flood(b"{\"jsonrpc\":\"2.0\",\"method\":\"notifications/message\",\"params\":{\"level\":\"info\",\"data\":\"x\"}}\n"),
            "line" => Then::Flood(b"xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx"),
            other => Then::Say(vec![json!({"jsonrpc": "2.0", "id": message["id"],
                "error": {"code": -32602, "message": format!("no tool {other}")}})]),
        }
    }
}

/// Serves over stdin and stdout if this process was started to do so, and ends it then; does
/// nothing otherwise. For the test binary, which starts itself.
pub fn serve_if_asked() {
    let Ok(mode) = std::env::var(MODE) else { return };
    let journal = Journal::new(std::env::var(JOURNAL).unwrap_or_default());
    std::process::exit(serve(&mode, journal));
}

fn serve(mode: &str, journal: Journal) -> i32 {
    journal.note(&json!({"start": std::process::id()}));
    if let Some(gate) = mode.strip_prefix("slow:") {
        until("the gate", PATIENCE, || Path::new(gate).exists().then_some(()));
    }
    let mut speaker = Speaker::new(mode, journal.clone());
    let mut out = std::io::stdout().lock();
    // What the test harness has begun to say ends here: noise that a client has to pass over.
    let _ = out.write_all(b"\n");
    for line in std::io::stdin().lock().lines() {
        let Ok(line) = line else { break };
        let Ok(message) = serde_json::from_str(&line) else {
            journal.note(&json!({"violation": format!("no JSON: {line}")}));
            continue;
        };
        let mut say = |messages: Vec<Value>| {
            let lines: String = messages.iter().map(|m| format!("{m}\n")).collect();
            out.write_all(lines.as_bytes()).and_then(|()| out.flush())
        };
        let said = match speaker.hear(&message) {
            Then::Say(messages) => say(messages),
            Then::Report(messages, last) => say(messages).and_then(|()| {
                until("the go-ahead", PATIENCE, || journal.go().exists().then_some(()));
                say(vec![last])
            }),
            Then::Die(code) => {
                eprintln!("noise before");
                eprintln!("the licence of {} has run out", std::env::var("SECRET").unwrap_or_default());
                return code;
            }
            Then::Deaf => loop {
                std::thread::park();
            },
            Then::Flood(bytes) => loop {
                if let Err(e) = out.write_all(&bytes.repeat(1024)) {
                    break Err(e);
                }
            },
        };
        if said.is_err() {
            return 1;
        }
    }
    0
}

struct Remote {
    token: String,
    speaker: Mutex<Speaker>,
    journal: Journal,
    stop: Arc<AtomicBool>,
}

/// A server over streamable HTTP that wants a bearer token. Dropping it ends what it still holds.
pub struct McpHttp {
    addr: SocketAddr,
    stop: Arc<AtomicBool>,
}

impl McpHttp {
    /// Starts one on the loopback.
    ///
    /// # Panics
    /// When the loopback cannot be listened on.
    pub fn start(token: &str, journal: &Journal) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).expect("a loopback port");
        let addr = listener.local_addr().expect("its address");
        let stop = Arc::new(AtomicBool::new(false));
        let remote = Arc::new(Remote {
            token: token.to_owned(),
            speaker: Mutex::new(Speaker::new("good", journal.clone())),
            journal: journal.clone(),
            stop: stop.clone(),
        });
        let over = stop.clone();
        std::thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                if over.load(Ordering::Relaxed) {
                    break;
                }
                let remote = remote.clone();
                std::thread::spawn(move || remote.connection(stream));
            }
        });
        Self { addr, stop }
    }

    /// Where it answers.
    pub fn url(&self) -> String {
        format!("http://{}/mcp", self.addr)
    }
}

impl Drop for McpHttp {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        drop(TcpStream::connect(self.addr));
    }
}

impl Remote {
    fn connection(&self, stream: TcpStream) {
        let _ = stream.set_nodelay(true);
        let Ok(mut input) = stream.try_clone().map(std::io::BufReader::new) else { return };
        let mut out = Responder::new(stream, self.stop.clone());
        while let Some(request) = Request::read(&mut input) {
            if self.answer(&request, &mut out).is_err() {
                break;
            }
        }
        out.close();
    }

    fn answer(&self, request: &Request, out: &mut Responder) -> Result<(), Ended> {
        let broken = |rule: &str| self.journal.note(&json!({"violation": format!("{rule}: {request:?}")}));
        if request.header("authorization") != Some(&format!("Bearer {}", self.token)) {
            let wants = ("www-authenticate".to_owned(), "Bearer".to_owned());
            return out.json(401, &[wants], &json!({"error": "unauthorized"}));
        }
        if request.path != "/mcp" {
            broken("no such path");
        }
        match request.method.as_str() {
            "POST" => {}
            "DELETE" => return out.json(200, &[], &json!({})),
            _ => return out.plain(405, &[], "text/plain", b""),
        }
        let accept = request.header("accept").unwrap_or_default();
        if !accept.contains("application/json") || !accept.contains("text/event-stream") {
            broken("accept names both kinds");
        }
        let message: Value = serde_json::from_slice(&request.body).unwrap_or_default();
        let session = request.header("mcp-session-id");
        if (message["method"] == "initialize") == session.is_some() || session.is_some_and(|s| s != "s-1") {
            broken("the session's id");
        }
        let then = self.speaker.lock().unwrap_or_else(PoisonError::into_inner).hear(&message);
        let Then::Say(messages) = then else { return Err(Ended::Script) };
        if message["id"].is_null() {
            return out.plain(202, &[], "text/plain", b"");
        }
        let headers = [("mcp-session-id".to_owned(), "s-1".to_owned())];
        match messages.as_slice() {
            [] => {
                out.start_stream(&headers, None)?;
                out.hold(&Gate::new())
            }
            [one] => out.json(200, &headers, one),
            several => {
                out.start_stream(&headers, None)?;
                for m in several {
                    out.chunk(format!("event: message\ndata: {m}\n\n").as_bytes())?;
                }
                out.end_stream()
            }
        }
    }
}

/// A reply of the model's that calls a tool of the server `fake`.
pub fn calls(tool: &str, words: &str) -> Reply {
    Reply::call(&format!("mcp__fake__{tool}"), json!({"text": words}))
}
