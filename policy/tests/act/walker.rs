//! Simulated program on a GPU that evicts by age of arrival: its block accesses and counts.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::{Duration, SystemTime},
};

use model::{
    Access, Block, Cause, Counters, Memory, Pattern, PatternKind, Process, ProcessId, Range, RangeCounts, Residency,
    Reuse, block::BLOCK_BYTES,
};

use crate::world::KEY;

/// Faults and replays of a missing block, and their duration.
pub(crate) const FAULTS: u64 = 512;
pub(crate) const REPLAYS: u64 = 2;
pub(crate) const FETCH: Duration = Duration::from_millis(10);
/// Maximum ranges in a snapshot.
const SHOWN_MAX: usize = 64;
/// Duration of an access to a resident block.
pub(crate) const HIT: Duration = Duration::from_micros(200);
/// Repeated accesses: the block, and whether it is written.
pub(crate) type Round = Vec<(u64, bool)>;

#[derive(Debug)]
pub(crate) struct Walker {
    pub(crate) id: ProcessId,
    pub(crate) round: Round,
    pub(crate) at: usize,
    pub(crate) rounds: u64,
    /// Computation time after each access.
    pub(crate) computes: Duration,
    /// Rounds after which it is idle.
    pub(crate) rounds_max: u64,
    /// Remaining time of the last access and computation.
    pub(crate) owed: Duration,
    pub(crate) pattern: PatternKind,
    pub(crate) counters: Counters,
    pub(crate) host: Counters,
    pub(crate) reuse: Reuse,
    pub(crate) blocks: BTreeMap<u64, Block>,
    /// Number of blocks of each allocation.
    pub(crate) allocation_blocks: usize,
    /// Resident blocks without their first part.
    pub(crate) partial: BTreeSet<u64>,
    pub(crate) remote: BTreeSet<u64>,
    /// Bytes that a remote access to a block on the host transfers.
    pub(crate) accessed_bytes: u64,
}

impl Walker {
    pub(crate) fn block(&mut self, at: u64) -> &mut Block {
        self.blocks.get_mut(&at).expect("a block of the program")
    }

    pub(crate) fn is_resident(&self, block: u64) -> bool {
        self.blocks[&block].resident.bytes > 4096
    }

    /// Accesses a resident block. Fetches the first part if it is not resident.
    pub(crate) fn hit(&mut self, block: u64, access: Access, now: SystemTime) -> Duration {
        let known = self.blocks.get_mut(&block).expect("a block of the program");
        if self.partial.remove(&block) {
            let bytes = BLOCK_BYTES - known.resident.bytes;
            known.resident = Residency::exactly(BLOCK_BYTES);
            known.bytes_htod += bytes;
            known.fault_entries += 16;
            known.last_seen_at = now;
            self.counters.bytes_htod[Cause::Fault] += bytes;
            self.counters.fault_entries[access] += 16;
            self.counters.replays += 1;
        }
        HIT
    }

    pub(crate) fn process(&self) -> Process {
        let mut process = Process::new(self.id, format!("program {}", self.id.pid));
        process.host = self.host.clone();
        process.gpus.insert(KEY, self.counters.clone());
        process.reuse.insert(KEY, self.reuse);
        process.managed_bytes = Some(self.blocks.len() as u64 * BLOCK_BYTES);
        let residency = Residency::exactly(self.blocks.values().map(|block| block.resident.bytes).sum());
        process.residency.insert(KEY, residency);
        process.ranges.busiest = self.ranges().take(SHOWN_MAX).collect();
        process.ranges.known = self.ranges().count() as u64;
        process
    }

    /// Known memory of the program.
    pub(crate) fn memory(&self) -> Memory {
        Memory::new(self.blocks.values().cloned().collect(), self.ranges().collect())
    }

    /// One range per allocation. A range with all blocks has the counts of the program.
    fn ranges(&self) -> impl Iterator<Item = Range> {
        let blocks: Vec<&Block> = self.blocks.values().collect();
        let each = self.allocation_blocks.min(blocks.len()).max(1);
        let all = blocks.chunks(each).map(|blocks| {
            let sum = |count: fn(&Block) -> u64| blocks.iter().map(|block| count(block)).sum::<u64>();
            let reuse = Reuse {
                fetched_bytes: sum(|block| block.bytes_htod),
                refetched_bytes: sum(|block| block.refetched_bytes),
                ..Reuse::default()
            };
            Range {
                begin: blocks[0].address,
                end: blocks[0].address + blocks.len() as u64 * BLOCK_BYTES,
                mapped: true,
                counts: RangeCounts {
                    fault_entries: sum(|block| block.fault_entries),
                    bytes_htod: sum(|block| block.bytes_htod),
                    bytes_dtoh: sum(|block| block.bytes_dtoh),
                    reuse,
                    ..RangeCounts::default()
                },
                residency: Residency::exactly(sum(|block| block.resident.bytes)),
                pattern: Pattern { kind: self.pattern, confidence: 0.95, steps: 100 },
            }
        });
        all.collect::<Vec<_>>().into_iter()
    }
}
