//! Who carries out the plan of a process: the helper in it, or uvmd from outside.

use std::{
    fmt,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use actuator::{FilterCheck, HelperPlan, Mover, PlanMove};
use call_ring::{
    Plan,
    call::Call,
    plan::{BEAT_AGE_MAX_NS, Destination},
};
use model::{ActuatorKind, GpuUuid, Place, PlanCounters, PlanReport};
use plans::{Begun, Tracker};
use recorder::Program;
use sys::clock;

/// Executor of the plans of a process. Whoever drops it leaves no plan behind.
pub(super) trait Executor: fmt::Debug + Send {
    /// Who makes the moves.
    fn kind(&self) -> ActuatorKind;

    /// Check that has to permit a plan before it is published, and while it is.
    fn filter_check(&self) -> Option<Arc<FilterCheck>> {
        None
    }

    /// Publishes a plan in place of the last one: it is carried out from the next iteration on, as long
    /// as [`beat`](Self::beat) is called. It waits for nobody.
    ///
    /// # Errors
    /// If it is none, or is not carried out: the reason.
    fn publish(&mut self, plan: &Plan<'_>) -> Result<(), String>;

    /// Withdraws the plan: no further move is made.
    fn withdraw(&mut self);

    /// Whether a plan was published and not withdrawn.
    fn is_published(&self) -> bool;

    /// Shows that the loop that acts is there.
    fn beat(&self);

    /// What came of the plans.
    fn report(&self) -> PlanReport;

    /// Whether it has to see launches soon after they are made.
    fn observes_launches(&self) -> bool {
        false
    }

    /// Takes the next calls of the process, which had this much before them.
    fn observe(&mut self, _calls: &[Call], _program: &Program) {}
}

impl Executor for HelperPlan {
    fn kind(&self) -> ActuatorKind {
        ActuatorKind::Helper
    }

    fn filter_check(&self) -> Option<Arc<FilterCheck>> {
        Some(Self::filter_check(self))
    }

    fn publish(&mut self, plan: &Plan<'_>) -> Result<(), String> {
        Self::publish(self, plan).map_err(|error| error.to_string())
    }

    fn withdraw(&mut self) {
        Self::withdraw(self);
    }

    fn is_published(&self) -> bool {
        Self::is_published(self)
    }

    fn beat(&self) {
        Self::beat(self);
    }

    fn report(&self) -> PlanReport {
        Self::report(self)
    }
}

/// Plan that uvmd carries out from outside of the process: its launches are seen in the recording, and
/// its moves are made by ioctl. No launch waits for them.
#[derive(Debug)]
pub(super) struct IoctlPlan {
    mover: Mover,
    gpu: GpuUuid,
    tracker: Option<Tracker>,
    /// Reason why the plan that was published last is not carried out any more.
    ended: Option<String>,
    /// Counts of trackers of earlier plans.
    earlier: PlanCounters,
    /// Time of the last beat, by the monotonic clock.
    beat_ns: AtomicU64,
}

impl IoctlPlan {
    pub(super) fn new(mover: Mover, gpu: GpuUuid) -> Self {
        Self { mover, gpu, tracker: None, ended: None, earlier: PlanCounters::default(), beat_ns: AtomicU64::new(0) }
    }

    fn end(&mut self, reason: String) {
        self.mover.reset();
        self.ended = Some(reason);
    }

    fn is_live(&self) -> bool {
        clock::monotonic_ns().saturating_sub(self.beat_ns.load(Ordering::Relaxed)) <= BEAT_AGE_MAX_NS
    }

    fn planned_move(&self, Begun { at, step, deadline_launch }: Begun) -> PlanMove {
        let place = match step.destination {
            Destination::Gpu => Place::Gpu(self.gpu),
            Destination::Host => Place::Host,
        };
        PlanMove { at, begin: step.begin, end: step.begin.saturating_add(step.bytes), place, deadline_launch }
    }
}

impl Executor for IoctlPlan {
    fn kind(&self) -> ActuatorKind {
        ActuatorKind::Ioctl
    }

    fn publish(&mut self, plan: &Plan<'_>) -> Result<(), String> {
        self.withdraw();
        plan.check().map_err(|reason| format!("the plan is invalid: {reason:?}"))?;
        self.ended = None;
        self.beat();
        self.tracker = Some(Tracker::new(plan));
        Ok(())
    }

    fn withdraw(&mut self) {
        if let Some(tracker) = self.tracker.take() {
            self.earlier = self.earlier.plus(counted(&tracker));
            self.mover.reset();
        }
    }

    fn is_published(&self) -> bool {
        self.tracker.is_some()
    }

    fn beat(&self) {
        self.beat_ns.store(clock::monotonic_ns(), Ordering::Relaxed);
    }

    fn report(&self) -> PlanReport {
        let PlanReport { ended, counters } = self.mover.report();
        let tracked = self.tracker.as_ref().map(counted).unwrap_or_default();
        let counters = counters.plus(self.earlier).plus(tracked);
        PlanReport { ended: self.ended.clone().or(ended).filter(|_| self.is_published()), counters }
    }

    fn observes_launches(&self) -> bool {
        self.is_published() && self.ended.is_none()
    }

    fn observe(&mut self, calls: &[Call], program: &Program) {
        if !self.observes_launches() {
            return;
        }
        if !self.is_live() {
            return self.end("the loop that acts did not report in time".to_owned());
        }
        let Some(tracker) = &mut self.tracker else { return };
        if let Err(ending) = tracker.add(calls, program) {
            return self.end(ending.to_string());
        }
        let (launches, begun) = (tracker.launches(), tracker.take_begun());
        self.mover.begin(launches, begun.into_iter().map(|begun| self.planned_move(begun)));
    }
}

fn counted(tracker: &Tracker) -> PlanCounters {
    PlanCounters { iterations: tracker.iterations(), skipped: tracker.skipped(), ..PlanCounters::default() }
}

#[cfg(test)]
mod tests {
    use actuator::{MoverFactory, Shadow};
    use call_ring::Token;
    use model::ProcessId;

    use super::*;

    const GPU: GpuUuid = GpuUuid([1; 16]);

    fn outside() -> IoctlPlan {
        let mover_factory = MoverFactory::new(|_| Box::new(Shadow), || false);
        IoctlPlan::new(mover_factory.start(ProcessId { pid: 1, start_ticks: 1 }, GPU).unwrap(), GPU)
    }

    fn plan(tokens: &[Token]) -> Plan<'_> {
        Plan { gpu: GPU.0, first_launch: 1, budget_bytes: 0, handover_wait_ns: 0, tokens, moves: &[] }
    }

    #[test]
    fn plan_from_outside_ends_if_the_loop_that_acts_hangs() {
        let (mut outside, tokens, program) = (outside(), [Token::of_word(1)], Program::default());
        outside.publish(&plan(&tokens)).unwrap();
        outside.observe(&[], &program);
        assert_eq!((outside.observes_launches(), outside.report().ended), (true, None));
        outside.beat_ns.store(clock::monotonic_ns().saturating_sub(BEAT_AGE_MAX_NS + 1), Ordering::Relaxed);
        outside.observe(&[], &program);
        assert!(!outside.observes_launches() && outside.is_published());
        assert!(outside.report().ended.is_some_and(|reason| reason.contains("did not report in time")));
        outside.publish(&plan(&tokens)).unwrap();
        assert_eq!((outside.observes_launches(), outside.report().ended), (true, None));
        outside.withdraw();
        assert!(!outside.observes_launches() && !outside.is_published());
    }

    #[test]
    fn what_is_no_plan_is_not_carried_out() {
        let mut outside = outside();
        assert_eq!(outside.publish(&plan(&[])), Err("the plan is invalid: Period".to_owned()));
        assert!(!outside.is_published());
    }
}
