//! Child processes in their own group.
