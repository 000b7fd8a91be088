//! The attached terminal: transcript in the terminal's own scrollback, a few lines at the bottom.
//!
//! Owns the loop that joins keys, the daemon's events, answers and time. What happens is decided
//! in [`app`] and its neighbours, which do no I/O; bytes go to the terminal in [`screen`] only.

pub mod app;
pub mod calls;
pub mod card;
pub mod commands;
pub mod complete;
pub mod composer;
pub mod diff;
pub mod draw;
pub mod keys;
pub mod lines;
pub mod markdown;
pub mod picker;
pub mod replies;
pub mod screen;
pub mod slash;
pub mod status;
pub mod style;
pub mod transcript;

use crate::cli::Ctx;
use crate::cli::failure::{Exit, Failure};
use crate::cli::output;
use crate::client::{Client, Events};
use app::{App, Leave};
use calls::{Around, Call, Reply};
use crossterm::event::{Event, EventStream, KeyCode, KeyModifiers};
use futures_util::StreamExt as _;
use glrs_protocol::SessionId;
use glrs_protocol::methods::m;
use glrs_protocol::types::SessionInfo;
use screen::{Modes, Screen};
use std::io;
use std::time::{Duration, Instant};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::task::JoinSet;

/// Frames of a stream of events are drawn this far apart at least; keys are drawn at once.
const FRAME: Duration = Duration::from_millis(30);
/// How often times that move are drawn.
const TICK: Duration = Duration::from_millis(250);
/// How long calls that are on their way may take when somebody leaves.
const FAREWELL: Duration = Duration::from_millis(500);

/// With what a terminal begins.
pub struct Begin {
    /// The session.
    pub session: SessionInfo,
    /// Begin with its last entries.
    pub tail: Option<u32>,
    /// Look only.
    pub read_only: bool,
}

/// Attaches the terminal to the session that `open` answers, until somebody leaves. The terminal
/// is ours before the session is there: what is typed meanwhile is not lost.
///
/// # Errors
/// When the session or the terminal cannot be had.
pub async fn run(ctx: &Ctx, open: impl Future<Output = Result<(Client, Begin), Failure>>) -> Result<Exit, Failure> {
    let mut signals = Signals::new()?;
    let modes = Modes::enter()?;
    let tmux = ctx.vars.contains_key(std::ffi::OsStr::new("TMUX"));
    let screen = Screen::new(ctx.colour, tmux)?;
    let mut keys = EventStream::new();
    let mut early = Vec::new();
    let begun = match opening(begin(ctx, open), &mut keys, &mut early, &mut signals).await {
        Some(Ok(begun)) => begun,
        other => {
            let _ = screen.finish();
            drop(modes);
            return other.map_or(Ok(Exit::Interrupted), |failed| failed.map(|_| Exit::Done));
        }
    };
    let Begun { client, events, around, mut app } = begun;
    let ended = attached(ctx, (client, events, around), (screen, keys, signals), early, &mut app).await;
    drop(modes);
    // Without a terminal nobody is left to tell.
    let Ok(exit) = ended else { return Ok(Exit::Done) };
    match &app.leave {
        Some(Leave::Deleted) => output::note("deleted"),
        Some(Leave::Lost(why)) => {
            return Err(Failure::error(format!("the session ended: {why}")));
        }
        _ if app.view.info.saved || !app.view.entries.is_empty() || app.view.running() => {
            output::note(&format!("glrs attach {}", app.view.id()));
        }
        _ => {}
    }
    Ok(exit)
}

struct Begun {
    client: Client,
    events: Events,
    around: Around,
    app: App,
}

async fn begin(ctx: &Ctx, open: impl Future<Output = Result<(Client, Begin), Failure>>) -> Result<Begun, Failure> {
    let (client, begin) = open.await?;
    let around = Around { options: ctx.options("terminal")?, env: ctx.session_env(), read_only: begin.read_only };
    let events = client.events().await?;
    let attach = calls::first_attach(begin.session.id.clone(), begin.tail, &around);
    let snapshot = client.call::<m::SessionAttachM>(&attach).await?;
    let mut app = App::new(snapshot, begin.read_only, name_of(&around, &client));
    app.calls.push(Call::Prompts);
    if let Some(skew) = client.skew() {
        app.note(skew, style::WARN);
    }
    Ok(Begun { client, events, around, app })
}

/// The signals that end us: the terminal is put back first.
struct Signals {
    term: Signal,
    hup: Signal,
}

impl Signals {
    fn new() -> io::Result<Self> {
        Ok(Self { term: signal(SignalKind::terminate())?, hup: signal(SignalKind::hangup())? })
    }

    /// How to end once one was heard.
    async fn heard(&mut self) -> Exit {
        tokio::select! {
            _ = self.term.recv() => Exit::Interrupted,
            _ = self.hup.recv() => Exit::Done,
        }
    }
}

/// Waits for the session and keeps what is typed meanwhile; `None` when somebody gives up first.
async fn opening<T>(
    open: impl Future<Output = T>,
    keys: &mut EventStream,
    early: &mut Vec<Event>,
    signals: &mut Signals,
) -> Option<T> {
    tokio::pin!(open);
    loop {
        tokio::select! {
            opened = &mut open => return Some(opened),
            _ = signals.heard() => return None,
            key = keys.next() => match key {
                Some(Ok(Event::Key(k)))
                    if k.modifiers.contains(KeyModifiers::CONTROL) && matches!(k.code, KeyCode::Char('c' | 'd')) =>
                {
                    return None;
                }
                // Far more than anybody types in that time; the rest is dropped.
                Some(Ok(event)) if early.len() < 4096 => early.push(event),
                Some(Ok(_)) => {}
                Some(Err(_)) | None => return None,
            },
        }
    }
}

/// Lets somebody pick a session; `None` when nobody did.
///
/// # Errors
/// When the daemon or the terminal fails.
pub async fn pick(ctx: &Ctx, client: &Client, cwd: &str) -> Result<Option<SessionId>, Failure> {
    let modes = Modes::enter()?;
    let mut keys = EventStream::new();
    let picked = picker::choose(client, cwd, &mut keys, ctx.colour).await;
    drop(modes);
    picked
}

fn name_of(around: &Around, client: &Client) -> String {
    format!("{}#{}", around.options.ident.name, client.daemon().client_id)
}

async fn attached(
    ctx: &Ctx,
    (client, events, around): (Client, Events, Around),
    (screen, keys, signals): (Screen, EventStream, Signals),
    early: Vec<Event>,
    app: &mut App,
) -> io::Result<Exit> {
    let mut terminal = Attached {
        client,
        events,
        around,
        screen,
        keys,
        jobs: JoinSet::new(),
        signals,
        colour: ctx.colour,
        drawn: None,
        due: Some(tokio::time::Instant::now()),
        exit: Exit::Done,
    };
    for event in early {
        terminal.key(app, event);
    }
    let ended = terminal.run(app).await;
    let Attached { screen, mut jobs, exit, .. } = terminal;
    let finished = screen.finish();
    // What was asked for just before leaving still goes out.
    let _ = tokio::time::timeout(FAREWELL, async { while jobs.join_next().await.is_some() {} }).await;
    ended.and(finished).map(|()| exit)
}

struct Attached {
    client: Client,
    events: Events,
    around: Around,
    screen: Screen,
    keys: EventStream,
    jobs: JoinSet<Reply>,
    signals: Signals,
    colour: bool,
    drawn: Option<Instant>,
    /// When the next frame is to be drawn.
    due: Option<tokio::time::Instant>,
    exit: Exit,
}

impl Attached {
    async fn run(&mut self, app: &mut App) -> io::Result<()> {
        loop {
            self.start_calls(app);
            if app.leave.is_some() {
                // Its last lines belong into the scrollback too.
                return self.draw(app);
            }
            if app.pick {
                self.pick(app).await;
                continue;
            }
            let ticking = status::ticks(&app.view) || app.lost.is_some();
            tokio::select! {
                key = self.keys.next() => match key {
                    Some(Ok(event)) => self.key(app, event),
                    Some(Err(_)) | None => app.leave = Some(Leave::Killed),
                },
                incoming = self.events.next() => {
                    app.incoming(incoming);
                    self.soon();
                }
                Some(done) = self.jobs.join_next(), if !self.jobs.is_empty() => {
                    if let Ok(reply) = done {
                        self.reply(app, reply);
                    }
                    self.soon();
                }
                exit = self.signals.heard() => {
                    app.leave = Some(Leave::Killed);
                    self.exit = exit;
                }
                () = tokio::time::sleep(TICK), if ticking && self.due.is_none() => self.soon(),
                () = until(self.due) => self.draw(app)?,
            }
        }
    }

    fn start_calls(&mut self, app: &mut App) {
        for call in app.calls.drain(..) {
            let (client, session, around) = (self.client.clone(), app.view.info.clone(), self.around.clone());
            self.jobs.spawn(calls::perform(client, session, around, call));
        }
    }

    fn key(&mut self, app: &mut App, event: Event) {
        match event {
            Event::Key(key) => app.key(key, Instant::now()),
            Event::Paste(text) => app.paste(&text),
            Event::FocusGained => app.focused = true,
            Event::FocusLost => app.focused = false,
            Event::Resize(..) => app.redraw = true,
            Event::Mouse(_) => return,
        }
        self.due = Some(tokio::time::Instant::now());
    }

    fn reply(&mut self, app: &mut App, reply: Reply) {
        match reply {
            Reply::Reconnected(all) => {
                let (client, events, snapshot) = *all;
                (self.client, self.events) = (client, events);
                app.reconnected(snapshot, name_of(&self.around, &self.client));
            }
            other => app.reply(other, jiff::Timestamp::now()),
        }
    }

    /// Draws when the frame before is old enough.
    fn soon(&mut self) {
        if self.due.is_none() {
            let wait = self.drawn.map_or(Duration::ZERO, |at| FRAME.saturating_sub(at.elapsed()));
            self.due = Some(tokio::time::Instant::now() + wait);
        }
    }

    fn draw(&mut self, app: &mut App) -> io::Result<()> {
        (self.due, self.drawn) = (None, Some(Instant::now()));
        if std::mem::take(&mut app.redraw) {
            let (columns, rows) = crossterm::terminal::size()?;
            self.screen.restart(columns, rows)?;
            let size = self.screen.size();
            let above = app.tail(size.width, usize::from(size.height.saturating_sub(4)));
            self.show(app, &above)?;
        } else {
            let above = app.take_fresh(self.screen.size().width);
            self.show(app, &above)?;
        }
        self.screen.set_title(&app.title())?;
        if let Some(words) = app.bell.take() {
            self.screen.notify(&words)?;
        }
        Ok(())
    }

    fn show(&mut self, app: &App, above: &[ratatui::text::Line<'static>]) -> io::Result<()> {
        let size = self.screen.size();
        let bottom = draw::bottom(app, size.width, size.height.saturating_sub(1), jiff::Timestamp::now());
        self.screen.show(above, &bottom.lines, Some(bottom.cursor))
    }

    async fn pick(&mut self, app: &mut App) {
        app.pick = false;
        let cwd = app.view.info.cwd.clone();
        match picker::choose(&self.client, &cwd, &mut self.keys, self.colour).await {
            Ok(Some(id)) if id != *app.view.id() => {
                app.await_snapshot();
                app.calls.push(Call::Open(id));
            }
            Ok(_) => {}
            Err(e) => app.note(e.message, style::BAD),
        }
        let now = crossterm::terminal::size().unwrap_or_default();
        let size = self.screen.size();
        app.redraw = app.redraw || now != (size.width, size.height);
        self.soon();
    }
}

async fn until(when: Option<tokio::time::Instant>) {
    match when {
        Some(when) => tokio::time::sleep_until(when).await,
        None => std::future::pending().await,
    }
}
