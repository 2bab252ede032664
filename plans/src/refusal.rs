//! Reasons for refusing a plan.

use call_ring::plan::{MOVES_MAX, PERIOD_MAX};
use planner::Unplannable;
use serde::{Deserialize, Serialize};
use thiserror::Error;

/// Reason for refusing a plan for an iteration.
#[derive(Clone, Debug, PartialEq, Eq, Error, Serialize, Deserialize)]
#[expect(missing_docs, reason = "the messages document the variants")]
pub enum Refusal {
    #[error("the program has no managed memory")]
    NoManagedMemory,
    #[error("launches are in CUDA graphs, within which no memory can be moved")]
    Graphs,
    #[error("the arguments of {launches} launches of an iteration are unknown")]
    CoverageUnknown { launches: usize },
    #[error("launches name only {percent} % of the VA blocks that the GPU faults on")]
    CoverageTooLow { percent: u64 },
    #[error("the program has more allocations, functions and graphs than uvmd retains")]
    Incomplete,
    #[error("iterations launch the same functions, but with different grid or block sizes")]
    ShapesVary,
    #[error("an iteration has {launches} launches; a plan holds 1 to {}", PERIOD_MAX)]
    Period { launches: usize },
    #[error("an iteration is longer than the calls that uvmd retains")]
    TooLong,
    #[error("a launch uses {needed_bytes} bytes, more than the {limit_bytes} that a plan permits per launch")]
    OpTooLarge { needed_bytes: u64, limit_bytes: u64 },
    #[error("no plan is needed: an iteration uses {used_bytes} bytes, and {room_bytes} are available")]
    Fits { used_bytes: u64, room_bytes: u64 },
    #[error("{immovable_bytes} bytes cannot be moved, and a plan may use {room_bytes}")]
    ImmovableTooLarge { immovable_bytes: u64, room_bytes: u64 },
    #[error("the plan would have {moves} moves, more than the maximum of {}", MOVES_MAX)]
    TooManyMoves { moves: usize },
    #[error("the planner has no schedule: {0}")]
    Unplannable(#[from] Unplannable),
    #[error("no schedule of the planner fits into the GPU's memory between launches")]
    NoRoom,
    #[error("the plan would copy {planned_bytes} bytes per iteration, and the driver alone {driver_bytes}")]
    NoGain { planned_bytes: u64, driver_bytes: u64 },
    #[error("the plan would not reduce faults: {planned} blocks per iteration, {driver} by the driver alone")]
    NoFewerFaults { planned: u64, driver: u64 },
    #[error("the program waits for the GPU before each launch, which leaves no time to prefetch")]
    NoLead,
    #[error("an iteration uses no memory that can be moved")]
    NoMovableMemory,
    #[error("the GPU faults on more than {blocks_max} VA blocks of the process, the limit of its follower")]
    TooManyFaults { blocks_max: usize },
    #[error(
        "the program claims an allocation of {claimed_bytes} bytes, more than the {limit_bytes} of the node and its GPUs"
    )]
    ClaimTooLarge { claimed_bytes: u64, limit_bytes: u64 },
    #[error("{reason}; {unmapped_bytes} bytes that the program claims are not mapped, and are ignored")]
    Unmapped { unmapped_bytes: u64, reason: Box<Self> },
    #[error("following the program needs {needed_bytes} bytes of memory, more than its limit of {limit_bytes} bytes")]
    MemoryBudget { needed_bytes: u64, limit_bytes: u64 },
    #[error("the recorded calls are not a valid trace: {reason}")]
    Invalid { reason: String },
    #[error(
        "an iteration has {launches} launches and {pieces} pieces of memory with {uses} uses; \
         planners accept {pieces_max} pieces, {uses_max} uses, and {pairs_max} pairs of a piece and a launch"
    )]
    TooLarge { launches: usize, pieces: usize, uses: usize, pieces_max: usize, uses_max: usize, pairs_max: usize },
    #[error("planning exceeded its limit of {limit_ms} ms of processor time")]
    PlanningTime { limit_ms: u64 },
    #[error("the planner process did not get enough processor time in {limit_ms} ms")]
    PlanningDelayed { limit_ms: u64 },
    #[error("planning needs more than {limit_bytes} bytes of memory, the limit of a planner process")]
    PlanningMemory { limit_bytes: u64 },
    #[error("the planner process failed: {reason}")]
    PlannerFailed { reason: String },
    #[error("the answer of the planner process is invalid: {0}")]
    InvalidAnswer(#[from] InvalidAnswer),
}

impl Refusal {
    /// Adds the bytes that the program claims and has not mapped, if any.
    pub(crate) fn with_unmapped(self, unmapped_bytes: u64) -> Self {
        if unmapped_bytes == 0 { self } else { Self::Unmapped { unmapped_bytes, reason: Box::new(self) } }
    }
}

/// Reason for rejecting an answer of planners.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error, Serialize, Deserialize)]
#[expect(missing_docs, reason = "the messages document the variants")]
pub enum InvalidAnswer {
    #[error("it is malformed")]
    Malformed,
    #[error("it names a method that was not requested")]
    Method,
    #[error("the helper would refuse its moves")]
    Plan,
    #[error("a move covers memory that the iteration does not use, or that cannot be moved")]
    Memory,
    #[error("its moves cover too many pieces of memory")]
    TooManyPieces,
}
