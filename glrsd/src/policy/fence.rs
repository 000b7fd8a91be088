//! The deny rules for files, made ready for many files.
//!
//! Owns which of the files that a walk meets are left out. Pure like the rest: it reads no file.

use super::Around;
use super::rule::{self, Forbidden, Rule};
use std::path::Path;

/// What a tool must not look at.
#[derive(Clone, Debug, Default)]
pub struct Fence {
    patterns: Vec<Forbidden>,
    /// A rule forbids the tool as a whole.
    all: bool,
}

impl Fence {
    /// What these rules forbid the tool.
    pub fn new<'a>(deny: impl IntoIterator<Item = &'a String>, tool: &str, around: &Around) -> Self {
        let mut fence = Self::default();
        for text in deny {
            let rule = Rule::parse(text);
            let name = rule.as_ref().map_or_else(|_| Rule::name_of(text), |r| r.name);
            if name.is_empty() || !rule::covers(name, tool) {
                continue;
            }
            match rule.ok().and_then(|r| r.pattern) {
                Some(pattern) => fence.patterns.push(Forbidden::new(pattern, around)),
                None => fence.all = true,
            }
        }
        fence
    }

    /// Whether nothing is forbidden.
    pub fn is_open(&self) -> bool {
        !self.all && self.patterns.is_empty()
    }

    /// Whether a file must not be looked at. Absolute.
    pub fn keeps_out(&self, path: &Path) -> bool {
        self.all || self.patterns.iter().any(|p| p.names(path))
    }
}
