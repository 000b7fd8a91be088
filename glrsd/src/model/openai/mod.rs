//! OpenAI's Chat Completions, as many providers speak it.
//!
//! Owns: building requests (`request`), reading streams (`stream`), and in one table what each
//! provider does differently (`quirks`). Must not know other dialects, nor where keys come from.

pub(crate) mod quirks;
pub(crate) mod request;
pub(crate) mod stream;

#[cfg(test)]
pub(crate) mod tests;
