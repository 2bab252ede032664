//! Calls of the driver by the application.

use super::Place;

/// Call of the driver by an application for a range of its memory.
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
    /// Number of kinds.
    pub(crate) const KINDS: usize = 7;

    /// Index of the kind, from 0.
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
