//! Advice that may be in force because of a decision.

use std::collections::BTreeMap;

use model::{Action, Advice, Call, CallResult, Step};

use crate::act::intervals::Intervals;

/// Ledger of advice. Advice may be in force from its order until its withdrawal succeeds, or until
/// its call is known to have had no effect.
#[derive(Clone, Debug, Default)]
pub(crate) struct Ledger {
    /// Ordered advice whose outcome is pending.
    ordered: BTreeMap<Advice, Intervals>,
    /// Advice that may be in force, by the results of its calls.
    given: BTreeMap<Advice, Intervals>,
}

impl Ledger {
    pub(crate) fn record_order(&mut self, step: &Step) {
        if let Action::Advise(advice) = step.action {
            self.ordered.entry(advice).or_default().insert(step.begin, step.end);
        }
    }

    /// Records advice that may be in force, from the journal of a former run.
    pub(crate) fn record_in_force(&mut self, step: &Step) {
        if let Action::Advise(advice) = step.action {
            self.given.entry(advice).or_default().insert(step.begin, step.end);
        }
    }

    /// Processes the result of a call.
    pub(crate) fn record_result(&mut self, Call { step, result, .. }: &Call) {
        match step.action {
            Action::Advise(advice) => {
                remove(&mut self.ordered, advice, step);
                match result {
                    // A failed call may have taken effect in part.
                    CallResult::Done | CallResult::Failed(_) => {
                        self.given.entry(advice).or_default().insert(step.begin, step.end);
                    }
                    CallResult::NotMapped | CallResult::Exited => remove(&mut self.given, advice, step),
                    CallResult::Replaced
                    | CallResult::HostMemory
                    | CallResult::Cancelled
                    | CallResult::Shadow
                    | CallResult::Denied(_) => {}
                }
            }
            Action::Withdraw(advice) if result.leaves_no_advice() => remove(&mut self.given, advice, step),
            Action::Withdraw(_) | Action::Migrate(_) | Action::Touch(_) => {}
        }
    }

    /// Steps that withdraw all advice: accessed-by before the preferred location. In the other order,
    /// a page on the host would have accessed-by alone for a moment. An access of the GPU would then
    /// map it remotely for good.
    pub(crate) fn withdrawals(&self) -> Vec<Step> {
        let mut all = self.given.clone();
        for (advice, intervals) in &self.ordered {
            let together = all.entry(*advice).or_default();
            intervals.iter().for_each(|(begin, end)| together.insert(begin, end));
        }
        let each = all.iter().rev().flat_map(|(advice, intervals)| intervals.iter().map(move |at| (*advice, at)));
        each.map(|(advice, (begin, end))| Step { begin, end, action: Action::Withdraw(advice) }).collect()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.ordered.is_empty() && self.given.is_empty()
    }

    /// Whether any advice may have mapped memory remotely.
    pub(crate) fn maps_remotely(&self) -> bool {
        self.ordered.keys().chain(self.given.keys()).any(|advice| Action::Advise(*advice).maps_remotely())
    }

    /// Bytes with advice in force.
    pub(crate) fn bytes(&self) -> u64 {
        let mut all = Intervals::default();
        for (begin, end) in self.given.values().flat_map(Intervals::iter) {
            all.insert(begin, end);
        }
        all.bytes()
    }

    /// Kinds of advice in force.
    pub(crate) fn advice(&self) -> impl Iterator<Item = Advice> {
        self.given.keys().copied()
    }
}

fn remove(from: &mut BTreeMap<Advice, Intervals>, advice: Advice, step: &Step) {
    if let Some(intervals) = from.get_mut(&advice) {
        intervals.remove(step.begin, step.end);
        if intervals.is_empty() {
            from.remove(&advice);
        }
    }
}

#[cfg(test)]
mod tests {
    use model::{GpuUuid, Place};

    use super::*;

    const ADVICE: Advice = Advice::AccessedBy(GpuUuid([1; 16]));

    fn call(begin: u64, end: u64, action: Action, result: CallResult) -> Call {
        Call { step: Step { begin, end, action }, result, duration_ns: 0 }
    }

    #[test]
    fn withdrawals_omit_advice_not_given_or_already_withdrawn() {
        let mut ledger = Ledger::default();
        ledger.record_order(&Step { begin: 0, end: 100, action: Action::Advise(ADVICE) });
        ledger.record_result(&call(0, 20, Action::Advise(ADVICE), CallResult::Done));
        ledger.record_result(&call(20, 40, Action::Advise(ADVICE), CallResult::NotMapped));
        ledger.record_result(&call(40, 60, Action::Advise(ADVICE), CallResult::Failed("busy".to_owned())));
        ledger.record_result(&call(0, 10, Action::Withdraw(ADVICE), CallResult::Done));
        let withdraw = |begin, end| Step { begin, end, action: Action::Withdraw(ADVICE) };
        assert_eq!(ledger.withdrawals(), [withdraw(10, 20), withdraw(40, 100)]);
        assert_eq!(ledger.bytes(), 30, "the rest is not known yet");
        ledger.record_result(&call(60, 100, Action::Advise(ADVICE), CallResult::Exited));
        ledger.record_result(&call(0, 100, Action::Withdraw(ADVICE), CallResult::Exited));
        assert!(ledger.is_empty());
    }

    #[test]
    fn accessed_by_is_withdrawn_before_preferred_location() {
        let given = [Advice::PreferredLocation(Place::Host), ADVICE];
        let mut ledger = Ledger::default();
        for advice in given {
            ledger.record_in_force(&Step { begin: 0, end: 100, action: Action::Advise(advice) });
        }
        let withdrawn = ledger.withdrawals().into_iter().map(|step| step.action);
        assert_eq!(withdrawn.collect::<Vec<_>>(), [ADVICE, given[0]].map(Action::Withdraw));
    }

    #[test]
    fn cancelled_repetition_keeps_earlier_advice() {
        let mut ledger = Ledger::default();
        for result in [CallResult::Done, CallResult::Cancelled] {
            ledger.record_order(&Step { begin: 0, end: 100, action: Action::Advise(ADVICE) });
            ledger.record_result(&call(0, 100, Action::Advise(ADVICE), result));
        }
        assert_eq!(ledger.withdrawals().len(), 1);
    }
}
