//! Detection of iterations: position, time and cost.

use std::path::Path;

use trace::{
    Alignment, Circle, Detector, OpKind, OpStream,
    detect::{Lock, Period, State},
};
use trace_sources::import::{kineto, singa};

/// Operation of a synthetic program.
#[derive(Clone, Copy)]
enum Step {
    Malloc(u64),
    Free(u64),
    Launch(u64),
}

/// Training iteration of equal layers, each with more operations than the minimum of an iteration:
/// a forward pass that retains some of its allocations, a backward pass that frees them, and an
/// update, a loop over the weights.
fn training(layers: u64, batch: u64) -> Vec<Step> {
    const OPS_OF_LAYER: u64 = 60;
    let mut steps = Vec::new();
    let layer = |steps: &mut Vec<Step>, forward: bool| {
        for op in 0..OPS_OF_LAYER {
            let bytes = (op % 7 + 1) * batch * 1000;
            steps.push(Step::Malloc(bytes));
            steps.push(Step::Launch(op + if forward { 0 } else { 1000 }));
            // Every other allocation of the forward pass is retained for the backward pass.
            match (forward, op % 2) {
                (true, 0) => {}
                (true, _) => steps.push(Step::Free(bytes)),
                (false, odd) => steps.extend(std::iter::repeat_n(Step::Free(bytes), if odd == 0 { 2 } else { 1 })),
            }
        }
    };
    (0..layers).for_each(|_| layer(&mut steps, true));
    (0..layers).for_each(|_| layer(&mut steps, false));
    for _weight in 0..12 * layers {
        for op in 0..5 {
            steps.push(Step::Malloc(4096));
            steps.push(Step::Launch(2000 + op));
            steps.push(Step::Free(4096));
        }
    }
    steps
}

/// Hashes of 0, 1, 2, ...; equal seeds give equal numbers.
fn noise(seed: u64) -> impl Iterator<Item = u64> {
    (0..).map(move |index: u64| {
        let mixed = (seed ^ index.wrapping_mul(0x9e37_79b9_7f4a_7c15)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        (mixed ^ (mixed >> 29)) >> 16
    })
}

struct Harness {
    detector: Detector,
    ops: u64,
    /// Each new state with the number of operations so far.
    changes: Vec<(u64, State)>,
}

impl Harness {
    fn new() -> Self {
        Self { detector: Detector::default(), ops: 0, changes: Vec::new() }
    }

    fn run(&mut self, steps: &[Step]) -> &mut Self {
        for step in steps {
            let before = self.detector.state();
            match *step {
                Step::Malloc(bytes) => self.detector.malloc(bytes),
                Step::Free(bytes) => self.detector.free(bytes),
                Step::Launch(signature) => self.detector.launch(signature, signature),
            }
            self.ops += 1;
            if self.detector.due() {
                self.detector.search();
            }
            if self.detector.state() != before {
                self.changes.push((self.ops, self.detector.state()));
            }
        }
        self
    }

    fn repeat(&mut self, times: usize, steps: &[Step]) -> &mut Self {
        for _ in 0..times {
            self.run(steps);
        }
        self
    }

    /// All periods proposed or locked, without consecutive duplicates.
    fn periods(&self) -> Vec<Period> {
        let of = |state: &State| match *state {
            State::Searching => None,
            State::Proposed(period) | State::Degraded(period) => Some(period),
            State::Provisional(lock) | State::Locked(lock) => Some(lock.period),
        };
        let mut periods: Vec<_> = self.changes.iter().filter_map(|(_, state)| of(state)).collect();
        periods.dedup();
        periods
    }
}

fn period_of(steps: &[Step]) -> Period {
    let mallocs = steps.iter().filter(|step| matches!(step, Step::Malloc(_))).count();
    let launches = steps.iter().filter(|step| matches!(step, Step::Launch(_))).count();
    Period { mallocs, launches, syncs: 0 }
}

#[test]
fn an_iteration_is_found_after_any_warm_up_and_not_a_loop_within_it() {
    for (layers, before) in [(1, 0), (2, 10), (12, 300), (24, 5000)] {
        let steps = training(layers, 8);
        let warm_up: Vec<_> = noise(layers).take(before).map(Step::Malloc).collect();
        let mut harness = Harness::new();
        harness.run(&warm_up).repeat(8, &steps);
        assert_eq!(harness.periods(), [period_of(&steps)], "{layers} layers");
        let [.., (at, State::Provisional(_)), (confirmed_at, State::Locked(lock))] = harness.changes[..] else {
            panic!("{:?}", harness.changes)
        };
        let iterations = |at| (at - before as u64) as f64 / steps.len() as f64;
        assert!((2.9..3.1).contains(&iterations(at)), "{layers} layers: after {} iterations", iterations(at));
        let confirming = 1024.0 / period_of(&steps).mallocs as f64;
        assert!((iterations(confirmed_at) - iterations(at) - confirming.min(4.0)).abs() < 0.1, "{layers} layers");
        let start = (lock.start_op - before as u64) % steps.len() as u64;
        assert_eq!(start, 0, "where the fewest bytes are allocated");
    }
}

#[test]
fn equal_layers_of_inference_are_locked_in_the_first_two_iterations_at_most() {
    // Inference: each layer frees all its allocations; the last launches sample words.
    let layer = (0..60).flat_map(|op| [Step::Malloc(op % 7 + 1), Step::Launch(op), Step::Free(op % 7 + 1)]);
    let mut steps: Vec<_> = std::iter::repeat_n(layer.collect::<Vec<_>>(), 12).flatten().collect();
    steps.extend((0..10).map(|op| Step::Launch(100 + op)));
    let launches: Vec<_> = steps.iter().copied().filter(|step| matches!(step, Step::Launch(_))).collect();
    for steps in [steps, launches] {
        let mut harness = Harness::new();
        harness.repeat(12, &steps);
        let locks = harness.changes.iter().filter_map(|&(at, state)| match state {
            State::Locked(lock) => Some((at / steps.len() as u64, lock.period)),
            _ => None,
        });
        let mut wrong = locks.clone().filter(|(_, period)| *period != period_of(&steps));
        assert!(wrong.all(|(iteration, _)| iteration < 2), "{:?}", harness.changes);
        assert_eq!(locks.map(|(_, period)| period).next_back(), Some(period_of(&steps)));
    }
}

#[test]
fn a_mispredicted_operation_degrades_at_once_and_three_clean_iterations_lock_again() {
    let steps = training(4, 8);
    let period = period_of(&steps);
    let mut harness = Harness::new();
    harness.repeat(8, &steps).run(&steps[..100]).run(&[Step::Malloc(12345), Step::Free(12345)]);
    assert_eq!(harness.changes.last(), Some(&(8 * steps.len() as u64 + 101, State::Degraded(period))));
    harness.run(&steps[100..]).repeat(5, &steps);
    let &(at, State::Locked(lock)) = harness.changes.last().unwrap() else { panic!("{:?}", harness.changes) };
    assert_eq!(lock.period, period);
    let since = (at - 8 * steps.len() as u64) as f64 / steps.len() as f64;
    assert!((3.0..3.5).contains(&since), "after {since} iterations");
    assert_eq!(harness.periods(), [period], "no other period was proposed or locked meanwhile");
}

#[test]
fn another_batch_size_is_another_iteration_of_the_same_length() {
    let mut harness = Harness::new();
    harness.repeat(6, &training(4, 8)).repeat(8, &training(4, 16));
    let kinds: Vec<_> = harness.changes.iter().map(|(_, state)| std::mem::discriminant(state)).collect();
    let period = Period { mallocs: 0, launches: 0, syncs: 0 };
    let lock = Lock { period, shapes_vary: false, start_op: 0, start_malloc: 0, start_launch: 0 };
    let states = [
        State::Proposed(period),
        State::Provisional(lock),
        State::Locked(lock),
        State::Degraded(period),
        State::Locked(lock),
    ];
    assert_eq!(kinds, states.map(|state| std::mem::discriminant(&state)), "{:?}", harness.changes);
}

#[test]
fn another_model_is_another_iteration() {
    let mut harness = Harness::new();
    harness.repeat(6, &training(4, 8)).repeat(12, &training(7, 8));
    assert!(matches!(harness.detector.state(), State::Locked(lock) if lock.period == period_of(&training(7, 8))));
}

#[test]
fn iterations_with_varying_shapes_are_found_by_function() {
    let mut detector = Detector::default();
    for iteration in 0..8 {
        for function in 0..300 {
            let shape = if function == 77 { iteration } else { 0 };
            detector.launch(function, function * 1000 + shape);
            if detector.due() {
                detector.search();
            }
        }
    }
    let State::Locked(lock) = detector.state() else { panic!("{:?}", detector.state()) };
    assert_eq!((lock.period.launches, lock.shapes_vary), (300, true));
}

#[test]
fn no_iteration_is_found_in_noise() {
    let steps: Vec<_> = noise(5).take(20_000).map(Step::Malloc).collect();
    assert_eq!(Harness::new().run(&steps).changes, []);
}

#[test]
fn allocations_and_launches_that_repeat_at_different_lengths_are_not_locked() {
    let mut detector = Detector::default();
    let launches = noise(1).take(70).collect::<Vec<_>>();
    let mallocs = noise(2).take(110).collect::<Vec<_>>();
    for index in 0..20_000 {
        let launch = launches[index % launches.len()];
        detector.launch(launch, launch);
        detector.malloc(mallocs[index % mallocs.len()]);
        detector.free(mallocs[index % mallocs.len()]);
        if detector.due() {
            detector.search();
        }
        // The common period is 770 of each, the least common multiple.
        let period = match detector.state() {
            State::Provisional(lock) | State::Locked(lock) => lock.period,
            State::Proposed(period) => period,
            _ => continue,
        };
        {
            assert_eq!((period.mallocs, period.launches), (770, 770));
        }
    }
}

#[test]
fn all_searches_together_are_linear_in_the_operations() {
    let searched_of = |count| {
        let steps: Vec<_> = noise(9).take(count).map(Step::Malloc).collect();
        Harness::new().run(&steps).detector.searched() as f64 / count as f64
    };
    // The worst case is a run without a pattern.
    let (few, many) = (searched_of(50_000), searched_of(400_000));
    assert!(few < 20.0 && many < 20.0, "tokens inspected per operation: {few:.1}, {many:.1}");
}

fn detect(stream: &OpStream) -> (Vec<(u64, State)>, Lock) {
    let mut detector = Detector::default();
    let changes = detector.observe(stream);
    let State::Locked(lock) = detector.state() else { panic!("{changes:?}") };
    assert!(detector.searched() < 20 * stream.ops().len() as u64, "{} tokens inspected", detector.searched());
    (changes, lock)
}

fn mallocs_until(stream: &OpStream, ops: u64) -> usize {
    let ops = stream.ops().values().iter().take(usize::try_from(ops).unwrap());
    ops.filter(|op| matches!(op.kind, OpKind::Malloc(_))).count()
}

/// Checks that the detector proposes the period last, then locks once, at first provisionally, and
/// never changes again.
fn check(name: &str, stream: &OpStream, period: Period) -> Lock {
    let (changes, lock) = detect(stream);
    let [.., (_, State::Proposed(proposed)), (at, State::Provisional(_)), (confirmed_at, State::Locked(_))] =
        changes[..]
    else {
        panic!("{name}: {changes:?}")
    };
    assert_eq!(changes.iter().filter(|(_, state)| state.lock().is_some()).count(), 2, "{name}: {changes:?}");
    assert_eq!((proposed, lock.period), (period, period), "{name}");
    if period.mallocs > 0 {
        let iterations = |at| mallocs_until(stream, at) as f64 / period.mallocs as f64;
        eprintln!("{name}: provisional after {:.2}, confirmed after {:.2}", iterations(at), iterations(confirmed_at));
        // The first iteration differs from the others.
        assert!((3.0..4.5).contains(&iterations(at)), "{name}: after {} iterations", iterations(at));
        assert!(iterations(confirmed_at) < 6.5, "{name}: after {} iterations", iterations(confirmed_at));
    }
    lock
}

fn singa_log(data: &Path, name: &str) -> OpStream {
    singa::load_log(&data.join(format!("singa/{name}.mem-info.log.gz"))).unwrap()
}

#[test]
fn published_logs_lock_once_at_their_known_periods() {
    // Mallocs per iteration; peak of live bytes in MiB.
    let known = [
        ("imagenet-vgg-batch-16", 511, 3184),
        ("cifar-100-vgg-batch-128", 511, 658),
        ("imagenet-resnet-batch-16", 635, 1500),
        ("imagenet-googlenet-batch-64", 1122, 2853),
    ];
    let Some(data) = published::data() else { return };
    for (name, mallocs, peak_mib) in known {
        let stream = singa_log(&data, name);
        let lock = check(name, &stream, Period { mallocs, launches: 0, syncs: 0 });
        let circle = Circle::of_ops(&stream, lock.window().unwrap(), Alignment::NONE).unwrap();
        let peak_bytes = circle.peak_bytes() + circle.persistent_bytes;
        assert_eq!((peak_bytes + (1 << 19)) >> 20, peak_mib, "{name}");
    }
    let ops = singa::load_ops(&data.join("singa/cifar10-vgg.vec_block_full.csv.gz"), &[]).unwrap();
    check("op trace", &ops, Period { mallocs: 511, launches: 0, syncs: 0 });
}

#[test]
fn published_profiles_lock_once_at_their_known_periods() {
    // The 4,458 launches are 3,874 kernels, 408 copies and 176 fills.
    let known = [
        ("df_index_resolver", 2677, 4458, false),
        ("ns_resolution_rank0", 0, 1219, false),
        ("trace_diff_control", 0, 1575, true),
    ];
    let Some(data) = published::data() else { return };
    for (name, mallocs, launches, shapes_vary) in known {
        let run = kineto::load(&data.join(format!("kineto/{name}.json.gz")), None).unwrap();
        let lock = check(name, &run.stream, Period { mallocs, launches, syncs: 0 });
        assert_eq!(lock.shapes_vary, shapes_vary, "{name}");
        if let Some(window) = lock.window() {
            let circle = Circle::of_ops(&run.stream, window, Alignment::NONE).unwrap();
            assert_eq!(circle.peak_bytes() >> 20, 2415, "MiB without persistent blocks");
        }
    }
}
