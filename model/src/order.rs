//! Proposals for a process's managed memory, orders of calls, and their outcomes.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::{GpuUuid, ProcessId};

/// Where memory can be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Place {
    /// In the host's memory.
    Host,
    /// In this GPU's.
    Gpu(GpuUuid),
}

/// Advice to the driver on a range. It stays in force until it is withdrawn, whatever becomes of who gave it, and the driver does not tell what is
/// in force.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Advice {
    /// Faults bring the memory here, or leave it here and map it; a range has one such place at most.
    PreferredLocation(Place),
    /// The GPU gets a mapping to the memory, wherever it is.
    AccessedBy(GpuUuid),
    /// Pages that are read may have copies in several places; a write collapses them.
    ReadDuplication,
}

/// Action on a range.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Action {
    /// Move its pages.
    Migrate(Place),
    /// Make the driver evict it later than what arrived before now: it evicts blocks by when they last gained memory, and asking for a page that is
    /// there already counts (`block_mark_memory_used` in `uvm_va_block.c`). Copies nothing if the block is there; brings one page if it is not.
    Touch(GpuUuid),
    /// Give advice.
    Advise(Advice),
    /// Withdraw advice.
    Withdraw(Advice),
}

impl Action {
    /// The name in labels, logs and JSON.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Migrate(Place::Host) => "migrate_to_host",
            Self::Migrate(Place::Gpu(_)) => "migrate_to_gpu",
            Self::Touch(_) => "touch",
            Self::Advise(advice) => match advice {
                Advice::PreferredLocation(Place::Host) => "prefer_host",
                Advice::PreferredLocation(Place::Gpu(_)) => "prefer_gpu",
                Advice::AccessedBy(_) => "accessed_by",
                Advice::ReadDuplication => "read_duplication",
            },
            Self::Withdraw(advice) => match advice {
                Advice::PreferredLocation(_) => "unset_preferred_location",
                Advice::AccessedBy(_) => "unset_accessed_by",
                Advice::ReadDuplication => "disable_read_duplication",
            },
        }
    }

    /// Action that withdraws this one; `None` for actions that leave nothing in effect.
    #[must_use]
    pub const fn inverse(self) -> Option<Self> {
        match self {
            Self::Advise(advice) => Some(Self::Withdraw(advice)),
            Self::Migrate(_) | Self::Touch(_) | Self::Withdraw(_) => None,
        }
    }

    /// Whether a GPU may access memory across the link because of it, which raises no fault.
    #[must_use]
    pub const fn maps_remotely(self) -> bool {
        matches!(self, Self::Advise(Advice::PreferredLocation(Place::Host) | Advice::AccessedBy(_)))
    }
}

/// An action on a range.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Step {
    /// First address; a multiple of the page size.
    pub begin: u64,
    /// The address behind the last; likewise, and greater.
    pub end: u64,
    /// Action.
    pub action: Action,
}

impl Step {
    /// Bytes it is about.
    #[must_use]
    pub const fn bytes(&self) -> u64 {
        self.end.saturating_sub(self.begin)
    }
}

/// A share, of which no more is known than that it lies between two. Negative where something may grow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Share {
    /// No less.
    pub at_least: f64,
    /// No more.
    pub at_most: f64,
}

/// Expected benefit of a proposal or a plan, as shares of the counts of the last window before it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Expected {
    /// Bytes over the link that are saved, copied and accessed remotely, both ways.
    pub link_bytes_saved: Share,
    /// GPU faults that are saved.
    pub faults_saved: Share,
}

/// Proposal of a live policy for one process's memory at one GPU.
#[derive(Clone, Debug, PartialEq)]
pub struct Proposal {
    /// Process.
    pub process: ProcessId,
    /// At which GPU.
    pub gpu: GpuUuid,
    /// Policy.
    pub policy: &'static str,
    /// Why, as a sentence; with no addresses in it, since everybody may read it.
    pub reason: String,
    /// First steps; those that follow while it runs are not included.
    pub steps: Vec<Step>,
    /// Expected benefit.
    pub expected: Expected,
}

/// Names a decision for as long as uvmd's state is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DecisionId(pub u64);

impl fmt::Display for DecisionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Steps that are to be carried out now, one after the other.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Order {
    /// Decision.
    pub decision: DecisionId,
    /// Process.
    pub process: ProcessId,
    /// At which GPU: one worker each carries them out.
    pub gpu: GpuUuid,
    /// Steps.
    pub steps: Vec<Step>,
    /// Whether they put something back: then they are carried out whatever the kill switch says.
    pub is_rollback: bool,
}

/// Actuator, by whoever calls the driver.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ActuatorKind {
    /// The driver's ioctls, from outside of the process.
    Ioctl,
    /// The helper in the process, by functions of CUDA.
    Helper,
}

impl ActuatorKind {
    /// All of them.
    pub const ALL: [Self; 2] = [Self::Ioctl, Self::Helper];

    /// The name in JSON.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Ioctl => "ioctl",
            Self::Helper => "helper",
        }
    }
}

/// Choice of the actuator.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ActuatorChoice {
    /// Ioctls; the helper where the kernel gives out no descriptors of the process.
    #[default]
    Auto,
    /// This one; another for withdrawals that are impossible with it.
    Only(ActuatorKind),
}

impl ActuatorChoice {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Auto, Self::Only(ActuatorKind::Ioctl), Self::Only(ActuatorKind::Helper)];

    /// The name in TOML.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::Only(kind) => kind.name(),
        }
    }

    /// Actuators for an order, the first that is possible.
    #[must_use]
    pub const fn candidates(self, is_rollback: bool) -> &'static [ActuatorKind] {
        use ActuatorKind::{Helper, Ioctl};
        match (self, is_rollback) {
            (Self::Auto, _) | (Self::Only(Ioctl), true) => &[Ioctl, Helper],
            (Self::Only(Helper), true) => &[Helper, Ioctl],
            (Self::Only(Ioctl), false) => &[Ioctl],
            (Self::Only(Helper), false) => &[Helper],
        }
    }
}

/// Result of a step, or of a part of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CallResult {
    /// Done.
    Done,
    /// Nothing managed is mapped there now.
    NotMapped,
    /// The program has replaced the advice that was to be withdrawn by its own.
    Replaced,
    /// The process has exited.
    Exited,
    /// There is too little host memory for it: at the node, or in a cgroup above the process.
    HostMemory,
    /// Cancelled before it began: by the kill switch, a rollback, or because the service stops.
    Cancelled,
    /// Not executed: the actuator is shadow.
    Shadow,
    /// Denied by uvmd and never asked of the driver, as for want of budget or room: the reason.
    Denied(String),
    /// Refused by the driver or the kernel: its error.
    Failed(String),
}

impl CallResult {
    /// Whether no advice of uvmd's is in force after a withdrawal with this result.
    #[must_use]
    pub const fn leaves_no_advice(&self) -> bool {
        matches!(self, Self::Done | Self::NotMapped | Self::Replaced | Self::Exited)
    }

    /// The name in labels and JSON.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Done => "done",
            Self::NotMapped => "not_mapped",
            Self::Replaced => "replaced",
            Self::Exited => "exited",
            Self::HostMemory => "host_memory",
            Self::Cancelled => "cancelled",
            Self::Shadow => "shadow",
            Self::Failed(_) => "failed",
            Self::Denied(_) => "denied",
        }
    }
}

/// A call of the driver, or what stood in its place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Call {
    /// The part of the step that it was about.
    pub step: Step,
    /// Its result.
    pub result: CallResult,
    /// Duration, in nanoseconds.
    pub duration_ns: u64,
}

/// Calls of the driver that give or withdraw advice, as it counts them, whatever came of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AdviceCalls {
    /// By ioctl, from outside of the process.
    pub by_ioctl: u64,
    /// By the helper in it, which the driver counts as the program's own.
    pub by_helper: u64,
}

/// Outcome of an order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// Decision.
    pub decision: DecisionId,
    /// Process.
    pub process: ProcessId,
    /// At which GPU.
    pub gpu: GpuUuid,
    /// Whether it put something back.
    pub is_rollback: bool,
    /// Actuator of the calls; `None` if none was made.
    pub actuator: Option<ActuatorKind>,
    /// Calls, in this order. Those not reached are included, as [`CallResult::Cancelled`].
    pub calls: Vec<Call>,
    /// Its advice calls, and those of earlier commands of which that is known only now.
    pub advice_calls: AdviceCalls,
    /// Sum of the preparation of the calls, in nanoseconds: the search for the process's descriptors of the driver, and for its mappings.
    pub ready_ns: u64,
}

impl Outcome {
    /// Outcome of an order with these calls, which took no preparation, and of which none reached the
    /// driver as far as is known.
    #[must_use]
    pub fn new(order: &Order, calls: Vec<Call>) -> Self {
        let &Order { decision, process, gpu, is_rollback, .. } = order;
        let advice_calls = AdviceCalls::default();
        Self { decision, process, gpu, is_rollback, actuator: None, calls, advice_calls, ready_ns: 0 }
    }
}

/// Carries out orders: from outside the process, from within, or not at all. Each GPU has one of its own, in a thread of its own.
pub trait Actuator: Send {
    /// Carries out an order. Never fails as a whole: each call has its result.
    fn execute(&mut self, order: &Order, interrupt: &dyn Interrupt) -> Outcome;
}

/// Reasons for an actuator to stop short of the end of its order.
pub trait Interrupt {
    /// Whether the order is cancelled, asked between any two calls. Orders that put something back are carried out all the same.
    fn is_cancelled(&self) -> bool;

    /// Whether a withdrawal about another process waits for this order to end, asked now and then, and while a call hangs.
    fn should_yield(&self) -> bool {
        false
    }
}

impl<F: Fn() -> bool> Interrupt for F {
    fn is_cancelled(&self) -> bool {
        self()
    }
}

/// Bytes that went over a GPU's link, all programs together. They only grow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct LinkBytes {
    /// From the host to the GPU.
    pub htod: u64,
    /// From the GPU to the host.
    pub dtoh: u64,
}

/// Tells what went over the link: copies, and accesses to memory elsewhere, which raise no fault and which nothing else shows.
pub trait LinkMeter: Send {
    /// Cumulative bytes over this GPU's link; `None` where they cannot be metered.
    fn read(&mut self, gpu: GpuUuid) -> Option<LinkBytes>;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn inverse_of_advice_is_its_withdrawal_and_moves_have_no_inverse() {
        let gpu = GpuUuid([1; 16]);
        for advice in [Advice::PreferredLocation(Place::Host), Advice::AccessedBy(gpu), Advice::ReadDuplication] {
            assert_eq!(Action::Advise(advice).inverse(), Some(Action::Withdraw(advice)));
        }
        for action in [Action::Migrate(Place::Host), Action::Touch(gpu), Action::Withdraw(Advice::ReadDuplication)] {
            assert_eq!(action.inverse(), None, "{action:?}");
        }
    }

    #[test]
    fn only_withdrawals_fall_back_to_another_actuator() {
        use ActuatorKind::{Helper, Ioctl};
        assert_eq!(ActuatorChoice::Auto.candidates(false), [Ioctl, Helper]);
        for kind in ActuatorKind::ALL {
            assert_eq!(ActuatorChoice::Only(kind).candidates(false), [kind]);
        }
        for choice in ActuatorChoice::ALL {
            assert_eq!(choice.candidates(true).len(), 2, "{choice:?}");
        }
        assert_eq!(ActuatorChoice::Only(Helper).candidates(true)[0], Helper);
    }

    #[test]
    fn host_preference_and_accessed_by_map_remotely() {
        let gpu = GpuUuid([1; 16]);
        assert!(Action::Advise(Advice::AccessedBy(gpu)).maps_remotely());
        assert!(Action::Advise(Advice::PreferredLocation(Place::Host)).maps_remotely());
        assert!(!Action::Advise(Advice::PreferredLocation(Place::Gpu(gpu))).maps_remotely());
        assert!(!Action::Migrate(Place::Host).maps_remotely());
    }
}
