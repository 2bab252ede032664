//! The application's own calls of the driver.

use super::Place;

/// What an application can ask of the driver for a range of its memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Call {
    Migrate { to: Place },
    SetPreferredLocation { to: Place },
    UnsetPreferredLocation,
    SetAccessedBy { by: Place },
    UnsetAccessedBy { by: Place },
    EnableReadDuplication,
    DisableReadDuplication,
}

impl Call {
    /// How many kinds there are, and uvmd's names of them.
    pub(crate) const KINDS: usize = 7;

    /// Which kind it is, from 0.
    pub(crate) const fn kind(self) -> usize {
        match self {
            Self::Migrate { .. } => 0,
            Self::SetPreferredLocation { .. } => 1,
            Self::UnsetPreferredLocation => 2,
            Self::SetAccessedBy { .. } => 3,
            Self::UnsetAccessedBy { .. } => 4,
            Self::EnableReadDuplication => 5,
            Self::DisableReadDuplication => 6,
        }
    }
}
