//! thin
fn main() {}
