//! Advice is in the journal before it is given, and withdrawals do not wait for a disk.

use std::{collections::BTreeMap, fs};

use model::{Advice, Place};
use sys::fake::Machine;

use super::*;
use crate::journal::testing::{Disk, LIVING, LONG, machine};

const OTHER_GPU: GpuUuid = GpuUuid([2; 16]);
const READ: Advice = Advice::ReadDuplication;

/// Order on page `page` of the live process.
fn order(decision: u64, gpu: GpuUuid, page: u64, action: Action) -> Order {
    let steps = vec![Step { begin: page * 4096, end: (page + 1) * 4096, action }];
    let is_rollback = matches!(action, Action::Withdraw(_));
    Order { decision: DecisionId(decision), process: LIVING, gpu, steps, is_rollback }
}

fn advise(decision: u64, gpu: GpuUuid) -> Order {
    order(decision, gpu, decision, Action::Advise(READ))
}

fn withdraw(decision: u64, gpu: GpuUuid) -> Order {
    order(decision, gpu, decision, Action::Withdraw(READ))
}

/// Actuator that executes its orders, and checks whether the advice is in the file by then.
struct Executing(std::path::PathBuf);

impl Actuator for Executing {
    fn execute(&mut self, order: &Order, _interrupt: &dyn Interrupt) -> Outcome {
        for step in &order.steps {
            let text = fs::read_to_string(&self.0).unwrap();
            let line = format!("\"begin\":{},\"end\":{},\"advice\":\"read_duplication\"", step.begin, step.end);
            assert!(!gives_advice(order) || text.contains(&line), "the journal knows before the driver is called");
        }
        uniform_outcome(order, &CallResult::Done)
    }
}

struct Bench {
    workers: Workers,
    disk: Disk,
    journal: Journal,
    off: Arc<AtomicBool>,
    machine: Machine,
}

impl Bench {
    fn new(timeouts: Timeouts) -> Self {
        let (machine, disk, off) = (machine(), Disk::default(), Arc::new(AtomicBool::new(false)));
        let journal = disk.open(&machine, timeouts);
        let file = machine.roots.proc.join("journal");
        let is_off = Arc::clone(&off);
        let make = move |_| -> Box<dyn Actuator> { Box::new(Executing(file.clone())) };
        let workers = Workers::start(make, move || is_off.load(Ordering::SeqCst), Some(journal.clone()));
        Self { workers, disk, journal, off, machine }
    }

    /// Results of this number of orders, by decision and whether it is a rollback.
    fn results(&self, count: usize) -> BTreeMap<(u64, bool), CallResult> {
        results(&self.workers, count)
            .into_iter()
            .map(|(decision, is_rollback, answer)| ((decision, is_rollback), answer))
            .collect()
    }

    /// Blocks the disk, with this order waiting for it.
    fn stick(&mut self, waiting: Order) {
        assert!(self.journal.flush(SOON));
        self.disk.stick();
        let tries = self.disk.state().tries;
        self.workers.submit(waiting);
        self.disk.wait_for_tries(tries + 1);
    }

    /// Pages of advice in force.
    fn in_force(&self) -> Vec<u64> {
        self.journal.leftovers().iter().flat_map(|left| &left.steps).map(|step| step.begin / 4096).collect()
    }
}

#[test]
fn advice_is_in_the_journal_from_before_it_is_given_until_it_is_withdrawn() {
    let mut bench = Bench::new(LONG);
    bench.workers.submit(advise(1, GPU));
    bench.workers.submit(advise(2, GPU));
    assert!(bench.results(2).values().all(|answer| *answer == CallResult::Done));
    bench.workers.submit(withdraw(1, GPU));
    bench.results(1);
    assert_eq!(bench.in_force(), [2]);
}

#[test]
fn advice_that_waits_for_a_stuck_disk_does_not_delay_withdrawals() {
    let mut bench = Bench::new(LONG);
    for (decision, gpu) in [(1, GPU), (2, OTHER_GPU)] {
        bench.workers.submit(advise(decision, gpu));
    }
    bench.results(2);
    bench.stick(advise(3, GPU));
    // Migrations at another GPU do not wait for it either.
    let moves = order(4, OTHER_GPU, 9, Action::Migrate(Place::Host));
    for order in [withdraw(1, GPU), withdraw(2, OTHER_GPU), moves] {
        bench.workers.submit(order);
    }
    let done = |decision, is_rollback| ((decision, is_rollback), CallResult::Done);
    assert_eq!(bench.results(3), BTreeMap::from([done(1, true), done(2, true), done(4, false)]));
    assert_eq!(bench.in_force(), [3]);
    bench.disk.release();
    assert_eq!(bench.results(1), BTreeMap::from([done(3, false)]));
}

#[test]
fn advice_not_journaled_in_time_fails_and_is_not_in_force() {
    let mut bench = Bench::new(Timeouts { intent: Duration::from_millis(1), ..LONG });
    bench.stick(advise(1, GPU));
    let answer = bench.results(1).remove(&(1, false));
    assert!(matches!(&answer, Some(CallResult::Failed(why)) if why.contains("was not written for")), "{answer:?}");
    assert_eq!(bench.in_force(), [0; 0]);
    // Later orders do not wait.
    bench.workers.submit(advise(2, GPU));
    assert!(matches!(bench.results(1)[&(2, false)], CallResult::Failed(_)));
    bench.disk.release();
    assert!(bench.journal.flush(SOON));
    // Its cancellation is on the disk, too.
    drop(bench.workers.stop(SOON));
    drop(bench.journal);
    assert_eq!(Disk::default().open(&bench.machine, LONG).leftovers(), []);
}

#[test]
fn advice_that_waits_for_a_stuck_disk_is_cancelled_by_its_rollback_and_at_shutdown() {
    let mut bench = Bench::new(LONG);
    bench.stick(advise(1, GPU));
    bench.workers.submit(withdraw(1, GPU));
    let expected = BTreeMap::from([((1, false), CallResult::Cancelled), ((1, true), CallResult::Done)]);
    assert_eq!(bench.results(2), expected);
    bench.workers.submit(advise(2, GPU));
    let outcomes = bench.workers.stop(SOON);
    assert_eq!(
        outcomes.iter().map(|outcome| outcome.calls[0].result.clone()).collect::<Vec<_>>(),
        [CallResult::Cancelled]
    );
    assert_eq!(bench.journal.leftovers(), []);
    bench.disk.release();
}

#[test]
fn order_cancelled_before_its_start_is_not_journaled() {
    let mut bench = Bench::new(LONG);
    let tries = bench.disk.state().tries;
    bench.off.store(true, Ordering::SeqCst);
    bench.workers.submit(advise(1, GPU));
    assert_eq!(bench.results(1)[&(1, false)], CallResult::Cancelled);
    assert!(bench.journal.flush(SOON));
    assert_eq!(bench.disk.state().tries, tries);
}

#[test]
fn panicked_order_leaves_its_advice_in_the_journal() {
    let (machine, disk) = (machine(), Disk::default());
    let journal = disk.open(&machine, LONG);
    let make = |_| -> Box<dyn Actuator> { Box::new(Panics(Arc::default())) };
    let mut workers = Workers::start(make, || false, Some(journal.clone()));
    workers.submit(advise(1, GPU));
    assert!(matches!(results(&workers, 1)[0].2, CallResult::Failed(_)));
    assert_eq!(journal.leftovers().len(), 1);
}
