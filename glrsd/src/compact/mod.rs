//! Compaction: when to make room, where to cut, what to say.
//!
//! Owns the numbers and rules of compaction.md as pure functions: the line ([`Numbers`]), the cut
//! ([`cut`]), micro-compaction ([`micro`]), the summariser's requests ([`brief`]) and the artifact
//! ([`artifact`]). Must not know the session: it decides when these are used.

pub mod artifact;
pub mod brief;
pub mod cut;
pub mod micro;

use crate::config::Config;

/// Most output tokens a request asks for, and so the room kept for it.
pub const RESERVE_MAX: u64 = 32_000;

/// The numbers that display, trigger and list use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Numbers {
    /// The model's own window in tokens.
    pub context: u64,
    /// What is planned with: the smaller of that and `compactWindow`.
    pub window: u64,
    /// Tokens above which it compacts; 0 when automatic compaction is off.
    pub line: u64,
}

impl Numbers {
    /// The numbers of a model with this window and most output.
    pub fn of(config: &Config, context: u64, output: u64) -> Self {
        let context = context.max(1);
        let window = context.min(config.compact_window.max(1));
        if config.compact_at <= 0.0 {
            return Self { context, window, line: 0 };
        }
        let share = (window as f64 * config.compact_at.min(1.0)) as u64;
        let reserve = output.min(RESERVE_MAX);
        let headroom = context.saturating_sub(reserve).saturating_sub(context / 25).max(context / 2);
        Self { context, window, line: share.min(headroom).max(1) }
    }

    /// Whether this many tokens are past the line.
    pub fn past(&self, tokens: u64) -> bool {
        self.line > 0 && tokens > self.line
    }

    /// Tokens of recent work that a cut leaves at least.
    pub fn keep(&self) -> u64 {
        let line = if self.line == 0 { self.window } else { self.line };
        (line / 2).min(20_000)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn numbers(context: u64, output: u64, at: f64, window: u64) -> u64 {
        let config = Config { compact_at: at, compact_window: window, ..Config::default() };
        Numbers::of(&config, context, output).line
    }

    #[test]
    fn the_line_is_what_the_status_line_says() {
        // A million-token model is compacted as if it had 256k: 75 % of that.
        assert_eq!(numbers(1_000_000, 64_000, 0.75, 256_000), 192_000);
        assert_eq!(numbers(200_000, 64_000, 0.75, 256_000), 150_000);
        // Output headroom: 200,000 − 32,000 − 8,000.
        assert_eq!(numbers(200_000, 64_000, 0.95, 256_000), 160_000);
        // A small model with a large output still has half of its window.
        assert_eq!(numbers(32_000, 32_000, 0.75, 256_000), 16_000);
        assert_eq!(numbers(200_000, 64_000, 0.0, 256_000), 0);
        let n = Numbers::of(&Config::default(), 200_000, 8_000);
        assert!(n.past(150_001) && !n.past(150_000) && n.keep() == 20_000);
    }
}
