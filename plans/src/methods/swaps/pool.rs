//! Frames of the GPU, and the pieces that have them in turn.

use call_ring::plan::Move;
use planner::{Planner, Schedule};

use super::{super::machine, absences};
use crate::{pieces::Pieces, refusal::Refusal, traffic};

/// Most schedules that a planner makes for a pool, each for less memory than the one before.
const TRIES: u64 = 32;

/// Pieces, and the bytes of the GPU that are theirs.
pub(super) struct Pool {
    pub(super) pieces: Pieces,
    pub(super) bytes: u64,
}

impl Pool {
    /// Moves that keep the pieces to their memory, by the schedules of a planner.
    ///
    /// # Errors
    /// If there are none.
    pub(super) fn moves(
        &self,
        planner: &dyn Planner,
        durations_ns: &[u64],
        exchanges: bool,
    ) -> Result<Vec<Move>, Refusal> {
        let Self { pieces, bytes: room_bytes } = self;
        if pieces.bytes() <= *room_bytes {
            return Ok(Vec::new());
        }
        let (staying_bytes, room_bytes) = (pieces.staying_bytes(), *room_bytes);
        let bytes = room_bytes.checked_sub(staying_bytes).filter(|bytes| *bytes > 0);
        let bytes = bytes.ok_or(Refusal::TooMuchStays { staying_bytes, room_bytes })?;
        let (iteration, tensors) = pieces.iteration(durations_ns)?;
        // What planners take for an instant takes a launch here, so that some room is needed for it.
        let piece_bytes = pieces.all.iter().filter(|piece| piece.moves).map(|piece| piece.bytes).min().unwrap_or(bytes);
        let step_bytes = (bytes / TRIES).max(piece_bytes);
        let mut planner_bytes = bytes;
        loop {
            let schedule = match planner.plan(&iteration, &machine(planner_bytes)) {
                // Planners round tensors up to blocks.
                Err(_) if exchanges && planner_bytes == bytes => Schedule::new(Vec::new()),
                schedule => schedule?,
            };
            if let Some(moves) = absences::moves(pieces, &tensors, &schedule, room_bytes, exchanges)
                && traffic::of(pieces, room_bytes, &moves).peak_bytes <= room_bytes
            {
                return Ok(moves);
            }
            planner_bytes = planner_bytes.checked_sub(step_bytes).ok_or(Refusal::NoRoom)?;
        }
    }
}
