//! Actors: processes that make the driver's calls about one target each, in the target's cgroup.
//!
//! Reason for a separate process: if a VA space does not belong to the memory of its process
//! ([`SpaceFlags`](crate::uvm::call::SpaceFlags)), the driver charges host memory to the cgroup of
//! the caller. If that cgroup is at its limit, the kernel kills a process in it. A call may also
//! wait long for locks that the target holds. An actor is charged like its target, is the first OOM
//! victim in the target's cgroup (`oom_score_adj`), and may hang or exit without harm to other
//! processes.
//!
//! * [`Spawner`]: handle of a process that starts actors; [`run_if_spawner`] is its main function,
//!   in [`spawner`]
//! * [`Actor`]: handle of an actor, whose main loop is [`server`]; [`confinement`] drops its
//!   privileges first
//! * [`wire`]: messages between the processes
//!
//! Spawners also start servers: [accessors](crate::accessor) and [holders](crate::holder).
//!
//! ```text
//!   uvmd ── exec of itself ──▶ spawner ── clone3, CLONE_INTO_CGROUP, no exec ──▶ actor
//!    ├─ seqpacket: start (descriptors of VA spaces, channel, cgroup), reap ──┘       │
//!    └─ channel, seqpacket: a request and a reply for each call ─────────────────────┘
//! ```
//!
//! **Reason for a spawner**: a child of a process with many threads can do almost nothing before
//! exec, as any lock of the allocator may be held. An exec per batch of calls costs milliseconds
//! and, in the target's cgroup, the memory of a new process image. The spawner has one thread, a
//! small heap and none of this process's memory, as it is an exec of the same program
//! ([`Program`](crate::executable::Program)). Its children may therefore run ordinary code, and their
//! memory is the few pages that they write. It can be restarted at any time, unlike a fork made before the first thread. It
//! belongs to the thread that started it, and exits with that thread or its socket.
//!
//! **Privileges of an actor**: its channel and the VA spaces of its target; a user id that no other
//! process has, if the spawner may change it and still kill its children; no capabilities;
//! `no_new_privs`; the system calls that it needs, and of ioctls those of
//! [`Call`](crate::uvm::call::Call). It dies with the spawner (`PR_SET_PDEATHSIG`, and a check that
//! the spawner still exists), which dies with this process.

mod actor_handle;
mod confinement;
mod error;
#[cfg(feature = "fuzzing")]
pub(crate) mod fuzzing;
mod server;
mod spawner;
mod spawner_handle;
mod wire;

pub use actor_handle::{Actor, Reply};
pub use error::{ActorError, Ending};
pub use spawner::run_if_spawner;
pub use spawner_handle::Spawner;

/// Argument that starts a spawner, the only word of its command line.
pub const SPAWNER_ARGUMENT: &str = "--actor-spawner";
