//! `auto-live`: selects the admissible proposal with the lowest expected cost. A rolled-back policy
//! cools down under its own name, so the next best is tried. A confirmed proposal is replaced by
//! that of a policy with a higher expected benefit. If the measured benefit of that policy is
//! lower, it is rolled back or replaced in turn. Of two policies with similar times, the one with
//! fewer bytes over the link is better, because the link is shared.

use std::collections::BTreeMap;

use model::{Proposal, Share, decision::Measured};

use super::{
    candidate::Candidate,
    cost::{RelativeCost, seconds},
};
use crate::act::{
    guard::Admission,
    limits::{BETTER_COST_MAX, BETTER_COST_MAX_UNTRIED, FEWER_BYTES_MAX_UNTRIED},
};

/// Measurements of the window before a proposal, and the cost in it relative to the driver alone.
pub(crate) type Baseline<'a> = (&'a Measured, RelativeCost);

/// Measured relative cost of each policy that was tried.
#[derive(Clone, Debug, Default)]
pub(crate) struct MeasuredCosts(BTreeMap<&'static str, RelativeCost>);

impl MeasuredCosts {
    /// Records a measured cost, averaged with the previous one: a single window is weak evidence.
    pub(crate) fn record(&mut self, policy: &'static str, cost: RelativeCost) {
        let known = self.0.entry(policy).or_insert(cost);
        known.time = f64::midpoint(known.time, cost.time);
        known.link_bytes = f64::midpoint(known.link_bytes, cost.link_bytes);
    }

    /// Relative cost of a policy, if it was measured.
    pub(crate) fn of(&self, policy: &str) -> Option<RelativeCost> {
        self.0.get(policy).copied()
    }

    /// Relative cost of a proposal: measured, or else as it promises for the work of `before`.
    fn cost(&self, proposal: &Proposal, (before, cost_before): Baseline<'_>, saved: fn(Share) -> f64) -> RelativeCost {
        self.of(proposal.policy).unwrap_or_else(|| {
            let copied = before.inputs.bytes_htod.saturating_add(before.inputs.bytes_dtoh);
            let (link, faults) = (seconds(copied, 0), seconds(0, before.replays));
            let all = link + faults;
            let link_bytes = saved(proposal.expected.link_bytes_saved);
            let time = link_bytes * link + saved(proposal.expected.faults_saved) * faults;
            let time = if all > 0.0 { time / all } else { 0.0 };
            RelativeCost { time: 1.0 - time, link_bytes: 1.0 - link_bytes }.of(cost_before)
        })
    }

    /// Best proposal, by the lower bounds of the promises.
    pub(crate) fn best(&self, candidates: impl Iterator<Item = Candidate>, before: Baseline<'_>) -> Option<Candidate> {
        let rank = |candidate: &Candidate| match candidate.admission {
            Admission::Act => 0,
            Admission::Shadow(_) => 1,
            Admission::Denied(_) => 2,
        };
        let cost = |candidate: &Candidate| self.cost(&candidate.proposal, before, |share| share.at_least).time;
        candidates.min_by(|one, other| rank(one).cmp(&rank(other)).then(cost(one).total_cmp(&cost(other))))
    }

    /// Policy worth trying instead of a proposal with this cost. Because that proposal can be
    /// resumed, the midpoint of a promise counts, and policies with similar times are considered.
    pub(crate) fn better(
        &self,
        candidates: impl Iterator<Item = Candidate>,
        before: Baseline<'_>,
        cost_now: RelativeCost,
    ) -> Option<&'static str> {
        let possible: Vec<Candidate> = candidates.filter(|candidate| candidate.admission == Admission::Act).collect();
        // Compared with the fastest known policy. Of three policies, each a little slower than the
        // one before, the first would otherwise replace the last, in a loop.
        let known = possible.iter().filter_map(|candidate| self.of(candidate.proposal.policy));
        let fastest = known.map(|cost| cost.time).fold(cost_now.time, f64::min);
        let better = possible.iter().filter_map(|Candidate { proposal, .. }| {
            let cost = self.cost(proposal, before, |share| f64::midpoint(share.at_least, share.at_most));
            let at_best = self.cost(proposal, before, |share| share.at_most);
            let (much, fewer) = if self.0.contains_key(proposal.policy) {
                (BETTER_COST_MAX, BETTER_COST_MAX)
            } else {
                (BETTER_COST_MAX_UNTRIED, FEWER_BYTES_MAX_UNTRIED)
            };
            let takes_fewer = at_best.link_bytes < cost_now.link_bytes * fewer;
            let is_better = cost.time < cost_now.time * much || takes_fewer && at_best.is_as_fast_as(fastest);
            is_better.then_some((proposal.policy, cost.time))
        });
        better.min_by(|(_, one), (_, other)| one.total_cmp(other)).map(|(policy, _)| policy)
    }
}

#[cfg(test)]
mod tests {
    use model::{Expected, GpuUuid, ProcessId, verdict::Inputs};

    use super::*;
    use crate::act::live::live_policy::{Next, Running, View};

    #[derive(Debug)]
    struct Nothing;

    impl Running for Nothing {
        fn next_steps(&mut self, _: &View<'_>) -> Next {
            Next::Steps(Vec::new())
        }
    }

    /// Candidate that promises to save at least this share of link bytes and faults.
    fn candidate(policy: &'static str, at_least: f64, admission: Admission) -> Candidate {
        let saved = Share { at_least, at_most: 1.0 };
        let expected = Expected { link_bytes_saved: saved, faults_saved: saved };
        let (process, gpu) = (ProcessId { pid: 1, start_ticks: 1 }, GpuUuid([1; 16]));
        let proposal = Proposal { process, gpu, policy, reason: String::new(), steps: Vec::new(), expected };
        Candidate { proposal, running: Box::new(Nothing), admission }
    }

    fn cost(time: f64, link_bytes: f64) -> RelativeCost {
        RelativeCost { time, link_bytes }
    }

    fn before() -> Measured {
        Measured { inputs: Inputs { bytes_htod: 1 << 30, ..Inputs::default() }, replays: 1000, ..Measured::default() }
    }

    #[test]
    fn permitted_proposal_precedes_a_denied_one_with_higher_savings() {
        let candidates = [
            candidate("denied", 0.9, Admission::Denied(String::new())),
            candidate("shadow", 0.8, Admission::Shadow(String::new())),
            candidate("less", 0.2, Admission::Act),
            candidate("more", 0.3, Admission::Act),
        ];
        let best = MeasuredCosts::default().best(candidates.into_iter(), (&before(), RelativeCost::UNCHANGED)).unwrap();
        assert_eq!(best.proposal.policy, "more");
    }

    #[test]
    fn measured_savings_outweigh_expected_savings() {
        let mut costs = MeasuredCosts::default();
        costs.record("estimated", cost(0.9, 0.9));
        let candidates =
            || [candidate("estimated", 0.8, Admission::Act), candidate("untried", 0.2, Admission::Act)].into_iter();
        assert_eq!(costs.best(candidates(), (&before(), RelativeCost::UNCHANGED)).unwrap().proposal.policy, "untried");
        // The midpoint of 0.2 and 1 leaves a cost of 0.4.
        assert_eq!(costs.better(candidates(), (&before(), RelativeCost::UNCHANGED), cost(0.6, 0.6)), Some("untried"));
        assert_eq!(
            costs.better(candidates(), (&before(), RelativeCost::UNCHANGED), cost(0.5, 0.0)),
            None,
            "not worth it"
        );
        costs.record("untried", cost(0.6, 0.6));
        assert_eq!(
            costs.better(candidates(), (&before(), RelativeCost::UNCHANGED), cost(0.6, 0.6)),
            None,
            "its measured savings are smaller"
        );
        costs.record("untried", cost(0.2, 0.2));
        assert_eq!(costs.of("untried"), Some(cost(0.4, 0.4)));
        assert_eq!(
            costs.better(candidates(), (&before(), RelativeCost::UNCHANGED), cost(0.5, 0.5)),
            Some("untried"),
            "measured savings need a smaller margin"
        );
    }

    #[test]
    fn expected_savings_apply_to_the_remaining_cost_of_the_previous_proposal() {
        let candidates = || [candidate("untried", 0.2, Admission::Act)].into_iter();
        assert_eq!(
            MeasuredCosts::default().better(candidates(), (&before(), cost(0.5, 0.5)), cost(0.3, 0.3)),
            Some("untried"),
            "a cost of 0.2 is left"
        );
        assert_eq!(
            MeasuredCosts::default().better(candidates(), (&before(), RelativeCost::UNCHANGED), cost(0.3, 0.0)),
            None
        );
    }

    #[test]
    fn fewer_link_bytes_decide_between_equally_fast_policies() {
        let mut costs = MeasuredCosts::default();
        let candidates =
            || [candidate("retains", 0.2, Admission::Act), candidate("prefetches", 0.2, Admission::Act)].into_iter();
        let (retains, prefetches) = (cost(0.52, 0.5), cost(0.5, 0.9));
        costs.record("prefetches", prefetches);
        assert_eq!(
            costs.better(candidates(), (&before(), RelativeCost::UNCHANGED), prefetches),
            Some("retains"),
            "it may be as fast"
        );
        costs.record("retains", retains);
        assert_eq!(costs.better(candidates(), (&before(), RelativeCost::UNCHANGED), prefetches), Some("retains"));
        assert_eq!(costs.better(candidates(), (&before(), RelativeCost::UNCHANGED), retains), None);
        let mut costs = MeasuredCosts::default();
        let slower = cost(0.7, 0.5);
        costs.record("prefetches", prefetches);
        costs.record("retains", slower);
        assert_eq!(costs.better(candidates(), (&before(), RelativeCost::UNCHANGED), prefetches), None, "it is not");
        assert_eq!(costs.better(candidates(), (&before(), RelativeCost::UNCHANGED), slower), Some("prefetches"));
    }

    #[test]
    fn slightly_slower_policies_are_not_tried_in_a_loop() {
        let mut costs = MeasuredCosts::default();
        let all = [("a", cost(0.5, 0.9)), ("b", cost(0.52, 0.7)), ("c", cost(0.57, 0.5))];
        for (name, cost) in &all {
            costs.record(name, *cost);
        }
        let better = |now: RelativeCost| {
            let candidates = all.iter().map(|(name, _)| candidate(name, 0.2, Admission::Act));
            costs.better(candidates, (&before(), RelativeCost::UNCHANGED), now)
        };
        assert_eq!(better(all[0].1), Some("b"));
        assert_eq!(better(all[1].1), None, "c is slower than a by more than is worth its bytes");
        assert_eq!(better(all[2].1), Some("a"));
    }
}
