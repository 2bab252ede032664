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
mod helper_plan;
mod inspection;
mod inspections;
mod ioctl;
mod journal;
pub mod link;
mod permission;
mod placement;
mod process;
mod shadow;
mod slots;
mod workers;

pub use caller::{Caller, Settings};
pub use helper_plan::{HelperPlan, PlanError};
pub use inspections::Inspections;
pub use journal::{Journal, JournalError, JournalHealth, JournalMonitor, Leftover};
pub use permission::{ActError, FilterCheck};
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
fn uniform_outcome(order: &Order, result: &CallResult) -> Outcome {
    Outcome::new(order, order.steps.iter().map(|step| skipped_call(*step, result.clone())).collect())
}

/// Call of a step, or the rest of one, that was not made.
fn skipped_call(step: Step, result: CallResult) -> Call {
    Call { step, result, duration_ns: 0 }
}
