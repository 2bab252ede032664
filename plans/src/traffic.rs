//! Bytes over the link in an iteration that repeats: under the driver alone, and with moves.

use std::collections::BTreeMap;

use call_ring::plan::{Destination, Move};

use crate::pieces::{Piece, Pieces};

/// Iterations until the residency repeats, or nearly.
const TURNS: usize = 4;

/// Bytes over the link in an iteration.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Bytes {
    /// To the GPU, by moves.
    pub to_gpu: u64,
    /// To the host, by moves or evictions.
    pub to_host: u64,
    /// To the GPU, by faults.
    pub faulted: u64,
}

impl Bytes {
    /// In both directions.
    #[must_use]
    pub const fn total(self) -> u64 {
        self.to_gpu + self.to_host + self.faulted
    }
}

/// What the driver alone copies: memory comes by faults, and the least recently used leaves where
/// there is no room.
#[must_use]
pub fn of_driver(pieces: &Pieces, gpu_bytes: u64) -> Bytes {
    let by_op = by_op(pieces);
    // By time of the last use.
    let (mut order, mut last, mut resident, mut time) = (BTreeMap::new(), vec![None; pieces.all.len()], 0, 0_u64);
    let mut bytes = Bytes::default();
    let mut was_here = vec![false; pieces.all.len()];
    for _ in 0..TURNS {
        bytes = Bytes::default();
        for (op, uses) in by_op.iter().enumerate() {
            for &place in uses {
                let Some(piece) = pieces.all.get(place) else { continue };
                time += 1;
                let (Some(last), Some(was_here)) = (last.get_mut(place), was_here.get_mut(place)) else { continue };
                if let Some(before) = last.replace(time) {
                    order.remove(&before);
                } else {
                    resident += piece.bytes;
                    // First touches copy nothing.
                    bytes.faulted += if std::mem::replace(was_here, true) { piece.bytes } else { 0 };
                }
                order.insert(time, place);
            }
            while resident > gpu_bytes
                && let Some((_, place)) = order.pop_first()
                && let Some(piece) = pieces.all.get(place)
            {
                resident -= piece.bytes;
                bytes.to_host += piece.bytes;
                if let Some(last) = last.get_mut(place) {
                    *last = None;
                }
            }
            for &place in uses {
                let Some(piece) = pieces.all.get(place) else { continue };
                if is_dead_behind(piece, op)
                    && let (Some(last), Some(was_here)) = (last.get_mut(place), was_here.get_mut(place))
                {
                    *was_here = false;
                    if let Some(time) = last.take() {
                        order.remove(&time);
                        resident -= piece.bytes;
                    }
                }
            }
        }
    }
    bytes
}

/// What moves come to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Followed {
    /// Bytes of an iteration, in the steady state.
    pub bytes: Bytes,
    /// Most bytes that are on the GPU at any time, from the first iteration on.
    pub peak_bytes: u64,
}

/// What the moves of a plan copy, and how much is on the GPU, from an empty GPU on. A move to the GPU
/// takes memory when it begins, and one to the host gives it back when an op waits for it. What an op
/// does not find comes by faults.
#[must_use]
pub fn of_moves(pieces: &Pieces, moves: &[Move]) -> Followed {
    let by_op = by_op(pieces);
    let leaving = moves_by_op(pieces.ops, moves, |step| step.wait_op.filter(|_| step.destination == Destination::Host));
    let coming =
        moves_by_op(pieces.ops, moves, |step| Some(step.begin_op).filter(|_| step.destination == Destination::Gpu));
    let mut here = vec![false; pieces.all.len()];
    let mut was_here = here.clone();
    let mut followed = Followed::default();
    let mut resident: u64 = 0;
    for _ in 0..TURNS {
        followed.bytes = Bytes::default();
        let bytes = &mut followed.bytes;
        for (op, ((uses, leaving), coming)) in by_op.iter().zip(&leaving).zip(&coming).enumerate() {
            for leaves in leaving {
                for place in within(pieces, leaves) {
                    if let (Some(here), Some(piece)) = (here.get_mut(place), pieces.all.get(place))
                        && std::mem::take(here)
                    {
                        resident -= piece.bytes;
                        bytes.to_host += piece.bytes;
                    }
                }
            }
            for &place in uses {
                if let (Some(here), Some(was_here), Some(piece)) =
                    (here.get_mut(place), was_here.get_mut(place), pieces.all.get(place))
                    && !std::mem::replace(here, true)
                {
                    resident += piece.bytes;
                    bytes.faulted += if *was_here { piece.bytes } else { 0 };
                    *was_here = true;
                }
            }
            followed.peak_bytes = followed.peak_bytes.max(resident);
            for &place in uses {
                if let (Some(here), Some(was_here), Some(piece)) =
                    (here.get_mut(place), was_here.get_mut(place), pieces.all.get(place))
                    && is_dead_behind(piece, op)
                {
                    resident -= piece.bytes;
                    (*here, *was_here) = (false, false);
                }
            }
            for comes in coming {
                for place in within(pieces, comes) {
                    if let (Some(here), Some(was_here), Some(piece)) =
                        (here.get_mut(place), was_here.get(place), pieces.all.get(place))
                        && *was_here
                        && !std::mem::replace(here, true)
                    {
                        resident += piece.bytes;
                        bytes.to_gpu += piece.bytes;
                    }
                }
            }
            followed.peak_bytes = followed.peak_bytes.max(resident);
        }
    }
    followed
}

/// Pieces that each op uses.
fn by_op(pieces: &Pieces) -> Vec<Vec<usize>> {
    let mut by_op = vec![Vec::new(); pieces.ops];
    for (place, piece) in pieces.all.iter().enumerate() {
        for op in &piece.uses {
            if let Some(uses) = by_op.get_mut(*op) {
                uses.push(place);
            }
        }
    }
    by_op
}

/// Moves that each op has, in their order.
fn moves_by_op(ops: usize, moves: &[Move], op: impl Fn(&Move) -> Option<u32>) -> Vec<Vec<&Move>> {
    let mut by_op = vec![Vec::new(); ops];
    for step in moves {
        if let Some(steps) = op(step).and_then(|op| by_op.get_mut(op as usize)) {
            steps.push(step);
        }
    }
    by_op
}

/// Whether a piece is freed behind an op.
fn is_dead_behind(piece: &Piece, op: usize) -> bool {
    !piece.outlives && piece.uses.last() == Some(&op)
}

/// Pieces in the range of a move.
fn within(pieces: &Pieces, step: &Move) -> std::ops::Range<usize> {
    let first = pieces.all.partition_point(|piece| piece.address < step.begin);
    let behind = pieces.all.partition_point(|piece| piece.address < step.begin.saturating_add(step.bytes));
    first..behind.max(first)
}
