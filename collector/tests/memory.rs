//! Memory of a process's blocks, by the allocator. A single test: other allocations would count.

use std::alloc::System;

use abi::{
    BlockRecord, RecordKind,
    block::{BLOCK_BYTES, SLOTS},
};
use collector::{BlockLimits, testing::TestLedger};
use model::Blocks;
use stats_alloc::{INSTRUMENTED_SYSTEM, Region, Stats, StatsAlloc};

#[global_allocator]
static ALLOCATOR: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

const BASE: u64 = 0x7f00_0000_0000;
const TIB: u64 = 1 << 40;
const MIB: usize = 1 << 20;

/// Every kind of event of a block.
fn records_of(block: u64, at: u64) -> impl Iterator<Item = BlockRecord> {
    RecordKind::ALL.iter().map(move |kind| BlockRecord {
        boottime_ns: at,
        generation: 1,
        address: BASE + block * BLOCK_BYTES,
        bytes: 65536,
        events: 1,
        gpu: 1,
        slots: 1 << (block % u64::from(SLOTS)),
        kind: *kind as u16,
        ..BlockRecord::default()
    })
}

#[test]
fn blocks_of_a_process_with_a_tebibyte_or_more_take_at_most_64_mib() {
    let mut ledger = TestLedger::new(BlockLimits::default());
    ledger.process(1, 1);
    let region = Region::new(ALLOCATOR);
    let blocks = TIB / BLOCK_BYTES;
    let (mut most, mut allocated) = (0, 0);
    for block in 0..blocks * 3 / 2 {
        ledger.records(records_of(block, block));
        let Stats { bytes_allocated, bytes_deallocated, .. } = region.change();
        // Transient allocations count too, at their peak.
        most = most.max(bytes_allocated.saturating_sub(bytes_deallocated) + (bytes_allocated - allocated));
        allocated = bytes_allocated;
        if block + 1 == blocks {
            assert_eq!(ledger.processes()[0].blocks.known, blocks);
            assert!(most <= 64 * MIB, "{most} bytes for 1 TiB");
        }
    }
    assert!(most <= 64 * MIB, "{most} bytes for more");
    let Blocks { known, forgotten, .. } = ledger.processes()[0].blocks;
    assert_eq!(known + forgotten, blocks * 3 / 2);
    println!("{most} bytes at most");
}
