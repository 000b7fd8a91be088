//! The reading side of a wire: lines in, replies and checked events out.
//!
//! Owns what was read so far ([`Seen`]) and the rules of the envelope; the rules of a session's
//! feed are the view's.

use super::OURS;
use crate::view::View;
use crate::wait::{PATIENCE, Watched};
use glrs_protocol::event::EventFrame;
use glrs_protocol::params::Snapshot;
use serde_json::Value;
use std::collections::{BTreeMap, HashMap};
use std::io::{BufRead, BufReader};
use std::os::unix::net::UnixStream;

/// What the reader thread knows.
#[derive(Debug, Default)]
pub(super) struct Seen {
    pub replies: HashMap<u64, Value>,
    /// Replies whose id is not one of ours, null included.
    pub loose: Vec<Value>,
    /// Ids in the order their replies came.
    pub order: Vec<u64>,
    /// Everything in the order it came: `reply ID`, or the kind of an event.
    pub arrivals: Vec<String>,
    pub notifications: Vec<(String, Value)>,
    pub cursor: usize,
    pub attaching: HashMap<u64, Value>,
    /// Sessions by the ids of sends that are on their way.
    pub sending: HashMap<u64, String>,
    pub views: BTreeMap<String, View>,
    pub faults: Vec<String>,
    pub closed: bool,
    /// While true nothing more is read, as from a terminal that is stopped.
    pub paused: bool,
}

/// Reads lines until the connection ends.
pub(super) fn read_all(stream: UnixStream, seen: &Watched<Seen>) {
    let mut input = BufReader::new(stream);
    let mut line = Vec::new();
    loop {
        line.clear();
        seen.wait_for(PATIENCE, |s| (!s.paused).then_some(()));
        match input.read_until(b'\n', &mut line) {
            Ok(n) if n > 0 => seen.update(|s| s.line(&line)),
            _ => break seen.update(|s| s.closed = true),
        }
    }
}

impl Seen {
    fn line(&mut self, line: &[u8]) {
        // A line cut short at a close is the connection's end, not a message.
        let Some(body) = line.strip_suffix(b"\n") else { return };
        let message: Value = match serde_json::from_slice(body) {
            Ok(v) => v,
            Err(e) => return self.faults.push(format!("not one JSON value ({e}): {}", String::from_utf8_lossy(body))),
        };
        if message["jsonrpc"] != "2.0" {
            self.faults.push(format!("not JSON-RPC 2.0: {message}"));
        }
        if let Some(method) = message["method"].as_str() {
            if message.get("id").is_some() || !message["params"].is_object() {
                self.faults.push(format!("a notification has no id and one object: {message}"));
            }
            let params = message["params"].clone();
            self.arrivals.push(params["kind"].as_str().unwrap_or(method).to_owned());
            if method == "session/event" {
                self.event(&params);
            }
            return self.notifications.push((method.to_owned(), params));
        }
        self.answer(message);
    }

    fn event(&mut self, params: &Value) {
        // Every event is also what the published types say it is. Deltas come in floods; their
        // fields are all checked by the view.
        if params["kind"] != "delta"
            && let Err(e) = EventFrame::parse(&params.to_string())
        {
            self.faults.push(format!("not an event as published ({e}): {params}"));
        }
        let session = params["session"].as_str().unwrap_or_default();
        match self.views.get_mut(session) {
            Some(view) => view.event(params),
            None => self.faults.push(format!("an event of a session that is not attached: {params}")),
        }
    }

    fn answer(&mut self, message: Value) {
        let error = message.get("error");
        if error.is_some() == message.get("result").is_some() || message.get("id").is_none() {
            self.faults.push(format!("an answer has an id and one of result and error: {message}"));
        }
        if let Some(error) = error {
            let words = error["message"].as_str().unwrap_or_default();
            if error["code"].as_i64().is_none() || words.trim().is_empty() || !error["data"]["kind"].is_string() {
                self.faults.push(format!("an error without code, words or kind: {error}"));
            }
        }
        let Some(id) = message["id"].as_u64() else { return self.loose.push(message) };
        if let Some(params) = self.attaching.remove(&id)
            && let Some(snap) = message.get("result")
        {
            if let Err(e) = serde_json::from_str::<Snapshot>(&snap.to_string()) {
                self.faults.push(format!("not a snapshot as published ({e}): {snap}"));
            }
            let session = params["id"].as_str().unwrap_or_default().to_owned();
            self.views.entry(session).or_default().snapshot(&params, snap);
        }
        if let Some(session) = self.sending.remove(&id)
            && !["running", "queued", "steering"].contains(&message["result"]["outcome"].as_str().unwrap_or_default())
            && let Some(view) = self.views.get_mut(&session)
        {
            view.sending = false;
        }
        self.arrivals.push(format!("reply {id}"));
        if id < OURS {
            self.order.push(id);
            if self.replies.insert(id, message).is_some() {
                self.faults.push(format!("call {id} was answered twice"));
            }
        } else {
            self.loose.push(message);
        }
    }
}
