//! Steps before a spawner, an actor or a computation in a sandbox starts its work.

use std::fmt;

/// Step of the confinement of a spawner, an actor or a computation in a sandbox.
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
    /// Limits of memory and processor time.
    LimitResources,
    /// Drop of capabilities, user and groups.
    DropPrivileges,
    /// Death signal, to exit with the parent.
    FollowParent,
    /// Filter of system calls.
    RestrictCalls,
}

impl Step {
    pub(crate) const ALL: [Self; 8] = [
        Self::BeAlone,
        Self::CloseDescriptors,
        Self::DisableHugePages,
        Self::RaiseOomScore,
        Self::LimitResources,
        Self::DropPrivileges,
        Self::FollowParent,
        Self::RestrictCalls,
    ];
}

impl Step {
    /// Step of a number, as in a message.
    pub(crate) fn from_number(number: u64) -> Option<Self> {
        Self::ALL.into_iter().find(|step| *step as u64 == number)
    }
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::BeAlone => "start with one thread",
            Self::CloseDescriptors => "close descriptors",
            Self::DisableHugePages => "disable huge pages",
            Self::RaiseOomScore => "raise its OOM score (oom_score_adj)",
            Self::LimitResources => "limit its memory and processor time",
            Self::DropPrivileges => "drop privileges",
            Self::FollowParent => "follow its parent's end",
            Self::RestrictCalls => "restrict its system calls",
        })
    }
}
