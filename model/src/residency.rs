//! Residency: a process's managed memory in GPU memory.

use std::ops::AddAssign;

use serde::{Deserialize, Serialize};

/// Bytes resident at a GPU, with the bounds within which the true number lies.
///
/// The driver does not tell; it follows from what the probes see of each block. What they did not see, as before uvmd counted or where records were
/// left out, widens the bounds until the block is seen again.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Residency {
    /// The best estimate.
    pub bytes: u64,
    /// No less than this.
    pub min_bytes: u64,
    /// No more than this; `u64::MAX` where nothing is known that bounds it.
    pub max_bytes: u64,
}

impl Residency {
    /// A number that is known.
    #[must_use]
    pub const fn exactly(bytes: u64) -> Self {
        Self { bytes, min_bytes: bytes, max_bytes: bytes }
    }

    /// The same with an upper bound.
    #[must_use]
    pub fn at_most(self, bytes: u64) -> Self {
        Self {
            bytes: self.bytes.min(bytes),
            min_bytes: self.min_bytes.min(bytes),
            max_bytes: self.max_bytes.min(bytes),
        }
    }
}

impl AddAssign for Residency {
    fn add_assign(&mut self, other: Self) {
        self.bytes = self.bytes.saturating_add(other.bytes);
        self.min_bytes = self.min_bytes.saturating_add(other.min_bytes);
        self.max_bytes = self.max_bytes.saturating_add(other.max_bytes);
    }
}

impl AddAssign<&Self> for Residency {
    fn add_assign(&mut self, other: &Self) {
        *self += *other;
    }
}
