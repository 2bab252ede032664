//! Remedies for the owner of a process: those that the evidence of a verdict supports, cheapest
//! first.

mod capacity_thrash;
mod first_touch_storm;
mod ping_pong;
mod policy;
mod streaming;

use model::VerdictKind;

use super::case::{Case, Involved};
use crate::{Remedies, Remedy};

/// Share of writes below which memory may be read-only.
const FEW_WRITES: f64 = 0.05;

/// Remedies for a verdict, the one by uvmd itself first: it is cheapest, as the program does not change.
#[must_use]
pub fn remedies(case: &Case<'_>) -> Remedies {
    let Remedies { effective, ineffective } = of_program(case);
    Remedies { effective: policy::remedy(case).into_iter().chain(effective).collect(), ineffective }
}

/// Remedies by the program or its operator.
fn of_program(case: &Case<'_>) -> Remedies {
    match case.kind {
        VerdictKind::CapacityThrash => capacity_thrash::remedies(case),
        VerdictKind::PingPong | VerdictKind::DriverThrottling => ping_pong::remedies(case),
        VerdictKind::Streaming => streaming::remedies(case),
        VerdictKind::FirstTouchStorm => first_touch_storm::remedies(case),
    }
}

impl Remedy {
    fn new(action: impl Into<String>, evidence: impl Into<String>) -> Self {
        Self { action: action.into(), evidence: evidence.into(), unless: None }
    }

    fn unless(self, unless: impl Into<String>) -> Self {
        Self { unless: Some(unless.into()), ..self }
    }
}

/// Calls that set the host as preferred location and let the GPU access memory there.
fn leave_at_host(what: &str) -> String {
    format!(
        "in the program: leave {what} at the host, with cudaMemAdvise(SetPreferredLocation, cudaCpuDeviceId) and \
         cudaMemAdvise(SetAccessedBy, GPU)"
    )
}

/// Call that enables read duplication.
fn read_mostly(involved: Option<Involved<'_>>) -> String {
    let what = involved.map_or_else(|| "the memory".to_owned(), |involved| format!("the {}", involved.name()));
    format!("in the program, if it only reads {what}: cudaMemAdvise(SetReadMostly) on it")
}

#[cfg(test)]
mod testing;
