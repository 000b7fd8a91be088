//! A unified diff as coloured lines.

use super::{lines, style};
use ratatui::style::Style;
use ratatui::text::Line;

/// Renders a sanitised unified diff at a width.
pub fn render(diff: &str, width: usize) -> Vec<Line<'static>> {
    diff.lines().flat_map(|line| lines::plain(line, width, style_of(line), "", "  ")).collect()
}

/// Whether a text is a unified diff.
pub fn is_diff(text: &str) -> bool {
    text.lines().take(6).any(|l| l.starts_with("@@ ")) && text.lines().any(|l| l.starts_with(['+', '-']))
}

fn style_of(line: &str) -> Style {
    if line.starts_with("+++") || line.starts_with("---") {
        style::BOLD
    } else if line.starts_with('+') {
        style::GOOD
    } else if line.starts_with('-') {
        style::BAD
    } else if line.starts_with("@@") {
        style::HUNK
    } else {
        style::DIM
    }
}

/// How many lines a diff adds and removes.
pub fn counts(diff: &str) -> (usize, usize) {
    let of = |sign: char, head: &str| diff.lines().filter(|l| l.starts_with(sign) && !l.starts_with(head)).count();
    (of('+', "+++"), of('-', "---"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const DIFF: &str = "--- a/x\n+++ b/x\n@@ -1 +1,2 @@\n-old\n+new\n+more\n same";

    #[test]
    fn signs_have_their_colours() {
        let lines = render(DIFF, 40);
        assert_eq!(lines[3].spans[0].style, style::BAD);
        assert_eq!(lines[4].spans.last().unwrap().style, style::GOOD);
        assert_eq!(counts(DIFF), (2, 1));
        assert!(is_diff(DIFF) && !is_diff("+ a list\n- of things"));
    }
}
