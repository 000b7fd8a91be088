//! Folds: pure functions from entries to what is shown and sent.
//!
//! Owns: the model's context ([`context`]), legality of any history ([`legal`]), and the summary
//! of a session — title, usage, model, mode, plan, keys ([`summary`]). Does no I/O, reads no clock
//! and no environment: the same entries give the same result, always.

pub mod context;
pub mod legal;
pub mod micro;
pub mod summary;

pub use context::Context;
pub use legal::legalize;
pub use summary::Summary;
