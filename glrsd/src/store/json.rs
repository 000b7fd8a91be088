//! JSON by its bytes: where values end, what members an object has, without building a tree.
//!
//! Owns the lenient reading of files that others wrote: no recursion (any depth), no numbers
//! parsed, duplicate keys kept, raw control characters in strings put up with. Must not know what
//! a session is.

use memchr::memchr2;
use std::borrow::Cow;

/// Why a value has no end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stop {
    /// The bytes end first.
    Torn,
    /// What stands at this offset cannot stand there.
    Bad(usize),
}

/// The first offset from `i` on that is not white space.
pub(crate) fn skip_ws(b: &[u8], mut i: usize) -> usize {
    while matches!(b.get(i), Some(b' ' | b'\n' | b'\r' | b'\t')) {
        i += 1;
    }
    i
}

fn string_end(b: &[u8], start: usize) -> Result<usize, Stop> {
    let mut i = start + 1;
    loop {
        i += memchr2(b'"', b'\\', b.get(i..).unwrap_or_default()).ok_or(Stop::Torn)?;
        if b[i] == b'"' {
            return Ok(i + 1);
        }
        i += 2;
    }
}

fn scalar_end(b: &[u8], start: usize) -> Result<usize, Stop> {
    let len = b[start..]
        .iter()
        .position(|c| !(c.is_ascii_alphanumeric() || matches!(c, b'-' | b'+' | b'.')))
        .unwrap_or(b.len() - start);
    if len == 0 { Err(Stop::Bad(start)) } else { Ok(start + len) }
}

/// Reads `"key" :` and returns the key's range and where the value starts.
fn key(b: &[u8], i: usize) -> Result<(usize, usize, usize), Stop> {
    let from = skip_ws(b, i);
    match b.get(from) {
        Some(b'"') => {}
        Some(_) => return Err(Stop::Bad(from)),
        None => return Err(Stop::Torn),
    }
    let to = string_end(b, from)?;
    let colon = skip_ws(b, to);
    match b.get(colon) {
        Some(b':') => Ok((from, to, skip_ws(b, colon + 1))),
        Some(_) => Err(Stop::Bad(colon)),
        None => Err(Stop::Torn),
    }
}

/// Where the value that starts at `i` ends.
pub(crate) fn value_end(b: &[u8], mut i: usize) -> Result<usize, Stop> {
    let mut open: Vec<u8> = Vec::new();
    loop {
        i = skip_ws(b, i);
        match b.get(i) {
            None => return Err(Stop::Torn),
            Some(c @ (b'{' | b'[')) => {
                let close = c + 2;
                i = skip_ws(b, i + 1);
                if b.get(i) == Some(&close) {
                    i += 1;
                } else {
                    open.push(close);
                    if close == b'}' {
                        i = key(b, i)?.2;
                    }
                    continue;
                }
            }
            Some(b'"') => i = string_end(b, i)?,
            Some(_) => i = scalar_end(b, i)?,
        }
        loop {
            let Some(&close) = open.last() else { return Ok(i) };
            i = skip_ws(b, i);
            match b.get(i) {
                None => return Err(Stop::Torn),
                Some(&c) if c == close => {
                    open.pop();
                    i += 1;
                }
                Some(b',') => {
                    i += 1;
                    if close == b'}' {
                        i = key(b, i)?.2;
                    }
                    break;
                }
                Some(_) => return Err(Stop::Bad(i)),
            }
        }
    }
}

/// Key, with its quotes, and value.
pub(crate) type Member<'a> = (&'a [u8], &'a [u8]);

/// Walks an array or an object piece by piece.
pub(crate) struct Walk<'a> {
    b: &'a [u8],
    /// Where the walk is: after the last piece.
    pub(crate) at: usize,
    first: bool,
    close: u8,
}

impl<'a> Walk<'a> {
    /// A walk over what opens at `at`; `None` when nothing does.
    pub(crate) fn new(b: &'a [u8], at: usize) -> Option<Self> {
        match b.get(at) {
            Some(c @ (b'{' | b'[')) => Some(Self { b, at: at + 1, first: true, close: c + 2 }),
            _ => None,
        }
    }

    /// Goes on behind a piece that was read by other means.
    pub(crate) fn resume(b: &'a [u8], at: usize, close: u8) -> Self {
        Self { b, at, first: false, close }
    }

    /// Moves to the next piece; false at the end (then `at` is behind the bracket).
    fn step(&mut self) -> Result<bool, Stop> {
        let i = skip_ws(self.b, self.at);
        match self.b.get(i) {
            None => Err(Stop::Torn),
            Some(c) if *c == self.close => {
                self.at = i + 1;
                Ok(false)
            }
            Some(b',') if !self.first => {
                self.at = skip_ws(self.b, i + 1);
                Ok(true)
            }
            Some(_) if self.first => {
                self.at = i;
                self.first = false;
                Ok(true)
            }
            Some(_) => Err(Stop::Bad(i)),
        }
    }

    /// The next element of an array.
    pub(crate) fn element(&mut self) -> Result<Option<&'a [u8]>, Stop> {
        if !self.step()? {
            return Ok(None);
        }
        let from = self.at;
        self.at = value_end(self.b, from)?;
        Ok(Some(&self.b[from..self.at]))
    }

    /// The next key of an object, quotes included; `at` is then where its value starts and has to
    /// be moved behind it.
    pub(crate) fn key(&mut self) -> Result<Option<&'a [u8]>, Stop> {
        if !self.step()? {
            return Ok(None);
        }
        let (from, to, value) = key(self.b, self.at)?;
        self.at = value;
        Ok(Some(&self.b[from..to]))
    }

    /// The next member of an object: key with its quotes, and value.
    pub(crate) fn member(&mut self) -> Result<Option<Member<'a>>, Stop> {
        let Some(key) = self.key()? else { return Ok(None) };
        let from = self.at;
        self.at = value_end(self.b, from)?;
        Ok(Some((key, &self.b[from..self.at])))
    }
}

/// A member's value; the last one wins, as in every JSON reader of note.
pub(crate) fn member<'a>(object: &'a [u8], name: &str) -> Option<&'a [u8]> {
    let mut walk = Walk::new(object, skip_ws(object, 0))?;
    let mut found = None;
    while let Ok(Some((key, value))) = walk.member() {
        if key.len() == name.len() + 2 && &key[1..key.len() - 1] == name.as_bytes() {
            found = Some(value);
        }
    }
    found
}

/// A value without white space between its tokens, on one line. What is proper JSON keeps its
/// bytes. What is not, but has an obvious meaning, is made so that it costs no more than itself:
/// raw control characters and unknown escapes in strings are escaped, words and numbers that JSON
/// has not (`NaN`, `+1`) become strings.
pub(crate) fn minify(value: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(value.len());
    let mut i = 0;
    while i < value.len() {
        match value[i] {
            b' ' | b'\n' | b'\r' | b'\t' => i += 1,
            b'"' => {
                let end = string_end(value, i).unwrap_or(value.len()).min(value.len());
                copy_string(&value[i..end], &mut out);
                i = end;
            }
            c @ (b'{' | b'}' | b'[' | b']' | b',' | b':') => {
                out.push(c);
                i += 1;
            }
            c => match scalar_end(value, i) {
                Ok(end) if is_value(&value[i..end]) => {
                    out.extend_from_slice(&value[i..end]);
                    i = end;
                }
                Ok(end) => {
                    out.push(b'"');
                    out.extend_from_slice(&value[i..end]);
                    out.push(b'"');
                    i = end;
                }
                Err(_) => {
                    out.push(c);
                    i += 1;
                }
            },
        }
    }
    out
}

fn copy_string(string: &[u8], out: &mut Vec<u8>) {
    if !string.iter().any(|c| *c < 0x20 || *c == b'\\') {
        out.extend_from_slice(string);
        return;
    }
    let mut i = 0;
    while let Some(&c) = string.get(i) {
        if c < 0x20 {
            out.extend_from_slice(format!("\\u{c:04x}").as_bytes());
        } else if c == b'\\' {
            let hex = || string.get(i + 2..i + 6).is_some_and(|h| h.iter().all(u8::is_ascii_hexdigit));
            match string.get(i + 1) {
                Some(b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't') => {
                    out.extend_from_slice(&string[i..i + 2]);
                    i += 1;
                }
                Some(b'u') if hex() => out.push(c),
                _ => out.extend_from_slice(b"\\\\"),
            }
        } else {
            out.push(c);
        }
        i += 1;
    }
}

/// The text of a string value. A lone surrogate becomes U+FFFD: it has no text form.
pub(crate) fn text(raw: &[u8]) -> Option<String> {
    let raw = utf8(raw);
    if let Ok(text) = serde_json::from_str::<String>(&raw) {
        return Some(text);
    }
    let inner = raw.strip_prefix('"')?.strip_suffix('"')?;
    // Each half of a pair is decoded alone, so the pairs are joined by going through UTF-16.
    let mut units: Vec<u16> = Vec::with_capacity(inner.len());
    let mut chars = inner.chars();
    while let Some(c) = chars.next() {
        let plain = match c {
            '\\' => match chars.next()? {
                'n' => '\n',
                't' => '\t',
                'r' => '\r',
                'b' => '\u{8}',
                'f' => '\u{c}',
                'u' => {
                    let hex: String = chars.by_ref().take(4).collect();
                    units.push(u16::from_str_radix(&hex, 16).ok()?);
                    continue;
                }
                other => other,
            },
            other => other,
        };
        units.extend_from_slice(plain.encode_utf16(&mut [0; 2]));
    }
    Some(String::from_utf16_lossy(&units))
}

/// The bytes as text; what is no UTF-8 becomes U+FFFD.
pub(crate) fn utf8(bytes: &[u8]) -> Cow<'_, str> {
    // The strict check is several times faster than the lossy one, and nearly always enough.
    match std::str::from_utf8(bytes) {
        Ok(text) => Cow::Borrowed(text),
        Err(_) => String::from_utf8_lossy(bytes),
    }
}

/// Whether the bytes are one JSON value, whole.
pub(crate) fn is_value(bytes: &[u8]) -> bool {
    serde_json::from_str::<&serde_json::value::RawValue>(&utf8(bytes)).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ends_of_values_at_any_depth() {
        let deep = format!("{}1{}", "[".repeat(100_000), "]".repeat(100_000));
        assert_eq!(value_end(deep.as_bytes(), 0), Ok(deep.len()));
        assert_eq!(value_end(br#"{"a":[1,{"b":"\"}"}]} x"#, 0), Ok(21));
        assert_eq!(value_end(br#"{"a":[1,"#, 0), Err(Stop::Torn));
        assert_eq!(value_end(br#"{"a":1,{"#, 0), Err(Stop::Bad(7)));
        assert_eq!(value_end(br#"{} "#, 0), Ok(2));
    }

    #[test]
    fn white_space_goes_and_strings_stay() {
        assert_eq!(minify(b"{ \"a b\" :\n [ 1 , \"\\ud800 x\ny\" ] }"), br#"{"a b":[1,"\ud800 x\u000ay"]}"#);
        assert_eq!(
            minify(br#"{"a": NaN, "b": [+1, -Infinity, 1e400, 12.0], "c": "\x \u12 \\ \u0041"}"#),
            br#"{"a":"NaN","b":["+1","-Infinity",1e400,12.0],"c":"\\x \\u12 \\ \u0041"}"#
        );
        assert_eq!(text(br#""a\ud83d\ude00\n\ud800""#).unwrap(), "a😀\n\u{fffd}");
        assert_eq!(member(br#"{"a":1,"b":{"a":2},"a":3}"#, "a"), Some(&b"3"[..]));
    }
}
