//! What the owner of a process could do: for each kind of verdict what its evidence supports, cheapest first, and nothing else.

mod capacity_thrash;
mod first_touch_storm;
mod ping_pong;
pub(crate) mod policy;
mod streaming;

use super::case::{Case, Involved};

/// Something that would help, or would not.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Advice {
    /// What to do.
    pub(crate) action: String,
    /// Why that is said: what was seen.
    pub(crate) evidence: String,
    /// What would make it wrong and cannot be seen.
    pub(crate) unless: Option<String>,
}

/// What to do, and what looks as if it would help and does not.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Advised {
    /// Cheapest first.
    pub(crate) helps: Vec<Advice>,
    /// Each with its reason.
    pub(crate) does_not_help: Vec<String>,
}

/// A share of writes below which memory may be only read.
const FEW_WRITES: f64 = 0.05;

pub(crate) fn on(case: &Case<'_>) -> Advised {
    match case.verdict.kind.as_str() {
        "capacity_thrash" => capacity_thrash::advice(case),
        "ping_pong" | "driver_throttling" => ping_pong::advice(case),
        "streaming" => streaming::advice(case),
        "first_touch_storm" => first_touch_storm::advice(case),
        _ => Advised::default(),
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

/// The calls that leave memory at the host and let the GPU read it there.
fn leave_at_host(what: &str) -> String {
    format!(
        "in the program: leave {what} at the host, with cudaMemAdvise(SetPreferredLocation, cudaCpuDeviceId) and \
         cudaMemAdvise(SetAccessedBy, GPU)"
    )
}

/// The call that gives readers copies of their own.
fn read_mostly(involved: Option<Involved<'_>>) -> String {
    let what = involved.map_or_else(|| "the memory".to_owned(), |involved| format!("the {}", involved.name()));
    format!("in the program, if it only reads {what}: cudaMemAdvise(SetReadMostly) on it")
}

#[cfg(test)]
pub(crate) mod testing;
