//! Restrictions that the guard currently applies.

use model::{Action, Advice, Place, RestrictionScope, block::BLOCK_BYTES};

use super::{Guard, NO_GPU_MEMORY, NO_LINK, budget_exhausted, headroom, host_memory_shortage, is_unmetered};
use crate::act::{limits::Limits, scene::Target};

impl Guard {
    /// Restrictions of this process at this GPU, each with its reason.
    pub(crate) fn restrictions(&self, target: &Target<'_>, limits: &Limits) -> Vec<(RestrictionScope, String)> {
        let restrictions = self.migration_restrictions(target);
        let denial = |action| self.denial(action, restrictions, target);
        let moves = denial(Action::Migrate(Place::Host)).or_else(|| self.exhausted_budget(target)).or_else(|| {
            let left = headroom(target).filter(|left| *left < limits.host_reserve_bytes);
            left.map(|_| host_memory_shortage(0))
        });
        let to_gpu = denial(Action::Migrate(Place::Gpu(target.gpu)))
            .or_else(|| target.memory_bytes.is_none().then(|| NO_GPU_MEMORY.to_owned()));
        let to_host = headroom(target).is_none().then(|| NO_HEADROOM.to_owned());
        // Restrictions of all migrations are reported once.
        let (to_gpu, to_host) = if moves.is_some() { (None, None) } else { (to_gpu, to_host) };
        let all = [
            (RestrictionScope::Advice, denial(Action::Advise(Advice::AccessedBy(target.gpu)))),
            (RestrictionScope::Moves, moves),
            (RestrictionScope::MovesToGpu, to_gpu),
            (RestrictionScope::MovesToHost, to_host),
            (RestrictionScope::SomeMemory, skipped(target)),
            (RestrictionScope::RemoteMappings, is_unmetered(target).then(|| NO_LINK.to_owned())),
        ];
        all.into_iter().filter_map(|(scope, reason)| Some((scope, reason?))).collect()
    }

    /// Reason why the byte budget of the process is spent; `None` while some of it is left.
    fn exhausted_budget(&self, target: &Target<'_>) -> Option<String> {
        let all = target.directive.budget.bytes?;
        let account = self.processes.get(&target.process.id)?;
        // One more block would exceed it.
        (all.saturating_sub(account.moved_bytes) < BLOCK_BYTES).then(|| budget_exhausted(all))
    }
}

fn skipped(target: &Target<'_>) -> Option<String> {
    let skipped = target.skipped_ranges;
    (skipped > 0).then(|| format!("it has too many ranges: {skipped} of them, those with least traffic, are skipped"))
}

const NO_HEADROOM: &str = "its limit of host memory is unknown";
