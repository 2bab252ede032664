//! Memory comes to the GPU ahead of the launches that use it, by the schedule of a planner, and the
//! driver evicts: fewer faults.
//!
//! A move begins behind the launch before the first one of its window, and a launch waits for its own.
//! None begins before the program has last waited for the GPU: until then the launch was not queued.
//!
//! What is there already is requested as well: what the driver has evicted is not known. That copies
//! nothing, and renews the memory in the driver's order. Where there are more moves than a plan holds,
//! those are left out that copy nothing by the model of the driver.

use std::collections::BTreeMap;

use call_ring::plan::{Destination, MOVES_MAX, Move};
use planner::{Act, Planner, Schedule, Tier};
use trace::id::Id;

use super::{Demand, Method, Outline, machine};
use crate::{
    moves::{Step, assembled, moved_piece, within},
    pieces::Pieces,
    refusal::Refusal,
    traffic,
};

/// Prefetches by the schedules of a planner.
pub(super) struct Prefetches(pub(super) Box<dyn Planner>);

impl Method for Prefetches {
    fn name(&self) -> &'static str {
        self.0.name()
    }

    fn outline(&self, demand: &Demand) -> Result<Outline, Refusal> {
        let Demand { pieces, durations_ns, queues, gpu_bytes, driver } = demand;
        let schedule_bytes = demand.schedule_bytes()?;
        if queues.iter().enumerate().all(|(op, first)| *first == Some(op)) {
            return Err(Refusal::NoLead);
        }
        let (iteration, tensors) = pieces.iteration(durations_ns)?;
        let schedule = self.0.plan(&iteration, &machine(schedule_bytes))?;
        let mut moves = assembled(pieces, steps(demand, &tensors, &schedule));
        if moves.len() > MOVES_MAX {
            moves = traffic::copying(pieces, *gpu_bytes, moves);
        }
        if moves.len() > MOVES_MAX {
            return Err(Refusal::TooManyMoves { moves: moves.len() });
        }
        let traffic = traffic::of(pieces, *gpu_bytes, &moves);
        let (planned, driver) = (traffic.faulted_pieces, driver.faulted_pieces);
        if planned >= driver {
            return Err(Refusal::NoFewerFaults { planned, driver });
        }
        let peak_bytes = ahead_bytes(pieces, &moves);
        Ok(Outline { moves, traffic, peak_bytes })
    }
}

/// Prefetches of a schedule. Of those of a piece that begin together, the one that is waited for first
/// is for all of them.
fn steps(demand: &Demand, tensors: &[usize], schedule: &Schedule) -> impl Iterator<Item = Step> + use<> {
    let Demand { pieces, queues, .. } = demand;
    let mut waits: BTreeMap<(usize, usize), usize> = BTreeMap::new();
    for action in schedule.actions().iter().filter(|action| action.act == Act::Move(Tier::Gpu)) {
        let (Some(wait), Some((piece, _))) = (action.done_before, moved_piece(pieces, tensors, action)) else {
            continue;
        };
        let (window, wait) = (action.begin.index(), wait.index());
        let begin = match queues.get(wait).copied().flatten() {
            Some(first) => Some(window.saturating_sub(1).max(first)).filter(|begin| *begin < wait),
            None => Some(window.checked_sub(1).unwrap_or(pieces.ops - 1)),
        };
        if let Some(begin) = begin {
            waits.entry((piece, begin)).and_modify(|first| *first = wait.min(*first)).or_insert(wait);
        }
    }
    let step = |((piece, begin), wait)| Step { piece, destination: Destination::Gpu, begin, wait: Some(wait) };
    waits.into_iter().map(step)
}

/// Most bytes of moves that have begun, up to the end of the launch that waits for them.
fn ahead_bytes(pieces: &Pieces, moves: &[Move]) -> u64 {
    let mut ahead = vec![Vec::new(); pieces.all.len()];
    for step in moves {
        for place in within(pieces, step) {
            if let Some(ahead) = ahead.get_mut(place) {
                ahead.push((step.begin_op as usize, step.wait_op.unwrap_or(step.begin_op) as usize));
            }
        }
    }
    let mut bytes = vec![0_u64; pieces.ops];
    for (piece, ahead) in pieces.all.iter().zip(ahead) {
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
