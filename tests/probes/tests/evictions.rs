//! Evictions by victim, evictor and cause.

use std::collections::HashMap;

use abi::{DropReason, Kind, count::EvictionCause};
use probes_test::{
    bench::{Bench, GpuFault, Migration, Space},
    driver::{self, MakeResident},
    image,
    uprobe::in_another_process,
};

const FAMILY: &str = "L2_550_555";
const SPACE: u64 = 0xffff_8881_2345_6780;
const START: u64 = 0x7f00_0020_0000;
const GPU: u32 = 9;
const PARAMETERS: [u64; 4] = [0x7f00_0020_0000, 3 << 20, 0, 0];

const ALL_PAGES: MakeResident = MakeResident {
    block: 0,
    destination: GPU,
    first: 0,
    outer: 512,
    mask: 0,
    cause: 0,
    is_duplicate: false,
    status: 0,
};

/// Evicts a block of the victim, with 64 KiB to copy.
fn evict(bench: &Bench, victim: &Space) {
    let (block, gpu) = (bench.block(victim, START + (64 << 20)), bench.gpu(GPU));
    driver::evict_chunks(block.address(), gpu.address());
    let out = MakeResident { block: block.address(), destination: 0, cause: 4, ..ALL_PAGES };
    driver::make_resident(&out, || {
        bench.migration(victim, &Migration { from: GPU, to: 0, bytes: 65536, cause: 4, ..Migration::default() });
    });
}

/// Checks that the sums over pairs equal the counts of each VA space.
fn assert_sums(bench: &Bench, generations: &[u64]) {
    let sum = |of: &dyn Fn(u64, u64) -> bool| {
        let pairs = bench.evictions().into_iter().filter(|((victim, evictor, ..), _)| of(*victim, *evictor));
        pairs.fold((0, 0), |sum, (_, tally)| (sum.0 + tally.0, sum.1 + tally.1))
    };
    for generation in generations {
        let counts = bench.counts(*generation);
        let count = |kind, detail| counts.get(&(GPU, kind, detail)).copied().unwrap_or_default();
        assert_eq!(sum(&|victim, _| victim == *generation), (count(Kind::Evicted, 0).0, count(Kind::CopyDtoh, 4).1));
        assert_eq!(sum(&|_, evictor| evictor == *generation), count(Kind::InducedEviction, 0));
    }
}

#[test]
fn evictor_is_the_serviced_va_space_in_each_family() {
    for family in image::families() {
        let Some(mut bench) = Bench::new(&family) else { return };
        let (victim, victims) = bench.register(SPACE);
        let (evictor, evictors) = bench.register(SPACE + 4096);
        driver::service_faults(|| {
            for space in [&evictor, &victim] {
                bench.gpu_fault(space, &GpuFault { gpu: GPU, ..GpuFault::default() }, |entry| entry);
                // As while a block of another process is made resident.
                evict(&bench, &victim);
            }
        });
        let (v, e) = (victims.generation, evictors.generation);
        let expected =
            [((v, e, GPU, EvictionCause::Fault), (1, 65536)), ((v, v, GPU, EvictionCause::Fault), (1, 65536))];
        assert_eq!(bench.evictions(), expected.into(), "{family}");
        assert_sums(&bench, &[v, e]);
        assert_eq!(bench.lost(), [], "{family}");
    }
}

#[test]
fn evictor_in_a_call_is_the_migrated_va_space() {
    let Some(mut bench) = Bench::new(FAMILY) else { return };
    let (victim, victims) = bench.register(SPACE);
    let (target, targets) = bench.register(SPACE + 4096);
    // The latest VA space of a process need not be the evictor.
    bench.register(SPACE + 8192);
    let (file, block) = (bench.file(&target), bench.block(&target, START));
    // On the stack, which the other process has from the start.
    let parameters = std::hint::black_box(PARAMETERS);
    let migrate = || {
        driver::migrate(parameters.as_ptr() as u64, file.as_ptr() as u64, || {
            let request = MakeResident { block: block.address(), cause: 6, ..ALL_PAGES };
            driver::make_resident(&request, || evict(&bench, &victim));
            // Page tables.
            evict(&bench, &victim);
        });
    };
    in_another_process(migrate).unwrap();
    migrate();
    let (v, t) = (victims.generation, targets.generation);
    let expected = [((v, t, GPU, EvictionCause::Api), (2, 131_072)), ((v, t, GPU, EvictionCause::Tool), (2, 131_072))];
    assert_eq!(bench.evictions(), expected.into());
    assert_sums(&bench, &[v, t]);
}

#[test]
fn unmanaged_allocation_counts_for_its_process() {
    let Some(mut bench) = Bench::new(FAMILY) else { return };
    let (victim, victims) = bench.register(SPACE);
    let (_, latest) = bench.register(SPACE + 4096);
    // A process without managed memory is unknown.
    in_another_process(|| driver::allocate(false, || evict(&bench, &victim))).unwrap();
    for of_range in [false, true] {
        driver::allocate(of_range, || evict(&bench, &victim));
    }
    let (v, l) = (victims.generation, latest.generation);
    let cause = EvictionCause::DeviceAllocation;
    assert_eq!(bench.evictions(), [((v, l, GPU, cause), (2, 131_072)), ((v, 0, GPU, cause), (1, 65536))].into());
    assert_sums(&bench, &[v, l]);
}

#[test]
fn non_replayable_fault_counts_for_its_block() {
    let Some(mut bench) = Bench::new(FAMILY) else { return };
    let (victim, victims) = bench.register(SPACE);
    let (faulting, record) = bench.register(SPACE + 4096);
    let block = bench.block(&faulting, START);
    in_another_process(|| {
        let request = MakeResident { block: block.address(), cause: 1, ..ALL_PAGES };
        driver::make_resident(&request, || evict(&bench, &victim));
        // Access counter.
        driver::make_resident(&MakeResident { cause: 2, ..request }, || evict(&bench, &victim));
    })
    .unwrap();
    let (v, f) = (victims.generation, record.generation);
    let expected = [((v, f, GPU, EvictionCause::Fault), (1, 65536)), ((v, f, GPU, EvictionCause::Other), (1, 65536))];
    assert_eq!(bench.evictions(), expected.into());
    assert_sums(&bench, &[v, f]);
}

#[test]
fn evictions_of_unknown_cause_are_counted() {
    let Some(mut bench) = Bench::new(FAMILY) else { return };
    let (victim, victims) = bench.register(SPACE);
    let v = victims.generation;
    in_another_process(|| evict(&bench, &victim)).unwrap();
    evict(&bench, &victim);
    let expected = [((v, v, GPU, EvictionCause::Other), (1, 65536)), ((v, 0, GPU, EvictionCause::Other), (1, 65536))];
    assert_eq!(bench.evictions(), expected.into());
    assert_sums(&bench, &[v]);
    // An eviction from an unknown VA space is dropped, which is counted.
    let unknown = bench.space(SPACE + 4096);
    let block = bench.block(&unknown, START);
    driver::evict_chunks(block.address(), bench.gpu(GPU).address());
    assert_eq!((bench.evictions().len(), bench.lost()), (2, vec![(DropReason::UnknownVaSpace, 1)]));
}

#[test]
fn copy_sizes_are_counted_by_direction() {
    let Some(mut bench) = Bench::new(FAMILY) else { return };
    let (space, record) = bench.register(SPACE);
    for bytes in [65536, 65536, 2 << 20] {
        bench.migration(&space, &Migration { to: GPU, bytes, ..Migration::default() });
    }
    bench.migration(&space, &Migration { from: GPU, to: 0, bytes: 4096, ..Migration::default() });
    bench.migration(&space, &Migration { from: 1, to: GPU, ..Migration::default() });
    let bucket = abi::count::bucket;
    let expected: HashMap<_, _> = [
        ((GPU, Kind::HtodMigrationBytes, bucket(65536)), (2, 131_072)),
        ((GPU, Kind::HtodMigrationBytes, bucket(2 << 20)), (1, 2 << 20)),
        ((GPU, Kind::DtohMigrationBytes, bucket(4096)), (1, 4096)),
    ]
    .into();
    assert_eq!(bench.distributions(record.generation), expected);
}
