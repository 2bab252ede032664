//! Who carries out the plan of a process: the helper in it, or uvmd from outside.

use std::{
    fmt,
    sync::atomic::{AtomicBool, Ordering},
    time::{Duration, Instant},
};

use actuator::{HelperPlan, Mover, PlanMove};
use call_ring::{
    Plan,
    call::Call,
    plan::{BEAT_AGE_MAX_NS, Destination},
};
use model::{ActuatorKind, GpuUuid, Place, PlanCounters, PlanReport};
use plans::{Begun, Tracker};
use recorder::Program;

/// Time without a beat after which a plan is not carried out any more.
const BEAT_AGE_MAX: Duration = Duration::from_nanos(BEAT_AGE_MAX_NS);
/// Most of it between two looks: a machine that stood still is no loop that hangs.
const LOOK_MAX: Duration = Duration::from_millis(100);

/// Executor of the plans of a process. Whoever drops it leaves no plan behind.
pub(super) trait Executor: fmt::Debug + Send {
    /// Who makes the moves.
    fn kind(&self) -> ActuatorKind;

    /// Publishes a plan in place of the last one: it is carried out from the next iteration on, as long
    /// as [`beat`](Self::beat) is called.
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
    fn sees_launches(&self) -> bool {
        false
    }

    /// Takes the next calls of the process, which had this much before them.
    fn see(&mut self, _calls: &[Call], _program: &Program) {}
}

impl Executor for HelperPlan {
    fn kind(&self) -> ActuatorKind {
        ActuatorKind::Helper
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
pub(super) struct Outside {
    mover: Mover,
    gpu: GpuUuid,
    tracker: Option<Tracker>,
    /// Reason why the plan that was published last is not carried out any more.
    ended: Option<String>,
    /// Counts of trackers of earlier plans.
    earlier: PlanCounters,
    /// Whether the loop has beaten since the last look.
    has_beaten: AtomicBool,
    looked: Instant,
    /// Time since the last beat that was seen.
    unbeaten: Duration,
}

impl Outside {
    pub(super) fn new(mover: Mover, gpu: GpuUuid) -> Self {
        Self {
            mover,
            gpu,
            tracker: None,
            ended: None,
            earlier: PlanCounters::default(),
            has_beaten: AtomicBool::new(false),
            looked: Instant::now(),
            unbeaten: Duration::ZERO,
        }
    }

    fn end(&mut self, reason: String) {
        self.mover.renew();
        self.ended = Some(reason);
    }

    /// Whether the loop that acts is there, at this time.
    fn is_live(&mut self, now: Instant) -> bool {
        let passed = now.saturating_duration_since(self.looked).min(LOOK_MAX);
        self.looked = now;
        let has_beaten = self.has_beaten.swap(false, Ordering::Relaxed);
        self.unbeaten = if has_beaten { Duration::ZERO } else { self.unbeaten + passed };
        self.unbeaten <= BEAT_AGE_MAX
    }

    fn planned_move(&self, Begun { at, step, deadline_launch }: Begun) -> PlanMove {
        let place = match step.destination {
            Destination::Gpu => Place::Gpu(self.gpu),
            Destination::Host => Place::Host,
        };
        PlanMove { at, begin: step.begin, end: step.begin.saturating_add(step.bytes), place, deadline_launch }
    }
}

impl Executor for Outside {
    fn kind(&self) -> ActuatorKind {
        ActuatorKind::Ioctl
    }

    fn publish(&mut self, plan: &Plan<'_>) -> Result<(), String> {
        self.withdraw();
        plan.check().map_err(|reason| format!("the plan is none: {reason:?}"))?;
        self.ended = None;
        self.beat();
        self.tracker = Some(Tracker::new(plan));
        Ok(())
    }

    fn withdraw(&mut self) {
        if let Some(tracker) = self.tracker.take() {
            self.earlier = self.earlier.plus(counted(&tracker));
            self.mover.renew();
        }
    }

    fn is_published(&self) -> bool {
        self.tracker.is_some()
    }

    fn beat(&self) {
        self.has_beaten.store(true, Ordering::Relaxed);
    }

    fn report(&self) -> PlanReport {
        let PlanReport { ended, counters } = self.mover.report();
        let tracked = self.tracker.as_ref().map(counted).unwrap_or_default();
        let counters = counters.plus(self.earlier).plus(tracked);
        PlanReport { ended: self.ended.clone().or(ended).filter(|_| self.is_published()), counters }
    }

    fn sees_launches(&self) -> bool {
        self.is_published() && self.ended.is_none()
    }

    fn see(&mut self, calls: &[Call], program: &Program) {
        if !self.sees_launches() {
            return;
        }
        if !self.is_live(Instant::now()) {
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
    use actuator::{Movers, Shadow};
    use call_ring::Token;
    use model::ProcessId;

    use super::*;

    const GPU: GpuUuid = GpuUuid([1; 16]);

    fn outside() -> Outside {
        let movers = Movers::new(|_| Box::new(Shadow), || false);
        Outside::new(movers.start(ProcessId { pid: 1, start_ticks: 1 }, GPU).unwrap(), GPU)
    }

    fn plan(tokens: &[Token]) -> Plan<'_> {
        Plan { gpu: GPU.0, first_launch: 1, budget_bytes: 0, tokens, moves: &[] }
    }

    #[test]
    fn plan_from_outside_ends_if_the_loop_that_acts_hangs_and_not_if_the_machine_stood_still() {
        let (mut outside, tokens, program) = (outside(), [Token::of_word(1)], Program::default());
        outside.publish(&plan(&tokens)).unwrap();
        outside.see(&[], &program);
        assert_eq!((outside.sees_launches(), outside.report().ended), (true, None));
        let begun = outside.looked;
        let mut is_live = |seconds: f64| outside.is_live(begun + Duration::from_secs_f64(seconds));
        assert!(is_live(60.0), "no look between");
        assert!((1..49).all(|look| is_live(60.0 + f64::from(look) / 10.0)));
        assert!((49..60).any(|look| !is_live(60.0 + f64::from(look) / 10.0)));
        outside.looked = Instant::now();
        outside.see(&[], &program);
        assert!(!outside.sees_launches() && outside.is_published());
        assert!(outside.report().ended.is_some_and(|reason| reason.contains("did not report in time")));
        outside.publish(&plan(&tokens)).unwrap();
        outside.see(&[], &program);
        assert_eq!((outside.sees_launches(), outside.report().ended), (true, None));
        outside.withdraw();
        assert!(!outside.sees_launches() && !outside.is_published());
    }

    #[test]
    fn what_is_no_plan_is_not_carried_out() {
        let mut outside = outside();
        assert_eq!(outside.publish(&plan(&[])), Err("the plan is none: Period".to_owned()));
        assert!(!outside.is_published());
    }
}
