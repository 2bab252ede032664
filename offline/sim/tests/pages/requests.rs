//! Moves by request.

use super::*;

const BLOCK: u64 = BLOCK_PAGES;

#[test]
fn a_move_to_the_gpu_migrates_whole_blocks_without_a_fault() {
    let counts = run(4, |pages| {
        (0..2 * BLOCK).for_each(|page| pages.by_cpu(page));
        pages.move_to_gpu(0..2 * BLOCK).unwrap();
        pages.by_gpu(0..2 * BLOCK, 256).unwrap();
    });
    assert_eq!((counts.fault_entries, counts.replays, counts.bytes_htod), (0, 0, 4 * MIB));
}

#[test]
fn unpopulated_memory_is_populated_at_the_destination() {
    let counts = run(4, |pages| {
        pages.move_to_gpu(0..BLOCK).unwrap();
        pages.move_to_host(BLOCK..2 * BLOCK);
        pages.by_gpu(0..BLOCK, 256).unwrap();
        (BLOCK..2 * BLOCK).for_each(|page| pages.by_cpu(page));
    });
    assert_eq!(counts, Counts::default());
}

#[test]
fn a_move_to_the_host_copies_absent_pages_and_the_cpu_maps_all() {
    let counts = run(1, |pages| {
        pages.by_gpu(0..2 * BLOCK, 256).unwrap();
        // The first block was evicted: the CPU does not map it, and it needs no copy.
        pages.move_to_host(0..2 * BLOCK);
        (0..2 * BLOCK).for_each(|page| pages.by_cpu(page));
    });
    assert_eq!((counts.evicted_bytes, counts.bytes_dtoh, counts.cpu_faults), (2 * MIB, 4 * MIB, 0));
}

#[test]
fn resident_blocks_of_a_move_go_to_the_end_of_the_eviction_order() {
    let evicted_again = |by_request: bool| {
        let counts = run(2, |pages| {
            pages.by_gpu(0..2 * BLOCK, 256).unwrap();
            if by_request {
                pages.move_to_gpu(0..BLOCK).unwrap();
            }
            // One of the two blocks is evicted, and the first is accessed again.
            pages.by_gpu(2 * BLOCK..3 * BLOCK, 256).unwrap();
            pages.by_gpu(0..BLOCK, 256).unwrap();
        });
        (counts.evictions, counts.bytes_htod)
    };
    assert_eq!(evicted_again(false), (2, 2 * MIB));
    assert_eq!(evicted_again(true), (1, 0));
}

#[test]
fn a_move_of_more_than_fits_goes_through_all_of_it_twice() {
    let counts = run(2, |pages| {
        (0..3 * BLOCK).for_each(|page| pages.by_cpu(page));
        pages.move_to_gpu(0..3 * BLOCK).unwrap();
    });
    assert_eq!((counts.bytes_htod, counts.evictions), (6 * 2 * MIB, 4));
}

#[test]
fn a_part_of_64_kib_moves_by_itself() {
    let counts = run(2, |pages| {
        (0..BLOCK).for_each(|page| pages.by_cpu(page));
        pages.move_to_gpu(3..5).unwrap();
        // Pages that the CPU still maps do not fault.
        pages.by_cpu(2);
        pages.by_gpu([3, 4], 256).unwrap();
    });
    assert_eq!((counts.bytes_htod, counts.fault_entries, counts.cpu_faults), (2 * 4096, 0, 6));
}

#[test]
fn a_move_takes_the_time_of_its_call_and_of_the_link() {
    let machine = Machine::named("a100").unwrap();
    let mut pages = Pages::new(&machine, 8 * MIB, []);
    pages.move_to_host(0..BLOCK);
    let before_ns = pages.now_ns();
    pages.move_to_gpu(0..BLOCK).unwrap();
    let call_ns = machine.requests.call_ns.value.round();
    let expected_ns = machine.link_to_gpu.transfer_ns(2 * MIB) as f64 + call_ns;
    assert!(((pages.now_ns() - before_ns) as f64 - expected_ns).abs() < 2.0);
}
