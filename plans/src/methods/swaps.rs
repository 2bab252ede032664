//! Memory leaves the GPU and comes back, by the schedule of a planner: fewer bytes over the link.

mod absences;

use call_ring::plan::{MOVES_MAX, Move};
use planner::{Part, Planner};
use trace::Iteration;

use super::{Method, Outline, Workload, machine};
use crate::{refusal::Refusal, traffic};

/// Most schedules that a planner makes for an iteration, each for less memory than the one before.
const TRIES: u64 = 32;

/// Swaps by the schedules of a planner.
pub(super) struct Swaps(pub(super) Box<dyn Planner>);

impl Method for Swaps {
    fn name(&self) -> &'static str {
        self.0.name()
    }

    fn outline(&self, workload: &Workload) -> Result<Outline, Refusal> {
        let schedule_bytes = workload.schedule_bytes()?;
        let Workload { pieces, durations_ns, memory, driver, .. } = workload;
        let (needed_bytes, gpu_bytes) = (pieces.op_bytes_max(), memory.bytes);
        if needed_bytes > gpu_bytes / 2 {
            return Err(Refusal::OpTooLarge { needed_bytes, gpu_bytes });
        }
        let (iteration, tensors) = pieces.iteration(durations_ns)?;
        let moves = self.moves(workload, &iteration, &tensors, schedule_bytes)?;
        if moves.len() > MOVES_MAX {
            return Err(Refusal::TooManyMoves { moves: moves.len() });
        }
        let traffic = traffic::of(pieces, gpu_bytes, &moves);
        if traffic.peak_bytes > workload.pieces_bytes() {
            return Err(Refusal::NoRoom);
        }
        let (planned_bytes, driver_bytes) = (traffic.bytes.total(), driver.bytes.total());
        if planned_bytes >= driver_bytes {
            return Err(Refusal::NoGain { planned_bytes, driver_bytes });
        }
        Ok(Outline { moves, traffic, peak_bytes: traffic.peak_bytes })
    }
}

impl Swaps {
    /// Moves of the first schedule that keeps to the memory between launches.
    fn moves(
        &self,
        workload: &Workload,
        iteration: &Iteration,
        tensors: &[usize],
        schedule_bytes: u64,
    ) -> Result<Vec<Move>, Refusal> {
        // What planners take for an instant takes a launch here, so that some room is needed for it.
        let step_bytes = (schedule_bytes / TRIES).next_multiple_of(Part::BLOCK_BYTES);
        let mut planner_bytes = schedule_bytes;
        loop {
            let schedule = self.0.plan(iteration, &machine(planner_bytes))?;
            if let Some(moves) = absences::moves(&workload.pieces, tensors, &schedule, workload.pieces_bytes()) {
                return Ok(moves);
            }
            planner_bytes = planner_bytes.checked_sub(step_bytes).ok_or(Refusal::NoRoom)?;
        }
    }
}
