//! Global memory that notes what a kernel accesses.
#![expect(unsafe_code, reason = "permits what the memory behind it permits")]

use std::sync::atomic::{AtomicU8, Ordering};

use ptx::{Memory, MemoryFault, Miss, WarpAccess, Window};

use super::{Accesses, BackendError, Range, pages::Pages, window};

/// Permissions that the interpreter sees while a kernel is observed: none at a kernel's begin, so
/// that it asks for each access that it has not made yet.
#[derive(Clone, Copy, Debug)]
pub(super) struct Table(&'static [AtomicU8]);

impl Table {
    /// Table for one device, which runs one kernel at a time.
    ///
    /// # Errors
    /// The system refuses.
    pub(super) fn map() -> Result<Self, BackendError> {
        let granules = usize::try_from(window::BYTES / ptx::GRANULE_BYTES).unwrap_or(0);
        Ok(Self(Pages::map(None, granules)?.atomics()))
    }
}

/// How long a permission of the memory lasts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Lasting {
    /// To the end of the kernel: the first access to a granule is noted, others cost nothing.
    Kernel,
    /// The driver may take it at any time: every access is looked at, so that those that miss are
    /// those of a kernel that is not observed.
    Access,
}

/// Memory of a kernel, observed.
pub(super) struct Observed<'a, M> {
    memory: &'a mut M,
    permissions: &'a [AtomicU8],
    lasting: Lasting,
    table: Table,
    accesses: Accesses,
}

impl<'a, M: Memory> Observed<'a, M> {
    /// Memory with its permissions.
    pub(super) fn new(memory: &'a mut M, permissions: &'a [AtomicU8], lasting: Lasting, table: Table) -> Self {
        Self { memory, permissions, lasting, table, accesses: Accesses::default() }
    }

    /// What the kernel has accessed.
    pub(super) fn finish(mut self) -> Accesses {
        self.clear();
        std::mem::take(&mut self.accesses)
    }

    fn permits(&self, access: &WarpAccess<'_>) -> bool {
        let (bytes, permission) = (access.lane_bytes.into(), access.access.permission());
        let permits = |&address: &u64| window::permits(self.permissions, Range { address, bytes }, permission);
        access.addresses.iter().all(|address| window::contains(*address) && permits(address))
    }

    fn note(&mut self, access: &WarpAccess<'_>) {
        let mut last = None;
        for &address in access.addresses.iter().filter(|address| window::contains(**address)) {
            // Neighbouring lanes mostly access the same granule.
            let granule = address / ptx::GRANULE_BYTES;
            if last.replace(granule) == Some(granule) {
                continue;
            }
            let range = Range { address, bytes: access.lane_bytes.into() };
            self.accesses.add(range, access.access);
            if self.lasting == Lasting::Kernel {
                for granule in window::granules(self.table.0, range) {
                    granule.fetch_or(access.access.permission(), Ordering::Relaxed);
                }
            }
        }
    }
}

impl<M> Observed<'_, M> {
    fn clear(&self) {
        if self.lasting == Lasting::Kernel {
            for address in self.accesses.granules() {
                window::permit(self.table.0, Range { address, bytes: 1 }, 0);
            }
        }
    }
}

impl<M> Drop for Observed<'_, M> {
    fn drop(&mut self) {
        self.clear();
    }
}

// SAFETY: the table permits what the memory's own permissions did, if these last for the kernel, and
// nothing otherwise; `miss` answers `Go` where they do at the moment, or where the memory does.
unsafe impl<M: Memory> Memory for Observed<'_, M> {
    fn window(&self) -> Window {
        Window { permissions: self.table.0.as_ptr(), ..self.memory.window() }
    }

    fn miss(&mut self, access: &WarpAccess<'_>) -> Result<Miss, MemoryFault> {
        let miss = if self.permits(access) { Miss::Go } else { self.memory.miss(access)? };
        if miss != Miss::Park {
            self.note(access);
        }
        Ok(miss)
    }

    fn settle(&mut self) -> Result<(), MemoryFault> {
        self.memory.settle()
    }

    fn load(&mut self, address: u64, bytes: &mut [u8]) -> Result<(), MemoryFault> {
        self.memory.load(address, bytes)
    }

    fn store(&mut self, address: u64, bytes: &[u8]) -> Result<(), MemoryFault> {
        self.memory.store(address, bytes)
    }

    fn update(&mut self, address: u64, bytes: u32, change: &mut dyn FnMut(u64) -> u64) -> Result<u64, MemoryFault> {
        self.memory.update(address, bytes, change)
    }

    fn print(&mut self, text: &str) {
        self.memory.print(text);
    }
}

#[cfg(test)]
mod tests {
    use ptx::{Access, GRANULE_BYTES};

    use super::*;

    /// Memory that parks what it lacks, and counts how often it is asked.
    struct Parks(u32);

    // SAFETY: permits nothing, and never answers `Go`.
    unsafe impl Memory for Parks {
        fn window(&self) -> Window {
            Window { base: window::BASE, bytes: window::BYTES, offset: 0, permissions: std::ptr::null() }
        }

        fn miss(&mut self, _access: &WarpAccess<'_>) -> Result<Miss, MemoryFault> {
            self.0 += 1;
            Ok(Miss::Park)
        }

        fn settle(&mut self) -> Result<(), MemoryFault> {
            Ok(())
        }

        fn load(&mut self, address: u64, _bytes: &mut [u8]) -> Result<(), MemoryFault> {
            Err(MemoryFault { address })
        }

        fn store(&mut self, address: u64, _bytes: &[u8]) -> Result<(), MemoryFault> {
            Err(MemoryFault { address })
        }

        fn update(
            &mut self,
            address: u64,
            _bytes: u32,
            _change: &mut dyn FnMut(u64) -> u64,
        ) -> Result<u64, MemoryFault> {
            Err(MemoryFault { address })
        }

        fn print(&mut self, _text: &str) {}
    }

    #[test]
    fn accesses_are_noted_when_they_are_made_and_miss_what_they_would_miss() {
        let table = Table::map().unwrap();
        let permissions: Vec<AtomicU8> = (0..2).map(|_| AtomicU8::new(0)).collect();
        let second = window::BASE + GRANULE_BYTES;
        let addresses = [window::BASE, second];
        let access = WarpAccess { access: Access::Read, addresses: &addresses, lane_bytes: 4, parked: 0 };
        for (lasting, seen) in [(Lasting::Access, 0), (Lasting::Kernel, Access::Read.permission())] {
            let mut memory = Parks(0);
            permissions[0].store(window::ALLOWED, Ordering::Relaxed);
            permissions[1].store(0, Ordering::Relaxed);
            let mut observed = Observed::new(&mut memory, &permissions, lasting, table);
            // One of the two lacks its permission, so that none is made yet.
            assert_eq!(observed.miss(&access), Ok(Miss::Park));
            assert_eq!(observed.accesses, Accesses::default());
            permissions[1].store(window::ALLOWED, Ordering::Relaxed);
            assert_eq!(observed.miss(&access), Ok(Miss::Go));
            assert_eq!(table.0[0].load(Ordering::Relaxed), seen, "{lasting:?}");
            assert_eq!(observed.finish().granules().collect::<Vec<_>>(), addresses);
            assert_eq!((memory.0, table.0[0].load(Ordering::Relaxed)), (1, 0), "{lasting:?}");
        }
    }
}
