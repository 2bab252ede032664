//! Carries out orders.
//!
//! * [`Ioctl`]: on the driver, from outside of the process; `inspection` finds what there is to act on, and `actors` make the calls,
//!   in the target's cgroup (`placement`)
//! * [`Shadow`]: not at all
//! * [`Workers`]: a thread for each GPU, in which one of these works
//! * [`Journal`]: what advice may be in force, on disk, which the workers keep
//! * [`headroom`]: how much host memory a process may still take
//! * [`link`]: what went over a GPU's link
//!
//! docs/acting.md says what it does to a process, and what it never does.

mod actors;
mod backoff;
mod budget;
mod cgroup;
pub mod headroom;
mod hung;
mod inspection;
mod ioctl;
mod journal;
pub mod link;
mod placement;
mod process;
mod shadow;
mod workers;

pub use ioctl::{Ioctl, Settings};
pub use journal::{Journal, JournalError, JournalHealth, JournalMonitor, Leftover};
pub use shadow::Shadow;
pub use workers::Workers;

/// For fuzz targets; nothing else needs it.
#[cfg(feature = "fuzzing")]
#[doc(hidden)]
pub mod fuzzing {
    pub use crate::journal::fuzzing::JournalContents;
}

use model::{Call, CallResult, Order, Outcome, Step};

/// The outcome of an order, so far empty.
fn outcome_of(order: &Order) -> Outcome {
    Outcome {
        decision: order.decision,
        process: order.process,
        gpu: order.gpu,
        is_rollback: order.is_rollback,
        calls: Vec::new(),
        ready_ns: 0,
    }
}

/// The same result for all steps of an order that was not tried.
fn all_answered(order: &Order, answer: &CallResult) -> Outcome {
    Outcome { calls: order.steps.iter().map(|step| untried(*step, answer.clone())).collect(), ..outcome_of(order) }
}

/// A step, or the rest of one, for which nothing was called.
fn untried(step: Step, answer: CallResult) -> Call {
    Call { step, result: answer, duration_ns: 0 }
}
