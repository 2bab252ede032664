//! The part of the ledger that is about single blocks of memory: from the probes' records and from what /proc says is mapped.

use std::time::SystemTime;

use abi::BlockRecord;
use model::{HeatMap, HeatRequest, Memory, ProcessId};

use super::{Generation, Ledger, Losses, blocks::PUBLISHED_MAX, gpu};
use crate::managed::Managed;

/// Blocks that a snapshot holds of all processes together, and the number that each may have at least.
const PUBLISHED_OF_ALL: usize = 8192;
const PUBLISHED_MIN: usize = 8;
/// Blocks of one process that are given out at once: those of 256 GiB.
const ALL_MAX: usize = 1 << 17;

/// How many of its blocks and ranges a snapshot holds of each of so many processes.
pub(super) fn busiest_max(processes: usize) -> usize {
    (PUBLISHED_OF_ALL / processes.max(1)).clamp(PUBLISHED_MIN, PUBLISHED_MAX)
}

impl Ledger {
    /// What happened to a block. That of a VA space whose process is not known is nowhere to be shown.
    pub(crate) fn happened(&mut self, record: &BlockRecord) {
        let process = self.spaces.get(&record.generation).and_then(|space| space.process);
        if let Some(entry) = process.and_then(|process| self.processes.get_mut(&process)) {
            entry.blocks.add(record, self.limits.blocks.of_process, self.page_bytes);
        }
    }

    /// What of a VA space could not be counted or written so far, which was before `until_ns` since boot.
    pub(crate) fn lost_by(&mut self, generation: Generation, losses: Losses, until_ns: u64) {
        let stale = |ledger: &Self| ledger.spaces.get(&generation).map_or(0, |space| space.records.stale);
        let before = stale(self);
        self.lost(generation, losses);
        if stale(self) == before {
            return;
        }
        let Some(space) = self.spaces.get(&generation) else { return };
        if let Some(entry) = space.process.and_then(|process| self.processes.get_mut(&process)) {
            entry.blocks.lost(until_ns);
        }
    }

    /// What changed of what is resident was not told, of whichever process, until then at the latest; ns since boot.
    pub(crate) fn lost_by_all(&mut self, until_ns: u64) {
        for entry in self.processes.values_mut().filter(|entry| entry.living > 0) {
            entry.blocks.lost(until_ns);
        }
    }

    /// What a process did before was not seen.
    pub(crate) fn adopted(&mut self, process: ProcessId) {
        if let Some(entry) = self.processes.get_mut(&process) {
            entry.is_adopted = true;
        }
        self.mark_stale(process);
    }

    /// What becomes resident is not told of a process, or was not told of its beginning.
    pub(crate) fn mark_stale(&mut self, process: ProcessId) {
        if let Some(entry) = self.processes.get_mut(&process) {
            entry.blocks.adopted();
        }
    }

    /// Which managed memory a process has mapped. Whether it is other than before.
    pub(crate) fn manages(&mut self, process: ProcessId, managed: &Managed) -> bool {
        let Some(entry) = self.processes.get_mut(&process) else { return false };
        let Managed { bytes, ranges, mappings, read_ns } = managed;
        entry.managed_bytes = Some(*bytes);
        entry.blocks.mapped(ranges, *mappings, *read_ns)
    }

    /// The blocks and ranges of a process that are known; `None` if it is not known. `at`: what time some ns since boot were.
    pub(crate) fn memory_of(&self, process: ProcessId, at: impl Fn(u64) -> SystemTime) -> Option<Memory> {
        let blocks = &self.processes.get(&process)?.blocks;
        let key = |generation, id| gpu(&self.spaces, generation, id);
        Some(Memory { blocks: blocks.all(ALL_MAX, key, at), ranges: blocks.all_ranges() })
    }

    /// The memory of a process in cells, as it is at `now_ns` since boot; `None` if it is not known.
    pub(crate) fn heat(&self, request: &HeatRequest, now_ns: u64) -> Option<HeatMap> {
        self.processes.get(&request.process).map(|entry| entry.blocks.heat(request, now_ns))
    }
}
