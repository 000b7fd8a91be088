//! The prompt of `--print`: its words, and what is piped in.
//!
//! Owns reading stdin within a limit and fencing it in, so that the model can tell the words from
//! the data. Must not know what happens to the prompt.

use super::failure::Failure;
use super::output;
use std::io::{IsTerminal as _, Read as _};
use std::time::Duration;

/// Most bytes of stdin that become part of a prompt. More belongs into a file the agent reads.
pub const STDIN_MAX: u64 = 8 * 1024 * 1024;

/// The whole prompt of these words and what stdin holds.
///
/// # Errors
/// When both are blank, or stdin is too large or cannot be read.
pub async fn read(words: &str) -> Result<String, Failure> {
    let piped = if std::io::stdin().is_terminal() { None } else { piped().await? };
    join(words, piped.as_deref().unwrap_or(""))
        .ok_or_else(|| Failure::usage("the prompt is blank: give it to --print or pipe it in".to_owned()))
}

async fn piped() -> Result<Option<String>, Failure> {
    let mut reading = tokio::task::spawn_blocking(|| {
        let mut bytes = Vec::new();
        std::io::stdin().lock().take(STDIN_MAX + 1).read_to_end(&mut bytes).map(|_| bytes)
    });
    // A pipe that nobody closes looks like a hang; say what is waited for.
    let read = match tokio::time::timeout(Duration::from_secs(3), &mut reading).await {
        Ok(read) => read,
        Err(_) => {
            output::note("glrs: reading stdin until its end (redirect it from /dev/null if there is nothing)");
            reading.await
        }
    };
    let bytes = match read {
        Ok(Ok(bytes)) => bytes,
        // A closed stdin is an empty one.
        Ok(Err(e)) if e.raw_os_error() == Some(rustix::io::Errno::BADF.raw_os_error()) => Vec::new(),
        Ok(Err(e)) => return Err(Failure::error(format!("cannot read stdin: {e}"))),
        Err(e) => return Err(Failure::error(format!("cannot read stdin: {e}"))),
    };
    if bytes.len() as u64 > STDIN_MAX {
        return Err(Failure::error(format!(
            "stdin is larger than {} MiB: put it into a file and name the file in the prompt",
            STDIN_MAX >> 20
        )));
    }
    Ok(Some(String::from_utf8_lossy(&bytes).into_owned()))
}

/// Words and data as one prompt; `None` when both are blank.
pub fn join(words: &str, data: &str) -> Option<String> {
    match (words.trim().is_empty(), data.trim().is_empty()) {
        (true, true) => None,
        (false, true) => Some(words.to_owned()),
        (true, false) => Some(data.to_owned()),
        (false, false) => Some(format!("{}\n\n{}", words.trim_end(), fence(data))),
    }
}

/// Data between fences that do not occur in it.
fn fence(data: &str) -> String {
    let longest = data.lines().map(|l| l.trim_start().bytes().take_while(|b| *b == b'`').count()).max().unwrap_or(0);
    let fence = "`".repeat(longest.max(2) + 1);
    let newline = if data.ends_with('\n') { "" } else { "\n" };
    format!("{fence}stdin\n{data}{newline}{fence}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn data_is_fenced_and_words_are_not() {
        assert_eq!(join(" ", "\n"), None);
        assert_eq!(join("why?", ""), Some("why?".into()));
        assert_eq!(join("", "a prompt\n"), Some("a prompt\n".into()));
        assert_eq!(join("why?\n", "log line"), Some("why?\n\n```stdin\nlog line\n```".into()));
        let tricky = join("x", "````\ncode\n````\n").unwrap();
        assert!(tricky.contains("\n`````stdin\n````\ncode\n````\n`````"), "{tricky}");
    }
}
