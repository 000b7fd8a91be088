//! Entries as lines of the transcript: each rendered once, then the terminal's own.
//!
//! Owns what every kind of entry looks like. Everything is sanitised here, before anything else
//! sees it.

use super::{diff, lines, markdown, style};
use crate::text::{clip, elapsed, one_line, sanitise};
use glrs_protocol::entry::{Compacted, Custom, Entry, Title, Tool, TurnStatus, User};
use ratatui::style::Style;
use ratatui::text::{Line, Span};

/// Lines of a diff that are shown under its tool call; the rest is behind ctrl+o.
const DIFF_LINES: usize = 24;
/// Lines that ctrl+o shows at most: what is longer belongs to an export.
const EXPAND_LINES: usize = 400;
/// Last lines of a person's command that are shown under it.
const SHELL_LINES: usize = 20;

/// An entry as lines at a width; none for those that have nothing to show. Where there are lines,
/// they begin without a blank one.
pub fn render(entry: &Entry, width: u16) -> Vec<Line<'static>> {
    let w = usize::from(width).max(8);
    match entry {
        Entry::User(u) => user(u, w),
        Entry::Assistant(a) => {
            let mut out = markdown::render(&sanitise(&a.text), w);
            if a.partial {
                out.push(Line::styled("(cut short)", style::DIM));
            }
            out
        }
        Entry::Tool(t) => tool(t, w),
        Entry::Reasoning(r) => {
            let words = one_line(&r.text);
            let head = format!("thought for {}", elapsed(r.elapsed_ms));
            let line = if words.is_empty() { head } else { format!("{head}: {words}") };
            vec![Line::styled(clip(&line, w), style::DIM)]
        }
        Entry::Turn(t) => match t.status {
            TurnStatus::Interrupted => note("(interrupted)", w, style::WARN),
            TurnStatus::Failed => note("(the turn failed)", w, style::BAD),
            _ => Vec::new(),
        },
        Entry::Notice(n) => note(&n.text, w, style::DIM),
        Entry::Error(e) => lines::plain(&sanitise(&e.text), w, style::BAD, "✗ ", "  "),
        Entry::Cleared(c) => {
            let why = if c.reason.is_empty() { String::new() } else { format!(": {}", one_line(&c.reason)) };
            rule(&format!("context cleared{why}"), w)
        }
        Entry::Compacted(c) => compacted(c, w),
        Entry::Custom(c) => custom(c, w),
        Entry::Usage(_) | Entry::Unknown(_) => Vec::new(),
    }
}

/// A note of ours, in one style.
pub fn note(words: &str, width: usize, style: Style) -> Vec<Line<'static>> {
    lines::plain(&sanitise(words), width, style, "", "")
}

/// The text of a line without its styles.
pub fn plain(line: &Line<'_>) -> String {
    lines::unstyled(line)
}

fn user(u: &User, w: usize) -> Vec<Line<'static>> {
    let mut words = sanitise(u.text.trim_end());
    if words.is_empty() {
        words.push(' ');
    }
    let mut out = lines::plain(&words, w, style::PERSON, if u.steer { "» " } else { "› " }, "  ");
    for a in &u.attachments {
        out.push(Line::styled(clip(&format!("  + {}", one_line(&a.path)), w), style::DIM));
    }
    out
}

fn tool(t: &Tool, w: usize) -> Vec<Line<'static>> {
    let (mark, mark_style) = if t.ok { ("✓", style::GOOD) } else { ("✗", style::BAD) };
    let mut tail = format!("  {}", elapsed(t.elapsed_ms));
    if let Some(d) = &t.diff {
        let (added, removed) = diff::counts(d);
        tail = format!("  +{added} −{removed}{tail}");
    }
    let name = if t.by.is_some() { "!".to_owned() } else { one_line(&t.name) };
    let room = w.saturating_sub(name.chars().count() + 3 + tail.chars().count());
    let mut out = vec![Line::from(vec![
        Span::styled(format!("{mark} "), mark_style),
        Span::styled(name, style::BOLD),
        Span::raw(format!(" {}", clip(&one_line(&t.detail), room))),
        Span::styled(tail, style::DIM),
    ])];
    if let Some(d) = &t.diff {
        let lines = diff::render(&sanitise(d), w);
        let count = lines.len();
        out.extend(lines.into_iter().filter(|l| !plain(l).starts_with("---")).take(DIFF_LINES));
        if count > DIFF_LINES {
            out.push(Line::styled(format!("… {} more lines (ctrl+o)", count - DIFF_LINES), style::DIM));
        }
    } else if t.by.is_some() {
        // Whoever ran it wants to see what it said.
        let all = lines::plain(&sanitise(t.result.as_deref().unwrap_or_default()), w, style::DIM, "  ", "  ");
        let more = all.len().saturating_sub(SHELL_LINES);
        if more > 0 {
            out.push(Line::styled(format!("… {more} lines before (ctrl+o)"), style::DIM));
        }
        out.extend(all.into_iter().skip(more));
    } else if !t.ok
        && let Some(result) = &t.result
    {
        // Why it failed, in its first words.
        let first = sanitise(result);
        let first = first.lines().find(|l| !l.trim().is_empty()).unwrap_or_default();
        if !first.is_empty() {
            out.push(Line::styled(clip(&format!("  {}", first.trim()), w), style::DIM));
        }
    }
    out
}

/// The whole of a tool call: input, output, diff.
pub fn expanded(t: &Tool, width: u16) -> Vec<Line<'static>> {
    let w = usize::from(width).max(8);
    let mut out = rule(&format!("{} {}", one_line(&t.name), one_line(&t.detail)), w);
    if let Some(d) = &t.diff {
        out.extend(diff::render(&sanitise(d), w));
    }
    if let Some(r) = &t.result {
        out.extend(lines::plain(&sanitise(r), w, Style::new(), "  ", "  "));
    }
    if t.diff.is_none() && t.result.as_deref().unwrap_or("").is_empty() {
        out.push(Line::styled("  (no output)", style::DIM));
    }
    if out.len() > EXPAND_LINES {
        let more = out.len() - EXPAND_LINES;
        out.truncate(EXPAND_LINES);
        out.push(Line::styled(format!("… {more} more lines: /export has them"), style::DIM));
    }
    out
}

fn compacted(c: &Compacted, w: usize) -> Vec<Line<'static>> {
    let label = one_line(c.summary.lines().find(|l| !l.trim().is_empty()).unwrap_or_default());
    let mut out = rule("context compacted", w);
    if !label.is_empty() {
        out.push(Line::styled(clip(&format!("  {label}"), w), style::DIM));
    }
    out
}

fn custom(c: &Custom, w: usize) -> Vec<Line<'static>> {
    if c.custom == "glrs:title"
        && let Ok(title) = serde_json::from_str::<Title>(c.data.get())
        && title.by == "person"
    {
        return note(&format!("(renamed to “{}”)", one_line(&title.text)), w, style::DIM);
    }
    Vec::new()
}

/// A labelled rule across the width.
pub fn rule(label: &str, w: usize) -> Vec<Line<'static>> {
    let label = clip(label, w.saturating_sub(6));
    let rest = w.saturating_sub(crate::text::width(&label) + 5).min(60);
    vec![Line::styled(format!("── {label} {}", "─".repeat(rest)), style::DIM)]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(json: &str, width: u16) -> Vec<String> {
        render(&Entry::parse(json).unwrap(), width).iter().map(plain).collect()
    }

    #[test]
    fn every_kind_has_its_look() {
        assert_eq!(texts(r#"{"type":"user","text":"fix\nit"}"#, 40), ["› fix", "  it"]);
        assert_eq!(texts(r#"{"type":"user","text":"also","steer":true}"#, 40), ["» also"]);
        assert_eq!(texts(r#"{"type":"assistant","text":"ok","partial":true}"#, 40), ["ok", "(cut short)"]);
        assert_eq!(
            texts(r#"{"type":"tool","name":"bash","detail":"ls -l","elapsedMs":1200,"ok":true,"result":"x"}"#, 40),
            ["✓ bash ls -l  1.2 s"]
        );
        assert_eq!(
            texts(
                r#"{"type":"tool","name":"bash","detail":"x","elapsedMs":5,"ok":false,"result":"\nno such file\nmore"}"#,
                40
            ),
            ["✗ bash x  5 ms", "  no such file"]
        );
        assert_eq!(
            texts(
                r#"{"type":"tool","name":"bash","detail":"ls","elapsedMs":5,"ok":true,"result":"a\nb","by":"ann#1"}"#,
                40
            ),
            ["✓ ! ls  5 ms", "  a", "  b"]
        );
        assert_eq!(texts(r#"{"type":"turn","messages":[],"status":"interrupted"}"#, 40), ["(interrupted)"]);
        assert!(texts(r#"{"type":"turn","messages":[],"status":"done"}"#, 40).is_empty());
        assert!(texts(r#"{"type":"usage","tokens":5}"#, 40).is_empty());
        assert!(texts(r#"{"type":"banana"}"#, 40).is_empty());
        assert_eq!(
            texts(r#"{"type":"custom","custom":"glrs:title","data":{"text":"new","by":"person"}}"#, 40),
            ["(renamed to “new”)"]
        );
    }

    #[test]
    fn stored_text_never_steers_the_terminal() {
        let evil = r"\u001b[2J\u001b]0;x\u0007\u009b31m\r\n";
        for json in [
            format!(r#"{{"type":"user","text":"{evil}","attachments":[{{"path":"{evil}"}}]}}"#),
            format!(r#"{{"type":"assistant","text":"`{evil}` [x]({evil})\n```{evil}\n{evil}\n```\n<b>{evil}"}}"#),
            format!(
                r#"{{"type":"tool","name":"{evil}","detail":"{evil}","ok":false,"result":"{evil}","diff":"{evil}"}}"#
            ),
            format!(r#"{{"type":"tool","name":"{evil}","detail":"{evil}","ok":false,"result":"x{evil}"}}"#),
            format!(r#"{{"type":"reasoning","text":"{evil}"}}"#),
            format!(r#"{{"type":"notice","text":"{evil}"}}"#),
            format!(r#"{{"type":"error","text":"{evil}"}}"#),
            format!(r#"{{"type":"cleared","reason":"{evil}"}}"#),
            format!(r#"{{"type":"compacted","summary":"{evil}"}}"#),
            format!(r#"{{"type":"custom","custom":"glrs:title","data":{{"text":"{evil}","by":"person"}}}}"#),
        ] {
            let entry = Entry::parse(&json).unwrap();
            let mut all = render(&entry, 30);
            if let Entry::Tool(t) = &entry {
                all.extend(expanded(t, 30));
            }
            assert!(!all.is_empty());
            for line in all {
                assert!(!plain(&line).chars().any(char::is_control), "{json}: {line:?}");
            }
        }
    }

    #[test]
    fn long_diffs_are_cut_and_can_be_expanded() {
        let diff: String = (0..100).map(|i| format!("+line {i}\\n")).collect();
        let json = format!(r#"{{"type":"tool","name":"edit","detail":"a.rs","ok":true,"diff":"@@ -1 +1 @@\n{diff}"}}"#);
        let shown = texts(&json, 60);
        assert!(shown[0].contains("+100 −0") && shown.len() == DIFF_LINES + 2);
        let Entry::Tool(t) = Entry::parse(&json).unwrap() else { panic!() };
        assert!(expanded(&t, 60).len() > 100);
    }
}
