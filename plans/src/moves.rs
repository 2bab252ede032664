//! Moves of pieces after launches, as in plans.

use call_ring::plan::{Destination, Move, PAGE_BYTES};
use planner::Action;
use trace::id::Id;

use crate::pieces::{Piece, Pieces};

/// Move of a piece. Launch indices may exceed the period: they continue into the next iteration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PieceMove {
    pub(crate) piece: usize,
    pub(crate) destination: Destination,
    /// Launch after which the move begins.
    pub(crate) begin: usize,
    /// Launch that waits for the move, if any.
    pub(crate) wait: Option<usize>,
    /// Launch at which the move expires, if any.
    pub(crate) expiry: Option<usize>,
}

/// Piece moved by an action of a schedule; `tensors` has the piece of each tensor. `None` if the
/// piece stays, or would move in part: a driver unit moves as a whole.
pub(crate) fn moved_piece<'a>(pieces: &'a Pieces, tensors: &[usize], action: &Action) -> Option<(usize, &'a Piece)> {
    let index = *tensors.get(action.tensor.index())?;
    let piece = pieces.all.get(index).filter(|piece| piece.is_movable)?;
    action.part.is_none_or(|part| part.bytes() >= piece.bytes).then_some((index, piece))
}

/// Moves of `steps` in plan order. Moves of adjacent memory with equal launches and destination are
/// merged.
pub(crate) fn merged_moves(pieces: &Pieces, steps: impl IntoIterator<Item = PieceMove>) -> Vec<Move> {
    let op = |launch: usize| u32::try_from(launch % pieces.ops).unwrap_or(u32::MAX);
    let to_move = |PieceMove { piece, destination, begin, wait, expiry }: PieceMove| {
        let piece = pieces.all.get(piece)?;
        // Only whole pages of the allocation are moved.
        let first = piece.address.checked_next_multiple_of(PAGE_BYTES)?;
        let bytes = piece.address.saturating_add(piece.bytes).saturating_sub(first) / PAGE_BYTES * PAGE_BYTES;
        let (begin_op, wait_op, expiry_op) = (op(begin), wait.map(op), expiry.map(op));
        Some((piece.block, Move { begin: first, bytes, destination, begin_op, wait_op, expiry_op }))
    };
    let mut moves: Vec<_> = steps.into_iter().filter_map(to_move).collect();
    // Moves to the host come first, to make room for those to the GPU; then the earliest wait.
    moves.sort_by_key(|(_, step)| {
        let wait_op = step.wait_op.unwrap_or(u32::MAX);
        let is_of_next = wait_op <= step.begin_op;
        (step.begin_op, step.destination == Destination::Gpu, is_of_next, wait_op, step.begin)
    });
    let mut joined: Vec<(_, Move)> = Vec::new();
    for (block, step) in moves {
        match joined.last_mut() {
            Some((last_block, last))
                if *last_block == block
                    && (last.begin_op, last.wait_op, last.destination)
                        == (step.begin_op, step.wait_op, step.destination)
                    && last.begin.checked_add(last.bytes) == Some(step.begin) =>
            {
                last.bytes = last.bytes.saturating_add(step.bytes);
                // Merged moves expire with the first one.
                let ahead = |op: &u32| (*op as usize + pieces.ops - step.begin_op as usize - 1) % pieces.ops;
                last.expiry_op = [last.expiry_op, step.expiry_op].into_iter().flatten().min_by_key(ahead);
            }
            _ => joined.push((block, step)),
        }
    }
    joined.into_iter().map(|(_, step)| step).collect()
}

/// Indices of the pieces in the range of a move.
pub(crate) fn pieces_in(pieces: &Pieces, step: &Move) -> std::ops::Range<usize> {
    let first = pieces.all.partition_point(|piece| piece.address < step.begin);
    let end = pieces.all.partition_point(|piece| piece.address < step.begin.saturating_add(step.bytes));
    first..end.max(first)
}
