//! Markdown as styled lines for a terminal.
//!
//! Owns the look of headings, lists, quotes, code, links and tables. The text has to be sanitised
//! before; nothing in it can reach the terminal raw then.

use super::lines;
use super::style;
use crate::text;
use pulldown_cmark::{CodeBlockKind, Event, Options, Parser, Tag, TagEnd};
use ratatui::style::{Modifier, Style};
use ratatui::text::{Line, Span};

/// Renders sanitised Markdown at a width.
pub fn render(source: &str, width: usize) -> Vec<Line<'static>> {
    let options = Options::ENABLE_TABLES | Options::ENABLE_STRIKETHROUGH | Options::ENABLE_TASKLISTS;
    let mut r = Renderer { width, ..Renderer::default() };
    for event in Parser::new_ext(source, options) {
        r.event(event);
    }
    r.flush();
    while r.out.last().is_some_and(|l| l.width() == 0) {
        r.out.pop();
    }
    r.out
}

#[derive(Default)]
struct Renderer {
    width: usize,
    out: Vec<Line<'static>>,
    /// The logical line that is being collected.
    pieces: Vec<(String, Style)>,
    styles: Vec<Style>,
    /// One per open list: the next number of an ordered one.
    lists: Vec<Option<u64>>,
    /// Marker of an item whose first line has not been written.
    marker: Option<String>,
    quotes: usize,
    code: Option<String>,
    link: Option<String>,
    table: Option<Table>,
    /// Whether a blank line is due before the next block.
    gap: bool,
}

#[derive(Default)]
struct Table {
    rows: Vec<Vec<String>>,
    cell: String,
}

impl Renderer {
    fn style(&self) -> Style {
        self.styles.iter().fold(Style::new(), |all, s| all.patch(*s))
    }

    fn push(&mut self, text: &str, style: Style) {
        if let Some(table) = &mut self.table {
            table.cell.push_str(text);
        } else if !text.is_empty() {
            self.pieces.push((text.to_owned(), style));
        }
    }

    fn indent(&self) -> usize {
        self.lists.len().saturating_sub(1) * 2
    }

    fn prefixes(&mut self) -> (Span<'static>, Span<'static>) {
        let quote = "│ ".repeat(self.quotes);
        let pad = " ".repeat(self.indent());
        match self.marker.take() {
            Some(marker) => {
                let rest = " ".repeat(text::width(&marker));
                (
                    Span::styled(format!("{quote}{pad}{marker}"), style::DIM),
                    Span::styled(format!("{quote}{pad}{rest}"), style::DIM),
                )
            }
            None => {
                let inner = if self.lists.is_empty() { "" } else { "  " };
                let prefix = Span::styled(format!("{quote}{pad}{inner}"), style::DIM);
                (prefix.clone(), prefix)
            }
        }
    }

    /// Writes the collected line.
    fn flush(&mut self) {
        if self.pieces.is_empty() {
            return;
        }
        self.space();
        let pieces = std::mem::take(&mut self.pieces);
        let (first, rest) = self.prefixes();
        self.out.extend(lines::wrap(&pieces, self.width, &first, &rest));
    }

    /// Writes the blank line that is due.
    fn space(&mut self) {
        if std::mem::take(&mut self.gap) && !self.out.is_empty() {
            self.out.push(Line::default());
        }
    }

    fn event(&mut self, event: Event<'_>) {
        match event {
            Event::Start(tag) => self.start(tag),
            Event::End(tag) => self.end(tag),
            Event::Text(t) => match &mut self.code {
                Some(code) => code.push_str(&t),
                None => self.push(&t, self.style()),
            },
            Event::Code(t) => self.push(&t, self.style().patch(style::CODE)),
            Event::InlineMath(t) | Event::DisplayMath(t) | Event::Html(t) | Event::InlineHtml(t) => {
                for (i, line) in t.lines().enumerate() {
                    if i > 0 {
                        self.flush();
                    }
                    self.push(line, self.style());
                }
            }
            Event::FootnoteReference(t) => self.push(&format!("[{t}]"), style::DIM),
            Event::SoftBreak => self.push(" ", self.style()),
            Event::HardBreak => {
                if self.table.is_some() {
                    self.push(" ", Style::new());
                } else {
                    self.flush();
                }
            }
            Event::Rule => {
                self.flush();
                self.space();
                self.out.push(Line::styled("─".repeat(self.width.min(40)), style::DIM));
                self.gap = true;
            }
            Event::TaskListMarker(done) => self.push(if done { "[x] " } else { "[ ] " }, style::DIM),
        }
    }

    fn start(&mut self, tag: Tag<'_>) {
        match tag {
            Tag::Heading { .. } => {
                self.flush();
                self.gap = true;
                self.styles.push(style::HEADING);
            }
            Tag::BlockQuote(_) => {
                self.flush();
                self.quotes += 1;
            }
            Tag::CodeBlock(kind) => {
                self.flush();
                self.space();
                if let CodeBlockKind::Fenced(lang) = kind
                    && !lang.is_empty()
                {
                    let (first, _) = self.prefixes();
                    self.out.push(Line::from(vec![first, Span::styled(format!("  {lang}"), style::DIM)]));
                }
                self.code = Some(String::new());
            }
            Tag::List(first) => {
                self.flush();
                if !self.lists.is_empty() {
                    self.gap = false;
                }
                self.lists.push(first);
            }
            Tag::Item => {
                self.flush();
                self.gap = self.gap && self.lists.len() == 1 && self.out.last().is_none_or(|l| l.width() > 0);
                self.marker = Some(match self.lists.last_mut() {
                    Some(Some(n)) => {
                        *n += 1;
                        format!("{}. ", *n - 1)
                    }
                    _ => "• ".to_owned(),
                });
            }
            Tag::Emphasis => self.styles.push(Style::new().add_modifier(Modifier::ITALIC)),
            Tag::Strong => self.styles.push(style::BOLD),
            Tag::Strikethrough => self.styles.push(Style::new().add_modifier(Modifier::CROSSED_OUT)),
            Tag::Link { dest_url, .. } | Tag::Image { dest_url, .. } => {
                self.link = Some(dest_url.into_string());
                self.styles.push(Style::new().add_modifier(Modifier::UNDERLINED));
            }
            Tag::Table(_) => {
                self.flush();
                self.table = Some(Table::default());
            }
            Tag::TableHead | Tag::TableRow => {
                if let Some(t) = &mut self.table {
                    t.rows.push(Vec::new());
                }
            }
            _ => {}
        }
    }

    fn end(&mut self, tag: TagEnd) {
        match tag {
            TagEnd::Paragraph => {
                self.flush();
                self.gap = true;
            }
            TagEnd::Heading(_) => {
                self.flush();
                self.styles.pop();
                self.gap = false;
            }
            TagEnd::BlockQuote(_) => {
                self.flush();
                self.quotes = self.quotes.saturating_sub(1);
                self.gap = true;
            }
            TagEnd::CodeBlock => self.code_block(),
            TagEnd::List(_) => {
                self.flush();
                self.lists.pop();
                self.gap = self.lists.is_empty();
            }
            TagEnd::Item => {
                self.flush();
                // An item without words still has its marker.
                if let Some(marker) = self.marker.take() {
                    self.out.push(Line::styled(format!("{}{marker}", " ".repeat(self.indent())), style::DIM));
                }
                self.gap = false;
            }
            TagEnd::Emphasis | TagEnd::Strong | TagEnd::Strikethrough => {
                self.styles.pop();
            }
            TagEnd::Link | TagEnd::Image => {
                self.styles.pop();
                let shown: String = self.pieces.last().map(|(t, _)| t.clone()).unwrap_or_default();
                if let Some(url) = self.link.take()
                    && url != shown
                {
                    self.push(&format!(" ({url})"), style::DIM);
                }
            }
            TagEnd::TableCell => {
                if let Some(t) = &mut self.table {
                    let cell = std::mem::take(&mut t.cell);
                    if let Some(row) = t.rows.last_mut() {
                        row.push(cell);
                    }
                }
            }
            TagEnd::Table => self.table_end(),
            _ => {}
        }
    }

    fn code_block(&mut self) {
        let code = self.code.take().unwrap_or_default();
        let (_, rest) = self.prefixes();
        let prefix = Span::styled(format!("{}  ", rest.content), style::DIM);
        for line in code.lines() {
            self.out.extend(lines::wrap(&[(line.to_owned(), style::CODE)], self.width, &prefix, &prefix));
        }
        self.gap = true;
    }

    fn table_end(&mut self) {
        let Some(table) = self.table.take() else { return };
        self.space();
        let columns = table.rows.iter().map(Vec::len).max().unwrap_or(0);
        let widths: Vec<usize> = (0..columns)
            .map(|c| table.rows.iter().filter_map(|r| r.get(c)).map(|t| text::width(t)).max().unwrap_or(0))
            .collect();
        for (i, row) in table.rows.iter().enumerate() {
            let mut line = String::new();
            for (c, cell) in row.iter().enumerate() {
                if c > 0 {
                    line.push_str(" │ ");
                }
                line.push_str(cell);
                line.push_str(&" ".repeat(widths[c] - text::width(cell)));
            }
            let style = if i == 0 { style::BOLD } else { Style::new() };
            self.out.extend(lines::plain(line.trim_end(), self.width, style, "", ""));
            if i == 0 {
                let rule = widths.iter().map(|w| "─".repeat(*w)).collect::<Vec<_>>().join("─┼─");
                self.out.push(Line::styled(text::clip(&rule, self.width), style::DIM));
            }
        }
        self.gap = true;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(source: &str, width: usize) -> Vec<String> {
        render(source, width).iter().map(lines::unstyled).collect()
    }

    #[test]
    fn blocks_look_like_what_they_are() {
        let source = "# Title\n\nSome *text* with `code`.\n\n- one\n- two\n  - deep\n\n1. first\n2. second\n\n> quoted\n\n```rust\nfn main() {}\n```\n";
        assert_eq!(
            texts(source, 40),
            [
                "Title",
                "Some text with code.",
                "",
                "• one",
                "• two",
                "  • deep",
                "",
                "1. first",
                "2. second",
                "",
                "│ quoted",
                "",
                "  rust",
                "  fn main() {}",
            ]
        );
    }

    #[test]
    fn inline_styles_are_set_and_links_show_where_they_lead() {
        let lines = render("**bold** and [here](https://x.y)", 60);
        assert!(lines[0].spans[0].style.add_modifier.contains(Modifier::BOLD));
        assert_eq!(lines::unstyled(&lines[0]), "bold and here (https://x.y)");
    }

    #[test]
    fn tables_align() {
        assert_eq!(texts("|a|bb|\n|-|-|\n|long|x|\n", 40), ["a    │ bb", "─────┼───", "long │ x"]);
    }

    #[test]
    fn long_items_hang_under_their_text() {
        assert_eq!(texts("- aaa bbb ccc", 9), ["• aaa bbb", "  ccc"].map(str::to_owned));
    }

    #[test]
    fn nothing_is_lost_and_nothing_overflows() {
        let source = "a <b>html</b> c\n\n<div>\nblock\n</div>\n\n- \n\n***\n\nlast 漢字漢字漢字漢字";
        for width in [4, 7, 10, 33] {
            let all = texts(source, width);
            assert!(all.iter().all(|l| text::width(l.trim_end()) <= width.max(6)), "{width}: {all:?}");
            let joined: String = all.concat().split_whitespace().collect();
            for word in ["html", "block", "last"] {
                assert!(joined.contains(word), "{word} at {width}: {joined}");
            }
        }
    }
}
