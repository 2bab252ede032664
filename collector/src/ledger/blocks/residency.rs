//! Residency of a process's memory by GPU: from the records of each block to the sums of the
//! process and its ranges.

use std::collections::BTreeMap;

use abi::{
    BlockRecord,
    block::{BLOCK_BYTES, RESIDENT_UNKNOWN},
};
use model::{GpuKey, Residency};

use super::{
    BlockMap, Generation,
    pieces::{Full, Piece},
    resident::{Knowledge, Resident},
    seen::{GpuIndex, PAGE_BYTES, Seen},
    sums::{Sums, of_block, of_piece},
};

impl BlockMap {
    /// Processes a residency record: the block's bytes at a GPU.
    pub(super) fn resident(&mut self, gpu: GpuIndex, record: &BlockRecord, page_bytes: u64) {
        self.gpus.note_residency(gpu);
        let Self { table, gpus, ranges, pieces, knowledge, .. } = self;
        let number = record.address / BLOCK_BYTES;
        let Some(seen) = table.get_mut(number) else { return };
        let range = ranges.span_of(seen);
        let mut sums = Sums::of(seen, gpus, ranges);

        let first_page = record.first_page;
        let piece = if record.resident_pages == RESIDENT_UNKNOWN {
            // It changed to an unreadable state.
            knowledge.has_gaps();
            let noted = pieces.of(number).iter().find(|other| other.gpu == gpu && other.first_page == first_page);
            let own = if first_page == 0 && seen.resident_gpu == gpu { seen.resident } else { 0 };
            Piece { gpu, first_page, resident: noted.map_or(own, |noted| noted.resident), recorded_ns: 0 }
        } else {
            let pages = u64::from(record.resident_pages).saturating_mul(page_bytes) / PAGE_BYTES;
            let resident = u16::try_from(pages.min(BLOCK_BYTES / PAGE_BYTES)).unwrap_or_default();
            Piece { gpu, first_page, resident, recorded_ns: record.boottime_ns }
        };
        let is_own = piece.first_page == 0 && (seen.resident_gpu == gpu || seen.resident == 0);
        sums.take(seen.resident_gpu, of_block(knowledge, seen, &range));
        let before = if is_own {
            (seen.resident, seen.resident_gpu, seen.resident_ns) = (piece.resident, gpu, piece.recorded_ns);
            pieces.take(number, |other| other.gpu == gpu && other.first_page == 0).pop()
        } else {
            seen.is_split |= piece.first_page != 0;
            let before = pieces.set(number, piece).unwrap_or_else(|Full(before)| {
                knowledge.has_gaps();
                before
            });
            if let Some(piece) =
                pieces.of(number).iter().find(|other| other.gpu == gpu && other.first_page == piece.first_page)
            {
                sums.add(gpu, of_piece(knowledge, piece));
            }
            before
        };
        if let Some(before) = before {
            sums.take(gpu, of_piece(knowledge, &before));
        }
        // It left one GPU for another without a record of the first.
        if seen.resident == 0
            && let Some(other) = pieces.of(number).iter().find(|piece| piece.first_page == 0).copied()
        {
            pieces.take(number, |piece| *piece == other);
            sums.take(other.gpu, of_piece(knowledge, &other));
            (seen.resident, seen.resident_gpu, seen.resident_ns) = (other.resident, other.gpu, other.recorded_ns);
        }
        sums.add(seen.resident_gpu, of_block(knowledge, seen, &range));
    }

    /// Processes the release of a block's memory: none of it is resident any more.
    pub(super) fn gone(&mut self, record: &BlockRecord) {
        let Self { table, gpus, ranges, pieces, knowledge, .. } = self;
        let number = record.address / BLOCK_BYTES;
        let Some(seen) = table.get_mut(number) else { return };
        let range = ranges.span_of(seen);
        let mut sums = Sums::of(seen, gpus, ranges);
        for piece in pieces.take(number, |piece| piece.first_page == record.first_page) {
            sums.take(piece.gpu, of_piece(knowledge, &piece));
        }
        if record.first_page == 0 {
            sums.take(seen.resident_gpu, of_block(knowledge, seen, &range));
            (seen.resident, seen.resident_ns) = (0, record.boottime_ns);
            sums.add(seen.resident_gpu, of_block(knowledge, seen, &range));
        }
    }

    /// Forgets a block, whose residency becomes unknown.
    pub(super) fn unknown(&mut self, seen: &Seen) {
        let Self { gpus, ranges, pieces, knowledge, .. } = self;
        let range = ranges.span_of(seen);
        let mut sums = Sums::of(seen, gpus, ranges);
        let pieces = pieces.take(seen.number, |_| true);
        if seen.resident > 0 || !pieces.is_empty() {
            knowledge.has_gaps();
        }
        sums.take(seen.resident_gpu, of_block(knowledge, seen, &range));
        for piece in pieces {
            sums.take(piece.gpu, of_piece(knowledge, &piece));
        }
        ranges.lost(seen);
    }

    /// Resident bytes of a block, over all GPUs.
    pub(super) fn resident_of(&self, seen: &Seen) -> Resident {
        let first = seen.number.saturating_mul(BLOCK_BYTES);
        let mut sum = of_block(&self.knowledge, seen, &(first..first.saturating_add(BLOCK_BYTES)));
        for piece in self.pieces.of(seen.number) {
            sum += of_piece(&self.knowledge, piece);
        }
        sum
    }

    /// Marks the residency before the probes as unknown.
    pub(in super::super) fn adopted(&mut self) {
        self.knowledge.has_gaps();
        self.returns.lost();
    }

    /// Marks records as dropped, until this time at the latest; ns since boot.
    pub(in super::super) fn lost(&mut self, until_ns: u64) {
        self.knowledge.lost(until_ns);
        self.returns.lost();
        self.gpus.doubt();
        self.ranges.doubt();
    }

    /// Processes the end of the last VA space: no memory is resident any more.
    pub(in super::super) fn ended(&mut self) {
        self.knowledge = Knowledge::default();
    }

    /// Residency at each GPU; absent if no record contains the GPU.
    pub(in super::super) fn residency(&self, key: impl Fn(Generation, u32) -> GpuKey) -> BTreeMap<GpuKey, Residency> {
        let span = self.ranges.mapped_bytes(self.knowledge.lost_ns());
        let bounded = |(gpu, sum): (_, Resident)| (gpu, sum.bounded(&self.knowledge, span));
        self.gpus.residents(key).into_iter().map(bounded).collect()
    }
}
