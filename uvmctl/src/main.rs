//! The command line of uvmd.
fn main() {}
