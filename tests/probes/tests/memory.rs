//! Driver events beside faults and copies: evictions, first touches, thrashing, remote mappings.

use abi::{Kind, RecordKind};
use collector::Records;
use probes_test::{
    bench::{Bench, GpuFault, Migration},
    driver::{self, MakeResident},
    image,
};

const FAMILY: &str = "L2_550_555";
const SPACE: u64 = 0xffff_8881_2345_6780;
const START: u64 = 0x7f00_0020_0000;

#[test]
fn eviction_counts_for_the_victim_and_the_serviced_va_space() {
    for family in image::families() {
        let Some(mut bench) = Bench::new(&family) else { return };
        let (victim, victims) = bench.register(SPACE);
        let (aggressor, aggressors) = bench.register(SPACE + 4096);
        let (block, gpu) = (bench.block(&victim, START), bench.gpu(1));
        driver::service_faults(|| {
            bench.gpu_fault(&aggressor, &GpuFault::default(), |entry| entry);
            driver::evict_chunks(block.address(), gpu.address());
            let copy = Migration { from: 1, to: 0, bytes: 65536, cause: 4, ..Migration::default() };
            bench.migration(&victim, &copy);
        });
        let counts = bench.counts(victims.generation);
        assert_eq!(counts[&(1, Kind::Evicted, 0)], (1, 0), "{family}");
        assert_eq!(counts.get(&(1, Kind::InducedEviction, 0)), None, "{family}");
        assert_eq!(bench.counts(aggressors.generation)[&(1, Kind::InducedEviction, 0)], (1, 65536), "{family}");
        let kinds: Vec<_> = bench.blocks().iter().map(|record| (u32::from(record.kind), record.address)).collect();
        assert!(kinds.contains(&(RecordKind::Evicted as u32, START)), "{family} {kinds:?}");
        assert_eq!(bench.lost(), [], "{family}");
    }
}

#[test]
fn eviction_outside_the_handler_counts_for_the_current_process() {
    let Some(mut bench) = Bench::new(FAMILY) else { return };
    let (_, earlier) = bench.register(SPACE + 4096);
    let (victim, record) = bench.register(SPACE);
    let (block, gpu) = (bench.block(&victim, START), bench.gpu(9));
    driver::evict_chunks(block.address(), gpu.address());
    // Its latest VA space represents it.
    assert_eq!(bench.counts(record.generation)[&(9, Kind::InducedEviction, 0)], (1, 0));
    assert_eq!(bench.counts(earlier.generation), [].into());
}

#[test]
fn ordinary_memory_and_dead_blocks_are_not_counted() {
    let Some(bench) = Bench::new(FAMILY) else { return };
    let block = bench.block(&bench.space(SPACE), START);
    let dead = [0_u64; 16];
    driver::evict_chunks(dead.as_ptr() as u64, bench.gpu(1).address());
    assert_eq!(bench.lost(), []);
    driver::evict_chunks(block.address(), bench.gpu(1).address());
    assert_eq!(bench.lost(), [(abi::DropReason::UnknownVaSpace, 1)]);
}

const ALL_PAGES: MakeResident =
    MakeResident { block: 0, destination: 1, first: 0, outer: 512, mask: 0, cause: 0, is_duplicate: false, status: 0 };

#[test]
fn pages_made_resident_without_a_copy_are_populated() {
    for family in image::families() {
        let Some(mut bench) = Bench::new(&family) else { return };
        let (space, record) = bench.register(SPACE);
        // The lower half of the second word's pages are resident already.
        let block = bench.block_with(&space, START, &[(1, [0, 0xffff_ffff, 0, 0, 0, 0, 0, 0])]);
        let mask = [0xff_u64, u64::MAX, 0, 0, 0, 0, 0, 1 << 63];
        for is_duplicate in [false, true] {
            let request = MakeResident {
                block: block.address(),
                first: 4,
                mask: mask.as_ptr() as u64,
                is_duplicate,
                ..ALL_PAGES
            };
            // 4 of the first word's pages, 32 of the second's, and the last one: 37.
            driver::make_resident(&request, || {
                bench.migration(&space, &Migration { bytes: 9 * 4096, ..Migration::default() });
            });
        }
        assert_eq!(bench.counts(record.generation)[&(1, Kind::Populated, 0)], (2, 2 * 28 * 4096), "{family}");
        let populated: Vec<_> =
            bench.blocks().into_iter().filter(|record| record.kind == RecordKind::Populated as u16).collect();
        assert_eq!(
            populated.iter().map(|record| (record.address, record.bytes)).collect::<Vec<_>>(),
            [(START, 28 * 4096); 2]
        );
    }
}

#[test]
fn nested_evictions_are_separate() {
    let Some(mut bench) = Bench::new(FAMILY) else { return };
    let (space, record) = bench.register(SPACE);
    let (block, other) = (bench.block(&space, START), bench.block(&space, START + (2 << 20)));
    driver::make_resident(&MakeResident { block: block.address(), ..ALL_PAGES }, || {
        let out = MakeResident { block: other.address(), destination: 0, cause: 4, ..ALL_PAGES };
        driver::make_resident(&out, || {
            bench.migration(&space, &Migration { from: 1, to: 0, bytes: 2 << 20, cause: 4, ..Migration::default() });
        });
    });
    assert_eq!(bench.counts(record.generation)[&(1, Kind::Populated, 0)], (1, 2 << 20));
}

#[test]
fn copied_and_failed_and_host_pages_are_not_populated() {
    let Some(mut bench) = Bench::new(FAMILY) else { return };
    let (space, record) = bench.register(SPACE);
    let at = bench.block(&space, START);
    let block = MakeResident { block: at.address(), ..ALL_PAGES };
    driver::make_resident(&block, || {
        bench.migration(&space, &Migration { bytes: 2 << 20, ..Migration::default() });
    });
    driver::make_resident(&MakeResident { status: 0x66, ..block }, || {});
    driver::make_resident(&MakeResident { destination: 0, ..block }, || {});
    let there = bench.block_with(&space, START, &[(1, [u64::MAX; 8])]);
    driver::make_resident(&MakeResident { block: there.address(), cause: 6, ..block }, || {});
    assert_eq!(bench.counts(record.generation).get(&(1, Kind::Populated, 0)), None);
}

#[test]
fn thrashing_is_counted_at_the_first_gpu_involved() {
    let Some(mut bench) = Bench::new(FAMILY) else { return };
    let (_, record) = bench.register(SPACE);
    let near = [0b11_u64, 0, 0, 0, 0];
    let far = [1_u64, 0, 1 << 1, 0, 0];
    driver::record_thrashing(SPACE, START, 4096, near.as_ptr() as u64);
    driver::record_thrashing(SPACE, START, 4096, near.as_ptr() as u64);
    driver::record_thrashing(SPACE, START, 4096, far.as_ptr() as u64);
    let counts = bench.counts(record.generation);
    assert_eq!(counts, [((1, Kind::Thrashing, 0), (2, 0)), ((129, Kind::Thrashing, 0), (1, 0))].into());
}

#[test]
fn throttle_lasts_until_its_end_event() {
    let Some(mut bench) = Bench::new(FAMILY) else { return };
    let (_, record) = bench.register(SPACE);
    driver::record_throttling_start(SPACE, START, 1);
    driver::record_throttling_start(SPACE, START, 0);
    std::thread::sleep(std::time::Duration::from_millis(20));
    driver::record_throttling_end(SPACE, START, 1);
    // A throttle whose start was missed.
    driver::record_throttling_end(SPACE, START + 4096, 1);
    let counts = bench.counts(record.generation);
    let (throttles, ns) = counts[&(1, Kind::Throttle, 0)];
    assert!(throttles == 1 && (20_000_000..60_000_000_000).contains(&ns), "{throttles} {ns}");
    assert_eq!(counts[&(0, Kind::Throttle, 0)], (1, 0));
}

#[test]
fn simultaneously_throttled_threads_each_add_their_time() {
    let Some(mut bench) = Bench::new(FAMILY) else { return };
    let (_, record) = bench.register(SPACE);
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                driver::record_throttling_start(SPACE, START, 0);
                std::thread::sleep(std::time::Duration::from_millis(200));
                driver::record_throttling_end(SPACE, START, 0);
            });
        }
    });
    let (throttles, ns) = bench.counts(record.generation)[&(0, Kind::Throttle, 0)];
    assert!(throttles == 2 && (400_000_000..60_000_000_000).contains(&ns), "{throttles} {ns}");
}

#[test]
fn moves_of_ordinary_memory_are_counted_apart() {
    for family in image::families() {
        let Some(mut bench) = Bench::new(&family) else { return };
        let (_, record) = bench.register(SPACE);
        // Its range is 0, as its VA space is stored elsewhere.
        let ordinary = bench.block(&bench.space(0), START).without_range();
        for destination in [1, 1, 0] {
            driver::make_resident(&MakeResident { block: ordinary.address(), destination, ..ALL_PAGES }, || {});
        }
        let expected = [((1, Kind::HmmMove, 0), (2, 0)), ((0, Kind::HmmMove, 0), (1, 0))];
        assert_eq!(bench.counts(0), expected.into(), "{family}");
        assert_eq!(bench.counts(record.generation), [].into(), "{family}");
        assert_eq!(bench.lost(), [], "{family}");
    }
}

#[test]
fn freed_blocks_are_counted_with_and_without_block_records() {
    for family in image::families() {
        for enabled in [true, false] {
            let records = Records { enabled, ..Records::default() };
            let Some(mut bench) = Bench::with(&family, 1024, records) else { return };
            let (space, record) = bench.register(SPACE);
            for _ in 0..3 {
                bench.destroy_block(&space, &bench.block(&space, START));
            }
            assert_eq!(bench.counts(record.generation), [((0, Kind::FreedBlock, 0), (3, 0))].into(), "{family}");
            // One of a VA space that nobody knows is no event that was missed.
            let unknown = bench.space(SPACE + 4096);
            bench.destroy_block(&unknown, &bench.block(&unknown, START));
            assert_eq!(bench.lost(), [], "{family}");
        }
    }
}

#[test]
fn remote_mappings_are_counted_by_the_cause_on_the_stack() {
    let Some(mut bench) = Bench::new(FAMILY) else { return };
    let (space, record) = bench.register(SPACE);
    let block = bench.block(&space, START);
    driver::record_map_remote(block.address(), 1, 65536, 2);
    driver::record_map_remote(block.address(), 0, 4096, 5);
    driver::record_map_remote(block.address(), 1, 4096, 0xffff_ffff);
    let expected = [
        ((1, Kind::MapRemote, 2), (1, 65536)),
        ((0, Kind::MapRemote, 5), (1, 4096)),
        ((1, Kind::MapRemote, 6), (1, 4096)),
    ];
    assert_eq!(bench.counts(record.generation), expected.into());
}
