//! Actors: processes that make the driver's calls about one target each, in the target's cgroup.
//!
//! Why not this process? Where a VA space does not belong to the memory of its process
//! ([`SpaceFlags`](crate::uvm::call::SpaceFlags)), the driver charges host memory to the cgroup of whoever makes the call, and where that is at its limit
//! the kernel kills in it. A call may also wait long for locks that the target holds. An actor is charged as its target is, is the first to be killed
//! in the target's cgroup (`oom_score_adj`), and may hang or die without harm to anybody else.
//!
//! * [`Spawner`]: the handle of a process that starts actors, which is [`spawner`]'s; [`run_if_spawner`] is its main function
//! * [`Actor`]: the handle of one; what it does itself is [`server`]'s, and what it gives up before is [`confinement`]'s
//! * [`wire`]: what they say to each other
//!
//! ```text
//!   uvmd ── exec of itself ──▶ spawner ── clone3, CLONE_INTO_CGROUP, no exec ──▶ actor
//!    ├─ seqpacket: start (descriptors of VA spaces, channel, cgroup), reap ──┘       │
//!    └─ channel, seqpacket: a request and a reply for each call ─────────────────────┘
//! ```
//!
//! **Why a spawner?** A child of a process with many threads may do next to nothing before exec, as any lock of the allocator may be held; and exec of a program
//! for each batch of calls costs milliseconds and, in the target's cgroup, the memory of a new process image. The spawner has one thread, a small heap, and
//! nothing of this process in it, as it is an exec of the same program ([`Program`]): so its children may be ordinary code, and their memory is what
//! they write to, a few pages. It can be started again at any time, which a fork made before the first thread cannot.
//! It belongs to the thread that started it, and ends when that or its socket does.
//!
//! **What an actor has**: its channel and its target's VA spaces; a user id that nobody else has, where the spawner may change it and still kill what it started; no
//! capabilities; `no_new_privs`; and of system calls those that it needs, of ioctls those of [`Call`](crate::uvm::call::Call). It dies with the spawner (`PR_SET_PDEATHSIG`, and a
//! look whether that is there still), which dies with this process.

mod actor_handle;
mod confinement;
mod error;
#[cfg(feature = "fuzzing")]
pub(crate) mod fuzzing;
mod server;
mod spawner;
mod spawner_handle;
mod step;
mod wire;

pub use actor_handle::{Actor, Reply};
pub use error::{ActorError, Ending};
pub use spawner::run_if_spawner;
pub use spawner_handle::{Program, Spawner};

/// Argument that starts a spawner, the only word of its command line.
pub const SPAWNER_ARGUMENT: &str = "--actor-spawner";
