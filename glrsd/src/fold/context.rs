//! The context fold: which messages the model is sent, from the entries of a log.
//!
//! Owns the rules of session-file.md "Folds · context". `cleared` empties, `compacted` restarts
//! with the brief and what was kept, `rewound{to}` goes back to the state after entry `to`,
//! recursively. Must not know providers: legality in general is [`super::legal`]'s business.

use glrs_protocol::entry::{self, Attachment, Entry};
use glrs_protocol::message::{Message, Part, Role};
use serde::Deserialize;
use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::Arc;

/// What introduces a brief when it is replayed.
pub const BRIEF_OPEN: &str = "<earlier-conversation>";
/// What ends it.
pub const BRIEF_CLOSE: &str = "</earlier-conversation>";
/// What follows it.
pub const BRIEF_AFTER: &str =
    "The conversation above was compacted into this brief. Continue from it; what follows happened after it.";

/// A message with where it came from.
#[derive(Clone, Debug)]
pub struct Stored {
    /// Number of the `turn` entry that holds it; 0 for a brief; the `user` entry's number for a
    /// message that no turn took up.
    pub n: u64,
    /// Its index in that entry, from 0.
    pub index: u64,
    /// The message.
    pub message: Arc<Message>,
}

/// The fold's state after some entry.
#[derive(Clone, Debug, Default)]
pub struct Context {
    stored: Vec<Stored>,
    /// User entries that no turn entry has taken up yet.
    pending: Vec<Pending>,
    /// What people ran themselves and the model was not shown yet: the next message takes it along.
    ran: Vec<String>,
    has_brief: bool,
    /// Number of the `tool` entry of each call.
    tools: HashMap<String, u64>,
    /// Whether a marker stands in it.
    has_markers: bool,
}

/// A message that no turn took up.
#[derive(Clone, Debug)]
struct Pending {
    n: u64,
    text: String,
    /// What came with it.
    attachments: Vec<Attachment>,
    /// What rides along: commands that people ran before it.
    rides: Vec<String>,
}

impl Pending {
    /// The message with what rides along. Of files only the entry's own data is there: what a path
    /// leads to was read by the turn that never came to be recorded.
    fn whole(self) -> Message {
        let images = |a: &Attachment| a.media_type.as_ref().is_some_and(|m| m.starts_with("image/"));
        let (inline, named): (Vec<_>, Vec<_>) =
            self.attachments.into_iter().partition(|a| a.data.is_some() && images(a));
        let named = named.into_iter().map(|a| format!("[came with it and was not kept: {}]", a.path));
        let text = std::iter::once(self.text).chain(named).chain(self.rides).collect::<Vec<_>>().join("\n\n");
        let files = inline
            .into_iter()
            .filter_map(|a| Some(Part::File { kind: "image", media_type: a.media_type?, data: a.data? }));
        Message { role: Role::User, parts: std::iter::once(Part::Text(text)).chain(files).collect() }
    }
}

/// What the model is shown of a command that a person ran: the command, and what came of it.
fn ran(t: &entry::Tool) -> Option<String> {
    #[derive(Deserialize)]
    struct Ran {
        #[serde(default)]
        command: Option<String>,
    }
    let by = t.by.as_ref()?;
    let input: Option<Ran> = t.input.as_ref().and_then(|i| serde_json::from_str(i.get()).ok());
    let command = input.and_then(|i| i.command).unwrap_or_else(|| t.detail.clone());
    let result = t.result.as_deref().unwrap_or_default();
    Some(format!(
        "{by} ran a command in the working directory, by their own hand:\n<command>\n$ {command}\n{result}\n</command>"
    ))
}

/// The message that replays a brief.
pub fn brief_message(summary: &str) -> Message {
    Message::text(Role::User, format!("{BRIEF_OPEN}\n{summary}\n{BRIEF_CLOSE}\n\n{BRIEF_AFTER}"))
}

/// The live parts of a log: entries not behind a `rewound`, as ranges of numbers in ascending
/// order. `rewinds` are the `(n, to)` of all `glrs:rewound` entries in ascending order of `n`,
/// `last` the number of the last entry.
pub fn live_ranges(rewinds: &[(u64, u64)], last: u64) -> Vec<std::ops::RangeInclusive<u64>> {
    let mut out = Vec::new();
    let mut end = last;
    let mut i = rewinds.len();
    while end > 0 {
        // The nearest rewind at or before `end`; later ones are themselves behind a rewind.
        while i > 0 && rewinds[i - 1].0 > end {
            i -= 1;
        }
        match i.checked_sub(1).map(|k| rewinds[k]) {
            // A rewind that does not point back (damaged) changes nothing.
            Some((n, to)) if to < n => {
                if n < end {
                    out.push(n + 1..=end);
                }
                end = to;
                i -= 1;
            }
            Some(_) => i -= 1,
            None => {
                out.push(1..=end);
                break;
            }
        }
    }
    out.reverse();
    out
}

#[derive(Deserialize)]
struct Rewound {
    #[serde(default)]
    to: u64,
}

/// The target of a `glrs:rewound` entry, or `None` for any other.
pub fn rewound_to(raw: &str) -> Option<u64> {
    // Parsing every custom entry would cost; the kind has to be in the text.
    if !raw.contains("glrs:rewound") {
        return None;
    }
    match Entry::parse(raw) {
        Ok(Entry::Custom(c)) if c.custom == "glrs:rewound" => {
            serde_json::from_str::<Rewound>(c.data.get()).ok().map(|r| r.to)
        }
        _ => None,
    }
}

/// The `callId` of a `tool` entry.
fn call_of(raw: &str) -> Option<String> {
    #[derive(Deserialize)]
    struct Call<'a> {
        #[serde(rename = "callId", borrow)]
        id: Option<Cow<'a, str>>,
    }
    // As we write it the id stands behind the result, which is nearly all of the entry. Quotes are
    // escaped within strings, so this is a key; and what follows it closes the object only if it is
    // a key of the entry itself.
    let tail = memchr::memmem::rfind(raw.as_bytes(), b",\"callId\":\"").map(|at| format!("{{{}", &raw[at + 1..]));
    let quick = tail.and_then(|tail| serde_json::from_str::<Call<'_>>(&tail).ok()?.id.map(Cow::into_owned));
    quick.or_else(|| serde_json::from_str::<Call<'_>>(raw).ok()?.id.map(Cow::into_owned))
}

impl Context {
    /// Applies one live entry. Entries of kinds that carry no messages cost next to nothing.
    pub fn apply(&mut self, n: u64, raw: &str) {
        match entry::kind_of(raw).as_ref() {
            "turn" => self.turn(n, raw),
            "user" => {
                if let Ok(Entry::User(u)) = Entry::parse(raw) {
                    let rides = std::mem::take(&mut self.ran);
                    self.pending.push(Pending { n, text: u.text, attachments: u.attachments, rides });
                }
            }
            "tool" => {
                match call_of(raw) {
                    Some(id) => {
                        self.tools.insert(id, n);
                    }
                    // Only what a person ran has no call of the model's, and says who.
                    None if raw.contains("\"by\":") => {
                        if let Ok(Entry::Tool(t)) = Entry::parse(raw) {
                            self.ran.extend(ran(&t));
                        }
                    }
                    None => {}
                }
            }
            "custom" if raw.contains("glrs:micro") => {
                #[derive(Deserialize)]
                struct Marked {
                    #[serde(default)]
                    entries: Vec<u64>,
                }
                if let Ok(Entry::Custom(c)) = Entry::parse(raw)
                    && c.custom == "glrs:micro"
                    && let Ok(m) = serde_json::from_str::<Marked>(c.data.get())
                {
                    super::micro::apply(&mut self.stored, &self.tools, &m.entries);
                    self.has_markers = true;
                }
            }
            "cleared" => *self = Self::default(),
            "compacted" => {
                if let Ok(Entry::Compacted(c)) = Entry::parse(raw) {
                    self.compacted(&c.summary, c.kept_from, c.dropped, c.request);
                }
            }
            _ => {}
        }
    }

    fn turn(&mut self, n: u64, raw: &str) {
        let messages = Message::parse_turn(raw);
        let users = messages.iter().flatten().filter(|m| m.role == Role::User).count();
        // More user entries than this turn took up: the first ones were cut off from their turn
        // (a fork inside it, a file that ends there). They are not lost.
        let orphans = self.pending.len().saturating_sub(users);
        for p in self.pending.drain(..).take(orphans) {
            let n = p.n;
            self.stored.push(Stored { n, index: 0, message: Arc::new(p.whole()) });
        }
        self.stored.extend(
            messages
                .into_iter()
                .enumerate()
                .filter_map(|(i, m)| m.map(|m| Stored { n, index: i as u64, message: Arc::new(m) })),
        );
    }

    fn compacted(&mut self, summary: &str, kept_from: Option<(u64, u64)>, dropped: u64, request: Option<(u64, u64)>) {
        let request = request.and_then(|at| self.stored.iter().find(|s| (s.n, s.index) == at).cloned());
        let cut = match kept_from {
            Some(at) => self.stored.partition_point(|s| (s.n, s.index) < at),
            None => self.old_cut(dropped),
        };
        let kept = self.stored.split_off(cut.min(self.stored.len()));
        self.stored.clear();
        self.has_brief = !summary.trim().is_empty();
        if self.has_brief {
            self.stored.push(Stored { n: 0, index: 0, message: Arc::new(brief_message(summary)) });
        }
        self.stored.extend(request);
        self.stored.extend(kept);
    }

    /// Files of the predecessor count dropped messages (the brief before counts 1). The count may
    /// point between a call and its result: the cut moves on to the next boundary.
    fn old_cut(&self, dropped: u64) -> usize {
        let mut cut = usize::try_from(dropped).unwrap_or(usize::MAX).min(self.stored.len());
        while cut < self.stored.len() && self.stored[cut].message.role == Role::Tool {
            cut += 1;
        }
        cut
    }

    /// The stored messages, oldest first.
    pub fn stored(&self) -> &[Stored] {
        &self.stored
    }

    /// Whether it starts with a brief.
    pub fn has_brief(&self) -> bool {
        self.has_brief
    }

    /// Number of the `tool` entry of each call.
    pub fn tools(&self) -> &HashMap<String, u64> {
        &self.tools
    }

    /// Whether large results in it were replaced by markers.
    pub fn has_markers(&self) -> bool {
        self.has_markers
    }

    /// Messages that no turn took up, taken out: whoever starts a turn sends them first.
    pub fn take_pending(&mut self) -> Vec<Message> {
        self.pending.drain(..).map(Pending::whole).collect()
    }

    /// What rides along with the last `count` messages that no turn took up, taken out.
    pub fn take_rides(&mut self, count: usize) -> Vec<String> {
        let from = self.pending.len().saturating_sub(count);
        self.pending[from..].iter_mut().flat_map(|p| std::mem::take(&mut p.rides)).collect()
    }

    /// Messages that no turn took up.
    pub fn pending(&self) -> impl Iterator<Item = &str> {
        self.pending.iter().map(|p| p.text.as_str())
    }

    /// All messages, those not taken up last: what a reader of the file would replay.
    pub fn messages(&self) -> Vec<Arc<Message>> {
        let mut out: Vec<Arc<Message>> = self.stored.iter().map(|s| s.message.clone()).collect();
        out.extend(self.pending.iter().map(|p| Arc::new(p.clone().whole())));
        out
    }

    /// Roughly how many tokens it fills (bytes / 4), for when no provider has reported.
    pub fn estimate(&self) -> u64 {
        (self.stored.iter().map(|s| s.message.weight()).sum::<usize>() / 4) as u64
    }
}

/// Folds a whole log given as `(n, raw)` in order, rewinds included.
pub fn fold<'a>(entries: impl Iterator<Item = (u64, &'a str)> + Clone) -> Context {
    let rewinds: Vec<(u64, u64)> = entries.clone().filter_map(|(n, raw)| rewound_to(raw).map(|to| (n, to))).collect();
    let last = entries.clone().map(|(n, _)| n).max().unwrap_or(0);
    let ranges = live_ranges(&rewinds, last);
    let mut ctx = Context::default();
    for (n, raw) in entries {
        if ranges.iter().any(|r| r.contains(&n)) {
            ctx.apply(n, raw);
        }
    }
    ctx
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn texts(c: &Context) -> Vec<String> {
        c.messages().iter().map(|m| m.joined_text()).collect()
    }

    fn turn(texts: &[(&str, &str)]) -> String {
        let ms: Vec<String> = texts.iter().map(|(r, t)| format!(r#"{{"role":"{r}","content":"{t}"}}"#)).collect();
        format!(r#"{{"type":"turn","messages":[{}],"status":"done","at":""}}"#, ms.join(","))
    }

    fn fold_all(entries: &[String]) -> Context {
        fold(entries.iter().enumerate().map(|(i, e)| (i as u64 + 1, e.as_str())))
    }

    #[test]
    fn a_cut_user_message_is_not_lost_and_not_doubled() {
        let user = |t: &str| format!(r#"{{"type":"user","text":"{t}","at":""}}"#);
        let log = vec![user("a"), turn(&[("user", "a"), ("assistant", "1")]), user("b")];
        assert_eq!(texts(&fold_all(&log)), ["a", "1", "b"]);
        let mut log2 = log.clone();
        log2.extend([user("c"), turn(&[("user", "c"), ("assistant", "3")])]);
        assert_eq!(texts(&fold_all(&log2)), ["a", "1", "b", "c", "3"]);
        let mut log3 = log;
        log3.extend([user("c"), turn(&[("user", "b"), ("user", "c"), ("assistant", "3")])]);
        assert_eq!(texts(&fold_all(&log3)), ["a", "1", "b", "c", "3"]);
    }

    #[test]
    fn what_a_person_ran_rides_with_the_next_message_once() {
        let user = |t: &str| format!(r#"{{"type":"user","text":"{t}","at":""}}"#);
        let shell = r#"{"type":"tool","name":"bash","detail":"ls","ok":true,"input":{"command":"ls -l"},"result":"out\n[exit code 0]","by":"ann#1","at":""}"#;
        let mut log = vec![user("a"), shell.to_owned(), turn(&[("user", "a"), ("assistant", "1")])];
        // It ended during that turn: the message after it takes it along.
        assert_eq!(texts(&fold_all(&log)), ["a", "1"]);
        log.push(user("b"));
        let mut c = fold_all(&log);
        assert!(texts(&c)[2].starts_with("b\n\nann#1 ran") && texts(&c)[2].contains("$ ls -l\nout\n[exit code 0]"));
        assert_eq!((c.take_rides(1).len(), c.take_rides(1).len()), (1, 0));
        log.push(turn(&[("user", "b, and what ann ran"), ("assistant", "2")]));
        log.push(user("c"));
        assert_eq!(texts(&fold_all(&log)), ["a", "1", "b, and what ann ran", "2", "c"]);
        // A message that was cut off from its turn keeps what rode with it.
        let cut = [shell.to_owned(), user("x"), user("y"), turn(&[("user", "y"), ("assistant", "3")])];
        assert!(texts(&fold_all(&cut))[0].starts_with("x\n\nann#1 ran"));
        let cleared = [shell.to_owned(), r#"{"type":"cleared","reason":"x","at":""}"#.to_owned(), user("z")];
        assert_eq!(texts(&fold_all(&cleared)), ["z"]);
    }

    #[test]
    fn the_id_of_a_call_is_found_wherever_it_stands() {
        for (entry, id) in [
            (r#"{"type":"tool","result":"r","callId":"a","at":"t"}"#, Some("a")),
            (r#"{"type":"tool","callId":"a","input":{"x":1,"callId":"b"},"at":"t"}"#, Some("a")),
            (r#"{"type":"tool","callId":"a","input":{"x":1,"callId":"b"}}"#, Some("a")),
            (r#"{"type":"tool","input":[{"x":1,"callId":"b"}],"ok":true}"#, None),
            (r#"{"type":"tool","callId":"a","result":"x,\"callId\":\"b\"","at":"t"}"#, Some("a")),
            (r#"{"type":"tool", "callId" : "a\u0062", "at":"t"}"#, Some("ab")),
            (r#"{"type":"tool","at":"t","callId":null}"#, None),
            (r#"{"type":"tool","at":"t","callId":7}"#, None),
        ] {
            assert_eq!(call_of(entry).as_deref(), id, "{entry}");
        }
    }

    #[test]
    fn compaction_keeps_its_tail_and_an_empty_brief_is_not_sent() {
        let log = vec![
            turn(&[("user", "a"), ("assistant", "1")]),
            turn(&[("user", "b"), ("assistant", "2")]),
            r#"{"type":"compacted","summary":"S","dropped":2,"keptFrom":[2,0],"at":""}"#.to_owned(),
            turn(&[("user", "c"), ("assistant", "3")]),
        ];
        let c = fold_all(&log);
        assert_eq!(texts(&c)[1..], ["b", "2", "c", "3"]);
        assert!(texts(&c)[0].starts_with("<earlier-conversation>\nS\n</earlier-conversation>\n\n"));
        let old = vec![log[0].clone(), r#"{"type":"compacted","summary":" ","dropped":10}"#.to_owned(), log[3].clone()];
        assert_eq!(texts(&fold_all(&old)), ["c", "3"]);
    }

    /// What `rewound` means, computed the slow way: the state after entry `to`, recursively.
    fn slow(log: &[Option<u64>], n: u64) -> Vec<u64> {
        if n == 0 {
            return Vec::new();
        }
        match log[n as usize - 1] {
            Some(to) if to < n => slow(log, to),
            Some(_) => slow(log, n - 1),
            None => {
                let mut v = slow(log, n - 1);
                v.push(n);
                v
            }
        }
    }

    proptest! {
        #[test]
        fn rewinds_nest(log in prop::collection::vec(prop_oneof![3 => Just(None), 1 => (0u64..40).prop_map(Some)], 0..40)) {
            let rewinds: Vec<(u64, u64)> =
                log.iter().enumerate().filter_map(|(i, e)| e.map(|to| (i as u64 + 1, to))).collect();
            let ranges = live_ranges(&rewinds, log.len() as u64);
            let live: Vec<u64> = (1..=log.len() as u64)
                .filter(|n| log[*n as usize - 1].is_none() && ranges.iter().any(|r| r.contains(n)))
                .collect();
            prop_assert_eq!(live, slow(&log, log.len() as u64));
        }
    }
}
