//! The queue: rows that wait, their order and versions. Pure; the actor makes each change durable.

use glrs_protocol::entry::Attachment;
use glrs_protocol::types::{QueueRow, SendMode};
use glrs_protocol::{ErrorKind, RpcError};
use serde::{Deserialize, Serialize};

/// Most bytes of one message as JSON text. With what surrounds it in an entry or a queue row it
/// still fits one line of the wire; a larger one could be accepted and then shown to nobody.
const MAX_TEXT: usize = 8 * 1024 * 1024;
/// Most bytes of all waiting messages: the queue travels as a whole.
const MAX_WAITING: usize = 16 * 1024 * 1024;

/// Bytes of a text as JSON.
fn weight(text: &str) -> usize {
    let escapes = |b: &u8| match b {
        b'"' | b'\\' | b'\n' | b'\r' | b'\t' => 1,
        0..0x20 => 5,
        _ => 0,
    };
    text.len() + text.as_bytes().iter().map(escapes).sum::<usize>()
}

fn too_much(what: &str, max: usize, words: &str) -> RpcError {
    RpcError::new(ErrorKind::Limit { what: what.into(), max: max as u64 }, words)
}

/// A waiting message with the key of the call that made it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Waiting {
    /// The row as clients see it.
    pub row: QueueRow,
    /// Key of the call; the daemon makes one for calls without, so that a row is never taken twice.
    pub key: String,
    /// Hash of that call's params.
    pub hash: String,
    /// Number of entries in the log when it was accepted: a later user entry with the same key
    /// means that it was taken.
    pub pos: u64,
}

/// The queue of a session, first to run first.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Queue {
    /// The rows.
    pub rows: Vec<Waiting>,
    next: u64,
}

impl Queue {
    /// A queue reloaded from its rows. Row numbers go on behind `used`.
    pub fn reload(rows: Vec<Waiting>, used: u64) -> Self {
        let next = rows.iter().map(|w| w.row.row).max().unwrap_or(0).max(used);
        Self { rows, next }
    }

    /// A number for a new row.
    pub fn number(&mut self) -> u64 {
        self.next += 1;
        self.next
    }

    /// The rows as clients see them.
    pub fn view(&self) -> Vec<QueueRow> {
        self.rows.iter().map(|w| w.row.clone()).collect()
    }

    /// Position of a row at the version the client saw.
    ///
    /// # Errors
    /// `not_found` when it no longer waits, `conflict` when it changed.
    pub fn at(&self, row: u64, version: u64) -> Result<usize, RpcError> {
        let i = self.rows.iter().position(|w| w.row.row == row).ok_or_else(|| {
            RpcError::new(ErrorKind::NotFound, format!("row {row} no longer waits: it was sent or taken back"))
        })?;
        let now = self.rows[i].row.version;
        if now != version {
            return Err(RpcError::new(
                ErrorKind::Conflict,
                format!("row {row} was changed by someone (version {now}, not {version}): look at it again"),
            ));
        }
        Ok(i)
    }

    /// Whether a message fits: in itself, and beside the rows that wait (but for `instead`).
    ///
    /// # Errors
    /// `limit` when it does not.
    pub fn room_for(&self, text: &str, attachments: usize, instead: Option<u64>) -> Result<(), RpcError> {
        let new = weight(text) + attachments;
        if new > MAX_TEXT {
            let words = "the message is too large to be shown to everyone: attach a file by its path instead";
            return Err(too_much("message text", MAX_TEXT, words));
        }
        let others = self.rows.iter().filter(|w| Some(w.row.row) != instead);
        let data = |a: &Attachment| a.data.as_ref().map_or(0, String::len);
        let all = |w: &Waiting| weight(&w.row.text) + w.row.attachments.iter().map(data).sum::<usize>();
        if others.map(all).sum::<usize>() + new > MAX_WAITING {
            let words = "the waiting messages are too large together: let some run or take some back";
            return Err(too_much("queue bytes", MAX_WAITING, words));
        }
        Ok(())
    }

    /// The row with this key.
    pub fn by_key(&self, key: &str) -> Option<&Waiting> {
        self.rows.iter().find(|w| w.key == key)
    }

    /// Moves the row at `from` to position `to` (clamped).
    pub fn shift(&mut self, from: usize, to: usize) {
        let mut row = self.rows.remove(from);
        row.row.version += 1;
        let to = to.min(self.rows.len());
        self.rows.insert(to, row);
    }

    /// Takes out all steering rows, in order.
    pub fn steers(&self) -> Vec<Waiting> {
        self.rows.iter().filter(|w| w.row.mode == SendMode::Steer).cloned().collect()
    }

    /// Removes rows by number.
    pub fn drop_rows(&mut self, rows: &[u64]) {
        self.rows.retain(|w| !rows.contains(&w.row.row));
    }
}
