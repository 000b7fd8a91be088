//! The prompt history: what people typed, for the arrow-up key.
//!
//! Owns prompts.json: a JSON array of strings, newest last. A damaged one is read as far as it
//! goes, set aside at the next push, and never wiped. Must not know sessions.

use super::Store;
use super::error::DiskError;
use super::json::{self, Walk};
use super::pool::lock;
use super::write::beside;
use std::fs;
use std::io::{self, ErrorKind};

/// How many prompts are kept.
const MOST: usize = 100;

/// The prompts in a file, and whether it was a whole, proper one.
fn parse(bytes: &[u8]) -> (Vec<String>, bool) {
    if let Ok(prompts) = serde_json::from_slice::<Vec<String>>(bytes) {
        return (prompts, true);
    }
    let mut prompts = Vec::new();
    let bytes = bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(bytes);
    let start = json::skip_ws(bytes, 0);
    if bytes.get(start) == Some(&b'[')
        && let Some(mut walk) = Walk::new(bytes, start)
    {
        while let Ok(Some(value)) = walk.element() {
            prompts.extend(json::text(value).filter(|_| value.starts_with(b"\"")));
        }
    }
    (prompts, false)
}

impl Store {
    /// The list of trusted projects, as text; empty when there is none.
    pub fn trusted(&self) -> String {
        fs::read_to_string(self.0.paths.trusted()).unwrap_or_default()
    }

    /// Replaces the list of trusted projects.
    ///
    /// # Errors
    /// When the disk refuses.
    pub fn set_trusted(&self, text: &str) -> Result<(), DiskError> {
        let path = self.0.paths.trusted();
        self.0.disk.put(&path, text.as_bytes()).map_err(|e| DiskError::new(&path, &e))
    }

    /// The rules that "always" added. What cannot be read counts as absent: then more is asked.
    pub fn allowed(&self) -> String {
        fs::read_to_string(self.0.paths.allowed()).unwrap_or_default()
    }

    /// Replaces those rules by what `change` makes of them, if anything. Two changes never meet.
    ///
    /// # Errors
    /// When the disk refuses.
    pub fn change_allowed(&self, change: impl FnOnce(&str) -> Option<String>) -> Result<(), DiskError> {
        let _held = lock(&self.0.prompts);
        let path = self.0.paths.allowed();
        match change(&self.allowed()) {
            Some(text) => self.0.disk.put(&path, text.as_bytes()).map_err(|e| DiskError::new(&path, &e)),
            None => Ok(()),
        }
    }

    /// The prompt history, newest last. What cannot be read counts as absent.
    pub fn prompts(&self) -> Vec<String> {
        let _held = lock(&self.0.prompts);
        fs::read(self.0.paths.prompts()).map(|b| parse(&b).0).unwrap_or_default()
    }

    /// Adds a prompt, unless it is the last one already.
    ///
    /// # Errors
    /// When the disk refuses; the history is then as it was.
    pub fn push_prompt(&self, text: &str) -> Result<(), DiskError> {
        let _held = lock(&self.0.prompts);
        let path = self.0.paths.prompts();
        let push = || -> io::Result<()> {
            let (mut prompts, proper) = match fs::read(&path) {
                Ok(bytes) => parse(&bytes),
                Err(e) if e.kind() == ErrorKind::NotFound => (Vec::new(), true),
                Err(e) => return Err(e),
            };
            if proper && prompts.last().is_some_and(|p| p == text) {
                return Ok(());
            }
            if prompts.last().is_none_or(|p| p != text) {
                prompts.push(text.to_owned());
            }
            prompts.drain(..prompts.len().saturating_sub(MOST));
            if !proper {
                self.0.disk.rename(&path, &beside(&path, "broken"))?;
            }
            self.0.disk.put(&path, &serde_json::to_vec(&prompts)?)
        };
        push().map_err(|e| DiskError::new(&path, &e))
    }
}
