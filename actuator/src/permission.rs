//! Permission for the helper in a program to act.
//!
//! The helper does not ask the kernel about filters of system calls that the program has installed since it
//! started, as they may end the program for the question. uvmd asks before it has the helper act.

use std::io;

use call_ring::{Memory, Mode};
use sys::{Roots, seccomp};
use thiserror::Error;

/// Reason why the helper of a process does not act.
#[derive(Debug, Error)]
pub enum ActError {
    /// The helper passes calls through.
    #[error("recording is off in it")]
    Off,
    /// A thread has other filters of system calls than the helper at its start.
    #[error("the program has installed a seccomp filter since it started")]
    Filtered,
    /// The filters of a thread are unknown.
    #[error("the program's seccomp filters are unknown: {}", sys::reason(.0))]
    Filters(#[from] io::Error),
}

/// Has the helper act by its ring, unless the program has installed a filter since the helper started. Then it
/// acts no more.
pub(crate) fn act(roots: &Roots, pid: u32, ring: &Memory<'_>) -> Result<(), ActError> {
    if ring.mode() == Mode::Off {
        return Err(ActError::Off);
    }
    if let Err(error) = check_filters(roots, pid, ring) {
        if ring.mode() == Mode::Act {
            ring.set_mode(Mode::Record);
        }
        return Err(error);
    }
    if ring.act() { Ok(()) } else { Err(ActError::Off) }
}

fn check_filters(roots: &Roots, pid: u32, ring: &Memory<'_>) -> Result<(), ActError> {
    let has_those_of_start = match ring.filters() {
        Some(filters) => seccomp::threads_have(roots, pid, filters)?,
        None => false,
    };
    if has_those_of_start { Ok(()) } else { Err(ActError::Filtered) }
}
