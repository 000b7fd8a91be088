//! The exchanges of PROTOCOL.md: reading them and repeating them with a real daemon.
//!
//! Owns the notation: in ```json blocks `→` is sent, `←` has to come (events that are not shown may
//! come before it), `# connection NAME` opens or chooses a connection, `# close NAME` closes one.

use crate::shape::{Names, fill, fits, renewed, resembles};
use glrs_tests::{PATIENCE, Value};
use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::path::Path;

/// One line of an exchange.
#[derive(Debug)]
pub enum Step<'a> {
    /// Open it, or go on with it.
    Connection(&'a str),
    /// Close it.
    Close(&'a str),
    /// Send this.
    Send(&'a str),
    /// Expect this.
    Receive(&'a str),
}

/// The steps of a document with their line numbers and the heading they stand under.
pub fn steps(document: &str) -> Vec<(usize, &str, Step<'_>)> {
    let (mut out, mut inside, mut heading) = (Vec::new(), false, "");
    for (i, line) in document.lines().enumerate() {
        if line.starts_with("```") {
            inside = line == "```json";
        } else if !inside && line.starts_with('#') {
            heading = line.trim_start_matches('#').trim();
        } else if inside {
            let step = if let Some(text) = line.strip_prefix("→ ") {
                Step::Send(text)
            } else if let Some(text) = line.strip_prefix("← ") {
                Step::Receive(text)
            } else if let Some(name) = line.strip_prefix("# connection ") {
                Step::Connection(name)
            } else if let Some(name) = line.strip_prefix("# close ") {
                Step::Close(name)
            } else {
                panic!("line {}: neither sent, received nor a connection: {line}", i + 1)
            };
            out.push((i + 1, heading, step));
        }
    }
    out
}

struct Conn {
    stream: UnixStream,
    lines: BufReader<UnixStream>,
}

impl Conn {
    fn open(socket: &Path) -> Self {
        let stream = UnixStream::connect(socket).expect("the daemon listens");
        stream.set_read_timeout(Some(PATIENCE)).expect("a read timeout");
        let lines = BufReader::new(stream.try_clone().expect("a second handle"));
        Self { stream, lines }
    }

    fn read(&mut self) -> Result<Value, String> {
        let mut line = String::new();
        match self.lines.read_line(&mut line) {
            Ok(0) => Err("the daemon closed the connection".to_owned()),
            Ok(_) => serde_json::from_str(&line).map_err(|e| format!("no JSON ({e}): {line}")),
            Err(e) => Err(format!("nothing came: {e}")),
        }
    }

    /// The next message that can be the one shown: an answer is the next answer, a notification
    /// the first that fits. With `update` fields may differ. Returns it.
    fn expect(&mut self, shown: &Value, names: &mut Names, update: bool) -> Result<Value, String> {
        let compare = if update { resembles } else { fits };
        let notification = shown.get("method").is_some();
        let mut passed = Vec::new();
        loop {
            let got = self.read().map_err(|e| format!("{e}; passed over: {passed:#?}"))?;
            if got.get("method").is_some() != notification {
                if notification {
                    return Err(format!("an answer that is not shown: {got}"));
                }
                continue;
            }
            let mut learned = names.clone();
            match compare(shown, &got, &mut learned) {
                Ok(()) => {
                    *names = learned;
                    return Ok(got);
                }
                Err(e) if !notification => return Err(e),
                Err(e) if got["params"]["kind"] == shown["params"]["kind"] => passed.push(e),
                Err(_) => {}
            }
        }
    }
}

/// Repeats all exchanges of a document with the daemon at `socket`. With `update` answers may have
/// fields more or less. Returns the document as it should be then.
///
/// # Panics
/// At the first line that does not hold.
pub fn replay(document: &str, socket: &Path, names: &mut Names, update: bool) -> String {
    let mut lines: Vec<String> = document.lines().map(str::to_owned).collect();
    let mut conns: BTreeMap<&str, Conn> = BTreeMap::new();
    let mut current = "";
    for (line, _, step) in steps(document) {
        match step {
            Step::Connection(name) => {
                conns.entry(name).or_insert_with(|| Conn::open(socket));
                current = name;
            }
            Step::Close(name) => {
                let conn = conns.remove(name).unwrap_or_else(|| panic!("line {line}: no connection {name}"));
                conn.stream.shutdown(Shutdown::Both).expect("an open connection");
            }
            Step::Send(text) => {
                let conn = conns.get_mut(current).unwrap_or_else(|| panic!("line {line}: no connection"));
                let text = fill(text, names);
                conn.stream.write_all(format!("{text}\n").as_bytes()).expect("the daemon reads");
            }
            Step::Receive(text) => {
                let shown = serde_json::from_str(text).unwrap_or_else(|e| panic!("line {line}: no JSON: {e}"));
                let conn = conns.get_mut(current).unwrap_or_else(|| panic!("line {line}: no connection"));
                let got = conn
                    .expect(&shown, names, update)
                    .unwrap_or_else(|e| panic!("PROTOCOL.md line {line}: {e}\n(UPDATE_DOCS=1 rewrites what it can)"));
                if update && fits(&shown, &got, &mut names.clone()).is_err() {
                    lines[line - 1] = format!("← {}", renewed(&shown, &got, names));
                }
            }
        }
    }
    lines.join("\n") + "\n"
}
