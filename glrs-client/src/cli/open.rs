//! Opening a session: new, by id, by title, the last one, or a copy.
//!
//! Owns the rule what is an id and what a title on the command line, and the calls for each way.
//! The daemon finds; nothing is searched here.

use super::Ctx;
use super::args::{Open, Plan};
use super::failure::{Exit, Failure};
use crate::client::Client;
use glrs_protocol::SessionId;
use glrs_protocol::error::ErrorKind;
use glrs_protocol::methods::m;
use glrs_protocol::params::{Fork, Id, SessionNew, SessionResume, SessionSet};
use glrs_protocol::types::SessionInfo;

/// A session as somebody names it.
#[derive(Clone, Debug, PartialEq)]
pub enum Target {
    /// By id.
    Id(SessionId),
    /// By a title of the directory.
    Title(String),
}

impl Target {
    /// A UUID or 8 hex digits are only ever an id; everything else is a title.
    ///
    /// # Errors
    /// When it is blank.
    pub fn parse(text: &str) -> Result<Self, Failure> {
        if text.trim().is_empty() {
            return Err(Failure::usage("a session's id or title cannot be blank"));
        }
        Ok(text.parse().map_or_else(|_| Self::Title(text.trim().to_owned()), Self::Id))
    }
}

/// Finds a session without taking anything from the caller.
///
/// # Errors
/// When there is none, or several fit.
pub async fn resolve(client: &Client, cwd: &str, target: &Target) -> Result<SessionInfo, Failure> {
    match target {
        Target::Id(id) => Ok(client.call::<m::SessionInfoM>(&Id { id: id.clone() }).await?.session),
        Target::Title(title) => {
            let params = SessionResume {
                id: None,
                title: Some(title.clone()),
                last: false,
                cwd: Some(cwd.to_owned()),
                env: None,
            };
            Ok(client.call::<m::SessionResumeM>(&params).await?.session)
        }
    }
}

/// Opens the session that the flags ask for, with the caller's environment.
///
/// # Errors
/// When there is none, several fit, or the id is taken.
pub async fn open(ctx: &Ctx, client: &Client, plan: &Plan, cwd: &str) -> Result<SessionInfo, Failure> {
    let resume =
        |id, title, last| SessionResume { id, title, last, cwd: Some(cwd.to_owned()), env: Some(ctx.session_env()) };
    let params = match &plan.open {
        Open::New(id) => return new(ctx, client, plan, cwd, id.clone()).await,
        Open::Resume(Target::Id(id)) => resume(Some(id.clone()), None, false),
        Open::Resume(Target::Title(title)) => resume(None, Some(title.clone()), false),
        Open::Last => resume(None, None, true),
        Open::Pick => return Err(Failure::usage("--resume needs an id or a title here")),
    };
    let found = client.call::<m::SessionResumeM>(&params).await.map_err(|e| {
        if plan.open == Open::Last && e.kind() == ErrorKind::NotFound {
            return Failure::no_session(format!("no session in {cwd} yet: `glrs` begins one"));
        }
        Failure::from(e)
    })?;
    refine(ctx, client, plan, found.session).await
}

async fn new(
    ctx: &Ctx,
    client: &Client,
    plan: &Plan,
    cwd: &str,
    id: Option<SessionId>,
) -> Result<SessionInfo, Failure> {
    let params = SessionNew {
        cwd: cwd.to_owned(),
        id: id.clone(),
        model: plan.model.clone(),
        variant: plan.variant.clone(),
        mode: plan.mode,
        env: Some(ctx.session_env()),
    };
    let made = client.call::<m::SessionNewM>(&params).await.map_err(|e| taken(e, id.as_ref()))?.session;
    if made.saved && id.is_some() {
        return Err(Failure::usage(format!("the id {} is taken: `glrs --resume {}` opens it", made.id, made.id)));
    }
    Ok(made)
}

fn taken(e: crate::client::CallError, id: Option<&SessionId>) -> Failure {
    match id {
        Some(id) if e.kind() == ErrorKind::Conflict => {
            Failure { exit: Exit::Usage, message: format!("the id {id} is taken: `glrs --resume {id}` opens it") }
        }
        _ => e.into(),
    }
}

/// Copies what was found if that is asked for, and changes what flags change.
///
/// # Errors
/// When the daemon refuses.
pub async fn refine(ctx: &Ctx, client: &Client, plan: &Plan, found: SessionInfo) -> Result<SessionInfo, Failure> {
    let mut session = found;
    if let Some(new_id) = &plan.fork {
        let params = Fork { id: session.id.clone(), at: None, new_id: new_id.clone() };
        session = client.call::<m::SessionForkM>(&params).await.map_err(|e| taken(e, new_id.as_ref()))?.session;
        // The copy is another session: it has this caller's environment only when told.
        let params = SessionResume {
            id: Some(session.id.clone()),
            title: None,
            last: false,
            cwd: None,
            env: Some(ctx.session_env()),
        };
        session = client.call::<m::SessionResumeM>(&params).await?.session;
    }
    if plan.model.is_some() || plan.variant.is_some() || plan.mode.is_some() {
        let params = SessionSet {
            id: session.id.clone(),
            model: plan.model.clone(),
            variant: plan.variant.clone(),
            mode: plan.mode,
            title: None,
            cwd: None,
        };
        session = client.call::<m::SessionSetM>(&params).await?.session;
    }
    Ok(session)
}
