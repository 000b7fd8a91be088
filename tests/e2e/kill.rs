//! kill -9 of the daemon, again and again, under two clients that do everything at once.
//!
//! Each round two clients work on three sessions (sends in every mode, esc, edits, removals and
//! moves in the queue, clears, renames, forks, tools that run, commands of people), some calls are still on their way
//! when the daemon dies, and the next daemon has to know what was answered. `GLRS_KILLS` sets how
//! often, times ten (the store's own proof, glrsd/tests/store_crash, takes it as it is);
//! `GLRS_SEED` the workload. What fails names its seed.

use crate::faked;
use glrs_tests::{Dialect, Fake, Home, Reply, Rng, Value, Wire, check, json};
use std::collections::BTreeMap;
use std::fs;

fn number(name: &str, or: u64) -> u64 {
    std::env::var(name).ok().and_then(|n| n.parse().ok()).unwrap_or(or)
}

/// A model that talks in pieces and now and then calls tools.
fn brain(seed: u64) -> impl FnMut(&Value) -> Reply + Send {
    let mut rng = Rng::new(seed);
    move |body| {
        let last = body["messages"].as_array().and_then(|m| m.last()).map(Value::to_string).unwrap_or_default();
        let told = last.contains("tool_result") && rng.below(3) > 0;
        match rng.below(6) {
            0 if !told => Reply::say("reading ").tool_call("read", json!({"path": "a.txt"})),
            1 if !told => Reply::call("write", json!({"path": "b.txt", "content": last.len().to_string()})),
            2 if !told => Reply::call("bash", json!({"command": "echo x >> c.txt; cat a.txt"})),
            3 => Reply::new().reasoning("considering it ", "sig").text("considered"),
            4 => (0..30).fold(Reply::say("at length "), |r, i| r.text(&format!("word {i} "))),
            _ => Reply::say("an answer of several words "),
        }
    }
}

/// A message that was sent.
#[derive(Debug)]
struct Message {
    session: usize,
    /// Texts it may have now: two while an edit's answer is not known.
    texts: Vec<String>,
    /// It was acknowledged, or was seen after a kill.
    there: bool,
    /// It was taken back.
    removed: bool,
    /// A removal was on its way when the daemon died.
    leaving: bool,
}

/// A fork: of which log, how many entries.
#[derive(Debug)]
struct Fork {
    id: String,
    parent: String,
    at: usize,
    /// It was acknowledged, or was seen after a kill.
    there: bool,
}

/// A command of a person.
#[derive(Debug)]
struct Command {
    session: usize,
    /// It was acknowledged, or was seen after a kill.
    there: bool,
}

struct Kills {
    home: Home,
    fake: Fake,
    rng: Rng,
    ids: Vec<String>,
    messages: BTreeMap<String, Message>,
    forks: Vec<Fork>,
    commands: BTreeMap<String, Command>,
    titles: Vec<Vec<String>>,
    made: u64,
}

/// A call, and what its answer means.
struct Call {
    method: &'static str,
    params: Value,
    then: Then,
}

/// What a call is about.
enum Then {
    /// The message of this text.
    Sent(String),
    /// Message, and its new text.
    Edited(String, String),
    Removed(String),
    /// The command of this key.
    Run(String),
    Renamed(usize, String),
    /// Index in the list of forks.
    Forked(usize),
    Nothing,
}

/// The lines of a log's entries, without their commas.
fn lines(home: &Home, id: &str) -> Vec<String> {
    let text = fs::read_to_string(home.log(id)).unwrap_or_default();
    let entries = text.lines().skip(1).filter(|l| !l.starts_with(']'));
    entries.map(|l| l.trim_start_matches(',').to_owned()).collect()
}

impl Kills {
    fn new(seed: u64) -> Self {
        let (home, fake) = faked(Dialect::Anthropic);
        fs::write(home.file("a.txt"), "content").unwrap();
        fake.answer_by(brain(seed));
        Self {
            home,
            fake,
            rng: Rng::new(seed),
            ids: Vec::new(),
            messages: BTreeMap::new(),
            forks: Vec::new(),
            commands: BTreeMap::new(),
            titles: vec![vec![String::new()]; 3],
            made: 0,
        }
    }

    fn below(&mut self, n: usize) -> usize {
        usize::try_from(self.rng.below(n as u64)).unwrap()
    }

    fn word(&mut self, kind: &str) -> String {
        self.made += 1;
        format!("{kind} {} of this test", self.made)
    }

    /// A message that may wait: its name, and the row.
    fn row(&mut self, wire: &Wire, s: usize) -> Option<(String, Value)> {
        let queue = wire.view(&self.ids[s]).queue;
        if queue.is_empty() {
            return None;
        }
        let row = queue[self.below(queue.len())].clone();
        let text = row["text"].as_str()?;
        let (name, _) = self.messages.iter().find(|(_, m)| m.texts.iter().any(|t| t == text))?;
        Some((name.clone(), row))
    }

    /// The next call.
    fn next(&mut self, wire: &Wire) -> Call {
        let s = self.below(3);
        let id = self.ids[s].clone();
        let call = |method, params, then| Call { method, params, then };
        match self.below(17) {
            0 => call("session/interrupt", json!({"id": id}), Then::Nothing),
            1 => call("session/clear", json!({"id": id}), Then::Nothing),
            2 => {
                let title = self.word("title");
                self.titles[s].push(title.clone());
                call("session/rename", json!({"id": id, "title": title}), Then::Renamed(s, title))
            }
            3 | 4 => {
                // Of a fork as well, while it is not touched by anyone else.
                let of = self.below(self.forks.len() + 1);
                let parent = self.forks.get(of).filter(|f| f.there).map_or(id, |f| f.id.clone());
                let at = 1 + self.below(lines(&self.home, &parent).len());
                self.made += 1;
                let new = format!("f0{:06x}", self.made);
                let params = json!({"id": parent, "at": at, "newId": new});
                self.forks.push(Fork { id: new, parent, at, there: false });
                call("session/fork", params, Then::Forked(self.forks.len() - 1))
            }
            5 | 6 => match self.row(wire, s) {
                Some((name, row)) => {
                    let text = self.word("edited");
                    self.messages.get_mut(&name).unwrap().texts.push(text.clone());
                    let params = json!({"id": id, "row": row["row"], "version": row["version"], "text": text});
                    call("queue/edit", params, Then::Edited(name, text))
                }
                None => call("session/release", json!({"id": id}), Then::Nothing),
            },
            7 => match self.row(wire, s) {
                Some((name, row)) => {
                    self.messages.get_mut(&name).unwrap().leaving = true;
                    let params = json!({"id": id, "row": row["row"], "version": row["version"]});
                    call("queue/remove", params, Then::Removed(name))
                }
                None => call("session/release", json!({"id": id}), Then::Nothing),
            },
            8 => match self.row(wire, s) {
                Some((_, row)) => {
                    let to = self.below(3);
                    let params = json!({"id": id, "row": row["row"], "version": row["version"], "to": to});
                    call("queue/move", params, Then::Nothing)
                }
                None => call("session/release", json!({"id": id}), Then::Nothing),
            },
            9 => {
                let key = self.word("command").replace(' ', "-");
                self.commands.insert(key.clone(), Command { session: s, there: false });
                let params = json!({"id": id, "command": format!("echo {key} >> ran.txt"), "key": key});
                call("session/shell", params, Then::Run(key))
            }
            _ => {
                let mode = ["queue", "queue", "queue", "steer", "interrupt"][self.below(5)];
                let text = self.word("message");
                let message =
                    Message { session: s, texts: vec![text.clone()], there: false, removed: false, leaving: false };
                self.messages.insert(text.clone(), message);
                let params = json!({"id": id, "text": text, "key": text, "mode": mode});
                call("session/send", params, Then::Sent(text))
            }
        }
    }

    /// Takes an answer.
    fn answered(&mut self, then: Then, answer: Result<Value, Value>) {
        match (then, answer) {
            (Then::Sent(name), Ok(_)) => self.messages.get_mut(&name).unwrap().there = true,
            (Then::Sent(name), Err(e)) => panic!("{name} was refused: {e}"),
            (Then::Edited(name, text), Ok(_)) => self.messages.get_mut(&name).unwrap().texts = vec![text],
            (Then::Edited(name, text), Err(_)) => self.messages.get_mut(&name).unwrap().texts.retain(|t| *t != text),
            (Then::Removed(name), answer) => {
                let m = self.messages.get_mut(&name).unwrap();
                m.leaving = false;
                m.removed |= answer.is_ok();
            }
            (Then::Renamed(s, title), Ok(_)) => self.titles[s] = vec![title],
            (Then::Renamed(_, title), Err(e)) => panic!("{title} was refused: {e}"),
            (Then::Forked(i), Ok(_)) => {
                self.forks[i].there = true;
                self.whole(&self.forks[i]);
            }
            (Then::Forked(i), Err(e)) => panic!("{:?} was not made: {e}", self.forks[i]),
            (Then::Run(key), Ok(_)) => self.commands.get_mut(&key).unwrap().there = true,
            (Then::Run(key), Err(e)) => {
                assert_eq!(e["data"]["kind"], "limit", "{key} was refused: {e}");
                self.commands.remove(&key);
            }
            (Then::Nothing, _) => {}
        }
    }

    /// A fork's first lines are its parent's.
    fn whole(&self, fork: &Fork) {
        let (parent, copy) = (lines(&self.home, &fork.parent), lines(&self.home, &fork.id));
        assert!(copy.len() > fork.at && copy[..fork.at] == parent[..fork.at], "{fork:?} is not its parent's start");
    }

    /// Every acknowledged message is exactly once in the log or in the queue, or was removed; what
    /// was not acknowledged is there at most once; nothing else is. What was found stays.
    fn check(&mut self, wire: &Wire) {
        for (s, id) in self.ids.iter().enumerate() {
            let view = wire.view(id);
            assert!(["held", "idle"].contains(&view.state_name()), "{:?}", view.state);
            assert!(view.of_type("turn").last().is_none_or(|t| t["status"] != "step"), "a broken turn is closed");
            let mut found: Vec<&str> = view.texts("user").into_iter().chain(view.waiting()).collect();
            for (name, m) in self.messages.iter_mut().filter(|(_, m)| m.session == s) {
                let mine: Vec<String> =
                    found.iter().filter(|t| m.texts.iter().any(|x| x == *t)).map(|t| (*t).to_owned()).collect();
                found.retain(|t| !mine.iter().any(|x| x == t));
                let least = usize::from(m.there && !m.removed && !m.leaving);
                let most = usize::from(!m.removed);
                assert!((least..=most).contains(&mine.len()), "{name:?} is there {} times: {m:?}", mine.len());
                m.removed |= mine.is_empty();
                m.leaving = false;
                m.there = true;
                m.texts.retain(|t| mine.is_empty() || mine.contains(t));
            }
            assert!(found.is_empty(), "nobody sent {found:?}");
            for (key, command) in self.commands.iter_mut().filter(|(_, c)| c.session == s) {
                let seen = view.of_type("tool").iter().filter(|t| t["key"] == key.as_str()).count();
                assert!((usize::from(command.there)..=1).contains(&seen), "{key} is recorded {seen} times");
                command.there = seen == 1;
            }
            let title = view.info["title"].as_str().unwrap_or_default().to_owned();
            let titles = &mut self.titles[s];
            assert!(titles[0].is_empty() || titles.contains(&title), "{title:?} of {titles:?}");
            if titles.contains(&title) {
                *titles = vec![title];
            } else {
                titles.truncate(1);
            }
        }
        let ran = fs::read_to_string(self.home.file("ran.txt")).unwrap_or_default();
        let mut ran: Vec<&str> = ran.lines().collect();
        ran.sort_unstable();
        assert!(ran.windows(2).all(|w| w[0] != w[1]), "a command ran twice: {ran:?}");
        for i in 0..self.forks.len() {
            if self.forks[i].there || self.home.log(&self.forks[i].id).exists() {
                self.forks[i].there = true;
                self.whole(&self.forks[i]);
            }
        }
        self.forks.retain(|f| f.there);
        // A fork may be cut between a call and the messages of its step: the call has run, and the
        // model is not told of it.
        let cut = |w: &String| w.starts_with("f0") && w.ends_with("is called: false");
        let wrong: Vec<String> = check::check_home(&self.home.root()).into_iter().filter(|w| !cut(w)).collect();
        assert_eq!(wrong, Vec::<String>::new());
        assert_eq!(self.fake.violations(), Vec::<String>::new(), "every context was legal");
    }

    fn attach(&self, name: &str) -> Wire {
        let wire = self.home.wire(name);
        for id in &self.ids {
            wire.attach(id, json!({"env": self.home.env()}));
        }
        wire
    }

    fn round(&mut self) {
        let mut daemon = self.home.daemon();
        if self.ids.is_empty() {
            let wire = self.home.wire("ann");
            self.ids = (0..3).map(|_| wire.new_session(&self.home, json!({"mode": "all"}))).collect();
            for s in 0..3 {
                let (id, text) = (self.ids[s].clone(), self.word("first"));
                let message =
                    Message { session: s, texts: vec![text.clone()], there: true, removed: false, leaving: false };
                self.messages.insert(text.clone(), message);
                wire.turn(&id, &text);
            }
        }
        let wires = [self.attach("ann"), self.attach("bob")];
        for id in &self.ids {
            wires[0].view(id).same_as(&wires[1].view(id)).unwrap();
        }
        self.check(&wires[0]);
        for id in &self.ids {
            wires[0].ok("session/release", json!({"id": id}));
        }
        for _ in 0..self.below(12) {
            let w = self.below(2);
            let call = self.next(&wires[w]);
            let answer = wires[w].call(call.method, call.params);
            self.answered(call.then, answer);
        }
        let (s, seen) = (self.below(3), self.below(60));
        wires[0].wait_events(&self.ids[s].clone(), seen);
        // What is on its way when the daemon dies may or may not arrive.
        for _ in 0..self.below(4) {
            let w = self.below(2);
            let call = self.next(&wires[w]);
            wires[w].start(call.method, call.params);
        }
        daemon.kill9();
    }
}

impl Drop for Kills {
    fn drop(&mut self) {
        if std::thread::panicking() {
            for id in self.ids.iter().chain(self.forks.iter().map(|f| &f.id)) {
                eprintln!("{id}: {}", fs::read_to_string(self.home.log(id)).unwrap_or_default());
            }
        }
    }
}

#[test]
fn kills_under_everything_at_once_lose_and_double_nothing() {
    const ROUNDS: u64 = 25;
    let (mut seed, mut left) = (number("GLRS_SEED", 1), number("GLRS_KILLS", 1000) / 10);
    while left > 0 {
        let mut kills = Kills::new(seed);
        // New homes now and then: logs, and the time to check them, grow.
        for round in 0..ROUNDS.min(left) {
            println!("GLRS_SEED={seed}, round {round}");
            kills.round();
        }
        left = left.saturating_sub(ROUNDS);
        seed += 1;
        let _daemon = kills.home.daemon();
        let wire = kills.attach("ann");
        kills.check(&wire);
        for id in &kills.ids {
            wire.ok("session/release", json!({"id": id}));
            assert!(wire.wait_quiet(id).queue.is_empty());
        }
        kills.check(&wire);
        // Forks, wherever they were cut, go on with a context that the strict fake takes.
        for fork in kills.forks.iter().take(8) {
            wire.attach(&fork.id, json!({"env": kills.home.env()}));
            // A fork cut before its parent's mode was recorded has the default one, and would ask.
            wire.ok("session/set", json!({"id": fork.id, "mode": "all"}));
            assert_eq!(wire.turn(&fork.id, "go on").last_status(), "done", "{fork:?}");
        }
        kills.check(&wire);
    }
}
