//! Numbers of things, each with its own type, and tables by them.

use std::{
    marker::PhantomData,
    ops::{Index, IndexMut},
};

use serde::{Deserialize, Serialize};

/// A number that says which of a table's entries is meant.
pub trait Id: Copy {
    /// The id of the entry at `index`.
    fn new(index: usize) -> Self;
    /// Where the entry lies.
    fn index(self) -> usize;
}

/// More entries than ids can tell apart, which are of 32 bits: a table's constructor refuses them before an id is made.
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
    /// A tensor of an iteration.
    TensorId
);
id!(
    /// A kernel of an iteration, by its place in the order of execution. One past the last is where the iteration ends.
    KernelId
);
id!(
    /// One allocation of a run, from its malloc to its free. An address that is used again is another block.
    BlockId
);
id!(
    /// A place in the order of operations of a run.
    OpId
);
id!(
    /// A launch of a run.
    LaunchId
);
id!(
    /// A kind of launch: one function with one shape of grid.
    SignatureId
);

/// Entries by their ids: a vector that cannot be asked with the wrong kind of number.
///
/// # Panics
/// `table[id]` panics where there is no such entry, as a vector does: ids come from whoever made the table.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Table<I, T> {
    entries: Vec<T>,
    #[serde(skip)]
    ids: PhantomData<I>,
}

impl<I: Id, T> Table<I, T> {
    /// `count` entries, all the same.
    #[must_use]
    pub fn of(value: T, count: usize) -> Self
    where
        T: Clone,
    {
        Self::from(vec![value; count])
    }

    /// How many there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// The entry, if there is one.
    #[must_use]
    pub fn find(&self, id: I) -> Option<&T> {
        self.entries.get(id.index())
    }

    /// The entry, if there is one, to change it.
    #[must_use]
    pub fn find_mut(&mut self, id: I) -> Option<&mut T> {
        self.entries.get_mut(id.index())
    }

    /// Adds an entry and tells its id.
    pub fn push(&mut self, entry: T) -> I {
        self.entries.push(entry);
        I::new(self.entries.len() - 1)
    }

    /// Takes the last entry away.
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

    /// All entries in order, to change them.
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

    #[expect(clippy::indexing_slicing, reason = "an index by its contract, see Table")]
    fn index(&self, id: I) -> &T {
        &self.entries[id.index()]
    }
}

impl<I: Id, T> IndexMut<I> for Table<I, T> {
    #[expect(clippy::indexing_slicing, reason = "an index by its contract, see Table")]
    fn index_mut(&mut self, id: I) -> &mut T {
        &mut self.entries[id.index()]
    }
}
