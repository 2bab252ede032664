//! Heat map of a process's memory.

use abi::block::BLOCK_BYTES;
use model::{HeatCell, HeatMap, HeatRange, HeatRequest, Residency};

use super::{BlockMap, resident::Resident, seen::Seen};
use crate::spans::Span;

/// Maximum of ranges shown at once: the busiest.
const RANGES_MAX: usize = 256;
/// Maximum of cells in all.
const CELLS_MAX: usize = 4096;

/// Range of the heat map.
struct Shown {
    /// Requested part of the range.
    span: Span,
    /// Blocks per cell.
    cell_blocks: u64,
    cells: Vec<(HeatCell, Resident)>,
}

impl Shown {
    fn new(span: Span, cells_max: usize) -> Self {
        let blocks = last_block(&span) + 1 - span.start / BLOCK_BYTES;
        let cell_blocks = blocks.div_ceil(cells_max.max(1) as u64);
        let cells = usize::try_from(blocks.div_ceil(cell_blocks)).unwrap_or_default();
        Self { span, cell_blocks, cells: vec![Default::default(); cells] }
    }

    /// Blocks of one cell.
    fn blocks(&self, cell: usize) -> std::ops::Range<u64> {
        let first = self.span.start / BLOCK_BYTES + cell as u64 * self.cell_blocks;
        first..first + self.cell_blocks
    }

    fn cell(&mut self, number: u64) -> Option<&mut (HeatCell, Resident)> {
        let cell = (number - self.span.start / BLOCK_BYTES) / self.cell_blocks;
        self.cells.get_mut(usize::try_from(cell).ok()?)
    }
}

/// Last block of a span, which is never empty.
const fn last_block(span: &Span) -> u64 {
    (span.end - 1) / BLOCK_BYTES
}

impl BlockMap {
    /// Heat map of the requested part of memory, at `now_ns` since boot.
    pub(in super::super) fn heat(&self, request: &HeatRequest, now_ns: u64) -> HeatMap {
        let (ranges, ranges_omitted) = self.requested(request);
        let cells_max = request.cells_max.min(CELLS_MAX / ranges.len().max(1)).max(1);
        let mut shown: Vec<_> = ranges.into_iter().map(|span| Shown::new(span, cells_max)).collect();
        for seen in self.table.iter() {
            // A block shared by two ranges counts in both: the exact place of its events is
            // unknown.
            let first = shown.partition_point(|range| last_block(&range.span) < seen.number);
            let those = shown.iter_mut().skip(first).take_while(|range| range.span.start / BLOCK_BYTES <= seen.number);
            for (cell, resident) in those.filter_map(|range| range.cell(seen.number)) {
                add(cell, seen, now_ns);
                *resident += self.resident_of(seen);
            }
        }
        let gpus = self.gpus.with_residency().max(1) as u64;
        let ranges = shown.into_iter().map(|range| HeatRange {
            begin: range.span.start,
            end: range.span.end,
            cell_bytes: range.cell_blocks * BLOCK_BYTES,
            cells: (0..)
                .zip(&range.cells)
                .map(|(at, (cell, resident))| {
                    let blocks = range.blocks(at);
                    let bytes = (blocks.end - blocks.start) * BLOCK_BYTES;
                    HeatCell { resident: resident.bounded(&self.knowledge, Some(gpus.saturating_mul(bytes))), ..*cell }
                })
                .collect(),
        });
        HeatMap { ranges: ranges.collect(), ranges_omitted }
    }

    /// Requested parts of ranges, in the order of addresses; if there are too many, the busiest,
    /// with the number of omitted ones.
    fn requested(&self, request: &HeatRequest) -> (Vec<Span>, u64) {
        let part = |span: Span| span.start.max(request.begin)..span.end.min(request.end);
        let ranges = self.ranges.iter().map(|(span, known)| (known.counts.activity(), part(span)));
        let mut ranges: Vec<_> = ranges.filter(|(_, part)| part.start < part.end).collect();
        let left_out = ranges.len().saturating_sub(RANGES_MAX);
        ranges.sort_by_key(|(activity, _)| std::cmp::Reverse(*activity));
        ranges.truncate(RANGES_MAX);
        ranges.sort_by_key(|(_, part)| part.start);
        (ranges.into_iter().map(|(_, part)| part).collect(), left_out as u64)
    }
}

fn add(cell: &mut HeatCell, seen: &Seen, now_ns: u64) {
    let idle_ns = now_ns.saturating_sub(seen.last_ns);
    *cell = HeatCell {
        fault_entries: cell.fault_entries + u64::from(seen.fault_entries),
        cpu_faults: cell.cpu_faults + u64::from(seen.cpu_faults),
        fetched_bytes: cell.fetched_bytes + seen.htod_bytes() + seen.dtod.bytes(),
        bytes_dtoh: cell.bytes_dtoh + seen.dtoh_bytes(),
        evicted_bytes: cell.evicted_bytes + seen.dtoh_eviction.bytes(),
        refetched_bytes: cell.refetched_bytes + seen.refetched.bytes(),
        resident: Residency::default(),
        idle_ns: Some(cell.idle_ns.map_or(idle_ns, |idle| idle.min(idle_ns))),
    };
}
