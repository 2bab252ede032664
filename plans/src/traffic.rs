//! Bytes over the link and faults in an iteration that repeats, with moves or without any: a model of
//! the driver.

use std::collections::BTreeMap;

use call_ring::plan::{Destination, Move};

use crate::{
    moves::within,
    pieces::{Piece, Pieces},
};

/// Iterations until the residency repeats, or nearly.
const TURNS: usize = 4;

/// Bytes over the link in an iteration.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
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
    /// In both directions.
    #[must_use]
    pub const fn total(self) -> u64 {
        let Self { to_gpu, to_host, faulted, evicted } = self;
        to_gpu.saturating_add(to_host).saturating_add(faulted).saturating_add(evicted)
    }
}

/// Traffic of an iteration, in the steady state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Traffic {
    /// Bytes over the link.
    pub bytes: Bytes,
    /// Pieces that come by faults, new memory included, of which nothing is copied.
    pub faulted_pieces: u64,
    /// Most bytes that are on the GPU at any time before evictions, from the first iteration on.
    pub peak_bytes: u64,
}

/// Traffic with these moves, from an empty GPU on; without any, that of the driver alone. Memory comes
/// by moves and faults, and the least recently used is evicted where there is no room. A move to the
/// GPU takes memory when it begins, and is a use; one to the host gives it back when an op waits for
/// it, or with the next op if none does.
#[must_use]
pub fn of(pieces: &Pieces, gpu_bytes: u64, moves: &[Move]) -> Traffic {
    run(pieces, gpu_bytes, moves).0
}

/// Moves that copy something in the steady state.
pub(crate) fn copying(pieces: &Pieces, gpu_bytes: u64, moves: Vec<Move>) -> Vec<Move> {
    let (_, copies) = run(pieces, gpu_bytes, &moves);
    moves.into_iter().zip(copies).filter_map(|(step, copies)| copies.then_some(step)).collect()
}

/// Traffic, and whether each move copies something.
fn run(pieces: &Pieces, gpu_bytes: u64, moves: &[Move]) -> (Traffic, Vec<bool>) {
    let by_op = by_op(pieces);
    let left_before =
        |step: &Move| step.wait_op.unwrap_or((step.begin_op + 1) % u32::try_from(pieces.ops).unwrap_or(1));
    let leaving =
        moves_by_op(pieces.ops, moves, |step| (step.destination == Destination::Host).then(|| left_before(step)));
    let coming = moves_by_op(pieces.ops, moves, |step| (step.destination == Destination::Gpu).then_some(step.begin_op));
    let mut gpu = Gpu::new(pieces, gpu_bytes);
    let mut traffic = Traffic::default();
    let mut copies = vec![false; moves.len()];
    for _ in 0..TURNS {
        traffic = Traffic { peak_bytes: traffic.peak_bytes, ..Traffic::default() };
        copies.fill(false);
        for (op, ((uses, leaving), coming)) in by_op.iter().zip(&leaving).zip(&coming).enumerate() {
            let Traffic { bytes, faulted_pieces, peak_bytes } = &mut traffic;
            for &(at, step) in leaving {
                for place in within(pieces, step) {
                    let left = gpu.leaves(place);
                    add(&mut bytes.to_host, left);
                    mark(&mut copies, at, left);
                }
            }
            for &place in uses {
                if let Some(copied) = gpu.uses(place) {
                    *faulted_pieces += 1;
                    add(&mut bytes.faulted, copied);
                }
            }
            add(&mut bytes.evicted, gpu.evict(peak_bytes));
            for &place in uses {
                gpu.ends_behind(place, op);
            }
            for &(at, step) in coming {
                for place in within(pieces, step) {
                    let come = gpu.comes(place);
                    add(&mut bytes.to_gpu, come);
                    mark(&mut copies, at, come);
                }
                add(&mut bytes.evicted, gpu.evict(peak_bytes));
            }
        }
    }
    (traffic, copies)
}

/// Adds bytes: what a program says of its memory may have no end.
const fn add(sum: &mut u64, bytes: u64) {
    *sum = sum.saturating_add(bytes);
}

fn mark(copies: &mut [bool], at: usize, copied_bytes: u64) {
    if let Some(copies) = copies.get_mut(at) {
        *copies |= copied_bytes > 0;
    }
}

/// Memory on the GPU.
#[derive(Debug)]
struct Gpu<'a> {
    pieces: &'a [Piece],
    limit_bytes: u64,
    resident_bytes: u64,
    /// Count of uses.
    time: u64,
    /// What is on it, by the time of the last use.
    order: BTreeMap<u64, usize>,
    states: Vec<PieceState>,
}

/// State of a piece.
#[derive(Clone, Copy, Debug, Default)]
struct PieceState {
    /// Time of its last use, if it is on the GPU.
    used_at: Option<u64>,
    /// Whether it has contents to copy.
    is_written: bool,
}

impl<'a> Gpu<'a> {
    fn new(pieces: &'a Pieces, limit_bytes: u64) -> Self {
        let (order, states) = (BTreeMap::new(), vec![PieceState::default(); pieces.all.len()]);
        Self { pieces: &pieces.all, limit_bytes, resident_bytes: 0, time: 0, order, states }
    }

    fn of(&mut self, place: usize) -> Option<(&'a Piece, &mut PieceState)> {
        self.pieces.get(place).zip(self.states.get_mut(place))
    }

    /// Makes a piece the one that was used last. Whether it was absent.
    fn renew(&mut self, place: usize) -> bool {
        self.time += 1;
        let time = self.time;
        let Some((piece, state)) = self.of(place) else { return false };
        let (bytes, before) = (piece.bytes, state.used_at.replace(time));
        match before {
            Some(before) => drop(self.order.remove(&before)),
            None => add(&mut self.resident_bytes, bytes),
        }
        self.order.insert(time, place);
        before.is_none()
    }

    /// Removes a piece; its bytes if it was there.
    fn leaves(&mut self, place: usize) -> u64 {
        let Some((piece, state)) = self.of(place) else { return 0 };
        let (bytes, used_at) = (piece.bytes, state.used_at.take());
        let Some(used_at) = used_at else { return 0 };
        self.order.remove(&used_at);
        self.resident_bytes = self.resident_bytes.saturating_sub(bytes);
        bytes
    }

    /// Bytes that a fault copies for a use; `None` without a fault.
    fn uses(&mut self, place: usize) -> Option<u64> {
        let is_absent = self.renew(place);
        let (piece, state) = self.of(place)?;
        let is_copied = std::mem::replace(&mut state.is_written, true);
        is_absent.then_some(if is_copied { piece.bytes } else { 0 })
    }

    /// Bytes that a move to the GPU copies. There is none of memory without contents.
    fn comes(&mut self, place: usize) -> u64 {
        let Some((piece, _)) = self.of(place).filter(|(_, state)| state.is_written) else { return 0 };
        if self.renew(place) { piece.bytes } else { 0 }
    }

    /// Evicts what there is no room for; its bytes.
    fn evict(&mut self, peak_bytes: &mut u64) -> u64 {
        *peak_bytes = self.resident_bytes.max(*peak_bytes);
        let mut evicted_bytes = 0;
        while self.resident_bytes > self.limit_bytes
            && let Some(place) = self.order.first_entry().map(|first| *first.get())
        {
            add(&mut evicted_bytes, self.leaves(place));
        }
        evicted_bytes
    }

    /// Frees a piece that does not outlive its last use.
    fn ends_behind(&mut self, place: usize, op: usize) {
        let dies = |piece: &Piece| !piece.outlives && piece.uses.last() == Some(&op);
        if let Some((_, state)) = self.of(place).filter(|(piece, _)| dies(piece)) {
            state.is_written = false;
            self.leaves(place);
        }
    }
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

/// Moves that each op has, in their order, with their places among all.
fn moves_by_op(ops: usize, moves: &[Move], op: impl Fn(&Move) -> Option<u32>) -> Vec<Vec<(usize, &Move)>> {
    let mut by_op = vec![Vec::new(); ops];
    for (at, step) in moves.iter().enumerate() {
        if let Some(steps) = op(step).and_then(|op| by_op.get_mut(op as usize)) {
            steps.push((at, step));
        }
    }
    by_op
}
