//! Memory of the ranges of processes, by the allocator. A single test: other allocations would
//! count.

use std::{alloc::System, ops::Range};

use collector::{BlockLimits, testing::TestLedger};
use stats_alloc::{INSTRUMENTED_SYSTEM, Region, StatsAlloc};

#[global_allocator]
static ALLOCATOR: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

const MIB: usize = 1 << 20;
const PROCESSES: u32 = 100;
const MAPPINGS: u64 = 20_000;

#[test]
fn ranges_of_all_processes_take_at_most_40_mib() {
    let mut ledger = TestLedger::new(BlockLimits::default());
    let mappings: Vec<Range<u64>> = (1..=MAPPINGS).map(|at| at << 22..(at << 22) + 4096).collect();
    let region = Region::new(ALLOCATOR);
    let mut most = 0;
    for pid in 1..=PROCESSES {
        ledger.process(pid, pid.into());
        ledger.mappings(pid, &mappings, 1);
        let change = region.change();
        most = most.max(change.bytes_allocated.saturating_sub(change.bytes_deallocated));
    }
    assert!(most <= 40 * MIB, "{most} bytes");
    let processes = ledger.processes();
    let known: u64 = processes.iter().map(|process| process.ranges.known).sum();
    assert!(known <= BlockLimits::default().ranges_of_all as u64, "{known}");
    assert!(processes.iter().all(|process| process.ranges.mappings == MAPPINGS && process.ranges.known > 600));
    println!("{most} bytes at most, {known} ranges in the end");
}
