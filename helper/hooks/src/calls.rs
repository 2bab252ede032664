//! Driver calls of each command, and the parts in which they are made.

use call_ring::command::Action;

use crate::parts::{Gaps, Parts, Range};

/// Maximum size of a part of a prefetch: some 2 ms of a fast link. Calls of the program may pass
/// the gate between parts.
pub(crate) const PREFETCH_BYTES_MAX: u64 = 32 << 20;

/// Device number of the host.
pub(crate) const HOST: i32 = -1;

/// Driver calls of an action.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Calls {
    Prefetch {
        to: i32,
    },
    Advise {
        advice: u32,
        to: i32,
    },
    Withdraw {
        advice: u32,
        to: i32,
        /// Advice given first, which may fail.
        before: Option<u32>,
    },
}

impl Calls {
    /// Calls for an action and a device, with the numbers of `CUmem_advise`.
    pub(crate) const fn new(action: Action, device: i32) -> Self {
        const PREFER: u32 = 3;
        match action {
            Action::PrefetchToGpu => Self::Prefetch { to: device },
            Action::PrefetchToHost => Self::Prefetch { to: HOST },
            Action::Duplicate => Self::Advise { advice: 1, to: device },
            Action::DoNotDuplicate => Self::Withdraw { advice: 2, to: device, before: None },
            Action::PreferGpu => Self::Advise { advice: PREFER, to: device },
            Action::PreferHost => Self::Advise { advice: PREFER, to: HOST },
            Action::PreferNowhere => Self::Withdraw { advice: 4, to: device, before: None },
            Action::UnsetPreferredHost => Self::Withdraw { advice: 4, to: device, before: Some(PREFER) },
            Action::AccessByGpu => Self::Advise { advice: 5, to: device },
            Action::NoAccessByGpu => Self::Withdraw { advice: 6, to: device, before: None },
        }
    }

    /// Parts of a range. Advice is not split by size, as each part would be a separate range to the
    /// driver.
    pub(crate) const fn parts(self, range: Range) -> Parts {
        const ALL: u64 = 1 << 63;
        match self {
            Self::Prefetch { .. } => Parts::new(range, PREFETCH_BYTES_MAX, Gaps::Refused),
            Self::Advise { .. } => Parts::new(range, ALL, Gaps::Refused),
            Self::Withdraw { .. } => Parts::new(range, ALL, Gaps::Skipped),
        }
    }
}
