//! Subjects of `cuMemAdvise`, by `CUmem_advise`.

/// Subject of advice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Subject {
    /// Read duplication.
    ReadDuplication,
    /// Preferred location.
    Location,
    /// Access by a device, which does not pin the memory.
    Access,
    /// Subject of a later driver.
    Unknown,
}

impl Subject {
    /// Subject of advice, and whether the advice is set rather than unset.
    #[must_use]
    pub const fn from_advice(advice: u32) -> (Self, bool) {
        match advice {
            1 | 2 => (Self::ReadDuplication, advice == 1),
            3 | 4 => (Self::Location, advice == 3),
            5 | 6 => (Self::Access, advice == 5),
            _ => (Self::Unknown, true),
        }
    }
}
