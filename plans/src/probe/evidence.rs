//! Results of probes.

use std::{
    collections::{BTreeMap, BTreeSet},
    ops::Range,
};

use call_ring::Token;

use crate::{pieces::Pieces, ranges::Ranges};

/// Counts of a touch probe: launches, iterations, and bytes named and accessed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ProbeCounts {
    /// Number of launches of an iteration that were selected for probing.
    pub launches: u64,
    /// Number of selected launches whose accesses are known.
    pub probed: u64,
    /// Number of iterations with probe moves.
    pub iterations: u64,
    /// Probed bytes that launches with known accesses name, summed over launches.
    pub named_bytes: u64,
    /// Bytes of `named_bytes` that count as accessed.
    pub touched_bytes: u64,
}

/// Result of a touch probe: for each probed launch, the blocks that count as accessed, and the
/// others.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Evidence {
    /// Token of each launch of the iteration.
    tokens: Vec<Token>,
    /// Blocks not accessed, by index of the launch.
    untouched: BTreeMap<usize, Ranges>,
    /// Probed blocks that count as accessed, by index of the launch.
    touched: BTreeMap<usize, Ranges>,
    counts: ProbeCounts,
}

impl Evidence {
    /// Empty evidence of launches with these tokens.
    pub(super) fn new(tokens: Vec<Token>, counts: ProbeCounts) -> Self {
        Self { tokens, counts, ..Self::default() }
    }

    /// Adds the result of launch `op`: probed blocks, and those of them that count as accessed.
    pub(super) fn add(&mut self, op: usize, probed: &Ranges, touched: &Ranges) {
        self.untouched.entry(op).or_default().union_with(&probed.difference(touched));
        self.touched.entry(op).or_default().union_with(touched);
    }

    /// Heap bytes held, estimated from counts.
    pub(crate) fn heap_bytes(&self) -> usize {
        let ranges = self.untouched.values().chain(self.touched.values()).map(Ranges::heap_bytes).sum::<usize>();
        self.tokens.capacity() * size_of::<Token>() + ranges
    }

    /// Counts of the probe.
    #[must_use]
    pub const fn counts(&self) -> ProbeCounts {
        self.counts
    }

    /// Whole blocks that launch `op` does not access.
    pub fn untouched(&self, op: usize) -> impl Iterator<Item = Range<u64>> + '_ {
        self.untouched.get(&op).into_iter().flat_map(Ranges::iter)
    }

    /// Indices of the probed launches.
    pub fn launches(&self) -> impl Iterator<Item = usize> + '_ {
        self.untouched.keys().copied()
    }

    /// Probed whole blocks that count as accessed by launch `op`.
    pub fn touched(&self, op: usize) -> impl Iterator<Item = Range<u64>> + '_ {
        self.touched.get(&op).into_iter().flat_map(Ranges::iter)
    }

    /// Whether the evidence is of launches with these tokens.
    pub(crate) fn matches(&self, tokens: &[Token]) -> bool {
        self.tokens == tokens
    }

    /// Pieces without the uses that probes have disproved. If that leaves a piece without uses, it
    /// keeps all of them if the GPU has faulted on it: `faulted` has the first addresses of such
    /// blocks.
    pub(crate) fn reduced(&self, mut pieces: Pieces, faulted: &BTreeSet<u64>) -> Pieces {
        for piece in &mut pieces.all {
            let blocks = Ranges::blocks_of(piece.address, piece.bytes);
            let is_used = |op: &usize| self.untouched.get(op).is_none_or(|untouched| !untouched.covers(&blocks));
            let uses: Vec<usize> = piece.uses.iter().copied().filter(is_used).collect();
            if !uses.is_empty() || faulted.range(blocks).next().is_none() {
                piece.uses = uses;
            }
        }
        pieces.all.retain(|piece| !piece.uses.is_empty());
        pieces
    }
}
