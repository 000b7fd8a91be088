//! A raw client: newline-delimited JSON over the socket, with every line it reads checked.
//!
//! Owns one connection, its reader thread, and a [`View`] per attached session. Anything that
//! breaks the protocol becomes a fault, and a wire with faults fails its test when dropped. It is
//! deliberately not built on the product's client library.

mod feed;

use crate::view::View;
use crate::wait::{PATIENCE, Watched};
use feed::{Seen, read_all};
use serde_json::{Value, json};
use std::io::Write;
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// Ids from here on are for what a test sends raw; their replies come by [`Wire::loose_reply`].
pub const OURS: u64 = 1_000_000;

/// A connection to the daemon.
#[derive(Debug)]
pub struct Wire {
    stream: UnixStream,
    writing: Mutex<()>,
    next_id: AtomicU64,
    seen: Arc<Watched<Seen>>,
}

impl Wire {
    /// Connects; says nothing.
    ///
    /// # Panics
    /// When nobody listens.
    pub fn connect(socket: &Path) -> Self {
        let stream = UnixStream::connect(socket).unwrap_or_else(|e| panic!("{}: {e}", socket.display()));
        stream.set_write_timeout(Some(PATIENCE)).expect("a write timeout");
        let seen = Arc::new(Watched::new(Seen::default()));
        let (input, shared) = (stream.try_clone().expect("a second handle"), Arc::clone(&seen));
        std::thread::spawn(move || read_all(input, &shared));
        Self { stream, writing: Mutex::new(()), next_id: AtomicU64::new(1), seen }
    }

    /// Says hello as `name` and returns the daemon's answer.
    ///
    /// # Panics
    /// When it is refused.
    pub fn hello(&self, name: &str) -> Value {
        let client = json!({"name": name, "version": "0", "kind": "script", "pid": std::process::id()});
        self.ok("hello", json!({"client": client, "protocol": {"min": 1, "max": 1}}))
    }

    /// Starts a call and returns its id: calls can be pipelined.
    ///
    /// # Panics
    /// When it cannot be written.
    pub fn start(&self, method: &str, params: Value) -> u64 {
        let id = self.next_id.fetch_add(1, Ordering::Relaxed);
        if method == "session/attach" {
            self.seen.lock().attaching.insert(id, params.clone());
        }
        if method == "session/send" {
            // A reply overtakes events: until one shows the message, "idle" is old news.
            let mut seen = self.seen.lock();
            let session = params["id"].as_str().unwrap_or_default().to_owned();
            if let Some(view) = seen.views.get_mut(&session) {
                view.sending = true;
                seen.sending.insert(id, session);
            }
        }
        let call = json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params});
        self.send_raw(format!("{call}\n").as_bytes());
        id
    }

    /// The answer of a started call: its result, or its error object.
    ///
    /// # Errors
    /// The error object the daemon answered with.
    ///
    /// # Panics
    /// When none comes.
    pub fn reply(&self, id: u64) -> Result<Value, Value> {
        let got = self.seen.wait_for(PATIENCE, |s| match s.replies.remove(&id) {
            Some(reply) => Some(Some(reply)),
            None if s.closed => Some(None),
            None => None,
        });
        let reply = match got {
            Some(Some(reply)) => reply,
            Some(None) => panic!("the connection closed before call {id} was answered"),
            None => panic!("call {id} was not answered within {PATIENCE:?}"),
        };
        if reply.get("error").is_some() { Err(reply["error"].clone()) } else { Ok(reply["result"].clone()) }
    }

    /// Makes a call.
    ///
    /// # Errors
    /// The error object the daemon answered with.
    pub fn call(&self, method: &str, params: Value) -> Result<Value, Value> {
        self.reply(self.start(method, params))
    }

    /// Makes a call that has to succeed.
    ///
    /// # Panics
    /// When it does not.
    #[track_caller]
    pub fn ok(&self, method: &str, params: Value) -> Value {
        self.call(method, params).unwrap_or_else(|e| panic!("{method} failed: {e}"))
    }

    /// Makes a call that has to fail with an error of this kind, and returns the error object.
    ///
    /// # Panics
    /// When it succeeds or fails otherwise.
    #[track_caller]
    pub fn fails(&self, kind: &str, method: &str, params: Value) -> Value {
        let error = self.call(method, params).map_or_else(|e| e, |r| panic!("{method} answered {r}, not {kind}"));
        assert_eq!(error["data"]["kind"], kind, "{method}: {error}");
        error
    }

    /// Makes a call on a connection that may die meanwhile: `None` when it did before the answer.
    ///
    /// # Panics
    /// When the connection lives and no answer comes.
    pub fn try_call(&self, method: &str, params: &Value) -> Option<Result<Value, Value>> {
        let id = self.next_id.fetch_add(1, Ordering::Relaxed);
        let call = json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params});
        let _turn = self.writing.lock().unwrap_or_else(PoisonError::into_inner);
        if (&self.stream).write_all(format!("{call}\n").as_bytes()).is_err() {
            return None;
        }
        let got = self.seen.wait_for(PATIENCE, |s| match s.replies.remove(&id) {
            Some(reply) => Some(Some(reply)),
            None => s.closed.then_some(None),
        });
        let reply = got.unwrap_or_else(|| panic!("{method} was not answered within {PATIENCE:?}"))?;
        Some(if reply.get("error").is_some() { Err(reply["error"].clone()) } else { Ok(reply["result"].clone()) })
    }

    /// Waits until at least `n` events came or the session is quiet or the connection is closed.
    pub fn wait_events(&self, session: &str, n: usize) {
        self.seen.wait_for(PATIENCE, |s| {
            let quiet = s.views.get(session).is_none_or(|v| v.quiet() && !v.kinds.is_empty());
            (s.notifications.len() >= n || quiet || s.closed).then_some(())
        });
    }

    /// Everything that came, in order: `reply ID` for an answer, else the kind of event.
    pub fn arrivals(&self) -> Vec<String> {
        self.seen.lock().arrivals.clone()
    }

    /// Writes bytes as they are.
    ///
    /// # Panics
    /// When they cannot be written.
    pub fn send_raw(&self, bytes: &[u8]) {
        let _turn = self.writing.lock().unwrap_or_else(PoisonError::into_inner);
        (&self.stream).write_all(bytes).expect("the daemon reads what it is sent");
    }

    /// The next reply whose id is none of ours (null, or one sent by [`Wire::send_raw`]).
    ///
    /// # Panics
    /// When none comes.
    #[track_caller]
    pub fn loose_reply(&self) -> Value {
        let take = |s: &mut Seen| (!s.loose.is_empty()).then(|| s.loose.remove(0));
        self.seen.wait_for(PATIENCE, take).expect("no reply came to what was sent raw")
    }

    /// Ids of our calls in the order they were answered.
    pub fn answered(&self) -> Vec<u64> {
        self.seen.lock().order.clone()
    }

    /// The params of the next `session/event` that fits; those before it are passed over.
    ///
    /// # Panics
    /// When none comes in time.
    #[track_caller]
    pub fn next_event(&self, what: &str, fits: impl Fn(&Value) -> bool) -> Value {
        self.next_notification("session/event", what, fits)
    }

    /// The params of the next notification of `method` that fits; those before it are passed over.
    ///
    /// # Panics
    /// When none comes in time.
    #[track_caller]
    pub fn next_notification(&self, method: &str, what: &str, fits: impl Fn(&Value) -> bool) -> Value {
        let found = self.seen.wait_for(PATIENCE, |s| {
            while let Some((name, params)) = s.notifications.get(s.cursor) {
                s.cursor += 1;
                if name == method && fits(params) {
                    return Some(params.clone());
                }
            }
            None
        });
        found.unwrap_or_else(|| panic!("no {method} came: {what}; {}", self.describe()))
    }

    /// Attaches and fetches what the snapshot left out. `more` holds further params, such as
    /// `{"tail": 5}`; with one of those the entries before the snapshot are not fetched.
    ///
    /// # Panics
    /// When it is refused.
    #[track_caller]
    pub fn attach(&self, session: &str, more: Value) -> Value {
        let mut params = json!({"id": session});
        let whole = more.as_object().is_none_or(|m| !m.contains_key("tail") && !m.contains_key("afterEntry"));
        if let (Value::Object(to), Value::Object(from)) = (&mut params, more) {
            to.extend(from);
        }
        let snap = self.ok("session/attach", params);
        if whole && snap["more"] == true {
            let first = snap["entries"][0]["n"].as_u64().unwrap_or(1);
            let mut from = 1;
            while from < first {
                let page = self.ok("session/entries", json!({"id": session, "from": from, "limit": first - from}));
                let rows = page["entries"].as_array().cloned().unwrap_or_default();
                assert!(!rows.is_empty(), "session/entries gives nothing from {from}");
                from += rows.len() as u64;
                self.seen.update(|s| {
                    let view = s.views.entry(session.to_owned()).or_default();
                    view.entries.extend(rows.iter().filter_map(|r| Some((r["n"].as_u64()?, r["entry"].clone()))));
                });
            }
        }
        snap
    }

    /// Hands over what was known of a session on an earlier connection, so that an attach with
    /// `after` or `afterEntry` goes on from it.
    pub fn adopt(&self, view: View) {
        self.seen.update(|s| s.views.insert(view.session.clone(), view));
    }

    /// What is known of an attached session now.
    ///
    /// # Panics
    /// When it was never attached.
    #[track_caller]
    pub fn view(&self, session: &str) -> View {
        self.seen.lock().views.get(session).cloned().expect("an attached session")
    }

    /// Waits until what is known of an attached session fits, and returns it.
    ///
    /// # Panics
    /// When it does not in time; the view is shown.
    #[track_caller]
    pub fn wait_view(&self, session: &str, what: &str, fits: impl Fn(&View) -> bool) -> View {
        let found = self.seen.wait_for(PATIENCE, |s| s.views.get(session).filter(|v| fits(v)).cloned());
        found.unwrap_or_else(|| panic!("waited in vain for: {what}; {}", self.describe()))
    }

    /// Whether what is known of an attached session comes to fit within `timeout`.
    pub fn sees(&self, session: &str, timeout: Duration, fits: impl Fn(&View) -> bool) -> bool {
        self.seen.wait_for(timeout, |s| s.views.get(session).is_some_and(&fits).then_some(())).is_some()
    }

    /// Waits until the turn is over and nothing waits.
    ///
    /// # Panics
    /// When that does not come.
    #[track_caller]
    pub fn wait_quiet(&self, session: &str) -> View {
        self.wait_view(session, "a quiet session", View::quiet)
    }

    /// Makes a session in `cwd` with the home's environment, attaches, and returns its id.
    ///
    /// # Panics
    /// When it is refused.
    #[track_caller]
    pub fn new_session(&self, home: &crate::Home, more: Value) -> String {
        let mut params = json!({"cwd": home.work(), "env": home.env()});
        if let (Value::Object(to), Value::Object(from)) = (&mut params, more) {
            to.extend(from);
        }
        let made = self.ok("session/new", params);
        let id = made["session"]["id"].as_str().expect("a session id").to_owned();
        self.attach(&id, json!({}));
        id
    }

    /// Sends a message in the default mode.
    ///
    /// # Panics
    /// When it is refused.
    #[track_caller]
    pub fn send(&self, session: &str, text: &str) -> Value {
        self.ok("session/send", json!({"id": session, "text": text}))
    }

    /// Sends a message, waits until the session is quiet again, and returns what is known then.
    ///
    /// # Panics
    /// When it is refused or does not end.
    #[track_caller]
    pub fn turn(&self, session: &str, text: &str) -> View {
        let before = self.view(session).of_type("user").len();
        self.send(session, text);
        self.wait_view(session, "the turn's end", |v| v.quiet() && v.of_type("user").len() > before)
    }

    /// Answers a request.
    ///
    /// # Errors
    /// The error object the daemon answered with.
    pub fn answer(&self, session: &str, request: &Value, decision: &str) -> Result<Value, Value> {
        self.call("request/answer", json!({"id": session, "request": request["request"], "decision": decision}))
    }

    /// Waits for a request to be open and returns it.
    ///
    /// # Panics
    /// When none is opened.
    #[track_caller]
    pub fn request(&self, session: &str) -> Value {
        self.wait_view(session, "an open request", |v| !v.requests.is_empty()).requests[0].clone()
    }

    /// Stops reading (after at most one more line) or goes on, as a terminal that is stopped and
    /// continued. Calls on a wire that reads nothing are not answered.
    pub fn pause(&self, paused: bool) {
        self.seen.update(|s| s.paused = paused);
    }

    /// Waits until the daemon has closed the connection.
    pub fn wait_closed(&self, timeout: Duration) -> bool {
        self.seen.wait_for(timeout, |s| s.closed.then_some(())).is_some()
    }

    /// Closes the connection.
    pub fn close(&self) {
        self.pause(false);
        let _ = self.stream.shutdown(Shutdown::Both);
        self.wait_closed(PATIENCE);
    }

    /// Everything that broke the protocol so far.
    pub fn faults(&self) -> Vec<String> {
        let seen = self.seen.lock();
        seen.faults.iter().chain(seen.views.values().flat_map(|v| &v.faults)).cloned().collect()
    }

    fn describe(&self) -> String {
        let seen = self.seen.lock();
        let views: Vec<String> = seen.views.values().map(|v| format!("{v:#?}")).collect();
        format!("closed: {}, faults: {:?}, views: {}", seen.closed, seen.faults, views.join("\n"))
    }
}

impl Drop for Wire {
    fn drop(&mut self) {
        self.pause(false);
        let _ = self.stream.shutdown(Shutdown::Both);
        let faults = self.faults();
        if !std::thread::panicking() {
            assert!(faults.is_empty(), "the daemon broke the protocol: {faults:#?}");
        }
    }
}

#[cfg(test)]
mod tests;
