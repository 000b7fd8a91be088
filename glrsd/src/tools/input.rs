//! Reading what a model gave as input.
//!
//! Owns: turning raw input into a typed one, or into an error that says what was expected; the one
//! line for people. Must not know any tool.

use super::Outcome;
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;
use std::collections::HashMap;

/// Longest line for people, in characters.
const DETAIL_CHARS: usize = 200;

/// Input as a typed value. `expected` shows its shape.
pub(super) fn parse<'a, T: Deserialize<'a>>(tool: &str, expected: &str, input: &'a RawValue) -> Result<T, Outcome> {
    serde_json::from_str(input.get())
        .map_err(|e| Outcome::error(format!("The input does not fit the tool {tool}: {e}.\nExpected: {expected}")))
}

/// A field of an input that may be anything, when it is a text.
pub(super) fn field(input: &RawValue, name: &str) -> Option<String> {
    let fields: HashMap<String, &RawValue> = serde_json::from_str(input.get()).ok()?;
    serde_json::from_str(fields.get(name)?.get()).ok()
}

/// A text on one line, cut to a readable length.
pub(super) fn one_line(text: &str) -> String {
    let mut out = String::new();
    let mut count = 0;
    for word in text.split(|c: char| c.is_whitespace() || c.is_control()).filter(|w| !w.is_empty()) {
        if count > 0 {
            out.push(' ');
            count += 1;
        }
        for c in word.chars() {
            if count >= DETAIL_CHARS {
                out.push('…');
                return out;
            }
            out.push(c);
            count += 1;
        }
    }
    out
}

/// A count that a model may write as `10` or `10.0`; absent and null are none.
pub(super) fn count<'de, D: Deserializer<'de>>(d: D) -> Result<Option<u64>, D::Error> {
    match Option::<f64>::deserialize(d)? {
        None => Ok(None),
        Some(f) if f.is_finite() && f >= 0.0 && f.fract() == 0.0 && f < 9.0e15 => Ok(Some(f as u64)),
        Some(f) => Err(serde::de::Error::custom(format!("{f} is no whole number from 0 on"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn raw(text: &str) -> Box<RawValue> {
        RawValue::from_string(text.to_owned()).unwrap()
    }

    #[test]
    fn fields_of_anything_and_lines_for_people() {
        assert_eq!(field(&raw(r#"{"path":"a\nb","n":1}"#), "path").as_deref(), Some("a\nb"));
        for odd in ["null", "[]", "3", r#"{"path":7}"#, "{}"] {
            assert_eq!(field(&raw(odd), "path"), None, "{odd}");
        }
        assert_eq!(one_line("a\n b\u{0}\t c "), "a b c");
        assert_eq!(one_line(&"é".repeat(500)).chars().count(), DETAIL_CHARS + 1);
    }
}
