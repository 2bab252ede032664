//! Blocks and ranges of processes, as the acting loop reads them.
//!
//! A process can have 131,072 blocks at the cost of a fault for each. Building and scanning them takes time of the
//! collector's thread and of the loop's. So reads are charged to the user by the number of blocks: beyond its share,
//! the loop uses what it has read last, for a while. The number of retained blocks is limited, too.

use std::{collections::BTreeMap, time::Duration};

use model::{Memory, ProcessId};
use sys::cpu_budget::{Accounts, Allowance};

/// Processor time for reading a user's memory.
const READS: Allowance = Allowance { part: 10, burst: Duration::from_secs(1), credit_part: None };
/// Processor time of a block or a range: measured, 60 to 270 ns for what is built, sorted and scanned once.
const ENTRY_COST: Duration = Duration::from_nanos(200);
/// Age at which memory that was read is unknown again.
const AGE_MAX: Duration = Duration::from_secs(5);
/// Blocks and ranges of all processes, some 250 bytes each.
const ENTRIES_MAX: usize = 1 << 19;
/// The same of a user's processes.
const USER_ENTRIES_MAX: usize = ENTRIES_MAX / 2;

/// Memory of processes, as last read.
#[derive(Debug)]
pub(super) struct Memories {
    of: BTreeMap<ProcessId, Memory>,
    read: BTreeMap<ProcessId, LastRead>,
    accounts: Accounts,
    refused: Vec<ProcessId>,
}

#[derive(Clone, Copy, Debug)]
struct LastRead {
    at: Duration,
    uid: u32,
    entries: usize,
}

impl Memories {
    pub(super) const fn new() -> Self {
        Self { of: BTreeMap::new(), read: BTreeMap::new(), accounts: Accounts::new(READS), refused: Vec::new() }
    }

    /// Processes whose memory is unknown, as a limit is reached.
    pub(super) fn refused(&self) -> &[ProcessId] {
        &self.refused
    }

    /// Memory by process.
    pub(super) const fn all(&self) -> &BTreeMap<ProcessId, Memory> {
        &self.of
    }

    /// Reads the memory of these processes, with their users, where that is permitted, and forgets that of others.
    /// `None` if `read` returns `None`, as there is no reader any more.
    pub(super) fn update(
        &mut self,
        processes: &[(ProcessId, u32)],
        now: Duration,
        mut read: impl FnMut(ProcessId) -> Option<Option<Memory>>,
    ) -> Option<()> {
        let is_wanted: BTreeMap<ProcessId, u32> = processes.iter().copied().collect();
        self.forget(|process, last| is_wanted.contains_key(process) && now.saturating_sub(last.at) < AGE_MAX);
        self.refused.clear();
        for (process, uid) in is_wanted {
            if self.accounts.is_over(uid, now) {
                if !self.of.contains_key(&process) {
                    self.refused.push(process);
                }
                continue;
            }
            let memory = read(process)?;
            self.forget(|other, _| *other != process);
            let Some(memory) = memory else { continue };
            let entries = memory.blocks.len().saturating_add(memory.ranges.len());
            self.accounts.charge(uid, ENTRY_COST.saturating_mul(u32::try_from(entries).unwrap_or(u32::MAX)), now);
            if entries.saturating_add(self.entries(|_| true)) <= ENTRIES_MAX
                && entries.saturating_add(self.entries(|last| last.uid == uid)) <= USER_ENTRIES_MAX
            {
                self.of.insert(process, memory);
                self.read.insert(process, LastRead { at: now, uid, entries });
            } else {
                self.refused.push(process);
            }
        }
        Some(())
    }

    fn forget(&mut self, is_retained: impl Fn(&ProcessId, &LastRead) -> bool) {
        self.read.retain(|process, last| is_retained(process, last));
        self.of.retain(|process, _| self.read.contains_key(process));
    }

    fn entries(&self, is_counted: impl Fn(&LastRead) -> bool) -> usize {
        self.read.values().filter(|last| is_counted(last)).map(|last| last.entries).sum()
    }
}

#[cfg(test)]
mod tests {
    use std::time::SystemTime;

    use model::Block;

    use super::*;

    const MS: Duration = Duration::from_millis(1);

    fn process(pid: u32) -> ProcessId {
        ProcessId { pid, start_ticks: 1 }
    }

    fn memory(blocks: usize) -> Memory {
        let block = Block::new(0, SystemTime::UNIX_EPOCH);
        Memory { blocks: vec![block; blocks], ranges: Vec::new() }
    }

    #[test]
    fn memory_is_read_at_each_pass_and_forgotten_with_its_process() {
        let mut memories = Memories::new();
        for (pass, blocks) in [1, 2, 3].into_iter().enumerate() {
            let now = MS * 100 * u32::try_from(pass).unwrap();
            memories.update(&[(process(1), 1000)], now, |_| Some(Some(memory(blocks)))).unwrap();
            assert_eq!(memories.all()[&process(1)].blocks.len(), blocks);
        }
        memories.update(&[], MS * 300, |_| Some(None)).unwrap();
        assert!(memories.all().is_empty());
        assert!(memories.update(&[(process(1), 1000)], MS, |_| None).is_none(), "the collector has ended");
    }

    #[test]
    fn user_has_a_tenth_of_a_processor_and_its_last_memory_beyond_it() {
        let (mut memories, mut reads) = (Memories::new(), [0, 0]);
        for pass in 0..1000 {
            let read = |process: ProcessId| {
                reads[usize::from(process.pid == 2)] += 1;
                Some(Some(memory(if process.pid == 1 { 1 << 17 } else { 1 })))
            };
            memories.update(&[(process(1), 1000), (process(2), 1001)], MS * 100 * pass, read).unwrap();
            assert_eq!(memories.all().len(), 2, "in pass {pass}");
        }
        // 100 s, and the burst, at 26 ms a read.
        assert!((380..=460).contains(&reads[0]), "{reads:?}");
        assert_eq!(reads[1], 1000);
    }

    #[test]
    fn retained_blocks_of_a_user_are_limited() {
        let mut memories = Memories::new();
        let processes: Vec<_> = (1..=4).map(|pid| (process(pid), if pid == 4 { 1001 } else { 1000 })).collect();
        memories.update(&processes, MS, |_| Some(Some(memory(1 << 17)))).unwrap();
        assert_eq!(memories.all().keys().map(|process| process.pid).collect::<Vec<_>>(), [1, 2, 4]);
        assert_eq!(memories.refused(), [process(3)]);
    }
}
