//! `AppObMem`: whoever is away for long and lowers most for least time lost leaves, whatever the program is.
//!
//! Source: Li et al., "An Application-oblivious Memory Scheduling System for DNN Accelerators" (TACO'22), of which only the abstract was at hand: a reconstruction.
//! Parameters: those of [`autoswap`](super::autoswap), and how much time may be lost.
//! Complexity: a absences of which s are chosen, in k kernels: O((a r + k) log k + s k) to choose, with r looks at each, a few; O(s k) to place. The lowest
//! limit takes 16 and log2(peak / 16 MiB) of that.
//! docs/policies/appobmem.md says what is reconstructed and how.
//!
//! * `choice`: which absences are taken
//! * `extremes`: that absences are either short or long

mod choice;
mod extremes;

use trace::Iteration;

pub use extremes::Extremes;

use super::{
    Machine, Planner, Schedule, Unplannable,
    autoswap::{Parameters, Problem, Swaps},
    lifetimes,
};

/// Limits that are tried before the lowest is looked for by halving.
const PROBES: u64 = 16;

/// The least time lost that is found to keep a limit. `None` if it cannot be kept.
#[must_use]
pub fn keep(problem: &Problem<'_>, limit_bytes: u64) -> Option<Swaps> {
    let mut chosen = Vec::new();
    let mut load = problem.live().clone();
    let mut best: Option<Swaps> = None;
    // Where what leaves or comes makes a new peak, more is chosen there, as long as that helps.
    while best.as_ref().is_none_or(|best| best.overhead_ns > 0) {
        let more = choice::absences(problem, limit_bytes, &chosen, load);
        if more.is_empty() && best.is_some() {
            break;
        }
        chosen.extend(more);
        let Some(swaps) = problem.kept(&chosen, limit_bytes) else { break };
        if best.as_ref().is_some_and(|best| best.overhead_ns <= swaps.overhead_ns) {
            break;
        }
        best = Some(swaps);
        load = problem.undisturbed_load(&chosen);
    }
    best
}

/// The lowest peak that is found to lose no more time than so much.
#[must_use]
pub fn lowest(problem: &Problem<'_>, most_lost_ns: u64) -> Option<Swaps> {
    let tried = |limit_bytes| keep(problem, limit_bytes).filter(|swaps| swaps.overhead_ns <= most_lost_ns);
    let least_bytes = problem.least_bytes();
    let mut best = tried(problem.peak_bytes())?;
    let mut missed_bytes = least_bytes.saturating_sub(1);
    let step_bytes = (best.peak_bytes - least_bytes) / PROBES;
    for limit_bytes in (0..PROBES).map(|probe| least_bytes + probe * step_bytes) {
        match tried(limit_bytes) {
            Some(swaps) => {
                best = swaps;
                break;
            }
            None => missed_bytes = limit_bytes,
        }
    }
    while best.peak_bytes.saturating_sub(missed_bytes) > 1 << 20 {
        let limit_bytes = u64::midpoint(missed_bytes, best.peak_bytes);
        match tried(limit_bytes) {
            Some(swaps) => best = swaps,
            None => missed_bytes = limit_bytes,
        }
    }
    Some(best)
}

/// Keeps the GPU's memory as the limit.
#[derive(Clone, Copy, Debug, Default)]
pub struct Appobmem {
    /// What may leave.
    pub parameters: Parameters,
}

impl Planner for Appobmem {
    fn name(&self) -> &'static str {
        "appobmem"
    }

    fn plan(&self, iteration: &Iteration, machine: &Machine) -> Result<Schedule, Unplannable> {
        let problem = Problem::new(iteration, machine, &self.parameters);
        let swaps = keep(&problem, machine.gpu_bytes).ok_or_else(|| problem.too_much_stays(machine.gpu_bytes))?;
        let (away_bytes, host_bytes) = (swaps.away_bytes, machine.host.bytes);
        if away_bytes > host_bytes {
            return Err(Unplannable::HostTooSmall { away_bytes, host_bytes });
        }
        // It sees mallocs and frees: what is dead is dropped, and what is born has memory.
        let footprints = lifetimes::footprints(iteration);
        let mut load = lifetimes::load_bytes(iteration, &footprints);
        let mut actions = lifetimes::drops(iteration);
        actions.extend(lifetimes::births(iteration, &footprints, &mut load, machine.gpu_bytes, |_| true));
        actions.extend(swaps.schedule.actions());
        Ok(Schedule::new(actions))
    }
}
