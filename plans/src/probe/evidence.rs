//! What probes have found.

use std::collections::{BTreeMap, BTreeSet};

use call_ring::Token;

use super::target::blocks;
use crate::pieces::Pieces;

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
    /// First addresses of the blocks by the place of the launch.
    untouched: BTreeMap<usize, BTreeSet<u64>>,
    /// Those that count as accessed, as far as they were probed, likewise.
    touched: BTreeMap<usize, BTreeSet<u64>>,
    figures: Figures,
}

impl Evidence {
    /// None yet, of launches with these tokens, and with these figures.
    pub(super) fn new(tokens: Vec<Token>, figures: Figures) -> Self {
        Self { tokens, figures, ..Self::default() }
    }

    /// Adds what is known of the launch at this place: blocks that were probed, and those of them that count
    /// as accessed.
    pub(super) fn add(&mut self, op: usize, probed: &BTreeSet<u64>, touched: &BTreeSet<u64>) {
        self.untouched.entry(op).or_default().extend(probed.difference(touched));
        self.touched.entry(op).or_default().extend(touched);
    }

    /// Figures of the probes that it is of.
    #[must_use]
    pub const fn figures(&self) -> Figures {
        self.figures
    }

    /// Blocks that the launch at this place does not access, by their first addresses.
    pub fn untouched(&self, op: usize) -> impl Iterator<Item = u64> + '_ {
        self.untouched.get(&op).into_iter().flatten().copied()
    }

    /// Places of the launches that were probed.
    pub fn launches(&self) -> impl Iterator<Item = usize> + '_ {
        self.untouched.keys().copied()
    }

    /// Blocks that were probed and count as accessed by the launch at this place, by their first addresses.
    pub fn touched(&self, op: usize) -> impl Iterator<Item = u64> + '_ {
        self.touched.get(&op).into_iter().flatten().copied()
    }

    /// Whether it is about launches with these tokens.
    pub(crate) fn is_of(&self, tokens: &[Token]) -> bool {
        self.tokens == tokens
    }

    /// Pieces with the uses that are left. What no launch is found to access stays as it is named where
    /// the GPU has faulted on it: `faulted` are the first addresses of such blocks.
    pub(crate) fn reduced(&self, mut pieces: Pieces, faulted: &BTreeSet<u64>) -> Pieces {
        for piece in &mut pieces.all {
            let blocks = || blocks(piece.address, piece.bytes);
            let is_used = |op: &usize| {
                self.untouched.get(op).is_none_or(|untouched| blocks().any(|block| !untouched.contains(&block)))
            };
            let uses: Vec<usize> = piece.uses.iter().copied().filter(is_used).collect();
            if !uses.is_empty() || !blocks().any(|block| faulted.contains(&block)) {
                piece.uses = uses;
            }
        }
        pieces.all.retain(|piece| !piece.uses.is_empty());
        pieces
    }
}
