//! State shared by the thread that follows a process and the loop that acts.

use std::{
    sync::{Mutex, atomic::AtomicBool},
    time::Instant,
};

use actuator::HelperPlan;
use model::{FollowingState, GpuUuid, IterationBegin};
use plans::{ClaimLimits, FaultCounts, Observation, Table};

use crate::lock;

/// Policy and GPU for which a process is followed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Target {
    pub(crate) policy: &'static str,
    pub(crate) gpu: GpuUuid,
    pub(crate) gpu_bytes: u64,
}

/// State shared by the thread and the loop.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) stop: AtomicBool,
    pub(crate) latest: Mutex<Latest>,
    /// Counts that the thread has not taken yet.
    pub(crate) sample: Mutex<Option<Sample>>,
    /// Plan of the helper in the process, once it is found.
    pub(crate) helper_plan: Mutex<Option<HelperPlan>>,
}

/// Counts of uvmd's probes, as input of a plan.
#[derive(Debug)]
pub(crate) struct Sample {
    /// GPU faults of the process by VA block; `None` if they are not counted.
    pub(crate) faults: Option<FaultCounts>,
    /// Limits of the memory that its calls may claim.
    pub(crate) claim_limits: ClaimLimits,
    /// Managed bytes of the process that the GPU holds, if known.
    pub(crate) capacity_bytes: Option<u64>,
    /// Observation by which probes of launches are judged; `None` if probes are not permitted.
    pub(crate) observation: Option<Observation>,
}

/// State of the thread, as last published.
#[derive(Debug)]
pub(crate) struct Latest {
    pub(crate) state: FollowingState,
    pub(crate) iteration: Option<IterationBegin>,
    /// Time at which the calls for this state were read.
    pub(crate) read_at: Option<Instant>,
    /// Time of the thread's last turn.
    pub(crate) alive_at: Instant,
    /// Begin of the current throttling, if any.
    pub(crate) throttled_since: Option<Instant>,
    /// Plan or table of a probe, with its version.
    pub(crate) table: Option<(u64, Table)>,
}

impl Default for Shared {
    fn default() -> Self {
        let latest = Latest {
            state: FollowingState::Watching,
            iteration: None,
            read_at: None,
            alive_at: Instant::now(),
            throttled_since: None,
            table: None,
        };
        let (latest, sample, helper_plan) = (Mutex::new(latest), Mutex::new(None), Mutex::new(None));
        Self { stop: AtomicBool::new(false), latest, sample, helper_plan }
    }
}

impl Shared {
    /// Publishes a state, with the iteration in progress and the table that it names.
    pub(crate) fn publish(
        &self,
        state: FollowingState,
        iteration: Option<IterationBegin>,
        table: Option<(u64, Table)>,
    ) {
        let mut latest = lock(&self.latest);
        (latest.state, latest.iteration, latest.table) = (state, iteration, table);
    }
}
