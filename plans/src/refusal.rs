//! Reasons for refusing a plan.

use planner::Unplannable;
use serde::{Deserialize, Serialize};
use thiserror::Error;

/// Reason for refusing a plan for an iteration.
#[derive(Clone, Debug, PartialEq, Eq, Error, Serialize, Deserialize)]
#[expect(missing_docs, reason = "the messages document the variants")]
pub enum Refusal {
    #[error("graphs hide launches, between which nothing can move")]
    Graphs,
    #[error("the arguments of {launches} launches of an iteration are not known")]
    CoverageUnknown { launches: usize },
    #[error("{percent} % of what is accessed is in the footprints, which is too little")]
    CoverageTooLow { percent: u64 },
    #[error("the program has more memory and functions than are retained")]
    Incomplete,
    #[error("launches repeat by function, but not by shape")]
    ShapesVary,
    #[error("an iteration has {launches} launches, more than a plan holds, or none")]
    Period { launches: usize },
    #[error("iterations are longer than the calls that are retained")]
    TooLong,
    #[error("a launch uses {needed_bytes} bytes, more than the {limit_bytes} that a plan may have for one")]
    OpTooLarge { needed_bytes: u64, limit_bytes: u64 },
    #[error("an iteration uses {used_bytes} bytes, which fit into {room_bytes}")]
    Fits { used_bytes: u64, room_bytes: u64 },
    #[error("{staying_bytes} bytes cannot be moved, and plans have {room_bytes}")]
    TooMuchStays { staying_bytes: u64, room_bytes: u64 },
    #[error("{moves} moves are more than a plan holds")]
    TooManyMoves { moves: usize },
    #[error("the planner has no schedule: {0}")]
    Unplannable(#[from] Unplannable),
    #[error("no schedule of the planner keeps to the GPU's memory between launches")]
    NoRoom,
    #[error("the plan would move {planned_bytes} bytes, and the driver moves {driver_bytes}")]
    NoGain { planned_bytes: u64, driver_bytes: u64 },
    #[error("the plan would leave {planned} blocks to faults, and the driver alone {driver}")]
    NoFewerFaults { planned: u64, driver: u64 },
    #[error("the program waits for the GPU before each launch, so that no launch is ahead of it")]
    NoLead,
    #[error("none of the memory that an iteration uses may be moved")]
    NothingMoves,
    #[error("the GPU faults on more than {blocks_max} VA blocks of the process, the limit of its follower")]
    TooManyFaults { blocks_max: usize },
    #[error("the program claims an allocation of {claimed_bytes} bytes, and the node and its GPUs have {limit_bytes}")]
    ClaimTooLarge { claimed_bytes: u64, limit_bytes: u64 },
    #[error("{reason}; {unmapped_bytes} bytes that the program claims are not mapped, and do not count")]
    Unmapped { unmapped_bytes: u64, reason: Box<Self> },
    #[error("following the program needs {needed_bytes} bytes of memory, more than its limit of {limit_bytes} bytes")]
    MemoryBudget { needed_bytes: u64, limit_bytes: u64 },
    #[error("the calls are no valid trace: {reason}")]
    Invalid { reason: String },
    #[error(
        "an iteration has {launches} launches and {pieces} pieces of memory with {uses} uses; \
         planners take {pieces_max} pieces, {uses_max} uses, and {pairs_max} pairs of a piece and a launch"
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
    #[error("it is not in the format of an answer")]
    Malformed,
    #[error("it names a method that was not requested")]
    Method,
    #[error("the helper would refuse its moves")]
    Plan,
    #[error("a move is not of memory that the iteration uses and that may move")]
    Memory,
    #[error("its moves are of more pieces of memory than are checked")]
    Places,
}
