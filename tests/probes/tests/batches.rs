//! Batches of GPU faults: their sizes, durations and replays, by VA space and GPU.

use std::collections::HashMap;

use abi::{Kind, RecordKind, count::bucket};
use probes_test::{
    bench::{Bench, GpuFault, Space},
    driver, image,
};

const PROGRAMS: &[&str] =
    &["uvm_register", "uvm_destroy", "uvm_destroyed", "uvm_notify", "uvm_handler", "uvm_handled", "uvm_replay"];
const FAMILY: &str = "L2_550_555";
const SPACE: u64 = 0xffff_8881_2345_6780;
const BLOCK: u64 = 2 << 20;

fn faults(bench: &Bench, space: &Space, batch: u32, addresses: impl IntoIterator<Item = u64>) {
    for address in addresses {
        bench.gpu_fault(space, &GpuFault { batch, address, ..GpuFault::default() }, |entry| entry);
    }
}

/// Values of a distribution with the sum of each bucket.
fn values(bench: &Bench, generation: u64, gpu: u32, kind: Kind) -> HashMap<u16, (u64, u64)> {
    let all = bench.distributions(generation).into_iter();
    all.filter(|((of, which, _), _)| (*of, *which) == (gpu, kind))
        .map(|((.., bucket), tally)| (bucket, tally))
        .collect()
}

#[test]
fn batch_in_each_family_has_its_entries_and_replays_until_the_handler_returns() {
    for family in image::families() {
        let Some(mut bench) = Bench::only(PROGRAMS, &family) else { return };
        let (space, record) = bench.register(SPACE);
        let gpu = bench.gpu(1);
        driver::service_faults(|| {
            for batch in 1..=3 {
                faults(&bench, &space, batch, (0..20).map(|page| page * 4096));
                driver::broadcast_replay(gpu.address(), batch);
            }
        });
        let generation = record.generation;
        assert_eq!(values(&bench, generation, 1, Kind::BatchEntries), [(bucket(20), (3, 60))].into(), "{family}");
        assert_eq!(values(&bench, generation, 1, Kind::GpuBatchEntries), [(bucket(20), (3, 60))].into(), "{family}");
        let times: u64 = values(&bench, generation, 1, Kind::BatchNs).values().map(|(events, _)| events).sum();
        assert_eq!(times, 3, "{family}");
        let [(_, handler)] = values(&bench, generation, 1, Kind::HandlerNs).into_iter().collect::<Vec<_>>()[..] else {
            panic!("{family}")
        };
        let batches: u64 = values(&bench, generation, 1, Kind::GpuBatchNs).values().map(|(_, sum)| sum).sum();
        assert!(handler.0 == 1 && handler.1 >= batches, "{family} {handler:?} {batches}");
        let counts = bench.counts(generation);
        assert_eq!(counts[&(1, Kind::Replay, 0)], (3, 0), "{family}");
        assert_eq!(counts[&(1, Kind::GpuReplay, 0)], (3, 0), "{family}");
        assert_eq!(bench.lost(), [], "{family}");
    }
}

#[test]
fn batch_of_several_va_spaces_counts_once_for_each_and_once_for_the_gpu() {
    let Some(mut bench) = Bench::only(PROGRAMS, FAMILY) else { return };
    let (one, first) = bench.register(SPACE);
    let (other, second) = bench.register(SPACE + 4096);
    let gpu = bench.gpu(1);
    driver::service_faults(|| {
        faults(&bench, &one, 7, (0..5).map(|page| page * 4096));
        faults(&bench, &other, 7, (0..3).map(|page| page * 4096));
        driver::broadcast_replay(gpu.address(), 7);
    });
    assert_eq!(values(&bench, first.generation, 1, Kind::BatchEntries), [(5, (1, 5))].into());
    assert_eq!(values(&bench, second.generation, 1, Kind::BatchEntries), [(3, (1, 3))].into());
    // Counted under the VA space that was serviced last.
    assert_eq!(values(&bench, first.generation, 1, Kind::GpuBatchEntries), [].into());
    assert_eq!(values(&bench, second.generation, 1, Kind::GpuBatchEntries), [(8, (1, 8))].into());
    let replays = |generation| bench.counts(generation).get(&(1, Kind::Replay, 0)).copied();
    assert_eq!([replays(first.generation), replays(second.generation)], [Some((1, 0)); 2]);
}

#[test]
fn va_spaces_beyond_the_places_of_a_batch_are_counted() {
    let Some(mut bench) = Bench::only(PROGRAMS, FAMILY) else { return };
    let spaces: Vec<_> = (0..12).map(|at| bench.register(SPACE + at * 4096)).collect();
    driver::service_faults(|| {
        for (space, _) in &spaces {
            faults(&bench, space, 7, [0]);
        }
        driver::broadcast_replay(bench.gpu(1).address(), 7);
    });
    for (_, record) in &spaces {
        assert_eq!(values(&bench, record.generation, 1, Kind::BatchEntries), [(1, (1, 1))].into());
    }
    let last = spaces[11].1.generation;
    assert_eq!(values(&bench, last, 1, Kind::GpuBatchEntries), [(bucket(12), (1, 12))].into());
}

#[test]
fn batch_without_a_handler_ends_with_the_next_one() {
    let Some(mut bench) = Bench::only(PROGRAMS, FAMILY) else { return };
    let (space, record) = bench.register(SPACE);
    faults(&bench, &space, 1, [0, 4096]);
    assert_eq!(values(&bench, record.generation, 1, Kind::BatchEntries), [].into());
    faults(&bench, &space, 2, [0]);
    assert_eq!(values(&bench, record.generation, 1, Kind::BatchEntries), [(2, (1, 2))].into());
}

#[test]
fn batch_without_a_replay_ends_when_the_handler_returns() {
    let Some(mut bench) = Bench::only(PROGRAMS, FAMILY) else { return };
    let (space, record) = bench.register(SPACE);
    driver::service_faults(|| faults(&bench, &space, 1, [0, 4096]));
    assert_eq!(values(&bench, record.generation, 1, Kind::BatchEntries), [(2, (1, 2))].into());
    assert_eq!(values(&bench, record.generation, 1, Kind::HandlerNs).len(), 1);
}

#[test]
fn non_replayable_fault_has_no_batch_and_no_replay() {
    let Some(mut bench) = Bench::only(PROGRAMS, FAMILY) else { return };
    let (space, record) = bench.register(SPACE);
    let fault = GpuFault { is_replayable: false, ..GpuFault::default() };
    bench.gpu_fault(&space, &fault, |entry| entry);
    driver::broadcast_replay(bench.gpu(1).address(), 1);
    assert_eq!(bench.distributions(record.generation), [].into());
    assert_eq!(bench.counts(record.generation), [((1, Kind::GpuFault, 1), (1, 1))].into());
}

#[test]
fn consecutive_faults_on_a_block_share_a_record_with_slots_and_batch() {
    let Some(mut bench) = Bench::only(PROGRAMS, FAMILY) else { return };
    let (space, record) = bench.register(SPACE);
    driver::service_faults(|| {
        faults(&bench, &space, 1, (0..10).map(|page| BLOCK + page * 8192));
        faults(&bench, &space, 1, [5 * BLOCK]);
        driver::broadcast_replay(bench.gpu(1).address(), 1);
        faults(&bench, &space, 2, [5 * BLOCK]);
    });
    let records: Vec<_> = bench
        .blocks()
        .iter()
        .map(|block| {
            assert_eq!((block.generation, block.kind, block.gpu), (record.generation, RecordKind::GpuFaults as u16, 1));
            (block.address, block.events, block.slots, block.cause)
        })
        .collect();
    assert_eq!(records, [(BLOCK, 10, 0b11, 1), (5 * BLOCK, 1, 1, 1), (5 * BLOCK, 1, 1, 2)]);
}
