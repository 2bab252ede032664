//! Processes that hold their memory-map lock for ever.

use super::*;
use crate::{budget::TimeBudget, inspection::Inspector, inspections::Inspections, slots::Target};

/// Actuator that inspects the process, for ever if it is one of these, and replies.
struct Inspects {
    inspector: Inspector,
    hang: Vec<u32>,
    begun: Sender<u32>,
}

/// Longer than any wait of these tests.
const FOR_EVER: Duration = Duration::from_hours(1);

impl Actuator for Inspects {
    fn execute(&mut self, order: &Order, interrupt: &dyn Interrupt) -> Outcome {
        let pid = order.process.pid;
        self.begun.send(pid).unwrap();
        let hangs = self.hang.contains(&pid);
        let target = Target { pid, uid: None };
        let budget = &mut TimeBudget::new(FOR_EVER, interrupt);
        let inspected = self.inspector.run_with_timeout(FOR_EVER, budget, target, order.is_rollback, move || {
            if hangs {
                loop {
                    thread::park();
                }
            }
        });
        uniform_outcome(order, &inspected.err().unwrap_or(CallResult::Done))
    }
}

/// Workers with such actuators, and the processes whose orders have started.
fn workers(hang: &[u32]) -> (Workers, Receiver<u32>) {
    let hang = hang.to_vec();
    let (begun, is_begun) = mpsc::channel();
    let make = move |_| -> Box<dyn Actuator> {
        Box::new(Inspects {
            inspector: Inspector::new(Inspections::default()),
            hang: hang.clone(),
            begun: begun.clone(),
        })
    };
    (Workers::start(make, || false, None), is_begun)
}

fn about(pid: u32, decision: u64, is_rollback: bool) -> Order {
    Order { process: ProcessId { pid, start_ticks: 1 }, ..order(decision, is_rollback) }
}

#[test]
fn withdrawal_does_not_wait_for_processes_that_hold_their_locks() {
    let (mut workers, _begun) = workers(&[7, 8]);
    for (pid, decision) in [(7, 1), (8, 2), (9, 3)] {
        workers.submit(about(pid, decision, true));
    }
    let results = results(&workers, 3);
    assert!(
        matches!(&results[0], (1, true, CallResult::Failed(why)) if why.ends_with("a withdrawal for another process waits"))
    );
    assert!(matches!(&results[1], (2, true, CallResult::Failed(_))));
    assert_eq!(results[2], (3, true, CallResult::Done));
}

#[test]
fn withdrawal_does_not_wait_for_a_hung_order() {
    let (mut workers, begun) = workers(&[7]);
    workers.submit(about(7, 1, false));
    assert_eq!(begun.recv_timeout(SOON), Ok(7));
    workers.submit(about(9, 2, true));
    let results = results(&workers, 2);
    assert!(matches!(&results[..], [(1, false, CallResult::Failed(_)), (2, true, CallResult::Done)]), "{results:?}");
}

#[test]
fn completed_withdrawal_resets_its_yield_count() {
    let queue = Queue::default();
    assert_eq!(queue.yields(7), 0);
    for has_yielded in [true, true] {
        queue.record_yield(7, has_yielded);
    }
    assert_eq!((queue.yields(7), queue.yields(8)), (2, 0));
    queue.record_yield(7, false);
    assert_eq!(queue.yields(7), 0);
}

#[test]
fn hung_call_yields_only_to_withdrawals_about_other_processes() {
    let queue = Queue::default();
    let _rejected = (queue.push(about(7, 1, true)), queue.push(about(9, 2, false)));
    assert!(!queue.has_other_withdrawal(7));
    // A cancellation takes no time.
    assert_eq!(queue.push(Order { steps: Vec::new(), ..about(9, 3, true) }), []);
    assert!(!queue.has_other_withdrawal(7));
    assert_eq!(queue.push(about(9, 3, true)), []);
    assert!(queue.has_other_withdrawal(7));
}
