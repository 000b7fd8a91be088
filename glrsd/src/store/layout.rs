//! The layout glrs writes: header line, one entry a line with a leading comma, trailer.
//!
//! Owns how those three look, byte for byte, and how they are told apart. Must not know files.

use super::json;
use glrs_protocol::{SessionId, entry::parse_count};
use serde::Deserialize;
use serde_json::value::RawValue;

/// How every header line of ours starts.
pub(crate) const HEADER: &[u8] = b"{\"schema\":2,\"id\":\"";
const HEADER_END: &[u8] = b"\"events\":[";
/// How every trailer of ours starts.
pub(crate) const TRAILER: &[u8] = b"],\"updatedAt\":";
/// How every entry starts, after the comma.
pub(crate) const ENTRY: &[u8] = b"{\"type\":\"";
/// Top-level keys that the header, the entries or the trailer stand for.
pub(crate) const KNOWN: [&str; 10] =
    ["schema", "id", "createdAt", "cwd", "events", "messages", "updatedAt", "contextTokens", "entries", "synced"];

/// What stands before the entries.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Header {
    /// The session. The file's name says it; an other id inside is left there and ignored.
    pub id: SessionId,
    /// When it was made, as written; may be empty in files of others.
    pub created_at: String,
    /// Its working directory.
    pub cwd: String,
    /// The line, newline included.
    pub(crate) line: Vec<u8>,
}

impl Header {
    /// The header of a new session.
    pub(crate) fn new(id: &SessionId, created_at: &str, cwd: &str) -> Self {
        let quote = |s: &str| serde_json::Value::from(s).to_string().into_bytes();
        Self::build(id, &quote(created_at), &quote(cwd), &[])
    }

    /// A header from values as they stand elsewhere, so that they keep their bytes.
    pub(crate) fn build(id: &SessionId, created_at: &[u8], cwd: &[u8], extra: &[(Vec<u8>, Vec<u8>)]) -> Self {
        let mut line = HEADER.to_vec();
        line.extend_from_slice(id.as_str().as_bytes());
        line.extend_from_slice(b"\",\"createdAt\":");
        line.extend_from_slice(created_at);
        line.extend_from_slice(b",\"cwd\":");
        line.extend_from_slice(cwd);
        for (key, value) in extra {
            line.push(b',');
            line.extend_from_slice(key);
            line.push(b':');
            line.extend_from_slice(value);
        }
        line.extend_from_slice(b",\"events\":[\n");
        let text = |raw| json::text(raw).unwrap_or_default();
        Self { id: id.clone(), created_at: text(created_at), cwd: text(cwd), line }
    }

    /// Reads a line, newline included, as a header of our layout.
    pub(crate) fn parse(line: &[u8], id: &SessionId) -> Option<Self> {
        let bare = line.strip_suffix(b"\n")?;
        if !bare.starts_with(HEADER) || !bare.ends_with(HEADER_END) {
            return None;
        }
        let mut whole = bare.to_vec();
        whole.extend_from_slice(b"]}");
        if !json::is_value(&whole) || json::member(&whole, "schema") != Some(b"2") {
            return None;
        }
        let text = |name| json::member(&whole, name).and_then(json::text).unwrap_or_default();
        Some(Self { id: id.clone(), created_at: text("createdAt"), cwd: text("cwd"), line: line.to_vec() })
    }

    /// The header of a fork of this session: everything as it is here, but for id and time.
    pub(crate) fn fork(&self, id: &SessionId, created_at: &str) -> Self {
        let mut whole = self.line.trim_ascii_end().to_vec();
        whole.extend_from_slice(b"]}");
        let quoted = serde_json::Value::from(created_at).to_string();
        let cwd = json::member(&whole, "cwd").unwrap_or(b"\"\"").to_vec();
        Self::build(id, quoted.as_bytes(), &cwd, &extra_members(&whole))
    }

    /// Whether bytes start as a header of our layout does, perhaps torn.
    pub(crate) fn is_ours(bytes: &[u8]) -> bool {
        bytes.starts_with(HEADER)
    }
}

/// Members of a document that are none of [`KNOWN`], made ready for a header line.
pub(crate) fn extra_members(object: &[u8]) -> Vec<(Vec<u8>, Vec<u8>)> {
    let mut extra = Vec::new();
    let Some(mut walk) = json::Walk::new(object, json::skip_ws(object, 0)) else { return extra };
    while let Ok(Some((key, value))) = walk.member() {
        if !is_known(key) {
            extra.push((key.to_vec(), json::minify(value)));
        }
    }
    extra
}

/// Whether a key, quotes included, is one of [`KNOWN`].
pub(crate) fn is_known(key: &[u8]) -> bool {
    KNOWN.iter().any(|k| key.len() == k.len() + 2 && &key[1..key.len() - 1] == k.as_bytes())
}

/// What stands behind the entries. Derived, never the only copy of anything.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Trailer {
    pub(crate) updated_at: String,
    pub(crate) context_tokens: u64,
    pub(crate) entries: u64,
    pub(crate) synced: u64,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct TrailerFields {
    updated_at: String,
    #[serde(default)]
    context_tokens: Option<Box<RawValue>>,
    entries: u64,
    synced: u64,
}

impl Trailer {
    pub(crate) fn to_bytes(&self) -> Vec<u8> {
        format!(
            "],\"updatedAt\":{},\"contextTokens\":{},\"entries\":{},\"synced\":{}}}",
            serde_json::Value::from(self.updated_at.as_str()),
            self.context_tokens,
            self.entries,
            self.synced
        )
        .into_bytes()
    }

    /// Reads a whole trailer. One with members of others is not ours: it would lose them.
    pub(crate) fn parse(bytes: &[u8]) -> Option<Self> {
        let rest = std::str::from_utf8(bytes.strip_prefix(b"],")?).ok()?;
        let f: TrailerFields = serde_json::from_str(&format!("{{{rest}")).ok()?;
        let context_tokens = f.context_tokens.and_then(|r| parse_count(r.get())).unwrap_or(0);
        Some(Self { updated_at: f.updated_at, context_tokens, entries: f.entries, synced: f.synced })
    }
}

/// The entry in a line (without its newline), if it has the look of one. What is inside is not
/// checked: that would cost a parse.
pub(crate) fn entry_in(line: &[u8]) -> Option<&[u8]> {
    let entry = line.strip_prefix(b",").unwrap_or(line);
    (entry.starts_with(ENTRY) && entry.ends_with(b"}")).then_some(entry)
}

/// The entry in a line, if it is whole.
pub(crate) fn whole_entry_in(line: &[u8]) -> Option<&[u8]> {
    entry_in(line).filter(|e| json::is_value(e))
}

/// Makes any JSON value a line's entry: on one line, `type` first, nothing else changed.
pub(crate) fn to_entry(raw: &[u8]) -> Vec<u8> {
    if raw.starts_with(ENTRY) && memchr::memchr2(b'\n', b'\r', raw).is_none() {
        return raw.to_vec();
    }
    let value = json::minify(raw);
    if value.starts_with(ENTRY) {
        return value;
    }
    let Some(mut walk) = json::Walk::new(&value, 0).filter(|_| value.first() == Some(&b'{')) else {
        // No object: it keeps its place and number as an entry of a kind nobody knows.
        return [b"{\"type\":\"unknown\",\"value\":", value.as_slice(), b"}"].concat();
    };
    // Of several `type`s the last counts, as it would for any reader of the file as it was.
    let kind = json::member(&value, "type").filter(|k| k.starts_with(b"\"")).unwrap_or(b"\"unknown\"");
    let mut out = b"{\"type\":".to_vec();
    out.extend_from_slice(kind);
    while let Ok(Some((key, member))) = walk.member() {
        if key == b"\"type\"" && member.starts_with(b"\"") {
            continue;
        }
        out.push(b',');
        out.extend_from_slice(key);
        out.push(b':');
        out.extend_from_slice(member);
    }
    out.push(b'}');
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id() -> SessionId {
        "3f9a1c2b".parse().unwrap()
    }

    #[test]
    fn header_and_trailer_are_as_documented() {
        let h = Header::new(&id(), "2026-09-06T14:00:00.000Z", "/r");
        let line = "{\"schema\":2,\"id\":\"3f9a1c2b\",\"createdAt\":\"2026-09-06T14:00:00.000Z\",\"cwd\":\"/r\",\"events\":[\n";
        assert_eq!(h.line, line.as_bytes());
        assert_eq!(Header::parse(line.as_bytes(), &id()), Some(h));
        let t =
            Trailer { updated_at: "2026-09-06T14:00:09.000Z".into(), context_tokens: 2190, entries: 2, synced: 143 };
        let bytes = t.to_bytes();
        assert_eq!(
            bytes,
            b"],\"updatedAt\":\"2026-09-06T14:00:09.000Z\",\"contextTokens\":2190,\"entries\":2,\"synced\":143}"
        );
        assert_eq!(Trailer::parse(&bytes), Some(t));
        assert_eq!(Trailer::parse(&bytes[..bytes.len() - 1]), None);
    }

    #[test]
    fn type_moves_to_the_front_and_nothing_is_lost() {
        let cases = [
            (r#"{"type":"a","x":1}"#, r#"{"type":"a","x":1}"#),
            (r#"{ "x" : 12.0, "type" : "a" }"#, r#"{"type":"a","x":12.0}"#),
            (r#"{"type":"a","type":"b","x":1,"x":2}"#, r#"{"type":"a","type":"b","x":1,"x":2}"#),
            (r#"{"x":1}"#, r#"{"type":"unknown","x":1}"#),
            (r#"{"type":5}"#, r#"{"type":"unknown","type":5}"#),
            (r#"[1, 2]"#, r#"{"type":"unknown","value":[1,2]}"#),
        ];
        for (from, to) in cases {
            assert_eq!(String::from_utf8(to_entry(from.as_bytes())).unwrap(), to);
        }
    }
}
