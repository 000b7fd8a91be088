//! Wall-clock time as the files have it. Durations are measured with `tokio::time::Instant`.

use jiff::Timestamp;

/// Now, RFC 3339 UTC with milliseconds, as every `at` has it.
pub fn now() -> String {
    format(Timestamp::now())
}

/// A moment as every `at` has it.
pub fn format(t: Timestamp) -> String {
    format!("{t:.3}")
}

/// Milliseconds since 1970 of an RFC 3339 text; `None` when it is none (empty, damaged).
pub fn parse_ms(text: &str) -> Option<i64> {
    text.parse::<Timestamp>().ok().map(Timestamp::as_millisecond)
}

/// A moment given in milliseconds since 1970; `None` when no calendar has it.
pub fn from_ms(ms: i64) -> Option<String> {
    Timestamp::from_millisecond(ms).ok().map(format)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_have_milliseconds_and_compare_by_instant() {
        let t: Timestamp = "2026-09-06T14:00:00Z".parse().unwrap();
        assert_eq!(format(t), "2026-09-06T14:00:00.000Z");
        assert_eq!(parse_ms("2026-09-06T15:00:00+01:00"), parse_ms("2026-09-06T14:00:00.000Z"));
        assert_eq!(parse_ms(""), None);
    }
}
