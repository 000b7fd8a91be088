//! Events of an attached session: the params of `session/event`.
//!
//! Numbered events carry `seq`, gap-free per session and epoch. `lagged` and `closed` carry none.
//! Clients ignore kinds they do not know (the number still counts).

use crate::SessionId;
use crate::types::{Compaction, Disk, PieceKind, PlanItem, QueueRow, Request, SessionInfo, State, UsageInfo};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

/// Name of the notification that carries an [`EventFrame`].
pub const SESSION_EVENT: &str = "session/event";
/// Name of the notification that carries a roster row.
pub const ROSTER_EVENT: &str = "roster/event";

/// The envelope of an event. The kind's own fields stand beside these.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct EventHead {
    /// The session.
    pub session: String,
    /// Made at each load of the session; numbers of different epochs do not compare.
    pub epoch: String,
    /// Number, gap-free; absent on `lagged` and `closed`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seq: Option<u64>,
    /// The kind of event.
    pub kind: String,
}

/// What happened: the kind and its fields.
#[derive(Clone, Debug, JsonSchema)]
#[schemars(untagged)]
pub enum Event {
    /// An entry was recorded.
    Entry(EntryEvent),
    /// Text streamed.
    Delta(Delta),
    /// The state changed.
    State(StateEvent),
    /// Compaction changed.
    Compaction(CompactionEvent),
    /// The disk failed or recovered.
    Disk(DiskEvent),
    /// The queue changed.
    Queue(QueueEvent),
    /// A request was opened.
    Request(RequestEvent),
    /// A request was answered or withdrawn.
    Resolved(Resolved),
    /// Usage changed.
    Usage(UsageEvent),
    /// The plan changed.
    Plan(PlanEvent),
    /// A client came or went.
    Clients(ClientsEvent),
    /// Title, model, mode or cwd changed.
    Info(InfoEvent),
    /// You fell behind: attach again with what you have.
    Lagged(Lagged),
    /// The session ended for this client.
    Closed(Closed),
    /// A kind this build does not know.
    Unknown(String),
}

/// `entry`: one more entry in the log.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct EntryEvent {
    /// Its number.
    pub n: u64,
    /// The entry.
    #[schemars(with = "serde_json::Value")]
    pub entry: Box<RawValue>,
    /// The piece it completes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub of: Option<String>,
}

/// `delta`: text at `offset` (UTF-8 bytes) of piece `of`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Delta {
    /// The piece.
    pub of: String,
    /// What the piece is.
    pub piece: PieceKind,
    /// Where the text belongs, in bytes from the piece's start.
    pub offset: u64,
    /// The text.
    pub text: String,
    /// Of a tool's output: how long the call has run, in milliseconds.
    #[serde(default, rename = "elapsedMs", skip_serializing_if = "Option::is_none")]
    pub elapsed_ms: Option<u64>,
}

/// `state`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct StateEvent {
    /// The state.
    pub state: State,
}

/// `compaction`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct CompactionEvent {
    /// Where it stands.
    pub compaction: Compaction,
}

/// `disk`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct DiskEvent {
    /// How the disk does.
    pub disk: Disk,
}

/// `queue`: all rows, in order.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct QueueEvent {
    /// The rows.
    pub rows: Vec<QueueRow>,
}

/// `request`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct RequestEvent {
    /// The request.
    pub request: Request,
}

/// `resolved`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Resolved {
    /// Id of the request.
    pub request: String,
    /// `allow`, `always`, `deny`, `answer` or `withdrawn`.
    pub decision: String,
    /// Who answered; absent when it was withdrawn.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<String>,
}

/// `usage`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct UsageEvent {
    /// Usage now.
    pub usage: UsageInfo,
}

/// `plan`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct PlanEvent {
    /// The items.
    pub items: Vec<PlanItem>,
}

/// `clients`: exactly one of `joined` and `left`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ClientsEvent {
    /// Who attached.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub joined: Option<String>,
    /// Who left.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub left: Option<String>,
    /// How many are attached now.
    pub count: u64,
}

/// `info`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct InfoEvent {
    /// The session's info now.
    pub info: SessionInfo,
}

/// `lagged`: the last number that can no longer be had from the ring.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Lagged {
    /// Everything up to this number has left the ring.
    pub at: u64,
}

/// `closed`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Closed {
    /// Why.
    pub why: String,
}

macro_rules! kinds {
    ($($variant:ident = $word:literal),* $(,)?) => {
        /// The kinds of event this build knows.
        pub const KINDS: &[&str] = &[$($word),*];

        impl Event {
            /// The word in `kind`.
            pub fn kind(&self) -> &str {
                match self { $(Self::$variant(_) => $word,)* Self::Unknown(k) => k }
            }

            /// Parses the kind's own fields out of the notification's params.
            ///
            /// # Errors
            /// When a known kind's fields do not fit.
            pub fn parse(kind: &str, params: &str) -> Result<Self, serde_json::Error> {
                Ok(match kind {
                    $($word => Self::$variant(serde_json::from_str(params)?),)*
                    other => Self::Unknown(other.to_owned()),
                })
            }

            fn body_json(&self) -> Result<String, serde_json::Error> {
                match self { $(Self::$variant(b) => serde_json::to_string(b),)* Self::Unknown(_) => Ok("{}".to_owned()) }
            }
        }
    };
}

kinds! {
    Entry = "entry", Delta = "delta", State = "state", Compaction = "compaction", Disk = "disk",
    Queue = "queue", Request = "request", Resolved = "resolved", Usage = "usage", Plan = "plan",
    Clients = "clients", Info = "info", Lagged = "lagged", Closed = "closed",
}

/// An event with its envelope, as a client reads it.
#[derive(Clone, Debug)]
pub struct EventFrame {
    /// The envelope.
    pub head: EventHead,
    /// The kind's own fields.
    pub event: Event,
}

impl EventFrame {
    /// Parses the params of a `session/event` notification.
    ///
    /// # Errors
    /// When the envelope or a known kind's fields do not fit.
    pub fn parse(params: &str) -> Result<Self, serde_json::Error> {
        let head: EventHead = serde_json::from_str(params)?;
        let event = Event::parse(&head.kind, params)?;
        Ok(Self { head, event })
    }

    /// The whole notification as one line, newline included: encoded once, sent to everyone.
    ///
    /// # Errors
    /// When the event does not serialise.
    pub fn encode(session: &str, epoch: &str, seq: Option<u64>, event: &Event) -> Result<String, serde_json::Error> {
        let body = event.body_json()?;
        let mut line = String::with_capacity(body.len() + 128);
        line.push_str(r#"{"jsonrpc":"2.0","method":"session/event","params":{"session":""#);
        line.push_str(session);
        line.push_str(r#"","epoch":""#);
        line.push_str(epoch);
        line.push('"');
        if let Some(seq) = seq {
            line.push_str(",\"seq\":");
            line.push_str(&seq.to_string());
        }
        line.push_str(",\"kind\":\"");
        line.push_str(event.kind());
        line.push('"');
        if body.len() > 2 {
            line.push(',');
            line.push_str(&body[1..]);
        } else {
            line.push('}');
        }
        line.push_str("}\n");
        Ok(line)
    }
}

/// What a `roster/event` notification says.
#[derive(Clone, Debug, PartialEq)]
pub enum RosterEvent {
    /// A session's row, as it is now.
    Row(Box<SessionInfo>),
    /// The session left memory.
    Gone(SessionId),
    /// Its reader fell behind, and gets no more: watch again.
    Lagged,
}

impl RosterEvent {
    /// The notification as one line.
    ///
    /// # Errors
    /// When the row does not serialise.
    pub fn encode(&self) -> Result<String, serde_json::Error> {
        let params = match self {
            Self::Row(row) => format!("{{\"session\":{}}}", serde_json::to_string(row)?),
            Self::Gone(id) => format!("{{\"session\":{{\"id\":\"{id}\",\"gone\":true}}}}"),
            Self::Lagged => r#"{"lagged":true}"#.to_owned(),
        };
        Ok(format!("{{\"jsonrpc\":\"2.0\",\"method\":\"{ROSTER_EVENT}\",\"params\":{params}}}\n"))
    }

    /// Reads a notification's params.
    ///
    /// # Errors
    /// When they are none of the above.
    pub fn parse(params: &str) -> Result<Self, serde_json::Error> {
        #[derive(Deserialize)]
        struct Params {
            #[serde(default)]
            lagged: bool,
            session: Option<Box<RawValue>>,
        }
        #[derive(Deserialize)]
        struct Gone {
            id: SessionId,
            #[serde(default)]
            gone: bool,
        }
        let p: Params = serde_json::from_str(params)?;
        match p.session {
            _ if p.lagged => Ok(Self::Lagged),
            None => Err(serde::de::Error::missing_field("session")),
            Some(row) => match serde_json::from_str::<Gone>(row.get())? {
                Gone { id, gone: true } => Ok(Self::Gone(id)),
                _ => serde_json::from_str(row.get()).map(Self::Row),
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn roster_events_are_read_as_they_are_written() {
        let row = r#"{"id":"00c0ffee","title":"t","renamed":false,"cwd":"/r","createdAt":"","updatedAt":"","entries":3,
            "model":"a/b","mode":"ask","state":"running","needsYou":false,"clients":1,"queued":0,"contextTokens":0,
            "window":256000,"saved":true,"new":"field"}"#;
        let row: SessionInfo = serde_json::from_str(row).unwrap();
        for event in
            [RosterEvent::Row(Box::new(row)), RosterEvent::Gone("00c0ffee".parse().unwrap()), RosterEvent::Lagged]
        {
            let line: serde_json::Value = event.encode().unwrap().parse().unwrap();
            assert_eq!(line["method"], ROSTER_EVENT);
            assert_eq!(RosterEvent::parse(&line["params"].to_string()).unwrap(), event);
        }
        assert!(RosterEvent::parse("{}").is_err() && RosterEvent::parse(r#"{"session":{"gone":true}}"#).is_err());
    }

    #[test]
    fn frames_round_trip_and_are_one_line() {
        let e = Event::Delta(Delta {
            of: "p1".into(),
            piece: PieceKind::Assistant,
            offset: 3,
            text: "a\n\u{2028}b".into(),
            elapsed_ms: None,
        });
        let line = EventFrame::encode("3f9a1c2b", "e1", Some(7), &e).unwrap();
        assert_eq!(line.matches('\n').count(), 1);
        let v: serde_json::Value = serde_json::from_str(&line).unwrap();
        let frame = EventFrame::parse(&v["params"].to_string()).unwrap();
        assert_eq!(frame.head.seq, Some(7));
        assert!(matches!(frame.event, Event::Delta(d) if d.text == "a\n\u{2028}b" && d.offset == 3));
        let unknown = EventFrame::parse(r#"{"session":"s","epoch":"e","seq":1,"kind":"sparkle","x":1}"#).unwrap();
        assert!(matches!(unknown.event, Event::Unknown(k) if k == "sparkle"));
    }
}
