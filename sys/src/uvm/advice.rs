//! Advice on the ranges of another process: what `cudaMemAdvise` gives from within.
//!
//! It stays in force until it is withdrawn, whoever gave it. The driver keeps it by range, and cuts a range in two at each end of what
//! is advised: so many small pieces of advice stay many small ranges, also when they are withdrawn.

use super::{
    Uuid, UvmError,
    request::{
        ANY_NODE, DisableReadDuplication, EnableReadDuplication, SetAccessedBy, SetPreferredLocation, UnsetAccessedBy,
        UnsetPreferredLocation,
    },
    target::{PageRange, VaSpace},
};

/// All of these fail if the process has ended, or if the driver refuses: with [`Status::INVALID_ADDRESS`](super::Status::INVALID_ADDRESS) where
/// no managed memory is.
impl VaSpace<'_> {
    /// Faults bring the pages to this processor, or leave them there and map them.
    ///
    /// # Errors
    /// As above.
    pub fn set_preferred_location(&self, pages: PageRange, location: Uuid) -> Result<(), UvmError> {
        // No driver gives this answer, so that one it did not write is no success.
        let (base, length, status) = (pages.begin(), pages.bytes(), u32::MAX);
        self.ask(SetPreferredLocation { base, length, location, cpu_numa_node: ANY_NODE, status })
    }

    /// The pages have no such place any more, whichever it was.
    ///
    /// # Errors
    /// As above.
    pub fn unset_preferred_location(&self, pages: PageRange) -> Result<(), UvmError> {
        self.ask(UnsetPreferredLocation { base: pages.begin(), length: pages.bytes(), status: 0 })
    }

    /// This processor gets mappings to the pages, wherever they are.
    ///
    /// # Errors
    /// As above.
    pub fn set_accessed_by(&self, pages: PageRange, by: Uuid) -> Result<(), UvmError> {
        self.ask(SetAccessedBy { base: pages.begin(), length: pages.bytes(), by, status: 0 })
    }

    /// It gets no new ones.
    ///
    /// # Errors
    /// As above.
    pub fn unset_accessed_by(&self, pages: PageRange, by: Uuid) -> Result<(), UvmError> {
        self.ask(UnsetAccessedBy { base: pages.begin(), length: pages.bytes(), by, status: 0 })
    }

    /// Pages that are read may be in several places at once.
    ///
    /// # Errors
    /// As above.
    pub fn enable_read_duplication(&self, pages: PageRange) -> Result<(), UvmError> {
        self.ask(EnableReadDuplication { base: pages.begin(), length: pages.bytes(), status: 0 })
    }

    /// Each is in one place again.
    ///
    /// # Errors
    /// As above.
    pub fn disable_read_duplication(&self, pages: PageRange) -> Result<(), UvmError> {
        self.ask(DisableReadDuplication { base: pages.begin(), length: pages.bytes(), status: 0 })
    }
}
