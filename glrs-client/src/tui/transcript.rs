//! x
use glrs_protocol::entry::Entry;
use ratatui::text::Line;
/// x
pub fn render(_: &Entry, _: u16) -> Vec<Line<'static>> {
    vec![]
}
/// x
pub fn plain(l: &Line<'_>) -> String {
    l.spans.iter().map(|s| s.content.as_ref()).collect()
}
