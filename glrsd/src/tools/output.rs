//! What a process wrote, as text of bounded size.
//!
//! Owns: repairing UTF-8 across chunks, byte by byte, and keeping head and tail of what is too
//! much. Must not know processes.

use super::MAX_RESULT;
use std::collections::VecDeque;

/// Turns chunks of bytes into text. A character cut by a chunk's end waits for the rest.
#[derive(Debug, Default)]
pub(super) struct Repair {
    pending: Vec<u8>,
}

impl Repair {
    /// The text of a chunk. Each byte that is no part of a character becomes U+FFFD, a NUL (which
    /// many readers of JSON refuse) its picture.
    pub fn push(&mut self, bytes: &[u8]) -> String {
        let mut joined = std::mem::take(&mut self.pending);
        joined.extend_from_slice(bytes);
        let mut rest = joined.as_slice();
        let mut out = String::with_capacity(rest.len());
        while !rest.is_empty() {
            match std::str::from_utf8(rest) {
                Ok(text) => {
                    out.push_str(text);
                    break;
                }
                Err(e) => {
                    let (good, bad) = rest.split_at(e.valid_up_to());
                    out.push_str(&String::from_utf8_lossy(good));
                    let Some(n) = e.error_len() else {
                        self.pending = bad.to_vec();
                        break;
                    };
                    out.extend(std::iter::repeat_n('\u{FFFD}', n));
                    rest = &bad[n..];
                }
            }
        }
        if out.contains('\0') { out.replace('\0', "\u{2400}") } else { out }
    }

    /// What still waits, when nothing more comes.
    pub fn finish(&mut self) -> String {
        "\u{FFFD}".repeat(std::mem::take(&mut self.pending).len())
    }
}

/// Head and tail of a text that comes in pieces.
#[derive(Debug)]
pub(super) struct Bounded {
    half: usize,
    head: String,
    tail: VecDeque<String>,
    tail_len: usize,
    dropped: usize,
}

impl Default for Bounded {
    fn default() -> Self {
        Self::new(MAX_RESULT - 4096)
    }
}

impl Bounded {
    /// Keeps at most `max` bytes: one half from the start, one from the end.
    pub fn new(max: usize) -> Self {
        Self { half: max / 2, head: String::new(), tail: VecDeque::new(), tail_len: 0, dropped: 0 }
    }

    /// Adds a piece.
    pub fn push(&mut self, text: &str) {
        let mut text = text;
        if self.tail.is_empty() && self.dropped == 0 {
            let take = floor(text, self.half.saturating_sub(self.head.len()));
            self.head.push_str(&text[..take]);
            text = &text[take..];
        }
        // A piece as large as a half would push everything out and still be too much.
        if text.len() > self.half {
            let from = ceil(text, text.len() - self.half);
            self.dropped += from;
            text = &text[from..];
        }
        if text.is_empty() {
            return;
        }
        self.tail.push_back(text.to_owned());
        self.tail_len += text.len();
        while self.tail_len > self.half {
            let Some(first) = self.tail.pop_front() else { break };
            self.tail_len -= first.len();
            self.dropped += first.len();
        }
    }

    /// How many bytes are missing.
    pub fn left_out(&self) -> usize {
        self.dropped
    }

    /// The whole, with a note where something is missing.
    pub fn finish(self) -> String {
        let mut out = self.head;
        if self.dropped > 0 {
            out.push_str(&format!("\n\n[… {} bytes left out: too much output …]\n\n", self.dropped));
        }
        for piece in self.tail {
            out.push_str(&piece);
        }
        out
    }
}

/// The largest boundary up to `at`.
fn floor(text: &str, at: usize) -> usize {
    (0..=at.min(text.len())).rev().find(|&i| text.is_char_boundary(i)).unwrap_or(0)
}

/// The smallest boundary from `at` on.
fn ceil(text: &str, at: usize) -> usize {
    (at..text.len()).find(|&i| text.is_char_boundary(i)).unwrap_or(text.len())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn where_chunks_end_makes_no_difference(bytes in prop::collection::vec(any::<u8>(), 0..60), cut in 1usize..9) {
            let mut whole = Repair::default();
            let want = whole.push(&bytes) + &whole.finish();
            let mut parts = Repair::default();
            let mut got: String = bytes.chunks(cut).map(|c| parts.push(c)).collect();
            got.push_str(&parts.finish());
            prop_assert_eq!(got, want);
        }

        #[test]
        fn good_text_passes_whole(text in "\\PC{0,60}", cut in 1usize..5) {
            let mut repair = Repair::default();
            let got: String = text.as_bytes().chunks(cut).map(|c| repair.push(c)).collect();
            prop_assert_eq!(got, text);
            prop_assert_eq!(repair.finish(), "");
        }

        #[test]
        fn memory_is_bounded_and_ends_are_kept(pieces in prop::collection::vec("[aé]{0,30}", 0..40)) {
            let all: String = pieces.concat();
            let mut bounded = Bounded::new(100);
            for piece in &pieces {
                bounded.push(piece);
                prop_assert!(bounded.head.len() + bounded.tail_len <= 100);
            }
            let text = bounded.finish();
            if all.len() <= 40 {
                prop_assert_eq!(text, all);
            } else {
                prop_assert!(all.starts_with(&text[..floor(&text, 20)]));
            }
        }
    }

    #[test]
    fn bytes_are_repaired_one_by_one() {
        let mut repair = Repair::default();
        assert_eq!(repair.push(b"a\xffb\xc3"), "a\u{FFFD}b");
        assert_eq!(repair.push(b"\xa9\0\xe2\x82"), "é\u{2400}");
        assert_eq!(repair.finish(), "\u{FFFD}\u{FFFD}");
    }
}
