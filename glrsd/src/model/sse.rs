//! Server-sent events, incrementally.
//!
//! Own code, because the fixture `huge-event` proves `eventsource-stream` 0.2 wrong: it scans its whole
//! buffer again for every piece that arrives (3 MB in 16 KiB pieces took 12 s in a debug build), and it
//! panics on a byte order mark, which a provider can send. Here each byte is looked at once.
//!
//! Owns framing only: line ends (LF, CRLF, CR, also split between pieces), comments, multi-line data.
//! Must not know what events mean. Text that is no UTF-8 is repaired, not refused: one broken character
//! in an answer is no reason to lose it.

use std::collections::VecDeque;

/// Most bytes one event may have (64 MiB); a stream that goes on longer is not talking sense.
pub(crate) const EVENT_MAX: usize = 64 * 1024 * 1024;

/// Takes bytes as they come and gives events' data.
#[derive(Default)]
pub(crate) struct Parser {
    line: Vec<u8>,
    data: Option<Vec<u8>>,
    ready: VecDeque<String>,
    /// The last byte was a CR, so an LF right now belongs to it.
    after_cr: bool,
    /// Anything was seen, so a byte order mark can no longer come.
    begun: bool,
    too_long: bool,
}

impl Parser {
    /// Takes a piece of the body.
    pub(crate) fn push(&mut self, mut bytes: &[u8]) {
        if self.after_cr && !bytes.is_empty() {
            self.after_cr = false;
            bytes = bytes.strip_prefix(b"\n").unwrap_or(bytes);
        }
        while let Some(end) = memchr::memchr2(b'\n', b'\r', bytes) {
            let (line, rest) = bytes.split_at(end);
            let cr = rest[0] == b'\r';
            bytes = &rest[1..];
            if self.line.is_empty() {
                self.end_line(line);
            } else {
                let mut whole = std::mem::take(&mut self.line);
                whole.extend_from_slice(line);
                self.end_line(&whole);
            }
            if cr {
                match bytes {
                    [] => self.after_cr = true,
                    [b'\n', rest @ ..] => bytes = rest,
                    _ => {}
                }
            }
        }
        self.line.extend_from_slice(bytes);
        self.too_long |= self.line.len() + self.data.as_ref().map_or(0, Vec::len) > EVENT_MAX;
    }

    /// The next complete event's data. An event the stream ends in the middle of is never given.
    pub(crate) fn next(&mut self) -> Option<String> {
        self.ready.pop_front()
    }

    /// Whether an event grew beyond [`EVENT_MAX`].
    pub(crate) fn too_long(&self) -> bool {
        self.too_long
    }

    fn end_line(&mut self, mut line: &[u8]) {
        if !std::mem::replace(&mut self.begun, true) {
            line = line.strip_prefix(b"\xef\xbb\xbf").unwrap_or(line);
        }
        if line.is_empty() {
            if let Some(data) = self.data.take() {
                self.ready.push_back(repair(data));
            }
            return;
        }
        // Field names other than `data` (event, id, retry) say nothing that the data does not.
        let line = if line == b"data" { b"data:".as_slice() } else { line };
        let Some(value) = line.strip_prefix(b"data:") else { return };
        let value = value.strip_prefix(b" ").unwrap_or(value);
        match &mut self.data {
            Some(data) => {
                data.push(b'\n');
                data.extend_from_slice(value);
            }
            None => self.data = Some(value.to_vec()),
        }
    }
}

fn repair(bytes: Vec<u8>) -> String {
    String::from_utf8(bytes).unwrap_or_else(|e| String::from_utf8_lossy(e.as_bytes()).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(pieces: &[&[u8]]) -> Vec<String> {
        let mut parser = Parser::default();
        pieces.iter().for_each(|p| parser.push(p));
        std::iter::from_fn(|| parser.next()).collect()
    }

    #[test]
    fn line_ends_of_all_kinds() {
        assert_eq!(all(&[b"data: a\r\rdata: b\r\r"]), ["a", "b"]);
        assert_eq!(all(&[b"data: a\r", b"\n\r", b"\ndata: b\n\n"]), ["a", "b"]);
        assert_eq!(all(&[b"data: a\r", b"data: b\r", b"\r"]), ["a\nb"]);
        assert_eq!(all(&[b"\xef\xbb\xbfdata: a\n\n: ping\n\n\n"]), ["a"]);
        assert_eq!(all(&[b"data\n\nevent: x\n\n"]), [""]);
        assert_eq!(all(&[b"data:  a\ndata:b\nid: 3\n\n"]), [" a\nb"]);
    }

    #[test]
    fn half_an_event_is_none() {
        assert_eq!(all(&[b"data: a\n\ndata: {\"cut"]), ["a"]);
        assert_eq!(all(&[b"data: a\n"]), Vec::<String>::new());
    }

    #[test]
    fn every_split_gives_the_same() {
        let body = "data: Hé漢😀\r\n\r\n: c\r\ndata: x\r\ndata: y\r\n\r\n".as_bytes();
        for at in 0..body.len() {
            assert_eq!(all(&[&body[..at], &body[at..]]), ["Hé漢😀", "x\ny"], "split at {at}");
        }
        let bytes: Vec<&[u8]> = body.chunks(1).collect();
        assert_eq!(all(&bytes), ["Hé漢😀", "x\ny"]);
    }

    #[test]
    fn broken_utf8_is_repaired() {
        assert_eq!(all(&[b"data: a\xffb\n\n"]), ["a\u{fffd}b"]);
    }
}
