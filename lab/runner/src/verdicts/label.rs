//! The label of a stretch and of a run: the table of docs/verdicts.md as code, written from its words. uvmd's own code has no part in it.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
};

use serde::{Deserialize, Serialize};

use super::facts::Facts;
use crate::scenario::size::MIB;

/// What is wrong with a process at a GPU, in the order in which kinds go before others.
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

/// A value that decides, and its limit.
#[derive(Clone, Copy, Debug)]
enum Condition {
    AtLeast(u64, f64),
    Below(u64, f64),
}

use Condition::{AtLeast, Below};

/// A value this close to its limit, as a part of the limit, decides nothing.
const NEAR: f64 = 0.1;
const THROTTLES: f64 = 10.0;
const ALTERNATIONS: f64 = 8.0;
#[expect(clippy::cast_precision_loss, reason = "a small number")]
const ARRIVED_BYTES: f64 = MIB as f64;
const QUARTER: f64 = 0.25;
const TENTH: f64 = 0.1;
const HALF: f64 = 0.5;
#[expect(clippy::cast_precision_loss, reason = "a small number")]
const BYTES_OF_A_FAULT: f64 = 2.0 * MIB as f64;

impl Kind {
    pub(crate) const ALL: [Self; 6] = [
        Self::DriverThrottling,
        Self::CapacityThrash,
        Self::PingPong,
        Self::Streaming,
        Self::FirstTouchStorm,
        Self::None,
    ];

    /// As uvmd names it.
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
                AtLeast(bounces, ALTERNATIONS),
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
                AtLeast(gpu_faults, populated_bytes as f64 / BYTES_OF_A_FAULT),
            ],
            Self::None => Vec::new(),
        }
    }

    /// Whether its conditions hold, with limits that are this part looser, whatever stands before it.
    pub(super) fn may_be(self, facts: &Facts, looser: f64) -> bool {
        self.conditions(facts).iter().all(|condition| condition.holds(looser))
    }

    /// The label of a stretch.
    pub(super) fn of(facts: &Facts) -> Self {
        Self::ALL.into_iter().find(|kind| kind.may_be(facts, 0.0)).unwrap_or(Self::None)
    }

    /// What it would be with one value or another a little off; one kind if it is clear.
    pub(super) fn possible(facts: &Facts) -> BTreeSet<Self> {
        let near = facts.with_one_off(NEAR);
        near.iter().chain([facts]).map(Self::of).collect()
    }
}

impl Condition {
    /// Whether it holds with a limit that is this part looser.
    fn holds(self, looser: f64) -> bool {
        match self {
            AtLeast(value, limit) => value as f64 >= limit * (1.0 - looser),
            // 0 is below any limit, also where there is nothing to compare with.
            Below(value, limit) => value == 0 || (value as f64) < limit * (1.0 + looser),
        }
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// The label of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Label {
    pub(super) kind: Kind,
    /// Another label would do as well.
    pub(super) is_near: bool,
}

/// A kind that comes second with this part of the first's bytes is as good.
const SECOND: f64 = 0.8;

/// The kind whose stretches have the most arrived bytes.
pub(super) fn label(stretches: &[Facts]) -> Label {
    // What is certain to be of a kind, and what may be.
    let (mut certain, mut perhaps) = (BTreeMap::<Kind, u64>::new(), BTreeMap::<Kind, u64>::new());
    let mut bytes = BTreeMap::<Kind, u64>::new();
    for facts in stretches {
        let possible = Kind::possible(facts);
        for kind in &possible {
            let sums = if possible.len() == 1 { &mut certain } else { &mut perhaps };
            *sums.entry(*kind).or_default() += facts.arrived_bytes();
        }
        *bytes.entry(Kind::of(facts)).or_default() += facts.arrived_bytes();
    }
    let of = |sums: &BTreeMap<Kind, u64>, kind: Kind| sums.get(&kind).copied().unwrap_or(0);
    // Of equals, the one that stands first. Where nothing arrived, what most stretches show: of one stretch, its kind.
    let most = Kind::ALL.into_iter().rev().max_by_key(|kind| of(&bytes, *kind)).filter(|kind| of(&bytes, *kind) > 0);
    let kind = most.or_else(|| stretches.iter().map(Kind::of).min()).unwrap_or(Kind::None);
    let others = || Kind::ALL.into_iter().filter(|other| *other != kind);
    let could_change = others().any(|other| {
        let its = of(&certain, other) + of(&perhaps, other);
        of(&perhaps, other) > 0 && its > of(&certain, kind)
    });
    let is_close = others().any(|other| {
        let its = of(&bytes, other);
        its > 0 && its as f64 >= SECOND * of(&bytes, kind) as f64
    });
    // Of a steady run, stretches may begin and end where it hides how close it is.
    let mut whole = Facts::default();
    for facts in stretches {
        whole += *facts;
    }
    let is_close_in_sum = Kind::of(&whole) == kind && Kind::possible(&whole).len() > 1;
    Label { kind, is_near: could_change || is_close || is_close_in_sum }
}

#[cfg(test)]
mod tests;
