//! Detection on streams of operations as they come from running programs: recorded ones, whose
//! iterations are known from the copies and events that they wait for, and random ones.

use std::iter::repeat_n;

use trace::{
    Detector, Iteration, IterationWindow, Lives, OpKind, OpStream, Recorder,
    detect::{Lock, Period, Settings, State},
    ops::{Launch, Signature, SyncKind},
};
use trace_sources::import::{self, Trace};

use crate::support::sample;

/// Recorded run, and what is known of it from its program.
struct Run {
    name: &'static str,
    period: Period,
    /// Kind and number of syncs with which the program ends an iteration.
    ends: (SyncKind, usize),
    /// Iterations, counted from 0 and with each validation pass as one, that differ from those
    /// before them.
    drifts: &'static [usize],
}

const fn period(mallocs: usize, launches: usize, syncs: usize) -> Period {
    Period { mallocs, launches, syncs }
}

/// The loss of tinygrad is a copy that waits; the context is waited for before it.
const LOSS: (SyncKind, usize) = (SyncKind::Copy, 1);

const RUNS: [Run; 11] = [
    Run { name: "mlp", period: period(0, 21, 2), ends: LOSS, drifts: &[] },
    Run { name: "cnn", period: period(0, 52, 2), ends: LOSS, drifts: &[] },
    Run { name: "mlp-validated", period: period(0, 21, 2), ends: LOSS, drifts: &[12, 25] },
    Run { name: "cnn-validated", period: period(0, 52, 2), ends: LOSS, drifts: &[12, 25] },
    Run { name: "mlp-batch", period: period(0, 21, 2), ends: LOSS, drifts: &[12] },
    Run { name: "cnn-batch", period: period(0, 52, 2), ends: LOSS, drifts: &[12] },
    Run { name: "mlp-eager", period: period(12, 21, 2), ends: LOSS, drifts: &[] },
    Run { name: "cnn-eager", period: period(31, 52, 2), ends: LOSS, drifts: &[] },
    Run { name: "numba", period: period(7, 11, 3), ends: (SyncKind::Copy, 2), drifts: &[] },
    Run { name: "numba-passes", period: period(7, 29, 3), ends: (SyncKind::Copy, 2), drifts: &[] },
    Run { name: "burn", period: period(0, 360, 1), ends: (SyncKind::Event, 1), drifts: &[] },
];

impl Run {
    fn load(&self) -> OpStream {
        let Trace::Ops(stream) = import::load(&sample(&format!("runs/{}.json.gz", self.name))).unwrap() else {
            panic!("{} is not a run", self.name)
        };
        stream
    }

    /// Operations until the end of each iteration.
    fn ends(&self, stream: &OpStream) -> Vec<u64> {
        let (kind, count) = self.ends;
        let syncs = (1..).zip(stream.ops().values()).filter(|(_, op)| op.kind == OpKind::Sync(kind));
        syncs.map(|(at, _)| at).skip(count - 1).step_by(count).collect()
    }
}

/// Detector of a run whose recorder has its syncs.
fn with_syncs() -> Detector {
    Detector::new(Settings { has_syncs: true, ..Settings::default() })
}

/// States by the whole iterations before them.
fn by_iteration(changes: &[(u64, State)], ends: &[u64]) -> Vec<(usize, State)> {
    let iteration = |at: u64| ends.partition_point(|end| *end < at);
    changes.iter().map(|(at, state)| (iteration(*at), *state)).collect()
}

#[test]
fn recorded_programs_lock_at_their_iterations_and_at_nothing_else() {
    for run in &RUNS {
        let stream = run.load();
        let ends = run.ends(&stream);
        let changes = by_iteration(&with_syncs().observe(&stream), &ends);
        let locks: Vec<Lock> = changes.iter().filter_map(|(_, state)| state.lock()).collect();
        assert!(locks.iter().all(|lock| lock.period == run.period), "{}: {changes:?}", run.name);
        let first = |of: fn(&State) -> bool| changes.iter().find(|(_, state)| of(state)).unwrap().0;
        let provisional = first(|state| matches!(state, State::Provisional(_)));
        let locked = first(|state| matches!(state, State::Locked(_)));
        eprintln!("{}: provisional in iteration {provisional}, locked in iteration {locked}", run.name);
        // Iterations count from 0. The first one differs, and the mallocs of Burn's second one.
        assert!(provisional <= 4 && locked < 8, "{}: {changes:?}", run.name);
        for lock in locks.iter().filter(|lock| lock.period.mallocs == 0) {
            assert!(ends.contains(&lock.start_op), "{}: {lock:?} does not begin an iteration", run.name);
        }
    }
}

#[test]
fn drift_is_noticed_within_an_iteration_and_three_later_ones_lock_again() {
    for run in RUNS.iter().filter(|run| !run.drifts.is_empty()) {
        let stream = run.load();
        let changes = by_iteration(&with_syncs().observe(&stream), &run.ends(&stream));
        let degraded = changes.iter().filter(|(_, state)| matches!(state, State::Degraded(_)));
        let degraded: Vec<usize> = degraded.map(|(iteration, _)| *iteration).collect();
        assert_eq!(degraded, run.drifts, "{}: {changes:?}", run.name);
        for drift in run.drifts {
            let next = changes.iter().find(|(iteration, state)| iteration > drift && state.lock().is_some());
            let Some((again, State::Locked(_))) = next else { panic!("{}: {changes:?}", run.name) };
            assert!((drift + 1..=drift + 3).contains(again), "{}: {changes:?}", run.name);
        }
    }
}

#[test]
fn recorded_programs_whose_syncs_are_not_recorded_lock_at_nothing_else_either() {
    let mut locked = 0;
    for run in &RUNS {
        let stream = run.load();
        let mut detector = Detector::default();
        let functions = |launch| u64::from(stream.launches()[launch].signature.0);
        for op in stream.ops().values() {
            match op.kind {
                OpKind::Malloc(block) => detector.malloc(stream.blocks()[block].bytes),
                OpKind::Free(block) => detector.free(stream.blocks()[block].bytes),
                OpKind::Launch(launch) => detector.launch(functions(launch), functions(launch)),
                _ => detector.other(),
            }
            if detector.due() {
                detector.search();
            }
            if let State::Locked(lock) = detector.state() {
                let expected = Period { syncs: 0, ..run.period };
                assert_eq!(lock.period, expected, "{}", run.name);
            }
        }
        locked += usize::from(matches!(detector.state(), State::Locked(_)));
    }
    assert!(locked >= 3, "runs of 50 launches or more in an iteration: {locked}");
}

#[test]
fn iteration_of_a_program_without_mallocs_has_its_launches_and_persistent_blocks() {
    let run = &RUNS[0];
    let stream = run.load();
    let mut detector = with_syncs();
    detector.observe(&stream);
    let State::Locked(lock) = detector.state() else { panic!("{:?}", detector.state()) };
    assert_eq!(lock.window(), None);
    let window = lock.iteration_window().unwrap();
    assert!(matches!(window, IterationWindow::Launches(launches) if launches.launches == 21));
    let iteration = Iteration::of_ops(&stream, window, Lives::Used).unwrap();
    assert_eq!(iteration.kernels().len(), 23, "launches and syncs");
    let kernels = iteration.kernels().values();
    assert_eq!((&*kernels[20].name, &*kernels[22].name), ("sync", "sync"), "the loss is copied between them");
    let mut used = iteration.tensors().iter().filter(|(id, _)| !iteration.uses(*id).is_empty());
    assert!(used.all(|(_, tensor)| tensor.persistent), "memory of a pool outlives each iteration");
    // The weights of the first layer and Adam's two moments of it are 2.5 MiB each.
    assert!(iteration.persistent_bytes() > 3 * 2_621_440, "{}", iteration.persistent_bytes());
    let beyond = IterationWindow::Launches(trace::from_ops::LaunchWindow { first_launch: 1 << 20, launches: 21 });
    let error = Iteration::of_ops(&stream, beyond, Lives::Used).unwrap_err().to_string();
    assert!(error.starts_with("launches 1048576 to 1048597 are outside the trace"), "{error}");
}

/// Operation of a random program.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Step {
    Malloc(u64),
    Free(u64),
    Launch(u64),
    Sync,
}

/// Random numbers (xorshift); equal seeds give equal numbers.
struct Random(u64);

impl Random {
    fn below(&mut self, end: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 16) % end
    }

    fn between(&mut self, range: std::ops::Range<u64>) -> u64 {
        range.start + self.below(range.end - range.start)
    }

    /// Launches of few functions, some with blocks of their own.
    fn work(&mut self, count: u64, functions: u64) -> Vec<Step> {
        let mut steps = Vec::new();
        for _ in 0..count {
            let bytes = 256 * self.between(1..9);
            match self.below(4) {
                0 => steps.extend([Step::Malloc(bytes), Step::Launch(self.below(functions)), Step::Free(bytes)]),
                _ => steps.push(Step::Launch(self.below(functions))),
            }
        }
        steps
    }

    /// Iteration: work, loops within it, and a sync at its end. Loops may have a sync in each round
    /// if they have fewer rounds than confirm a lock.
    fn iteration(&mut self) -> Vec<Step> {
        let functions = self.between(2..40);
        let mut steps = Vec::new();
        for _ in 0..self.between(1..5) {
            let once = self.between(3..40);
            steps.extend(self.work(once, functions));
            let of_round = self.between(1..30);
            let mut round = self.work(of_round, functions);
            let rounds = if self.below(3) == 0 {
                round.push(Step::Sync);
                self.between(2..6)
            } else {
                self.between(2..25)
            };
            steps.extend(repeat_n(round, usize::try_from(rounds).unwrap()).flatten());
        }
        // A function that no other iteration has, and one that is only at the end.
        steps.extend([Step::Launch(1000 + self.below(1000)), Step::Launch(5000), Step::Sync]);
        steps
    }
}

fn period_of(steps: &[Step]) -> Period {
    let count = |is_one: fn(&Step) -> bool| steps.iter().filter(|step| is_one(step)).count();
    Period {
        mallocs: count(|step| matches!(step, Step::Malloc(_))),
        launches: count(|step| matches!(step, Step::Launch(_))),
        syncs: count(|step| *step == Step::Sync),
    }
}

/// Detector of a live run, and each new state with the number of operations so far.
struct Live {
    detector: Detector,
    ops: usize,
    changes: Vec<(usize, State)>,
}

impl Live {
    fn new() -> Self {
        Self { detector: with_syncs(), ops: 0, changes: Vec::new() }
    }

    fn run(&mut self, steps: &[Step]) {
        for step in steps {
            let before = self.detector.state();
            match *step {
                Step::Malloc(bytes) => self.detector.malloc(bytes),
                Step::Free(bytes) => self.detector.free(bytes),
                Step::Launch(function) => self.detector.launch(function, function),
                Step::Sync => self.detector.sync(SyncKind::Stream),
            }
            self.ops += 1;
            if self.detector.due() {
                self.detector.search();
            }
            if self.detector.state() != before {
                self.changes.push((self.ops, self.detector.state()));
            }
        }
    }

    /// Operations until the first lock after a number of operations.
    fn locked_after(&self, ops: usize) -> Option<usize> {
        let locked = |(_, state): &&(usize, State)| matches!(state, State::Locked(_));
        self.changes.iter().filter(locked).map(|(at, _)| *at).find(|at| *at > ops)
    }

    /// Panics at a lock on anything else than this iteration since a number of operations.
    fn check_locks(&self, since: usize, expected: Period, seed: u64) {
        for (at, state) in self.changes.iter().filter(|(at, _)| *at > since) {
            if let State::Locked(lock) = state {
                assert_eq!(lock.period, expected, "seed {seed}, op {at}: {:?}", self.changes);
            }
        }
    }
}

#[test]
fn random_iterations_with_loops_in_them_are_the_only_locks() {
    let mut latest: f64 = 0.0;
    for seed in 1..400 {
        let mut random = Random(seed << 32 | 0x9e37_79b9);
        let mut live = Live::new();
        let warm_up = random.below(3000);
        live.run(&random.work(warm_up, 500));
        let warm_up = live.ops;
        let steps = random.iteration();
        (0..10).for_each(|_| live.run(&steps));
        live.check_locks(0, period_of(&steps), seed);
        let at = live.locked_after(0).unwrap_or_else(|| panic!("seed {seed}: {:?}", live.changes));
        latest = latest.max((at - warm_up) as f64 / steps.len() as f64);
    }
    assert!(latest < 8.0, "locked after {latest} iterations");
}

#[test]
fn random_drift_is_noticed_within_an_iteration_and_the_next_iteration_locked() {
    let (mut latest_notice, mut latest_lock): (f64, f64) = (0.0, 0.0);
    for seed in 1..200 {
        let mut random = Random(seed << 32 | 0x9e37_79b9);
        let mut live = Live::new();
        let (before, after) = (random.iteration(), random.iteration());
        (0..10).for_each(|_| live.run(&before));
        assert!(matches!(live.detector.state(), State::Locked(_)), "seed {seed}: {:?}", live.changes);
        let drift = live.ops;
        (0..14).for_each(|_| live.run(&after));
        let noticed = live.changes.iter().find(|(at, _)| *at > drift);
        let Some((noticed, State::Degraded(_))) = noticed else { panic!("seed {seed}: {:?}", live.changes) };
        latest_notice = latest_notice.max((noticed - drift) as f64 / after.len().min(before.len()) as f64);
        live.check_locks(drift, period_of(&after), seed);
        let at = live.locked_after(drift).unwrap_or_else(|| panic!("seed {seed}: {:?}", live.changes));
        // The old period is preferred for four of its lengths.
        latest_lock = latest_lock.max((at - drift) as f64 / after.len() as f64);
    }
    assert!(latest_notice < 1.0, "noticed after {latest_notice} iterations");
    assert!(latest_lock < 8.0, "locked after {latest_lock} iterations");
}

#[test]
fn program_that_allocates_no_more_is_another_iteration() {
    let mut random = Random(7);
    let steps = random.iteration();
    let warm: Vec<Step> =
        steps.iter().copied().filter(|step| !matches!(step, Step::Malloc(_) | Step::Free(_))).collect();
    assert!(warm.len() < steps.len());
    let mut live = Live::new();
    (0..10).for_each(|_| live.run(&steps));
    let end = live.ops;
    (0..9).for_each(|_| live.run(&warm));
    let degraded = live.changes.iter().find(|(at, _)| *at > end);
    assert!(matches!(degraded, Some((at, State::Degraded(_))) if at - end < 2 * warm.len()), "{:?}", live.changes);
    assert!(matches!(live.detector.state(), State::Locked(lock) if lock.period == period_of(&warm)));
    // And if it does so once more, the plan is not followed.
    live.run(&[Step::Malloc(1 << 20)]);
    assert!(matches!(live.detector.state(), State::Degraded(_)));
}

#[test]
fn loop_without_a_sync_is_provisional_until_it_is_long() {
    let round: Vec<Step> = (0..60).map(Step::Launch).collect();
    let mut live = Live::new();
    (0..60).for_each(|_| live.run(&round));
    assert!(matches!(live.detector.state(), State::Provisional(lock) if lock.period == period(0, 60, 0)));
    (0..10).for_each(|_| live.run(&round));
    assert!(matches!(live.detector.state(), State::Locked(lock) if lock.period == period(0, 60, 0)));
}

#[test]
fn syncs_that_are_yet_to_come_are_unknown() {
    let (launches, rounds) = (60, 20);
    let stream = |has_sync: bool| {
        let mut recorder = Recorder::default();
        let of = |launch: u64| Signature { name: format!("k{launch}"), grid: [1; 3], block: [1; 3] };
        let signatures: Vec<_> = (0..launches).map(|launch| recorder.signature(of(launch))).collect();
        for (time_ns, signature) in (0..).zip(repeat_n(&signatures, rounds).flatten()) {
            let (signature, arguments) = (*signature, Vec::new());
            let launch = Launch { signature, stream: 0, start_ns: None, duration_ns: None, arguments };
            recorder.launch(time_ns, launch).unwrap();
        }
        if has_sync {
            recorder.sync(launches * rounds as u64, SyncKind::Context).unwrap();
        }
        recorder.finish()
    };
    let (without, with) = (stream(false), stream(true));
    // Before the sync, the run with one is no other than that without.
    let (expected, mut changes) = (Detector::default().observe(&without), Detector::default().observe(&with));
    assert!(matches!(expected[..], [.., (_, State::Locked(lock))] if lock.period == period(0, 60, 0)), "{expected:?}");
    let (_, last) = changes.pop().unwrap();
    assert_eq!((changes, last), (expected, State::Degraded(period(0, 60, 0))));
    // A recorder that has syncs says so before the first one: then the launches may be of a loop.
    assert!(Settings::of_recorded(&with).has_syncs && !Settings::of_recorded(&without).has_syncs);
    for stream in [&without, &with] {
        let changes = with_syncs().observe(stream);
        assert!(changes.iter().any(|(_, state)| matches!(state, State::Provisional(_))), "{changes:?}");
        assert!(!changes.iter().any(|(_, state)| matches!(state, State::Locked(_))), "{changes:?}");
    }
}

#[test]
fn all_comparisons_of_calls_are_linear_in_the_operations() {
    let searched = |count| {
        let mut random = Random(9);
        let mut live = Live::new();
        for _ in 0..count {
            let steps = random.iteration();
            live.run(&steps);
        }
        live.detector.searched() as f64 / live.ops as f64
    };
    let (few, many) = (searched(50), searched(500));
    assert!(few < 40.0 && many < 40.0, "tokens inspected per operation: {few:.1}, {many:.1}");
}
