//! Why an actor did not do what it was asked for.

use std::{fmt, io};

use thiserror::Error;

use super::step::Step;
use crate::{pidfd::PidFdError, reason};

/// Why there is no reply.
#[derive(Debug, Error)]
pub enum ActorError {
    /// There is no process that starts actors.
    #[error("the actor spawner cannot be started: {}", reason(.0))]
    NoSpawner(#[source] io::Error),
    /// That process is gone, or hangs.
    #[error("the actor spawner does not answer: {}", reason(.0))]
    SpawnerGone(#[source] io::Error),
    /// The kernel starts none, there at least.
    #[error("the kernel starts no actor: {}", reason(.0))]
    NotStarted(#[source] io::Error),
    /// It could not give up what it may not have.
    #[error("actor confinement failed: cannot {step}: {}", reason(source))]
    NotConfined {
        /// What it could not do.
        step: Step,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// It is gone.
    #[error("the actor {0}")]
    Ended(Ending),
    /// Its target is gone.
    #[error(transparent)]
    Target(#[from] PidFdError),
}

/// How a process ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// By itself, with this status.
    Exited(i32),
    /// By this signal.
    Killed(i32),
    /// Nobody knows how.
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
