//! Cutting text to a length, for the model and for people.
//!
//! Owns: what is kept (head and tail, on character boundaries) and the note between them. Must not
//! know where the whole text is kept; [`name_blob`] puts that in.

/// Most characters of a result that the log and the model are given.
pub const RESULT_CHARS: usize = 30_000;

/// Stands in the note for where the whole text is, until [`name_blob`] fills it in.
const PLACE: &str = "\u{FFFC}";
/// Room kept for the note and for what is filled in.
const NOTE: usize = 200;

/// Cuts `text` to at most `max` characters, keeping its head and its tail with a note between them
/// that says how much is left out. Answers the text and whether it was cut. A cut text has room for
/// a name of 64 characters, see [`name_blob`].
pub fn clip(text: &str, max: usize) -> (String, bool) {
    // A text of few bytes has few characters: most need no counting.
    if text.len() <= max {
        return (text.to_owned(), false);
    }
    let total = text.chars().count();
    if total <= max {
        return (text.to_owned(), false);
    }
    let room = max.saturating_sub(NOTE);
    let tail = room / 3;
    let head = room - tail;
    let head_end = text.char_indices().nth(head).map_or(text.len(), |(i, _)| i);
    let tail_start = match tail {
        0 => text.len(),
        n => text.char_indices().rev().nth(n - 1).map_or(0, |(i, _)| i),
    };
    let left_out = total - head - tail;
    let note = format!("\n\n[… {left_out} of {total} characters left out{PLACE} …]\n\n");
    let note: String = note.chars().take(max.saturating_sub(head + tail)).collect();
    (format!("{}{note}{}", &text[..head_end], &text[tail_start..]), true)
}

/// Names the blob that has the whole in the note of a cut text; `whole` says whether it has, or only
/// what was kept of more.
pub fn name_blob(clipped: &str, blob: &str, whole: bool) -> String {
    let what = if whole { "the whole is" } else { "all that was kept, head and tail, is" };
    fill(clipped, &format!("; {what} in blob {blob}"))
}

/// Takes the place for the name out of the note, for a text whose whole is kept nowhere.
pub fn no_blob(clipped: &str) -> String {
    fill(clipped, "")
}

fn fill(clipped: &str, with: &str) -> String {
    // The text itself may have such a character; what stands before it makes it the note's.
    let mark = format!("characters left out{PLACE} …]");
    match clipped.find(&mark) {
        Some(at) => {
            let place = at + "characters left out".len();
            format!("{}{with}{}", &clipped[..place], &clipped[place + PLACE.len()..])
        }
        None => clipped.to_owned(),
    }
}

/// Cuts `text` to at most `max` characters, with nothing to be filled in.
pub fn clip_plain(text: &str, max: usize) -> String {
    let (text, cut) = clip(text, max);
    if cut { no_blob(&text) } else { text }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn head_and_tail_stay_and_the_blob_is_named() {
        let text = format!("HEAD{}TAIL", "é".repeat(50_000));
        let (cut, clipped) = clip(&text, RESULT_CHARS);
        assert!(clipped && cut.starts_with("HEAD") && cut.ends_with("TAIL"));
        let named = name_blob(&cut, &"a".repeat(64), true);
        let kept = name_blob(&cut, &"a".repeat(64), false);
        assert!(kept.contains("; all that was kept, head and tail, is in blob aaaa") && !kept.contains("whole"));
        assert!(
            named.contains(&format!("20208 of 50008 characters left out; the whole is in blob {} …]", "a".repeat(64)))
        );
        assert!(named.chars().count() <= RESULT_CHARS);
        assert!(!clip_plain(&text, 1000).contains(PLACE));
        assert_eq!(clip(&"é".repeat(30_000), RESULT_CHARS), ("é".repeat(30_000), false));
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn never_longer_than_asked(text in "\\PC{0,600}", max in 0usize..700) {
            let (cut, clipped) = clip(&text, max);
            prop_assert!(cut.chars().count() <= max);
            prop_assert_eq!(clipped, text.chars().count() > max);
            if max >= NOTE {
                prop_assert!(name_blob(&cut, &"a".repeat(64), false).chars().count() <= max);
            }
        }
    }
}
