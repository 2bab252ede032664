//! Methods of computing the moves of a plan.
//!
//! * `swaps`: memory leaves the GPU and comes back, by the schedule of a planner
//! * `prefetches`: memory is prefetched ahead of launches, and the driver evicts
//! * `harm`: memory leaves the GPU after each launch that uses it, as a control

mod harm;
mod prefetches;
mod swaps;

use std::ops::Range;

use call_ring::plan::{Destination, Move};
use planner::{
    Link, Machine, Part, foresight,
    machine::Store,
    pump::{self, Pump},
};
use serde::{Deserialize, Serialize};

use crate::{
    moves::pieces_in,
    pieces::Pieces,
    refusal::Refusal,
    traffic::{self, Traffic},
};

/// GPU frames that plans leave free if the managed memory on the GPU is unknown: page tables and
/// small allocations take some.
pub const SPARE_FRAMES: u64 = 3;
/// Link that planners assume: about that of fourth-generation `PCIe`.
const LINK: Link = Link { latency_ns: 10_000.0, bytes_per_second: 24e9 };

/// Method of computing the moves of a plan. [`by_name`] has all of them.
pub trait Method: sealed::Sealed {
    /// Name of the method: that of its planner, if it has one.
    fn name(&self) -> &'static str;

    /// Computes moves for an iteration.
    ///
    /// # Errors
    /// If no moves meet the requirements of the method.
    fn outline(&self, problem: &Problem) -> Result<Outline, Refusal>;

    /// Computes the figures of given moves.
    ///
    /// # Errors
    /// If the moves do not meet the requirements of the method.
    fn assess(&self, problem: &Problem, moves: Vec<Move>) -> Result<Outline, Refusal>;
}

mod sealed {
    pub trait Sealed {}

    impl Sealed for super::swaps::Swaps {}
    impl Sealed for super::prefetches::Prefetches {}
    impl Sealed for super::harm::Harm {}
}

/// Method by name: `pump`, `harmful-plan`, or swaps by the planner of that name.
#[must_use]
pub fn by_name(name: &str) -> Option<Box<dyn Method>> {
    match name {
        pump::NAME => {
            // The lead of a launch is known in launches, not as a time.
            Some(Box::new(prefetches::Prefetches(Pump { lead_ns: u64::MAX, ..Pump::default() })))
        }
        harm::NAME => Some(Box::new(harm::Harm)),
        name => planner::by_name(name).map(|planner| {
            let exchanges = name == foresight::NAME;
            Box::new(swaps::Swaps { planner, exchanges }) as Box<dyn Method>
        }),
    }
}

/// Methods that `auto-plan` chooses from: those that reduce bytes over the link. The first one wins
/// a tie.
#[must_use]
pub fn auto_plan_candidates() -> Vec<Box<dyn Method>> {
    ["foresight", "autoswap", "appobmem", "g10"].iter().filter_map(|name| by_name(name)).collect()
}

/// GPU memory for the pieces of an iteration.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct GpuMemory {
    /// Total bytes.
    bytes: u64,
    /// Bytes that a plan may use.
    room_bytes: u64,
    /// Maximum bytes that a launch may use in a plan of swaps.
    launch_bytes_max: u64,
}

impl GpuMemory {
    /// Measured memory: resident bytes while the driver evicts, rounded up to whole frames, as a
    /// partial block takes a frame and does not fill it.
    pub(crate) fn measured(resident_bytes: u64) -> Self {
        let bytes = resident_bytes.checked_next_multiple_of(Part::BLOCK_BYTES).unwrap_or(resident_bytes);
        Self { bytes, room_bytes: bytes, launch_bytes_max: bytes }
    }

    /// Estimated memory: bytes not taken by other allocations.
    pub(crate) const fn estimated(bytes: u64) -> Self {
        let room_bytes = bytes.saturating_sub(SPARE_FRAMES * Part::BLOCK_BYTES);
        // The total is an estimate. A launch that uses more leaves too little memory to move.
        Self { bytes, room_bytes, launch_bytes_max: bytes / 2 }
    }
}

/// Iteration to plan, and the memory available to it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Workload {
    pub(crate) pieces: Pieces,
    pub(crate) durations_ns: Vec<u64>,
    /// Per launch, the first launch that may be queued together with it: the first after the last
    /// sync. `None` if that is in the previous iteration.
    pub(crate) queue_starts: Vec<Option<usize>>,
    pub(crate) memory: GpuMemory,
}

/// Workload with figures that all methods need.
#[derive(Debug)]
pub struct Problem {
    workload: Workload,
    /// Traffic of an iteration without moves.
    traffic_without_plan: Traffic,
    /// Pieces of whole blocks, which have frames of their own.
    blocks: Pieces,
    /// Bytes of the frames of partial blocks.
    partial_frames_bytes: u64,
}

/// Moves of a plan with their figures.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outline {
    /// Moves, ordered by the launches after which they begin.
    pub moves: Vec<Move>,
    /// Traffic of an iteration with the moves.
    pub traffic: Traffic,
    /// Peak bytes on the GPU that the plan relies on.
    pub peak_bytes: u64,
}

impl Workload {
    /// Heap bytes held.
    pub(crate) fn heap_bytes(&self) -> usize {
        let Self { pieces, durations_ns, queue_starts, memory: _ } = self;
        let launches =
            durations_ns.capacity() * size_of::<u64>() + queue_starts.capacity() * size_of::<Option<usize>>();
        pieces.heap_bytes() + launches
    }

    /// GPU bytes that a plan may use.
    pub(crate) const fn room_bytes(&self) -> u64 {
        self.memory.room_bytes
    }

    /// Whether all pieces fit, so that nothing has to move.
    pub(crate) fn fits(&self) -> bool {
        let blocks = self.pieces.all.iter().filter(|piece| piece.is_block_aligned());
        let bytes = blocks.map(|piece| piece.bytes).fold(0, u64::saturating_add);
        bytes.saturating_add(frames_bytes(&self.pieces.partial_blocks())) <= self.room_bytes()
    }
}

impl From<Workload> for Problem {
    fn from(workload: Workload) -> Self {
        let Workload { pieces, memory, .. } = &workload;
        let traffic_without_plan = traffic::simulate(pieces, memory.bytes, &[]);
        let (blocks, partial_frames_bytes) = (pieces.whole_blocks(), frames_bytes(&pieces.partial_blocks()));
        Self { workload, traffic_without_plan, blocks, partial_frames_bytes }
    }
}

impl Problem {
    /// Traffic of an iteration without moves.
    pub(crate) const fn traffic_without_plan(&self) -> Traffic {
        self.traffic_without_plan
    }

    /// Checks that a plan is needed.
    ///
    /// # Errors
    /// If everything fits, or nothing that is used can be moved.
    fn check_need(&self) -> Result<(), Refusal> {
        let room_bytes = self.workload.room_bytes();
        if self.blocks.bytes().saturating_add(self.partial_frames_bytes) <= room_bytes {
            let pieces = &self.workload.pieces;
            if !pieces.all.iter().any(|piece| piece.is_managed) {
                return Err(Refusal::NoMovableMemory);
            }
            let used_bytes = pieces.bytes();
            return Err(Refusal::Fits { used_bytes, room_bytes });
        }
        Ok(())
    }
}

/// Bytes of the frames that partial blocks share.
fn frames_bytes(parts: &Pieces) -> u64 {
    let peak_bytes = parts.bytes_by_op().into_iter().max().unwrap_or(0);
    let bytes = peak_bytes.saturating_add(parts.padding_bytes());
    bytes.checked_next_multiple_of(Part::BLOCK_BYTES).unwrap_or(bytes)
}

/// Peak bytes of moves to the GPU that are in flight. A move is in flight up to and including the
/// launch that waits for it.
fn in_flight_bytes(pieces: &Pieces, moves: &[Move]) -> u64 {
    let mut in_flight = vec![Vec::new(); pieces.all.len()];
    for step in moves.iter().filter(|step| step.destination == Destination::Gpu) {
        for index in pieces_in(pieces, step) {
            if let Some(in_flight) = in_flight.get_mut(index) {
                in_flight.push((step.begin_op as usize, step.wait_op.unwrap_or(step.begin_op) as usize));
            }
        }
    }
    let mut bytes = vec![0_u64; pieces.ops];
    // Difference array over launches: a piece may have many moves, each in flight for many
    // launches.
    let mut changes = vec![0_i32; pieces.ops + 1];
    for (piece, in_flight) in pieces.all.iter().zip(in_flight).filter(|(_, in_flight)| !in_flight.is_empty()) {
        changes.fill(0);
        let mut add = |ops: Range<usize>| {
            for (op, change) in [(ops.start, 1), (ops.end, -1)] {
                if let Some(changes) = changes.get_mut(op) {
                    *changes += change;
                }
            }
        };
        for (begin, wait) in in_flight {
            if wait > begin {
                add(begin + 1..wait + 1);
            } else {
                add(begin + 1..pieces.ops);
                add(0..wait + 1);
            }
        }
        let mut begun = 0;
        for (bytes, change) in bytes.iter_mut().zip(&changes) {
            begun += change;
            if begun > 0 {
                *bytes = bytes.saturating_add(piece.bytes);
            }
        }
    }
    bytes.into_iter().max().unwrap_or(0)
}

/// Machine that planners plan for.
const fn machine(gpu_bytes: u64) -> Machine {
    let host = Store { bytes: u64::MAX, out: LINK, back: LINK };
    Machine { gpu_bytes, host, flash: None }
}

#[cfg(test)]
mod tests {
    use call_ring::plan::MOVES_MAX;
    use proptest::prelude::*;
    use trace::BlockId;

    use super::*;
    use crate::pieces::Piece;

    const UNIT: u64 = 2 << 20;

    /// Iteration of `ops` launches that uses `units` units.
    fn pieces(ops: usize, units: u64) -> Pieces {
        let piece = |unit| Piece {
            block: BlockId(0),
            address: unit * UNIT,
            bytes: UNIT,
            is_managed: true,
            is_movable: true,
            outlives: true,
            uses: vec![0],
        };
        Pieces { ops, all: (0..units).map(piece).collect() }
    }

    fn prefetch(units: Range<u64>, begin_op: u32, wait_op: Option<u32>) -> Move {
        let (begin, bytes) = (units.start * UNIT, (units.end - units.start) * UNIT);
        Move { begin, bytes, destination: Destination::Gpu, begin_op, wait_op, expiry_op: None }
    }

    proptest! {
        /// A move is in flight from the launch after the one that begins it up to the launch that
        /// waits, modulo the iteration.
        #[test]
        fn in_flight_bytes_are_those_of_units_with_begun_moves(
            moves in prop::collection::vec((0_u64..6, 1_u64..4, 0_u32..9, prop::option::of(0_u32..9)), 0..12),
        ) {
            let pieces = pieces(9, 8);
            let is_in_flight = |unit: u64, launch: u32| moves.iter().any(|&(first, count, begin_op, wait_op)| {
                let last = (wait_op.unwrap_or(begin_op) + 9 - begin_op - 1) % 9;
                (first..first + count).contains(&unit) && (launch + 9 - begin_op - 1) % 9 <= last
            });
            let units_at = |launch| (0..8).filter(|unit| is_in_flight(*unit, launch)).count() as u64;
            let moves: Vec<Move> = moves.iter().map(|&(first, count, begin_op, wait_op)| {
                prefetch(first..first + count, begin_op, wait_op)
            }).collect();
            prop_assert_eq!(in_flight_bytes(&pieces, &moves), UNIT * (0..9).map(units_at).max().unwrap_or(0));
        }
    }

    /// Visiting each launch of each move of each unit would take 2^35 steps.
    #[test]
    fn overlapping_moves_take_one_step_per_unit_and_launch() {
        let pieces = pieces(1 << 14, 512);
        let moves = vec![prefetch(0..512, 0, None); MOVES_MAX];
        assert_eq!(in_flight_bytes(&pieces, &moves), 512 * UNIT);
    }
}
