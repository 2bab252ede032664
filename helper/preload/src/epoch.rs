//! Times between closings of libraries: what is found in one of them is loaded until it ends.

use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// Whether closings are seen: this library was loaded before the program began.
static IS_SEEN: AtomicBool = AtomicBool::new(false);
/// Closings that have begun, and those that have ended.
static BEGUN: AtomicU64 = AtomicU64::new(0);
static ENDED: AtomicU64 = AtomicU64::new(0);

/// Number of closings, with none in progress.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Epoch(u64);

impl Epoch {
    /// The present one; `None` while a library is being closed, or where that is not seen.
    pub(crate) fn now() -> Option<Self> {
        let ended = ENDED.load(Ordering::SeqCst);
        let is_open = IS_SEEN.load(Ordering::Acquire) && BEGUN.load(Ordering::SeqCst) == ended;
        is_open.then_some(Self(ended))
    }

    /// Whether no library has begun to close since.
    pub(crate) fn lasts(self) -> bool {
        BEGUN.load(Ordering::SeqCst) == self.0
    }
}

/// Notes that closings are seen.
pub(crate) fn is_seen() {
    IS_SEEN.store(true, Ordering::Release);
}

/// Notes that a library is about to close.
pub(crate) fn closing_begins() {
    BEGUN.fetch_add(1, Ordering::SeqCst);
}

/// Notes that it has closed.
pub(crate) fn closing_ends() {
    ENDED.fetch_add(1, Ordering::SeqCst);
}

#[cfg(test)]
mod tests {
    use super::*;

    /// One test, as closings are counted for the whole process.
    #[test]
    fn epoch_lasts_until_a_library_is_closed() {
        assert_eq!(Epoch::now(), None, "closings are not seen");
        is_seen();
        let before = Epoch::now().unwrap();
        assert!(before.lasts());
        closing_begins();
        assert_eq!(Epoch::now(), None);
        assert!(!before.lasts());
        // Two at a time.
        closing_begins();
        closing_ends();
        assert_eq!(Epoch::now(), None);
        closing_ends();
        assert!(!before.lasts() && Epoch::now().is_some_and(Epoch::lasts));
    }
}
