//! Accessor: process that reads and writes the shared memory of one user's programs for uvmd.
//!
//! A program can make any access to memory that it shares hang: it swaps pages out and lowers the limit of their
//! cgroup, or punches holes, which an access waits for as long as the page has mappings. No thread of uvmd
//! therefore maps, reads or writes such memory. An accessor does, one request at a time. uvmd may kill it at any
//! time, and one that hangs harms its user alone.
//!
//! * [`server`]: main loop of an accessor
//! * [`wire`]: messages between uvmd and an accessor
//! * [`mapping`]: words that an accessor writes
//!
//! ```text
//!   uvmd ── exec of itself ──▶ spawner ── clone3, no exec ──▶ accessor of a user
//!     └─ channel, seqpacket: descriptors of memories, a request and a reply for each access
//! ```
//!
//! **Privileges of an accessor**: its channel and the memories of its user's programs; a user id that no other
//! process has, if the spawner may change it; no capabilities; `no_new_privs`; the system calls that it needs. It
//! dies with the spawner. [`shared_memory`](crate::shared_memory) has its limits.

pub(crate) mod confinement;
#[cfg(feature = "fuzzing")]
pub(crate) mod fuzzing;
pub(crate) mod mapping;
pub(crate) mod server;
pub(crate) mod wire;
