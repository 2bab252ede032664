//! Private parsers, for fuzz targets only.

use std::{
    path::PathBuf,
    time::{Duration, SystemTime},
};

use abi::{BlockRecord, CountKey, Lifecycle, LifecycleKind, Tally, count::EvictionKey};
use model::{Owner, Process, ProcessId};
use sys::Roots;

pub use crate::tools::fuzzing::RecordCounts;
use crate::{
    BlockLimits, OwnerLimits,
    command_line::shown,
    identity::{Processes, Sighting},
    ledger::{Ledger, Limits, Losses},
    managed::{Managed, read},
    spans::together,
};

/// Short name, cgroup and owner of a process from /proc; `None` if it does not exist.
#[must_use]
pub fn identity(roots: &Roots, pid: u32) -> Option<(String, Option<PathBuf>, Owner)> {
    match Processes::new(roots).read(ProcessId { pid, start_ticks: 0 }) {
        Sighting::Here(identity) => Some((identity.name, identity.cgroup, identity.owner)),
        Sighting::Gone | Sighting::Unknown => None,
    }
}

/// Command line as shown, from its text in /proc.
#[must_use]
pub fn command_line(arguments: &[u8]) -> Option<String> {
    shown(arguments)
}

/// Managed memory of a process in at most `ranges_max` ranges, and its bytes.
#[must_use]
pub fn managed(roots: &Roots, pid: u32, ranges_max: usize) -> Option<(u64, Vec<(u64, u64)>)> {
    let managed = read(roots, ProcessId { pid, start_ticks: 0 }, ranges_max)?;
    Some((managed.bytes, managed.ranges.iter().map(|span| (span.start, span.end)).collect()))
}

/// Ledger that is fed with data of the probes.
#[derive(Debug)]
pub struct Fed {
    ledger: Ledger,
    processes: Processes,
}

impl Fed {
    /// Empty ledger with these limits.
    #[must_use]
    pub fn new(roots: &Roots, blocks: BlockLimits, max_ended: usize) -> Self {
        let owners = OwnerLimits::default();
        let ledger = Ledger::new(Limits { retention: Duration::from_mins(5), max_ended, blocks, owners });
        Self { ledger, processes: Processes::new(roots) }
    }

    /// Adds a record of a VA space.
    pub fn lifecycle(&mut self, record: &Lifecycle) {
        match record.kind() {
            Some(LifecycleKind::Registered | LifecycleKind::Adopted | LifecycleKind::SharedByProcess) => {
                let process = self.processes.id(record);
                let identity = self.processes.named_by(process, record);
                self.ledger.registered(record.generation, process, identity);
            }
            Some(LifecycleKind::Destroyed) => {
                let losses = Losses { events: record.dropped_events, records: record.records };
                self.ledger.destroyed(record.generation, losses, SystemTime::UNIX_EPOCH);
            }
            Some(LifecycleKind::SharedByUser) | None => {}
        }
    }

    /// Adds a record of a block.
    pub fn block(&mut self, record: &BlockRecord) {
        self.ledger.add_block_record(record);
        self.ledger.bound_blocks();
    }

    /// Adds a count.
    pub fn count(&mut self, key: CountKey, tally: Tally) {
        self.ledger.count(key, tally);
    }

    /// Adds a count of evictions by victim and evictor.
    pub fn eviction(&mut self, key: EvictionKey, tally: Tally) {
        self.ledger.evicted(key, tally);
    }

    /// Sets the mappings of a process, in order, at a time in ns since boot.
    pub fn mappings(&mut self, process: ProcessId, mappings: &[std::ops::Range<u64>], read_ns: u64) {
        let ranges = together(mappings, self.ledger.bound_ranges());
        let managed = Managed { bytes: 0, ranges: ranges.into(), mappings: mappings.len(), read_ns };
        if self.ledger.manages(process, &managed) {
            self.ledger.bound_ranges();
        }
    }

    /// Processes as in a snapshot; closes ended VA spaces.
    #[must_use]
    pub fn processes(&mut self) -> Vec<Process> {
        let totals = self.ledger.totals(|_| None, |ns| SystemTime::UNIX_EPOCH + Duration::from_nanos(ns)).0;
        self.ledger.forget(SystemTime::UNIX_EPOCH);
        totals
    }
}
