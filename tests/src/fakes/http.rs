//! As much of HTTP/1.1 as a provider needs: reading requests, answering, streaming in chunks.
//!
//! Owns one connection's two sides. A client that hangs up is noticed while a stream waits.

use super::reply::{Gate, Limit};
use serde_json::Value;
use std::io::{BufRead, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Why a connection does not go on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// The client hung up.
    Gone,
    /// The script closes it, or the fake is stopping.
    Script,
}

/// A request.
#[derive(Debug)]
pub struct Request {
    /// The method.
    pub method: String,
    /// Path and query.
    pub path: String,
    /// Headers, names in lower case.
    pub headers: Vec<(String, String)>,
    /// The body.
    pub body: Vec<u8>,
}

impl Request {
    /// Reads the next request; `None` at the end of the connection.
    pub fn read(input: &mut impl BufRead) -> Option<Self> {
        let line = read_line(input)?;
        let mut words = line.split(' ');
        let (method, path) = (words.next()?.to_owned(), words.next()?.to_owned());
        let headers = read_headers(input)?;
        let find = |name: &str| headers.iter().find(|(n, _)| n == name).map(|(_, v)| v.as_str());
        let mut body = Vec::new();
        if find("transfer-encoding").is_some_and(|v| v.eq_ignore_ascii_case("chunked")) {
            read_chunks(input, &mut body)?;
        } else {
            let length = find("content-length").and_then(|v| v.parse().ok()).unwrap_or(0);
            body.resize(length, 0);
            input.read_exact(&mut body).ok()?;
        }
        Some(Self { method, path, headers, body })
    }

    /// A header's value.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(n, _)| n == name).map(|(_, v)| v.as_str())
    }
}

fn read_line(input: &mut impl BufRead) -> Option<String> {
    let mut line = String::new();
    (input.read_line(&mut line).ok()? > 0).then(|| line.trim_end().to_owned())
}

/// Reads headers up to the empty line.
pub fn read_headers(input: &mut impl BufRead) -> Option<Vec<(String, String)>> {
    let mut headers = Vec::new();
    loop {
        let line = read_line(input)?;
        if line.is_empty() {
            return Some(headers);
        }
        let (name, value) = line.split_once(':')?;
        headers.push((name.trim().to_ascii_lowercase(), value.trim().to_owned()));
    }
}

/// Reads a chunked body to its end.
pub fn read_chunks(input: &mut impl BufRead, body: &mut Vec<u8>) -> Option<()> {
    loop {
        let size = usize::from_str_radix(read_line(input)?.split(';').next()?.trim(), 16).ok()?;
        let start = body.len();
        body.resize(start + size, 0);
        input.read_exact(&mut body[start..]).ok()?;
        read_line(input)?;
        if size == 0 {
            return Some(());
        }
    }
}

/// The answering side of a connection.
#[derive(Debug)]
pub struct Responder {
    stream: TcpStream,
    stop: Arc<AtomicBool>,
    limit: Option<Limit>,
    sent: usize,
}

impl Responder {
    /// Answers on `stream` until `stop` is set.
    pub fn new(stream: TcpStream, stop: Arc<AtomicBool>) -> Self {
        Self { stream, stop, limit: None, sent: 0 }
    }

    fn write(&mut self, bytes: &[u8]) -> Result<(), Ended> {
        self.stream.write_all(bytes).map_err(|_| Ended::Gone)
    }

    /// A whole JSON response.
    ///
    /// # Errors
    /// When the client is gone.
    pub fn json(&mut self, status: u16, headers: &[(String, String)], body: &Value) -> Result<(), Ended> {
        self.plain(status, headers, "application/json", body.to_string().as_bytes())
    }

    /// A whole response.
    ///
    /// # Errors
    /// When the client is gone.
    pub fn plain(
        &mut self,
        status: u16,
        headers: &[(String, String)],
        content_type: &str,
        body: &[u8],
    ) -> Result<(), Ended> {
        let mut head = format!("HTTP/1.1 {status} {}\r\ncontent-type: {content_type}\r\n", reason(status));
        head.push_str(&format!("content-length: {}\r\n", body.len()));
        for (name, value) in headers {
            head.push_str(&format!("{name}: {value}\r\n"));
        }
        head.push_str("\r\n");
        let mut bytes = head.into_bytes();
        bytes.extend_from_slice(body);
        self.write(&bytes)
    }

    /// Begins an event stream.
    ///
    /// # Errors
    /// When the client is gone.
    pub(super) fn start_stream(&mut self, headers: &[(String, String)], limit: Option<Limit>) -> Result<(), Ended> {
        (self.limit, self.sent) = (limit, 0);
        let mut head = String::from(
            "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream; charset=utf-8\r\ncache-control: no-cache\r\ntransfer-encoding: chunked\r\n",
        );
        for (name, value) in headers {
            head.push_str(&format!("{name}: {value}\r\n"));
        }
        head.push_str("\r\n");
        self.write(head.as_bytes())
    }

    /// Sends a part of the stream, up to the point where it is scripted to break.
    ///
    /// # Errors
    /// When the client is gone or the script ends the connection here.
    pub fn chunk(&mut self, bytes: &[u8]) -> Result<(), Ended> {
        let most = match self.limit {
            Some(Limit::Hang(n) | Limit::Close(n)) => n.saturating_sub(self.sent),
            None => bytes.len(),
        };
        let part = &bytes[..bytes.len().min(most)];
        if !part.is_empty() {
            let mut out = format!("{:x}\r\n", part.len()).into_bytes();
            out.extend_from_slice(part);
            out.extend_from_slice(b"\r\n");
            self.write(&out)?;
            self.sent += part.len();
        }
        if part.len() == bytes.len() {
            return Ok(());
        }
        match self.limit {
            Some(Limit::Hang(_)) => self.hold(&Gate::new()),
            _ => Err(Ended::Script),
        }
    }

    /// Waits at a gate.
    ///
    /// # Errors
    /// When the client hangs up meanwhile or the fake stops.
    pub fn hold(&mut self, gate: &Gate) -> Result<(), Ended> {
        while !gate.pass() {
            if self.stop.load(Ordering::Relaxed) {
                return Err(Ended::Script);
            }
            if self.gone() {
                return Err(Ended::Gone);
            }
        }
        Ok(())
    }

    /// Whether the client has hung up.
    fn gone(&self) -> bool {
        if self.stream.set_nonblocking(true).is_err() {
            return true;
        }
        let end = match self.stream.peek(&mut [0; 1]) {
            Ok(n) => n == 0,
            Err(e) => e.kind() != std::io::ErrorKind::WouldBlock,
        };
        self.stream.set_nonblocking(false).is_err() || end
    }

    /// Ends the stream; the connection can take another request.
    ///
    /// # Errors
    /// When the client is gone, or the script breaks the stream at its very end.
    pub fn end_stream(&mut self) -> Result<(), Ended> {
        match self.limit {
            Some(Limit::Hang(_)) => self.hold(&Gate::new()),
            Some(Limit::Close(_)) => Err(Ended::Script),
            None => self.write(b"0\r\n\r\n"),
        }
    }

    /// Closes the connection.
    pub fn close(&self) {
        let _ = self.stream.shutdown(Shutdown::Both);
    }
}

fn reason(status: u16) -> &'static str {
    match status {
        200 => "OK",
        400 => "Bad Request",
        202 => "Accepted",
        401 => "Unauthorized",
        403 => "Forbidden",
        404 => "Not Found",
        405 => "Method Not Allowed",
        413 => "Payload Too Large",
        429 => "Too Many Requests",
        500 => "Internal Server Error",
        502 => "Bad Gateway",
        503 => "Service Unavailable",
        529 => "Overloaded",
        _ => "Status",
    }
}

/// A client's side: one request on its own connection. Gives the status (0 when the connection
/// closed without an answer), the body, and whether it came whole. For the fakes' own tests.
///
/// # Panics
/// When the fake does not answer as HTTP.
pub fn post(addr: SocketAddr, path: &str, headers: &[(&str, &str)], body: &str) -> (u16, String, bool) {
    Plain::connect(addr).post(path, headers, body)
}

/// A connection to a fake that does nothing but ask: the floor of benches.
#[derive(Debug)]
pub struct Plain {
    addr: SocketAddr,
    input: std::io::BufReader<TcpStream>,
}

impl Plain {
    /// Connects.
    ///
    /// # Panics
    /// When nobody listens.
    pub fn connect(addr: SocketAddr) -> Self {
        let stream = TcpStream::connect(addr).expect("a fake that listens");
        stream.set_read_timeout(Some(crate::wait::PATIENCE)).expect("a read timeout");
        stream.set_nodelay(true).expect("a TCP connection");
        Self { addr, input: std::io::BufReader::new(stream) }
    }

    /// One request, as [`post`] makes it; the connection stays.
    ///
    /// # Panics
    /// When the fake does not answer as HTTP.
    pub fn post(&mut self, path: &str, headers: &[(&str, &str)], body: &str) -> (u16, String, bool) {
        use std::io::Read;
        let mut head = format!("POST {path} HTTP/1.1\r\nhost: {}\r\ncontent-length: {}\r\n", self.addr, body.len());
        for (name, value) in headers {
            head.push_str(&format!("{name}: {value}\r\n"));
        }
        self.input.get_mut().write_all(format!("{head}\r\n{body}").as_bytes()).expect("a fake that reads");
        let input = &mut self.input;
        let Some(line) = read_line(input) else { return (0, String::new(), false) };
        let status = line.split(' ').nth(1).and_then(|w| w.parse().ok()).expect("a status line");
        let headers = read_headers(input).expect("headers");
        let mut bytes = Vec::new();
        let length = headers.iter().find(|(n, _)| n == "content-length").and_then(|(_, v)| v.parse::<usize>().ok());
        let whole = match length {
            Some(n) => {
                bytes.resize(n, 0);
                input.read_exact(&mut bytes).is_ok()
            }
            None => read_chunks(input, &mut bytes).is_some(),
        };
        (status, String::from_utf8_lossy(&bytes).into_owned(), whole)
    }
}
