//! Steps before a spawner or an actor starts its work.

use std::fmt;

/// Step of the confinement of a spawner or an actor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Check that the process has one thread.
    BeAlone,
    /// Close of the descriptors that it does not need.
    CloseDescriptors,
    /// Exclusion of huge pages.
    DisableHugePages,
    /// OOM score that makes it the first victim in the target's cgroup.
    RaiseOomScore,
    /// Drop of capabilities, user and groups.
    DropPrivileges,
    /// Death signal, to exit with the parent.
    FollowParent,
    /// Filter of system calls.
    RestrictCalls,
}

impl Step {
    pub(super) const ALL: [Self; 7] = [
        Self::BeAlone,
        Self::CloseDescriptors,
        Self::DisableHugePages,
        Self::RaiseOomScore,
        Self::DropPrivileges,
        Self::FollowParent,
        Self::RestrictCalls,
    ];
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::BeAlone => "start with one thread",
            Self::CloseDescriptors => "close descriptors",
            Self::DisableHugePages => "disable huge pages",
            Self::RaiseOomScore => "raise its OOM score (oom_score_adj)",
            Self::DropPrivileges => "drop privileges",
            Self::FollowParent => "follow its parent's end",
            Self::RestrictCalls => "restrict its system calls",
        })
    }
}
