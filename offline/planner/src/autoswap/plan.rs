//! What is asked for, and what comes of it.

use serde::Serialize;

use super::score::Rule;
use crate::Schedule;

/// What gives way where memory is short.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Mode {
    /// Memory: no kernel ever waits, and the limit may be exceeded.
    NoOverhead,
    /// Time: kernels wait, and the limit is never exceeded.
    Stick,
}

/// What is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Goal {
    /// The lowest limit that is kept without overhead. It is the same in either mode.
    LowestLimit,
    /// This limit, in bytes: with [`Mode::Stick`] the least overhead, with [`Mode::NoOverhead`] the lowest peak.
    At(u64),
}

/// What a rule makes of an iteration.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Plan {
    /// How it was chosen.
    pub rule: Rule,
    /// What it was made for.
    pub limit_bytes: u64,
    /// The most on the GPU at once, transfers among it.
    pub peak_bytes: u64,
    /// By how much an iteration is longer.
    pub overhead_ns: u64,
    /// How many absences there are in an iteration.
    pub absences: usize,
    /// How much moves in an iteration, each way.
    pub moved_bytes: u64,
    /// The most away at once.
    pub away_bytes: u64,
    /// What moves when.
    pub schedule: Schedule,
}

impl Plan {
    /// Within its limit, and nothing waits.
    #[must_use]
    pub fn is_free(&self) -> bool {
        self.peak_bytes <= self.limit_bytes && self.overhead_ns == 0
    }

    /// Less is better.
    pub(super) fn cost(&self) -> (u64, u64) {
        (self.overhead_ns, self.peak_bytes)
    }

    /// Takes the place of what is worse, and tells whether it did.
    pub(super) fn replaces(self, best: &mut Option<Self>) -> bool {
        let is_better = best.as_ref().is_none_or(|best| self.cost() < best.cost());
        if is_better {
            *best = Some(self);
        }
        is_better
    }
}

/// What it comes to that chosen absences keep a limit.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Swaps {
    /// The most on the GPU at once, transfers among it.
    pub peak_bytes: u64,
    /// By how much an iteration is longer.
    pub overhead_ns: u64,
    /// How many there are in an iteration.
    pub absences: usize,
    /// How much moves in an iteration, each way.
    pub moved_bytes: u64,
    /// The most away at once.
    pub away_bytes: u64,
    /// What moves when.
    pub schedule: Schedule,
}

impl Swaps {
    pub(super) fn by(self, rule: Rule, limit_bytes: u64) -> Plan {
        let Self { peak_bytes, overhead_ns, absences, moved_bytes, away_bytes, schedule } = self;
        Plan { rule, limit_bytes, peak_bytes, overhead_ns, absences, moved_bytes, away_bytes, schedule }
    }
}

/// What came of one limit, in either mode.
#[derive(Default)]
pub(super) struct Plans {
    pub(super) within: Option<Plan>,
    pub(super) undisturbed: Option<Plan>,
}
