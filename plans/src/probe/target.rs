//! Targets of probes: launches, and the parts of their footprints probed at a time.

use std::cmp::Reverse;

use call_ring::plan::MOVES_MAX;
use planner::Part;

use crate::{pieces::Pieces, ranges::Ranges, sequence::Work};

/// Maximum number of probed launches.
pub const LAUNCHES_MAX: usize = 64;
/// Number of executions of a launch that must prove that a block is not accessed.
pub const PROBES_PER_LAUNCH: u64 = 2;
/// Number of executions in a launch's first window that prove nothing: a block that was absent
/// before the window returns once without having left.
pub(super) const WARM_UP_EXECUTIONS: u64 = 1;
/// Number of failed windows after which a launch is no longer probed.
pub const ATTEMPTS_MAX: u32 = 3;
/// Minimum number of blocks of a footprint that is probed.
const BLOCKS_MIN: usize = 2;

/// Part of the footprint of a launch, probed at a time.
#[derive(Clone, Debug)]
pub(super) struct Target {
    /// Index of the launch.
    pub(super) op: usize,
    /// Indices of the pieces.
    pub(super) pieces: Vec<usize>,
    /// Observed executions.
    pub(super) executions: u64,
    /// Failed windows.
    pub(super) attempts: u32,
    /// Blocks that were accessed in an execution, or may have been.
    pub(super) touched: Ranges,
}

impl Target {
    pub(super) const fn is_known(&self) -> bool {
        self.executions >= WARM_UP_EXECUTIONS + PROBES_PER_LAUNCH
    }

    pub(super) const fn is_finished(&self) -> bool {
        self.is_known() || self.attempts >= ATTEMPTS_MAX
    }

    /// Heap bytes held.
    pub(super) fn heap_bytes(&self) -> usize {
        size_of::<Self>() + self.pieces.capacity() * size_of::<usize>() + self.touched.heap_bytes()
    }

    /// Bytes of the pieces, which are whole blocks.
    pub(super) fn bytes(&self, pieces: &Pieces) -> u64 {
        bytes(pieces, &self.pieces)
    }

    /// Driver blocks of the pieces.
    pub(super) fn blocks(&self, pieces: &Pieces) -> Ranges {
        let pieces = self.pieces.iter().filter_map(|index| pieces.all.get(*index));
        pieces.map(|piece| Ranges::blocks_of(piece.address, piece.bytes)).collect()
    }
}

/// Targets of the launches of an iteration, largest footprint first. Each moves at most
/// `budget_bytes`, both directions together.
pub(super) fn select(work: &Work, budget_bytes: u64) -> Vec<Target> {
    let Work { tokens, pieces, isolated, .. } = work;
    let is_candidate = |op: usize| {
        let repeats = tokens.get(op).is_some_and(|token| token.pointers.is_some());
        repeats && isolated.get(op).copied().unwrap_or(false)
    };
    let named = pieces.by_op().into_iter().enumerate().filter(|(op, _)| is_candidate(*op));
    let mut named: Vec<(usize, Vec<usize>, u64)> = named
        .map(|(op, mut indices)| {
            let is_moved = |index: &usize| {
                pieces.all.get(*index).is_some_and(|piece| piece.is_movable && piece.is_block_aligned())
            };
            indices.retain(is_moved);
            let bytes = bytes(pieces, &indices);
            (op, indices, bytes)
        })
        .filter(|(.., bytes)| bytes / Part::BLOCK_BYTES >= BLOCKS_MIN as u64)
        .collect();
    named.sort_by_key(|(op, _, bytes)| (Reverse(*bytes), *op));
    named.truncate(LAUNCHES_MAX);
    let targets = named.into_iter().flat_map(|(op, indices, _)| split(pieces, op, &indices, budget_bytes / 2));
    targets.filter(|target| target.bytes(pieces).saturating_mul(2) <= budget_bytes).collect()
}

/// Targets of a launch, each of at most `max_bytes`, or of one piece.
fn split(pieces: &Pieces, op: usize, indices: &[usize], max_bytes: u64) -> Vec<Target> {
    let mut targets: Vec<Target> = Vec::new();
    let mut room = 0_u64;
    for index in indices {
        let bytes = pieces.all.get(*index).map_or(0, |piece| piece.bytes);
        match targets.last_mut() {
            Some(target) if bytes <= room && 2 * target.pieces.len() + 2 <= MOVES_MAX => {
                target.pieces.push(*index);
                room -= bytes;
            }
            _ => {
                let target =
                    Target { op, pieces: vec![*index], executions: 0, attempts: 0, touched: Ranges::default() };
                targets.push(target);
                room = max_bytes.saturating_sub(bytes);
            }
        }
    }
    targets
}

fn bytes(pieces: &Pieces, indices: &[usize]) -> u64 {
    let pieces = indices.iter().filter_map(|index| pieces.all.get(*index));
    pieces.map(|piece| piece.bytes).fold(0, u64::saturating_add)
}
