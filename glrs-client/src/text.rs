//! Text on its way to a terminal: made harmless, measured, wrapped and cut.
//!
//! Owns the rule that no control character of stored text reaches a terminal. Must not know
//! colours or layout.

use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

/// Width of a string in cells.
pub fn width(s: &str) -> usize {
    s.width()
}

/// Makes text harmless: tabs become spaces, CRLF and CR become newlines, every other control
/// character and everything that reorders or hides text becomes a visible symbol.
pub fn sanitise(s: &str) -> String {
    let mut out = String::with_capacity(s.len());
    let mut chars = s.chars().peekable();
    while let Some(c) = chars.next() {
        match c {
            '\n' => out.push('\n'),
            '\r' => {
                if chars.peek() != Some(&'\n') {
                    out.push('\n');
                }
            }
            '\t' => out.push_str("    "),
            // The block of pictures for the C0 controls: ␀ … ␟, and ␡.
            '\u{0}'..='\u{1f}' => out.push(char::from_u32(0x2400 + c as u32).unwrap_or('\u{fffd}')),
            '\u{7f}' => out.push('\u{2421}'),
            '\u{80}'..='\u{9f}'
            | '\u{200b}'
            | '\u{200e}'
            | '\u{200f}'
            | '\u{2028}'..='\u{202e}'
            | '\u{2066}'..='\u{2069}'
            | '\u{feff}' => out.push('\u{2426}'),
            c => out.push(c),
        }
    }
    out
}

/// One harmless line: newlines become `⏎` as well.
pub fn one_line(s: &str) -> String {
    sanitise(s.trim()).replace('\n', "⏎")
}

/// Cuts to at most `max` cells, with `…` in place of what is missing.
pub fn clip(s: &str, max: usize) -> String {
    if s.width() <= max {
        return s.to_owned();
    }
    let mut out = String::new();
    let mut used = 0;
    for c in s.chars() {
        let w = c.width().unwrap_or(0);
        if used + w + 1 > max {
            break;
        }
        used += w;
        out.push(c);
    }
    if max > 0 {
        out.push('…');
    }
    out
}

/// Byte ranges of the lines that `line` (without newlines) takes at `width` cells: broken at
/// spaces where there are any, else between characters. There is always at least one.
pub fn wrap(line: &str, max: usize) -> Vec<std::ops::Range<usize>> {
    let max = max.max(2);
    let mut out = Vec::new();
    let (mut start, mut used) = (0, 0);
    // Byte after the last space of this line, and the cells up to there.
    let mut space: Option<(usize, usize)> = None;
    for (at, c) in line.char_indices() {
        let w = c.width().unwrap_or(0);
        if used + w > max && at > start {
            if c == ' ' {
                out.push(start..at);
                start = at + 1;
                used = 0;
                space = None;
                continue;
            }
            match space.take() {
                Some((after, cells)) if after > start => {
                    out.push(start..after);
                    start = after;
                    used -= cells;
                }
                _ => {
                    out.push(start..at);
                    start = at;
                    used = 0;
                }
            }
        }
        used += w;
        if c == ' ' {
            space = Some((at + 1, used));
        }
    }
    out.push(start.min(line.len())..line.len());
    out
}

/// Tokens for people: 950, 41.2k, 200k, 1M.
pub fn count(n: u64) -> String {
    let short = |v: f64, unit: &str| {
        let text = format!("{v:.1}");
        let text = text.strip_suffix(".0").unwrap_or(&text).to_owned();
        format!("{}{unit}", if v >= 100.0 { format!("{v:.0}") } else { text })
    };
    match n {
        0..1000 => n.to_string(),
        1000..999_950 => short(n as f64 / 1e3, "k"),
        _ => short(n as f64 / 1e6, "M"),
    }
}

/// A duration for people: 120 ms, 3.4 s, 2 min 5 s, 1 h 2 min.
pub fn elapsed(ms: u64) -> String {
    match ms {
        0..1000 => format!("{ms} ms"),
        1000..60_000 => format!("{}.{} s", ms / 1000, ms % 1000 / 100),
        60_000..3_600_000 => format!("{} min {} s", ms / 60_000, ms / 1000 % 60),
        _ => format!("{} h {} min", ms / 3_600_000, ms / 60_000 % 60),
    }
}

/// How long ago `at` (RFC 3339) was, for people; the text itself where it is no time.
pub fn ago(at: &str, now: jiff::Timestamp) -> String {
    let Ok(then) = at.parse::<jiff::Timestamp>() else { return at.to_owned() };
    let s = now.as_second().saturating_sub(then.as_second()).max(0);
    match s {
        0..60 => "just now".to_owned(),
        60..3600 => format!("{} min ago", s / 60),
        3600..86_400 => format!("{} h ago", s / 3600),
        86_400..2_592_000 => format!("{} d ago", s / 86_400),
        _ => at.get(..10).unwrap_or(at).to_owned(),
    }
}

/// Milliseconds from `at` (RFC 3339) until `now`; 0 where it is no time or lies ahead.
pub fn millis_since(at: &str, now: jiff::Timestamp) -> u64 {
    at.parse::<jiff::Timestamp>()
        .map(|then| now.as_millisecond().saturating_sub(then.as_millisecond()))
        .ok()
        .and_then(|ms| u64::try_from(ms).ok())
        .unwrap_or(0)
}

/// Edit distance of two short words, for "did you mean".
pub fn distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, ca) in a.chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, cb) in b.iter().enumerate() {
            let next = (diagonal + usize::from(ca != *cb)).min(row[j] + 1).min(row[j + 1] + 1);
            diagonal = row[j + 1];
            row[j + 1] = next;
        }
    }
    row[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_that_steers_a_terminal_gets_through() {
        let evil = "a\u{1b}[31mred\u{1b}]0;t\u{7}\u{9b}2J\u{202e}x\u{7f}\u{8}\u{0}";
        let safe = sanitise(evil);
        assert!(safe.chars().all(|c| !c.is_control()), "{safe:?}");
        assert!(!safe.contains('\u{202e}') && safe.contains('␛'));
        assert_eq!(sanitise("a\r\nb\rc\td"), "a\nb\nc    d");
        assert_eq!(one_line(" a\nb\u{1b} "), "a⏎b␛");
        for c in (0..=0x9f).filter_map(char::from_u32).filter(|c| c.is_control() && *c != '\n') {
            assert!(sanitise(&c.to_string()).chars().all(|c| c == '\n' || !c.is_control()), "{c:?}");
        }
    }

    fn lines(s: &str, max: usize) -> Vec<&str> {
        wrap(s, max).into_iter().map(|r| &s[r]).collect()
    }

    #[test]
    fn lines_break_at_spaces_else_anywhere_and_by_cells() {
        assert_eq!(lines("the quick brown", 9), ["the quick", "brown"]);
        assert_eq!(lines("abcdefgh", 3), ["abc", "def", "gh"]);
        assert_eq!(lines("", 5), [""]);
        assert_eq!(lines("漢字漢字", 4), ["漢字", "漢字"]);
        assert_eq!(lines("a 漢字漢字b", 5), ["a ", "漢字", "漢字b"]);
        for w in 1..12 {
            let s = "ein  langer Text mit Wörtern und 🌱🌱🌱 dazwischen";
            assert!(lines(s, w).iter().all(|l| l.trim_end().width() <= w.max(2)), "{w}");
        }
    }

    #[test]
    fn numbers_and_times_read_well() {
        assert_eq!(
            [0, 950, 41_234, 150_000, 200_000, 1_000_000].map(count),
            ["0", "950", "41.2k", "150k", "200k", "1M"]
        );
        assert_eq!([120, 3400, 125_000, 3_720_000].map(elapsed), ["120 ms", "3.4 s", "2 min 5 s", "1 h 2 min"]);
        let now: jiff::Timestamp = "2026-09-06T14:00:00Z".parse().unwrap();
        assert_eq!(ago("2026-09-06T13:30:00.000Z", now), "30 min ago");
        assert_eq!(ago("2026-07-01T13:30:00.000Z", now), "2026-07-01");
        assert_eq!(ago("never", now), "never");
        assert_eq!(millis_since("2026-09-06T13:59:59.500Z", now), 500);
        assert_eq!(clip("abcdef", 4), "abc…");
        assert_eq!(clip("漢字", 3), "漢…");
        assert_eq!(distance("compcat", "compact"), 2);
    }
}
