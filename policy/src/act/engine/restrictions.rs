//! Restrictions that currently prevent action.

use model::{Process, Restriction, RestrictionScope};

use super::{
    super::scene::{Scene, Target},
    Engine, directed, gpus, is_counting, targets,
};

impl Engine {
    /// Restrictions of the processes in a mode other than observe, apart from the mode itself.
    /// Called after [`Self::observe`] of the same scene. Costs as much as an interval, so it is not
    /// called in each. Deferred processes keep theirs.
    #[must_use]
    pub fn restrictions(&mut self, scene: &Scene<'_>) -> Vec<Restriction> {
        let mut all = restrictions_without_gpu(scene);
        let mut last = std::mem::take(&mut self.last_restrictions);
        let targets = targets(scene);
        let gpu_contexts = scene.gpu_contexts(targets.iter().map(|(_, gpu, _)| *gpu));
        let acted_on = self.acted_on();
        for (process, gpu, directive) in targets {
            let (Some(track), Some(gpu_context)) = (self.tracks.get(&(process.id, gpu)), gpu_contexts.get(&gpu)) else {
                continue;
            };
            let restrictions: Vec<Restriction> = if scene.deferred.contains(&process.id) {
                last.remove(&(process.id, gpu)).unwrap_or_default()
            } else {
                let target = Target::of(scene, process, gpu, directive, gpu_context, acted_on.at(gpu));
                let is_withdrawing = self.rollbacks.is_withdrawing(process.id, gpu);
                let own = track.restrictions(&target, &self.guard, &self.limits, is_withdrawing);
                let restrictions = own.into_iter().chain(self.plan_restrictions(&target));
                restrictions
                    .map(|(scope, reason)| Restriction { process: process.id, gpu: Some(gpu), scope, reason })
                    .collect()
            };
            all.extend(restrictions.iter().cloned());
            self.last_restrictions.insert((process.id, gpu), restrictions);
        }
        all
    }
}

/// Restrictions of processes that are not [`targets`] at any GPU.
fn restrictions_without_gpu(scene: &Scene<'_>) -> Vec<Restriction> {
    let reason = |process: &Process| {
        if !is_counting(scene) {
            Some("nothing is counted")
        } else if gpus(process).next().is_none() {
            Some("it has no counts at a known GPU")
        } else {
            None
        }
    };
    let restrictions = directed(scene).filter_map(|(process, _)| {
        let reason = reason(process)?.to_owned();
        Some(Restriction { process: process.id, gpu: None, scope: RestrictionScope::Everything, reason })
    });
    restrictions.collect()
}
