//! Walk through a range in one direction, and its progress as faults show it.

use std::{collections::BTreeMap, time::Duration};

use model::{Block, GpuKey, Range, block::BLOCK_BYTES};

/// Direction of a walk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Direction {
    Up,
    Down,
}

/// Number of latest blocks whose order is examined.
const LATEST: usize = 8;
/// Minimum share of steps in the same direction for a walk.
const ONE_WAY: f64 = 0.7;

/// Distance behind the furthest faulting block that still counts as the same position.
const NEAR_BLOCKS: u64 = 8;

#[derive(Debug)]
pub(crate) struct Walk {
    begin: u64,
    end: u64,
    direction: Direction,
    /// Whether the walk restarts at its end.
    wraps: bool,
    /// Block at which the walk was last observed.
    position: u64,
    /// Faults of each block at the last interval, and whether nearly all of the block was resident.
    last_seen: BTreeMap<u64, (u64, bool)>,
}

/// Progress of a walk in an interval.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Progress {
    pub(crate) blocks: u64,
    /// Whether the block at the new position was not resident at the last interval.
    pub(crate) was_late: bool,
}

/// Whether nearly all of a block is at the GPU.
pub(crate) const fn is_nearly_resident(block: &Block) -> bool {
    block.resident.bytes > BLOCK_BYTES / 4 * 3
}

/// Whether any part of a block is within these addresses.
const fn is_within(block: &Block, begin: u64, end: u64) -> bool {
    begin < block.address.saturating_add(BLOCK_BYTES) && block.address < end
}

/// Share of a range in the recently active blocks at the GPU.
pub(crate) fn recent_share(range: &Range, blocks: &[Block], gpu: GpuKey, recent: Duration) -> f64 {
    let resident = || blocks.iter().filter(|block| block.gpu == Some(gpu) && block.resident.bytes > 0);
    // Relative to the latest event, because the calendar time may have been set since.
    let Some(latest) = resident().map(|block| block.last_seen_at).max() else { return 0.0 };
    let (mut inside, mut all) = (0_u64, 0_u64);
    for block in resident().filter(|block| latest.duration_since(block.last_seen_at).is_ok_and(|ago| ago <= recent)) {
        all += 1;
        inside += u64::from(is_within(block, range.begin, range.end));
    }
    inside as f64 / all as f64
}

impl Walk {
    /// Walk through a range, derived from the last use of its blocks at the GPU; `None` without
    /// one.
    pub(crate) fn of(range: &Range, blocks: &[Block], gpu: GpuKey, wraps: bool) -> Option<Self> {
        let inside = |block: &&Block| is_within(block, range.begin, range.end);
        let has_faulted =
            |block: &&Block| block.gpu == Some(gpu) && block.resident.bytes > 0 && block.fault_entries > 0;
        let mut latest: Vec<&Block> = blocks.iter().filter(inside).filter(has_faulted).collect();
        latest.sort_by_key(|block| std::cmp::Reverse(block.last_seen_at));
        latest.truncate(LATEST);
        let moves = latest.len().checked_sub(1).filter(|moves| *moves > 0)?;
        let up =
            latest.iter().zip(latest.iter().skip(1)).filter(|(later, earlier)| later.address > earlier.address).count();
        let direction = match up as f64 / moves as f64 {
            part if part >= ONE_WAY => Direction::Up,
            part if part <= 1.0 - ONE_WAY => Direction::Down,
            _ => return None,
        };
        Some(Self {
            begin: range.begin,
            end: range.end,
            direction,
            wraps,
            position: latest.first()?.address,
            last_seen: blocks
                .iter()
                .filter(inside)
                .map(|block| (block.address, (block.fault_entries, is_nearly_resident(block))))
                .collect(),
        })
    }

    pub(crate) const fn direction(&self) -> Direction {
        self.direction
    }

    pub(crate) const fn position(&self) -> u64 {
        self.position
    }

    /// Whether the walk restarts at its end.
    pub(crate) const fn wraps(&self) -> bool {
        self.wraps
    }

    pub(crate) const fn is_in(&self, range: &Range) -> bool {
        range.begin <= self.begin && self.end <= range.end
    }

    /// Part of a block within the range.
    pub(crate) fn clipped(&self, block: u64) -> (u64, u64) {
        (block.max(self.begin), block.saturating_add(BLOCK_BYTES).min(self.end))
    }

    /// Block that the walk reaches `distance_blocks` after `block`; `None` beyond the end of a walk
    /// that does not restart.
    pub(crate) fn block_after(&self, block: u64, distance_blocks: u64) -> Option<u64> {
        let (all, at) = (self.blocks(), self.index(block)?);
        let at = at.checked_add(distance_blocks)?;
        let at = if at < all {
            at
        } else if self.wraps {
            at % all
        } else {
            return None;
        };
        Some(self.block_at(at))
    }

    /// Number of blocks from this one to the end of the walk.
    pub(crate) fn blocks_to_end(&self, from: u64) -> Option<u64> {
        Some(self.blocks().saturating_sub(self.index(from)?))
    }

    /// Distance between two blocks in the order of the walk, in blocks.
    pub(crate) fn distance(&self, from: u64, to: u64) -> Option<u64> {
        let (from, to) = (self.index(from)?, self.index(to)?);
        if to >= from {
            Some(to - from)
        } else if self.wraps {
            Some(to + self.blocks() - from)
        } else {
            None
        }
    }

    /// Progress since the last interval, from the positions of faults; `None` if all faults are
    /// elsewhere.
    pub(crate) fn advance(&mut self, blocks: &[Block]) -> Option<Progress> {
        let mut faulted = Vec::new();
        for block in blocks.iter().filter(|block| is_within(block, self.begin, self.end)) {
            let now = (block.fault_entries, is_nearly_resident(block));
            let (faults, was_resident) = self.last_seen.insert(block.address, now).unwrap_or_default();
            if block.fault_entries > faults {
                faulted.push((block.address, was_resident));
            }
        }
        let restarts = |(address, _): &(u64, bool)| self.index(*address).is_some_and(|at| at < self.blocks() / 4);
        if !self.wraps && self.index(self.position) >= Some(self.blocks() / 2) && faulted.iter().any(restarts) {
            self.wraps = true;
        }
        // Half a round ahead is indistinguishable from half a round behind.
        let ahead = |address: u64| self.distance(self.position, address).filter(|blocks| *blocks <= self.blocks() / 2);
        let furthest = faulted
            .iter()
            .filter_map(|(address, was_resident)| Some((ahead(*address)?, *address, *was_resident)))
            .max();
        // A kernel works on several blocks, so one just behind the furthest may fault again.
        let near = |address: u64| self.distance(address, self.position).is_some_and(|blocks| blocks <= NEAR_BLOCKS);
        let strayed = faulted.iter().any(|(address, _)| !near(*address));
        match furthest {
            Some((blocks, address, was_resident)) => {
                self.position = address;
                Some(Progress { blocks, was_late: !was_resident })
            }
            None if strayed => None,
            None => Some(Progress { blocks: 0, was_late: false }),
        }
    }

    /// Number of blocks.
    pub(crate) fn blocks(&self) -> u64 {
        self.end.div_ceil(BLOCK_BYTES).saturating_sub(self.begin / BLOCK_BYTES)
    }

    /// Index of a block in the order of the walk.
    fn index(&self, block: u64) -> Option<u64> {
        let at = (block / BLOCK_BYTES).checked_sub(self.begin / BLOCK_BYTES).filter(|at| *at < self.blocks())?;
        Some(if self.direction == Direction::Up { at } else { self.blocks() - 1 - at })
    }

    /// Address of the block at an index in the order of the walk.
    fn block_at(&self, index: u64) -> u64 {
        let at = if self.direction == Direction::Up { index } else { self.blocks() - 1 - index };
        (self.begin / BLOCK_BYTES + at) * BLOCK_BYTES
    }
}

#[cfg(test)]
mod tests {
    use std::time::SystemTime;

    use model::{GpuUuid, Pattern, RangeCounts, Residency};

    use super::*;

    const GPU: GpuKey = GpuKey::Known(GpuUuid([1; 16]));

    #[test]
    fn recent_share_ignores_old_and_evicted_blocks() {
        let begin = 8 * BLOCK_BYTES;
        let range = Range {
            begin,
            end: 2 * begin,
            mapped: true,
            counts: RangeCounts::default(),
            residency: Residency::default(),
            pattern: Pattern::UNKNOWN,
        };
        let seconds = |seconds| SystemTime::UNIX_EPOCH + Duration::from_secs(seconds);
        let block = |at: u64, last_seen_s: u64, resident_bytes: u64| Block {
            gpu: Some(GPU),
            resident: Residency::exactly(resident_bytes),
            ..Block::new(at * BLOCK_BYTES, seconds(last_seen_s))
        };
        let share = |blocks: &[Block]| recent_share(&range, blocks, GPU, Duration::from_secs(8));
        let walked: Vec<Block> = (8..12).map(|at| block(at, 100, BLOCK_BYTES)).collect();
        assert!((share(&walked) - 1.0).abs() < 1e-9, "nothing else");
        let with_others =
            |last_seen_s, bytes| [walked.clone(), (0..4).map(|at| block(at, last_seen_s, bytes)).collect()].concat();
        assert!((share(&with_others(95, BLOCK_BYTES)) - 0.5).abs() < 1e-9, "before the walk's turn");
        assert!((share(&with_others(80, BLOCK_BYTES)) - 1.0).abs() < 1e-9, "long ago");
        assert!((share(&with_others(95, 0)) - 1.0).abs() < 1e-9, "evicted, which is no use");
        assert!(share(&[]).abs() < 1e-9);
    }
}
