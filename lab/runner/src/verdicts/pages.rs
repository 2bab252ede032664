//! What pages did, followed one by one through the software GPU's log: where each left the GPU last, and by what. Of one GPU.
//!
//! A page that is copied to the host while a CPU access of its own process covers its block is taken back; any other is evicted. The driver
//! moves at most a block of 2 MiB around a CPU's fault, and a process's memory is only ever accessed by its own CPU.

use std::collections::{BTreeMap, HashMap, HashSet, hash_map::Entry};

use super::facts::Facts;
use crate::{access_log::Event, sys::access_log::Record};

const PAGE_BYTES: u64 = 4096;
/// The driver's block of virtual addresses; its frames of memory are as large.
const BLOCK_BYTES: u64 = 2 << 20;
/// The GPU's own memory in a record's `from` and `to`; the host's.
const LOCAL: u8 = 0;
const HOST: u8 = 1;

/// By process.
pub(super) type Counts = BTreeMap<u32, Facts>;

/// Every page that was ever at the GPU.
#[derive(Debug, Default)]
pub(super) struct Pages {
    /// By process and address.
    places: HashMap<(u32, u64), Place>,
    /// Pages of GPU memory that were copied into, and are not mapped yet.
    arriving: HashSet<u64>,
    /// Who used a block last, by process and block.
    sides: HashMap<(u32, u64), Side>,
    /// CPU accesses that go on: process, first byte, bytes.
    on_cpu: Vec<(u32, u64, u64)>,
    /// What was evicted from a frame that nobody took yet: process, block, bytes.
    left: HashMap<u64, Vec<(u32, u64, u64)>>,
    /// Events that the log lost: nothing is certain any more.
    pub(super) lost_events: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    OnGpu,
    Evicted,
    TakenBack,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Side {
    Cpu,
    Gpu,
}

impl Pages {
    /// Follow one record. An error is one that cannot be.
    pub(super) fn see(&mut self, record: &Record, counts: &mut Counts) -> anyhow::Result<()> {
        let &Record { pid, va, physical, weight, from, to, .. } = record;
        let pages = || (0..weight / PAGE_BYTES).map(|page| page * PAGE_BYTES);
        match Event::of(record) {
            None => anyhow::bail!("the software GPU's log has an unknown record: {record:?}"),
            Some(Event::Lost) => self.lost_events += weight,
            Some(Event::Copy) if (from, to) == (HOST, LOCAL) => {
                self.arriving.extend(pages().map(|offset| physical + offset));
            }
            Some(Event::Copy) if (from, to) == (LOCAL, HOST) && pid != 0 => {
                pages().for_each(|offset| self.leave(pid, va + offset, physical + offset, counts));
            }
            Some(Event::Access | Event::Copy) => {}
            Some(Event::Map) => pages().for_each(|offset| self.arrive(pid, va + offset, physical + offset, counts)),
            Some(Event::CpuBegins) => {
                self.on_cpu.push((pid, va, weight));
                self.use_by_cpu(pid, va, weight, counts);
            }
            Some(Event::CpuEnds) => {
                if let Some(at) = self.on_cpu.iter().position(|open| *open == (pid, va, weight)) {
                    self.on_cpu.swap_remove(at);
                }
            }
        }
        Ok(())
    }

    /// A page of GPU memory gets an address.
    fn arrive(&mut self, pid: u32, address: u64, physical: u64, counts: &mut Counts) {
        self.take_frame(pid, address, physical, counts);
        let copied = self.arriving.remove(&physical);
        let before = self.places.insert((pid, address), Place::OnGpu);
        if before == Some(Place::OnGpu) && !copied {
            return;
        }
        let facts = counts.entry(pid).or_default();
        if copied {
            facts.fetched_bytes += PAGE_BYTES;
        } else {
            facts.populated_bytes += PAGE_BYTES;
        }
        match before {
            Some(Place::Evicted) if copied => facts.refetched_bytes += PAGE_BYTES,
            Some(Place::TakenBack) if copied => facts.cpu_reclaimed_bytes += PAGE_BYTES,
            _ => {}
        }
        if self.sides.insert((pid, address / BLOCK_BYTES), Side::Gpu) == Some(Side::Cpu) {
            facts.bounces += 1;
        }
    }

    /// A page is copied to the host.
    fn leave(&mut self, pid: u32, address: u64, physical: u64, counts: &mut Counts) {
        let block = address / BLOCK_BYTES;
        let facts = counts.entry(pid).or_default();
        if self.is_on_cpu(pid, block) {
            facts.readback_bytes += PAGE_BYTES;
            // Also where the GPU took it again since the access began.
            if self.sides.insert((pid, block), Side::Cpu) == Some(Side::Gpu) {
                facts.bounces += 1;
            }
            self.places.insert((pid, address), Place::TakenBack);
            return;
        }
        facts.evicted_bytes += PAGE_BYTES;
        self.places.insert((pid, address), Place::Evicted);
        let left = self.left.entry(physical / BLOCK_BYTES).or_default();
        match left.iter_mut().find(|(whose, which, _)| (*whose, *which) == (pid, block)) {
            Some((_, _, bytes)) => *bytes += PAGE_BYTES,
            None => left.push((pid, block, PAGE_BYTES)),
        }
    }

    /// Whoever maps memory of a frame that others were evicted from has it now.
    fn take_frame(&mut self, pid: u32, address: u64, physical: u64, counts: &mut Counts) {
        let Entry::Occupied(left) = self.left.entry(physical / BLOCK_BYTES) else { return };
        let taken =
            left.remove().into_iter().filter(|(whose, block, _)| (*whose, *block) != (pid, address / BLOCK_BYTES));
        counts.entry(pid).or_default().evicted_for_it_bytes += taken.map(|(_, _, bytes)| bytes).sum::<u64>();
    }

    /// The CPU is about to use these blocks: one that the GPU used last comes to it by a fault.
    fn use_by_cpu(&mut self, pid: u32, address: u64, bytes: u64, counts: &mut Counts) {
        for block in address / BLOCK_BYTES..(address + bytes).div_ceil(BLOCK_BYTES) {
            if self.sides.insert((pid, block), Side::Cpu) == Some(Side::Gpu) {
                counts.entry(pid).or_default().bounces += 1;
            }
        }
    }

    fn is_on_cpu(&self, pid: u32, block: u64) -> bool {
        let covers = |(whose, address, bytes): &(u32, u64, u64)| {
            *whose == pid && (address / BLOCK_BYTES..(address + bytes).div_ceil(BLOCK_BYTES)).contains(&block)
        };
        self.on_cpu.iter().any(covers)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BASE: u64 = 0x200_0000_0000;
    const FRAME: u64 = BLOCK_BYTES;

    /// Seen so far, and what it came to.
    #[derive(Default)]
    struct Log {
        pages: Pages,
        counts: Counts,
    }

    impl Log {
        fn see(&mut self, event: u8, [from, to]: [u8; 2], pid: u32, va: u64, physical: u64, weight: u64) {
            let record = Record { weight, va, physical, pid, event, from, to, ..Record::default() };
            self.pages.see(&record, &mut self.counts).unwrap();
        }
        fn fetch(&mut self, pid: u32, va: u64, physical: u64, bytes: u64) {
            self.see(1, [HOST, LOCAL], 0, 0, physical, bytes);
            self.populate(pid, va, physical, bytes);
        }
        fn populate(&mut self, pid: u32, va: u64, physical: u64, bytes: u64) {
            self.see(2, [0, 0], pid, va, physical, bytes);
        }
        fn copy_out(&mut self, pid: u32, va: u64, physical: u64, bytes: u64) {
            self.see(1, [LOCAL, HOST], pid, va, physical, bytes);
        }
        fn cpu(&mut self, pid: u32, va: u64, bytes: u64, during: impl FnOnce(&mut Self)) {
            self.see(4, [0, 0], pid, va, 0, bytes);
            during(self);
            self.see(5, [0, 0], pid, va, 0, bytes);
        }
        fn of(&self, pid: u32) -> Facts {
            self.counts.get(&pid).copied().unwrap_or_default()
        }
    }

    #[test]
    fn what_is_mapped_after_a_copy_is_fetched_and_else_populated() {
        let mut log = Log::default();
        log.fetch(7, BASE, FRAME, 65536);
        log.populate(7, BASE + 65536, FRAME + 65536, 4096);
        log.populate(7, BASE, FRAME, 65536);
        let expected = Facts { fetched_bytes: 65536, populated_bytes: 4096, ..Facts::default() };
        assert_eq!(log.of(7), expected, "mapped again where it is, it did not arrive again");
    }

    #[test]
    fn a_page_that_was_evicted_is_refetched_and_its_frame_is_whose_that_maps_it_next() {
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
        assert_eq!(log.of(8), Facts { populated_bytes: 8192, evicted_for_it_bytes: 8192, ..Facts::default() });
    }

    #[test]
    fn a_process_evicts_itself_for_another_block_and_not_for_the_same() {
        let mut log = Log::default();
        log.populate(7, BASE, FRAME, 4096);
        log.copy_out(7, BASE, FRAME, 4096);
        log.fetch(7, BASE, FRAME, 4096);
        assert_eq!(log.of(7).evicted_for_it_bytes, 0);
        log.copy_out(7, BASE, FRAME, 4096);
        log.fetch(7, BASE + BLOCK_BYTES, FRAME, 4096);
        assert_eq!(log.of(7).evicted_for_it_bytes, 4096);
    }

    #[test]
    fn what_a_cpu_takes_back_returns_and_changes_sides_by_the_block() {
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
    fn sides_change_as_often_as_they_do_in_one_access_of_the_cpu() {
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
    fn only_the_blocks_that_its_own_cpu_uses_are_taken_back() {
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
    fn a_hand_over_from_the_cpu_is_one_change_of_sides() {
        let mut log = Log::default();
        log.cpu(7, BASE, 2 * BLOCK_BYTES, |_| ());
        log.fetch(7, BASE, FRAME, 4096);
        log.fetch(7, BASE + BLOCK_BYTES, 2 * FRAME, 4096);
        assert_eq!(log.of(7).bounces, 2, "one a block");
    }

    #[test]
    fn what_is_lost_is_known_to_be() {
        let mut log = Log::default();
        log.see(3, [0, 0], 0, 0, 0, 12);
        assert_eq!(log.pages.lost_events, 12);
    }
}
