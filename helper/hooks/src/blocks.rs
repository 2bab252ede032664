//! Memory that the program has allocated: what tells a pointer among arguments from a number.
//!
//! A sorted table. Launches search it without a lock: each search is repeated if the table changed
//! meanwhile. Allocations and frees, which take the driver longer than this, lock each other out.

use core::{
    hint::spin_loop,
    sync::atomic::{AtomicU64, Ordering, fence},
};

use crate::{
    system::{self, Errno},
    zeroed,
};

/// Most blocks at a time; pointers into those beyond are not told from numbers.
const BLOCKS_MAX: usize = 16384;
/// Searches before one gives up, beside a thread that changes the table and is not let run.
const SEARCHES_MAX: usize = 256;

/// Turns that are given to a thread that changes the table before one gives up: it may have ended within
/// its change, or have a lower priority than those that wait.
const TURNS_MAX: usize = 10_000;

/// Blocks of allocated memory.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Blocks {
    /// Odd while the table changes.
    version: &'static AtomicU64,
    lock: &'static AtomicU64,
    count: &'static AtomicU64,
    /// First addresses, ascending.
    begins: &'static [AtomicU64],
    /// Addresses behind the last, in the same order.
    ends: &'static [AtomicU64],
    /// Contexts that own them.
    contexts: &'static [AtomicU64],
}

/// Result of a search.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Found {
    /// The address is inside a block.
    Inside,
    /// It is not.
    Outside,
    /// The table changed all the time.
    Unknown,
}

fn get(words: &[AtomicU64], at: usize) -> u64 {
    words.get(at).map_or(0, |word| word.load(Ordering::Relaxed))
}

fn set(words: &[AtomicU64], at: usize, value: u64) {
    if let Some(word) = words.get(at) {
        word.store(value, Ordering::Relaxed);
    }
}

impl Blocks {
    /// An empty table.
    ///
    /// # Errors
    /// If there is no memory for it.
    pub(crate) fn new() -> Result<Self, Errno> {
        let words = zeroed::private(8 + 3 * BLOCKS_MAX)?;
        let (head, tables) = words.split_at_checked(8).ok_or(Errno(0))?;
        let (begins, rest) = tables.split_at_checked(BLOCKS_MAX).ok_or(Errno(0))?;
        let (ends, contexts) = rest.split_at_checked(BLOCKS_MAX).ok_or(Errno(0))?;
        let [version, lock, count, ..] = head else { return Err(Errno(0)) };
        Ok(Self { version, lock, count, begins, ends, contexts })
    }

    fn len(&self) -> usize {
        usize::try_from(self.count.load(Ordering::Relaxed)).unwrap_or(0).min(BLOCKS_MAX)
    }

    /// Blocks that begin at this address or before.
    fn before(&self, address: u64) -> usize {
        let (mut low, mut high) = (0, self.len());
        while low < high {
            let middle = low.midpoint(high);
            if get(self.begins, middle) <= address {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        low
    }

    /// Whether an address is inside a block.
    pub(crate) fn find(&self, address: u64) -> Found {
        for _ in 0..SEARCHES_MAX {
            let version = self.version.load(Ordering::Acquire);
            if version & 1 == 0 {
                let inside = self.before(address).checked_sub(1).is_some_and(|at| address < get(self.ends, at));
                fence(Ordering::Acquire);
                if self.version.load(Ordering::Relaxed) == version {
                    return if inside { Found::Inside } else { Found::Outside };
                }
            }
            spin_loop();
        }
        Found::Unknown
    }

    /// Changes the table, alone; `None` if another thread does not end its change.
    fn change<T>(&self, change: impl FnOnce() -> T) -> Option<T> {
        let mut turns = 0;
        while self.lock.compare_exchange(0, 1, Ordering::Acquire, Ordering::Relaxed).is_err() {
            if turns >= TURNS_MAX {
                return None;
            }
            turns += 1;
            system::give_way();
        }
        let version = self.version.load(Ordering::Relaxed);
        self.version.store(version.wrapping_add(1), Ordering::Relaxed);
        fence(Ordering::Release);
        let result = change();
        self.version.store(version.wrapping_add(2), Ordering::Release);
        self.lock.store(0, Ordering::Release);
        Some(result)
    }

    /// Adds a block; false if there is no room, or the table cannot be changed.
    pub(crate) fn add(&self, address: u64, bytes: u64, context: u64) -> bool {
        self.change(|| {
            let (count, at) = (self.len(), self.before(address));
            if count >= BLOCKS_MAX {
                return false;
            }
            for table in [self.begins, self.ends, self.contexts] {
                for from in (at..count).rev() {
                    set(table, from + 1, get(table, from));
                }
            }
            set(self.begins, at, address);
            // One of no bytes has an address all the same.
            set(self.ends, at, address.saturating_add(bytes.max(1)));
            set(self.contexts, at, context);
            self.count.store(count as u64 + 1, Ordering::Relaxed);
            true
        })
        .unwrap_or(false)
    }

    /// Removes a block; its size and context, if there is one that begins here.
    pub(crate) fn remove(&self, address: u64) -> Option<(u64, u64)> {
        self.change(|| {
            let at = self.before(address).checked_sub(1).filter(|at| get(self.begins, *at) == address)?;
            let removed = (get(self.ends, at).saturating_sub(address), get(self.contexts, at));
            self.remove_at(at);
            Some(removed)
        })
        .flatten()
    }

    fn remove_at(&self, at: usize) {
        let count = self.len();
        for table in [self.begins, self.ends, self.contexts] {
            for to in at..count.saturating_sub(1) {
                set(table, to, get(table, to + 1));
            }
        }
        self.count.store(count.saturating_sub(1) as u64, Ordering::Relaxed);
    }

    /// Removes a block of a context, and returns its address; `None` if it has none.
    pub(crate) fn remove_of(&self, context: u64) -> Option<u64> {
        self.change(|| {
            let at = (0..self.len()).find(|at| get(self.contexts, *at) == context)?;
            let address = get(self.begins, at);
            self.remove_at(at);
            Some(address)
        })
        .flatten()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn address_is_inside_from_its_blocks_begin_to_before_its_end() {
        let blocks = Blocks::new().unwrap();
        assert!(blocks.add(0x2000, 0x1000, 1) && blocks.add(0x8000, 0x10, 1) && blocks.add(0x1000, 0x800, 2));
        let inside = |address| blocks.find(address) == Found::Inside;
        assert!([0x1000, 0x17ff, 0x2000, 0x2fff, 0x8000, 0x800f].into_iter().all(inside));
        assert!(![0, 0xfff, 0x1800, 0x3000, 0x8010, u64::MAX].into_iter().any(inside));
        assert_eq!(blocks.remove(0x2000), Some((0x1000, 1)));
        assert!(!inside(0x2000) && inside(0x1000) && inside(0x8000));
        assert_eq!(blocks.remove(0x2000), None);
    }

    #[test]
    fn blocks_of_a_context_are_removed_with_it() {
        let blocks = Blocks::new().unwrap();
        for at in 1..=6_u64 {
            assert!(blocks.add(at << 20, 4096, at % 2));
        }
        let mut removed = core::iter::from_fn(|| blocks.remove_of(1));
        assert_eq!([removed.next(), removed.next(), removed.next()], [Some(1 << 20), Some(3 << 20), Some(5 << 20)]);
        assert_eq!(removed.next(), None);
        assert_eq!(blocks.find(2 << 20), Found::Inside);
    }

    #[test]
    fn full_table_takes_no_more() {
        let blocks = Blocks::new().unwrap();
        assert!((0..BLOCKS_MAX as u64).all(|at| blocks.add(at << 12, 4096, 0)));
        assert!(!blocks.add(u64::MAX - 4096, 4096, 0));
    }
}
