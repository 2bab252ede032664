//! Withdrawal of all advice, before uvmd serves or as it ends: its time limits, and the processes
//! whose advice remains in force.

use std::{
    collections::BTreeSet,
    error::Error,
    fmt, fs,
    time::{Duration, Instant, SystemTime},
};

use model::{Outcome, ProcessId};

use super::Actuation;

/// Time without an outcome after which failed withdrawals are repeated.
const RETRY_DELAY: Duration = Duration::from_millis(250);
/// Maximum of processes named, of those whose advice is in force.
const NAMED_MAX: usize = 8;

/// Time for the withdrawal of all advice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct WithdrawalTimeouts {
    /// Limit without progress: a process may hold its locks for ever.
    pub(crate) stalled: Duration,
    /// Total limit.
    pub(crate) in_all: Duration,
}

impl WithdrawalTimeouts {
    /// Before uvmd serves; if this is too short, the withdrawal continues in the background.
    pub(crate) const AT_START: Self = Self { stalled: Duration::from_secs(2), in_all: Duration::from_secs(15) };
    /// As uvmd ends.
    pub(crate) const AT_STOP: Self = Self { stalled: Duration::from_secs(5), in_all: Duration::from_secs(15) };
}

/// Processes whose advice could not be withdrawn in time. The journal still has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct StillInForce(BTreeSet<ProcessId>);

impl Error for StillInForce {}

impl fmt::Display for StillInForce {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(processes) = self;
        f.write_str("advice is still in effect for ")?;
        for (at, process) in processes.iter().take(NAMED_MAX).enumerate() {
            write!(f, "{}process {}{}", if at == 0 { "" } else { ", " }, process.pid, CommandName(*process))?;
        }
        if let more @ 1.. = processes.len().saturating_sub(NAMED_MAX) {
            write!(f, " and {more} more")?;
        }
        f.write_str(": the next start of uvmd withdraws it, or `uvmd --withdraw`")
    }
}

/// Short name of a process in brackets, if it can be read.
pub(crate) struct CommandName(pub(crate) ProcessId);

impl fmt::Display for CommandName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match fs::read_to_string(format!("/proc/{}/comm", self.0.pid)) {
            Ok(name) => write!(f, " ({})", name.trim_end().escape_default()),
            Err(_) => Ok(()),
        }
    }
}

impl Actuation {
    /// Waits until all advice is withdrawn. Failed withdrawals are repeated as long as others
    /// succeed: each is tried at least once.
    ///
    /// # Errors
    /// Processes whose advice is in force at the end of the time.
    pub(in crate::acting) fn withdraw_all(
        &mut self,
        timeouts: WithdrawalTimeouts,
        now: impl Fn() -> SystemTime,
    ) -> Result<(), StillInForce> {
        let begun = Instant::now();
        let (end, mut stalled) = (begun + timeouts.in_all, begun + timeouts.stalled);
        let mut is_first_turn = true;
        while self.acting.is_withdrawing() {
            let left = end.min(stalled).saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(StillInForce(self.acting.withdrawing()));
            }
            let Some(outcome) = self.workers.next_outcome(left.min(RETRY_DELAY)) else {
                for order in self.acting.retry_withdrawals() {
                    is_first_turn = false;
                    self.workers.submit(order);
                }
                continue;
            };
            if is_first_turn || is_progress(&outcome) {
                stalled = Instant::now() + timeouts.stalled;
            }
            self.acting.record_outcome(outcome, now());
        }
        Ok(())
    }
}

/// Whether an outcome contains a withdrawal.
fn is_progress(outcome: &Outcome) -> bool {
    outcome.calls.iter().any(|call| call.result.leaves_no_advice())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use actuator::Workers;
    use model::{Action, Actuator, Advice, Call, CallResult, DecisionId, GpuUuid, Interrupt, Order, Place, Step};
    use policy::act::{Engine, InForce, Limits};

    use super::*;

    const GPU: GpuUuid = GpuUuid([1; 16]);
    /// Longer than any wait.
    const LONG: Duration = Duration::from_mins(2);

    const fn process(pid: u32) -> ProcessId {
        ProcessId { pid, start_ticks: 1 }
    }

    /// Fails this many attempts for each process.
    struct Refuses(BTreeMap<u32, u32>);

    impl Actuator for Refuses {
        fn execute(&mut self, order: &Order, _interrupt: &dyn Interrupt) -> Outcome {
            let tries = self.0.entry(order.process.pid).or_default();
            let answer = if *tries == 0 { CallResult::Done } else { CallResult::Failed("it hangs".to_owned()) };
            *tries = tries.saturating_sub(1);
            let calls = order.steps.iter().map(|step| Call { step: *step, result: answer.clone(), duration_ns: 1 });
            Outcome::new(order, calls.collect())
        }
    }

    /// Advice of a former run for each of these processes, whose withdrawal fails this many times.
    fn actuation(refusals: &[(u32, u32)]) -> Actuation {
        let mut acting = Engine::new(Limits::default());
        let step = Step { begin: 0, end: 4096, action: Action::Advise(Advice::PreferredLocation(Place::Gpu(GPU))) };
        let in_force = refusals.iter().zip(1..).map(|((pid, _), decision)| InForce {
            decision: DecisionId(decision),
            process: process(*pid),
            gpu: GPU,
            steps: vec![step],
        });
        let orders = acting.adopt(in_force.collect(), DecisionId(100));
        let refusals: BTreeMap<u32, u32> = refusals.iter().copied().collect();
        let make = move |_| -> Box<dyn Actuator> { Box::new(Refuses(refusals.clone())) };
        let mut workers = Workers::start(make, || false, None);
        for order in orders {
            workers.submit(order);
        }
        Actuation { acting, workers, numbers: None, journal: None, has_leftovers: true }
    }

    #[test]
    fn failed_withdrawal_is_repeated_after_the_others() {
        let mut actuation = actuation(&[(1, 2), (2, 0), (3, 1)]);
        let timeouts = WithdrawalTimeouts { stalled: LONG, in_all: LONG };
        assert_eq!(actuation.withdraw_all(timeouts, SystemTime::now), Ok(()));
    }

    #[test]
    fn processes_with_advice_in_force_are_reported_and_others_withdrawn() {
        let own = std::process::id();
        let mut actuation = actuation(&[(own, u32::MAX), (u32::MAX, 0)]);
        let timeouts = WithdrawalTimeouts { stalled: Duration::from_secs(1), in_all: LONG };
        let left = actuation.withdraw_all(timeouts, SystemTime::now).unwrap_err();
        assert_eq!(left, StillInForce([process(own)].into()));
        let message = left.to_string();
        assert!(message.starts_with(&format!("advice is still in effect for process {own} (")), "{message}");
        assert!(message.ends_with("): the next start of uvmd withdraws it, or `uvmd --withdraw`"), "{message}");
    }

    #[test]
    fn first_of_many_processes_are_named() {
        let left = StillInForce((1..=10).map(|number| process(u32::MAX - number)).collect());
        let message = left.to_string();
        assert_eq!(message.matches("process ").count(), 8, "{message}");
        assert!(message.contains(" and 2 more: the next start"), "{message}");
    }
}
