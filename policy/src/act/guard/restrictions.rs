//! Restrictions that the guard currently applies.

use model::{Action, Advice, Place, RestrictionScope, block::BLOCK_BYTES};

use super::{Guard, NO_GPU_MEMORY, NO_LINK, headroom, too_little_host, used_up};
use crate::act::{limits::Limits, scene::Sight};

impl Guard {
    /// Restrictions of this process at this GPU, each with its reason.
    pub(crate) fn restrictions(&self, sight: &Sight<'_>, limits: &Limits) -> Vec<(RestrictionScope, String)> {
        let known = self.moves(sight);
        let denial = |action| self.denial(action, known, sight);
        let unlinked = !sight.scene.links.contains_key(&sight.gpu);
        let moves = denial(Action::Migrate(Place::Host)).or_else(|| self.is_used_up(sight)).or_else(|| {
            let left = headroom(sight).filter(|left| *left < limits.host_reserve_bytes);
            left.map(|_| too_little_host(0))
        });
        let to_gpu = denial(Action::Migrate(Place::Gpu(sight.gpu)))
            .or_else(|| sight.memory_bytes.is_none().then(|| NO_GPU_MEMORY.to_owned()));
        let to_host = headroom(sight).is_none().then(|| NO_HEADROOM.to_owned());
        // Restrictions of all migrations are reported once.
        let (to_gpu, to_host) = if moves.is_some() { (None, None) } else { (to_gpu, to_host) };
        let all = [
            (RestrictionScope::Advice, denial(Action::Advise(Advice::AccessedBy(sight.gpu)))),
            (RestrictionScope::Moves, moves),
            (RestrictionScope::MovesToGpu, to_gpu),
            (RestrictionScope::MovesToHost, to_host),
            (RestrictionScope::SomeMemory, unseen(sight)),
            (RestrictionScope::RemoteMappings, unlinked.then(|| NO_LINK.to_owned())),
        ];
        all.into_iter().filter_map(|(scope, reason)| Some((scope, reason?))).collect()
    }

    /// Reason why the byte budget of the process is spent; `None` while some of it is left.
    fn is_used_up(&self, sight: &Sight<'_>) -> Option<String> {
        let all = sight.directive.budget.bytes?;
        let account = self.processes.get(&sight.process.id)?;
        // One more block would exceed it.
        (all.saturating_sub(account.moved_bytes) < BLOCK_BYTES).then(|| used_up(all))
    }
}

fn unseen(sight: &Sight<'_>) -> Option<String> {
    let unseen = sight.unseen_ranges;
    (unseen > 0).then(|| format!("it has too many ranges: {unseen} of them, those with least traffic, are skipped"))
}

const NO_HEADROOM: &str = "its limit of host memory is unknown";
