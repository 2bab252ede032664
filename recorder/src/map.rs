//! Ordered maps whose clones share their entries: cloning takes constant time, and a change copies
//! only the path to the entry. So each operation visits at most some dozens of entries, regardless
//! of the program's other calls.

use std::{cmp::Ordering, ops::RangeBounds};

use rpds::RedBlackTreeMapSync;

#[cfg(test)]
use crate::visits;

/// Map with numbers as keys.
#[derive(Clone, Debug)]
pub(crate) struct Map<K: Ord, V>(RedBlackTreeMapSync<Key<K>, V>);

/// Bytes of an entry with a key and value of these sizes, as allocated.
pub(crate) const fn entry_bytes<K, V>() -> usize {
    /// Reference counts of the entry and of its node, and overhead of the allocator.
    const COUNTS: usize = 2 * 8 + 2 * 16;
    /// Entry, two children and colour.
    const NODE: usize = 4 * 8;
    size_of::<K>() + size_of::<V>() + COUNTS + NODE
}

/// Key that counts comparisons in tests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Key<K>(K);

impl<K: Ord> Ord for Key<K> {
    fn cmp(&self, other: &Self) -> Ordering {
        #[cfg(test)]
        visits::add();
        self.0.cmp(&other.0)
    }
}

impl<K: Ord> PartialOrd for Key<K> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl<K: Ord, V> Default for Map<K, V> {
    fn default() -> Self {
        Self(RedBlackTreeMapSync::new_sync())
    }
}

impl<K: Ord + Copy, V> Map<K, V> {
    pub(crate) fn len(&self) -> usize {
        self.0.size()
    }

    pub(crate) fn get(&self, key: K) -> Option<&V> {
        self.0.get(&Key(key))
    }

    pub(crate) fn get_mut(&mut self, key: K) -> Option<&mut V>
    where
        V: Clone,
    {
        self.0.get_mut(&Key(key))
    }

    /// Sets the value of a key.
    pub(crate) fn insert(&mut self, key: K, value: V) {
        self.0.insert_mut(Key(key), value);
    }

    /// Removes a key and returns its value.
    pub(crate) fn remove(&mut self, key: K) -> Option<V>
    where
        V: Clone,
    {
        // The map would copy the path even of an absent key.
        let value = self.get(key)?.clone();
        self.0.remove_mut(&Key(key));
        Some(value)
    }

    /// Entries by key.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (K, &V)> {
        self.0.iter().map(|(Key(key), value)| (*key, value))
    }

    /// Entries of a non-empty range, by key.
    pub(crate) fn range(&self, range: impl RangeBounds<K>) -> impl DoubleEndedIterator<Item = (K, &V)> {
        let bounds = (range.start_bound().map(|key| Key(*key)), range.end_bound().map(|key| Key(*key)));
        self.0.range(bounds).map(|(Key(key), value)| (*key, value))
    }

    /// Last entry up to a key.
    pub(crate) fn last_up_to(&self, key: K) -> Option<(K, &V)> {
        self.range(..=key).next_back()
    }
}
