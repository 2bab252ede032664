//! Shared memory between the helper in a CUDA process and uvmd: its layout, and both of its sides.
//!
//! The helper makes the memory and writes records of the calls that the program makes; uvmd reads
//! them. Each thread of the program writes to a lane of its own, a ring of one producer and one
//! consumer. Nobody waits for the other: a call that finds its lane full is dropped and counted.
//!
//! * [`memory`]: the header, the lanes and where they lie
//! * [`lane`]: a lane
//! * [`record`]: a record as it lies in memory, 64 bytes
//! * [`kind`]: kinds of records, with what their words say
//! * [`group`]: the records of a call, written and published together
//! * [`command`]: calls that uvmd asks the helper to make
//! * [`plan`]: moves of memory at launches, which the helper makes by itself, in a memory of their own
//! * [`token`]: what identifies a launch in a plan
//! * [`advice`]: what advice of the program is about
//! * [`call`]: a call as it is read (feature `reader`)
//!
//! All words are little-endian and atomic: either side may write anything at any time, and the other
//! takes no harm from it.

#![no_std]

#[cfg(feature = "reader")]
extern crate alloc;

pub mod advice;
#[cfg(feature = "reader")]
pub mod call;
pub mod command;
pub mod group;
pub mod kind;
pub mod lane;
pub mod memory;
pub mod plan;
pub mod record;
pub mod token;

pub use command::{Command, Commands};
pub use group::Group;
pub use kind::{Kind, MemoryKind, Size, SyncKind, Target};
pub use lane::Lane;
pub use memory::{Invalid, Memory, Mode, NAME, TOTAL_BYTES};
pub use plan::{PLAN_BYTES, PLAN_NAME, Plan, PlanMemory};
pub use record::{Record, Stamp};
pub use token::Token;
