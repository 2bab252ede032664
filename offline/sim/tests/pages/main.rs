//! Programs that access memory page by page: results of the driver's rules, and agreement with a
//! slow model of single pages.
#![expect(clippy::indexing_slicing, clippy::unwrap_used, reason = "a test panics on unexpected values")]

mod capacity;
mod requests;
mod single;
mod thrashing;

use sim::{Machine, Pages, pages::Counts, units::Granules};
use single::Single;

const BLOCK_PAGES: u64 = 512;
const MIB: u64 = 1 << 20;
const MS: u64 = 1_000_000;

/// Counts of a program of CPU and GPU accesses, with `gpu_blocks` blocks of GPU memory.
fn run(gpu_blocks: u64, program: impl FnOnce(&mut Pages<'_>)) -> Counts {
    let machine = Machine::named("a100").unwrap();
    let mut pages = Pages::new(&machine, gpu_blocks * 2 * MIB, []);
    program(&mut pages);
    pages.counts()
}

#[test]
fn a_page_used_in_turn_costs_a_fault_and_64_kib_each_way_after_the_first() {
    let counts = run(4, |pages| {
        for _ in 0..20 {
            // The accesses are too slow to thrash.
            pages.by_cpu(7);
            pages.pause(MS);
            pages.by_gpu([7], 256).unwrap();
            pages.pause(MS);
        }
    });
    assert_eq!((counts.fault_entries, counts.replays, counts.cpu_faults), (20, 20, 20));
    assert_eq!((counts.bytes_htod, counts.bytes_dtoh), (20 << 16, 19 << 16));
}

#[test]
fn faulted_and_prefetched_pages_are_copied_separately() {
    let counts = run(4, |pages| {
        pages.by_cpu(5);
        pages.by_gpu([5, 6], 256).unwrap();
    });
    assert_eq!((counts.bytes_htod, counts.transfers_htod), (1 << 16, 3), "5 pages before the two, and 9 behind");
}

#[test]
fn fault_time_is_that_of_batches_and_copies() {
    let machine = Machine::named("gtx1080ti").unwrap();
    let mut pages = Pages::new(&machine, 4 * 2 * MIB, []);
    pages.by_cpu(5);
    let before_ns = pages.now_ns();
    pages.serve([0]).unwrap();
    let (faults, link) = (&machine.faults, &machine.link_to_gpu);
    let copies = [4096, 15 * 4096].map(|bytes| link.transfer_ns(bytes)).iter().sum::<u64>();
    let expected = faults.batch_ns.value + 2.0 * faults.transfer_ns.value + copies as f64;
    let duration_ns = pages.now_ns() - before_ns;
    assert!((duration_ns as f64 - expected).abs() < 2.0, "{duration_ns} {expected}");
}

#[test]
fn the_cpu_maps_a_block_in_six_faults_each_of_which_doubles_the_mapping() {
    let counts = run(4, |pages| (0..BLOCK_PAGES).for_each(|page| pages.by_cpu(page)));
    assert_eq!(counts, Counts { cpu_faults: 6, ..Counts::default() });
}

#[test]
fn one_thread_goes_through_a_block_in_six_faults_too() {
    let counts = run(4, |pages| pages.by_gpu(0..BLOCK_PAGES, 1).unwrap());
    assert_eq!((counts.fault_entries, counts.replays, counts.bytes_htod), (6, 6, 0));
}

#[test]
fn four_touches_of_each_page_by_256_threads_fault_on_half_of_a_block_in_four_batches() {
    // Batches have 64 pages. After three of them, 12 of 16 granules add the first half; the next 4
    // add the rest.
    let counts = run(4, |pages| pages.by_gpu((0..4 * BLOCK_PAGES).map(|touch| touch / 4), 256).unwrap());
    assert_eq!((counts.fault_entries, counts.fault_instances, counts.replays), (256, 1024, 4));
}

#[test]
fn faults_beyond_a_batch_are_dropped_and_absent_pages_fault_again() {
    let counts = run(8, |pages| pages.by_gpu((0..2048).map(|touch| touch * 16), 2048).unwrap());
    // One page of each granule of 64 blocks needs 8 batches of 256, and 64 blocks share 8 frames.
    assert_eq!((counts.replays, counts.fault_entries), (8, 2048));
}

#[test]
fn evicted_memory_is_mapped_by_the_cpu_in_one_fault_without_a_copy() {
    let counts = run(2, |pages| {
        pages.by_gpu(0..3 * BLOCK_PAGES, 256).unwrap();
        pages.by_cpu(5);
        pages.by_cpu(400);
    });
    assert_eq!((counts.cpu_faults, counts.evictions), (1, 1));
    assert_eq!((counts.bytes_dtoh, counts.evicted_bytes), (2 * MIB, 2 * MIB));
}

#[test]
fn a_batch_may_evict_blocks_of_its_own_faults() {
    // One page of each of 5 blocks at once, with 2 frames: each batch leaves its last two blocks
    // resident.
    let counts = run(2, |pages| pages.by_gpu((0..5).map(|block| block * BLOCK_PAGES), 256).unwrap());
    assert_eq!((counts.replays, counts.fault_instances, counts.evictions), (3, 9, 7));
}

#[test]
fn any_program_has_the_counts_of_the_reference_model() {
    let detecting = Machine::named("a100").unwrap();
    let mut not_detecting = detecting.clone();
    not_detecting.thrashing.enabled.value = false;
    let mut dice = Dice(1);
    for round in 0..100 {
        // Without thrashing detection there is no pause. With it, accesses of CPU and GPU are too
        // far apart to thrash.
        let (machine, pause_ns) = if round % 2 == 0 { (&not_detecting, 0) } else { (&detecting, 2 * MS) };
        let gpu_blocks = dice.below(6) + 1;
        // Three allocations with separate blocks; the last may end within a block.
        let lengths = [dice.below(4) + 1, dice.below(3) + 1].map(|blocks| blocks * 32);
        let last_length = dice.below(70) + 1;
        let mut allocations = Vec::new();
        let mut first = 0;
        for length in [lengths[0], lengths[1], last_length] {
            allocations.push(Granules { first, end: first + length });
            first = (first + length).next_multiple_of(32);
        }
        let mut pages = Pages::new(machine, gpu_blocks * 2 * MIB, allocations.iter().copied());
        let mut single = Single::new(gpu_blocks, &allocations);
        for step in 0..12 {
            let allocation = allocations[usize::try_from(dice.below(3)).unwrap()];
            let (base, count) = (allocation.first * 16, allocation.count() * 16);
            let (from, stride) = (dice.below(count), [1, 1, 3, 16, 61][usize::try_from(dice.below(5)).unwrap()]);
            let repeats = dice.below(3) + 1;
            let mut touched: Vec<u64> = (from..count).step_by(usize::try_from(stride).unwrap()).collect();
            touched.truncate(1500);
            if dice.below(2) == 0 {
                dice.shuffle(&mut touched);
            }
            let touched = touched.into_iter().flat_map(|page| (0..repeats).map(move |_| base + page));
            // Some moves begin and end within 64 KiB.
            let end = if dice.below(2) == 0 { count } else { from + 1 + dice.below(count - from) };
            let moved = base + from..base + end;
            let operation = dice.below(6);
            if operation == 0 {
                pages.move_to_gpu(moved.clone()).unwrap();
                single.move_to_gpu(moved);
            } else if operation == 1 {
                pages.move_to_host(moved.clone());
                single.move_to_host(moved);
            } else if operation < 4 {
                for page in touched {
                    pages.by_cpu(page);
                    single.by_cpu(page);
                }
            } else {
                let window = [1, 64, 256, 700][usize::try_from(dice.below(4)).unwrap()];
                let touched: Vec<u64> = touched.collect();
                pages.by_gpu(touched.iter().copied(), window).unwrap();
                single.by_gpu(&touched, window);
            }
            pages.pause(pause_ns);
            assert_eq!(pages.counts(), single.counts, "round {round}, step {step}");
        }
        assert!(single.max_frames <= usize::try_from(gpu_blocks).unwrap());
    }
}

struct Dice(u64);

impl Dice {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % limit
    }

    fn shuffle(&mut self, items: &mut [u64]) {
        for at in (1..items.len()).rev() {
            items.swap(at, usize::try_from(self.below(at as u64 + 1)).unwrap());
        }
    }
}
