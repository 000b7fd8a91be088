//! What each slash command does.
//!
//! Must not know how a command is written; that is [`super::slash`]'s.

use super::app::{App, Confirm, Item, Leave};
use super::calls::Call;
use super::slash::{Slash, TABLE};
use super::{style, transcript};
use crate::text::{clip, one_line};
use crate::view::typed;
use glrs_protocol::entry::{Entry, Tool};
use glrs_protocol::params::Rewind;
use glrs_protocol::types::{Mode, PlanStatus, SendMode};
use ratatui::text::{Line, Span};
use std::path::{Path, PathBuf};

const KEYS: &[(&str, &str)] = &[
    ("enter", "send; queue while a turn runs; empty: let a held queue go"),
    ("alt+enter", "steer: into the running turn"),
    ("!command", "run it here yourself; the model sees it with the next message"),
    ("shift+enter, alt+j", "new line"),
    ("alt+up", "take the newest waiting message back"),
    ("esc", "interrupt; twice when idle: rewind"),
    ("ctrl+c", "clear the composer; again: leave"),
    ("ctrl+d", "leave; the session goes on"),
    ("up, down, ctrl+p, ctrl+n", "history"),
    ("tab", "complete commands and @paths"),
    ("ctrl+o", "the last tool's whole output"),
];

impl App {
    /// Does what a command says.
    pub fn slash(&mut self, command: Slash) {
        let changes = matches!(
            command,
            Slash::Clear
                | Slash::Compact(_)
                | Slash::Rewind(Some(_))
                | Slash::Rename(_)
                | Slash::Delete
                | Slash::Model(Some(_))
                | Slash::Mode(Some(_))
        );
        if changes && !self.may_change() {
            return;
        }
        match command {
            Slash::Help => self.help(),
            Slash::New => {
                self.await_snapshot();
                self.calls.push(Call::New);
            }
            Slash::Clear => self.calls.push(Call::Clear),
            Slash::Compact(instruction) => self.calls.push(Call::Compact(instruction)),
            Slash::Artifacts => self.calls.push(Call::Artifacts),
            Slash::Fork { at, directive } => {
                let last = self.view.last_entry().max(self.view.info.entries);
                match at {
                    Some(n) if n > last => self.hint = Some(format!("no entry {n}: there are 1 to {last}")),
                    _ => self.calls.push(Call::Fork { at, directive }),
                }
            }
            Slash::Rewind(None) => self.rewind_list(),
            Slash::Rewind(Some(to)) => self.calls.push(Call::Rewind(Rewind {
                id: self.view.id().clone(),
                to,
                preview: true,
                files: None,
                conversation: None,
                key: None,
            })),
            Slash::Resume(None) => self.pick = true,
            Slash::Resume(Some(text)) => {
                self.await_snapshot();
                self.calls.push(match text.parse() {
                    Ok(id) => Call::Open(id),
                    Err(_) => Call::OpenTitle(text),
                });
            }
            Slash::Rename(title) => self.calls.push(Call::Rename(title)),
            Slash::Delete => {
                let others = self.view.client_count.saturating_sub(1);
                let more = if others > 0 { format!(" ({others} more attached)") } else { String::new() };
                self.note(format!("delete this session for good{more}? y deletes, any other key keeps it"), style::ASK);
                self.confirm = Some(Confirm::Delete);
            }
            Slash::Info => self.calls.push(Call::Info),
            Slash::History => self.redraw = true,
            Slash::Model(None) => self.calls.push(Call::Models),
            Slash::Model(Some(text)) => {
                let mut words = text.split_whitespace().map(str::to_owned);
                match (words.next(), words.next(), words.next()) {
                    (Some(model), variant, None) => self.calls.push(Call::Model(model, variant)),
                    _ => self.hint = Some("/model provider/id [variant]".to_owned()),
                }
            }
            Slash::Mode(None) => {
                self.note(format!("mode: {} (ask, edits or all)", self.view.info.mode.as_str()), style::DIM);
            }
            Slash::Mode(Some(word)) => self.calls.push(Call::Mode(match word.as_str() {
                "edits" => Mode::Edits,
                "all" => Mode::All,
                _ => Mode::Ask,
            })),
            Slash::Queue => self.queue(),
            Slash::Plan => self.plan(),
            Slash::Export(file) => {
                let name = file.unwrap_or_else(|| format!("{}.md", self.view.id()));
                let path = Path::new(&self.view.info.cwd).join(PathBuf::from(name));
                self.calls.push(Call::Export(path));
            }
            Slash::Quit => self.leave = Some(Leave::Detach),
        }
    }

    fn help(&mut self) {
        let row = |left: String, right: &str| {
            Line::from(vec![
                Span::styled(format!("  {left:<34}"), style::BOLD),
                Span::styled(right.to_owned(), style::DIM),
            ])
        };
        let mut lines = transcript::rule("commands", 60);
        for (name, aliases, args, help) in TABLE {
            let alias: String = aliases.iter().map(|a| format!(" (/{a})")).collect();
            lines.push(row(format!("/{name}{alias} {args}"), help));
        }
        lines.extend(transcript::rule("keys", 60));
        lines.extend(KEYS.iter().map(|(k, what)| row((*k).to_owned(), what)));
        self.push(Item::Lines(lines));
    }

    /// Lists the messages that can be gone back to.
    pub fn rewind_list(&mut self) {
        let mut lines: Vec<Line<'static>> = Vec::new();
        for entry in self.view.entries.iter().rev() {
            if let Entry::User(u) = typed(entry) {
                let words = clip(&one_line(&u.text), 70);
                lines.push(Line::from(vec![
                    Span::styled(format!("  /rewind {:<6}", entry.n), style::BOLD),
                    Span::styled(words, style::DIM),
                ]));
                if lines.len() == 10 {
                    break;
                }
            }
        }
        if lines.is_empty() {
            self.hint = Some("no message to go back to".to_owned());
            return;
        }
        lines.push(Line::styled("go back to before which message? Nothing changes before you agree", style::ASK));
        lines.rotate_right(1);
        self.push(Item::Lines(lines));
    }

    fn queue(&mut self) {
        if self.view.queue.is_empty() {
            return self.note("nothing waits", style::DIM);
        }
        let rows: Vec<Line<'static>> = self
            .view
            .queue
            .iter()
            .enumerate()
            .map(|(i, r)| {
                let mark = if r.mode == SendMode::Steer { "steer " } else { "" };
                let words = format!("{} {mark}({}) {}", i + 1, one_line(&r.by), one_line(&r.text));
                Line::styled(clip(&words, 200), style::DIM)
            })
            .collect();
        self.push(Item::Lines(rows));
    }

    fn plan(&mut self) {
        if self.view.plan.is_empty() {
            return self.note("there is no plan", style::DIM);
        }
        let rows: Vec<Line<'static>> = self
            .view
            .plan
            .iter()
            .map(|item| {
                let (mark, look) = match item.status {
                    PlanStatus::Completed => ("✓", style::GOOD),
                    PlanStatus::InProgress => ("●", style::WARN),
                    PlanStatus::Pending | PlanStatus::Unknown => ("·", style::DIM),
                };
                Line::from(vec![Span::styled(format!("{mark} "), look), Span::raw(one_line(&item.text))])
            })
            .collect();
        self.push(Item::Lines(rows));
    }

    /// The whole of a tool call in the scrollback.
    pub fn push_expanded(&mut self, tool: &Tool) {
        self.push(Item::Lines(transcript::expanded(tool, 120)));
    }
}
