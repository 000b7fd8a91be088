//! OpenAI's Responses API.
//!
//! Owns: building its requests (`request`) and reading its streams (`stream`). Nothing is stored at the
//! provider: reasoning comes encrypted and goes back as it came. Must not know other dialects, nor
//! where keys come from.

pub(crate) mod request;
pub(crate) mod stream;

#[cfg(test)]
pub(crate) mod tests;
