//! Vitals: the note on time and fullness that rides on tool rounds.
//!
//! Owns its form (turns.md "What the model sees"): at the uncached tail, starting `[vitals]`,
//! context from 50 %, subscription usage from 80 %, marked high from 90 %, what is unknown left out. Pure.

use crate::model::Spent;
use jiff::{SignedDuration, Zoned};

/// What the note tells.
pub struct Vitals<'a> {
    /// Local time.
    pub now: &'a Zoned,
    /// How long the turn has run.
    pub turn: SignedDuration,
    /// Soft deadline of the turn, from its start.
    pub deadline: Option<SignedDuration>,
    /// Tokens in the context and the model's window.
    pub context: Option<(u64, u64)>,
    /// What is used of the subscription, by window.
    pub spent: &'a [Spent],
}

fn minutes(d: SignedDuration) -> String {
    let s = d.as_secs().max(0);
    if s < 60 { format!("{s} s") } else { format!("{} min {} s", s / 60, s % 60) }
}

fn high(percent: u64) -> &'static str {
    if percent >= 90 { " (high)" } else { "" }
}

impl Vitals<'_> {
    /// The note.
    pub fn note(&self) -> String {
        let mut out = format!("[vitals] local time {}", self.now.strftime("%Y-%m-%d %H:%M %Z"));
        out.push_str(&format!(" · turn {}", minutes(self.turn)));
        if let Some(d) = self.deadline {
            let left = d - self.turn;
            let high = if self.turn.as_secs() * 10 >= d.as_secs() * 9 { " (high)" } else { "" };
            out.push_str(&format!(" · deadline in {}{high}", minutes(left)));
        }
        if let Some((tokens, window)) = self.context
            && window > 0
        {
            let percent = tokens * 100 / window;
            if percent >= 50 {
                out.push_str(&format!(" · context {percent} %{}", high(percent)));
            }
        }
        for Spent { window, percent } in self.spent.iter().filter(|s| s.percent >= 80) {
            out.push_str(&format!(" · subscription {percent} % of {window}{}", high(*percent)));
        }
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_known_or_not_notable_is_left_out() {
        let now: Zoned = "2026-09-06T14:00:00+02:00[Europe/Berlin]".parse().unwrap();
        let turn = SignedDuration::from_secs(75);
        let v = |context, deadline| Vitals { now: &now, turn, deadline, context, spent: &[] }.note();
        assert_eq!(v(Some((49, 100)), None), "[vitals] local time 2026-09-06 14:00 CEST · turn 1 min 15 s");
        assert!(v(Some((95, 100)), None).ends_with("context 95 % (high)"));
        assert!(v(None, Some(SignedDuration::from_secs(80))).ends_with("deadline in 5 s (high)"));
        let spent = [("5h", 79), ("7d", 80), ("30d", 90)].map(|(w, percent)| Spent { window: w.into(), percent });
        let told = Vitals { now: &now, turn, deadline: None, context: None, spent: &spent }.note();
        assert!(told.ends_with("15 s · subscription 80 % of 7d · subscription 90 % of 30d (high)"), "{told}");
    }
}
