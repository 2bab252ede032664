//! Restrictions of one process at one GPU.

use model::{Plan, RestrictionScope, policy::of_plans};

use super::{Track, window};
use crate::act::{
    cooldown::Circumstances,
    guard::{Admission, Guard},
    limits::Limits,
    live::{
        catalogue,
        comparison::is_at_work,
        live_policy::{Named, View},
        proposal::Proposal,
    },
    scene::Sight,
};

impl Track {
    /// Restrictions apart from the directive's mode. `is_withdrawing`: whether advice of a former
    /// decision is being withdrawn.
    pub(crate) fn restrictions(
        &self,
        sight: &Sight<'_>,
        guard: &Guard,
        limits: &Limits,
        is_withdrawing: bool,
    ) -> Vec<(RestrictionScope, String)> {
        let mut all = guard.restrictions(sight, limits);
        if self.open.is_some() || of_plans(&sight.directive.policy).is_some() {
            return all;
        }
        if is_withdrawing {
            all.push((RestrictionScope::Everything, "earlier advice is being withdrawn".to_owned()));
            return all;
        }
        all.extend(self.proposal_restrictions(sight, guard, limits));
        all
    }

    /// Restrictions that currently prevent a proposal.
    fn proposal_restrictions(
        &self,
        sight: &Sight<'_>,
        guard: &Guard,
        limits: &Limits,
    ) -> Vec<(RestrictionScope, String)> {
        let window = window(sight, limits);
        let everything = |why: String| vec![(RestrictionScope::Everything, why)];
        let (Some(before), Some(lately)) = (self.meter.last(window), self.meter.all()) else {
            return everything(format!("it has been watched for less than {} s", window.as_secs()));
        };
        if !is_at_work(&before, &lately) {
            return everything("the program pauses: there is no work to compare".to_owned());
        }
        let (now, circumstances) = (sight.scene.now, Circumstances::of(sight));
        let remaining = |policy: &str| self.cooldown.remaining(policy, now, &circumstances);
        let is_cooling_down = |policy: &str| remaining(policy).is_some();
        let names = || catalogue::selected(&sight.directive.policy).map(Named::name);
        let rest = |name| Some((RestrictionScope::Policy(name), remaining(name)?.to_string()));
        let mut all: Vec<_> = names().filter_map(rest).collect();
        let view = View::of(sight, self.meter.accessed(window), limits);
        let admits = |plan: &Plan| guard.admits(plan.policy, &plan.steps, sight);
        let proposals: Vec<_> = catalogue::proposals(&sight.directive.policy, &view, is_cooling_down, admits).collect();
        if proposals.is_empty() && !names().all(is_cooling_down) {
            all.push((RestrictionScope::Everything, no_case(sight)));
        }
        all.extend(proposals.into_iter().filter_map(|Proposal { plan, admission, .. }| match admission {
            Admission::Act => None,
            Admission::Shadow(why) | Admission::Denied(why) => Some((RestrictionScope::Policy(plan.policy), why)),
        }));
        all
    }
}

fn no_case(sight: &Sight<'_>) -> String {
    let whom = if sight.directive.policy == model::policy::CHOOSER { "any policy" } else { &sight.directive.policy };
    let kinds: Vec<_> = sight.verdicts.iter().map(|verdict| verdict.kind.name()).collect();
    let verdicts = if kinds.is_empty() { "no verdict is active".to_owned() } else { kinds.join(", ") };
    format!("no case for {whom}: {verdicts}")
}
