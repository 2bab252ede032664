//! Where in one process's memory it happened, from block records.

use std::{cmp::Reverse, collections::HashMap, time::SystemTime};

use abi::{BlockRecord, RecordKind, count::ASKED_BY_TOOL};
use model::{Block, GpuKey};

use super::{Generation, cause};

/// How many blocks are published.
const PUBLISHED_MAX: usize = 64;
/// The part of a map that makes room at once, so that looking for the oldest is rare.
const ROOM: usize = 8;

/// The blocks of one process.
#[derive(Debug, Default)]
pub(super) struct BlockMap {
    blocks: HashMap<u64, Seen>,
    /// How many had to make room.
    forgotten: u64,
}

/// What was seen of a block.
#[derive(Clone, Copy, Debug, Default)]
struct Seen {
    gpu: Option<Gpu>,
    fault_entries: u64,
    cpu_faults: u64,
    bytes_htod: u64,
    bytes_dtoh: u64,
    bytes_dtod: u64,
    populated_bytes: u64,
    evicted_bytes: u64,
    evictions: u64,
    last_boottime_ns: u64,
}

/// Which GPU it was.
#[derive(Clone, Copy, Debug)]
enum Gpu {
    /// The one that a living VA space knows by this id.
    Of(Generation, u32),
    Known(GpuKey),
}

impl BlockMap {
    /// Takes a record into account; with more than `max` blocks, those not seen for longest are forgotten.
    pub(super) fn add(&mut self, record: &BlockRecord, max: usize) {
        let Some(kind) = RecordKind::from_index(record.kind.into()) else { return };
        let seen = self.blocks.entry(record.address).or_default();
        let add = |counter: &mut u64, value: u64| *counter = counter.saturating_add(value);
        let is_eviction = cause(record.cause & !ASKED_BY_TOOL) == model::Cause::Eviction;
        match kind {
            RecordKind::GpuFaults => add(&mut seen.fault_entries, record.events.into()),
            RecordKind::CpuFault => add(&mut seen.cpu_faults, record.events.into()),
            RecordKind::CopyHtod => add(&mut seen.bytes_htod, record.bytes.into()),
            RecordKind::CopyDtoh => add(&mut seen.bytes_dtoh, record.bytes.into()),
            RecordKind::CopyDtod => add(&mut seen.bytes_dtod, record.bytes.into()),
            RecordKind::Populated => add(&mut seen.populated_bytes, record.bytes.into()),
            RecordKind::Evicted => add(&mut seen.evictions, record.events.into()),
            RecordKind::Residency | RecordKind::Gone => {}
        }
        if matches!(kind, RecordKind::CopyDtoh | RecordKind::CopyDtod) && is_eviction {
            add(&mut seen.evicted_bytes, record.bytes.into());
        }
        if record.gpu != 0 {
            seen.gpu = Some(Gpu::Of(record.generation, record.gpu));
        }
        seen.last_boottime_ns = seen.last_boottime_ns.max(record.boottime_ns);
        if self.blocks.len() > max {
            self.make_room();
        }
    }

    /// Forgets the part of the blocks that were not seen for longest.
    pub(super) fn make_room(&mut self) {
        let mut times: Vec<_> = self.blocks.values().map(|seen| seen.last_boottime_ns).collect();
        let too_many = (times.len() / ROOM).max(1).min(times.len());
        let Some(last) = too_many.checked_sub(1) else { return };
        let (_, oldest, _) = times.select_nth_unstable(last);
        let oldest = *oldest;
        let mut left = too_many;
        self.blocks.retain(|_, seen| {
            // Of several seen at one time, no more go than need to.
            let goes = left > 0 && seen.last_boottime_ns <= oldest;
            left -= usize::from(goes);
            !goes
        });
        self.forgotten = self.forgotten.saturating_add(too_many as u64);
    }

    /// How many there are.
    pub(super) fn len(&self) -> usize {
        self.blocks.len()
    }

    /// A VA space is gone: which GPUs it meant is final.
    pub(super) fn settle(&mut self, generation: Generation, key: impl Fn(u32) -> GpuKey) {
        for seen in self.blocks.values_mut() {
            if let Some(Gpu::Of(of, id)) = seen.gpu
                && of == generation
            {
                seen.gpu = Some(Gpu::Known(key(id)));
            }
        }
    }

    /// The busiest, and the numbers.
    pub(super) fn published(
        &self,
        key: impl Fn(Generation, u32) -> GpuKey,
        at: impl Fn(u64) -> SystemTime,
    ) -> model::Blocks {
        let mut order: Vec<_> =
            self.blocks.iter().map(|(address, seen)| (Reverse(seen.activity()), *address, seen)).collect();
        let by_activity = |entry: &(Reverse<u64>, u64, &Seen)| (entry.0, entry.1);
        if order.len() > PUBLISHED_MAX {
            order.select_nth_unstable_by_key(PUBLISHED_MAX, by_activity);
            order.truncate(PUBLISHED_MAX);
        }
        order.sort_unstable_by_key(by_activity);
        let busiest = order
            .into_iter()
            .map(|(_, address, seen)| Block {
                address,
                gpu: seen.gpu.map(|gpu| match gpu {
                    Gpu::Of(generation, id) => key(generation, id),
                    Gpu::Known(key) => key,
                }),
                fault_entries: seen.fault_entries,
                cpu_faults: seen.cpu_faults,
                bytes_htod: seen.bytes_htod,
                bytes_dtoh: seen.bytes_dtoh,
                bytes_dtod: seen.bytes_dtod,
                populated_bytes: seen.populated_bytes,
                evicted_bytes: seen.evicted_bytes,
                evictions: seen.evictions,
                last_seen: at(seen.last_boottime_ns),
            })
            .collect();
        model::Blocks {
            busiest,
            known: self.blocks.len() as u64,
            forgotten: self.forgotten,
            ..model::Blocks::default()
        }
    }
}

impl Seen {
    /// Pages faulted on, copied or populated.
    fn activity(&self) -> u64 {
        const PAGE_BYTES: u64 = 4096;
        let bytes = [self.bytes_htod, self.bytes_dtoh, self.bytes_dtod, self.populated_bytes];
        let pages = bytes.iter().fold(0_u64, |sum, bytes| sum.saturating_add(*bytes)) / PAGE_BYTES;
        pages.saturating_add(self.fault_entries).saturating_add(self.cpu_faults).saturating_add(self.evictions)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    const BLOCK: u64 = abi::block::BLOCK_BYTES;

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
        BlockMap::default().make_room();
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
