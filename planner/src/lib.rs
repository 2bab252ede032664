//! Planners: from the trace of one iteration to a memory schedule or placement for all iterations.
//!
//! iteration, [`Machine`] -> [`Planner`] -> [`Schedule`] -> the simulator, or a helper in the live
//! program
//!
//! docs/policies has a page for each planner.
//!
//! A planner of placements takes a [`Circle`](trace::Circle) and returns a [`Placement`].
//!
//! * [`appobmem`]: migrates tensors with long idle times to the host, at the least loss of time
//! * [`autoswap`]: migrates tensors that are idle at the peak to the host, and back before their
//!   use
//! * [`deepum`]: prefetches the tensors of the next kernels, and protects them from eviction
//! * [`flashneuron`]: offloads feature maps to flash, as few as the GPU's memory requires
//! * [`g10`]: migrates long-idle tensors to flash or the host under peak pressure
//! * [`foresight`]: evicts the tensors with the latest next use as soon as they are idle, and
//!   prefetches them as soon as they fit
//! * [`bound`]: lower bound of an iteration's time under any schedule
//! * [`machine`]: memories and links of the machine of a plan
//! * [`pump`]: prefetches the tensors of launched kernels
//! * [`schedule`]: migrations, allocations and drops, by kernel
//! * [`placement`]: addresses of blocks in one pool
//! * [`smartpool`]: places blocks by size
//! * [`vdnn`]: offloads feature maps to the host
//! * [`online`]: size of a pool without knowledge of the future
//! * [`optimal`]: proves that a placement is the smallest, or finds a smaller one

pub mod appobmem;
mod arcs;
pub mod autoswap;
pub mod bound;
mod channel;
pub mod deepum;
pub mod flashneuron;
pub mod foresight;
pub mod g10;
mod layers;
mod lifetimes;
pub mod machine;
pub mod online;
pub mod optimal;
pub mod placement;
pub mod pump;
mod ring;
pub mod schedule;
pub mod smartpool;
pub mod vdnn;

pub use machine::{Link, Machine, Tier};
pub use placement::Placement;
pub use schedule::{Act, Action, Part, Schedule};

use serde::{Deserialize, Serialize};
use thiserror::Error;
use trace::{Iteration, KernelId};

/// A planner of schedules: from a trace of one iteration to a schedule for every iteration.
pub trait Planner {
    /// Name on the command line: `g10`, `autoswap`.
    fn name(&self) -> &'static str;

    /// Plans an iteration on a machine. The same input gives the same schedule.
    ///
    /// # Errors
    /// If no schedule lets the iteration run on the machine.
    fn plan(&self, iteration: &Iteration, machine: &Machine) -> Result<Schedule, Unplannable>;
}

/// All planners of schedules, with the default parameters of their pages in docs/policies.
#[must_use]
pub fn all() -> Vec<Box<dyn Planner>> {
    vec![
        Box::new(autoswap::Autoswap::default()),
        Box::new(appobmem::Appobmem::default()),
        Box::new(g10::G10::by(g10::Ranking::Benefit)),
        Box::new(g10::G10::by(g10::Ranking::BenefitByCost)),
        Box::new(vdnn::Vdnn::of(vdnn::Offload::All)),
        Box::new(vdnn::Vdnn::of(vdnn::Offload::Convolutions)),
        Box::new(vdnn::Vdnn::of(vdnn::Offload::Dynamic)),
        Box::new(flashneuron::Flashneuron::default()),
        Box::new(deepum::Deepum::default()),
        Box::new(foresight::Foresight::default()),
        Box::new(pump::Pump::default()),
    ]
}

/// The planner of a name.
#[must_use]
pub fn by_name(name: &str) -> Option<Box<dyn Planner>> {
    all().into_iter().find(|planner| planner.name() == name)
}

/// Reason why there is no schedule.
#[derive(Clone, Debug, PartialEq, Eq, Error, Serialize, Deserialize)]
#[expect(missing_docs, reason = "the messages document the variants")]
pub enum Unplannable {
    #[error("kernel {kernel} needs {needed_bytes} bytes at once, and the GPU has {gpu_bytes}")]
    KernelTooLarge { kernel: KernelId, needed_bytes: u64, gpu_bytes: u64 },
    #[error("at kernel {kernel}, {immovable_bytes} bytes cannot be moved, and the GPU has {gpu_bytes}")]
    ImmovableTooLarge { kernel: KernelId, immovable_bytes: u64, gpu_bytes: u64 },
    #[error("{away_bytes} bytes are offloaded at once, and the host has {host_bytes}")]
    HostTooSmall { away_bytes: u64, host_bytes: u64 },
}

#[cfg(test)]
mod tests {
    #[test]
    fn every_planner_is_found_by_its_own_name() {
        let names: Vec<_> = super::all().iter().map(|planner| planner.name()).collect();
        for &name in &names {
            assert_eq!(super::by_name(name).unwrap().name(), name);
        }
        assert_eq!(names.iter().collect::<std::collections::BTreeSet<_>>().len(), names.len());
        assert!(super::by_name("belady").is_none());
    }
}
