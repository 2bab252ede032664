//! Handles: numbers that programs hold for pointers.

use std::{
    collections::HashMap,
    sync::{
        Arc, PoisonError, RwLock,
        atomic::{AtomicUsize, Ordering},
    },
};

/// Number that a program holds; never a small one, which have meanings of their own.
pub(crate) type Handle = usize;

static NEXT: AtomicUsize = AtomicUsize::new(0x10_0000);

/// New handle.
pub(crate) fn fresh() -> Handle {
    NEXT.fetch_add(0x10, Ordering::Relaxed)
}

/// Objects by handle.
#[derive(Debug)]
pub(crate) struct Table<T>(RwLock<HashMap<Handle, Arc<T>>>);

impl<T> Default for Table<T> {
    fn default() -> Self {
        Self(RwLock::default())
    }
}

impl<T> Table<T> {
    /// Adds an object.
    pub(crate) fn add(&self, handle: Handle, object: Arc<T>) {
        self.0.write().unwrap_or_else(PoisonError::into_inner).insert(handle, object);
    }

    /// Object of a handle.
    pub(crate) fn get(&self, handle: Handle) -> Option<Arc<T>> {
        self.0.read().unwrap_or_else(PoisonError::into_inner).get(&handle).cloned()
    }

    /// Removes an object.
    pub(crate) fn remove(&self, handle: Handle) -> Option<Arc<T>> {
        self.0.write().unwrap_or_else(PoisonError::into_inner).remove(&handle)
    }

    /// Removes the objects that do not meet a condition.
    pub(crate) fn retain(&self, mut keep: impl FnMut(&T) -> bool) {
        self.0.write().unwrap_or_else(PoisonError::into_inner).retain(|_, object| keep(object));
    }

    /// All objects.
    pub(crate) fn all(&self) -> Vec<Arc<T>> {
        self.0.read().unwrap_or_else(PoisonError::into_inner).values().cloned().collect()
    }
}
