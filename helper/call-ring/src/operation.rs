//! Operations: writes of uvmd to words of a shared memory.
//!
//! uvmd does not access the memory of a program. It computes on a copy of its words, and passes operations to an
//! accessor, a process that [applies](apply) them.

use crate::sync::{AtomicU64, Ordering};

/// Write to a word of a shared memory, by its index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// Store of a value.
    Store {
        /// Word.
        at: usize,
        /// Value.
        value: u64,
    },
    /// Change of a value to another; fails if the word has another value.
    CompareExchange {
        /// Word.
        at: usize,
        /// Value before.
        from: u64,
        /// Value afterwards.
        to: u64,
    },
}

impl Operation {
    /// Word that the operation writes.
    #[must_use]
    pub const fn at(&self) -> usize {
        match *self {
            Self::Store { at, .. } | Self::CompareExchange { at, .. } => at,
        }
    }

    /// Applies the operation. Returns whether the word is there and an exchange succeeded.
    fn apply(self, words: &[AtomicU64]) -> bool {
        let Some(word) = words.get(self.at()) else { return false };
        match self {
            Self::Store { value, .. } => {
                // A release orders it after all operations before it.
                word.store(value, Ordering::Release);
                true
            }
            Self::CompareExchange { from, to, .. } => {
                word.compare_exchange(from, to, Ordering::AcqRel, Ordering::Relaxed).is_ok()
            }
        }
    }
}

/// Applies operations in order until one fails, and returns the number of operations before it.
pub fn apply(operations: impl IntoIterator<Item = Operation>, words: &[AtomicU64]) -> usize {
    operations.into_iter().take_while(|operation| operation.apply(words)).count()
}

/// Copy of words, loaded in their order, for tests.
#[cfg(feature = "reader")]
pub fn copy_of(words: &[AtomicU64]) -> alloc::vec::Vec<u64> {
    words.iter().map(|word| word.load(Ordering::Acquire)).collect()
}
