//! The status line and the line that says what is going on.
//!
//! Pure: a view and a time go in, a line comes out. The numbers are the daemon's; only their
//! percentage is computed here.

use super::style;
use crate::text::{clip, count, elapsed, millis_since, one_line, width};
use crate::view::SessionView;
use glrs_protocol::types::{CompactionState, Phase, StateName, ToolRun, UsageInfo};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span};

/// Colour of how full the context is: above 50 %, from 80, from 95, from 100.
pub fn level(u: &UsageInfo) -> Style {
    let tokens = u.context_tokens.saturating_mul(100);
    let over = |percent: u64| u.window > 0 && tokens >= u.window.saturating_mul(percent);
    let red = Style::new().fg(Color::Red).add_modifier(Modifier::BOLD);
    if over(100) {
        red.add_modifier(Modifier::REVERSED)
    } else if over(95) {
        red
    } else if over(80) {
        Style::new().fg(Color::LightRed)
    } else if tokens > u.window.saturating_mul(50) {
        Style::new().fg(Color::Yellow)
    } else {
        Style::new()
    }
}

/// How full the context is, in percent, rounded.
pub fn percent(u: &UsageInfo) -> u64 {
    (u.context_tokens.saturating_mul(100) + u.window / 2).checked_div(u.window).unwrap_or(0)
}

/// How much of all input came from the provider's cache, for people; nothing where none did, since many
/// providers do not say.
pub fn cached(input: u64, cached: u64) -> Option<String> {
    let percent = cached.min(input).saturating_mul(100).checked_div(input)?;
    (cached > 0).then(|| format!("{percent} % cached"))
}

/// The status line, at most `max` cells: what matters least goes first when it is too long.
pub fn line(v: &SessionView, read_only: bool, max: usize) -> Line<'static> {
    let model = match &v.info.variant {
        Some(variant) => format!("{} ({})", one_line(&v.info.model), one_line(variant)),
        None => one_line(&v.info.model),
    };
    let about = if v.usage.estimated { "≈" } else { "" };
    let full = percent(&v.usage);
    let context = format!("ctx {about}{}/{} ({full} %)", count(v.usage.context_tokens), count(v.usage.window));
    let compacts = match v.usage.line {
        0 => "compaction off".to_owned(),
        line => format!("compacts at {}", count(line)),
    };
    let clients = if v.client_count == 1 { "1 client".to_owned() } else { format!("{} clients", v.client_count) };
    let mode = if read_only { "read-only" } else { v.info.mode.as_str() };
    let mode = if v.info.sandbox.is_some() { format!("{mode} · sandboxed") } else { mode.to_owned() };
    // Text, style, and what goes first when room is short (0 stays).
    let mut parts = vec![
        (model, style::DIM, 0),
        (context, style::DIM.patch(level(&v.usage)), 0),
        (compacts, style::DIM, 2),
        (clients, style::DIM, 3),
        (mode, if read_only { style::WARN } else { style::DIM }, 4),
    ];
    if let Some(cached) = cached(v.usage.input, v.usage.cached) {
        parts.insert(2, (cached, style::DIM, 1));
    }
    let long = |parts: &[(String, Style, u8)]| parts.iter().map(|p| width(&p.0) + 3).sum::<usize>() > max + 3;
    for drop in 1..=4 {
        if long(&parts) {
            parts.retain(|p| p.2 != drop);
        }
    }
    if long(&parts) {
        let whole = parts.iter().map(|p| p.0.as_str()).collect::<Vec<_>>().join(" · ");
        return Line::styled(clip(&whole, max), style::DIM);
    }
    let mut spans = Vec::new();
    for (i, (text, style, _)) in parts.into_iter().enumerate() {
        if i > 0 {
            spans.push(Span::styled(" · ", style::DIM));
        }
        spans.push(Span::styled(text, style));
    }
    Line::from(spans)
}

/// What is going on, and what stops it; nothing when nothing is.
pub fn activity(v: &SessionView, now: jiff::Timestamp) -> Vec<Line<'static>> {
    let mut out = Vec::new();
    if !v.disk.ok {
        let path = v.disk.path.as_deref().map(one_line).unwrap_or_default();
        let why = v.disk.why.as_deref().map(one_line).unwrap_or_default();
        out.push(Line::styled(format!("✗ the disk does not take it: {path}: {why}; it is tried again"), style::BAD));
    }
    let since = |at: &Option<String>| {
        at.as_deref().map(|at| millis_since(at, now)).filter(|ms| *ms >= 1000).map(|ms| format!(" {}", elapsed(ms)))
    };
    match v.compaction.state {
        CompactionState::Writing => {
            let time = since(&v.compaction.since).unwrap_or_default();
            let stop = if v.compaction.gate { " · what you send waits · esc stops it" } else { "" };
            out.push(Line::styled(format!("● compacting{time}{stop}"), style::WARN));
        }
        CompactionState::Ready => out.push(Line::styled("● compacted when this turn is over", style::DIM)),
        CompactionState::Stuck => {
            out.push(Line::styled("● compaction frees too little: /clear, or /model with a larger window", style::WARN))
        }
        CompactionState::None | CompactionState::Unknown => {}
    }
    match v.state.name {
        StateName::Running => {
            let time = since(&v.state.since).unwrap_or_default();
            if let Some(r) = &v.state.retry {
                let wait =
                    r.at.parse::<jiff::Timestamp>().map(|at| (at.as_second() - now.as_second()).max(0)).unwrap_or(0);
                let words = format!("● {}: attempt {} in {wait} s · esc stops", one_line(&r.reason), r.attempt);
                out.push(Line::styled(words, style::WARN));
            } else {
                let (what, look) = match v.state.phase {
                    Some(Phase::Thinking) => ("thinking", style::DIM),
                    Some(Phase::Writing) => ("writing", style::DIM),
                    Some(Phase::Tool) => ("running tools", style::DIM),
                    Some(Phase::Asking) => ("waiting for an answer", style::ASK),
                    _ => ("waiting for the model", style::DIM),
                };
                let step = v.state.step.filter(|s| *s > 1).map(|s| format!(" · step {s}")).unwrap_or_default();
                out.push(Line::styled(format!("● {what}{time}{step} · esc stops"), look));
            }
            out.extend(v.state.tools.iter().map(|t| run(t, now)));
        }
        StateName::Held => {
            let n = v.queue.len();
            let what = if n == 1 { "1 message waits".to_owned() } else { format!("{n} messages wait") };
            out.push(Line::styled(format!("● held: {what} · enter lets them go"), style::ASK));
        }
        StateName::Broken => {
            let why = v.state.why.as_deref().map(one_line).unwrap_or_default();
            out.push(Line::styled(format!("✗ this session cannot be used: {why}"), style::BAD));
        }
        StateName::Idle | StateName::Unloaded | StateName::Unknown => {}
    }
    out.extend(v.state.shells.iter().map(|t| run(t, now)));
    out.extend(v.state.jobs.iter().map(|j| {
        let words = format!("& job {}: {} · kill -- -{} ends it", j.job, one_line(&j.command), j.group);
        Line::styled(words, style::DIM)
    }));
    out
}

/// Something that runs, and for how long.
fn run(t: &ToolRun, now: jiff::Timestamp) -> Line<'static> {
    let ms = millis_since(&t.started_at, now);
    let time = if ms >= 1000 { format!("  {}", elapsed(ms)) } else { String::new() };
    let (name, by) = match &t.by {
        Some(by) => ("!".to_owned(), format!("  {} · esc stops", one_line(by))),
        None => (one_line(&t.name), String::new()),
    };
    Line::from(vec![
        Span::styled("… ", style::WARN),
        Span::styled(name, style::BOLD),
        Span::raw(format!(" {}", one_line(&t.detail))),
        Span::styled(format!("{time}{by}"), style::DIM),
    ])
}

/// Whether [`activity`] shows a time that moves.
pub fn ticks(v: &SessionView) -> bool {
    v.state.name == StateName::Running || !v.state.shells.is_empty() || v.compaction.state == CompactionState::Writing
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tui::lines::unstyled;
    use crate::view::tests::snapshot;
    use glrs_protocol::types::{JobRow, State};

    fn view() -> SessionView {
        let mut v = SessionView::new(snapshot(0, &[]));
        v.info.model = "anthropic/claude".into();
        v.info.variant = Some("high".into());
        v.usage.context_tokens = 41_234;
        v.client_count = 2;
        v
    }

    #[test]
    fn the_status_line_is_as_documented() {
        let mut v = view();
        let s = unstyled(&line(&v, false, 200));
        assert_eq!(s, "anthropic/claude (high) · ctx 41.2k/200k (21 %) · compacts at 150k · 2 clients · ask");
        (v.usage.input, v.usage.cached) = (9_000, 7_499);
        let s = unstyled(&line(&v, false, 200));
        assert_eq!(
            s,
            "anthropic/claude (high) · ctx 41.2k/200k (21 %) · 83 % cached · compacts at 150k · 2 clients · ask"
        );
        assert!(!unstyled(&line(&v, false, 80)).contains("cached"), "it goes first");
        v.usage.cached = 0;
        v.usage.estimated = true;
        v.usage.line = 0;
        v.client_count = 1;
        v.info.variant = None;
        let s = unstyled(&line(&v, true, 200));
        assert_eq!(s, "anthropic/claude · ctx ≈41.2k/200k (21 %) · compaction off · 1 client · read-only");
    }

    #[test]
    fn short_terminals_keep_what_matters() {
        let v = view();
        for max in [10, 30, 50, 60, 70, 80] {
            let s = unstyled(&line(&v, false, max));
            assert!(width(&s) <= max, "{max}: {s}");
        }
        assert!(unstyled(&line(&v, false, 60)).contains("(21 %)"));
    }

    #[test]
    fn levels_change_where_documented() {
        let of = |tokens| level(&UsageInfo { context_tokens: tokens, window: 1000, ..UsageInfo::default() });
        assert_eq!(of(500), Style::new());
        assert_eq!(of(501), of(799));
        assert_ne!(of(799), of(800));
        assert_ne!(of(949), of(950));
        assert_ne!(of(999), of(1000));
        assert_eq!(level(&UsageInfo::default()), Style::new());
        assert_eq!(percent(&UsageInfo::default()), 0);
    }

    #[test]
    fn what_takes_over_a_second_shows_its_time() {
        let now: jiff::Timestamp = "2026-09-06T14:00:05Z".parse().unwrap();
        let mut v = view();
        v.state = State::of(StateName::Running);
        v.state.phase = Some(Phase::Tool);
        v.state.since = Some("2026-09-06T14:00:00Z".into());
        v.state.tools.push(ToolRun {
            call_id: "c".into(),
            name: "bash".into(),
            detail: "make\u{1b}[31m".into(),
            of: "t1".into(),
            started_at: "2026-09-06T14:00:04.500Z".into(),
            by: None,
        });
        let shell = ToolRun { detail: "ls".into(), by: Some("ann#1".into()), ..v.state.tools[0].clone() };
        v.state.shells.push(shell);
        v.state.jobs.push(JobRow {
            job: 1,
            group: 77,
            command: "serve".into(),
            output: None,
            since: "2026-09-06T14:00:04.500Z".into(),
        });
        let lines: Vec<String> = activity(&v, now).iter().map(unstyled).collect();
        assert_eq!(
            lines,
            [
                "● running tools 5.0 s · esc stops",
                "… bash make␛[31m",
                "… ! ls  ann#1 · esc stops",
                "& job 1: serve · kill -- -77 ends it"
            ]
        );
        (v.state.shells, v.state.jobs) = (Vec::new(), Vec::new());
        v.state = State::of(StateName::Held);
        assert_eq!(unstyled(&activity(&v, now)[0]), "● held: 0 messages wait · enter lets them go");
        v.state = State::of(StateName::Idle);
        assert!(activity(&v, now).is_empty() && !ticks(&v));
        v.disk.ok = false;
        v.disk.why = Some("No space left on device".into());
        assert!(unstyled(&activity(&v, now)[0]).contains("No space left"));
    }
}
