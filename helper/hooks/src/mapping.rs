//! Memory mapped from the kernel, as the helper has no allocator: tables of zeroed words, and
//! leaked values.

#![expect(unsafe_code, reason = "maps memory")]

use core::{slice, sync::atomic::AtomicU64};

use syscalls::file::Descriptor;

use crate::system::{self, Errno};

/// Maps private words for the life of the process. Untouched pages take no memory.
pub(crate) fn private(words: usize) -> Result<&'static [AtomicU64], Errno> {
    let address = system::map_private(words * 8)?;
    // SAFETY: the mapping has this size, is zeros and is never unmapped.
    Ok(unsafe { slice::from_raw_parts(address as *const AtomicU64, words) })
}

/// Maps private words that are zeroed in a forked child.
pub(crate) fn private_wiped_on_fork(words: usize) -> Result<&'static [AtomicU64], Errno> {
    let memory = private(words)?;
    system::at_fork(memory.as_ptr() as usize, words * 8, system::AtFork::WipeOnFork)?;
    Ok(memory)
}

/// Moves a value into a mapping of its own, for the life of the process.
pub(crate) fn leak<T: Sync>(value: T) -> Result<&'static mut T, Errno> {
    const { assert!(align_of::<T>() <= 4096, "mappings are page-aligned") };
    let place = system::map_private(size_of::<T>())? as *mut T;
    // SAFETY: the mapping has this size, and nothing else has its address.
    unsafe { place.write(value) };
    // SAFETY: it was written, and is never unmapped.
    Ok(unsafe { &mut *place })
}

/// Allocator of words, one by one.
#[derive(Debug)]
pub(crate) struct Words(slice::Iter<'static, AtomicU64>);

impl Words {
    /// Allocates from these words.
    pub(crate) fn new(words: &'static [AtomicU64]) -> Self {
        Self(words.iter())
    }

    /// Next word; `None` after the last.
    pub(crate) fn next(&mut self) -> Option<&'static AtomicU64> {
        self.0.next()
    }
}

/// Maps words of shared memory for the life of the process. Forked children do not have the
/// mapping.
pub(crate) fn shared(memory: &Descriptor, words: usize) -> Result<&'static [AtomicU64], Errno> {
    let address = system::map_shared(memory, words * 8)?;
    if let Err(error) = system::at_fork(address, words * 8, system::AtFork::DontFork) {
        system::unmap(address, words * 8);
        return Err(error);
    }
    // SAFETY: the mapping has this size, cannot shrink as it is sealed, and is never unmapped.
    Ok(unsafe { slice::from_raw_parts(address as *const AtomicU64, words) })
}
