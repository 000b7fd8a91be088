//! What each answer of the daemon does to the terminal.

use super::app::{App, Confirm, Item, Leave};
use super::calls::{Call, Reply};
use super::style;
use crate::cli::sessions;
use crate::text::{ago, clip, count, one_line};
use glrs_protocol::error::ErrorKind;
use glrs_protocol::params::{Rewind, RewindResult};
use glrs_protocol::types::{ModelRow, SessionInfo};
use ratatui::text::{Line, Span};

impl App {
    /// An answer came back.
    pub fn reply(&mut self, reply: Reply, now: jiff::Timestamp) {
        let Some(reply) = self.connection_reply(reply) else { return };
        match reply {
            Reply::Sent(sent) if sent.outcome == "removed" => {
                self.note("(somebody took the message back)", style::WARN);
            }
            Reply::NotSent(send, e) if e.is_connection() => self.resend.push(send),
            Reply::NotSent(send, e) => {
                self.note(e.to_string(), style::BAD);
                if self.composer.is_blank() {
                    self.composer.set(&send.text);
                } else {
                    self.note(format!("not sent: {}", send.text), style::DIM);
                }
            }
            Reply::TakenBack(text) => {
                if self.composer.is_blank() {
                    self.composer.set(&text);
                } else {
                    self.note(format!("taken back: {text}"), style::DIM);
                }
            }
            Reply::Told(words) => self.note(words, style::DIM),
            Reply::Failed(why) => self.note(why, style::BAD),
            Reply::Preview(rewind, result) => self.preview(rewind, &result),
            Reply::Rewound(result) => {
                self.note(format!("(went back: {} entries left the context)", result.entries), style::DIM);
                if self.composer.is_blank() {
                    self.composer.set(&result.text);
                }
            }
            Reply::Models(models, default) => self.models(&models, &default),
            Reply::Info(info) => {
                let text = sessions::describe(&info, Some(&self.view.usage), now);
                self.push(Item::Lines(text.lines().map(|l| Line::styled(l.to_owned(), style::DIM)).collect()));
            }
            Reply::Recent(recent) => self.recent(&recent, now),
            Reply::Prompts(prompts) => self.composer.set_history(prompts),
            Reply::NotAttached(e) => {
                self.attach_failed();
                if e.is_connection() || e.kind() == ErrorKind::ShuttingDown {
                    // The stream's end follows, and with it the next connection.
                    return;
                }
                match self.closed.take() {
                    Some(why) if e.kind() == ErrorKind::NotFound => self.leave = Some(Leave::Lost(why)),
                    _ => self.note(e.to_string(), style::BAD),
                }
            }
            Reply::Deleted => self.leave = Some(Leave::Deleted),
            _ => {}
        }
    }

    /// The connection stands again.
    pub fn reconnected(&mut self, snapshot: glrs_protocol::params::Snapshot, me: String) {
        let (lost, _) = self.lost.take().unwrap_or((std::time::Instant::now(), String::new()));
        self.me = me;
        let ms = u64::try_from(lost.elapsed().as_millis()).unwrap_or(u64::MAX);
        self.note(format!("(connected again after {})", crate::text::elapsed(ms)), style::DIM);
        self.adopt(snapshot);
        // With their keys: what had arrived before is not run twice.
        self.calls.extend(std::mem::take(&mut self.resend).into_iter().map(Call::Send));
    }

    fn preview(&mut self, rewind: Rewind, result: &RewindResult) {
        let mut lines: Vec<Line<'static>> = result
            .files
            .iter()
            .map(|f| {
                let look = if f.action == "conflict" { style::BAD } else { style::DIM };
                let action = if f.action == "conflict" { "left alone, it changed since" } else { &f.action };
                Line::styled(format!("  {} ({})", one_line(&f.path), one_line(action)), look)
            })
            .collect();
        if lines.is_empty() {
            lines.push(Line::styled("  no files change", style::DIM));
        }
        let words = clip(&one_line(&result.text), 60);
        lines.insert(
            0,
            Line::styled(format!("back to before “{words}”: {} entries leave the context", result.entries), style::ASK),
        );
        lines.push(Line::styled(
            "y files and conversation · f files · c conversation · any other key: neither",
            style::ASK,
        ));
        self.push(Item::Lines(lines));
        self.confirm = Some(Confirm::Rewind(rewind));
    }

    fn models(&mut self, models: &[ModelRow], default: &str) {
        let mut lines: Vec<Line<'static>> = vec![Line::styled(
            format!("model: {} (/model provider/id [variant] changes it)", one_line(&self.view.info.model)),
            style::DIM,
        )];
        for m in models.iter().filter(|m| m.ready).take(30) {
            let mark = if m.model == default { "*" } else { " " };
            let variants = if m.variants.is_empty() { String::new() } else { format!("  {}", m.variants.join("|")) };
            lines.push(Line::from(vec![
                Span::raw(format!("{mark} {}", one_line(&m.model))),
                Span::styled(format!("  {}{}", count(m.context), one_line(&variants)), style::DIM),
            ]));
        }
        self.push(Item::Lines(lines));
    }

    fn recent(&mut self, recent: &[SessionInfo], now: jiff::Timestamp) {
        let rows: Vec<Line<'static>> = recent
            .iter()
            .filter(|s| s.saved && s.id != *self.view.id())
            .map(|s| {
                let when = ago(&s.updated_at, now);
                Line::styled(format!("  /resume {}  {when:<12}  {}", s.id, clip(&one_line(&s.title), 60)), style::DIM)
            })
            .collect();
        // Only as long as the session is new.
        if !rows.is_empty() && self.view.entries.is_empty() {
            self.push(Item::Lines(rows));
        }
    }
}
