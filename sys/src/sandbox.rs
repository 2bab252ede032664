//! Computations in separate processes that can do nothing else: input in, output out.
//!
//! Code that computes on untrusted input may take any time and memory, or abort. In a process
//! ([`Process`]) of this program, that harms nobody: the process limits and confines itself
//! ([`confinement`]) before it reads a byte of its input ([`run_if_sandboxed`]), and this process
//! kills it at a deadline, on request, or when its output is too large.
//!
//! ```text
//!   uvmd ── exec of itself ──▶ confine ▶ read input to its end ▶ compute ▶ write output ▶ exit
//!     ├─ pipe: input ────────────────────────┘                              │
//!     └─ pipe: output; messages of a panic or an abort ─────────────────────┘
//! ```
//!
//! **Privileges**: two pipes; a user id that no other process of the node has, if this process may
//! change it and still kill the child; no capabilities; `no_new_privs`; the system calls of
//! computing, none of which names another process or a file. It dies with the thread that started
//! it.

mod child;
mod confinement;
mod process;

use std::time::Duration;

pub use child::{Compute, run_if_sandboxed};
pub use process::{Deadline, Ended, Failure, Process};

/// Limits that the process sets itself.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Bytes of private memory, program included (`RLIMIT_DATA`).
    pub memory_bytes: u64,
    /// Processor time, in whole seconds (`RLIMIT_CPU`): maximum for a [`Deadline`].
    pub cpu: Duration,
}
