//! Constraints of random steps.

use crate::{dice::Dice, scenario::part::PAGE_BYTES};

/// Allocations and GPUs that a random step may use, and its nesting.
pub(crate) struct Plan<'a> {
    pub(crate) allocations: &'a [(String, u64)],
    pub(crate) gpus: &'a [u32],
    /// Nesting depth in repeats and threads.
    pub(crate) depth: usize,
    /// Whether the steps run in one of several threads.
    pub(crate) in_thread: bool,
}

impl Plan<'_> {
    /// Random allocation, with its size.
    pub(crate) fn allocation(&self, dice: &mut Dice) -> (&str, u64) {
        self.allocations.get(dice.index(self.allocations.len())).map_or(("", 0), |(name, bytes)| (name, *bytes))
    }

    /// Random GPU.
    pub(crate) fn gpu(&self, dice: &mut Dice) -> u32 {
        self.gpus.get(dice.index(self.gpus.len())).copied().unwrap_or(0)
    }

    /// Random place, in TOML: the CPU or a GPU.
    pub(crate) fn place(&self, dice: &mut Dice) -> String {
        if dice.chance(40) { "cpu".to_owned() } else { format!("gpu{}", self.gpu(dice)) }
    }

    /// Random allocation, with a part in whole pages as options in TOML.
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
