//! The socket, the connections, and the writing of what they are owed.
//!
//! Owns: binding (under the daemon's lock), accepting, framing, and one reader and one writer task
//! per connection. Replies come first; then each attached session's frames, up to 64 KiB a write.
//! A client that takes nothing for 30 s is dropped. Must not know what methods do.

pub mod conn;
pub mod lines;
pub mod socket;
