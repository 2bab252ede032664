//! Advice of `cuMemAdvise`, by the number of its `CUmem_advise`.

/// What advice is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Subject {
    /// Duplication on reads.
    ReadDuplication,
    /// Preferred location.
    Location,
    /// Access by a device: memory moves all the same.
    Access,
    /// Of a later driver.
    Unknown,
}

impl Subject {
    /// Subject of advice, and whether it is given, and not taken back.
    #[must_use]
    pub const fn of(advice: u32) -> (Self, bool) {
        match advice {
            1 | 2 => (Self::ReadDuplication, advice == 1),
            3 | 4 => (Self::Location, advice == 3),
            5 | 6 => (Self::Access, advice == 5),
            _ => (Self::Unknown, true),
        }
    }
}
