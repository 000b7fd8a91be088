//! A loopback server with hand-written answers, and what a call needs.
//!
//! Owns: playing the cases of `tests/fixtures/streams/streams.json`. Nothing here waits by the clock:
//! pauses between pieces are a flush and a yield, and a hang ends when the test drops the server.

use super::{Call, Chunk, Sink};
use crate::host::Env;
use crate::tools::ToolSpec;
use futures_util::future::BoxFuture;
use glrs_protocol::message::{Message, Role};
use serde_json::Value;
use serde_json::value::RawValue;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;

/// A piece of an answer.
#[derive(Clone, Debug)]
pub(crate) enum Step {
    /// Bytes, sent by themselves.
    Bytes(Vec<u8>),
    /// The bytes again and again, with a pause of so many milliseconds, for ever.
    Repeat(Vec<u8>, u64),
    /// Nothing more, and the connection stays open.
    Hang,
    /// The connection is reset.
    Reset,
}

/// An answer.
#[derive(Clone, Debug)]
pub(crate) struct Answer {
    pub status: u16,
    pub headers: Vec<(String, String)>,
    pub steps: Vec<Step>,
}

impl Answer {
    /// An event stream in one piece.
    pub(crate) fn stream(body: &str) -> Self {
        Self::typed(200, "text/event-stream", body)
    }

    /// Any body of a type.
    pub(crate) fn typed(status: u16, kind: &str, body: &str) -> Self {
        Self {
            status,
            headers: vec![("content-type".into(), kind.into())],
            steps: vec![Step::Bytes(body.as_bytes().to_vec())],
        }
    }

    /// The answer of a fixture case.
    pub(crate) fn of_case(case: &Value) -> Self {
        let mut steps = Vec::new();
        for step in case["steps"].as_array().unwrap() {
            if let Some(b64) = step["bytes_b64"].as_str() {
                steps.push(Step::Bytes(base64(b64)));
            } else if let Some(text) = step["repeat"].as_str() {
                let n = usize::try_from(step["n"].as_u64().unwrap()).unwrap();
                steps.push(Step::Bytes(text.repeat(n).into_bytes()));
            } else {
                match step["end"].as_str() {
                    Some("hang") => steps.push(Step::Hang),
                    Some("rst") => steps.push(Step::Reset),
                    _ => {}
                }
            }
        }
        let headers = case["headers"].as_object().unwrap();
        Self {
            status: u16::try_from(case["status"].as_u64().unwrap()).unwrap(),
            headers: headers.iter().map(|(k, v)| (k.clone(), v.as_str().unwrap().to_owned())).collect(),
            steps,
        }
    }
}

/// A server that gives each request the next answer, and the last one from then on.
pub(crate) struct Server {
    port: u16,
    requests: Arc<Mutex<Vec<(String, Value)>>>,
    task: JoinHandle<()>,
}

impl Server {
    pub(crate) async fn start(answers: Vec<Answer>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let requests = Arc::new(Mutex::new(Vec::new()));
        let seen = Arc::clone(&requests);
        let task = tokio::spawn(async move {
            let mut connections = tokio::task::JoinSet::new();
            for i in 0.. {
                let Ok((socket, _)) = listener.accept().await else { return };
                let answer = answers[i.min(answers.len() - 1)].clone();
                connections.spawn(serve(socket, answer, Arc::clone(&seen)));
            }
        });
        Self { port, requests, task }
    }

    /// Base URL.
    pub(crate) fn api(&self) -> String {
        format!("http://127.0.0.1:{}/v1", self.port)
    }

    /// Closes the port.
    pub(crate) async fn stop(mut self) {
        self.task.abort();
        let _ = (&mut self.task).await;
    }

    /// Head and body of each request so far.
    pub(crate) fn requests(&self) -> Vec<(String, Value)> {
        self.requests.lock().unwrap().clone()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn serve(mut socket: TcpStream, answer: Answer, seen: Arc<Mutex<Vec<(String, Value)>>>) {
    let mut read = Vec::new();
    let (head, length) = loop {
        let mut buffer = [0; 16_384];
        let Ok(n) = socket.read(&mut buffer).await else { return };
        if n == 0 {
            return;
        }
        read.extend_from_slice(&buffer[..n]);
        if let Some(end) = read.windows(4).position(|w| w == b"\r\n\r\n") {
            let head = String::from_utf8_lossy(&read[..end]).into_owned();
            let length = head
                .lines()
                .find_map(|l| l.to_ascii_lowercase().strip_prefix("content-length:")?.trim().parse().ok())
                .unwrap_or(0);
            read.drain(..end + 4);
            break (head, length);
        }
    };
    while read.len() < length {
        let mut buffer = vec![0; 65_536];
        let Ok(n) = socket.read(&mut buffer).await else { return };
        read.extend_from_slice(&buffer[..n]);
    }
    let body = serde_json::from_slice(&read).unwrap_or(Value::Null);
    seen.lock().unwrap().push((head, body));

    let mut out = format!("HTTP/1.1 {} X\r\nconnection: close\r\n", answer.status);
    for (k, v) in &answer.headers {
        out.push_str(&format!("{k}: {v}\r\n"));
    }
    out.push_str("\r\n");
    socket.set_nodelay(true).unwrap();
    socket.write_all(out.as_bytes()).await.unwrap();
    for step in answer.steps {
        match step {
            Step::Bytes(bytes) => {
                if socket.write_all(&bytes).await.is_err() {
                    return;
                }
                tokio::task::yield_now().await;
            }
            Step::Repeat(bytes, ms) => {
                while socket.write_all(&bytes).await.is_ok() {
                    tokio::time::sleep(Duration::from_millis(ms)).await;
                }
            }
            Step::Hang => std::future::pending().await,
            Step::Reset => {
                socket.set_zero_linger().unwrap();
                return;
            }
        }
    }
    let _ = socket.shutdown().await;
}

fn base64(text: &str) -> Vec<u8> {
    const ALPHABET: &[u8] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let (mut out, mut bits, mut count) = (Vec::new(), 0_u32, 0);
    for b in text.bytes().filter(|b| *b != b'=') {
        let value = ALPHABET.iter().position(|a| *a == b).unwrap();
        bits = (bits << 6) | u32::try_from(value).unwrap();
        count += 6;
        if count >= 8 {
            count -= 8;
            out.push(u8::try_from(bits >> count & 0xff).unwrap());
        }
    }
    out
}

/// All fixture cases.
pub(crate) fn cases() -> Vec<Value> {
    serde_json::from_str(include_str!("../../../tests/fixtures/streams/streams.json")).unwrap()
}

/// One of them.
pub(crate) fn case(id: &str) -> Value {
    cases().into_iter().find(|c| c["id"] == id).unwrap_or_else(|| panic!("no case {id}"))
}

/// Keeps what streamed.
#[derive(Default)]
pub(crate) struct Kept(pub Vec<Chunk>);

impl Kept {
    pub(crate) fn text(&self) -> String {
        self.0.iter().filter_map(|c| if let Chunk::Text(t) = c { Some(t.as_str()) } else { None }).collect()
    }

    pub(crate) fn reasoning(&self) -> String {
        self.0.iter().filter_map(|c| if let Chunk::Reasoning(t) = c { Some(t.as_str()) } else { None }).collect()
    }

    /// Everything, pieces of one text joined: how many came at once depends on when they came.
    pub(crate) fn joined(self) -> Vec<Chunk> {
        let mut all = Vec::new();
        self.0.into_iter().for_each(|chunk| chunk.follow(&mut all));
        all
    }
}

impl Sink for Kept {
    fn chunk(&mut self, chunk: Chunk) -> BoxFuture<'_, ()> {
        self.0.push(chunk);
        Box::pin(std::future::ready(()))
    }
}

/// A tool with an open schema.
pub(crate) fn tool(name: &str) -> ToolSpec {
    let schema = RawValue::from_string(r#"{"type":"object"}"#.into()).unwrap();
    ToolSpec { name: name.into(), description: format!("the tool {name}"), schema }
}

/// A call of these messages with the usual tools.
pub(crate) fn call(messages: &[Message]) -> Call {
    let tools = ["read", "write", "edit", "bash", "grep", "glob", "plan", "ask"].map(tool);
    Call {
        system: "You are a test.".into(),
        messages: messages.iter().cloned().map(Arc::new).collect(),
        tools: tools.to_vec().into(),
        variant: None,
        max_output: Some(8_000),
        force_text: false,
        cache_key: "conversation-1".into(),
        idle: Duration::from_secs(20),
        env: Arc::new(Env::default()),
    }
}

/// A call of one user message.
pub(crate) fn ask(text: &str) -> Call {
    call(&[Message::text(Role::User, text)])
}

/// Parses stored messages.
pub(crate) fn history(json: &Value) -> Vec<Message> {
    json.as_array().unwrap().iter().map(|m| Message::parse(&m.to_string()).unwrap()).collect()
}
