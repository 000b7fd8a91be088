//! The `glrs` command line: from arguments to an exit code.
//!
//! Owns dispatch, what a command needs of its surroundings ([`Ctx`]) and how failures end. Must
//! not know how a command does its work: one file each.

pub mod archive;
pub mod args;
pub mod daemon;
pub mod doctor;
pub mod failure;
pub mod models;
pub mod open;
pub mod output;
pub mod print;
pub mod prompt;
pub mod proxy;
pub mod resume;
pub mod schema;
pub mod sessions;
mod trust;
pub mod watch;

use crate::client::Client;
use crate::connect::{ConnectOptions, DaemonCommand};
use crate::place::{self, Vars};
use crate::tui;
use args::{Cli, Command, Open, Plan};
use clap::{CommandFactory as _, Parser as _};
use failure::{Exit, Failure};
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::io::IsTerminal as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// What commands need of their surroundings.
pub struct Ctx {
    /// The environment as the process got it.
    pub vars: Vars,
    /// The daemon's socket.
    pub socket: PathBuf,
    /// Whether stdin and stdout both are a terminal.
    pub terminal: bool,
    /// Whether colours are wanted.
    pub colour: bool,
}

impl Ctx {
    /// How to connect as a client of this kind, starting the daemon when none runs.
    ///
    /// # Errors
    /// When this executable cannot be found.
    pub fn options(&self, kind: &str) -> Result<ConnectOptions, Failure> {
        let mut options = ConnectOptions::new(self.socket.clone(), kind);
        options.start = Some(
            DaemonCommand::this_executable()
                .map_err(|e| Failure::error(format!("cannot find this executable to start the daemon with: {e}")))?,
        );
        Ok(options)
    }

    /// Connects as a client of this kind, starting the daemon when none runs.
    ///
    /// # Errors
    /// When there is no connection.
    pub async fn connect(&self, kind: &str) -> Result<Client, Failure> {
        Ok(Client::connect(&self.options(kind)?).await?)
    }

    /// The environment a session gets from this caller.
    pub fn session_env(&self) -> BTreeMap<String, String> {
        place::session_env(&self.vars)
    }

    /// Whose models are asked for: this caller's keys, this directory's configuration.
    pub fn models_of(&self) -> glrs_protocol::params::CatalogModels {
        glrs_protocol::params::CatalogModels { cwd: self.directory(None).ok(), env: Some(self.session_env()) }
    }

    /// The canonical path of `dir`, or of the current directory.
    ///
    /// # Errors
    /// When there is no such directory.
    pub fn directory(&self, dir: Option<&Path>) -> Result<String, Failure> {
        let dir = dir.unwrap_or(Path::new("."));
        let path =
            std::fs::canonicalize(dir).map_err(|e| Failure::error(format!("no directory {}: {e}", dir.display())))?;
        if !path.is_dir() {
            return Err(Failure::error(format!("{} is no directory", path.display())));
        }
        path.into_os_string()
            .into_string()
            .map_err(|p| Failure::error(format!("the path {} is not UTF-8", Path::new(&p).display())))
    }
}

/// Runs `glrs` with its arguments (the program's name first) in an environment.
pub fn main(args: Vec<OsString>, vars: Vec<(OsString, OsString)>) -> ExitCode {
    let cli = match Cli::try_parse_from(args) {
        Ok(cli) => cli,
        Err(e) => {
            let code = if e.use_stderr() { Exit::Usage } else { Exit::Done };
            // A reader that is gone is no reason to fail.
            let _ = e.print();
            return code.into();
        }
    };
    let vars: Vars = vars.into_iter().collect();
    match run(cli, vars) {
        Ok(exit) => exit.into(),
        Err(failure) => {
            if !failure.message.is_empty() {
                output::complain(&failure.message);
            }
            failure.exit.into()
        }
    }
}

fn run(cli: Cli, vars: Vars) -> Result<Exit, Failure> {
    if let Some(Command::Completions { shell }) = &cli.command {
        let mut script = Vec::new();
        clap_complete::generate(*shell, &mut Cli::command(), "glrs", &mut script);
        output::text(&String::from_utf8_lossy(&script))?;
        return Ok(Exit::Done);
    }
    let plan = cli.session.plan().map_err(Failure::usage)?;
    let socket = place::socket(&vars, rustix::process::geteuid().as_raw()).map_err(Failure::error)?;
    let out_terminal = std::io::stdout().is_terminal();
    let no_colour = vars.get(std::ffi::OsStr::new("NO_COLOR")).is_some_and(|v| !v.is_empty());
    let ctx = Ctx {
        terminal: out_terminal && std::io::stdin().is_terminal(),
        colour: out_terminal && !no_colour,
        vars,
        socket,
    };
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|e| Failure::error(format!("cannot start: {e}")))?;
    let result = runtime.block_on(dispatch(&ctx, cli.command, plan));
    // A read of stdin that nobody waits for any more must not keep the process.
    runtime.shutdown_background();
    result
}

async fn dispatch(ctx: &Ctx, command: Option<Command>, plan: Plan) -> Result<Exit, Failure> {
    match command {
        None if plan.print.is_some() => print::run(ctx, &plan).await,
        None => terminal(ctx, &plan).await,
        Some(Command::Attach { session, tail, read_only }) => {
            needs_terminal(ctx)?;
            let target = open::Target::parse(&session)?;
            let opened = async {
                let client = ctx.connect("terminal").await?;
                // An id needs no directory, and the current one may be gone.
                let cwd = match &target {
                    open::Target::Id(_) => String::new(),
                    open::Target::Title(_) => ctx.directory(None)?,
                };
                let session = open::resolve(&client, &cwd, &target).await?;
                Ok((client, tui::Begin { session, tail, read_only }))
            };
            tui::run(ctx, opened).await
        }
        Some(Command::Sessions { command }) => sessions::run(ctx, command).await,
        Some(Command::Daemon { command }) => daemon::run(ctx, command).await,
        Some(Command::Trust { dir }) => trust::run(ctx, dir.as_deref()).await,
        Some(Command::Doctor { json }) => doctor::run(ctx, json).await,
        Some(Command::Proxy) => proxy::run(ctx).await,
        Some(Command::Schema { format }) => schema::run(ctx, format).await,
        Some(Command::Models { json }) => models::run(ctx, json).await,
        // Answered before there was a runtime.
        Some(Command::Completions { .. }) => Ok(Exit::Done),
    }
}

fn needs_terminal(ctx: &Ctx) -> Result<(), Failure> {
    if ctx.terminal {
        return Ok(());
    }
    Err(Failure::usage("this needs a terminal; `glrs -p \"…\"` works without one".to_owned()))
}

async fn terminal(ctx: &Ctx, plan: &Plan) -> Result<Exit, Failure> {
    let cwd = ctx.directory(plan.cwd.as_deref())?;
    if matches!(plan.open, Open::Pick) {
        return resume::run(ctx, plan, &cwd).await;
    }
    needs_terminal(ctx)?;
    let opened = async {
        let client = ctx.connect("terminal").await?;
        let session = open::open(ctx, &client, plan, &cwd).await?;
        Ok((client, tui::Begin { session, tail: None, read_only: false }))
    };
    tui::run(ctx, opened).await
}
