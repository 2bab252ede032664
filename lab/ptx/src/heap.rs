//! Heap of a device, from which kernels allocate by `malloc`.

use std::collections::BTreeMap;

/// Bytes of which an allocation is a multiple, as is its address.
const UNIT_BYTES: u64 = 16;

/// Heap in a range of global memory. What a kernel has allocated is there for the next one, too.
#[derive(Debug)]
pub struct Heap {
    /// Sizes of free ranges by their addresses; none ends where another begins.
    free: BTreeMap<u64, u64>,
    /// Sizes of allocations by their addresses.
    taken: BTreeMap<u64, u64>,
}

impl Heap {
    /// Heap of global memory that is the caller's, at a multiple of 16.
    #[must_use]
    pub fn new(address: u64, bytes: u64) -> Self {
        Self { free: BTreeMap::from([(address, bytes)]), taken: BTreeMap::new() }
    }

    /// Address of so many bytes; none: no free range is that long.
    pub(crate) fn allocate(&mut self, bytes: u64) -> Option<u64> {
        let bytes = bytes.max(1).checked_next_multiple_of(UNIT_BYTES)?;
        let (&address, &free) = self.free.iter().find(|(_, free)| **free >= bytes)?;
        self.free.remove(&address);
        if free > bytes {
            self.free.insert(address + bytes, free - bytes);
        }
        self.taken.insert(address, bytes);
        Some(address)
    }

    /// Frees an allocation; false: none has this address.
    pub(crate) fn release(&mut self, address: u64) -> bool {
        let Some(mut bytes) = self.taken.remove(&address) else { return false };
        let mut begin = address;
        if let Some(after) = self.free.remove(&(address + bytes)) {
            bytes += after;
        }
        if let Some((&before, &free)) = self.free.range(..address).next_back()
            && before + free == address
        {
            (begin, bytes) = (before, bytes + free);
        }
        self.free.insert(begin, bytes);
        true
    }
}
