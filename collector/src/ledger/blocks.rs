//! Places of events in one process's memory, from block records.

use std::{cmp::Reverse, collections::BTreeMap, time::SystemTime};

use abi::{BlockRecord, RecordKind, block::BLOCK_BYTES};
use model::{Block, CopiedBytes, GpuKey, Pattern, PeerReuse, Range, Ranges, Reuse};

use self::{
    busiest::Busiest,
    gpus::Gpus,
    pieces::Pieces,
    ranges::{Known, Origin},
    resident::Knowledge,
    returns::{ReturnCounts, Returns},
    seen::{GpuIndex, Seen},
    staged::Staged,
    table::Table,
};
use super::Generation;
use crate::spans::Span;

mod busiest;
mod gpus;
mod heat;
mod pieces;
mod ranges;
mod residency;
mod resident;
mod returns;
mod seen;
mod staged;
mod sums;
mod table;

pub(super) use busiest::PUBLISHED_MAX;

/// Blocks of one process, and their ranges.
#[derive(Debug, Default)]
pub(super) struct BlockMap {
    table: Table,
    gpus: Gpus,
    ranges: ranges::Ranges,
    busiest: Busiest,
    pieces: Pieces,
    knowledge: Knowledge,
    returns: Returns,
    staged: Staged,
    /// Whether the source has records of faults: not all of the driver's tools have.
    has_faults: bool,
    /// Blocks evicted from the table to make room.
    forgotten: u64,
}

impl BlockMap {
    /// Map without blocks, which counts the returns of so many.
    pub(super) fn with_returns(max: usize) -> Self {
        Self { returns: Returns::new(max), ..Self::default() }
    }

    /// Adds a record; with more than `max` blocks, those not seen for longest are forgotten.
    /// `page_bytes`: the kernel's page size.
    pub(super) fn add(&mut self, record: &BlockRecord, max: usize, page_bytes: u64) {
        let Some(kind) = RecordKind::from_index(record.kind.into()) else { return };
        let number = record.address / BLOCK_BYTES;
        let gpu = match record.gpu {
            0 => GpuIndex::NONE,
            id => self.gpus.index(record.generation, id),
        };
        if kind == RecordKind::Gone && self.table.get(number).is_none() {
            return;
        }
        let Some((seen, is_new)) = self.table.entry(number, max) else { return };
        let staged_bytes = self.staged.add(number, kind, record);
        let (mut reuse, taken) = seen.add(kind, record, gpu, staged_bytes);
        self.has_faults |= matches!(kind, RecordKind::GpuFaults | RecordKind::CpuFault);
        if !self.has_faults {
            reuse.bounces += seen.copied_to_cpu(kind, record);
        }
        if let Some(taken) = taken {
            self.gpus.took(gpu, taken);
        }
        self.returns.add(number, kind, record);
        if gpu != GpuIndex::NONE {
            seen.gpu = gpu;
        }
        // A CPU fault ends the stay at the block's GPU.
        self.gpus.reused(seen.gpu, &reuse);
        if let Some((begin, range)) = self.ranges.of(record) {
            range.count(kind, record, &reuse);
            if kind == RecordKind::GpuFaults {
                self.ranges.faulted(begin, record);
            }
        }
        if !seen.is_placed {
            sums::place(seen, &mut self.gpus, &mut self.ranges, &self.pieces, &self.knowledge);
        }
        if self.busiest.consider(seen) {
            self.busiest.thin(&mut self.table);
        }
        match kind {
            RecordKind::Residency => self.resident(gpu, record, page_bytes),
            RecordKind::Gone => self.gone(record),
            _ => {}
        }
        if is_new && self.table.len() > max {
            self.forget(self.table.room());
        }
    }

    /// Forgets this many blocks, those not seen for longest.
    pub(super) fn forget(&mut self, too_many: usize) {
        if too_many == 0 {
            return;
        }
        let mut table = std::mem::take(&mut self.table);
        table.forget(too_many, |seen| {
            self.forgotten = self.forgotten.saturating_add(1);
            self.returns.forget(seen.number);
            self.unknown(seen);
        });
        self.busiest.restart(&mut table);
        self.table = table;
    }

    /// Number of blocks.
    pub(super) const fn len(&self) -> usize {
        self.table.len()
    }

    /// Sets the mappings of /proc, read at `read_ns` since boot or later. `mappings`: their number
    /// before adjacent ones were merged. Returns whether they changed.
    pub(super) fn mapped(&mut self, mapped: &[Span], mappings: usize, read_ns: u64) -> bool {
        let changes = self.ranges.read(mapped, mappings, read_ns);
        let is_new = changes.is_some();
        if let Some(changes) = changes {
            self.change(changes);
        }
        is_new
    }

    /// Number of ranges with room for all.
    pub(super) fn ranges_wanted(&self) -> usize {
        self.ranges.wanted()
    }

    /// Sets the maximum of ranges.
    pub(super) fn bound_ranges(&mut self, max: usize) {
        if let Some(changes) = self.ranges.bound(max) {
            self.change(changes);
        }
    }

    /// Makes the GPUs of a VA space final, as it was destroyed, or the probes detached.
    pub(super) fn settle(&mut self, generation: Generation, is_destroyed: bool, key: impl Fn(u32) -> GpuKey) {
        if !is_destroyed {
            self.knowledge.has_gaps();
        }
        self.returns.lost();
        let Self { gpus, pieces, .. } = self;
        // An idle VA space has no blocks: a scan of all would cost milliseconds for each that is
        // opened and closed.
        if !gpus.has_any_of(generation) {
            return;
        }
        for seen in self.table.iter_mut().filter(|seen| gpus.is_of(seen.resident_gpu, generation)) {
            (seen.resident, seen.resident_ns) = (0, 0);
        }
        pieces.change(|piece| {
            if gpus.is_of(piece.gpu, generation) {
                piece.resident = 0;
            }
        });
        let moves = gpus.settle(generation, key);
        for seen in self.table.iter_mut() {
            (seen.gpu, seen.resident_gpu) = (moves.of(seen.gpu), moves.of(seen.resident_gpu));
            seen.user = moves.of(seen.user);
            seen.forget_givers();
        }
        pieces.change(|piece| piece.gpu = moves.of(piece.gpu));
        self.recount();
    }

    /// Blocks that each GPU took from other ones.
    pub(super) fn peer_reuse(&self, key: impl Fn(Generation, u32) -> GpuKey) -> BTreeMap<GpuKey, PeerReuse> {
        self.gpus.peer_reuse(key)
    }

    /// Reuse at each GPU.
    pub(super) fn reuse(&self, key: impl Fn(Generation, u32) -> GpuKey) -> BTreeMap<GpuKey, Reuse> {
        self.gpus.reuse(key)
    }

    /// The `max` busiest ranges, mapped ones before unmapped ones, and the total number.
    pub(super) fn ranges(&self, max: usize) -> Ranges {
        let mut order: Vec<_> =
            self.ranges.iter().map(|(span, known)| (known.counts.activity(), span, known)).collect();
        order.sort_by_key(|(activity, _, known)| (known.origin == Origin::Unmapped, Reverse(*activity)));
        order.truncate(max);
        Ranges {
            busiest: order.into_iter().map(|(_, span, known)| self.range(&span, known)).collect(),
            known: self.ranges.iter().len() as u64,
            mappings: self.ranges.mappings(),
            forgotten: self.ranges.forgotten(),
        }
    }

    /// All ranges, in the order of addresses.
    pub(super) fn all_ranges(&self) -> Vec<Range> {
        self.ranges.iter().map(|(span, known)| self.range(&span, known)).collect()
    }

    fn range(&self, span: &Span, known: &Known) -> Range {
        let gpus = self.gpus.with_residency().max(1) as u64;
        Range {
            begin: span.start,
            end: span.end,
            mapped: known.origin != Origin::Unmapped,
            counts: known.counts,
            residency: known.resident.bounded(&self.knowledge, Some(gpus.saturating_mul(span.end - span.start))),
            pattern: known.order.as_ref().map_or(Pattern::UNKNOWN, |order| order.pattern()),
        }
    }

    /// The `max` busiest blocks, and the numbers.
    pub(super) fn published(
        &self,
        max: usize,
        key: impl Fn(Generation, u32) -> GpuKey,
        at: impl Fn(u64) -> SystemTime,
    ) -> model::Blocks {
        let busiest = self.busiest.published(&self.table, max);
        model::Blocks {
            busiest: busiest.map(|seen| self.block(seen, self.gpus.key(seen.gpu, &key), &at)).collect(),
            known: self.table.len() as u64,
            forgotten: self.forgotten,
            ..model::Blocks::default()
        }
    }

    /// All blocks, or the `max` seen last, in the order of addresses.
    pub(super) fn all(
        &self,
        max: usize,
        key: impl Fn(Generation, u32) -> GpuKey,
        at: impl Fn(u64) -> SystemTime,
    ) -> Vec<Block> {
        let mut all: Vec<&Seen> = self.table.iter().collect();
        if all.len() > max {
            all.select_nth_unstable_by_key(max, |seen| Reverse(seen.last_ns));
            all.truncate(max);
        }
        all.sort_unstable_by_key(|seen| seen.number);
        all.into_iter().map(|seen| self.block(seen, self.gpus.key(seen.gpu, &key), &at)).collect()
    }

    fn block(&self, seen: &Seen, gpu: Option<GpuKey>, at: impl Fn(u64) -> SystemTime) -> Block {
        let gpus = self.gpus.with_residency().max(1) as u64;
        let ReturnCounts { idle_returns, interrupted_absences } = self.returns.of(seen.number);
        Block {
            address: seen.number * BLOCK_BYTES,
            gpu,
            fault_entries: seen.fault_entries.into(),
            cpu_faults: seen.cpu_faults.into(),
            bytes_htod: seen.htod_bytes(),
            bytes_dtoh: seen.dtoh_bytes(),
            bytes_dtod: seen.dtod.bytes(),
            populated_bytes: seen.populated.bytes(),
            evicted_bytes: seen.dtoh_eviction.bytes(),
            evictions: seen.evictions.into(),
            htod_by_cause: CopiedBytes {
                fault: seen.htod_fault.bytes(),
                tree_prefetch: seen.htod_prefetch.bytes(),
                eviction: 0,
                other: seen.htod_asked.bytes(),
            },
            dtoh_by_cause: CopiedBytes {
                fault: seen.dtoh_fault.bytes(),
                tree_prefetch: 0,
                eviction: seen.dtoh_eviction.bytes(),
                other: seen.dtoh_asked.bytes(),
            },
            refetched_bytes: seen.refetched.bytes(),
            cpu_reclaimed_bytes: seen.returned.bytes(),
            bounces: seen.bounces.into(),
            idle_returns,
            interrupted_absences,
            resident: self.resident_of(seen).bounded(&self.knowledge, Some(gpus * BLOCK_BYTES)),
            last_seen_at: at(seen.last_ns),
        }
    }
}

#[cfg(test)]
mod tests;
