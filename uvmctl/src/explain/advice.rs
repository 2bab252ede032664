//! Remedies for the owner of a process: those that the evidence of a verdict supports, cheapest
//! first.

mod capacity_thrash;
mod first_touch_storm;
mod ping_pong;
pub(crate) mod policy;
mod streaming;

use super::case::{Case, Involved};

/// A remedy with its evidence.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Advice {
    /// Action to take.
    pub(crate) action: String,
    /// Observation that supports the action.
    pub(crate) evidence: String,
    /// Condition that would refute the action and cannot be observed.
    pub(crate) unless: Option<String>,
}

/// Effective remedies, and those that appear effective and are not.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Remedies {
    /// In order of cost, cheapest first.
    pub(crate) effective: Vec<Advice>,
    /// Remedies that do not help, each with its reason.
    pub(crate) ineffective: Vec<String>,
}

/// Share of writes below which memory may be read-only.
const FEW_WRITES: f64 = 0.05;

pub(crate) fn on(case: &Case<'_>) -> Remedies {
    match case.verdict.kind.as_str() {
        "capacity_thrash" => capacity_thrash::advice(case),
        "ping_pong" | "driver_throttling" => ping_pong::advice(case),
        "streaming" => streaming::advice(case),
        "first_touch_storm" => first_touch_storm::advice(case),
        _ => Remedies::default(),
    }
}

impl Advice {
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
pub(crate) mod testing;
