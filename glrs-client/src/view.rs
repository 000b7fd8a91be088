//! What a session looks like from outside: the snapshot, kept current by its events.
//!
//! Owns the rules of the feed on the client's side: numbers without gaps, pieces by byte offset,
//! what to ask for after a gap. Pure: no I/O, no clock. Every surface shows these values and
//! derives none.

use glrs_protocol::SessionId;
use glrs_protocol::entry::Entry;
use glrs_protocol::event::{Delta, Event, EventFrame};
use glrs_protocol::params::{After, AfterEntry, Attach, Snapshot};
use glrs_protocol::types::{
    Compaction, Disk, InFlight, NumberedEntry, PlanItem, QueueRow, Request, SessionInfo, State, StateName, UsageInfo,
};
use serde_json::value::RawValue;

/// What an event did to the view.
#[derive(Clone, Debug, PartialEq)]
pub enum Applied {
    /// The view is current.
    Fresh,
    /// An old event, or one of another session: nothing changed.
    Ignored,
    /// Events are missing: attach again with [`SessionView::attach_params`].
    Reattach,
    /// The session ended for this client, and why.
    Closed(String),
}

/// What a new snapshot meant for the entries the view had.
#[derive(Clone, Debug, PartialEq)]
pub enum Adopted {
    /// They stand; so many are new at the end.
    Continued(usize),
    /// They stand, but entries `from..=to` are between them and the new ones:
    /// `session/entries` has them.
    Hole {
        /// First missing entry.
        from: u64,
        /// Last missing entry.
        to: u64,
    },
    /// The log is another one: everything is to be shown anew.
    Replaced,
}

/// A session as its clients see it.
#[derive(Clone, Debug)]
pub struct SessionView {
    /// Epoch of the numbers.
    pub epoch: String,
    /// Number of the last event that is in here.
    pub seq: u64,
    /// Info.
    pub info: SessionInfo,
    /// State.
    pub state: State,
    /// Compaction.
    pub compaction: Compaction,
    /// Disk.
    pub disk: Disk,
    /// The entries that are known, oldest first.
    pub entries: Vec<NumberedEntry>,
    /// What streams now.
    pub in_flight: Vec<InFlight>,
    /// What waits.
    pub queue: Vec<QueueRow>,
    /// What waits for an answer.
    pub requests: Vec<Request>,
    /// Who is attached, as `name#id`.
    pub clients: Vec<String>,
    /// How many are attached.
    pub client_count: u64,
    /// Usage.
    pub usage: UsageInfo,
    /// Plan.
    pub plan: Vec<PlanItem>,
    /// True when there are entries before the first one here.
    pub more: bool,
}

impl SessionView {
    /// A view of a snapshot.
    pub fn new(s: Snapshot) -> Self {
        Self {
            epoch: s.epoch,
            seq: s.seq,
            info: s.info,
            state: s.state,
            compaction: s.compaction,
            disk: s.disk,
            entries: s.entries,
            in_flight: s.in_flight,
            queue: s.queue,
            requests: s.requests,
            client_count: s.clients.len() as u64,
            clients: s.clients,
            usage: s.usage,
            plan: s.plan,
            more: s.more,
        }
    }

    /// The session's id.
    pub fn id(&self) -> &SessionId {
        &self.info.id
    }

    /// Number of the last entry that is known; 0 when there is none.
    pub fn last_entry(&self) -> u64 {
        self.entries.last().map_or(0, |e| e.n)
    }

    /// Whether a turn runs.
    pub fn running(&self) -> bool {
        self.state.name == StateName::Running
    }

    /// How to attach again from what is here. On the same connection the daemon's ring may still
    /// have what is missing; on a new one only the entries count.
    pub fn attach_params(&self, same_connection: bool, read_only: bool) -> Attach {
        let after = same_connection.then(|| After { epoch: self.epoch.clone(), seq: self.seq });
        let after_entry = (after.is_none())
            .then(|| self.entries.last())
            .flatten()
            .map(|e| AfterEntry { n: e.n, at: entry_at(&e.entry) });
        let tail = None;
        Attach { id: self.info.id.clone(), after, after_entry, tail, read_only, env: None }
    }

    /// Takes a snapshot that came of attaching again. Entries that are here already are not
    /// repeated.
    pub fn adopt(&mut self, s: Snapshot) -> Adopted {
        if s.resumed {
            // The missed events follow, beginning where this view ends.
            return Adopted::Continued(0);
        }
        let had = std::mem::take(&mut self.entries);
        let (more_before, last) = (self.more, had.last().map_or(0, |e| e.n));
        let total = s.info.entries;
        *self = Self::new(s);
        if had.is_empty() {
            return if self.entries.is_empty() { Adopted::Continued(0) } else { Adopted::Replaced };
        }
        let same_log = total >= last
            && self.entries.iter().take_while(|e| e.n <= last).all(|e| {
                let at = had.partition_point(|h| h.n < e.n);
                had.get(at).is_none_or(|h| h.n != e.n || h.entry.get() == e.entry.get())
            });
        if !same_log {
            return Adopted::Replaced;
        }
        let fresh: Vec<NumberedEntry> = self.entries.drain(..).filter(|e| e.n > last).collect();
        let first_new = fresh.first().map(|e| e.n);
        let count = fresh.len();
        self.entries = had;
        self.entries.extend(fresh);
        self.more = more_before;
        match first_new {
            Some(n) if n > last + 1 => Adopted::Hole { from: last + 1, to: n - 1 },
            _ => Adopted::Continued(count),
        }
    }

    /// Puts entries that were fetched afterwards where they belong.
    pub fn fill(&mut self, entries: Vec<NumberedEntry>) {
        for e in entries {
            let at = self.entries.partition_point(|h| h.n < e.n);
            if self.entries.get(at).is_none_or(|h| h.n != e.n) {
                self.entries.insert(at, e);
            }
        }
        if self.entries.first().is_some_and(|e| e.n == 1) {
            self.more = false;
        }
    }

    /// Applies an event.
    pub fn apply(&mut self, frame: &EventFrame) -> Applied {
        if frame.head.session != self.info.id.as_str() {
            return Applied::Ignored;
        }
        match &frame.event {
            Event::Closed(c) => return Applied::Closed(c.why.clone()),
            Event::Lagged(_) => return Applied::Reattach,
            _ => {}
        }
        if frame.head.epoch != self.epoch {
            return Applied::Reattach;
        }
        match frame.head.seq {
            None => return Applied::Ignored,
            Some(seq) if seq <= self.seq => return Applied::Ignored,
            Some(seq) if seq != self.seq + 1 => return Applied::Reattach,
            Some(seq) => {
                if !self.take(&frame.event) {
                    return Applied::Reattach;
                }
                self.seq = seq;
            }
        }
        Applied::Fresh
    }

    /// Takes an event in; false when it does not fit what is here.
    fn take(&mut self, event: &Event) -> bool {
        match event {
            Event::Entry(e) => {
                if let Some(of) = &e.of {
                    self.in_flight.retain(|p| p.of != *of);
                }
                let last = self.last_entry();
                if e.n > last + 1 && last > 0 {
                    return false;
                }
                if e.n > last {
                    self.entries.push(NumberedEntry { n: e.n, entry: e.entry.clone() });
                }
            }
            Event::Delta(d) => return self.take_delta(d),
            Event::State(s) => {
                self.state = s.state.clone();
                if !matches!(self.state.name, StateName::Running | StateName::Unknown) {
                    // Commands of people go on beside turns.
                    let shells = &self.state.shells;
                    self.in_flight.retain(|p| shells.iter().any(|s| s.of == p.of));
                }
            }
            Event::Compaction(c) => self.compaction = c.compaction.clone(),
            Event::Disk(d) => self.disk = d.disk.clone(),
            Event::Queue(q) => self.queue = q.rows.clone(),
            Event::Request(r) => {
                self.requests.retain(|have| have.request != r.request.request);
                self.requests.push(r.request.clone());
            }
            Event::Resolved(r) => self.requests.retain(|have| have.request != r.request),
            Event::Usage(u) => self.usage = u.usage.clone(),
            Event::Plan(p) => self.plan = p.items.clone(),
            Event::Clients(c) => {
                if let Some(who) = &c.joined
                    && !self.clients.contains(who)
                {
                    self.clients.push(who.clone());
                }
                if let Some(who) = &c.left {
                    self.clients.retain(|have| have != who);
                }
                self.client_count = c.count;
            }
            Event::Info(i) => self.info = i.info.clone(),
            Event::Lagged(_) | Event::Closed(_) | Event::Unknown(_) => {}
        }
        true
    }

    fn take_delta(&mut self, d: &Delta) -> bool {
        let at = match self.in_flight.iter().position(|p| p.of == d.of) {
            Some(at) => at,
            None => {
                self.in_flight.push(InFlight { of: d.of.clone(), piece: d.piece, offset: 0, text: String::new() });
                self.in_flight.len() - 1
            }
        };
        let Some(piece) = self.in_flight.get_mut(at) else { return false };
        let offset = d.offset.checked_sub(piece.offset).and_then(|o| usize::try_from(o).ok()).unwrap_or(usize::MAX);
        if offset > piece.text.len() || !piece.text.is_char_boundary(offset) {
            return false;
        }
        piece.text.truncate(offset);
        piece.text.push_str(&d.text);
        true
    }
}

#[derive(serde::Deserialize)]
struct At {
    #[serde(default)]
    at: String,
}

/// An entry's `at`, or nothing where it has none.
pub fn entry_at(raw: &RawValue) -> String {
    serde_json::from_str::<At>(raw.get()).map(|a| a.at).unwrap_or_default()
}

/// The typed view of an entry; one whose fields do not fit counts as unknown.
pub fn typed(entry: &NumberedEntry) -> Entry {
    Entry::parse(entry.entry.get()).unwrap_or_else(|_| Entry::Unknown("unreadable".to_owned()))
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use serde_json::{Value, json};

    pub(crate) fn snapshot(seq: u64, entries: &[(u64, &str)]) -> Snapshot {
        let total = entries.last().map_or(0, |e| e.0);
        let rows: Vec<Value> = entries
            .iter()
            .map(|(n, t)| json!({"n": n, "entry": {"type": "assistant", "text": t, "at": format!("t{n}")}}))
            .collect();
        serde_json::from_value(json!({
            "epoch": "e1", "seq": seq,
            "info": {"id": "3f9a1c2b", "title": "a title", "cwd": "/r", "createdAt": "2026-09-06T14:00:00.000Z",
                "updatedAt": "2026-09-06T14:00:00.000Z", "entries": total, "model": "p/m", "mode": "ask",
                "state": "idle", "saved": true},
            "state": {"name": "running", "step": 1}, "compaction": {"state": "none"}, "disk": {"ok": true},
            "entries": rows, "inFlight": [], "queue": [], "requests": [], "clients": ["glrs#1"],
            "usage": {"contextTokens": 0, "window": 200_000, "line": 150_000, "calls": 0, "input": 0, "output": 0,
                "cached": 0, "cost": 0.0},
            "plan": [], "more": false
        }))
        .unwrap()
    }

    pub(crate) fn frame(seq: u64, kind: &str, body: Value) -> EventFrame {
        let mut v = json!({"session": "3f9a1c2b", "epoch": "e1", "seq": seq, "kind": kind});
        v.as_object_mut().unwrap().extend(body.as_object().unwrap().clone());
        EventFrame::parse(&v.to_string()).unwrap()
    }

    fn delta(seq: u64, offset: u64, text: &str) -> EventFrame {
        frame(seq, "delta", json!({"of": "p1", "piece": "assistant", "offset": offset, "text": text}))
    }

    fn entry(seq: u64, n: u64, of: Option<&str>) -> EventFrame {
        frame(seq, "entry", json!({"n": n, "entry": {"type": "notice", "text": "x", "at": format!("t{n}")}, "of": of}))
    }

    #[test]
    fn a_piece_of_which_only_the_end_is_known_goes_on() {
        let mut v = SessionView::new(snapshot(1, &[]));
        let piece = json!({"of": "p1", "piece": "assistant", "offset": 7, "text": "end"});
        v.in_flight.push(serde_json::from_value(piece).unwrap());
        assert_eq!(v.apply(&delta(2, 10, "!")), Applied::Fresh);
        assert_eq!(v.in_flight[0].text, "end!");
        assert_ne!(v.apply(&delta(3, 6, "x")), Applied::Fresh);
    }

    #[test]
    fn pieces_grow_by_byte_offset_and_their_entry_completes_them() {
        let mut v = SessionView::new(snapshot(5, &[(1, "one")]));
        assert_eq!(v.apply(&delta(6, 0, "grü")), Applied::Fresh);
        assert_eq!(v.apply(&delta(7, 4, "n 🌱")), Applied::Fresh);
        assert_eq!(v.in_flight[0].text, "grün 🌱");
        // A retried step begins its piece again.
        assert_eq!(v.apply(&delta(8, 0, "neu")), Applied::Fresh);
        assert_eq!(v.in_flight[0].text, "neu");
        assert_eq!(v.apply(&entry(9, 2, Some("p1"))), Applied::Fresh);
        assert!(v.in_flight.is_empty());
        assert_eq!(v.last_entry(), 2);
    }

    #[test]
    fn a_delta_that_does_not_fit_asks_for_a_new_attach_and_changes_no_number() {
        let mut v = SessionView::new(snapshot(5, &[]));
        assert_eq!(v.apply(&delta(6, 3, "x")), Applied::Reattach);
        assert_eq!(v.seq, 5);
        let mut v = SessionView::new(snapshot(5, &[]));
        v.apply(&delta(6, 0, "é"));
        assert_eq!(v.apply(&delta(7, 1, "x")), Applied::Reattach, "inside a character");
    }

    #[test]
    fn gaps_other_epochs_and_lag_ask_for_a_new_attach_and_old_events_are_ignored() {
        let mut v = SessionView::new(snapshot(5, &[(1, "one")]));
        assert_eq!(v.apply(&entry(5, 1, None)), Applied::Ignored);
        assert_eq!(v.apply(&entry(7, 2, None)), Applied::Reattach);
        let mut other = entry(6, 2, None);
        other.head.epoch = "e2".into();
        assert_eq!(v.apply(&other), Applied::Reattach);
        let mut lagged = frame(0, "lagged", json!({"at": 9}));
        lagged.head.seq = None;
        assert_eq!(v.apply(&lagged), Applied::Reattach);
        let mut foreign = entry(6, 2, None);
        foreign.head.session = "00000000".into();
        assert_eq!(v.apply(&foreign), Applied::Ignored);
        let p = v.attach_params(true, false);
        assert_eq!((p.after.as_ref().map(|a| a.seq), p.after_entry.is_none()), (Some(5), true));
        let p = v.attach_params(false, true);
        assert_eq!(p.after_entry.map(|a| (a.n, a.at)), Some((1, "t1".to_owned())));
        assert!(p.after.is_none() && p.read_only);
    }

    #[test]
    fn unknown_kinds_count_and_change_nothing() {
        let mut v = SessionView::new(snapshot(5, &[]));
        assert_eq!(v.apply(&frame(6, "sparkle", json!({"x": 1}))), Applied::Fresh);
        assert_eq!(v.seq, 6);
        let closed = frame(7, "closed", json!({"why": "deleted"}));
        assert_eq!(v.apply(&closed), Applied::Closed("deleted".into()));
    }

    #[test]
    fn queue_requests_and_clients_follow() {
        let mut v = SessionView::new(snapshot(0, &[]));
        let request = json!({"request": {"request": "q1", "kind": "permission", "tool": "bash", "title": "t",
            "body": "rm", "callId": "c", "at": "t"}});
        v.apply(&frame(1, "request", request.clone()));
        v.apply(&frame(2, "request", request));
        assert_eq!(v.requests.len(), 1);
        v.apply(&frame(3, "resolved", json!({"request": "q1", "decision": "deny", "by": "glrs#2"})));
        assert!(v.requests.is_empty());
        v.apply(&frame(4, "clients", json!({"joined": "web#2", "count": 2})));
        assert_eq!((v.clients.len(), v.client_count), (2, 2));
        v.apply(&frame(5, "clients", json!({"left": "web#2", "count": 1})));
        assert_eq!(v.clients, ["glrs#1"]);
        v.apply(&delta(6, 0, "half"));
        v.apply(&frame(7, "state", json!({"state": {"name": "idle"}})));
        assert!(v.in_flight.is_empty() && !v.running());
    }

    #[test]
    fn attaching_again_repeats_nothing() {
        let mut v = SessionView::new(snapshot(5, &[(1, "one"), (2, "two")]));
        let mut s = snapshot(9, &[(2, "two"), (3, "three")]);
        s.epoch = "e2".into();
        assert_eq!(v.adopt(s), Adopted::Continued(1));
        assert_eq!(v.entries.iter().map(|e| e.n).collect::<Vec<_>>(), [1, 2, 3]);
        assert_eq!((v.epoch.as_str(), v.seq), ("e2", 9));
    }

    #[test]
    fn a_resumed_attach_keeps_the_number_so_that_the_missed_events_apply() {
        let mut v = SessionView::new(snapshot(5, &[(1, "one")]));
        let mut s = snapshot(9, &[]);
        s.resumed = true;
        assert_eq!(v.adopt(s), Adopted::Continued(0));
        assert_eq!(v.apply(&entry(6, 2, None)), Applied::Fresh);
    }

    #[test]
    fn holes_are_named_and_can_be_filled() {
        let mut v = SessionView::new(snapshot(5, &[(1, "one"), (2, "two")]));
        assert_eq!(v.adopt(snapshot(9, &[(5, "five")])), Adopted::Hole { from: 3, to: 4 });
        v.fill(snapshot(0, &[(3, "three"), (4, "four"), (5, "five")]).entries);
        assert_eq!(v.entries.iter().map(|e| e.n).collect::<Vec<_>>(), [1, 2, 3, 4, 5]);
    }

    #[test]
    fn another_log_replaces_everything() {
        let mut v = SessionView::new(snapshot(5, &[(1, "one"), (2, "two")]));
        assert_eq!(v.adopt(snapshot(9, &[(2, "other"), (3, "three")])), Adopted::Replaced);
        let mut v = SessionView::new(snapshot(5, &[(1, "one"), (2, "two")]));
        let mut shrunk = snapshot(9, &[]);
        shrunk.info.entries = 1;
        assert_eq!(v.adopt(shrunk), Adopted::Replaced);
    }
}
