//! `glrs sessions …`: what is stored and what lives, without attaching.
//!
//! Owns the words and columns of each list. The daemon finds and changes; nothing is read from
//! disk here.

use super::Ctx;
use super::failure::{Exit, Failure};
use super::open::{Target, resolve};
use super::output;
use crate::client::Client;
use crate::export::ExportError;
use crate::text;
use crate::tui::{status, transcript};
use clap::{Subcommand, ValueEnum};
use glrs_protocol::SessionId;
use glrs_protocol::methods::m;
use glrs_protocol::params::{
    ArtifactRead, Attach, Compact, Entries, Fork, Id, SessionDelete, SessionList, SessionListResult, SessionRename,
    SessionResume, SessionSearch,
};
use glrs_protocol::types::{SessionInfo, Spent, StateName, UsageInfo};
use std::io::{BufRead as _, Write as _};
use std::path::PathBuf;

/// What to do with sessions.
#[derive(Debug, Subcommand)]
pub enum SessionsCommand {
    /// List them, newest first
    List {
        /// At most so many
        #[arg(long, default_value_t = 20)]
        limit: u32,
        /// Those of every directory
        #[arg(long)]
        all: bool,
        /// Only those whose title contains this
        #[arg(long, value_name = "TEXT")]
        query: Option<String>,
        /// Also those that do tasks of others; with an id, only those of that session
        #[arg(long, value_name = "ID", num_args = 0..=1, default_missing_value = "all")]
        children: Option<String>,
        /// As JSON
        #[arg(long)]
        json: bool,
    },
    /// Search titles and messages
    Search {
        /// The words
        text: String,
        /// At most so many
        #[arg(long, default_value_t = 20)]
        limit: u32,
        /// In every directory
        #[arg(long)]
        all: bool,
        /// As JSON
        #[arg(long)]
        json: bool,
    },
    /// Show one: what is known of it, and its last entries
    Show {
        /// Its id, or its title when it is of this directory
        #[arg(value_name = "ID|TITLE")]
        session: String,
        /// The last so many entries
        #[arg(long, default_value_t = 20)]
        limit: u32,
        /// As JSON
        #[arg(long)]
        json: bool,
    },
    /// Write one out
    Export {
        /// Its id, or its title when it is of this directory
        #[arg(value_name = "ID|TITLE")]
        session: String,
        /// As what
        #[arg(long, value_enum, default_value = "json")]
        format: ExportFormat,
        /// As it is stored, which is what it is unless told
        #[arg(long)]
        json: bool,
        /// Into this file instead of stdout; an existing one is not overwritten
        #[arg(short, long, value_name = "FILE")]
        output: Option<PathBuf>,
    },
    /// Delete one with everything that belongs to it
    Delete {
        /// Its id, or its title when it is of this directory
        #[arg(value_name = "ID|TITLE")]
        session: String,
        /// Do not ask
        #[arg(short, long)]
        yes: bool,
        /// Also when clients are attached or messages wait
        #[arg(long)]
        force: bool,
        /// As JSON
        #[arg(long)]
        json: bool,
    },
    /// Give one a title
    Rename {
        /// Its id, or its title when it is of this directory
        #[arg(value_name = "ID|TITLE")]
        session: String,
        /// The new title
        title: String,
        /// As JSON
        #[arg(long)]
        json: bool,
    },
    /// Summarise the older part of one, to make room
    Compact {
        /// Its id, or its title when it is of this directory
        #[arg(value_name = "ID|TITLE")]
        session: String,
        /// What the brief shall keep above all
        instruction: Option<String>,
        /// As JSON
        #[arg(long)]
        json: bool,
    },
    /// What compactions of one replaced; with a name, that text
    Artifacts {
        /// Its id, or its title when it is of this directory
        #[arg(value_name = "ID|TITLE")]
        session: String,
        /// Print this one
        artifact: Option<String>,
        /// As JSON
        #[arg(long)]
        json: bool,
    },
    /// Show when things happened in one, how long they took and who decided, without contents
    Trace {
        /// Its id, or its title when it is of this directory
        #[arg(value_name = "ID|TITLE")]
        session: String,
        /// As JSON, one object a line
        #[arg(long)]
        json: bool,
    },
    /// Copy one
    Fork {
        /// Its id, or its title when it is of this directory
        #[arg(value_name = "ID|TITLE")]
        session: String,
        /// Copy entries up to this number
        #[arg(long, value_name = "N")]
        at: Option<u64>,
        /// The id the copy shall have
        #[arg(short, long, value_name = "UUID")]
        session_id: Option<String>,
        /// As JSON
        #[arg(long)]
        json: bool,
    },
    /// Make one of a file: a session of glrs, a transcript of Claude Code, a rollout of Codex
    Import {
        /// The file; - reads stdin
        file: PathBuf,
        /// The id it shall have; importing the same file again with it changes nothing
        #[arg(long, value_name = "ID")]
        id: Option<String>,
        /// The directory it shall have, instead of the file's
        #[arg(long, value_name = "DIR")]
        cwd: Option<PathBuf>,
        /// What the file is
        #[arg(long, value_enum, default_value = "auto")]
        format: super::archive::ImportFormat,
        /// As JSON
        #[arg(long)]
        json: bool,
    },
    /// Verify one or all, with all that belongs to them; exit code 1 when problems remain
    Check {
        /// Its id; without one, all
        id: Option<String>,
        /// Repair what can be; what is replaced is kept beside it
        #[arg(long)]
        repair: bool,
        /// As JSON
        #[arg(long)]
        json: bool,
    },
}

/// What a session is written out as.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum ExportFormat {
    /// For people
    Markdown,
    /// As it is stored
    Json,
}

/// Runs `glrs sessions …`.
///
/// # Errors
/// When the daemon does not do it.
pub async fn run(ctx: &Ctx, command: SessionsCommand) -> Result<Exit, Failure> {
    let client = ctx.connect("script").await?;
    let cwd = ctx.directory(None);
    let find = async |session: &str| {
        let target = Target::parse(session)?;
        // An id needs no directory, and the current one may be gone.
        let dir = match (&target, &cwd) {
            (Target::Id(_), _) => String::new(),
            (Target::Title(_), dir) => dir.clone()?,
        };
        resolve(&client, &dir, &target).await
    };
    match command {
        SessionsCommand::List { limit, all, query, children, json } => {
            // A session's children are of its directory or one inside.
            let all = all || children.as_ref().is_some_and(|c| c != "all");
            let dir = if all { None } else { Some(cwd.clone()?) };
            let list = list(&client, dir, query, children, limit).await?;
            if json {
                output::json(&list)?;
            } else {
                output::text(&table(&list, all, jiff::Timestamp::now()))?;
                for other in &list.others {
                    let (path, why) = (text::one_line(&other.path), text::one_line(&other.why));
                    output::note(&format!("not listed: {path}: {why}"));
                }
            }
        }
        SessionsCommand::Search { text: words, limit, all, json } => {
            let dir = if all { None } else { Some(cwd.clone()?) };
            let params = SessionSearch { text: words, cwd: dir, limit: Some(limit) };
            let found = client.call::<m::SessionSearchM>(&params).await?;
            if json {
                output::json(&found)?;
            } else {
                let mut out = String::new();
                for hit in &found.hits {
                    out.push_str(&output::columns(&[row(&hit.session, all, jiff::Timestamp::now())]));
                    out.push_str(&format!("    {}\n", text::clip(&text::one_line(&hit.excerpt), 160)));
                }
                if out.is_empty() {
                    output::note("nothing found");
                } else {
                    output::text(&out)?;
                }
            }
        }
        SessionsCommand::Show { session, limit, json } => show(&client, &find(&session).await?, limit, json).await?,
        SessionsCommand::Export { session, format, json, output } => {
            let id = find(&session).await?.id;
            let word = if json || format == ExportFormat::Json { "json" } else { "markdown" };
            export(&client, &id, word, output).await?;
        }
        SessionsCommand::Delete { session, yes, force, json } => {
            let info = find(&session).await?;
            if ctx.terminal && !yes && !force && !confirm(&info)? {
                return Ok(Exit::Error);
            }
            client.call::<m::SessionDeleteM>(&SessionDelete { id: info.id.clone(), force }).await?;
            if json {
                output::json(&serde_json::json!({"deleted": info.id}))?;
            } else {
                output::note(&format!("deleted {} {}", info.id, text::one_line(&info.title)));
            }
        }
        SessionsCommand::Rename { session, title, json } => {
            if title.trim().is_empty() {
                return Err(Failure::usage("a title cannot be blank"));
            }
            let id = find(&session).await?.id;
            let info = client.call::<m::SessionRenameM>(&SessionRename { id, title }).await?.session;
            told(&info, json)?;
        }
        SessionsCommand::Compact { session, instruction, json } => {
            let id = find(&session).await?.id;
            // The same environment as an attached client brings: the summariser needs its key.
            let env = Some(ctx.session_env());
            client
                .call::<m::SessionResumeM>(&SessionResume {
                    id: Some(id.clone()),
                    title: None,
                    last: false,
                    cwd: None,
                    env,
                })
                .await?;
            let key = Some(uuid::Uuid::now_v7().to_string());
            let done = client.call::<m::SessionCompactM>(&Compact { id, instruction, key }).await?;
            if json { output::json(&done)? } else { output::text(&done.notice)? }
        }
        SessionsCommand::Artifacts { session, artifact: None, json } => {
            let id = find(&session).await?.id;
            let list = client.call::<m::ArtifactsListM>(&Id { id }).await?;
            if json {
                output::json(&list)?;
            } else {
                for a in &list.artifacts {
                    output::text(&format!("{}  {} · {} messages", a.artifact, text::one_line(&a.label), a.messages))?;
                }
            }
        }
        SessionsCommand::Artifacts { session, artifact: Some(artifact), json } => {
            let id = find(&session).await?.id;
            let mut offset = 0;
            let mut whole = String::new();
            loop {
                let p = ArtifactRead { id: id.clone(), artifact: artifact.clone(), offset, limit: None };
                let part = client.call::<m::ArtifactsReadM>(&p).await?;
                whole.push_str(&part.text);
                match part.next {
                    Some(next) => offset = next,
                    None => break,
                }
            }
            if json { output::json(&whole)? } else { output::text(&whole)? }
        }
        SessionsCommand::Trace { session, json } => {
            super::archive::trace(&client, &find(&session).await?.id, json).await?;
        }
        SessionsCommand::Fork { session, at, session_id, json } => {
            let new_id = match session_id {
                None => None,
                Some(text) if SessionId::is_uuid(&text) => text.parse().ok(),
                Some(text) => return Err(Failure::usage(format!("--session-id wants a UUID, not {text:?}"))),
            };
            let id = find(&session).await?.id;
            let info = client.call::<m::SessionForkM>(&Fork { id, at, new_id }).await?.session;
            told(&info, json)?;
        }
        SessionsCommand::Import { file, id, cwd, format, json } => {
            let cwd = cwd.map(|dir| ctx.directory(Some(&dir))).transpose()?;
            super::archive::import(&client, &file, (id, cwd, format), json).await?;
        }
        SessionsCommand::Check { id, repair, json } => return super::archive::check(&client, id, repair, json).await,
    }
    Ok(Exit::Done)
}

fn told(info: &SessionInfo, json: bool) -> Result<(), Failure> {
    if json { output::json(info) } else { output::text(&format!("{}  {}", info.id, text::one_line(&info.title))) }
}

/// Sessions, newest first, from as many pages as it takes.
///
/// # Errors
/// When the daemon does not answer.
pub async fn list(
    client: &Client,
    cwd: Option<String>,
    query: Option<String>,
    children: Option<String>,
    limit: u32,
) -> Result<SessionListResult, Failure> {
    let mut params = SessionList { cwd, query, state: None, children, limit: Some(limit.min(1000)), cursor: None };
    let mut out = client.call::<m::SessionListM>(&params).await?;
    while let Some(cursor) = out.cursor.clone() {
        let have = u32::try_from(out.sessions.len()).unwrap_or(u32::MAX);
        if have >= limit || params.cursor.as_ref() == Some(&cursor) {
            break;
        }
        params.cursor = Some(cursor);
        params.limit = Some((limit - have).min(1000));
        let page = client.call::<m::SessionListM>(&params).await?;
        out.sessions.extend(page.sessions);
        out.cursor = page.cursor;
    }
    Ok(out)
}

/// A session as a row of a list.
pub fn row(s: &SessionInfo, with_cwd: bool, now: jiff::Timestamp) -> Vec<String> {
    let state = match s.state {
        _ if s.needs_you => "needs you",
        StateName::Unloaded | StateName::Idle => "",
        other => other.as_str(),
    };
    let mut out = vec![s.id.to_string(), text::ago(&s.updated_at, now), state.to_owned()];
    if with_cwd {
        out.push(text::one_line(&s.cwd));
    }
    let task = s.parent.as_ref().filter(|_| s.child).map(|p| format!("[task of {}] ", text::one_line(p)));
    out.push(match &s.why {
        Some(why) => format!("(cannot be used: {})", text::one_line(why)),
        None if s.title.is_empty() => "(no title yet)".to_owned(),
        None => text::clip(&format!("{}{}", task.unwrap_or_default(), text::one_line(&s.title)), 100),
    });
    out
}

fn table(list: &SessionListResult, all: bool, now: jiff::Timestamp) -> String {
    if list.sessions.is_empty() {
        let hint = if all { "" } else { " in this directory (--all shows every directory's)" };
        return format!("no sessions{hint}\n");
    }
    let rows: Vec<_> = list.sessions.iter().map(|s| row(s, all, now)).collect();
    let mut out = output::columns(&rows);
    let shown = list.sessions.len() as u64;
    if list.total > shown {
        out.push_str(&format!("… {} more (--limit)\n", list.total - shown));
    }
    out
}

async fn show(client: &Client, info: &SessionInfo, limit: u32, json: bool) -> Result<(), Failure> {
    let from = -i64::from(limit.clamp(1, 256));
    let params = Entries { id: info.id.clone(), from: Some(from), limit: Some(limit.clamp(1, 256)) };
    let got = if limit == 0 { Vec::new() } else { client.call::<m::SessionEntriesM>(&params).await?.entries };
    // What it used is known of one that is in memory: looking at it brings it there.
    let look =
        Attach { id: info.id.clone(), after: None, after_entry: None, tail: Some(1), read_only: true, env: None };
    let known = client.call::<m::SessionAttachM>(&look).await.ok();
    if json {
        let usage = known.map(|k| k.usage);
        return output::json(&serde_json::json!({"session": info, "usage": usage, "entries": got}));
    }
    let mut out = describe(info, known.as_ref().map(|k| &k.usage), jiff::Timestamp::now());
    for entry in &got {
        let lines = transcript::render(&crate::view::typed(entry), 100);
        if !lines.is_empty() {
            out.push('\n');
        }
        for line in lines {
            out.push_str(transcript::plain(&line).trim_end());
            out.push('\n');
        }
    }
    output::text(&out)
}

/// What was used, for people; nothing where no model was called.
fn used(u: &Spent) -> Option<String> {
    let cached = status::cached(u.input, u.cached).map(|c| format!(" ({c})")).unwrap_or_default();
    let cost = if u.cost > 0.0 { format!(", ${:.4}", u.cost) } else { String::new() };
    let calls = if u.calls == 1 { "call" } else { "calls" };
    (u.calls > 0).then(|| {
        format!("{} in{cached}, {} out, {} {calls}{cost}", text::count(u.input), text::count(u.output), u.calls)
    })
}

/// What is known of a session, and what it has used, for people.
pub fn describe(s: &SessionInfo, usage: Option<&UsageInfo>, now: jiff::Timestamp) -> String {
    let row = |name: &str, value: String| vec![name.to_owned(), value];
    let mut rows = vec![
        row("title", text::one_line(&s.title)),
        row("id", s.id.to_string()),
        row("directory", text::one_line(&s.cwd)),
        row("state", if s.needs_you { "needs you".to_owned() } else { s.state.as_str().to_owned() }),
        row(
            "model",
            match &s.variant {
                Some(v) => format!("{} ({})", text::one_line(&s.model), text::one_line(v)),
                None => text::one_line(&s.model),
            },
        ),
        row("mode", s.mode.as_str().to_owned()),
        row("created", format!("{} ({})", s.created_at, text::ago(&s.created_at, now))),
        row("updated", format!("{} ({})", s.updated_at, text::ago(&s.updated_at, now))),
        row("entries", s.entries.to_string()),
        row("context", format!("{} of {}", text::count(s.context_tokens), text::count(s.window))),
    ];
    let own = usage.map(|u| Spent { calls: u.calls, input: u.input, output: u.output, cached: u.cached, cost: u.cost });
    rows.extend(own.as_ref().and_then(used).map(|u| row("used", u)));
    rows.extend(usage.and_then(|u| used(u.children.as_ref()?)).map(|u| row("by its tasks", u)));
    if let Some(sandbox) = &s.sandbox {
        rows.push(row("sandbox", text::one_line(sandbox)));
    }
    if let Some(parent) = &s.parent {
        rows.push(row(if s.child { "does a task of" } else { "forked from" }, text::one_line(parent)));
    }
    if let Some(why) = &s.why {
        rows.push(row("cannot be used", text::one_line(why)));
    }
    output::columns(&rows)
}

async fn export(client: &Client, id: &SessionId, format: &str, file: Option<PathBuf>) -> Result<(), Failure> {
    let Some(path) = file else {
        return crate::export::export(client, id, format, &mut std::io::stdout()).await.map_err(|e| match e {
            ExportError::Write(e) => e.into(),
            ExportError::Call(e) => e.into(),
        });
    };
    let cannot = |e: ExportError| match e {
        ExportError::Write(e) => Failure::error(format!("cannot write {}: {e}", path.display())),
        ExportError::Call(e) => e.into(),
    };
    crate::export::export_to(client, id, format, &path).await.map_err(cannot)?;
    output::note(&format!("written to {}", path.display()));
    Ok(())
}

fn confirm(info: &SessionInfo) -> Result<bool, Failure> {
    let mut err = std::io::stderr().lock();
    write!(err, "delete {} “{}” for good? [y/N] ", info.id, text::one_line(&info.title))?;
    err.flush()?;
    let mut answer = String::new();
    std::io::stdin().lock().read_line(&mut answer)?;
    Ok(matches!(answer.trim(), "y" | "Y" | "yes"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::view::tests::snapshot;

    #[test]
    fn rows_say_what_matters_and_carry_nothing_raw() {
        let now: jiff::Timestamp = "2026-09-06T15:00:00Z".parse().unwrap();
        let mut s = snapshot(0, &[]).info;
        s.title = "bad\u{1b}[31m title".into();
        assert_eq!(row(&s, false, now), ["3f9a1c2b", "1 h ago", "", "bad␛[31m title"]);
        s.needs_you = true;
        assert_eq!(row(&s, true, now)[2..4], ["needs you", "/r"]);
        s.why = Some("the file is empty".into());
        assert!(row(&s, false, now)[3].contains("the file is empty"));
        let list = SessionListResult { sessions: vec![s], cursor: None, total: 4, others: vec![] };
        assert!(table(&list, false, now).contains("… 3 more"));
        let none = SessionListResult { sessions: vec![], cursor: None, total: 0, others: vec![] };
        assert!(table(&none, false, now).contains("--all"));
    }
}
