//! What uvmd knows of a process whose recorded calls it follows for a plan, and of the plan.

use serde::{Deserialize, Serialize};

use crate::{GpuUuid, ProcessId, policy::Promise};

/// A process whose calls are followed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Following {
    /// GPU that plans are made for.
    pub gpu: GpuUuid,
    /// Policy whose planners make them.
    pub policy: &'static str,
    /// What came of it.
    pub state: FollowingState,
    /// The last iteration that has begun; `None` while none is known.
    pub iteration: Option<IterationBegin>,
    /// What came of the plans that were published.
    pub report: PlanReport,
}

/// State of following.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FollowingState {
    /// Calls cannot be followed: the reason.
    Unavailable(String),
    /// No iteration is confirmed.
    Watching,
    /// Probes find out which memory launches access, before a plan is made.
    Probing(ProbedIteration),
    /// A plan is being made: what its planners do, or wait for.
    Planning(&'static str),
    /// There is no plan for the iteration: the reason.
    Refused(String),
    /// There is a plan.
    Planned(PlannedIteration),
}

impl FollowingState {
    /// Name in JSON.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Unavailable(_) => "unavailable",
            Self::Watching => "watching",
            Self::Probing(_) => "probing",
            Self::Planning(_) => "planning",
            Self::Refused(_) => "refused",
            Self::Planned(_) => "planned",
        }
    }

    /// Reason why there is no plan; `None` if there is one.
    #[must_use]
    pub fn reason(&self) -> Option<&str> {
        match self {
            Self::Unavailable(reason) | Self::Refused(reason) => Some(reason),
            Self::Planning(status) => Some(status),
            Self::Watching => Some("no iteration is confirmed yet"),
            Self::Probing(_) => Some("probes find out which memory launches access"),
            Self::Planned(_) => None,
        }
    }
}

/// Begin of an iteration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IterationBegin {
    /// Number since iterations are known.
    pub number: u64,
    /// Time of its first launch, by the clock of the recording.
    pub at_ns: u64,
}

/// How many launches a program may be ahead of its GPU: those since it last waited for the GPU.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct LaunchLead {
    /// Median of the launches of an iteration.
    pub median_launches: u64,
    /// Most of any.
    pub most_launches: u64,
    /// Launches of an iteration by their leads, the shortest first.
    #[serde(default)]
    pub histogram: Vec<LeadBucket>,
}

/// Launches whose leads are alike.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct LeadBucket {
    /// They are ahead by no more launches than this, one of 0, 1, 3, 7, 15 and so on, and by more than the number before it.
    pub lead_launches_max: u64,
    /// Number of them.
    pub launches: u64,
}

impl LaunchLead {
    /// Of these leads, one for each launch of an iteration; `None` without any.
    #[must_use]
    pub fn of(leads: &[u64]) -> Option<Self> {
        let mut leads = leads.to_vec();
        leads.sort_unstable();
        let (median_launches, most_launches) = (*leads.get(leads.len() / 2)?, *leads.last()?);
        let lead_launches_max =
            |lead: u64| lead.checked_add(1).and_then(u64::checked_next_power_of_two).map_or(u64::MAX, |next| next - 1);
        let alike = leads.chunk_by(|first, second| lead_launches_max(*first) == lead_launches_max(*second));
        let histogram = alike
            .filter_map(|leads| {
                Some(LeadBucket { lead_launches_max: lead_launches_max(*leads.first()?), launches: leads.len() as u64 })
            })
            .collect();
        Some(Self { median_launches, most_launches, histogram })
    }
}

/// What probes of launches have found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct ProbeFigures {
    /// Launches of an iteration that are to be probed.
    pub launches: u64,
    /// Those of which it is known what they access.
    pub probed: u64,
    /// Iterations with moves of probes.
    pub iterations: u64,
    /// Bytes that launches name, as far as they are probed; each launch counts.
    pub named_bytes: u64,
    /// Bytes of them that count as accessed.
    pub touched_bytes: u64,
}

/// Iteration whose launches are probed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ProbedIteration {
    /// Version of the table of moves that is to be followed, among plans and tables of the process; `None` if
    /// none is at present.
    pub publish: Option<u64>,
    /// Bytes of its moves to the GPU.
    pub to_gpu_bytes: u64,
    /// Bytes of its moves to the host.
    pub to_host_bytes: u64,
    /// Duration of an iteration.
    pub duration_ns: u64,
    /// What is known by now.
    pub figures: ProbeFigures,
}

/// Plan for an iteration, in figures.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlannedIteration {
    /// Number of the plan among those of the process: another plan has another one.
    pub version: u64,
    /// Planner that made it.
    pub planner: &'static str,
    /// Launches of an iteration.
    pub launches: u64,
    /// Duration of the iteration that it was made of.
    pub duration_ns: u64,
    /// Moves of an iteration.
    pub moves: u64,
    /// Bytes of moves to the GPU.
    pub to_gpu_bytes: u64,
    /// Bytes of moves to the host.
    pub to_host_bytes: u64,
    /// Bytes that are left to faults.
    pub faulted_bytes: u64,
    /// Bytes that are left to the driver's evictions.
    pub evicted_bytes: u64,
    /// Blocks that are left to faults, new memory included.
    pub faulted_blocks: u64,
    /// Bytes over the link without it, by a model of the driver.
    pub driver_bytes: u64,
    /// Blocks that come by faults without it, by the same model.
    pub driver_faulted_blocks: u64,
    /// Most bytes on the GPU that it relies on.
    pub peak_bytes: u64,
    /// Bytes that it may have there.
    pub room_bytes: u64,
    /// How far launches are ahead of the GPU, at most; `None` if the program does not wait in an iteration.
    pub lead: Option<LaunchLead>,
    /// Share of the VA blocks with GPU faults that arguments of launches name, in percent; `None` if not known.
    pub coverage_percent: Option<u64>,
    /// What probes of its launches have found; `None` without any.
    pub probes: Option<ProbeFigures>,
    /// Memory that moves, by address.
    pub ranges: Vec<(u64, u64)>,
}

impl PlannedIteration {
    /// Bytes over the link, in both directions.
    #[must_use]
    pub const fn link_bytes(&self) -> u64 {
        let Self { to_gpu_bytes, to_host_bytes, faulted_bytes, evicted_bytes, .. } = *self;
        to_gpu_bytes.saturating_add(to_host_bytes).saturating_add(faulted_bytes).saturating_add(evicted_bytes)
    }

    /// Bytes of the memory that moves.
    #[must_use]
    pub fn range_bytes(&self) -> u64 {
        self.ranges.iter().map(|(begin, end)| end.saturating_sub(*begin)).fold(0, u64::saturating_add)
    }
}

/// What came of the plans of a process, as its helper reports: the process may write any numbers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PlanReport {
    /// Why the plan that was published last is not followed any more; `None` while it may be.
    pub ended: Option<String>,
    /// Counters since the process's start.
    pub counters: PlanCounters,
}

/// Counters of plans that are carried out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct PlanCounters {
    /// Iterations that were followed to their end.
    pub iterations: u64,
    /// Moves handed over to the driver.
    pub moves: u64,
    /// Moves for which a launch did not wait.
    pub late: u64,
    /// Moves that were not made, as they had expired.
    #[serde(default)]
    pub expired: u64,
    /// Moves and waits that were left out.
    pub skipped: u64,
    /// Bytes of moves to the GPU.
    pub to_gpu_bytes: u64,
    /// Bytes of moves to the host.
    pub to_host_bytes: u64,
}

impl PlanCounters {
    /// What was counted since.
    #[must_use]
    pub const fn since(self, earlier: Self) -> Self {
        Self {
            iterations: self.iterations.saturating_sub(earlier.iterations),
            moves: self.moves.saturating_sub(earlier.moves),
            late: self.late.saturating_sub(earlier.late),
            expired: self.expired.saturating_sub(earlier.expired),
            skipped: self.skipped.saturating_sub(earlier.skipped),
            to_gpu_bytes: self.to_gpu_bytes.saturating_sub(earlier.to_gpu_bytes),
            to_host_bytes: self.to_host_bytes.saturating_sub(earlier.to_host_bytes),
        }
    }

    /// Sum of both.
    #[must_use]
    pub const fn plus(self, other: Self) -> Self {
        Self {
            iterations: self.iterations.saturating_add(other.iterations),
            moves: self.moves.saturating_add(other.moves),
            late: self.late.saturating_add(other.late),
            expired: self.expired.saturating_add(other.expired),
            skipped: self.skipped.saturating_add(other.skipped),
            to_gpu_bytes: self.to_gpu_bytes.saturating_add(other.to_gpu_bytes),
            to_host_bytes: self.to_host_bytes.saturating_add(other.to_host_bytes),
        }
    }

    /// Bytes in both directions.
    #[must_use]
    pub const fn bytes(self) -> u64 {
        self.to_gpu_bytes.saturating_add(self.to_host_bytes)
    }
}

/// Command to the helper that carries out the plan of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PlanCommand {
    /// Process.
    pub process: ProcessId,
    /// Table to publish; `None` to withdraw any.
    pub publish: Option<Publication>,
}

/// Table of a plan or of a probe that is carried out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Publication {
    /// Version of it.
    pub version: u64,
    /// Whether launches wait until the moves that they need are handed over to the driver.
    pub launches_wait: bool,
}

/// Iterations with a plan or without it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct ArmFigures {
    /// Iterations that count: the first quarter of each block does not.
    pub iterations: u64,
    /// Bytes over the link for the process, in both directions: median of the iterations. Null before any.
    pub link_bytes: Option<u64>,
    /// GPU faults of the process: median of the iterations. Null before any.
    pub faults: Option<u64>,
    /// Duration in nanoseconds: median of the iterations. Null before any.
    pub duration_ns: Option<u64>,
}

/// Evidence of a plan of moves at launches.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct PlanEvidence {
    /// Planner that made it.
    pub planner: String,
    /// What it promises: the p-value is about that.
    pub promise: Promise,
    /// Launches of an iteration.
    pub launches: u64,
    /// Share of the VA blocks with GPU faults that arguments of launches name, since iterations were known. Null if there were no
    /// such faults, or no records of blocks.
    pub coverage_ratio: Option<f64>,
    /// How far launches are ahead of the GPU, at most. Null if the program does not wait for it in an iteration.
    #[serde(default)]
    pub lead: Option<LaunchLead>,
    /// Moves of an iteration.
    pub planned_moves: u64,
    /// Planned bytes over the link per iteration, in both directions.
    pub planned_bytes: u64,
    /// Most bytes of the process on the GPU that the plan relies on.
    #[serde(default)]
    pub planned_peak_bytes: u64,
    /// Bytes that it may have there.
    #[serde(default)]
    pub room_bytes: u64,
    /// The same without the plan, by a model of the driver.
    pub modelled_driver_bytes: u64,
    /// Blocks that the plan leaves to faults per iteration, by a model of the driver.
    pub planned_faulted_blocks: u64,
    /// Blocks that come by faults without the plan, by the same model.
    pub modelled_driver_faulted_blocks: u64,
    /// Blocks of iterations that count, with the plan and without it.
    pub blocks: u64,
    /// Measured without the plan.
    pub without: ArmFigures,
    /// Measured with it.
    pub with: ArmFigures,
    /// Share of arrangements of the blocks that show as much of a difference in what it promises; null before all blocks are measured.
    pub p_value: Option<f64>,
    /// Whether launches wait until a move is handed over to the driver, as too many moves expired.
    #[serde(default)]
    pub launches_wait: bool,
    /// What was counted since the decision. Bytes are at most those that the driver has copied in the same intervals.
    pub counters: PlanCounters,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn leads_have_their_median_the_most_and_a_histogram_by_powers_of_two() {
        let bucket = |lead_launches_max, launches| LeadBucket { lead_launches_max, launches };
        let lead = LaunchLead::of(&[0, 1, 2, 0, 9, 3]).unwrap();
        assert_eq!((lead.median_launches, lead.most_launches), (2, 9));
        assert_eq!(lead.histogram, [bucket(0, 2), bucket(1, 1), bucket(3, 2), bucket(15, 1)]);
        assert_eq!(LaunchLead::of(&[]), None);
        assert_eq!(LaunchLead::of(&[u64::MAX]).unwrap().histogram, [bucket(u64::MAX, 1)]);
    }
}
