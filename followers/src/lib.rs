//! Plans of moves at launches, for programs with the helper in them whose directive names a plan policy.
//!
//! The loop that acts calls [`Followers`] at each interval: it reads the state of each follower, and publishes a
//! plan to the helper in the process, or none. It also sends the helper's heartbeat: if the loop hangs, programs
//! run without their plans.
//!
//! Each process whose calls are recorded has a thread that follows them: the quotas of recordings therefore apply
//! to plans, too. [`Planners`] make plans in separate processes. Memory and processor time for both are limited
//! per user.
//!
//! * `followers`: followers of all processes; `followed`: one of them, as the loop sees it
//! * `follow`: thread of a follower; `shared`: state that it shares with the loop
//! * `settings`: settings; `sources`: recorded calls and planners, with the processor time of followers
//! * `planning`: planner processes, and their quota
//! * `shares`: memory of followers; `backoff`: retries after refusals
//! * `capacity`: bytes of a process that the GPU holds
//! * `filters`: checks of the filters of system calls; `meter`: processor time of processes
//! * `unavailable`: reasons why a process has no plan

mod backoff;
mod capacity;
mod filters;
mod follow;
mod followed;
mod followers;
mod meter;
mod planning;
mod settings;
mod shared;
mod shares;
mod sources;
mod unavailable;

use std::sync::{Mutex, MutexGuard, PoisonError};

pub use followers::Followers;
pub use planning::{Planners, run_if_planner};
pub use settings::{Probes, Settings};

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests;
