//! Atomic updates of memory that other threads and processors update too.
#![expect(unsafe_code, reason = "accesses memory at addresses that a backend permits")]

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// Replaces a word of 4 or 8 bytes by what `change` makes of it, and returns it as it was; `None`
/// for other sizes.
///
/// # Safety
/// The word can be read and written, and is aligned to its size.
pub(crate) unsafe fn update(word: *mut u8, bytes: u32, change: &mut dyn FnMut(u64) -> u64) -> Option<u64> {
    const ORDER: Ordering = Ordering::SeqCst;
    match bytes {
        4 => {
            // SAFETY: by the contract of this function.
            let word = unsafe { AtomicU32::from_ptr(word.cast()) };
            #[expect(clippy::cast_possible_truncation, reason = "a word of 4 bytes takes the low ones")]
            let changed = |old: u32| Some(change(old.into()) as u32);
            word.fetch_update(ORDER, ORDER, changed).ok().map(u64::from)
        }
        8 => {
            // SAFETY: by the contract of this function.
            let word = unsafe { AtomicU64::from_ptr(word.cast()) };
            word.fetch_update(ORDER, ORDER, |old| Some(change(old))).ok()
        }
        _ => None,
    }
}
