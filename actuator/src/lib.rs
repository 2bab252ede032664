//! Actuators: execution of orders.
//!
//! * [`Caller`]: calls of the driver; `inspection` finds the managed memory of the process, and
//!   access to it. `ioctl`: `actors` make the calls from outside of the process, in the target's
//!   cgroup (`placement`). `helper`: the helper in the process makes them
//! * [`Inspections`]: processor time of inspections, and rings that they have found, of all workers
//! * [`HelperPlan`]: the plan that the helper in a process follows; `permission`: whether the helper may act
//! * [`Shadow`]: executes no order
//! * [`Workers`]: a thread for each GPU, with one of these actuators
//! * [`Journal`]: advice that may be in effect, on disk, written by the workers
//! * [`headroom`]: host memory that a process may still take
//! * [`link`]: bytes over a GPU's link
//!
//! docs/acting.md describes their effects on a process, and the actions that are excluded.

mod actors;
mod backoff;
mod budget;
mod caller;
mod calls;
mod cgroup;
pub mod headroom;
mod helper;
mod hung;
mod inspection;
mod inspections;
mod ioctl;
mod journal;
pub mod link;
mod permission;
mod placement;
mod plan;
mod process;
mod shadow;
mod workers;

pub use caller::{Caller, Settings};
pub use inspections::Inspections;
pub use journal::{Journal, JournalError, JournalHealth, JournalMonitor, Leftover};
pub use permission::{ActError, FilterCheck};
pub use plan::{HelperPlan, PlanError};
pub use shadow::Shadow;
pub use workers::Workers;

/// Parsers for fuzz targets only.
#[cfg(feature = "fuzzing")]
#[doc(hidden)]
pub mod fuzzing {
    pub use crate::journal::fuzzing::JournalContents;
}

use model::{Call, CallResult, Order, Outcome, Step};

/// Outcome of an order that was not tried: the same result for all steps.
fn all_answered(order: &Order, answer: &CallResult) -> Outcome {
    Outcome::new(order, order.steps.iter().map(|step| untried(*step, answer.clone())).collect())
}

/// Call of a step, or the rest of one, that was not made.
fn untried(step: Step, answer: CallResult) -> Call {
    Call { step, result: answer, duration_ns: 0 }
}
