//! Tests of ranges.

use crate::spans::RANGES_MAX;

use super::*;

fn spans(map: &BlockMap) -> Vec<(u64, u64, bool, u64)> {
    let mut spans: Vec<_> = map
        .ranges(PUBLISHED_MAX)
        .busiest
        .iter()
        .map(|range| (range.begin / MIB, range.end / MIB, range.mapped, range.counts.fault_entries))
        .collect();
    spans.sort_unstable();
    spans
}

#[test]
fn adjacent_blocks_form_ranges_before_proc_is_read() {
    let map = map([5, 1, 2, 9, 4, 3, 10].map(fault));
    assert_eq!(spans(&map), [(2, 12, true, 5), (18, 22, true, 2)]);
}

#[test]
fn ranges_match_proc_and_include_earlier_counts_of_their_blocks() {
    let mut map = map([0, 1, 2, 3, 3].map(fault));
    mapped(&mut map, &[0..2 * MIB, 2 * MIB..6 * MIB, 6 * MIB..9 * MIB], 100);
    assert_eq!(spans(&map), [(0, 2, true, 1), (2, 6, true, 2), (6, 9, true, 2)]);
    map.add(&fault(4), usize::MAX, PAGE);
    assert_eq!(spans(&map)[2], (6, 9, true, 3));
}

#[test]
fn unmapped_range_remains_and_is_marked_until_its_blocks_are_forgotten() {
    let mut map = map([0, 1, 6].map(fault));
    mapped(&mut map, &[0..4 * MIB, 12 * MIB..14 * MIB], 100);
    mapped(&mut map, from_ref(&(12 * MIB..14 * MIB)), 200);
    assert_eq!(spans(&map), [(0, 4, false, 2), (12, 14, true, 1)]);
    map.forget(2);
    assert_eq!(spans(&map), [(12, 14, true, 1)]);
}

#[test]
fn block_outside_proc_is_mapped_only_if_seen_after_the_read() {
    let mut map = map([fault(3), fault(50)]);
    // Records have their block's number as their time.
    mapped(&mut map, &[], 20);
    assert_eq!(spans(&map), [(6, 8, false, 1), (100, 102, true, 1)]);
    mapped(&mut map, &[], 60);
    assert_eq!(spans(&map), [(6, 8, false, 1), (100, 102, false, 1)]);
}

#[test]
fn allocations_that_share_a_block_are_distinguished_by_slots() {
    let mut map = BlockMap::default();
    let slots = |from, to| from * SLOT_BYTES..to * SLOT_BYTES;
    mapped(&mut map, &[slots(0, 2), slots(2, 3), slots(8, 40)], 1);
    for slot in [0, 1, 2, 8, 9, 31, 5] {
        map.add(&BlockRecord { slots: 1 << slot, ..fault(0) }, usize::MAX, PAGE);
    }
    map.add(&fault(0), usize::MAX, PAGE);
    let ranges = map.ranges(PUBLISHED_MAX);
    let mut counts: Vec<_> =
        ranges.busiest.iter().map(|range| (range.begin / SLOT_BYTES, range.counts.fault_entries)).collect();
    counts.sort_unstable();
    // The last has no place, and the one before is at an unmapped one: both count in the first.
    assert_eq!(counts, [(0, 4), (2, 1), (8, 3)]);
}

#[test]
fn ranges_are_bounded_without_losing_counts() {
    let far_apart = (0..2 * RANGES_MAX as u64).map(|at| fault(at * 3));
    let map = map(far_apart);
    assert_eq!(map.ranges(PUBLISHED_MAX).known, RANGES_MAX as u64);
    let counted: u64 = map.ranges.iter().map(|(_, known)| known.counts.fault_entries).sum();
    assert_eq!(counted, 2 * RANGES_MAX as u64);
}

#[test]
fn range_reports_the_pattern_of_its_faults() {
    let map = map((0..400).map(|block| BlockRecord { slots: 1, cause: u16::try_from(block).unwrap(), ..fault(block) }));
    let [range] = &map.ranges(PUBLISHED_MAX).busiest[..] else { panic!() };
    assert_eq!(range.pattern.kind, model::PatternKind::Strided { stride_bytes: 2 << 20 });
}

#[test]
fn patterns_are_followed_for_the_most_recently_faulted_ranges() {
    let mut map = BlockMap::default();
    let fault = |range: u64, at: u64| BlockRecord { boottime_ns: at, ..fault(range * 2) };
    for range in 0..100 {
        map.add(&fault(range, 1), usize::MAX, PAGE);
    }
    let followed = |map: &BlockMap| {
        let followed = map.ranges.iter().filter(|(_, known)| known.order.is_some());
        followed.map(|(span, _)| span.start / (4 * MIB)).collect::<Vec<_>>()
    };
    assert_eq!(followed(&map), (0..64).collect::<Vec<_>>());
    for _ in 0..2000 {
        map.add(&fault(99, 11_000_000_000), usize::MAX, PAGE);
    }
    assert_eq!(followed(&map), [&(1..64).collect::<Vec<_>>()[..], &[99]].concat());
}

#[test]
fn mapped_ranges_come_before_busier_unmapped_ones() {
    let mut map = map((0..100).flat_map(|block| [fault(block), fault(block)]));
    let gone: Vec<_> = (0..100).map(|at| at * 2 * MIB..(at + 1) * 2 * MIB).collect();
    mapped(&mut map, &gone, 200);
    let there = 400 * MIB..404 * MIB;
    mapped(&mut map, from_ref(&there), 300);
    map.add(&fault(200), usize::MAX, PAGE);
    let shown = map.ranges(PUBLISHED_MAX).busiest;
    assert_eq!((shown.len(), shown[0].begin, shown[0].mapped), (PUBLISHED_MAX, there.start, true));
    assert!(shown[1].counts.fault_entries > shown[0].counts.fault_entries && !shown[1].mapped);
    let all: Vec<_> = map.all_ranges().into_iter().map(|range| (range.begin, range.mapped)).collect();
    assert_eq!(all.len(), 101, "whoever asks for all gets those that are not shown as well");
    assert!(all.is_sorted() && all.last() == Some(&(there.start, true)));
}

#[test]
fn mapping_changes_keep_the_sums_of_other_ranges() {
    let many = |mappings: std::ops::Range<u64>| mappings.map(|at| at * 4 * MIB..(at * 4 + 4) * MIB).collect::<Vec<_>>();
    let mut map = map((0..200).map(|block| resident(block, 1, 512, block + 1)));
    mapped(&mut map, &many(0..99), 500);
    let sums = |map: &BlockMap| map.ranges.iter().map(|(_, known)| known.resident.bytes / MIB).collect::<Vec<_>>();
    // The blocks of the last were seen before, and are in no range.
    assert_eq!(sums(&map), [4; 99]);
    mapped(&mut map, &many(3..100), 501);
    assert_eq!(sums(&map), [4; 100]);
    assert_eq!(residency(&map), [(1, [200 * 512; 3])]);
}

#[test]
fn lower_range_limit_merges_neighbours_and_forgets_the_oldest_unmapped_ranges() {
    let mut map = map([0, 1, 2, 3, 20, 30].map(fault));
    let mappings: Vec<_> = (0..8).map(|at| at * MIB..(at + 1) * MIB).collect();
    mapped(&mut map, &mappings, 100);
    let numbers = |map: &BlockMap| {
        let Ranges { known, mappings, forgotten, .. } = map.ranges(PUBLISHED_MAX);
        (known, mappings, forgotten)
    };
    map.add(&BlockRecord { boottime_ns: 200, ..fault(20) }, usize::MAX, PAGE);
    assert_eq!(numbers(&map), (10, 8, 0));
    map.bound_ranges(5);
    assert_eq!(numbers(&map), (5, 8, 1));
    assert_eq!(spans(&map), [(0, 2, true, 1), (2, 4, true, 1), (4, 6, true, 1), (6, 8, true, 1), (40, 42, false, 2)]);
    // Another reading without a change.
    assert!(!map.mapped(&mappings, 8, 300));
    map.bound_ranges(RANGES_MAX);
    assert!(map.mapped(&mappings, 8, 300));
    assert_eq!(numbers(&map), (9, 8, 1));
}

#[test]
fn unmapped_ranges_are_bounded_while_their_blocks_remain() {
    let mut map = map((0..2000).map(fault));
    let mappings: Vec<_> = (0..2000).map(|at| at * 2 * MIB..(at + 1) * 2 * MIB).collect();
    mapped(&mut map, &mappings, 3000);
    mapped(&mut map, &[], 3001);
    let ranges = map.ranges(PUBLISHED_MAX);
    assert_eq!((ranges.known, ranges.forgotten, map.len()), (1024, 976, 2000));
    map.recount();
    assert_eq!(map.ranges(PUBLISHED_MAX).known, 1024);
}
