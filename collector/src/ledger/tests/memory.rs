//! Blocks and ranges.

use abi::{BlockRecord, RecordKind};
use model::Blocks;

use super::*;
use crate::{
    ledger::{bounds::share, memory::busiest_max},
    managed::Managed,
    spans::RANGES_MAX,
};

#[test]
fn lost_block_records_are_not_dropped_events() {
    let mut ledger = ledger();
    ledger.registered(1, PROCESS, named("app"));
    let record = BlockRecord {
        generation: 1,
        address: 6 << 20,
        events: 4,
        gpu: 1,
        kind: RecordKind::GpuFaults as u16,
        ..BlockRecord::default()
    };
    ledger.add_block_record(&record);
    ledger.add_block_record(&BlockRecord { generation: 9, ..record });
    let records = |sampled_out, dropped| Losses { records: RecordLosses { sampled_out, dropped, stale: 0 }, events: 0 };
    ledger.lost(1, records(5, 0));
    ledger.destroyed(1, records(7, 2), at(10));
    ledger.close(1);
    ledger.registered(2, PROCESS, named("app"));
    ledger.lost(2, records(1, 1));
    let process = &processes(&ledger)[0];
    assert_eq!(process.total().dropped_events, 0);
    let Blocks { busiest, sampled_out_records, dropped_records, .. } = &process.blocks;
    assert_eq!((busiest.len(), busiest[0].fault_entries), (1, 4));
    assert_eq!((*sampled_out_records, *dropped_records), (8, 3));
}

#[test]
fn residency_is_uncertain_only_after_stale_records() {
    let mut ledger = ledger();
    ledger.registered(1, PROCESS, named("app"));
    let record = BlockRecord {
        boottime_ns: 5,
        generation: 1,
        address: 6 << 20,
        gpu: 1,
        kind: RecordKind::Residency as u16,
        resident_pages: 512,
        ..BlockRecord::default()
    };
    ledger.add_block_record(&record);
    let bounds = |ledger: &Ledger| {
        let residency = &processes(ledger)[0].residency;
        residency
            .values()
            .map(|residency| (residency.bytes, residency.min_bytes, residency.max_bytes))
            .collect::<Vec<_>>()
    };
    let losses = |stale| Losses { records: RecordLosses { sampled_out: 9, dropped: 4, stale }, events: 0 };
    ledger.lost_by(1, losses(0), 10);
    assert_eq!(bounds(&ledger), [(2 << 20, 2 << 20, 2 << 20)]);
    ledger.lost_by(1, losses(1), 10);
    assert_eq!(bounds(&ledger), [(2 << 20, 0, u64::MAX)]);
    // Later records are certain again.
    ledger.lost_by(1, losses(1), 20);
    ledger.add_block_record(&BlockRecord { boottime_ns: 11, resident_pages: 256, ..record });
    assert_eq!(bounds(&ledger), [(1 << 20, 1 << 20, u64::MAX)]);
    // No sum is certain where the kernel skipped a probe.
    ledger.lost_by_all(30);
    assert_eq!(bounds(&ledger), [(1 << 20, 0, u64::MAX)]);
}

#[test]
fn total_of_blocks_is_bounded_at_the_expense_of_the_largest() {
    let mut ledger = ledger();
    for (generation, blocks) in [(1, 900), (2, 1500), (3, 1000), (4, 200)] {
        let id = ProcessId { pid: u32::try_from(generation).unwrap(), start_ticks: 1 };
        ledger.registered(generation, id, named("app"));
        for block in 0..blocks {
            let record = BlockRecord { generation, address: block << 21, events: 1, ..BlockRecord::default() };
            ledger.add_block_record(&record);
        }
    }
    ledger.bound_blocks();
    let blocks: Vec<_> =
        processes(&ledger).iter().map(|process| (process.blocks.known, process.blocks.forgotten)).collect();
    // 2625 are left: 200 and 808 each.
    assert_eq!(blocks, [(808, 92), (808, 692), (808, 192), (200, 0)]);
}

#[test]
fn blocks_per_process_in_a_snapshot_decrease_with_many_processes() {
    assert_eq!([0, 1, 128, 512, 2000, 1_000_000].map(busiest_max), [64, 64, 64, 16, 8, 8]);
}

#[test]
fn ranges_beyond_the_share_of_a_process_are_merged_until_there_is_room() {
    let mut ledger = ledger();
    let managed = |mappings: u64| Managed {
        bytes: 0,
        ranges: (0..mappings).map(|at| at << 22..(at << 22) + 1).collect(),
        mappings: usize::try_from(mappings).unwrap(),
        read_ns: 1,
    };
    let processes_with = [(1, 2500), (2, 100), (3, 5000)];
    for (pid, mappings) in processes_with {
        let process = ProcessId { pid, start_ticks: 1 };
        ledger.registered(pid.into(), process, named("app"));
        assert!(ledger.manages(process, &managed(mappings)));
        assert!(!ledger.manages(process, &managed(mappings)));
    }
    let known = |ledger: &Ledger| processes(ledger).iter().map(|process| process.ranges.known).collect::<Vec<_>>();
    assert_eq!(ledger.bound_ranges(), 1450);
    assert_eq!(known(&ledger), [1250, 100, 1250]);
    assert_eq!(processes(&ledger)[2].ranges.mappings, 5000);
    // The reader merges those beyond the maximum.
    ledger.manages(ProcessId { pid: 3, start_ticks: 1 }, &managed(10));
    assert_eq!(ledger.bound_ranges(), RANGES_MAX);
    ledger.manages(ProcessId { pid: 1, start_ticks: 1 }, &managed(2500));
    assert_eq!(known(&ledger), [2500, 100, 10]);
}

#[test]
fn unused_shares_are_left_to_the_others() {
    assert_eq!(share(vec![10, 1, 10], 15), 7);
    assert_eq!(share(vec![4, 4, 4], 2), 0);
    assert_eq!(share(vec![1, 2, 3], 100), usize::MAX);
    assert_eq!(share(Vec::new(), 0), usize::MAX);
}

#[test]
fn refetched_bytes_are_summed_per_gpu_and_outlive_the_blocks() {
    let mut ledger = ledger();
    ledger.registered(1, PROCESS, named("app"));
    let mut copy = |kind: RecordKind, block: u64, cause| {
        let record = BlockRecord {
            boottime_ns: block,
            generation: 1,
            address: block << 21,
            bytes: 65536,
            events: 1,
            gpu: 1,
            kind: kind as u16,
            cause,
            ..BlockRecord::default()
        };
        ledger.add_block_record(&record);
    };
    for block in 0..5000 {
        copy(RecordKind::CopyHtod, block, 0);
        copy(RecordKind::CopyDtoh, block, 4);
        copy(RecordKind::CopyHtod, block, 0);
    }
    let process = &processes(&ledger)[0];
    assert!(process.blocks.forgotten >= 4000);
    let reuse = &process.reuse[&GpuKey::Pending(1)];
    assert_eq!((reuse.fetched_bytes, reuse.refetched_bytes), (10_000 * 65536, 5000 * 65536));
}
