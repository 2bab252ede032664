use std::{
    sync::{
        atomic::{AtomicBool, Ordering},
        mpsc::{self, Receiver, Sender},
    },
    time::{Duration, Instant},
};

use model::Call;

use super::*;

const GPU: GpuUuid = GpuUuid([1; 16]);
const PROCESS: ProcessId = ProcessId { pid: 1, start_ticks: 1 };
const MIB: u64 = 1 << 20;
const PATIENCE: Duration = Duration::from_secs(30);

/// Actuator that tells of each call, and waits for its result; a panic without one.
struct Calls {
    made: Sender<Step>,
    results: Receiver<Option<CallResult>>,
}

impl Actuator for Calls {
    fn carry_out(&mut self, order: &Order, interrupt: &dyn Interrupt) -> Outcome {
        let call = |step: &Step| {
            let mut result = CallResult::Cancelled;
            if !interrupt.is_cancelled() {
                self.made.send(*step).unwrap();
                result = self.results.recv().unwrap().expect("a result");
            }
            Call { step: *step, result, duration_ns: 1 }
        };
        // In two parts each.
        let parts = order.steps.iter().flat_map(|step| {
            let middle = step.begin.midpoint(step.end);
            [Step { end: middle, ..*step }, Step { begin: middle, ..*step }]
        });
        Outcome::new(order, parts.collect::<Vec<_>>().iter().map(call).collect())
    }
}

/// A mover, and the other ends of its actuator.
struct World {
    mover: Mover,
    made: Receiver<Step>,
    results: Sender<Option<CallResult>>,
    is_off: Arc<AtomicBool>,
}

impl World {
    fn new() -> Self {
        let (sender, made) = mpsc::channel();
        let (results, receiver) = mpsc::channel();
        let ends = Mutex::new(Some(Calls { made: sender, results: receiver }));
        let is_off = Arc::new(AtomicBool::new(false));
        let switch = Arc::clone(&is_off);
        let actuator = move |_| -> Box<dyn Actuator> { Box::new(ends.lock().unwrap().take().unwrap()) };
        let mover = MoverFactory::new(actuator, move || switch.load(Ordering::SeqCst)).start(PROCESS, GPU).unwrap();
        Self { mover, made, results, is_off }
    }

    /// Waits for the next call.
    fn call(&self) -> (u64, u64) {
        let Step { begin, end, .. } = self.made.recv_timeout(PATIENCE).unwrap();
        (begin / MIB, end / MIB)
    }

    fn ends_with(&self, result: CallResult) {
        self.results.send(Some(result)).unwrap();
    }

    /// Waits for counters.
    fn counts(&self, expected: PlanCounters) {
        let begun = Instant::now();
        while self.mover.report().counters != expected {
            assert!(begun.elapsed() < PATIENCE, "{:?} instead of {expected:?}", self.mover.report());
            thread::sleep(Duration::from_millis(1));
        }
    }
}

/// Move of 4 MiB of this number.
fn one(at: usize, place: Place, deadline_launch: Option<u64>) -> PlanMove {
    let begin = at as u64 * 4 * MIB;
    PlanMove { at, begin, end: begin + 4 * MIB, place, deadline_launch }
}

#[test]
fn moves_are_made_in_their_order_and_counted() {
    let world = World::new();
    world.mover.begin(1, [one(0, Place::Host, Some(3)), one(1, Place::Gpu(GPU), None)]);
    for part in [(0, 2), (2, 4), (4, 6), (6, 8)] {
        assert_eq!(world.call(), part);
        world.ends_with(CallResult::Done);
    }
    let counters = PlanCounters { moves: 2, to_gpu_bytes: 4 * MIB, to_host_bytes: 4 * MIB, ..PlanCounters::default() };
    world.counts(counters);
    assert_eq!(world.mover.report().ended, None);
}

#[test]
fn move_whose_waiting_launch_was_seen_is_late_and_not_made() {
    let world = World::new();
    let moves = [one(0, Place::Host, Some(3)), one(1, Place::Gpu(GPU), Some(3)), one(2, Place::Host, Some(4))];
    world.mover.begin(4, moves);
    assert_eq!(world.call(), (8, 10));
    world.counts(PlanCounters { late: 2, expired: 2, ..PlanCounters::default() });
}

#[test]
fn rest_of_a_move_that_a_launch_overtakes_is_not_made_and_others_are() {
    let world = World::new();
    world.mover.begin(1, [one(0, Place::Host, Some(3)), one(1, Place::Host, Some(9))]);
    assert_eq!(world.call(), (0, 2));
    world.mover.begin(4, []);
    world.ends_with(CallResult::Done);
    assert_eq!(world.call(), (4, 6));
    world.counts(PlanCounters { moves: 1, late: 1, to_host_bytes: 2 * MIB, ..PlanCounters::default() });
}

#[test]
fn full_queue_and_moves_that_wait_still_are_skipped() {
    let world = World::new();
    world.mover.begin(1, [one(0, Place::Host, None)]);
    assert_eq!(world.call(), (0, 2));
    world.mover.begin(2, [one(0, Place::Host, None)]);
    world.counts(PlanCounters { skipped: 1, ..PlanCounters::default() });
    world.mover.begin(3, (1..=WAITING_MAX + 5).map(|at| one(at, Place::Host, None)));
    world.counts(PlanCounters { skipped: 6, ..PlanCounters::default() });
}

#[test]
fn call_that_fails_ends_the_plan_with_its_reason_until_the_next() {
    let world = World::new();
    world.mover.begin(1, [one(0, Place::Host, None), one(1, Place::Host, None)]);
    assert_eq!(world.call(), (0, 2));
    world.ends_with(CallResult::Failed("no descriptor".to_owned()));
    // The rest has results of its own.
    for _ in 0..3 {
        world.call();
        world.ends_with(CallResult::HostMemory);
    }
    world.counts(PlanCounters { skipped: 2, ..PlanCounters::default() });
    assert_eq!(world.mover.report().ended.as_deref(), Some("a move failed: no descriptor"));
    world.mover.begin(2, [one(2, Place::Host, None)]);
    world.counts(PlanCounters { skipped: 3, ..PlanCounters::default() });
    world.mover.reset();
    assert_eq!(world.mover.report().ended, None);
    world.mover.begin(1, [one(2, Place::Host, None)]);
    assert_eq!(world.call(), (8, 10));
}

#[test]
fn denied_move_ends_the_plan() {
    let world = World::new();
    world.mover.begin(1, [one(0, Place::Host, None)]);
    for _ in 0..2 {
        world.call();
        world.ends_with(CallResult::Denied("the target pauses".to_owned()));
    }
    world.counts(PlanCounters { skipped: 1, ..PlanCounters::default() });
    assert_eq!(world.mover.report().ended.as_deref(), Some("a move is denied: the target pauses"));
}

#[test]
fn too_little_host_memory_skips_a_move_and_ends_no_plan() {
    let world = World::new();
    world.mover.begin(1, [one(0, Place::Host, None)]);
    for _ in 0..2 {
        world.call();
        world.ends_with(CallResult::HostMemory);
    }
    world.counts(PlanCounters { skipped: 1, ..PlanCounters::default() });
    assert_eq!(world.mover.report().ended, None);
}

#[test]
fn nothing_of_a_plan_is_moved_behind_its_withdrawal() {
    let world = World::new();
    world.mover.begin(1, (0..40).map(|at| one(at, Place::Host, None)));
    assert_eq!(world.call(), (0, 2));
    world.mover.reset();
    world.ends_with(CallResult::Done);
    let counters = PlanCounters { moves: 1, skipped: 39, to_host_bytes: 2 * MIB, ..PlanCounters::default() };
    world.counts(counters);
    // The next call is of the next plan.
    world.mover.begin(1, [one(50, Place::Host, None)]);
    assert_eq!(world.call(), (200, 202));
}

#[test]
fn nothing_is_moved_while_acting_is_off() {
    let world = World::new();
    world.is_off.store(true, Ordering::SeqCst);
    world.mover.begin(1, [one(0, Place::Host, None)]);
    world.counts(PlanCounters { skipped: 1, ..PlanCounters::default() });
    world.is_off.store(false, Ordering::SeqCst);
    world.mover.begin(2, [one(1, Place::Host, None)]);
    assert_eq!(world.call(), (4, 6));
}

#[test]
fn panic_ends_the_plan() {
    let world = World::new();
    world.mover.begin(1, [one(0, Place::Host, None)]);
    world.call();
    world.results.send(None).unwrap();
    world.counts(PlanCounters { skipped: 1, ..PlanCounters::default() });
    assert!(world.mover.report().ended.is_some_and(|reason| reason.contains("in the middle")));
}

#[test]
fn thread_ends_without_its_owner() {
    let World { mover, made, results, is_off: _ } = World::new();
    mover.begin(1, [one(0, Place::Host, None)]);
    made.recv_timeout(PATIENCE).unwrap();
    drop(mover);
    results.send(Some(CallResult::Done)).unwrap();
    assert_eq!(made.recv_timeout(PATIENCE), Err(mpsc::RecvTimeoutError::Disconnected), "no further call is made");
}
