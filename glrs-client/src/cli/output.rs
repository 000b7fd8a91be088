//! stdout is the answer, stderr the rest.
//!
//! Owns writing to both, so that a reader that is gone ends a command quietly. Must not know what
//! is written.

use super::failure::Failure;
use serde::Serialize;
use std::io::Write as _;

/// Writes text to stdout, with a newline at its end if it has none.
///
/// # Errors
/// When stdout does not take it; a closed pipe is a quiet end.
pub fn text(text: &str) -> Result<(), Failure> {
    let mut out = std::io::stdout().lock();
    out.write_all(text.as_bytes())?;
    if !text.ends_with('\n') {
        out.write_all(b"\n")?;
    }
    Ok(out.flush()?)
}

/// Writes a value to stdout as indented JSON.
///
/// # Errors
/// As [`text`].
pub fn json<T: Serialize>(value: &T) -> Result<(), Failure> {
    text(&serde_json::to_string_pretty(value)?)
}

/// Writes a value to stdout as one line of JSON.
///
/// # Errors
/// As [`text`].
pub fn json_line<T: Serialize>(value: &T) -> Result<(), Failure> {
    text(&serde_json::to_string(value)?)
}

/// Writes a line to stderr. Nothing helps when even that fails.
pub fn note(message: &str) {
    let _ = writeln!(std::io::stderr(), "{}", crate::text::sanitise(message));
}

/// Writes an error to stderr.
pub fn complain(message: &str) {
    note(&format!("glrs: {message}"));
}

/// Rows as aligned columns, two spaces between, the last one unpadded.
pub fn columns(rows: &[Vec<String>]) -> String {
    let count = rows.iter().map(Vec::len).max().unwrap_or(0);
    let widths: Vec<usize> = (0..count)
        .map(|i| rows.iter().filter_map(|r| r.get(i)).map(|c| crate::text::width(c)).max().unwrap_or(0))
        .collect();
    let mut out = String::new();
    for row in rows {
        let mut line = String::new();
        for (i, cell) in row.iter().enumerate() {
            line.push_str(cell);
            if i + 1 < row.len() {
                line.push_str(&" ".repeat(widths[i] - crate::text::width(cell) + 2));
            }
        }
        out.push_str(line.trim_end());
        out.push('\n');
    }
    out
}

#[cfg(test)]
mod tests {
    #[test]
    fn columns_align_by_cells() {
        let rows = [vec!["漢".to_owned(), "x".to_owned()], vec!["abc".to_owned(), "y".to_owned()]];
        assert_eq!(super::columns(&rows), "漢   x\nabc  y\n");
    }
}
