//! Styled lines: wrapped at a width, with prefixes.
//!
//! Must not know where the text comes from. Text has been sanitised before it comes here.

use crate::text;
use ratatui::style::Style;
use ratatui::text::{Line, Span};

/// Wraps one logical line of styled pieces at `width` cells. Its first line gets `first` in
/// front, the others `rest`.
pub fn wrap(
    pieces: &[(String, Style)],
    width: usize,
    first: &Span<'static>,
    rest: &Span<'static>,
) -> Vec<Line<'static>> {
    let whole: String = pieces.iter().map(|(t, _)| t.as_str()).collect();
    let room = width.saturating_sub(text::width(&first.content).max(text::width(&rest.content))).max(4);
    text::wrap(&whole, room)
        .into_iter()
        .enumerate()
        .map(|(i, range)| {
            let prefix = if i == 0 { first } else { rest };
            let mut spans = Vec::new();
            if !prefix.content.is_empty() {
                spans.push(prefix.clone());
            }
            spans.extend(slice(pieces, range));
            Line::from(spans)
        })
        .collect()
}

/// The part of styled pieces that lies in a byte range of their joined text.
fn slice(pieces: &[(String, Style)], range: std::ops::Range<usize>) -> Vec<Span<'static>> {
    let mut out = Vec::new();
    let mut start = 0;
    for (piece, style) in pieces {
        let end = start + piece.len();
        let (from, to) = (range.start.max(start), range.end.min(end));
        if from < to {
            out.push(Span::styled(piece[from - start..to - start].to_owned(), *style));
        }
        start = end;
    }
    out
}

/// Wraps plain text of several lines in one style.
pub fn plain(content: &str, width: usize, style: Style, first: &str, rest: &str) -> Vec<Line<'static>> {
    let (first, rest) = (Span::styled(first.to_owned(), style), Span::styled(rest.to_owned(), style));
    let mut out = Vec::new();
    for (i, line) in content.lines().enumerate() {
        let head = if i == 0 { &first } else { &rest };
        out.extend(wrap(&[(line.to_owned(), style)], width, head, &rest));
    }
    out
}

/// The text of a line without its styles.
pub fn unstyled(line: &Line<'_>) -> String {
    line.spans.iter().map(|s| s.content.as_ref()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn styles_survive_wrapping() {
        let red = Style::new().fg(ratatui::style::Color::Red);
        let pieces = [("one ".to_owned(), Style::new()), ("two three".to_owned(), red)];
        let lines = wrap(&pieces, 9, &Span::raw("> "), &Span::raw("  "));
        let texts: Vec<String> = lines.iter().map(unstyled).collect();
        assert_eq!(texts, ["> one two", "   three"].map(|s| s.replace("   three", "  three")));
        assert_eq!(lines[1].spans[1].style, red);
        assert_eq!(plain("a\nb", 10, red, "x ", "  ").len(), 2);
    }
}
