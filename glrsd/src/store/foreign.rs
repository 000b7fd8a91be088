//! Files that others wrote, or that something damaged: read into our layout, in memory.
//!
//! Owns the reading of every layout that is not ours (one long line, pretty-printed, schema 1)
//! and the salvage of torn, glued and damaged documents. Must not know the disk: it gets bytes
//! and gives bytes.

use super::json::{self, Stop, Walk};
use super::layout::{ENTRY, Header, is_known, to_entry, whole_entry_in};
use super::migrate;
use glrs_protocol::{
    SessionId,
    entry::{KINDS, parse_count},
};
use memchr::memmem;

/// What stands in the place, and under the number, of an entry that cannot be read.
pub(crate) const HOLE: &[u8] =
    b"{\"type\":\"notice\",\"text\":\"The entry that stood here could not be read.\",\"at\":\"\"}";

/// A document in our layout, in memory.
#[derive(Clone, Debug)]
pub(crate) struct Loaded {
    pub(crate) header: Header,
    /// Header line and entry lines.
    pub(crate) body: Vec<u8>,
    pub(crate) count: u64,
    pub(crate) updated_at: String,
    pub(crate) context_tokens: u64,
    /// What was dropped or mended, for people.
    pub(crate) notices: Vec<String>,
    /// Whether bytes of the original are not in `body`, so that it has to be kept aside.
    pub(crate) lossy: bool,
}

/// Why a file is no session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Unreadable {
    Broken(String),
    Newer(u64),
}

fn broken<T>(why: &str) -> Result<T, Unreadable> {
    Err(Unreadable::Broken(why.to_owned()))
}

/// A document as it was found.
#[derive(Default)]
struct Doc {
    schema: Option<Vec<u8>>,
    created_at: Option<Vec<u8>>,
    cwd: Option<Vec<u8>>,
    updated_at: Option<Vec<u8>>,
    context_tokens: Option<Vec<u8>>,
    extra: Vec<(Vec<u8>, Vec<u8>)>,
    /// Elements of `events`, or of `messages` in schema 1.
    items: Vec<Vec<u8>>,
    has_events: bool,
    has_messages: bool,
    encrypted: bool,
    /// Whether it was read to its last bracket.
    whole: bool,
    /// Entries that could not be read and were replaced by a notice.
    holes: u64,
    /// Whether something was left out: a list that a second one replaced, a key that is no JSON.
    dropped: bool,
    /// Where it ends.
    end: usize,
}

impl Doc {
    /// Reads the document at `at`. With `mend`, damage inside is stepped over.
    fn read(b: &[u8], at: usize, mend: bool) -> Option<Self> {
        let mut walk = Walk::new(b, json::skip_ws(b, at)).filter(|_| b.get(json::skip_ws(b, at)) == Some(&b'{'))?;
        let mut doc = Self { end: b.len(), ..Self::default() };
        let mut sealed = 0;
        loop {
            let key = match walk.key() {
                Ok(Some(key)) => key,
                Ok(None) => {
                    doc.end = walk.at;
                    doc.whole = true;
                    break;
                }
                Err(_) => break,
            };
            let list = key == b"\"events\"" || (key == b"\"messages\"" && !doc.has_events);
            if list && b.get(walk.at) == Some(&b'[') {
                doc.has_events |= key == b"\"events\"";
                doc.has_messages |= key == b"\"messages\"";
                doc.dropped |= !doc.items.is_empty();
                doc.items.clear();
                match doc.items_at(b, walk.at, mend) {
                    Some(end) => walk.at = end,
                    None => break,
                }
                continue;
            }
            let from = walk.at;
            let Ok(end) = json::value_end(b, from) else { break };
            walk.at = end;
            let value = json::minify(&b[from..end]);
            match key {
                b"\"schema\"" => doc.schema = Some(value),
                b"\"createdAt\"" => doc.created_at = Some(value),
                b"\"cwd\"" => doc.cwd = Some(value),
                b"\"updatedAt\"" => doc.updated_at = Some(value),
                b"\"contextTokens\"" => doc.context_tokens = Some(value),
                _ if is_known(key) && key != b"\"messages\"" => {}
                _ if !json::is_value(key) || !json::is_value(&value) => doc.dropped = true,
                _ => {
                    sealed += u32::from(matches!(key, b"\"iv\"" | b"\"tag\"" | b"\"data\""));
                    doc.extra.push((key.to_vec(), value));
                }
            }
        }
        doc.encrypted = sealed == 3;
        Some(doc)
    }

    /// Reads the list at `at`; gives where it ends, `None` when it does not.
    fn items_at(&mut self, b: &[u8], at: usize, mend: bool) -> Option<usize> {
        let mut walk = Walk::new(b, at)?;
        loop {
            match walk.element() {
                Ok(Some(item)) => self.items.push(item.to_vec()),
                Ok(None) => return Some(walk.at),
                Err(Stop::Bad(bad)) if mend => {
                    let (next, end) = next_entry(b, bad)?;
                    self.holes += 1;
                    self.items.push(HOLE.to_vec());
                    self.items.push(b[next..end].to_vec());
                    walk = Walk::resume(b, end, b']');
                }
                Err(_) => return None,
            }
        }
    }

    fn is_session(&self) -> bool {
        self.has_events || self.has_messages
    }
}

/// Where the next whole entry starts and ends, from `from` on: an object of a known kind that is followed
/// as an element of a list is.
fn next_entry(b: &[u8], from: usize) -> Option<(usize, usize)> {
    memmem::find_iter(&b[from..], b"{\"type\"").take(MAX_TRIES).map(|i| from + i).find_map(|i| {
        let end = json::value_end(b, i).ok()?;
        let kind = json::member(&b[i..end], "type")?;
        let known = KINDS.iter().any(|k| kind.len() == k.len() + 2 && &kind[1..kind.len() - 1] == k.as_bytes());
        let listed = matches!(b.get(json::skip_ws(b, end)), Some(b',' | b']'));
        (known && listed && json::is_value(&b[i..end])).then_some((i, end))
    })
}

/// How many places are tried as the start of the entry behind a damaged one.
const MAX_TRIES: usize = 1000;
/// How many places are tried as the start of a document that was glued behind another.
const MAX_GLUED: usize = 64;

fn is_blank(b: &[u8]) -> bool {
    b.iter().all(|c| matches!(c, 0 | b' ' | b'\n' | b'\r' | b'\t'))
}

/// Reads any file that is a session, or was one before something damaged it.
pub(crate) fn load(file: &[u8], id: &SessionId) -> Result<Loaded, Unreadable> {
    let b = file.strip_prefix(b"\xef\xbb\xbf").unwrap_or(file);
    let nuls = b.iter().rev().take_while(|c| **c == 0).count();
    let b = &b[..b.len() - nuls];
    let mut notices = Vec::new();
    if nuls > 0 {
        notices.push(format!("The file ended in {nuls} NUL bytes, as after a power loss; they were dropped."));
    }
    if b.trim_ascii().is_empty() {
        return broken(match (file.len(), nuls) {
            (0, _) => "the file is empty (0 bytes)",
            (_, 0) => "the file has nothing but white space",
            _ => "the file has nothing but NUL bytes, as after a power loss",
        });
    }
    let first = Doc::read(b, 0, false);
    if let Some(doc) = &first
        && let Some(schema) = doc.schema.as_deref().and_then(|s| parse_count(&json::utf8(s)))
        && schema > glrs_protocol::SCHEMA
    {
        return Err(Unreadable::Newer(schema));
    }
    let clean = first.as_ref().is_some_and(|d| d.whole && is_blank(&b[d.end..]));
    let doc = match first {
        Some(doc) if clean => doc,
        first => {
            let Some(doc) = salvage(b, first, id, &mut notices) else {
                return pieces(b, id, notices);
            };
            doc
        }
    };
    if doc.encrypted && !doc.is_session() {
        return broken("it is encrypted by the predecessor: glrs cannot read it; open it there and save it in plain");
    }
    if !doc.is_session() {
        // The one key that names the entries may be what was damaged.
        if let Ok(loaded) = pieces(b, id, notices) {
            return Ok(loaded);
        }
        return broken("it is JSON, but no session: it has neither events nor messages");
    }
    if !doc.whole && doc.items.is_empty() {
        return broken("it was cut off before its first entry");
    }
    let mut loaded = assemble(doc, id, notices);
    loaded.lossy |= !clean;
    Ok(loaded)
}

/// Chooses among the documents that a damaged file may hold: a whole one before a torn one, then
/// the one with most entries, then the later.
fn salvage(b: &[u8], first: Option<Doc>, id: &SessionId, notices: &mut Vec<String>) -> Option<Doc> {
    let had_first = first.as_ref().is_some_and(Doc::is_session);
    let mut best = first.filter(|d| d.is_session() || d.encrypted);
    let mut starts: Vec<usize> =
        memmem::find_iter(b, b"{\"schema\"").chain(memmem::find_iter(b, b"{\"id\"")).filter(|i| *i > 0).collect();
    starts.sort_unstable();
    for &at in starts.iter().rev().take(MAX_GLUED).rev() {
        if let Some(doc) = Doc::read(b, at, false).filter(|d| d.whole && d.is_session() && has_session_head(d)) {
            let better = best.as_ref().is_none_or(|x| !x.whole || x.items.len() <= doc.items.len());
            if better {
                best = Some(doc);
            }
        }
    }
    if let Some(doc) = best.as_ref().filter(|d| d.whole) {
        notices.push(format!(
            "The file held more than one document, as after a write that was cut off; the whole one with {} \
             entries was taken. The file as it was is kept beside this one at the next write.",
            doc.items.len()
        ));
        return best;
    }
    let mended = if had_first { Doc::read(b, 0, true) } else { None };
    if let Some(mended) = mended.filter(|d| d.whole && d.holes > 0 && d.items.len() as u64 > d.holes) {
        notices.push(format!(
            "{} damaged entries could not be read and were skipped. The file as it was is kept beside this one at the \
             next write.",
            mended.holes
        ));
        return Some(mended);
    }
    let doc = best?;
    // A header that can be read but nothing behind it: whole lines further on may still be there.
    if doc.items.is_empty() && !doc.encrypted && pieces(b, id, Vec::new()).is_ok() {
        return None;
    }
    notices.push(format!(
        "The file was cut off or damaged after entry {}; what could not be read is kept beside it at the next write.",
        doc.items.len()
    ));
    Some(doc)
}

/// A nested object that only looks like a document (a tool's input, say) has no such head.
fn has_session_head(doc: &Doc) -> bool {
    doc.created_at.is_some() || doc.cwd.is_some()
}

/// The last resort: whole entries, wherever they stand: lines of our layout, or pieces of one
/// long line.
fn pieces(b: &[u8], id: &SessionId, mut notices: Vec<String>) -> Result<Loaded, Unreadable> {
    let lines: Vec<Vec<u8>> =
        b.split(|c| *c == b'\n').filter_map(|l| whole_entry_in(l.trim_ascii())).map(<[u8]>::to_vec).collect();
    let mut inside = Vec::new();
    let mut at = 0;
    while let Some((from, to)) = next_entry(b, at) {
        inside.push(b[from..to].to_vec());
        at = to;
    }
    let entries = if inside.len() > lines.len() { inside } else { lines };
    if entries.is_empty() {
        let kind = if memmem::find(b, ENTRY).is_some() || Header::is_ours(b) { "a damaged session" } else { "no JSON" };
        return broken(&format!("it is {kind}: not one whole entry can be read in it"));
    }
    notices.push(format!(
        "The start of the file was damaged: {} whole entries were found in it. The file as it was is kept beside this one \
         at the next write.",
        entries.len()
    ));
    let created_at = json::member(&entries[0], "at").map(<[u8]>::to_vec);
    let doc = Doc { created_at, items: entries, has_events: true, ..Doc::default() };
    let mut loaded = assemble(doc, id, notices);
    loaded.lossy = true;
    Ok(loaded)
}

/// Puts a document into our layout.
fn assemble(doc: Doc, id: &SessionId, mut notices: Vec<String>) -> Loaded {
    let string = |v: &Option<Vec<u8>>| {
        v.clone().filter(|v| v.starts_with(b"\"") && json::is_value(v)).unwrap_or(b"\"\"".to_vec())
    };
    let (created, cwd, updated) = (string(&doc.created_at), string(&doc.cwd), string(&doc.updated_at));
    let items = if doc.has_events { doc.items } else { migrate::entries_of_messages(&doc.items, &created, &updated) };
    let header = Header::build(id, &created, &cwd, &doc.extra);
    let mut body = header.line.clone();
    let (mut count, mut unread) = (0u64, doc.holes);
    for item in &items {
        let mut entry = to_entry(&json::minify(item));
        if !json::is_value(&entry) {
            unread += 1;
            entry = HOLE.to_vec();
        }
        if count > 0 {
            body.push(b',');
        }
        body.extend_from_slice(&entry);
        body.push(b'\n');
        count += 1;
    }
    if unread > doc.holes {
        notices.push(format!("{} damaged entries could not be read and were skipped.", unread - doc.holes));
    }
    let mut lossy = unread > 0 || doc.dropped;
    if let Err(e) = std::str::from_utf8(&body) {
        // Strict readers refuse a file with such bytes; the original keeps them.
        notices
            .push(format!("Bytes that are not UTF-8 (the first after {} bytes) are shown as U+FFFD.", e.valid_up_to()));
        body = String::from_utf8_lossy(&body).into_owned().into_bytes();
        lossy = true;
    }
    let header = body.iter().position(|c| *c == b'\n').and_then(|i| Header::parse(&body[..=i], id)).unwrap_or(header);
    let updated_at = json::text(&updated).unwrap_or_default();
    let context_tokens = doc.context_tokens.and_then(|v| parse_count(&json::utf8(&v))).unwrap_or(0);
    Loaded { header, body, count, updated_at, context_tokens, notices, lossy }
}
