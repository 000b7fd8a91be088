//! Slash commands: their table, how a line becomes one, and completion.
//!
//! Pure. What a command does is the terminal's matter.

use crate::text::distance;

/// A command of the terminal.
#[derive(Clone, Debug, PartialEq)]
pub enum Slash {
    /// What there is.
    Help,
    /// Another session in this directory.
    New,
    /// The context restarts empty.
    Clear,
    /// A copy up to entry `at`, with a first prompt.
    Fork {
        /// Last entry that is copied.
        at: Option<u64>,
        /// The copy's first prompt.
        directive: Option<String>,
    },
    /// Back to before a user message.
    Rewind(Option<u64>),
    /// Choose another session.
    Resume(Option<String>),
    /// Give a title.
    Rename(String),
    /// Delete this session.
    Delete,
    /// What is known of this session.
    Info,
    /// Draw the transcript again.
    History,
    /// Show or change the model.
    Model(Option<String>),
    /// Show or change the permission mode.
    Mode(Option<String>),
    /// What waits.
    Queue,
    /// The plan.
    Plan,
    /// Write the session to a file.
    Export(Option<String>),
    /// Leave; the session goes on.
    Quit,
}

/// Name, arguments and meaning of every command; aliases stand after it.
pub const TABLE: &[(&str, &[&str], &str, &str)] = &[
    ("help", &[], "", "commands and keys"),
    ("new", &[], "", "another session in this directory"),
    ("clear", &[], "", "the context restarts empty, the transcript stays"),
    ("fork", &[], "[entry] [prompt]", "a copy of this session, up to an entry"),
    ("rewind", &["undo"], "[entry]", "back to before a message, files and conversation"),
    ("resume", &[], "[id or title]", "go to another session"),
    ("rename", &["title"], "<title>", "give this session a title"),
    ("delete", &[], "", "delete this session for good"),
    ("session-info", &[], "", "what is known of this session"),
    ("history", &[], "", "draw the transcript again"),
    ("model", &[], "[provider/id] [variant]", "show or change the model"),
    ("mode", &[], "[ask|edits|all]", "show or change what runs without asking"),
    ("queue", &[], "", "what waits"),
    ("plan", &[], "", "the agent's plan"),
    ("export", &[], "[file]", "write this session as Markdown (.json: as stored)"),
    ("quit", &["exit"], "", "leave; the session goes on"),
];

/// Whether a line is meant as a command: `/word`, not a path.
pub fn is_command(line: &str) -> bool {
    let word = line.split_whitespace().next().unwrap_or_default();
    line.starts_with('/') && word.len() > 1 && !word[1..].contains('/')
}

/// Parses a line that [`is_command`].
///
/// # Errors
/// A sentence naming the nearest command, or what an argument should be.
pub fn parse(line: &str) -> Result<Slash, String> {
    let line = line.trim();
    let (word, rest) = line.split_once(char::is_whitespace).unwrap_or((line, ""));
    let (word, rest) = (word.trim_start_matches('/').to_lowercase(), rest.trim());
    let Some((name, ..)) = TABLE.iter().find(|(n, aliases, ..)| *n == word || aliases.contains(&word.as_str())) else {
        return Err(unknown(&word));
    };
    let opt = (!rest.is_empty()).then(|| rest.to_owned());
    let no_args = |s: Slash| if rest.is_empty() { Ok(s) } else { Err(format!("/{name} takes no arguments")) };
    match *name {
        "help" => Ok(Slash::Help),
        "new" => no_args(Slash::New),
        "clear" => no_args(Slash::Clear),
        "fork" => {
            let (first, after) = rest.split_once(char::is_whitespace).unwrap_or((rest, ""));
            match first.parse::<u64>() {
                Ok(0) => Err("entries count from 1".to_owned()),
                Ok(n) => Ok(Slash::Fork { at: Some(n), directive: filled(after) }),
                Err(_) => Ok(Slash::Fork { at: None, directive: opt }),
            }
        }
        "rewind" => match rest {
            "" => Ok(Slash::Rewind(None)),
            n => n.parse().map(|n| Slash::Rewind(Some(n))).map_err(|_| format!("{n:?} is no entry number")),
        },
        "resume" => Ok(Slash::Resume(opt)),
        "rename" => opt.map(Slash::Rename).ok_or_else(|| "/rename needs the new title".to_owned()),
        "delete" => no_args(Slash::Delete),
        "session-info" => no_args(Slash::Info),
        "history" => no_args(Slash::History),
        "model" => Ok(Slash::Model(opt)),
        "mode" => match rest {
            "" | "ask" | "edits" | "all" => Ok(Slash::Mode(opt)),
            other => Err(format!("no mode {other:?}: ask, edits or all")),
        },
        "queue" => no_args(Slash::Queue),
        "plan" => no_args(Slash::Plan),
        "export" => Ok(Slash::Export(opt)),
        "quit" => Ok(Slash::Quit),
        _ => Err(unknown(&word)),
    }
}

fn filled(s: &str) -> Option<String> {
    (!s.trim().is_empty()).then(|| s.trim().to_owned())
}

fn unknown(word: &str) -> String {
    let names = TABLE.iter().flat_map(|(n, aliases, ..)| std::iter::once(n).chain(aliases.iter()));
    let nearest = names.map(|n| (distance(word, n), *n)).min();
    match nearest {
        Some((d, name)) if d <= 3.min(word.len()) => {
            format!("no command /{word}: did you mean /{name}? Nothing was sent.")
        }
        _ => format!("no command /{word}: /help lists them. Nothing was sent."),
    }
}

/// Commands that begin with what is written: the whole name and its help.
pub fn complete(written: &str) -> Vec<(String, String)> {
    let Some(start) = written.strip_prefix('/') else { return Vec::new() };
    if start.contains(char::is_whitespace) {
        return Vec::new();
    }
    TABLE
        .iter()
        .filter(|(n, aliases, ..)| {
            n.starts_with(start) || aliases.iter().any(|a| a.starts_with(start) && !start.is_empty())
        })
        .map(|(n, _, args, help)| {
            let args = if args.is_empty() { String::new() } else { format!(" {args}") };
            (format!("/{n}"), format!("{args}  {help}"))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_become_commands() {
        assert_eq!(parse("/quit"), Ok(Slash::Quit));
        assert_eq!(parse("/EXIT "), Ok(Slash::Quit));
        assert_eq!(parse("/undo 12"), Ok(Slash::Rewind(Some(12))));
        assert_eq!(
            parse("/fork 42 try it again"),
            Ok(Slash::Fork { at: Some(42), directive: Some("try it again".into()) })
        );
        assert_eq!(parse("/fork do it"), Ok(Slash::Fork { at: None, directive: Some("do it".into()) }));
        assert_eq!(parse("/title  a b "), Ok(Slash::Rename("a b".into())));
        assert_eq!(parse("/model a/b high"), Ok(Slash::Model(Some("a/b high".into()))));
        for bad in ["/rename", "/rewind x", "/mode yolo", "/new thing", "/fork 0", "/frobnicate"] {
            assert!(parse(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn unknown_words_name_the_nearest_and_paths_are_no_commands() {
        assert!(parse("/claer").unwrap_err().contains("/clear"));
        assert!(parse("/zzzzzzzzz").unwrap_err().contains("/help"));
        assert!(is_command("/help") && is_command("/compact now"));
        assert!(!is_command("/usr/bin/env is where") && !is_command("/") && !is_command("hi /help"));
    }

    #[test]
    fn completion_shows_arguments() {
        let all = complete("/re");
        assert_eq!(all.iter().map(|c| c.0.as_str()).collect::<Vec<_>>(), ["/rewind", "/resume", "/rename"]);
        assert!(all[0].1.contains("[entry]"));
        assert_eq!(complete("/tit")[0].0, "/rename");
        assert_eq!(complete("/").len(), TABLE.len());
        assert!(complete("/rename x").is_empty() && complete("re").is_empty());
    }

    #[test]
    fn every_row_of_the_table_parses() {
        for (name, aliases, args, _) in TABLE {
            for word in std::iter::once(name).chain(aliases.iter()) {
                let arg = if args.starts_with('<') { " x" } else { "" };
                assert!(parse(&format!("/{word}{arg}")).is_ok(), "{word}");
            }
        }
    }
}
