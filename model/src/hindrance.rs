//! What keeps uvmd from doing more for a process.

use crate::{GpuUuid, ProcessId};

/// One reason, as it was when whoever acts looked last.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hindrance {
    /// For whom.
    pub process: ProcessId,
    /// At which GPU; `None` if at all of them.
    pub gpu: Option<GpuUuid>,
    /// From what it keeps.
    pub hindered: Hindered,
    /// Why, as a sentence; with no addresses in it, since everybody may read it.
    pub why: String,
}

/// What is not done.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Hindered {
    /// Anything.
    Everything,
    /// Advice to the driver.
    Advice,
    /// Anything to a part of its memory.
    SomeMemory,
    /// Moves, wherever to.
    Moves,
    /// Moves to the GPU, and renewals there.
    MovesToGpu,
    /// Moves to the host, and preferring it.
    MovesToHost,
    /// What has the GPU reach memory across its link.
    RemoteMappings,
    /// All that this policy would do.
    Policy(&'static str),
}

impl Hindered {
    /// The name in JSON; a policy's is its own.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Everything => "everything",
            Self::Advice => "advice",
            Self::SomeMemory => "some_memory",
            Self::Moves => "moves",
            Self::MovesToGpu => "moves_to_gpu",
            Self::MovesToHost => "moves_to_host",
            Self::RemoteMappings => "remote_mappings",
            Self::Policy(name) => name,
        }
    }
}
