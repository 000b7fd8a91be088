//! The attached terminal as a value: what it knows, what it shows, what it wants done.
//!
//! Owns the state and how the daemon's events change it. No I/O: calls to make and lines to show
//! are collected here and taken by the loop.

use super::calls::{Call, Reply};
use super::complete::Completion;
use super::composer::Composer;
use super::{style, transcript};
use crate::client::Incoming;
use crate::view::{Adopted, Applied, SessionView, typed};
use glrs_protocol::entry::{Entry, Tool};
use glrs_protocol::event::{Event, EventFrame, Resolved};
use glrs_protocol::params::{Rewind, Send, Snapshot};
use glrs_protocol::types::NumberedEntry;
use ratatui::style::Style;
use ratatui::text::Line;
use std::borrow::Cow;
use std::collections::VecDeque;
use std::time::Instant;

/// Things in the scrollback that are kept to draw them again.
const KEPT: usize = 2000;
/// Events kept while a snapshot is on its way. At the bound they are dropped and a new snapshot
/// is asked for.
const WAITING: usize = 16_384;

/// Something in the scrollback.
#[derive(Clone, Debug)]
pub enum Item {
    /// An entry of the session.
    Entry(NumberedEntry),
    /// Words of ours.
    Note(String, Style),
    /// Lines of ours that are not wrapped again.
    Lines(Vec<Line<'static>>),
}

/// Why the terminal ends.
#[derive(Clone, Debug, PartialEq)]
pub enum Leave {
    /// Somebody left; the session goes on.
    Detach,
    /// It was deleted.
    Deleted,
    /// We were told to end, or the terminal is gone.
    Killed,
    /// The session cannot be shown any more.
    Lost(String),
}

/// A question of ours that the next key answers.
#[derive(Clone, Debug)]
pub enum Confirm {
    /// Delete the session?
    Delete,
    /// Rewind like this?
    Rewind(Rewind),
}

/// What the composer's text is for, when it is no message.
#[derive(Clone, Debug, PartialEq)]
pub enum Words {
    /// Why a request is denied.
    Deny(String),
    /// The answer to a question.
    Answer(String),
}

/// The attached terminal.
pub struct App {
    /// The session.
    pub view: SessionView,
    /// Text being written.
    pub composer: Composer,
    /// What the composer's text is for.
    pub words: Option<Words>,
    /// The completion that is offered.
    pub completion: Option<Completion>,
    /// Our question.
    pub confirm: Option<Confirm>,
    /// A hint until the next key.
    pub hint: Option<String>,
    /// How far the card is scrolled.
    pub scroll: usize,
    /// The card's request and when it appeared.
    pub card: Option<(String, Instant)>,
    /// Look only.
    pub read_only: bool,
    /// Why the daemon ended the attachment, until there is another.
    pub closed: Option<String>,
    /// Our own name in `by` fields.
    pub me: String,
    /// Whether the terminal has the focus.
    pub focused: bool,
    /// When the connection was lost, and the last reason.
    pub lost: Option<(Instant, String)>,
    /// Calls to make.
    pub calls: Vec<Call>,
    /// Words for a notification.
    pub bell: Option<String>,
    /// Draw the whole screen again.
    pub redraw: bool,
    /// Show the picker.
    pub pick: bool,
    /// End.
    pub leave: Option<Leave>,
    /// Messages to send once there is a connection again.
    pub resend: Vec<Send>,
    /// When ctrl+c or esc was pressed last.
    pub pressed: Option<(char, Instant)>,
    /// The newest tool call.
    pub last_tool: Option<Tool>,
    items: VecDeque<Item>,
    /// How many items at the end are not in the scrollback yet.
    fresh: usize,
    /// Number of the last entry that was shown.
    shown: u64,
    /// Events that wait for a snapshot.
    waiting: Option<Vec<EventFrame>>,
    /// True while entries between what is shown and what is here are fetched.
    hole: bool,
}

/// The model that needs neither a key nor a network.
const REHEARSAL: &str = "builtin/rehearsal";
/// What a new session on it says first.
const WELCOME: &str = "This is builtin/rehearsal, a built-in stand-in that needs no key and no network. Try: read README.md · \
write notes.txt hello · run ls -la · say 500 words. For a real model set ANTHROPIC_API_KEY, OPENAI_API_KEY or another \
provider's key, put \"model\" into config.json, or run a local server such as Ollama; `glrs models` shows what there is.";

impl App {
    /// A terminal that shows this snapshot.
    pub fn new(snapshot: Snapshot, read_only: bool, me: String) -> Self {
        let mut app = Self {
            view: SessionView::new(snapshot),
            composer: Composer::default(),
            words: None,
            completion: None,
            confirm: None,
            hint: None,
            scroll: 0,
            card: None,
            read_only,
            closed: None,
            me,
            focused: true,
            lost: None,
            calls: Vec::new(),
            bell: None,
            redraw: false,
            pick: false,
            leave: None,
            resend: Vec::new(),
            pressed: None,
            last_tool: None,
            items: VecDeque::new(),
            fresh: 0,
            shown: 0,
            waiting: None,
            hole: false,
        };
        app.begin();
        app
    }

    /// Shows a session from its beginning here.
    fn begin(&mut self) {
        self.shown = self.view.entries.first().map_or(0, |e| e.n - 1);
        self.hole = false;
        self.last_tool = None;
        if self.view.more {
            self.note(
                format!("… {} earlier entries (glrs sessions export {})", self.shown, self.view.id()),
                style::DIM,
            );
        }
        if self.view.entries.is_empty() {
            if self.view.info.model == REHEARSAL {
                self.note(WELCOME, style::DIM);
            }
            self.calls.push(Call::Recent);
        }
        self.show_entries();
        self.look_at_requests();
    }

    /// Words of ours in the scrollback.
    pub fn note(&mut self, words: impl Into<String>, style: Style) {
        self.push(Item::Note(words.into(), style));
    }

    /// Something in the scrollback.
    pub fn push(&mut self, item: Item) {
        self.items.push_back(item);
        self.fresh += 1;
        while self.items.len() > KEPT.max(self.fresh) {
            self.items.pop_front();
        }
    }

    /// Puts entries into the scrollback that are not there yet, up to the first that is missing.
    fn show_entries(&mut self) {
        let from = self.view.entries.partition_point(|e| e.n <= self.shown);
        let fresh: Vec<NumberedEntry> = self.view.entries[from..].to_vec();
        for entry in fresh {
            if entry.n != self.shown + 1 && self.hole {
                break;
            }
            self.shown = entry.n;
            if let Entry::Tool(t) = typed(&entry) {
                self.last_tool = Some(t);
            }
            self.push(Item::Entry(entry));
        }
    }

    /// Lines that are not in the scrollback yet.
    pub fn take_fresh(&mut self, width: u16) -> Vec<Line<'static>> {
        let from = self.items.len() - self.fresh;
        self.fresh = 0;
        lines_of(&self.items, from, width)
    }

    /// The last lines of the scrollback, at most so many, and nothing is fresh any more.
    pub fn tail(&mut self, width: u16, rows: usize) -> Vec<Line<'static>> {
        self.fresh = 0;
        let mut from = self.items.len();
        let mut have = 0;
        while from > 0 && have < rows {
            from -= 1;
            have += lines_of(&self.items, from, width).len().saturating_sub(have);
        }
        let mut lines = lines_of(&self.items, from, width);
        lines.drain(..lines.len().saturating_sub(rows));
        lines
    }

    /// The title of the terminal's window.
    pub fn title(&self) -> String {
        let state = if !self.view.requests.is_empty() {
            "? "
        } else if self.view.running() {
            "● "
        } else {
            ""
        };
        let title = if self.view.info.title.is_empty() { "new session" } else { &self.view.info.title };
        format!("{state}{title} – glrs")
    }

    /// Something arrived from the daemon.
    pub fn incoming(&mut self, incoming: Incoming) {
        match incoming {
            Incoming::Session(frame) => match &mut self.waiting {
                Some(waiting) if waiting.len() < WAITING => waiting.push(frame),
                Some(_) => {}
                None => self.frame(&frame),
            },
            Incoming::Overflow => self.reattach(),
            Incoming::Roster(_) => {}
            Incoming::Disconnected(why) => {
                self.lost = Some((Instant::now(), why.clone()));
                self.note(format!("({why}; connecting again)"), style::WARN);
                self.waiting = Some(Vec::new());
                self.calls.push(Call::Reconnect(self.view.attach_params(false, self.read_only)));
            }
        }
    }

    fn reattach(&mut self) {
        if self.waiting.is_none() {
            self.waiting = Some(Vec::new());
            self.calls.push(Call::Reattach(self.view.attach_params(true, self.read_only)));
        }
    }

    /// From now on events wait for a snapshot that is asked for.
    pub fn await_snapshot(&mut self) {
        self.waiting.get_or_insert_with(Vec::new);
    }

    fn frame(&mut self, frame: &EventFrame) {
        let was_running = self.view.running();
        let asked = match &frame.event {
            Event::Resolved(r) => self.view.requests.iter().find(|q| q.request == r.request).cloned(),
            _ => None,
        };
        match self.view.apply(frame) {
            Applied::Fresh => {}
            Applied::Ignored => return,
            Applied::Reattach => return self.reattach(),
            Applied::Closed(why) => {
                // Deleted, or a daemon on its way out: attaching again tells which.
                self.note(format!("({why})"), style::WARN);
                self.closed = Some(why);
                return self.reattach();
            }
        }
        match &frame.event {
            Event::Entry(_) => self.show_entries(),
            Event::Request(_) => self.look_at_requests(),
            Event::Resolved(r) => {
                self.resolved(r, asked.map(|a| a.title));
                self.look_at_requests();
            }
            Event::State(_) if was_running && !self.view.running() && !self.focused => {
                self.bell = Some(format!("{}: the turn is over", self.view.info.title));
            }
            _ => {}
        }
    }

    fn resolved(&mut self, r: &Resolved, title: Option<String>) {
        if let Some(Words::Deny(id) | Words::Answer(id)) = &self.words
            && *id == r.request
        {
            self.words = None;
        }
        let Some(by) = &r.by else { return };
        if *by != self.me {
            let what = title.map(|t| format!(": {}", crate::text::one_line(&t))).unwrap_or_default();
            self.note(format!("({by} answered {}{what})", r.decision), style::DIM);
        }
    }

    /// Makes the first open request the card.
    fn look_at_requests(&mut self) {
        let first = self.view.requests.first().map(|r| r.request.clone());
        if self.card.as_ref().map(|c| &c.0) != first.as_ref() {
            self.scroll = 0;
            if let (Some(_), false) = (&first, self.focused) {
                self.bell = Some(format!("{}: waits for an answer", self.view.info.title));
            }
            self.card = first.map(|id| (id, Instant::now()));
        }
    }

    /// A snapshot of the session that is shown.
    pub fn adopt(&mut self, snapshot: Snapshot) {
        self.closed = None;
        let before = self.view.last_entry();
        match self.view.adopt(snapshot) {
            Adopted::Continued(_) => self.show_entries(),
            Adopted::Hole { from, to } if from == before + 1 => {
                self.hole = true;
                self.calls.push(Call::Fill(from, to));
            }
            Adopted::Hole { .. } => self.show_entries(),
            Adopted::Replaced => {
                if before > 0 {
                    self.note("(the session's log is another one now; it begins again here)", style::WARN);
                }
                self.begin();
            }
        }
        self.catch_up();
    }

    /// A snapshot of another session.
    pub fn switch(&mut self, snapshot: Snapshot) {
        self.view = SessionView::new(snapshot);
        (self.words, self.confirm, self.card) = (None, None, None);
        let title = if self.view.info.title.is_empty() { "new session" } else { &self.view.info.title };
        self.push(Item::Lines(transcript::rule(&format!("{} {}", self.view.id(), crate::text::one_line(title)), 60)));
        self.begin();
        self.catch_up();
    }

    /// Entries that were missing.
    pub fn filled(&mut self, entries: Vec<NumberedEntry>) {
        self.view.fill(entries);
        // What is still missing now cannot be had; what follows is shown nevertheless.
        self.hole = false;
        self.show_entries();
    }

    /// Applies the events that waited for a snapshot.
    fn catch_up(&mut self) {
        for frame in self.waiting.take().unwrap_or_default() {
            match &mut self.waiting {
                Some(again) => again.push(frame),
                None => self.frame(&frame),
            }
        }
        self.look_at_requests();
    }

    /// Attaching failed: events need not wait any more.
    pub fn attach_failed(&mut self) {
        // With no connection they wait for the next one.
        if self.lost.is_none() {
            self.waiting = None;
        }
    }

    /// An answer that is about connecting or attaching; others are handed back.
    pub fn connection_reply(&mut self, reply: Reply) -> Option<Reply> {
        match reply {
            Reply::Reattached(s) => self.adopt(*s),
            Reply::Switched(s) => self.switch(*s),
            Reply::Filled(entries) => self.filled(entries),
            Reply::StillLost(why) => {
                if let Some(lost) = &mut self.lost {
                    lost.1 = why;
                }
                self.calls.push(Call::Reconnect(self.view.attach_params(false, self.read_only)));
            }
            other => return Some(other),
        }
        None
    }
}

/// Items from `from` on as lines. Each has a blank line before it, except tool calls and thoughts
/// that follow one another.
fn lines_of(items: &VecDeque<Item>, from: usize, width: u16) -> Vec<Line<'static>> {
    let mut out = Vec::new();
    let mut tight_before = items.iter().take(from).rev().find_map(is_tight).unwrap_or(false);
    for (i, item) in items.iter().enumerate().skip(from) {
        // How a turn ended was said by the notice or error before it, in better words.
        if kind(item) == "turn" && i.checked_sub(1).is_some_and(|i| matches!(&*kind(&items[i]), "notice" | "error")) {
            continue;
        }
        let lines = match item {
            Item::Entry(e) => transcript::render(&typed(e), width),
            Item::Note(words, style) => transcript::note(words, usize::from(width), *style),
            Item::Lines(lines) => lines.clone(),
        };
        if lines.is_empty() {
            continue;
        }
        let tight = is_tight(item).unwrap_or(false);
        if !(tight && tight_before) {
            out.push(Line::default());
        }
        tight_before = tight;
        out.extend(lines);
    }
    out
}

/// What kind of entry it is; nothing for what is none.
fn kind(item: &Item) -> Cow<'_, str> {
    match item {
        Item::Entry(e) => glrs_protocol::entry::kind_of(e.entry.get()),
        Item::Note(..) | Item::Lines(_) => Cow::Borrowed(""),
    }
}

/// Whether something belongs to its neighbours; `None` for what is not shown.
fn is_tight(item: &Item) -> Option<bool> {
    match &*kind(item) {
        "tool" | "reasoning" => Some(true),
        "usage" | "turn" | "custom" => None,
        _ => Some(false),
    }
}

#[cfg(test)]
#[path = "app_tests.rs"]
mod tests;
