//! Memory that the program has allocated. The table distinguishes pointers from numbers among
//! launch arguments, and managed memory, which commands may name, from other memory.
//!
//! The table is sorted. Searches take no lock (sequence lock): a search is repeated if the version
//! has changed. Allocations and frees, which take longer in the driver than here, take a lock.
//!
//! Launches pass the same pointers again and again: a lookup cache has the last known position of
//! each pointer. A cached position is a hint that is checked against the table.

use core::{
    hint::spin_loop,
    sync::atomic::{AtomicU64, Ordering, fence},
};

use crate::{lock::Lock, mapping, system::Errno};

/// Capacity of the table. Pointers into blocks beyond it are taken for numbers.
const BLOCKS_MAX: usize = 16384;
/// Maximum number of attempts of a search. All of them fail, for example, if a thread is preempted
/// while it changes the table.
const SEARCH_ATTEMPTS_MAX: usize = 256;

/// Slots of the lookup cache, as a power of two. Each has 16 bits; four are packed into a word.
const CACHE_LOG2: u32 = 12;
const SLOTS_PER_WORD: usize = 4;
const CACHE_WORDS: usize = (1 << CACHE_LOG2) / SLOTS_PER_WORD;
const SLOT_BITS: usize = 16;
const _: () = assert!(BLOCKS_MAX <= 1 << SLOT_BITS);

const MANAGED: u64 = 1;
const POOLED: u64 = 2;

/// Block of allocated memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Block {
    /// First address.
    pub(crate) begin: u64,
    /// End address, exclusive.
    pub(crate) end: u64,
    /// Context of the allocation.
    pub(crate) context: u64,
    /// Whether the memory is managed.
    pub(crate) is_managed: bool,
    /// Whether the block is from a pool. A free of such a block does not wait for work of the GPU.
    pub(crate) is_pooled: bool,
}

/// Table of allocated blocks.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Blocks {
    /// Version, odd while the table is being changed.
    version: &'static AtomicU64,
    lock: Lock,
    count: &'static AtomicU64,
    /// 1 once a change was dropped: the table may contain blocks that have been freed.
    is_stale: &'static AtomicU64,
    /// First addresses, ascending.
    begins: &'static [AtomicU64],
    /// End addresses, exclusive, in the same order.
    ends: &'static [AtomicU64],
    /// Owning contexts.
    contexts: &'static [AtomicU64],
    /// Flags [`MANAGED`] and [`POOLED`] of each block.
    flags: &'static [AtomicU64],
    /// Lookup cache: position of each pointer's block, by the pointer's hash.
    cache: &'static [AtomicU64],
}

/// The table is contended or may be stale.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TableUnavailable;

/// Result of a search for the block of an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SearchResult {
    /// The address is inside a block.
    Inside,
    /// The address is in no block.
    Outside,
    /// The table is contended.
    Contended,
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
    /// Creates an empty table.
    ///
    /// # Errors
    /// Fails if its memory cannot be mapped.
    pub(crate) fn new() -> Result<Self, Errno> {
        let words = mapping::private(8 + 4 * BLOCKS_MAX + CACHE_WORDS)?;
        let (head, tables) = words.split_at_checked(8).ok_or(Errno(0))?;
        let (begins, rest) = tables.split_at_checked(BLOCKS_MAX).ok_or(Errno(0))?;
        let (ends, rest) = rest.split_at_checked(BLOCKS_MAX).ok_or(Errno(0))?;
        let (contexts, rest) = rest.split_at_checked(BLOCKS_MAX).ok_or(Errno(0))?;
        let (flags, cache) = rest.split_at_checked(BLOCKS_MAX).ok_or(Errno(0))?;
        let [version, lock, count, is_stale, ..] = head else { return Err(Errno(0)) };
        Ok(Self { version, lock: Lock::new(lock), count, is_stale, begins, ends, contexts, flags, cache })
    }

    const fn tables(&self) -> [&'static [AtomicU64]; 4] {
        [self.begins, self.ends, self.contexts, self.flags]
    }

    fn get(&self, at: usize) -> Block {
        let flags = get(self.flags, at);
        Block {
            begin: get(self.begins, at),
            end: get(self.ends, at),
            context: get(self.contexts, at),
            is_managed: flags & MANAGED != 0,
            is_pooled: flags & POOLED != 0,
        }
    }

    fn set(&self, at: usize, block: Block) {
        let Block { begin, end, context, is_managed, is_pooled } = block;
        set(self.begins, at, begin);
        set(self.ends, at, end);
        set(self.contexts, at, context);
        set(self.flags, at, (u64::from(is_managed) * MANAGED) | (u64::from(is_pooled) * POOLED));
    }

    fn len(&self) -> usize {
        usize::try_from(self.count.load(Ordering::Relaxed)).unwrap_or(0).min(BLOCKS_MAX)
    }

    /// Number of blocks that begin at or before an address. A search without branches measured
    /// slower.
    fn upper_bound(&self, address: u64) -> usize {
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

    /// Searches a consistent table; `None` if it is contended.
    fn search<T>(&self, search: impl Fn() -> T) -> Option<T> {
        for _ in 0..SEARCH_ATTEMPTS_MAX {
            let version = self.version.load(Ordering::Acquire);
            if version & 1 == 0 {
                let found = search();
                fence(Ordering::Acquire);
                if self.version.load(Ordering::Relaxed) == version {
                    return Some(found);
                }
            }
            spin_loop();
        }
        None
    }

    /// Version, incremented by every update.
    pub(crate) fn version(&self) -> u64 {
        self.version.load(Ordering::Acquire)
    }

    /// Whether an address is inside a block.
    pub(crate) fn find(&self, address: u64) -> SearchResult {
        let slot = CacheSlot::of(address);
        let is_inside = || {
            let contains = |at: usize| get(self.begins, at) <= address && address < get(self.ends, at);
            let at = slot.get(self.cache);
            if at < self.len() && contains(at) {
                return true;
            }
            let found = self.upper_bound(address).checked_sub(1).filter(|at| contains(*at));
            if let Some(at) = found {
                slot.set(self.cache, at);
            }
            found.is_some()
        };
        match self.search(is_inside) {
            Some(true) => SearchResult::Inside,
            Some(false) => SearchResult::Outside,
            None => SearchResult::Contended,
        }
    }

    /// First managed block that ends after an address.
    ///
    /// # Errors
    /// Fails if the table is contended or may be stale.
    pub(crate) fn next_managed(&self, address: u64) -> Result<Option<Block>, TableUnavailable> {
        let first = || {
            let from = self.upper_bound(address).saturating_sub(1);
            (from..self.len()).map(|at| self.get(at)).find(|block| block.is_managed && block.end > address)
        };
        let found = self.search(first).filter(|_| self.is_stale.load(Ordering::Relaxed) == 0);
        found.ok_or(TableUnavailable)
    }

    /// Any block of the context with the next greater handle, to iterate over the contexts.
    pub(crate) fn next_context_block(&self, handle: u64) -> Option<Block> {
        let next = || {
            let greater = (0..self.len()).filter(|at| get(self.contexts, *at) > handle);
            greater.min_by_key(|at| get(self.contexts, *at)).map(|at| self.get(at))
        };
        self.search(next).flatten().filter(|_| self.is_stale.load(Ordering::Relaxed) == 0)
    }

    /// Changes the table under its lock; `None` if the lock was not acquired.
    fn update<T>(&self, change: impl FnOnce() -> T) -> Option<T> {
        let result = self.lock.with(|| {
            let version = self.version.load(Ordering::Relaxed);
            self.version.store(version.wrapping_add(1), Ordering::Relaxed);
            fence(Ordering::Release);
            let result = change();
            self.version.store(version.wrapping_add(2), Ordering::Release);
            result
        });
        if result.is_none() {
            self.is_stale.store(1, Ordering::Relaxed);
        }
        result
    }

    /// Adds a block; false if the table is full, or its lock was not acquired.
    pub(crate) fn add(&self, block: Block) -> bool {
        self.update(|| {
            let (count, at) = (self.len(), self.upper_bound(block.begin));
            if count >= BLOCKS_MAX {
                return false;
            }
            for table in self.tables() {
                for from in (at..count).rev() {
                    set(table, from + 1, get(table, from));
                }
            }
            self.set(at, block);
            self.count.store(count as u64 + 1, Ordering::Relaxed);
            true
        })
        .unwrap_or(false)
    }

    /// Removes the block that begins at an address, and returns it.
    pub(crate) fn remove(&self, address: u64) -> Option<Block> {
        self.update(|| {
            let at = self.upper_bound(address).checked_sub(1).filter(|at| get(self.begins, *at) == address)?;
            Some(self.remove_at(at))
        })
        .flatten()
    }

    fn remove_at(&self, at: usize) -> Block {
        let (removed, count) = (self.get(at), self.len());
        for table in self.tables() {
            for to in at..count.saturating_sub(1) {
                set(table, to, get(table, to + 1));
            }
        }
        self.count.store(count.saturating_sub(1) as u64, Ordering::Relaxed);
        removed
    }

    /// Assigns the blocks of a context to another one; false if the table's lock was not acquired.
    pub(crate) fn reassign(&self, context: u64, other: u64) -> bool {
        let reassign = || {
            for owner in self.contexts.iter().take(self.len()) {
                let _ = owner.compare_exchange(context, other, Ordering::Relaxed, Ordering::Relaxed);
            }
        };
        self.update(reassign).is_some()
    }

    /// Removes any block of a context, and returns it; `None` if it has none.
    pub(crate) fn remove_any_in(&self, context: u64) -> Option<Block> {
        self.update(|| {
            let at = (0..self.len()).find(|at| get(self.contexts, *at) == context)?;
            Some(self.remove_at(at))
        })
        .flatten()
    }
}

/// Slot of an address in the lookup cache. Threads may overwrite each other's slots: any value read
/// is still a position, which the search checks.
#[derive(Clone, Copy)]
struct CacheSlot {
    word: usize,
    shift: usize,
}

impl CacheSlot {
    fn of(address: u64) -> Self {
        let hash = (address.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> (u64::BITS - CACHE_LOG2)) as usize;
        Self { word: hash / SLOTS_PER_WORD, shift: hash % SLOTS_PER_WORD * SLOT_BITS }
    }

    fn get(self, cache: &[AtomicU64]) -> usize {
        (get(cache, self.word) >> self.shift & ((1 << SLOT_BITS) - 1)) as usize
    }

    fn set(self, cache: &[AtomicU64], at: usize) {
        let others = get(cache, self.word) & !(((1 << SLOT_BITS) - 1) << self.shift);
        set(cache, self.word, others | (at as u64) << self.shift);
    }
}

impl Block {
    /// Block of this size. A block of 0 bytes gets 1 byte, so that it contains its address.
    pub(crate) fn new(begin: u64, bytes: u64, context: u64, is_managed: bool) -> Self {
        Self { begin, end: begin.saturating_add(bytes.max(1)), context, is_managed, is_pooled: false }
    }

    /// Marks the block as one from a pool.
    pub(crate) const fn in_pool(self) -> Self {
        Self { is_pooled: true, ..self }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn block(begin: u64, bytes: u64, context: u64) -> Block {
        Block::new(begin, bytes, context, false)
    }

    #[test]
    fn addresses_from_begin_to_end_exclusive_are_inside() {
        let blocks = Blocks::new().unwrap();
        let all = [block(0x2000, 0x1000, 1), block(0x8000, 0x10, 1), block(0x1000, 0x800, 2)];
        assert!(all.into_iter().all(|block| blocks.add(block)));
        let inside = |address| blocks.find(address) == SearchResult::Inside;
        assert!([0x1000, 0x17ff, 0x2000, 0x2fff, 0x8000, 0x800f].into_iter().all(inside));
        assert!(![0, 0xfff, 0x1800, 0x3000, 0x8010, u64::MAX].into_iter().any(inside));
        assert_eq!(blocks.remove(0x2000), Some(block(0x2000, 0x1000, 1)));
        assert!(!inside(0x2000) && inside(0x1000) && inside(0x8000));
        assert_eq!(blocks.remove(0x2000), None);
    }

    #[test]
    fn upper_bound_counts_blocks_up_to_an_address() {
        let blocks = Blocks::new().unwrap();
        for count in 0..40 {
            for before in 0..=count {
                assert_eq!(blocks.upper_bound((before as u64) << 12 | 0xfff), before, "of {count}");
            }
            assert!(blocks.add(block((count as u64 + 1) << 12, 4096, 0)));
        }
    }

    #[test]
    fn cached_positions_are_checked_after_blocks_move() {
        let blocks = Blocks::new().unwrap();
        let begin = |at: u64| 0x7f00_0000_0000 + (at << 20);
        let middle = |at: u64| begin(at) + 4096;
        // More blocks than the cache has slots, so that some share a slot.
        let count = (1 << CACHE_LOG2) + 500;
        for at in 0..count {
            assert!(blocks.add(block(begin(at), 8192, 0)));
        }
        for _ in 0..2 {
            assert!((0..count).all(|at| blocks.find(middle(at)) == SearchResult::Inside));
            assert!((0..count).all(|at| blocks.find(begin(at) + 8192) == SearchResult::Outside));
        }
        // Frees every second block: the others move within the table.
        for at in (0..count).step_by(2) {
            assert!(blocks.remove(begin(at)).is_some());
        }
        for _ in 0..2 {
            for at in 0..count {
                assert_eq!(
                    blocks.find(middle(at)),
                    if at % 2 == 0 { SearchResult::Outside } else { SearchResult::Inside }
                );
            }
        }
    }

    #[test]
    fn blocks_of_a_context_are_removed_with_it() {
        let blocks = Blocks::new().unwrap();
        for at in 1..=6_u64 {
            assert!(blocks.add(block(at << 20, 4096, at % 2)));
        }
        let mut removed = core::iter::from_fn(|| blocks.remove_any_in(1)).map(|block| block.begin);
        assert_eq!([removed.next(), removed.next(), removed.next()], [Some(1 << 20), Some(3 << 20), Some(5 << 20)]);
        assert_eq!(removed.next(), None);
        assert_eq!(blocks.find(2 << 20), SearchResult::Inside);
    }

    #[test]
    fn full_table_rejects_blocks() {
        let blocks = Blocks::new().unwrap();
        assert!((0..BLOCKS_MAX as u64).all(|at| blocks.add(block(at << 12, 4096, 0))));
        assert!(!blocks.add(block(u64::MAX - 4096, 4096, 0)));
    }

    #[test]
    fn next_managed_finds_managed_blocks_only() {
        let blocks = Blocks::new().unwrap();
        let managed = Block::new(0x5000, 0x1000, 7, true).in_pool();
        assert!(blocks.add(block(0x1000, 0x1000, 7)) && blocks.add(managed) && blocks.add(block(0x9000, 0x1000, 8)));
        for address in [0, 0x1000, 0x4fff, 0x5000, 0x5fff] {
            assert_eq!(blocks.next_managed(address), Ok(Some(managed)), "{address:#x}");
        }
        assert_eq!(blocks.next_managed(0x6000), Ok(None));
    }

    #[test]
    fn contexts_are_iterated_in_order_and_once() {
        let blocks = Blocks::new().unwrap();
        assert!([5, 2, 5, 9].into_iter().zip(1_u64..).all(|(context, at)| blocks.add(block(at << 12, 1, context))));
        let contexts =
            core::iter::successors(blocks.next_context_block(0), |block| blocks.next_context_block(block.context));
        assert_eq!(contexts.map(|block| block.context).collect::<Vec<_>>(), [2, 5, 9]);
    }

    #[test]
    fn a_stale_table_reports_no_managed_memory() {
        let blocks = Blocks::new().unwrap();
        assert!(blocks.add(Block::new(0x1000, 0x1000, 1, true)));
        // The lock is held throughout.
        assert_eq!(blocks.lock.with(|| blocks.remove(0x1000)), Some(None));
        assert_eq!((blocks.next_managed(0x1000), blocks.next_context_block(0)), (Err(TableUnavailable), None));
    }
}
