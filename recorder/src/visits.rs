//! Count of entries and recordings that this thread has visited, for tests.

use std::cell::Cell;

thread_local! {
    static COUNT: Cell<u64> = const { Cell::new(0) };
}

pub(crate) fn add() {
    COUNT.set(COUNT.get() + 1);
}

/// Visits so far.
pub(crate) fn count() -> u64 {
    COUNT.get()
}
