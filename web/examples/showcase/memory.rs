//! Three ranges: one with cyclic accesses, one with a hot middle, and one that is hardly used.

use std::{
    cmp::Reverse,
    time::{Duration, SystemTime},
};

use model::{
    Block, Blocks, GpuKey, HeatCell, HeatMap, HeatRange, HeatRequest, Pattern, PatternKind, Range, RangeCounts, Ranges,
    Residency, Reuse, block::BLOCK_BYTES,
};

pub(crate) const GIB: u64 = 1 << 30;

/// First address, end address and access pattern.
pub(crate) fn patterns() -> [(u64, u64, Pattern); 3] {
    let range =
        |begin: u64, gib: u64, kind, confidence, steps| (begin, begin + gib * GIB, Pattern { kind, confidence, steps });
    [
        range(0x7f2a_4000_0000, 144, PatternKind::Cyclic, 0.97, 184_320),
        range(0x7f36_4000_0000, 40, PatternKind::HotSet, 0.83, 20_480),
        range(0x7f3f_4000_0000, 3, PatternKind::Strided { stride_bytes: -65_536 }, 0.64, 96),
    ]
}

pub(crate) fn ranges(managed_gib: u64, resident: Residency, faults: f64, reuse: Reuse) -> Ranges {
    let busiest: Vec<_> = patterns()
        .into_iter()
        .zip([0.9, 0.09, 0.01])
        .map(|((begin, end, pattern), share)| Range {
            begin,
            end: (begin + part((end - begin) as f64 * managed_gib as f64 / 187.0)) & !(BLOCK_BYTES - 1),
            mapped: true,
            counts: RangeCounts {
                fault_entries: part(faults * share),
                cpu_faults: part(faults * share / 90.0),
                bytes_htod: part(reuse.fetched_bytes as f64 * share),
                bytes_dtoh: part(reuse.fetched_bytes as f64 * share * 0.93),
                populated_bytes: GIB,
                evicted_bytes: part(reuse.fetched_bytes as f64 * share * 0.9),
                evictions: part(reuse.fetched_bytes as f64 * share * 0.9) >> 21,
                reuse: Reuse {
                    fetched_bytes: part(reuse.fetched_bytes as f64 * share),
                    refetched_bytes: part(reuse.refetched_bytes as f64 * share),
                    ..Reuse::default()
                },
                ..RangeCounts::default()
            },
            residency: Residency {
                bytes: part(resident.bytes as f64 * share),
                min_bytes: part(resident.min_bytes as f64 * share),
                max_bytes: part(resident.max_bytes as f64 * share),
            },
            pattern,
        })
        .filter(|range| range.begin < range.end)
        .collect();
    Ranges { known: busiest.len() as u64, mappings: busiest.len() as u64, forgotten: 0, busiest }
}

/// Heat map of a sequential walk: memory behind it is resident, memory ahead is not.
pub(crate) fn heat(request: &HeatRequest) -> HeatMap {
    let seconds = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap().as_secs_f64();
    let cells = request.cells_max as u64;
    let ranges = patterns().into_iter().enumerate().map(|(at, (begin, end, _))| {
        let cell_bytes = (end - begin).div_ceil(cells).next_multiple_of(BLOCK_BYTES);
        let count = (end - begin).div_ceil(cell_bytes);
        let walker = (seconds / 20.0).fract() * count as f64;
        let cell = |cell: u64| {
            let behind = (walker - cell as f64).rem_euclid(count as f64) / count as f64;
            let middle = 1.0 / (1.0 + (cell as f64 - count as f64 / 2.0).powi(2) / 9.0);
            let (heat, resident) = match at {
                0 => (0.75 + 0.25 * (cell as f64 * 1.7).sin(), if behind < 0.6 { 1.0 } else { 0.0 }),
                1 => (middle, middle.sqrt()),
                _ => (if cell.is_multiple_of(9) { 0.02 } else { 0.0 }, 0.9),
            };
            HeatCell {
                fault_entries: part(heat * 90_000.0),
                cpu_faults: part(heat * 400.0),
                fetched_bytes: part(heat * 4e10),
                bytes_dtoh: part(heat * 3.8e10),
                evicted_bytes: part(heat * 3.7e10),
                refetched_bytes: part(heat * 3.6e10),
                resident: Residency::exactly(part(cell_bytes as f64 * resident)),
                idle_ns: (heat > 0.0).then(|| part(behind * 20e9)),
            }
        };
        HeatRange { begin, end, cell_bytes, cells: (0..count).map(cell).collect() }
    });
    HeatMap { ranges: ranges.collect(), ranges_omitted: 0 }
}

/// Blocks of two of the ranges.
pub(crate) fn blocks(faults: f64, gpu: GpuKey, now: SystemTime, sampled: bool) -> Blocks {
    if faults < 1.0 {
        return Blocks::default();
    }
    let block = |at: u64| {
        let (address, weight) = if at < 48 {
            (0x7f2a_4000_0000 + at * BLOCK_BYTES, 1.0)
        } else {
            (0x7f36_4000_0000 + at * BLOCK_BYTES, 3.0 / (1.0 + (at as f64 - 64.0).abs()))
        };
        let entries = faults * weight / 80.0;
        Block {
            gpu: Some(gpu),
            fault_entries: entries as u64,
            cpu_faults: (entries * 0.01) as u64,
            bytes_htod: (entries * 130.0) as u64 * 4096,
            bytes_dtoh: (entries * 118.0) as u64 * 4096,
            populated_bytes: BLOCK_BYTES,
            evicted_bytes: (entries * 117.0) as u64 * 4096,
            evictions: (entries * 0.23) as u64,
            ..Block::new(address, now - Duration::from_millis(at * 40))
        }
    };
    let mut busiest: Vec<_> = (0..80).map(block).collect();
    busiest.sort_by_key(|block| (Reverse(block.fault_entries), block.address));
    Blocks {
        busiest,
        known: 24_411,
        forgotten: 0,
        sampled_out_records: if sampled { 1_234 } else { 0 },
        dropped_records: 0,
    }
}

fn part(figure: f64) -> u64 {
    figure as u64
}
