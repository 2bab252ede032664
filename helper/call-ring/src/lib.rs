//! Shared memory between the helper in a CUDA process and uvmd: layout, writer and reader.
//!
//! The helper creates the memory and records the program's calls in it; uvmd reads them. Each thread of
//! the program writes to a lane of its own, a ring buffer with one producer and one consumer. Neither
//! side waits for the other: a call that finds its lane full is dropped and counted.
//!
//! * [`memory`]: header, and layout of the lanes
//! * [`lane`]: ring buffer of records
//! * [`record`]: layout of a record, 64 bytes
//! * [`kind`]: kinds of records, with the meaning of their words
//! * [`group`]: writer of a call, whose records are published together
//! * [`command`]: commands of uvmd to the helper
//! * [`plan`]: schedule of moves at launches, in a shared memory of its own
//! * [`token`]: identity of a launch in a plan
//! * [`advice`]: subjects of advice
//! * [`operation`]: writes of uvmd, which another process applies; [`word`]: shared words and copies
//! * [`call`]: decoder of calls (feature `reader`)
//!
//! All words are little-endian and atomic. uvmd's side works on copies: it reads the words of a copy
//! (`Memory<u64>`), and writes by operations. Neither side trusts the other's words: any value at any time
//! is safe.

#![cfg_attr(not(all(test, loom)), no_std)]

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
#[cfg(test)]
#[cfg(loom)]
mod models;
pub mod operation;
pub mod plan;
pub mod record;
mod sync;
pub mod token;
pub mod word;

pub use command::{Command, Commands};
pub use group::Group;
pub use kind::{Dim3, Kind, MemoryKind, SyncKind, Target};
pub use lane::Lane;
pub use memory::{LayoutError, Memory, Mode, NAME, TOTAL_BYTES};
pub use operation::Operation;
pub use plan::{PLAN_BYTES, PLAN_NAME, Plan, PlanMemory};
pub use record::{Record, Stamp};
pub use token::Token;
pub use word::Word;
