//! Sources of driver events, and the per-process state made of them.
//!
//! [`Collector`] is the way in: it watches the driver, keeps the probes on it whenever it is there, and gives out snapshots.
//!
//! Inside, from the driver to the snapshot:
//! * `collector`: the thread that does it, and when it does what; `asking`: what others may ask of it
//! * `watcher`: the work itself, step by step
//! * `refusal`: why a driver is not counted on; what this machine lacks, and which driver is loaded, tells [`sys`]
//! * `probes`: the probes themselves, loaded and attached, and their maps
//! * `ledger`: what was counted, by VA space and process; no I/O
//! * `rings`: what was counted lately; no I/O
//! * `identity`, `owner`, `users`, `command_line`, `gpus` and `nvml`: who the processes and GPUs are; `managed`: which memory they have; `aside`:
//!   look-ups that may take their time
//!
//! Everything below /proc and /sys is read through [`Roots`], so that tests can show other machines.
//!
//! The probes see process ids of the initial pid namespace, so uvmd belongs there: in a container, give it the host's (`hostPID`). Give it the
//! host's cgroup namespace too, or /proc/PID/cgroup shows it paths such as `/../../system.slice` instead of those that the host knows.

mod aside;
mod asking;
mod clock;
mod collector;
mod command_line;
mod gpus;
mod identity;
mod ledger;
mod managed;
mod nvml;
mod owner;
mod probes;
mod refusal;
mod rings;
mod users;
mod watcher;

pub use asking::Snapshots;
pub use collector::{BlockLimits, Collector, Config, OwnerLimits, Records, Retention, StartError};
pub use sys::Roots;

#[cfg(feature = "fuzzing")]
#[doc(hidden)]
pub mod fuzzing;

/// For the tests that run the probes on a kernel without kprobes; nothing else needs it.
#[doc(hidden)]
pub mod testing;
