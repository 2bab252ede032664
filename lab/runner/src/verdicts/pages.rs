//! Page events of one GPU from the software GPU's log: state of each page, and the cause for which
//! it left the GPU last.
//!
//! A page that is copied to the host while a CPU access of its own process covers its block is
//! reclaimed by the CPU; any other is evicted. The driver migrates at most a block of 2 MiB for a
//! CPU fault, and only the CPU of the process itself accesses its memory.

use std::collections::{BTreeMap, HashMap, HashSet, hash_map::Entry};

use super::facts::Facts;
use crate::{access_log::Event, sys::access_log::Record};

const PAGE_BYTES: u64 = 4096;
/// Size of a VA block, and of a frame.
const BLOCK_BYTES: u64 = 2 << 20;
/// Memory of the GPU, and below of the host, in a record's `from` and `to`.
const LOCAL: u8 = 0;
const HOST: u8 = 1;

/// Facts by process.
pub(super) type Counts = BTreeMap<u32, Facts>;

/// State of every page that was ever at the GPU.
#[derive(Debug, Default)]
pub(super) struct Pages {
    /// Location of a page, by process and address.
    locations: HashMap<(u32, u64), Location>,
    /// Pages of GPU memory that are the target of a copy, and are not mapped yet.
    arriving: HashSet<u64>,
    /// Last user of a block, by process and block.
    sides: HashMap<(u32, u64), Side>,
    /// CPU accesses in progress: process, first byte, bytes.
    cpu_accesses: Vec<(u32, u64, u64)>,
    /// Evictions from frames that are not reused yet, by frame: process, block, bytes.
    evictions: HashMap<u64, Vec<(u32, u64, u64)>>,
    /// Events that the log dropped, after which no state is certain.
    pub(super) dropped_events: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Location {
    OnGpu,
    Evicted,
    Reclaimed,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Side {
    Cpu,
    Gpu,
}

impl Pages {
    /// Apply a record of the log. An unknown record is an error.
    pub(super) fn apply(&mut self, record: &Record, counts: &mut Counts) -> anyhow::Result<()> {
        let &Record { pid, va, physical, weight, from, to, .. } = record;
        let pages = || (0..weight / PAGE_BYTES).map(|page| page * PAGE_BYTES);
        match Event::of(record) {
            None => anyhow::bail!("the software GPU's log has an unknown record: {record:?}"),
            Some(Event::Lost) => self.dropped_events += weight,
            Some(Event::Copy) if (from, to) == (HOST, LOCAL) => {
                self.arriving.extend(pages().map(|offset| physical + offset));
            }
            Some(Event::Copy) if (from, to) == (LOCAL, HOST) && pid != 0 => {
                pages().for_each(|offset| self.copy_to_host(pid, va + offset, physical + offset, counts));
            }
            Some(Event::Access | Event::Copy) => {}
            Some(Event::Map) => pages().for_each(|offset| self.map(pid, va + offset, physical + offset, counts)),
            Some(Event::CpuBegins) => {
                self.cpu_accesses.push((pid, va, weight));
                self.access_by_cpu(pid, va, weight, counts);
            }
            Some(Event::CpuEnds) => {
                if let Some(at) = self.cpu_accesses.iter().position(|access| *access == (pid, va, weight)) {
                    self.cpu_accesses.swap_remove(at);
                }
            }
        }
        Ok(())
    }

    /// Map a page of GPU memory at an address.
    fn map(&mut self, pid: u32, address: u64, physical: u64, counts: &mut Counts) {
        self.reuse_frame(pid, address, physical, counts);
        let copied = self.arriving.remove(&physical);
        let before = self.locations.insert((pid, address), Location::OnGpu);
        if before == Some(Location::OnGpu) && !copied {
            return;
        }
        let facts = counts.entry(pid).or_default();
        if copied {
            facts.fetched_bytes += PAGE_BYTES;
        } else {
            facts.populated_bytes += PAGE_BYTES;
        }
        match before {
            Some(Location::Evicted) if copied => facts.refetched_bytes += PAGE_BYTES,
            Some(Location::Reclaimed) if copied => facts.cpu_reclaimed_bytes += PAGE_BYTES,
            _ => {}
        }
        if self.sides.insert((pid, address / BLOCK_BYTES), Side::Gpu) == Some(Side::Cpu) {
            facts.bounces += 1;
        }
    }

    /// Copy a page to the host.
    fn copy_to_host(&mut self, pid: u32, address: u64, physical: u64, counts: &mut Counts) {
        let block = address / BLOCK_BYTES;
        let facts = counts.entry(pid).or_default();
        if self.has_cpu_access(pid, block) {
            facts.readback_bytes += PAGE_BYTES;
            // Also if the GPU has fetched the block again since the access began.
            if self.sides.insert((pid, block), Side::Cpu) == Some(Side::Gpu) {
                facts.bounces += 1;
            }
            self.locations.insert((pid, address), Location::Reclaimed);
            return;
        }
        facts.evicted_bytes += PAGE_BYTES;
        self.locations.insert((pid, address), Location::Evicted);
        let evictions = self.evictions.entry(physical / BLOCK_BYTES).or_default();
        match evictions.iter_mut().find(|(victim, evicted, _)| (*victim, *evicted) == (pid, block)) {
            Some((_, _, bytes)) => *bytes += PAGE_BYTES,
            None => evictions.push((pid, block, PAGE_BYTES)),
        }
    }

    /// Attribute the evictions from a frame to the process that maps its memory next.
    fn reuse_frame(&mut self, pid: u32, address: u64, physical: u64, counts: &mut Counts) {
        let Entry::Occupied(evictions) = self.evictions.entry(physical / BLOCK_BYTES) else { return };
        let of_others = evictions
            .remove()
            .into_iter()
            .filter(|(victim, block, _)| (*victim, *block) != (pid, address / BLOCK_BYTES));
        counts.entry(pid).or_default().induced_eviction_bytes += of_others.map(|(_, _, bytes)| bytes).sum::<u64>();
    }

    /// Start a CPU access to these blocks. A block that the GPU used last migrates by a fault.
    fn access_by_cpu(&mut self, pid: u32, address: u64, bytes: u64, counts: &mut Counts) {
        for block in address / BLOCK_BYTES..(address + bytes).div_ceil(BLOCK_BYTES) {
            if self.sides.insert((pid, block), Side::Cpu) == Some(Side::Gpu) {
                counts.entry(pid).or_default().bounces += 1;
            }
        }
    }

    fn has_cpu_access(&self, pid: u32, block: u64) -> bool {
        let covers = |(owner, address, bytes): &(u32, u64, u64)| {
            *owner == pid && (address / BLOCK_BYTES..(address + bytes).div_ceil(BLOCK_BYTES)).contains(&block)
        };
        self.cpu_accesses.iter().any(covers)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BASE: u64 = 0x200_0000_0000;
    const FRAME: u64 = BLOCK_BYTES;

    /// Applied log, with its state and counts.
    #[derive(Default)]
    struct Log {
        pages: Pages,
        counts: Counts,
    }

    impl Log {
        fn apply(&mut self, event: u8, [from, to]: [u8; 2], pid: u32, va: u64, physical: u64, weight: u64) {
            let record = Record { weight, va, physical, pid, event, from, to, ..Record::default() };
            self.pages.apply(&record, &mut self.counts).unwrap();
        }
        fn fetch(&mut self, pid: u32, va: u64, physical: u64, bytes: u64) {
            self.apply(1, [HOST, LOCAL], 0, 0, physical, bytes);
            self.populate(pid, va, physical, bytes);
        }
        fn populate(&mut self, pid: u32, va: u64, physical: u64, bytes: u64) {
            self.apply(2, [0, 0], pid, va, physical, bytes);
        }
        fn copy_out(&mut self, pid: u32, va: u64, physical: u64, bytes: u64) {
            self.apply(1, [LOCAL, HOST], pid, va, physical, bytes);
        }
        fn cpu(&mut self, pid: u32, va: u64, bytes: u64, during: impl FnOnce(&mut Self)) {
            self.apply(4, [0, 0], pid, va, 0, bytes);
            during(self);
            self.apply(5, [0, 0], pid, va, 0, bytes);
        }
        fn of(&self, pid: u32) -> Facts {
            self.counts.get(&pid).copied().unwrap_or_default()
        }
    }

    #[test]
    fn pages_mapped_after_a_copy_are_fetched_and_others_populated() {
        let mut log = Log::default();
        log.fetch(7, BASE, FRAME, 65536);
        log.populate(7, BASE + 65536, FRAME + 65536, 4096);
        log.populate(7, BASE, FRAME, 65536);
        let expected = Facts { fetched_bytes: 65536, populated_bytes: 4096, ..Facts::default() };
        assert_eq!(log.of(7), expected, "a second mapping at the same place is no arrival");
    }

    #[test]
    fn an_evicted_page_is_refetched_and_its_frame_belongs_to_the_next_mapping_process() {
        let mut log = Log::default();
        log.populate(7, BASE, FRAME, 8192);
        log.copy_out(7, BASE, FRAME, 8192);
        log.populate(8, BASE, FRAME, 4096);
        log.populate(8, BASE + 4096, FRAME + 4096, 4096);
        log.fetch(7, BASE, 2 * FRAME, 4096);
        let expected = Facts {
            populated_bytes: 8192,
            evicted_bytes: 8192,
            fetched_bytes: 4096,
            refetched_bytes: 4096,
            ..Facts::default()
        };
        assert_eq!(log.of(7), expected);
        assert_eq!(log.of(8), Facts { populated_bytes: 8192, induced_eviction_bytes: 8192, ..Facts::default() });
    }

    #[test]
    fn a_process_evicts_itself_for_another_block_and_not_for_the_same() {
        let mut log = Log::default();
        log.populate(7, BASE, FRAME, 4096);
        log.copy_out(7, BASE, FRAME, 4096);
        log.fetch(7, BASE, FRAME, 4096);
        assert_eq!(log.of(7).induced_eviction_bytes, 0);
        log.copy_out(7, BASE, FRAME, 4096);
        log.fetch(7, BASE + BLOCK_BYTES, FRAME, 4096);
        assert_eq!(log.of(7).induced_eviction_bytes, 4096);
    }

    #[test]
    fn pages_reclaimed_by_the_cpu_are_fetched_and_bounce_by_the_block() {
        let mut log = Log::default();
        log.fetch(7, BASE, FRAME, 8192);
        for _ in 0..2 {
            log.cpu(7, BASE, 4096, |log| log.copy_out(7, BASE, FRAME, 8192));
            log.fetch(7, BASE, FRAME, 8192);
        }
        let expected = Facts {
            fetched_bytes: 3 * 8192,
            cpu_reclaimed_bytes: 2 * 8192,
            readback_bytes: 2 * 8192,
            bounces: 4,
            ..Facts::default()
        };
        assert_eq!(log.of(7), expected);
    }

    #[test]
    fn every_bounce_within_one_cpu_access_counts() {
        let mut log = Log::default();
        log.populate(7, BASE, FRAME, 8192);
        log.cpu(7, BASE, 8192, |log| {
            log.copy_out(7, BASE, FRAME, 4096);
            log.fetch(7, BASE, FRAME, 4096);
            log.copy_out(7, BASE, FRAME, 4096);
            log.copy_out(7, BASE + 4096, FRAME + 4096, 4096);
        });
        assert_eq!(log.of(7).bounces, 3);
    }

    #[test]
    fn only_blocks_accessed_by_the_process_itself_are_reclaimed() {
        let mut log = Log::default();
        log.populate(7, BASE, FRAME, 4096);
        log.populate(7, BASE + BLOCK_BYTES, 2 * FRAME, 4096);
        log.cpu(7, BASE, 4096, |log| log.copy_out(7, BASE + BLOCK_BYTES, 2 * FRAME, 4096));
        log.cpu(8, BASE, 4096, |log| log.copy_out(7, BASE, FRAME, 4096));
        assert_eq!((log.of(7).evicted_bytes, log.of(7).readback_bytes), (8192, 0));
    }

    #[test]
    fn an_evicted_page_that_the_cpu_then_uses_left_by_eviction() {
        let mut log = Log::default();
        log.fetch(7, BASE, FRAME, 4096);
        log.copy_out(7, BASE, FRAME, 4096);
        log.cpu(7, BASE, 4096, |_| ());
        log.fetch(7, BASE, FRAME, 4096);
        assert_eq!((log.of(7).refetched_bytes, log.of(7).cpu_reclaimed_bytes, log.of(7).bounces), (4096, 0, 2));
    }

    #[test]
    fn a_handover_from_the_cpu_is_one_bounce_per_block() {
        let mut log = Log::default();
        log.cpu(7, BASE, 2 * BLOCK_BYTES, |_| ());
        log.fetch(7, BASE, FRAME, 4096);
        log.fetch(7, BASE + BLOCK_BYTES, 2 * FRAME, 4096);
        assert_eq!(log.of(7).bounces, 2, "one a block");
    }

    #[test]
    fn dropped_events_are_counted() {
        let mut log = Log::default();
        log.apply(3, [0, 0], 0, 0, 0, 12);
        assert_eq!(log.pages.dropped_events, 12);
    }
}
