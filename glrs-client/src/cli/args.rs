//! The arguments of `glrs`, and the rules between them.
//!
//! Owns clap's definitions and [`SessionArgs::plan`], which turns flags into what is to be done or
//! a usage error. Pure: must not look at terminals, directories or the daemon.

use super::open::Target;
use clap::{Args, Parser, Subcommand, ValueEnum};
use glrs_protocol::SessionId;
use glrs_protocol::types::Mode;
use std::path::PathBuf;
use std::time::Duration;

/// A session daemon for coding agents. Without a command: a new session here, attached.
#[derive(Debug, Parser)]
#[command(name = "glrs", version, args_conflicts_with_subcommands = true, max_term_width = 100)]
pub struct Cli {
    /// Which session, and how.
    #[command(flatten)]
    pub session: SessionArgs,
    /// What else.
    #[command(subcommand)]
    pub command: Option<Command>,
}

/// Flags of a session that is opened.
#[derive(Debug, Default, Args)]
pub struct SessionArgs {
    /// Run one turn and print the answer; piped stdin goes with the prompt, or is it
    #[arg(short, long, num_args = 0..=1, value_name = "PROMPT")]
    pub print: Option<Option<String>>,
    /// Go on with a session: an id or a title of this directory; alone: choose one
    #[arg(short, long, num_args = 0..=1, value_name = "ID|TITLE")]
    pub resume: Option<Option<String>>,
    /// Go on with this directory's most recent session
    #[arg(short = 'c', long = "continue")]
    pub last: bool,
    /// Create the session (or with --fork-session the copy) with this id
    #[arg(short, long, value_name = "UUID")]
    pub session_id: Option<String>,
    /// With --resume or --continue: go on in a copy
    #[arg(long)]
    pub fork_session: bool,
    /// The model, as provider/model-id
    #[arg(long, value_name = "P/ID")]
    pub model: Option<String>,
    /// The model's reasoning effort
    #[arg(long)]
    pub variant: Option<String>,
    /// What runs without asking
    #[arg(long, value_enum)]
    pub mode: Option<ModeArg>,
    /// Work in this directory
    #[arg(long, value_name = "DIR")]
    pub cwd: Option<PathBuf>,
    /// With --print: how the answer is written
    #[arg(long, value_enum, value_name = "FORMAT")]
    pub output_format: Option<Format>,
    /// With --print: interrupt after so many seconds (exit 3)
    #[arg(long, value_name = "SECONDS")]
    pub timeout: Option<f64>,
    /// With --print: leave permission requests to whoever is attached instead of denying them
    #[arg(long)]
    pub wait: bool,
}

/// Permission mode on the command line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum ModeArg {
    /// Reads run; writes and commands ask
    Ask,
    /// Writes inside the session's directory run as well
    Edits,
    /// Everything runs, except what a deny rule names
    All,
}

impl From<ModeArg> for Mode {
    fn from(m: ModeArg) -> Self {
        match m {
            ModeArg::Ask => Self::Ask,
            ModeArg::Edits => Self::Edits,
            ModeArg::All => Self::All,
        }
    }
}

/// How `--print` writes the answer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// The answer
    #[default]
    Text,
    /// One result object
    Json,
    /// One object per line as things happen, the result object last
    StreamJson,
}

/// The other commands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Join a session, live or stored; ctrl+d leaves it, it goes on
    Attach {
        /// Its id, or its title when it is of this directory
        #[arg(value_name = "ID|TITLE")]
        session: String,
        /// Begin with the last N entries
        #[arg(long, value_name = "N")]
        tail: Option<u32>,
        /// Look only
        #[arg(long)]
        read_only: bool,
    },
    /// Stored and live sessions
    Sessions {
        /// What to do with them.
        #[command(subcommand)]
        command: super::sessions::SessionsCommand,
    },
    /// The daemon itself
    Daemon {
        /// What to do with it.
        #[command(subcommand)]
        command: super::daemon::DaemonCmd,
    },
    /// Trust a project: its files may then set what runs code or sends data elsewhere
    Trust {
        /// A directory of the project; this one unless given
        dir: Option<PathBuf>,
    },
    /// Check whether everything is in order
    Doctor {
        /// As JSON
        #[arg(long)]
        json: bool,
    },
    /// Carry the daemon's socket over stdin and stdout (`ssh box glrs proxy`)
    Proxy,
    /// The wire protocol as a document
    Schema {
        /// Which document
        #[arg(value_enum, default_value = "openrpc")]
        format: super::schema::SchemaFormat,
    },
    /// The models that can be chosen
    Models {
        /// As JSON
        #[arg(long)]
        json: bool,
    },
    /// A completion script for a shell
    Completions {
        /// The shell
        shell: clap_complete::Shell,
    },
}

/// Which session is opened.
#[derive(Clone, Debug, PartialEq)]
pub enum Open {
    /// A new one.
    New(Option<SessionId>),
    /// This one.
    Resume(Target),
    /// The most recent of the directory.
    Last,
    /// The one that somebody picks.
    Pick,
}

/// What the flags ask for.
#[derive(Clone, Debug, PartialEq)]
pub struct Plan {
    /// The session.
    pub open: Open,
    /// Go on in a copy, with this id if it is given.
    pub fork: Option<Option<SessionId>>,
    /// One turn with this prompt; `Some("")` when it comes from stdin alone.
    pub print: Option<String>,
    /// The model.
    pub model: Option<String>,
    /// The reasoning effort.
    pub variant: Option<String>,
    /// The permission mode.
    pub mode: Option<Mode>,
    /// The directory.
    pub cwd: Option<PathBuf>,
    /// How the answer is written.
    pub format: Format,
    /// How long a turn may take.
    pub timeout: Option<Duration>,
    /// Leave requests to others.
    pub wait: bool,
}

impl SessionArgs {
    /// What the flags ask for.
    ///
    /// # Errors
    /// A sentence when they do not go together.
    pub fn plan(&self) -> Result<Plan, String> {
        if self.resume.is_some() && self.last {
            return Err("--resume and --continue do not go together: name the session, or take the last one".into());
        }
        let reopens = self.resume.is_some() || self.last;
        if self.fork_session && !reopens {
            return Err("--fork-session needs --resume or --continue: it says what is copied".into());
        }
        let id = match &self.session_id {
            None => None,
            Some(text) if SessionId::is_uuid(text) => text.parse().ok(),
            Some(text) => return Err(format!("--session-id wants a UUID, not {text:?}")),
        };
        if id.is_some() && reopens && !self.fork_session {
            return Err("--session-id only names new sessions: with --resume or --continue add --fork-session".into());
        }
        if self.print.is_none() {
            for (given, name) in [
                (self.output_format.is_some(), "--output-format"),
                (self.timeout.is_some(), "--timeout"),
                (self.wait, "--wait"),
            ] {
                if given {
                    return Err(format!("{name} goes with --print only"));
                }
            }
        }
        let timeout = match self.timeout {
            None => None,
            Some(s) => match Duration::try_from_secs_f64(s) {
                Ok(d) if !d.is_zero() => Some(d),
                _ => return Err("--timeout wants a number of seconds above 0".into()),
            },
        };
        if self.model.as_ref().is_some_and(|m| m.split_once('/').is_none_or(|(p, i)| p.is_empty() || i.is_empty())) {
            return Err("--model wants provider/model-id; `glrs models` lists them".into());
        }
        let open = match &self.resume {
            Some(None) if self.print.is_some() => {
                return Err("--print needs to know which session: --resume <id or title>, or --continue".into());
            }
            Some(None) => Open::Pick,
            Some(Some(text)) => Open::Resume(Target::parse(text).map_err(|f| f.message)?),
            None if self.last => Open::Last,
            None => Open::New(id.clone()),
        };
        Ok(Plan {
            open,
            fork: self.fork_session.then_some(id),
            print: self.print.clone().map(Option::unwrap_or_default),
            model: self.model.clone(),
            variant: self.variant.clone(),
            mode: self.mode.map(Mode::from),
            cwd: self.cwd.clone(),
            format: self.output_format.unwrap_or_default(),
            timeout,
            wait: self.wait,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory as _;

    const UUID: &str = "0192F0A0-1111-7222-8333-444455556666";

    fn plan(args: &[&str]) -> Result<Plan, String> {
        let cli = Cli::try_parse_from([&["glrs"], args].concat()).map_err(|e| e.to_string())?;
        cli.session.plan()
    }

    #[test]
    fn the_definitions_hold_together() {
        Cli::command().debug_assert();
    }

    #[test]
    fn flags_say_which_session() {
        let p = plan(&[]).unwrap();
        assert_eq!((p.open, p.print, p.fork), (Open::New(None), None, None));
        assert_eq!(plan(&["-r"]).unwrap().open, Open::Pick);
        assert_eq!(plan(&["-c"]).unwrap().open, Open::Last);
        let p = plan(&["-s", UUID]).unwrap();
        assert_eq!(p.open, Open::New(Some(UUID.to_lowercase().parse().unwrap())));
        let p = plan(&["-r", "3F9A1C2B"]).unwrap();
        assert_eq!(p.open, Open::Resume(Target::Id("3f9a1c2b".parse().unwrap())));
        let p = plan(&["-r", "Fix the build"]).unwrap();
        assert_eq!(p.open, Open::Resume(Target::Title("Fix the build".into())));
        let p = plan(&["-c", "--fork-session", "-s", UUID]).unwrap();
        assert_eq!(p.fork, Some(Some(UUID.to_lowercase().parse().unwrap())));
    }

    #[test]
    fn print_takes_its_prompt_or_stdin() {
        assert_eq!(plan(&["-p", "hello"]).unwrap().print.as_deref(), Some("hello"));
        assert_eq!(plan(&["-p"]).unwrap().print.as_deref(), Some(""));
        let p = plan(&["-p", "--output-format", "stream-json", "--timeout", "1.5", "--wait"]).unwrap();
        assert_eq!((p.format, p.timeout, p.wait), (Format::StreamJson, Some(Duration::from_millis(1500)), true));
        let p = plan(&["-c", "-p", "x", "--mode", "edits", "--model", "a/b/c"]).unwrap();
        assert_eq!((p.mode, p.model.as_deref()), (Some(Mode::Edits), Some("a/b/c")));
    }

    #[test]
    fn what_does_not_go_together_is_a_usage_error() {
        for args in [
            &["-s", "nonsense"][..],
            &["-s", "3f9a1c2b"],
            &["-s", UUID, "-c"],
            &["-s", UUID, "-r", "x"],
            &["--fork-session"],
            &["-r", "x", "-c"],
            &["-p", "x", "-r"],
            &["-r", " "],
            &["--wait"],
            &["--timeout", "3"],
            &["-p", "x", "--timeout", "0"],
            &["-p", "x", "--timeout", "-1"],
            &["--output-format", "json"],
            &["--model", "nameless"],
            &["--mode", "yolo"],
            &["sessions"],
            &["daemon"],
            &["frobnicate"],
            &["-p", "x", "doctor", "--json"],
        ] {
            assert!(plan(args).is_err(), "{args:?}");
        }
    }
}
