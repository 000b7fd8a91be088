//! The lines at the bottom: what streams, what runs, the card, the queue, the composer, the status.
//!
//! Pure: the terminal's state goes in, lines and a cursor come out.

use super::app::{App, Words};
use super::{card, lines, markdown, status, style};
use crate::text::{clip, elapsed, one_line, sanitise};
use glrs_protocol::types::{InFlight, PieceKind, SendMode};
use ratatui::style::Style;
use ratatui::text::{Line, Span};

/// Lines of the composer at most.
const COMPOSER: usize = 8;
/// Bytes of a streaming piece that are looked at: only its end is shown.
const STREAM_TAIL: usize = 6 * 1024;

/// The lines at the bottom and where the cursor is among them.
pub struct Bottom {
    /// The lines, top to bottom.
    pub lines: Vec<Line<'static>>,
    /// Row and column of the cursor.
    pub cursor: (u16, u16),
}

/// Draws the bottom at a width, in at most `height` lines.
pub fn bottom(app: &App, width: u16, height: u16, now: jiff::Timestamp) -> Bottom {
    let (w, h) = (usize::from(width).max(8), usize::from(height).max(1));
    let (composer, cursor) = composer(app, w, (h / 2).clamp(1, COMPOSER));
    let mut tail = vec![status_line(app, w)];
    if h <= composer.len() + 1 {
        tail.clear();
    }
    let mut room = h.saturating_sub(composer.len() + tail.len());
    let mut take = |lines: Vec<Line<'static>>, most: usize| {
        let n = lines.len().min(most).min(room);
        room -= n;
        lines.into_iter().take(n).collect::<Vec<_>>()
    };
    let rule = take(vec![Line::styled("─".repeat(w), style::DIM)], 1);
    let mut activity = status::activity(&app.view, now);
    if let Some((since, why)) = &app.lost {
        let time = elapsed(u64::try_from(since.elapsed().as_millis()).unwrap_or(u64::MAX));
        activity = vec![Line::styled(clip(&format!("● no daemon for {time}: {}", one_line(why)), w), style::WARN)];
    }
    let activity = take(activity, 5);
    let card_room = if app.card.is_some() { (h * 2 / 3).max(4) } else { 0 };
    let card = take(card_lines(app, w, card_room.min(h.saturating_sub(composer.len() + 2))), card_room);
    let completion = take(completion(app, w), 8);
    let queue = take(queue(app, w), 5);
    let stream = take(stream(app, w, (h / 3).clamp(2, 12)), 12);
    let mut out = stream;
    out.extend(activity);
    out.extend(card);
    out.extend(queue);
    out.extend(completion);
    out.extend(rule);
    let row = out.len() + cursor.0;
    out.extend(composer);
    out.extend(tail);
    Bottom { lines: out, cursor: (u16::try_from(row).unwrap_or(0), u16::try_from(cursor.1).unwrap_or(0)) }
}

fn status_line(app: &App, w: usize) -> Line<'static> {
    match &app.hint {
        Some(hint) => Line::styled(clip(&one_line(hint), w), style::WARN),
        None => status::line(&app.view, app.read_only, w),
    }
}

fn composer(app: &App, w: usize, most: usize) -> (Vec<Line<'static>>, (usize, usize)) {
    let (prompt, look) = match (&app.words, &app.confirm) {
        (Some(Words::Deny(_)), _) => ("why not? ", style::ASK),
        (Some(Words::Answer(_)), _) => ("answer: ", style::ASK),
        (None, Some(_)) => ("? ", style::ASK),
        (None, None) => ("› ", style::PERSON),
    };
    let indent = crate::text::width(prompt);
    let layout = app.composer.layout(w.saturating_sub(indent + 1));
    let first = (layout.cursor.0 + 1).saturating_sub(most);
    let rows: Vec<Line<'static>> = layout
        .rows
        .into_iter()
        .enumerate()
        .skip(first)
        .take(most)
        .map(|(i, row)| {
            let head = if i == 0 { Span::styled(prompt.to_owned(), look) } else { Span::raw(" ".repeat(indent)) };
            Line::from(vec![head, Span::raw(row)])
        })
        .collect();
    (rows, (layout.cursor.0 - first, layout.cursor.1 + indent))
}

fn card_lines(app: &App, w: usize, height: usize) -> Vec<Line<'static>> {
    let Some((id, _)) = &app.card else { return Vec::new() };
    let Some(request) = app.view.requests.iter().find(|r| r.request == *id) else { return Vec::new() };
    card::render(request, app.view.requests.len() - 1, w, height, app.scroll).0
}

fn completion(app: &App, w: usize) -> Vec<Line<'static>> {
    let Some(c) = &app.completion else { return Vec::new() };
    let from = c.chosen.saturating_sub(7);
    c.candidates
        .iter()
        .enumerate()
        .skip(from)
        .take(8)
        .map(|(i, (whole, help))| {
            let look = if i == c.chosen { style::SELECTED } else { Style::new() };
            let room = w.saturating_sub(crate::text::width(whole) + 2);
            Line::from(vec![
                Span::styled(format!("  {whole}"), look),
                Span::styled(clip(&one_line(help).replace("  ", " – "), room), style::DIM),
            ])
        })
        .collect()
}

fn queue(app: &App, w: usize) -> Vec<Line<'static>> {
    let rows = &app.view.queue;
    let mut out: Vec<Line<'static>> = rows
        .iter()
        .take(4)
        .map(|r| {
            let mark = if r.mode == SendMode::Steer { "» " } else { "⋯ " };
            let by = if r.by == app.me { String::new() } else { format!("({}) ", one_line(&r.by)) };
            Line::styled(clip(&format!("{mark}{by}{}", one_line(&r.text)), w), style::DIM)
        })
        .collect();
    if rows.len() > 4 {
        out.push(Line::styled(format!("⋯ {} more wait (/queue)", rows.len() - 4), style::DIM));
    }
    out
}

fn stream(app: &App, w: usize, most: usize) -> Vec<Line<'static>> {
    let mut out = Vec::new();
    for piece in &app.view.in_flight {
        out.extend(piece_tail(piece, w, most));
    }
    let from = out.len().saturating_sub(most);
    out.split_off(from)
}

fn piece_tail(piece: &InFlight, w: usize, most: usize) -> Vec<Line<'static>> {
    let mut from = piece.text.len().saturating_sub(STREAM_TAIL);
    while !piece.text.is_char_boundary(from) {
        from += 1;
    }
    let text = sanitise(&piece.text[from..]);
    let (mut all, keep) = match piece.piece {
        PieceKind::Assistant | PieceKind::Unknown => (markdown::render(&text, w), most),
        PieceKind::Reasoning => (lines::plain(text.trim_end(), w, style::DIM, "", ""), 3),
        PieceKind::Tool => (lines::plain(text.trim_end(), w, style::DIM, "  ", "  "), 4),
    };
    all.split_off(all.len().saturating_sub(keep.min(most)))
}
