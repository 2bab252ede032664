//! Residency of all blocks, as runs of blocks in the same state, and the driver's eviction order.
//!
//! Addresses that were never populated take no memory. Blocks that became resident one after the
//! other are one entry; so are blocks off the GPU.

mod place;
mod placed;
mod shared;

use std::collections::BTreeMap;

pub use place::Place;
pub(crate) use placed::Placed;
pub use shared::Parts;
use shared::Shared;

use crate::{
    mask::{BlockMask, PageMask},
    units::{GRANULES_PER_BLOCK, Granules, Mask},
};

/// Run of blocks in the same state. On the GPU, their positions in the eviction order are
/// consecutive.
#[derive(Clone, Copy, Debug)]
struct Extent {
    blocks: u64,
    place: Place,
    /// Position of the first block in the eviction order, if on the GPU; 0 otherwise.
    position: u64,
}

impl Extent {
    fn position_after(&self, blocks: u64) -> u64 {
        if self.place.gpu == 0 { 0 } else { self.position + blocks }
    }
}

/// Memory of a process: all its blocks.
#[derive(Clone, Debug, Default)]
pub struct Memory {
    /// Extents by their first block.
    extents: BTreeMap<u64, Extent>,
    /// The driver's list of used memory: the first block of each extent on the GPU, by position.
    /// The head is evicted first.
    used: BTreeMap<u64, u64>,
    last_position: u64,
    resident_blocks: u64,
    host_granules: u64,
    /// Residency by pages of blocks with a split granule. Only thrashing and moves of less than a
    /// granule split one; the fields above count them by granules.
    split: BTreeMap<u64, Place<PageMask>>,
    /// Blocks without a frame of their own.
    shared: Shared,
}

impl Memory {
    /// Has a block share frames with others of its kind, by the allocated bytes of its granules.
    pub fn share_frames(&mut self, block: u64, parts: Parts) {
        self.shared.add(block, parts);
    }

    /// Allocated bytes of the granules of a block that shares frames.
    #[must_use]
    pub fn parts(&self, block: u64) -> Option<&Parts> {
        self.shared.parts(block)
    }

    /// Blocks with any part on the GPU that have a frame of their own.
    #[must_use]
    pub fn resident_blocks(&self) -> u64 {
        self.resident_blocks
    }

    /// Frames in use.
    #[must_use]
    pub fn frames(&self) -> u64 {
        self.resident_blocks + self.shared.frames()
    }

    /// Whether a part of a block needs another frame to be on the GPU.
    #[must_use]
    pub fn needs_frame(&self, block: u64, mask: Mask) -> bool {
        if self.shared.has(block) { self.shared.needs_frame(block, mask) } else { self.place(block).gpu == 0 }
    }

    /// Blocks with any part on the GPU, with these parts.
    pub(crate) fn on_gpu(&self) -> impl Iterator<Item = (u64, Mask)> {
        let extents = self.extents.iter().filter(|(_, extent)| extent.place.gpu != 0);
        extents.flat_map(|(first, extent)| (*first..first + extent.blocks).map(|block| (block, extent.place.gpu)))
    }

    /// Granules in host memory.
    #[must_use]
    pub fn host_granules(&self) -> u64 {
        self.host_granules
    }

    /// Number of extents: the model's own memory.
    #[must_use]
    pub fn extents(&self) -> usize {
        self.extents.len()
    }

    /// Residency of a block.
    #[must_use]
    pub fn place(&self, block: u64) -> Place {
        self.covering(block).map_or(Place::default(), |(_, extent)| extent.place)
    }

    /// Whether the block has a split granule.
    pub(crate) fn is_split(&self, block: u64) -> bool {
        self.split.contains_key(&block)
    }

    /// Residency of a block, by pages.
    pub(crate) fn pages(&self, block: u64) -> Place<PageMask> {
        self.split.get(&block).copied().unwrap_or_else(|| self.place(block).map(PageMask::of_granules))
    }

    /// Sets the residency of a block by pages.
    pub(crate) fn put_pages(&mut self, block: u64, pages: Place<PageMask>) {
        let gained = !(pages.gpu & !self.pages(block).gpu).is_empty();
        let place = pages.by_granules();
        self.set(block, place, |_| gained);
        if place.map(PageMask::of_granules) != pages {
            self.split.insert(block, pages);
        }
    }

    /// Moves a block on the GPU to the end of the eviction order.
    pub(crate) fn touch(&mut self, block: u64) {
        let split = self.split.get(&block).copied();
        self.set(block, self.place(block), |_| true);
        self.split.extend(split.map(|pages| (block, pages)));
    }

    /// First granule of a range that is not on the GPU.
    #[must_use]
    pub fn first_missing(&self, range: Granules) -> Option<u64> {
        let per_block = u64::from(GRANULES_PER_BLOCK);
        let mut at = range.first;
        while at < range.end {
            let block = at / per_block;
            let Some((first, extent)) = self.covering(block) else { return Some(at) };
            if extent.place.gpu == Mask::MAX {
                at = (first + extent.blocks) * per_block;
                continue;
            }
            let missing = !extent.place.gpu & Granules { first: at, end: range.end }.within(block);
            if missing != 0 {
                return Some(block * per_block + u64::from(missing.trailing_zeros()));
            }
            at = (block + 1) * per_block;
        }
        None
    }

    /// Parts of a range that are in no memory.
    pub(crate) fn unpopulated(&self, range: Granules) -> Vec<Granules> {
        let mut parts: Vec<Granules> = Vec::new();
        let per_block = u64::from(GRANULES_PER_BLOCK);
        for (block, within) in range.blocks() {
            let absent = within & !self.place(block).populated();
            for granule in (0..per_block).filter(|granule| absent >> granule & 1 == 1) {
                let first = block * per_block + granule;
                match parts.last_mut() {
                    Some(last) if last.end == first => last.end += 1,
                    _ => parts.push(Granules { first, end: first + 1 }),
                }
            }
        }
        parts
    }

    /// Sets the residency of a block. If granules became resident, the block goes to the tail of
    /// the driver's list; otherwise its position stays.
    pub fn put(&mut self, block: u64, place: Place) {
        self.set(block, place, |old| place.gpu & !old.gpu != 0);
    }

    fn set(&mut self, block: u64, place: Place, gains: impl FnOnce(Place) -> bool) {
        self.split.remove(&block);
        self.cut(block);
        self.cut(block + 1);
        let old = self.remove(block);
        if self.shared.has(block) {
            self.shared.set(block, place.gpu, &mut self.last_position);
        }
        let position = match old {
            _ if place.gpu == 0 => 0,
            Some(old) if !gains(old.place) => old.position,
            _ => {
                self.last_position += 1;
                self.last_position
            }
        };
        if place.populated() != 0 {
            self.insert(block, Extent { blocks: 1, place, position });
            self.join(block);
            self.join(block + 1);
        }
    }

    /// Discards the contents of a range.
    pub fn discard(&mut self, range: Granules) {
        let per_block = u64::from(GRANULES_PER_BLOCK);
        let (whole_first, whole_end) = (range.first.div_ceil(per_block), range.end / per_block);
        if whole_first < whole_end {
            self.split.retain(|block, _| !(whole_first..whole_end).contains(block));
            self.cut(whole_first);
            self.cut(whole_end);
            let inside: Vec<_> = self.extents.range(whole_first..whole_end).map(|(&block, _)| block).collect();
            for block in inside {
                self.remove(block);
                if self.shared.has(block) {
                    self.shared.set(block, 0, &mut self.last_position);
                }
            }
        }
        for (block, mask) in range.blocks().filter(|&(_, mask)| mask != Mask::MAX) {
            let place = self.place(block);
            if place.populated() & mask != 0 {
                self.put(block, place.without(mask));
            }
        }
    }

    /// Blocks of the first frame in the eviction order without a protected one, with their
    /// granules in it.
    #[must_use]
    pub fn victims(&self, is_protected: impl Fn(u64) -> bool) -> Option<BTreeMap<u64, Mask>> {
        let own = self.used.iter().find_map(|(position, first)| {
            let extent = self.extents.get(first)?;
            let block = (*first..first + extent.blocks).find(|&block| !is_protected(block))?;
            Some((position + (block - first), BTreeMap::from([(block, extent.place.gpu)])))
        });
        let frames = [own, self.shared.victim(is_protected)];
        frames.into_iter().flatten().min_by_key(|(position, _)| *position).map(|(_, blocks)| blocks)
    }

    fn covering(&self, block: u64) -> Option<(u64, &Extent)> {
        let (&first, extent) = self.extents.range(..=block).next_back()?;
        (block < first + extent.blocks).then_some((first, extent))
    }

    /// Splits the extent that contains a block, so that one begins there.
    fn cut(&mut self, block: u64) {
        let Some((first, &extent)) = self.covering(block) else { return };
        if first == block {
            return;
        }
        self.remove(first);
        let before = block - first;
        self.insert(first, Extent { blocks: before, ..extent });
        self.insert(
            block,
            Extent { blocks: extent.blocks - before, position: extent.position_after(before), ..extent },
        );
    }

    /// Joins the extent that begins at a block with the one before, if both are alike.
    fn join(&mut self, block: u64) {
        let Some(&after) = self.extents.get(&block) else { return };
        let Some((&first, &before)) = self.extents.range(..block).next_back() else { return };
        if self.shared.has(first) || self.shared.has(block) {
            return;
        }
        let is_continuation = before.place == after.place && before.position_after(before.blocks) == after.position;
        if first + before.blocks == block && is_continuation {
            self.remove(first);
            self.remove(block);
            self.insert(first, Extent { blocks: before.blocks + after.blocks, ..before });
        }
    }

    fn insert(&mut self, block: u64, extent: Extent) {
        if extent.place.gpu != 0 && !self.shared.has(block) {
            self.used.insert(extent.position, block);
            self.resident_blocks += extent.blocks;
        }
        self.host_granules += extent.blocks * u64::from(extent.place.host.count_ones());
        self.extents.insert(block, extent);
    }

    fn remove(&mut self, block: u64) -> Option<Extent> {
        let extent = self.extents.remove(&block)?;
        if extent.place.gpu != 0 && !self.shared.has(block) {
            self.used.remove(&extent.position);
            self.resident_blocks -= extent.blocks;
        }
        self.host_granules -= extent.blocks * u64::from(extent.place.host.count_ones());
        Some(extent)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ON_GPU: Place = Place { gpu: Mask::MAX, host: 0, flash: 0, cpu_mapped: 0 };
    const ON_HOST: Place = Place { gpu: 0, host: Mask::MAX, flash: 0, cpu_mapped: 0 };

    fn victim(memory: &Memory, is_protected: impl Fn(u64) -> bool) -> Option<u64> {
        memory.victims(is_protected)?.into_keys().next()
    }

    fn unprotected(_: u64) -> bool {
        false
    }

    #[test]
    fn blocks_that_come_in_a_row_are_one_extent_however_many() {
        let mut memory = Memory::default();
        for block in 0..10_000 {
            memory.put(block, ON_GPU);
        }
        assert_eq!((memory.extents(), memory.resident_blocks()), (1, 10_000));
        memory.put(5_000, ON_HOST);
        assert_eq!((memory.extents(), memory.resident_blocks(), memory.host_granules()), (3, 9_999, 32));
    }

    #[test]
    fn the_first_resident_block_is_evicted_first_and_accesses_do_not_count() {
        let mut memory = Memory::default();
        for block in [7, 3, 5] {
            memory.put(block, ON_GPU);
        }
        memory.put(7, ON_GPU);
        assert_eq!(victim(&memory, unprotected), Some(7));
        assert_eq!(victim(&memory, |block| block == 7), Some(3));
    }

    #[test]
    fn a_block_that_gains_goes_to_the_tail_and_one_that_loses_stays() {
        let mut memory = Memory::default();
        let half = Place { gpu: 0xffff, ..Place::default() };
        memory.put(1, half);
        memory.put(2, ON_GPU);
        memory.put(1, ON_GPU);
        assert_eq!(victim(&memory, unprotected), Some(2));
        memory.put(2, half);
        assert_eq!(victim(&memory, unprotected), Some(2));
    }

    #[test]
    fn blocks_without_frames_of_their_own_are_evicted_together() {
        let mut memory = Memory::default();
        for block in [1, 2, 9] {
            memory.share_frames(block, [8 << 10; 32]);
        }
        for block in [1, 5, 2, 9] {
            memory.put(block, ON_GPU);
        }
        assert_eq!((memory.resident_blocks(), memory.frames(), memory.needs_frame(9, 1)), (1, 2, false));
        assert_eq!((memory.on_gpu().count(), victim(&memory, unprotected)), (4, Some(5)));
        let of_shared = memory.victims(|block| block == 5).unwrap();
        assert_eq!(of_shared.into_keys().collect::<Vec<_>>(), [1, 2, 9]);
        memory.discard(Granules { first: 32, end: 96 });
        memory.put(9, ON_HOST);
        assert_eq!((memory.frames(), memory.needs_frame(9, 1)), (1, true));
    }

    #[test]
    fn absent_granules_are_found_across_extents_and_inside_blocks() {
        let mut memory = Memory::default();
        memory.put(0, ON_GPU);
        memory.put(1, Place { gpu: 0b11, host: 0b100, ..Place::default() });
        assert_eq!(memory.first_missing(Granules { first: 0, end: 96 }), Some(34));
        assert_eq!(memory.first_missing(Granules { first: 0, end: 34 }), None);
        assert_eq!(memory.first_missing(Granules { first: 70, end: 96 }), Some(70));
    }

    #[test]
    fn discarded_memory_is_not_resident_anywhere() {
        let mut memory = Memory::default();
        for block in 0..4 {
            memory.put(block, ON_GPU);
        }
        memory.discard(Granules { first: 16, end: 112 });
        assert_eq!(memory.resident_blocks(), 2);
        assert_eq!(
            (memory.place(0).gpu, memory.place(1), memory.place(3).gpu),
            (0xffff, Place::default(), 0xffff_0000)
        );
    }

    #[test]
    fn any_order_of_moves_leaves_the_same_as_a_table_of_blocks() {
        let mut memory = Memory::default();
        let mut table = [(Place::<Mask>::default(), 0_u64); 24];
        let mut state = 7_u64;
        for step in 1..=30_000 {
            let mut next = |below: u64| {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                (state >> 33) % below
            };
            let block = next(24);
            let place = match next(4) {
                0 => ON_GPU,
                1 => ON_HOST,
                2 => Place { gpu: 0b111, host: 0b1000, ..Place::default() },
                _ => Place::default(),
            };
            let entry = &mut table[usize::try_from(block).unwrap()];
            if place.gpu & !entry.0.gpu != 0 {
                entry.1 = step;
            }
            entry.0 = place;
            memory.put(block, place);
            for (block, (place, _)) in (0..).zip(&table) {
                assert_eq!(memory.place(block), *place);
            }
            let resident = (0..).zip(&table).filter(|(_, (place, _))| place.gpu != 0);
            assert_eq!(memory.resident_blocks(), resident.clone().count() as u64);
            assert_eq!(
                victim(&memory, unprotected),
                resident.min_by_key(|(_, (_, position))| *position).map(|(block, _)| block)
            );
        }
    }
}
