//! References to contexts by `cuCtxAttach`: a context ends with the last `cuCtxDetach`.

use core::sync::atomic::{AtomicU64, Ordering};

use crate::{cuda::Handle, mapping, system::Errno};

/// Capacity of the table. With more references, the first `cuCtxDetach` without an entry counts as
/// the context's end.
const REFERENCES_MAX: usize = 64;

/// Table of references besides the first one of each context, an entry for each.
#[derive(Clone, Copy, Debug)]
pub(crate) struct References(&'static [AtomicU64]);

impl References {
    /// Creates an empty table.
    ///
    /// # Errors
    /// Fails if its memory cannot be mapped.
    pub(crate) fn new() -> Result<Self, Errno> {
        mapping::private(REFERENCES_MAX).map(Self)
    }

    /// Replaces an entry; false if there is none of this value.
    fn replace(&self, from: Handle, to: Handle) -> bool {
        self.0.iter().any(|entry| entry.compare_exchange(from, to, Ordering::Relaxed, Ordering::Relaxed).is_ok())
    }

    /// Adds a reference to a context.
    pub(crate) fn add(&self, context: Handle) {
        self.replace(0, context);
    }

    /// Removes a reference to a context; false if there is none besides the first one.
    pub(crate) fn remove(&self, context: Handle) -> bool {
        context != 0 && self.replace(context, 0)
    }

    /// Removes all references to a context that has ended: the driver may reuse its handle.
    pub(crate) fn forget_context(&self, context: Handle) {
        while self.remove(context) {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn context_has_as_many_references_as_were_added_until_it_ends() {
        let references = References::new().unwrap();
        for context in [7, 7, 9, 7] {
            references.add(context);
        }
        assert_eq!([references.remove(7), references.remove(8), references.remove(0)], [true, false, false]);
        references.forget_context(7);
        assert_eq!([references.remove(7), references.remove(9), references.remove(9)], [false, true, false]);
    }

    #[test]
    fn full_table_takes_no_more() {
        let references = References::new().unwrap();
        (0..=REFERENCES_MAX).for_each(|_| references.add(7));
        assert_eq!((0..=REFERENCES_MAX).filter(|_| references.remove(7)).count(), REFERENCES_MAX);
    }
}
