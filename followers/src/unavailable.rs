//! Reasons why a process has no plan.

use std::time::Duration;

use actuator::PlanError;
use model::FollowingState;
use recorder::Unread;
use thiserror::Error;

use crate::shares::ShareError;

/// Reason why a process has no plan, or none that is known.
#[derive(Debug, Error)]
pub(crate) enum Unavailable {
    /// No process has a plan.
    #[error(transparent)]
    Disabled(#[from] Disabled),
    /// The process uses several GPUs.
    #[error("the process uses several GPUs, and a plan is for one GPU")]
    SeveralGpus,
    /// The memory of its GPU is unknown.
    #[error("the GPU's memory size is unknown")]
    UnknownGpuMemory,
    /// Its calls are not read.
    #[error(transparent)]
    Unread(#[from] Unread),
    /// The memory for plans is not readable, for this reason.
    #[error("{0}")]
    PlanMemory(String),
    /// Its helper follows no plans.
    #[error("the process has no helper that follows plans")]
    NoPlanMemory,
    /// The plan in its helper is not usable.
    #[error(transparent)]
    HelperPlan(#[from] PlanError),
    /// Its follower has no memory.
    #[error(transparent)]
    Share(#[from] ShareError),
    /// Its follower has failed.
    #[error("its follower failed: {0}")]
    Failed(Failure),
    /// Its follower has not reported for this time.
    #[error("its follower has not reported for {} s", .0.as_secs())]
    Hung(Duration),
    /// Its follower is throttled.
    #[error("its user has used up its processor time for following calls")]
    Throttled,
}

/// Reason why no process has a plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub(crate) enum Disabled {
    /// The interval of the loop that acts is too long.
    #[error(
        "policy.interval is more than 500 ms, the limit for plans: each interval measures a plan and sends a heartbeat to its helper"
    )]
    Interval,
    /// No helper acts.
    #[error("policy.actuator is \"ioctl\", and only the helper carries out plans")]
    NoHelper,
    /// No calls are recorded.
    #[error("recordings are not enabled (recordings.enabled)")]
    NoRecordings,
}

/// Failure of the thread of a follower.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub(crate) enum Failure {
    /// It has panicked, with this message.
    #[error("{0}")]
    Panic(String),
    /// It has ended.
    #[error("its thread has ended")]
    Ended,
}

impl From<Unavailable> for FollowingState {
    fn from(reason: Unavailable) -> Self {
        Self::Unavailable(reason.to_string())
    }
}
