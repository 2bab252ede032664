//! Errors of actors.

use std::{fmt, io};

use thiserror::Error;

use crate::{confinement::Step, pidfd::PidFdError, reason};

/// Reason for a missing reply.
#[derive(Debug, Error)]
pub enum ActorError {
    /// The spawner cannot be started.
    #[error("the actor spawner cannot be started: {}", reason(.0))]
    NoSpawner(#[source] io::Error),
    /// The spawner exited or hangs.
    #[error("the actor spawner does not answer: {}", reason(.0))]
    SpawnerGone(#[source] io::Error),
    /// The kernel cannot start an actor, at least in this cgroup.
    #[error("the kernel cannot start an actor: {}", reason(.0))]
    NotStarted(#[source] io::Error),
    /// The actor could not be confined.
    #[error("actor confinement failed: cannot {step}: {}", reason(source))]
    NotConfined {
        /// Step that failed.
        step: Step,
        /// Error of the step.
        #[source]
        source: io::Error,
    },
    /// The actor exited.
    #[error("the actor {0}")]
    Ended(Ending),
    /// The target exited.
    #[error(transparent)]
    Target(#[from] PidFdError),
}

/// Exit of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// Exit with this status.
    Exited(i32),
    /// Death by this signal.
    Killed(i32),
    /// Unknown exit.
    Unknown,
}

impl fmt::Display for Ending {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Exited(status) => write!(f, "exited with {status}"),
            Self::Killed(signal) => write!(f, "was killed by signal {signal}"),
            Self::Unknown => f.write_str("ended"),
        }
    }
}
