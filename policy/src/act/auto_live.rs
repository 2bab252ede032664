//! `auto-live`: of all that is proposed, what may be done and is expected to leave least to do. What was undone rests by its own name, so the next best is
//! tried then. Of what was tried it is known what it brings: a plan that is kept makes way for another that is expected to bring more, and if that one
//! brings less, it is undone, or makes way in turn.

use std::collections::BTreeMap;

use model::{Plan, Share, decision::Measured};

use super::{
    catalogue::Proposal,
    guard::Admission,
    limits::{BATCH_SECONDS, BETTER, BETTER_UNTRIED, LINK_BYTES_PER_SECOND},
};

/// Its name.
pub(crate) const NAME: &str = "auto-live";

/// What a window showed, and what part of the time that the driver alone would take was left in it.
pub(crate) type Base<'a> = (&'a Measured, f64);

/// What part of the time that the driver alone would take is left under each policy that was tried, as measured.
#[derive(Clone, Debug, Default)]
pub(crate) struct Learned(BTreeMap<&'static str, f64>);

impl Learned {
    /// One window is not much: each counts half of what was known.
    pub(crate) fn note(&mut self, policy: &'static str, left: f64) {
        self.0.entry(policy).and_modify(|known| *known = f64::midpoint(*known, left)).or_insert(left);
    }

    /// What was noted, once it was.
    pub(crate) fn of(&self, policy: &str) -> Option<f64> {
        self.0.get(policy).copied()
    }

    /// What part is thought to be left under a plan, if this was before it.
    fn left(&self, plan: &Plan, (before, left_before): Base<'_>, saved: fn(Share) -> f64) -> f64 {
        self.0.get(plan.policy).copied().unwrap_or_else(|| {
            let copied = before.inputs.bytes_htod.saturating_add(before.inputs.bytes_dtoh);
            let (link, faults) = (seconds(copied, 0), seconds(0, before.replays));
            let all = link + faults;
            let saved = saved(plan.expected.link_bytes_saved) * link + saved(plan.expected.faults_saved) * faults;
            if all > 0.0 { left_before * (1.0 - saved / all) } else { left_before }
        })
    }

    /// The best of these: what is promised at the least counts.
    pub(crate) fn best(&self, proposals: impl Iterator<Item = Proposal>, before: Base<'_>) -> Option<Proposal> {
        let rank = |proposal: &Proposal| match proposal.admission {
            Admission::Act => 0,
            Admission::Shadow(_) => 1,
            Admission::Refused(_) => 2,
        };
        let left = |proposal: &Proposal| self.left(&proposal.plan, before, |share| share.at_least);
        proposals.min_by(|one, other| rank(one).cmp(&rank(other)).then(left(one).total_cmp(&left(other))))
    }

    /// What is worth trying instead of a plan under which so much is left: as that one can be had again, the middle of what is promised counts.
    pub(crate) fn better(
        &self,
        proposals: impl Iterator<Item = Proposal>,
        before: Base<'_>,
        left_now: f64,
    ) -> Option<&'static str> {
        let middle = |share: Share| f64::midpoint(share.at_least, share.at_most);
        let possible = proposals.filter(|proposal| proposal.admission == Admission::Act);
        let left = possible.map(|proposal| (proposal.plan.policy, self.left(&proposal.plan, before, middle)));
        let (policy, left) = left.min_by(|(_, one), (_, other)| one.total_cmp(other))?;
        let much = if self.0.contains_key(policy) { BETTER } else { BETTER_UNTRIED };
        (left < left_now * much).then_some(policy)
    }
}

/// Modelled: bytes by what a link moves, batches of faults by how long one takes.
pub(crate) fn seconds(link_bytes: u64, batches: u64) -> f64 {
    link_bytes as f64 / LINK_BYTES_PER_SECOND + batches as f64 * BATCH_SECONDS
}

#[cfg(test)]
mod tests {
    use model::{Expected, GpuUuid, ProcessId, verdict::Inputs};

    use super::*;
    use crate::act::reactor::{Next, Running, View};

    #[derive(Debug)]
    struct Nothing;

    impl Running for Nothing {
        fn go_on(&mut self, _: &View<'_>) -> Next {
            Next::Steps(Vec::new())
        }
    }

    /// Saves at least so much of both, and at most all.
    fn proposal(policy: &'static str, at_least: f64, admission: Admission) -> Proposal {
        let saved = Share { at_least, at_most: 1.0 };
        let expected = Expected { link_bytes_saved: saved, faults_saved: saved };
        let (process, gpu) = (ProcessId { pid: 1, start_ticks: 1 }, GpuUuid([1; 16]));
        let plan = Plan { process, gpu, policy, reason: String::new(), steps: Vec::new(), expected };
        Proposal { plan, running: Box::new(Nothing), admission }
    }

    fn before() -> Measured {
        Measured { inputs: Inputs { bytes_htod: 1 << 30, ..Inputs::default() }, replays: 1000, ..Measured::default() }
    }

    #[test]
    fn what_may_be_done_goes_before_what_promises_more_and_may_not() {
        let proposals = [
            proposal("refused", 0.9, Admission::Refused(String::new())),
            proposal("shadow", 0.8, Admission::Shadow(String::new())),
            proposal("less", 0.2, Admission::Act),
            proposal("more", 0.3, Admission::Act),
        ];
        let best = Learned::default().best(proposals.into_iter(), (&before(), 1.0)).unwrap();
        assert_eq!(best.plan.policy, "more");
    }

    #[test]
    fn what_was_measured_counts_more_than_what_is_promised() {
        let mut learned = Learned::default();
        learned.note("promises", 0.9);
        let proposals =
            || [proposal("promises", 0.8, Admission::Act), proposal("untried", 0.2, Admission::Act)].into_iter();
        assert_eq!(learned.best(proposals(), (&before(), 1.0)).unwrap().plan.policy, "untried");
        // The middle of 0.2 and 1 leaves 0.4.
        assert_eq!(learned.better(proposals(), (&before(), 1.0), 0.6), Some("untried"));
        assert_eq!(learned.better(proposals(), (&before(), 1.0), 0.5), None, "not worth it");
        learned.note("untried", 0.6);
        assert_eq!(learned.better(proposals(), (&before(), 1.0), 0.6), None, "it was tried and brought less");
        learned.note("untried", 0.2);
        assert_eq!(learned.of("untried"), Some(0.4));
        assert_eq!(learned.better(proposals(), (&before(), 1.0), 0.5), Some("untried"), "what is known needs less");
    }

    #[test]
    fn what_is_promised_is_a_part_of_what_the_plan_before_it_left() {
        let proposals = || [proposal("untried", 0.2, Admission::Act)].into_iter();
        assert_eq!(Learned::default().better(proposals(), (&before(), 0.5), 0.3), Some("untried"), "0.2 are left");
        assert_eq!(Learned::default().better(proposals(), (&before(), 1.0), 0.3), None);
    }
}
