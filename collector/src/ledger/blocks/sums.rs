//! Contributions of blocks to the sums of their GPUs and of their range.

use super::{
    BlockMap,
    gpus::Gpus,
    pieces::{Piece, Pieces},
    ranges::{Changes, Ranges},
    resident::{Knowledge, Resident, overlap},
    seen::{GpuIndex, PAGE_BYTES, Seen},
};
use crate::spans::Span;

/// Contribution of the block itself, within these addresses of its range.
pub(super) fn of_block(knowledge: &Knowledge, seen: &Seen, range: &Span) -> Resident {
    // The lengths of a split block's parts are unknown.
    let span = if seen.is_split { 0 } else { overlap(seen.number, range.start, range.end) };
    knowledge.of(seen.resident_ns, u64::from(seen.resident) * PAGE_BYTES, span)
}

/// Contribution of a piece.
pub(super) fn of_piece(knowledge: &Knowledge, piece: &Piece) -> Resident {
    knowledge.of(piece.recorded_ns, u64::from(piece.resident) * PAGE_BYTES, 0)
}

/// Sums that contain a block's contribution.
pub(super) struct Sums<'a> {
    gpus: &'a mut Gpus,
    ranges: &'a mut Ranges,
    number: u64,
    is_placed: bool,
}

impl<'a> Sums<'a> {
    pub(super) const fn of(seen: &Seen, gpus: &'a mut Gpus, ranges: &'a mut Ranges) -> Self {
        Self { gpus, ranges, number: seen.number, is_placed: seen.is_placed }
    }

    pub(super) fn add(&mut self, gpu: GpuIndex, share: Resident) {
        if let Some(sum) = self.gpus.resident(gpu) {
            *sum += share;
        }
        if let Some(sum) = self.of_range() {
            *sum += share;
        }
    }

    pub(super) fn take(&mut self, gpu: GpuIndex, share: Resident) {
        if let Some(sum) = self.gpus.resident(gpu) {
            *sum -= share;
        }
        if let Some(sum) = self.of_range() {
            *sum -= share;
        }
    }

    fn of_range(&mut self) -> Option<&mut Resident> {
        if !self.is_placed {
            return None;
        }
        self.ranges.of_block(self.number).map(|(_, known)| &mut known.resident)
    }
}

/// Adds the contributions of a block.
fn add(seen: &Seen, gpus: &mut Gpus, ranges: &mut Ranges, pieces: &Pieces, knowledge: &Knowledge) {
    let range = ranges.span_of(seen);
    let mut sums = Sums::of(seen, gpus, ranges);
    sums.add(seen.resident_gpu, of_block(knowledge, seen, &range));
    for piece in pieces.of(seen.number) {
        sums.add(piece.gpu, of_piece(knowledge, piece));
    }
}

/// Subtracts them.
fn take(seen: &Seen, gpus: &mut Gpus, ranges: &mut Ranges, pieces: &Pieces, knowledge: &Knowledge) {
    let range = ranges.span_of(seen);
    let mut sums = Sums::of(seen, gpus, ranges);
    sums.take(seen.resident_gpu, of_block(knowledge, seen, &range));
    for piece in pieces.of(seen.number) {
        sums.take(piece.gpu, of_piece(knowledge, piece));
    }
}

/// Adds a block without a range to its range, if there is one.
pub(super) fn place(seen: &mut Seen, gpus: &mut Gpus, ranges: &mut Ranges, pieces: &Pieces, knowledge: &Knowledge) {
    take(seen, gpus, ranges, pieces, knowledge);
    ranges.place(seen);
    add(seen, gpus, ranges, pieces, knowledge);
}

impl BlockMap {
    /// Recomputes all sums.
    pub(super) fn recount(&mut self) {
        let Self { table, gpus, ranges, pieces, knowledge, .. } = self;
        gpus.clear_resident();
        ranges.clear_resident();
        for seen in table.iter() {
            add(seen, gpus, ranges, pieces, knowledge);
        }
    }

    /// Applies changes of ranges, and moves their blocks.
    pub(super) fn change(&mut self, changes: Changes) {
        let Self { table, gpus, ranges, pieces, knowledge, .. } = self;
        // A lookup of more numbers than there are blocks would be slower.
        if changes.blocks() > table.len() as u64 {
            gpus.clear_resident();
            ranges.clear_blocks();
            ranges.apply(changes);
            for seen in table.iter_mut() {
                ranges.place(seen);
                add(seen, gpus, ranges, pieces, knowledge);
            }
        } else {
            let numbers = changes.numbers();
            for number in &numbers {
                if let Some(seen) = table.get_mut(*number) {
                    take(seen, gpus, ranges, pieces, knowledge);
                    ranges.displace(seen);
                    add(seen, gpus, ranges, pieces, knowledge);
                }
            }
            ranges.apply(changes);
            for number in numbers {
                if let Some(seen) = table.get_mut(number) {
                    place(seen, gpus, ranges, pieces, knowledge);
                }
            }
        }
        ranges.placed();
    }
}
