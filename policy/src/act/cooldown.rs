//! Cool-downs of policies on a process.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::{Duration, SystemTime},
};

use model::{ProcessId, Stage, VerdictKind};

use super::{
    limits::{Limits, SHORT_COOLDOWN_WINDOWS},
    scene::Target,
};

/// Minimum share of a verdict's traffic for a range to count among the circumstances.
const TRAFFIC_SHARE_MIN: f64 = 0.1;

/// Circumstances of a rollback. A change of them permits a retry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Circumstances {
    verdicts: BTreeSet<VerdictKind>,
    ranges: BTreeSet<(u64, u64)>,
    /// Processes at the GPU.
    processes: Arc<BTreeSet<ProcessId>>,
    /// Other processes that uvmd acts on, which may be the cause of the failure.
    acted_on: BTreeSet<ProcessId>,
    parameters: BTreeMap<String, String>,
}

impl Circumstances {
    pub(crate) fn of(target: &Target<'_>) -> Self {
        let involved = target
            .verdicts
            .iter()
            .flat_map(|verdict| &verdict.ranges)
            .filter(|range| range.traffic_ratio >= TRAFFIC_SHARE_MIN);
        Self {
            verdicts: target.verdicts.iter().map(|verdict| verdict.kind).collect(),
            ranges: involved.map(|range| (range.begin, range.end)).collect(),
            processes: Arc::clone(&target.gpu_context.ids),
            acted_on: target.others_acted_on().collect(),
            parameters: target.directive.parameters.clone(),
        }
    }
}

/// Policies in cool-down, by name, for one process at one GPU.
#[derive(Clone, Debug, Default)]
pub(crate) struct Cooldown(BTreeMap<&'static str, Entry>);

/// Cool-down of one policy.
#[derive(Clone, Debug, Default)]
struct Entry {
    until: Option<SystemTime>,
    /// Number of cool-downs so far, each of which doubles the duration.
    times: u32,
    /// Circumstances of its failures, in which the policy is not retried.
    failed_in: Vec<Circumstances>,
    /// How its last proposal ended, such as `it was denied: …`.
    end: Option<String>,
}

/// Remaining cool-down.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Remaining {
    /// For this time, in any circumstances.
    For(Duration),
    /// Until the circumstances differ from those of the rollback.
    UntilChanged,
}

/// Maximum number of circumstances stored per policy; the oldest are dropped.
const FAILED_MAX: usize = 16;

impl Cooldown {
    /// Whether a policy may not be tried.
    pub(crate) fn is_cooling_down(&self, policy: &str, now: SystemTime, circumstances: &Circumstances) -> bool {
        self.remaining(policy, now, circumstances).is_some()
    }

    /// Remaining cool-down of a policy; `None` if it may be tried.
    fn remaining(&self, policy: &str, now: SystemTime, circumstances: &Circumstances) -> Option<Remaining> {
        let entry = self.0.get(policy)?;
        let left = entry.until.and_then(|until| until.duration_since(now).ok()).filter(|left| !left.is_zero());
        left.map(Remaining::For).or_else(|| entry.failed_in.contains(circumstances).then_some(Remaining::UntilChanged))
    }

    /// Why a policy may not be tried: how its last proposal ended, and the remaining cool-down.
    pub(crate) fn restriction(&self, policy: &str, now: SystemTime, circumstances: &Circumstances) -> Option<String> {
        let remaining = self.remaining(policy, now, circumstances)?;
        let end = self.0.get(policy).and_then(|entry| entry.end.as_deref());
        let end = end.unwrap_or("it was denied, rolled back or ended recently");
        Some(match remaining {
            Remaining::For(left) => format!("{end}; cool-down: {} s", left.as_secs().max(1)),
            Remaining::UntilChanged => {
                format!("{end}; tried again once verdicts, ranges, parameters or other processes have changed")
            }
        })
    }

    /// Records how a proposal of a policy ended, if that started a cool-down.
    pub(crate) fn record_end(&mut self, policy: &str, stage: &Stage) {
        let Some(entry) = self.0.get_mut(policy).filter(|entry| entry.end.is_none()) else { return };
        entry.end = match stage {
            Stage::Denied(why) => Some(format!("it was denied: {why}")),
            Stage::RolledBack(why) => Some(format!("it was rolled back: {why}")),
            Stage::Ended(why) => Some(format!("it ended: {why}")),
            Stage::Shadow(_) | Stage::Trial | Stage::Confirmed => None,
        };
    }

    /// Whether the policy was rolled back, and not confirmed since.
    pub(crate) fn has_failed(&self, policy: &str) -> bool {
        self.0.get(policy).is_some_and(|entry| !entry.failed_in.is_empty())
    }

    /// Starts a cool-down of twice the last duration. `failed_in`: circumstances at the start of
    /// the proposal, and the current ones, which it may have caused.
    pub(crate) fn start(
        &mut self,
        policy: &'static str,
        now: SystemTime,
        limits: &Limits,
        failed_in: impl IntoIterator<Item = Circumstances>,
    ) {
        let entry = self.0.entry(policy).or_default();
        let doubled = limits.cool_down_windows.saturating_mul(1_u32.checked_shl(entry.times).unwrap_or(u32::MAX));
        entry.until = now.checked_add(limits.window.saturating_mul(doubled.min(limits.cool_down_windows_max)));
        entry.times = entry.times.saturating_add(1);
        entry.end = None;
        for circumstances in failed_in {
            if !entry.failed_in.contains(&circumstances) {
                entry.failed_in.push(circumstances);
            }
        }
        let excess = entry.failed_in.len().saturating_sub(FAILED_MAX);
        entry.failed_in.drain(..excess);
    }

    /// Starts a short cool-down, in any circumstances.
    pub(crate) fn start_short(&mut self, policy: &'static str, now: SystemTime, limits: &Limits) {
        let entry = self.0.entry(policy).or_default();
        entry.until = entry.until.max(now.checked_add(limits.window.saturating_mul(SHORT_COOLDOWN_WINDOWS)));
        entry.end = None;
    }

    /// Starts a cool-down after an order without a call, or after the end of a plan for another
    /// reason than harm or no benefit: at first as short as [`Self::start_short`], then doubled each time.
    pub(crate) fn start_for_retry(&mut self, policy: &'static str, now: SystemTime, limits: &Limits) {
        let entry = self.0.entry(policy).or_default();
        let doubled = SHORT_COOLDOWN_WINDOWS.saturating_mul(1_u32.checked_shl(entry.times).unwrap_or(u32::MAX));
        entry.until = now.checked_add(limits.window.saturating_mul(doubled.min(limits.cool_down_windows_max)));
        entry.times = entry.times.saturating_add(1);
        entry.end = None;
    }

    /// Clears the cool-down of a policy after a success.
    pub(crate) fn clear(&mut self, policy: &str) {
        self.0.remove(policy);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn nothing() -> Circumstances {
        Circumstances {
            verdicts: BTreeSet::new(),
            ranges: BTreeSet::new(),
            processes: Arc::default(),
            acted_on: BTreeSet::new(),
            parameters: BTreeMap::new(),
        }
    }

    #[test]
    fn restriction_has_the_reason_of_the_end() {
        let (mut cooldown, now, limits) = (Cooldown::default(), SystemTime::UNIX_EPOCH, Limits::default());
        cooldown.record_end("other", &Stage::Ended("its phase is over".to_owned()));
        assert_eq!(cooldown.restriction("other", now, &nothing()), None, "it has no cool-down");
        cooldown.start("cycle", now, &limits, []);
        cooldown.record_end("cycle", &Stage::Denied("there is too little host memory".to_owned()));
        let restriction = |cooldown: &Cooldown| cooldown.restriction("cycle", now, &nothing()).unwrap();
        let denied = "it was denied: there is too little host memory; cool-down: 30 s";
        assert_eq!(restriction(&cooldown), denied);
        cooldown.record_end("cycle", &Stage::RolledBack("acting is switched off".to_owned()));
        assert_eq!(restriction(&cooldown), denied, "a later end without a cool-down is not its reason");
        cooldown.start("cycle", now - limits.window * 60, &limits, [nothing()]);
        cooldown.record_end("cycle", &Stage::RolledBack("more bytes".to_owned()));
        assert_eq!(
            restriction(&cooldown),
            "it was rolled back: more bytes; tried again once verdicts, ranges, parameters or other processes have changed"
        );
    }

    #[test]
    fn only_a_policy_rolled_back_and_not_confirmed_since_has_failed() {
        let (mut cooldown, now, limits) = (Cooldown::default(), SystemTime::UNIX_EPOCH, Limits::default());
        cooldown.start("denied", now, &limits, []);
        cooldown.start_short("short", now, &limits);
        cooldown.start("rolled-back", now, &limits, [nothing()]);
        let failed = |cooldown: &Cooldown| ["denied", "short", "rolled-back"].map(|policy| cooldown.has_failed(policy));
        assert_eq!(failed(&cooldown), [false, false, true]);
        cooldown.clear("rolled-back");
        assert_eq!(failed(&cooldown), [false; 3]);
    }
}
