//! Calls of a CUDA program, in their order, as the helper in the program records them.
//!
//! * [`process`]: the ring of a process
//! * [`merge`]: calls of all threads in one order
//! * [`ops`]: calls as a stream of operations, which planners take
//!
//! The memory that is read belongs to the program, which may write anything into it: each record is
//! copied once and then validated, what is not valid is counted, and none of it says anything of
//! another process.

pub mod merge;
pub mod ops;
pub mod process;

pub use merge::Merge;
pub use ops::Ops;
pub use process::{Process, ProcessError};
