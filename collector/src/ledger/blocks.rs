//! Where in one process's memory it happened, from block records.

use std::{collections::BTreeMap, time::SystemTime};

use abi::{BlockRecord, RecordKind, block::BLOCK_BYTES};
use model::{Block, GpuKey, Reuse};

use self::{
    busiest::Busiest,
    gpus::Gpus,
    seen::{GpuIndex, Seen},
    table::Table,
};
use super::Generation;

mod busiest;
mod gpus;
mod seen;
mod table;

/// The blocks of one process.
#[derive(Debug, Default)]
pub(super) struct BlockMap {
    table: Table,
    gpus: Gpus,
    busiest: Busiest,
    /// How many had to make room.
    forgotten: u64,
}

impl BlockMap {
    /// Takes a record into account; with more than `max` blocks, those not seen for longest are forgotten.
    pub(super) fn add(&mut self, record: &BlockRecord, max: usize) {
        let Some(kind) = RecordKind::from_index(record.kind.into()) else { return };
        let gpu = match record.gpu {
            0 => GpuIndex::NONE,
            id => self.gpus.index(record.generation, id),
        };
        let Some((seen, is_new)) = self.table.entry(record.address / BLOCK_BYTES, max) else { return };
        let reuse = seen.add(kind, record);
        if gpu != GpuIndex::NONE {
            seen.gpu = gpu;
        }
        // What a CPU's fault ends is its GPU's.
        self.gpus.reused(seen.gpu, &reuse);
        if self.busiest.consider(seen) {
            self.busiest.thin(&mut self.table);
        }
        if is_new && self.table.len() > max {
            self.forget(self.table.room());
        }
    }

    /// Forgets so many blocks, those that were not seen for longest.
    pub(super) fn forget(&mut self, too_many: usize) {
        let forgotten = &mut self.forgotten;
        self.table.forget(too_many, |_| *forgotten = forgotten.saturating_add(1));
        self.busiest.restart(&mut self.table);
    }

    /// How many there are.
    pub(super) const fn len(&self) -> usize {
        self.table.len()
    }

    /// A VA space is gone: which GPUs it meant is final.
    pub(super) fn settle(&mut self, generation: Generation, key: impl Fn(u32) -> GpuKey) {
        let moves = self.gpus.settle(generation, key);
        for seen in self.table.iter_mut() {
            seen.gpu = moves.of(seen.gpu);
        }
    }

    /// What came back to each GPU.
    pub(super) fn reuse(&self, key: impl Fn(Generation, u32) -> GpuKey) -> BTreeMap<GpuKey, Reuse> {
        self.gpus.reuse(key)
    }

    /// The busiest, and the numbers.
    pub(super) fn published(
        &self,
        key: impl Fn(Generation, u32) -> GpuKey,
        at: impl Fn(u64) -> SystemTime,
    ) -> model::Blocks {
        let busiest = self.busiest.published(&self.table);
        model::Blocks {
            busiest: busiest.map(|seen| block(seen, self.gpus.key(seen.gpu, &key), &at)).collect(),
            known: self.table.len() as u64,
            forgotten: self.forgotten,
            ..model::Blocks::default()
        }
    }
}

fn block(seen: &Seen, gpu: Option<GpuKey>, at: impl Fn(u64) -> SystemTime) -> Block {
    Block {
        address: seen.number * BLOCK_BYTES,
        gpu,
        fault_entries: seen.fault_entries.into(),
        cpu_faults: seen.cpu_faults.into(),
        bytes_htod: seen.htod_bytes(),
        bytes_dtoh: seen.dtoh_bytes(),
        bytes_dtod: seen.dtod.bytes(),
        populated_bytes: seen.populated.bytes(),
        evicted_bytes: seen.dtoh_eviction.bytes(),
        evictions: seen.evictions.into(),
        last_seen: at(seen.last_ns),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    const BLOCK: u64 = BLOCK_BYTES;

    fn record(kind: RecordKind, block: u64, events: u32, bytes: u32) -> BlockRecord {
        BlockRecord {
            boottime_ns: block,
            generation: 7,
            address: block * BLOCK,
            events,
            bytes,
            gpu: 1,
            kind: kind as u16,
            ..BlockRecord::default()
        }
    }

    fn published(map: &BlockMap) -> model::Blocks {
        map.published(|_, id| GpuKey::Pending(id), |ns| SystemTime::UNIX_EPOCH + Duration::from_nanos(ns))
    }

    #[test]
    fn what_happens_to_a_block_adds_up() {
        let mut map = BlockMap::default();
        for record in [
            record(RecordKind::GpuFaults, 3, 5, 0),
            record(RecordKind::CopyHtod, 3, 1, 65536),
            BlockRecord { cause: 4, ..record(RecordKind::CopyDtoh, 3, 1, 4096) },
            record(RecordKind::Evicted, 3, 1, 0),
            record(RecordKind::Populated, 3, 1, 8192),
            BlockRecord { gpu: 0, ..record(RecordKind::CpuFault, 3, 1, 0) },
        ] {
            map.add(&record, 10);
        }
        let model::Blocks { busiest, known, forgotten, .. } = published(&map);
        assert_eq!((known, forgotten), (1, 0));
        let [block] = &busiest[..] else { panic!("{busiest:?}") };
        assert_eq!((block.address, block.gpu), (3 * BLOCK, Some(GpuKey::Pending(1))));
        assert_eq!((block.fault_entries, block.cpu_faults, block.bytes_htod, block.bytes_dtoh), (5, 1, 65536, 4096));
        assert_eq!((block.evicted_bytes, block.evictions, block.populated_bytes), (4096, 1, 8192));
    }

    #[test]
    fn the_busiest_come_first_and_no_more_than_a_page_shows() {
        let mut map = BlockMap::default();
        for block in 0..100 {
            map.add(&record(RecordKind::GpuFaults, block, u32::try_from(block).unwrap(), 0), 1000);
        }
        let blocks = published(&map);
        let addresses: Vec<_> = blocks.busiest.iter().map(|block| block.address / BLOCK).collect();
        assert_eq!(addresses, (36..100).rev().collect::<Vec<_>>());
        assert_eq!(blocks.known, 100);
    }

    #[test]
    fn with_too_many_blocks_those_not_seen_for_longest_are_forgotten_and_that_is_counted() {
        let mut map = BlockMap::default();
        for block in 0..17 {
            map.add(&record(RecordKind::GpuFaults, block, 1, 0), 16);
        }
        let blocks = published(&map);
        assert_eq!((blocks.known, blocks.forgotten), (15, 2));
        assert!(blocks.busiest.iter().all(|block| block.address >= 2 * BLOCK));
    }

    #[test]
    fn of_blocks_seen_at_one_time_no_more_are_forgotten_than_needed() {
        let mut map = BlockMap::default();
        for block in 0..9 {
            map.add(&BlockRecord { boottime_ns: 5, ..record(RecordKind::GpuFaults, block, 1, 0) }, 8);
        }
        assert_eq!((published(&map).known, published(&map).forgotten), (8, 1));
    }

    #[test]
    fn the_gpu_of_a_block_stays_when_the_va_space_is_gone() {
        let mut map = BlockMap::default();
        map.add(&record(RecordKind::CopyHtod, 1, 1, 4096), 8);
        map.settle(8, GpuKey::Unknown);
        assert_eq!(published(&map).busiest[0].gpu, Some(GpuKey::Pending(1)));
        map.settle(7, GpuKey::Unknown);
        assert_eq!(published(&map).busiest[0].gpu, Some(GpuKey::Unknown(1)));
    }
}
