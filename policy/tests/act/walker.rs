//! A program on a card that evicts by age of arrival: which blocks it accesses in turn, and what is counted of it.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::{Duration, SystemTime},
};

use model::{
    Access, Block, Cause, Counters, Memory, Pattern, PatternKind, Process, ProcessId, Range, RangeCounts, Residency,
    Reuse, block::BLOCK_BYTES,
};

use crate::world::KEY;

/// A block of which nothing is there takes so many faults and replays to come, and so long.
pub(crate) const FAULTS: u64 = 512;
pub(crate) const REPLAYS: u64 = 2;
pub(crate) const FETCH: Duration = Duration::from_millis(10);
/// As many ranges are in a snapshot.
const SHOWN_MAX: usize = 64;
/// One that is there takes so long to access.
pub(crate) const HIT: Duration = Duration::from_micros(200);
/// Accesses to blocks, again and again: which one, and whether it is written to.
pub(crate) type Round = Vec<(u64, bool)>;

#[derive(Debug)]
pub(crate) struct Walker {
    pub(crate) id: ProcessId,
    pub(crate) round: Round,
    pub(crate) at: usize,
    pub(crate) rounds: u64,
    /// How long it computes after each access.
    pub(crate) computes: Duration,
    /// After so many rounds it does nothing more.
    pub(crate) rounds_max: u64,
    /// What it owes of its time.
    pub(crate) owed: Duration,
    pub(crate) pattern: PatternKind,
    pub(crate) counters: Counters,
    pub(crate) host: Counters,
    pub(crate) reuse: Reuse,
    pub(crate) blocks: BTreeMap<u64, Block>,
    /// Of how many blocks its allocations are.
    pub(crate) allocation_blocks: usize,
    /// Blocks whose first part is not there.
    pub(crate) lacking: BTreeSet<u64>,
    pub(crate) remote: BTreeSet<u64>,
    /// What an access to a block moves if it stays on the host.
    pub(crate) accessed_bytes: u64,
}

impl Walker {
    pub(crate) fn block(&mut self, at: u64) -> &mut Block {
        self.blocks.get_mut(&at).expect("a block of its own")
    }

    pub(crate) fn is_there(&self, block: u64) -> bool {
        self.blocks[&block].resident.bytes > 4096
    }

    pub(crate) fn hit(&mut self, block: u64, access: Access, now: SystemTime) -> Duration {
        let known = self.blocks.get_mut(&block).expect("a block of its own");
        if self.lacking.remove(&block) {
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

    pub(crate) fn seen(&self) -> Process {
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

    /// All that is known of its memory.
    pub(crate) fn memory(&self) -> Memory {
        Memory { blocks: self.blocks.values().cloned().collect(), ranges: self.ranges().collect() }
    }

    /// One for each allocation. Of one that has all blocks, what was counted of the program.
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
