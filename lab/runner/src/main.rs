//! Runs a scenario on the lab's GPU and compares uvmd with the truth.
fn main() {}
