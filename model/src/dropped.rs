//! Reasons of dropped events.

/// Reason why an event was dropped. The names are those in labels and JSON.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum DropReason {
    /// The process is not known.
    UnknownVaSpace,
    /// No room for another count.
    CountsFull,
    /// No room for another VA space.
    SpacesFull,
    /// No room for another record.
    RingFull,
    /// The driver's memory could not be read.
    Unreadable,
    /// A structure contradicts the layout in use.
    SelfTest,
    /// The kernel did not run the probe.
    Skipped,
}

impl DropReason {
    /// Every reason.
    pub const ALL: [Self; 7] = [
        Self::UnknownVaSpace,
        Self::CountsFull,
        Self::SpacesFull,
        Self::RingFull,
        Self::Unreadable,
        Self::SelfTest,
        Self::Skipped,
    ];

    /// The name in labels and JSON.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::UnknownVaSpace => "unknown_va_space",
            Self::CountsFull => "counts_full",
            Self::SpacesFull => "spaces_full",
            Self::RingFull => "ring_full",
            Self::Unreadable => "unreadable",
            Self::SelfTest => "self_test",
            Self::Skipped => "skipped",
        }
    }

    /// Help text of the reason. Not all of them count events of the driver.
    #[must_use]
    pub const fn counts(self) -> &'static str {
        match self {
            Self::UnknownVaSpace => {
                "Faults and migrations of VA spaces that uvmd does not know, so neither their process: made before it attached and not found then, \
                 or dropped for lack of space (`spaces_full`)."
            }
            Self::CountsFull => {
                "Faults and migrations for which the counts in the kernel had no room: too many processes at once, or a process or user at its quota, \
                 which `/api/v1/status` names under `degraded`. The process is known: it shows them as its own `dropped_events`."
            }
            Self::SpacesFull => {
                "VA spaces, not events: more at once than there is room for, or than one process or user may have. The faults and migrations of each \
                 are under `unknown_va_space`."
            }
            Self::RingFull => {
                "Records of a VA space made or destroyed, not events: uvmd was not told in time. Of one made, no process is listed; of one destroyed, \
                 the process is found ended later."
            }
            Self::Unreadable => "Events whose data in the driver's memory could not be read.",
            Self::SelfTest => {
                "Events that contradict what is known of this driver's structures. uvmd refuses the driver, as figures could be wrong."
            }
            Self::Skipped => {
                "Runs of a probe that the kernel left out because a CPU was in another probe. Each would have been one event, or one VA space made \
                 or destroyed. A lower bound: the kernel counts them since Linux 6.7, and not all of them."
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_reason_is_listed_once() {
        for (at, reason) in DropReason::ALL.into_iter().enumerate() {
            assert_eq!(reason as usize, at);
        }
        assert_eq!(DropReason::ALL.map(DropReason::name).iter().collect::<std::collections::BTreeSet<_>>().len(), 7);
    }
}
