//! Ids, a type for each kind of entry, and tables by id.

use std::{
    marker::PhantomData,
    ops::{Index, IndexMut},
};

use serde::{Deserialize, Serialize};

/// Index of an entry in a table.
pub trait Id: Copy {
    /// Id of the entry at `index`.
    fn new(index: usize) -> Self;
    /// Index of the entry.
    fn index(self) -> usize;
}

/// Limit of the entries of a table, as ids have 32 bits. Drafts and recorders reject more before
/// they make an id.
pub const MAX_ENTRIES: usize = u32::MAX as usize;

macro_rules! id {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(transparent)]
        pub struct $name(pub u32);

        impl Id for $name {
            fn new(index: usize) -> Self {
                Self(u32::try_from(index).unwrap_or(u32::MAX))
            }

            fn index(self) -> usize {
                self.0 as usize
            }
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                self.0.fmt(f)
            }
        }
    };
}

id!(
    /// Tensor of an iteration.
    TensorId
);
id!(
    /// Kernel of an iteration, by its position in the order of execution. One past the last is the
    /// end of the iteration.
    KernelId
);
id!(
    /// Allocation of a run, from its malloc to its free. A reused address is another block.
    BlockId
);
id!(
    /// Operation of a run, by its position in their order.
    OpId
);
id!(
    /// Launch of a run.
    LaunchId
);
id!(
    /// Kind of launch: one function with one shape of grid.
    SignatureId
);

/// Vector that is indexed by one type of id only.
///
/// # Panics
/// `table[id]` panics if the entry does not exist, as a vector does: ids come from the creator of
/// the table.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Table<I, T> {
    entries: Vec<T>,
    #[serde(skip)]
    ids: PhantomData<I>,
}

impl<I: Id, T> Table<I, T> {
    /// Table of `count` equal entries.
    #[must_use]
    pub fn of(value: T, count: usize) -> Self
    where
        T: Clone,
    {
        Self::from(vec![value; count])
    }

    /// Number of entries.
    #[must_use]
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether the table has no entries.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Entry of an id, if it exists.
    #[must_use]
    pub fn find(&self, id: I) -> Option<&T> {
        self.entries.get(id.index())
    }

    /// Entry of an id, if it exists, for modification.
    #[must_use]
    pub fn find_mut(&mut self, id: I) -> Option<&mut T> {
        self.entries.get_mut(id.index())
    }

    /// Adds an entry and returns its id.
    pub fn push(&mut self, entry: T) -> I {
        self.entries.push(entry);
        I::new(self.entries.len() - 1)
    }

    /// Removes the last entry and returns it.
    pub fn pop(&mut self) -> Option<T> {
        self.entries.pop()
    }

    /// All ids in order.
    pub fn ids(&self) -> impl DoubleEndedIterator<Item = I> + ExactSizeIterator + use<I, T> {
        (0..self.entries.len()).map(I::new)
    }

    /// All entries in order, with their ids.
    #[must_use]
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = (I, &T)> + ExactSizeIterator {
        self.entries.iter().enumerate().map(|(index, entry)| (I::new(index), entry))
    }

    /// All entries in order.
    #[must_use]
    pub fn values(&self) -> &[T] {
        &self.entries
    }

    /// All entries in order, for modification.
    pub fn values_mut(&mut self) -> &mut [T] {
        &mut self.entries
    }
}

impl<I, T> Default for Table<I, T> {
    fn default() -> Self {
        Self::from(Vec::new())
    }
}

impl<I, T> From<Vec<T>> for Table<I, T> {
    fn from(entries: Vec<T>) -> Self {
        Self { entries, ids: PhantomData }
    }
}

impl<I, T> FromIterator<T> for Table<I, T> {
    fn from_iter<S: IntoIterator<Item = T>>(entries: S) -> Self {
        Self::from(entries.into_iter().collect::<Vec<_>>())
    }
}

impl<I: Id, T> Index<I> for Table<I, T> {
    type Output = T;

    #[expect(clippy::indexing_slicing, reason = "indexing may panic, see Table")]
    fn index(&self, id: I) -> &T {
        &self.entries[id.index()]
    }
}

impl<I: Id, T> IndexMut<I> for Table<I, T> {
    #[expect(clippy::indexing_slicing, reason = "indexing may panic, see Table")]
    fn index_mut(&mut self, id: I) -> &mut T {
        &mut self.entries[id.index()]
    }
}
