//! Calls of a CUDA program, in their order, as the helper in the program records them.
//!
//! * [`process`]: the ring of a process
//! * [`merge`]: calls of all threads in one order
//! * `program`: what a program has, by its calls; `map`: maps of it whose clones share their entries
//! * [`ops`]: calls as a stream of operations, which planners take
//! * [`window`]: the last calls of a process, within its quota
//! * [`recordings`]: recordings of the processes of a node, within the quotas of their users, with
//!   `places` and `reader_time`; [`recording`]: one of them; `view`: as the API shows it
//! * [`searches`]: searches for rings in the memory maps of processes
//!
//! The memory that is read belongs to the program, which may write anything into it: each record is
//! copied once and then validated, what is not valid is counted, and none of it says anything of
//! another process.

mod map;
pub mod merge;
pub mod ops;
pub mod process;
mod program;
pub mod recordings;
pub mod searches;
mod view;
#[cfg(test)]
mod visits;
pub mod window;

pub use merge::Merge;
pub use ops::Ops;
pub use process::{Memories, Process, ProcessError};
pub use program::{BYTES_MAX as PROGRAM_BYTES_MAX, LiveBlock, Program};
pub use recordings::{CREDIT_PART as READING_CREDIT_PART, Quotas, Recordings, recording};
pub use searches::CREDIT_PART as SEARCHES_CREDIT_PART;
pub use window::Window;
