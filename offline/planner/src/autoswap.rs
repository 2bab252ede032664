//! AutoSwap: tensors that are idle while much is alive go to the host and come back before they are used.
//!
//! Source: Zhang et al., "Efficient Memory Management for GPU-based Deep Learning Systems" (arXiv 1903.06631).
//! Parameters: [`Parameters`], [`Rule`], [`Mode`], and for the best weights [`Effort`].
//! Complexity: c absences of which s are chosen, in k kernels: O(s (k + c)) to choose, O(s k) to place; the lowest limit takes 16 and
//! log2(peak / 16 MiB) of that, optimising it 52 times as many.
//! docs/policies/autoswap.md says where it differs from the paper and why.
//!
//! * `absence`: when tensors are idle
//! * `load`: bytes on the GPU
//! * `score`: which absences are chosen
//! * `place`: when they begin and end
//! * `plan`: what is asked for, and what comes of it
//! * `timing`: what that costs
//! * `bayes`: which weights of the scores are best

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

/// Limits that are tried before the lowest is looked for by halving.
const PROBES: u64 = 16;

/// Which tensors may leave, and when.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Parameters {
    /// Smaller tensors stay.
    pub least_bytes: u64,
    /// After how many kernels a used tensor may leave.
    pub settle: Settle,
    /// Only at the highest peak, as in the paper, and not at all times.
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
    least: Load,
}

impl<'a> Problem<'a> {
    /// Finds all absences. Of the machine, only the links to the host count.
    #[must_use]
    pub fn new(iteration: &'a Iteration, machine: &'a Machine, parameters: &Parameters) -> Self {
        let live = Load::of(iteration);
        let mut absences = Absence::all(iteration, machine, parameters);
        if parameters.first_peak_only {
            let (slot, _) = live.peak();
            absences.retain(|absence| live.straddles(absence, slot));
        }
        let mut least = live.clone();
        for absence in &absences {
            least.leave(Load::away_all_along(absence), absence.bytes);
        }
        Self { iteration, machine, absences, live, clock: Clock::of(iteration), least }
    }

    /// The most on the GPU with nothing away.
    #[must_use]
    pub fn peak_bytes(&self) -> u64 {
        self.live.peak().1
    }

    /// The most that stays when all leaves that may: no limit below it can be kept.
    #[must_use]
    pub fn least_bytes(&self) -> u64 {
        self.least.peak().1
    }

    /// The most that a kernel uses, which no planner of whole tensors gets below.
    #[must_use]
    pub fn in_use_bytes(&self) -> u64 {
        let kernels = self.iteration.kernels().ids();
        kernels.map(|kernel| self.iteration.working_set_bytes(kernel)).max().unwrap_or(0)
    }

    /// The best plan of a rule. `None` if the limit asked for cannot be kept, which [`Mode::Stick`] does at any cost.
    #[must_use]
    pub fn best(&self, rule: Rule, mode: Mode, goal: Goal) -> Option<Plan> {
        match (goal, mode) {
            (Goal::At(limit_bytes), Mode::Stick) => self.plans(rule, limit_bytes).within,
            (Goal::At(limit_bytes), Mode::NoOverhead) => self.plans(rule, limit_bytes).undisturbed,
            // What keeps its limit and holds nothing up is of either mode.
            (Goal::LowestLimit, _) => self.lowest(rule),
        }
    }

    /// The best plan of all weights that are tried, the four scores by themselves among them.
    #[must_use]
    pub fn optimised(&self, mode: Mode, goal: Goal, effort: Effort) -> Option<Plan> {
        let enough = match goal {
            Goal::LowestLimit => self.least_bytes() as f64,
            Goal::At(limit_bytes) if mode == Mode::NoOverhead => limit_bytes as f64,
            Goal::At(_) => 0.0,
        };
        let mut best: Option<Plan> = None;
        bayes::minimise(effort, enough, |weights| {
            let pure = Rule::PURE.into_iter().zip(weights).find(|&(_, weight)| weight >= 1.0);
            let rule = pure.map_or(Rule::Weighted(weights), |(rule, _)| rule);
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

    /// The load with nothing away.
    pub(super) fn live(&self) -> &Load {
        &self.live
    }

    /// How long a kernel runs.
    pub(super) fn duration_ns(&self, kernel: usize) -> u64 {
        self.iteration.kernels().values().get(kernel).map_or(0, |kernel| kernel.duration_ns)
    }

    /// How long an iteration takes.
    pub(super) fn period_ns(&self) -> f64 {
        self.clock.period_ns() as f64
    }

    /// From when an absence may begin until it must end.
    pub(super) fn idle_ns(&self, of: &Absence) -> f64 {
        (self.clock.at(of.next_use) - self.clock.at(of.ready)) as f64
    }

    /// The slots in which its memory is free, if both transfers begin at once and end just in time. The first is no less than the second if there is none.
    pub(super) fn gone_slots(&self, of: &Absence) -> (usize, usize) {
        let gone = self.clock.first_from(self.clock.at(of.ready) + i128::from(of.out_ns));
        let back = self.clock.last_until(self.clock.at(of.next_use) - i128::from(of.back_ns));
        let position = |of: i128| usize::try_from(of).unwrap_or(0);
        Load::away(position(gone), position(back))
    }

    /// Keeps a limit with absences that somebody chose, in [`Mode::Stick`]. `None` if it is not kept with all of them away.
    pub(super) fn kept(&self, chosen: &[Absence], limit_bytes: u64) -> Option<Swaps> {
        place::within_limit(self, chosen, limit_bytes).map(|placed| self.carried_out(placed))
    }

    /// The load with absences that somebody chose, if nothing may wait for them.
    pub(super) fn undisturbed_load(&self, chosen: &[Absence]) -> Load {
        self.load(&place::without_overhead(self, chosen))
    }

    /// Why no limit below [`Self::least_bytes`] is kept.
    pub(super) fn too_much_stays(&self, limit_bytes: u64) -> Unplannable {
        let (slot, staying_bytes) = self.least.peak();
        Unplannable::TooMuchStays { kernel: Load::kernel(slot), staying_bytes, gpu_bytes: limit_bytes }
    }

    /// Tries limits spread evenly, then halves the stretch below the lowest that was kept for nothing, down to 1 MiB. A lower limit may be kept where a
    /// higher one is not: the choice is another.
    fn lowest(&self, rule: Rule) -> Option<Plan> {
        let mut best = self.plans(rule, self.peak_bytes()).undisturbed?;
        let least_bytes = self.least_bytes();
        let mut missed_bytes = least_bytes.saturating_sub(1);
        let step_bytes = (best.peak_bytes - least_bytes) / PROBES;
        for limit_bytes in (0..PROBES).map(|probe| least_bytes + probe * step_bytes) {
            if limit_bytes >= best.peak_bytes {
                break;
            }
            if !self.lowers(&mut best, rule, limit_bytes) {
                missed_bytes = limit_bytes;
            }
        }
        while best.peak_bytes.saturating_sub(missed_bytes) > 1 << 20 {
            let limit_bytes = u64::midpoint(missed_bytes, best.peak_bytes);
            if !self.lowers(&mut best, rule, limit_bytes) {
                missed_bytes = limit_bytes;
            }
        }
        Some(best)
    }

    /// Whether a limit is kept for nothing. Whatever plan comes of it that is better than the best becomes that, with its own peak as limit.
    fn lowers(&self, best: &mut Plan, rule: Rule, limit_bytes: u64) -> bool {
        let Plans { within, undisturbed } = self.plans(rule, limit_bytes);
        let is_free = within.as_ref().is_some_and(Plan::is_free);
        for plan in within.into_iter().chain(undisturbed) {
            if plan.overhead_ns == 0 && plan.peak_bytes < best.peak_bytes {
                *best = Plan { limit_bytes: plan.peak_bytes, ..plan };
            }
        }
        is_free
    }

    /// Chooses and places; where what is leaving or coming makes a new peak, chooses more there, as long as that helps.
    fn plans(&self, rule: Rule, limit_bytes: u64) -> Plans {
        let ranking = Ranking::of(self, rule, limit_bytes);
        let (mut chosen, mut load) = (Vec::new(), self.live.clone());
        let mut best = Plans::default();
        while ranking.choose(self, limit_bytes, &mut load, &mut chosen) || best.undisturbed.is_none() {
            let absences: Vec<_> = chosen.iter().filter_map(|&at| self.absences.get(at).copied()).collect();
            let placed = place::without_overhead(self, &absences);
            load = self.load(&placed);
            let undisturbed = self.carried_out(placed).by(rule, limit_bytes);
            let within = if undisturbed.is_free() {
                Some(undisturbed.clone())
            } else {
                let placed = place::within_limit(self, &absences, limit_bytes);
                placed.map(|placed| self.carried_out(placed).by(rule, limit_bytes))
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
            load.leave(Load::away(of.release, of.fetch), of.absence.bytes);
        }
        load
    }

    fn carried_out(&self, placed: Vec<Placed>) -> Swaps {
        let (placed, load) = self.needed(placed);
        let schedule = self.schedule(&placed);
        Swaps {
            peak_bytes: load.peak().1,
            overhead_ns: timing::overhead_ns(self.iteration, self.machine, &schedule),
            absences: placed.len(),
            moved_bytes: placed.iter().map(|of| of.absence.bytes).sum(),
            away_bytes: load.most_below(&self.live),
            schedule,
        }
    }

    /// Without those that the peak is as low without, the largest first: what was chosen for a limit that is not reached, or what others made needless. Fewer transfers
    /// hold nothing up that more did not.
    fn needed(&self, mut placed: Vec<Placed>) -> (Vec<Placed>, Load) {
        let mut load = self.load(&placed);
        let (_, peak_bytes) = load.peak();
        placed.sort_by_key(|of| (Reverse(of.absence.bytes), of.absence.tensor, of.absence.ready));
        placed.retain(|of| {
            let (away, bytes) = (Load::away(of.release, of.fetch), of.absence.bytes);
            let is_needed = load.beyond(away, peak_bytes - bytes).is_some();
            if !is_needed {
                load.stay(away, bytes);
            }
            is_needed
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

/// Keeps the GPU's memory as the limit, at the least overhead that is found.
#[derive(Clone, Copy, Debug, Default)]
pub struct Autoswap {
    /// What may leave.
    pub parameters: Parameters,
    /// How long weights are looked for.
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
            return Err(problem.too_much_stays(machine.gpu_bytes));
        };
        let (away_bytes, host_bytes) = (plan.away_bytes, machine.host.bytes);
        if away_bytes > host_bytes {
            return Err(Unplannable::HostTooSmall { away_bytes, host_bytes });
        }
        Ok(plan.schedule)
    }
}
