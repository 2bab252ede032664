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
    open::{CooldownKind, OpenPlan, Waiting},
    trial::{Assessment, Trial},
};
use crate::act::{
    cooldown::{Circumstances, Cooldown},
    guard::Guard,
    life_cycle::set_stage,
    limits::Limits,
    scene::Target,
};

/// State of the plan of one process.
#[derive(Debug, Default)]
pub(crate) struct PlanTrack {
    open: Option<OpenPlan>,
    cooldown: Cooldown,
    /// Table published by the last command.
    published: Option<Publication>,
    /// Whether launches wait in the next trial.
    waiting: Waiting,
    /// Probes in progress.
    probes: Option<Probes>,
}

/// Account of the probes in progress.
#[derive(Debug)]
struct Probes {
    /// Counts at their start.
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
pub(crate) struct PlanUpdate {
    pub(crate) events: Vec<Event>,
    pub(crate) ended: Option<Decision>,
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
    pub(crate) fn close(&mut self, process: model::ProcessId, stage: Stage, taken: SystemTime) -> PlanUpdate {
        let mut update = PlanUpdate::default();
        if let Some(mut open) = self.open.take() {
            self.cooldown.record_end(open.decision.policy, &stage);
            set_stage(&mut open.decision, stage, taken);
            update.events.push(Event::Updated(open.decision.clone()));
            update.ended = Some(open.decision);
        }
        update.command = self.published.take().map(|_| PlanCommand { process, publish: None });
        update
    }

    /// Processes an interval. `new_id`: id of a new decision; `is_withdrawing`: whether advice of
    /// another policy is being withdrawn.
    pub(crate) fn update(
        &mut self,
        following: &Following,
        target: &Target<'_>,
        guard: &mut Guard,
        limits: &Limits,
        new_id: DecisionId,
        is_withdrawing: bool,
    ) -> PlanUpdate {
        let counts = Counts::of(following, target);
        if let Some(open) = &mut self.open {
            let assessment = open.assess(following, &counts, target, guard, limits);
            return match assessment {
                Ok(assessment) => self.advance(&assessment, target),
                Err((stage, kind)) => {
                    let is_failed_trial = kind == CooldownKind::Failed && open.decision.stage == Stage::Trial;
                    if kind == CooldownKind::RetryWaiting {
                        self.waiting = Waiting::Always;
                    } else if is_failed_trial && open.launches_wait {
                        self.waiting = Waiting::Never;
                    }
                    let policy = self.open.as_ref().map(|open| open.decision.policy);
                    self.cool_down(policy, kind, target.scene.now, limits);
                    self.close(target.process.id, stage, target.scene.snapshot.taken)
                }
            };
        }
        let wanted = self.probe(following, counts, target, guard, limits).filter(|_| !is_withdrawing);
        let wanted = wanted.map(|version| Publication { version, launches_wait: true });
        let command = self.publish(wanted, target);
        // Advice of another policy affects measurements until it is withdrawn.
        let planned = match &following.state {
            FollowingState::Planned(planned) if !is_withdrawing => planned,
            _ => return PlanUpdate { command, ..PlanUpdate::default() },
        };
        let Some(policy) =
            of_plans(&target.directive.policy).filter(|policy| !self.is_cooling_down(policy.name, target))
        else {
            return PlanUpdate { command, ..PlanUpdate::default() };
        };
        PlanUpdate { command, ..self.propose(policy, planned, counts, target, guard, limits, new_id) }
    }

    fn is_cooling_down(&self, policy: &str, target: &Target<'_>) -> bool {
        self.cooldown.is_cooling_down(policy, target.scene.now, &Circumstances::of(target))
    }

    /// Version of the probe's table to be published now, if any. Charges its moves like those of a
    /// plan.
    fn probe(
        &mut self,
        following: &Following,
        counts: Counts,
        target: &Target<'_>,
        guard: &mut Guard,
        limits: &Limits,
    ) -> Option<u64> {
        let is_published = self.is_published();
        let FollowingState::Probing(iteration) = &following.state else {
            // The last moves of the probes.
            if let Some(mut probes) = self.probes.take() {
                probes.charge(&counts, is_published, target, guard, limits);
            }
            return None;
        };
        let probes = self.probes.get_or_insert_with(|| Probes::new(counts));
        probes.charge(&counts, is_published, target, guard, limits);
        if probes.is_exhausted {
            return None;
        }
        let policy = of_plans(&target.directive.policy)?;
        let may_probe = self.may_probe(policy.name, iteration, target, guard, limits).is_ok();
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
        target: &Target<'_>,
        guard: &Guard,
        limits: &Limits,
    ) -> Result<(), String> {
        target.permits_acting()?;
        if let Some(why) = self.cooldown.restriction(policy, target.scene.now, &Circumstances::of(target)) {
            return Err(why);
        }
        guard.check_moves(policy, probed, target, limits)
    }

    /// Publishes `wanted` in place of the previous table; `None` withdraws that. Returns the
    /// command, if anything changes.
    fn publish(&mut self, wanted: Option<Publication>, target: &Target<'_>) -> Option<PlanCommand> {
        if wanted == self.published {
            return None;
        }
        self.published = wanted;
        Some(PlanCommand { process: target.process.id, publish: wanted })
    }

    #[expect(clippy::too_many_arguments, reason = "inputs of one interval")]
    fn propose(
        &mut self,
        policy: PlanPolicy,
        planned: &PlannedIteration,
        counts: Counts,
        target: &Target<'_>,
        guard: &Guard,
        limits: &Limits,
        new_id: DecisionId,
    ) -> PlanUpdate {
        let stage = match (target.permits_acting(), guard.check_moves(policy.name, planned, target, limits)) {
            (Err(why), _) => Stage::Shadow(why),
            (Ok(()), Err(why)) => Stage::Denied(why),
            (Ok(()), Ok(())) => Stage::Trial,
        };
        let decision = decision(new_id, policy, planned, target, stage.clone());
        let mut update = PlanUpdate { events: vec![Event::Created(decision.clone())], ..PlanUpdate::default() };
        if matches!(stage, Stage::Denied(_)) {
            self.cooldown.start(policy.name, target.scene.now, limits, []);
            self.cooldown.record_end(policy.name, &decision.stage);
            update.ended = Some(decision);
            return update;
        }
        let trial = (stage == Stage::Trial).then(|| Trial::new(policy.promise, planned.duration_ns));
        let (directive, waiting) = (target.directive.clone(), self.waiting);
        if trial.is_some() && waiting == Waiting::Always {
            // Of this trial alone: a later plan may be another one.
            self.waiting = Waiting::IfExpired;
        }
        self.open = Some(OpenPlan::new(decision, directive, planned.version, trial, counts, waiting));
        update
    }

    fn advance(&mut self, assessment: &Assessment, target: &Target<'_>) -> PlanUpdate {
        let mut update = PlanUpdate::default();
        let Some(open) = &mut self.open else { return update };
        update.has_changed = open.has_changed;
        match assessment {
            Assessment::Confirmed => {
                set_stage(&mut open.decision, Stage::Confirmed, target.scene.snapshot.taken);
                self.cooldown.clear(open.decision.policy);
                update.events.push(Event::Updated(open.decision.clone()));
            }
            // Few events for a confirmed plan, which may stay for days.
            Assessment::Measured if open.is_event_due() => {
                update.events.push(Event::Updated(open.decision.clone()));
            }
            Assessment::Measured | Assessment::Pending | Assessment::Failed(_) | Assessment::Unmeasurable => {}
        }
        let wanted = open.publication();
        update.command = self.publish(wanted, target);
        update
    }

    fn cool_down(&mut self, policy: Option<&'static str>, kind: CooldownKind, now: SystemTime, limits: &Limits) {
        let Some(policy) = policy else { return };
        match kind {
            CooldownKind::None => {}
            CooldownKind::Short => self.cooldown.start_short(policy, now, limits),
            CooldownKind::Retry | CooldownKind::RetryWaiting => self.cooldown.start_for_retry(policy, now, limits),
            CooldownKind::Failed => self.cooldown.start(policy, now, limits, []),
        }
    }

    /// Restrictions that currently prevent a plan or probes.
    pub(crate) fn restrictions(
        &self,
        following: &Following,
        target: &Target<'_>,
        guard: &Guard,
        limits: &Limits,
    ) -> Vec<(RestrictionScope, String)> {
        let Some(policy) = of_plans(&target.directive.policy) else { return Vec::new() };
        let scope = RestrictionScope::Policy(policy.name);
        let why = match &following.state {
            _ if self.open.is_some() => None,
            FollowingState::Planned(planned) => {
                let cooling = self.cooldown.restriction(policy.name, target.scene.now, &Circumstances::of(target));
                cooling.or_else(|| guard.check_moves(policy.name, planned, target, limits).err())
            }
            FollowingState::Probing(probed) => {
                let denied = self.may_probe(policy.name, probed, target, guard, limits).err();
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
    fn charge(&mut self, counts: &Counts, is_published: bool, target: &Target<'_>, guard: &mut Guard, limits: &Limits) {
        let moved_bytes = counts.moved_since(&self.begin).bytes();
        let bytes = moved_bytes.saturating_sub(self.charged_bytes);
        self.charged_bytes = moved_bytes.max(self.charged_bytes);
        if std::mem::replace(&mut self.was_published, is_published) || is_published {
            self.is_exhausted |= bytes > 0 && guard.charge_plan(bytes, target, limits).is_err();
        } else {
            guard.charge_process(bytes, target, limits);
        }
    }
}
