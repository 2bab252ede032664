//! Calls of CUDA programs in order, as recorded by the helper in each program.
//!
//! * [`process`]: ring of a process
//! * [`merge`]: merge of the calls of all threads into one order
//! * `program`: state of a program, from its calls; `map`: maps of the state, whose clones share
//!   their entries
//! * [`ops`]: calls as a stream of operations, the input of planners
//! * [`window`]: last calls of a process, within its quota
//! * [`recordings`]: recordings of the processes of a node, within the quotas of their users, with
//!   `slots`, `reader_time` and `calls`, for readers who follow them; [`recording`]: one of them;
//!   `view`: its form in the API
//! * [`searches`]: searches for rings in the memory maps of processes
//!
//! The program can write anything into the memory that is read. Each record is copied once and then
//! validated. Invalid records are counted. No record can affect the recording of another process.

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
pub use recordings::{CREDIT_PART as READING_CREDIT_PART, NewCalls, NotFound, Quotas, Recordings, Unread, recording};
pub use searches::CREDIT_PART as SEARCHES_CREDIT_PART;
pub use window::Window;
