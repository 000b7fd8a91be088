//! What one client knows of a session: a snapshot and the events since, checked one by one.
//!
//! Owns the strict reading of the feed: numbers without a gap, entries without a gap, deltas that
//! join exactly, pieces and requests that were opened before they are closed. Whatever is off is
//! kept as a fault, in words. Two views that saw the same session can be compared.

use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};

/// A piece that streams.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Piece {
    /// What it is: `assistant`, `reasoning`, `tool`.
    pub kind: String,
    /// Bytes that came before and are held no more.
    pub before: u64,
    /// The text so far.
    pub text: String,
}

/// A client's knowledge of a session.
#[derive(Clone, Debug, Default)]
pub struct View {
    /// The session.
    pub session: String,
    /// Epoch of the numbers.
    pub epoch: String,
    /// Number of the last event seen.
    pub seq: u64,
    /// Info as last told.
    pub info: Value,
    /// State as last told.
    pub state: Value,
    /// Compaction as last told.
    pub compaction: Value,
    /// Disk as last told.
    pub disk: Value,
    /// Entries by number.
    pub entries: BTreeMap<u64, Value>,
    /// What streams.
    pub in_flight: BTreeMap<String, Piece>,
    /// Waiting rows, in order.
    pub queue: Vec<Value>,
    /// Open requests, in the order they were opened.
    pub requests: Vec<Value>,
    /// How each closed request ended: the `resolved` events.
    pub resolved: Vec<Value>,
    /// Attached clients.
    pub clients: u64,
    /// Usage as last told.
    pub usage: Value,
    /// Plan as last told.
    pub plan: Value,
    /// Kinds of the events seen, in order (not part of a comparison).
    pub kinds: Vec<String>,
    /// True after `lagged`: attach again.
    pub lagged: bool,
    /// Why the session was closed for this client.
    pub closed: Option<String>,
    /// Everything that broke a rule.
    pub faults: Vec<String>,
    /// True from a send of this client on until the feed shows what came of it.
    pub sending: bool,
    announced: BTreeSet<String>,
}

fn list(v: &Value) -> Vec<Value> {
    v.as_array().cloned().unwrap_or_default()
}

fn word<'a>(v: &'a Value, key: &str) -> &'a str {
    v[key].as_str().unwrap_or_default()
}

impl View {
    /// Takes the reply of session/attach. Entries known from before stay when the snapshot goes on
    /// behind them (`resumed`, or an `afterEntry` that was honoured).
    pub fn snapshot(&mut self, params: &Value, snap: &Value) {
        self.session = word(params, "id").to_owned();
        (self.lagged, self.closed, self.sending) = (false, None, false);
        let (epoch, seq) = (word(snap, "epoch"), snap["seq"].as_u64());
        if epoch.is_empty() || seq.is_none() {
            self.fault(format!("snapshot without epoch or seq: {snap}"));
        }
        if snap["resumed"] == true {
            if params["after"]["epoch"] != snap["epoch"] || params["after"]["seq"] != snap["seq"] {
                self.fault(format!("resumed at {epoch}/{seq:?}, asked for {}", params["after"]));
            }
            if !list(&snap["entries"]).is_empty() {
                self.fault("a resumed snapshot carries entries".to_owned());
            }
            return;
        }
        (self.epoch, self.seq) = (epoch.to_owned(), seq.unwrap_or(0));
        let fresh = list(&snap["entries"]);
        if fresh.len() > 256 {
            self.fault(format!("{} entries in a snapshot", fresh.len()));
        }
        let first = fresh.first().and_then(|e| e["n"].as_u64());
        let goes_on = params["afterEntry"]["n"].as_u64().is_some_and(|n| first.is_none_or(|f| f == n + 1));
        if !goes_on {
            self.entries.clear();
        }
        for row in &fresh {
            self.entry(row);
        }
        if first.is_some_and(|f| f > 1) && !goes_on && snap["more"] != true {
            self.fault(format!("the snapshot starts at entry {first:?} without `more`"));
        }
        self.in_flight.clear();
        self.announced.clear();
        for piece in list(&snap["inFlight"]) {
            let (kind, text) = (word(&piece, "piece").to_owned(), word(&piece, "text").to_owned());
            let before = piece["offset"].as_u64().unwrap_or(0);
            if before > 0 && kind != "tool" {
                self.fault(format!("of {kind} something is left out: {before} bytes"));
            }
            let new = Piece { kind, before, text };
            if self.in_flight.insert(word(&piece, "of").to_owned(), new).is_some() {
                self.fault(format!("two pieces in flight under one name: {piece}"));
            }
        }
        self.set_state(&snap["state"]);
        self.info = snap["info"].clone();
        self.compaction = snap["compaction"].clone();
        self.disk = snap["disk"].clone();
        self.set_queue(&snap["queue"]);
        self.requests = list(&snap["requests"]);
        self.clients = list(&snap["clients"]).len() as u64;
        self.usage = snap["usage"].clone();
        self.plan = snap["plan"].clone();
    }

    /// Takes the params of a `session/event`.
    pub fn event(&mut self, event: &Value) {
        let kind = word(event, "kind");
        match kind {
            "lagged" | "closed" => {
                if !event["seq"].is_null() {
                    self.fault(format!("{kind} carries a number: {event}"));
                }
                if kind == "lagged" {
                    self.lagged = true
                } else {
                    self.closed = Some(word(event, "why").to_owned())
                }
                self.kinds.push(kind.to_owned());
                return;
            }
            _ => {}
        }
        if self.lagged || self.closed.is_some() {
            self.fault(format!("an event after lagged or closed: {event}"));
        }
        let seq = event["seq"].as_u64().unwrap_or(0);
        if event["epoch"].as_str() != Some(self.epoch.as_str()) || seq != self.seq + 1 {
            self.fault(format!("gap: at {}/{} came {event}", self.epoch, self.seq));
        }
        self.seq = seq;
        self.kinds.push(kind.to_owned());
        match kind {
            "entry" => self.entry_event(event),
            "delta" => self.delta(event),
            "state" => self.set_state(&event["state"]),
            "compaction" => self.compaction = event["compaction"].clone(),
            "disk" => self.disk = event["disk"].clone(),
            "queue" => self.set_queue(&event["rows"]),
            "request" => self.open_request(&event["request"]),
            "resolved" => self.resolve(event),
            "usage" => self.usage = event["usage"].clone(),
            "plan" => self.plan = event["items"].clone(),
            "clients" => {
                if event["joined"].is_string() == event["left"].is_string() {
                    self.fault(format!("not exactly one of joined and left: {event}"));
                }
                self.clients = event["count"].as_u64().unwrap_or(0);
            }
            "info" => self.info = event["info"].clone(),
            other => self.fault(format!("a kind of event the protocol does not have: {other:?}")),
        }
    }

    fn fault(&mut self, what: String) {
        self.faults.push(what);
    }

    fn entry(&mut self, row: &Value) {
        let (n, entry) = (row["n"].as_u64().unwrap_or(0), &row["entry"]);
        let last = self.last_n();
        if n == 0 || (!self.entries.is_empty() && n != last + 1) {
            self.fault(format!("entry {n} came after entry {last}"));
        }
        let first_key = entry.as_object().and_then(|o| o.keys().next()).map(String::as_str);
        if first_key != Some("type") || !entry["at"].is_string() {
            self.fault(format!("entry {n} does not start with type, or has no at: {entry}"));
        }
        self.entries.insert(n, entry.clone());
    }

    fn entry_event(&mut self, event: &Value) {
        self.entry(event);
        self.sending &= event["entry"]["type"] != "user";
        let Some(of) = event["of"].as_str() else { return };
        let piece = self.in_flight.remove(of);
        if piece.is_none() && !self.announced.remove(of) {
            self.fault(format!("an entry completes a piece nobody heard of: {event}"));
        }
        // What streamed as an answer or as reasoning is what is kept. Tool results may be clipped.
        if let Some(piece) = piece.filter(|p| p.kind == "assistant" || p.kind == "reasoning") {
            let kept = word(&event["entry"], "text");
            if piece.kind == word(&event["entry"], "type") && piece.text.trim() != kept.trim() {
                self.fault(format!("piece {of} streamed {:?} but the entry says {kept:?}", piece.text));
            }
        }
    }

    fn delta(&mut self, event: &Value) {
        let (of, text, offset) = (word(event, "of"), word(event, "text"), event["offset"].as_u64());
        let known = self.in_flight.get(of).map_or(0, |p| p.before + p.text.len() as u64);
        if of.is_empty() || offset != Some(known) {
            self.fault(format!("a delta that does not join: {known} bytes known, got {event}"));
        }
        let kind = word(event, "piece").to_owned();
        let piece =
            self.in_flight.entry(of.to_owned()).or_insert_with(|| Piece { kind, before: 0, text: String::new() });
        piece.text.push_str(text);
    }

    fn set_state(&mut self, state: &Value) {
        const NAMES: [&str; 5] = ["unloaded", "idle", "running", "held", "broken"];
        if !NAMES.contains(&word(state, "name")) {
            self.fault(format!("no state: {state}"));
        }
        for tool in list(&state["tools"]).into_iter().chain(list(&state["shells"])) {
            self.announced.insert(word(&tool, "of").to_owned());
        }
        self.sending &= !["running", "held"].contains(&word(state, "name"));
        self.state = state.clone();
    }

    fn set_queue(&mut self, rows: &Value) {
        let rows = list(rows);
        let ids: BTreeSet<u64> = rows.iter().filter_map(|r| r["row"].as_u64()).collect();
        if ids.len() != rows.len() {
            self.fault(format!("queue rows without their own ids: {rows:?}"));
        }
        self.sending &= rows.is_empty();
        self.queue = rows;
    }

    fn open_request(&mut self, request: &Value) {
        if self.requests.iter().any(|r| r["request"] == request["request"]) {
            self.fault(format!("a request was opened twice: {request}"));
        }
        self.requests.push(request.clone());
    }

    fn resolve(&mut self, event: &Value) {
        let before = self.requests.len();
        self.requests.retain(|r| r["request"] != event["request"]);
        if self.requests.len() == before {
            self.fault(format!("a request that was not open was closed: {event}"));
        }
        if (word(event, "decision") == "withdrawn") == event["by"].is_string() {
            self.fault(format!("resolved has to name who answered, and only then: {event}"));
        }
        self.resolved.push(event.clone());
    }

    /// Number of the last entry known.
    pub fn last_n(&self) -> u64 {
        self.entries.keys().next_back().copied().unwrap_or(0)
    }

    /// The state's name.
    pub fn state_name(&self) -> &str {
        word(&self.state, "name")
    }

    /// The phase of a running turn.
    pub fn phase(&self) -> &str {
        word(&self.state, "phase")
    }

    /// Whether nothing runs, waits, asks, streams or was just sent.
    pub fn quiet(&self) -> bool {
        !self.sending
            && self.state_name() == "idle"
            && self.queue.is_empty()
            && self.requests.is_empty()
            && self.in_flight.is_empty()
            && list(&self.state["shells"]).is_empty()
    }

    /// Entries of one type, oldest first.
    pub fn of_type(&self, kind: &str) -> Vec<&Value> {
        self.entries.values().filter(|e| e["type"] == kind).collect()
    }

    /// `text` of the entries of one type, oldest first.
    pub fn texts(&self, kind: &str) -> Vec<&str> {
        self.of_type(kind).into_iter().map(|e| word(e, "text")).collect()
    }

    /// `text` of the waiting rows, in order.
    pub fn waiting(&self) -> Vec<&str> {
        self.queue.iter().map(|r| word(r, "text")).collect()
    }

    /// The text in flight of one kind of piece.
    pub fn streaming(&self, kind: &str) -> Option<&str> {
        self.in_flight.values().find(|p| p.kind == kind).map(|p| p.text.as_str())
    }

    /// `status` of the last `turn` entry.
    pub fn last_status(&self) -> &str {
        self.of_type("turn").last().map_or("", |t| word(t, "status"))
    }

    /// Compares two views of the same session: everything a person could see has to be equal.
    /// Entries are compared where both have them (a `tail` knows fewer).
    ///
    /// # Errors
    /// The first difference, in words.
    pub fn same_as(&self, other: &Self) -> Result<(), String> {
        let from = self.entries.keys().next().max(other.entries.keys().next()).copied().unwrap_or(0);
        let (a, b) = (self.entries.range(from..), other.entries.range(from..));
        if let Some((x, y)) = a.clone().zip(b.clone()).find(|(x, y)| x != y) {
            return Err(format!("entries differ: {x:?} and {y:?}"));
        }
        if a.count() != b.count() {
            return Err(format!("one has {} entries, the other {}", self.last_n(), other.last_n()));
        }
        let same = |name: &str, x: &dyn std::fmt::Debug, y: &dyn std::fmt::Debug| {
            let (x, y) = (format!("{x:?}"), format!("{y:?}"));
            if x == y { Ok(()) } else { Err(format!("{name} differs: {x} and {y}")) }
        };
        same("in flight", &self.in_flight, &other.in_flight)?;
        same("state", &self.state, &other.state)?;
        same("queue", &self.queue, &other.queue)?;
        same("requests", &self.requests, &other.requests)?;
        same("usage", &self.usage, &other.usage)?;
        same("plan", &self.plan, &other.plan)?;
        same("compaction", &self.compaction, &other.compaction)?;
        for key in ["id", "title", "cwd", "model", "mode"] {
            same(key, &self.info[key], &other.info[key])?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn attached() -> View {
        let mut view = View::default();
        let entry = json!({"type":"user","text":"hi","at":"t"});
        view.snapshot(
            &json!({"id":"3f9a1c2b"}),
            &json!({"epoch":"e","seq":4,"state":{"name":"running"},"entries":[{"n":1,"entry":entry}],
                "inFlight":[{"of":"p","piece":"assistant","text":"é"}],"queue":[],"requests":[],"clients":["a#1"]}),
        );
        view
    }

    #[test]
    fn a_legal_feed_has_no_faults_and_ends_in_the_same_view() {
        let mut view = attached();
        view.event(&json!({"epoch":"e","seq":5,"kind":"delta","of":"p","piece":"assistant","offset":2,"text":"a"}));
        assert_eq!(view.streaming("assistant"), Some("éa"));
        let done = json!({"type":"assistant","text":"éa","at":"t"});
        view.event(&json!({"epoch":"e","seq":6,"kind":"entry","n":2,"entry":done,"of":"p"}));
        view.event(&json!({"epoch":"e","seq":7,"kind":"state","state":{"name":"idle"}}));
        assert_eq!(view.faults, Vec::<String>::new());
        assert!(view.quiet() && view.last_n() == 2);
        assert_eq!(view.same_as(&view.clone()), Ok(()));
        assert!(view.same_as(&attached()).is_err());
    }

    #[test]
    fn every_broken_rule_is_a_fault() {
        for (event, about) in [
            (json!({"epoch":"e","seq":6,"kind":"state","state":{"name":"idle"}}), "gap"),
            (json!({"epoch":"x","seq":5,"kind":"state","state":{"name":"idle"}}), "gap"),
            (json!({"epoch":"e","seq":5,"kind":"delta","of":"p","piece":"assistant","offset":1,"text":"a"}), "join"),
            (json!({"epoch":"e","seq":5,"kind":"entry","n":3,"entry":{"type":"notice","at":"t"}}), "entry 3"),
            (json!({"epoch":"e","seq":5,"kind":"entry","n":2,"entry":{"at":"t","type":"notice"}}), "type"),
            (json!({"epoch":"e","seq":5,"kind":"entry","n":2,"entry":{"type":"tool","at":"t"},"of":"q"}), "heard"),
            (json!({"epoch":"e","seq":5,"kind":"resolved","request":"r","decision":"deny","by":"a#1"}), "not open"),
            (json!({"epoch":"e","seq":5,"kind":"clients","count":1}), "exactly one"),
            (json!({"epoch":"e","seq":5,"kind":"lagged","at":3}), "number"),
            (json!({"epoch":"e","seq":5,"kind":"sparkle"}), "kind"),
        ] {
            let mut view = attached();
            view.event(&event);
            assert!(view.faults.iter().any(|f| f.contains(about)), "{about}: {:?}", view.faults);
        }
    }
}
