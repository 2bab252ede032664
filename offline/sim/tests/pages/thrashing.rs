//! The driver's thrashing detection and response, with the constants and the order of
//! `uvm_perf_thrashing.c`.

use sim::{Decision, Event, Processor};

use super::*;

const PAGE: u64 = 7;
const LAPSE_NS: u64 = 500_000;

/// Machine with negligible service times, so that only a program's pauses count.
fn fast_machine() -> Machine {
    let mut machine = Machine::named("a100").unwrap();
    let faults = &mut machine.faults;
    (faults.batch_ns.value, faults.cpu_fault_ns.value) = (1_000.0, 1_000.0);
    (faults.cpu_mapped_ns_per_mib.value, faults.populate_ns_per_mib.value) = (0.0, 0.0);
    machine
}

/// Counts, and decisions about [`PAGE`].
fn observe(
    machine: &Machine,
    gpu_blocks: u64,
    program: impl FnOnce(&mut Pages<'_, &mut dyn FnMut(Event)>),
) -> (Counts, Vec<(u64, Decision)>) {
    let mut decisions = Vec::new();
    let mut watch = |event| {
        if let Event::Page { page: PAGE, decided, at_ns } = event {
            decisions.push((at_ns, decided));
        }
    };
    let mut pages = Pages::observed(machine, gpu_blocks * 2 * MIB, [], &mut watch as &mut dyn FnMut(Event));
    program(&mut pages);
    let counts = pages.counts();
    drop(pages);
    (counts, decisions)
}

/// Accesses of CPU and GPU in turn, `rounds` each, with a pause after each.
fn alternate<O: FnMut(Event)>(pages: &mut Pages<'_, O>, rounds: u64, pause_ns: u64) {
    for _ in 0..rounds {
        pages.by_cpu(PAGE);
        pages.pause(pause_ns);
        pages.by_gpu([PAGE], 256).unwrap();
        pages.pause(pause_ns);
    }
}

fn kinds(decisions: &[(u64, Decision)]) -> Vec<Decision> {
    decisions.iter().map(|(_, decided)| *decided).collect()
}

#[test]
fn three_moves_within_a_lapse_of_each_other_thrash_once_the_block_is_suspected() {
    // The CPU's first write is no move. The first move to the GPU is recorded for the block, and
    // the first to the CPU begins the count.
    let found = |rounds, by_cpu_too: bool| {
        let (counts, _) = observe(&fast_machine(), 4, |pages| {
            alternate(pages, rounds, 0);
            if by_cpu_too {
                pages.by_cpu(PAGE);
            }
        });
        counts.thrashing_pages
    };
    assert_eq!((found(2, false), found(2, true)), (0, 0));
    // All 16 pages that moved together thrash.
    assert_eq!(found(3, false), 16);
}

#[test]
fn moves_a_lapse_apart_do_not_thrash() {
    let thrashing = |pause_ns| observe(&fast_machine(), 4, |pages| alternate(pages, 50, pause_ns)).0.thrashing_pages;
    assert_eq!(thrashing(LAPSE_NS), 0);
    assert!(thrashing(LAPSE_NS - 50_000) > 0);
}

#[test]
fn slow_moves_between_fast_ones_neither_count_nor_reset() {
    // The GPU accesses soon after the CPU, and the CPU long after the GPU: every second move
    // counts.
    let (counts, decisions) = observe(&fast_machine(), 4, |pages| {
        alternate(pages, 2, 0);
        for _ in 0..2 {
            pages.pause(2 * LAPSE_NS);
            alternate(pages, 1, 0);
        }
    });
    assert_eq!((counts.thrashing_pages, kinds(&decisions)), (16, vec![Decision::Thrashes]));
}

#[test]
fn evictions_and_refetches_of_one_gpu_do_not_count() {
    let (counts, _) = observe(&fast_machine(), 1, |pages| {
        for _ in 0..50 {
            pages.by_gpu([PAGE], 256).unwrap();
            pages.by_gpu([PAGE + BLOCK_PAGES], 256).unwrap();
        }
    });
    assert!(counts.evictions == 99 && counts.bytes_htod > 0);
    assert_eq!((counts.thrashing_pages, counts.throttles, counts.pins), (0, 0, 0));
}

#[test]
fn thrashing_pages_move_alone_and_prefetch_nothing() {
    let (counts, _) = observe(&fast_machine(), 4, |pages| {
        alternate(pages, 3, 0);
        pages.by_cpu(PAGE);
    });
    // 64 KiB move three times to the GPU and twice back, then one page.
    assert_eq!((counts.bytes_htod, counts.bytes_dtoh), (3 << 16, (2 << 16) + 4096));
    let (both, _) = observe(&fast_machine(), 4, |pages| {
        alternate(pages, 3, 0);
        (0..16).for_each(|page| pages.by_cpu(page));
    });
    assert_eq!((both.bytes_dtoh, both.cpu_faults - counts.cpu_faults), (3 << 16, 15));
}

#[test]
fn the_first_processor_is_spared_and_the_other_is_throttled_for_a_lapse() {
    let machine = fast_machine();
    let (counts, decisions) = observe(&machine, 4, |pages| alternate(pages, 4, 0));
    let [(_, Decision::Thrashes), (at_ns, Decision::Throttled { processor, until_ns })] = decisions[..] else {
        panic!("{decisions:?}")
    };
    assert_eq!((processor, counts.throttles), (Processor::Gpu, 1));
    assert!(until_ns - at_ns <= LAPSE_NS && until_ns - at_ns > LAPSE_NS - 20_000, "since the CPU came");
    // The GPU faults in one batch after the other, and is serviced in the end.
    let batches = (until_ns - at_ns) / 1_000;
    assert!(counts.replays > batches && counts.replays < batches + 8, "{} in {batches}", counts.replays);
    assert_eq!(counts.bytes_htod, (3 << 16) + 4096);
}

#[test]
fn a_throttled_cpu_sleeps_and_faults_once_more_than_it_sleeps() {
    let machine = fast_machine();
    let mut before = Counts::default();
    let mut slept_ns = 0;
    let (counts, decisions) = observe(&machine, 4, |pages| {
        // The third fast move is the CPU's, so that the GPU faults first.
        pages.by_gpu([PAGE], 256).unwrap();
        for _ in 0..2 {
            pages.by_cpu(PAGE);
            pages.by_gpu([PAGE], 256).unwrap();
        }
        pages.by_cpu(PAGE);
        pages.by_gpu([PAGE], 256).unwrap();
        before = pages.counts();
        let began_ns = pages.now_ns();
        pages.by_cpu(PAGE);
        slept_ns = pages.now_ns() - began_ns;
    });
    assert!(matches!(decisions.last(), Some((_, Decision::Throttled { processor: Processor::Cpu, .. }))));
    assert_eq!((counts.cpu_faults - before.cpu_faults, counts.throttles - before.throttles), (2, 1));
    // The kernel may extend the sleep by half.
    assert!(slept_ns > LAPSE_NS && slept_ns < 2 * LAPSE_NS, "{slept_ns}");
}

#[test]
fn after_ten_throttles_a_page_is_pinned_in_the_end_on_the_host_where_the_gpu_maps_it() {
    let machine = fast_machine();
    let (counts, decisions) = observe(&machine, 4, |pages| alternate(pages, 200, 0));
    let kinds = kinds(&decisions);
    let pin = kinds.iter().position(|decided| matches!(decided, Decision::Pinned { .. })).unwrap();
    let throttles = kinds[..pin].iter().filter(|decided| matches!(decided, Decision::Throttled { .. })).count();
    assert_eq!((throttles, counts.pins), (10, 1));
    // From then on no page faults or moves, and each access of the GPU crosses the link.
    let (more, _) = observe(&machine, 4, |pages| alternate(pages, 300, 0));
    assert_eq!(more.remote_accesses - counts.remote_accesses, 100);
    assert_eq!(more, Counts { remote_accesses: more.remote_accesses, remote_bytes: more.remote_bytes, ..counts });
    assert_eq!(more.remote_bytes, more.remote_accesses * 32);
}

#[test]
fn a_gpu_whose_faults_are_serviced_one_by_one_accesses_pinned_pages_too() {
    let (by_gpu, _) = observe(&fast_machine(), 4, |pages| alternate(pages, 40, 0));
    let (served, _) = observe(&fast_machine(), 4, |pages| {
        for _ in 0..40 {
            pages.by_cpu(PAGE);
            while !pages.touches(PAGE) {
                pages.serve([PAGE]).unwrap();
            }
        }
    });
    assert!(served.pins > 0 && served.remote_accesses > 0, "{served:?}");
    assert_eq!(served, by_gpu);
}

#[test]
fn throttles_accumulate_over_quiet_times_until_the_page_is_pinned() {
    let mut machine = fast_machine();
    machine.thrashing.pin_threshold.value = 2;
    let (counts, decisions) = observe(&machine, 4, |pages| {
        for _ in 0..3 {
            alternate(pages, 4, 0);
            pages.pause(20 * MS);
        }
    });
    let throttles = kinds(&decisions).iter().filter(|decided| matches!(decided, Decision::Throttled { .. })).count();
    assert!(throttles >= 2 && counts.pins == 1, "{decisions:?}");
}

#[test]
fn after_300_lapses_a_page_is_unpinned_and_moves_again() {
    let mut machine = fast_machine();
    machine.thrashing.pin_threshold.value = 1;
    let mut moved = (0, 0);
    let (counts, decisions) = observe(&machine, 4, |pages| {
        alternate(pages, 50, 0);
        let before = pages.counts();
        assert!(before.remote_accesses > 0);
        pages.pause(300 * LAPSE_NS);
        pages.by_gpu([PAGE], 256).unwrap();
        let after = pages.counts();
        moved = (after.bytes_htod - before.bytes_htod, after.remote_accesses - before.remote_accesses);
    });
    // The page is reset, but not the 15 pages beside it, which have not moved since: it moves
    // alone.
    assert_eq!((moved, counts.pins), ((4096, 0), 1));
    let when = |wanted: fn(&Decision) -> bool| decisions.iter().find(|(_, decided)| wanted(decided)).unwrap().0;
    let pinned_ns = when(|decided| matches!(decided, Decision::Pinned { .. }));
    let unpinned_ns = when(|decided| matches!(decided, Decision::Unpinned));
    assert!(unpinned_ns - pinned_ns >= 300 * LAPSE_NS - 20_000);
}

#[test]
fn after_a_quiet_epoch_a_block_is_reset_four_times_at_most() {
    let machine = fast_machine();
    let mut whole_granules = Vec::new();
    observe(&machine, 4, |pages| {
        for _ in 0..6 {
            alternate(pages, 3, 0);
            pages.pause(2_001 * LAPSE_NS);
            let before = pages.counts();
            pages.by_cpu(PAGE);
            whole_granules.push(pages.counts().bytes_dtoh - before.bytes_dtoh == 1 << 16);
            pages.move_to_host(0..16);
            pages.pause(LAPSE_NS + 1);
        }
    });
    assert_eq!(whole_granules, [true, true, true, true, false, false]);
}

#[test]
fn a_move_by_request_resets_thrashing() {
    let moved_back = |by_request: bool| {
        let mut bytes = 0;
        observe(&fast_machine(), 4, |pages| {
            alternate(pages, 3, 0);
            if by_request {
                pages.move_to_host(0..16);
                pages.move_to_gpu(0..16).unwrap();
            }
            let before = pages.counts();
            pages.by_cpu(PAGE);
            bytes = pages.counts().bytes_dtoh - before.bytes_dtoh;
        });
        bytes
    };
    assert_eq!((moved_back(false), moved_back(true)), (4096, 1 << 16));
}

#[test]
fn the_longest_pause_leaves_time_for_what_follows() {
    let (counts, _) = observe(&fast_machine(), 4, |pages| {
        alternate(pages, 3, 0);
        pages.pause(u64::MAX);
        pages.pause(u64::MAX);
        alternate(pages, 10, 0);
    });
    assert!(counts.throttles > 0);
}

#[test]
fn without_detection_no_page_thrashes() {
    let mut machine = fast_machine();
    machine.thrashing.enabled.value = false;
    let (counts, decisions) = observe(&machine, 4, |pages| alternate(pages, 100, 0));
    assert_eq!((counts.bytes_htod, counts.bytes_dtoh, decisions.len()), (100 << 16, 99 << 16, 0));
}

#[test]
fn thrashing_exceeds_no_capacity_and_every_access_completes() {
    let mut machine = fast_machine();
    machine.memory.host_bytes.value = 3 * MIB;
    machine.thrashing.pin_threshold.value = 1;
    let mut dice = Dice(3);
    let (mut pins, mut throttles) = (0, 0);
    for _ in 0..30 {
        let (counts, _) = observe(&machine, 1, |pages| {
            for _ in 0..300 {
                let page = dice.below(2) * BLOCK_PAGES + dice.below(40);
                match dice.below(8) {
                    0 => pages.move_to_gpu(page..page + dice.below(20)).unwrap(),
                    1 => pages.move_to_host(page..page + dice.below(20)),
                    2 => pages.pause(dice.below(400_000)),
                    3..6 => pages.by_cpu(page),
                    _ => pages.by_gpu(page..page + 20, 16).unwrap(),
                }
                assert!(pages.host_bytes() <= 3 * MIB);
            }
        });
        pins += counts.pins;
        throttles += counts.throttles;
    }
    assert!(pins > 10 && throttles > 100, "{pins} pins and {throttles} throttles: too little for the test");
}
