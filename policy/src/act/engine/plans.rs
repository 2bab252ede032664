//! Plans: moves at launches, in addition to the orders of live policies.

use std::collections::BTreeSet;

use model::{GpuUuid, PlanCommand, Process, ProcessId, RestrictionScope, Stage, policy::of_plans};

use super::{
    super::{
        plans::track::{PlanTrack, PlanUpdate},
        scene::{Scene, Target},
    },
    Directive, Engine, absence_reason,
};

impl Engine {
    /// Takes the commands to helpers since the last call, in order.
    pub fn take_plan_commands(&mut self) -> Vec<PlanCommand> {
        std::mem::take(&mut self.commands)
    }

    /// Whether figures of decisions have changed since the last call, apart from those in events.
    pub const fn take_figures_changed(&mut self) -> bool {
        std::mem::replace(&mut self.have_figures_changed, false)
    }

    /// Advances the plan of a process whose calls are followed for this GPU.
    pub(super) fn update_plan(&mut self, target: &Target<'_>, is_withdrawing: bool) {
        if of_plans(&target.directive.policy).is_none() {
            return;
        }
        let following = target.scene.following.get(&target.process.id);
        let Some(following) = following.filter(|following| following.gpu == target.gpu) else { return };
        let track = self.plans.entry(target.process.id).or_default();
        let update = track.update(following, target, &mut self.guard, &self.limits, self.next, is_withdrawing);
        self.apply_plan(update);
    }

    /// Withdraws the plans of processes that have exited, are not followed, or have no plan policy
    /// in their directive.
    pub(super) fn drop_absent_plans(&mut self, scene: &Scene<'_>, targets: &[(&Process, GpuUuid, &Directive)]) {
        let followed = targets.iter().filter(|(process, gpu, directive)| {
            let following = scene.following.get(&process.id);
            of_plans(&directive.policy).is_some() && following.is_some_and(|following| following.gpu == *gpu)
        });
        let followed: BTreeSet<ProcessId> = followed.map(|(process, ..)| process.id).collect();
        let gone: Vec<ProcessId> = self.plans.keys().filter(|process| !followed.contains(process)).copied().collect();
        for id in gone {
            let process = scene.snapshot.processes.iter().find(|process| process.id == id);
            let is_target = targets.iter().any(|(process, ..)| process.id == id);
            let why = if is_target { "its calls are no longer followed" } else { absence_reason(process, scene) };
            self.close_plan(id, Stage::Ended(why.to_owned()));
        }
    }

    pub(super) fn close_plan(&mut self, process: ProcessId, stage: Stage) {
        if let Some(mut track) = self.plans.remove(&process) {
            let update = track.close(process, stage, self.observed_at);
            self.apply_plan(update);
        }
    }

    fn apply_plan(&mut self, update: PlanUpdate) {
        let PlanUpdate { events, ended, command, has_changed } = update;
        self.record(events);
        self.commands.extend(command);
        self.have_figures_changed |= has_changed;
        if let Some(decision) = ended {
            self.retain_ended(decision);
        }
    }

    /// Restrictions of the plan of a process.
    pub(super) fn plan_restrictions(&self, target: &Target<'_>) -> Vec<(RestrictionScope, String)> {
        let Some(policy) = of_plans(&target.directive.policy) else { return Vec::new() };
        let Some(following) = target.scene.following.get(&target.process.id) else {
            return vec![(RestrictionScope::Policy(policy.name), "its calls are not followed yet".to_owned())];
        };
        let without_plan = PlanTrack::default();
        let track = self.plans.get(&target.process.id).unwrap_or(&without_plan);
        track.restrictions(following, target, &self.guard, &self.limits)
    }
}
