//! Independent checkers: message sequences and session files.
//!
//! Owns the rules as the specification words them, written without the product's code. Each
//! checker returns what it found wrong, in words; nothing found means legal.

pub mod file;
pub mod messages;

pub use file::{Report, home as check_home, session as check_session};
pub use messages::check as check_messages;
