//! Memory pools of `cuMemAllocAsync`: accounts, since memory goes back at once.

use std::{
    collections::HashMap,
    sync::{Mutex, MutexGuard, PoisonError},
};

use cudarc::driver::sys::CUmemPool_attribute as Attribute;

use crate::handle::{self, Handle};

/// Pool of a device.
#[derive(Debug)]
pub(crate) struct Pool {
    /// Handle.
    pub(crate) handle: Handle,
    /// Device.
    pub(crate) device: usize,
    account: Mutex<Account>,
}

#[derive(Debug, Default)]
struct Account {
    used_bytes: u64,
    used_high_bytes: u64,
    set: HashMap<u32, u64>,
}

const USED: u32 = Attribute::CU_MEMPOOL_ATTR_USED_MEM_CURRENT as u32;
const USED_HIGH: u32 = Attribute::CU_MEMPOOL_ATTR_USED_MEM_HIGH as u32;
const RESERVED: u32 = Attribute::CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT as u32;
const RESERVED_HIGH: u32 = Attribute::CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH as u32;
const THRESHOLD: u32 = Attribute::CU_MEMPOOL_ATTR_RELEASE_THRESHOLD as u32;

impl Pool {
    /// Empty pool.
    pub(crate) fn new(device: usize) -> Self {
        Self { handle: handle::fresh(), device, account: Mutex::default() }
    }

    fn account(&self) -> MutexGuard<'_, Account> {
        self.account.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts an allocation.
    pub(crate) fn take(&self, bytes: u64) {
        let mut account = self.account();
        account.used_bytes += bytes;
        account.used_high_bytes = account.used_high_bytes.max(account.used_bytes);
    }

    /// Counts a free.
    pub(crate) fn give(&self, bytes: u64) {
        let mut account = self.account();
        account.used_bytes = account.used_bytes.saturating_sub(bytes);
    }

    /// Attribute by number; whether it has 64 bits, and its value. None for an unknown one.
    pub(crate) fn attribute(&self, attribute: u32) -> Option<(bool, u64)> {
        let account = self.account();
        match attribute {
            USED | RESERVED => Some((true, account.used_bytes)),
            USED_HIGH | RESERVED_HIGH => Some((true, account.used_high_bytes)),
            THRESHOLD => Some((true, account.set.get(&attribute).copied().unwrap_or(0))),
            1..THRESHOLD => Some((false, account.set.get(&attribute).copied().unwrap_or(1))),
            _ => None,
        }
    }

    /// Whether an attribute of this number has 64 bits. None for an unknown one.
    pub(crate) fn is_wide(attribute: u32) -> Option<bool> {
        (1..=USED_HIGH).contains(&attribute).then_some(attribute >= THRESHOLD)
    }

    /// Sets an attribute. High marks can only be reset.
    pub(crate) fn set_attribute(&self, attribute: u32, value: u64) -> bool {
        let mut account = self.account();
        match attribute {
            USED_HIGH | RESERVED_HIGH if value == 0 => account.used_high_bytes = account.used_bytes,
            1..=THRESHOLD => {
                account.set.insert(attribute, value);
            }
            _ => return false,
        }
        true
    }
}
