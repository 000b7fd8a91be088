//! Session ids: what is one, and what may be joined to a path.
//!
//! Owns the rule of session-file.md: 8 lower-case hex digits when glrs makes them, or a UUID that
//! a client supplied (lower-cased). Nothing else is ever joined to a path.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

/// A validated session id. Safe as a file name: only `[0-9a-f-]`, 8 or 36 characters.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, JsonSchema)]
#[serde(transparent)]
pub struct SessionId(String);

/// The text is not a session id.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("not a session id: expected 8 hex digits or a UUID")]
pub struct BadId;

impl SessionId {
    /// Makes an id from 4 random bytes, as glrs does for its own sessions.
    pub fn from_random(bytes: [u8; 4]) -> Self {
        Self(format!("{:08x}", u32::from_be_bytes(bytes)))
    }

    /// The id as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Whether the text has the shape of an id (8 hex digits or a UUID), in either case. Such a
    /// text is only ever an id, never a title.
    pub fn looks_like(text: &str) -> bool {
        Self::from_str(text).is_ok()
    }

    /// Whether the text is a UUID (8-4-4-4-12 hex digits).
    pub fn is_uuid(text: &str) -> bool {
        text.len() == 36
            && text.bytes().enumerate().all(|(i, b)| match i {
                8 | 13 | 18 | 23 => b == b'-',
                _ => b.is_ascii_hexdigit(),
            })
    }
}

impl FromStr for SessionId {
    type Err = BadId;

    fn from_str(text: &str) -> Result<Self, BadId> {
        let short = text.len() == 8 && text.bytes().all(|b| b.is_ascii_hexdigit());
        if short || Self::is_uuid(text) { Ok(Self(text.to_ascii_lowercase())) } else { Err(BadId) }
    }
}

impl fmt::Display for SessionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl<'de> Deserialize<'de> for SessionId {
    fn deserialize<D: serde::Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        let text = String::deserialize(d)?;
        text.parse().map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_hex_or_uuid_and_lowercased() {
        assert_eq!("3F9A1C2B".parse::<SessionId>().unwrap().as_str(), "3f9a1c2b");
        assert!(SessionId::looks_like("0192f0a0-1111-7222-8333-444455556666"));
        for bad in ["", "..", "../../etc", "3f9a1c2", "3f9a1c2g", "a/b", "3f9a1c2b.json", "prompts"] {
            assert!(bad.parse::<SessionId>().is_err(), "{bad}");
        }
    }
}
