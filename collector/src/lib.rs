//! Sources of driver events, and the per-process state made of them.
//!
//! [`Collector`] is the entry: it monitors the driver, attaches the probes while it is loaded, and
//! publishes snapshots.
//!
//! Modules, from the driver to the snapshot:
//! * `collector`: its thread and schedule; `handle`: requests to it from other threads
//! * `watcher`: the steps of that thread's work
//! * `refusal`: reasons to refuse a driver; [`sys`] reports the missing preconditions, and the
//!   loaded driver
//! * `source`: seam between sources and the watcher; `figures`: their statistics
//! * `probes`: loading, attachment and maps of the probes; `sys_files`: files of /sys for them
//! * `tools`: the driver's own counters of VA spaces; `crosscheck`: comparison of the probes with them
//! * `tenants`: holders of entries in the probes' maps
//! * `ledger`: counts by VA space and process; no I/O
//! * `history`: recent samples of processes and GPUs; no I/O
//! * `identity`, `owner`, `users`, `command_line`, `gpus` and `nvml`: identity of processes and
//!   GPUs; `managed`: mapped managed memory; `code`: modules and functions; `lookup_cache`: slow look-ups, on separate threads;
//!   `user_reads`: what these cost, by user
//!
//! All reads below /proc and /sys go through [`Roots`], so that tests can provide other machines.
//!
//! The probes report process ids of the initial pid namespace, where uvmd therefore belongs: in a
//! container, it needs the host's (`hostPID`). It needs the host's cgroup namespace too; otherwise
//! /proc/PID/cgroup has paths such as `/../../system.slice` instead of the host's.

mod clock;
mod code;
mod collector;
mod command_line;
mod config;
mod crosscheck;
mod figures;
mod gpus;
mod handle;
mod history;
mod id_list;
mod identity;
mod ledger;
mod lookup_cache;
mod managed;
mod nvml;
mod owner;
mod probes;
mod refusal;
mod source;
mod spans;
mod sys_files;
mod tenants;
mod tools;
mod user_reads;
mod users;
mod watcher;

pub use collector::{Collector, StartError};
pub use config::{BlockLimits, Config, OwnerLimits, Records, Retention, SourceChoice};
pub use handle::{Exemptions, Snapshots};
pub use sys::Roots;

#[cfg(feature = "fuzzing")]
#[doc(hidden)]
pub mod fuzzing;

/// Support of the tests that run the probes on a kernel without kprobes.
#[doc(hidden)]
pub mod testing;
