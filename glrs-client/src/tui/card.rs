//! The card of a request: the whole command, diff or question, and the keys that answer it.
//!
//! Pure: a request goes in, lines come out.

use super::{diff, lines, style};
use crate::text::{clip, one_line, sanitise};
use glrs_protocol::types::{Request, RequestKind};
use ratatui::style::Style;
use ratatui::text::{Line, Span};

/// The card at a width, at most `height` lines, its body scrolled by `scroll` lines. Also answers
/// how far it can be scrolled.
pub fn render(r: &Request, more: usize, width: usize, height: usize, scroll: usize) -> (Vec<Line<'static>>, usize) {
    let body = sanitise(r.body.trim_end());
    let mut inner = if diff::is_diff(&body) {
        diff::render(&body, width.saturating_sub(2))
    } else {
        lines::plain(&body, width.saturating_sub(2), Style::new(), "", "")
    };
    if let Some(sandbox) = &r.sandbox {
        inner.extend(lines::plain(
            &sanitise(&format!("sandboxed: {sandbox}")),
            width.saturating_sub(2),
            style::DIM,
            "",
            "",
        ));
    }
    for (i, option) in r.options.iter().enumerate().take(9) {
        inner.extend(lines::plain(
            &sanitise(option),
            width.saturating_sub(2),
            style::BOLD,
            &format!("{}  ", i + 1),
            "   ",
        ));
    }
    let (ask, keys) = words(r);
    let whose = r.origin.as_ref().map(|o| format!("[{}] ", one_line(&o.title))).unwrap_or_default();
    let waiting = if more > 0 { format!("  (and {more} more)") } else { String::new() };
    let title = format!("? {whose}{ask}{}{waiting}", one_line(&r.title));
    let mut out = vec![Line::styled(clip(&title, width), style::ASK)];
    let room = height.saturating_sub(2).max(1);
    let furthest = inner.len().saturating_sub(room);
    let from = scroll.min(furthest);
    for line in inner.iter().skip(from).take(room) {
        let mut spans = vec![Span::styled("│ ", style::ASK)];
        spans.extend(line.spans.iter().map(|s| s.clone().patch_style(line.style)));
        out.push(Line::from(spans));
    }
    let place = if furthest > 0 {
        format!(" · PgUp/PgDn ({}–{} of {})", from + 1, (from + room).min(inner.len()), inner.len())
    } else {
        String::new()
    };
    out.push(Line::styled(clip(&format!("{keys}{place}"), width), style::DIM));
    (out, furthest)
}

fn words(r: &Request) -> (String, String) {
    match r.kind {
        RequestKind::Permission => {
            let always = r.rule.as_ref().map(|rule| format!(" · a always {}", one_line(rule))).unwrap_or_default();
            (format!("{} ", one_line(&r.tool)), format!("y allow · n deny{always} · w deny with words"))
        }
        RequestKind::Question if r.options.is_empty() => (String::new(), "w answer · n deny".to_owned()),
        RequestKind::Question => (String::new(), "1-9 choose · w answer in words · n deny".to_owned()),
        RequestKind::Unknown => {
            (String::new(), "this glrs does not know such requests: a newer one can answer".to_owned())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tui::lines::unstyled;

    fn request(body: &str) -> Request {
        Request {
            request: "r1".into(),
            kind: RequestKind::Permission,
            tool: "bash".into(),
            title: "git push".into(),
            body: body.into(),
            options: Vec::new(),
            rule: Some("bash(git push*)".into()),
            sandbox: None,
            call_id: "c".into(),
            origin: None,
            at: "t".into(),
        }
    }

    fn texts(r: &Request, height: usize, scroll: usize) -> Vec<String> {
        render(r, 0, 60, height, scroll).0.iter().map(unstyled).collect()
    }

    #[test]
    fn the_whole_command_can_be_read() {
        let r = request("git push \\\n  --force\u{1b}[2K");
        assert_eq!(
            texts(&r, 10, 0),
            [
                "? bash git push",
                "│ git push \\",
                "│   --force␛[2K",
                "y allow · n deny · a always bash(git push*) · w deny with w…"
            ]
        );
    }

    #[test]
    fn long_bodies_scroll_to_their_end() {
        let body: String = (1..=20).map(|i| format!("line {i}\n")).collect();
        let (lines, furthest) = render(&request(&body), 1, 120, 7, 0);
        assert_eq!((lines.len(), furthest), (7, 15));
        assert!(unstyled(&lines[0]).ends_with("(and 1 more)") && unstyled(&lines[6]).contains("1–5 of 20"));
        assert_eq!(texts(&request(&body), 7, 99)[5], "│ line 20");
    }

    #[test]
    fn questions_list_their_choices() {
        let mut r = request("which one?");
        r.kind = RequestKind::Question;
        r.options = vec!["this".into(), "that".into()];
        let all = texts(&r, 10, 0);
        assert_eq!(all[1..4], ["│ which one?", "│ 1  this", "│ 2  that"]);
        assert!(all[4].starts_with("1-9 choose"));
    }
}
