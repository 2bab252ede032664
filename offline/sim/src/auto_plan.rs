//! The best schedule that can be found for a set-up, told apart by the model itself: whatever planners there are, the driver alone, and foresight with what it
//! leaves open tried out.
//!
//! So it is never worse than any of them, on this model; and what it rests on is this model. docs/policies/auto-plan.md says how far from the bound that ends.

use planner::{Planner, Schedule, bound, foresight::Foresight};
use trace::Iteration;

use crate::{Outcome, RunError, Setup, planned};

/// Parts of the GPU's memory that are left aside: fragments and blocks on their way take some, and tensors are whole.
const ASIDE: [u64; 5] = [8192, 1024, 256, 64, 24];
/// For how many kernels memory of the dead is kept.
const KEEP: [usize; 4] = [4, 16, 64, 1000];

/// What was found.
#[derive(Clone, Debug, PartialEq)]
pub struct AutoPlan {
    /// The best schedule.
    pub schedule: Schedule,
    /// Who made it, for people.
    pub by: String,
    /// What it comes to.
    pub outcome: Outcome,
    /// How many schedules were tried.
    pub tried: usize,
}

/// The best schedule.
///
/// # Errors
/// If the set-up cannot run the iteration.
pub fn auto_plan(iteration: &Iteration, setup: &Setup<'_>) -> Result<AutoPlan, RunError> {
    let schedule = Schedule::default();
    let outcome = planned(iteration, setup, &schedule)?;
    let mut search = Search { iteration, setup, best: AutoPlan { schedule, by: "driver".into(), outcome, tried: 1 } };
    let (mut aside, mut keep) = (None, 0);
    for part in ASIDE {
        if search.try_foresight(setup.gpu_bytes / part, keep)? {
            aside = Some(setup.gpu_bytes / part);
        }
    }
    if let Some(aside) = aside {
        for kernels in KEEP {
            if search.try_foresight(aside, kernels)? {
                keep = kernels;
            }
        }
        // Memory that is kept is taken from somewhere.
        for other in [aside / 2, aside * 2].into_iter().filter(|_| keep > 0) {
            search.try_foresight(other, keep)?;
        }
    }
    for planner in setup.planners() {
        search.try_planner(planner.as_ref(), &setup.for_planners(), || planner.name().to_owned())?;
    }
    Ok(search.best)
}

/// What no schedule beats, in seconds.
#[must_use]
pub fn bound_s(iteration: &Iteration, setup: &Setup<'_>) -> f64 {
    bound::least_ns(iteration, &setup.for_planners_within(setup.gpu_bytes)) as f64 / 1e9
}

struct Search<'a> {
    iteration: &'a Iteration,
    setup: &'a Setup<'a>,
    best: AutoPlan,
}

impl Search<'_> {
    /// Whether it is the best so far.
    fn try_foresight(&mut self, aside_bytes: u64, keep: usize) -> Result<bool, RunError> {
        let machine = self.setup.for_planners_within(self.setup.gpu_bytes.saturating_sub(aside_bytes));
        let by = || format!("foresight with {} MiB aside, dead memory kept for {keep} kernels", aside_bytes >> 20);
        self.try_planner(&Foresight { keep }, &machine, by)
    }

    fn try_planner(
        &mut self,
        planner: &dyn Planner,
        machine: &planner::Machine,
        by: impl FnOnce() -> String,
    ) -> Result<bool, RunError> {
        // Nothing is better than no stall.
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
