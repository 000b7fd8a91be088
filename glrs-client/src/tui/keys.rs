//! What each key does.
//!
//! Pure: a key and a time change the terminal's state; what is to be done outside is collected
//! there.

use super::app::{App, Confirm, Leave, Words};
use super::calls::{Call, message};
use super::{complete, slash, style};
use crossterm::event::{KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use glrs_protocol::params::Shell;
use glrs_protocol::types::{Decision, RequestKind, SendMode, StateName};
use std::path::Path;
use std::time::{Duration, Instant};

/// Two presses within this are one gesture.
const TWICE: Duration = Duration::from_millis(800);
/// A card takes keys only after this, so that a word that was being typed answers nothing.
const SETTLE: Duration = Duration::from_millis(350);

impl App {
    /// A key was pressed.
    pub fn key(&mut self, key: KeyEvent, now: Instant) {
        if key.kind == KeyEventKind::Release {
            return;
        }
        self.hint = None;
        let before = self.pressed.take();
        if let Some(confirm) = self.confirm.take() {
            return self.confirmed(confirm, key);
        }
        let ctrl = key.modifiers.contains(KeyModifiers::CONTROL);
        let alt = key.modifiers.contains(KeyModifiers::ALT);
        if !ctrl && !alt && self.card_key(key.code, now) {
            return;
        }
        match key.code {
            KeyCode::Char(c) if ctrl => self.ctrl(c, before, now),
            KeyCode::Char(c) if alt => self.alt(c),
            KeyCode::Enter if alt => self.submit(SendMode::Steer),
            KeyCode::Enter if key.modifiers.contains(KeyModifiers::SHIFT) => self.composer.insert("\n"),
            KeyCode::Enter => self.enter(),
            KeyCode::Esc => self.escape(before, now),
            KeyCode::Tab => self.tab(1),
            KeyCode::BackTab => self.tab(-1),
            KeyCode::Up if alt => self.take_back(),
            KeyCode::Up => self.vertical(-1),
            KeyCode::Down => self.vertical(1),
            KeyCode::PageUp => self.scroll = self.scroll.saturating_sub(8),
            KeyCode::PageDown => self.scroll = self.scroll.saturating_add(8),
            KeyCode::Left if ctrl || alt => self.composer.word_left(),
            KeyCode::Right if ctrl || alt => self.composer.word_right(),
            KeyCode::Left => self.composer.left(),
            KeyCode::Right => self.composer.right(),
            KeyCode::Home => self.composer.home(),
            KeyCode::End => self.composer.end(),
            KeyCode::Backspace if alt || ctrl => self.edited(|c| c.delete_word()),
            KeyCode::Backspace => self.edited(super::composer::Composer::backspace),
            KeyCode::Delete => self.edited(super::composer::Composer::delete),
            KeyCode::Char(c) => self.edited(|composer| composer.insert(c.encode_utf8(&mut [0; 4]))),
            _ => {}
        }
    }

    /// Text was pasted.
    pub fn paste(&mut self, text: &str) {
        self.hint = None;
        self.edited(|c| c.insert(text));
    }

    fn edited(&mut self, edit: impl FnOnce(&mut super::composer::Composer)) {
        edit(&mut self.composer);
        self.completion = None;
        // Commands show what they take as they are written; paths only when asked.
        if self.words.is_none() && self.composer.text().starts_with('/') {
            self.completion = complete::find(self.composer.before_cursor(), Path::new("/nonexistent"));
        }
    }

    fn ctrl(&mut self, c: char, before: Option<(char, Instant)>, now: Instant) {
        match c {
            'c' => {
                let again = matches!(before, Some(('c', at)) if now.duration_since(at) < TWICE * 2);
                if !self.composer.text().is_empty() || self.words.is_some() {
                    self.composer.take();
                    (self.words, self.completion) = (None, None);
                } else if again {
                    self.leave = Some(Leave::Detach);
                } else {
                    self.pressed = Some(('c', now));
                    self.hint = Some("ctrl+c again leaves; the session goes on".to_owned());
                }
            }
            'd' if self.composer.text().is_empty() => self.leave = Some(Leave::Detach),
            'd' => self.edited(super::composer::Composer::delete),
            'p' => self.composer.older(),
            'n' => self.composer.newer(),
            'o' => self.expand(),
            'j' => self.composer.insert("\n"),
            'a' => self.composer.home(),
            'e' => self.composer.end(),
            'b' => self.composer.left(),
            'f' => self.composer.right(),
            'h' => self.edited(super::composer::Composer::backspace),
            'w' => self.edited(super::composer::Composer::delete_word),
            'u' => self.edited(super::composer::Composer::kill_to_start),
            'k' => self.edited(super::composer::Composer::kill_to_end),
            'l' => self.redraw = true,
            _ => {}
        }
    }

    fn alt(&mut self, c: char) {
        match c {
            'j' => self.composer.insert("\n"),
            'b' => self.composer.word_left(),
            'f' => self.composer.word_right(),
            _ => {}
        }
    }

    fn escape(&mut self, before: Option<(char, Instant)>, now: Instant) {
        if self.completion.take().is_some() {
            return;
        }
        if self.words.take().is_some() {
            self.composer.take();
            return;
        }
        let compacting = self.view.compaction.gate;
        if self.view.running() || compacting || !self.view.state.shells.is_empty() {
            if self.may_change() {
                self.calls.push(Call::Interrupt);
            }
        } else if self.composer.is_blank() {
            if matches!(before, Some(('e', at)) if now.duration_since(at) < TWICE) {
                self.rewind_list();
            } else {
                self.pressed = Some(('e', now));
            }
        }
    }

    fn enter(&mut self) {
        // A chosen completion that is not written out yet is taken first.
        if let Some(c) = self.completion.clone()
            && let Some((whole, _)) = c.candidates.get(c.chosen)
            && whole.starts_with('/')
            && *whole != self.composer.text().trim()
            && slash::parse(self.composer.text()).is_err()
        {
            return self.complete_with(&c, c.chosen);
        }
        self.completion = None;
        if self.composer.is_blank() && self.words.is_none() {
            if self.view.state.name == StateName::Held && self.may_change() {
                self.calls.push(Call::Release);
            }
            return;
        }
        match self.words.take() {
            Some(Words::Deny(request)) => {
                let words = Some(self.composer.take()).filter(|w| !w.trim().is_empty());
                self.calls.push(Call::Answer { request, decision: Decision::Deny, words });
            }
            Some(Words::Answer(request)) if self.composer.is_blank() => self.words = Some(Words::Answer(request)),
            Some(Words::Answer(request)) => {
                let words = Some(self.composer.take());
                self.calls.push(Call::Answer { request, decision: Decision::Answer, words });
            }
            None => self.submit(SendMode::Queue),
        }
    }

    fn submit(&mut self, mode: SendMode) {
        self.completion = None;
        if self.composer.is_blank() {
            return;
        }
        let line = self.composer.text().trim().to_owned();
        if slash::is_command(&line) {
            match slash::parse(&line) {
                Ok(command) => {
                    self.composer.take();
                    self.slash(command);
                }
                Err(why) => self.hint = Some(why),
            }
            return;
        }
        if !self.may_change() {
            return;
        }
        // With a blank before it, it is a message like any other.
        if let Some(command) = self.composer.text().strip_prefix('!') {
            let command = command.trim().to_owned();
            if command.is_empty() {
                self.hint = Some("! runs a command here: !git status".to_owned());
            } else if self.lost.is_some() {
                self.hint = Some("no daemon: run it once there is one again".to_owned());
            } else {
                self.composer.take();
                self.composer.remember(&line);
                self.calls.push(Call::Remember(line));
                let key = Some(super::calls::new_key());
                self.calls.push(Call::Shell(Shell { id: self.view.id().clone(), command, key }));
            }
            return;
        }
        let text = self.composer.take();
        self.composer.remember(&text);
        self.calls.push(Call::Remember(text.clone()));
        let send = message(self.view.id().clone(), text, mode);
        if self.lost.is_some() {
            self.hint = Some("sent as soon as the daemon is back".to_owned());
            self.resend.push(send);
        } else {
            self.calls.push(Call::Send(send));
        }
    }

    /// Whether changes are possible; says so when not.
    pub fn may_change(&mut self) -> bool {
        if self.read_only {
            self.hint = Some(format!("read-only: glrs attach {} can change things", self.view.id()));
        }
        !self.read_only
    }

    fn take_back(&mut self) {
        let Some(row) = self.view.queue.last().cloned() else {
            self.hint = Some("nothing waits".to_owned());
            return;
        };
        if !self.composer.is_blank() {
            self.hint = Some("the composer has to be empty to take a message back".to_owned());
        } else if self.may_change() {
            self.calls.push(Call::TakeBack { row: row.row, version: row.version, text: row.text });
        }
    }

    fn expand(&mut self) {
        match self.last_tool.clone() {
            Some(tool) => self.push_expanded(&tool),
            None => self.hint = Some("no tool has run yet".to_owned()),
        }
    }

    fn tab(&mut self, step: isize) {
        if self.completion.is_some() {
            if let Some(c) = self.completion.clone()
                && (c.candidates.len() == 1 || step > 0)
            {
                return self.complete_with(&c, c.chosen);
            }
            self.choose(step);
            return;
        }
        let cwd = self.view.info.cwd.clone();
        let Some(found) = complete::find(self.composer.before_cursor(), Path::new(&cwd)) else { return };
        if found.candidates.len() == 1 {
            self.complete_with(&found, 0);
        } else {
            self.completion = Some(found);
        }
    }

    /// Among completions, else between lines, else through the history.
    fn vertical(&mut self, step: isize) {
        let up = step < 0;
        if self.choose(step) || (if up { self.composer.up() } else { self.composer.down() }) {
            return;
        }
        if up {
            self.composer.older();
        } else {
            self.composer.newer();
        }
    }

    /// Moves the choice among completions; false when none are offered.
    fn choose(&mut self, step: isize) -> bool {
        let Some(c) = &mut self.completion else { return false };
        let count = c.candidates.len().max(1);
        c.chosen = (c.chosen + count).wrapping_add_signed(step) % count;
        true
    }

    fn complete_with(&mut self, c: &complete::Completion, which: usize) {
        let Some((whole, _)) = c.candidates.get(which) else { return };
        let after = if whole.ends_with('/') { "" } else { " " };
        self.composer.replace_before(c.bytes, &format!("{whole}{after}"));
        self.completion = None;
    }

    /// A key for the card; false when it is not for it.
    fn card_key(&mut self, code: KeyCode, now: Instant) -> bool {
        let Some((id, since)) = self.card.clone() else { return false };
        if self.words.is_some() || !self.composer.text().is_empty() || now.duration_since(since) < SETTLE {
            return false;
        }
        let Some(request) = self.view.requests.iter().find(|r| r.request == id).cloned() else { return false };
        let question = request.kind == RequestKind::Question;
        let answer = |decision, words| Call::Answer { request: id.clone(), decision, words };
        let call = match code {
            KeyCode::Char('y') if !question => answer(Decision::Allow, None),
            KeyCode::Char('a') if !question && request.rule.is_some() => answer(Decision::Always, None),
            KeyCode::Char('n') => answer(Decision::Deny, None),
            KeyCode::Char(c @ '1'..='9') if question => {
                let at = c as usize - '1' as usize;
                match request.options.get(at) {
                    Some(option) => answer(Decision::Answer, Some(option.clone())),
                    None => return true,
                }
            }
            KeyCode::Char('w') => {
                if self.may_change() {
                    self.words = Some(if question { Words::Answer(id) } else { Words::Deny(id) });
                }
                return true;
            }
            _ => return false,
        };
        if self.may_change() {
            self.calls.push(call);
        }
        true
    }

    fn confirmed(&mut self, confirm: Confirm, key: KeyEvent) {
        match (confirm, key.code) {
            (Confirm::Delete, KeyCode::Char('y')) => self.calls.push(Call::Delete),
            (Confirm::Rewind(mut r), KeyCode::Char(c @ ('y' | 'f' | 'c'))) => {
                r.preview = false;
                r.files = Some(c != 'c');
                r.conversation = Some(c != 'f');
                r.key = Some(super::calls::new_key());
                self.calls.push(Call::Rewind(r));
            }
            _ => self.note("(nothing was changed)", style::DIM),
        }
    }
}
