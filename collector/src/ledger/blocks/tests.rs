use std::{slice::from_ref, time::Duration};

use abi::block::SLOT_BYTES;
use model::Residency;

use super::*;

const BLOCK: u64 = BLOCK_BYTES;

fn record(kind: RecordKind, block: u64, events: u32, bytes: u32) -> BlockRecord {
    BlockRecord {
        boottime_ns: block,
        generation: 7,
        address: block * BLOCK,
        events,
        bytes,
        gpu: 1,
        kind: kind as u16,
        ..BlockRecord::default()
    }
}

fn published(map: &BlockMap) -> model::Blocks {
    map.published(PUBLISHED_MAX, |_, id| GpuKey::Pending(id), |ns| SystemTime::UNIX_EPOCH + Duration::from_nanos(ns))
}

#[test]
fn records_of_a_block_add_up() {
    let mut map = BlockMap::default();
    for record in [
        record(RecordKind::GpuFaults, 3, 5, 0),
        record(RecordKind::CopyHtod, 3, 1, 65536),
        BlockRecord { cause: 4, ..record(RecordKind::CopyDtoh, 3, 1, 4096) },
        record(RecordKind::Evicted, 3, 1, 0),
        record(RecordKind::Populated, 3, 1, 8192),
        BlockRecord { gpu: 0, ..record(RecordKind::CpuFault, 3, 1, 0) },
    ] {
        map.add(&record, 10, 4096);
    }
    let model::Blocks { busiest, known, forgotten, .. } = published(&map);
    assert_eq!((known, forgotten), (1, 0));
    let [block] = &busiest[..] else { panic!("{busiest:?}") };
    assert_eq!((block.address, block.gpu), (3 * BLOCK, Some(GpuKey::Pending(1))));
    assert_eq!((block.fault_entries, block.cpu_faults, block.bytes_htod, block.bytes_dtoh), (5, 1, 65536, 4096));
    assert_eq!((block.evicted_bytes, block.evictions, block.populated_bytes), (4096, 1, 8192));
}

#[test]
fn busiest_blocks_come_first_up_to_the_maximum_published() {
    let mut map = BlockMap::default();
    for block in 0..100 {
        map.add(&record(RecordKind::GpuFaults, block, u32::try_from(block).unwrap(), 0), 1000, 4096);
    }
    let blocks = published(&map);
    let addresses: Vec<_> = blocks.busiest.iter().map(|block| block.address / BLOCK).collect();
    assert_eq!(addresses, (36..100).rev().collect::<Vec<_>>());
    assert_eq!(blocks.known, 100);
}

#[test]
fn oldest_blocks_beyond_the_limit_are_forgotten_and_counted() {
    let mut map = BlockMap::default();
    for block in 0..17 {
        map.add(&record(RecordKind::GpuFaults, block, 1, 0), 16, 4096);
    }
    let blocks = published(&map);
    assert_eq!((blocks.known, blocks.forgotten), (15, 2));
    assert!(blocks.busiest.iter().all(|block| block.address >= 2 * BLOCK));
}

#[test]
fn blocks_of_equal_age_are_forgotten_only_as_many_as_needed() {
    let mut map = BlockMap::default();
    for block in 0..9 {
        map.add(&BlockRecord { boottime_ns: 5, ..record(RecordKind::GpuFaults, block, 1, 0) }, 8, 4096);
    }
    assert_eq!((published(&map).known, published(&map).forgotten), (8, 1));
}

#[test]
fn gpu_of_a_block_outlives_its_va_space() {
    let mut map = BlockMap::default();
    map.add(&record(RecordKind::CopyHtod, 1, 1, 4096), 8, 4096);
    map.settle(8, true, GpuKey::Unknown);
    assert_eq!(published(&map).busiest[0].gpu, Some(GpuKey::Pending(1)));
    map.settle(7, true, GpuKey::Unknown);
    assert_eq!(published(&map).busiest[0].gpu, Some(GpuKey::Unknown(1)));
}

#[test]
fn without_records_of_faults_a_copy_to_the_host_by_a_fault_is_the_cpus_use() {
    let there_and_back = |cause, times| {
        let mut map = BlockMap::default();
        for _ in 0..times {
            map.add(&record(RecordKind::CopyHtod, 3, 1, 4096), 10, 4096);
            map.add(&BlockRecord { cause, ..record(RecordKind::CopyDtoh, 3, 1, 4096) }, 10, 4096);
        }
        map
    };
    let (fault, prefetch, eviction) = (0, 3, 4);
    let bounces = |map: &BlockMap| published(map).busiest[0].bounces;
    assert_eq!([fault, prefetch, eviction].map(|cause| bounces(&there_and_back(cause, 4))), [7, 7, 0]);
    // A source that records faults has one for each use by a CPU.
    let mut map = there_and_back(fault, 1);
    map.add(&record(RecordKind::GpuFaults, 3, 1, 0), 10, 4096);
    for kind in [RecordKind::CopyHtod, RecordKind::CopyDtoh, RecordKind::CopyHtod] {
        map.add(&record(kind, 3, 1, 4096), 10, 4096);
    }
    assert_eq!(bounces(&map), 2);
}

const MIB: u64 = 1 << 20;
const PAGE: u64 = 4096;

fn resident(block: u64, gpu: u32, pages: u16, at: u64) -> BlockRecord {
    let record = record(RecordKind::Residency, block, 1, 0);
    BlockRecord { gpu, resident_pages: pages, boottime_ns: at, ..record }
}

fn map(records: impl IntoIterator<Item = BlockRecord>) -> BlockMap {
    let mut map = BlockMap::default();
    for record in records {
        map.add(&record, usize::MAX, PAGE);
    }
    map
}

fn mapped(map: &mut BlockMap, spans: &[Span], read_ns: u64) {
    map.mapped(spans, spans.len(), read_ns);
}

/// Bytes, and the bounds.
fn residency(map: &BlockMap) -> Vec<(u32, [u64; 3])> {
    let id = |key| if let GpuKey::Pending(id) = key { id } else { panic!("{key:?}") };
    let pages = |Residency { bytes, min_bytes, max_bytes }| [bytes, min_bytes, max_bytes].map(|bytes| bytes / PAGE);
    let residency = map.residency(|_, id| GpuKey::Pending(id));
    residency.into_iter().map(|(key, residency)| (id(key), pages(residency))).collect()
}

#[test]
fn residency_is_exact_for_a_process_observed_from_its_start() {
    let mut map = map([resident(3, 1, 16, 1), resident(3, 1, 512, 2), resident(4, 1, 100, 3)]);
    assert_eq!(residency(&map), [(1, [612, 612, 612])]);
    map.add(&resident(3, 1, 0, 4), usize::MAX, PAGE);
    assert_eq!(residency(&map), [(1, [100, 100, 100])]);
    map.add(&BlockRecord { gpu: 0, ..record(RecordKind::Gone, 4, 1, 0) }, usize::MAX, PAGE);
    assert_eq!(residency(&map), [(1, [0, 0, 0])]);
}

#[test]
fn residency_is_missing_without_residency_records() {
    let map = map([record(RecordKind::CopyHtod, 3, 1, 65536), fault(4)]);
    assert_eq!(residency(&map), []);
}

#[test]
fn unreadable_residency_widens_the_bounds_by_the_whole_block() {
    let mut map = map([resident(3, 1, 100, 1), resident(4, 1, 50, 1)]);
    mapped(&mut map, from_ref(&(6 * MIB..10 * MIB)), 0);
    map.add(&resident(3, 1, abi::block::RESIDENT_UNKNOWN, 2), usize::MAX, PAGE);
    assert_eq!(residency(&map), [(1, [150, 50, 562])]);
    map.add(&resident(3, 1, 20, 3), usize::MAX, PAGE);
    assert_eq!(residency(&map), [(1, [70; 3])]);
}

#[test]
fn page_size_is_that_of_the_kernel() {
    let mut map = BlockMap::default();
    map.add(&resident(3, 1, 32, 1), usize::MAX, 65536);
    assert_eq!(residency(&map), [(1, [512, 512, 512])]);
}

#[test]
fn bounds_of_an_adopted_process_narrow_with_each_block() {
    let mut map = map([resident(0, 1, 512, 5)]);
    map.adopted();
    assert_eq!(residency(&map)[0].1[..2], [512, 512]);
    mapped(&mut map, from_ref(&(0..8 * MIB)), 1);
    assert_eq!(residency(&map), [(1, [512, 512, 2048])]);
    map.add(&resident(1, 1, 0, 6), usize::MAX, PAGE);
    assert_eq!(residency(&map), [(1, [512, 512, 1536])]);
    map.add(&resident(2, 1, 8, 6), usize::MAX, PAGE);
    map.add(&resident(3, 1, 512, 6), usize::MAX, PAGE);
    assert_eq!(residency(&map), [(1, [1032, 1032, 1032])]);
}

#[test]
fn loss_turns_earlier_residency_into_an_estimate() {
    let mut map = map([resident(0, 1, 512, 5), resident(1, 1, 100, 6)]);
    mapped(&mut map, from_ref(&(0..4 * MIB)), 1);
    map.lost(7);
    // So may have been the records of memory mapped since the reading of /proc.
    assert_eq!(residency(&map), [(1, [612, 0, u64::MAX / PAGE])]);
    mapped(&mut map, from_ref(&(0..4 * MIB)), 7);
    assert_eq!(residency(&map), [(1, [612, 0, 1024])]);
    map.add(&resident(0, 1, 500, 7), usize::MAX, PAGE);
    assert_eq!(residency(&map), [(1, [600, 0, 1024])]);
    map.add(&resident(0, 1, 400, 8), usize::MAX, PAGE);
    assert_eq!(residency(&map), [(1, [500, 400, 912])]);
}

#[test]
fn unmapped_memory_does_not_narrow_the_bounds_of_the_rest() {
    let mut map = map((0..4).map(|block| resident(block, 1, 512, block + 5)));
    map.adopted();
    let others = 64 * MIB..72 * MIB;
    mapped(&mut map, &[0..8 * MIB, others.clone()], 1);
    assert_eq!(residency(&map), [(1, [2048, 2048, 4096])]);
    for block in 0..4 {
        let gone = BlockRecord { gpu: 0, boottime_ns: 10, ..record(RecordKind::Gone, block, 1, 0) };
        map.add(&gone, usize::MAX, PAGE);
    }
    assert_eq!(residency(&map), [(1, [0, 0, 2048])]);
    mapped(&mut map, from_ref(&others), 20);
    assert_eq!(residency(&map), [(1, [0, 0, 2048])]);
    map.add(&resident(32, 1, 512, 21), usize::MAX, PAGE);
    assert_eq!(residency(&map), [(1, [512, 512, 2048])]);
}

#[test]
fn migration_between_gpus_counts_once_in_either_order_of_records() {
    for order in [[(1, 0), (9, 512)], [(9, 512), (1, 0)]] {
        let mut map = map([resident(3, 1, 512, 1)]);
        for (gpu, pages) in order {
            map.add(&resident(3, gpu, pages, 2), usize::MAX, PAGE);
        }
        assert_eq!(residency(&map), [(1, [0; 3]), (9, [512; 3])]);
        assert!(map.pieces.of(3).is_empty());
        map.add(&resident(3, 1, 256, 3), usize::MAX, PAGE);
        assert_eq!(residency(&map), [(1, [256; 3]), (9, [512; 3])]);
        map.add(&resident(3, 9, 256, 3), usize::MAX, PAGE);
        assert_eq!(residency(&map), [(1, [256; 3]), (9, [256; 3])]);
    }
}

#[test]
fn parts_of_a_split_block_add_up() {
    let part = |first_page, pages, at| BlockRecord { first_page, ..resident(3, 1, pages, at) };
    let mut map = map([part(0, 100, 1), part(256, 50, 2), part(300, 7, 3), part(256, 60, 4)]);
    assert_eq!(residency(&map), [(1, [167; 3])]);
    let gone = |first_page| BlockRecord { gpu: 0, first_page, ..record(RecordKind::Gone, 3, 1, 0) };
    map.add(&gone(256), usize::MAX, PAGE);
    assert_eq!(residency(&map), [(1, [107; 3])]);
    map.add(&gone(0), usize::MAX, PAGE);
    assert_eq!(residency(&map), [(1, [7; 3])]);
}

#[test]
fn closed_va_space_has_no_resident_memory() {
    let mut map = map([resident(3, 1, 512, 1), resident(3, 9, 5, 1)]);
    map.lost(10);
    map.settle(7, true, GpuKey::Pending);
    map.ended();
    assert_eq!(residency(&map), [(1, [0; 3]), (9, [0; 3])]);
}

#[test]
fn residency_is_unknown_after_the_probes_detach() {
    let mut map = map([resident(3, 1, 512, 1)]);
    mapped(&mut map, from_ref(&(0..64 * MIB)), 1);
    map.settle(7, false, GpuKey::Pending);
    assert_eq!(residency(&map), [(1, [0, 0, 16384])]);
}

#[test]
fn forgotten_block_may_still_be_resident() {
    let mut map = map((0..8).map(|block| resident(block, 1, 512, block + 1)));
    mapped(&mut map, from_ref(&(0..16 * MIB)), 0);
    map.forget(2);
    assert_eq!(residency(&map), [(1, [3072, 3072, 4096])]);
    assert_eq!(published(&map).forgotten, 2);
}

fn fault(block: u64) -> BlockRecord {
    record(RecordKind::GpuFaults, block, 1, 0)
}

#[test]
fn sums_match_a_recount_after_random_records() {
    let mut map = BlockMap::default();
    let mut spans: Vec<Span> = (0..8).map(|at| at * 16 * MIB..(at * 16 + 1) * MIB).collect();
    let mut dice = 0x2545_f491_4f6c_dd1d_u64;
    for step in 1..20_000_u64 {
        dice ^= dice << 13;
        dice ^= dice >> 7;
        dice ^= dice << 17;
        let pick = |shift: u32, of: u64| (dice >> shift) % of;
        let block = pick(8, 64);
        let base = BlockRecord { boottime_ns: step, ..record(RecordKind::GpuFaults, block, 1, 4096) };
        let first_page = if pick(16, 8) == 0 { 256 } else { 0 };
        let record = match pick(20, 6) {
            0 => BlockRecord { kind: RecordKind::Gone as u16, first_page, ..base },
            1..4 => BlockRecord {
                first_page,
                boottime_ns: step,
                ..resident(block, [1, 9][usize::from(pick(24, 4) == 0)], u16::try_from(pick(28, 513)).unwrap(), step)
            },
            _ => BlockRecord { slots: 1 << pick(40, 32), ..base },
        };
        map.add(&record, 48, PAGE);
        if step % 997 == 0 {
            map.lost(step);
        }
        // One mapping changes, or all do.
        let changed =
            if step % 61 == 0 { pick(44, 8)..pick(44, 8) + 1 } else { 0..if step % 997 == 500 { 8 } else { 0 } };
        for at in changed.clone() {
            let begin = at * 16 + pick(36, 3);
            spans[usize::try_from(at).unwrap()] =
                begin * MIB..(begin + 1 + pick(48 - u32::try_from(at).unwrap(), 13)) * MIB;
        }
        if !changed.is_empty() {
            mapped(&mut map, &spans, step);
        }
        if step % 499 == 0 {
            map.bound_ranges(usize::try_from(1 + pick(32, 20)).unwrap());
        }
        if step % 101 == 0 {
            let (resident, ranges) = (residency(&map), map.ranges(PUBLISHED_MAX));
            map.recount();
            assert_eq!(resident, residency(&map), "step {step}");
            for (summed_up, anew) in ranges.busiest.iter().zip(map.ranges(PUBLISHED_MAX).busiest) {
                assert_eq!(*summed_up, anew, "step {step}");
            }
            assert_eq!(ranges.known, map.ranges(PUBLISHED_MAX).known);
        }
    }
}

fn heat(map: &BlockMap, begin: u64, end: u64, cells_max: usize) -> model::HeatMap {
    let process = model::ProcessId { pid: 1, start_ticks: 1 };
    map.heat(&model::HeatRequest { process, begin, end, cells_max }, 1000)
}

#[test]
fn heat_map_has_every_block_in_the_cell_of_its_address() {
    let mut map = map((0..10).flat_map(|block| vec![fault(block); usize::try_from(block).unwrap()]));
    mapped(&mut map, &[0..7 * MIB, 8 * MIB..20 * MIB, 40 * MIB..42 * MIB], 0);
    map.add(&resident(9, 1, 512, 300), usize::MAX, PAGE);
    let faults = |heat: &model::HeatMap| -> Vec<(u64, Vec<u64>)> {
        let cells = |range: &model::HeatRange| range.cells.iter().map(|cell| cell.fault_entries).collect();
        heat.ranges.iter().map(|range| (range.cell_bytes / MIB, cells(range))).collect()
    };
    let all = heat(&map, 0, u64::MAX, 3);
    assert_eq!(faults(&all), [(4, vec![1, 5]), (4, vec![9, 13, 17]), (2, vec![0])]);
    let last = all.ranges[1].cells[2];
    assert_eq!((last.resident, last.idle_ns), (Residency::exactly(2 << 20), Some(700)));
    assert_eq!((all.ranges[2].cells[0].idle_ns, all.ranges_omitted), (None, 0));
    assert_eq!(faults(&heat(&map, 12 * MIB, 18 * MIB, 100)), [(2, vec![6, 7, 8])]);
    assert_eq!(faults(&heat(&map, 12 * MIB, 12 * MIB, 100)), []);
    assert_eq!(faults(&heat(&map, 12 * MIB, 18 * MIB, 0)), [(6, vec![21])]);
}

#[test]
fn heat_map_size_is_bounded() {
    let mut map = map((0..300).flat_map(|range| vec![fault(range * 100); usize::try_from(range).unwrap() + 1]));
    let spans: Vec<_> = (0..300).map(|range| range * 200 * MIB..(range * 200 + 190) * MIB).collect();
    mapped(&mut map, &spans, 0);
    let heat = heat(&map, 0, u64::MAX, usize::MAX);
    let cells: usize = heat.ranges.iter().map(|range| range.cells.len()).sum();
    assert_eq!((heat.ranges.len(), heat.ranges_omitted, cells), (256, 44, 4096));
    // The busiest are included.
    assert_eq!(heat.ranges[0].begin, 44 * 200 * MIB);
}

mod listing;
mod peers;
mod ranges;
