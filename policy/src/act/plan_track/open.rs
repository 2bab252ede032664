//! Plan in force, or shown in shadow: its trial, and whether it may stay.

use std::time::SystemTime;

use model::{
    ActuatorKind, CallResult, Decision, Directive, Following, FollowingState, PlanCounters, PlannedIteration,
    Publication, Stage, decision::Done,
};

use super::{
    counts::{Counts, Progress},
    evidence::measured,
};
use crate::act::{
    arms::{Assessment, Trial},
    guard::Guard,
    limits::Limits,
    scene::Sight,
};

/// Blocks with a confirmed plan of which each last one is an event, with its figures.
const CONFIRMED_BLOCKS_PER_EVENT: u64 = 64;

/// Plans of which more than 1 / this of the moves expire have launches wait.
const EXPIRED_PART_MAX: u64 = 16;
/// Iterations of which expired moves are counted for that, unless the trial fails before.
const EXPIRY_ITERATIONS_MIN: u64 = 4;

/// Cool-down of a policy after the end of its plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CooldownKind {
    None,
    /// A short one, in any case.
    Pause,
    /// Longer each time.
    Later,
    /// After harm or no benefit.
    Failed,
}

/// Plan with its decision.
#[derive(Debug)]
pub(super) struct Open {
    pub(super) decision: Decision,
    directive: Directive,
    version: u64,
    /// `None` in shadow.
    pub(super) trial: Option<Trial>,
    /// Whether launches wait until moves are handed over...
    pub(super) launches_wait: bool,
    /// ...and whether they may be made to.
    may_wait: bool,
    /// The iteration in progress.
    progress: Progress,
    /// What was done since the decision.
    moved: PlanCounters,
    /// Whether the last interval has changed the figures of the decision.
    pub(super) has_changed: bool,
}

impl Open {
    /// Plan that is tried, or shown alone without a trial.
    pub(super) fn new(
        decision: Decision,
        directive: Directive,
        version: u64,
        trial: Option<Trial>,
        counts: Counts,
        may_wait: bool,
    ) -> Self {
        Self {
            decision,
            directive,
            version,
            trial,
            launches_wait: false,
            may_wait,
            progress: Progress::new(counts),
            moved: PlanCounters::default(),
            has_changed: false,
        }
    }

    /// Table that is to be carried out now, if any.
    pub(super) fn wanted(&self) -> Option<Publication> {
        let Self { version, launches_wait, .. } = *self;
        let trial = self.trial.as_ref().filter(|trial| trial.wants_plan());
        trial.map(|_| Publication { version, launches_wait })
    }

    /// Whether launches are to wait for moves to be handed over, as too many of those expired in so many
    /// iterations at least.
    fn is_to_wait(&self, planned: &PlannedIteration, actuator: Option<ActuatorKind>, iterations_min: u64) -> bool {
        let PlanCounters { iterations, expired, .. } = self.moved;
        let may_wait = self.may_wait && !self.launches_wait && actuator == Some(ActuatorKind::Helper);
        let moves = iterations.max(1).saturating_mul(planned.moves);
        may_wait && iterations >= iterations_min && expired.saturating_mul(EXPIRED_PART_MAX) > moves
    }

    /// Begins the trial anew, with launches that wait for moves to be handed over.
    fn begin_anew(&mut self, planned: &PlannedIteration) -> Assessment {
        let promise = self.decision.plan.as_ref().map(|plan| plan.promise).unwrap_or_default();
        (self.trial, self.launches_wait) =
            (Some(Trial::new(promise, planned.duration_ns).with_waiting_launches()), true);
        Assessment::Measured
    }

    pub(super) fn is_worth_an_event(&self) -> bool {
        let measured = self.trial.as_ref().map_or(0, Trial::measured_blocks);
        self.decision.stage == Stage::Trial || measured.is_multiple_of(CONFIRMED_BLOCKS_PER_EVENT)
    }

    pub(super) fn changes_to(&mut self, stage: Stage, taken: SystemTime) {
        (self.decision.stage, self.decision.updated_at) = (stage, taken);
    }

    /// Looks at the plan in force: whether it may stay, and what it has come to. An error is the stage
    /// in which it ends.
    pub(super) fn look(
        &mut self,
        following: &Following,
        counts: &Counts,
        sight: &Sight<'_>,
        guard: &mut Guard,
        limits: &Limits,
    ) -> Result<Assessment, (Stage, CooldownKind)> {
        let ended = |why: &str| Err((Stage::Ended(why.to_owned()), CooldownKind::None));
        if self.directive != *sight.directive {
            return ended("the directive for the process has changed");
        }
        let planned = match &following.state {
            FollowingState::Planned(planned) if planned.version == self.version => planned,
            FollowingState::Unavailable(reason) => return Err((Stage::Ended(reason.clone()), CooldownKind::Pause)),
            _ => {
                let why = "the program launches something else: the plan does not hold any more";
                return Err((Stage::Ended(why.to_owned()), CooldownKind::Pause));
            }
        };
        let admitted = guard.admits_moves(self.decision.policy, planned, sight, limits);
        let Some(trial) = &mut self.trial else {
            let may = sight.permits_acting().is_ok() && admitted.is_ok();
            return if may { ended("it is permitted now: a trial begins") } else { Ok(Assessment::Open) };
        };
        if let Err(why) = sight.permits_acting() {
            return Err((Stage::RolledBack(why), CooldownKind::None));
        }
        if let Err(why) = admitted {
            return Err((Stage::RolledBack(why), CooldownKind::Later));
        }
        let moved = self.progress.advance(counts, following.iteration.map(|iteration| iteration.number));
        self.moved = self.moved.plus(moved);
        guard.charge_plan(moved.bytes(), sight, limits).map_err(|why| (Stage::RolledBack(why), CooldownKind::Later))?;
        let reading = following.iteration.map(|iteration| counts.at(iteration));
        let mut look = reading.map_or(Assessment::Open, |reading| trial.read(reading));
        let iterations_min = match look {
            Assessment::Confirmed => u64::MAX,
            Assessment::Fails(_) => 0,
            Assessment::Open | Assessment::Measured | Assessment::Unmeasurable => EXPIRY_ITERATIONS_MIN,
        };
        if self.decision.stage == Stage::Trial && self.is_to_wait(planned, following.actuator, iterations_min) {
            // What was measured is of another plan.
            look = self.begin_anew(planned);
        }
        let wants_plan = self.trial.as_ref().is_some_and(Trial::wants_plan);
        self.note(following.actuator);
        match look {
            Assessment::Fails(why) => return Err((Stage::RolledBack(why), CooldownKind::Failed)),
            Assessment::Unmeasurable => {
                let why = "the duration of iterations changes too much for blocks of them to be compared";
                return Err((Stage::RolledBack(why.to_owned()), CooldownKind::Later));
            }
            Assessment::Open | Assessment::Measured | Assessment::Confirmed => {}
        }
        if let Some(why) = following.report.ended.as_ref().filter(|_| wants_plan) {
            self.decision.last_error = Some(CallResult::Failed(why.clone()));
            return Err((Stage::Ended(why.clone()), CooldownKind::Later));
        }
        Ok(look)
    }

    /// Notes the figures in the decision.
    fn note(&mut self, actuator: Option<ActuatorKind>) {
        let Some(trial) = &self.trial else { return };
        let (without, with) = trial.figures();
        let moved = self.moved;
        self.decision.done = Done {
            calls: moved.moves,
            failed: moved.skipped,
            to_gpu_bytes: moved.to_gpu_bytes,
            to_host_bytes: moved.to_host_bytes,
            ..Done::default()
        };
        self.decision.actuator = actuator.filter(|_| moved.moves > 0);
        if let Some(plan) = &mut self.decision.plan {
            let before = plan.clone();
            (plan.without, plan.with) = (without, with);
            (plan.blocks, plan.p_value, plan.counters) = (trial.blocks(), trial.p_value(), moved);
            plan.launches_wait = self.launches_wait;
            self.has_changed = *plan != before;
        }
        self.decision.before = measured(&without).unwrap_or_default();
        self.decision.after = measured(&with);
        // An iteration is the program's work.
        let durations_ns = with.duration_ns.filter(|with_ns| *with_ns > 0).zip(without.duration_ns);
        self.decision.pace = durations_ns.map(|(with_ns, without_ns)| without_ns as f64 / with_ns as f64);
    }
}
