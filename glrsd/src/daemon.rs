//! The daemon: what belongs to the process as a whole, its start and its end.
//!
//! Owns: serving the socket, the table of connections, signals, draining. Listens only when it can
//! serve; a stop settles what runs, tells clients why, and ends by itself.

use crate::host::process::{PATIENCE, farewells};
use crate::host::{Env, Paths, clock, random};
use crate::net::conn::{Conn, Counters, read};
use crate::net::socket;
use crate::registry::Registry;
use crate::rpc::Peer;
use crate::session::{Cmd, Who};
use futures_util::FutureExt;
use glrs_protocol::frame::{self, MAX_CLIENTS};
use glrs_protocol::params::{DaemonStatus, Metrics};
use glrs_protocol::types::{ClientRow, DaemonInfo, StateName};
use glrs_protocol::{ErrorKind, RpcError};
use interprocess::local_socket::tokio::{Listener, Stream};
use interprocess::local_socket::traits::StreamCommon as _;
use interprocess::local_socket::traits::tokio::Listener as _;
use jsonrpsee::RpcModule;
use std::collections::HashMap;
use std::panic::AssertUnwindSafe;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// How long running steps may take to end while draining.
const DRAIN: Duration = Duration::from_secs(30);
/// How long sessions may take to settle once nothing is waited for.
const FORCE: Duration = Duration::from_secs(5);
/// How long clients may take to read why it ends.
const GOODBYE: Duration = Duration::from_millis(500);

/// The process.
pub struct Daemon {
    /// What it tells of itself.
    pub info: DaemonInfo,
    /// Its sessions.
    pub registry: Arc<Registry>,
    /// Its methods.
    pub methods: RpcModule<()>,
    /// Its own environment: where `catalog/models` looks for keys.
    pub env: Arc<Env>,
    paths: Paths,
    started: Instant,
    counters: Counters,
    peers: Mutex<HashMap<u64, Arc<Peer>>>,
    next_client: AtomicU64,
    draining: AtomicBool,
    /// First cancelled: stop accepting and drain. Second: stop now.
    drain: CancellationToken,
    now: CancellationToken,
}

impl Daemon {
    /// Makes the daemon of a registry.
    ///
    /// # Errors
    /// When the method table is at odds with itself.
    pub fn new(registry: Arc<Registry>, paths: Paths, env: Env) -> Result<Arc<Self>, String> {
        Ok(Arc::new(Self {
            info: DaemonInfo {
                version: env!("CARGO_PKG_VERSION").into(),
                pid: std::process::id(),
                boot_id: random::word(),
                started_at: clock::now(),
            },
            registry,
            methods: crate::rpc::module()?,
            env: Arc::new(env),
            paths,
            started: Instant::now(),
            counters: Counters::default(),
            peers: Mutex::default(),
            next_client: AtomicU64::new(1),
            draining: AtomicBool::new(false),
            drain: CancellationToken::new(),
            now: CancellationToken::new(),
        }))
    }

    fn peers(&self) -> MutexGuard<'_, HashMap<u64, Arc<Peer>>> {
        self.peers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How it does.
    pub fn status(&self) -> DaemonStatus {
        let handles = self.registry.handles();
        DaemonStatus {
            daemon: self.info.clone(),
            data_dir: self.paths.root.display().to_string(),
            socket: self.paths.socket.display().to_string(),
            clients: self.peers().len() as u64,
            running: handles.iter().filter_map(|h| h.info()).filter(|i| i.state == StateName::Running).count() as u64,
            loaded: handles.len() as u64,
            draining: self.draining.load(Ordering::Relaxed),
            sandbox: crate::host::sandbox::available(),
        }
    }

    /// Figures for monitoring.
    pub fn metrics(&self) -> Metrics {
        Metrics {
            rss: crate::host::figures::rss(),
            clients: self.peers().len() as u64,
            sessions: self.registry.handles().len() as u64,
            queue_rows: self.registry.handles().iter().filter_map(|h| h.info()).map(|i| i.queued).sum(),
            bytes_out: self.counters.bytes_out.load(Ordering::Relaxed),
            bytes_in: self.counters.bytes_in.load(Ordering::Relaxed),
            lagged: self.counters.lagged.load(Ordering::Relaxed),
            uptime: self.started.elapsed().as_secs(),
            fds: crate::host::figures::open_fds(),
        }
    }

    /// Who is connected.
    pub fn clients(&self) -> Vec<ClientRow> {
        let mut rows: Vec<ClientRow> = self
            .peers()
            .values()
            .filter_map(|p| {
                Some(ClientRow {
                    client_id: p.conn.id,
                    client: p.ident.get()?.clone(),
                    connected_at: p.connected_at.clone(),
                    attached: p.conn.attached(),
                })
            })
            .collect();
        rows.sort_by_key(|r| r.client_id);
        rows
    }

    /// Asks it to stop: first (or without `drain`, at once) gently, then now.
    pub fn stop(&self, drain: bool) {
        if !drain || self.drain.is_cancelled() {
            self.now.cancel();
        }
        self.drain.cancel();
    }

    /// Serves until it is told to stop. The socket's name is removed then, if it is `ours`.
    pub async fn serve(self: &Arc<Self>, listener: Listener, ours: bool) {
        let mut ours = ours;
        let mut watch = crate::net::socket::Watch::new(&self.paths.socket);
        let mut listener = listener;
        loop {
            tokio::select! {
                () = self.drain.cancelled() => break,
                accepted = listener.accept() => match accepted {
                    Ok(stream) => self.welcome(stream),
                    Err(e) => {
                        tracing::warn!(error = %e, "a connection could not be accepted");
                        // Out of descriptors: the next accept would fail at once as well.
                        tokio::time::sleep(Duration::from_millis(100)).await;
                    }
                },
                () = watch.gone() => match socket::bind(&self.paths.socket) {
                    Ok(l) => {
                        tracing::warn!("the socket was removed; it was made again");
                        (listener, ours) = (l, true);
                        watch = crate::net::socket::Watch::new(&self.paths.socket);
                    }
                    Err(e) => {
                        tracing::error!(error = %e, "the socket was removed and cannot be made again");
                        watch = crate::net::socket::Watch::never();
                    }
                },
            }
        }
        drop(listener);
        if ours {
            let _ = std::fs::remove_file(&self.paths.socket);
        }
        crate::host::service::notify(&self.env, "STOPPING=1");
        self.wind_up().await;
    }

    /// Settles every session, tells clients why, and waits for both, bounded.
    async fn wind_up(&self) {
        self.draining.store(true, Ordering::Relaxed);
        let settle = async |drain: bool| {
            let handles = self.registry.handles();
            for h in &handles {
                let _ = h.tx.send(Box::new(Cmd::Stop { drain, why: "the daemon is stopping".into() })).await;
            }
            for h in handles {
                h.tx.closed().await;
            }
        };
        tokio::select! {
            biased;
            () = self.now.cancelled() => {}
            () = settle(true) => {}
            () = tokio::time::sleep(DRAIN) => {}
        }
        // Whatever is left, and whatever was loaded meanwhile. What was acknowledged is on disk
        // already, so a session that hangs keeps nobody waiting for long.
        let _ = tokio::time::timeout(FORCE, settle(false)).await;
        let conns: Vec<Arc<Peer>> = self.peers().values().cloned().collect();
        for p in &conns {
            p.conn.close();
        }
        drop(conns);
        let flushed = async {
            while !self.peers().is_empty() {
                tokio::task::yield_now().await;
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        let _ = tokio::time::timeout(GOODBYE, flushed).await;
        // Commands that were broken may tidy up, unless someone is in a hurry.
        let most = if self.now.is_cancelled() { GOODBYE } else { PATIENCE + GOODBYE };
        tokio::select! {
            () = farewells(most) => {}
            () = self.now.cancelled(), if !self.now.is_cancelled() => {}
        }
    }

    fn welcome(self: &Arc<Self>, stream: Stream) {
        if let Err(why) = same_user(&stream) {
            tracing::warn!(why, "a connection was refused");
            return;
        }
        let full = self.peers().len() >= MAX_CLIENTS;
        let id = self.next_client.fetch_add(1, Ordering::Relaxed);
        let conn = Conn::new(id);
        let peer = Arc::new(Peer {
            daemon: self.clone(),
            conn: conn.clone(),
            ident: OnceLock::new(),
            connected_at: clock::now(),
        });
        if full {
            let e = RpcError::new(
                ErrorKind::Limit { what: "clients".into(), max: MAX_CLIENTS as u64 },
                format!("{MAX_CLIENTS} clients are connected: close some"),
            );
            conn.reply(frame::encode_err(None, &e).into());
            conn.close();
        }
        self.peers().insert(id, peer.clone());
        let daemon = self.clone();
        let stream = Arc::new(stream);
        let now = self.now.clone();
        tokio::spawn(async move {
            let reading = async {
                if !full {
                    read(&*stream, &conn, &peer, &daemon.counters).await;
                }
                conn.close();
            };
            let writing = conn.write(&*stream, &daemon.counters);
            let both = async {
                tokio::pin!(reading, writing);
                tokio::select! {
                    () = &mut writing => {}
                    () = &mut reading => writing.await,
                }
            };
            tokio::select! {
                // A fault in one connection ends that connection.
                _ = AssertUnwindSafe(both).catch_unwind() => {}
                () = async { now.cancelled().await; tokio::time::sleep(GOODBYE).await } => {}
            }
            daemon.farewell(&peer).await;
        });
    }

    async fn farewell(&self, peer: &Arc<Peer>) {
        let id = peer.conn.id;
        let name = peer.ident.get().map_or("client", |i| i.name.as_str());
        let who = Who { client: id, by: format!("{name}#{id}") };
        self.peers().remove(&id);
        // Only sessions that know it are told: telling one that does not would keep it in memory.
        for session in peer.conn.forget() {
            if let Some(h) = self.registry.live(&session) {
                let _ = h.tx.send(Box::new(Cmd::Detach { who: who.clone() })).await;
            }
        }
    }
}

fn same_user(stream: &Stream) -> Result<(), &'static str> {
    let creds = stream.peer_creds().map_err(|_| "the peer's user is not known")?;
    match creds.euid() {
        Some(uid) if uid != rustix::process::getuid().as_raw() => Err("it is another user's"),
        _ => Ok(()),
    }
}
