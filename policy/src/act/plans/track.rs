//! Plan for the iterations of one process, followed by its helper: decision and trial.

use std::time::SystemTime;

use model::{
    Decision, DecisionId, Following, FollowingState, PlanCommand, PlannedIteration, ProbedIteration, Publication,
    RestrictionScope, Stage,
    decision::Event,
    policy::{PlanPolicy, of_plans},
};

use super::{
    counts::Counts,
    evidence::decision,
    open::{CooldownKind, OpenPlan},
    trial::{Assessment, Trial},
};
use crate::act::{
    cooldown::{Circumstances, Cooldown},
    guard::Guard,
    life_cycle::enter,
    limits::Limits,
    scene::Sight,
};

/// State of the plan of one process.
#[derive(Debug, Default)]
pub(crate) struct PlanTrack {
    open: Option<OpenPlan>,
    cooldown: Cooldown,
    /// Table published by the last command.
    published: Option<Publication>,
    /// Whether a trial has failed in which launches waited until moves were handed over.
    has_waiting_failed: bool,
    /// Probes in progress.
    probes: Option<Probes>,
}

/// Account of the probes in progress.
#[derive(Debug)]
struct Probes {
    /// Counts at their begin.
    begin: Counts,
    /// Bytes charged since then.
    charged_bytes: u64,
    /// Whether a budget was exceeded, which ends the moves.
    is_exhausted: bool,
    /// Whether a table was published in the last interval. Its last moves are counted in this one.
    was_published: bool,
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

    /// Whether a table is published.
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
            enter(&mut open.decision, stage, taken);
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
            let assessment = open.assess(following, &counts, sight, guard, limits);
            return match assessment {
                Ok(assessment) => self.go_on(&assessment, sight),
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
        let command = self.publish(wanted, sight);
        // Advice of another policy affects measurements until it is withdrawn.
        let planned = match &following.state {
            FollowingState::Planned(planned) if !is_withdrawing => planned,
            _ => return PlanTurn { command, ..PlanTurn::default() },
        };
        let Some(policy) = of_plans(&sight.directive.policy).filter(|policy| !self.is_cooling_down(policy.name, sight))
        else {
            return PlanTurn { command, ..PlanTurn::default() };
        };
        PlanTurn { command, ..self.propose(policy, planned, counts, sight, guard, limits, next) }
    }

    fn is_cooling_down(&self, policy: &str, sight: &Sight<'_>) -> bool {
        self.cooldown.remaining(policy, sight.scene.now, &Circumstances::of(sight)).is_some()
    }

    /// Version of the probe's table to be published now, if any. Charges its moves like those of a
    /// plan.
    fn probe(
        &mut self,
        following: &Following,
        counts: Counts,
        sight: &Sight<'_>,
        guard: &mut Guard,
        limits: &Limits,
    ) -> Option<u64> {
        let is_published = self.is_published();
        let FollowingState::Probing(iteration) = &following.state else {
            // The last moves of the probes.
            if let Some(mut probes) = self.probes.take() {
                probes.charge(&counts, is_published, sight, guard, limits);
            }
            return None;
        };
        let probes = self.probes.get_or_insert_with(|| Probes::new(counts));
        probes.charge(&counts, is_published, sight, guard, limits);
        if probes.is_exhausted {
            return None;
        }
        let policy = of_plans(&sight.directive.policy)?;
        let may_probe = self.may_probe(policy.name, iteration, sight, guard, limits).is_ok();
        iteration.publish.filter(|_| may_probe)
    }

    /// Checks whether probes may be made now.
    ///
    /// # Errors
    /// If not: the reason.
    fn may_probe(
        &self,
        policy: &str,
        probed: &ProbedIteration,
        sight: &Sight<'_>,
        guard: &Guard,
        limits: &Limits,
    ) -> Result<(), String> {
        sight.permits_acting()?;
        if let Some(remaining) = self.cooldown.remaining(policy, sight.scene.now, &Circumstances::of(sight)) {
            return Err(remaining.to_string());
        }
        guard.admits_moves(policy, probed, sight, limits)
    }

    /// Publishes a table instead of the previous one, or none.
    fn publish(&mut self, wanted: Option<Publication>, sight: &Sight<'_>) -> Option<PlanCommand> {
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
        let (directive, may_wait) = (sight.directive.clone(), !self.has_waiting_failed);
        self.open = Some(OpenPlan::new(decision, directive, planned.version, trial, counts, may_wait));
        turn
    }

    fn go_on(&mut self, assessment: &Assessment, sight: &Sight<'_>) -> PlanTurn {
        let mut turn = PlanTurn::default();
        let Some(open) = &mut self.open else { return turn };
        turn.has_changed = open.has_changed;
        match assessment {
            Assessment::Confirmed => {
                enter(&mut open.decision, Stage::Confirmed, sight.scene.snapshot.taken);
                self.cooldown.forget(open.decision.policy);
                turn.events.push(Event::Updated(open.decision.clone()));
            }
            // Rarely for a confirmed plan, which may stay for days.
            Assessment::Measured if open.is_event_due() => {
                turn.events.push(Event::Updated(open.decision.clone()));
            }
            Assessment::Measured | Assessment::Open | Assessment::Fails(_) | Assessment::Unmeasurable => {}
        }
        let wanted = open.publication();
        turn.command = self.publish(wanted, sight);
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

    /// Restrictions that currently prevent a plan or probes.
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
                let remaining = self.cooldown.remaining(policy.name, sight.scene.now, &Circumstances::of(sight));
                let denied = || guard.admits_moves(policy.name, planned, sight, limits).err();
                remaining.map(|remaining| remaining.to_string()).or_else(denied)
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

impl Probes {
    const fn new(begin: Counts) -> Self {
        Self { begin, charged_bytes: 0, is_exhausted: false, was_published: false }
    }

    /// Charges the bytes moved since the last interval. Without a published table, moves are only
    /// claimed by the process, and are not charged to the node.
    fn charge(&mut self, counts: &Counts, is_published: bool, sight: &Sight<'_>, guard: &mut Guard, limits: &Limits) {
        let moved_bytes = counts.moved_since(&self.begin).bytes();
        let bytes = moved_bytes.saturating_sub(self.charged_bytes);
        self.charged_bytes = moved_bytes.max(self.charged_bytes);
        if std::mem::replace(&mut self.was_published, is_published) || is_published {
            self.is_exhausted |= bytes > 0 && guard.charge_plan(bytes, sight, limits).is_err();
        } else {
            guard.charge_process(bytes, sight, limits);
        }
    }
}
