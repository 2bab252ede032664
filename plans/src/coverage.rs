//! Coverage: share of the memory with GPU faults that arguments of launches name.
//!
//! The arguments of a launch name the memory that it uses, but its kernel may follow pointers to
//! more. The driver's faults, which uvmd counts by VA block, reveal such accesses. Counting starts
//! once iterations are known: before that, a program initialises its memory.

use std::collections::{BTreeMap, BTreeSet};

use planner::Part;
use trace::footprints::Coverage;

use crate::{pieces::Pieces, ranges::Ranges, refusal::Refusal};

/// GPU faults of a process, by the first address of the VA block. Counts never decrease.
pub type FaultCounts = BTreeMap<u64, u64>;

/// Minimum samples of counts, after iterations are known, until coverage is computed. Counts are
/// older than their sample: only those of the second and later ones are from known iterations.
const SAMPLES_MIN: u32 = 3;

/// Maximum number of faulted blocks with counts: 512 GiB of memory.
pub const FAULTED_BLOCKS_MAX: usize = 1 << 18;

/// Bytes per count in a map built in bulk.
pub(crate) const COUNT_BYTES: usize = 20;

/// Faults counted since iterations are known.
#[derive(Debug)]
pub(crate) struct Faults {
    is_counted: bool,
    samples: u32,
    first: FaultCounts,
    last: FaultCounts,
    /// Whether the last counts exceeded [`FAULTED_BLOCKS_MAX`] blocks, and were dropped.
    has_too_many_blocks: bool,
}

impl Faults {
    pub(crate) const fn new(is_counted: bool) -> Self {
        Self { is_counted, samples: 0, first: FaultCounts::new(), last: FaultCounts::new(), has_too_many_blocks: false }
    }

    /// Heap bytes held, estimated from counts.
    pub(crate) fn heap_bytes(&self) -> usize {
        (self.first.len() + self.last.len()) * COUNT_BYTES
    }

    /// Restarts counting, when iterations become known or unknown.
    pub(crate) const fn restart(&mut self) {
        self.samples = 0;
    }

    /// Adds the current counts; `None` if faults are not counted.
    pub(crate) fn add_sample(&mut self, counts: Option<FaultCounts>) {
        self.is_counted = counts.is_some();
        let Some(counts) = counts else { return };
        self.has_too_many_blocks = counts.len() > FAULTED_BLOCKS_MAX;
        let counts = if self.has_too_many_blocks { FaultCounts::new() } else { counts };
        self.samples = self.samples.saturating_add(1);
        if self.samples < SAMPLES_MIN {
            self.first.clone_from(&counts);
        }
        self.last = counts;
    }

    /// Whether counting is complete, or faults are not counted.
    pub(crate) const fn is_complete(&self) -> bool {
        !self.is_counted || self.samples >= SAMPLES_MIN
    }

    /// Checks that the number of faulted blocks is within the limit.
    pub(crate) const fn check(&self) -> Result<(), Refusal> {
        if self.has_too_many_blocks { Err(Refusal::TooManyFaults { blocks_max: FAULTED_BLOCKS_MAX }) } else { Ok(()) }
    }

    /// First addresses of the faulted blocks.
    pub(crate) fn faulted(&self) -> BTreeSet<u64> {
        let has_faults = |(block, count): &(&u64, &u64)| **count > self.first.get(*block).copied().unwrap_or(0);
        self.last.iter().filter(has_faults).map(|(block, _)| *block).collect()
    }

    /// Coverage of the faulted blocks by the blocks of the pieces. `None` if there were no faults,
    /// or they are not counted.
    pub(crate) fn coverage(&self, pieces: &Pieces) -> Option<Coverage> {
        if !self.is_counted || self.samples < SAMPLES_MIN {
            return None;
        }
        let faulted = self.faulted();
        let named: Ranges = pieces.all.iter().map(|piece| Ranges::blocks_of(piece.address, piece.bytes)).collect();
        let bytes = |blocks: usize| blocks as u64 * Part::BLOCK_BYTES;
        (!faulted.is_empty()).then(|| Coverage {
            named_bytes: named.bytes(),
            accessed_bytes: bytes(faulted.len()),
            both_bytes: bytes(faulted.iter().filter(|block| named.contains(**block)).count()),
        })
    }
}
