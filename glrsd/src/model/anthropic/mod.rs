//! Anthropic's Messages API.
//!
//! Owns: building its requests (`request`) and reading its streams (`stream`). Must not know other
//! dialects, nor where keys come from.

pub(crate) mod request;
pub(crate) mod stream;

#[cfg(test)]
pub(crate) mod tests;
