//! What probes have found.

use std::{
    collections::{BTreeMap, BTreeSet},
    ops::Range,
};

use call_ring::Token;

use crate::{pieces::Pieces, ranges::Ranges};

/// Figures of probes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Figures {
    /// Launches of an iteration that are to be probed.
    pub launches: u64,
    /// Those of which it is known what they access.
    pub probed: u64,
    /// Iterations with moves of probes.
    pub iterations: u64,
    /// Bytes that these launches name, as far as they are probed; each launch counts.
    pub named_bytes: u64,
    /// Bytes of them that count as accessed.
    pub touched_bytes: u64,
}

/// Blocks that launches of an iteration do not access.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Evidence {
    /// Token of each launch of the iteration.
    tokens: Vec<Token>,
    /// By the place of the launch.
    untouched: BTreeMap<usize, Ranges>,
    /// Those that count as accessed, as far as they were probed, likewise.
    touched: BTreeMap<usize, Ranges>,
    figures: Figures,
}

impl Evidence {
    /// None yet, of launches with these tokens, and with these figures.
    pub(super) fn new(tokens: Vec<Token>, figures: Figures) -> Self {
        Self { tokens, figures, ..Self::default() }
    }

    /// Adds what is known of the launch at this place: blocks that were probed, and those of them that count
    /// as accessed.
    pub(super) fn add(&mut self, op: usize, probed: &Ranges, touched: &Ranges) {
        self.untouched.entry(op).or_default().add(&probed.without(touched));
        self.touched.entry(op).or_default().add(touched);
    }

    /// Bytes of memory, by counts.
    pub(crate) fn heap_bytes(&self) -> usize {
        let ranges = self.untouched.values().chain(self.touched.values()).map(Ranges::heap_bytes).sum::<usize>();
        self.tokens.capacity() * size_of::<Token>() + ranges
    }

    /// Figures of the probes that it is of.
    #[must_use]
    pub const fn figures(&self) -> Figures {
        self.figures
    }

    /// Whole blocks that the launch at this place does not access.
    pub fn untouched(&self, op: usize) -> impl Iterator<Item = Range<u64>> + '_ {
        self.untouched.get(&op).into_iter().flat_map(Ranges::iter)
    }

    /// Places of the launches that were probed.
    pub fn launches(&self) -> impl Iterator<Item = usize> + '_ {
        self.untouched.keys().copied()
    }

    /// Whole blocks that were probed and count as accessed by the launch at this place.
    pub fn touched(&self, op: usize) -> impl Iterator<Item = Range<u64>> + '_ {
        self.touched.get(&op).into_iter().flat_map(Ranges::iter)
    }

    /// Whether it is about launches with these tokens.
    pub(crate) fn is_of(&self, tokens: &[Token]) -> bool {
        self.tokens == tokens
    }

    /// Pieces with the uses that are left. What no launch is found to access stays as it is named where
    /// the GPU has faulted on it: `faulted` are the first addresses of such blocks.
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
