//! Looking at a session's working directory and all else a turn needs to know of its disk.
//!
//! Owns that this happens in one go, away from the actor, and for a bounded time: a directory that
//! does not answer (a dead mount) fails the turn that wants to work in it and keeps nobody else.

use super::Shared;
use super::actor::Actor;
use super::queue::Waiting;
use crate::config::Loaded;
use crate::host::{Env, Paths, reach, worker};
use crate::policy::Around;
use crate::turn::surroundings::Surroundings;
use crate::turn::{attach, prompt};
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use glrs_protocol::entry::Attachment;
use glrs_protocol::{RpcError, SessionId};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

/// How long reading what came with messages may take: images are large. Esc ends the wait.
const READING: Duration = Duration::from_secs(60);

/// A look that was begun; none comes of it when the disk does not answer.
pub(super) type Look = BoxFuture<'static, Option<Surroundings>>;

/// What is to be looked at.
struct Looking {
    shared: Arc<Shared>,
    id: SessionId,
    cwd: PathBuf,
    env: Arc<Env>,
    attachments: Vec<Vec<Attachment>>,
}

impl Looking {
    fn now(self) -> Surroundings {
        let cwd = &self.cwd;
        let here = cwd.is_dir();
        let config = self.shared.configuration(cwd, &self.env);
        let instructions = prompt::instructions(&config.root, cwd);
        let mut room = attach::IMAGES_MAX;
        Surroundings {
            here,
            instructions,
            artifacts: self.shared.store.artifact_names(&self.id).map_or(0, |names| names.len()),
            taken: self.attachments.iter().map(|a| attach::read(cwd, a, &mut room)).collect(),
            config,
        }
    }
}

/// What rules count from in a turn. Looked at once, when a call is first judged: most turns judge none.
pub(super) struct Place {
    shared: Arc<Shared>,
    pub cwd: PathBuf,
    env: Arc<Env>,
    around: OnceLock<Around>,
}

impl Place {
    /// See [`Around`].
    pub fn around(&self) -> &Around {
        let look = || self.around.get_or_init(|| around(&self.cwd, &self.env, &self.shared.paths));
        self.around.get().unwrap_or_else(|| worker::aside(look))
    }
}

/// The place of a running turn. It is another one once someone brings an environment: after a restart
/// there is none, and with it no home that rules count from.
pub(super) struct Placed(Mutex<Arc<Place>>);

impl Placed {
    pub fn new(place: Arc<Place>) -> Arc<Self> {
        Arc::new(Self(Mutex::new(place)))
    }

    pub fn get(&self) -> Arc<Place> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub fn set(&self, place: Arc<Place>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = place;
    }
}

/// Our own configuration and data decide what runs unasked, wherever they lie: they are guarded.
fn around(cwd: &Path, env: &Env, paths: &Paths) -> Around {
    let real = |path: &Path| path.canonicalize().unwrap_or_else(|_| path.to_path_buf());
    let home = env.get("HOME").map(PathBuf::from).filter(|h| h.is_absolute());
    let mut homes: Vec<PathBuf> = home.into_iter().flat_map(|h| [real(&h), h]).collect();
    homes.dedup();
    let mut guarded = vec![real(&paths.root)];
    if let (Some(dir), Some(name)) = (paths.config.parent().map(real), paths.config.file_name()) {
        // Who works in that directory is not to be asked about each file in it.
        guarded.push(if cwd.starts_with(&dir) { dir.join(name) } else { dir });
    }
    // The file itself may be a link, as with those who keep such files elsewhere.
    guarded.push(real(&paths.config));
    Around { cwd: cwd.to_path_buf(), homes, guarded }
}

/// What came with messages, read now. The bytes go into the conversation itself: what becomes of the
/// files afterwards changes nothing.
pub(super) async fn taken_along(cwd: PathBuf, rows: &[Waiting]) -> Vec<Vec<attach::Taken>> {
    if rows.iter().all(|w| w.row.attachments.is_empty()) {
        return Vec::new();
    }
    let all: Vec<Vec<Attachment>> = rows.iter().map(|w| w.row.attachments.clone()).collect();
    let unread = all.iter().map(|a| a.iter().map(|a| attach::Taken::unread(&a.path)).collect()).collect();
    let from = cwd.clone();
    let read = reach::within(&cwd, reach::PATIENCE, move || {
        let mut room = attach::IMAGES_MAX;
        all.iter().map(|a| attach::read(&from, a, &mut room)).collect()
    });
    read.await.unwrap_or(unread)
}

/// Whether what comes with a message can go along.
pub(super) async fn check_attachments(cwd: PathBuf, attachments: &[Attachment]) -> Result<(), RpcError> {
    if attachments.is_empty() {
        return Ok(());
    }
    let attachments = attachments.to_vec();
    let checked = reach::within(&cwd, reach::PATIENCE, {
        let cwd = cwd.clone();
        move || attach::check(&cwd, &attachments)
    });
    checked.await.ok_or_else(|| silent(&cwd))?.map_err(RpcError::from)
}

/// The directory that a name leads to, canonical, looked at from another one.
///
/// # Errors
/// `invalid_params` where there is none, or it does not answer.
pub(crate) async fn directory(from: &Path, name: &Path) -> Result<PathBuf, RpcError> {
    let path = from.join(name);
    let found = reach::within(&path, reach::PATIENCE, {
        let path = path.clone();
        move || directory_now(&path)
    });
    found.await.ok_or_else(|| silent(&path))?
}

/// The same, for those who may wait for the disk.
pub(crate) fn directory_now(path: &Path) -> Result<PathBuf, RpcError> {
    let shown = path.display();
    match path.canonicalize() {
        Ok(dir) if dir.is_dir() => Ok(dir),
        Ok(_) => Err(RpcError::params(format!("{shown} is no directory"))),
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => {
            Err(RpcError::params(format!("{shown} does not exist: give an existing directory")))
        }
        Err(e) => Err(RpcError::params(format!("{shown}: {e}"))),
    }
}

/// Why nothing can be done with a place that does not answer.
pub(crate) fn silent(path: &Path) -> RpcError {
    RpcError::params(silence(path))
}

/// The same, for people.
pub(super) fn silence(path: &Path) -> String {
    format!("{} does not answer: its disk or mount is away or very slow", path.display())
}

impl Shared {
    /// The configuration of a directory; none comes where it does not answer.
    pub(crate) async fn configuration_within(self: &Arc<Self>, cwd: &Path, env: &Arc<Env>) -> Option<Arc<Loaded>> {
        let (shared, dir, env) = (self.clone(), cwd.to_path_buf(), env.clone());
        reach::within(cwd, reach::PATIENCE, move || shared.configuration(&dir, &env)).await
    }
}

impl Actor {
    /// Where the session works.
    pub(super) fn place(&self) -> Arc<Place> {
        self.place_at(self.cwd.clone())
    }

    fn place_at(&self, cwd: PathBuf) -> Arc<Place> {
        Arc::new(Place { shared: self.shared.clone(), cwd, env: self.env.clone(), around: OnceLock::new() })
    }

    /// Someone brought an environment.
    pub(super) fn env_came(&mut self, env: Env) {
        self.env = self.shared.envs.share(env);
        self.toolbox.env_came(&self.env);
        if let Some(r) = &self.running {
            r.place.set(self.place_at(r.place.get().cwd.clone()));
        }
    }

    /// Begins a look for a turn of these messages: the earlier, the less is waited for it.
    pub(super) fn look(&self, rows: &[Waiting]) -> Look {
        let looking = Looking {
            shared: self.shared.clone(),
            id: self.id.clone(),
            cwd: self.cwd.clone(),
            env: self.env.clone(),
            attachments: rows.iter().map(|w| w.row.attachments.clone()).collect(),
        };
        let reads = rows.iter().any(|w| !w.row.attachments.is_empty());
        reach::begin(&self.cwd, if reads { READING } else { reach::PATIENCE }, move || looking.now()).boxed()
    }
}
