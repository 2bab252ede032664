//! Where in a process's memory it happened, all of it.

use std::{collections::BTreeMap, time::SystemTime};

use crate::{Block, GpuKey, Range, block::BLOCK_BYTES};

/// Memory of one process: its ranges, blocks and residency.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Memory {
    /// By address.
    pub blocks: Vec<Block>,
    /// By address.
    pub ranges: Vec<Range>,
    /// Sums over the blocks at each GPU: a process can have 131,072 of them, and others ask for the sums.
    pub gpus: BTreeMap<GpuKey, BlockSums>,
}

/// Sums over the blocks of a process at one GPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockSums {
    /// Size of the blocks in which anything has arrived.
    pub used_bytes: u64,
    /// Resident bytes of the blocks to which memory has returned after an eviction.
    pub refetched_resident_bytes: u64,
    /// Time of the last activity in any block.
    pub last_seen_at: SystemTime,
}

impl Memory {
    /// Memory of these blocks and ranges, both by address.
    #[must_use]
    pub fn new(blocks: Vec<Block>, ranges: Vec<Range>) -> Self {
        let mut gpus: BTreeMap<GpuKey, BlockSums> = BTreeMap::new();
        for block in &blocks {
            let Some(gpu) = block.gpu else { continue };
            let none = BlockSums { used_bytes: 0, refetched_resident_bytes: 0, last_seen_at: block.last_seen_at };
            let sums = gpus.entry(gpu).or_insert(none);
            if block.is_used() {
                sums.used_bytes = sums.used_bytes.saturating_add(BLOCK_BYTES);
            }
            if block.refetched_bytes > 0 {
                sums.refetched_resident_bytes = sums.refetched_resident_bytes.saturating_add(block.resident.bytes);
            }
            sums.last_seen_at = sums.last_seen_at.max(block.last_seen_at);
        }
        Self { blocks, ranges, gpus }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::{GpuUuid, Residency};

    #[test]
    fn sums_are_those_of_the_blocks_at_each_gpu() {
        let gpu = |byte| Some(GpuKey::Known(GpuUuid([byte; 16])));
        let at = |seconds| SystemTime::UNIX_EPOCH + Duration::from_secs(seconds);
        let block = |number: u64, gpu| Block { gpu, ..Block::new(number * BLOCK_BYTES, at(number)) };
        let resident = Residency::exactly(4096);
        let blocks = vec![
            Block { bytes_htod: 1, refetched_bytes: 1, resident, ..block(7, gpu(1)) },
            Block { populated_bytes: 1, resident, ..block(8, gpu(1)) },
            block(9, gpu(2)),
            block(10, None),
        ];
        let memory = Memory::new(blocks, Vec::new());
        let sums = |used_blocks, refetched_resident_bytes, seconds| BlockSums {
            used_bytes: used_blocks * BLOCK_BYTES,
            refetched_resident_bytes,
            last_seen_at: at(seconds),
        };
        let expected = [(gpu(1).unwrap(), sums(2, 4096, 8)), (gpu(2).unwrap(), sums(0, 0, 9))];
        assert_eq!(memory.gpus, BTreeMap::from(expected));
    }
}
