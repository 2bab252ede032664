//! Admission and charging of plans, by the same rules and accounts as ordered migrations.

use model::{Action, Place, PlannedIteration, ProbedIteration};

use super::{Guard, headroom, not_permitted, room::room_bytes, too_little_host, used_up};
use crate::act::{limits::Limits, scene::Sight};

/// Moves of an iteration, by a plan or by a probe's table.
pub(crate) struct Moved {
    to_gpu_bytes: u64,
    to_host_bytes: u64,
    /// Bytes of the memory that moves, each counted once.
    range_bytes: u64,
    /// Peak of the bytes that are expected on the GPU.
    peak_bytes: u64,
    duration_ns: u64,
}

impl From<&PlannedIteration> for Moved {
    fn from(planned: &PlannedIteration) -> Self {
        let PlannedIteration { to_gpu_bytes, to_host_bytes, peak_bytes, duration_ns, .. } = *planned;
        Self { to_gpu_bytes, to_host_bytes, range_bytes: planned.range_bytes(), peak_bytes, duration_ns }
    }
}

impl From<&ProbedIteration> for Moved {
    fn from(probed: &ProbedIteration) -> Self {
        let ProbedIteration { to_gpu_bytes, to_host_bytes, duration_ns, .. } = *probed;
        // The driver evicts for memory that returns, as it does without a probe.
        Self { to_gpu_bytes, to_host_bytes, range_bytes: to_host_bytes, peak_bytes: 0, duration_ns }
    }
}

impl Guard {
    /// Checks whether a plan or a probe's table may be published now.
    ///
    /// # Errors
    /// If not: the reason.
    pub(crate) fn admits_moves(
        &self,
        policy: &str,
        wanted: impl Into<Moved>,
        sight: &Sight<'_>,
        limits: &Limits,
    ) -> Result<(), String> {
        let planned = wanted.into();
        if sight.directive.range.is_some() || sight.directive.allocation_larger_than_bytes.is_some() {
            return Err("the override names a part of the memory, and plans are about all of it".to_owned());
        }
        let moves = self.moves(sight);
        let places = [(Place::Gpu(sight.gpu), planned.to_gpu_bytes), (Place::Host, planned.to_host_bytes)];
        for action in places.into_iter().filter(|(_, bytes)| *bytes > 0).map(|(place, _)| Action::Migrate(place)) {
            let denied = not_permitted(policy, action).or_else(|| self.denial(action, moves, sight));
            denied.map_or(Ok(()), Err)?;
        }
        self.affords(&planned, sight, limits)?;
        let room = room_bytes(sight, limits).ok_or(super::NO_GPU_MEMORY)?;
        if planned.peak_bytes > room {
            return Err(format!(
                "{room} bytes of the GPU are not used by others, and it has up to {} there",
                planned.peak_bytes
            ));
        }
        if headroom(sight).is_none_or(|headroom| headroom < limits.host_reserve_bytes) {
            return Err(too_little_host(0));
        }
        let left = self.host_left(sight, limits);
        // Memory that moves more than once needs host memory once.
        if left < planned.to_host_bytes.min(planned.range_bytes) {
            return Err(too_little_host(left));
        }
        Ok(())
    }

    /// Checks whether the budgets suffice for the moves of an iteration.
    fn affords(&self, planned: &Moved, sight: &Sight<'_>, limits: &Limits) -> Result<(), String> {
        let budget = sight.directive.budget;
        let moved = planned.to_gpu_bytes.saturating_add(planned.to_host_bytes);
        let rate = budget.bytes_per_second.unwrap_or(u64::MAX).min(limits.process_bytes_per_second);
        let planned_rate = u128::from(moved) * 1_000_000_000 / u128::from(planned.duration_ns.max(1));
        if planned_rate > u128::from(rate) {
            return Err(format!(
                "it moves {planned_rate} bytes/s, and the rate limit of the process is {rate} bytes/s"
            ));
        }
        let spent = self.processes.get(&sight.process.id).map_or(0, |account| account.moved_bytes);
        match budget.bytes {
            Some(bytes) if bytes.saturating_sub(spent) < moved => Err(used_up(bytes)),
            _ => Ok(()),
        }
    }

    /// Charges the bytes that the helper has moved since the last interval.
    ///
    /// # Errors
    /// If a budget is exceeded: its description.
    pub(crate) fn charge_plan(&mut self, bytes: u64, sight: &Sight<'_>, limits: &Limits) -> Result<(), String> {
        let (left, why) = self.budget_left(sight, limits);
        self.spend(bytes, sight, limits);
        if bytes > left { Err(why) } else { Ok(()) }
    }
}
