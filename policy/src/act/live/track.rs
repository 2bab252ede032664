//! State of one process at one GPU: counts, open decision and cool-downs.

mod restrictions;

use std::time::SystemTime;

use model::{CallResult, Decision, DecisionId, Order, Outcome, Proposal, Stage, decision::Event};

use super::{
    arrivals::Marks,
    auto_live::MeasuredCosts,
    candidate::Candidate,
    catalogue,
    comparison::{has_returned, is_active},
    cost::RelativeCost,
    ledger::Ledger,
    live_policy::View,
    meter::{Meter, Span},
    open::OpenDecision,
    verification::{Conclusion, Verification},
};
use crate::act::{
    cooldown::{Circumstances, Cooldown},
    guard::{Admission, Guard},
    intervals::Intervals,
    life_cycle::{new_decision, set_stage},
    limits::{Limits, RETURN_WINDOWS_MAX},
    scene::Target,
};

#[derive(Debug, Default)]
pub(crate) struct Track {
    meter: Meter,
    open: Option<OpenDecision>,
    cooldown: Cooldown,
    costs: MeasuredCosts,
    /// Policy to try next, the cost under its predecessor, and the end of the predecessor.
    successor: Option<(&'static str, RelativeCost, SystemTime)>,
    /// Confirmed proposal that was rolled back because acting was switched off.
    interrupted: Option<Interrupted>,
}

/// Confirmed proposal that was rolled back by the switch, not for its effect.
#[derive(Debug)]
struct Interrupted {
    policy: &'static str,
    /// Counts in a window without it.
    without: Span,
    /// End of the proposal.
    at: SystemTime,
}

impl Interrupted {
    /// Whether the program may still be in the state of the proposal, which is no baseline for the
    /// next one.
    fn lingers(&self, window: &Span, now: SystemTime, limits: &Limits) -> bool {
        let waited = now.duration_since(self.at).unwrap_or_default();
        waited < limits.window.saturating_mul(RETURN_WINDOWS_MAX) && !has_returned(window, &self.without)
    }
}

/// Ended decision, and its advice to be withdrawn.
#[derive(Debug)]
pub(crate) struct ClosedDecision {
    pub(crate) decision: Decision,
    pub(crate) ledger: Ledger,
    /// Whether the outcome of an order is pending.
    pub(crate) is_pending: bool,
}

/// Result of one interval.
#[derive(Debug, Default)]
pub(crate) struct TrackUpdate {
    pub(crate) events: Vec<Event>,
    pub(crate) closed: Vec<ClosedDecision>,
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

    pub(crate) fn record_outcome(&mut self, outcome: &Outcome, now: SystemTime) {
        if let Some(open) = &mut self.open {
            open.record_outcome(outcome, now);
        }
    }

    /// Ends the open decision. `taken`: calendar time of the snapshot.
    pub(crate) fn close(&mut self, stage: Stage, taken: SystemTime) -> Option<(ClosedDecision, Event)> {
        let mut open = self.open.take()?;
        self.cooldown.record_end(open.decision.policy, &stage);
        set_stage(&mut open.decision, stage, taken);
        let OpenDecision { decision, ledger, is_pending, .. } = open;
        let event = Event::Updated(decision.clone());
        Some((ClosedDecision { decision, ledger, is_pending }, event))
    }

    /// Processes an interval. `is_withdrawing`: whether advice of a former decision is being
    /// withdrawn.
    pub(crate) fn update(
        &mut self,
        target: &Target<'_>,
        guard: &mut Guard,
        limits: &Limits,
        next: DecisionId,
        is_withdrawing: bool,
        marks: &mut Marks,
    ) -> TrackUpdate {
        if let Some(open) = &mut self.open {
            open.running.observe(&View::of(target, self.meter.accessed(limits.window), limits));
        }
        // Read at the same moment as the counts: half of a burst would show a wrong pace.
        let passed = self.open.as_ref().and_then(|open| open.running.passed_bytes());
        self.meter.read(target, limits.window, passed, marks);
        guard.release_reservations(target, limits);
        let mut update = TrackUpdate::default();
        if let Some(stage) = self.final_stage(target, guard, limits) {
            self.end(stage, target.scene.snapshot.taken, &mut update);
        }
        if self.open.is_some() {
            self.advance(target, guard, limits, &mut update);
        } else if !is_withdrawing && update.closed.is_empty() {
            self.propose(target, guard, limits, next, &mut update);
        }
        update
    }

    fn end(&mut self, stage: Stage, taken: SystemTime, update: &mut TrackUpdate) {
        if let Some((closed, event)) = self.close(stage, taken) {
            update.closed.push(closed);
            update.events.push(event);
        }
    }

    /// Last stage of the open decision, if its directive, the guard or verification ends it.
    fn final_stage(&mut self, target: &Target<'_>, guard: &Guard, limits: &Limits) -> Option<Stage> {
        let open = self.open.as_mut()?;
        let now = target.scene.now;
        if open.directive != *target.directive {
            self.interrupted = None;
            return Some(Stage::Ended("the directive for the process has changed".to_owned()));
        }
        let maps_unmetered = open.maps_unmetered(target, limits);
        if open.verification.is_none() {
            let may = target.permits_acting().is_ok() && open.may_act(guard, target);
            return may.then(|| Stage::Ended("it is permitted now: a trial begins".to_owned()));
        }
        if let Err(why) = target.permits_acting() {
            let confirmed = open.verification.as_ref().filter(|_| open.is_confirmed_again);
            if let Some(verification) = confirmed {
                self.interrupted = Some(Interrupted {
                    policy: open.decision.policy,
                    without: verification.window_before().clone(),
                    at: now,
                });
            }
            return Some(Stage::RolledBack(why));
        }
        if !open.ledger.is_empty()
            && let Some(why) = guard.unknown_advice(target)
        {
            return Some(Stage::Ended(why));
        }
        if maps_unmetered {
            return Some(Stage::RolledBack("the GPU's link traffic is no longer measured".to_owned()));
        }
        let name = open.decision.policy;
        if let Some(result) = open.decision.last_error.as_ref().filter(|_| open.decision.done.calls == 0) {
            if matches!(result, CallResult::Exited) {
                return Some(Stage::Ended("the process has exited".to_owned()));
            }
            if !matches!(result, CallResult::Denied(_)) {
                let why = format!("no call succeeded: {}", failure_detail(result));
                self.cooldown.start(name, now, limits, []);
                return Some(Stage::RolledBack(why));
            }
        }
        if let Some(why) = open.denial() {
            let why = format!("no call was made: {why}");
            self.cooldown.start_for_retry(name, now, limits);
            return Some(Stage::Ended(why));
        }
        let Some(verification) = &mut open.verification else { return None };
        match verification.verify(&self.meter, now, &open.touched, &open.decision.expected, open.running.has_settled())
        {
            Conclusion::Pending => None,
            Conclusion::Confirmed { is_repeated, after, cost } => {
                open.set_measured(after);
                self.costs.record(name, cost);
                if !is_repeated {
                    return None;
                }
                // After a second window: the first may be chance.
                open.is_confirmed_again = true;
                self.interrupted = None;
                self.cooldown.clear(name);
                self.superseded(target, guard, limits)
            }
            Conclusion::Failed { why, after, unless_changed } => {
                open.set_measured(after);
                if self.interrupted.take().is_some_and(|interrupted| interrupted.policy == name) {
                    // It was confirmed when acting was switched off: one failure soon afterwards is no
                    // evidence against it.
                    self.cooldown.start_short(name, now, limits);
                    return Some(Stage::RolledBack(why));
                }
                let failed_in = [open.circumstances.clone(), Circumstances::of(target)];
                self.cooldown.start(name, now, limits, failed_in.into_iter().filter(|_| unless_changed));
                Some(Stage::RolledBack(why))
            }
        }
    }

    /// Last stage of a confirmed proposal, if another policy is worth trying instead.
    fn superseded(&mut self, target: &Target<'_>, guard: &Guard, limits: &Limits) -> Option<Stage> {
        let open = self
            .open
            .as_ref()
            .filter(|open| open.directive.policy == model::policy::CHOOSER && open.running.has_settled())?;
        let (before, cost_before) = open.verification.as_ref()?.before();
        let cost = self.costs.of(open.decision.policy)?;
        let view = View::of(target, self.meter.accessed(limits.window), limits);
        let (now, circumstances, own) = (target.scene.now, Circumstances::of(target), open.decision.policy);
        // A rolled-back policy may be retried while nothing is in force, but not instead of one
        // with a benefit.
        let is_cooling_down = |policy: &str| {
            policy == own
                || self.cooldown.has_failed(policy)
                || self.cooldown.is_cooling_down(policy, now, &circumstances)
        };
        let admission = |proposal: &Proposal| guard.admission(proposal.policy, &proposal.steps, target);
        let candidates = catalogue::candidates(model::policy::CHOOSER, &view, is_cooling_down, admission);
        let better = self.costs.better(candidates, (&before, cost_before), cost)?;
        self.successor = Some((better, cost, now));
        Some(Stage::Ended(format!("{better} is tried instead: its expected effect is larger")))
    }

    fn advance(&mut self, target: &Target<'_>, guard: &mut Guard, limits: &Limits, update: &mut TrackUpdate) {
        let (now, taken) = (target.scene.now, target.scene.snapshot.taken);
        let Some(open) = &mut self.open else { return };
        if open.decision.stage == Stage::Trial && open.verification.as_ref().is_some_and(Verification::is_confirmed) {
            set_stage(&mut open.decision, Stage::Confirmed, taken);
            update.events.push(Event::Updated(open.decision.clone()));
        }
        let result =
            open.next_order(&View::of(target, self.meter.accessed(limits.window), limits), guard, target, limits);
        update.events.extend(open.take_withheld().map(Event::Withheld));
        match result {
            Ok(order) => update.order = order,
            Err(why) => {
                if open.decision.stage != Stage::Confirmed {
                    self.cooldown.start_short(open.decision.policy, now, limits);
                }
                self.end(Stage::Ended(why), taken, update);
            }
        }
    }

    /// Whether the program may still be in the state of a proposal that was rolled back when acting
    /// was switched off.
    fn lingers(&self, window: &Span, target: &Target<'_>, limits: &Limits) -> bool {
        let is_permitted = target.permits_acting().is_ok();
        self.interrupted
            .as_ref()
            .is_some_and(|interrupted| is_permitted && interrupted.lingers(window, target.scene.now, limits))
    }

    fn propose(
        &mut self,
        target: &Target<'_>,
        guard: &mut Guard,
        limits: &Limits,
        next: DecisionId,
        update: &mut TrackUpdate,
    ) {
        let now = target.scene.now;
        let window = window(target, limits);
        let (Some(before), Some(recent)) = (self.meter.last(window), self.meter.all()) else { return };
        if !is_active(&before, &recent) || self.lingers(&before, target, limits) {
            return;
        }
        let circumstances = Circumstances::of(target);
        let is_cooling_down = |policy: &str| self.cooldown.is_cooling_down(policy, now, &circumstances);
        let admission = |proposal: &Proposal| {
            target
                .permits_acting()
                .map_or_else(Admission::Shadow, |()| guard.admission(proposal.policy, &proposal.steps, target))
        };
        // After that window, the cost before a proposal is that of the driver alone again.
        let is_fresh = |at: SystemTime| now.duration_since(at).is_ok_and(|passed| passed <= limits.window);
        let successor =
            self.successor.take().filter(|(.., at)| target.directive.policy == model::policy::CHOOSER && is_fresh(*at));
        let (policy, cost_before) =
            successor.map_or((&*target.directive.policy, RelativeCost::UNCHANGED), |(policy, cost, _)| (policy, cost));
        let view = View::of(target, self.meter.accessed(window), limits);
        let candidates = catalogue::candidates(policy, &view, is_cooling_down, admission);
        let Some(Candidate { proposal, running, admission }) =
            self.costs.best(candidates, (&before.measured, cost_before))
        else {
            return;
        };
        let stage = match &admission {
            Admission::Act => Stage::Trial,
            Admission::Shadow(why) => Stage::Shadow(why.clone()),
            Admission::Denied(why) => Stage::Denied(why.clone()),
        };
        let noise = self.meter.noise(window);
        let decision = decision(next, &proposal, target, stage, &before);
        let verification =
            (admission == Admission::Act).then(|| Verification::new(before, noise, window, now, cost_before));
        let mut open =
            OpenDecision::new(decision, proposal, running, target.directive.clone(), circumstances, verification, now);
        match if admission == Admission::Act { open.begin(guard, target, limits) } else { Ok(None) } {
            Ok(order) => update.order = order,
            Err(why) => set_stage(&mut open.decision, Stage::Denied(why), target.scene.snapshot.taken),
        }
        update.events.push(Event::Created(open.decision.clone()));
        update.events.extend(open.take_withheld().map(Event::Withheld));
        if matches!(open.decision.stage, Stage::Denied(_)) {
            self.cooldown.start(open.decision.policy, now, limits, []);
            self.cooldown.record_end(open.decision.policy, &open.decision.stage);
            let OpenDecision { decision, ledger, is_pending, .. } = open;
            update.closed.push(ClosedDecision { decision, ledger, is_pending });
        } else {
            self.open = Some(open);
        }
    }
}

fn failure_detail(result: &CallResult) -> &str {
    match result {
        CallResult::Done => "it was done",
        CallResult::NotMapped => "the memory is no longer mapped",
        CallResult::Replaced => "the program has given advice of its own",
        CallResult::Exited => "the process has exited",
        CallResult::HostMemory => "there is too little host memory",
        CallResult::Cancelled => "it was cancelled",
        CallResult::Shadow => "shadow",
        CallResult::Denied(why) | CallResult::Failed(why) => why,
    }
}

/// Length of a measurement: the window of the verdict.
fn window(target: &Target<'_>, limits: &Limits) -> std::time::Duration {
    let longest = target.verdicts.iter().map(|verdict| verdict.window).max().unwrap_or_default();
    longest.clamp(limits.window, limits.window.saturating_mul(3))
}

fn decision(id: DecisionId, proposal: &Proposal, target: &Target<'_>, stage: Stage, before: &Span) -> Decision {
    let ranges = Intervals::of(proposal.steps.iter().map(|step| (step.begin, step.end)));
    let decision =
        new_decision(id, proposal.policy, proposal.reason.clone(), &ranges, proposal.expected, stage, target);
    Decision { before: before.measured, ..decision }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use model::decision::Measured;

    use super::*;

    #[test]
    fn no_baseline_is_taken_before_the_cost_without_the_proposal_is_back() {
        const MIB: u64 = 1 << 20;
        let window = |own_mib: u64, others_mib: u64| {
            Span::counted(Measured {
                window: Duration::from_secs(1),
                own_link_bytes: own_mib * MIB,
                others_evicted_bytes: others_mib * MIB,
                ..Measured::default()
            })
        };
        let at = SystemTime::UNIX_EPOCH;
        let interrupted = Interrupted { policy: "tenants", without: window(10, 4), at };
        let limits = Limits { window: Duration::from_secs(2), ..Limits::default() };
        let lingers = |own_mib, others_mib, seconds| {
            interrupted.lingers(&window(own_mib, others_mib), at + Duration::from_secs(seconds), &limits)
        };
        assert!(lingers(10, 0, 5), "it evicts nothing of others yet");
        assert!(lingers(2, 4, 5), "its own memory is still there");
        assert!(!lingers(5, 2, 5), "half of both is back");
        assert!(!lingers(0, 0, 30), "the program may do something else by now");
    }
}
