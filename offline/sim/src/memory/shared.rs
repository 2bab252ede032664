//! Frames that parts of blocks share.
//!
//! A block that ends with its allocation has less than 2 MiB, and no frame of its own: the driver
//! takes chunks of frames for it that have some left, or of a new one. A frame goes to the tail of
//! the eviction order when a chunk of it is taken, and is evicted as a whole.

use std::collections::{BTreeMap, BTreeSet};

use crate::units::{BLOCK_BYTES, GRANULE_BYTES, GRANULES_PER_BLOCK, Granules, Mask};

const PER_BLOCK: u64 = GRANULES_PER_BLOCK as u64;

/// Allocated bytes of the granules of a block.
pub type Parts = [u32; GRANULES_PER_BLOCK as usize];

/// Blocks that share frames, and these frames.
#[derive(Clone, Debug, Default)]
pub(super) struct Shared {
    blocks: BTreeMap<u64, Parts>,
    /// Frame of each granule on the GPU, by its number.
    frame_of: BTreeMap<u64, u64>,
    /// Frames by their numbers, the oldest first.
    frames: BTreeMap<u64, Frame>,
    last_frame: u64,
    /// Frames by their position in the eviction order.
    used: BTreeMap<u64, u64>,
}

#[derive(Clone, Debug, Default)]
struct Frame {
    granules: BTreeSet<u64>,
    taken_bytes: u64,
    position: u64,
}

impl Shared {
    pub(super) fn add(&mut self, block: u64, parts: Parts) {
        self.blocks.insert(block, parts);
    }

    pub(super) fn has(&self, block: u64) -> bool {
        self.blocks.contains_key(&block)
    }

    /// Allocated bytes of the granules of a block, if it shares frames.
    pub(super) fn parts(&self, block: u64) -> Option<&Parts> {
        self.blocks.get(&block)
    }

    /// Number of frames.
    pub(super) fn frames(&self) -> u64 {
        self.frames.len() as u64
    }

    /// Whether granules of a block need another frame to be on the GPU.
    pub(super) fn needs_frame(&self, block: u64, mask: Mask) -> bool {
        let new = granules(block, mask).filter(|granule| !self.frame_of.contains_key(granule));
        let mut free: Vec<u64> = self.frames.values().map(|frame| BLOCK_BYTES - frame.taken_bytes).collect();
        new.into_iter().any(|granule| {
            let bytes = self.bytes(granule);
            free.iter_mut().find(|free| **free >= bytes).map(|free| *free -= bytes).is_none()
        })
    }

    /// Takes chunks for granules of a block that came to the GPU, and gives back those of granules
    /// that left it. Positions are those behind `last_position`.
    pub(super) fn set(&mut self, block: u64, on_gpu: Mask, last_position: &mut u64) {
        for granule in granules(block, !on_gpu) {
            self.give_back(granule);
        }
        for granule in granules(block, on_gpu) {
            if !self.frame_of.contains_key(&granule) {
                self.take(granule, last_position);
            }
        }
    }

    fn take(&mut self, granule: u64, last_position: &mut u64) {
        let bytes = self.bytes(granule);
        let has_room = |frame: &Frame| frame.taken_bytes + bytes <= BLOCK_BYTES;
        let number = self.frames.iter().find(|(_, frame)| has_room(frame)).map(|(number, _)| *number);
        let number = number.unwrap_or_else(|| {
            self.last_frame += 1;
            self.last_frame
        });
        let frame = self.frames.entry(number).or_default();
        frame.granules.insert(granule);
        frame.taken_bytes += bytes;
        *last_position += 1;
        self.used.remove(&std::mem::replace(&mut frame.position, *last_position));
        self.used.insert(*last_position, number);
        self.frame_of.insert(granule, number);
    }

    fn give_back(&mut self, granule: u64) {
        let Some(number) = self.frame_of.remove(&granule) else { return };
        let bytes = self.bytes(granule);
        let Some(frame) = self.frames.get_mut(&number) else { return };
        frame.granules.remove(&granule);
        frame.taken_bytes -= bytes;
        if frame.granules.is_empty() {
            self.used.remove(&frame.position);
            self.frames.remove(&number);
        }
    }

    /// First frame in the eviction order without a protected block: its position, and its blocks
    /// with their granules in it.
    pub(super) fn victim(&self, is_protected: impl Fn(u64) -> bool) -> Option<(u64, BTreeMap<u64, Mask>)> {
        let frames = self.used.iter().filter_map(|(position, number)| Some((*position, self.frames.get(number)?)));
        let mut blocks = frames.map(|(position, frame)| {
            let mut blocks: BTreeMap<u64, Mask> = BTreeMap::new();
            for granule in &frame.granules {
                *blocks.entry(granule / PER_BLOCK).or_default() |= 1 << (granule % PER_BLOCK);
            }
            (position, blocks)
        });
        blocks.find(|(_, blocks)| !blocks.keys().any(|block| is_protected(*block)))
    }

    fn bytes(&self, granule: u64) -> u64 {
        let parts = self.blocks.get(&(granule / PER_BLOCK));
        let within = usize::try_from(granule % PER_BLOCK).unwrap_or_default();
        parts.and_then(|parts| parts.get(within)).map_or(GRANULE_BYTES, |bytes| u64::from(*bytes))
    }
}

/// Numbers of granules of a block.
fn granules(block: u64, mask: Mask) -> impl Iterator<Item = u64> {
    let first = block * PER_BLOCK;
    let range = Granules { first, end: first + PER_BLOCK };
    (range.first..range.end).filter(move |granule| mask >> (granule - first) & 1 == 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shared(blocks: u64, kib: u32) -> Shared {
        let mut shared = Shared::default();
        for block in 0..blocks {
            shared.add(block, [kib << 10; 32]);
        }
        shared
    }

    #[test]
    fn granules_fill_the_oldest_frame_with_room() {
        // Blocks of 1.5 MiB.
        let (mut shared, mut last) = (shared(3, 48), 0);
        shared.set(0, Mask::MAX, &mut last);
        assert_eq!((shared.frames(), shared.needs_frame(1, 0x3ff), shared.needs_frame(1, 0x7ff)), (1, false, true));
        shared.set(1, Mask::MAX, &mut last);
        shared.set(2, Mask::MAX, &mut last);
        assert_eq!(shared.frames(), 3);
        // The first frame has all of the first block and 10 granules of the second one.
        let (_, blocks) = shared.victim(|block| block == 2).unwrap();
        assert_eq!(blocks, BTreeMap::from([(0, Mask::MAX), (1, 0x3ff)]));
    }

    #[test]
    fn a_frame_of_which_a_chunk_is_taken_goes_to_the_tail_and_an_empty_one_is_free() {
        let (mut shared, mut last) = (shared(4, 64), 0);
        shared.set(0, 0xffff, &mut last);
        shared.set(1, Mask::MAX, &mut last);
        shared.set(2, 0xff, &mut last);
        // The second half of block 1 is in the second frame, with the part of block 2.
        let first = |shared: &Shared| shared.victim(|_| false).map(|(_, blocks)| blocks).unwrap();
        assert_eq!(first(&shared), BTreeMap::from([(0, 0xffff), (1, 0xffff)]));
        shared.set(0, 0, &mut last);
        shared.set(3, 1, &mut last);
        assert_eq!(first(&shared), BTreeMap::from([(1, 0xffff_0000), (2, 0xff)]));
        for block in [1, 2] {
            shared.set(block, 0, &mut last);
        }
        assert_eq!((shared.frames(), first(&shared)), (1, BTreeMap::from([(3, 1)])));
    }
}
