//! Restrictions of one process at one GPU.

use model::{Proposal, RestrictionScope, policy::of_plans};

use super::{Track, window};
use crate::act::{
    cooldown::Circumstances,
    guard::{Admission, Guard},
    limits::Limits,
    live::{
        candidate::Candidate,
        catalogue,
        comparison::is_active,
        live_policy::{Named, View},
    },
    scene::Target,
};

impl Track {
    /// Restrictions apart from the directive's mode. `is_withdrawing`: whether advice of a former
    /// decision is being withdrawn.
    pub(crate) fn restrictions(
        &self,
        target: &Target<'_>,
        guard: &Guard,
        limits: &Limits,
        is_withdrawing: bool,
    ) -> Vec<(RestrictionScope, String)> {
        let mut all = guard.restrictions(target, limits);
        if self.open.is_some() || of_plans(&target.directive.policy).is_some() {
            return all;
        }
        if is_withdrawing {
            all.push((RestrictionScope::Everything, "earlier advice is being withdrawn".to_owned()));
            return all;
        }
        all.extend(self.proposal_restrictions(target, guard, limits));
        all
    }

    /// Restrictions that currently prevent a proposal.
    fn proposal_restrictions(
        &self,
        target: &Target<'_>,
        guard: &Guard,
        limits: &Limits,
    ) -> Vec<(RestrictionScope, String)> {
        let window = window(target, limits);
        let everything = |why: String| vec![(RestrictionScope::Everything, why)];
        let (Some(before), Some(recent)) = (self.meter.last(window), self.meter.all()) else {
            return everything(format!("it has been observed for less than {} s", window.as_secs()));
        };
        if !is_active(&before, &recent) {
            return everything("the program is paused: there is no work to compare".to_owned());
        }
        if self.lingers(&before, target, limits) {
            let why = "waiting for a baseline: memory is still placed by the proposal that was rolled back when acting was switched off (30 s at most)";
            return everything(why.to_owned());
        }
        let (now, circumstances) = (target.scene.now, Circumstances::of(target));
        let is_cooling_down = |policy: &str| self.cooldown.is_cooling_down(policy, now, &circumstances);
        let names = || catalogue::selected(&target.directive.policy).map(Named::name);
        let cooling =
            |name| Some((RestrictionScope::Policy(name), self.cooldown.restriction(name, now, &circumstances)?));
        let mut all: Vec<_> = names().filter_map(cooling).collect();
        let view = View::of(target, self.meter.accessed(window), limits);
        let admission = |proposal: &Proposal| guard.admission(proposal.policy, &proposal.steps, target);
        let candidates: Vec<_> =
            catalogue::candidates(&target.directive.policy, &view, is_cooling_down, admission).collect();
        if candidates.is_empty() && !names().all(is_cooling_down) {
            all.push((RestrictionScope::Everything, no_proposal(target, !all.is_empty())));
        }
        all.extend(candidates.into_iter().filter_map(|Candidate { proposal, admission, .. }| match admission {
            Admission::Act => None,
            Admission::Shadow(why) | Admission::Denied(why) => Some((RestrictionScope::Policy(proposal.policy), why)),
        }));
        all
    }
}

/// `has_cooling`: whether some policies are in their cool-downs, and are reported separately.
fn no_proposal(target: &Target<'_>, has_cooling: bool) -> String {
    let policies = match (&*target.directive.policy, has_cooling) {
        (model::policy::CHOOSER, false) => "any policy",
        (model::policy::CHOOSER, true) => "any other policy",
        (policy, _) => policy,
    };
    let kinds: Vec<_> = target.verdicts.iter().map(|verdict| verdict.kind.name()).collect();
    let verdicts = if kinds.is_empty() { "no verdict is active".to_owned() } else { kinds.join(", ") };
    format!("no case for {policies}: {verdicts}")
}
