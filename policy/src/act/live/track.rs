//! State of one process at one GPU: counts, open decision and cool-downs.

mod restrictions;

use std::time::SystemTime;

use model::{CallResult, Decision, DecisionId, Order, Outcome, Plan, Stage, decision::Event};

use super::{
    arrivals::Marks,
    auto_live::MeasuredCosts,
    catalogue,
    comparison::is_at_work,
    cost::RelativeCost,
    ledger::Ledger,
    live_policy::View,
    meter::{Meter, Span},
    open::OpenDecision,
    proposal::Proposal,
    verification::{Conclusion, Verification},
};
use crate::act::{
    cooldown::{Circumstances, Cooldown},
    guard::{Admission, Guard},
    intervals::Intervals,
    life_cycle::{enter, proposed},
    limits::Limits,
    scene::Sight,
};

#[derive(Debug, Default)]
pub(crate) struct Track {
    meter: Meter,
    open: Option<OpenDecision>,
    cooldown: Cooldown,
    costs: MeasuredCosts,
    /// Policy to try next, the cost under its predecessor, and the end of the predecessor.
    successor: Option<(&'static str, RelativeCost, SystemTime)>,
}

/// Ended decision, and its advice to be withdrawn.
#[derive(Debug)]
pub(crate) struct Closed {
    pub(crate) decision: Decision,
    pub(crate) ledger: Ledger,
    /// Whether the outcome of an order is pending.
    pub(crate) is_pending: bool,
}

/// Result of one interval.
#[derive(Debug, Default)]
pub(crate) struct Turn {
    pub(crate) events: Vec<Event>,
    pub(crate) closed: Vec<Closed>,
    pub(crate) order: Option<Order>,
}

impl Track {
    pub(crate) fn decision(&self) -> Option<&Decision> {
        self.open.as_ref().map(|open| &open.decision)
    }

    pub(crate) fn has_open(&self, decision: DecisionId) -> bool {
        self.decision().is_some_and(|open| open.id == decision)
    }

    /// Whether uvmd acts on the process, beyond reports.
    pub(crate) fn acts(&self) -> bool {
        self.open.as_ref().is_some_and(|open| open.verification.is_some())
    }

    /// Whether a decision is open.
    pub(crate) const fn is_open(&self) -> bool {
        self.open.is_some()
    }

    /// Whether the outcome of an order is pending.
    pub(crate) fn has_pending_order(&self) -> bool {
        self.open.as_ref().is_some_and(|open| open.is_pending)
    }

    /// Whether a decision is open, or counts have changed recently.
    pub(crate) fn is_busy(&self) -> bool {
        self.open.is_some() || self.meter.is_busy()
    }

    pub(crate) fn carried_out(&mut self, outcome: &Outcome, now: SystemTime) {
        if let Some(open) = &mut self.open {
            open.carried_out(outcome, now);
        }
    }

    /// Ends the open decision. `taken`: calendar time of the snapshot.
    pub(crate) fn close(&mut self, stage: Stage, taken: SystemTime) -> Option<(Closed, Event)> {
        let mut open = self.open.take()?;
        enter(&mut open.decision, stage, taken);
        let OpenDecision { decision, ledger, is_pending, .. } = open;
        let event = Event::Updated(decision.clone());
        Some((Closed { decision, ledger, is_pending }, event))
    }

    /// Processes an interval. `is_withdrawing`: whether advice of a former decision is being
    /// withdrawn.
    pub(crate) fn turn(
        &mut self,
        sight: &Sight<'_>,
        guard: &mut Guard,
        limits: &Limits,
        next: DecisionId,
        is_withdrawing: bool,
        marks: &mut Marks,
    ) -> Turn {
        if let Some(open) = &mut self.open {
            open.running.see(&View::of(sight, self.meter.accessed(limits.window), limits));
        }
        // Read at the same moment as the counts: half of a burst would show a wrong pace.
        let passed = self.open.as_ref().and_then(|open| open.running.passed_bytes());
        self.meter.read(sight, limits.window, passed, marks);
        guard.release_reservations(sight, limits);
        let mut turn = Turn::default();
        if let Some(stage) = self.last_stage(sight, guard, limits) {
            self.end(stage, sight.scene.snapshot.taken, &mut turn);
        }
        if self.open.is_some() {
            self.advance(sight, guard, limits, &mut turn);
        } else if !is_withdrawing && turn.closed.is_empty() {
            self.propose(sight, guard, limits, next, &mut turn);
        }
        turn
    }

    fn end(&mut self, stage: Stage, taken: SystemTime, turn: &mut Turn) {
        if let Some((closed, event)) = self.close(stage, taken) {
            turn.closed.push(closed);
            turn.events.push(event);
        }
    }

    /// Last stage of the open decision, if its directive, the guard or verification ends it.
    fn last_stage(&mut self, sight: &Sight<'_>, guard: &Guard, limits: &Limits) -> Option<Stage> {
        let open = self.open.as_mut()?;
        let now = sight.scene.now;
        if open.directive != *sight.directive {
            return Some(Stage::Ended("the directive for the process has changed".to_owned()));
        }
        let maps_unmetered = open.maps_unmetered(sight, limits);
        if open.verification.is_none() {
            let may = sight.permits_acting().is_ok() && open.may_act(guard, sight);
            return may.then(|| Stage::Ended("it is permitted now: a trial begins".to_owned()));
        }
        if let Err(why) = sight.permits_acting() {
            return Some(Stage::RolledBack(why));
        }
        if !open.ledger.is_empty()
            && let Some(why) = guard.unknown_advice(sight)
        {
            return Some(Stage::Ended(why));
        }
        if maps_unmetered {
            return Some(Stage::RolledBack("the GPU's link traffic is not measured any more".to_owned()));
        }
        let name = open.decision.policy;
        if let Some(answer) = open.decision.last_error.as_ref().filter(|_| open.decision.done.calls == 0) {
            if matches!(answer, CallResult::Exited) {
                return Some(Stage::Ended("the process has exited".to_owned()));
            }
            if !matches!(answer, CallResult::Denied(_)) {
                let why = format!("no call succeeded: {}", detail(answer));
                self.cooldown.begin(name, now, limits, []);
                return Some(Stage::RolledBack(why));
            }
        }
        if let Some(why) = open.denial() {
            let why = format!("no call was made: {why}");
            self.cooldown.retry_later(name, now, limits);
            return Some(Stage::Ended(why));
        }
        let Some(verification) = &mut open.verification else { return None };
        match verification.verify(&self.meter, now, &open.touched, &open.decision.expected, open.running.has_settled())
        {
            Conclusion::Open => None,
            Conclusion::Keeps { again, after, cost } => {
                open.set_measured(after);
                self.costs.record(name, cost);
                if !again {
                    return None;
                }
                // After a second window: the first may be chance.
                self.cooldown.forget(name);
                self.superseded(sight, guard, limits)
            }
            Conclusion::Fails { why, after, unless_changed } => {
                open.set_measured(after);
                let failed_in = [open.circumstances.clone(), Circumstances::of(sight)];
                self.cooldown.begin(name, now, limits, failed_in.into_iter().filter(|_| unless_changed));
                Some(Stage::RolledBack(why))
            }
        }
    }

    /// Last stage of a confirmed proposal, if another policy is worth trying instead.
    fn superseded(&mut self, sight: &Sight<'_>, guard: &Guard, limits: &Limits) -> Option<Stage> {
        let open = self
            .open
            .as_ref()
            .filter(|open| open.directive.policy == model::policy::CHOOSER && open.running.has_settled())?;
        let (before, cost_before) = open.verification.as_ref()?.before();
        let cost = self.costs.of(open.decision.policy)?;
        let view = View::of(sight, self.meter.accessed(limits.window), limits);
        let (now, circumstances, own) = (sight.scene.now, Circumstances::of(sight), open.decision.policy);
        // A rolled-back policy may be retried while nothing is in force, but not instead of one
        // with a benefit.
        let is_cooling_down = |policy: &str| {
            policy == own
                || self.cooldown.has_failed(policy)
                || self.cooldown.remaining(policy, now, &circumstances).is_some()
        };
        let admits = |plan: &Plan| guard.admits(plan.policy, &plan.steps, sight);
        let proposals = catalogue::proposals(model::policy::CHOOSER, &view, is_cooling_down, admits);
        let better = self.costs.better(proposals, (&before, cost_before), cost)?;
        self.successor = Some((better, cost, now));
        Some(Stage::Ended(format!("{better} is tried instead: its expected effect is larger")))
    }

    fn advance(&mut self, sight: &Sight<'_>, guard: &mut Guard, limits: &Limits, turn: &mut Turn) {
        let (now, taken) = (sight.scene.now, sight.scene.snapshot.taken);
        let Some(open) = &mut self.open else { return };
        if open.decision.stage == Stage::Trial && open.verification.as_ref().is_some_and(Verification::is_confirmed) {
            enter(&mut open.decision, Stage::Confirmed, taken);
            turn.events.push(Event::Updated(open.decision.clone()));
        }
        let result =
            open.next_order(&View::of(sight, self.meter.accessed(limits.window), limits), guard, sight, limits);
        turn.events.extend(open.take_withheld().map(Event::Withheld));
        match result {
            Ok(order) => turn.order = order,
            Err(why) => {
                if open.decision.stage != Stage::Confirmed {
                    self.cooldown.pause(open.decision.policy, now, limits);
                }
                self.end(Stage::Ended(why), taken, turn);
            }
        }
    }

    fn propose(&mut self, sight: &Sight<'_>, guard: &mut Guard, limits: &Limits, next: DecisionId, turn: &mut Turn) {
        let now = sight.scene.now;
        let window = window(sight, limits);
        let (Some(before), Some(lately)) = (self.meter.last(window), self.meter.all()) else { return };
        if !is_at_work(&before, &lately) {
            return;
        }
        let circumstances = Circumstances::of(sight);
        let is_cooling_down = |policy: &str| self.cooldown.remaining(policy, now, &circumstances).is_some();
        let admits = |plan: &Plan| {
            sight.permits_acting().map_or_else(Admission::Shadow, |()| guard.admits(plan.policy, &plan.steps, sight))
        };
        // After that window, the cost before a proposal is that of the driver alone again.
        let is_fresh = |at: SystemTime| now.duration_since(at).is_ok_and(|passed| passed <= limits.window);
        let successor =
            self.successor.take().filter(|(.., at)| sight.directive.policy == model::policy::CHOOSER && is_fresh(*at));
        let (policy, cost_before) =
            successor.map_or((&*sight.directive.policy, RelativeCost::UNCHANGED), |(policy, cost, _)| (policy, cost));
        let view = View::of(sight, self.meter.accessed(window), limits);
        let proposals = catalogue::proposals(policy, &view, is_cooling_down, admits);
        let Some(Proposal { plan, running, admission }) = self.costs.best(proposals, (&before.measured, cost_before))
        else {
            return;
        };
        let stage = match &admission {
            Admission::Act => Stage::Trial,
            Admission::Shadow(why) => Stage::Shadow(why.clone()),
            Admission::Denied(why) => Stage::Denied(why.clone()),
        };
        let noise = self.meter.noise(window);
        let decision = decision(next, &plan, sight, stage, &before);
        let verification =
            (admission == Admission::Act).then(|| Verification::new(before, noise, window, now, cost_before));
        let mut open =
            OpenDecision::new(decision, plan, running, sight.directive.clone(), circumstances, verification, now);
        match if admission == Admission::Act { open.begin(guard, sight, limits) } else { Ok(None) } {
            Ok(order) => turn.order = order,
            Err(why) => enter(&mut open.decision, Stage::Denied(why), sight.scene.snapshot.taken),
        }
        turn.events.push(Event::Created(open.decision.clone()));
        turn.events.extend(open.take_withheld().map(Event::Withheld));
        if matches!(open.decision.stage, Stage::Denied(_)) {
            self.cooldown.begin(open.decision.policy, now, limits, []);
            let OpenDecision { decision, ledger, is_pending, .. } = open;
            turn.closed.push(Closed { decision, ledger, is_pending });
        } else {
            self.open = Some(open);
        }
    }
}

fn detail(answer: &CallResult) -> &str {
    match answer {
        CallResult::Done => "it was done",
        CallResult::NotMapped => "the memory is not mapped any more",
        CallResult::Replaced => "the program has given advice of its own",
        CallResult::Exited => "the process has exited",
        CallResult::HostMemory => "there is too little host memory",
        CallResult::Cancelled => "it was cancelled",
        CallResult::Shadow => "shadow",
        CallResult::Denied(why) | CallResult::Failed(why) => why,
    }
}

/// Length of a measurement: the window of the verdict.
fn window(sight: &Sight<'_>, limits: &Limits) -> std::time::Duration {
    let longest = sight.verdicts.iter().map(|verdict| verdict.window).max().unwrap_or_default();
    longest.clamp(limits.window, limits.window.saturating_mul(3))
}

fn decision(id: DecisionId, plan: &Plan, sight: &Sight<'_>, stage: Stage, before: &Span) -> Decision {
    let ranges = Intervals::of(plan.steps.iter().map(|step| (step.begin, step.end)));
    let proposed = proposed(id, plan.policy, plan.reason.clone(), &ranges, plan.expected, stage, sight);
    Decision { before: before.measured, ..proposed }
}
