//! Nodes made up for tests.
//!
//! * [`crowd`]: a node with many processes, and verdicts about them
//! * [`collector`]: serves snapshots of a crowd
//! * [`distant`]: a listener for which clients of this machine come over the network
//! * [`exposition`]: metrics without the label that all have
//! * [`thrashing`]: a node on which one process thrashes and evicts another's memory, as the API shows it
#![expect(clippy::panic, reason = "a library for tests alone")]

pub mod collector;
pub mod crowd;
pub mod distant;
pub mod exposition;
pub mod thrashing;
mod verdicts;

pub use crowd::Crowd;
pub use distant::Distant;
