//! Open plan, in force or in shadow: its trial, and the conditions under which it stays.

use model::{
    ActuatorKind, CallResult, Decision, Directive, Following, FollowingState, PlanCounters, PlannedIteration,
    Publication, Stage, decision::Done,
};

use super::{
    counts::{Counts, Progress},
    evidence::measured,
    trial::{Assessment, Trial},
};
use crate::act::{guard::Guard, limits::Limits, scene::Target};

/// Number of measured blocks of a confirmed plan per event with its figures.
const CONFIRMED_BLOCKS_PER_EVENT: u64 = 64;

/// Maximum share of expired moves before launches have to wait: 1 / this.
const EXPIRED_PART_MAX: u64 = 16;
/// Minimum iterations for that share, unless the trial has failed.
const EXPIRY_ITERATIONS_MIN: u64 = 4;

/// Cool-down of a policy after the end of its plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CooldownKind {
    None,
    /// [`Cooldown::start_short`](crate::act::cooldown::Cooldown::start_short).
    Short,
    /// [`Cooldown::start_for_retry`](crate::act::cooldown::Cooldown::start_for_retry).
    Retry,
    /// Likewise; the next trial is one of launches that wait, as too many moves expired.
    RetryWaiting,
    /// After harm, or without a benefit.
    Failed,
}

/// Whether launches wait until moves are handed over.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Waiting {
    /// Once too many moves have expired.
    #[default]
    IfExpired,
    /// From the start.
    Always,
    /// Never, as a trial with waiting launches has failed.
    Never,
}

/// Plan with its decision.
#[derive(Debug)]
pub(super) struct OpenPlan {
    pub(super) decision: Decision,
    directive: Directive,
    version: u64,
    /// `None` in shadow.
    pub(super) trial: Option<Trial>,
    /// Whether launches wait until moves are handed over.
    pub(super) launches_wait: bool,
    /// Whether launches may be made to wait.
    may_wait: bool,
    /// Progress of the current iteration.
    progress: Progress,
    /// Moves since the decision.
    moved: PlanCounters,
    /// Whether the last interval changed the figures of the decision.
    pub(super) has_changed: bool,
}

impl OpenPlan {
    /// Opens a plan; it is in shadow if `trial` is `None`.
    pub(super) fn new(
        decision: Decision,
        directive: Directive,
        version: u64,
        trial: Option<Trial>,
        counts: Counts,
        waiting: Waiting,
    ) -> Self {
        let launches_wait = waiting == Waiting::Always;
        let trial = trial.map(|trial| if launches_wait { trial.with_waiting_launches() } else { trial });
        Self {
            decision,
            directive,
            version,
            trial,
            launches_wait,
            may_wait: waiting == Waiting::IfExpired,
            progress: Progress::new(counts),
            moved: PlanCounters::default(),
            has_changed: false,
        }
    }

    /// Table to be published now, if any.
    pub(super) fn publication(&self) -> Option<Publication> {
        let Self { version, launches_wait, .. } = *self;
        let trial = self.trial.as_ref().filter(|trial| trial.wants_plan());
        trial.map(|_| Publication { version, launches_wait })
    }

    /// Whether launches have to wait until moves are handed over, because too many moves expired in
    /// at least `iterations_min` iterations.
    fn must_wait(&self, planned: &PlannedIteration, iterations_min: u64) -> bool {
        let PlanCounters { iterations, expired, .. } = self.moved;
        let may_wait = self.may_wait && !self.launches_wait;
        let moves = iterations.max(1).saturating_mul(planned.moves);
        may_wait && iterations >= iterations_min && expired.saturating_mul(EXPIRED_PART_MAX) > moves
    }

    /// Restarts the trial with launches that wait until moves are handed over.
    fn restart_waiting(&mut self, planned: &PlannedIteration) -> Assessment {
        let promise = self.decision.plan.as_ref().map(|plan| plan.promise).unwrap_or_default();
        (self.trial, self.launches_wait) =
            (Some(Trial::new(promise, planned.duration_ns).with_waiting_launches()), true);
        Assessment::Measured
    }

    /// Whether a measured block has to be published as an event: each block of a trial, and one of
    /// [`CONFIRMED_BLOCKS_PER_EVENT`] of a confirmed plan.
    pub(super) fn is_event_due(&self) -> bool {
        let measured = self.trial.as_ref().map_or(0, Trial::measured_blocks);
        self.decision.stage == Stage::Trial || measured.is_multiple_of(CONFIRMED_BLOCKS_PER_EVENT)
    }

    /// Assesses the plan at an interval.
    ///
    /// # Errors
    /// If the plan ends: its last stage, and the cool-down.
    pub(super) fn assess(
        &mut self,
        following: &Following,
        counts: &Counts,
        target: &Target<'_>,
        guard: &mut Guard,
        limits: &Limits,
    ) -> Result<Assessment, (Stage, CooldownKind)> {
        let ended = |why: &str| Err((Stage::Ended(why.to_owned()), CooldownKind::None));
        if self.directive != *target.directive {
            return ended("the directive for the process has changed");
        }
        let planned = match &following.state {
            FollowingState::Planned(planned) if planned.version == self.version => planned,
            FollowingState::Unavailable(reason) => return Err((Stage::Ended(reason.clone()), CooldownKind::Short)),
            _ => {
                let why = "the program launches something else: the plan no longer applies";
                return Err((Stage::Ended(why.to_owned()), CooldownKind::Short));
            }
        };
        let admitted = guard.check_moves(self.decision.policy, planned, target, limits);
        let Some(trial) = &mut self.trial else {
            let is_permitted = target.permits_acting().is_ok() && admitted.is_ok();
            return if is_permitted { ended("it is permitted now: a trial begins") } else { Ok(Assessment::Pending) };
        };
        if let Err(why) = target.permits_acting() {
            return Err((Stage::RolledBack(why), CooldownKind::None));
        }
        if let Err(why) = admitted {
            return Err((Stage::RolledBack(why), CooldownKind::Retry));
        }
        let moved = self.progress.advance(counts, following.iteration.map(|iteration| iteration.number));
        self.moved = self.moved.plus(moved);
        guard
            .charge_plan(moved.bytes(), target, limits)
            .map_err(|why| (Stage::RolledBack(why), CooldownKind::Retry))?;
        let reading = following.iteration.map(|iteration| counts.at(iteration));
        let mut assessment = reading.map_or(Assessment::Pending, |reading| trial.read(reading));
        let is_trial = self.decision.stage == Stage::Trial;
        let is_undecided = !matches!(assessment, Assessment::Confirmed | Assessment::Failed(_));
        if is_trial && is_undecided && self.must_wait(planned, EXPIRY_ITERATIONS_MIN) {
            // The measurements are those of launches that do not wait.
            assessment = self.restart_waiting(planned);
        }
        let wants_plan = self.trial.as_ref().is_some_and(Trial::wants_plan);
        self.record_figures();
        match assessment {
            // Harm ends the plan whatever its cause. The trial with waiting launches is another one.
            Assessment::Failed(why) => {
                let is_by_expiry = is_trial && self.must_wait(planned, 0);
                let cooldown = if is_by_expiry { CooldownKind::RetryWaiting } else { CooldownKind::Failed };
                return Err((Stage::RolledBack(why), cooldown));
            }
            Assessment::Unmeasurable => {
                let why = "the duration of iterations changes too much for blocks of them to be compared";
                return Err((Stage::RolledBack(why.to_owned()), CooldownKind::Retry));
            }
            Assessment::Pending | Assessment::Measured | Assessment::Confirmed => {}
        }
        if let Some(why) = following.report.ended.as_ref().filter(|_| wants_plan) {
            self.decision.last_error = Some(CallResult::Failed(why.clone()));
            return Err((Stage::Ended(why.clone()), CooldownKind::Retry));
        }
        Ok(assessment)
    }

    /// Records the figures in the decision.
    fn record_figures(&mut self) {
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
        self.decision.actuator = (moved.moves > 0).then_some(ActuatorKind::Helper);
        if let Some(plan) = &mut self.decision.plan {
            let before = plan.clone();
            (plan.without, plan.with) = (without, with);
            (plan.blocks, plan.p_value, plan.counters) = (trial.blocks(), trial.p_value(), moved);
            plan.launches_wait = self.launches_wait;
            self.has_changed = *plan != before;
        }
        self.decision.before = measured(&without).unwrap_or_default();
        self.decision.after = measured(&with);
        // Pace in iterations: each is the same work.
        let durations_ns = with.duration_ns.filter(|with_ns| *with_ns > 0).zip(without.duration_ns);
        self.decision.pace = durations_ns.map(|(with_ns, without_ns)| without_ns as f64 / with_ns as f64);
    }
}
