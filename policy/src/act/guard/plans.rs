//! Admission and charging of plans, by the same rules and accounts as ordered migrations.

use model::{Action, Place, PlannedIteration, ProbedIteration, text};

use super::{Guard, budget_exhausted, headroom, host_memory_shortage, permission_denial, room::room_bytes};
use crate::act::{limits::Limits, scene::Target};

/// Totals of the moves of an iteration, by a plan or by a probe's table.
pub(crate) struct IterationMoves {
    to_gpu_bytes: u64,
    to_host_bytes: u64,
    /// Bytes of the memory that moves, each counted once.
    range_bytes: u64,
    /// Peak of the bytes that are expected on the GPU.
    peak_bytes: u64,
    duration_ns: u64,
}

impl From<&PlannedIteration> for IterationMoves {
    fn from(planned: &PlannedIteration) -> Self {
        let PlannedIteration { to_gpu_bytes, to_host_bytes, peak_bytes, duration_ns, .. } = *planned;
        Self { to_gpu_bytes, to_host_bytes, range_bytes: planned.range_bytes(), peak_bytes, duration_ns }
    }
}

impl From<&ProbedIteration> for IterationMoves {
    fn from(probed: &ProbedIteration) -> Self {
        let ProbedIteration { to_gpu_bytes, to_host_bytes, duration_ns, .. } = *probed;
        // Memory that returns needs no free memory: the driver evicts for it, as without a probe.
        Self { to_gpu_bytes, to_host_bytes, range_bytes: to_host_bytes, peak_bytes: 0, duration_ns }
    }
}

impl Guard {
    /// Checks whether a plan or a probe's table may be published now.
    ///
    /// # Errors
    /// If not: the reason.
    pub(crate) fn check_moves(
        &self,
        policy: &str,
        moves: impl Into<IterationMoves>,
        target: &Target<'_>,
        limits: &Limits,
    ) -> Result<(), String> {
        let moves: IterationMoves = moves.into();
        if target.directive.range.is_some() || target.directive.allocation_larger_than_bytes.is_some() {
            return Err("the override covers only a part of the memory, and plans need all of it".to_owned());
        }
        let restrictions = self.migration_restrictions(target);
        let places = [(Place::Gpu(target.gpu), moves.to_gpu_bytes), (Place::Host, moves.to_host_bytes)];
        for action in places.into_iter().filter(|(_, bytes)| *bytes > 0).map(|(place, _)| Action::Migrate(place)) {
            let denied = permission_denial(policy, action).or_else(|| self.denial(action, restrictions, target));
            denied.map_or(Ok(()), Err)?;
        }
        self.check_budget(&moves, target, limits)?;
        let room = room_bytes(target, limits).ok_or(super::NO_GPU_MEMORY)?;
        if moves.peak_bytes > room {
            return Err(format!(
                "others leave {} of the GPU, and the plan needs up to {}",
                text::bytes(room),
                text::bytes(moves.peak_bytes)
            ));
        }
        if headroom(target).is_none_or(|headroom| headroom < limits.host_reserve_bytes) {
            return Err(host_memory_shortage(0));
        }
        let left = self.host_left(target, limits);
        // Memory that moves more than once needs host memory once.
        if left < moves.to_host_bytes.min(moves.range_bytes) {
            return Err(host_memory_shortage(left));
        }
        Ok(())
    }

    /// Checks whether the budgets suffice for the moves of an iteration.
    fn check_budget(&self, moves: &IterationMoves, target: &Target<'_>, limits: &Limits) -> Result<(), String> {
        let budget = target.directive.budget;
        let bytes = moves.to_gpu_bytes.saturating_add(moves.to_host_bytes);
        let rate = budget.bytes_per_second.unwrap_or(u64::MAX).min(limits.process_bytes_per_second);
        let moves_rate = u128::from(bytes) * 1_000_000_000 / u128::from(moves.duration_ns.max(1));
        if moves_rate > u128::from(rate) {
            let moves_rate = text::bytes(u64::try_from(moves_rate).unwrap_or(u64::MAX));
            return Err(format!(
                "it moves {moves_rate}/s, and the rate limit of the process is {}/s",
                text::bytes(rate)
            ));
        }
        let spent = self.processes.get(&target.process.id).map_or(0, |account| account.moved_bytes);
        match budget.bytes {
            Some(total) if total.saturating_sub(spent) < bytes => Err(budget_exhausted(total)),
            _ => Ok(()),
        }
    }

    /// Charges the bytes that the helper has moved since the last interval.
    ///
    /// # Errors
    /// If a budget is exceeded: its description.
    pub(crate) fn charge_plan(&mut self, bytes: u64, target: &Target<'_>, limits: &Limits) -> Result<(), String> {
        let (left, why) = self.budget_left(target, limits);
        self.spend(bytes, target, limits);
        if bytes > left { Err(why) } else { Ok(()) }
    }
}
