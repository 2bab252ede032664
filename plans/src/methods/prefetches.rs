//! Prefetches memory ahead of the launches that use it, by the schedule of a planner, to reduce
//! faults. Evictions are left to the driver.
//!
//! A move begins after the launch before its window, and the launch that uses the memory waits for
//! it. No move begins before the last wait of the program for the GPU ahead of that launch, as the
//! launch is queued only after it.
//!
//! Resident memory is prefetched as well, as the driver's evictions are not known. That copies
//! nothing, and makes the memory the last in the driver's eviction order. If there are more moves
//! than a plan holds, those that copy nothing in the model of the driver are dropped.
//!
//! A longer lead is not always better, as prefetched memory may be evicted by later prefetches. So
//! several queue lengths are tried.

use std::collections::BTreeMap;

use call_ring::plan::{Destination, MOVES_MAX, Move};
use planner::{Act, Planner, Schedule, Tier, pump::Pump};
use trace::id::Id;

use super::{Method, Outline, Problem, Workload, in_flight_bytes, machine};
use crate::{
    moves::{PieceMove, merged_moves, moved_piece},
    refusal::Refusal,
    traffic,
};

/// Queue lengths that are tried: maximum numbers of launches ahead.
const QUEUES: [usize; 4] = [1, 8, 64, 1000];
/// Maximum bytes that a plan copies in addition to those of the driver alone, in percent of those:
/// above it, a trial rolls back.
const EXTRA_BYTES_MAX_PERCENT: u64 = 5;
/// Maximum number of prefetches of a schedule, before those that copy nothing are dropped.
const STEPS_MAX: usize = 16 * MOVES_MAX;

/// Prefetches by the schedules of a planner. Its queue length is not used.
pub(super) struct Prefetches(pub(super) Pump);

impl Method for Prefetches {
    fn name(&self) -> &'static str {
        self.0.name()
    }

    /// Moves that leave the fewest pieces to faults; the shortest queue wins a tie.
    fn outline(&self, problem: &Problem) -> Result<Outline, Refusal> {
        let schedule_bytes = schedule_bytes(problem)?;
        let workload = &problem.workload;
        if workload.queue_starts.iter().enumerate().all(|(op, start)| *start == Some(op)) {
            return Err(Refusal::NoLead);
        }
        let (iteration, tensors) = workload.pieces.iteration(&workload.durations_ns)?;
        let outlines = QUEUES.map(|queue| {
            let schedule = Pump { queue, ..self.0 }.plan(&iteration, &machine(schedule_bytes))?;
            self.assess(problem, moves(workload, &tensors, &schedule)?)
        });
        // If all are refused, the first refusal.
        let better = |best: Result<Outline, Refusal>, next: Result<Outline, Refusal>| match (&best, &next) {
            (Ok(of_best), Ok(of_next)) if of_next.traffic.faulted_pieces < of_best.traffic.faulted_pieces => next,
            (Err(_), Ok(_)) => next,
            _ => best,
        };
        outlines.into_iter().reduce(better).unwrap_or(Err(Refusal::NoLead))
    }

    fn assess(&self, problem: &Problem, moves: Vec<Move>) -> Result<Outline, Refusal> {
        let Problem { workload, traffic_without_plan, .. } = problem;
        let Workload { pieces, memory, .. } = workload;
        if moves.len() > MOVES_MAX {
            return Err(Refusal::TooManyMoves { moves: moves.len() });
        }
        let traffic = traffic::simulate(pieces, memory.bytes, &moves);
        let (planned, of_driver) = (traffic.faulted_pieces, traffic_without_plan.faulted_pieces);
        if planned >= of_driver {
            return Err(Refusal::NoFewerFaults { planned, driver: of_driver });
        }
        let (planned_bytes, driver_bytes) = (traffic.bytes.total(), traffic_without_plan.bytes.total());
        if planned_bytes > driver_bytes.saturating_add(driver_bytes / 100 * EXTRA_BYTES_MAX_PERCENT) {
            return Err(Refusal::NoGain { planned_bytes, driver_bytes });
        }
        let peak_bytes = in_flight_bytes(pieces, &moves);
        Ok(Outline { moves, traffic, peak_bytes })
    }
}

/// GPU bytes for movable memory: all partial blocks keep their frames.
fn schedule_bytes(problem: &Problem) -> Result<u64, Refusal> {
    problem.check_need()?;
    let Problem { workload, blocks, partial_frames_bytes, .. } = problem;
    let (pieces, room_bytes) = (&workload.pieces, workload.room_bytes());
    let (immovable_bytes, frames_bytes) = (pieces.immovable_bytes(), *partial_frames_bytes);
    let partial_bytes = (pieces.bytes() - blocks.bytes()).min(frames_bytes);
    let bytes =
        room_bytes.checked_sub(frames_bytes).and_then(|bytes| (bytes + partial_bytes).checked_sub(immovable_bytes));
    bytes.filter(|bytes| *bytes > 0).ok_or(Refusal::ImmovableTooLarge { immovable_bytes, room_bytes })
}

/// Moves of a schedule.
fn moves(workload: &Workload, tensors: &[usize], schedule: &Schedule) -> Result<Vec<Move>, Refusal> {
    let Workload { pieces, memory, .. } = workload;
    let moves = merged_moves(pieces, steps(workload, tensors, schedule)?);
    Ok(if moves.len() > MOVES_MAX { traffic::effective_moves(pieces, memory.bytes, moves) } else { moves })
}

/// Prefetches of a schedule. Prefetches of a piece that begin together are merged; the earliest
/// launch waits.
fn steps(
    workload: &Workload,
    tensors: &[usize],
    schedule: &Schedule,
) -> Result<impl Iterator<Item = PieceMove> + use<>, Refusal> {
    let Workload { pieces, queue_starts, .. } = workload;
    let mut waits: BTreeMap<(usize, usize), usize> = BTreeMap::new();
    for action in schedule.actions().iter().filter(|action| action.act == Act::Move(Tier::Gpu)) {
        let (Some(wait), Some((piece, _))) = (action.done_before, moved_piece(pieces, tensors, action)) else {
            continue;
        };
        let (window, wait) = (action.begin.index(), wait.index());
        let begin = match queue_starts.get(wait).copied().flatten() {
            Some(start) => Some(window.saturating_sub(1).max(start)).filter(|begin| *begin < wait),
            None => Some(window.checked_sub(1).unwrap_or(pieces.ops - 1)),
        };
        if let Some(begin) = begin {
            waits.entry((piece, begin)).and_modify(|first| *first = wait.min(*first)).or_insert(wait);
            if waits.len() > STEPS_MAX {
                return Err(Refusal::TooManyMoves { moves: waits.len() });
            }
        }
    }
    let step = |((piece, begin), wait)| PieceMove {
        piece,
        destination: Destination::Gpu,
        begin,
        wait: Some(wait),
        expiry: None,
    };
    Ok(waits.into_iter().map(step))
}
