//! Cool-downs of policies on a process.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    time::{Duration, SystemTime},
};

use model::{ProcessId, VerdictKind};

use super::{
    limits::{Limits, PAUSE_WINDOWS},
    scene::Sight,
};

/// Minimum share of a range in the verdict's traffic for it to count as a circumstance.
const SHARE: f64 = 0.1;

/// Circumstances of a rollback: their change ends the cool-down early.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Circumstances {
    verdicts: BTreeSet<VerdictKind>,
    ranges: BTreeSet<(u64, u64)>,
    processes: BTreeSet<ProcessId>,
    /// Other processes with actions, which may have been the cause.
    acted_on: BTreeSet<ProcessId>,
    parameters: BTreeMap<String, String>,
}

impl Circumstances {
    pub(crate) fn of(sight: &Sight<'_>) -> Self {
        let involved =
            sight.verdicts.iter().flat_map(|verdict| &verdict.ranges).filter(|range| range.traffic_ratio >= SHARE);
        Self {
            verdicts: sight.verdicts.iter().map(|verdict| verdict.kind).collect(),
            ranges: involved.map(|range| (range.begin, range.end)).collect(),
            processes: sight.others.iter().map(|(other, _)| other.id).collect(),
            acted_on: sight.acted_on.clone(),
            parameters: sight.directive.parameters.clone(),
        }
    }
}

/// Policies in cool-down, by name, for one process at one GPU.
#[derive(Clone, Debug, Default)]
pub(crate) struct Cooldown(BTreeMap<&'static str, Rest>);

#[derive(Clone, Debug, Default)]
struct Rest {
    until: Option<SystemTime>,
    times: u32,
    /// Circumstances of its failures: the policy is retried under other ones only.
    failed_in: Vec<Circumstances>,
}

/// Form of a cool-down.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Remaining {
    /// This long, in any circumstances.
    For(Duration),
    /// Until circumstances differ from those at its rollback.
    UntilChanged,
}

impl fmt::Display for Remaining {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::For(left) => {
                write!(f, "it was denied, rolled back or ended recently; cool-down: {} s", left.as_secs().max(1))
            }
            Self::UntilChanged => f.write_str(
                "it was rolled back, and verdicts, ranges, parameters and other processes are the same as then",
            ),
        }
    }
}

/// Maximum remembered; the oldest is forgotten.
const FAILED_MAX: usize = 16;

impl Cooldown {
    /// Reason why this policy is in cool-down; `None` if it may be tried.
    pub(crate) fn remaining(&self, policy: &str, now: SystemTime, circumstances: &Circumstances) -> Option<Remaining> {
        let rest = self.0.get(policy)?;
        let left = rest.until.and_then(|until| until.duration_since(now).ok()).filter(|left| !left.is_zero());
        left.map(Remaining::For).or_else(|| rest.failed_in.contains(circumstances).then_some(Remaining::UntilChanged))
    }

    /// Whether it was rolled back without a benefit, and has had none since.
    pub(crate) fn has_failed(&self, policy: &str) -> bool {
        self.0.get(policy).is_some_and(|rest| !rest.failed_in.is_empty())
    }

    /// Starts a cool-down, twice as long as the last one. Its circumstances are those at the plan's
    /// start and the current ones, which the plan may have caused.
    pub(crate) fn begin(
        &mut self,
        policy: &'static str,
        now: SystemTime,
        limits: &Limits,
        failed_in: impl IntoIterator<Item = Circumstances>,
    ) {
        let rest = self.0.entry(policy).or_default();
        let doubled = limits.cool_down_windows.saturating_mul(1_u32.checked_shl(rest.times).unwrap_or(u32::MAX));
        rest.until = now.checked_add(limits.window.saturating_mul(doubled.min(limits.cool_down_windows_max)));
        rest.times = rest.times.saturating_add(1);
        for circumstances in failed_in {
            if !rest.failed_in.contains(&circumstances) {
                rest.failed_in.push(circumstances);
            }
        }
        let too_many = rest.failed_in.len().saturating_sub(FAILED_MAX);
        rest.failed_in.drain(..too_many);
    }

    /// Starts a short cool-down, in any circumstances.
    pub(crate) fn pause(&mut self, policy: &'static str, now: SystemTime, limits: &Limits) {
        let rest = self.0.entry(policy).or_default();
        rest.until = rest.until.max(now.checked_add(limits.window.saturating_mul(PAUSE_WINDOWS)));
    }

    /// Pauses it after an order of which no call was made: as briefly as [`Self::pause`], and twice as
    /// long each further time.
    pub(crate) fn retry_later(&mut self, policy: &'static str, now: SystemTime, limits: &Limits) {
        let rest = self.0.entry(policy).or_default();
        let doubled = PAUSE_WINDOWS.saturating_mul(1_u32.checked_shl(rest.times).unwrap_or(u32::MAX));
        rest.until = now.checked_add(limits.window.saturating_mul(doubled.min(limits.cool_down_windows_max)));
        rest.times = rest.times.saturating_add(1);
    }

    /// Clears the cool-downs after a success.
    pub(crate) fn forget(&mut self, policy: &str) {
        self.0.remove(policy);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_policy_rolled_back_and_not_confirmed_since_has_failed() {
        let circumstances = Circumstances {
            verdicts: BTreeSet::new(),
            ranges: BTreeSet::new(),
            processes: BTreeSet::new(),
            acted_on: BTreeSet::new(),
            parameters: BTreeMap::new(),
        };
        let (mut cooldown, now, limits) = (Cooldown::default(), SystemTime::UNIX_EPOCH, Limits::default());
        cooldown.begin("refused", now, &limits, []);
        cooldown.pause("paused", now, &limits);
        cooldown.begin("rolled-back", now, &limits, [circumstances]);
        let failed =
            |cooldown: &Cooldown| ["refused", "paused", "rolled-back"].map(|policy| cooldown.has_failed(policy));
        assert_eq!(failed(&cooldown), [false, false, true]);
        cooldown.forget("rolled-back");
        assert_eq!(failed(&cooldown), [false; 3]);
    }
}
