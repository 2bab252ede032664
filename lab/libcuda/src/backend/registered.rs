//! Ordinary memory of the program that devices may access: `cuMemHostRegister`.

use std::{
    collections::BTreeMap,
    sync::{PoisonError, RwLock},
};

/// Registered memory: length by first address.
#[derive(Debug, Default)]
pub(crate) struct Registered(RwLock<BTreeMap<u64, u64>>);

impl Registered {
    /// Registers memory.
    pub(crate) fn insert(&self, address: u64, bytes: u64) {
        self.0.write().unwrap_or_else(PoisonError::into_inner).insert(address, bytes);
    }

    /// Ends the registration of the memory at an address.
    pub(crate) fn remove(&self, address: u64) {
        self.0.write().unwrap_or_else(PoisonError::into_inner).remove(&address);
    }

    /// Whether all bytes of an access are registered.
    pub(crate) fn contains(&self, address: u64, bytes: u64) -> bool {
        let registered = self.0.read().unwrap_or_else(PoisonError::into_inner);
        let block = registered.range(..=address).next_back();
        block.is_some_and(|(base, length)| address.saturating_add(bytes) <= base.saturating_add(*length))
    }
}
