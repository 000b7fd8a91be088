//! What the terminal asks of the daemon: one value per request, one per answer.
//!
//! Owns the calls behind keys and commands. They run beside the terminal; only their answers come
//! back into it.

use super::complete;
use crate::client::{CallError, Client, Events};
use crate::connect::ConnectOptions;
use crate::export::{ExportError, export_to};
use glrs_protocol::SessionId;
use glrs_protocol::entry::Attachment;
use glrs_protocol::error::ErrorKind;
use glrs_protocol::methods::m;
use glrs_protocol::params::*;
use glrs_protocol::types::{Decision, Mode, ModelRow, NumberedEntry, SendMode, SessionInfo};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// A request.
#[derive(Clone, Debug)]
pub enum Call {
    /// Send a message.
    Send(Send),
    /// Run a command.
    Shell(Shell),
    /// Stop the turn.
    Interrupt,
    /// Let a held queue go.
    Release,
    /// Take a waiting row back into the composer.
    TakeBack {
        /// The row.
        row: u64,
        /// The version that was seen.
        version: u64,
        /// Its text.
        text: String,
    },
    /// Answer a request.
    Answer {
        /// The request.
        request: String,
        /// The answer.
        decision: Decision,
        /// Words with it.
        words: Option<String>,
    },
    /// Change model and variant.
    Model(String, Option<String>),
    /// Change the mode.
    Mode(Mode),
    /// Give a title.
    Rename(String),
    /// Delete the session.
    Delete,
    /// Copy the session.
    Fork {
        /// Last entry that is copied.
        at: Option<u64>,
        /// The copy's first prompt.
        directive: Option<String>,
    },
    /// Restart the context.
    Clear,
    /// Summarise the older part.
    Compact(Option<String>),
    /// What compactions replaced.
    Artifacts,
    /// Go back, or say what that would change.
    Rewind(Rewind),
    /// Go to a new session.
    New,
    /// Go to this session.
    Open(SessionId),
    /// Go to the session of this title.
    OpenTitle(String),
    /// What is known of the session.
    Info,
    /// Which models there are.
    Models,
    /// Write the session to a file.
    Export(PathBuf),
    /// This directory's recent sessions.
    Recent,
    /// The prompt history.
    Prompts,
    /// Add to the prompt history.
    Remember(String),
    /// Attach again on this connection.
    Reattach(Attach),
    /// Fetch entries that a snapshot left out.
    Fill(u64, u64),
    /// Find the daemon again and attach.
    Reconnect(Attach),
}

/// An answer.
pub enum Reply {
    /// Nothing to show: an event tells the rest.
    Done,
    /// A message was sent and where it is.
    Sent(SendResult),
    /// A message could not be sent; it comes back, or is sent again with its key.
    NotSent(Send, CallError),
    /// A row came back.
    TakenBack(String),
    /// Something to show.
    Told(String),
    /// It failed.
    Failed(String),
    /// What a rewind would change.
    Preview(Rewind, RewindResult),
    /// A rewind was done.
    Rewound(RewindResult),
    /// The models.
    Models(Vec<ModelRow>, String),
    /// What is known of the session.
    Info(Box<SessionInfo>),
    /// Recent sessions.
    Recent(Vec<SessionInfo>),
    /// The prompt history.
    Prompts(Vec<String>),
    /// A snapshot of the session we were attached to.
    Reattached(Box<Snapshot>),
    /// A snapshot of another session.
    Switched(Box<Snapshot>),
    /// Entries that were missing.
    Filled(Vec<NumberedEntry>),
    /// Attaching failed.
    NotAttached(CallError),
    /// A new connection, attached.
    Reconnected(Box<(Client, Events, Snapshot)>),
    /// Still no connection.
    StillLost(String),
    /// The session was deleted by us.
    Deleted,
}

/// What calls need besides the connection.
#[derive(Clone)]
pub struct Around {
    /// How to connect again.
    pub options: ConnectOptions,
    /// The caller's environment.
    pub env: BTreeMap<String, String>,
    /// Look only.
    pub read_only: bool,
}

/// The first attach.
pub fn first_attach(id: SessionId, tail: Option<u32>, around: &Around) -> Attach {
    let env = (!around.read_only).then(|| around.env.clone());
    Attach { id, after: None, after_entry: None, tail, read_only: around.read_only, env }
}

/// Does it.
pub async fn perform(client: Client, session: SessionInfo, around: Around, call: Call) -> Reply {
    let id = session.id.clone();
    let failed = |e: CallError| Reply::Failed(e.to_string());
    match call {
        Call::Send(mut send) => {
            let files = complete::mentioned(&send.text, Path::new(&session.cwd));
            send.attachments =
                files.into_iter().map(|path| Attachment { path, media_type: None, data: None }).collect();
            match client.call::<m::SessionSendM>(&send).await {
                Ok(sent) => Reply::Sent(sent),
                Err(e) => Reply::NotSent(send, e),
            }
        }
        Call::Shell(params) => client.call::<m::SessionShellM>(&params).await.map_or_else(failed, |_| Reply::Done),
        Call::Interrupt => client.call::<m::SessionInterruptM>(&Id { id }).await.map_or_else(failed, |_| Reply::Done),
        Call::Release => client.call::<m::SessionReleaseM>(&Id { id }).await.map_or_else(failed, |_| Reply::Done),
        Call::TakeBack { row, version, text } => {
            let params = QueueRemove { id, row, version };
            client.call::<m::QueueRemoveM>(&params).await.map_or_else(failed, |_| Reply::TakenBack(text))
        }
        Call::Answer { request, decision, words } => {
            match client.call::<m::RequestAnswerM>(&Answer { id, request, decision, words }).await {
                Ok(_) => Reply::Done,
                Err(e) => match e.kind() {
                    ErrorKind::AlreadyResolved { by } => Reply::Told(format!("{by} answered first")),
                    _ => failed(e),
                },
            }
        }
        Call::Model(model, variant) => {
            let params = SessionSet { id, model: Some(model), variant, mode: None, title: None, cwd: None };
            client.call::<m::SessionSetM>(&params).await.map_or_else(failed, |_| Reply::Done)
        }
        Call::Mode(mode) => {
            let params = SessionSet { id, model: None, variant: None, mode: Some(mode), title: None, cwd: None };
            client.call::<m::SessionSetM>(&params).await.map_or_else(failed, |_| Reply::Done)
        }
        Call::Rename(title) => {
            client.call::<m::SessionRenameM>(&SessionRename { id, title }).await.map_or_else(failed, |_| Reply::Done)
        }
        Call::Delete => client
            .call::<m::SessionDeleteM>(&SessionDelete { id, force: true })
            .await
            .map_or_else(failed, |_| Reply::Deleted),
        Call::Fork { at, directive } => fork(&client, id, at, directive).await.map_or_else(failed, Reply::Told),
        Call::Clear => {
            let key = Some(new_key());
            client.call::<m::SessionClearM>(&Clear { id, key }).await.map_or_else(failed, |_| Reply::Done)
        }
        Call::Compact(instruction) => {
            let params = Compact { id, instruction, key: Some(new_key()) };
            match client.call::<m::SessionCompactM>(&params).await {
                // The notice is an entry when something was done.
                Ok(r) if r.outcome == "nothing" => Reply::Told(r.notice),
                Ok(_) => Reply::Done,
                Err(e) => failed(e),
            }
        }
        Call::Artifacts => {
            client.call::<m::ArtifactsListM>(&Id { id }).await.map_or_else(failed, |l| Reply::Told(artifacts(&l)))
        }
        Call::Rewind(params) => match client.call::<m::SessionRewindM>(&params).await {
            Ok(r) if params.preview => Reply::Preview(params, r),
            Ok(r) => Reply::Rewound(r),
            Err(e) => failed(e),
        },
        Call::New => {
            let params = SessionNew {
                cwd: session.cwd.clone(),
                id: None,
                model: None,
                variant: None,
                mode: None,
                env: Some(around.env.clone()),
            };
            match client.call::<m::SessionNewM>(&params).await {
                Ok(made) => switch(&client, &id, made.session.id, &around).await,
                Err(e) => failed(e),
            }
        }
        Call::Open(other) => switch(&client, &id, other, &around).await,
        Call::OpenTitle(title) => {
            let params =
                SessionResume { id: None, title: Some(title), last: false, cwd: Some(session.cwd.clone()), env: None };
            match client.call::<m::SessionResumeM>(&params).await {
                Ok(found) => switch(&client, &id, found.session.id, &around).await,
                Err(e) => Reply::Failed(crate::cli::failure::Failure::from(e).message),
            }
        }
        Call::Info => {
            client.call::<m::SessionInfoM>(&Id { id }).await.map_or_else(failed, |r| Reply::Info(Box::new(r.session)))
        }
        Call::Models => client
            .call::<m::CatalogModelsM>(&CatalogModels { cwd: Some(session.cwd.clone()), env: Some(around.env.clone()) })
            .await
            .map_or_else(failed, |l| Reply::Models(l.models, l.default)),
        Call::Export(path) => export(&client, id, &path).await.map_or_else(Reply::Failed, Reply::Told),
        Call::Recent => {
            let params = SessionList {
                cwd: Some(session.cwd.clone()),
                query: None,
                state: None,
                children: None,
                limit: Some(5),
                cursor: None,
            };
            // Only a help: where it fails there is nothing to say.
            client.call::<m::SessionListM>(&params).await.map_or(Reply::Done, |l| Reply::Recent(l.sessions))
        }
        Call::Prompts => {
            client.call::<m::PromptsListM>(&Empty {}).await.map_or(Reply::Done, |p| Reply::Prompts(p.prompts))
        }
        Call::Remember(text) => {
            // The message itself is safe; losing it from the history is no trouble.
            let _ = client.call::<m::PromptsPushM>(&PromptPush { text }).await;
            Reply::Done
        }
        Call::Reattach(params) => match client.call::<m::SessionAttachM>(&params).await {
            Ok(s) => Reply::Reattached(Box::new(s)),
            Err(e) => Reply::NotAttached(e),
        },
        Call::Fill(from, to) => fill(&client, id, from, to).await,
        Call::Reconnect(params) => reconnect(&around, params, &session).await,
    }
}

/// Artifacts as lines for people.
fn artifacts(list: &ArtifactList) -> String {
    if list.artifacts.is_empty() {
        return "nothing was compacted in this session yet".to_owned();
    }
    let lines: Vec<String> = list
        .artifacts
        .iter()
        .map(|a| format!("{}  {} · {} messages", a.artifact, crate::text::one_line(&a.label), a.messages))
        .collect();
    lines.join("\n")
}

/// A key that makes repeating a call safe.
pub fn new_key() -> String {
    uuid::Uuid::now_v7().to_string()
}

/// A message for a session.
pub fn message(id: SessionId, text: String, mode: SendMode) -> Send {
    Send { id, text, attachments: Vec::new(), mode, key: Some(new_key()) }
}

async fn fork(client: &Client, id: SessionId, at: Option<u64>, directive: Option<String>) -> Result<String, CallError> {
    let copy = client.call::<m::SessionForkM>(&Fork { id, at, new_id: None }).await?.session;
    if let Some(text) = directive {
        client.call::<m::SessionSendM>(&message(copy.id.clone(), text, SendMode::Queue)).await?;
    }
    Ok(format!("forked: glrs --resume {}", copy.id))
}

/// Attaches to another session and leaves the one before. In this order: a session that cannot
/// be opened costs nothing.
async fn switch(client: &Client, from: &SessionId, to: SessionId, around: &Around) -> Reply {
    let snapshot = match client.call::<m::SessionAttachM>(&first_attach(to.clone(), None, around)).await {
        Ok(s) => s,
        Err(e) => return Reply::NotAttached(e),
    };
    if *from != to {
        // A session that is gone needs no leaving.
        let _ = client.call::<m::SessionDetachM>(&Id { id: from.clone() }).await;
    }
    Reply::Switched(Box::new(snapshot))
}

async fn fill(client: &Client, id: SessionId, from: u64, to: u64) -> Reply {
    let mut out: Vec<NumberedEntry> = Vec::new();
    let mut next = from;
    while next <= to {
        let params = Entries { id: id.clone(), from: i64::try_from(next).ok(), limit: None };
        match client.call::<m::SessionEntriesM>(&params).await {
            Ok(got) if got.entries.is_empty() => break,
            Ok(got) => {
                next = got.entries.last().map_or(to, |e| e.n) + 1;
                out.extend(got.entries.into_iter().filter(|e| e.n <= to));
            }
            Err(e) => return Reply::NotAttached(e),
        }
    }
    Reply::Filled(out)
}

async fn reconnect(around: &Around, params: Attach, session: &SessionInfo) -> Reply {
    let once = async || -> Result<(Client, Events, Snapshot), String> {
        let client = Client::connect(&around.options).await.map_err(|e| e.to_string())?;
        let events = client.events().await.map_err(|e| e.to_string())?;
        let attach = Attach { env: (!around.read_only).then(|| around.env.clone()), ..params.clone() };
        match client.call::<m::SessionAttachM>(&attach).await {
            Ok(s) => Ok((client, events, s)),
            // Nothing was said in it, so no daemon but the one that is gone knew it.
            Err(e) if e.kind() == ErrorKind::NotFound && !session.saved => {
                let new = SessionNew {
                    cwd: session.cwd.clone(),
                    id: Some(session.id.clone()),
                    model: Some(session.model.clone()),
                    variant: session.variant.clone(),
                    mode: Some(session.mode),
                    env: Some(around.env.clone()),
                };
                client.call::<m::SessionNewM>(&new).await.map_err(|e| e.to_string())?;
                let s = client.call::<m::SessionAttachM>(&attach).await.map_err(|e| e.to_string())?;
                Ok((client, events, s))
            }
            Err(e) => Err(e.to_string()),
        }
    };
    match once().await {
        Ok(all) => Reply::Reconnected(Box::new(all)),
        Err(why) => {
            // Not in a circle as fast as the machine can.
            tokio::time::sleep(Duration::from_millis(700)).await;
            Reply::StillLost(why)
        }
    }
}

async fn export(client: &Client, id: SessionId, path: &Path) -> Result<String, String> {
    let json = path.extension().is_some_and(|e| e == "json");
    match export_to(client, &id, if json { "json" } else { "markdown" }, path).await {
        Ok(()) => Ok(format!("written to {}", path.display())),
        Err(ExportError::Write(e)) => Err(format!("cannot write {}: {e}", path.display())),
        Err(ExportError::Call(e)) => Err(e.to_string()),
    }
}
