//! Model of the driver: link traffic and faults of a repeating iteration, with or without moves.
//!
//! The driver evicts the least recently migrated block (docs/simulator.md, "Eviction"). Its
//! `block_mark_memory_used` moves a block to the end of this order when the block gains memory on
//! the GPU, and at the end of each `uvm_va_block_make_resident`, whether or not that has copied
//! anything. So a prefetch of resident memory also moves it to the end of the order. The driver
//! does not see an access without a fault.

use std::collections::BTreeMap;

use call_ring::plan::{Destination, Move};
use serde::{Deserialize, Serialize};

use crate::{
    moves::pieces_in,
    pieces::{Piece, Pieces},
};

/// Iterations until the residency repeats, at least approximately.
const WARM_UP: u64 = 2;
/// Iterations measured after the warm-up: evictions may recur only in every second or third
/// iteration.
const MEASURED: u64 = 6;

/// Bytes over the link in an iteration.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Bytes {
    /// To the GPU, by moves.
    pub to_gpu: u64,
    /// To the host, by moves.
    pub to_host: u64,
    /// To the GPU, by faults.
    pub faulted: u64,
    /// To the host, by evictions.
    pub evicted: u64,
}

impl Bytes {
    /// Total of both directions.
    #[must_use]
    pub const fn total(self) -> u64 {
        let Self { to_gpu, to_host, faulted, evicted } = self;
        to_gpu.saturating_add(to_host).saturating_add(faulted).saturating_add(evicted)
    }
}

/// Traffic of an iteration in the steady state: the mean of several.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Traffic {
    /// Bytes over the link.
    pub bytes: Bytes,
    /// Pieces populated by faults, including new memory, which is not copied.
    pub faulted_pieces: u64,
    /// Peak bytes on the GPU before evictions, from the first iteration on.
    pub peak_bytes: u64,
}

/// Simulates the traffic with moves, or of the driver alone without any, starting with an empty
/// GPU. Moves and faults populate memory, and the least recently migrated pieces are evicted when
/// there is no room. A move to the GPU takes memory when it begins, and moves resident memory to
/// the end of the order. A move to the host frees memory at the op that waits for it, or else at
/// the next op.
#[must_use]
pub fn simulate(pieces: &Pieces, gpu_bytes: u64, moves: &[Move]) -> Traffic {
    run(pieces, gpu_bytes, moves).0
}

/// Drops the moves that copy nothing in the steady state.
pub(crate) fn effective_moves(pieces: &Pieces, gpu_bytes: u64, moves: Vec<Move>) -> Vec<Move> {
    let (_, copies) = run(pieces, gpu_bytes, &moves);
    moves.into_iter().zip(copies).filter_map(|(step, copies)| copies.then_some(step)).collect()
}

/// Traffic, and for each move, whether it copies anything.
fn run(pieces: &Pieces, gpu_bytes: u64, moves: &[Move]) -> (Traffic, Vec<bool>) {
    let by_op = pieces.by_op();
    let completion_op =
        |step: &Move| step.wait_op.unwrap_or((step.begin_op + 1) % u32::try_from(pieces.ops).unwrap_or(1));
    let moves_to_host =
        moves_by_op(pieces.ops, moves, |step| (step.destination == Destination::Host).then(|| completion_op(step)));
    let moves_to_gpu =
        moves_by_op(pieces.ops, moves, |step| (step.destination == Destination::Gpu).then_some(step.begin_op));
    let mut gpu = Gpu::new(pieces, gpu_bytes);
    let mut traffic = Traffic::default();
    let mut copies = vec![false; moves.len()];
    for iteration in 0..WARM_UP + MEASURED {
        if iteration == WARM_UP {
            traffic = Traffic { peak_bytes: traffic.peak_bytes, ..Traffic::default() };
            copies.fill(false);
        }
        for (op, ((uses, moves_to_host), moves_to_gpu)) in
            by_op.iter().zip(&moves_to_host).zip(&moves_to_gpu).enumerate()
        {
            let Traffic { bytes, faulted_pieces, peak_bytes } = &mut traffic;
            for &(at, step) in moves_to_host {
                for index in pieces_in(pieces, step) {
                    let moved_bytes = gpu.remove(index);
                    add(&mut bytes.to_host, moved_bytes);
                    mark(&mut copies, at, moved_bytes);
                }
            }
            for &index in uses {
                if let Some(copied) = gpu.access(index) {
                    *faulted_pieces += 1;
                    add(&mut bytes.faulted, copied);
                    add(&mut bytes.evicted, gpu.evict(peak_bytes));
                }
            }
            for &index in uses {
                gpu.free_after(index, op);
            }
            for &(at, step) in moves_to_gpu {
                for index in pieces_in(pieces, step) {
                    let copied_bytes = gpu.prefetch(index);
                    add(&mut bytes.to_gpu, copied_bytes);
                    add(&mut bytes.evicted, gpu.evict(peak_bytes));
                    mark(&mut copies, at, copied_bytes);
                }
            }
        }
    }
    let Traffic { bytes: Bytes { to_gpu, to_host, faulted, evicted }, faulted_pieces, peak_bytes } = traffic;
    let [to_gpu, to_host, faulted, evicted] = [to_gpu, to_host, faulted, evicted].map(|sum| sum / MEASURED);
    let bytes = Bytes { to_gpu, to_host, faulted, evicted };
    (Traffic { bytes, faulted_pieces: faulted_pieces / MEASURED, peak_bytes }, copies)
}

/// Adds bytes, saturating: claimed sizes are unbounded.
const fn add(sum: &mut u64, bytes: u64) {
    *sum = sum.saturating_add(bytes);
}

fn mark(copies: &mut [bool], at: usize, copied_bytes: u64) {
    if let Some(copies) = copies.get_mut(at) {
        *copies |= copied_bytes > 0;
    }
}

/// Simulated GPU memory.
#[derive(Debug)]
struct Gpu<'a> {
    pieces: &'a [Piece],
    limit_bytes: u64,
    resident_bytes: u64,
    /// Logical clock: number of migrations.
    time: u64,
    /// Resident pieces, by time of the last migration.
    order: BTreeMap<u64, usize>,
    states: Vec<PieceState>,
}

/// State of a piece.
#[derive(Clone, Copy, Debug, Default)]
struct PieceState {
    /// Time of the last migration, if the piece is resident.
    migrated_at: Option<u64>,
    /// Whether the piece has contents to copy.
    is_written: bool,
}

impl<'a> Gpu<'a> {
    fn new(pieces: &'a Pieces, limit_bytes: u64) -> Self {
        let (order, states) = (BTreeMap::new(), vec![PieceState::default(); pieces.all.len()]);
        Self { pieces: &pieces.all, limit_bytes, resident_bytes: 0, time: 0, order, states }
    }

    fn piece_mut(&mut self, index: usize) -> Option<(&'a Piece, &mut PieceState)> {
        self.pieces.get(index).zip(self.states.get_mut(index))
    }

    /// Moves a piece to the end of the eviction order. Returns whether it was absent.
    fn touch(&mut self, index: usize) -> bool {
        self.time += 1;
        let time = self.time;
        let Some((piece, state)) = self.piece_mut(index) else { return false };
        let (bytes, before) = (piece.bytes, state.migrated_at.replace(time));
        match before {
            Some(before) => drop(self.order.remove(&before)),
            None => add(&mut self.resident_bytes, bytes),
        }
        self.order.insert(time, index);
        before.is_none()
    }

    /// Removes a piece. Returns its bytes, or 0 if it was absent.
    fn remove(&mut self, index: usize) -> u64 {
        let Some((piece, state)) = self.piece_mut(index) else { return 0 };
        let (bytes, migrated_at) = (piece.bytes, state.migrated_at.take());
        let Some(migrated_at) = migrated_at else { return 0 };
        self.order.remove(&migrated_at);
        self.resident_bytes = self.resident_bytes.saturating_sub(bytes);
        bytes
    }

    /// Bytes copied by the fault of an access; `None` without a fault.
    fn access(&mut self, index: usize) -> Option<u64> {
        let (piece, state) = self.piece_mut(index).filter(|(_, state)| state.migrated_at.is_none())?;
        let is_copied = std::mem::replace(&mut state.is_written, true);
        self.touch(index);
        Some(if is_copied { piece.bytes } else { 0 })
    }

    /// Bytes copied by a move to the GPU; 0 for memory without contents, which does not move.
    fn prefetch(&mut self, index: usize) -> u64 {
        let Some((piece, _)) = self.piece_mut(index).filter(|(_, state)| state.is_written) else { return 0 };
        if self.touch(index) { piece.bytes } else { 0 }
    }

    /// Evicts pieces until the limit is met. Returns their bytes.
    fn evict(&mut self, peak_bytes: &mut u64) -> u64 {
        *peak_bytes = self.resident_bytes.max(*peak_bytes);
        let mut evicted_bytes = 0;
        while self.resident_bytes > self.limit_bytes
            && let Some(index) = self.order.first_entry().map(|first| *first.get())
        {
            add(&mut evicted_bytes, self.remove(index));
        }
        evicted_bytes
    }

    /// Frees a piece after the op that uses it last, unless it outlives the iteration.
    fn free_after(&mut self, index: usize, op: usize) {
        let is_freed = |piece: &Piece| !piece.outlives && piece.uses.last() == Some(&op);
        if let Some((_, state)) = self.piece_mut(index).filter(|(piece, _)| is_freed(piece)) {
            state.is_written = false;
            self.remove(index);
        }
    }
}

/// Moves of each op in order, with their indices in `moves`.
fn moves_by_op(ops: usize, moves: &[Move], op: impl Fn(&Move) -> Option<u32>) -> Vec<Vec<(usize, &Move)>> {
    let mut by_op = vec![Vec::new(); ops];
    for (at, step) in moves.iter().enumerate() {
        if let Some(steps) = op(step).and_then(|op| by_op.get_mut(op as usize)) {
            steps.push((at, step));
        }
    }
    by_op
}

#[cfg(test)]
mod tests {
    use trace::BlockId;

    use super::*;

    const UNIT: u64 = 2 << 20;

    /// Iteration whose launches use one unit each.
    fn pieces(launches: &[usize]) -> Pieces {
        let piece = |unit: usize| Piece {
            block: BlockId(0),
            address: unit as u64 * UNIT,
            bytes: UNIT,
            is_managed: true,
            is_movable: true,
            outlives: true,
            uses: (0..launches.len()).filter(|op| launches[*op] == unit).collect(),
        };
        let units = launches.iter().max().map_or(0, |last| last + 1);
        Pieces { ops: launches.len(), all: (0..units).map(piece).collect() }
    }

    fn prefetch(unit: u64, begin_op: u32) -> Move {
        Move {
            begin: unit * UNIT,
            bytes: UNIT,
            destination: Destination::Gpu,
            begin_op,
            wait_op: None,
            expiry_op: None,
        }
    }

    #[test]
    fn eviction_order_ignores_accesses_without_faults() {
        // Unit 0 is used before each other unit. It fits together with two of them.
        let all = simulate(&pieces(&[0, 1, 0, 2, 0, 3]), 3 * UNIT, &[]);
        assert_eq!((all.faulted_pieces, all.bytes.faulted, all.bytes.evicted), (4, 4 * UNIT, 4 * UNIT));
    }

    #[test]
    fn prefetch_of_resident_memory_copies_nothing_and_defers_its_eviction() {
        let renewals = [1, 3, 5].map(|begin_op| prefetch(0, begin_op));
        let (all, copies) = run(&pieces(&[0, 1, 0, 2, 0, 3]), 3 * UNIT, &renewals);
        assert_eq!((all.faulted_pieces, all.bytes.to_gpu, copies), (3, 0, vec![false; 3]));
    }

    #[test]
    fn move_that_copies_in_every_other_iteration_is_effective() {
        // In every other iteration, unit 0 is resident at the fifth launch.
        let pieces = pieces(&[2, 0, 4, 3, 4, 1, 4]);
        let moves = vec![prefetch(0, 4)];
        assert_eq!(simulate(&pieces, 3 * UNIT, &moves).bytes.to_gpu, UNIT / 2);
        assert_eq!(effective_moves(&pieces, 3 * UNIT, moves.clone()), moves);
    }
}
