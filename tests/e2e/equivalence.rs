//! Whatever happens to the clients of a session, they end up knowing the same: random scripts of
//! everything clients do to each other, with connections lost, terminals stopped and daemons killed
//! in between, and a fixed script that is cut at every single event.
//!
//! `GLRS_EQUIVALENCE_SEEDS` (default 3) and `GLRS_EQUIVALENCE_STEPS` (default 50) widen the random
//! part, `GLRS_EQUIVALENCE_FROM` names its first seed. Every view is read strictly (`View`): a gap,
//! a repeat or a delta that does not join is a fault by itself.

use crate::{home, rehearsal};
use glrs_tests::{Daemon, Home, PATIENCE, Rng, Value, View, Wire, check, json};
use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::sync::mpsc::{Sender, channel};

fn setting(name: &str, default: u64) -> u64 {
    std::env::var(name).ok().and_then(|v| v.parse().ok()).unwrap_or(default)
}

/// The params of an attach that goes on from `known`.
fn going_on(known: &View, how: u64) -> Value {
    let last = known.last_n();
    match how {
        0 => json!({"after": {"epoch": known.epoch, "seq": known.seq}}),
        1 if last > 0 => json!({"afterEntry": {"n": last, "at": known.entries[&last]["at"]}}),
        2 => json!({"tail": 3}),
        _ => json!({}),
    }
}

/// Someone who takes part: connected or away, reading or stopped.
struct Seat {
    name: String,
    wire: Option<Wire>,
    known: View,
    stopped: bool,
}

impl Seat {
    fn leave(&mut self, id: &str) {
        if let Some(wire) = self.wire.take() {
            wire.close();
            self.known = wire.view(id);
        }
        self.stopped = false;
    }

    fn come(&mut self, home: &Home, id: &str, how: u64) {
        let wire = home.wire(&self.name);
        let mut more = json!({"env": home.env()});
        if !self.known.epoch.is_empty() {
            wire.adopt(self.known.clone());
            more.as_object_mut().unwrap().extend(going_on(&self.known, how).as_object().unwrap().clone());
        }
        wire.attach(id, more);
        self.wire = Some(wire);
    }

    /// One who fell behind attaches again from what it has.
    fn catch_up(&self, id: &str, how: u64) {
        if let Some(wire) = self.wire.as_ref().filter(|_| !self.stopped) {
            let view = wire.view(id);
            if view.lagged || view.closed.is_some() {
                wire.attach(id, going_on(&view, how));
            }
        }
    }
}

/// A message that was accepted: its params, the text it has now, and whether someone removed it.
struct Sent {
    params: Value,
    text: String,
    removed: bool,
}

struct Play {
    id: String,
    seats: Vec<Seat>,
    sent: BTreeMap<String, Sent>,
    rng: Rng,
    count: u64,
    daemon: Daemon,
    home: Home,
}

impl Play {
    fn new(seed: u64) -> Self {
        let home = home();
        let daemon = home.daemon();
        let first = home.wire("ann");
        let id = first.new_session(&home, json!({}));
        let mut seats = Vec::new();
        for name in ["ann", "bob", "cid"] {
            let mut seat = Seat { name: name.to_owned(), wire: None, known: View::default(), stopped: false };
            seat.come(&home, &id, 0);
            seats.push(seat);
        }
        first.close();
        Self { id, seats, sent: BTreeMap::new(), rng: Rng::new(seed), count: 0, daemon, home }
    }

    fn awake(&self) -> Vec<usize> {
        (0..self.seats.len()).filter(|i| self.seats[*i].wire.is_some() && !self.seats[*i].stopped).collect()
    }

    /// A wire that reads; someone comes back if all are away.
    fn actor(&mut self) -> usize {
        if self.awake().is_empty() {
            let how = self.rng.below(4);
            self.seats[0].leave(&self.id);
            self.seats[0].come(&self.home, &self.id, how);
        }
        *self.rng.pick(&self.awake())
    }

    fn wire(&self, seat: usize) -> &Wire {
        self.seats[seat].wire.as_ref().unwrap()
    }

    fn message(&mut self) -> (String, Value) {
        self.count += 1;
        let key = format!("k{}", self.count);
        let what = *self.rng.pick(&["say 30 words", "slow 4 words", "write a.txt x", "say 3 words", "think 9 words"]);
        let mode = *self.rng.pick(&["queue", "queue", "queue", "steer", "interrupt"]);
        let text = format!("{what}\nnumber {key}");
        (key.clone(), json!({"id": self.id, "text": text, "key": key, "mode": mode}))
    }

    fn accepted(&mut self, key: String, params: Value) {
        let text = params["text"].as_str().unwrap().to_owned();
        self.sent.insert(key, Sent { params, text, removed: false });
    }

    fn send(&mut self) {
        let (seat, (key, params)) = (self.actor(), self.message());
        self.wire(seat).ok("session/send", params.clone());
        self.accepted(key, params);
    }

    /// Does something to a waiting row as this client sees it; the version may be old by now.
    fn touch_queue(&mut self) {
        let seat = self.actor();
        let rows = self.wire(seat).view(&self.id).queue;
        if rows.is_empty() {
            return self.send();
        }
        let row = self.rng.pick(&rows).clone();
        let base = json!({"id": self.id, "row": row["row"], "version": row["version"]});
        let with = |key: &str, value: Value| {
            let mut params = base.clone();
            params[key] = value;
            params
        };
        self.count += 1;
        let text = format!("say 2 words\nedit {}", self.count);
        let (method, params) = match self.rng.below(3) {
            0 => ("queue/edit", with("text", json!(text))),
            1 => ("queue/move", with("to", json!(self.rng.below(4)))),
            _ => ("queue/remove", base.clone()),
        };
        match self.wire(seat).call(method, params) {
            Ok(_) => {
                let hit = self.sent.values_mut().find(|s| row["text"] == s.text.as_str() && !s.removed);
                let hit = hit.unwrap_or_else(|| panic!("nobody sent {row}"));
                match method {
                    "queue/edit" => hit.text = text,
                    "queue/remove" => hit.removed = true,
                    _ => {}
                }
            }
            Err(e) => {
                assert!(["conflict", "not_found"].contains(&e["data"]["kind"].as_str().unwrap()), "{method}: {e}")
            }
        }
    }

    fn answer(&mut self) {
        let seat = self.actor();
        let Some(request) = self.wire(seat).view(&self.id).requests.first().cloned() else { return };
        let decision = *self.rng.pick(&["allow", "deny"]);
        if let Err(e) = self.wire(seat).answer(&self.id, &request, decision) {
            assert!(["already_resolved", "not_found"].contains(&e["data"]["kind"].as_str().unwrap()), "{e}");
        }
    }

    /// Lets one client stop reading while more is published than the ring and its socket hold.
    fn fall_behind(&mut self) {
        let seat = self.actor();
        if self.awake().len() < 2 {
            return;
        }
        self.wire(seat).pause(true);
        self.seats[seat].stopped = true;
        let other = self.actor();
        let data = "x".repeat(200_000);
        for _ in 0..10 {
            self.wire(other).ok("session/append", json!({"id": self.id, "custom": "test:flood", "data": data}));
        }
    }

    fn come_or_go(&mut self) {
        let seat = self.rng.below(self.seats.len() as u64) as usize;
        let how = self.rng.below(4);
        match &self.seats[seat].wire {
            Some(wire) if self.seats[seat].stopped => {
                wire.pause(false);
                self.seats[seat].stopped = false;
            }
            Some(_) => self.seats[seat].leave(&self.id),
            None => self.seats[seat].come(&self.home, &self.id, how),
        }
    }

    /// Kills the daemon with a message on its way; its sender repeats it.
    fn kill(&mut self) {
        let (seat, (key, params)) = (self.actor(), self.message());
        self.wire(seat).start("session/send", params.clone());
        self.daemon.kill9();
        self.daemon = self.home.daemon();
        for seat in &mut self.seats {
            let how = self.rng.below(4);
            seat.leave(&self.id);
            seat.come(&self.home, &self.id, how);
        }
        self.wire(0).ok("session/send", params.clone());
        self.accepted(key, params);
    }

    fn step(&mut self) {
        match self.rng.below(40) {
            0..12 => self.send(),
            12..17 => self.touch_queue(),
            17..23 => self.answer(),
            23..25 => self.plain("session/interrupt"),
            25..28 => self.plain("session/release"),
            28..37 => self.come_or_go(),
            37..39 => self.fall_behind(),
            _ => self.kill(),
        }
        let how = self.rng.below(4);
        self.seats.iter().for_each(|s| s.catch_up(&self.id, how));
    }

    fn plain(&mut self, method: &str) {
        let seat = self.actor();
        self.wire(seat).ok(method, json!({"id": self.id}));
    }

    /// Everyone comes back, everything that waits runs, and all have to know the same.
    fn end(mut self, seed: u64) {
        for seat in &mut self.seats {
            if let Some(wire) = &seat.wire {
                wire.pause(false);
                seat.stopped = false;
            } else {
                let how = self.rng.below(4);
                seat.come(&self.home, &self.id, how);
            }
        }
        let id = self.id.clone();
        let eye = self.home.wire("eye");
        eye.attach(&id, json!({}));
        loop {
            let view = eye.wait_view(&id, "quiet, held or asking", |v| {
                v.lagged || v.quiet() || !v.requests.is_empty() || v.state_name() == "held"
            });
            if view.lagged {
                eye.attach(&id, json!({}));
            } else if let Some(request) = view.requests.first() {
                let _ = eye.answer(&id, request, "deny");
                eye.wait_view(&id, "an answered request", |v| v.lagged || v.requests.first() != Some(request));
            } else if view.state_name() == "held" {
                eye.ok("session/release", json!({"id": id}));
                eye.wait_view(&id, "released", |v| v.lagged || v.state_name() != "held");
            } else {
                break;
            }
        }
        let whole = self.home.wire("late");
        whole.attach(&id, json!({}));
        let whole = whole.view(&id);
        for seat in &self.seats {
            let wire = seat.wire.as_ref().unwrap();
            loop {
                let view = wire.wait_view(&id, "all there is", |v| {
                    v.lagged || v.closed.is_some() || (v.epoch == whole.epoch && v.seq >= whole.seq)
                });
                if view.seq >= whole.seq && view.epoch == whole.epoch && !view.lagged {
                    break view.same_as(&whole).unwrap_or_else(|e| panic!("seed {seed}, {}: {e}", seat.name));
                }
                seat.catch_up(&id, 0);
            }
        }
        self.conserved(&whole, seed);
        for sent in self.sent.values() {
            // Repeating a send, with its key, changes nothing, whatever became of it.
            let outcome = eye.ok("session/send", sent.params.clone())["outcome"].clone();
            assert_eq!(outcome, if sent.removed { "removed" } else { "sent" }, "seed {seed}: {}", sent.params);
        }
        check::check_session(&self.home.log(&id)).clean();
    }

    fn conserved(&self, whole: &View, seed: u64) {
        let mut texts = whole.texts("user");
        for sent in self.sent.values().filter(|s| !s.removed) {
            let at = texts.iter().position(|t| *t == sent.text);
            texts.swap_remove(at.unwrap_or_else(|| panic!("seed {seed}: {:?} is lost", sent.text)));
        }
        assert!(texts.is_empty(), "seed {seed}: nobody sent {texts:?}, or it came twice");
    }
}

#[test]
fn random_scripts_end_with_everyone_knowing_the_same() {
    let (from, seeds) = (setting("GLRS_EQUIVALENCE_FROM", 1), setting("GLRS_EQUIVALENCE_SEEDS", 3));
    for seed in from..from + seeds {
        let mut play = Play::new(seed);
        for _ in 0..setting("GLRS_EQUIVALENCE_STEPS", 50) {
            play.step();
        }
        play.end(seed);
    }
}

/// Reads a session's feed by hand and leaves after exactly `most` events; gives what is known then.
fn read_events(home: &Home, id: &str, most: usize, ready: &Sender<()>) -> View {
    let mut stream = UnixStream::connect(home.socket()).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    let attach = json!({"id": id});
    let call = |n: u64, method: &str, params: &Value| {
        format!("{}\n", json!({"jsonrpc": "2.0", "id": n, "method": method, "params": params}))
    };
    let hello = json!({"client": {"name": "bob"}, "protocol": {"min": 1, "max": 1}});
    stream.write_all((call(1, "hello", &hello) + &call(2, "session/attach", &attach)).as_bytes()).unwrap();
    let (mut view, mut input, mut line) = (View::default(), BufReader::new(stream), String::new());
    let mut events = 0;
    loop {
        // The last turn's end, after both messages.
        let over = view.quiet() && view.of_type("user").len() == 2;
        if (events == most && !view.epoch.is_empty()) || over {
            assert!(view.faults.is_empty(), "{:?}", view.faults);
            return view;
        }
        line.clear();
        assert!(input.read_line(&mut line).unwrap() > 0, "closed without a word");
        let message: Value = line.parse().unwrap();
        if message["id"] == 2 {
            view.snapshot(&attach, &message["result"]);
            ready.send(()).unwrap();
        } else if message["method"] == "session/event" {
            view.event(&message["params"]);
            events += 1;
        }
    }
}

/// The script: a call that asks, a message behind it, a reply in pieces, then the second turn.
fn script(wire: &Wire, id: &str) -> View {
    wire.send(id, &format!("say 4 words; then write {id}.txt x"));
    wire.send(id, "think 4 words; then say 12 words");
    wire.answer(id, &wire.request(id), "allow").unwrap();
    wire.wait_view(id, "both turns", |v| v.quiet() && v.of_type("user").len() == 2)
}

#[test]
fn a_client_cut_off_at_any_event_ends_with_the_same() {
    let (home, _daemon, wire, _) = rehearsal(json!({}));
    let mut index = 0;
    // How many events there are depends on how deltas are joined: it goes on until nothing is cut.
    loop {
        let mut whole_script_seen = false;
        for how in 0..3 {
            let id = wire.new_session(&home, json!({}));
            let (ready, attached) = channel();
            let (cut, whole) = std::thread::scope(|scope| {
                let (home, id, ready) = (&home, &id, &ready);
                let reading = scope.spawn(move || read_events(home, id, index, ready));
                attached.recv_timeout(PATIENCE).expect("bob is attached");
                let whole = scope.spawn(|| script(&wire, id));
                let known = reading.join().unwrap();
                whole_script_seen |= known.quiet() && known.of_type("user").len() == 2;
                let back = home.wire("bob");
                back.adopt(known.clone());
                back.attach(id, going_on(&known, how));
                let both = |v: &View| v.quiet() && v.entries.values().filter(|e| e["type"] == "turn").count() > 0;
                let whole = whole.join().unwrap();
                let last = whole.last_n();
                (back.wait_view(id, "the end", |v| both(v) && v.last_n() == last), whole)
            });
            cut.same_as(&whole).unwrap_or_else(|e| panic!("cut at event {index}, attach {how}: {e}"));
            wire.ok("session/detach", json!({"id": id}));
        }
        if whole_script_seen {
            break;
        }
        index += 1;
    }
    assert!(index > 20, "the script has {index} events: too few to prove anything");
}
