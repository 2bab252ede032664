//! AutoSwap: tensors that are idle at high load migrate to the host, and back before their use.
//!
//! Source: Zhang et al., "Efficient Memory Management for GPU-based Deep Learning Systems" (arXiv
//! 1903.06631).
//! Parameters: [`Parameters`], [`Rule`], [`Mode`], and [`Effort`] for the best weights.
//! Complexity: for c absences, s of them selected, in k kernels: O(s (k + c)) to select, O(s k) to
//! place. The lowest limit takes 16 + log2(peak / 16 MiB) runs of that; optimising it takes 52
//! times as many.
//! docs/policies/autoswap.md describes and explains the differences from the paper.
//!
//! * `absence`: idle times of tensors
//! * `load`: bytes on the GPU
//! * `score`: selection of absences
//! * `place`: begin and end of absences
//! * `plan`: goals and plans
//! * `timing`: overhead of a schedule
//! * `bayes`: optimisation of the scores' weights

mod absence;
mod bayes;
mod load;
mod place;
mod plan;
mod score;
mod timing;

use std::cmp::Reverse;

use trace::{Iteration, KernelId, id::Id};

pub use absence::Settle;
pub use bayes::Effort;
pub use plan::{Goal, Mode, Plan, Swaps};
pub use score::{Rule, Weights};

pub(super) use self::{absence::Absence, load::Load};
use self::{absence::Clock, place::Placed, plan::Plans, score::Ranking};
use super::{Act, Action, Machine, Planner, Schedule, Tier, Unplannable};

/// Limits that are tried before the bisection for the lowest.
const PROBES: u64 = 16;

/// Restrictions on absences.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Parameters {
    /// Least bytes of a tensor that migrates.
    pub least_bytes: u64,
    /// Kernels between a use and the migration.
    pub settle: Settle,
    /// Only absences at the highest peak, as in the paper.
    pub first_peak_only: bool,
}

impl Default for Parameters {
    fn default() -> Self {
        Self { least_bytes: 1 << 20, settle: Settle::AT_ONCE, first_peak_only: false }
    }
}

/// An iteration on a machine, prepared for planning at any limit.
#[derive(Debug)]
pub struct Problem<'a> {
    iteration: &'a Iteration,
    machine: &'a Machine,
    absences: Vec<Absence>,
    live: Load,
    clock: Clock,
    least_load: Load,
}

impl<'a> Problem<'a> {
    /// Finds all absences. Only the machine's links to the host matter.
    #[must_use]
    pub fn new(iteration: &'a Iteration, machine: &'a Machine, parameters: &Parameters) -> Self {
        let live = Load::of(iteration);
        let mut absences = Absence::all(iteration, machine, parameters);
        if parameters.first_peak_only {
            let (slot, _) = live.peak();
            absences.retain(|absence| live.straddles(absence, slot));
        }
        let mut least_load = live.clone();
        for absence in &absences {
            least_load.subtract(Load::longest_slots(absence), absence.bytes);
        }
        Self { iteration, machine, absences, live, clock: Clock::of(iteration), least_load }
    }

    /// Peak of bytes on the GPU without any absence.
    #[must_use]
    pub fn peak_bytes(&self) -> u64 {
        self.live.peak().1
    }

    /// Peak with all absences: lower bound of any limit.
    #[must_use]
    pub fn least_bytes(&self) -> u64 {
        self.least_load.peak().1
    }

    /// Peak of a kernel's working set: lower bound for any planner of whole tensors.
    #[must_use]
    pub fn in_use_bytes(&self) -> u64 {
        let kernels = self.iteration.kernels().ids();
        kernels.map(|kernel| self.iteration.working_set_bytes(kernel)).max().unwrap_or(0)
    }

    /// The best plan of a rule. `None` if the limit of the goal is impossible; [`Mode::Stick`]
    /// meets a possible one at any cost.
    #[must_use]
    pub fn best(&self, rule: Rule, mode: Mode, goal: Goal) -> Option<Plan> {
        match (goal, mode) {
            (Goal::At(limit_bytes), Mode::Stick) => self.plans(rule, limit_bytes).within,
            (Goal::At(limit_bytes), Mode::NoOverhead) => self.plans(rule, limit_bytes).undisturbed,
            // A plan within its limit and without overhead suits either mode.
            (Goal::LowestLimit, _) => self.lowest(rule),
        }
    }

    /// The best plan of all weights that are tried, including each of the four scores alone.
    #[must_use]
    pub fn optimised(&self, mode: Mode, goal: Goal, effort: Effort) -> Option<Plan> {
        let enough = match goal {
            Goal::LowestLimit => self.least_bytes() as f64,
            Goal::At(limit_bytes) if mode == Mode::NoOverhead => limit_bytes as f64,
            Goal::At(_) => 0.0,
        };
        let mut best: Option<Plan> = None;
        bayes::minimise(effort, enough, |weights| {
            let single = Rule::SINGLE_SCORES.into_iter().zip(weights).find(|&(_, weight)| weight >= 1.0);
            let rule = single.map_or(Rule::Weighted(weights), |(rule, _)| rule);
            let Some(plan) = self.best(rule, mode, goal) else { return f64::INFINITY };
            let (overhead_ns, peak_bytes) = plan.cost();
            if best.as_ref().is_none_or(|best| plan.cost() < best.cost()) {
                best = Some(plan);
            }
            match (mode, goal) {
                (Mode::Stick, Goal::At(_)) => overhead_ns as f64,
                _ => peak_bytes as f64,
            }
        });
        best
    }

    /// All absences, by tensor and then by time.
    pub(super) fn absences(&self) -> &[Absence] {
        &self.absences
    }

    /// The load without any absence.
    pub(super) fn live(&self) -> &Load {
        &self.live
    }

    /// Duration of a kernel.
    pub(super) fn duration_ns(&self, kernel: usize) -> u64 {
        self.iteration.kernels().values().get(kernel).map_or(0, |kernel| kernel.duration_ns)
    }

    /// Duration of an iteration.
    pub(super) fn period_ns(&self) -> f64 {
        self.clock.period_ns() as f64
    }

    /// Time from an absence's earliest begin to its end.
    pub(super) fn idle_ns(&self, of: &Absence) -> f64 {
        (self.clock.at(of.next_use) - self.clock.at(of.ready)) as f64
    }

    /// Slots in which the absence's memory is free, if one transfer begins at once and the other
    /// ends just in time. Without any such slot, the first is not less than the second.
    pub(super) fn free_slots(&self, of: &Absence) -> (usize, usize) {
        let release = self.clock.first_from(self.clock.at(of.ready) + i128::from(of.out_ns));
        let fetch = self.clock.last_until(self.clock.at(of.next_use) - i128::from(of.back_ns));
        let position = |of: i128| usize::try_from(of).unwrap_or(0);
        Load::absent_slots(position(release), position(fetch))
    }

    /// Swaps of selected absences within a limit, in [`Mode::Stick`]. `None` if all of them
    /// together do not suffice.
    pub(super) fn swaps_within(&self, selected: &[Absence], limit_bytes: u64) -> Option<Swaps> {
        place::within_limit(self, selected, limit_bytes).map(|placed| self.evaluate(placed))
    }

    /// The load with selected absences if no kernel may wait for them.
    pub(super) fn no_overhead_load(&self, selected: &[Absence]) -> Load {
        self.load(&place::without_overhead(self, selected))
    }

    /// The error for a limit below [`Self::least_bytes`].
    pub(super) fn limit_error(&self, limit_bytes: u64) -> Unplannable {
        let (slot, immovable_bytes) = self.least_load.peak();
        Unplannable::ImmovableTooLarge { kernel: Load::kernel(slot), immovable_bytes, gpu_bytes: limit_bytes }
    }

    /// Tries evenly spaced limits, then bisects down to 1 MiB below the lowest that was met without
    /// overhead. A lower limit may succeed where a higher one fails, as the selection differs.
    fn lowest(&self, rule: Rule) -> Option<Plan> {
        let mut best = self.plans(rule, self.peak_bytes()).undisturbed?;
        let least_bytes = self.least_bytes();
        let mut missed_bytes = least_bytes.saturating_sub(1);
        let step_bytes = (best.peak_bytes - least_bytes) / PROBES;
        for limit_bytes in (0..PROBES).map(|probe| least_bytes + probe * step_bytes) {
            if limit_bytes >= best.peak_bytes {
                break;
            }
            if !self.try_lower(&mut best, rule, limit_bytes) {
                missed_bytes = limit_bytes;
            }
        }
        while best.peak_bytes.saturating_sub(missed_bytes) > 1 << 20 {
            let limit_bytes = u64::midpoint(missed_bytes, best.peak_bytes);
            if !self.try_lower(&mut best, rule, limit_bytes) {
                missed_bytes = limit_bytes;
            }
        }
        Some(best)
    }

    /// Whether a limit is met without overhead. A resulting plan that is better than `best`
    /// replaces it, with its own peak as the limit.
    fn try_lower(&self, best: &mut Plan, rule: Rule, limit_bytes: u64) -> bool {
        let Plans { within, undisturbed } = self.plans(rule, limit_bytes);
        let is_free = within.as_ref().is_some_and(Plan::is_free);
        for plan in within.into_iter().chain(undisturbed) {
            if plan.overhead_ns == 0 && plan.peak_bytes < best.peak_bytes {
                *best = Plan { limit_bytes: plan.peak_bytes, ..plan };
            }
        }
        is_free
    }

    /// Selects and places absences. Where transfers cause a new peak, it selects more there, as
    /// long as that helps.
    fn plans(&self, rule: Rule, limit_bytes: u64) -> Plans {
        let ranking = Ranking::of(self, rule, limit_bytes);
        let (mut selected, mut load) = (Vec::new(), self.live.clone());
        let mut best = Plans::default();
        while ranking.select(self, limit_bytes, &mut load, &mut selected) || best.undisturbed.is_none() {
            let absences: Vec<_> = selected.iter().filter_map(|&at| self.absences.get(at).copied()).collect();
            let placed = place::without_overhead(self, &absences);
            load = self.load(&placed);
            let undisturbed = self.evaluate(placed).into_plan(rule, limit_bytes);
            let within = if undisturbed.is_free() {
                Some(undisturbed.clone())
            } else {
                let placed = place::within_limit(self, &absences, limit_bytes);
                placed.map(|placed| self.evaluate(placed).into_plan(rule, limit_bytes))
            };
            let is_free = within.as_ref().is_some_and(Plan::is_free);
            let within_is_better = within.is_some_and(|plan| plan.replaces(&mut best.within));
            if !(undisturbed.replaces(&mut best.undisturbed) || within_is_better) || is_free {
                break;
            }
        }
        best
    }

    fn load(&self, placed: &[Placed]) -> Load {
        let mut load = self.live.clone();
        for of in placed {
            load.subtract(Load::absent_slots(of.release, of.fetch), of.absence.bytes);
        }
        load
    }

    fn evaluate(&self, placed: Vec<Placed>) -> Swaps {
        let (placed, load) = self.prune(placed);
        let schedule = self.schedule(&placed);
        Swaps {
            peak_bytes: load.peak().1,
            overhead_ns: timing::overhead_ns(self.iteration, self.machine, &schedule),
            absences: placed.len(),
            moved_bytes: placed.iter().map(|of| of.absence.bytes).sum(),
            away_bytes: load.max_reduction(&self.live),
            schedule,
        }
    }

    /// Removes absences without which the peak is as low, the largest first. These were selected
    /// for a limit that is not met, or others made them redundant. Fewer transfers never add a
    /// wait.
    fn prune(&self, mut placed: Vec<Placed>) -> (Vec<Placed>, Load) {
        let mut load = self.load(&placed);
        let (_, peak_bytes) = load.peak();
        placed.sort_by_key(|of| (Reverse(of.absence.bytes), of.absence.tensor, of.absence.ready));
        placed.retain(|of| {
            let (slots, bytes) = (Load::absent_slots(of.release, of.fetch), of.absence.bytes);
            let lowers_peak = load.range_above(slots, peak_bytes - bytes).is_some();
            if !lowers_peak {
                load.add(slots, bytes);
            }
            lowers_peak
        });
        (placed, load)
    }

    fn schedule(&self, placed: &[Placed]) -> Schedule {
        let kernel = |position: usize| KernelId::new(position % self.clock.kernels());
        let action = |of: &Placed, tier, begin, done_before| Action {
            begin: kernel(begin),
            tensor: of.absence.tensor,
            act: Act::Move(tier),
            part: None,
            done_before: Some(kernel(done_before)),
        };
        let mut by_use: Vec<_> = placed.iter().collect();
        by_use.sort_by_key(|of| (of.absence.next_use - of.fetch, of.absence.tensor));
        let mut by_end: Vec<_> = placed.iter().collect();
        by_end.sort_by_key(|of| of.release - of.absence.ready);
        let outs = by_end.into_iter().map(|of| action(of, Tier::Host, of.absence.ready, of.release));
        let ins = by_use.into_iter().map(|of| action(of, Tier::Gpu, of.fetch, of.absence.next_use));
        Schedule::new(outs.chain(ins).collect())
    }
}

/// The planner with the GPU's memory as the limit, at the least overhead that is found.
#[derive(Clone, Copy, Debug, Default)]
pub struct Autoswap {
    /// Restrictions on absences.
    pub parameters: Parameters,
    /// Work of the optimisation of weights.
    pub effort: Effort,
}

impl Planner for Autoswap {
    fn name(&self) -> &'static str {
        "autoswap"
    }

    fn plan(&self, iteration: &Iteration, machine: &Machine) -> Result<Schedule, Unplannable> {
        let problem = Problem::new(iteration, machine, &self.parameters);
        let goal = Goal::At(machine.gpu_bytes);
        let vote = problem.best(Rule::Vote, Mode::Stick, goal);
        let optimised = problem.optimised(Mode::Stick, goal, self.effort);
        let Some(plan) = vote.into_iter().chain(optimised).min_by_key(Plan::cost) else {
            return Err(problem.limit_error(machine.gpu_bytes));
        };
        let (away_bytes, host_bytes) = (plan.away_bytes, machine.host.bytes);
        if away_bytes > host_bytes {
            return Err(Unplannable::HostTooSmall { away_bytes, host_bytes });
        }
        Ok(plan.schedule)
    }
}
