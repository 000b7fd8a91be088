//! Turning what went wrong into a [`Failure`]: its kind and words for people.
//!
//! Owns: reading error bodies of any shape, recognising a conversation that is too long, and
//! Retry-After. Must not know dialects, and lets nothing of a request, no key and no HTML into a
//! message.

use super::{Call, Failure, FailureKind};
use crate::host::clock;
use glrs_protocol::message::Part;
use reqwest::header::HeaderMap;
use serde_json::Value;
use std::time::Duration;

/// Longest wait a provider may ask for before the turn ends instead.
pub(crate) const RETRY_CAP: Duration = Duration::from_secs(60);

/// Longest message, in characters.
const MESSAGE_MAX: usize = 300;

/// Who answered, for the words of a failure.
#[derive(Clone, Debug, Default)]
pub(crate) struct Origin {
    /// Provider id.
    pub provider: String,
    /// Model id without the provider.
    pub model: String,
    /// What to do about a missing or wrong key, such as `set ANTHROPIC_API_KEY`.
    pub key_advice: String,
}

/// A failure with nothing but kind and words.
pub(crate) fn failure(kind: FailureKind, message: impl Into<String>) -> Failure {
    Failure { kind, status: None, message: message.into(), retry_after: None, partial: None, tokens: None }
}

/// What an HTTP answer that is no success means.
pub(crate) fn from_response(origin: &Origin, status: u16, headers: &HeaderMap, body: &[u8]) -> Failure {
    let body = String::from_utf8_lossy(body);
    let value = serde_json::from_str::<Value>(&body).ok();
    let (code, words) = match &value {
        Some(v) => describe(v),
        // Plain text is worth showing when it is short and no page.
        None if body.len() < 500 && !body.contains('<') => (String::new(), body.trim().to_owned()),
        None => (String::new(), String::new()),
    };
    let mut f = build(origin, Some(status), &code, &words);
    f.retry_after = retry_after(headers, clock::parse_ms(&clock::now()).unwrap_or(0)).or_else(|| {
        let said = || value.as_ref().and_then(retry_info).or_else(|| said_wait(&words));
        (f.kind == FailureKind::Rate).then(said).flatten()
    });
    if let Some(wait) = f.retry_after.filter(|w| *w > RETRY_CAP) {
        f.message.push_str(&format!(" (the provider asks to wait {})", say_duration(wait)));
    }
    f
}

/// What an error object inside a stream means.
pub(crate) fn from_stream(origin: &Origin, value: &Value) -> Failure {
    let (code, words) = describe(value);
    // OpenRouter and others put an HTTP status into the object.
    let status = code.split(' ').find_map(|c| c.parse::<u16>().ok()).filter(|s| (400..600).contains(s));
    build(origin, status, &code, &words)
}

/// Whether a JSON object reports an error, in any of the shapes seen.
pub(crate) fn is_error(v: &Value) -> bool {
    let says = |e: &Value| match e {
        Value::Null | Value::Bool(false) => false,
        Value::String(s) => !s.is_empty(),
        Value::Object(o) => !o.is_empty(),
        _ => true,
    };
    v.get("error").is_some_and(says)
        || v.get("error_message").is_some()
        || v.get("type").and_then(Value::as_str) == Some("error")
        || v.get("object").and_then(Value::as_str) == Some("error")
        || (v.get("detail").is_some() && v.get("choices").is_none())
}

fn build(origin: &Origin, status: Option<u16>, code: &str, words: &str) -> Failure {
    let kind = classify(status, code, words);
    let who = &origin.provider;
    let words = tidy(words);
    let because = if words.is_empty() { String::new() } else { format!(": {words}") };
    let shown = status.map_or(String::new(), |s| format!(" (HTTP {s})"));
    let message = match kind {
        FailureKind::Auth => format!("{who} refused the key{shown}; {}{because}", origin.key_advice),
        FailureKind::NotFound if status.is_some_and(|s| (300..400).contains(&s)) => {
            format!("{who} sent a redirect{shown}; check providers.{who}.api")
        }
        FailureKind::NotFound => {
            format!("{who} does not know the model {} or the address{shown}{because}", origin.model)
        }
        FailureKind::Overflow => format!("the conversation is too long for {who}/{}{because}", origin.model),
        FailureKind::Rate => format!("{who} limits requests{shown}{because}"),
        FailureKind::Server => format!("{who} has a problem{shown}{because}"),
        _ => format!("{who} did not accept the request{shown}{because}"),
    };
    Failure { status, ..failure(kind, message) }
}

/// The machine-readable words (types, codes) and the human message of an error body.
fn describe(v: &Value) -> (String, String) {
    let mut codes = Vec::new();
    let mut message = String::new();
    collect(v, &mut codes, &mut message, 0);
    (codes.join(" "), message)
}

fn collect(v: &Value, codes: &mut Vec<String>, message: &mut String, depth: usize) {
    // Gateways wrap an upstream's error in their own, often as a string; deeper is someone's payload.
    if depth > 6 {
        return;
    }
    match v {
        Value::String(s) if message.is_empty() => {
            // OpenRouter and Google put the upstream's JSON into a string.
            match serde_json::from_str::<Value>(s) {
                Ok(inner @ Value::Object(_)) => collect(&inner, codes, message, depth + 1),
                _ => *message = s.clone(),
            }
        }
        Value::Array(items) => {
            if let Some(first) = items.first() {
                collect(first, codes, message, depth + 1);
            }
        }
        Value::Object(map) => {
            for key in ["type", "code", "status", "error_type"] {
                match map.get(key) {
                    Some(Value::String(s)) => codes.push(s.to_ascii_lowercase()),
                    Some(Value::Number(n)) => codes.push(n.to_string()),
                    _ => {}
                }
            }
            for key in ["error", "message", "error_message", "msg", "detail", "errors"] {
                if let Some(inner) = map.get(key) {
                    collect(inner, codes, message, depth + 1);
                }
            }
            // "Provider returned error" says nothing; what the upstream said is in the metadata.
            if message.eq_ignore_ascii_case("provider returned error")
                && let Some(raw) = map.get("metadata").and_then(|m| m.get("raw"))
            {
                message.clear();
                collect(raw, codes, message, depth + 1);
            }
        }
        _ => {}
    }
}

/// The kind, from the status and what the body says. Words beat status: overflow comes as 400, 413,
/// 422, 500 and inside a 200.
pub(crate) fn classify(status: Option<u16>, code: &str, words: &str) -> FailureKind {
    const BAD_KEY: [&str; 4] = ["api key not valid", "invalid api key", "api key expired", "incorrect api key"];
    let code = code.to_ascii_lowercase();
    let words = words.to_ascii_lowercase();
    if is_overflow(&code, &words) {
        return FailureKind::Overflow;
    }
    // Money does not come back by waiting.
    if code.contains("insufficient_quota") || code.contains("billing") || words.contains("credit balance") {
        return FailureKind::Request;
    }
    match status {
        Some(401 | 403) => FailureKind::Auth,
        Some(300..=399 | 404) => FailureKind::NotFound,
        Some(413) => FailureKind::Overflow,
        Some(429) => FailureKind::Rate,
        Some(408 | 409 | 425 | 500..=599) => FailureKind::Server,
        // Google and xAI say it with 400.
        Some(_) if BAD_KEY.iter().any(|w| words.contains(w)) => FailureKind::Auth,
        Some(_) => FailureKind::Request,
        None if code.contains("rate_limit") => FailureKind::Rate,
        None if ["authentication", "permission", "invalid_api_key"].iter().any(|c| code.contains(c)) => {
            FailureKind::Auth
        }
        None if code.contains("not_found") => FailureKind::NotFound,
        None if code.contains("invalid_") => FailureKind::Request,
        None => FailureKind::Server,
    }
}

fn is_overflow(code: &str, words: &str) -> bool {
    // A limit per minute talks of tokens too, but a shorter conversation is not what it needs.
    if words.contains("per minute") || words.contains("rate limit") || code.contains("rate_limit") {
        return false;
    }
    const CODES: [&str; 5] = [
        "context_length_exceeded",
        "context_window_exceeded",
        "exceed_context_size",
        "request_too_large",
        "max_context",
    ];
    const WORDS: [&str; 17] = [
        "prompt is too long",
        "prompt too long",
        "input is too long",
        "maximum context length",
        "maximum prompt length",
        "maximum number of tokens allowed",
        "context length exceeded",
        "context window exceeded",
        "context_length_exceeded",
        "exceeds the context window",
        "exceeds the available context size",
        "exceed context limit",
        "exceeded model token limit",
        "greater than the context length",
        "larger than the context",
        "reduce the length of the messages",
        "tokens` + `max_new_tokens` must be",
    ];
    CODES.iter().any(|c| code.contains(c))
        || WORDS.iter().any(|w| words.contains(w))
        || (words.contains("too large for model with") && words.contains("context"))
        || (words.contains("exceed") && (words.contains("context window") || words.contains("context size")))
}

/// One short line: no control characters, no markup, nothing that looks like a key.
pub(crate) fn tidy(text: &str) -> String {
    // Validators (pydantic) quote what they were sent from here on.
    let lower = text.to_ascii_lowercase();
    let end = ["input_value=", "'input':", "\"input\":", "<html", "<!doctype"]
        .iter()
        .filter_map(|m| lower.find(m))
        .min()
        .unwrap_or(text.len());
    let mut out = String::new();
    for word in text[..end].split(|c: char| c.is_whitespace() || c.is_control()).filter(|w| !w.is_empty()) {
        if !out.is_empty() {
            out.push(' ');
        }
        out.push_str(if looks_secret(word) { "•••" } else { word });
    }
    if out.chars().count() > MESSAGE_MAX {
        out = out.chars().take(MESSAGE_MAX - 1).collect();
        out.push('…');
    }
    out.trim_end_matches([',', '[', '{', '(']).trim_end().to_owned()
}

fn looks_secret(word: &str) -> bool {
    let bare = word.trim_matches(|c: char| !c.is_ascii_alphanumeric());
    const PREFIXES: [&str; 9] = ["sk-", "sk_", "xai-", "gsk_", "aiza", "key-", "fw_", "csk-", "tgp_"];
    let lower = bare.to_ascii_lowercase();
    bare.len() >= 12 && PREFIXES.iter().any(|p| lower.starts_with(p))
}

/// Removes from a failure's message the key and what quotes the request.
pub(crate) fn redact(mut message: String, key: Option<&str>, call: &Call) -> String {
    if let Some(key) = key.filter(|k| k.len() >= 4) {
        message = message.replace(key, "•••");
    }
    let mut texts: Vec<&str> = vec![&call.system];
    for part in call.messages.iter().flat_map(|m| &m.parts) {
        match part {
            Part::Text(t) => texts.push(t),
            Part::ToolResult { output, .. } => texts.push(output.as_text()),
            Part::ToolCall { input, .. } => texts.push(input.get()),
            _ => {}
        }
    }
    let chars: Vec<(usize, char)> = message.char_indices().collect();
    let at = |i: usize| chars.get(i).map_or(message.len(), |c| c.0);
    let sent = |from: usize, to: usize| {
        let words = &message.as_bytes()[at(from)..at(to)];
        texts.iter().any(|t| memchr::memmem::find(t.as_bytes(), words).is_some())
    };
    let mut quoted = vec![false; chars.len()];
    // Between quotation marks a few characters are enough …
    for mark in ['"', '\'', '`'] {
        let marks: Vec<usize> = (0..chars.len()).filter(|i| chars[*i].1 == mark).collect();
        for pair in marks.windows(2) {
            let (from, to) = (pair[0] + 1, pair[1]);
            if to >= from + 4 && sent(from, to) {
                quoted[from..to].fill(true);
            }
        }
    }
    // … elsewhere so many that ordinary phrases are not hit. Looking at each fourth place only, and
    // widening what is found, keeps this cheap beside megabytes of conversation.
    const LONG: usize = 24;
    for from in (0..(chars.len() + 1).saturating_sub(LONG)).step_by(4) {
        if sent(from, from + LONG) {
            quoted[from.saturating_sub(3)..(from + LONG + 3).min(chars.len())].fill(true);
        }
    }
    let mut out = String::new();
    for (i, (_, c)) in chars.iter().enumerate() {
        if !quoted[i] {
            out.push(*c);
        } else if i == 0 || !quoted[i - 1] {
            out.push('…');
        }
    }
    out
}

/// How long Google asks to wait: it says so in the body (`"retryDelay": "34.5s"`).
fn retry_info(body: &Value) -> Option<Duration> {
    let body = body.get(0).unwrap_or(body);
    let details = body.pointer("/error/details")?.as_array()?;
    let delay = details.iter().find_map(|d| d.get("retryDelay")?.as_str())?;
    Duration::try_from_secs_f64(delay.strip_suffix('s')?.parse().ok()?).ok()
}

/// How long OpenAI and those who imitate it ask to wait where no header says so: "Please try again in
/// 11.5s", "in 1m2s", "in 250ms", "in 20 seconds".
fn said_wait(words: &str) -> Option<Duration> {
    const BEFORE: &str = "try again in ";
    let words = words.to_ascii_lowercase();
    let mut rest = &words[words.find(BEFORE)? + BEFORE.len()..];
    let mut seconds = None;
    loop {
        let end = rest.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(rest.len());
        let Ok(number) = rest[..end].parse::<f64>() else { break };
        let after = rest[end..].trim_start();
        let end = after.find(|c: char| !c.is_ascii_alphabetic()).unwrap_or(after.len());
        let unit = match &after[..end] {
            "ms" | "milliseconds" => 0.001,
            "s" | "sec" | "second" | "seconds" => 1.0,
            "m" | "min" | "minute" | "minutes" => 60.0,
            "h" | "hour" | "hours" => 3_600.0,
            "d" | "day" | "days" => 86_400.0,
            _ => break,
        };
        seconds = Some(seconds.unwrap_or(0.0) + number * unit);
        rest = after[end..].trim_start();
    }
    Duration::try_from_secs_f64(seconds?).ok()
}

/// How long the provider asks to wait: `retry-after-ms`, else `retry-after` in seconds or as an HTTP
/// date. Anything else is as if it were absent.
pub(crate) fn retry_after(headers: &HeaderMap, now_ms: i64) -> Option<Duration> {
    let text = |name: &str| headers.get(name).and_then(|v| v.to_str().ok()).map(str::trim);
    if let Some(ms) = text("retry-after-ms").and_then(|t| t.parse::<f64>().ok()) {
        return Duration::try_from_secs_f64(ms / 1000.0).ok();
    }
    let value = text("retry-after")?;
    if let Ok(seconds) = value.parse::<f64>() {
        return Duration::try_from_secs_f64(seconds).ok();
    }
    let at = jiff::fmt::rfc2822::parse(value).ok()?.timestamp().as_millisecond();
    Some(Duration::from_millis(u64::try_from(at - now_ms).unwrap_or(0)))
}

/// A duration for people: `40 s`, `12 min`, `24 h`, `3 days`.
pub(crate) fn say_duration(d: Duration) -> String {
    let s = d.as_secs();
    match s {
        0..=119 => format!("{s} s"),
        120..=7_199 => format!("{} min", s.div_ceil(60)),
        7_200..=172_799 => format!("{} h", s.div_ceil(3_600)),
        _ => format!("{} days", s.div_ceil(86_400)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use reqwest::header::{HeaderName, HeaderValue};

    fn headers(pairs: &[(&'static str, &'static str)]) -> HeaderMap {
        pairs.iter().map(|(k, v)| (HeaderName::from_static(k), HeaderValue::from_static(v))).collect()
    }

    fn origin() -> Origin {
        Origin { provider: "acme".into(), model: "m".into(), key_advice: "set ACME_API_KEY".into() }
    }

    #[test]
    fn retry_after_forms() {
        let now = 4_096_000_000_000; // 2099-10-18
        assert_eq!(retry_after(&headers(&[("retry-after", "3")]), now), Some(Duration::from_secs(3)));
        assert_eq!(retry_after(&headers(&[("retry-after-ms", "1500")]), now), Some(Duration::from_millis(1500)));
        assert_eq!(retry_after(&headers(&[("retry-after", "2abc")]), now), None);
        assert_eq!(retry_after(&headers(&[("retry-after", "-1")]), now), None);
        let date = headers(&[("retry-after", "Wed, 21 Oct 2099 07:28:00 GMT")]);
        assert_eq!(retry_after(&date, 4_096_250_870_000), Some(Duration::from_secs(10)));
        assert_eq!(retry_after(&date, 4_096_999_999_999), Some(Duration::ZERO));
    }

    #[test]
    fn what_was_sent_is_not_quoted() {
        let call =
            crate::model::testing::ask("open /home/ann/diary.txt and read what I wrote about the summer of 1999");
        let clean = |m: &str| redact(m.to_owned(), Some("k-123456"), &call);
        assert_eq!(clean("bad value '/home/ann/diary.txt' in messages"), "bad value '…' in messages");
        assert!(!clean("cannot parse: read what I wrote about the summer of 1999!").contains("summer"));
        assert_eq!(clean("key k-123456 is wrong, the model's limit is 5"), "key ••• is wrong, the model's limit is 5");
        assert_eq!(clean("é"), "é");
        assert_eq!(clean(""), "");
    }

    #[test]
    fn no_page_no_key_no_validator_echo() {
        let html = b"<html><body><h1>502 Bad Gateway</h1></body></html>";
        let f = from_response(&origin(), 502, &HeaderMap::new(), html);
        assert_eq!((f.kind, f.message.as_str()), (FailureKind::Server, "acme has a problem (HTTP 502)"));
        let f = from_response(
            &origin(),
            401,
            &HeaderMap::new(),
            br#"{"error":{"message":"Incorrect API key provided: sk-abcdefghijkl."}}"#,
        );
        assert_eq!(f.kind, FailureKind::Auth);
        assert!(f.message.contains("set ACME_API_KEY") && !f.message.contains("abcdef"), "{}", f.message);
        let f = from_response(
            &origin(),
            422,
            &HeaderMap::new(),
            br#"{"detail":"1 validation error, input_value='my diary'"}"#,
        );
        assert!(!f.message.contains("diary"), "{}", f.message);
    }

    #[test]
    fn nested_and_odd_bodies() {
        let nested = br#"{"error":{"message":"Provider returned error","code":400,"metadata":{"raw":"{\"error\":{\"message\":\"prompt is too long: 9 tokens > 8 maximum\"}}"}}}"#;
        assert_eq!(from_response(&origin(), 400, &HeaderMap::new(), nested).kind, FailureKind::Overflow);
        let google = br#"[{"error":{"code":400,"message":"API key not valid. Please pass a valid API key.","status":"INVALID_ARGUMENT"}}]"#;
        assert_eq!(from_response(&origin(), 400, &HeaderMap::new(), google).kind, FailureKind::Auth);
        let xai = br#"{"code":"Client specified an invalid argument","error":"Incorrect API key provided: xa***le. You can obtain an API key from https://console.x.ai."}"#;
        let f = from_response(&origin(), 400, &HeaderMap::new(), xai);
        assert!(f.kind == FailureKind::Auth && f.message.contains("set ACME_API_KEY"), "{}", f.message);
        let quota = br#"{"error":{"code":429,"message":"You exceeded your current quota","status":"RESOURCE_EXHAUSTED","details":[{"@type":"type.googleapis.com/google.rpc.RetryInfo","retryDelay":"7.5s"}]}}"#;
        let f = from_response(&origin(), 429, &HeaderMap::new(), quota);
        assert_eq!((f.kind, f.retry_after), (FailureKind::Rate, Some(Duration::from_millis(7_500))));
        let tpm = br#"{"error":{"message":"Rate limit reached: Limit 6000 tokens per minute, exceeds the context window","code":"rate_limit_exceeded"}}"#;
        assert_eq!(from_response(&origin(), 429, &HeaderMap::new(), tpm).kind, FailureKind::Rate);
        for (said, ms) in [
            ("Please try again in 11.5s. Visit https://x for more.", Some(11_500)),
            ("Please try again in 11 s", Some(11_000)),
            ("Please try again in 250ms.", Some(250)),
            ("try again in 1m2.5s.", Some(62_500)),
            ("Try again in 20 seconds, please", Some(20_000)),
            ("try again in a while", None),
            ("Limit 5, Used 5. 30s", None),
        ] {
            let body = format!(
                r#"{{"error":{{"message":"Rate limit reached for gpt-5. {said}","code":"rate_limit_exceeded"}}}}"#
            );
            let of = |status| from_response(&origin(), status, &HeaderMap::new(), body.as_bytes());
            assert_eq!(of(429).retry_after, ms.map(Duration::from_millis), "{said}");
            assert_eq!(of(400).retry_after, None, "only where waiting is the matter");
        }
        let mut headers = HeaderMap::new();
        headers.insert("retry-after", "3".parse().unwrap());
        let words = br#"{"error":{"message":"Please try again in 11s"}}"#;
        assert_eq!(from_response(&origin(), 429, &headers, words).retry_after, Some(Duration::from_secs(3)));
        let money = br#"{"error":{"message":"You exceeded your current quota","code":"insufficient_quota"}}"#;
        assert_eq!(from_response(&origin(), 429, &HeaderMap::new(), money).kind, FailureKind::Request);
    }
}
