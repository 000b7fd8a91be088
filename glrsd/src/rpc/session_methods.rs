//! Methods of one session: each becomes a command in the session's mailbox.

use super::daemon_methods::session_info;
use super::{Answer, CallCtx, answered, register};
use crate::net::conn::Attachment;
use crate::session::{AttachPoint, Cmd, Reply, artifacts, trace};
use crate::store::LogReader;
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use glrs_protocol::entry::Entry;
use glrs_protocol::methods::m::*;
use glrs_protocol::params::*;
use glrs_protocol::types::{NumberedEntry, SessionInfo};
use glrs_protocol::{ErrorKind, RpcError, SessionId};
use jsonrpsee::RpcModule;
use serde::Serialize;
use tokio::sync::oneshot;

/// Most entries of one answer.
const ENTRIES: usize = 256;
/// Most bytes of entries of one answer.
const BYTES: usize = 1 << 20;
/// Most bytes of custom entries of one answer: half a message.
const CUSTOM_BYTES: usize = 16 << 20;

impl CallCtx {
    /// A reply that wraps a session's info.
    pub(super) fn reply_session(&self) -> (Reply<SessionInfo>, oneshot::Receiver<()>) {
        let (reply, sent) = self.reply::<SessionResult>();
        (Box::new(move |r| reply(r.map(|session| SessionResult { session }))), sent)
    }
}

/// Sends a command made of the reply; resolves once it was answered.
fn command<T: Serialize + core::marker::Send + 'static>(
    c: CallCtx,
    id: SessionId,
    make: impl FnOnce(Reply<T>) -> Cmd + core::marker::Send + 'static,
) -> BoxFuture<'static, Answer<T>> {
    async move {
        let (reply, sent) = c.reply::<T>();
        c.daemon().registry.send(&id, make(reply)).await;
        answered(sent).await
    }
    .boxed()
}

fn disk(e: &crate::store::DiskError) -> RpcError {
    RpcError::new(ErrorKind::Disk { path: e.path.display().to_string(), why: e.why.clone() }, e.to_string())
}

/// A session's reader, for reading beside its actor.
async fn reader(c: &CallCtx, id: &SessionId) -> Result<LogReader, RpcError> {
    let (tx, rx) = oneshot::channel();
    let reply: Reply<LogReader> = Box::new(move |r| {
        let _ = tx.send(r);
    });
    c.daemon().registry.send(id, Cmd::Read { reply }).await;
    rx.await.unwrap_or_else(|_| Err(RpcError::internal("the session went away: try again")))
}

async fn read_blocking<T: core::marker::Send + 'static>(
    f: impl FnOnce() -> Result<T, RpcError> + core::marker::Send + 'static,
) -> Result<T, RpcError> {
    tokio::task::spawn_blocking(f).await.unwrap_or_else(|e| Err(RpcError::internal(e.to_string())))
}

/// The snapshot's entries: behind the cursor where it fits, else the tail.
fn snapshot_entries(point: &AttachPoint, p: &Attach) -> Result<(Vec<NumberedEntry>, bool), RpcError> {
    if point.snapshot.resumed {
        return Ok((Vec::new(), false));
    }
    if let Some(after) = &p.after_entry {
        let same = after.n == 0
            || point.reader.entry(after.n).map_err(|e| disk(&e))?.is_some_and(|raw| {
                #[derive(serde::Deserialize)]
                struct At {
                    #[serde(default)]
                    at: String,
                }
                serde_json::from_str::<At>(raw.get()).is_ok_and(|e| e.at == after.at)
            });
        if same && after.n <= point.total && point.total - after.n <= ENTRIES as u64 {
            let entries = point.reader.read(after.n + 1, ENTRIES, BYTES).map_err(|e| disk(&e))?;
            if entries.len() as u64 == point.total - after.n {
                return Ok((entries, after.n > 0));
            }
        }
    }
    let tail = p.tail.map_or(ENTRIES, |t| (t as usize).min(ENTRIES));
    let entries = if tail == 0 { Vec::new() } else { point.reader.tail(tail, BYTES).map_err(|e| disk(&e))? };
    let more = entries.first().map_or(point.total > 0, |e| e.n > 1);
    Ok((entries, more))
}

async fn attach(c: CallCtx, p: Attach) -> Answer<Snapshot> {
    if usize::from(p.after.is_some()) + usize::from(p.after_entry.is_some()) + usize::from(p.tail.is_some()) > 1 {
        return Err(RpcError::params("give at most one of after, afterEntry and tail")).into();
    }
    let (tx, rx) = oneshot::channel();
    let reply: Reply<Box<AttachPoint>> = Box::new(move |r| {
        let _ = tx.send(r);
    });
    c.conn().joins(&p.id);
    let cmd = Cmd::Attach { who: c.who(), p: Box::new(p.clone()), wake: c.conn().wake.clone(), reply };
    c.daemon().registry.send(&p.id, cmd).await;
    let point = match rx.await {
        Ok(Ok(point)) => point,
        Ok(Err(e)) => {
            c.conn().detach(&p.id);
            return Err(e).into();
        }
        Err(_) => return Err(RpcError::internal("the session went away: attach again")).into(),
    };
    let id = p.id.clone();
    let read = read_blocking(move || snapshot_entries(&point, &p).map(|found| (point, found))).await;
    match read {
        Ok((point, (entries, more))) => {
            let AttachPoint { mut snapshot, cursor, .. } = *point;
            snapshot.entries = entries;
            snapshot.more = more;
            let epoch = snapshot.epoch.clone();
            let line = c.encode(&Ok(snapshot));
            c.conn().reply_and_attach(line, Attachment { session: Some(id.to_string()), epoch, cursor });
            Answer::Sent
        }
        Err(e) => {
            leave(&c, &id).await;
            Err(e).into()
        }
    }
}

/// Takes a client off a session. One that is not in memory has no clients.
async fn leave(c: &CallCtx, id: &SessionId) {
    c.conn().detach(id);
    if let Some(h) = c.daemon().registry.live(id) {
        let _ = h.tx.send(Box::new(Cmd::Detach { who: c.who() })).await;
    }
}

async fn entries(c: CallCtx, p: Entries) -> Answer<EntriesResult> {
    let reader = match reader(&c, &p.id).await {
        Ok(r) => r,
        Err(e) => return Err(e).into(),
    };
    read_blocking(move || {
        let total = reader.len();
        let limit = p.limit.map_or(ENTRIES, |l| (l as usize).min(ENTRIES));
        let from = match p.from.unwrap_or(1) {
            0 => return Err(RpcError::params("entries are numbered from 1; a negative number counts from the end")),
            n if n > 0 => n.unsigned_abs(),
            n => (total + 1).saturating_sub(n.unsigned_abs()).max(1),
        };
        let entries = if limit == 0 || from > total {
            Vec::new()
        } else {
            reader.read(from, limit, BYTES).map_err(|e| disk(&e))?
        };
        Ok(EntriesResult { entries, total })
    })
    .await
    .into()
}

async fn custom(c: CallCtx, p: CustomList) -> Answer<EntriesResult> {
    let reader = match reader(&c, &p.id).await {
        Ok(r) => r,
        Err(e) => return Err(e).into(),
    };
    read_blocking(move || {
        let mut entries = Vec::new();
        let mut bytes = 0;
        // A kind that JSON writes as it is can be looked for without parsing.
        let plain = p.custom.bytes().all(|b| b.is_ascii_graphic() && b != b'"' && b != b'\\');
        reader
            .scan(&mut |n, raw| {
                if (!plain || raw.contains(&p.custom))
                    && matches!(Entry::parse(raw), Ok(Entry::Custom(c)) if c.custom == p.custom)
                    && let Ok(entry) = serde_json::value::RawValue::from_string(raw.to_owned())
                {
                    bytes += raw.len();
                    if bytes <= CUSTOM_BYTES {
                        entries.push(NumberedEntry { n, entry });
                    }
                }
            })
            .map_err(|e| disk(&e))?;
        if bytes > CUSTOM_BYTES {
            let kind = ErrorKind::Limit { what: "bytes of custom entries".into(), max: CUSTOM_BYTES as u64 };
            return Err(RpcError::new(
                kind,
                "there are too many to send at once: read them by number with session/entries",
            ));
        }
        Ok(EntriesResult { entries, total: reader.len() })
    })
    .await
    .into()
}

async fn export(c: CallCtx, p: SessionExport) -> Answer<ExportResult> {
    let reader = match reader(&c, &p.id).await {
        Ok(r) => r,
        Err(e) => return Err(e).into(),
    };
    let id = p.id.clone();
    read_blocking(move || {
        let from = p.from.unwrap_or(1);
        let part = match p.format.as_deref().unwrap_or("json") {
            "json" => crate::export::json(&id, &reader, from),
            "markdown" | "md" => crate::export::markdown(&reader, from),
            other => return Err(RpcError::params(format!("there is no export format {other}: json or markdown"))),
        };
        part.map(|p| ExportResult { text: p.text, next: p.next }).map_err(|e| disk(&e))
    })
    .await
    .into()
}

async fn fork(c: CallCtx, p: Fork) -> Answer<SessionResult> {
    let registry = c.daemon().registry.clone();
    let new_id = p.new_id.clone().unwrap_or_else(|| registry.free_id());
    let (tx, rx) = oneshot::channel();
    let reply: Reply<()> = Box::new(move |r| {
        let _ = tx.send(r);
    });
    let id = p.id.clone();
    registry.send(&id, Cmd::Fork { who: c.who(), p, new_id: new_id.clone(), reply }).await;
    match rx.await {
        Ok(Ok(())) => session_info(&c, new_id).await,
        Ok(Err(e)) => Err(e).into(),
        Err(_) => Err(RpcError::internal("the session went away: fork again")).into(),
    }
}

/// A session that does not load (broken, newer) can still be deleted.
async fn delete(c: CallCtx, p: SessionDelete) -> Answer<Done> {
    let (tx, rx) = oneshot::channel();
    let reply: Reply<Done> = Box::new(move |r| {
        let _ = tx.send(r);
    });
    let registry = c.daemon().registry.clone();
    registry.send(&p.id, Cmd::Delete { who: c.who(), force: p.force, reply }).await;
    match rx.await {
        Ok(Err(e)) if matches!(e.data, Some(ErrorKind::Broken { .. })) => {
            let store = registry.shared.store.clone();
            read_blocking(move || store.delete(&p.id).map(|()| Done {}).map_err(|e| crate::session::delete_error(&e)))
                .await
                .into()
        }
        Ok(r) => r.into(),
        Err(_) => Err(RpcError::internal("the session went away: try again")).into(),
    }
}

/// Registers the sessions' methods.
pub(super) fn register_all(m: &mut RpcModule<()>) -> Result<(), String> {
    register::<SessionInfoM, _>(m, |c, p| async move { session_info(&c, p.id).await }.boxed())?;
    register::<SessionRenameM, _>(m, |c, p| {
        async move {
            let (reply, sent) = c.reply_session();
            let set = SessionSet {
                id: p.id.clone(),
                model: None,
                variant: None,
                mode: None,
                title: Some(p.title),
                cwd: None,
            };
            c.daemon().registry.send(&p.id, Cmd::Set { who: c.who(), p: set, reply }).await;
            answered(sent).await
        }
        .boxed()
    })?;
    register::<SessionSetM, _>(m, |c, p| {
        async move {
            let (reply, sent) = c.reply_session();
            let id = p.id.clone();
            c.daemon().registry.send(&id, Cmd::Set { who: c.who(), p, reply }).await;
            answered(sent).await
        }
        .boxed()
    })?;
    register::<SessionDeleteM, _>(m, |c, p| delete(c, p).boxed())?;
    register::<SessionExportM, _>(m, |c, p| export(c, p).boxed())?;
    register::<SessionAttachM, _>(m, |c, p| attach(c, p).boxed())?;
    register::<SessionDetachM, _>(m, |c, p| {
        async move {
            leave(&c, &p.id).await;
            Ok(Done {}).into()
        }
        .boxed()
    })?;
    register::<SessionEntriesM, _>(m, |c, p| entries(c, p).boxed())?;
    register::<SessionCustomM, _>(m, |c, p| custom(c, p).boxed())?;
    register::<SessionForkM, _>(m, |c, p| fork(c, p).boxed())?;
    macro_rules! artifacts {
        ($($method:ident => |$store:ident, $p:ident| $do:expr;)*) => {$(
            register::<$method, _>(m, |c, $p| {
                let $store = c.daemon().registry.shared.store.clone();
                async move { read_blocking(move || $do).await.into() }.boxed()
            })?;
        )*};
    }
    artifacts! {
        ArtifactsListM => |store, p| artifacts::list(&store, &p.id);
        ArtifactsReadM => |store, p| artifacts::read(&store, &p.id, &p.artifact, p.offset, p.limit);
        ArtifactsAnnotateM => |store, p| {
            artifacts::annotate(&store, &p.id, &p.artifact, p.label.as_deref(), p.note.as_deref()).map(|()| Done {})
        };
        SessionTraceM => |store, p| trace::read(&store, &p);
        ArtifactsDeleteM => |store, p| artifacts::delete(&store, &p.id, &p.artifact).map(|()| Done {});
    }
    macro_rules! forward {
        ($($method:ident => $cmd:ident),* $(,)?) => {$(
            register::<$method, _>(m, |c, p| {
                let (id, who) = (p.id.clone(), c.who());
                command(c, id, move |reply| Cmd::$cmd { who, p, reply })
            })?;
        )*};
    }
    forward! {
        SessionSendM => Send, SessionShellM => Shell, QueueEditM => QueueEdit, QueueRemoveM => QueueRemove, QueueMoveM => QueueMove,
        RequestAnswerM => Answer, SessionClearM => Clear, SessionCompactM => Compact, SessionRewindM => Rewind, SessionAppendM => Append,
    }
    register::<SessionInterruptM, _>(m, |c, p| {
        let who = c.who();
        command(c, p.id, move |reply| Cmd::Interrupt { who, reply })
    })?;
    register::<SessionReleaseM, _>(m, |c, p| {
        let who = c.who();
        command(c, p.id, move |reply| Cmd::Release { who, reply })
    })?;
    Ok(())
}
