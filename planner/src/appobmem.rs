//! `AppObMem`: long absences that lower the load most for the least loss of time, whatever the
//! program is.
//!
//! Source: Li et al., "An Application-oblivious Memory Scheduling System for DNN Accelerators"
//! (TACO'22). Only the abstract was available: this is a reconstruction.
//! Parameters: those of [`autoswap`](super::autoswap), and the acceptable loss of time.
//! Complexity: for a absences, s of them selected, in k kernels: O((a r + k) log k + s k) to
//! select, with a few evaluations r of each; O(s k) to place. The lowest limit takes 16 + log2(peak
//! / 16 MiB) runs of that.
//! docs/policies/appobmem.md describes the reconstruction.
//!
//! * `choice`: selection of absences
//! * `extremes`: the observation that absences are either short or long

mod choice;
mod extremes;

use trace::Iteration;

pub use extremes::Extremes;

use super::{
    Machine, Planner, Schedule, Unplannable,
    autoswap::{Parameters, Problem, Swaps},
    lifetimes,
};

/// Limits that are tried before the bisection for the lowest.
const PROBES: u64 = 16;

/// The swaps of least overhead that are found within a limit. `None` if the limit is impossible.
#[must_use]
pub fn keep(problem: &Problem<'_>, limit_bytes: u64) -> Option<Swaps> {
    let mut selected = Vec::new();
    let mut load = problem.live().clone();
    let mut best: Option<Swaps> = None;
    // Where transfers cause a new peak, more absences are selected there, as long as that helps.
    while best.as_ref().is_none_or(|best| best.overhead_ns > 0) {
        let added = choice::absences(problem, limit_bytes, &selected, load);
        if added.is_empty() && best.is_some() {
            break;
        }
        selected.extend(added);
        let Some(swaps) = problem.swaps_within(&selected, limit_bytes) else { break };
        if best.as_ref().is_some_and(|best| best.overhead_ns <= swaps.overhead_ns) {
            break;
        }
        best = Some(swaps);
        load = problem.no_overhead_load(&selected);
    }
    best
}

/// The lowest peak that is found within an overhead.
#[must_use]
pub fn lowest(problem: &Problem<'_>, most_lost_ns: u64) -> Option<Swaps> {
    let attempt = |limit_bytes| keep(problem, limit_bytes).filter(|swaps| swaps.overhead_ns <= most_lost_ns);
    let least_bytes = problem.least_bytes();
    let mut best = attempt(problem.peak_bytes())?;
    let mut missed_bytes = least_bytes.saturating_sub(1);
    let step_bytes = (best.peak_bytes - least_bytes) / PROBES;
    for limit_bytes in (0..PROBES).map(|probe| least_bytes + probe * step_bytes) {
        match attempt(limit_bytes) {
            Some(swaps) => {
                best = swaps;
                break;
            }
            None => missed_bytes = limit_bytes,
        }
    }
    while best.peak_bytes.saturating_sub(missed_bytes) > 1 << 20 {
        let limit_bytes = u64::midpoint(missed_bytes, best.peak_bytes);
        match attempt(limit_bytes) {
            Some(swaps) => best = swaps,
            None => missed_bytes = limit_bytes,
        }
    }
    Some(best)
}

/// The planner with the GPU's memory as the limit.
#[derive(Clone, Copy, Debug, Default)]
pub struct Appobmem {
    /// Restrictions on absences.
    pub parameters: Parameters,
}

impl Planner for Appobmem {
    fn name(&self) -> &'static str {
        "appobmem"
    }

    fn plan(&self, iteration: &Iteration, machine: &Machine) -> Result<Schedule, Unplannable> {
        let problem = Problem::new(iteration, machine, &self.parameters);
        let swaps = keep(&problem, machine.gpu_bytes).ok_or_else(|| problem.limit_error(machine.gpu_bytes))?;
        let (away_bytes, host_bytes) = (swaps.away_bytes, machine.host.bytes);
        if away_bytes > host_bytes {
            return Err(Unplannable::HostTooSmall { away_bytes, host_bytes });
        }
        // The system sees mallocs and frees: it drops dead tensors, and allocates new ones.
        let footprints = lifetimes::footprints(iteration);
        let mut load = lifetimes::load_bytes(iteration, &footprints);
        let mut actions = lifetimes::drops(iteration);
        actions.extend(lifetimes::births(iteration, &footprints, &mut load, machine.gpu_bytes, |_| true));
        actions.extend(swaps.schedule.actions());
        Ok(Schedule::new(actions))
    }
}
