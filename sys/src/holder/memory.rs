//! Pages of one VA space, which the driver adds to.

use std::{
    fs::File,
    io,
    num::NonZeroUsize,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    sync::atomic::AtomicU64,
};

use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, ftruncate, memfd_create};

use crate::{
    accessor::mapping::{Mapping, WORD_BYTES},
    uvm::records::{RECORD_BYTES, RECORD_WORDS},
};

/// Pages that the driver adds to, shared by uvmd and a holder. The driver pins them: they stay
/// until its trackers are closed, whoever unmaps them.
#[derive(Debug)]
pub struct Memory {
    file: File,
    mapping: Mapping,
}

impl Memory {
    /// This many pages of zeros.
    ///
    /// # Errors
    /// If there is no memory or no descriptor left.
    pub fn new(pages: NonZeroUsize) -> io::Result<Self> {
        let bytes = NonZeroUsize::new(pages.get().saturating_mul(page_bytes())).ok_or(io::ErrorKind::InvalidInput)?;
        let file = memfd_create(c"uvmd-counters", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
        ftruncate(&file, bytes.get() as u64)?;
        fcntl_add_seals(&file, SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL)?;
        Self::of(file, bytes)
    }

    /// Memory that the other process made.
    pub(crate) fn of(file: OwnedFd, bytes: NonZeroUsize) -> io::Result<Self> {
        let file = File::from(file);
        let mapping = Mapping::new(&file, bytes)?;
        Ok(Self { file, mapping })
    }

    /// Size.
    pub(crate) const fn bytes(&self) -> usize {
        self.mapping.words().len() * WORD_BYTES
    }

    /// Words of a page; `None` beyond the last one.
    #[must_use]
    pub fn page(&self, number: usize) -> Option<&[AtomicU64]> {
        let words = page_bytes() / WORD_BYTES;
        self.mapping.words().chunks_exact(words).nth(number)
    }

    /// Words of a ring of records that begins with a page; `None` if it does not fit.
    #[must_use]
    pub fn ring(&self, first_page: usize, records: usize) -> Option<&[AtomicU64]> {
        let begin = first_page.checked_mul(page_bytes() / WORD_BYTES)?;
        self.mapping.words().get(begin..begin.checked_add(records.checked_mul(RECORD_WORDS)?)?)
    }

    /// Pages of a ring.
    #[must_use]
    pub fn pages_of_ring(records: usize) -> usize {
        records.saturating_mul(RECORD_BYTES).div_ceil(page_bytes())
    }
}

impl AsFd for Memory {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

fn page_bytes() -> usize {
    usize::try_from(procfs::page_size()).unwrap_or(4096)
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::Ordering;

    use super::*;

    #[test]
    fn both_processes_see_what_is_added_to_a_page() {
        let ours = Memory::new(NonZeroUsize::new(2).unwrap()).unwrap();
        let file = ours.as_fd().try_clone_to_owned().unwrap();
        let theirs = Memory::of(file, NonZeroUsize::new(ours.bytes()).unwrap()).unwrap();
        theirs.page(1).unwrap()[9].fetch_add(7, Ordering::Relaxed);
        assert_eq!(ours.page(1).unwrap()[9].load(Ordering::Relaxed), 7);
        assert!(ours.page(2).is_none());
    }
}
