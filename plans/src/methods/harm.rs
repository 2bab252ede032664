//! Moves memory to the host after each launch that uses it: a control that a trial must reject.

use call_ring::plan::{Destination, MOVES_MAX, Move};

use super::{Method, Outline, Problem, Workload, in_flight_bytes};
use crate::{
    moves::{PieceMove, merged_moves},
    refusal::Refusal,
    traffic,
};

/// Name of the method.
pub(super) const NAME: &str = "harmful-plan";

/// Moves of all used blocks to the host, up to the limit of a plan. No launch waits for them.
pub(super) struct Harm;

impl Method for Harm {
    fn name(&self) -> &'static str {
        NAME
    }

    fn outline(&self, problem: &Problem) -> Result<Outline, Refusal> {
        let pieces = &problem.workload.pieces;
        let mut moves: Vec<Move> = Vec::new();
        for (begin, uses) in pieces.by_op().into_iter().enumerate() {
            if moves.len() >= MOVES_MAX {
                break;
            }
            let is_moved = |piece: &usize| {
                pieces.all.get(*piece).is_some_and(|piece| piece.is_movable && piece.is_block_aligned())
            };
            let movable = uses.into_iter().filter(is_moved);
            let leave = |piece| PieceMove { piece, destination: Destination::Host, begin, wait: None, expiry: None };
            let steps = movable.map(leave);
            moves.extend(merged_moves(pieces, steps));
        }
        moves.truncate(MOVES_MAX);
        self.assess(problem, moves)
    }

    fn assess(&self, problem: &Problem, moves: Vec<Move>) -> Result<Outline, Refusal> {
        let Workload { pieces, memory, .. } = &problem.workload;
        if moves.is_empty() {
            return Err(Refusal::NoMovableMemory);
        }
        let traffic = traffic::simulate(pieces, memory.bytes, &moves);
        let peak_bytes = in_flight_bytes(pieces, &moves);
        Ok(Outline { moves, traffic, peak_bytes })
    }
}
