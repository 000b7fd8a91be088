//! How much of a subscription is used, as far as a provider says it with its answers.
//!
//! Owns the names of those headers: Anthropic's `anthropic-ratelimit-unified-5h-utilization` (a fraction
//! of one) and OpenAI's `x-codex-primary-used-percent` with `x-codex-primary-window-minutes`. Keys that
//! are paid by use have neither. What is missing or reads oddly is left out.

use super::Spent;
use reqwest::header::HeaderMap;

/// What an answer's headers say, a row for each window.
pub(crate) fn spent(headers: &HeaderMap) -> Vec<Spent> {
    let number = |name: &str| {
        let text = headers.get(name)?.to_str().ok()?.trim();
        text.parse::<f64>().ok().filter(|n| n.is_finite() && *n >= 0.0)
    };
    let mut rows = Vec::new();
    for name in headers.keys() {
        let window = name.as_str().strip_prefix("anthropic-ratelimit-unified-");
        let Some(window) = window.and_then(|w| w.strip_suffix("-utilization")) else { continue };
        // `5h`, `7d`, `7d_opus`; others are no windows of time.
        if window.starts_with(|c: char| c.is_ascii_digit())
            && let Some(fraction) = number(name.as_str())
        {
            rows.push(Spent { window: window.replace('_', " "), percent: percent(fraction * 100.0) });
        }
    }
    for which in ["primary", "secondary"] {
        let Some(used) = number(&format!("x-codex-{which}-used-percent")) else { continue };
        let minutes = number(&format!("x-codex-{which}-window-minutes")).map_or(0, |m| m as u64);
        let window = match minutes {
            // A window that does not exist has no length, and nothing of it is used.
            0 if used == 0.0 => continue,
            0 => which.to_owned(),
            1..=59 => format!("{minutes}min"),
            60..=1_439 => format!("{}h", minutes / 60),
            _ => format!("{}d", minutes / 1_440),
        };
        rows.push(Spent { window, percent: percent(used) });
    }
    // Headers come in no order; what the model is told has one.
    rows.sort_by(|a, b| a.window.cmp(&b.window));
    rows
}

/// Whole percent, never more than there is: 89.9 is not yet 90.
fn percent(value: f64) -> u64 {
    value.clamp(0.0, 1_000.0) as u64
}

#[cfg(test)]
mod tests {
    use super::*;
    use reqwest::header::{HeaderName, HeaderValue};

    fn of(pairs: &[(&str, &str)]) -> Vec<(String, u64)> {
        let headers = pairs.iter().map(|(n, v)| (n.parse::<HeaderName>().unwrap(), v.parse::<HeaderValue>().unwrap()));
        spent(&headers.collect()).into_iter().map(|s| (s.window, s.percent)).collect()
    }

    #[test]
    fn each_window_is_read_and_what_is_odd_is_left_out() {
        let two = [
            ("anthropic-ratelimit-unified-7d-utilization", "0.31"),
            ("anthropic-ratelimit-unified-5h-utilization", "0.899"),
            ("anthropic-ratelimit-unified-5h-reset", "1764540000"),
            ("anthropic-ratelimit-unified-status", "allowed"),
            ("anthropic-ratelimit-unified-overage-utilization", "0.9"),
            ("anthropic-ratelimit-unified-1d-utilization", "much"),
            ("anthropic-ratelimit-tokens-remaining", "12"),
        ];
        assert_eq!(of(&two), [("5h".to_owned(), 89), ("7d".to_owned(), 31)]);
        let codex = [
            ("x-codex-primary-used-percent", "83.5"),
            ("x-codex-primary-window-minutes", "300"),
            ("x-codex-secondary-used-percent", "12"),
            ("x-codex-secondary-window-minutes", "10080"),
        ];
        assert_eq!(of(&codex), [("5h".to_owned(), 83), ("7d".to_owned(), 12)]);
        let bare = [("x-codex-primary-used-percent", "95"), ("x-codex-secondary-used-percent", "0")];
        assert_eq!(of(&bare), [("primary".to_owned(), 95)]);
        assert!(of(&[("x-ratelimit-remaining-tokens", "5"), ("x-codex-primary-used-percent", "-1")]).is_empty());
    }
}
