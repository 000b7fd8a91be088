//! Takes a command line apart, as far as judging it needs.
//!
//! Owns: which simple commands a line runs, and whether it is *plain* (nothing in it but simple
//! commands and the operators between them). It is no shell: it may call a harmless line not plain,
//! but must never call one plain whose commands it did not all see. Must not know rules or modes.

/// Deepest nesting of `$(`, `(` and backticks that is looked into.
const DEPTH: usize = 24;

/// A simple command.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Part {
    /// As it was written.
    pub raw: String,
    /// Its words, quotes taken off.
    pub words: Vec<String>,
}

/// A command line, taken apart.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Line {
    /// Every simple command seen, those in substitutions and subshells too.
    pub parts: Vec<Part>,
    /// Whether it has nothing but simple commands of literal words and the operators between them.
    pub plain: bool,
    /// Whether something was nested too deep to be looked at.
    pub opaque: bool,
}

/// Words that make the shell read on in another way.
pub(super) const KEYWORDS: [&str; 20] = [
    "!", "{", "}", "[[", "]]", "case", "coproc", "do", "done", "elif", "else", "esac", "fi", "for", "function", "if",
    "select", "then", "until", "while",
];

/// Whether a word sets a variable (`A=1`, `A+=1`, `a[0]=1`).
pub(super) fn is_assignment(word: &str) -> bool {
    word.split_once('=').is_some_and(|(name, _)| {
        let name = name.trim_end_matches('+');
        let name = name.split('[').next().unwrap_or(name);
        name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
            && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
    })
}

impl Part {
    /// One text for it, whatever blanks and quotes it was written with. A word with something
    /// special in it keeps quotes, so that no pattern takes it for two.
    pub fn canonical(&self) -> String {
        let words: Vec<String> = self.words.iter().map(|w| quoted(w)).collect();
        words.join(" ")
    }
}

fn quoted(word: &str) -> String {
    let special = |c: char| c.is_whitespace() || c.is_control() || ";&|<>()$`\"'\\#".contains(c);
    if word.is_empty() || word.contains(special) { format!("'{word}'") } else { word.to_owned() }
}

/// Takes a command line apart.
pub(super) fn parse(text: &str) -> Line {
    let mut scan = Scan {
        chars: text.chars().collect(),
        pos: 0,
        line: Line { plain: true, ..Line::default() },
        word: None,
        words: Vec::new(),
        first_odd: false,
        drop_next: false,
        start: 0,
    };
    scan.run(None, 0);
    scan.end_part();
    scan.line
}

struct Scan {
    chars: Vec<char>,
    pos: usize,
    line: Line,
    /// The word being read; `Some("")` once quotes opened one.
    word: Option<String>,
    words: Vec<String>,
    /// The first word of this part has quotes, escapes or wildcards in it.
    first_odd: bool,
    /// The next word is where a redirection goes.
    drop_next: bool,
    /// Where this part began.
    start: usize,
}

impl Scan {
    fn peek(&self) -> Option<char> {
        self.chars.get(self.pos).copied()
    }

    fn push(&mut self, c: char) {
        self.word.get_or_insert_default().push(c);
    }

    fn odd(&mut self) {
        if self.words.is_empty() {
            self.first_odd = true;
        }
    }

    fn end_word(&mut self) {
        if let Some(word) = self.word.take() {
            if self.drop_next {
                self.drop_next = false;
            } else {
                self.words.push(word);
            }
        }
    }

    /// Ends a part before the operator that was just taken.
    fn end_part(&mut self) {
        self.end_word();
        self.drop_next = false;
        let words = std::mem::take(&mut self.words);
        let odd = std::mem::take(&mut self.first_odd);
        let end = self.pos.min(self.chars.len());
        let raw: String = self.chars.get(self.start..end).unwrap_or_default().iter().collect();
        self.start = end;
        let Some(first) = words.first() else { return };
        let usual = |c: char| c.is_ascii_alphanumeric() || "_-+.,/@%:~[".contains(c);
        if odd
            || first.is_empty()
            || !first.chars().all(usual)
            || first.split('/').any(|s| s == "..")
            || is_assignment(first)
            || KEYWORDS.contains(&first.as_str())
        {
            self.line.plain = false;
        }
        let raw = raw.trim_matches(|c: char| c.is_whitespace() || ";&|()`".contains(c)).to_owned();
        self.line.parts.push(Part { raw, words });
    }

    /// Reads to the end, or past `until` when it closes what this level is.
    fn run(&mut self, until: Option<char>, depth: usize) {
        if depth > DEPTH {
            self.line.plain = false;
            self.line.opaque = true;
            self.pos = self.chars.len();
            return;
        }
        while let Some(c) = self.peek() {
            if Some(c) == until {
                self.end_part();
                self.pos += 1;
                self.start = self.pos;
                return;
            }
            match c {
                ' ' | '\t' => {
                    self.end_word();
                    self.pos += 1;
                }
                '\n' | ';' | '&' | '|' => {
                    self.end_part();
                    self.pos += 1;
                    self.start = self.pos;
                }
                // A subshell, a function's head, an array: what follows may be a command again.
                '(' => {
                    self.end_part();
                    self.nested(')', depth);
                    self.start = self.pos;
                }
                ')' => {
                    self.line.plain = false;
                    self.end_part();
                    self.pos += 1;
                    self.start = self.pos;
                }
                '<' | '>' => self.redirection(),
                '\'' => self.single(),
                '"' => self.double(depth),
                '\\' => self.escape(),
                '`' => self.backticks(depth),
                '$' => self.dollar(depth),
                '#' if self.word.is_none() => {
                    self.line.plain = false;
                    while self.peek().is_some_and(|c| c != '\n') {
                        self.pos += 1;
                    }
                }
                _ => {
                    if c.is_control() || matches!(c, '{' | '}') {
                        self.line.plain = false;
                    }
                    if matches!(c, '*' | '?') {
                        self.odd();
                    }
                    self.push(c);
                    self.pos += 1;
                }
            }
        }
    }

    /// What stands in the parentheses that open at `pos`: its parts are taken by themselves, and the
    /// word around a substitution goes on after it.
    fn nested(&mut self, close: char, depth: usize) {
        self.line.plain = false;
        self.pos += 1;
        let outer = (self.word.take(), std::mem::take(&mut self.words), self.first_odd, self.drop_next, self.start);
        (self.first_odd, self.drop_next, self.start) = (false, false, self.pos);
        self.run(Some(close), depth + 1);
        self.end_part();
        (self.word, self.words, self.first_odd, self.drop_next, self.start) = outer;
    }

    fn redirection(&mut self) {
        self.line.plain = false;
        // The number of a descriptor is no argument.
        if self.word.as_ref().is_some_and(|w| w.chars().all(|c| c.is_ascii_digit())) {
            self.word = None;
        }
        self.end_word();
        while self.peek().is_some_and(|c| matches!(c, '<' | '>' | '&' | '|' | '-')) {
            self.pos += 1;
        }
        self.drop_next = self.peek() != Some('(');
        // Blanks may stand before the target, a line's end may not.
        while self.peek().is_some_and(|c| matches!(c, ' ' | '\t')) {
            self.pos += 1;
        }
    }

    fn single(&mut self) {
        self.odd();
        self.word.get_or_insert_default();
        self.pos += 1;
        loop {
            match self.peek() {
                None => {
                    self.line.plain = false;
                    return;
                }
                Some('\'') => {
                    self.pos += 1;
                    return;
                }
                Some(c) => {
                    self.push(c);
                    self.pos += 1;
                }
            }
        }
    }

    fn double(&mut self, depth: usize) {
        self.odd();
        self.word.get_or_insert_default();
        self.pos += 1;
        loop {
            match self.peek() {
                None => {
                    self.line.plain = false;
                    return;
                }
                Some('"') => {
                    self.pos += 1;
                    return;
                }
                Some('\\') => {
                    self.pos += 1;
                    match self.peek() {
                        Some('\n') => self.pos += 1,
                        Some(c @ ('"' | '\\' | '$' | '`')) => {
                            self.push(c);
                            self.pos += 1;
                        }
                        _ => self.push('\\'),
                    }
                }
                Some('`') => self.backticks(depth),
                Some('$') => {
                    self.line.plain = false;
                    self.pos += 1;
                    match self.peek() {
                        Some('(') => self.nested(')', depth),
                        _ => self.push('$'),
                    }
                }
                Some(c) => {
                    self.push(c);
                    self.pos += 1;
                }
            }
        }
    }

    fn escape(&mut self) {
        self.pos += 1;
        match self.peek() {
            None => self.line.plain = false,
            // A backslash before a line's end joins the lines.
            Some('\n') => self.pos += 1,
            Some(c) => {
                self.odd();
                self.push(c);
                self.pos += 1;
            }
        }
    }

    fn backticks(&mut self, depth: usize) {
        self.line.plain = false;
        self.odd();
        self.pos += 1;
        let mut inner = String::new();
        while let Some(c) = self.peek() {
            self.pos += 1;
            match c {
                '`' => break,
                '\\' => {
                    if let Some(next) = self.peek() {
                        if !matches!(next, '`' | '\\' | '$') {
                            inner.push('\\');
                        }
                        inner.push(next);
                        self.pos += 1;
                    }
                }
                c => inner.push(c),
            }
        }
        // What it comes to is not known; nothing is likeliest to hide a command.
        self.word.get_or_insert_default();
        // What is inside has lost a level of escapes, so it is a text of its own.
        let mut scan = Scan {
            chars: inner.chars().collect(),
            pos: 0,
            line: Line::default(),
            word: None,
            words: Vec::new(),
            first_odd: false,
            drop_next: false,
            start: 0,
        };
        scan.run(None, depth + 1);
        scan.end_part();
        self.line.opaque |= scan.line.opaque;
        self.line.parts.append(&mut scan.line.parts);
    }

    fn dollar(&mut self, depth: usize) {
        self.line.plain = false;
        self.odd();
        self.pos += 1;
        match self.peek() {
            Some('(') => {
                self.word.get_or_insert_default();
                self.nested(')', depth);
            }
            // `$'…'` and `$"…"` are quotes of their own; what they hold is read next.
            Some('\'' | '"') => {}
            _ => self.push('$'),
        }
    }
}
