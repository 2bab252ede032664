//! What random steps are made of.

use crate::{dice::Dice, scenario::part::PAGE_BYTES};

/// What a random step may use.
pub(crate) struct Plan<'a> {
    pub(crate) allocations: &'a [(String, u64)],
    pub(crate) gpus: &'a [u32],
    /// How deep in repeats and threads.
    pub(crate) depth: usize,
    /// Steps of a thread beside others.
    pub(crate) in_thread: bool,
}

impl Plan<'_> {
    /// One of the allocations, and its size.
    pub(crate) fn allocation(&self, dice: &mut Dice) -> (&str, u64) {
        self.allocations.get(dice.index(self.allocations.len())).map_or(("", 0), |(name, bytes)| (name, *bytes))
    }

    /// One of the GPUs.
    pub(crate) fn gpu(&self, dice: &mut Dice) -> u32 {
        self.gpus.get(dice.index(self.gpus.len())).copied().unwrap_or(0)
    }

    /// The CPU or one of the GPUs, as it is written.
    pub(crate) fn place(&self, dice: &mut Dice) -> String {
        if dice.chance(40) { "cpu".to_owned() } else { format!("gpu{}", self.gpu(dice)) }
    }

    /// An allocation and a part of it in whole pages, as options are written.
    pub(crate) fn pages(&self, dice: &mut Dice) -> (&str, String) {
        let (name, bytes) = self.allocation(dice);
        if dice.chance(50) {
            return (name, String::new());
        }
        let pages = bytes.div_ceil(PAGE_BYTES);
        let first = dice.between(0, pages - 1);
        let count = dice.between(1, pages - first);
        (name, format!(", offset = {}, length = {}", first * PAGE_BYTES, count * PAGE_BYTES))
    }
}
