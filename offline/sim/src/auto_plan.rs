//! The best schedule for a set-up, chosen by the model itself. Candidates are all planners, the
//! driver alone, and foresight with a search over its parameters.
//!
//! On this model, the result is never worse than any candidate; it is only as good as the model.
//! docs/policies/auto-plan.md reports the distance from the bound.

use planner::{Planner, Schedule, bound, foresight::Foresight};
use trace::Iteration;

use crate::{
    Outcome, RunError, Setup, planned,
    traffic::{self, Accesses, Copies, Operands, Traffic},
};

/// Divisors of the GPU's memory for the reserve. Fragments and blocks in transit need some memory,
/// and tensors take whole blocks.
const RESERVE_DIVISORS: [u64; 5] = [8192, 1024, 256, 64, 24];
/// Kernels for which dead memory is retained.
const RETAINED_KERNELS: [usize; 4] = [4, 16, 64, 1000];

/// Result of the search.
#[derive(Clone, Debug, PartialEq)]
pub struct AutoPlan {
    /// The best schedule.
    pub schedule: Schedule,
    /// Planner of the schedule, for people.
    pub by: String,
    /// Modelled outcome of the schedule.
    pub outcome: Outcome,
    /// Number of schedules tried.
    pub tried: usize,
}

/// Finds the best schedule.
///
/// # Errors
/// If the set-up cannot run the iteration.
pub fn auto_plan(iteration: &Iteration, setup: &Setup<'_>) -> Result<AutoPlan, RunError> {
    let schedule = Schedule::default();
    let outcome = planned(iteration, setup, &schedule)?;
    let mut search = Search { iteration, setup, best: AutoPlan { schedule, by: "driver".into(), outcome, tried: 1 } };
    let (mut reserve_bytes, mut keep) = (None, 0);
    for divisor in RESERVE_DIVISORS {
        if search.try_foresight(setup.gpu_bytes / divisor, keep)? {
            reserve_bytes = Some(setup.gpu_bytes / divisor);
        }
    }
    if let Some(reserve_bytes) = reserve_bytes {
        for kernels in RETAINED_KERNELS {
            if search.try_foresight(reserve_bytes, kernels)? {
                keep = kernels;
            }
        }
        // Retained memory changes the size of the reserve that is needed.
        for bytes in [reserve_bytes / 2, reserve_bytes * 2].into_iter().filter(|_| keep > 0) {
            search.try_foresight(bytes, keep)?;
        }
    }
    for planner in setup.planners() {
        search.try_planner(planner.as_ref(), &setup.for_planners(), || planner.name().to_owned())?;
    }
    Ok(search.best)
}

/// Lower bound of an iteration's time, in seconds.
#[must_use]
pub fn bound_s(iteration: &Iteration, setup: &Setup<'_>) -> f64 {
    bound::least_ns(iteration, &setup.for_planners_within(setup.gpu_bytes)) as f64 / 1e9
}

/// Lower bound of the bytes that cross the link in an iteration in the steady state.
#[must_use]
pub fn bound_bytes(iteration: &Iteration, setup: &Setup<'_>) -> Traffic {
    traffic::least(&Accesses::of_iteration(iteration), setup.gpu_bytes, Copies::All, Operands::Streamed)
}

struct Search<'a> {
    iteration: &'a Iteration,
    setup: &'a Setup<'a>,
    best: AutoPlan,
}

impl Search<'_> {
    /// Tries foresight with these parameters; whether its schedule is the best up to now.
    fn try_foresight(&mut self, reserve_bytes: u64, keep: usize) -> Result<bool, RunError> {
        let machine = self.setup.for_planners_within(self.setup.gpu_bytes.saturating_sub(reserve_bytes));
        let by = || format!("foresight with {} MiB aside, dead memory kept for {keep} kernels", reserve_bytes >> 20);
        self.try_planner(&Foresight { keep }, &machine, by)
    }

    fn try_planner(
        &mut self,
        planner: &dyn Planner,
        machine: &planner::Machine,
        by: impl FnOnce() -> String,
    ) -> Result<bool, RunError> {
        // No schedule is better than one without stalls.
        if self.best.outcome.share_of_ideal >= 1.0 {
            return Ok(false);
        }
        let Ok(schedule) = planner.plan(self.iteration, machine) else { return Ok(false) };
        self.best.tried += 1;
        let outcome = planned(self.iteration, self.setup, &schedule)?;
        let is_better = outcome.time_s < self.best.outcome.time_s;
        if is_better {
            self.best = AutoPlan { schedule, by: by(), outcome, tried: self.best.tried };
        }
        Ok(is_better)
    }
}
