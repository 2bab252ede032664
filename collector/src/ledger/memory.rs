//! Ledger of single blocks of memory: from the probes' records and the mappings in /proc.

use std::time::SystemTime;

use abi::BlockRecord;
use model::{HeatMap, HeatRequest, Memory, ProcessId};

use super::{Generation, Ledger, Losses, blocks::PUBLISHED_MAX, gpu};
use crate::managed::Managed;

/// Maximum of blocks in a snapshot for all processes together, and minimum share of each.
const PUBLISHED_OF_ALL: usize = 8192;
const PUBLISHED_MIN: usize = 8;
/// Maximum of blocks of one process in one response: those of 256 GiB.
const ALL_MAX: usize = 1 << 17;

/// Maximum of blocks and ranges of each process in a snapshot, for this many processes.
pub(super) fn busiest_max(processes: usize) -> usize {
    (PUBLISHED_OF_ALL / processes.max(1)).clamp(PUBLISHED_MIN, PUBLISHED_MAX)
}

impl Ledger {
    /// Adds the record of a block. Records of a VA space of an unknown process are not shown.
    pub(crate) fn add_block_record(&mut self, record: &BlockRecord) {
        let process = self.spaces.get(&record.generation).and_then(|space| space.process);
        if let Some(entry) = process.and_then(|process| self.processes.get_mut(&process)) {
            entry.blocks.add(record, self.limits.blocks.of_process, self.page_bytes);
        }
    }

    /// Sets the cumulative dropped events of a VA space, which were before `until_ns` since boot.
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

    /// Marks residency records of any process as dropped until this time, ns since boot.
    pub(crate) fn lost_by_all(&mut self, until_ns: u64) {
        for entry in self.processes.values_mut().filter(|entry| entry.living > 0) {
            entry.blocks.lost(until_ns);
        }
    }

    /// Marks the events of a process before this time as unknown.
    pub(crate) fn adopted(&mut self, process: ProcessId, now: SystemTime) {
        if let Some(entry) = self.processes.get_mut(&process) {
            entry.counted_from = Some(now);
        }
        self.mark_stale(process);
    }

    /// Marks the residency of a process as unknown, or its begin.
    pub(crate) fn mark_stale(&mut self, process: ProcessId) {
        if let Some(entry) = self.processes.get_mut(&process) {
            entry.blocks.adopted();
        }
    }

    /// Sets the mapped managed memory of a process. Returns whether it changed.
    pub(crate) fn manages(&mut self, process: ProcessId, managed: &Managed) -> bool {
        let Some(entry) = self.processes.get_mut(&process) else { return false };
        let Managed { bytes, ranges, mappings, read_ns } = managed;
        entry.managed_bytes = Some(*bytes);
        entry.managed_growth.add(*read_ns, *bytes);
        entry.blocks.mapped(ranges, *mappings, *read_ns)
    }

    /// Known blocks and ranges of a process; `None` if the process is unknown. `at`: calendar time
    /// of a time in ns since boot.
    pub(crate) fn memory_of(&self, process: ProcessId, at: impl Fn(u64) -> SystemTime) -> Option<Memory> {
        let blocks = &self.processes.get(&process)?.blocks;
        let key = |generation, id| gpu(&self.spaces, generation, id);
        Some(Memory::new(blocks.all(ALL_MAX, key, at), blocks.all_ranges()))
    }

    /// Heat map of a process, at `now_ns` since boot; `None` if the process is unknown.
    pub(crate) fn heat(&self, request: &HeatRequest, now_ns: u64) -> Option<HeatMap> {
        self.processes.get(&request.process).map(|entry| entry.blocks.heat(request, now_ns))
    }
}
