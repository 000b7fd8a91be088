//! Lines of a log, forwards and backwards, from whatever holds the bytes.
//!
//! Owns the chunked walk over lines; bounded memory but for one long line. Must not know what
//! stands in a line.

use memchr::{memchr, memrchr};
use std::io;

/// Bytes a walk reads at a time. At 256 KiB the calls cost nothing beside the copy.
const CHUNK: u64 = 256 * 1024;

/// Something that has bytes at offsets.
pub(crate) trait Bytes {
    /// Fills `buf` from `offset` on.
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<()>;
}

impl Bytes for std::fs::File {
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        std::os::unix::fs::FileExt::read_exact_at(self, buf, offset)
    }
}

impl Bytes for [u8] {
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        let from = usize::try_from(offset).unwrap_or(usize::MAX);
        let part = self.get(from..).and_then(|b| b.get(..buf.len())).ok_or(io::ErrorKind::UnexpectedEof)?;
        buf.copy_from_slice(part);
        Ok(())
    }
}

/// A line and where it stands.
pub(crate) struct Line<'a> {
    /// Offset of its first byte.
    pub(crate) at: u64,
    /// Its bytes without the newline.
    pub(crate) bytes: &'a [u8],
    /// Whether a newline ends it.
    pub(crate) ended: bool,
}

impl Line<'_> {
    /// Offset behind the line and its newline.
    pub(crate) fn end(&self) -> u64 {
        self.at + self.bytes.len() as u64 + u64::from(self.ended)
    }
}

/// Walks lines forwards over `[from, to)`.
pub(crate) struct Forward<'a, B: ?Sized> {
    bytes: &'a B,
    buf: Vec<u8>,
    /// Offset of `buf[0]`.
    base: u64,
    pos: usize,
    to: u64,
}

impl<'a, B: Bytes + ?Sized> Forward<'a, B> {
    pub(crate) fn new(bytes: &'a B, from: u64, to: u64) -> Self {
        Self { bytes, buf: Vec::new(), base: from, pos: 0, to }
    }

    /// The next line; `None` at the end. The last one may have no newline.
    pub(crate) fn next(&mut self) -> io::Result<Option<Line<'_>>> {
        let mut seen = self.pos;
        loop {
            if let Some(i) = memchr(b'\n', &self.buf[seen..]) {
                let (from, end) = (self.pos, seen + i);
                self.pos = end + 1;
                return Ok(Some(Line { at: self.base + from as u64, bytes: &self.buf[from..end], ended: true }));
            }
            seen = self.buf.len();
            let have = self.base + seen as u64;
            if have >= self.to {
                if self.pos >= self.buf.len() {
                    return Ok(None);
                }
                let from = self.pos;
                self.pos = self.buf.len();
                return Ok(Some(Line { at: self.base + from as u64, bytes: &self.buf[from..], ended: false }));
            }
            // What was handed out goes; a long line makes the buffer grow by doubling.
            self.buf.drain(..self.pos);
            self.base += self.pos as u64;
            seen -= self.pos;
            self.pos = 0;
            let more = CHUNK.max(seen as u64).min(self.to - have);
            let len = self.buf.len();
            self.buf.resize(len + usize::try_from(more).unwrap_or(0), 0);
            if let Err(e) = self.bytes.read_at(have, &mut self.buf[len..]) {
                self.buf.truncate(len);
                return Err(e);
            }
        }
    }
}

/// Walks lines backwards over `[from, to)`; `to` is behind a newline.
pub(crate) struct Backward<'a, B: ?Sized> {
    bytes: &'a B,
    buf: Vec<u8>,
    /// Offset of `buf[0]`.
    base: u64,
    /// Bytes of `buf` not yet handed out.
    len: usize,
    from: u64,
}

impl<'a, B: Bytes + ?Sized> Backward<'a, B> {
    pub(crate) fn new(bytes: &'a B, from: u64, to: u64) -> Self {
        Self { bytes, buf: Vec::new(), base: to, len: 0, from }
    }

    /// The line before; `None` at the start.
    pub(crate) fn next(&mut self) -> io::Result<Option<Line<'_>>> {
        let mut chunk = 16 * 1024;
        loop {
            if let Some(end) = self.len.checked_sub(1) {
                // The newline at `end` belongs to the line that is looked for.
                let found = memrchr(b'\n', &self.buf[..end]).map(|i| i + 1);
                let start = found.or((self.base <= self.from).then_some(0));
                if let Some(start) = start {
                    self.len = start;
                    let at = self.base + start as u64;
                    return Ok(Some(Line { at, bytes: &self.buf[start..end], ended: true }));
                }
            } else if self.base <= self.from {
                return Ok(None);
            }
            let more = (self.base - self.from).min(chunk);
            chunk = chunk.saturating_mul(2);
            let mut buf = vec![0; usize::try_from(more).unwrap_or(0)];
            self.bytes.read_at(self.base - more, &mut buf)?;
            buf.extend_from_slice(&self.buf[..self.len]);
            self.len = buf.len();
            self.buf = buf;
            self.base -= more;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn forwards_and_backwards_agree_for_lines_of_any_length() {
        let mut all = Vec::new();
        for n in [0usize, 1, 3, 70_000, 5, 300_000, 600_000, 2] {
            all.extend(std::iter::repeat_n(b'x', n));
            all.push(b'\n');
        }
        let b = &all[..];
        let mut lines = Vec::new();
        let mut f = Forward::new(b, 0, b.len() as u64);
        while let Some(l) = f.next().unwrap() {
            lines.push((l.at, l.bytes.len()));
        }
        let mut back = Vec::new();
        let mut r = Backward::new(b, 0, b.len() as u64);
        while let Some(l) = r.next().unwrap() {
            back.push((l.at, l.bytes.len()));
        }
        back.reverse();
        assert_eq!(lines.len(), 8);
        assert_eq!(lines, back);
        let mut f = Forward::new(&b"a\nb"[..], 0, 3);
        assert!(f.next().unwrap().unwrap().ended);
        assert!(!f.next().unwrap().unwrap().ended);
        assert!(f.next().unwrap().is_none());
    }
}
