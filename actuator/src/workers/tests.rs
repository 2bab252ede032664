mod hung;
mod journal;

use std::sync::{
    Condvar, Mutex,
    atomic::{AtomicBool, AtomicUsize, Ordering},
};

use model::{Action, Call, DecisionId, Interrupt, ProcessId, Step};

use super::{queue::gives_advice, *};
use crate::journal::Timeouts;

const GPU: GpuUuid = GpuUuid([1; 16]);
const SOON: Duration = Duration::from_mins(2);

fn order(decision: u64, is_rollback: bool) -> Order {
    let steps = vec![Step { begin: 0, end: 4096, action: Action::Touch(GPU) }];
    let process = ProcessId { pid: 1, start_ticks: 1 };
    Order { decision: DecisionId(decision), process, gpu: GPU, steps, is_rollback }
}

/// Actuator that each order blocks until the test releases it.
#[derive(Default)]
struct Gate {
    open: Mutex<bool>,
    changed: Condvar,
    arrived: AtomicUsize,
}

impl Gate {
    fn open(&self) {
        *self.open.lock().unwrap() = true;
        self.changed.notify_all();
    }

    fn wait_for_arrivals(&self, count: usize) {
        let deadline = Instant::now() + SOON;
        while self.arrived.load(Ordering::Relaxed) < count {
            assert!(Instant::now() < deadline, "too few arrivals");
            thread::sleep(Duration::from_millis(1));
        }
    }
}

struct Gated(Arc<Gate>);

impl Actuator for Gated {
    fn execute(&mut self, order: &Order, interrupt: &dyn Interrupt) -> Outcome {
        self.0.arrived.fetch_add(1, Ordering::Relaxed);
        let mut open = self.0.open.lock().unwrap();
        while !*open {
            open = self.0.changed.wait(open).unwrap();
        }
        let answer =
            if !order.is_rollback && interrupt.is_cancelled() { CallResult::Cancelled } else { CallResult::Done };
        let calls =
            order.steps.iter().map(|step| Call { step: *step, result: answer.clone(), duration_ns: 1 }).collect();
        Outcome::new(order, calls)
    }
}

fn gated() -> (Workers, Arc<Gate>) {
    let gate = Arc::new(Gate::default());
    let made = Arc::clone(&gate);
    (Workers::start(move |_| Box::new(Gated(Arc::clone(&made))), || false, None), gate)
}

/// This many outcomes as (decision, whether it is a withdrawal, result).
fn results(workers: &Workers, count: usize) -> Vec<(u64, bool, CallResult)> {
    let results = |outcome: Outcome| (outcome.decision.0, outcome.is_rollback, outcome.calls[0].result.clone());
    (0..count).map(|_| results(workers.next_outcome(SOON).expect("an outcome"))).collect()
}

#[test]
fn orders_are_executed_in_sequence_and_rollbacks_first() {
    let (mut workers, gate) = gated();
    workers.submit(order(1, false));
    gate.wait_for_arrivals(1);
    workers.submit(order(2, false));
    workers.submit(order(3, false));
    workers.submit(order(9, true));
    gate.open();
    let done = |decision, is_rollback| (decision, is_rollback, CallResult::Done);
    assert_eq!(results(&workers, 4), [done(1, false), done(9, true), done(2, false), done(3, false)]);
}

#[test]
fn rolled_back_order_does_not_start() {
    let (mut workers, gate) = gated();
    workers.submit(order(1, false));
    gate.wait_for_arrivals(1);
    workers.submit(order(2, false));
    workers.submit(order(1, false));
    workers.submit(order(1, true));
    // The waiting one has its result at once, the executing one stops, and only then is it
    // withdrawn.
    assert_eq!(results(&workers, 1), [(1, false, CallResult::Cancelled)]);
    gate.open();
    let rest = [(1, false, CallResult::Cancelled), (1, true, CallResult::Done), (2, false, CallResult::Done)];
    assert_eq!(results(&workers, 3), rest);
}

#[test]
fn full_queue_denies_orders_but_no_rollbacks() {
    let (mut workers, gate) = gated();
    workers.submit(order(0, false));
    gate.wait_for_arrivals(1);
    for decision in 1..=65 {
        workers.submit(order(decision, false));
    }
    let full = CallResult::Denied("the queue of this GPU is full: 64 orders wait".to_owned());
    assert_eq!(results(&workers, 1), [(65, false, full)]);
    for decision in 100..200 {
        workers.submit(order(decision, true));
    }
    gate.open();
    let rest = results(&workers, 165);
    assert!(rest.iter().all(|(_, _, answer)| *answer == CallResult::Done));
    assert_eq!(rest.iter().filter(|(_, is_rollback, _)| *is_rollback).count(), 100);
}

struct Panics(Arc<AtomicBool>);

impl Actuator for Panics {
    fn execute(&mut self, order: &Order, _interrupt: &dyn Interrupt) -> Outcome {
        assert!(self.0.swap(true, Ordering::Relaxed), "out of luck");
        uniform_outcome(order, &CallResult::Done)
    }
}

#[test]
fn panic_fails_its_order_and_the_next_is_executed() {
    let (had_luck, made) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
    let count = Arc::clone(&made);
    let mut workers = Workers::start(
        move |_| {
            count.fetch_add(1, Ordering::Relaxed);
            Box::new(Panics(Arc::clone(&had_luck)))
        },
        || false,
        None,
    );
    workers.submit(order(1, false));
    workers.submit(order(2, false));
    let failed = CallResult::Failed("the worker panicked: out of luck".to_owned());
    assert_eq!(results(&workers, 2), [(1, false, failed), (2, false, CallResult::Done)]);
    assert_eq!(made.load(Ordering::Relaxed), 2, "what panicked is not used again");
}

#[test]
fn hung_worker_does_not_delay_other_gpus() {
    let (mut workers, gate) = gated();
    workers.submit(order(1, false));
    gate.wait_for_arrivals(1);
    workers.submit(Order { gpu: GpuUuid([2; 16]), ..order(2, false) });
    gate.wait_for_arrivals(2);
    gate.open();
    assert_eq!(results(&workers, 2).len(), 2);
}

/// Actuator that runs until its order is cancelled.
struct UntilOff;

impl Actuator for UntilOff {
    fn execute(&mut self, order: &Order, interrupt: &dyn Interrupt) -> Outcome {
        while !order.is_rollback && !interrupt.is_cancelled() {
            thread::sleep(Duration::from_millis(1));
        }
        uniform_outcome(order, if order.is_rollback { &CallResult::Done } else { &CallResult::Cancelled })
    }
}

#[test]
fn only_rollbacks_are_executed_during_shutdown() {
    let mut workers = Workers::start(|_| Box::new(UntilOff), || false, None);
    workers.submit(order(1, false));
    workers.submit(order(2, false));
    workers.submit(order(3, true));
    let outcomes = workers.stop(SOON).into_iter();
    let mut outcomes: Vec<_> = outcomes.map(|outcome| (outcome.decision.0, outcome.calls[0].result.clone())).collect();
    outcomes.sort_by_key(|(decision, _)| *decision);
    assert_eq!(outcomes, [(1, CallResult::Cancelled), (2, CallResult::Cancelled), (3, CallResult::Done)]);
}

#[test]
fn shutdown_does_not_wait_for_a_hung_worker() {
    let (mut workers, gate) = gated();
    workers.submit(order(1, false));
    gate.wait_for_arrivals(1);
    assert!(workers.stop(Duration::from_millis(10)).is_empty());
    gate.open();
}
