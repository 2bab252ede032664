//! Holders: processes that hold trackers of the driver's tools interface
//! ([`tracker`](crate::uvm::tracker)) on VA spaces of one user's processes.
//!
//! Reason for a separate process: a tracker keeps its VA space, and with it GPU memory, until the
//! tracker is closed, and whoever closes last runs the driver's teardown, which may take long or
//! hang. A holder closes the trackers of a process as soon as that process has exited, whatever
//! uvmd does meanwhile, and may be killed at any time: all its trackers are then closed. Users do
//! not share one, so that a teardown that hangs harms its user alone. It also waits for queues of
//! records, which only who holds their trackers can, and reports when one is half full.
//!
//! ```text
//!   uvmd ── exec of itself ──▶ spawner ── clone, no exec ──▶ holder of a user ──▶ trackers
//!    ├─ channel, seqpacket: a request and a reply each ────────────┘                  │
//!    └─ memory of a VA space: pages that the driver adds to, mapped by both ◀─────────┘
//! ```
//!
//! * [`server`]: main loop of a holder; [`confinement`]: its privileges; [`wire`]: its messages
//! * [`memory`]: the pages of one VA space
//!
//! **Privileges of a holder**: its channel, descriptors of VA spaces and of the tools device, and
//! handles of the processes; a user id that no other process has, if the spawner may change it; no
//! capabilities; `no_new_privs`; the system calls that it needs, and of ioctls those of a tracker.
//! Its descriptors could read and write managed memory by other ioctls of the same device, which
//! its filter forbids. It reads no data of programs.

pub(crate) mod confinement;
pub(crate) mod memory;
pub(crate) mod server;
pub(crate) mod wire;
