//! AutoSwap: cases made by hand, random iterations replayed by the clock, and published traces.

use planner::{
    Act, Action, Link, Machine, Planner, Schedule, Tier, Unplannable,
    autoswap::{Autoswap, Effort, Goal, Mode, Parameters, Plan, Problem, Rule, Settle},
    machine::Store,
};
use trace::{Draft, Iteration, KernelId, Lives, Role, Tensor, TensorId, circle::Window, draft::DraftKernel};
use trace_sources::import::{g10, singa};

use crate::{
    replay::replay,
    support::{Numbers, data, g10_kernels},
};

const MIB: u64 = 1 << 20;

/// A machine whose links take these nanoseconds per MiB in each direction.
fn machine(out: u64, back: u64) -> Machine {
    let link = |ns: u64| Link { latency_ns: 0.0, bytes_per_second: MIB as f64 * 1e9 / ns as f64 };
    Machine { gpu_bytes: 0, host: Store { bytes: u64::MAX, out: link(out), back: link(back) }, flash: None }
}

fn tensor(mib: u64, persistent: bool) -> Tensor {
    Tensor { name: String::new(), bytes: mib * MIB, role: Role::Other, persistent }
}

fn kernel(duration_ns: u64, inputs: &[u32], outputs: &[u32]) -> DraftKernel {
    let ids = |ids: &[u32]| ids.iter().copied().map(TensorId).collect();
    DraftKernel { name: String::new(), duration_ns, inputs: ids(inputs), outputs: ids(outputs) }
}

/// Tensor 0 is written by the first kernel and read by the last. The peak between them has another
/// 20 MiB.
fn idle_at_the_peak(mib: u64) -> Iteration {
    let kernels = vec![
        kernel(10, &[], &[0]),
        kernel(10, &[], &[]),
        kernel(10, &[], &[1]),
        kernel(10, &[], &[]),
        kernel(10, &[0], &[]),
    ];
    Draft { tensors: vec![tensor(mib, false), tensor(20, false)], kernels, ..Draft::default() }.check().unwrap()
}

fn action(begin: u32, tier: Tier, done_before: u32) -> Action {
    let act = Act::Move(tier);
    Action { begin: KernelId(begin), tensor: TensorId(0), act, part: None, done_before: Some(KernelId(done_before)) }
}

#[test]
fn tensor_idle_at_the_peak_is_on_the_host_then_and_back_in_time() {
    let (iteration, machine) = (idle_at_the_peak(10), machine(1, 1));
    let problem = Problem::new(&iteration, &machine, &Parameters::default());
    assert_eq!((problem.peak_bytes(), problem.least_bytes(), problem.in_use_bytes()), (30 * MIB, 20 * MIB, 20 * MIB));
    let expected = Schedule::new(vec![action(1, Tier::Host, 2), action(3, Tier::Gpu, 4)]);
    for mode in [Mode::Stick, Mode::NoOverhead] {
        for rule in [Rule::Doa, Rule::Aoa, Rule::Wdoa, Rule::Swdoa, Rule::Vote] {
            let plan = problem.best(rule, mode, Goal::LowestLimit).unwrap();
            assert_eq!((plan.peak_bytes, plan.overhead_ns, plan.absences), (20 * MIB, 0, 1), "{rule:?} {mode:?}");
            assert_eq!((plan.moved_bytes, plan.away_bytes, &plan.schedule), (10 * MIB, 10 * MIB, &expected));
        }
    }
}

#[test]
fn slow_link_costs_time_or_memory_depending_on_the_mode() {
    // 15 ns in each direction: freed 5 ns after the begin of kernel 2, and back 5 ns after that of
    // kernel 4.
    let (iteration, machine) = (idle_at_the_peak(15), machine(1, 1));
    let problem = Problem::new(&iteration, &machine, &Parameters::default());
    let at = |mode| problem.best(Rule::Vote, mode, Goal::At(20 * MIB)).unwrap();
    let figures = |plan: Plan| (plan.peak_bytes / MIB, plan.overhead_ns, plan.absences);
    assert_eq!(figures(at(Mode::Stick)), (20, 10, 1));
    assert_eq!(figures(at(Mode::NoOverhead)), (35, 0, 0));
    assert_eq!(problem.best(Rule::Vote, Mode::Stick, Goal::At(20 * MIB - 1)), None);
}

#[test]
fn weight_migrates_across_the_end_of_the_iteration() {
    // The transfer to the host takes 10 ns and begins 5 ns before the end.
    let tensors = vec![tensor(10, true), tensor(20, false)];
    let pass = |duration_ns| kernel(duration_ns, &[], &[]);
    let kernels = vec![pass(20), kernel(20, &[], &[1]), pass(20), kernel(10, &[0], &[]), pass(5)];
    let iteration = Draft { tensors, kernels, ..Draft::default() }.check().unwrap();
    let machine = machine(1, 1);
    let problem = Problem::new(&iteration, &machine, &Parameters::default());
    for mode in [Mode::Stick, Mode::NoOverhead] {
        let plan = problem.best(Rule::Doa, mode, Goal::LowestLimit).unwrap();
        assert_eq!((plan.peak_bytes, plan.overhead_ns), (20 * MIB, 0));
        assert_eq!(plan.schedule, Schedule::new(vec![action(4, Tier::Host, 1), action(2, Tier::Gpu, 3)]));
    }
}

#[test]
fn second_peak_is_lowered_as_well() {
    // Two peaks of 30 MiB, with another tensor idle at each.
    let tensors = vec![tensor(10, false), tensor(20, false), tensor(10, false), tensor(20, false)];
    let mut kernels = Vec::new();
    for own in [0, 2] {
        let pass = || kernel(10, &[], &[]);
        kernels.extend([kernel(10, &[], &[own]), pass(), kernel(10, &[], &[own + 1]), pass(), kernel(10, &[own], &[])]);
    }
    let iteration = Draft { tensors, kernels, ..Draft::default() }.check().unwrap();
    let machine = machine(1, 1);
    let problem = Problem::new(&iteration, &machine, &Parameters::default());
    let plan = problem.best(Rule::Wdoa, Mode::Stick, Goal::LowestLimit).unwrap();
    assert_eq!((plan.peak_bytes, plan.absences), (20 * MIB, 2));
    let first_peak_only =
        Problem::new(&iteration, &machine, &Parameters { first_peak_only: true, ..Parameters::default() });
    assert_eq!(first_peak_only.least_bytes(), 30 * MIB);
}

#[test]
fn absences_that_do_not_lower_the_peak_are_pruned() {
    // 10 and 12 MiB are idle at a peak of 42 MiB. An earlier kernel uses 30 MiB alone, so that it
    // suffices to migrate the larger one.
    let tensors = vec![tensor(10, false), tensor(12, false), tensor(20, false), tensor(30, false)];
    let pass = || kernel(30, &[], &[]);
    let used = [kernel(10, &[], &[3]), kernel(10, &[], &[0, 1]), pass(), kernel(10, &[], &[2]), pass()];
    let kernels = used.into_iter().chain([kernel(10, &[0, 1], &[])]).collect();
    let iteration = Draft { tensors, kernels, ..Draft::default() }.check().unwrap();
    let machine = machine(1, 1);
    let problem = Problem::new(&iteration, &machine, &Parameters::default());
    for rule in Rule::SINGLE_SCORES {
        let plan = problem.best(rule, Mode::Stick, Goal::LowestLimit).unwrap();
        assert_eq!((plan.peak_bytes, plan.absences, plan.moved_bytes), (30 * MIB, 1, 12 * MIB), "{rule:?}");
    }
}

#[test]
fn tensors_of_a_stream_migrate_only_after_their_work_was_issued() {
    let iteration = idle_at_the_peak(10);
    let machine = machine(1, 1);
    let settle = Settle { after_read: 1, after_write: 2 };
    let problem = Problem::new(&iteration, &machine, &Parameters { settle, ..Parameters::default() });
    let plan = problem.best(Rule::Doa, Mode::Stick, Goal::At(20 * MIB)).unwrap();
    assert_eq!(plan.schedule.actions()[0], action(2, Tier::Host, 2));
    assert_eq!(plan.overhead_ns, 10);
}

#[test]
fn planner_stays_within_the_machines_memory_or_reports_the_reason() {
    let iteration = idle_at_the_peak(10);
    let plan = |gpu_mib, host_mib| {
        let mut machine = machine(1, 1);
        machine.gpu_bytes = gpu_mib * MIB;
        machine.host.bytes = host_mib * MIB;
        Autoswap::default().plan(&iteration, &machine)
    };
    assert_eq!(plan(30, 0), Ok(Schedule::default()));
    assert_eq!(plan(20, 10).unwrap().actions().len(), 2);
    let (kernel, immovable_bytes, gpu_bytes) = (KernelId(2), 20 * MIB, 19 * MIB);
    assert_eq!(plan(19, 10), Err(Unplannable::ImmovableTooLarge { kernel, immovable_bytes, gpu_bytes }));
    assert_eq!(plan(20, 9), Err(Unplannable::HostTooSmall { away_bytes: 10 * MIB, host_bytes: 9 * MIB }));
}

impl Numbers {
    fn one_of<T: Copy>(&mut self, all: &[T]) -> T {
        all[usize::try_from(self.below(all.len() as u64)).unwrap()]
    }

    fn iteration(&mut self) -> Iteration {
        let tensors: Vec<_> = (0..2 + self.below(12)).map(|_| tensor(1 + self.below(30), self.below(3) == 0)).collect();
        let some = |numbers: &mut Self| {
            let count = numbers.below(3);
            (0..count).map(|_| TensorId(u32::try_from(numbers.below(tensors.len() as u64)).unwrap())).collect()
        };
        let kernels = (0..2 + self.below(20)).map(|_| DraftKernel {
            name: String::new(),
            duration_ns: self.below(60),
            inputs: some(self),
            outputs: some(self),
        });
        let kernels = kernels.collect();
        Draft { tensors, kernels, ..Draft::default() }.check().unwrap()
    }
}

const RULES: [Rule; 6] =
    [Rule::Doa, Rule::Aoa, Rule::Wdoa, Rule::Swdoa, Rule::Vote, Rule::Weighted([0.1, 0.4, 0.2, 0.3])];

/// Checks many random problems, each with its own numbers.
pub(crate) fn random(mut check: impl FnMut(u64, &mut Numbers, &Problem<'_>, &Iteration, &Machine)) {
    for seed in 0..1500 {
        let mut numbers = Numbers(seed);
        let iteration = numbers.iteration();
        let machine = machine(1 + numbers.below(3), 1 + numbers.below(3));
        let settle = if numbers.below(4) == 0 { Settle { after_read: 2, after_write: 3 } } else { Settle::AT_ONCE };
        let parameters = Parameters { least_bytes: (1 + numbers.below(8)) * MIB, settle, ..Parameters::default() };
        check(seed, &mut numbers, &Problem::new(&iteration, &machine, &parameters), &iteration, &machine);
    }
}

#[test]
fn in_stick_mode_the_gpu_never_holds_more_than_the_limit() {
    let (mut moved, mut waited) = (0, 0);
    random(|seed, numbers, problem, iteration, machine| {
        let (least, peak) = (problem.least_bytes(), problem.peak_bytes());
        let limit_bytes = least + numbers.below(peak - least + 1);
        let rule = numbers.one_of(&RULES);
        let plan = problem.best(rule, Mode::Stick, Goal::At(limit_bytes)).unwrap();
        let replay = replay(iteration, machine, &plan.schedule);
        assert!(replay.peak_bytes <= plan.peak_bytes && plan.peak_bytes <= limit_bytes, "{seed}: {plan:?}");
        let longest = replay.duration_ns.iter().max().unwrap();
        let shortest = replay.duration_ns.iter().min().unwrap();
        assert!(*shortest >= iteration.duration_ns(), "{seed}");
        assert!(*longest <= iteration.duration_ns() + plan.overhead_ns, "{seed}: {:?} {plan:?}", replay.duration_ns);
        moved += u32::from(plan.absences > 1);
        waited += u32::from(plan.overhead_ns > 0);
    });
    assert!(moved > 300 && waited > 300, "{moved} move more than one tensor, {waited} wait");
}

#[test]
fn without_overhead_no_kernel_ever_waits() {
    let mut moved = 0;
    random(|seed, numbers, problem, iteration, machine| {
        let limit_bytes = numbers.below(problem.peak_bytes() + 1);
        let rule = numbers.one_of(&RULES);
        let plan = problem.best(rule, Mode::NoOverhead, Goal::At(limit_bytes)).unwrap();
        let replay = replay(iteration, machine, &plan.schedule);
        assert!(
            replay.duration_ns.iter().all(|took| *took == iteration.duration_ns()),
            "{seed}: {:?}",
            replay.duration_ns
        );
        assert!(replay.peak_bytes <= plan.peak_bytes && plan.overhead_ns == 0, "{seed}");
        assert!(plan.peak_bytes <= problem.peak_bytes(), "{seed}");
        moved += u32::from(plan.absences > 1);
    });
    assert!(moved > 100, "{moved} move more than one tensor");
}

#[test]
fn the_lowest_limit_costs_nothing_and_is_not_below_the_bound() {
    random(|seed, numbers, problem, iteration, machine| {
        let (rule, mode) = (numbers.one_of(&RULES), numbers.one_of(&[Mode::Stick, Mode::NoOverhead]));
        let plan = problem.best(rule, mode, Goal::LowestLimit).unwrap();
        let replay = replay(iteration, machine, &plan.schedule);
        assert!(plan.is_free() && replay.peak_bytes <= plan.peak_bytes, "{seed}");
        assert!(problem.in_use_bytes() <= problem.least_bytes() && problem.least_bytes() <= plan.peak_bytes, "{seed}");
        assert!(
            replay.duration_ns.iter().all(|took| *took == iteration.duration_ns()),
            "{seed}: {:?}",
            replay.duration_ns
        );
    });
}

#[test]
fn optimised_weights_are_never_worse_than_a_score_by_itself() {
    let effort = Effort { starts: 4, steps: 4 };
    random(|seed, numbers, problem, _, _| {
        if seed % 10 > 0 {
            return;
        }
        let limit_bytes = problem.least_bytes() + numbers.below(problem.peak_bytes() - problem.least_bytes() + 1);
        for (mode, goal) in [(Mode::Stick, Goal::At(limit_bytes)), (Mode::NoOverhead, Goal::LowestLimit)] {
            let best = problem.optimised(mode, goal, effort).unwrap();
            for rule in Rule::SINGLE_SCORES {
                let pure = problem.best(rule, mode, goal).unwrap();
                let cost =
                    |plan: &Plan| (plan.overhead_ns, if goal == Goal::LowestLimit { plan.peak_bytes } else { 0 });
                assert!(cost(&best) <= cost(&pure), "{seed}: {:?} {rule:?}", best.rule);
            }
            assert_eq!(problem.optimised(mode, goal, effort), Some(best), "{seed}: the same again");
        }
    });
}

/// The authors' measurements: pinned memory on PCI Express 3.0.
fn authors_machine() -> Machine {
    let link = |latency_ns, ns_per_byte: f64| Link { latency_ns, bytes_per_second: 1e9 / ns_per_byte };
    let host = Store { bytes: u64::MAX, out: link(47_200.0, 0.0756), back: link(9_700.0, 0.0823) };
    Machine { gpu_bytes: 0, host, flash: None }
}

/// Saving of a plan, verified by replay: the share of the peak, in percent.
fn saved(iteration: &Iteration, machine: &Machine, parameters: &Parameters, rule: Rule) -> f64 {
    let problem = Problem::new(iteration, machine, parameters);
    let plan = problem.best(rule, Mode::Stick, Goal::LowestLimit).unwrap();
    let replay = replay(iteration, machine, &plan.schedule);
    assert!(replay.peak_bytes <= plan.peak_bytes && plan.is_free());
    assert!(replay.duration_ns.iter().all(|took| *took == iteration.duration_ns()), "{:?}", replay.duration_ns);
    100.0 * (1.0 - plan.peak_bytes as f64 / problem.peak_bytes() as f64)
}

#[test]
fn authors_run_saves_more_without_overhead_than_their_best() {
    let Some(data) = data() else { return };
    let busy = singa::load_busy(&data.join("singa/cifar10-vgg.swap-overhead.log.gz")).unwrap();
    let stream = singa::load_ops(&data.join("singa/cifar10-vgg.vec_block_full.csv.gz"), &busy).unwrap();
    let parameters = Parameters { settle: Settle::OF_STREAMS, ..Parameters::default() };
    for turn in 1..=5 {
        let window = Window { first_malloc: turn * 511, mallocs: 511 };
        for lives in [Lives::Used, Lives::Allocated] {
            let iteration = Iteration::of_ops(&stream, window, lives).unwrap();
            let saved = saved(&iteration, &authors_machine(), &parameters, Rule::Vote);
            eprintln!("iteration {turn}, {lives:?}: {saved:.1} %");
            // The paper's best of all networks is 34.2 %. At the first peak only, these are 32.5 to
            // 61.8 %.
            assert!(saved > 45.0, "iteration {turn}, {lives:?}: {saved}");
        }
    }
}

#[test]
fn iterations_of_g10_replay_as_planned() {
    let Some(data) = data() else { return };
    for (set, least) in [("BERT_Base/256", 18.0), ("Inceptionv3/1536", 60.0)] {
        let iteration = g10::load(&g10_kernels(&data, set)).unwrap().iteration;
        let saved = saved(&iteration, &authors_machine(), &Parameters::default(), Rule::Aoa);
        eprintln!("{set}: {saved:.1} %");
        assert!(saved > least, "{set}: {saved}");
    }
}
