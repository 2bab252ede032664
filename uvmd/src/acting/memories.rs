//! Blocks and ranges of processes, as the acting loop reads them.
//!
//! A process can have 131,072 blocks at the cost of a fault for each. Building them takes time of the collector's
//! thread, and evaluating them takes time of the loop's, at each GPU of the process. So reads are charged to the user
//! by the number of blocks and GPUs. Beyond its share, its processes are deferred: the loop evaluates them when it has
//! read them again. The number of retained blocks is limited, too.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use model::{Memory, ProcessId};
use sys::cpu_budget::{Accounts, Allowance};

/// Processor time for reading a user's memory.
const READS: Allowance = Allowance { part: 10, burst: Duration::from_secs(1), credit_part: None };
/// Processor time of a block or a range that is built and sorted, roughly.
const ENTRY_COST: Duration = Duration::from_nanos(50);
/// The same of its evaluation at a GPU: docs/measurements/policies.md has 158 ns for a block.
const EVALUATION_COST: Duration = Duration::from_nanos(150);
/// The same of a read: a request to the collector's thread.
const READ_COST: Duration = Duration::from_micros(50);
/// Age at which memory that was read is unknown again. A user's share suffices to read [`USER_ENTRIES_MAX`] entries
/// at 24 GPUs every 10 s.
const AGE_MAX: Duration = Duration::from_secs(20);
/// Blocks and ranges of all processes, some 250 bytes each.
const ENTRIES_MAX: usize = 1 << 19;
/// The same of a user's processes.
const USER_ENTRIES_MAX: usize = ENTRIES_MAX / 2;

/// Memory of processes, as last read.
#[derive(Debug)]
pub(super) struct Memories {
    of: BTreeMap<ProcessId, Memory>,
    read: BTreeMap<ProcessId, LastRead>,
    /// Time of the last attempt to read each process, also where its memory was not retained.
    tried: BTreeMap<ProcessId, Duration>,
    /// Retained entries of each user, and in all.
    entries: BTreeMap<u32, usize>,
    entries_of_all: usize,
    accounts: Accounts,
    refused: Vec<ProcessId>,
    deferred: BTreeSet<ProcessId>,
}

/// Process whose memory the loop evaluates.
#[derive(Clone, Copy, Debug)]
pub(super) struct Wanted {
    pub(super) process: ProcessId,
    pub(super) uid: u32,
    /// Number of its GPUs.
    pub(super) gpus: usize,
    /// Whether it has a directive. The others are victims or evictors of those.
    pub(super) is_directed: bool,
}

#[derive(Clone, Copy, Debug)]
struct LastRead {
    at: Duration,
    uid: u32,
    entries: usize,
}

impl Memories {
    pub(super) const fn new() -> Self {
        Self {
            of: BTreeMap::new(),
            read: BTreeMap::new(),
            tried: BTreeMap::new(),
            entries: BTreeMap::new(),
            entries_of_all: 0,
            accounts: Accounts::new(READS),
            refused: Vec::new(),
            deferred: BTreeSet::new(),
        }
    }

    /// Processes that are not evaluated in this interval: their memory is that of an earlier one.
    pub(super) const fn deferred(&self) -> &BTreeSet<ProcessId> {
        &self.deferred
    }

    /// Processes whose memory is unknown, as a limit is reached.
    pub(super) fn refused(&self) -> &[ProcessId] {
        &self.refused
    }

    /// Memory by process.
    pub(super) const fn all(&self) -> &BTreeMap<ProcessId, Memory> {
        &self.of
    }

    /// Reads the memory of these processes, directed ones first, and of them those tried longest ago, as far as that is
    /// permitted, and forgets that of others. `None` if `read` returns `None`, as the collector has ended.
    pub(super) fn update(
        &mut self,
        processes: &[Wanted],
        now: Duration,
        mut read: impl FnMut(ProcessId) -> Option<Option<Memory>>,
    ) -> Option<()> {
        let is_wanted: BTreeSet<ProcessId> = processes.iter().map(|wanted| wanted.process).collect();
        let is_old = |last: &LastRead| now.saturating_sub(last.at) >= AGE_MAX;
        let gone = self.read.iter().filter(|(process, last)| !is_wanted.contains(process) || is_old(last));
        for process in gone.map(|(process, _)| *process).collect::<Vec<_>>() {
            self.forget(process);
        }
        self.tried.retain(|process, _| is_wanted.contains(process));
        self.refused.clear();
        self.deferred.clear();
        let mut processes = processes.to_vec();
        processes.sort_by_cached_key(|wanted| (!wanted.is_directed, self.tried.get(&wanted.process).copied()));
        for Wanted { process, uid, gpus, .. } in processes {
            if self.accounts.is_over(uid, now) {
                if self.of.contains_key(&process) {
                    self.deferred.insert(process);
                } else {
                    self.refused.push(process);
                }
                continue;
            }
            self.forget(process);
            self.tried.insert(process, now);
            let memory = read(process)?;
            let entries = memory.as_ref().map_or(0, |memory| memory.blocks.len().saturating_add(memory.ranges.len()));
            let [entries_u32, gpus] = [entries, gpus].map(|count| u32::try_from(count).unwrap_or(u32::MAX));
            let each = ENTRY_COST.saturating_add(EVALUATION_COST.saturating_mul(gpus.max(1)));
            self.accounts.charge(uid, READ_COST.saturating_add(each.saturating_mul(entries_u32)), now);
            if let Some(memory) = memory {
                self.retain(process, memory, LastRead { at: now, uid, entries });
            }
        }
        Some(())
    }

    fn retain(&mut self, process: ProcessId, memory: Memory, last: LastRead) {
        let of_user = self.entries.get(&last.uid).copied().unwrap_or_default();
        if last.entries.saturating_add(of_user) > USER_ENTRIES_MAX
            || last.entries.saturating_add(self.entries_of_all) > ENTRIES_MAX
        {
            self.refused.push(process);
            return;
        }
        self.entries.insert(last.uid, last.entries.saturating_add(of_user));
        self.entries_of_all = self.entries_of_all.saturating_add(last.entries);
        self.of.insert(process, memory);
        self.read.insert(process, last);
    }

    fn forget(&mut self, process: ProcessId) {
        self.of.remove(&process);
        let Some(last) = self.read.remove(&process) else { return };
        self.entries_of_all = self.entries_of_all.saturating_sub(last.entries);
        if let Some(of_user) = self.entries.get_mut(&last.uid) {
            *of_user = of_user.saturating_sub(last.entries);
            if *of_user == 0 {
                self.entries.remove(&last.uid);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::SystemTime;

    use model::Block;

    use super::*;

    const MS: Duration = Duration::from_millis(1);

    const fn process(pid: u32) -> ProcessId {
        ProcessId { pid, start_ticks: 1 }
    }

    const fn wanted(pid: u32, uid: u32) -> Wanted {
        Wanted { process: process(pid), uid, gpus: 1, is_directed: true }
    }

    fn memory(blocks: usize) -> Memory {
        let block = Block::new(0, SystemTime::UNIX_EPOCH);
        Memory::new(vec![block; blocks], Vec::new())
    }

    #[test]
    fn memory_is_read_at_each_pass_and_forgotten_with_its_process() {
        let mut memories = Memories::new();
        for (pass, blocks) in [1, 2, 3].into_iter().enumerate() {
            let now = MS * 100 * u32::try_from(pass).unwrap();
            memories.update(&[wanted(1, 1000)], now, |_| Some(Some(memory(blocks)))).unwrap();
            assert_eq!(memories.all()[&process(1)].blocks.len(), blocks);
        }
        memories.update(&[], MS * 300, |_| Some(None)).unwrap();
        assert!(memories.all().is_empty());
        assert!(memories.update(&[wanted(1, 1000)], MS, |_| None).is_none(), "the collector has ended");
    }

    #[test]
    fn user_has_a_tenth_of_a_processor_and_its_last_memory_beyond_it() {
        let (mut memories, mut reads, mut deferred) = (Memories::new(), [0, 0], [0, 0]);
        for pass in 0..1000 {
            let read = |process: ProcessId| {
                reads[usize::from(process.pid == 2)] += 1;
                Some(Some(memory(if process.pid == 1 { 1 << 17 } else { 1 })))
            };
            memories.update(&[wanted(1, 1000), wanted(2, 1001)], MS * 100 * pass, read).unwrap();
            assert_eq!(memories.all().len(), 2, "in pass {pass}");
            deferred[0] += usize::from(memories.deferred().contains(&process(1)));
            deferred[1] += usize::from(memories.deferred().contains(&process(2)));
        }
        // 100 s, and the burst, at 26 ms a read.
        assert!((380..=460).contains(&reads[0]), "{reads:?}");
        assert_eq!(reads[1], 1000);
        assert_eq!(deferred, [1000 - reads[0], 0], "it is evaluated as often as it is read");
    }

    #[test]
    fn evaluation_at_each_gpu_is_charged() {
        let reads_of = |gpus| {
            let (mut memories, mut reads) = (Memories::new(), 0);
            for pass in 0..1000 {
                let read = |_| {
                    reads += 1;
                    Some(Some(memory(1 << 15)))
                };
                memories.update(&[Wanted { gpus, ..wanted(1, 1000) }], MS * 100 * pass, read).unwrap();
            }
            reads
        };
        // 7 ms each, of 10 ms an interval.
        assert_eq!(reads_of(1), 1000);
        // 41 ms each.
        assert!((240..=280).contains(&reads_of(8)), "{}", reads_of(8));
    }

    #[test]
    fn reads_of_many_small_processes_are_charged_too() {
        let (mut memories, mut reads) = (Memories::new(), 0);
        let processes: Vec<_> = (1..=3583).map(|pid| wanted(pid, 1000)).collect();
        for pass in 0..100 {
            let read = |_| {
                reads += 1;
                Some(Some(memory(1)))
            };
            memories.update(&processes, MS * 100 * pass, read).unwrap();
        }
        // A tenth of 10 s, and the burst, at 50 us a read.
        assert!((35_000..=45_000).contains(&reads), "{reads}");
    }

    #[test]
    fn retained_blocks_of_a_user_are_limited() {
        let mut memories = Memories::new();
        let processes: Vec<_> = (1..=4).map(|pid| wanted(pid, if pid == 4 { 1001 } else { 1000 })).collect();
        memories.update(&processes, MS, |_| Some(Some(memory(1 << 17)))).unwrap();
        assert_eq!(memories.all().keys().map(|process| process.pid).collect::<Vec<_>>(), [1, 2, 4]);
        assert_eq!(memories.refused(), [process(3)]);
        memories.update(&processes[2..], MS * 100, |_| Some(Some(memory(1 << 17)))).unwrap();
        assert_eq!(memories.all().keys().map(|process| process.pid).collect::<Vec<_>>(), [3, 4]);
    }

    #[test]
    fn no_process_is_refused_for_good_within_the_limit_of_its_user() {
        let mut memories = Memories::new();
        let processes: Vec<_> = (1..=32).map(|pid| Wanted { gpus: 24, ..wanted(pid, 1000) }).collect();
        let blocks = USER_ENTRIES_MAX / processes.len();
        for pass in 0..600 {
            memories.update(&processes, MS * 100 * pass, |_| Some(Some(memory(blocks)))).unwrap();
            let is_warm = pass >= 200;
            assert!(!is_warm || memories.refused().is_empty(), "in pass {pass}: {:?}", memories.refused());
        }
        assert_eq!(memories.all().len(), processes.len());
    }

    #[test]
    fn process_whose_memory_is_too_large_takes_turns_with_the_others() {
        let (mut memories, mut reads) = (Memories::new(), [0_u32; 4]);
        let processes: Vec<_> = (0..4).map(|pid| wanted(pid, 1000)).collect();
        for pass in 0..200 {
            let read = |process: ProcessId| {
                reads[usize::try_from(process.pid).unwrap()] += 1;
                Some(Some(memory(if process.pid == 3 { USER_ENTRIES_MAX + 1 } else { 1 << 14 })))
            };
            memories.update(&processes, MS * 100 * pass, read).unwrap();
            assert_eq!(memories.all().len(), 3, "in pass {pass}: {:?}", memories.refused());
        }
        let [first, .., too_large] = reads;
        assert!(first.abs_diff(too_large) <= 1 && too_large > 20, "{reads:?}");
    }
}
