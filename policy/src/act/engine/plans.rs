//! Plans: moves at launches, in addition to the orders of live policies.

use std::collections::BTreeSet;

use model::{GpuUuid, PlanCommand, Process, ProcessId, RestrictionScope, Stage, policy::of_plans};

use super::{
    super::{
        plans::track::{PlanTrack, PlanTurn},
        scene::{Scene, Sight},
    },
    Acting, Directive, why_unseen,
};

impl Acting {
    /// Takes the commands to helpers since the last call, in order.
    pub fn take_plan_commands(&mut self) -> Vec<PlanCommand> {
        std::mem::take(&mut self.commands)
    }

    /// Whether figures of decisions have changed since the last call, apart from those in events.
    pub const fn take_figures_changed(&mut self) -> bool {
        std::mem::replace(&mut self.have_figures_changed, false)
    }

    /// Advances the plan of a process whose calls are followed for this GPU.
    pub(super) fn follow(&mut self, sight: &Sight<'_>, is_withdrawing: bool) {
        if of_plans(&sight.directive.policy).is_none() {
            return;
        }
        let following = sight.scene.following.get(&sight.process.id);
        let Some(following) = following.filter(|following| following.gpu == sight.gpu) else { return };
        let track = self.plans.entry(sight.process.id).or_default();
        let turn = track.turn(following, sight, &mut self.guard, &self.limits, self.next, is_withdrawing);
        self.take_plan(turn);
    }

    /// Withdraws the plans of processes that have exited, are not followed, or have no plan policy
    /// in their directive.
    pub(super) fn drop_unseen_plans(&mut self, scene: &Scene<'_>, seen: &[(&Process, GpuUuid, &Directive)]) {
        let followed = seen.iter().filter(|(process, gpu, directive)| {
            let following = scene.following.get(&process.id);
            of_plans(&directive.policy).is_some() && following.is_some_and(|following| following.gpu == *gpu)
        });
        let followed: BTreeSet<ProcessId> = followed.map(|(process, ..)| process.id).collect();
        let gone: Vec<ProcessId> = self.plans.keys().filter(|process| !followed.contains(process)).copied().collect();
        for id in gone {
            let process = scene.snapshot.processes.iter().find(|process| process.id == id);
            let is_seen = seen.iter().any(|(process, ..)| process.id == id);
            let why = if is_seen { "its calls are not followed any more" } else { why_unseen(process, scene) };
            self.close_plan(id, Stage::Ended(why.to_owned()));
        }
    }

    pub(super) fn close_plan(&mut self, process: ProcessId, stage: Stage) {
        if let Some(mut track) = self.plans.remove(&process) {
            let turn = track.close(process, stage, self.taken);
            self.take_plan(turn);
        }
    }

    fn take_plan(&mut self, turn: PlanTurn) {
        let PlanTurn { events, closed, command, has_changed } = turn;
        self.record(events);
        self.commands.extend(command);
        self.have_figures_changed |= has_changed;
        if let Some(decision) = closed {
            self.remember(decision);
        }
    }

    /// Restrictions of the plan of a process.
    pub(super) fn plan_restrictions(&self, sight: &Sight<'_>) -> Vec<(RestrictionScope, String)> {
        let Some(policy) = of_plans(&sight.directive.policy) else { return Vec::new() };
        let Some(following) = sight.scene.following.get(&sight.process.id) else {
            return vec![(RestrictionScope::Policy(policy.name), "its calls are not followed yet".to_owned())];
        };
        let track = self.plans.get(&sight.process.id);
        let unfollowed = PlanTrack::default();
        track.unwrap_or(&unfollowed).restrictions(following, sight, &self.guard, &self.limits)
    }
}
