//! Invented nodes for tests.
//!
//! * [`crowd`]: node with many processes, and verdicts about them
//! * [`collector`]: server of a crowd's snapshots
//! * [`distant`]: listener that presents clients of this machine as clients of the network
//! * [`exposition`]: metrics without the label that all have
//! * [`owners()`]: sums of the owners of processes
//! * [`thrashing`]: node on which one process thrashes and evicts another's memory, as in the API
#![expect(clippy::panic, reason = "a library for tests alone")]

pub mod collector;
pub mod crowd;
pub mod distant;
pub mod exposition;
mod owners;
pub mod thrashing;
mod verdicts;

pub use crowd::Crowd;
pub use distant::Distant;
pub use owners::owners;
