//! Memory leaves the GPU and comes back, by the schedule of a planner: fewer bytes over the link.
//!
//! The GPU's memory is in two pools of whole frames, each with a schedule of its own: one for blocks,
//! and one for parts of blocks, which make no room for a block. How many frames parts have is tried.

mod absences;
mod pool;

use call_ring::plan::{MOVES_MAX, Move};
use planner::{Part, Planner};

use self::pool::Pool;
use super::{Method, Outline, Workload};
use crate::{moves::order, refusal::Refusal, traffic};

/// Most numbers of frames for parts of blocks that are tried.
const DIVISIONS: u64 = 8;

/// Swaps by the schedules of a planner.
pub(super) struct Swaps {
    pub(super) planner: Box<dyn Planner>,
    /// Whether what leaves is exchanged for fewer bytes, which is no part of the papers' policies.
    pub(super) exchanges: bool,
}

impl Method for Swaps {
    fn name(&self) -> &'static str {
        self.planner.name()
    }

    /// The moves with the fewest bytes; of equal ones, those that leave the most frames to parts.
    fn outline(&self, workload: &Workload) -> Result<Outline, Refusal> {
        workload.check_need()?;
        let (needed_bytes, limit_bytes) = (workload.pieces.op_bytes_max(), workload.memory.launch_bytes_max);
        if needed_bytes > limit_bytes {
            return Err(Refusal::OpTooLarge { needed_bytes, limit_bytes });
        }
        let frames_bytes = workload.frames_of_parts();
        let step_bytes = (frames_bytes / DIVISIONS).next_multiple_of(Part::BLOCK_BYTES);
        let mut best = self.divided(workload, frames_bytes);
        let mut parts_bytes = frames_bytes;
        while parts_bytes > step_bytes {
            parts_bytes -= step_bytes;
            match (&best, self.divided(workload, parts_bytes)) {
                (Ok(of_best), Ok(next)) if next.traffic.bytes.total() >= of_best.traffic.bytes.total() => {}
                (_, Ok(next)) => best = Ok(next),
                // Parts do not come to less room; blocks may come to more.
                (Ok(_), Err(_)) => break,
                (Err(_), Err(_)) => {}
            }
        }
        best
    }
}

impl Swaps {
    /// Moves with so many bytes of frames for parts of blocks.
    fn divided(&self, workload: &Workload, parts_bytes: u64) -> Result<Outline, Refusal> {
        let Workload { pieces, durations_ns, memory, driver, .. } = workload;
        let parts = pieces.parts();
        let blocks_bytes = workload.room_bytes().checked_sub(parts_bytes).filter(|bytes| *bytes > 0);
        let (staying_bytes, room_bytes) = (parts_bytes, workload.room_bytes());
        let blocks_bytes = blocks_bytes.ok_or(Refusal::TooMuchStays { staying_bytes, room_bytes })?;
        let parts_bytes = parts_bytes.saturating_sub(parts.padding_bytes());
        let pools = [Pool { pieces: pieces.blocks(), bytes: blocks_bytes }, Pool { pieces: parts, bytes: parts_bytes }];
        let mut moves: Vec<Move> = Vec::new();
        for pool in &pools {
            moves.extend(pool.moves(&*self.planner, durations_ns, self.exchanges)?);
        }
        if moves.len() > MOVES_MAX {
            return Err(Refusal::TooManyMoves { moves: moves.len() });
        }
        moves.sort_by_key(order);
        let traffic = traffic::of(pieces, memory.bytes, &moves);
        let (planned_bytes, driver_bytes) = (traffic.bytes.total(), driver.bytes.total());
        if planned_bytes >= driver_bytes {
            return Err(Refusal::NoGain { planned_bytes, driver_bytes });
        }
        Ok(Outline { moves, traffic, peak_bytes: traffic.peak_bytes })
    }
}
