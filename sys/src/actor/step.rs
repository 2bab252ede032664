//! Steps before a spawner or an actor begins its work.

use std::fmt;

/// Step of the confinement of a spawner or an actor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Checks that it has one thread.
    BeAlone,
    /// Descriptors that are not for it.
    CloseDescriptors,
    /// Memory in small pages.
    DisableHugePages,
    /// To be killed first where the target's cgroup has no memory left.
    RaiseOomScore,
    /// Capabilities, user, groups.
    DropPrivileges,
    /// To end with the process that started it.
    FollowParent,
    /// The system calls that it may make.
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
