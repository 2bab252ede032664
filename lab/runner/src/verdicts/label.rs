//! Labels of stretches and runs: the table of docs/verdicts.md as code, written from the text of
//! the table. The module shares no code with uvmd.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
};

use serde::{Deserialize, Serialize};

use super::facts::Facts;
use crate::scenario::size::MIB;

/// Kind of verdict on a process at a GPU, in the order of precedence.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Kind {
    DriverThrottling,
    CapacityThrash,
    PingPong,
    Streaming,
    FirstTouchStorm,
    None,
}

/// Condition on a value, with its limit.
#[derive(Clone, Copy, Debug)]
enum Condition {
    AtLeast(u64, f64),
    Below(u64, f64),
}

use Condition::{AtLeast, Below};

/// Distance to a limit, as a share of the limit, below which a value decides nothing.
const NEAR: f64 = 0.1;
const THROTTLES: f64 = 10.0;
const BOUNCES: f64 = 8.0;
#[expect(clippy::cast_precision_loss, reason = "a small number")]
const ARRIVED_BYTES: f64 = MIB as f64;
const QUARTER: f64 = 0.25;
const TENTH: f64 = 0.1;
const HALF: f64 = 0.5;
#[expect(clippy::cast_precision_loss, reason = "a small number")]
const BYTES_PER_FAULT: f64 = 2.0 * MIB as f64;

impl Kind {
    pub(crate) const ALL: [Self; 6] = [
        Self::DriverThrottling,
        Self::CapacityThrash,
        Self::PingPong,
        Self::Streaming,
        Self::FirstTouchStorm,
        Self::None,
    ];

    /// uvmd's name of the kind.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::DriverThrottling => "driver_throttling",
            Self::CapacityThrash => "capacity_thrash",
            Self::PingPong => "ping_pong",
            Self::Streaming => "streaming",
            Self::FirstTouchStorm => "first_touch_storm",
            Self::None => "none",
        }
    }

    fn conditions(self, facts: &Facts) -> Vec<Condition> {
        let arrived = facts.arrived_bytes() as f64;
        let &Facts { populated_bytes, refetched_bytes, cpu_reclaimed_bytes, readback_bytes, .. } = facts;
        let &Facts { bounces, gpu_faults, throttles, .. } = facts;
        let (arrived_bytes, eviction_volume_bytes) = (facts.arrived_bytes(), facts.eviction_volume_bytes());
        match self {
            Self::DriverThrottling => vec![
                AtLeast(throttles, THROTTLES),
                AtLeast(throttles, TENTH * (throttles + bounces) as f64),
                Below(refetched_bytes, QUARTER * arrived),
            ],
            Self::CapacityThrash => vec![
                AtLeast(arrived_bytes, ARRIVED_BYTES),
                AtLeast(eviction_volume_bytes, QUARTER * arrived),
                AtLeast(refetched_bytes, QUARTER * arrived),
                AtLeast(refetched_bytes, cpu_reclaimed_bytes as f64),
            ],
            Self::PingPong => vec![
                AtLeast(bounces, BOUNCES),
                AtLeast(cpu_reclaimed_bytes, QUARTER * arrived),
                AtLeast(readback_bytes, QUARTER * arrived),
            ],
            Self::Streaming => vec![
                AtLeast(arrived_bytes, ARRIVED_BYTES),
                AtLeast(eviction_volume_bytes, QUARTER * arrived),
                Below(refetched_bytes, QUARTER * arrived),
            ],
            Self::FirstTouchStorm => vec![
                AtLeast(arrived_bytes, ARRIVED_BYTES),
                AtLeast(populated_bytes, HALF * arrived),
                Below(eviction_volume_bytes, QUARTER * arrived),
                AtLeast(gpu_faults, populated_bytes as f64 / BYTES_PER_FAULT),
            ],
            Self::None => Vec::new(),
        }
    }

    /// Whether the conditions of the kind hold, regardless of precedence. Limits are looser by the
    /// share `tolerance`.
    pub(super) fn matches(self, facts: &Facts, tolerance: f64) -> bool {
        self.conditions(facts).iter().all(|condition| condition.holds(tolerance))
    }

    /// Label of a stretch.
    pub(super) fn of(facts: &Facts) -> Self {
        Self::ALL.into_iter().find(|kind| kind.matches(facts, 0.0)).unwrap_or(Self::None)
    }

    /// Labels of a stretch if any one value deviates a little; a single kind if the label is clear.
    pub(super) fn possible(facts: &Facts) -> BTreeSet<Self> {
        let near = facts.deviations(NEAR);
        near.iter().chain([facts]).map(Self::of).collect()
    }
}

impl Condition {
    /// Whether the condition holds with a limit that is looser by the share `tolerance`.
    fn holds(self, tolerance: f64) -> bool {
        match self {
            AtLeast(value, limit) => value as f64 >= limit * (1.0 - tolerance),
            // 0 is below any limit, even a limit of 0.
            Below(value, limit) => value == 0 || (value as f64) < limit * (1.0 + tolerance),
        }
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// Label of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Label {
    pub(super) kind: Kind,
    /// Whether another label would be as justified.
    pub(super) is_near: bool,
}

/// Share of the first kind's bytes from which the second kind is as justified.
const CLOSE_SECOND: f64 = 0.8;

/// Label of a run: the kind whose stretches have the most arrived bytes.
pub(super) fn label(stretches: &[Facts]) -> Label {
    // Bytes of stretches that clearly are of a kind, and of those that may be.
    let (mut certain, mut uncertain) = (BTreeMap::<Kind, u64>::new(), BTreeMap::<Kind, u64>::new());
    let mut bytes = BTreeMap::<Kind, u64>::new();
    for facts in stretches {
        let possible = Kind::possible(facts);
        for kind in &possible {
            let sums = if possible.len() == 1 { &mut certain } else { &mut uncertain };
            *sums.entry(*kind).or_default() += facts.arrived_bytes();
        }
        *bytes.entry(Kind::of(facts)).or_default() += facts.arrived_bytes();
    }
    let of = |sums: &BTreeMap<Kind, u64>, kind: Kind| sums.get(&kind).copied().unwrap_or(0);
    // Of equals, the kind with the highest precedence. If nothing arrived, the kind with the
    // highest precedence of any stretch.
    let most = Kind::ALL.into_iter().rev().max_by_key(|kind| of(&bytes, *kind)).filter(|kind| of(&bytes, *kind) > 0);
    let kind = most.or_else(|| stretches.iter().map(Kind::of).min()).unwrap_or(Kind::None);
    let others = || Kind::ALL.into_iter().filter(|other| *other != kind);
    let could_change = others().any(|other| {
        let possible_bytes = of(&certain, other) + of(&uncertain, other);
        of(&uncertain, other) > 0 && possible_bytes > of(&certain, kind)
    });
    let is_close = others().any(|other| {
        let other_bytes = of(&bytes, other);
        other_bytes > 0 && other_bytes as f64 >= CLOSE_SECOND * of(&bytes, kind) as f64
    });
    // In a steady run, the bounds of stretches may hide that values are close to their limits.
    let mut sum = Facts::default();
    for facts in stretches {
        sum += *facts;
    }
    let is_close_in_sum = Kind::of(&sum) == kind && Kind::possible(&sum).len() > 1;
    Label { kind, is_near: could_change || is_close || is_close_in_sum }
}

#[cfg(test)]
mod tests;
