//! Planners: from one iteration that comes again and again to what memory does in it.
//!
//! iteration, [`Machine`] -> [`Planner`] -> [`Schedule`] -> the simulator, or a helper in the live program
//!
//! docs/policies has a page for each.
//!
//! A planner of placements takes a [`Circle`](trace::Circle) and makes a [`Placement`].
//!
//! * [`appobmem`]: sends what is idle for long, for the least time lost
//! * [`autoswap`]: sends what is idle at the peak to the host and brings it back
//! * [`deepum`]: fetches what the next kernels need, and keeps it
//! * [`flashneuron`]: sends as much as it must of what layers keep, to flash
//! * [`g10`]: sends what is idle for long to flash or the host, where memory is short most
//! * [`foresight`]: what is needed last leaves at once, and is back as soon as there is room
//! * [`bound`]: what no schedule beats
//! * [`machine`]: the memories and links that a plan is made for
//! * [`pump`]: brings what launched kernels name
//! * [`schedule`]: what moves when
//! * [`placement`]: what lies where in one pool
//! * [`smartpool`]: places blocks by size
//! * [`vdnn`]: sends what layers keep to the host
//! * [`online`]: what a pool takes that does not know what comes next
//! * [`optimal`]: proves that a placement is the smallest, or finds a smaller one

pub mod appobmem;
mod arcs;
pub mod autoswap;
pub mod bound;
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
mod way;

pub use machine::{Link, Machine, Tier};
pub use placement::Placement;
pub use schedule::{Act, Action, Part, Schedule};

use thiserror::Error;
use trace::{Iteration, KernelId};

/// From a trace of one iteration to a schedule for every iteration.
pub trait Planner {
    /// As on the command line: `g10`, `autoswap`.
    fn name(&self) -> &'static str;

    /// Plans an iteration on a machine. The same input gives the same schedule.
    ///
    /// # Errors
    /// If no schedule can let the iteration run there.
    fn plan(&self, iteration: &Iteration, machine: &Machine) -> Result<Schedule, Unplannable>;
}

/// All planners of schedules, each as its page in docs/policies has it by default.
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

/// The planner of that name.
#[must_use]
pub fn by_name(name: &str) -> Option<Box<dyn Planner>> {
    all().into_iter().find(|planner| planner.name() == name)
}

/// Why there is no schedule.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[expect(missing_docs, reason = "the messages say it")]
pub enum Unplannable {
    #[error("kernel {kernel} needs {needed_bytes} bytes at once, and the GPU has {gpu_bytes}")]
    KernelTooLarge { kernel: KernelId, needed_bytes: u64, gpu_bytes: u64 },
    #[error("at kernel {kernel} {staying_bytes} bytes stay whatever leaves, and the GPU has {gpu_bytes}")]
    TooMuchStays { kernel: KernelId, staying_bytes: u64, gpu_bytes: u64 },
    #[error("{away_bytes} bytes are away at once, and the host has {host_bytes}")]
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
