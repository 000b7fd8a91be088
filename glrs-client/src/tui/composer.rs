//! The composer: text being written, its cursor and the history.
//!
//! Pure editing: no keys, no drawing. Positions are byte offsets on character boundaries.

use crate::text;
use unicode_width::UnicodeWidthChar;

/// Text being written.
#[derive(Debug, Default)]
pub struct Composer {
    text: String,
    cursor: usize,
    history: Vec<String>,
    /// Which entry of the history is shown; `None`: the draft.
    shown: Option<usize>,
    draft: String,
}

/// The text as it is drawn.
#[derive(Debug, PartialEq)]
pub struct Layout {
    /// The visual lines, sanitised.
    pub rows: Vec<String>,
    /// Row and column of the cursor.
    pub cursor: (usize, usize),
}

impl Composer {
    /// The text.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Whether there is nothing but white space.
    pub fn is_blank(&self) -> bool {
        self.text.trim().is_empty()
    }

    /// The text before the cursor.
    pub fn before_cursor(&self) -> &str {
        &self.text[..self.cursor]
    }

    /// Replaces everything; the cursor goes to the end.
    pub fn set(&mut self, text: &str) {
        self.text = clean(text);
        self.cursor = self.text.len();
        self.shown = None;
    }

    /// Takes the text out.
    pub fn take(&mut self) -> String {
        self.cursor = 0;
        self.shown = None;
        self.draft.clear();
        std::mem::take(&mut self.text)
    }

    /// Inserts at the cursor.
    pub fn insert(&mut self, text: &str) {
        let text = clean(text);
        self.text.insert_str(self.cursor, &text);
        self.cursor += text.len();
    }

    /// Replaces the last `bytes` before the cursor.
    pub fn replace_before(&mut self, bytes: usize, with: &str) {
        let from = self.cursor.saturating_sub(bytes);
        if self.text.is_char_boundary(from) {
            self.text.replace_range(from..self.cursor, with);
            self.cursor = from + with.len();
        }
    }

    /// Start of the character before `at`, with the marks that sit on it.
    fn previous(&self, at: usize) -> usize {
        let mut at = at;
        for (i, c) in self.text[..at].char_indices().rev() {
            at = i;
            if c == '\n' || c.width().unwrap_or(0) > 0 {
                break;
            }
        }
        at
    }

    /// End of the character at `at`, with the marks that sit on it.
    fn next(&self, at: usize) -> usize {
        let mut chars = self.text[at..].char_indices().skip(1);
        chars.find(|(_, c)| *c == '\n' || c.width().unwrap_or(0) > 0).map_or(self.text.len(), |(i, _)| at + i)
    }

    /// Deletes before the cursor.
    pub fn backspace(&mut self) {
        let from = self.previous(self.cursor);
        self.text.replace_range(from..self.cursor, "");
        self.cursor = from;
    }

    /// Deletes at the cursor.
    pub fn delete(&mut self) {
        let to = self.next(self.cursor);
        self.text.replace_range(self.cursor..to, "");
    }

    /// One character left.
    pub fn left(&mut self) {
        self.cursor = self.previous(self.cursor);
    }

    /// One character right.
    pub fn right(&mut self) {
        self.cursor = self.next(self.cursor);
    }

    fn word_start(&self) -> usize {
        let before = self.text[..self.cursor].trim_end_matches(|c: char| !c.is_alphanumeric());
        before.trim_end_matches(char::is_alphanumeric).len()
    }

    /// One word left.
    pub fn word_left(&mut self) {
        self.cursor = self.word_start();
    }

    /// One word right.
    pub fn word_right(&mut self) {
        let rest = &self.text[self.cursor..];
        let after = rest.trim_start_matches(|c: char| !c.is_alphanumeric()).trim_start_matches(char::is_alphanumeric);
        self.cursor = self.text.len() - after.len();
    }

    /// Deletes the word before the cursor.
    pub fn delete_word(&mut self) {
        let from = self.word_start();
        self.text.replace_range(from..self.cursor, "");
        self.cursor = from;
    }

    fn line_start(&self) -> usize {
        self.text[..self.cursor].rfind('\n').map_or(0, |i| i + 1)
    }

    fn line_end(&self) -> usize {
        self.text[self.cursor..].find('\n').map_or(self.text.len(), |i| self.cursor + i)
    }

    /// To the start of the line.
    pub fn home(&mut self) {
        self.cursor = self.line_start();
    }

    /// To the end of the line.
    pub fn end(&mut self) {
        self.cursor = self.line_end();
    }

    /// Deletes to the start of the line.
    pub fn kill_to_start(&mut self) {
        let from = self.line_start();
        self.text.replace_range(from..self.cursor, "");
        self.cursor = from;
    }

    /// Deletes to the end of the line.
    pub fn kill_to_end(&mut self) {
        let to = self.line_end();
        self.text.replace_range(self.cursor..to, "");
    }

    /// One line up; false on the first.
    pub fn up(&mut self) -> bool {
        let start = self.line_start();
        if start == 0 {
            return false;
        }
        let column = text::width(&self.text[start..self.cursor]);
        self.cursor = start - 1;
        self.seek_column(column);
        true
    }

    /// One line down; false on the last.
    pub fn down(&mut self) -> bool {
        let end = self.line_end();
        if end == self.text.len() {
            return false;
        }
        let column = text::width(&self.text[self.line_start()..self.cursor]);
        self.cursor = end + 1;
        self.seek_column(column);
        true
    }

    fn seek_column(&mut self, column: usize) {
        let (start, end) = (self.line_start(), self.line_end());
        let mut used = 0;
        self.cursor = end;
        for (i, c) in self.text[start..end].char_indices() {
            if used >= column {
                self.cursor = start + i;
                break;
            }
            used += c.width().unwrap_or(0);
        }
    }

    /// The history, newest last.
    pub fn set_history(&mut self, history: Vec<String>) {
        self.history = history;
        self.shown = None;
    }

    /// Adds to the history, as the daemon does: neither blanks nor a repeat of the newest.
    pub fn remember(&mut self, text: &str) {
        if !text.trim().is_empty() && self.history.last().is_none_or(|last| last != text) {
            self.history.push(text.to_owned());
        }
    }

    /// The entry before the one that is shown.
    pub fn older(&mut self) {
        let at = match self.shown {
            None if self.history.is_empty() => return,
            None => {
                self.draft.clone_from(&self.text);
                self.history.len() - 1
            }
            Some(0) => return,
            Some(at) => at - 1,
        };
        self.show(Some(at));
    }

    /// The entry after the one that is shown; after the newest comes the draft.
    pub fn newer(&mut self) {
        let Some(at) = self.shown else { return };
        self.show((at + 1 < self.history.len()).then_some(at + 1));
    }

    fn show(&mut self, at: Option<usize>) {
        let text = match at {
            Some(i) => self.history.get(i).cloned().unwrap_or_default(),
            None => std::mem::take(&mut self.draft),
        };
        self.text = text;
        self.cursor = self.text.len();
        self.shown = at;
    }

    /// The text as drawn at `width` cells.
    pub fn layout(&self, width: usize) -> Layout {
        let width = width.max(2);
        let mut rows = Vec::new();
        let mut cursor = (0, 0);
        let mut at = 0;
        for line in self.text.split('\n') {
            let ranges = text::wrap(line, width);
            let last = ranges.len() - 1;
            for (i, r) in ranges.into_iter().enumerate() {
                let (from, to) = (at + r.start, at + r.end);
                if self.cursor >= from && (self.cursor < to || (i == last && self.cursor <= at + line.len())) {
                    cursor = (rows.len(), text::width(&text::sanitise(&self.text[from..self.cursor.min(to)])));
                }
                rows.push(text::sanitise(&line[r]));
            }
            at += line.len() + 1;
        }
        // A cursor behind a full line stands on a line of its own.
        if cursor.1 >= width {
            cursor = (cursor.0 + 1, 0);
            if rows.len() <= cursor.0 {
                rows.push(String::new());
            }
        }
        Layout { rows, cursor }
    }
}

/// What may stand in the composer: newlines are `\n`, tabs are spaces, and everything else keeps.
fn clean(text: &str) -> String {
    text.replace("\r\n", "\n").replace('\r', "\n").replace('\t', "    ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(text: &str) -> Composer {
        let mut c = Composer::default();
        c.insert(text);
        c
    }

    #[test]
    fn editing_keeps_to_characters() {
        let mut c = with("aé🌱e\u{301}");
        c.backspace();
        assert_eq!(c.text(), "aé🌱", "the accent goes with its letter");
        c.left();
        c.backspace();
        assert_eq!(c.text(), "a🌱");
        c.delete();
        assert_eq!(c.text(), "a");
        c.backspace();
        c.backspace();
        c.delete();
        assert!(c.is_blank());
    }

    #[test]
    fn words_and_lines() {
        let mut c = with("one two, three\nfour");
        c.delete_word();
        assert_eq!(c.text(), "one two, three\n");
        assert!(c.up());
        assert_eq!(c.before_cursor(), "");
        c.word_right();
        c.word_right();
        assert_eq!(c.before_cursor(), "one two");
        c.kill_to_end();
        assert_eq!(c.text(), "one two\n");
        c.kill_to_start();
        assert_eq!(c.text(), "\n");
        assert!(!c.up() && c.down() && !c.down());
        let mut c = with("ab\r\ncd\tx");
        assert_eq!(c.text(), "ab\ncd    x");
        c.home();
        assert_eq!(c.before_cursor(), "ab\n");
        c.end();
        c.replace_before(1, "yz");
        assert_eq!(c.text(), "ab\ncd    yz");
    }

    #[test]
    fn the_column_is_kept_between_lines() {
        let mut c = with("漢字漢字\nabcd");
        c.left();
        assert!(c.up());
        assert_eq!(c.before_cursor(), "漢字");
        assert!(c.down());
        assert_eq!(c.before_cursor(), "漢字漢字\nabcd");
    }

    #[test]
    fn history_keeps_the_draft() {
        let mut c = Composer::default();
        c.older();
        c.set_history(vec!["first".into(), "second".into()]);
        c.remember("second");
        c.insert("draft");
        c.older();
        assert_eq!(c.text(), "second");
        c.older();
        c.older();
        assert_eq!(c.text(), "first");
        c.newer();
        c.newer();
        assert_eq!(c.text(), "draft");
        c.newer();
        assert_eq!(c.take(), "draft");
    }

    #[test]
    fn the_cursor_is_where_the_text_goes() {
        assert_eq!(with("").layout(10), Layout { rows: vec![String::new()], cursor: (0, 0) });
        assert_eq!(with("ab\n").layout(10).cursor, (1, 0));
        let l = with("hello world").layout(6);
        assert_eq!((l.rows.as_slice(), l.cursor), (["hello ".to_owned(), "world".to_owned()].as_slice(), (1, 5)));
        assert_eq!(with("abcd").layout(4).cursor, (1, 0));
        let mut c = with("hello world");
        c.home();
        assert_eq!(c.layout(6).cursor, (0, 0));
        assert_eq!(with("漢\u{1b}").layout(10).cursor, (0, 3));
    }
}
