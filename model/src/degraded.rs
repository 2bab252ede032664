//! States in which a source counts, but not all that it should.

/// One reason why a source is degraded, and who caused it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Degradation {
    /// Reason.
    pub reason: DegradedReason,
    /// The user that caused it, where one did.
    pub uid: Option<u32>,
    /// Name of the user, if the node knows one.
    pub user: Option<String>,
    /// The process that caused it, where one did.
    pub pid: Option<u32>,
    /// Uncounted part, its owner and the remedy, as a sentence.
    pub description: String,
}

/// Reason why a source is degraded. The names are those in labels and JSON.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum DegradedReason {
    /// A process or user holds as many entries of the probes' maps as one may.
    QuotaReached,
    /// A process or user makes VA spaces faster than they can be told apart.
    RegistrationRate,
    /// A user has as many owners listed as one may.
    OwnerQuotaReached,
    /// Populated and resident memory cannot be counted on this driver.
    ResidencyUnavailable,
    /// The source is the driver's tools, which count less than the probes.
    SourceReduced,
    /// A process, a user or the node has reached its quota of VA spaces with trackers.
    ToolsQuota,
    /// The process that holds a user's trackers hung.
    HolderHangs,
    /// Records of a process were dropped, as its queue was full.
    QueueFull,
    /// The VA space of a process may have existed for more than half a second before it was counted.
    AttachedLate,
    /// Probes and the driver's own counters contradict each other.
    SourcesDisagree,
    /// uvmd is in another cgroup namespace than that of the node, where paths of cgroups are incomplete.
    CgroupNamespace,
}

impl DegradedReason {
    /// Every reason.
    pub const ALL: [Self; 11] = [
        Self::QuotaReached,
        Self::RegistrationRate,
        Self::OwnerQuotaReached,
        Self::ResidencyUnavailable,
        Self::SourceReduced,
        Self::ToolsQuota,
        Self::HolderHangs,
        Self::QueueFull,
        Self::AttachedLate,
        Self::SourcesDisagree,
        Self::CgroupNamespace,
    ];

    /// The name in labels and JSON.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::QuotaReached => "quota_reached",
            Self::RegistrationRate => "registration_rate",
            Self::OwnerQuotaReached => "owner_quota_reached",
            Self::ResidencyUnavailable => "residency_unavailable",
            Self::SourceReduced => "source_reduced",
            Self::ToolsQuota => "tools_quota",
            Self::HolderHangs => "holder_hangs",
            Self::QueueFull => "queue_full",
            Self::AttachedLate => "attached_late",
            Self::SourcesDisagree => "sources_disagree",
            Self::CgroupNamespace => "cgroup_namespace",
        }
    }

    /// The meaning, for people.
    #[must_use]
    pub const fn description(self) -> &'static str {
        match self {
            Self::QuotaReached => {
                "A process or user has reached its quota of entries in the kernel's maps. Its further events are dropped; others are not affected."
            }
            Self::RegistrationRate => {
                "A process or user creates VA spaces too fast to be distinguished. They are counted together; others are not affected."
            }
            Self::OwnerQuotaReached => {
                "A user has reached its quota of units, containers and jobs with sums of their own. Further ones are summed under `other`."
            }
            Self::ResidencyUnavailable => {
                "Populated and resident memory is not counted, as the driver's fields for it are unknown."
            }
            Self::SourceReduced => {
                "Counts come from the driver's tools, which count less than probes. Quantities that they do not count are null in the API and absent from the metrics."
            }
            Self::ToolsQuota => {
                "A process, a user or the node has reached its quota of VA spaces counted by the driver's tools, or of queues of records. Further VA spaces \
                 are not counted, or have copies without cause and size."
            }
            Self::HolderHangs => {
                "The process that holds a user's trackers hung in the driver and was killed. Processes of that user are not counted for a minute; others are \
                 not affected."
            }
            Self::QueueFull => {
                "Records of a process came faster than they were read, and the driver dropped some. Numbers of faults and bytes between host and GPU stay \
                 exact; figures from records are lower bounds."
            }
            Self::AttachedLate => {
                "The VA space of a process may have existed for more than half a second before uvmd counted it. GPU faults and copies of that time are not counted."
            }
            Self::SourcesDisagree => {
                "The probes counted other numbers than the driver's own counters, three times for one figure. Do not trust that figure of any process."
            }
            Self::CgroupNamespace => {
                "uvmd runs in another cgroup namespace than that of the node, where paths of cgroups are incomplete. Pods, jobs, containers and units may be unknown or wrong; counts are not affected."
            }
        }
    }
}

/// Entries of the probes' maps that a user was refused, since uvmd started.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QuotaRefusals {
    /// The user; `None` for those beyond the first sixteen that were refused anything, and for those that the probes do not tell apart.
    pub uid: Option<u32>,
    /// Its name, where the node knows one.
    pub user: Option<String>,
    /// Refused resource.
    pub resource: &'static str,
    /// Number of refusals.
    pub refusals: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_reason_is_listed_once() {
        for (at, reason) in DegradedReason::ALL.into_iter().enumerate() {
            assert_eq!(reason as usize, at);
        }
    }
}
