//! Quantities that the running driver lets uvmd count. Others are reported as unknown, not as zero.

use crate::{Quantity, Snapshot};

impl Quantity {
    fn is_counted(self, snapshot: &Snapshot) -> bool {
        let source = &snapshot.source;
        let has_types = source.driver.as_ref().is_none_or(|driver| driver.residency_unavailable.is_none());
        if source.not_counted.contains(&self) {
            return false;
        }
        let is_missing = |name: &str| source.probes.iter().any(|probe| probe.name == name && probe.missing.is_some());
        match self {
            Self::Reuse => !source.block_records.is_off,
            Self::Populated => has_types,
            // Also by block records.
            Self::Resident => has_types && !source.block_records.is_off,
            _ => !self.probes().iter().any(|name| is_missing(name)),
        }
    }
}

/// Quantities that are counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Capabilities([bool; Quantity::ALL.len()]);

impl Capabilities {
    /// Capabilities of a driver that has every function.
    pub const ALL: Self = Self([true; Quantity::ALL.len()]);

    /// Capabilities of the running driver.
    #[must_use]
    pub fn of(snapshot: &Snapshot) -> Self {
        Self(Quantity::ALL.map(|quantity| quantity.is_counted(snapshot)))
    }

    /// Names of the quantities that are not counted.
    pub fn not_counted(self) -> impl Iterator<Item = &'static str> {
        Quantity::ALL.into_iter().filter(move |quantity| !self.has(*quantity)).map(Quantity::name)
    }

    /// Whether the quantity is counted.
    #[must_use]
    #[expect(clippy::indexing_slicing, reason = "the array has one element for each quantity")]
    pub fn has(self, quantity: Quantity) -> bool {
        self.0[quantity as usize]
    }

    /// The value, if the quantity is counted.
    #[must_use]
    pub fn counted<T>(self, quantity: Quantity, value: T) -> Option<T> {
        self.has(quantity).then_some(value)
    }
}
