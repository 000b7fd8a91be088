//! `glrs sessions import` and `glrs sessions check`: whole sessions at once.
//!
//! Owns the words for what did not map and for what is wrong. The daemon reads and repairs; only
//! stdin is read here.

use super::failure::{Exit, Failure};
use super::output;
use crate::client::Client;
use crate::text;
use clap::ValueEnum;
use glrs_protocol::SessionId;
use glrs_protocol::methods::m;
use glrs_protocol::params::{CheckResult, SessionCheck, SessionImport, TraceRead};
use std::io::Read as _;
use std::path::Path;

/// What a file is that is imported.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum ImportFormat {
    /// Told by its content
    Auto,
    /// A session of glrs
    Glrs,
    /// A transcript of Claude Code
    Claude,
    /// A rollout of Codex
    Codex,
}

impl ImportFormat {
    fn as_str(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::Glrs => "glrs",
            Self::Claude => "claude",
            Self::Codex => "codex",
        }
    }
}

fn parse_id(id: &str) -> Result<SessionId, Failure> {
    id.parse().map_err(|e| Failure::usage(format!("{id:?}: {e}")))
}

/// Prints a session's witness trace, a line each.
///
/// # Errors
/// When the daemon does not have it, or stdout does not take it.
pub async fn trace(client: &Client, id: &SessionId, json: bool) -> Result<(), Failure> {
    let mut offset = 0;
    loop {
        let part = client.call::<m::SessionTraceM>(&TraceRead { id: id.clone(), offset }).await?;
        for line in &part.lines {
            if json { output::text(line.get())? } else { output::text(&witness(line.get()))? }
        }
        match part.next {
            Some(next) => offset = next,
            None => return Ok(()),
        }
    }
}

/// A line of the trace for people: when, what, and its figures.
fn witness(line: &str) -> String {
    let Ok(serde_json::Value::Object(fields)) = serde_json::from_str(line) else { return text::one_line(line) };
    let word = |v: &serde_json::Value| v.as_str().map_or_else(|| v.to_string(), text::one_line);
    let head = ["at", "kind"].iter().filter_map(|k| fields.get(*k)).map(word).collect::<Vec<_>>().join("  ");
    let rest = fields.iter().filter(|(k, _)| !["at", "kind"].contains(&k.as_str()));
    rest.fold(head, |all, (k, v)| format!("{all}  {}={}", text::one_line(k), word(v)))
}

/// Imports a file, and says what did not map.
///
/// # Errors
/// When the daemon does not take it.
pub async fn import(
    client: &Client,
    file: &Path,
    (id, cwd, format): (Option<String>, Option<String>, ImportFormat),
    json: bool,
) -> Result<(), Failure> {
    let id = id.as_deref().map(parse_id).transpose()?;
    let (mut path, mut content) = (None, None);
    if file == Path::new("-") {
        let mut all = String::new();
        std::io::stdin().lock().read_to_string(&mut all)?;
        content = Some(all);
    } else {
        let there =
            std::fs::canonicalize(file).map_err(|e| Failure::error(format!("cannot read {}: {e}", file.display())))?;
        let there = there.into_os_string().into_string();
        path = Some(there.map_err(|p| Failure::error(format!("the path {} is not UTF-8", p.display())))?);
    }
    let params = SessionImport { path, text: content, format: Some(format.as_str().to_owned()), id, cwd };
    let done = client.call::<m::SessionImportM>(&params).await?;
    if json {
        return output::json(&done);
    }
    for note in &done.notes {
        output::note(&text::one_line(note));
    }
    output::text(&format!("{}  {}\n", done.session.id, text::one_line(&done.session.title)))
}

/// Verifies one or all sessions. Ends with 1 when problems remain.
///
/// # Errors
/// When the daemon does not do it.
pub async fn check(client: &Client, id: Option<String>, repair: bool, json: bool) -> Result<Exit, Failure> {
    let id = id.as_deref().map(parse_id).transpose()?;
    let found = client.call::<m::SessionCheckM>(&SessionCheck { id, repair }).await?;
    if json {
        output::json(&found)?;
    } else {
        output::text(&report(&found, repair))?;
    }
    Ok(if found.problems == 0 { Exit::Done } else { Exit::Error })
}

fn report(found: &CheckResult, repair: bool) -> String {
    let mut out = String::new();
    for f in &found.files {
        out.push_str(&format!("{}  {} entries  {}\n", text::one_line(&f.name), f.entries, text::one_line(&f.path)));
        for p in &f.problems {
            let what = text::one_line(&p.what);
            out.push_str(&match (&p.repair, p.repaired) {
                (Some(_), true) => format!("  repaired: {what}\n"),
                (Some(how), false) if !repair => {
                    format!("  problem: {what}\n    --repair would {}\n", text::one_line(how))
                }
                (None, _) => format!("  problem: {what}\n    it cannot be repaired and is left as it is\n"),
                _ => format!("  problem: {what}\n    not repaired\n"),
            });
        }
        for note in &f.notes {
            out.push_str(&format!("  note: {}\n", text::one_line(note)));
        }
        for kept in &f.kept {
            out.push_str(&format!("  kept: {}\n", text::one_line(kept)));
        }
    }
    let problems = match found.problems {
        0 => "no problems".to_owned(),
        1 => "1 problem".to_owned(),
        n => format!("{n} problems"),
    };
    out.push_str(&format!("{} checked, {problems}\n", found.checked));
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use glrs_protocol::params::{CheckProblem, CheckedFile};

    #[test]
    fn a_report_says_what_would_be_done_and_what_was() {
        let problem = |repair: Option<&str>, repaired| CheckProblem {
            what: "torn\u{1b}[31m".into(),
            repair: repair.map(str::to_owned),
            repaired,
        };
        let file = |p| CheckedFile {
            name: "aaaaaaaa".into(),
            path: "/d/aaaaaaaa.json".into(),
            entries: 3,
            problems: vec![p],
            notes: vec!["small".into()],
            kept: vec![],
        };
        let of = |p, repair| report(&CheckResult { checked: 2, problems: 1, files: vec![file(p)] }, repair);
        let told = of(problem(Some("write it anew"), false), false);
        assert!(told.contains("--repair would write it anew") && !told.contains('\u{1b}'), "{told}");
        assert!(told.ends_with("  note: small\n2 checked, 1 problem\n"), "{told}");
        assert!(of(problem(Some("write it anew"), true), true).contains("repaired: torn"));
        assert!(of(problem(None, false), true).contains("cannot be repaired"));
    }
}
