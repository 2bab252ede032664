//! What can be counted of memory at GPUs: what cannot is shown as unknown, and not as nothing.

use model::Snapshot;

/// What of it can be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Capabilities {
    is_populated: bool,
    is_resident: bool,
}

impl Capabilities {
    /// By the driver that is watched. What is resident is learned from records of blocks, too.
    pub(crate) fn of(snapshot: &Snapshot) -> Self {
        let driver = snapshot.source.driver.as_ref();
        let is_populated = driver.is_none_or(|driver| driver.residency_unavailable.is_none());
        Self { is_populated, is_resident: is_populated && !snapshot.source.block_records.is_off }
    }

    /// What became resident with nothing to copy, if that is counted.
    pub(crate) fn populated<T>(self, populated: T) -> Option<T> {
        self.is_populated.then_some(populated)
    }

    /// What is resident, if that is counted.
    pub(crate) fn resident<T>(self, resident: T) -> Option<T> {
        self.is_resident.then_some(resident)
    }
}
