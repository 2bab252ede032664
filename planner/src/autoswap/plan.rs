//! Goals and plans.

use serde::Serialize;

use super::score::Rule;
use crate::Schedule;

/// What is sacrificed under memory pressure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Mode {
    /// Memory: no kernel ever waits, and the limit may be exceeded.
    NoOverhead,
    /// Time: kernels wait, and the limit is never exceeded.
    Stick,
}

/// Goal of a plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Goal {
    /// The lowest limit that is met without overhead. It is the same in either mode.
    LowestLimit,
    /// A limit in bytes: with [`Mode::Stick`] the least overhead, with [`Mode::NoOverhead`] the
    /// lowest peak.
    At(u64),
}

/// Plan of a rule for an iteration.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Plan {
    /// Rule of the selection.
    pub rule: Rule,
    /// Limit of the selection.
    pub limit_bytes: u64,
    /// Peak of bytes on the GPU, including those in transfer.
    pub peak_bytes: u64,
    /// Extra time of an iteration.
    pub overhead_ns: u64,
    /// Absences in an iteration.
    pub absences: usize,
    /// Bytes that an iteration migrates in each direction.
    pub moved_bytes: u64,
    /// Peak of bytes on the host.
    pub away_bytes: u64,
    /// Migrations of the plan.
    pub schedule: Schedule,
}

impl Plan {
    /// Whether it is within its limit and without overhead.
    #[must_use]
    pub fn is_free(&self) -> bool {
        self.peak_bytes <= self.limit_bytes && self.overhead_ns == 0
    }

    /// Overhead and peak, in this order; less is better.
    pub(super) fn cost(&self) -> (u64, u64) {
        (self.overhead_ns, self.peak_bytes)
    }

    /// Replaces a plan of higher cost; true if so.
    pub(super) fn replaces(self, best: &mut Option<Self>) -> bool {
        let is_better = best.as_ref().is_none_or(|best| self.cost() < best.cost());
        if is_better {
            *best = Some(self);
        }
        is_better
    }
}

/// Result of a set of selected absences.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Swaps {
    /// Peak of bytes on the GPU, including those in transfer.
    pub peak_bytes: u64,
    /// Extra time of an iteration.
    pub overhead_ns: u64,
    /// Absences in an iteration.
    pub absences: usize,
    /// Bytes that an iteration migrates in each direction.
    pub moved_bytes: u64,
    /// Peak of bytes on the host.
    pub away_bytes: u64,
    /// Migrations of the absences.
    pub schedule: Schedule,
}

impl Swaps {
    pub(super) fn into_plan(self, rule: Rule, limit_bytes: u64) -> Plan {
        let Self { peak_bytes, overhead_ns, absences, moved_bytes, away_bytes, schedule } = self;
        Plan { rule, limit_bytes, peak_bytes, overhead_ns, absences, moved_bytes, away_bytes, schedule }
    }
}

/// The best plans for one limit, by mode.
#[derive(Default)]
pub(super) struct Plans {
    pub(super) within: Option<Plan>,
    pub(super) undisturbed: Option<Plan>,
}
