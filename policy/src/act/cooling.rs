//! What was tried on a process and is not tried again for now.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::SystemTime,
};

use model::{ProcessId, VerdictKind};

use super::{limits::Limits, scene::Sight};

/// Of a range, this part of the traffic that a verdict is about makes it worth telling apart by.
const SHARE: f64 = 0.1;

/// What has to change for a policy that was undone to be tried again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Circumstances {
    verdicts: BTreeSet<VerdictKind>,
    ranges: BTreeSet<(u64, u64)>,
    processes: BTreeSet<ProcessId>,
    parameters: BTreeMap<String, String>,
}

impl Circumstances {
    pub(crate) fn of(sight: &Sight<'_>) -> Self {
        let involved = sight.verdicts.iter().flat_map(|verdict| &verdict.ranges).filter(|range| range.share >= SHARE);
        Self {
            verdicts: sight.verdicts.iter().map(|verdict| verdict.kind).collect(),
            ranges: involved.map(|range| (range.begin, range.end)).collect(),
            processes: sight.others.iter().map(|(other, _)| other.id).collect(),
            parameters: sight.wish.parameters.clone(),
        }
    }
}

/// Policies that cool down, by name, for one process at one GPU.
#[derive(Clone, Debug, Default)]
pub(crate) struct Cooling(BTreeMap<&'static str, Rest>);

#[derive(Clone, Debug)]
struct Rest {
    until: SystemTime,
    times: u32,
    /// What has to change besides; `None` if only time has to pass.
    unless_other_than: Option<Circumstances>,
}

impl Cooling {
    pub(crate) fn rests(&self, policy: &str, now: SystemTime, circumstances: &Circumstances) -> bool {
        self.0
            .get(policy)
            .is_some_and(|rest| now < rest.until || rest.unless_other_than.as_ref() == Some(circumstances))
    }

    /// From now on, for twice as long as the last time.
    pub(crate) fn begin(
        &mut self,
        policy: &'static str,
        now: SystemTime,
        limits: &Limits,
        unless_other_than: Option<Circumstances>,
    ) {
        let times = self.0.get(policy).map_or(0, |rest| rest.times.saturating_add(1));
        let lasts =
            limits.cool_down.saturating_mul(1_u32.checked_shl(times).unwrap_or(u32::MAX)).min(limits.cool_down_max);
        let until = now.checked_add(lasts).unwrap_or(now);
        self.0.insert(policy, Rest { until, times, unless_other_than });
    }

    /// It helped: what was before counts no more.
    pub(crate) fn forget(&mut self, policy: &str) {
        self.0.remove(policy);
    }
}
