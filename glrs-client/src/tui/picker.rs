//! The session picker: a screen of its own, newest first, filtered as one types.
//!
//! Owns what is listed and which row is chosen (`Picker`, pure) and the loop around it.

use super::screen::{Full, Screen};
use super::style;
use crate::cli::failure::Failure;
use crate::cli::sessions;
use crate::client::Client;
use crate::text::{ago, clip, one_line};
use crossterm::event::{Event, EventStream, KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use futures_util::StreamExt as _;
use glrs_protocol::SessionId;
use glrs_protocol::methods::m;
use glrs_protocol::params::{SearchHit, SessionDelete, SessionSearch};
use glrs_protocol::types::SessionInfo;
use ratatui::style::Style;
use ratatui::text::{Line, Span};

/// Most sessions that are listed; older ones are found by searching.
const LISTED: u32 = 500;

/// What a key asks for.
#[derive(Debug, PartialEq)]
enum Step {
    Stay,
    Close,
    Open(SessionId),
    Delete(SessionId),
    /// Load the list again, of this directory or of all.
    Load,
    /// Search the conversations.
    Search,
}

/// The picker as a value.
#[derive(Default)]
struct Picker {
    all: bool,
    filter: String,
    rows: Vec<SessionInfo>,
    hits: Vec<SearchHit>,
    chosen: usize,
    deleting: bool,
    trouble: Option<String>,
}

/// Lets somebody choose a session; `None` when nobody did.
///
/// # Errors
/// When the daemon or the terminal fails.
pub async fn choose(
    client: &Client,
    cwd: &str,
    keys: &mut EventStream,
    colour: bool,
) -> Result<Option<SessionId>, Failure> {
    let mut picker = Picker::default();
    let mut step = Step::Load;
    let mut full: Full = Screen::full(colour)?;
    loop {
        let dir = (!picker.all).then(|| cwd.to_owned());
        match step {
            Step::Stay => {}
            Step::Close => return Ok(None),
            Step::Open(id) => return Ok(Some(id)),
            Step::Load => {
                picker.rows = sessions::list(client, dir, None, None, LISTED).await?.sessions;
                picker.chosen = 0;
            }
            Step::Delete(id) => {
                let deleted = client.call::<m::SessionDeleteM>(&SessionDelete { id: id.clone(), force: false }).await;
                match deleted {
                    Ok(_) => picker.rows.retain(|r| r.id != id),
                    Err(e) => picker.trouble = Some(e.to_string()),
                }
            }
            Step::Search => {
                let params = SessionSearch { text: picker.filter.clone(), cwd: dir, limit: Some(50) };
                picker.hits = client.call::<m::SessionSearchM>(&params).await?.hits;
            }
        }
        let (columns, rows) = crossterm::terminal::size()?;
        let (lines, cursor) = picker.draw(usize::from(columns), usize::from(rows), jiff::Timestamp::now());
        full.show(&lines, cursor)?;
        step = match keys.next().await {
            Some(Ok(Event::Key(key))) => picker.key(key),
            Some(Ok(Event::Paste(text))) => {
                picker.type_text(&one_line(&text));
                Step::Stay
            }
            Some(Ok(_)) => Step::Stay,
            Some(Err(_)) | None => Step::Close,
        };
    }
}

impl Picker {
    /// What can be chosen: titles that fit, then what was found in conversations.
    fn shown(&self) -> Vec<&SessionInfo> {
        let wanted = self.filter.to_lowercase();
        let by_title =
            self.rows.iter().filter(|s| s.title.to_lowercase().contains(&wanted) || s.id.as_str().starts_with(&wanted));
        let mut out: Vec<&SessionInfo> = by_title.collect();
        for hit in &self.hits {
            if !out.iter().any(|s| s.id == hit.session.id) {
                out.push(&hit.session);
            }
        }
        out
    }

    /// How many of the shown fit by their title.
    fn titles(&self) -> usize {
        let wanted = self.filter.to_lowercase();
        let fits = |s: &&SessionInfo| s.title.to_lowercase().contains(&wanted) || s.id.as_str().starts_with(&wanted);
        self.rows.iter().filter(fits).count()
    }

    fn type_text(&mut self, text: &str) {
        self.filter.push_str(text);
        self.hits.clear();
        self.chosen = 0;
    }

    fn key(&mut self, key: KeyEvent) -> Step {
        if key.kind == KeyEventKind::Release {
            return Step::Stay;
        }
        self.trouble = None;
        let id = self.shown().get(self.chosen).map(|s| s.id.clone());
        if std::mem::take(&mut self.deleting) {
            return match (key.code, id) {
                (KeyCode::Char('y'), Some(id)) => Step::Delete(id),
                _ => Step::Stay,
            };
        }
        let last = self.shown().len().saturating_sub(1);
        let ctrl = key.modifiers.contains(KeyModifiers::CONTROL);
        match key.code {
            KeyCode::Esc => return Step::Close,
            KeyCode::Char('c' | 'd') if ctrl => return Step::Close,
            KeyCode::Char('/' | '_' | '7') if ctrl => return self.search(),
            KeyCode::Char('p') if ctrl => self.chosen = self.chosen.saturating_sub(1),
            KeyCode::Char('n') if ctrl => self.chosen = (self.chosen + 1).min(last),
            KeyCode::Char('u') if ctrl => {
                self.filter.clear();
                self.type_text("");
            }
            KeyCode::Enter => match id {
                Some(id) => return Step::Open(id),
                None => return self.search(),
            },
            KeyCode::Up => self.chosen = self.chosen.saturating_sub(1),
            KeyCode::Down => self.chosen = (self.chosen + 1).min(last),
            KeyCode::PageUp => self.chosen = self.chosen.saturating_sub(10),
            KeyCode::PageDown => self.chosen = (self.chosen + 10).min(last),
            KeyCode::Tab => {
                self.all = !self.all;
                self.hits.clear();
                return Step::Load;
            }
            KeyCode::Char('d') if self.filter.is_empty() && id.is_some() => self.deleting = true,
            KeyCode::Backspace => {
                self.filter.pop();
                self.type_text("");
            }
            KeyCode::Char(c) if !ctrl => self.type_text(c.encode_utf8(&mut [0; 4])),
            _ => {}
        }
        Step::Stay
    }

    fn search(&self) -> Step {
        if self.filter.trim().is_empty() { Step::Stay } else { Step::Search }
    }

    fn draw(&self, width: usize, height: usize, now: jiff::Timestamp) -> (Vec<Line<'static>>, (u16, u16)) {
        let place = if self.all { "every directory" } else { "this directory" };
        let head = format!("resume ({place}) › ");
        let mut out = vec![
            Line::from(vec![Span::styled(head.clone(), style::DIM), Span::raw(one_line(&self.filter))]),
            Line::default(),
        ];
        let room = height.saturating_sub(5).max(1);
        let shown = self.shown();
        let titles = self.titles();
        let from = self.chosen.saturating_sub(room - 1);
        for (i, s) in shown.iter().enumerate().skip(from).take(room) {
            if i == titles && !self.hits.is_empty() {
                out.push(Line::styled("Extended search results", style::HEADING));
            }
            let look = if i == self.chosen { style::SELECTED } else { Style::new() };
            let title = if s.title.is_empty() { "(no title yet)" } else { &s.title };
            let mut text = format!("{}  {:<12}  {}", s.id, ago(&s.updated_at, now), one_line(title));
            if self.all {
                text.push_str(&format!("  ({})", one_line(&s.cwd)));
            }
            if let Some(hit) = self.hits.iter().find(|h| h.session.id == s.id) {
                text.push_str(&format!("  …{}…", one_line(&hit.excerpt)));
            }
            out.push(Line::styled(clip(&text, width), look));
        }
        if shown.is_empty() {
            out.push(Line::styled("nothing fits: enter searches the conversations", style::DIM));
        }
        out.push(Line::default());
        let foot = match (&self.trouble, self.deleting) {
            (Some(why), _) => Line::styled(clip(&one_line(why), width), style::BAD),
            (None, true) => Line::styled("delete it for good? y deletes, any other key keeps it", style::ASK),
            (None, false) => Line::styled(
                clip("enter open · tab every directory · ctrl+/ search conversations · d delete · esc close", width),
                style::DIM,
            ),
        };
        out.push(foot);
        let x = crate::text::width(&head) + crate::text::width(&one_line(&self.filter));
        (out, (0, u16::try_from(x).unwrap_or(0)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tui::lines::unstyled;
    use crate::view::tests::snapshot;

    fn picker() -> Picker {
        let mut rows = Vec::new();
        for (id, title) in [("00000001", "Fix login"), ("00000002", "docs\u{1b}[2J"), ("00000003", "fix build")] {
            let mut s = snapshot(0, &[]).info;
            s.id = id.parse().unwrap();
            s.title = title.into();
            rows.push(s);
        }
        Picker { rows, ..Picker::default() }
    }

    fn press(p: &mut Picker, code: KeyCode) -> Step {
        p.key(KeyEvent::new(code, KeyModifiers::NONE))
    }

    #[test]
    fn typing_filters_and_enter_opens() {
        let mut p = picker();
        for c in "FIX".chars() {
            assert_eq!(press(&mut p, KeyCode::Char(c)), Step::Stay);
        }
        assert_eq!(p.shown().len(), 2);
        press(&mut p, KeyCode::Down);
        press(&mut p, KeyCode::Down);
        assert_eq!(press(&mut p, KeyCode::Enter), Step::Open("00000003".parse().unwrap()));
        press(&mut p, KeyCode::Char('z'));
        assert_eq!(press(&mut p, KeyCode::Enter), Step::Search, "nothing fits by title");
        assert_eq!(press(&mut p, KeyCode::Tab), Step::Load);
        assert_eq!(press(&mut p, KeyCode::Esc), Step::Close);
    }

    #[test]
    fn deleting_asks_first() {
        let mut p = picker();
        assert_eq!(press(&mut p, KeyCode::Char('d')), Step::Stay);
        assert_eq!(press(&mut p, KeyCode::Char('x')), Step::Stay);
        press(&mut p, KeyCode::Char('d'));
        assert_eq!(press(&mut p, KeyCode::Char('y')), Step::Delete("00000001".parse().unwrap()));
    }

    #[test]
    fn it_draws_nothing_raw_and_marks_what_conversations_had() {
        let mut p = picker();
        p.type_text("login");
        let mut other = snapshot(0, &[]).info;
        other.id = "00000009".parse().unwrap();
        p.hits.push(SearchHit { session: other, n: Some(4), excerpt: "the login\u{7} page".into() });
        let now: jiff::Timestamp = "2026-09-06T14:00:30Z".parse().unwrap();
        let all: Vec<String> = p.draw(100, 20, now).0.iter().map(unstyled).collect();
        assert!(all.iter().any(|l| l == "Extended search results"));
        assert!(all.iter().any(|l| l.contains("the login␇ page")));
        p.filter.clear();
        for line in p.draw(100, 20, now).0 {
            assert!(!unstyled(&line).chars().any(char::is_control));
        }
    }
}
