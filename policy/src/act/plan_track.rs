//! Plan for the iterations of one process, which the helper follows, or uvmd from outside: its decision and its trial.

use std::time::{Duration, SystemTime};

use model::{
    ActuatorKind, ArmFigures, CallResult, Decision, DecisionId, Directive, Expected, Following, FollowingState,
    IterationBegin, PlanCommand, PlanCounters, PlanEvidence, PlannedIteration, ProbedIteration, Publication,
    RestrictionScope, Share, Stage,
    decision::{Done, Event, Measured},
    policy::{PlanPolicy, Promise, of_plans},
    verdict::Inputs,
};

use super::{
    arms::{Look, Reading, Trial, mib},
    cooldown::{Circumstances, Cooldown},
    guard::Guard,
    limits::Limits,
    scene::Sight,
};
use crate::reading::counted_at;

/// Following of the calls of a process, and its plan, at the GPU of a sight.
#[derive(Debug, Default)]
pub(crate) struct PlanTrack {
    open: Option<Open>,
    cooldown: Cooldown,
    /// Table that is carried out by the last command.
    published: Option<Publication>,
    /// Whether a trial has failed in which launches waited for moves to be handed over.
    has_waiting_failed: bool,
    /// Probes in progress.
    probes: Option<Probes>,
}

/// Accounts of probes, which end with them.
#[derive(Debug)]
struct Probes {
    /// Counts at their begin.
    begin: Counts,
    /// Bytes that were charged since then.
    charged_bytes: u64,
    /// Whether a budget was exceeded: nothing more is moved.
    is_exhausted: bool,
}

#[derive(Debug)]
struct Open {
    decision: Decision,
    directive: Directive,
    version: u64,
    /// `None` in shadow.
    trial: Option<Trial>,
    /// Whether launches wait until moves are handed over...
    launches_wait: bool,
    /// ...and whether they may be made to.
    may_wait: bool,
    /// The iteration in progress.
    progress: Progress,
    /// What was done since the decision.
    moved: PlanCounters,
    /// Whether the last interval has changed the figures of the decision.
    has_changed: bool,
}

/// Cumulative counts at one moment.
#[derive(Clone, Copy, Debug)]
struct Counts {
    actuator: Option<ActuatorKind>,
    inputs: Inputs,
    reported: PlanCounters,
}

/// Iteration in progress. What is requested in it is copied before its end, and not in the same
/// interval.
#[derive(Clone, Copy, Debug)]
struct Progress {
    iteration: Option<u64>,
    /// Counts at its begin.
    begin: Counts,
    /// What was moved since then.
    moved: PlanCounters,
}

/// Result of one interval.
#[derive(Debug, Default)]
pub(crate) struct PlanTurn {
    pub(crate) events: Vec<Event>,
    pub(crate) closed: Option<Decision>,
    pub(crate) command: Option<PlanCommand>,
    /// Whether the figures of the decision have changed.
    pub(crate) has_changed: bool,
}

impl PlanTrack {
    pub(crate) fn decision(&self) -> Option<&Decision> {
        self.open.as_ref().map(|open| &open.decision)
    }

    /// Whether a plan may be carried out.
    pub(crate) const fn is_published(&self) -> bool {
        self.published.is_some()
    }

    /// Whether uvmd acts on the process, beyond reports.
    pub(crate) fn acts(&self) -> bool {
        self.open.as_ref().is_some_and(|open| open.trial.is_some())
    }

    /// Ends the open decision, and withdraws the plan. `taken`: calendar time.
    pub(crate) fn close(&mut self, process: model::ProcessId, stage: Stage, taken: SystemTime) -> PlanTurn {
        let mut turn = PlanTurn::default();
        if let Some(mut open) = self.open.take() {
            open.changes_to(stage, taken);
            turn.events.push(Event::Updated(open.decision.clone()));
            turn.closed = Some(open.decision);
        }
        turn.command = self.published.take().map(|_| PlanCommand { process, publish: None });
        turn
    }

    pub(crate) fn turn(
        &mut self,
        following: &Following,
        sight: &Sight<'_>,
        guard: &mut Guard,
        limits: &Limits,
        next: DecisionId,
        is_withdrawing: bool,
    ) -> PlanTurn {
        let counts = Counts::of(following, sight);
        if let Some(open) = &mut self.open {
            let look = open.look(following, &counts, sight, guard, limits);
            return match look {
                Ok(look) => self.go_on(&look, sight),
                Err((stage, kind)) => {
                    let is_failed_trial = kind == CooldownKind::Failed && open.decision.stage == Stage::Trial;
                    self.has_waiting_failed |= open.launches_wait && is_failed_trial;
                    let policy = self.open.as_ref().map(|open| open.decision.policy);
                    self.cool_down(policy, kind, sight.scene.now, limits);
                    self.close(sight.process.id, stage, sight.scene.snapshot.taken)
                }
            };
        }
        let wanted = self.probe(following, counts, sight, guard, limits).filter(|_| !is_withdrawing);
        let wanted = wanted.map(|version| Publication { version, launches_wait: true });
        let command = self.carry_out(wanted, sight);
        // Until advice of another policy is withdrawn, what is measured would be that of the advice.
        let planned = match &following.state {
            FollowingState::Planned(planned) if !is_withdrawing => planned,
            _ => return PlanTurn { command, ..PlanTurn::default() },
        };
        let Some(policy) = of_plans(&sight.directive.policy).filter(|policy| !self.rests(policy.name, sight)) else {
            return PlanTurn { command, ..PlanTurn::default() };
        };
        PlanTurn { command, ..self.propose(policy, planned, counts, sight, guard, limits, next) }
    }

    fn rests(&self, policy: &str, sight: &Sight<'_>) -> bool {
        self.cooldown.rests(policy, sight.scene.now, &Circumstances::of(sight)).is_some()
    }

    /// Table of a probe that is to be followed now, if any. What was moved is charged as a plan's is.
    fn probe(
        &mut self,
        following: &Following,
        counts: Counts,
        sight: &Sight<'_>,
        guard: &mut Guard,
        limits: &Limits,
    ) -> Option<u64> {
        let FollowingState::Probing(iteration) = &following.state else {
            // What was moved last.
            if let Some(mut probes) = self.probes.take() {
                probes.charge(&counts, sight, guard, limits);
            }
            return None;
        };
        let probes = self.probes.get_or_insert(Probes { begin: counts, charged_bytes: 0, is_exhausted: false });
        probes.charge(&counts, sight, guard, limits);
        if probes.is_exhausted {
            return None;
        }
        let policy = of_plans(&sight.directive.policy)?;
        let may_be = self.may_probe(policy.name, iteration, sight, guard, limits).is_ok();
        iteration.publish.filter(|_| may_be)
    }

    /// Whether probes may be made now.
    fn may_probe(
        &self,
        policy: &str,
        probed: &ProbedIteration,
        sight: &Sight<'_>,
        guard: &Guard,
        limits: &Limits,
    ) -> Result<(), String> {
        sight.permits_acting()?;
        if let Some(resting) = self.cooldown.rests(policy, sight.scene.now, &Circumstances::of(sight)) {
            return Err(resting.to_string());
        }
        guard.admits_moves(policy, probed, sight, limits)
    }

    /// Has this table be carried out, and no other.
    fn carry_out(&mut self, wanted: Option<Publication>, sight: &Sight<'_>) -> Option<PlanCommand> {
        if wanted == self.published {
            return None;
        }
        self.published = wanted;
        Some(PlanCommand { process: sight.process.id, publish: wanted })
    }

    #[expect(clippy::too_many_arguments, reason = "inputs of one interval")]
    fn propose(
        &mut self,
        policy: PlanPolicy,
        planned: &PlannedIteration,
        counts: Counts,
        sight: &Sight<'_>,
        guard: &Guard,
        limits: &Limits,
        next: DecisionId,
    ) -> PlanTurn {
        let stage = match (sight.permits_acting(), guard.admits_moves(policy.name, planned, sight, limits)) {
            (Err(why), _) => Stage::Shadow(why),
            (Ok(()), Err(why)) => Stage::Denied(why),
            (Ok(()), Ok(())) => Stage::Trial,
        };
        let decision = decision(next, policy, planned, sight, stage.clone());
        let mut turn = PlanTurn { events: vec![Event::Created(decision.clone())], ..PlanTurn::default() };
        if matches!(stage, Stage::Denied(_)) {
            self.cooldown.begin(policy.name, sight.scene.now, limits, []);
            turn.closed = Some(decision);
            return turn;
        }
        let trial = (stage == Stage::Trial).then(|| Trial::new(policy.promise, planned.duration_ns));
        let (directive, version) = (sight.directive.clone(), planned.version);
        self.open = Some(Open {
            decision,
            directive,
            version,
            trial,
            launches_wait: false,
            may_wait: !self.has_waiting_failed,
            progress: Progress { iteration: None, begin: counts, moved: PlanCounters::default() },
            moved: PlanCounters::default(),
            has_changed: false,
        });
        turn
    }

    fn go_on(&mut self, look: &Look, sight: &Sight<'_>) -> PlanTurn {
        let mut turn = PlanTurn::default();
        let Some(open) = &mut self.open else { return turn };
        turn.has_changed = open.has_changed;
        match look {
            Look::Confirmed => {
                open.changes_to(Stage::Confirmed, sight.scene.snapshot.taken);
                self.cooldown.forget(open.decision.policy);
                turn.events.push(Event::Updated(open.decision.clone()));
            }
            // A confirmed plan may stay for days.
            Look::Measured if open.is_worth_an_event() => {
                turn.events.push(Event::Updated(open.decision.clone()));
            }
            Look::Measured | Look::Open | Look::Fails(_) | Look::Unmeasurable => {}
        }
        let Open { version, launches_wait, .. } = *open;
        let wanted = open.trial.as_ref().filter(|trial| trial.wants_plan());
        let wanted = wanted.map(|_| Publication { version, launches_wait });
        turn.command = self.carry_out(wanted, sight);
        turn
    }

    fn cool_down(&mut self, policy: Option<&'static str>, kind: CooldownKind, now: SystemTime, limits: &Limits) {
        let Some(policy) = policy else { return };
        match kind {
            CooldownKind::None => {}
            CooldownKind::Pause => self.cooldown.pause(policy, now, limits),
            CooldownKind::Later => self.cooldown.retry_later(policy, now, limits),
            CooldownKind::Failed => self.cooldown.begin(policy, now, limits, []),
        }
    }

    /// Restrictions that keep a plan from being made or followed.
    pub(crate) fn restrictions(
        &self,
        following: &Following,
        sight: &Sight<'_>,
        guard: &Guard,
        limits: &Limits,
    ) -> Vec<(RestrictionScope, String)> {
        let Some(policy) = of_plans(&sight.directive.policy) else { return Vec::new() };
        let scope = RestrictionScope::Policy(policy.name);
        let why = match &following.state {
            _ if self.open.is_some() => None,
            FollowingState::Planned(planned) => {
                let resting = self.cooldown.rests(policy.name, sight.scene.now, &Circumstances::of(sight));
                let denied = || guard.admits_moves(policy.name, planned, sight, limits).err();
                resting.map(|resting| resting.to_string()).or_else(denied)
            }
            FollowingState::Probing(probed) => {
                let denied = self.may_probe(policy.name, probed, sight, guard, limits).err();
                denied.or_else(|| following.state.reason().map(str::to_owned))
            }
            state => state.reason().map(str::to_owned),
        };
        why.map(|why| (scope, why)).into_iter().collect()
    }
}

/// Blocks with a confirmed plan of which each last one is an event, with its figures.
const CONFIRMED_BLOCKS_PER_EVENT: u64 = 64;

/// Plans of which more than 1 / this of the moves expire have launches wait.
const EXPIRED_PART_MAX: u64 = 16;
/// Iterations of which expired moves are counted for that, unless the trial fails before.
const EXPIRY_ITERATIONS_MIN: u64 = 4;

/// Cool-down of a policy after the end of its plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum CooldownKind {
    None,
    /// A short one, in any case.
    Pause,
    /// Longer each time.
    Later,
    /// After harm or no benefit.
    Failed,
}

impl Probes {
    fn charge(&mut self, counts: &Counts, sight: &Sight<'_>, guard: &mut Guard, limits: &Limits) {
        let moved_bytes = counts.moved_since(&self.begin).bytes();
        let bytes = moved_bytes.saturating_sub(self.charged_bytes);
        self.charged_bytes = moved_bytes.max(self.charged_bytes);
        self.is_exhausted |= bytes > 0 && guard.charge_plan(bytes, sight, limits).is_err();
    }
}

impl Counts {
    fn of(following: &Following, sight: &Sight<'_>) -> Self {
        let inputs = counted_at(sight.process, sight.key());
        Self { actuator: following.actuator, inputs, reported: following.report.counters }
    }

    const fn at(&self, iteration: IterationBegin) -> Reading {
        let Inputs { bytes_htod, bytes_dtoh, fault_entries, .. } = self.inputs;
        Reading { iteration, link_bytes: bytes_htod.saturating_add(bytes_dtoh), faults: fault_entries }
    }

    /// What was counted since the begin of an iteration. A helper counts the bytes that it has
    /// requested, of which those that the driver has copied were moved, whatever the process says. uvmd's
    /// own calls are counted when they have ended, which may be in a later iteration.
    fn moved_since(&self, earlier: &Self) -> PlanCounters {
        let reported = self.reported.since(earlier.reported);
        if self.actuator == Some(ActuatorKind::Ioctl) {
            return reported;
        }
        let copied_htod = self.inputs.bytes_htod.saturating_sub(earlier.inputs.bytes_htod);
        let copied_dtoh = self.inputs.bytes_dtoh.saturating_sub(earlier.inputs.bytes_dtoh);
        PlanCounters {
            to_gpu_bytes: reported.to_gpu_bytes.min(copied_htod),
            to_host_bytes: reported.to_host_bytes.min(copied_dtoh),
            ..reported
        }
    }
}

impl Progress {
    /// What was moved since the last interval.
    fn advance(&mut self, counts: &Counts, iteration: Option<u64>) -> PlanCounters {
        let moved = counts.moved_since(&self.begin);
        let increase = moved.since(self.moved);
        self.moved = moved;
        if iteration.is_some() && iteration != self.iteration {
            *self = Self { iteration, begin: *counts, moved: PlanCounters::default() };
        }
        increase
    }
}

impl Open {
    /// Whether launches are to wait for moves to be handed over, as too many of those expired in so many
    /// iterations at least.
    fn is_to_wait(&self, planned: &PlannedIteration, actuator: Option<ActuatorKind>, iterations_min: u64) -> bool {
        let PlanCounters { iterations, expired, .. } = self.moved;
        let may_wait = self.may_wait && !self.launches_wait && actuator == Some(ActuatorKind::Helper);
        let moves = iterations.max(1).saturating_mul(planned.moves);
        may_wait && iterations >= iterations_min && expired.saturating_mul(EXPIRED_PART_MAX) > moves
    }

    /// Begins the trial anew, with launches that wait for moves to be handed over.
    fn begin_anew(&mut self, planned: &PlannedIteration) -> Look {
        let promise = self.decision.plan.as_ref().map(|plan| plan.promise).unwrap_or_default();
        (self.trial, self.launches_wait) = (Some(Trial::new(promise, planned.duration_ns).of_waiting_launches()), true);
        Look::Measured
    }

    fn is_worth_an_event(&self) -> bool {
        let measured = self.trial.as_ref().map_or(0, Trial::measured_blocks);
        self.decision.stage == Stage::Trial || measured.is_multiple_of(CONFIRMED_BLOCKS_PER_EVENT)
    }

    fn changes_to(&mut self, stage: Stage, taken: SystemTime) {
        (self.decision.stage, self.decision.updated_at) = (stage, taken);
    }

    /// Looks at the plan in force: whether it may stay, and what it has come to. An error is the stage
    /// in which it ends.
    fn look(
        &mut self,
        following: &Following,
        counts: &Counts,
        sight: &Sight<'_>,
        guard: &mut Guard,
        limits: &Limits,
    ) -> Result<Look, (Stage, CooldownKind)> {
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
            return if may { ended("it is permitted now: a trial begins") } else { Ok(Look::Open) };
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
        let mut look = reading.map_or(Look::Open, |reading| trial.read(reading));
        let iterations_min = match look {
            Look::Confirmed => u64::MAX,
            Look::Fails(_) => 0,
            Look::Open | Look::Measured | Look::Unmeasurable => EXPIRY_ITERATIONS_MIN,
        };
        if self.decision.stage == Stage::Trial && self.is_to_wait(planned, following.actuator, iterations_min) {
            // What was measured is of another plan.
            look = self.begin_anew(planned);
        }
        let wants_plan = self.trial.as_ref().is_some_and(Trial::wants_plan);
        self.note(following.actuator);
        match look {
            Look::Fails(why) => return Err((Stage::RolledBack(why), CooldownKind::Failed)),
            Look::Unmeasurable => {
                let why = "the duration of iterations changes too much for blocks of them to be compared";
                return Err((Stage::RolledBack(why.to_owned()), CooldownKind::Later));
            }
            Look::Open | Look::Measured | Look::Confirmed => {}
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

/// Median iteration of an arm, once there is one.
fn measured(arm: &ArmFigures) -> Option<Measured> {
    let ArmFigures { iterations: _, link_bytes, faults, duration_ns } = *arm;
    let inputs = Inputs { fault_entries: faults?, ..Inputs::default() };
    let window = Duration::from_nanos(duration_ns?);
    Some(Measured { window, inputs, own_link_bytes: link_bytes?, ..Measured::default() })
}

/// Lower bound of the share that a plan saves of what the driver alone has none of: there is no ratio.
const SAVED_OF_NOTHING: f64 = -1.0;

/// What a plan is expected to save by the model of the driver, at most: bytes over the link only if it
/// promises these.
fn expected(promise: Promise, planned: &PlannedIteration) -> Expected {
    let saved = |planned: u64, driver: u64| match (planned, driver) {
        (0, 0) => 0.0,
        (_, 0) => SAVED_OF_NOTHING,
        _ => 1.0 - planned as f64 / driver as f64,
    };
    let share = |saved: f64, most: f64| Share { at_least: saved.min(0.0), at_most: saved.clamp(0.0, most) };
    let most = match promise {
        Promise::LinkBytes => 1.0,
        Promise::Faults => 0.0,
    };
    Expected {
        link_bytes_saved: share(saved(planned.link_bytes(), planned.driver_bytes), most),
        faults_saved: share(saved(planned.faulted_blocks, planned.driver_faulted_blocks), 1.0),
    }
}

/// What a plan comes to, in words.
fn outlook(promise: Promise, planned: &PlannedIteration) -> String {
    match promise {
        Promise::LinkBytes => {
            let [planned, driver] = [planned.link_bytes(), planned.driver_bytes].map(|bytes| mib(bytes as f64));
            format!("copies {planned} instead of {driver}")
        }
        Promise::Faults => {
            let PlannedIteration { faulted_blocks, driver_faulted_blocks, .. } = planned;
            format!("leaves {faulted_blocks} instead of {driver_faulted_blocks} blocks to faults")
        }
    }
}

fn decision(
    id: DecisionId,
    PlanPolicy { name: policy, promise }: PlanPolicy,
    planned: &PlannedIteration,
    sight: &Sight<'_>,
    stage: Stage,
) -> Decision {
    let taken = sight.scene.snapshot.taken;
    let PlannedIteration { planner, launches, moves, ranges, .. } = planned;
    let probes = planned.probes.map(|probes| {
        let [named, touched] = [probes.named_bytes, probes.touched_bytes].map(|bytes| mib(bytes as f64));
        format!("; by probes, {} launches access at most {touched} of the {named} that they name", probes.probed)
    });
    Decision {
        id,
        process: sight.process.id,
        process_name: sight.process.name.clone(),
        gpu: sight.gpu,
        policy,
        override_id: sight.directive.override_id.clone(),
        verdict: sight.verdicts.first().map(|verdict| verdict.kind),
        reason: format!(
            "iterations of {launches} launches repeat: a plan of {planner} has {moves} moves in each, and {} by the model of the driver{}",
            outlook(promise, planned),
            probes.unwrap_or_default(),
        ),
        ranges: ranges.clone(),
        advice: Vec::new(),
        expected: expected(promise, planned),
        created_at: taken,
        updated_at: taken,
        stage,
        before: Measured::default(),
        after: None,
        pace: None,
        done: Done::default(),
        actuator: None,
        last_error: None,
        plan: Some(PlanEvidence {
            planner: (*planner).to_owned(),
            promise,
            launches: *launches,
            lead: planned.lead.clone(),
            planned_moves: *moves,
            coverage_ratio: planned.coverage_percent.map(|percent| percent as f64 / 100.0),
            planned_bytes: planned.link_bytes(),
            planned_peak_bytes: planned.peak_bytes,
            room_bytes: planned.room_bytes,
            modelled_driver_bytes: planned.driver_bytes,
            planned_faulted_blocks: planned.faulted_blocks,
            modelled_driver_faulted_blocks: planned.driver_faulted_blocks,
            ..PlanEvidence::default()
        }),
    }
}
