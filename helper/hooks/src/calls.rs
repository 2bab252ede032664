//! Calls of the driver that commands stand for, and the parts that they are made in.

use call_ring::command::Action;

use crate::parts::{Gaps, Parts, Range};

/// Most bytes of a prefetch, behind which the program's calls have their turn: some 2 ms of a fast
/// link.
pub(crate) const PREFETCH_BYTES_MAX: u64 = 32 << 20;

/// Host, as a device.
pub(crate) const HOST: i32 = -1;

/// Calls of the driver for an action.
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
        /// Advice in its place before, which may fail.
        before: Option<u32>,
    },
}

impl Calls {
    /// Calls for an action about a device, with the numbers of `CUmem_advise`.
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
            Action::PreferHostNoMore => Self::Withdraw { advice: 4, to: device, before: Some(PREFER) },
            Action::AccessByGpu => Self::Advise { advice: 5, to: device },
            Action::NoAccessByGpu => Self::Withdraw { advice: 6, to: device, before: None },
        }
    }

    /// Parts of a range. Advice is given at once, as each part would be a range of its own to the
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
