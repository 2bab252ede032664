//! Swaps memory out of the GPU and back, by the schedule of a planner, to reduce bytes over the
//! link.
//!
//! Only whole driver blocks are swapped. A partial block keeps its chunks when it moves to the
//! host, and frees no memory (`block_clear_resident_processor` of `uvm_va_block.c`, 535 to 595).

mod absences;

use call_ring::plan::{MOVES_MAX, Move};
use planner::{Part, Planner};

use self::absences::Absence;
use super::{Method, Outline, Problem, Workload, machine};
use crate::{pieces::Pieces, refusal::Refusal, traffic};

/// Maximum number of schedules computed for an iteration, each for less memory than the last.
const SCHEDULES_MAX: u64 = 32;

/// Swaps by the schedules of a planner.
pub(super) struct Swaps {
    pub(super) planner: Box<dyn Planner>,
    /// Whether absences are exchanged to save bytes, which the policies of the papers do not do.
    pub(super) exchanges: bool,
}

impl Method for Swaps {
    fn name(&self) -> &'static str {
        self.planner.name()
    }

    fn outline(&self, problem: &Problem) -> Result<Outline, Refusal> {
        problem.check_need()?;
        let Problem { workload, blocks, .. } = problem;
        let Workload { pieces, memory, durations_ns, .. } = workload;
        let (needed_bytes, limit_bytes) = (pieces.op_bytes_max(), memory.launch_bytes_max);
        if needed_bytes > limit_bytes {
            return Err(Refusal::OpTooLarge { needed_bytes, limit_bytes });
        }
        let blocks_bytes = blocks_bytes(problem)?;
        let mut absences = self.absences(blocks, durations_ns, blocks_bytes);
        if self.exchanges {
            let minimal = absences::minimize(blocks, blocks_bytes, absences.as_ref().ok().cloned());
            absences = minimal.map_or(absences, Ok);
        }
        self.assess(problem, absences::moves(blocks, absences?, blocks_bytes))
    }

    fn assess(&self, problem: &Problem, moves: Vec<Move>) -> Result<Outline, Refusal> {
        let Problem { workload, traffic_without_plan, blocks, partial_frames_bytes } = problem;
        let blocks_bytes = blocks_bytes(problem)?;
        if moves.len() > MOVES_MAX {
            return Err(Refusal::TooManyMoves { moves: moves.len() });
        }
        let peak_bytes = traffic::simulate(blocks, blocks_bytes, &moves).peak_bytes;
        if peak_bytes > blocks_bytes {
            return Err(Refusal::NoRoom);
        }
        let traffic = traffic::simulate(&workload.pieces, workload.memory.bytes, &moves);
        let (planned_bytes, driver_bytes) = (traffic.bytes.total(), traffic_without_plan.bytes.total());
        if planned_bytes >= driver_bytes {
            return Err(Refusal::NoGain { planned_bytes, driver_bytes });
        }
        Ok(Outline { moves, traffic, peak_bytes: peak_bytes.saturating_add(*partial_frames_bytes) })
    }
}

/// GPU bytes for whole blocks: partial blocks stay.
fn blocks_bytes(problem: &Problem) -> Result<u64, Refusal> {
    let (immovable_bytes, room_bytes) = (problem.partial_frames_bytes, problem.workload.room_bytes());
    let bytes = room_bytes.checked_sub(immovable_bytes).filter(|bytes| *bytes > 0);
    bytes.ok_or(Refusal::ImmovableTooLarge { immovable_bytes, room_bytes })
}

impl Swaps {
    /// Absences that keep blocks within `room_bytes`, from the first schedule that suffices.
    fn absences(&self, blocks: &Pieces, durations_ns: &[u64], room_bytes: u64) -> Result<Vec<Absence>, Refusal> {
        let immovable_bytes = blocks.immovable_bytes();
        let bytes = room_bytes.checked_sub(immovable_bytes).filter(|bytes| *bytes > 0);
        let bytes = bytes.ok_or(Refusal::ImmovableTooLarge { immovable_bytes, room_bytes })?;
        let (iteration, tensors) = blocks.iteration(durations_ns)?;
        // A move that planners take for instantaneous overlaps a launch here, which needs some
        // room: retries with less memory.
        let step_bytes = (bytes / SCHEDULES_MAX).next_multiple_of(Part::BLOCK_BYTES);
        let mut planner_bytes = bytes;
        loop {
            let schedule = self.planner.plan(&iteration, &machine(planner_bytes))?;
            if let Some(absences) = absences::of_schedule(blocks, &tensors, &schedule, room_bytes) {
                return Ok(absences);
            }
            planner_bytes = planner_bytes.checked_sub(step_bytes).ok_or(Refusal::NoRoom)?;
        }
    }
}
