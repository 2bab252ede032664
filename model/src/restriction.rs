//! Restrictions that currently prevent action on a process.

use crate::{GpuUuid, ProcessId};

/// One restriction, as of the last evaluation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Restriction {
    /// Target.
    pub process: ProcessId,
    /// GPU; `None` for all GPUs.
    pub gpu: Option<GpuUuid>,
    /// Scope: the prevented actions.
    pub scope: RestrictionScope,
    /// Reason, as a sentence, without addresses: it requires no permission to read.
    pub reason: String,
}

/// Scope of a restriction: the prevented actions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum RestrictionScope {
    /// Every action.
    Everything,
    /// Advice to the driver.
    Advice,
    /// Every action on a part of its memory.
    SomeMemory,
    /// Migration, in both directions.
    Moves,
    /// Migration to the GPU, and touches there.
    MovesToGpu,
    /// Migration to the host, and the preferred location there.
    MovesToHost,
    /// Remote mappings: access across the link.
    RemoteMappings,
    /// Every action of this policy.
    Policy(&'static str),
}

impl RestrictionScope {
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

    /// The prevented actions in words: `No advice`.
    #[must_use]
    pub fn label(self) -> String {
        match self {
            Self::Everything => "No action".to_owned(),
            Self::Advice => "No advice".to_owned(),
            Self::SomeMemory => "Not all memory".to_owned(),
            Self::Moves => "No moves".to_owned(),
            Self::MovesToGpu => "No moves to the GPU".to_owned(),
            Self::MovesToHost => "No moves to the host".to_owned(),
            Self::RemoteMappings => "No remote mappings".to_owned(),
            Self::Policy(name) => format!("No {name}"),
        }
    }
}
