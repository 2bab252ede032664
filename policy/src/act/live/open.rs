//! Open decision: its proposal, control and effects.

use std::time::SystemTime;

use model::{
    Action, AdviceCalls, Call, CallResult, Decision, Directive, Order, Outcome, Place, Proposal, Step, decision::Done,
};

use super::{
    ledger::Ledger,
    live_policy::{Next, Running, View, has_passed},
    verification::{Verification, VerifiedWindow},
};
use crate::act::{
    cooldown::Circumstances,
    guard::{Admission, Guard, is_unmetered},
    intervals::Intervals,
    limits::Limits,
    scene::Target,
};

/// Decision in shadow, on trial or confirmed.
#[derive(Debug)]
pub(crate) struct OpenDecision {
    pub(crate) decision: Decision,
    pub(crate) running: Box<dyn Running>,
    /// Directive in effect at its creation.
    pub(crate) directive: Directive,
    /// Circumstances at its creation.
    pub(crate) circumstances: Circumstances,
    /// First steps, whose admission is checked again while the decision is in shadow.
    first: Vec<Step>,
    /// Verification; `None` in shadow.
    pub(crate) verification: Option<Verification>,
    /// Whether a later window has confirmed it again.
    pub(crate) is_confirmed_again: bool,
    pub(crate) ledger: Ledger,
    /// Withheld steps that [`Self::take_withheld`] has not returned yet.
    withheld: Vec<Outcome>,
    /// All memory that it has affected.
    pub(crate) touched: Intervals,
    /// Whether the outcome of an order is pending.
    pub(crate) is_pending: bool,
    /// Whether the actuator has denied the whole first order.
    is_denied: bool,
    /// Time of the last reading of the GPU's link meter.
    link_read_at: SystemTime,
}

impl OpenDecision {
    pub(crate) fn new(
        decision: Decision,
        proposal: Proposal,
        running: Box<dyn Running>,
        directive: Directive,
        circumstances: Circumstances,
        verification: Option<Verification>,
        link_read_at: SystemTime,
    ) -> Self {
        Self {
            decision,
            running,
            directive,
            circumstances,
            first: proposal.steps,
            verification,
            is_confirmed_again: false,
            ledger: Ledger::default(),
            withheld: Vec::new(),
            touched: Intervals::default(),
            is_pending: false,
            is_denied: false,
            link_read_at,
        }
    }

    /// Whether it may have mapped memory remotely while link traffic was not measured for a window.
    pub(crate) fn maps_unmetered(&mut self, target: &Target<'_>, limits: &Limits) -> bool {
        let now = target.scene.now;
        if !is_unmetered(target) {
            self.link_read_at = now;
        }
        let is_long = has_passed(limits.window, self.link_read_at, now);
        is_long && self.ledger.maps_remotely()
    }

    /// Whether a decision in shadow may act now.
    pub(crate) fn may_act(&self, guard: &Guard, target: &Target<'_>) -> bool {
        self.verification.is_none() && guard.admission(self.decision.policy, &self.first, target) == Admission::Act
    }

    /// Orders the first steps. `None` without first steps, or in shadow.
    ///
    /// # Errors
    /// If the guard denies all of them: the reason.
    pub(crate) fn begin(
        &mut self,
        guard: &mut Guard,
        target: &Target<'_>,
        limits: &Limits,
    ) -> Result<Option<Order>, String> {
        let order = self.order(self.first.clone(), guard, target, limits);
        if order.is_some() {
            return Ok(order);
        }
        if let Some(CallResult::Denied(why)) = &self.decision.last_error {
            return Err(why.clone());
        }
        // Without first steps, actions follow later.
        if let Some(verification) = &mut self.verification {
            verification.record_start(target.scene.now);
        }
        Ok(None)
    }

    /// Orders the next steps, if any.
    ///
    /// # Errors
    /// If the proposal has ended: the reason.
    pub(crate) fn next_order(
        &mut self,
        view: &View<'_>,
        guard: &mut Guard,
        target: &Target<'_>,
        limits: &Limits,
    ) -> Result<Option<Order>, String> {
        if self.is_pending {
            return Ok(None);
        }
        match self.running.next_steps(view) {
            Next::Steps(steps) => Ok(self.order(steps, guard, target, limits)),
            Next::End(why) => Err(why),
        }
    }

    fn order(&mut self, steps: Vec<Step>, guard: &mut Guard, target: &Target<'_>, limits: &Limits) -> Option<Order> {
        if steps.is_empty() {
            return None;
        }
        if self.verification.is_none() {
            let calls =
                steps.into_iter().map(|step| Call { step, result: CallResult::Shadow, duration_ns: 0 }).collect();
            self.withhold(calls);
            return None;
        }
        let (admitted, denied) = guard.admit_steps(self.decision.policy, steps, target, limits);
        if !denied.is_empty() {
            self.add_calls(&denied);
            self.withhold(denied);
        }
        if admitted.is_empty() {
            return None;
        }
        for step in &admitted {
            self.ledger.record_order(step);
            self.touched.insert(step.begin, step.end);
        }
        self.is_pending = true;
        Some(Order {
            decision: self.decision.id,
            process: self.decision.process,
            gpu: self.decision.gpu,
            steps: admitted,
            is_rollback: false,
        })
    }

    /// Passes the results of withheld steps to the policy, and stores them for
    /// [`Self::take_withheld`].
    fn withhold(&mut self, calls: Vec<Call>) {
        let outcome = self.outcome(calls);
        self.running.record_outcome(&outcome);
        self.withheld.push(outcome);
    }

    /// Takes the steps withheld since the last call.
    pub(crate) fn take_withheld(&mut self) -> impl Iterator<Item = Outcome> + use<> {
        std::mem::take(&mut self.withheld).into_iter()
    }

    /// Processes the outcome of an order.
    pub(crate) fn record_outcome(&mut self, outcome: &Outcome, now: SystemTime) {
        self.is_pending = false;
        for call in &outcome.calls {
            self.ledger.record_result(call);
        }
        let is_denied = |call: &Call| matches!(call.result, CallResult::Denied(_));
        self.is_denied = self.decision.done.calls == 0 && outcome.calls.iter().all(is_denied);
        self.decision.actuator = outcome.actuator.or(self.decision.actuator);
        self.add_calls(&outcome.calls);
        self.running.record_outcome(outcome);
        if let Some(verification) = &mut self.verification {
            verification.record_start(now);
        }
    }

    /// Reason why the actuator has denied the whole first order; `None` if it has not. After a
    /// denial, there is nothing in force to verify.
    pub(crate) fn denial(&self) -> Option<&str> {
        match &self.decision.last_error {
            Some(CallResult::Denied(why)) if self.is_denied && self.ledger.is_empty() => Some(why),
            _ => None,
        }
    }

    fn add_calls(&mut self, calls: &[Call]) {
        add_calls(&mut self.decision, calls);
        self.decision.done.advised_bytes = self.ledger.bytes();
        for advice in self.ledger.advice() {
            if !self.decision.advice.contains(&advice) {
                self.decision.advice.push(advice);
            }
        }
    }

    fn outcome(&self, calls: Vec<Call>) -> Outcome {
        Outcome {
            decision: self.decision.id,
            process: self.decision.process,
            gpu: self.decision.gpu,
            is_rollback: false,
            actuator: None,
            calls,
            advice_calls: AdviceCalls::default(),
            ready_ns: 0,
        }
    }

    pub(crate) fn set_measured(&mut self, (after, pace): VerifiedWindow) {
        (self.decision.after, self.decision.pace) = (Some(after), Some(pace));
    }
}

/// Adds the results of calls to a decision.
pub(crate) fn add_calls(decision: &mut Decision, calls: &[Call]) {
    let Decision { done, last_error, .. } = decision;
    for Call { step, result, duration_ns } in calls {
        if *result == CallResult::Done {
            add(done, step);
        } else if *result != CallResult::Shadow {
            done.failed = done.failed.saturating_add(1);
            *last_error = Some(result.clone());
        }
        done.longest_ns = done.longest_ns.max(*duration_ns);
    }
}

fn add(done: &mut Done, step: &Step) {
    done.calls = done.calls.saturating_add(1);
    match step.action {
        Action::Migrate(Place::Gpu(_)) => done.to_gpu_bytes = done.to_gpu_bytes.saturating_add(step.bytes()),
        Action::Migrate(Place::Host) => done.to_host_bytes = done.to_host_bytes.saturating_add(step.bytes()),
        Action::Touch(_) => done.touches = done.touches.saturating_add(1),
        Action::Advise(_) | Action::Withdraw(_) => {}
    }
}
