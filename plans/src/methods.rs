//! Methods of making the moves of a plan.
//!
//! * [`swaps`]: memory leaves the GPU and comes back, by the schedule of a planner
//! * [`prefetches`]: memory comes to the GPU ahead of launches, and the driver evicts
//! * [`harm`]: memory leaves the GPU behind each launch that uses it, for comparison

mod harm;
mod prefetches;
mod swaps;

use call_ring::plan::{Destination, Move};
use planner::{
    Link, Machine, Part, foresight,
    machine::Store,
    pump::{self, Pump},
};
use serde::{Deserialize, Serialize};

use crate::{
    moves::within,
    pieces::Pieces,
    refusal::Refusal,
    traffic::{self, Traffic},
};

/// Frames of the GPU that plans leave alone where it is not known how much managed memory it holds: page
/// tables and small allocations take some.
pub const SPARE_FRAMES: u64 = 3;
/// Links of the machine that planners assume: about what `PCIe` of the fourth generation has.
const LINK: Link = Link { latency_ns: 10_000.0, bytes_per_second: 24e9 };

/// Method of making the moves of a plan: one of [`by_name`].
pub trait Method: sealed::Sealed {
    /// Name: of the planner, if there is one.
    fn name(&self) -> &'static str;

    /// Moves for an iteration.
    ///
    /// # Errors
    /// If there are none that keep what the method promises.
    fn outline(&self, problem: &Problem) -> Result<Outline, Refusal>;

    /// Outline with these moves, from any source, and with figures that are computed from them.
    ///
    /// # Errors
    /// If they do not keep what the method promises.
    fn assess(&self, problem: &Problem, moves: Vec<Move>) -> Result<Outline, Refusal>;
}

mod sealed {
    pub trait Sealed {}

    impl Sealed for super::swaps::Swaps {}
    impl Sealed for super::prefetches::Prefetches {}
    impl Sealed for super::harm::Harm {}
}

/// The method of this name: `pump`, `harmful-plan`, or swaps by the planner of this name.
#[must_use]
pub fn by_name(name: &str) -> Option<Box<dyn Method>> {
    match name {
        pump::NAME => {
            // How far launches lead is not known in time.
            Some(Box::new(prefetches::Prefetches(Pump { lead_ns: u64::MAX, ..Pump::default() })))
        }
        harm::NAME => Some(Box::new(harm::Harm)),
        name => planner::by_name(name).map(|planner| {
            let exchanges = name == foresight::NAME;
            Box::new(swaps::Swaps { planner, exchanges }) as Box<dyn Method>
        }),
    }
}

/// Methods that `auto-plan` chooses from: those that lower the bytes over the link. Of equal plans, it
/// takes the first one's.
#[must_use]
pub fn of_chooser() -> Vec<Box<dyn Method>> {
    ["foresight", "autoswap", "appobmem", "g10"].iter().filter_map(|name| by_name(name)).collect()
}

/// Memory of the GPU for the pieces of an iteration.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct GpuMemory {
    /// Bytes of it.
    bytes: u64,
    /// Bytes that a plan may use.
    room_bytes: u64,
    /// Most bytes of it that a launch may use in a plan in which memory leaves.
    launch_bytes_max: u64,
}

impl GpuMemory {
    /// Memory that the pieces had while the driver evicted: frames, which parts of blocks do not fill.
    pub(crate) fn measured(resident_bytes: u64) -> Self {
        let bytes = resident_bytes.checked_next_multiple_of(Part::BLOCK_BYTES).unwrap_or(resident_bytes);
        Self { bytes, room_bytes: bytes, launch_bytes_max: bytes }
    }

    /// Memory that is not taken otherwise, as far as that is known.
    pub(crate) const fn estimated(bytes: u64) -> Self {
        let room_bytes = bytes.saturating_sub(SPARE_FRAMES * Part::BLOCK_BYTES);
        // Beside a launch that uses more, an estimate leaves nothing to move.
        Self { bytes, room_bytes, launch_bytes_max: bytes / 2 }
    }
}

/// Iteration that a plan is to be made for, and the memory that there is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Workload {
    pub(crate) pieces: Pieces,
    pub(crate) durations_ns: Vec<u64>,
    /// Of each launch, the first one that may wait for the GPU together with it: that behind the last
    /// sync. `None` if that is in the iteration before.
    pub(crate) queue_starts: Vec<Option<usize>>,
    pub(crate) memory: GpuMemory,
}

/// Workload with what all methods need of it.
#[derive(Debug)]
pub struct Problem {
    workload: Workload,
    /// Traffic of the driver alone.
    driver: Traffic,
    /// Pieces with frames of their own.
    blocks: Pieces,
    /// Bytes of the frames of the others.
    parts_bytes: u64,
}

/// Moves of a plan, and what they come to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outline {
    /// Moves, by the launches behind which they begin.
    pub moves: Vec<Move>,
    /// Traffic with them.
    pub traffic: Traffic,
    /// Most bytes on the GPU that the plan relies on.
    pub peak_bytes: u64,
}

impl Workload {
    /// Bytes of memory that it is described in.
    pub(crate) fn heap_bytes(&self) -> usize {
        let Self { pieces, durations_ns, queue_starts, memory: _ } = self;
        let launches =
            durations_ns.capacity() * size_of::<u64>() + queue_starts.capacity() * size_of::<Option<usize>>();
        pieces.heap_bytes() + launches
    }

    /// Bytes of the GPU that a plan may use.
    pub(crate) const fn room_bytes(&self) -> u64 {
        self.memory.room_bytes
    }

    /// Whether all of it fits: then nothing has to move.
    pub(crate) fn fits(&self) -> bool {
        let blocks = self.pieces.all.iter().filter(|piece| piece.is_block());
        let bytes = blocks.map(|piece| piece.bytes).fold(0, u64::saturating_add);
        bytes.saturating_add(frames_bytes(&self.pieces.parts())) <= self.room_bytes()
    }
}

impl From<Workload> for Problem {
    fn from(workload: Workload) -> Self {
        let Workload { pieces, memory, .. } = &workload;
        let driver = traffic::of(pieces, memory.bytes, &[]);
        let (blocks, parts_bytes) = (pieces.blocks(), frames_bytes(&pieces.parts()));
        Self { workload, driver, blocks, parts_bytes }
    }
}

impl Problem {
    /// Traffic of the driver alone.
    pub(crate) const fn driver(&self) -> Traffic {
        self.driver
    }

    /// Checks that a plan is needed.
    ///
    /// # Errors
    /// If everything fits.
    fn check_need(&self) -> Result<(), Refusal> {
        let room_bytes = self.workload.room_bytes();
        if self.blocks.bytes().saturating_add(self.parts_bytes) <= room_bytes {
            let used_bytes = self.workload.pieces.bytes();
            return Err(Refusal::Fits { used_bytes, room_bytes });
        }
        Ok(())
    }
}

/// Bytes of the frames that parts of blocks have together.
fn frames_bytes(parts: &Pieces) -> u64 {
    let peak_bytes = parts.bytes_by_op().into_iter().max().unwrap_or(0);
    let bytes = peak_bytes.saturating_add(parts.padding_bytes());
    bytes.checked_next_multiple_of(Part::BLOCK_BYTES).unwrap_or(bytes)
}

/// Most bytes of moves to the GPU that have begun, up to the end of the launch that waits for them.
fn ahead_bytes(pieces: &Pieces, moves: &[Move]) -> u64 {
    let mut ahead = vec![Vec::new(); pieces.all.len()];
    for step in moves.iter().filter(|step| step.destination == Destination::Gpu) {
        for place in within(pieces, step) {
            if let Some(ahead) = ahead.get_mut(place) {
                ahead.push((step.begin_op as usize, step.wait_op.unwrap_or(step.begin_op) as usize));
            }
        }
    }
    let mut bytes = vec![0_u64; pieces.ops];
    for (piece, ahead) in pieces.all.iter().zip(ahead).filter(|(_, ahead)| !ahead.is_empty()) {
        let mut is_ahead = vec![false; pieces.ops];
        for (begin, wait) in ahead {
            let behind = if wait > begin { wait } else { wait + pieces.ops };
            for place in begin + 1..=behind {
                if let Some(is_ahead) = is_ahead.get_mut(place % pieces.ops) {
                    *is_ahead = true;
                }
            }
        }
        for (bytes, _) in bytes.iter_mut().zip(is_ahead).filter(|(_, is_ahead)| *is_ahead) {
            *bytes = bytes.saturating_add(piece.bytes);
        }
    }
    bytes.into_iter().max().unwrap_or(0)
}

/// Machine that planners plan for.
const fn machine(gpu_bytes: u64) -> Machine {
    let host = Store { bytes: u64::MAX, out: LINK, back: LINK };
    Machine { gpu_bytes, host, flash: None }
}
