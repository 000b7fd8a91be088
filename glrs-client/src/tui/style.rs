//! The terminal's few styles, by meaning.

use ratatui::style::{Color, Modifier, Style};

/// What matters less.
pub const DIM: Style = Style::new().add_modifier(Modifier::DIM);
/// What matters more.
pub const BOLD: Style = Style::new().add_modifier(Modifier::BOLD);
/// A person's words.
pub const PERSON: Style = Style::new().fg(Color::Cyan).add_modifier(Modifier::BOLD);
/// Code.
pub const CODE: Style = Style::new().fg(Color::Yellow);
/// A heading.
pub const HEADING: Style = Style::new().fg(Color::Magenta).add_modifier(Modifier::BOLD);
/// It worked; a line that was added.
pub const GOOD: Style = Style::new().fg(Color::Green);
/// It failed; a line that was removed.
pub const BAD: Style = Style::new().fg(Color::Red);
/// It wants attention.
pub const WARN: Style = Style::new().fg(Color::Yellow);
/// It waits for an answer.
pub const ASK: Style = Style::new().fg(Color::Yellow).add_modifier(Modifier::BOLD);
/// Where a change begins.
pub const HUNK: Style = Style::new().fg(Color::Cyan).add_modifier(Modifier::DIM);
/// The selected row.
pub const SELECTED: Style = Style::new().add_modifier(Modifier::REVERSED);
