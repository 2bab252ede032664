//! Methods of making the moves of a plan.
//!
//! * [`swaps`]: memory leaves the GPU and comes back, by the schedule of a planner
//! * [`prefetches`]: memory comes to the GPU ahead of launches, and the driver evicts
//! * [`harm`]: memory leaves the GPU behind each launch that uses it, for comparison

mod harm;
mod prefetches;
mod swaps;

use call_ring::plan::Move;
use planner::{
    Link, Machine, Part,
    machine::Store,
    pump::{self, Pump},
};

use crate::{
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
    fn outline(&self, workload: &Workload) -> Result<Outline, Refusal>;
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
        name => planner::by_name(name).map(|planner| Box::new(swaps::Swaps(planner)) as Box<dyn Method>),
    }
}

/// Methods that `auto-plan` chooses from: those that lower the bytes over the link. Of equal plans, it
/// takes the first one's.
#[must_use]
pub fn of_chooser() -> Vec<Box<dyn Method>> {
    ["foresight", "autoswap", "appobmem", "g10"].iter().filter_map(|name| by_name(name)).collect()
}

/// Memory of the GPU for the pieces of an iteration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct GpuMemory {
    /// Bytes of it.
    bytes: u64,
    /// Bytes that a plan may use.
    room_bytes: u64,
}

impl GpuMemory {
    /// Memory that the pieces had while the driver evicted: frames, which parts of blocks do not fill.
    pub(crate) fn measured(resident_bytes: u64) -> Self {
        let bytes = resident_bytes.checked_next_multiple_of(Part::BLOCK_BYTES).unwrap_or(resident_bytes);
        Self { bytes, room_bytes: bytes }
    }

    /// Memory that is not taken otherwise, as far as that is known.
    pub(crate) const fn estimated(bytes: u64) -> Self {
        Self { bytes, room_bytes: bytes.saturating_sub(SPARE_FRAMES * Part::BLOCK_BYTES) }
    }
}

/// Iteration that a plan is to be made for, and the memory that there is.
#[derive(Clone, Debug)]
pub struct Workload {
    pieces: Pieces,
    durations_ns: Vec<u64>,
    /// Of each launch, the first one that may wait for the GPU together with it: that behind the last
    /// sync. `None` if that is in the iteration before.
    queue_starts: Vec<Option<usize>>,
    memory: GpuMemory,
    driver: Traffic,
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
    /// Iteration of these pieces on a GPU with so much memory for them.
    pub(crate) fn new(
        pieces: Pieces,
        durations_ns: Vec<u64>,
        queue_starts: Vec<Option<usize>>,
        memory: GpuMemory,
    ) -> Self {
        let driver = traffic::of(&pieces, memory.bytes, &[]);
        Self { pieces, durations_ns, queue_starts, memory, driver }
    }

    /// The same with parts of blocks that may be prefetched.
    fn with_parts(&self) -> Self {
        Self { pieces: self.pieces.with_parts(), ..self.clone() }
    }

    /// Traffic of the driver alone.
    pub(crate) const fn driver(&self) -> Traffic {
        self.driver
    }

    /// Bytes of the GPU that a plan may use.
    pub(crate) const fn room_bytes(&self) -> u64 {
        self.memory.room_bytes
    }

    /// Bytes of that for pieces: the last frame of the parts of blocks that stay is not full.
    fn pieces_bytes(&self) -> u64 {
        self.room_bytes().saturating_sub(self.pieces.padding_bytes())
    }

    /// Whether all of it fits: then nothing has to move.
    pub(crate) fn fits(&self) -> bool {
        self.pieces.bytes() <= self.pieces_bytes()
    }

    /// Bytes that schedules may use, beside what stays.
    ///
    /// # Errors
    /// If everything fits, or nothing is left for schedules.
    fn schedule_bytes(&self) -> Result<u64, Refusal> {
        let (used_bytes, room_bytes) = (self.pieces.bytes(), self.pieces_bytes());
        if self.fits() {
            return Err(Refusal::Fits { used_bytes, room_bytes });
        }
        let staying_bytes = self.pieces.staying_bytes();
        let bytes = room_bytes.checked_sub(staying_bytes).filter(|bytes| *bytes > 0);
        bytes.ok_or(Refusal::TooMuchStays { staying_bytes, room_bytes })
    }
}

/// Machine that planners plan for.
const fn machine(gpu_bytes: u64) -> Machine {
    let host = Store { bytes: u64::MAX, out: LINK, back: LINK };
    Machine { gpu_bytes, host, flash: None }
}
