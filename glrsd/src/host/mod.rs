//! The only door to the machine: clock, paths, environment, randomness, processes.
//!
//! Everything above gets these as values, so that it can be tested with others.

pub mod clock;
pub mod env;
pub mod figures;
pub mod paths;
pub mod process;
pub mod random;
pub mod reach;
pub mod sandbox;
pub mod scratch;
pub mod service;
pub mod worker;

pub use env::Env;
pub use paths::Paths;
