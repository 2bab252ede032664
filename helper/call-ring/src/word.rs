//! Words of a shared memory, or of a copy.

use crate::sync::{AtomicU64, Ordering};

/// Word that can be read.
pub trait Word {
    /// Value; of a shared word, with all that was written before it.
    fn load(&self) -> u64;
}

impl Word for AtomicU64 {
    fn load(&self) -> u64 {
        self.load(Ordering::Acquire)
    }
}

impl Word for u64 {
    fn load(&self) -> u64 {
        *self
    }
}

/// Value of a word; 0 without one.
pub(crate) fn load(words: &[impl Word], at: usize) -> u64 {
    words.get(at).map_or(0, Word::load)
}

/// Copies of a type with references to words, whatever the words.
macro_rules! copyable {
    ($name:ident) => {
        impl<W> Clone for $name<'_, W> {
            fn clone(&self) -> Self {
                *self
            }
        }

        impl<W> Copy for $name<'_, W> {}
    };
}
pub(crate) use copyable;
