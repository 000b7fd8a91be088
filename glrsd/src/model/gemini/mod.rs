//! Google's Gemini API (`generateContent`).
//!
//! Owns: building its requests (`request`), the subset of JSON Schema it takes (`schema`), and reading
//! its streams (`stream`). Must not know other dialects, nor where keys come from.

pub(crate) mod request;
mod schema;
pub(crate) mod stream;

#[cfg(test)]
pub(crate) mod tests;
