//! Arrivals in each block of a process, at a few moments: the pace of memory that a proposal does not
//! affect. A process may have 131,072 blocks, so a mark is compact, and all its GPUs share it.

use std::{
    collections::BTreeMap,
    sync::Arc,
    time::{Duration, SystemTime},
};

use model::{Block, ProcessId, block::BLOCK_BYTES};

use crate::act::{
    intervals::Intervals,
    scene::{Scene, Target},
};

const PAGE_BYTES: u64 = 4096;

/// Cumulative arrivals in each block, at one moment.
#[derive(Clone, Debug)]
pub(crate) struct Mark {
    pub(super) at: SystemTime,
    /// Number of the block (its address in blocks) and arrived pages, by number.
    pages: Vec<(u32, u32)>,
}

impl Mark {
    fn new(at: SystemTime, blocks: &[Block]) -> Self {
        let each = |block: &Block| {
            let pages = block.bytes_htod.saturating_add(block.populated_bytes) / PAGE_BYTES;
            // GPUs have addresses of 49 bits.
            Some((u32::try_from(block.address / BLOCK_BYTES).ok()?, u32::try_from(pages).unwrap_or(u32::MAX)))
        };
        Self { at, pages: blocks.iter().filter_map(each).collect() }
    }

    /// Bytes that arrived from this mark to a later one, in blocks outside this memory.
    pub(super) fn bytes_until(&self, to: &Self, outside: &Intervals) -> u64 {
        let is_outside = |block: u32| {
            let begin = u64::from(block) * BLOCK_BYTES;
            !outside.touches(begin, begin + BLOCK_BYTES)
        };
        let before = |block: u32| {
            let at = self.pages.binary_search_by_key(&block, |(block, _)| *block).ok()?;
            self.pages.get(at).map(|(_, pages)| *pages)
        };
        let arrived = to.pages.iter().filter(|(block, _)| is_outside(*block));
        let pages = arrived.map(|(block, pages)| pages.saturating_sub(before(*block).unwrap_or(0)));
        pages.map(u64::from).fold(0, u64::saturating_add).saturating_mul(PAGE_BYTES)
    }
}

/// Last mark of each process.
#[derive(Clone, Debug, Default)]
pub(crate) struct Marks(BTreeMap<ProcessId, Arc<Mark>>);

impl Marks {
    /// Drops the marks of processes whose memory is unknown.
    pub(crate) fn retain(&mut self, scene: &Scene<'_>) {
        self.0.retain(|process, _| scene.memory.contains_key(process));
    }

    /// Last mark of the process, which is new if the former one is older than this; `None` if its
    /// blocks are unknown.
    pub(super) fn recent(&mut self, target: &Target<'_>, spacing: Duration) -> Option<Arc<Mark>> {
        let (process, now) = (target.process.id, target.scene.now);
        let is_recent = |mark: &&Arc<Mark>| now.duration_since(mark.at).is_ok_and(|age| age < spacing);
        if let Some(mark) = self.0.get(&process).filter(is_recent) {
            return Some(Arc::clone(mark));
        }
        let blocks = target.scene.blocks_of(process);
        let mark = (!blocks.is_empty()).then(|| Arc::new(Mark::new(now, blocks)))?;
        self.0.insert(process, Arc::clone(&mark));
        Some(mark)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: SystemTime = SystemTime::UNIX_EPOCH;

    fn mark(arrived: &[(u64, u64)]) -> Mark {
        let block = |(at, bytes): &(u64, u64)| Block { bytes_htod: *bytes, ..Block::new(at * BLOCK_BYTES, NOW) };
        Mark::new(NOW, &arrived.iter().map(block).collect::<Vec<_>>())
    }

    #[test]
    fn arrivals_between_marks_are_those_outside_the_affected_memory() {
        let from = mark(&[(1, 8192), (2, 4096)]);
        let to = mark(&[(1, 12_288), (2, 1 << 20), (7, 65_536)]);
        assert_eq!(from.bytes_until(&to, &Intervals::default()), 4096 + (1 << 20) - 4096 + 65_536);
        let affected = Intervals::of([(2 * BLOCK_BYTES, 2 * BLOCK_BYTES + 4096)]);
        assert_eq!(from.bytes_until(&to, &affected), 4096 + 65_536);
        assert_eq!(to.bytes_until(&from, &Intervals::default()), 0, "counts were reset");
    }
}
